/** Counters and histograms of a scheduler (skv/serve.h) since it was created. */
#ifndef SKV_METRICS_H
#define SKV_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/speculation.h"
#include "skv/store.h"

SKV_BEGIN

/* How an answer ended. */
typedef enum skv_finish {
    SKV_FINISH_STOP,      /* an end-of-sequence id, or a stop text or stop id */
    SKV_FINISH_LENGTH,    /* max_tokens */
    SKV_FINISH_CANCELLED, /* skv_job_cancel or skv_scheduler_free */
    SKV_FINISH_FAILED,    /* the output's `text` has the reason */
    SKV_FINISH_COUNT
} skv_finish;

/* Why the prefix cache had no more of a prompt. */
typedef enum skv_miss {
    SKV_MISS_NONE,    /* everything that earlier prompts share with it was found */
    SKV_MISS_NEW,     /* no earlier prompt of this key is remembered */
    SKV_MISS_TEXT,    /* it differs from the nearest earlier prompt */
    SKV_MISS_EVICTED, /* an earlier prompt shares more, but its pages were evicted */
    SKV_MISS_STATE,   /* the cache has more of it, but no state of the layers that keep one */
    SKV_MISS_FORM,    /* an earlier prompt shares more, with another adapter or method */
    SKV_MISS_BLOCK,   /* it is shorter than a block of the cache */
    SKV_MISS_OFF,     /* the cache is disabled for the job or the scheduler */
    SKV_MISS_COUNT
} skv_miss;

/** "none", "new", "text", "evicted", "form", "block", "off". */
SKV_API const char *skv_miss_name(skv_miss miss);

enum { SKV_HISTOGRAM_BUCKETS = 18 };

/* counts[i] counts values in (bounds[i - 1], bounds[i]]; the last bound is infinite. */
typedef struct skv_histogram {
    uint64_t counts[SKV_HISTOGRAM_BUCKETS];
    double sum;
} skv_histogram;

/** Returns the upper bounds of the buckets in seconds, [SKV_HISTOGRAM_BUCKETS]. */
SKV_API const double *skv_histogram_bounds(void);

typedef struct skv_scheduler_metrics {
    /* Now: */
    size_t running, waiting; /* answers with pages and without */
    size_t queued_tokens;    /* prompt tokens of jobs that have not begun */
    size_t kv_pages, kv_pages_used;
    size_t kv_pages_cached;                          /* held by the prefix cache alone */
    size_t grammar_bytes;                            /* memory of constraints */
    size_t disk_bytes, disk_files, disk_queue_bytes; /* cache_dir; queued for writing */
    size_t store_up, store_queue_bytes;              /* instances that answer; queued for sending */
    size_t readers_up;                               /* 1 if a reader answers */

    /* Since the start. Steps: */
    uint64_t steps, preemptions;
    uint64_t step_answers;           /* answers in a step, summed over all steps */
    size_t answer_tokens_max;        /* the longest prompt with its answer */
    uint64_t prefill_skipped_tokens; /* prompt tokens that stopped at layer l (SwiftKV) */
    uint64_t prefill_full_tokens;    /* prompt tokens that ran every layer */
    uint64_t generated_tokens;
    uint64_t settled_drafts; /* steps that accepted or rejected an answer's drafted tokens */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* by source */

    /* Prompt tokens of jobs that have begun, and where they came from: */
    uint64_t prompt_tokens;
    uint64_t prefix_queries_tokens;  /* looked up in the prefix cache */
    uint64_t prefix_hits_tokens;     /* found, which is the sum of the next six */
    uint64_t prefix_memory_tokens;   /* found by ids in memory */
    uint64_t prefix_text_tokens;     /* found by text where the tokenizer's ids differ */
    uint64_t prefix_disk_tokens;     /* read from cache_dir */
    uint64_t prefix_store_tokens;    /* read from the store */
    uint64_t prefix_reader_tokens;   /* read from the store after a reader had put them there */
    uint64_t prefix_shift_tokens;    /* taken from another place (cache_shift) */
    uint64_t misses[SKV_MISS_COUNT]; /* jobs by the reason of their miss */
    uint64_t missed_tokens[SKV_MISS_COUNT]; /* skv_cache_miss.lost_tokens */

    /* skv_scheduler_expect: */
    uint64_t idle_steps, idle_tokens;
    uint64_t idle_saved_tokens; /* of idle_tokens, found by the prompt that followed */
    uint64_t idle_reads;        /* texts that were read completely */
    uint64_t idle_left_out;     /* texts that would have saved little or taken too much memory */
    uint64_t idle_dropped;      /* texts replaced by newer ones, or overtaken by their prompt */
    uint64_t idle_interrupted;  /* reads that a job interrupted */

    /* cache_dir, the store and readers: */
    uint64_t disk_written, disk_read;                 /* files */
    uint64_t disk_dropped;                            /* not written because the queue was full */
    uint64_t disk_failed;                             /* could not be written */
    uint64_t disk_removed;                            /* damaged, or of another model */
    uint64_t store_written, store_read, store_missed; /* blocks; missed: not in the store */
    uint64_t store_dropped; /* not sent because the queue was full or the store away */
    uint64_t store_failed;  /* refused by the store */
    uint64_t store_unread;  /* did not arrive in time */
    uint64_t store_bad;     /* damaged or forged */
    uint64_t readings;      /* prompts meant for a reader */
    uint64_t reading_ends[SKV_READING_COUNT]; /* by the reason of their end */

    /* Ends: */
    uint64_t finished[SKV_FINISH_COUNT]; /* answers */
    uint64_t cancelled_queued, cancelled_prefill, cancelled_decode;
    uint64_t rejected_full, rejected_timeout;
    uint64_t masks_refused; /* answers whose constraint exceeded its limits */

    /* Times in seconds. queue_time + wait_time + prefill_time = ttft, the time to first token. */
    skv_histogram ttft, queue_time, wait_time, prefill_time;
    skv_histogram inter_token, end_to_end, decode_time, step_time;
    skv_histogram mask_time;    /* the worker's time for a mask */
    skv_histogram store_time;   /* until a block arrived from the store */
    skv_histogram reading_time; /* of a prompt at a reader */
} skv_scheduler_metrics;

SKV_END

#endif
