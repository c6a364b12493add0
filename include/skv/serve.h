/**
 * Serving: many requests at once on one engine.
 *
 *   skv_scheduler  drives an engine. Its worker thread runs all steps, mixes prompt chunks with the
 *                  tokens of running answers, and caches prompts for later requests.
 *   skv_job        a prompt and its answers, from submission to the last token.
 *
 * Thread safety: every function may be called from any thread, but only one thread at a time may
 * read a job. The scheduler has exclusive use of its engine. Free the scheduler before the engine.
 */
#ifndef SKV_SERVE_H
#define SKV_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/budget.h"
#include "skv/metrics.h"
#include "skv/skv.h"
#include "skv/store.h"
#include "skv/text.h"

SKV_BEGIN

typedef struct skv_scheduler skv_scheduler;
typedef struct skv_job skv_job;

/* ---- schedulers ---- */

/* The values that 0 stands for in skv_scheduler_options. */
#define SKV_RUNNING_DEFAULT 32
#define SKV_QUEUED_DEFAULT 64
#define SKV_QUEUED_CONTEXTS_DEFAULT 16 /* max_queued_tokens, in contexts */
#define SKV_STEP_MS_DEFAULT 200
#define SKV_OUTPUT_MIB_DEFAULT 4
#define SKV_QUEUE_SECONDS_DEFAULT 600
#define SKV_MASK_SECONDS_DEFAULT 1
#define SKV_MASK_WORK_DEFAULT 200000000
#define SKV_CACHE_DISK_GIB_DEFAULT 8
#define SKV_CACHE_FLUSH_SECONDS_DEFAULT 20

typedef struct skv_scheduler_options {
    size_t max_running;       /* answers that run at once */
    size_t max_queued;        /* jobs in the queue */
    size_t max_queued_tokens; /* prompt tokens in the queue. A tenant without a queued job may
                               * exceed both limits, so no tenant can block the queue for others */
    double step_ms;           /* target time of a step that includes answers */
    size_t output_bytes_max;  /* unread output of a job; beyond it the job is cancelled */
    double queue_seconds_max; /* a job that waits longer fails */
    /* Limits of one mask of a constrained answer: the worker's time, and units of work
     * (skv/budget.h). An answer that exceeds them fails. All masks of a step together take at most
     * a quarter of step_ms, but at least a millisecond. */
    double mask_seconds_max;
    uint64_t mask_work_max;
    bool no_prefix_cache;        /* compute every prompt from its first token */
    skv_eviction eviction;       /* default of jobs; not by query head */
    skv_speculation speculation; /* default of jobs */
    bool no_text_match;          /* skv_scheduler_recall changes no prompt */
    bool tell_miss_texts;        /* fill in the texts of skv_cache_miss */
    /* Rows of 256 tokens and more that an earlier prompt of the tenant has at another place are
     * taken over, with keys turned to the new positions. The answer is approximate then, which
     * skv_job_stats.shifted_tokens tells. Refused for models that keep states or have sliding
     * windows, with ranks and with readers. */
    bool cache_shift;
    double idle_share; /* of idle time for skv_scheduler_expect; 0: none */
    /* A folder for prompts that leave memory; they survive a restart. It is created if necessary
     * and used by one process at a time. Its files take at most cache_disk_bytes. NULL: none. */
    const char *cache_dir;
    size_t cache_disk_bytes;
    /* SwiftKV: write layer l's input instead of the deep layers' keys and values, which are
     * recomputed from it. Files are smaller and slower to read. A block is written as soon as it is
     * complete. Both forms can always be read. */
    bool cache_disk_rows;
    double cache_flush_seconds; /* time for writing files when the scheduler is freed */
    /* The secret that keys the names and checksums of blocks, [n_cache_key], at least
     * SKV_CACHE_KEY_BYTES_MIN bytes; servers that share blocks need the same one. Required with
     * `store`. NULL: cache_dir holds one of its own. Read during skv_scheduler_create only. */
    const void *cache_key;
    size_t n_cache_key;
    const skv_block_store *store;      /* NULL: none */
    const skv_prompt_readers *readers; /* requires `store`; NULL: none. Read during creation only */
    void (*log)(void *user, const char *line); /* receives lines for the operator, from any thread;
                                                * may be NULL */
    void *log_user;
    /* Counts the memory of jobs, answers and unread output, except for jobs with an account of
     * their own; borrowed, NULL: not counted. A job that does not fit now is refused with
     * SKV_MEMORY, and one that can never fit with SKV_RANGE. */
    skv_account *account;
    uint64_t seed; /* random and secret: keys the hashes of the prefix cache */
} skv_scheduler_options;

