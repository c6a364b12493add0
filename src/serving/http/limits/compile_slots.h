/*
 * Decides which grammars are compiled. Few are at a time, so that the worker keeps processors.
 * Requests that share memory (memory_share.h), those of a key, share slots too: the share that
 * compiles least comes first, then the one that waited longest for its turn. A long compilation
 * gives its slot to another share that waits, and goes on at its next turn. So no key can keep
 * another from its grammars, however many it sends and however long they take.
 */
#ifndef SKV_SERVER_COMPILE_SLOTS_H
#define SKV_SERVER_COMPILE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct exchange;

/* A request that waits. */
typedef struct compile_turn {
    struct compile_turn *next;
} compile_turn;

/* Of a share; the lock of shares guards it. */
typedef struct compile_share {
    uint32_t n_compiling;
    uint64_t last_turn;  /* the number of the turn that it had last */
    compile_turn *turns; /* borrowed: the one that has waited longest first */
} compile_share;

/** Waits for a slot, and has the request's budget give it up in time; compile_leave follows. False:
 * `error`. Only the connection's own thread may call these. */
bool compile_enter(struct exchange *ex, struct api_error *error);
void compile_leave(struct exchange *ex);
/** The request waits for something else and needs no slot, if it has one, until it goes on. */
void compile_pause(struct exchange *ex);
void compile_go_on(struct exchange *ex);

#endif
