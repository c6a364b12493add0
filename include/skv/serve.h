/**
 * Serving: many requests at once on one engine.
 *
 *   skv_scheduler  owns an engine: its one worker thread runs all steps, prompts in chunks beside
 *                  the tokens of answers that are under way, and keeps prompts that come again.
 *   skv_job        a prompt and its answers, from submission to the last token.
 *
 * Threads: every function here may be called from any thread, but one thread at a time reads a
 * job. A scheduler uses its engine alone; the engine is closed after the scheduler is freed.
 */
#ifndef SKV_SERVE_H
#define SKV_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/budget.h"
#include "skv/skv.h"
#include "skv/text.h"

SKV_BEGIN

typedef struct skv_scheduler skv_scheduler;
typedef struct skv_job skv_job;

/* ---- schedulers ---- */

/* What a 0 in skv_scheduler_options stands for. */
#define SKV_RUNNING_DEFAULT 32
#define SKV_QUEUED_DEFAULT 64
#define SKV_QUEUED_CONTEXTS_DEFAULT 16 /* of max_queued_tokens */
#define SKV_STEP_MS_DEFAULT 200
#define SKV_OUTPUT_MIB_DEFAULT 4
#define SKV_QUEUE_SECONDS_DEFAULT 600
#define SKV_MASK_SECONDS_DEFAULT 1
#define SKV_MASK_WORK_DEFAULT 200000000
#define SKV_CACHE_DISK_GIB_DEFAULT 8
#define SKV_CACHE_FLUSH_SECONDS_DEFAULT 20

/*
 * A store of blocks that several schedulers share. It is a cache: it may lose, delay or falsify
 * whatever it holds. The program brings it, as the library knows no network. Every scheduler opens
 * it once, and one thread of that scheduler calls the other functions, each of which takes a
 * bounded time.
 */
enum { SKV_CACHE_NAME_BYTES = 16, SKV_CACHE_KEY_BYTES_MIN = 16 };

typedef struct skv_block_value {
    const void *head, *body; /* one behind the other */
    size_t n_head, n_body;
} skv_block_value;

typedef struct skv_block_store_state {
    size_t n_up;      /* instances that answer */
    bool lost;        /* since the last time some of them may have lost what they had */
    unsigned wait_ms; /* `tend` wants to be called again after so long */
} skv_block_store_state;

typedef struct skv_block_store {
    void *user;
    double seconds; /* that an answer may take; who waits for one does so twice as long */
    /* SKV_OK also where nobody answers yet. */
    skv_status (*open)(void *user, void **link, skv_error *err);
    void (*close)(void *link);
    /* The value of a name [SKV_CACHE_NAME_BYTES] of at most n_max bytes, the store's own and valid
     * until the next call; NULL with SKV_OK: it is not there. */
    skv_status (*get)(void *link, const uint8_t *name, size_t n_max, const unsigned char **data,
                      size_t *n_bytes, skv_error *err);
    /* SKV_FULL: it answers and does not take it. SKV_CANCELLED: it has not answered for a while. */
    skv_status (*put)(void *link, const uint8_t *name, const skv_block_value *value,
                      skv_error *err);
    void (*tend)(void *link, skv_block_store_state *state); /* never waits */
} skv_block_store;

/*
 * Other servers that read prompts and put their blocks into the store, where the scheduler finds
 * them: for long prompts, so that answers under way are not held up. What they say is a hint: every
 * block is checked when it comes from the store, and what does not come is computed here. The
 * program brings them, as the library knows no network. No function waits; one thread calls them.
 */
typedef enum skv_reading {
    SKV_READING_ON,
    SKV_READING_DONE,     /* all blocks are in the store */
    SKV_READING_AWAY,     /* nobody answers */
    SKV_READING_FULL,     /* it has too much to do */
    SKV_READING_REFUSED,  /* it does not take this prompt, or not from this key */
    SKV_READING_MISMATCH, /* it has another model, or other keys: its blocks have other names */
    SKV_READING_LOST,     /* it ended in the middle */
    SKV_READING_SLOW,     /* no block for too long */
    SKV_READING_GARBAGE,  /* what it says makes no sense */
    SKV_READING_MISSED,   /* a block that it had stored did not come from the store */
    SKV_READING_COUNT
} skv_reading;