SKV_API skv_scheduler_options skv_scheduler_options_default(void);

/** Starts the worker. Engine and vocab are borrowed until skv_scheduler_free. Without a vocab
 * outputs have no text, and jobs with stop texts are refused. */
SKV_CHECKED skv_status skv_scheduler_create(skv_engine *engine, const skv_vocab *vocab,
                                            const skv_scheduler_options *options,
                                            skv_scheduler **out, skv_error *err);
/** Stops the worker. Running answers end with SKV_FINISH_CANCELLED. Jobs that are still held may
 * only be released afterwards. NULL is allowed. */
SKV_API void skv_scheduler_free(skv_scheduler *scheduler);
/** Refuses new jobs from now on; jobs already taken continue. */
SKV_API void skv_scheduler_drain(skv_scheduler *scheduler);
/** Returns an id of a tenant for cache_dir that is stable across runs and does not reveal `key`
 * [n], such as its API key. Returns 0 without cache_dir. */
SKV_API uint64_t skv_scheduler_salt(const skv_scheduler *scheduler, const void *key, size_t n);
/** Returns the estimated seconds until the prompts queued now have been read. */
SKV_API double skv_scheduler_backlog_seconds(skv_scheduler *scheduler);
/** Returns the milliseconds since the worker's last sign of life, or 0 if it has no work. */
SKV_API uint64_t skv_scheduler_stalled_ms(const skv_scheduler *scheduler);

/* ---- jobs ---- */

/*
 * A constraint on answers, such as a grammar, enforced token by token. Each answer has a state of
 * its own. The worker calls all functions except `begin` and `release`, and other answers wait
 * meanwhile: do long work in `prepare`.
 */
typedef struct skv_constraint {
    const char *name;           /* in errors; borrowed for the life of the job. NULL: "grammar" */
    void *user;                 /* shared by the answers of a job */
    void *(*begin)(void *user); /* creates a state; NULL: out of memory */
    /* Copies a state, including a mask that is ready. Required with `prepare`, because the answers
     * of a job branch when their first mask is ready. NULL: `begin` creates the states. */
    void *(*copy)(const void *state);
    /* Works on the next mask until it is ready or the budget is spent, and is then called again.
     * After SKV_MEMORY it is called again when memory may be free; any other failure ends the
     * answer. NULL: masks are always ready. */
    skv_status (*prepare)(void *state, skv_budget *budget, bool *ready, skv_error *err);
    /* Sets the logits of forbidden tokens to -INFINITY; false: no token is allowed. With `prepare`
     * it only applies a mask that is ready. */
    bool (*mask)(void *state, float *logits, size_t vocab);
    /* Returns the same mask as bits [ceil(vocab / 32)], bit id % 32 of word id / 32 for a token
     * that is allowed, valid until the state changes: faster. NULL: `mask` is called, with zeros.
     */
    const uint32_t *(*bits)(const void *state, size_t vocab);
    /* Returns true if the answer may end here. If no token is allowed, a complete answer ends with
     * SKV_FINISH_STOP. With ignore_eos, an end-of-sequence id is allowed only where no other token
     * is. NULL: an answer without an allowed token fails. */
    bool (*complete)(const void *state);
    void (*accept)(void *state, int32_t id); /* appends the chosen token */
    size_t (*bytes)(const void *state);      /* memory of all states of the job; may be NULL */
    void (*shrink)(void *state); /* drops the caches of all states of the job; may be NULL */
    void (*end)(void *state);
    void (*release)(void *user); /* called when the job no longer needs `user`; may be NULL */
} skv_constraint;

