/** swiftkv tune: settings of the methods, their cost, and the share of a model's quality that they
 * keep on the user's own data. */
#ifndef SKV_CLI_TUNE_H
#define SKV_CLI_TUNE_H

#include "runtime.h"
#include "skv/eval.h"

enum { TUNE_POINTS_MAX = 96, TUNE_MADE_MAX = 4, TUNE_PATH_MAX = 1024 };

typedef enum tune_cost { TUNE_COST_TTFT, TUNE_COST_KV_BYTES, TUNE_COST_TOTAL } tune_cost;

/* The variables of the search. */
typedef struct tune_setting {
    const char *path; /* borrowed */
    skv_prefill prefill;
    skv_weights weights;
    skv_kv kv;
    skv_eviction eviction;
} tune_setting;

typedef struct tune_point {
    tune_setting how;
    double score;              /* share of right answers, or perplexity */
    double quality, low, high; /* score by the plain model's; 95 %, NaN: not known */
    double ttft_ms, token_ms;  /* a prompt, and each token after the first */
    size_t kv_bytes;           /* after both */
    double drafted; /* part of the answers' tokens that drafts were right about; NaN: no answers */
    double cost;
    bool keeps; /* the floor */
} tune_point;

typedef struct tune {
    const cli_options *options;
    tune_cost cost;
    size_t context;         /* of a text's windows; 0: the examples decide */
    size_t asked;           /* tokens of the examples' prompts, in the mean; 0: nothing is one */
    size_t prompt, gen;     /* tokens of the timed prompt and answer */
    skv_eval_report *plain; /* owned: the unmodified model's results */
    const char *metric;     /* of the score; a constant */
    size_t n_examples;      /* that count */
    bool less_is_better;    /* the metric is a perplexity */
    char made[TUNE_MADE_MAX][TUNE_PATH_MAX]; /* folders of forms that were made */
    size_t n_made;
    tune_point points[TUNE_POINTS_MAX];
    size_t n_points;  /* the first is the plain model */
    tune_point again; /* a second timing of it, after all the others; zero: not taken */
} tune;

/* ---- tune_measure.c ---- */

/** The command's options as they are for one setting: those of an evaluation. */
cli_options tune_options_of(const tune *t, const tune_setting *how);
/** Asks and times a setting, and appends its point. */
CLI_CHECKED int tune_measure(tune *t, const tune_setting *how);
/** Times the plain model once more, to detect other work on the machine. */
CLI_CHECKED int tune_time_again(tune *t);
/** By more than times differ from run to run. */
bool tune_is_cheaper(const tune_point *a, const tune_point *b);
/** The cheapest point that keeps the floor; the plain model always does. */
const tune_point *tune_best(const tune *t);

/* ---- tune_print.c ---- */

void tune_print_point(const tune *t, const tune_point *p);
/** Prints the result in words, with the command lines. */
void tune_print_result(const tune *t);
void tune_print_json(const tune *t);

#endif