typedef struct skv_reading_request {
    const int32_t *ids; /* [n_blocks] times the tokens of a block */
    size_t n_ids;
    const uint8_t *names;     /* [n_blocks][SKV_CACHE_NAME_BYTES] */
    size_t n_blocks, n_known; /* n_known: of them, that need not be told */
    const char *key;          /* the API key of who asks; NULL: none */
} skv_reading_request;

typedef struct skv_prompt_readers {
    void *user;
    size_t above;   /* tokens of a prompt that are to be computed: with more it is sent away */
    double seconds; /* without a new block, after which a prompt is read here */
    /* `wake` is called from any thread when there is something to look at. */
    skv_status (*open)(void *user, void (*wake)(void *wake_user), void *wake_user, void **link,
                       skv_error *err);
    void (*close)(void *link);
    /* Copies the request. NULL: *why tells why not. */
    void *(*ask)(void *link, const skv_reading_request *request, skv_reading *why);
    /* *n_blocks: that the prompt begins with and that are in the store by now. */
    skv_reading (*look)(void *reading, size_t *n_blocks);
    void (*end)(void *reading); /* done or not */
    bool (*is_up)(void *link);  /* whether it answers; from any thread */
} skv_prompt_readers;

typedef struct skv_scheduler_options {
    size_t max_running;       /* answers that run together */
    size_t max_queued;        /* jobs that wait */
    size_t max_queued_tokens; /* prompt tokens that wait. A tenant of whom nothing waits is let in
                               * beyond both: nobody closes the queue to others */
    double step_ms;           /* a step with answers in it takes about this at most */
    size_t output_bytes_max;  /* of one job that nobody reads, then it is cancelled */
    double queue_seconds_max; /* a job that waited this long fails */
    /* One mask of a constrained answer takes at most so much of the worker's time, and so many
     * units of work (skv/budget.h): what needs more fails. All masks of a step take a quarter of
     * step_ms, at least a millisecond. */
    double mask_seconds_max;
    uint64_t mask_work_max;
    bool no_prefix_cache;        /* every prompt is computed from its first token */
    skv_eviction eviction;       /* of jobs that say nothing else; not by query head */
    skv_speculation speculation; /* the same */
    bool no_text_match;          /* skv_scheduler_recall leaves every prompt as it is */
    bool tell_miss_texts;        /* skv_cache_miss has texts of prompts */
    double idle_share;           /* of the time without jobs, for skv_scheduler_expect. 0: none */
    /* Where prompts that leave memory are kept, for after a restart too; NULL: nowhere. Made if it
     * is not there; one process at a time. Its files take at most cache_disk_bytes. */
    const char *cache_dir;
    size_t cache_disk_bytes;
    /* SwiftKV: files have layer l's input instead of the deep K,V, which are made of it again. They
     * are smaller and take longer to read; each is written when it is full. Both forms are read. */
    bool cache_disk_rows;
    double cache_flush_seconds; /* for writing them at the end */
    /* What keys the names and checksums of blocks, [n_cache_key], SKV_CACHE_KEY_BYTES_MIN at
     * least; the same for all who share them. NULL: cache_dir has its own. Needed with `store`.
     * Neither is kept. */
    const void *cache_key;
    size_t n_cache_key;
    const skv_block_store *store;              /* NULL: none */
    const skv_prompt_readers *readers;         /* with `store`; not kept. NULL: none */
    void (*log)(void *user, const char *line); /* for the operator; any thread. May be NULL */
    void *log_user;
    /* Jobs, their answers and outputs that nobody has read yet count here (borrowed; NULL:
     * nowhere), unless a job has an account of its own. A job that does not fit now is refused with
     * SKV_MEMORY, one that can never fit with SKV_RANGE. */
    skv_account *account;
    uint64_t seed; /* keys the hashes of the prefix cache: random, and secret */
} skv_scheduler_options;

