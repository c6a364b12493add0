/* Masks: the tokens that fit at a position. Walks through the vocabulary, the cache of their
 * results, and the computation of one mask. */
#ifndef SKV_GRAMMAR_MASK_MAKER_H
#define SKV_GRAMMAR_MASK_MAKER_H

#include "grammar/parse_space.h"
#include "grammar/token_table.h"

/*
 * A walk through a part of a vocabulary's trie, from a position: finds the tokens that fit there.
 *
 * A walk can pause after every node and continue later, so that a caller can make a mask in pieces.
 * It refers to positions of a space; skv_mask_walk_list returns them before the space is tidied.
 */

#define SKV_TRIE_ROOT UINT32_MAX

/* The most that the steps of a walk take: see SKV_PARSE_LOAD_MAX. */
typedef struct skv_mask_toll {
    uint32_t load;
    uint32_t depth; /* of the deepest frame */
    uint32_t ends;  /* nodes of one path, the most, where the rule has ended */
    bool cut;       /* a step met a limit: the walk may miss tokens that the grammar allows */
} skv_mask_toll;

/* Nodes of the trie, a list that grows. */
typedef struct skv_node_list {
    uint32_t *nodes; /* owned */
    size_t n, capacity;
} skv_node_list;

/** Frees the nodes and gives their memory back to an account (NULL: none). */
void skv_node_list_release(skv_node_list *list, skv_account *account);

typedef struct skv_mask_walk {
    const skv_token_table *table; /* borrowed */
    skv_parse_space *space;       /* borrowed */
    uint32_t *bits;               /* borrowed: gets the tokens that fit */
    skv_node_list *exits; /* borrowed: gets the nodes with children where the rule has ended; NULL:
                           * not wanted */
    skv_mask_toll *toll;  /* borrowed: raised to the walk's own; NULL: not wanted */
    uint32_t at, end;     /* the next node, and the end of the range */
    uint32_t first;       /* depth of the node above the first one */
    uint32_t places[SKV_TOKEN_BYTES_MAX + 1]; /* [depth] of the way to `at` */
    uint8_t ends[SKV_TOKEN_BYTES_MAX + 1];    /* [depth] nodes of that way where the rule ended */
} skv_mask_walk;

typedef enum skv_walk_state {
    SKV_WALK_DONE,
    SKV_WALK_PAUSED, /* the budget is used up */
    SKV_WALK_STUCK   /* the next step failed: the space's limit tells why */
} skv_walk_state;

/** From a position at the node `above` (SKV_TRIE_ROOT: the root) through everything below it. The
 * borrowed pointers have been set. */
void skv_mask_walk_begin(skv_mask_walk *walk, uint32_t above, uint32_t place);
/** Continues a walk within the budget (NULL: no limit), which also counts the space's uncounted
 * work. */
SKV_MUST_CHECK skv_walk_state skv_mask_walk_on(skv_mask_walk *walk, skv_budget *budget);
/** Writes pointers to the positions of an unfinished walk to kept[0..n) and returns n; NULL: only
 * counts them. */
size_t skv_mask_walk_list(skv_mask_walk *walk, uint32_t **kept);

/*
 * The tokens that fit at some states of a rule, whatever the stack below them is.
 *
 * From these states a token either stays within the rule (it fits), or does not fit, or reaches the
 * rule's end with bytes left over. The last kind depends on the stack: an entry holds the trie
 * nodes where the end is reached, and the walk continues from there on a real stack. They are few:
 * for a string, the bytes after a quotation mark inside a token.
 *
 * Combining parts is valid only if the whole position meets no limit that its parts do not. Walks
 * therefore add up the load of their steps; if the sum comes too close to a limit, the whole
 * position is walked through the trie.
 *
 * Entries are looked up by their states. When the memory is used up, the least recently used are
 * dropped.
 */

#define SKV_MASK_CACHE_BYTES_MAX ((size_t)32 << 20)

typedef struct skv_mask_entry {
    uint32_t *states; /* [n_states] sorted: the key. Stored after this struct, */
    uint32_t *tokens; /* as these do: ids [n_tokens], or bits [words] when n_tokens is UINT32_MAX */
    uint32_t *exits;  /* and these: [n_exits] nodes with children where the rule has ended */
    uint32_t n_states, n_tokens, n_exits;
    skv_mask_toll toll; /* cut: there are neither tokens nor exits */
    uint32_t hash;
    uint32_t n_pins;                      /* masks that are being made from it: it stays */
    struct skv_mask_entry *link;          /* of the same hash */
    struct skv_mask_entry *newer, *older; /* by use */
} skv_mask_entry;

typedef struct skv_mask_cache {
    const skv_token_table *table; /* borrowed */
    skv_account *account;         /* borrowed; NULL: none */
    skv_mask_entry **heads;       /* owned, [a power of two] */
    skv_mask_entry *newest, *oldest;
    size_t n_bytes; /* of all entries */
} skv_mask_cache;

