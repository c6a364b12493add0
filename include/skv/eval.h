/**
 * Evaluation: runs tasks with a model and scores the answers.
 *
 * A task is a built-in one ("lines", "kv", ...: see skv/documents.h; with held-out keys and values)
 * or a file: lines of JSON, a JSON array, CSV with a header, or plain text. The fields of a record
 * decide how it is asked (docs/reference/tasks.md has the table).
 */
#ifndef SKV_EVAL_H
#define SKV_EVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/skv.h"
#include "skv/text.h"

SKV_BEGIN

typedef struct skv_eval_options {
    const char *tasks;     /* names and files, separated by commas; "all": all built-in tasks */
    const size_t *lengths; /* [n_lengths] document lengths of built-in tasks, in tokens */
    size_t n_lengths;      /* 0: 128, 512 and 2048, where the context allows */
    size_t count;       /* examples per file (0: all), or per length of a built-in task (0: 100) */
    size_t depth_bins;  /* columns of the depth grids; default 10 */
    size_t max_new;     /* most tokens of an answer; 0: the default of the task */
    size_t scored;      /* tokens at the end of a text's window that are scored; those before are a
                         * prompt, to which eviction applies. 0: all are scored */
    uint64_t seed;      /* for generated documents */
    const char *prose;  /* a text file to hide needles in; NULL: generated sentences */
    const char *primer; /* a file with text that precedes every prompt; NULL: none */
    bool no_template;   /* do not use the model's chat template */
    const char *log;    /* file that receives one line of JSON per example; NULL: none */
    bool resume;        /* skip examples that are already in the log */
    skv_engine *reference; /* borrowed; a model to measure agreement with. NULL: none */
    const char *reference_path;
    /* After each batch of examples; may be NULL. */
    void (*progress)(void *user, const char *task, size_t done, size_t total);
    void *user;
} skv_eval_options;

SKV_API skv_eval_options skv_eval_options_default(void);

/* A metric over a task's examples with its 95 % confidence interval: Wilson's for proportions, the
 * normal one for means and ratios. NaN if there are too few examples. */
typedef struct skv_eval_estimate {
    const char *name; /* "exact_match", "acc", "perplexity", ...: a constant */
    double value, low, high;
    size_t n;      /* examples */
    bool is_share; /* a proportion in 0..1; higher is better */
} skv_eval_estimate;

enum { SKV_EVAL_ESTIMATES_MAX = 12 };

/* An example's contribution to the main metric: a sum and a weight (nats and tokens for
 * perplexity). */
typedef struct skv_eval_example_value {
    size_t index; /* index of the example in its task */
    double sum, weight;
} skv_eval_example_value;

/* Examples of one length, by the position of the answer in the context. */
typedef struct skv_eval_row {
    size_t length; /* tokens; rounded to a power of two for files */
    skv_eval_estimate estimate;
    size_t *cell_n;     /* [depth_bins] examples */
    double *cell_value; /* [depth_bins]; NaN: no example */
} skv_eval_row;

typedef struct skv_eval_task {
    char *name;
    const char *format; /* "document", "choices", ...: a constant */
    size_t n;           /* scored examples */
    size_t n_skipped;   /* too long for the context */
    size_t n_resumed;   /* of the n, those from the log */
    size_t n_estimates; /* the first is the main metric */
    skv_eval_estimate estimates[SKV_EVAL_ESTIMATES_MAX];
    size_t n_values;                /* n, or 0 */
    skv_eval_example_value *values; /* in the order of the examples */
    size_t n_rows;                  /* 0: the task has no lengths */
    skv_eval_row *rows;
    bool has_depths;
} skv_eval_task;

typedef struct skv_eval_report {
    size_t n_tasks, depth_bins;
    skv_eval_task *tasks;
    size_t n_averaged; /* tasks with a proportion as their main metric */
    double average;    /* their average; NaN if there are none */
    /* Generated tokens, without those of answers from the log, and the drafts among them. */
    uint64_t generated;
    skv_draft_counts drafts;
} skv_eval_report;

/**
 * Runs all examples of all tasks. `path` is the path of the model; it becomes part of the keys in
 * the log. The engine's KV memory limits how many examples run at once: give it at least twice the
 * context.
 */
SKV_CHECKED skv_status skv_eval_run(skv_engine *engine, const skv_vocab *vocab, const char *path,
                                    const skv_eval_options *options, skv_eval_report **out,
                                    skv_error *err);
SKV_API void skv_eval_report_free(skv_eval_report *report);

SKV_END

#endif