SKV_API skv_scheduler_options skv_scheduler_options_default(void);

/** Starts the worker. vocab turns ids into text; NULL: outputs have no text, stops are refused.
 * Both are borrowed until skv_scheduler_free. */
SKV_CHECKED skv_status skv_scheduler_create(skv_engine *engine, const skv_vocab *vocab,
                                            const skv_scheduler_options *options,
                                            skv_scheduler **out, skv_error *err);
/** Stops the worker; answers under way end with SKV_FINISH_CANCELLED. All jobs must have been
 * released before or be released without another look at the scheduler. NULL is allowed. */
SKV_API void skv_scheduler_free(skv_scheduler *scheduler);
/** No new jobs from here on; those that were taken go on. */
SKV_API void skv_scheduler_drain(skv_scheduler *scheduler);
/** What tells a tenant in cache_dir from others, in every run: from its API key or the like, which
 * it does not give away. 0 without cache_dir. */
SKV_API uint64_t skv_scheduler_salt(const skv_scheduler *scheduler, const void *key, size_t n);
/** Seconds that the prompts in front of a new one will take, by the measured speed. */
SKV_API double skv_scheduler_backlog_seconds(skv_scheduler *scheduler);
/** Milliseconds since the worker last did anything while there is work; 0: all is well. */
SKV_API uint64_t skv_scheduler_stalled_ms(const skv_scheduler *scheduler);

/* ---- jobs ---- */

/*
 * What an answer may say, enforced token by token: a grammar. Every answer has a state of its
 * own. All functions but `begin` and `release` are called by the worker, for which others wait, so
 * what takes time belongs into `prepare`.
 */
typedef struct skv_constraint {
    const char *name;           /* in errors; borrowed as long as the job. NULL: "grammar" */
    void *user;                 /* shared by a job's answers */
    void *(*begin)(void *user); /* a state; NULL: out of memory */
    /* A state at the same place, ready where the other one is; NULL: `begin` makes it. Needed with
     * `prepare`: several answers branch off where their first mask is ready. */
    void *(*copy)(const void *state);
    /* Works on the next mask until it is ready or the budget is used up, and is called until then.
     * SKV_MEMORY: called again when there may be room; any other failure ends the answer. NULL:
     * masks are always ready. */
    skv_status (*prepare)(void *state, skv_budget *budget, bool *ready, skv_error *err);
    /* Forbidden tokens get -INFINITY; false: no token is left. With `prepare` it is called by
     * several threads at once, for states of different answers, and only applies what is ready. */
    bool (*mask)(void *state, float *logits, size_t vocab);
    /* Whether what was said is all there has to be: where no token is left, the answer then ends
     * with SKV_FINISH_STOP, and with ignore_eos an ending id comes only where nothing else may.
     * NULL: it fails, and ignore_eos is as without a constraint. */
    bool (*complete)(const void *state);
    void (*accept)(void *state, int32_t id); /* the token that was chosen */
    size_t (*bytes)(const void *state);      /* that the job's states hold together; may be NULL */
    void (*shrink)(void *state); /* gives up what only saves time, of all of them; may be NULL */
    void (*end)(void *state);
    void (*release)(void *user); /* when the job is done with it; may be NULL */
} skv_constraint;

/* A prompt's text, by which it is known again when it comes back with its answer behind it. */
typedef struct skv_prompt_text {
    uint64_t key;     /* 0: the prompt has no text */
    uint64_t domain;  /* who may find it */
    size_t n_plain;   /* ids at the beginning that the tokenizer gives too */
    size_t n_matched; /* ids at the beginning that an earlier answer's text was matched to */
} skv_prompt_text;