/* The results of a walk from some states. */
typedef struct skv_mask_found {
    const uint32_t *states; /* [n_states] sorted, without doubles */
    size_t n_states;
    const uint32_t *bits; /* [words] */
    const skv_node_list *exits;
    const skv_mask_toll *toll;
} skv_mask_found;

SKV_MUST_CHECK skv_parse_limit skv_mask_cache_init(skv_mask_cache *cache,
                                                   const skv_token_table *table,
                                                   skv_account *account);
void skv_mask_cache_release(skv_mask_cache *cache);

/** The entry of some states (sorted, without doubles); NULL: there is none. It is valid until the
 * next call of skv_mask_cache_add or skv_mask_cache_drop, longer while it is pinned. */
skv_mask_entry *skv_mask_cache_find(skv_mask_cache *cache, const uint32_t *states, size_t n);
/** Adds an entry. Returns SKV_LIMIT_NONE, or the limit that leaves no memory. */
SKV_MUST_CHECK skv_parse_limit skv_mask_cache_add(skv_mask_cache *cache,
                                                  const skv_mask_found *found,
                                                  skv_mask_entry **out);
/** Drops everything that is not pinned. */
void skv_mask_cache_drop(skv_mask_cache *cache);

static inline size_t skv_mask_words(const skv_token_table *table)
{
    return table ? table->n_tokens / 32 + 1 : 0;
}

/*
 * The computation of one mask, in pieces: finds the tokens that fit at a position.
 *
 *     STACK   the next stack of the position: the entry of its states, from the cache, or
 *     ENTRY   made by a walk through the trie
 *     EXITS   from the places where the rule ends inside a token: walks on the real stack
 *     WHOLE   near a limit, instead of the above: walks the position as a whole, with the same
 *             steps that the matcher takes for a token
 *
 * Each matcher has a maker of its own. All makers of a space may be active at the same time, so the
 * code that tidies the space first asks them for the positions that they refer to.
 */

typedef enum skv_making {
    SKV_MAKING_NONE,
    SKV_MAKING_STACK,
    SKV_MAKING_ENTRY,
    SKV_MAKING_EXITS,
    SKV_MAKING_WHOLE,
    SKV_MAKING_DONE /* `bits` are the mask */
} skv_making;

typedef struct skv_mask_maker {
    skv_parse_space *space; /* borrowed */
    skv_mask_cache *cache;  /* borrowed */
    uint32_t *bits;         /* owned, [words]: the mask */
    uint32_t *entry_bits;   /* [words], after `bits`: of the entry that is being made */
    skv_node_list exits;    /* of the entry that is being made */
    skv_making stage;
    skv_parse_limit limit;      /* the gravest one that was met so far, */
    skv_parse_limit soft_limit; /* and the gravest of those that make the mask smaller */
    uint32_t i_config;    /* of the position: the first one of the stack that is being worked on, */
    uint32_t n_group;     /* and how many that stack has */
    uint32_t load;        /* of the stacks so far: see SKV_PARSE_LOAD_MAX */
    uint32_t copies_load; /* added by this stack to the load of its entry */
    skv_mask_entry *entry; /* EXITS: pinned; NULL otherwise */
    uint32_t i_exit, rest; /* EXITS: the exit that is walked from, and the position there */
    skv_mask_toll toll;    /* of the entry, or of the walks from exits */
    skv_mask_walk walk;
} skv_mask_maker;

/** Bytes that it takes besides the struct, lists of exits excepted. */
size_t skv_mask_maker_bytes(const skv_token_table *table);
/** Returns false if out of memory. The memory has been counted before. */
SKV_MUST_CHECK bool skv_mask_maker_init(skv_mask_maker *maker, skv_parse_space *space,
                                        skv_mask_cache *cache);
void skv_mask_maker_release(skv_mask_maker *maker);

/** Takes over a mask that another maker, of the same position, has ready; else nothing. */
void skv_mask_maker_copy_ready(skv_mask_maker *maker, const skv_mask_maker *other);
/** Begins the mask of another position and drops the unfinished one. */
void skv_mask_maker_reset(skv_mask_maker *maker);
/**
 * Continues the mask of a position within the budget (NULL: no limit). PAUSED: call again with the
 * same position (tidying may have changed its index). STUCK: maker->limit tells why; the call can
 * be repeated after making room.
 */
SKV_MUST_CHECK skv_walk_state skv_mask_maker_go(skv_mask_maker *maker, uint32_t place,
                                                skv_budget *budget);
/** After STUCK: does without parts, which may need less; false when that was tried before. */
SKV_MUST_CHECK bool skv_mask_maker_fall_back(skv_mask_maker *maker, uint32_t place);
/** Writes pointers to the positions that it refers to to kept[0..n) and returns n; NULL: only
 * counts them. */
size_t skv_mask_maker_list(skv_mask_maker *maker, uint32_t **kept);

#endif
