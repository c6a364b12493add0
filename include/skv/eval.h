/**
 * Evaluation: tasks asked of a model, with what its answers are worth.
 *
 * A task is one of our own by name ("lines", "kv", ...: see skv/documents.h; held-out keys and
 * values) or a file of others: lines of JSON, a JSON array, CSV with a header, or plain text. What
 * a record holds decides how it is asked (docs/eval.md has the table).
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
    const char *tasks;     /* names and files, parted by commas; "all": all of our own */
    const size_t *lengths; /* [n_lengths] of our own documents, in tokens */
    size_t n_lengths;      /* 0: 128, 512 and 2048, as far as the context allows */
    size_t count;          /* examples of a file, or of each length of our own; 0: all, or 100 */
    size_t depth_bins;     /* of the grids: 10 */
    size_t max_new;        /* tokens an answer may have; 0: as the task needs */
    size_t scored;         /* tokens at the end of a text's window that count, the others being a
                            * prompt, read and evicted as such; 0: all, and nothing is a prompt */
    uint64_t seed;         /* of our own documents */
    const char *prose;     /* a text around needles; NULL: made-up sentences */
    const char *primer;    /* a file whose text stands before every prompt; NULL: none */
    bool no_template;      /* prompts without the model's chat template */
    const char *log;       /* gets a line of JSON for each example; NULL: none */
    bool resume;           /* examples that are in the log are not asked again */
    skv_engine *reference; /* borrowed; what the model should agree with. NULL: nothing */
    const char *reference_path;
    /* After each batch of examples; may be NULL. */
    void (*progress)(void *user, const char *task, size_t done, size_t total);
    void *user;
} skv_eval_options;

SKV_API skv_eval_options skv_eval_options_default(void);

/* A metric over a task's examples with its 95 % confidence interval: Wilson's for shares, the
 * normal one for means and ratios. NaN where there are too few examples to tell. */
typedef struct skv_eval_estimate {
    const char *name; /* "exact_match", "acc", "perplexity", ...: a constant */
    double value, low, high;
    size_t n;      /* examples */
    bool is_share; /* in 0..1, more is better */
} skv_eval_estimate;

enum { SKV_EVAL_ESTIMATES_MAX = 12 };

/* What one example gives its task's main metric, a sum over a weight (a perplexity's in nats). */
typedef struct skv_eval_example_value {
    size_t index; /* of the example in its task */
    double sum, weight;
} skv_eval_example_value;

/* Examples of one length, by where in the context the answer stands. */
typedef struct skv_eval_row {
    size_t length; /* tokens; files have theirs rounded to powers of two */
    skv_eval_estimate estimate;
    size_t *cell_n;     /* [depth_bins] examples */
    double *cell_value; /* [depth_bins]; NaN: no example */
} skv_eval_row;

typedef struct skv_eval_task {
    char *name;
    const char *format; /* "document", "choices", ...: a constant */
    size_t n;           /* examples that count */
    size_t n_skipped;   /* too long for the context */
    size_t n_resumed;   /* of the n, those from the log */
    size_t n_estimates; /* the first one is the task's main one */
    skv_eval_estimate estimates[SKV_EVAL_ESTIMATES_MAX];
    size_t n_values;                /* n, or 0 */
    skv_eval_example_value *values; /* in the order of the examples */
    size_t n_rows;                  /* 0: the task knows no lengths */
    skv_eval_row *rows;
    bool has_depths;
} skv_eval_task;

typedef struct skv_eval_report {
    size_t n_tasks, depth_bins;
    skv_eval_task *tasks;
    size_t n_averaged; /* tasks whose main metric is a share */
    double average;    /* of those; NaN: there are none */
} skv_eval_report;

/**
 * Asks all examples of all tasks. `path` is where the model was opened from; it goes into the keys
 * of the log. The engine's KV memory decides how many examples are asked at once: twice its
 * context or more is wanted.
 */
SKV_CHECKED skv_status skv_eval_run(skv_engine *engine, const skv_vocab *vocab, const char *path,
                                    const skv_eval_options *options, skv_eval_report **out,
                                    skv_error *err);
SKV_API void skv_eval_report_free(skv_eval_report *report);

/**
 * What SQuAD and its successors compare: lower case, without punctuation and articles, single
 * spaces. On the heap (skv_text_free); NULL when there is no memory.
 */
SKV_API char *skv_eval_normalise(const char *text);

SKV_END

#endif