/* Identifies the text of a prompt, so that a follow-up which contains the prompt and its answer is
 * recognised. */
typedef struct skv_prompt_text {
    uint64_t key;     /* 0: the prompt has no text */
    uint64_t domain;  /* prompts of other domains cannot match it */
    size_t n_plain;   /* leading ids that equal the tokenizer's */
    size_t n_matched; /* leading ids that were matched with an earlier answer's text */
} skv_prompt_text;

/* A beginning of a prompt that the prefix cache keeps longer than others. */
typedef struct skv_pin {
    size_t n_bytes; /* its length in the prompt's text; without a vocabulary in tokens */
    double seconds; /* how long */
} skv_pin;

/*
 * Reduces a prompt to one vector of length 1: the last of its hidden states after the final norm,
 * or their mean. LAST runs like a prompt with an answer, so SwiftKV skips layers and cached prompts
 * help. MEAN runs every token through every layer.
 */
typedef enum skv_pooling { SKV_POOLING_NONE, SKV_POOLING_LAST, SKV_POOLING_MEAN } skv_pooling;

enum { SKV_JOB_PINS = 4, SKV_PIN_LONG_SECONDS = 3600 };

typedef struct skv_job_params {
    const int32_t *ids; /* [n_ids], the prompt; n_ids >= 1 */
    size_t n_ids;
    size_t n_answers;  /* 1..SKV_JOB_ANSWERS_MAX; answer i samples with seed + i */
    size_t max_tokens; /* of an answer; at most the context minus n_ids. 0: read the prompt only */
    size_t min_tokens; /* of an answer, unless its constraint is complete earlier */
    skv_sampling sampling;
    bool ignore_eos;
    bool special_text;           /* include special tokens in the text of answers */
    const skv_text_piece *stops; /* [n_stops], texts that end an answer before them */
    size_t n_stops;
    const int32_t *stop_ids; /* [n_stop_ids], tokens that end an answer before them */
    size_t n_stop_ids;
    const skv_logit_bias *biases; /* [n_biases] */
    size_t n_biases;
    bool logprobs;          /* of the answers' tokens */
    bool prompt_logprobs;   /* of the prompt's tokens too, which are then all computed */
    size_t n_top;           /* report this many of the most likely tokens; at most 20 */
    const int32_t *top_ids; /* [n_top], tokens to report instead of the most likely; or NULL */
    /* Puts the whole blocks of the prompt into the store and reports each of them (STORED).
     * Requires max_tokens 0, one answer and no other output. */
    bool stores;
    const char *key;     /* API key, passed on to `readers`; or NULL */
    skv_pooling pooling; /* a vector instead of answers: max_tokens 0, one answer, no logprobs */
    skv_prefill prefill; /* AUTO, FULL or TEACHER: see skv_sequence_create_as */
    /* [n_adapters], by the names of skv_engine_adapter */
    skv_adapter_use adapters[SKV_ADAPTERS_TOGETHER];
    size_t n_adapters;
    const skv_eviction
        *eviction; /* of the prompt's rows; not by query head. NULL: the scheduler's */
    const skv_speculation *speculation; /* NULL: the scheduler's */
    uint64_t tenant; /* cached prompts are shared within a tenant, and tenants take turns */
    uint64_t salt;   /* skv_scheduler_salt; 0: after a restart only tenant 0 finds its prompts */
    skv_account *account;       /* the tenant's part of the scheduler's account, borrowed for the
                                 * life of the job; NULL: the scheduler's */
    bool no_prefix_cache;       /* for this prompt */
    double pin_seconds;         /* protects the prompt from eviction from the prefix cache for this
                                 * time, up to a quarter of the cache for a tenant; 0: not at all */
    uint64_t pin_key;           /* of a tenant's prompts with this key only the last is pinned; 0:
                                 * all of them */
    skv_pin pins[SKV_JOB_PINS]; /* [n_pins], beginnings of the prompt to keep in the cache */
    size_t n_pins;
    bool tries_again;          /* the caller retries after SKV_FULL: do not count it as rejected */
    skv_prompt_text text;      /* from skv_scheduler_recall; zeros: none */
    skv_constraint constraint; /* begin == NULL: none. The job owns it once submitted */
    /* Called from any thread when there is output to read; must return quickly. May be NULL. */
    void (*notify)(void *user);
    void *user;
} skv_job_params;

