/*
 * A compiled grammar: a pushdown automaton over bytes.
 *
 * Every rule is a graph of states. An edge reads a byte of a range, reads nothing, or calls a rule
 * and continues at its target when the rule has ended. All rules end in the one state
 * SKV_STATE_END. A call with the target SKV_STATE_END is a jump: right recursion takes no stack.
 *
 * From every state the end of its rule can be reached: the builder makes no others.
 */
#ifndef SKV_GRAMMAR_IMPL_H
#define SKV_GRAMMAR_IMPL_H

#include "grammar/grammar_expr.h"
#include "skv/grammar.h"

#define SKV_STATE_DEAD ((uint32_t)0) /* no edges */
#define SKV_STATE_END ((uint32_t)1)

enum { SKV_STATES_MAX = 1 << 19, SKV_EDGES_MAX = 1 << 21 };

typedef enum skv_edge_kind { SKV_EDGE_BYTES, SKV_EDGE_FREE, SKV_EDGE_CALL } skv_edge_kind;

typedef struct skv_edge {
    uint32_t target;
    uint32_t rule; /* CALL: which; after skv_grammar_finish its first state */
    uint8_t kind, lo, hi;
    bool nests; /* CALL: the depth limit counts it */
} skv_edge;

typedef struct skv_state {
    uint32_t first, n; /* edges */
} skv_state;

/*
 * Copies of one piece that a bounded repetition made: copy i of `count`, counted from the end, has
 * the states base + i * stride and on. A token is shorter than most of them are far from the end,
 * so that these have equal masks.
 */
typedef struct skv_unrolled {
    uint32_t base, stride, count;
} skv_unrolled;

struct skv_grammar {
    skv_state *states;      /* owned, [n_states] */
    skv_edge *edges;        /* owned, [n_edges] */
    skv_unrolled *unrolled; /* owned, [n_unrolled], by base */
    size_t n_states, n_edges, n_unrolled;
    uint32_t start;        /* of the first rule */
    uint8_t classes[256];  /* of each byte: bytes that all edges treat alike share one */
    uint8_t examples[256]; /* a byte of each class */
    uint16_t sizes[256];   /* bytes in each class */
    size_t n_classes;
};

/*
 * Facts that the builder needs about every expression before it builds any: whether it may match
 * the empty text, whether it may match another text, and how large it is.
 *
 * The facts of an expression follow from those of its parts, and those of a call from its rule's.
 * They are propagated from parts to wholes, visiting each expression once for each of its parts:
 * linear time, without recursion.
 */
enum { SKV_COST_MAX = 64 /* of a body that is copied into a loop */ };

typedef enum skv_fact {
    SKV_FACT_EMPTY = 1, /* it may be the empty text */
    SKV_FACT_SOME = 2,  /* it may be a text that is not empty */
    SKV_FACT_ALIVE = 4  /* it may be any text at all */
} skv_fact;

typedef struct skv_grammar_facts {
    uint8_t *facts; /* owned, [n] bits of skv_fact */
    uint8_t *costs; /* owned, [n] number of expressions after its rules are copied, at most
                     * SKV_COST_MAX + 1, the cost of recursive expressions and of long
                     * repetitions */
    size_t n;       /* expressions, never and empty among them */
} skv_grammar_facts;

/** False when the budget or the memory is used up. */
SKV_MUST_CHECK bool skv_grammar_facts_find(skv_grammar_facts *facts, const skv_exprs *exprs);
void skv_grammar_facts_release(skv_grammar_facts *facts, skv_budget *budget);

/** Builds the automaton of expressions; the first rule is the root. */
SKV_MUST_CHECK skv_status skv_grammar_build(skv_exprs *exprs, skv_grammar **out, skv_error *err);

/**
 * Refuses rules that call themselves before they read anything, lets calls lead to first states
 * instead of rules, and finds the classes of bytes. starts: [2 * exprs->n_rules], 0 for unused
 * rules; each rule has two entries, [i] as it is and [n_rules + i] without the empty text.
 */
SKV_MUST_CHECK skv_status skv_grammar_finish(skv_grammar *g, const skv_exprs *exprs,
                                             const skv_grammar_facts *facts, const uint32_t *starts,
                                             skv_error *err);

/** The repetition, and the copy in it, of a state that n_bytes lead neither out of the copies nor
 * to the last one; NULL: there is none. */
const skv_unrolled *skv_grammar_far(const skv_grammar *g, uint32_t state, size_t n_bytes,
                                    uint32_t *copy);
/** Returns the state's stand-in, valid if at most n_bytes will be read. */
uint32_t skv_grammar_alias(const skv_grammar *g, uint32_t state, size_t n_bytes);

#endif
