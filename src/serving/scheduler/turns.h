/*
 * Decides which prompt is read next. Prompts are read one after the other: those that share their
 * steps all end late. The one with the least left to read goes first, and of equals the one that
 * came first, so the mean time to the first token is short. Two rules keep that fair:
 *
 *     one step of four begins with the oldest prompt, whatever its length;
 *     a tenant that was given SKV_TURNS_AHEAD prompt tokens more than another one whose prompts
 *     wait, comes after it until the other one has made up for that.
 *
 * That is what "turn" means in the scheduler: the order in which tenants are served. Masks take
 * turns as prompts do (masks.c), with accounts of their own.
 *
 * A step looks at the waiting prompts (begin, see for each prompt, settle), compares them, and
 * reports the tokens that it gave.
 */
#ifndef SKV_SERVE_TURNS_H
#define SKV_SERVE_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SKV_TENANTS = 64,       /* more of them share accounts */
    SKV_TURNS_AHEAD = 4096, /* prompt tokens */
    SKV_TURNS_OLDEST = 4    /* the oldest prompt's is one step of so many */
};

typedef struct skv_turns_tenant {
    uint64_t given;     /* prompt tokens */
    bool waits, waited; /* whether it has prompts in this step, and had some in the last one */
} skv_turns_tenant;

typedef struct skv_turns {
    skv_turns_tenant tenants[SKV_TENANTS];
    uint64_t floor;   /* the least that was given to one that waits */
    uint64_t n_steps; /* with prompts in them */
} skv_turns;

/** Before a step. */
void skv_turns_begin(skv_turns *turns);
/** A tenant has a prompt to be read. */
void skv_turns_see(skv_turns *turns, uint64_t tenant);
/** All were seen. A tenant that did not wait before begins with an account like that of the
 * others: time without prompts is not saved up, and tokens that it was given then are owed for
 * no more than SKV_TURNS_AHEAD tokens. */
void skv_turns_settle(skv_turns *turns);
/** Whether a prompt with n_left tokens to be read goes before an older one. */
bool skv_turns_overtakes(const skv_turns *turns, uint64_t tenant, size_t n_left,
                         uint64_t older_tenant, size_t older_n_left);
/** The tokens that a tenant was given so far. */
uint64_t skv_turns_given(const skv_turns *turns, uint64_t tenant);
/** A step has n tokens of a tenant's prompts. */
void skv_turns_give(skv_turns *turns, uint64_t tenant, size_t n);

#endif
