/*
 * --metrics-compat: what our scheduler counts under the names that llama-server's and vLLM's
 * documentation give it, so that their dashboards and autoscalers read it. What we do not count has
 * no sample: a dashboard shows a gap there, not a zero.
 */
#include <stddef.h>
#include <stdio.h>

#include "metric_text.h"

typedef struct compat_row {
    const char *name, *type;
    const char *help;  /* NULL: another sample of the row before */
    const char *label; /* NULL: none */
    double value;
} compat_row;

static double ratio(double of, double by)
{
    return by > 0 ? of / by : 0;
}

static void count_drafts(const skv_scheduler_metrics *m, double *drafted, double *accepted)
{
    *drafted = *accepted = 0;
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        *drafted += (double)m->drafts[i].drafted;
        *accepted += (double)m->drafts[i].accepted;
    }
}

/* `labels`: that all samples carry, NULL: none. */
static void add_rows(skv_buf *out, const char *prefix, const char *labels, const compat_row *rows,
                     size_t n)
{
    char all[640];
    for (size_t i = 0; i < n; i++) {
        metric_name name = {prefix, rows[i].name, labels};
        if (rows[i].help) metric_head(out, &name, rows[i].type, rows[i].help);
        if (rows[i].label) {
            (void)snprintf(all, sizeof all, "%s%s%s", labels ? labels : "", labels ? "," : "",
                           rows[i].label);
            name.labels = all;
        }
        metric_sample(out, &name, rows[i].value);
    }
}

static void add_llamacpp(skv_buf *out, const skv_scheduler_metrics *m)
{
    const double read = (double)(m->prefill_skipped_tokens + m->prefill_full_tokens);
    const double written = (double)m->generated_tokens;
    double drafted, accepted;
    count_drafts(m, &drafted, &accepted);
    const compat_row rows[] = {
        {"prompt_tokens_total", "counter", "Prompt tokens computed.", NULL, read},
        {"prompt_seconds_total", "counter", "Seconds from the first step to the first token.", NULL,
         m->prefill_time.sum},
        {"prompt_tokens_seconds", "gauge", "Prompt tokens a second, on average.", NULL,
         ratio(read, m->prefill_time.sum)},
        {"tokens_predicted_total", "counter", "Tokens generated.", NULL, written},
        {"tokens_predicted_seconds_total", "counter", "Seconds from the first token to the last.",
         NULL, m->decode_time.sum},
        {"predicted_tokens_seconds", "gauge", "Tokens generated a second, on average.", NULL,
         ratio(written, m->decode_time.sum)},
        {"requests_processing", "gauge", "Answers that are being computed.", NULL,
         (double)m->running},
        {"requests_deferred", "gauge", "Answers that wait.", NULL, (double)m->waiting},
        {"n_decode_total", "counter", "Steps of the engine.", NULL, (double)m->steps},
        {"spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", NULL, drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were right.",
         NULL, accepted},
    };
    add_rows(out, "llamacpp:", NULL, rows, sizeof rows / sizeof rows[0]);
}

static void add_vllm_rows(skv_buf *out, const char *labels, const skv_scheduler_metrics *m)
{
    double drafted, accepted;
    count_drafts(m, &drafted, &accepted);
    const compat_row rows[] = {
        {"num_requests_running", "gauge", "Answers that are being computed.", NULL,
         (double)m->running},
        {"num_requests_waiting", "gauge", "Answers that wait.", NULL, (double)m->waiting},
        {"kv_cache_usage_perc", "gauge", "Share of the KV pages that requests use, 0 to 1.", NULL,
         metric_kv_usage(m)},
        {"prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
         NULL, (double)m->prefix_queries_tokens},
        {"prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", NULL,
         (double)m->prefix_hits_tokens},
        {"num_preemptions_total", "counter", "Answers preempted.", NULL, (double)m->preemptions},
        {"prompt_tokens_total", "counter", "Prompt tokens of requests that started.", NULL,
         (double)m->prompt_tokens},
        {"generation_tokens_total", "counter", "Tokens generated.", NULL,
         (double)m->generated_tokens},
        {"request_success_total", "counter", "Answers that ended, by reason.",
         "finished_reason=\"stop\"", (double)m->finished[SKV_FINISH_STOP]},
        {"request_success_total", NULL, NULL, "finished_reason=\"length\"",
         (double)m->finished[SKV_FINISH_LENGTH]},
        {"request_success_total", NULL, NULL, "finished_reason=\"abort\"",
         (double)m->finished[SKV_FINISH_CANCELLED]},
        {"request_success_total", NULL, NULL, "finished_reason=\"error\"",
         (double)m->finished[SKV_FINISH_FAILED]},
        {"spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", NULL, drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were right.",
         NULL, accepted},
    };
    add_rows(out, "vllm:", labels, rows, sizeof rows / sizeof rows[0]);
}

static void add_vllm_times(skv_buf *out, const char *labels, const skv_scheduler_metrics *m)
{
    const struct {
        const char *name, *help;
        const skv_histogram *h;
    } times[] = {
        {"time_to_first_token_seconds", "Arrival to first token.", &m->ttft},
        {"inter_token_latency_seconds", "Between two tokens of an answer.", &m->inter_token},
        {"e2e_request_latency_seconds", "Arrival to end.", &m->end_to_end},
        {"request_queue_time_seconds", "Arrival to first step.", &m->queue_time},
        {"request_prefill_time_seconds", "First step to first token.", &m->prefill_time},
        {"request_decode_time_seconds", "First token to end.", &m->decode_time},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        const metric_name name = {"vllm:", times[i].name, labels};
        metric_head(out, &name, "histogram", times[i].help);
        metric_histogram(out, &name, times[i].h);
    }
}

void metrics_add_compat(skv_buf *out, const char *model, const skv_scheduler_metrics *m)
{
    skv_buf labels = {.max = LIMIT_TEXT_BYTES};
    skv_buf_text(&labels, "engine=\"0\",model_name=");
    out_json_str(&labels, model);
    skv_buf_append(&labels, "", 1);
    add_llamacpp(out, m);
    if (!labels.failed) {
        add_vllm_rows(out, labels.data, m);
        add_vllm_times(out, labels.data, m);
    }
    out->failed = out->failed || labels.failed;
    skv_buf_release(&labels);
}
