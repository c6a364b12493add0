/*
 * A lane: one answer as the worker runs it. Its ids are the prompt and the generated tokens, so a
 * lane that lost its pages is a longer prompt: it continues with the same tokens.
 *
 * Threads: one worker thread owns all model state, and a lock guards the bounded queues. The thread
 * that submits a job makes its first lane and puts it into the inbox, whose links the scheduler's
 * lock guards. From then on only the worker reads or writes the lane, so no field needs a lock.
 * Other threads see an answer through its job, which has its own lock, and the disk's threads see a
 * lane's fetch, which the lock of the spill guards.
 *
 * Each part belongs to one file, which alone writes it (tools/tidy.py checks that). Other files
 * read it, or ask its owner:
 *
 *     queue     scheduler.c (the list) and admit.c (the state): where the lane stands
 *     disk      keep.c: its fetch, from the store as well
 *     remote    remote.c: the part that another server reads
 *     stored    store_prompt.c: the blocks that were reported
 *     rows      keep_rows.c: its rows on disk, in the smaller form
 *     checkpoints  checkpoints.c: where its state is kept
 *     shift     shift.c: what it takes from other places
 *     mask      masks.c: its constraint, and the tokens that may follow
 *     choice    choose.c: its sampler and the token that was chosen
 *     draft     drafts.c: the tokens that a step checks beside it
 *     output    output.c: the outputs for its reader
 *
 * admit.c gives and takes the sequence, and advance.c appends ids. lane.c makes and frees all
 * parts, and on submission scheduler.c adds the parts of a vector.
 */
#ifndef SKV_SERVE_LANE_H
#define SKV_SERVE_LANE_H

#include "common/stop_text.h"
#include "kv/prefix_index.h"
#include "scheduler/job.h"
#include "scheduler/spill.h"
#include "scheduler/told_values.h"

typedef enum skv_lane_state {
    SKV_LANE_WAITING, /* no sequence, no pages */
    SKV_LANE_PROMPT,  /* its ids are on their way into the cache */
    SKV_LANE_DECODE   /* all but the last are there */
} skv_lane_state;

typedef struct skv_lane_queue {
    struct skv_lane *next, *before; /* in the inbox (next alone), then in the worker's list */
    skv_lane_state state;
    bool begun;  /* it had pages once */
    bool passed; /* admit.c's: there is no memory for its job's answers now */
} skv_lane_queue;

typedef struct skv_lane_disk {
    size_t n_sought;        /* where it was looked for: 1: on disk, 2: in the store too */
    size_t n_restored;      /* ids at the beginning whose rows are in memory since then, */
    size_t n_before;        /* of them those that were there before, */
    size_t n_disk;          /* and those and the disk's, */
    size_t n_store;         /* and the store's; the rest came from a reader */
    skv_spill_fetch *fetch; /* owned: they are on their way, */
    bool of_states;         /* or a state that follows them */
    uint64_t fetched_ns;    /* when something last arrived */
} skv_lane_disk;

typedef struct skv_lane_remote {
    bool asked;
    void *reading;               /* owned: at a reader; NULL: it is not */
    skv_spill_name *names;       /* owned, [n_blocks] */
    size_t n_blocks, n_fetched;  /* n_fetched: that the store was asked for */
    size_t n_stored;             /* that are there */
    uint64_t begun_ns, moved_ns; /* moved: when a block last came */
    uint64_t spent_ns;           /* by readings that have ended */
} skv_lane_remote;

typedef struct skv_lane_stored {
    size_t n, n_named;   /* blocks at the beginning that were told, and that have names, */
    skv_spill_name name; /* the last of them this one */
    uint64_t moved_ns;   /* when one was last told; 0: never */
} skv_lane_stored;

typedef struct skv_lane_rows {
    unsigned char *bytes; /* owned, [n]: of boundary l, of a page that is not full yet */
    size_t n, n_named;    /* n_named blocks at the beginning have names for the disk, */
    skv_spill_name name;  /* the last of them this one */
} skv_lane_rows;

typedef struct skv_lane_checkpoints {
    size_t at[SKV_CHECKPOINTS_MAX], n; /* of its ids when it began: tokens, ascending */
    size_t answer;                     /* after so many of them while it answers; 0: none */
} skv_lane_checkpoints;

enum { SKV_LANE_PARTS = 16 };

