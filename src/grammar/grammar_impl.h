/*
 * A compiled grammar: a pushdown automaton over bytes.
 *
 * Every rule is a graph of states. An edge reads a byte of a range, or reads nothing, or calls a
 * rule and goes on at its target when that one has ended. All rules end in the one state
 * SKV_STATE_END. A call whose target is SKV_STATE_END is a jump: right recursion takes no stack.
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
    uint32_t rule; /* CALL: which; after skv_grammar_trim its first state */
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
    uint8_t classes[256];  /* of each byte: bytes that no edge tells apart share one */
    uint8_t examples[256]; /* a byte of each class */
    uint16_t sizes[256];   /* bytes in each class */
    size_t n_classes;
};

/** Makes the automaton of a pool whose first rule is the root. */
SKV_MUST_CHECK skv_status skv_grammar_build(skv_expr_pool *pool, skv_grammar **out, skv_error *err);

/**
 * Removes what can lead nowhere, refuses rules that call themselves before they read anything,
 * and finds the classes of bytes. starts: [2 * pool->n_rules], 0 for rules that are not used; a
 * rule stands there twice, as it is and, n_rules further on, without the empty text.
 */
SKV_MUST_CHECK skv_status skv_grammar_trim(skv_grammar *g, const skv_expr_pool *pool,
                                           const uint32_t *starts, skv_error *err);

/** The repetition, and the copy in it, of a state that n_bytes lead neither out of the copies nor
 * to the last one; NULL: there is none. */
const skv_unrolled *skv_grammar_far(const skv_grammar *g, uint32_t state, size_t n_bytes,
                                    uint32_t *copy);
/** The state that stands for it where no more than n_bytes are to be read. */
uint32_t skv_grammar_alias(const skv_grammar *g, uint32_t state, size_t n_bytes);

/* Front ends: each fills a pool, the root rule first. */
SKV_MUST_CHECK skv_status skv_regex_read(skv_expr_pool *pool, const char *text, size_t n,
                                         skv_error *err);
SKV_MUST_CHECK skv_status skv_gbnf_read(skv_expr_pool *pool, const char *text, size_t n,
                                        skv_error *err);
SKV_MUST_CHECK skv_status skv_schema_read(skv_expr_pool *pool, const char *text, size_t n,
                                          skv_error *err);
SKV_MUST_CHECK skv_status skv_choice_read(skv_expr_pool *pool, const char *text, size_t n,
                                          skv_error *err);
SKV_MUST_CHECK skv_status skv_parts_read(skv_expr_pool *pool, const char *text, size_t n,
                                         skv_error *err);
/** Any JSON object. */
void skv_json_object_read(skv_expr_pool *pool);

#endif
