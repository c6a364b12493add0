/*
 * The prefix index: full pages of the cache that a later sequence with the same beginning takes
 * over instead of computing them again.
 *
 * A block is SKV_PAGE_ROWS consecutive tokens and their pages, one of each bundle of tracks. Blocks
 * form trees: a block is found by the hash of its tokens and of its parent, and a hit counts only
 * when domain, parent and all tokens agree, so a collision can never hand out foreign pages. A
 * domain combines the group that may share (an API key) and the meaning of the rows (the method
 * that made them). Pages are reference counted: the index holds one reference, every sequence that
 * uses them another. Blocks that no sequence uses are given up, least recently used first, leaves
 * before their parents.
 *
 * Windowed tracks have pages for the end of a sequence only, so a block may lack those pages. A
 * beginning can be continued where the blocks that its next token sees through the windows have
 * them. A block gives them up alone when sequences use its other pages and not these, and gets them
 * again from the next sequence that computes them.
 *
 * Rows may also be taken from another place (kv_turn.h). Blocks that have such rows, and all after
 * them, are not exact: no keeper is told of them. Runs of whole blocks are found by their tokens
 * alone, whatever stands before them.
 *
 * Where layers keep a state, a beginning can be continued only after a block that has a copy of
 * it, a checkpoint. There is a bounded number of them, which are given up least recently used
 * first, alone or with their block.
 */
#ifndef SKV_KV_PREFIX_INDEX_H
#define SKV_KV_PREFIX_INDEX_H

#include "kv/kv_cache.h"
#include "kv/state_pool.h"

typedef struct skv_prefix_index skv_prefix_index;

enum { SKV_BLOCK_NAME_BYTES = 16 };

/* A block as others see it; all is borrowed and valid during a call. */
typedef struct skv_prefix_block {
    const uint8_t *name;   /* [SKV_BLOCK_NAME_BYTES] */
    const uint8_t *parent; /* the same; NULL: the first block of a text */
    const int32_t *ids;    /* [SKV_PAGE_ROWS] */
    const uint32_t *pages; /* [n_pages] */
    size_t n_pages;
    size_t state; /* its checkpoint, in the pool; SKV_NO_STATE: it has none */
    bool *kept;   /* the keeper's own mark, false at first and with a new checkpoint */
} skv_prefix_block;

/* A place that keeps blocks elsewhere. All functions are called by the thread that uses the
 * index. */
typedef struct skv_prefix_keeper {
    void *user;
    /* The name of a block after `parent`, the same in every run of the program. */
    void (*name)(void *user, uint64_t domain, const uint8_t *parent, const int32_t *ids,
                 uint8_t *name);
    /* The block is about to be given up; its pages may be copied now. */
    void (*give_up)(void *user, const skv_prefix_block *block);
    /* The same for its checkpoint alone. */
    void (*give_up_state)(void *user, const skv_prefix_block *block);
} skv_prefix_keeper;

/** At most max_blocks blocks. `seed` keys the hashes, so that clients cannot aim at collisions. */
SKV_MUST_CHECK skv_status skv_prefix_index_create(skv_kv_store *store, size_t max_blocks,
                                                  uint64_t seed, skv_prefix_index **out,
                                                  skv_error *err);
void skv_prefix_index_free(skv_prefix_index *index);

/** Requires a checkpoint from the pool (borrowed) to continue a beginning. The index must be empty.
 */
SKV_MUST_CHECK skv_status skv_prefix_index_set_states(skv_prefix_index *index, skv_state_pool *pool,
                                                      skv_error *err);

/** Gives an empty cache the longest known beginning of ids[0..n) in whole blocks; returns its
 * length in tokens. *state is its checkpoint in the pool, valid until the index changes;
 * SKV_NO_STATE: it needs none. */
size_t skv_prefix_index_match(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, skv_kv_cache *cache, size_t *state);
/** Keeps state i of `from`, that of ids[0..n), as a checkpoint. Returns false if no known block
 * ends there, or the pool is full. */
bool skv_prefix_index_keep_state(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                 size_t n, const skv_states *from, size_t i);
bool skv_prefix_index_has_state(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                size_t n);
/** Frees the checkpoint of ids[0..n), if there is one. */
void skv_prefix_index_drop_state(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                 size_t n);
/** As skv_prefix_index_keep_state, from bytes for the back end to read. Also returns false if they
 * are not a state. */