/* A beginning of a prompt that stays in the prefix cache. */
typedef struct skv_pin {
    size_t n_bytes; /* of the prompt's text. Without a vocabulary: tokens */
    double seconds; /* so long */
} skv_pin;

typedef struct skv_logit_bias {
    int32_t id;
    float bias; /* added to the token's logit */
} skv_logit_bias;

/*
 * A prompt becomes one vector: of its final hidden states (behind the last norm) the last one, or
 * their mean, divided by its length. With LAST a prompt runs as if its answer were wanted, so
 * SwiftKV skips and known prompts help; MEAN needs every token in every layer.
 */
typedef enum skv_pooling { SKV_POOLING_NONE, SKV_POOLING_LAST, SKV_POOLING_MEAN } skv_pooling;

enum { SKV_JOB_PINS = 4 };

typedef struct skv_job_params {
    const int32_t *ids; /* [n_ids], the prompt; n_ids >= 1 */
    size_t n_ids;
    size_t n_answers;  /* 1..SKV_JOB_ANSWERS_MAX; answer i draws with seed + i */
    size_t max_tokens; /* of an answer; with n_ids at most the context. 0: only the prompt */
    size_t min_tokens; /* an answer does not end before, unless its constraint is complete */
    skv_sampling sampling;
    bool ignore_eos;
    bool special_text;           /* special tokens of an answer have text too */
    const skv_text_piece *stops; /* [n_stops]: an answer ends before such a text */
    size_t n_stops;
    const int32_t *stop_ids; /* [n_stop_ids]: and before such a token */
    size_t n_stop_ids;
    const skv_logit_bias *biases; /* [n_biases] */
    size_t n_biases;
    bool logprobs;          /* of the answer's tokens */
    bool prompt_logprobs;   /* of the prompt's tokens too: every one of them is computed */
    size_t n_top;           /* how many most likely tokens to tell with each, at most 20 */
    const int32_t *top_ids; /* [n_top]: with each answer's token tell these instead; NULL */
    /* The whole blocks of the prompt are put into the store, and told as they are there (STORED):
     * max_tokens 0, one answer, and nothing else is wanted. */
    bool stores;
    const char *key;     /* handed on to `readers`; NULL: none */
    skv_pooling pooling; /* a vector instead of an answer: max_tokens 0, one answer, no logprobs */
    skv_prefill prefill; /* AUTO, FULL or TEACHER: see skv_sequence_create_as */
    skv_adapter_use
        adapters[SKV_ADAPTERS_TOGETHER]; /* [n_adapters], names as of skv_engine_adapter */
    size_t n_adapters;
    const skv_eviction *eviction; /* behind the prompt, for its answers; NULL: the scheduler's. Not
                                   * by query head: that is another method's memory */
    const skv_speculation *speculation; /* NULL: the scheduler's */
    uint64_t tenant;      /* who asks: cached prompts are shared, and turns are taken, by it */
    uint64_t salt;        /* the same for cache_dir: skv_scheduler_salt. 0: prompts of a tenant
                           * other than 0 are not found again after a restart */
    skv_account *account; /* borrowed as long as the job is there: its tenant's part of the
                           * scheduler's; NULL: the scheduler's */
    bool no_prefix_cache; /* for this prompt */
    double pin_seconds;   /* so long the prefix cache gives up other prompts first: up to a
                           * quarter of it for a tenant. 0: the least recently used goes */
    uint64_t pin_key;     /* of a tenant's prompts with this key the last is pinned; 0: each */
    skv_pin pins[SKV_JOB_PINS]; /* [n_pins]: beginnings that stay as long as they say */
    size_t n_pins;
    bool tries_again;          /* who submits it waits where the queue is full: none is refused */
    skv_prompt_text text;      /* from skv_scheduler_recall; zeros: none */
    skv_constraint constraint; /* begin == NULL: none. Taken over when submitted */
    void (*notify)(
        void *user); /* something is there to read; quick, from any thread. May be NULL */
    void *user;
} skv_job_params;

