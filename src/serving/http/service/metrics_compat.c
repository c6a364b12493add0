/*
 * --metrics-compat: our scheduler's counts under the names that llama-server's and vLLM's
 * documentation give them, so that their dashboards and autoscalers read them. A count that we lack
 * has no sample: a dashboard shows a gap there, not a zero.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "service/metric_text.h"

#define AT(field) offsetof(skv_scheduler_metrics, field)

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

enum { ROWS_MAX = 16 };

/* Fills in a model's metrics; returns how many. */
typedef size_t fill_fn(const skv_scheduler_metrics *m, compat_row rows[ROWS_MAX]);

static void add_rows(skv_buf *out, const char *prefix, fill_fn *fill, const metric_source *sources,
                     size_t n)
{
    compat_row rows[ROWS_MAX];
    const size_t n_rows = fill(&sources[0].m, rows);
    for (size_t i = 0; i < n_rows; i++) {
        metric_name name = {prefix, rows[i].name, NULL, rows[i].label};
        if (rows[i].help) metric_head(out, &name, rows[i].type, rows[i].help);
        for (size_t k = 0; k < n; k++) {
            (void)fill(&sources[k].m, rows);
            name.labels = sources[k].labels;
            metric_sample(out, &name, rows[i].value);
        }
    }
}

static size_t fill_llamacpp(const skv_scheduler_metrics *m, compat_row out[ROWS_MAX])
{
    const double read = (double)(m->prefill_skipped_tokens + m->prefill_full_tokens);
    const double written = (double)m->generated_tokens;
    double drafted, accepted;
    count_drafts(m, &drafted, &accepted);
    const compat_row rows[] = {
        {"prompt_tokens_total", "counter", "Prompt tokens computed.", NULL, read},
        {"prompt_tokens_cached_total", "counter", "Prompt tokens found in the prefix cache.", NULL,
         (double)m->prefix_hits_tokens},
        {"prompt_seconds_total", "counter", "Seconds of steps with tokens of prompts.", NULL,
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
        {"n_busy_slots_per_decode", "gauge", "Answers in a step, on average.", NULL,
         ratio((double)m->step_answers, (double)m->steps)},
        {"n_tokens_max", "counter", "Most tokens of an answer so far, with its prompt.", NULL,
         (double)m->answer_tokens_max},
        {"spec_decode_num_drafts_total", "counter", "Drafts of one token or more.", NULL,
         (double)m->settled_drafts},
        {"spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", NULL, drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were right.",
         NULL, accepted},
    };
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t fill_vllm(const skv_scheduler_metrics *m, compat_row out[ROWS_MAX])
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
        {"spec_decode_num_drafts_total", "counter", "Drafts of one token or more.", NULL,
         (double)m->settled_drafts},
        {"spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", NULL, drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were right.",
         NULL, accepted},
    };
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static void add_vllm_times(skv_buf *out, const metric_source *sources, size_t n)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } times[] = {
        {"time_to_first_token_seconds", "Arrival to first token.", AT(ttft)},
        {"inter_token_latency_seconds", "Between two tokens of an answer.", AT(inter_token)},
        {"e2e_request_latency_seconds", "Arrival to end.", AT(end_to_end)},
        {"request_queue_time_seconds", "Arrival to first pages.", AT(queue_time)},
        {"request_prefill_time_seconds", "Steps with tokens of the prompt.", AT(prefill_time)},
        {"request_decode_time_seconds", "First token to end.", AT(decode_time)},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        metric_name name = {"vllm:", times[i].name, NULL, NULL};
        metric_head(out, &name, "histogram", times[i].help);
        for (size_t k = 0; k < n; k++) {
            const void *at = (const char *)&sources[k].m + times[i].offset;
            name.labels = sources[k].labels;
            metric_histogram(out, &name, at);
        }
    }
}

void metrics_add_compat(skv_buf *out, const metric_source *sources, size_t n)
{
    add_rows(out, "llamacpp:", fill_llamacpp, sources, n);
    metric_source *named = calloc(n, sizeof *named);
    for (size_t i = 0; named && i < n; i++) {
        named[i] = sources[i];
        metric_label(&named[i], "engine=\"0\",model_name=");
    }
    if (named) {
        add_rows(out, "vllm:", fill_vllm, named, n);
        add_vllm_times(out, named, n);
    }
    out->failed = out->failed || !named;
    free(named);
}