enum { SKV_JOB_ANSWERS_MAX = 16, SKV_JOB_TOP_MAX = 20 };

SKV_API skv_job_params skv_job_params_default(void); /* one greedy answer of 16 tokens */

/* The text of a prompt, and how its ids were encoded. */
typedef struct skv_recalled_text {
    skv_text_piece text;
    bool add_special;
    skv_text_marks data; /* parts of the text that came from clients, borrowed; n 0: none */
} skv_recalled_text;

/**
 * Checks whether a prompt's text continues an earlier answer. If so, returns in *ids
 * (skv_text_free) the ids that the model read and wrote, up to the last token boundary that they
 * share with the tokenizer's ids, followed by the tokenizer's. Use them in place of params->ids.
 * Otherwise *ids is NULL. Sets params->text. Reads ids, tenant and prefill of params.
 */
SKV_CHECKED skv_status skv_scheduler_recall(skv_scheduler *scheduler, skv_job_params *params,
                                            const skv_recalled_text *text, int32_t **ids,
                                            skv_error *err);
/**
 * Announces that the next prompt is likely to begin with these ids. The worker reads them into the
 * prefix cache while it has no jobs, for options.idle_share of that time and up to a quarter of the
 * cache. A job interrupts it within a step. Texts that would save little are ignored. The last 8
 * texts of all tenants are kept. Reads ids, tenant, salt, account, prefill and adapters of params.
 * Fails with SKV_MEMORY if the account has no room for the ids.
 */
SKV_CHECKED skv_status skv_scheduler_expect(skv_scheduler *scheduler, const skv_job_params *params,
                                            skv_error *err);
/** Returns the store's name of a prompt's first block. Reads ids, tenant, salt, prefill and
 * adapters of params. Fails with SKV_RANGE if the prompt has no whole block or there is no store.
 */
SKV_CHECKED skv_status skv_scheduler_first_block(const skv_scheduler *scheduler,
                                                 const skv_job_params *params,
                                                 uint8_t name[SKV_CACHE_NAME_BYTES],
                                                 skv_error *err);
/** Submits a job and copies everything in params. Fails with SKV_FULL if the queue is full and with
 * SKV_MEMORY if other jobs hold the memory (retry later), with SKV_CANCELLED if the scheduler is
 * draining, and with SKV_RANGE if the prompt is too long. */
SKV_CHECKED skv_status skv_scheduler_submit(skv_scheduler *scheduler, const skv_job_params *params,
                                            skv_job **out, skv_error *err);
/** Ends a job's answers as soon as possible and frees their pages. */
SKV_API void skv_job_cancel(skv_job *job);
/** Cancels a job and releases the handle. `notify` is not called afterwards. */
SKV_API void skv_job_release(skv_job *job);

typedef struct skv_token_prob {
    int32_t id;
    double logprob;
} skv_token_prob;

typedef enum skv_output_kind {
    SKV_OUTPUT_PROMPT, /* a prompt token with its log-probability (NaN for the first) */
    SKV_OUTPUT_TOKEN,  /* a token of an answer */
    SKV_OUTPUT_VECTOR, /* the pooled prompt */
    SKV_OUTPUT_STORED, /* the next block of the prompt is in the store; `text` is its name
                        * [SKV_CACHE_NAME_BYTES] */
    SKV_OUTPUT_END     /* the end of an answer */
} skv_output_kind;