SKV_MUST_CHECK bool skv_prefix_index_restore_state(skv_prefix_index *index, uint64_t domain,
                                                   const int32_t *ids, size_t n,
                                                   const unsigned char *bytes);
/** How many of ids[0..n) it has the rows of, in whole blocks, whether they can be continued or not,
 * and the name of the last block (where any is; NULL: not wanted). */
size_t skv_prefix_index_rows(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                             size_t n, uint8_t *name);
/** Pages that skv_prefix_index_match would share and that sequences are using. */
size_t skv_prefix_index_in_use(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                               size_t n);
/** Remembers the full blocks of a cache whose rows are those of ids[0..n). If memory is short,
 * it remembers fewer. */
void skv_prefix_index_insert(skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n,
                             const skv_kv_cache *cache);

/* ---- rows from another place ---- */

/* Tokens [at, at + n) of a text. */
typedef struct skv_prefix_part {
    size_t at, n;
} skv_prefix_part;

/* Tokens of a text that whole blocks of another one have, which may stand elsewhere there. */
typedef struct skv_prefix_run {
    size_t at, n; /* in the text that was looked for */
    size_t from;  /* where they are in the other one */
    void *of;     /* the index's own, until it is next changed */
} skv_prefix_run;

/** From here on blocks are also found by their tokens alone. The index must be empty. */
SKV_MUST_CHECK skv_status skv_prefix_index_find_runs(skv_prefix_index *index, skv_error *err);
/** The first run of at least n_min tokens of ids[first..n); false: there is none. Blocks with rows
 * from elsewhere are in none: a key is turned once. */
bool skv_prefix_index_run(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                          size_t first, size_t n, size_t n_min, skv_prefix_run *out);
/** The pages of a run [n_bundles][n / SKV_PAGE_ROWS], with a reference more each; its blocks have
 * been used. */
void skv_prefix_index_hold_run(skv_prefix_index *index, const skv_prefix_run *run, uint32_t *pages);
/** As skv_prefix_index_insert. Rows of `parts`, ascending, came from elsewhere, and rows after
 * them have seen these. */
void skv_prefix_index_insert_parts(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                   size_t n, const skv_kv_cache *cache,
                                   const skv_prefix_part *parts, size_t n_parts);
/** How many of ids[0..n) stand in known blocks with rows from elsewhere. */
size_t skv_prefix_index_taken(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n);

/** From here on blocks have names, and their end is told. The index must be empty. */
void skv_prefix_index_set_keeper(skv_prefix_index *index, const skv_prefix_keeper *keeper);
/** Blocks that skv_prefix_index_match would find, and the name of the last (where any is). */
size_t skv_prefix_index_known(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, uint8_t name[SKV_BLOCK_NAME_BYTES]);
/** Adds the block that ends ids[0..n), n a whole number of blocks, whose rows are in pages
 * [n_bundles]: one reference each, which the index takes over. False, and the pages stay the
 * caller's: the block before is not known, this one is, or there is no room for it. */
SKV_MUST_CHECK bool skv_prefix_index_restore(skv_prefix_index *index, uint64_t domain,
                                             const int32_t *ids, size_t n, const uint32_t *pages,
                                             const skv_kv_layout *layout);
/** Shows blocks that no sequence uses, the least recently used first, until `show` returns false
 * or n_max were shown. */
void skv_prefix_index_show_idle(skv_prefix_index *index, size_t n_max,
                                bool (*show)(void *user, const skv_prefix_block *block),
                                void *user);

/** Shows the whole blocks that ids[0..n) begin with, the first one first, until `show` returns
 * false. */
void skv_prefix_index_show_text(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                size_t n, bool (*show)(void *user, const skv_prefix_block *block),
                                void *user);

/** The blocks that ids[0..n) begin with have been used: they are the last to be given up. */
void skv_prefix_index_touch(skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n);

/** Pages that would become free if every block that no sequence uses were given up. */
size_t skv_prefix_index_evictable(const skv_prefix_index *index);
/** Gives up blocks until n_pages pages have become free or no block is left; returns how many. */
size_t skv_prefix_index_evict(skv_prefix_index *index, size_t n_pages);

#endif
