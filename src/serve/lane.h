/*
 * A lane: one answer as the worker runs it. Its ids are the prompt and what was generated, so a
 * lane that lost its pages is a longer prompt: it continues with the same tokens.
 */
#ifndef SKV_SERVE_LANE_H
#define SKV_SERVE_LANE_H

#include "serve/job.h"
#include "serve/pooled.h"
#include "serve/spill.h"
#include "serve/stop_text.h"

typedef enum skv_lane_state {
    SKV_LANE_WAITING, /* no sequence, no pages */
    SKV_LANE_PROMPT,  /* its ids are on their way into the cache */
    SKV_LANE_DECODE   /* all but the last are there */
} skv_lane_state;

typedef struct skv_lane {
    struct skv_lane *next, *before; /* in the worker's list */
    skv_job *job;
    size_t i_answer;
    skv_lane_state state;
    bool begun;              /* it had pages once */
    const char *failure;     /* why it cannot go on; NULL: it can */
    uint64_t turn;           /* of the step that last had prompt tokens of it */
    bool sought;             /* it was looked for on disk */
    size_t n_restored;       /* ids at the beginning whose rows are in memory since then, */
    size_t n_before_disk;    /* and of them those that were there before */
    skv_spill_fetch *fetch;  /* owned: they are on their way */
    uint64_t fetched_ns;     /* when something last arrived */
    unsigned char *rows;     /* owned, [n_rows]: of boundary l, of a page that is not full yet */
    size_t n_rows, n_named;  /* n_named blocks at the beginning have names for the disk, */
    skv_spill_name name;     /* the last of them this one */
    int32_t *ids;            /* owned, [n_prompt + max_tokens] */
    size_t n_prompt, n_ids;  /* n_ids - n_prompt are generated */
    size_t n_told;           /* prompt tokens whose log-probability was told */
    skv_sequence *sequence;  /* owned; NULL while waiting */
    skv_sampler *sampler;    /* owned; keeps its state when the pages are lost */
    skv_text_stream *stream; /* owned; NULL without a vocabulary */
    skv_stop_text stop;
    void *constraint;       /* owned; NULL: none */
    uint64_t last_token_ns; /* 0: none yet */
    skv_pooled pooled;      /* of a job that wants a vector */
    bool has_chosen;        /* `chosen` comes after ids; what follows is told with it */
    bool may_end;           /* `chosen` may be an end */
    int32_t chosen;
    double logprob;
    skv_token_prob top[SKV_JOB_TOP_MAX];
    size_t n_top;
} skv_lane;

/** For an answer of a job, which it borrows: the worker's reference outlives all its lanes. */
SKV_MUST_CHECK skv_status skv_lane_create(skv_job *job, size_t i_answer, size_t vocab_size,
                                          const skv_vocab *vocab, skv_lane **out, skv_error *err);
/** Frees it; a lane that has not ended is not reported. */
void skv_lane_free(skv_lane *lane);

static inline size_t skv_lane_generated(const skv_lane *lane)
{
    return lane->n_ids - lane->n_prompt;
}

/** Ids in the cache. */
size_t skv_lane_cached(const skv_lane *lane);

#endif