typedef struct skv_lane_shift {
    size_t end;       /* ids before it may come from elsewhere; 0: none, or no more */
    size_t next;      /* the next run begins here, or later */
    size_t n_taken;   /* ids in blocks with rows from elsewhere, so far */
    bool counts;      /* what it takes is counted */
    bool approximate; /* what it began with has rows from elsewhere */
    skv_prefix_part parts[SKV_LANE_PARTS]; /* [n_parts]: that it has taken */
    size_t n_parts;
} skv_lane_shift;

typedef struct skv_lane_mask {
    void *constraint; /* owned; NULL: none */
    bool ready;
    uint64_t ns, work;   /* that were spent on it */
    uint64_t starved_ns; /* since when it waits for memory; 0: it does not */
    size_t starved_left; /* the bytes that were left in the account then */
    uint64_t waits_ns;   /* when it had to wait for the first time */
} skv_lane_mask;

typedef struct skv_lane_choice {
    skv_sampler *sampler; /* owned; keeps its state when the pages are lost */
    bool pending;         /* `id` comes after the lane's ids; these values are told with it */
    bool may_end;         /* `id` may be an end, */
    bool complete;        /* also of an answer that ignores ends: nothing else may come */
    bool ended;           /* nothing may come at all: the answer ends without `id` */
    size_t n_wished;      /* rows of the step that were wished for and are not told yet */
    int32_t id;
    double logprob;
    skv_token_prob top[SKV_JOB_TOP_MAX];
    size_t n_top;
} skv_lane_choice;

typedef struct skv_lane_draft {
    size_t n;       /* ids of the step that are drafted, after the lane's own; 0: none */
    size_t n_right; /* of them, that became the lane's own */
} skv_lane_draft;

typedef struct skv_lane_output {
    skv_text_stream *stream; /* owned; NULL without a vocabulary */
    skv_stop_text stop;
    skv_pooled pooled;      /* of a job that wants a vector */
    size_t n_told;          /* prompt tokens whose log-probability was told */
    size_t n_chars;         /* whole characters of the answer's tokens */
    uint64_t last_token_ns; /* 0: none yet */
    bool owes;              /* the last id has not been told yet */
} skv_lane_output;

typedef struct skv_lane {
    skv_job *job;
    size_t i_answer;
    size_t own_bytes;       /* counted in the job's account */
    int32_t *ids;           /* owned, [n_prompt + max_tokens] */
    size_t n_prompt, n_ids; /* n_ids - n_prompt are generated */
    skv_sequence *sequence; /* owned; NULL while waiting */
    uint64_t composed;      /* compose.c's: the last step that has prompt tokens of it */

    const char *failure; /* why the answer has to end, as the file that failed says; NULL: none */
    skv_status failure_status; /* SKV_OK: SKV_MEMORY */

    skv_lane_queue queue;
    skv_lane_disk disk;
    skv_lane_remote remote;
    skv_lane_stored stored;
    skv_lane_rows rows;
    skv_lane_checkpoints checkpoints;
    skv_lane_shift shift;
    skv_lane_mask mask;
    skv_lane_choice choice;
    skv_lane_draft draft;
    skv_lane_output output;
} skv_lane;

/** The bytes that a lane of a job takes, whose tokens fit the context. */
size_t skv_lane_bytes(const skv_job_params *params, size_t vocab_size);
/** Reserves the bytes of a job's other answers, once. Returns false if the account has no room now
 * and `anyway` is not set. */
SKV_MUST_CHECK bool skv_lane_reserve(skv_job *job, size_t vocab_size, bool anyway);

/** Creates the lane of an answer. It borrows the job: the worker's reference outlives all lanes.
 * SKV_FULL: the job's account has no room now, and none was reserved. */
SKV_MUST_CHECK skv_status skv_lane_create(skv_job *job, size_t i_answer, size_t vocab_size,
                                          const skv_vocab *vocab, skv_lane **out, skv_error *err);
/** Gives it the state of its job's constraint, if there is one: that of another lane of the job,
 * with its mask, or (NULL) the first. */
SKV_MUST_CHECK skv_status skv_lane_constrain(skv_lane *lane, const skv_lane *from, skv_error *err);
/** Frees it; a lane that has not ended is not reported. */
void skv_lane_free(skv_lane *lane);

static inline size_t skv_lane_generated(const skv_lane *lane)
{
    return lane->n_ids - lane->n_prompt;
}

/** Ids in the cache. */
size_t skv_lane_cached(const skv_lane *lane);

#endif
