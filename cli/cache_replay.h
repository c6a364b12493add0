/** Simulates the prefix cache over a series of prompts: the tokens that are left to compute. */
#ifndef SKV_CLI_CACHE_REPLAY_H
#define SKV_CLI_CACHE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache_shift.h"
#include "skv/serve.h"

/* CACHE_STATES: that a server keeps by default, of which a prompt gets a share. */
enum { CACHE_BLOCK = 64, CACHE_RUN = 16, CACHE_STATES = 16 };

/* A prompt, as it finds those before it. */
typedef struct cache_look {
    size_t n_ids;
    size_t n_cached; /* whole blocks at its beginning that an earlier one has too, in a hybrid model
                      * up to a kept state; with `shift` also runs at other places */
    size_t n_stateless; /* those after it */
    size_t n_new;       /* ids in no run of CACHE_RUN of an earlier prompt, at any place */
    size_t i_with;      /* the prompt from which it parts at n_same, the last of the nearest; */
    size_t n_same;      /* SIZE_MAX: there is none, as it begins like no earlier one */
} cache_look;

typedef struct cache_prompt {
    int32_t *ids; /* owned */
    size_t n;
    size_t states[SKV_CHECKPOINTS_MAX], n_states; /* kept after so many tokens */
} cache_prompt;

typedef struct cache_replay {
    const skv_vocab *vocab; /* borrowed */
    bool states;            /* a hybrid model's: it continues a prompt only after a kept state */
    bool shift;             /* takes over text from other places */
    cache_shift blocks;     /* then */
    cache_prompt *at;       /* owned, [n]: the prompts so far */
    size_t n, room;
    uint64_t *runs; /* owned, [n_places]: hashes of all their runs; 0: free */
    size_t n_places, n_runs;
} cache_replay;

/** Looks up the next prompt and takes ownership of its ids. There is room for all states. */
void cache_replay_add(cache_replay *replay, int32_t *ids, size_t n, cache_look *out);
void cache_replay_release(cache_replay *replay);
/** Returns the number of ids that are computed although an ideal cache, with every run of an
 * earlier prompt at any place, would have them. */
size_t cache_look_lost(const cache_look *look);

#endif
