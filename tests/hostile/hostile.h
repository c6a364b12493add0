/*
 * Inputs that know the grammar of what they attack: GBNF rules, JSON schemas, regular expressions,
 * choices, parts, chat templates and histories with calls. Nesting, repetitions, names, references
 * and counts grow together, each over its whole range on a logarithmic scale, up to the limit on
 * the text. The same seed makes the same case.
 *
 *   ordinary   small and valid: it has to be taken
 *   attacks    shapes that once broke the server, with random numbers
 *   the rest   shapes that stress one walk each, and mixtures; some of them mutated afterwards
 */
#ifndef SKV_TESTS_HOSTILE_H
#define SKV_TESTS_HOSTILE_H

#include "base/buf.h"
#include "base/rng.h"

typedef enum hostile_kind {
    HOSTILE_GBNF,
    HOSTILE_SCHEMA,
    HOSTILE_REGEX,
    HOSTILE_CHOICE,
    HOSTILE_PARTS,
    HOSTILE_TEMPLATE, /* `more` has the variables */
    HOSTILE_HISTORY,  /* the text is an array of messages */
    HOSTILE_KINDS
} hostile_kind;

enum {
    HOSTILE_TEXT_MAX = 256 << 10, /* bytes, as a grammar may have; some cases have a few more */
    HOSTILE_HISTORY_MAX = 8 << 20,
    HOSTILE_MORE_MAX = 1 << 20
};

typedef struct hostile_case {
    hostile_kind kind;
    const char *shape; /* a constant */
    uint64_t seed;
    double scale; /* 0..1: of all ranges; a smaller one makes a smaller case of the same kind */
    bool ordinary, mutated;
    skv_buf text, more; /* owned */
} hostile_case;

/** "gbnf", "schema", ... and back; HOSTILE_KINDS: there is none of this name. */
const char *hostile_kind_name(hostile_kind kind);
hostile_kind hostile_kind_of(const char *name);

/** Makes the case of a seed. shape: only of this shape (where the kind has it); NULL: any. */
void hostile_make(hostile_kind kind, uint64_t seed, double scale, const char *shape,
                  hostile_case *out);
void hostile_case_release(hostile_case *c);

#endif