typedef struct skv_output {
    skv_output_kind kind;
    size_t i_answer;
    int32_t id;
    double logprob;            /* before penalties and temperature; NaN if not requested */
    const skv_token_prob *top; /* [n_top], in descending order */
    size_t n_top;
    const float *vector; /* VECTOR: [n_vector], skv_engine_hidden values */
    size_t n_vector;
    const char *text; /* [n_text], the characters that became complete; END: the remaining ones */
    size_t n_text;
    /* TOKEN with logprobs: the token's bytes [n_bytes], which may be part of a character, and the
     * number of whole characters of the answer before it. */
    const char *bytes;
    size_t n_bytes, i_char;
    skv_finish finish;   /* END */
    const char *stopped; /* END: the stop text [n_stopped] that was found, or NULL */
    size_t n_stopped;
    skv_status status; /* END with FAILED. SKV_RANGE: the request asks for too much; SKV_MEMORY: it
                        * may be retried. Otherwise SKV_OK */
} skv_output;

enum { SKV_CHECKPOINTS_MAX = 10 }; /* of one prompt */

/* A prompt as a hybrid model reads it. */
typedef struct skv_read_prompt {
    const int32_t *ids; /* [n]: without the last token, which is always computed */
    size_t n;
    size_t n_found; /* tokens from the prefix cache, up to a kept state */
    size_t n_known; /* tokens whose keys and values are there, with a state at their end or not */
} skv_read_prompt;

/** Returns after how many tokens of a prompt the prefix cache keeps a state, ascending; `most`:
 * the states that it may keep in all. Without a vocab places at messages are left out. */
SKV_API size_t skv_checkpoint_places(const skv_vocab *vocab, const skv_read_prompt *prompt,
                                     size_t most, size_t at[SKV_CHECKPOINTS_MAX]);

/** Reads the next output, which is in order for each answer. Returns false if there is none yet.
 * Pointers are valid until the next call for this job. */
SKV_API bool skv_job_next(skv_job *job, skv_output *out);
/** Returns true if all answers have ended and all output was read. */
SKV_API bool skv_job_done(skv_job *job);

enum { SKV_MISS_TEXT_BYTES = 80 };

/* Why a prompt had to be computed. Prompts of other tenants are not considered. */
typedef struct skv_cache_miss {
    skv_miss reason;
    size_t token;       /* TEXT: the first token that differs; otherwise the number found */
    size_t block;       /* of the cache, in which that token is */
    size_t lost_tokens; /* computed although an earlier prompt has them. TEXT: a lower bound of the
                         * tokens after the difference that are equal again */
    /* TEXT, with options.tell_miss_texts: the text around the difference in this prompt and in the
     * earlier one, 0-terminated; "" if not available. */
    char sent[SKV_MISS_TEXT_BYTES + 1], known[SKV_MISS_TEXT_BYTES + 1];
} skv_cache_miss;

typedef struct skv_job_stats {
    size_t prompt_tokens;
    size_t cached_tokens;     /* of the prompt, from the prefix cache */
    size_t shifted_tokens;    /* of these, in blocks with rows from another place (cache_shift); not
                               * 0: the answer is approximate */
    size_t prefilled_tokens;  /* of the prompt, cached or computed so far */
    size_t kept_tokens;       /* of the prompt, in the prefix cache after it was read */
    size_t kept_long_tokens;  /* of these, pinned for SKV_PIN_LONG_SECONDS at least */
    skv_cache_miss miss;      /* why cached_tokens is not larger */
    size_t completion_tokens; /* of all answers so far, without end-of-sequence ids */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* by source */
    size_t preemptions;                         /* how often an answer lost its pages to others */
    uint64_t queue_ns;                          /* from submission to its first pages */
    uint64_t prefill_ns; /* steps with tokens of the prompt, up to the first token */
    uint64_t wait_ns;    /* the remaining time before the first token: other prompts, masks */
    uint64_t decode_ns;  /* from the first token to the last */
} skv_job_stats;

SKV_API void skv_job_get_stats(skv_job *job, skv_job_stats *out);
SKV_API void skv_scheduler_get_metrics(skv_scheduler *scheduler, skv_scheduler_metrics *out);

SKV_END

#endif
