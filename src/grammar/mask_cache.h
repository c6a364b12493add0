/*
 * The tokens that fit at some states of a rule, whatever the stack below them is.
 *
 * From these states a token either stays within the rule (it fits), or does not fit, or reaches
 * the rule's end with bytes left over. The last kind depends on the stack: for them an entry holds
 * the nodes of the trie where the end is reached, and who has a stack walks on from there. They
 * are few: what follows a quotation mark inside a token, for a string.
 *
 * What is put together from parts holds only where the position as a whole meets no limit that
 * its parts do not. So walks add up what their steps take, and who finds the sum too near to a
 * limit walks the whole position through the trie.
 *
 * Entries are found by their states and dropped when the memory is used up, the one that was
 * unused for longest first.
 */
#ifndef SKV_GRAMMAR_MASK_CACHE_H
#define SKV_GRAMMAR_MASK_CACHE_H

#include "grammar/parse_space.h"
#include "grammar/token_table.h"

#define SKV_MASK_CACHE_BYTES_MAX ((size_t)32 << 20)

/* What the steps of a walk take at most: see SKV_PARSE_LOAD_MAX. */
typedef struct skv_mask_toll {
    uint32_t load;
    uint32_t depth; /* of the deepest frame */
    uint32_t ends;  /* nodes of one path, the most, where the rule has ended */
    bool cut;       /* a step met a limit: the walk says less than the grammar */
} skv_mask_toll;

typedef struct skv_mask_entry {
    uint32_t *states; /* owned, [n_states] sorted: the key */
    uint32_t *tokens; /* owned: ids [n_tokens], or bits [words] when n_tokens is UINT32_MAX */
    uint32_t *exits;  /* owned, [n_exits] nodes with children where the rule has ended */
    uint32_t n_states, n_tokens, n_exits;
    skv_mask_toll toll; /* cut: neither tokens nor exits are there */
    uint32_t hash;
    struct skv_mask_entry *link;          /* of the same hash */
    struct skv_mask_entry *newer, *older; /* by use */
} skv_mask_entry;

typedef struct skv_mask_cache {
    const skv_token_table *table; /* borrowed */
    skv_mask_entry **heads;       /* owned, [a power of two] */
    skv_mask_entry *newest, *oldest;
    uint32_t *bits;  /* owned, [words] of the entry that is being made */
    uint32_t *exits; /* owned, [n_nodes at most] */
    size_t n_exits, exits_capacity;
    size_t n_bytes;
} skv_mask_cache;

SKV_MUST_CHECK bool skv_mask_cache_init(skv_mask_cache *cache, const skv_token_table *table);
void skv_mask_cache_release(skv_mask_cache *cache);

/**
 * The entry of some states (sorted, without doubles), valid until the next call. NULL when out of
 * memory or steps.
 */
const skv_mask_entry *skv_mask_cache_get(skv_mask_cache *cache, skv_parse_space *space,
                                         const uint32_t *states, size_t n);

/* A walk through a part of the trie. */
typedef struct skv_mask_walk {
    const skv_token_table *table; /* borrowed */
    skv_parse_space *space;       /* borrowed */
    uint32_t *bits;               /* borrowed: gets the tokens that fit */
    skv_mask_cache *cache;        /* collects exits; NULL: none wanted */
    skv_mask_toll *toll;          /* borrowed: is raised to what the walk takes; NULL: not wanted */
} skv_mask_walk;

/** From a position at the node `above` (UINT32_MAX: the root) through everything below it. */
void skv_mask_walk_from(const skv_mask_walk *walk, uint32_t above, uint32_t place);

#endif