enum { SKV_JOB_ANSWERS_MAX = 16, SKV_JOB_TOP_MAX = 20 };

SKV_API skv_job_params skv_job_params_default(void); /* one greedy answer of 16 tokens */

/* The text of a prompt, and how its ids were encoded. */
typedef struct skv_recalled_text {
    skv_text_piece text;
    bool add_special;
    skv_text_marks data; /* borrowed; n 0: none of it is */
} skv_recalled_text;

/**
 * Looks whether the text of a prompt, whose ids by the tokenizer are in params, continues an answer
 * that was given before: then *ids (skv_text_free) are those that the model read and wrote, up to
 * the last boundary between tokens that both readings have, and the tokenizer's from there on. They
 * replace those in params. NULL: nothing to replace. Sets params->text. params needs ids, tenant
 * and prefill for this.
 */
SKV_CHECKED skv_status skv_scheduler_recall(skv_scheduler *scheduler, skv_job_params *params,
                                            const skv_recalled_text *text, int32_t **ids,
                                            skv_error *err);
/** The next prompt is expected to begin with these ids. While there are no jobs they are read into
 * the prefix cache, up to a quarter of it, and any job ends that within a step; what saves little
 * is left out, and so is all without options.idle_share. The last 8 of all tenants are remembered.
 * params needs ids, tenant, salt, account, prefill and adapters. SKV_MEMORY: the account has no
 * room for the ids. */
SKV_CHECKED skv_status skv_scheduler_expect(skv_scheduler *scheduler, const skv_job_params *params,
                                            skv_error *err);
/** The name of the first block of a prompt, for who shares the store; SKV_RANGE: the prompt has no
 * whole block, or there is no store. params needs ids, tenant, salt, prefill and adapters. */
SKV_CHECKED skv_status skv_scheduler_first_block(const skv_scheduler *scheduler,
                                                 const skv_job_params *params,
                                                 uint8_t name[SKV_CACHE_NAME_BYTES],
                                                 skv_error *err);
/** Submits a job. Everything in params is copied. Fails with SKV_FULL if the queue is full and with
 * SKV_MEMORY if other jobs hold the memory (retry later), with SKV_CANCELLED if the scheduler is
 * draining, and with SKV_RANGE if the prompt is too long. */
SKV_CHECKED skv_status skv_scheduler_submit(skv_scheduler *scheduler, const skv_job_params *params,
                                            skv_job **out, skv_error *err);
/** Its answers end as soon as possible; their pages are given back. */
SKV_API void skv_job_cancel(skv_job *job);
/** Cancels what is left and gives up the handle; `notify` is not called afterwards. */
SKV_API void skv_job_release(skv_job *job);

typedef struct skv_token_prob {
    int32_t id;
    double logprob;
} skv_token_prob;

typedef enum skv_output_kind {
    SKV_OUTPUT_PROMPT, /* a prompt token with its log-probability (not for the first: NaN) */
    SKV_OUTPUT_TOKEN,  /* a token of an answer */
    SKV_OUTPUT_VECTOR, /* the pooled prompt */
    SKV_OUTPUT_STORED, /* the prompt's next block is in the store: `text` is its name, of
                        * SKV_CACHE_NAME_BYTES bytes */
    SKV_OUTPUT_END     /* of an answer */
} skv_output_kind;

typedef enum skv_finish {
    SKV_FINISH_STOP,      /* an ending id, or a stop text or id */
    SKV_FINISH_LENGTH,    /* max_tokens */
    SKV_FINISH_CANCELLED, /* by skv_job_cancel or skv_scheduler_free */
    SKV_FINISH_FAILED,    /* `text` tells why */
    SKV_FINISH_COUNT
} skv_finish;

