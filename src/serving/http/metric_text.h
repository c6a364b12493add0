/* The text format of Prometheus, and the metrics of a scheduler under other servers' names. */
#ifndef SKV_SERVER_METRIC_TEXT_H
#define SKV_SERVER_METRIC_TEXT_H

#include "json_body.h"
#include "skv/serve.h"

typedef struct metric_name {
    const char *prefix, *name;
    const char *labels; /* "one=\"value\",other=\"value\"", NULL: none */
} metric_name;

/** What the metric is: once, before its first sample. */
void metric_head(skv_buf *out, const metric_name *name, const char *type, const char *help);
void metric_sample(skv_buf *out, const metric_name *name, double value);
void metric_histogram(skv_buf *out, const metric_name *name, const skv_histogram *h);
/** The share of the KV pages that requests use, without cached prompts. */
double metric_kv_usage(const skv_scheduler_metrics *m);

/** llama-server's and vLLM's names for what a scheduler counts (--metrics-compat); `model` is the
 * name that vLLM's carry. docs/reference/http.md has the table. */
void metrics_add_compat(skv_buf *out, const char *model, const skv_scheduler_metrics *m);

#endif
