/* The text format of Prometheus, and the metrics of a scheduler under other servers' names. */
#ifndef SKV_SERVER_METRIC_TEXT_H
#define SKV_SERVER_METRIC_TEXT_H

#include "limits/json_body.h"
#include "skv/serve.h"

typedef struct metric_name {
    const char *prefix, *name;
    const char *labels; /* "one=\"value\",other=\"value\"", NULL: none */
    const char *more;   /* the same */
} metric_name;

/* The counts of one model's scheduler. */
typedef struct metric_source {
    const server_model *model;
    char labels[320]; /* "model=\"name\"", where there are several; empty: none */
    skv_scheduler_metrics m;
} metric_source;

/** The metric's type and description: once, before its first sample. */
void metric_head(skv_buf *out, const metric_name *name, const char *type, const char *help);
void metric_sample(skv_buf *out, const metric_name *name, double value);
void metric_histogram(skv_buf *out, const metric_name *name, const skv_histogram *h);
/** Its labels: `before` and the model's name as a string. */
void metric_label(metric_source *source, const char *before);
/** The share of the KV pages that requests use, without cached prompts. */
double metric_kv_usage(const skv_scheduler_metrics *m);

/** llama-server's and vLLM's names for the schedulers' counts (--metrics-compat).
 * docs/reference/http.md has the table. */
void metrics_add_compat(skv_buf *out, const metric_source *sources, size_t n);

#endif