typedef struct skv_output {
    skv_output_kind kind;
    size_t i_answer;
    int32_t id;
    double logprob; /* of the model, before penalties and temperature; NaN: not asked for */
    const skv_token_prob *top; /* [n_top], the most likely first */
    size_t n_top;
    const float *vector; /* of VECTOR: [n_vector], skv_engine_hidden numbers */
    size_t n_vector;
    const char *text; /* what became certain with it, whole characters; of END: what was left */
    size_t n_text;
    /* Of TOKEN with logprobs: what it is in the text, perhaps a part of a character, and the whole
     * characters of the answer in front of it. */
    const char *bytes;
    size_t n_bytes, i_char;
    skv_finish finish;   /* of END */
    const char *stopped; /* of END: the stop text, NULL for others; [n_stopped] */
    size_t n_stopped;
    skv_status status; /* of END that FAILED: SKV_RANGE: the request asks for too much; SKV_MEMORY:
                        * it may be sent again. SKV_OK for others */
} skv_output;

/** The next output, in order for each answer; false: none is there now. The pointers are valid
 * until the next call for this job. */
SKV_API bool skv_job_next(skv_job *job, skv_output *out);
/** Whether all answers have ended and all output was read. */
SKV_API bool skv_job_done(skv_job *job);

/* Why no more of a prompt came from the prefix cache. */
typedef enum skv_miss {
    SKV_MISS_NONE,    /* all that earlier prompts have of it did */
    SKV_MISS_NEW,     /* the key has no earlier prompt that the server remembers */
    SKV_MISS_TEXT,    /* it differs from the earlier prompt that is nearest to it */
    SKV_MISS_EVICTED, /* an earlier prompt has more of it, whose pages were given up */
    SKV_MISS_FORM,    /* the same, with another adapter or method */
    SKV_MISS_BLOCK,   /* it is shorter than a block of the cache */
    SKV_MISS_OFF,     /* the job, or the scheduler, does without the cache */
    SKV_MISS_COUNT
} skv_miss;

/** "none", "new", "text", "evicted", "form", "block", "off". */
SKV_API const char *skv_miss_name(skv_miss miss);

enum { SKV_MISS_TEXT_BYTES = 80 };

/* Prompts of other tenants take no part in it. */
typedef struct skv_cache_miss {
    skv_miss reason;
    size_t token; /* TEXT: the first that differs; else those that were found stand before it */
    size_t lost_tokens; /* computed though an earlier prompt has them. TEXT: at least so many of
                         * them stand behind the place, with little that differs between */
    /* TEXT, with options.tell_miss_texts: what stands around the place in this prompt and in the
     * earlier one, with a 0 at the end; "": not told. */
    char sent[SKV_MISS_TEXT_BYTES + 1], known[SKV_MISS_TEXT_BYTES + 1];
} skv_cache_miss;

typedef struct skv_job_stats {
    size_t prompt_tokens;
    size_t cached_tokens;     /* of the prompt, taken from the prefix cache */
    size_t prefilled_tokens;  /* of the prompt, cached or computed so far */
    size_t kept_tokens;       /* of the prompt, that the prefix cache has behind it */
    skv_cache_miss miss;      /* why no more of it was cached */
    size_t completion_tokens; /* of all answers so far; ending ids are not counted */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* by source */
    size_t preemptions;  /* times that an answer was put back for want of pages */
    uint64_t queue_ns;   /* from submission to its first pages */
    uint64_t prefill_ns; /* of the steps with tokens of the prompt, up to the first token */
    uint64_t wait_ns;    /* the rest from its first pages to the first token, or till now: the turns
                          * of other prompts, masks */
    uint64_t decode_ns;  /* from the first token to the last */
} skv_job_stats;

SKV_API void skv_job_get_stats(skv_job *job, skv_job_stats *out);

/* ---- what has happened so far ---- */

enum { SKV_HISTOGRAM_BUCKETS = 18 };

/* counts[i]: values up to bounds[i], and above bounds[i - 1]; the last bound is infinite. */
typedef struct skv_histogram {
    uint64_t counts[SKV_HISTOGRAM_BUCKETS];
    double sum;
} skv_histogram;

