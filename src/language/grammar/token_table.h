/*
 * The tokens of a vocabulary as a trie over their bytes, laid out in the order of a walk: children
 * follow their parent, and `skip` jumps over all of them.
 */
#ifndef SKV_GRAMMAR_TOKEN_TABLE_H
#define SKV_GRAMMAR_TOKEN_TABLE_H

#include "base/fail.h"
#include "skv/grammar.h"

enum {
    SKV_TOKEN_BYTES_MAX = 255, /* a longer token is never allowed */
    SKV_TOKEN_MARK = 0xFF,     /* the first byte of a special token; its text follows */
    SKV_TOKENS_MAX = 1 << 24
};

typedef struct skv_token_node {
    uint32_t skip;     /* the first node after all that begin with this one */
    uint32_t first_id; /* in `ids` */
    uint16_t n_ids;    /* tokens that are exactly these bytes */
    uint8_t byte;
    uint8_t depth; /* bytes to here, 1 .. */
} skv_token_node;

struct skv_token_table {
    skv_token_node *nodes; /* owned, [n_nodes] */
    uint32_t *ids;         /* owned: the tokens of all nodes */
    uint32_t *starts;      /* owned, [n_tokens + 1] of each token's bytes; equal: it has none */
    char *bytes;           /* owned */
    uint32_t *ends;        /* owned, [n_tokens / 32 + 1] bits: tokens that end an answer */
    size_t n_nodes, n_ids, n_tokens;
    size_t longest; /* bytes of the longest token in the trie */
};

/* Tells the bytes of a token; false for one that is no text. Valid until the next call. */
typedef bool skv_token_bytes_fn(void *user, uint32_t id, const char **bytes, size_t *n);

/** From any vocabulary of n_tokens; get may fail by returning false. */
SKV_MUST_CHECK skv_status skv_token_table_build(size_t n_tokens, skv_token_bytes_fn *get,
                                                void *user, skv_token_table **out, skv_error *err);
/** Makes a token one that ends an answer; ids out of range are not looked at. */
void skv_token_table_add_end(skv_token_table *table, int32_t id);

static inline bool skv_token_table_is_end(const skv_token_table *table, size_t id)
{
    return id < table->n_tokens && (table->ends[id / 32] >> id % 32 & 1) != 0;
}

#endif