/** The upper bounds of the buckets, in seconds; [SKV_HISTOGRAM_BUCKETS]. */
SKV_API const double *skv_histogram_bounds(void);

typedef struct skv_scheduler_metrics {
    size_t running, waiting;                         /* answers with pages, and without */
    size_t queued_tokens;                            /* prompt tokens of jobs that have not begun */
    size_t kv_pages, kv_pages_used, kv_pages_cached; /* cached: kept for prompts, free if needed */
    uint64_t steps, preemptions;
    uint64_t idle_steps, idle_tokens; /* steps for skv_scheduler_expect, and their tokens; */
    uint64_t idle_saved_tokens;       /* of them, found by the prompts that came; */
    uint64_t idle_reads;              /* texts that were read to their end, */
    uint64_t idle_left_out;           /* that would have saved little, or taken too much memory, */
    uint64_t idle_dropped;            /* that others took the place of, or a prompt came before; */
    uint64_t idle_interrupted;        /* times that a job came */
    uint64_t step_answers;            /* answers in a step, summed over the steps */
    size_t answer_tokens_max;         /* most tokens of an answer so far, with its prompt */
    uint64_t prompt_tokens;           /* of jobs that have begun */
    uint64_t prefix_queries_tokens;   /* of them, looked up */
    uint64_t prefix_hits_tokens;      /* and found */
    uint64_t misses[SKV_MISS_COUNT];  /* jobs that have begun, by reason */
    uint64_t missed_tokens[SKV_MISS_COUNT]; /* skv_cache_miss.lost_tokens */
    uint64_t prefix_memory_tokens;          /* of them, by their tokens, in memory */
    uint64_t prefix_text_tokens;            /* of them, by their text: the tokenizer's ids differ */
    uint64_t prefix_disk_tokens;            /* of them, from cache_dir */
    uint64_t prefix_store_tokens;           /* of them, from the store */
    uint64_t prefix_reader_tokens; /* of them, from the store after a reader has read them */
    size_t disk_bytes, disk_files, disk_queue_bytes; /* cache_dir, and on the way there */
    uint64_t disk_written, disk_read, disk_dropped;  /* files; dropped: the queue was full */
    uint64_t disk_failed, disk_removed; /* could not be written; were damaged or another model's */
    size_t store_up, store_queue_bytes; /* instances of the store that answer; on the way there */
    uint64_t store_written, store_read, store_missed; /* blocks; missed: it did not have them */
    uint64_t store_dropped, store_failed;     /* not written: queue full, or away; refused */
    uint64_t store_unread, store_bad;         /* not read in time; damaged or forged */
    size_t readers_up;                        /* 1: whoever reads prompts for this server answers */
    uint64_t readings;                        /* prompts that were sent there, or would have been */
    uint64_t reading_ends[SKV_READING_COUNT]; /* why they ended there */
    uint64_t prefill_skipped_tokens;          /* computed, stopped at layer l (SwiftKV) */
    uint64_t prefill_full_tokens;             /* computed in every layer */
    uint64_t generated_tokens;
    uint64_t settled_drafts; /* steps that accepted or refused drafted tokens of an answer */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* by source */
    uint64_t finished[SKV_FINISH_COUNT];        /* answers */
    uint64_t cancelled_queued, cancelled_prefill, cancelled_decode;
    uint64_t rejected_full, rejected_timeout;
    uint64_t masks_refused; /* answers that failed for what their constraint takes */
    size_t grammar_bytes;   /* that constraints hold */
    /* Each up to the first token: queue, wait and prefill are ttft. */
    skv_histogram ttft, queue_time, wait_time, prefill_time;
    skv_histogram inter_token, end_to_end, decode_time, step_time,
        mask_time,    /* of a mask, of the worker's time */
        store_time,   /* of a block that came from the store */
        reading_time; /* of a prompt at a reader */
} skv_scheduler_metrics;

SKV_API void skv_scheduler_get_metrics(skv_scheduler *scheduler, skv_scheduler_metrics *out);

SKV_END

#endif
