/* GET /metrics: the text format of Prometheus. docs/guides/serve.md explains each metric. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "routes.h"
#include "service/metric_text.h"

typedef struct metric_row {
    const char *name, *type, *help;
    const char *label; /* "name=\"value\"", NULL: none */
    size_t offset;     /* of a uint64_t or size_t in skv_scheduler_metrics */
} metric_row;

#define AT(field) offsetof(skv_scheduler_metrics, field)

/* Rows of one name stand together: the first one has the help text. */
static const metric_row rows[] = {
    {"requests_running", "gauge", "Answers that are being computed.", NULL, AT(running)},
    {"requests_waiting", "gauge", "Answers that wait for pages or their turn.", NULL, AT(waiting)},
    {"queued_prompt_tokens", "gauge", "Prompt tokens of requests that have not started.", NULL,
     AT(queued_tokens)},
    {"kv_pages", "gauge", "Pages of the KV memory.", NULL, AT(kv_pages)},
    {"kv_pages_used", "gauge", "Pages in use, including cached prompts.", NULL, AT(kv_pages_used)},
    {"kv_pages_cached", "gauge",
     "Pages of cached prompts that no request uses; reclaimed when needed.", NULL,
     AT(kv_pages_cached)},
    {"steps_total", "counter", "Steps of the engine.", NULL, AT(steps)},
    {"preemptions_total", "counter", "Answers preempted for lack of pages.", NULL, AT(preemptions)},
    {"prompt_tokens_total", "counter", "Prompt tokens of requests that started.", NULL,
     AT(prompt_tokens)},
    {"prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", NULL,
     AT(prefix_queries_tokens)},
    {"prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", NULL,
     AT(prefix_hits_tokens)},
    {"prefix_cache_hits_by_kind_total", "counter",
     "Prompt tokens found in the prefix cache, by source.", "kind=\"memory\"",
     AT(prefix_memory_tokens)},
    {"prefix_cache_hits_by_kind_total", NULL, NULL, "kind=\"text\"", AT(prefix_text_tokens)},
    {"prefix_cache_hits_by_kind_total", NULL, NULL, "kind=\"disk\"", AT(prefix_disk_tokens)},
    {"prefix_cache_hits_by_kind_total", NULL, NULL, "kind=\"store\"", AT(prefix_store_tokens)},
    {"prefix_cache_hits_by_kind_total", NULL, NULL, "kind=\"reader\"", AT(prefix_reader_tokens)},
    {"prefix_cache_hits_by_kind_total", NULL, NULL, "kind=\"shift\"", AT(prefix_shift_tokens)},
    {"prefix_cache_misses_total", "counter",
     "Requests that found less in the prefix cache than their prompt has, by reason.",
     "reason=\"new\"", AT(misses[SKV_MISS_NEW])},
    {"prefix_cache_misses_total", NULL, NULL, "reason=\"text\"", AT(misses[SKV_MISS_TEXT])},
    {"prefix_cache_misses_total", NULL, NULL, "reason=\"evicted\"", AT(misses[SKV_MISS_EVICTED])},
    {"prefix_cache_misses_total", NULL, NULL, "reason=\"state\"", AT(misses[SKV_MISS_STATE])},
    {"prefix_cache_misses_total", NULL, NULL, "reason=\"form\"", AT(misses[SKV_MISS_FORM])},
    {"prefix_cache_misses_total", NULL, NULL, "reason=\"block\"", AT(misses[SKV_MISS_BLOCK])},
    {"prefix_cache_misses_total", NULL, NULL, "reason=\"off\"", AT(misses[SKV_MISS_OFF])},
    {"prefix_cache_lost_tokens_total", "counter",
     "Prompt tokens computed although an earlier prompt of the key has them, by reason.",
     "reason=\"text\"", AT(missed_tokens[SKV_MISS_TEXT])},
    {"prefix_cache_lost_tokens_total", NULL, NULL, "reason=\"evicted\"",
     AT(missed_tokens[SKV_MISS_EVICTED])},
    {"prefix_cache_lost_tokens_total", NULL, NULL, "reason=\"state\"",
     AT(missed_tokens[SKV_MISS_STATE])},
    {"prefix_cache_lost_tokens_total", NULL, NULL, "reason=\"form\"",
     AT(missed_tokens[SKV_MISS_FORM])},
    {"prefix_cache_lost_tokens_total", NULL, NULL, "reason=\"off\"",
     AT(missed_tokens[SKV_MISS_OFF])},
    {"idle_read_steps_total", "counter", "Steps of --idle-read.", NULL, AT(idle_steps)},
    {"idle_read_tokens_total", "counter", "Tokens that --idle-read computed.", NULL,
     AT(idle_tokens)},
    {"idle_read_saved_tokens_total", "counter",
     "Of them, found in the prefix cache by the prompts that followed.", NULL,
     AT(idle_saved_tokens)},
    {"idle_reads_total", "counter", "Histories of --idle-read, by what became of them.",
     "end=\"done\"", AT(idle_reads)},
    {"idle_reads_total", NULL, NULL, "end=\"left out\"", AT(idle_left_out)},
    {"idle_reads_total", NULL, NULL, "end=\"dropped\"", AT(idle_dropped)},
    {"idle_read_interruptions_total", "counter", "Times that a request came during --idle-read.",
     NULL, AT(idle_interrupted)},
    {"cache_disk_bytes", "gauge", "Bytes of the files in --cache-dir.", NULL, AT(disk_bytes)},
    {"cache_disk_files", "gauge", "Files in --cache-dir.", NULL, AT(disk_files)},
    {"cache_disk_queue_bytes", "gauge", "Bytes waiting to be written to --cache-dir.", NULL,
     AT(disk_queue_bytes)},
    {"cache_disk_written_total", "counter", "Files written to --cache-dir.", NULL,
     AT(disk_written)},
    {"cache_disk_read_total", "counter", "Files read from --cache-dir.", NULL, AT(disk_read)},
    {"cache_disk_dropped_total", "counter", "Blocks not written because the queue was full.", NULL,
     AT(disk_dropped)},
    {"cache_disk_failed_total", "counter", "Files that could not be written.", NULL,
     AT(disk_failed)},
    {"cache_disk_removed_total", "counter",
     "Files removed because they were damaged, unfinished or of another model.", NULL,
     AT(disk_removed)},
    {"cache_store_up", "gauge", "Instances of --cache-store that answer.", NULL, AT(store_up)},
    {"cache_store_queue_bytes", "gauge", "Bytes waiting to be sent to --cache-store.", NULL,
     AT(store_queue_bytes)},
    {"cache_store_written_total", "counter", "Blocks sent to --cache-store.", NULL,
     AT(store_written)},
    {"cache_store_read_total", "counter", "Blocks read from --cache-store.", NULL, AT(store_read)},
    {"cache_store_missed_total", "counter", "Blocks that --cache-store did not have.", NULL,
     AT(store_missed)},
    {"cache_store_dropped_total", "counter",
     "Blocks not sent because the queue was full or the store was away.", NULL, AT(store_dropped)},
    {"cache_store_failed_total", "counter", "Blocks that the store did not take.", NULL,
     AT(store_failed)},
    {"cache_store_unread_total", "counter", "Blocks asked for without an answer in time.", NULL,
     AT(store_unread)},
    {"cache_store_bad_total", "counter",
     "Blocks not used because they were damaged, forged or of another model.", NULL, AT(store_bad)},
    {"reader_up", "gauge", "1 if the server of --prefill-from answers.", NULL, AT(readers_up)},
    {"reader_prompts_total", "counter", "Prompts long enough for --prefill-from.", NULL,
     AT(readings)},
    {"reader_read_total", "counter", "Of them, read there to the end.", NULL,
     AT(reading_ends[SKV_READING_DONE])},
    {"reader_fallbacks_total", "counter", "Of them, read here after all, by reason.",
     "reason=\"away\"", AT(reading_ends[SKV_READING_AWAY])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"full\"", AT(reading_ends[SKV_READING_FULL])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"refused\"",
     AT(reading_ends[SKV_READING_REFUSED])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"mismatch\"",
     AT(reading_ends[SKV_READING_MISMATCH])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"lost\"", AT(reading_ends[SKV_READING_LOST])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"slow\"", AT(reading_ends[SKV_READING_SLOW])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"garbage\"",
     AT(reading_ends[SKV_READING_GARBAGE])},
    {"reader_fallbacks_total", NULL, NULL, "reason=\"missed\"",
     AT(reading_ends[SKV_READING_MISSED])},
    {"prefill_tokens_total", "counter", "Prompt tokens computed, by method.", "route=\"swiftkv\"",
     AT(prefill_skipped_tokens)},
    {"prefill_tokens_total", NULL, NULL, "route=\"full\"", AT(prefill_full_tokens)},
    {"prefill_tokens_total", NULL, NULL, "route=\"cached\"", AT(prefix_hits_tokens)},
    {"generation_tokens_total", "counter", "Tokens generated.", NULL, AT(generated_tokens)},
    {"drafted_tokens_total", "counter", "Tokens drafted, by source.", "source=\"text\"",
     AT(drafts[SKV_DRAFT_TEXT].drafted)},
    {"drafted_tokens_total", NULL, NULL, "source=\"self\"", AT(drafts[SKV_DRAFT_SELF].drafted)},
    {"drafted_tokens_total", NULL, NULL, "source=\"aux\"", AT(drafts[SKV_DRAFT_AUX].drafted)},
    {"drafted_tokens_total", NULL, NULL, "source=\"model\"", AT(drafts[SKV_DRAFT_MODEL].drafted)},
    {"drafted_tokens_total", NULL, NULL, "source=\"mtp\"", AT(drafts[SKV_DRAFT_MTP].drafted)},
    {"accepted_drafts_total", "counter", "Drafted tokens that were right, by source.",
     "source=\"text\"", AT(drafts[SKV_DRAFT_TEXT].accepted)},
    {"accepted_drafts_total", NULL, NULL, "source=\"self\"", AT(drafts[SKV_DRAFT_SELF].accepted)},
    {"accepted_drafts_total", NULL, NULL, "source=\"aux\"", AT(drafts[SKV_DRAFT_AUX].accepted)},
    {"accepted_drafts_total", NULL, NULL, "source=\"model\"", AT(drafts[SKV_DRAFT_MODEL].accepted)},
    {"accepted_drafts_total", NULL, NULL, "source=\"mtp\"", AT(drafts[SKV_DRAFT_MTP].accepted)},
    {"requests_finished_total", "counter", "Answers that ended, by reason.", "reason=\"stop\"",
     AT(finished[SKV_FINISH_STOP])},
    {"requests_finished_total", NULL, NULL, "reason=\"length\"", AT(finished[SKV_FINISH_LENGTH])},
    {"requests_finished_total", NULL, NULL, "reason=\"cancelled\"",
     AT(finished[SKV_FINISH_CANCELLED])},
    {"requests_finished_total", NULL, NULL, "reason=\"failed\"", AT(finished[SKV_FINISH_FAILED])},
    {"masks_refused_total", "counter",
     "Answers that failed because their grammar exceeded a limit.", NULL, AT(masks_refused)},
    {"grammar_memory_bytes", "gauge", "Memory held by grammars and their masks.", NULL,
     AT(grammar_bytes)},
    {"requests_cancelled_total", "counter", "Answers cancelled, by phase.", "phase=\"queue\"",
     AT(cancelled_queued)},
    {"requests_cancelled_total", NULL, NULL, "phase=\"prefill\"", AT(cancelled_prefill)},
    {"requests_cancelled_total", NULL, NULL, "phase=\"decode\"", AT(cancelled_decode)},
    {"requests_rejected_total", "counter", "Requests refused, by reason.", "reason=\"queue_full\"",
     AT(rejected_full)},
    {"requests_rejected_total", NULL, NULL, "reason=\"queue_timeout\"", AT(rejected_timeout)},
};

static const metric_row histograms[] = {
    {"time_to_first_token_seconds", NULL, "Time from the arrival of a request to its first token.",
     NULL, AT(ttft)},
    {"inter_token_latency_seconds", NULL, "Time between two tokens of an answer.", NULL,
     AT(inter_token)},
    {"e2e_request_latency_seconds", NULL, "Time from the arrival of a request to its end.", NULL,
     AT(end_to_end)},
    {"request_queue_time_seconds", NULL, "Time from the arrival of a request to its first pages.",
     NULL, AT(queue_time)},
    {"request_wait_time_seconds", NULL,
     "Time from the first pages of a request to its first token without steps of its prompt.", NULL,
     AT(wait_time)},
    {"request_prefill_time_seconds", NULL, "Time of the steps with tokens of a request's prompt.",
     NULL, AT(prefill_time)},
    {"request_decode_time_seconds", NULL, "Time from the first token of a request to its end.",
     NULL, AT(decode_time)},
    {"step_time_seconds", NULL, "Time of a step of the engine.", NULL, AT(step_time)},
    {"cache_store_read_time_seconds", NULL, "Time to read a block from --cache-store.", NULL,
     AT(store_time)},
    {"reader_time_seconds", NULL, "Time of a prompt that --prefill-from has read.", NULL,
     AT(reading_time)},
    {"mask_time_seconds", NULL, "Time to find the tokens that a grammar allows next.", NULL,
     AT(mask_time)},
};

static void add_head(skv_buf *out, const char *name, const char *type, const char *help)
{
    metric_head(out, &(const metric_name){"swiftkv_", name, NULL, NULL}, type, help);
}

static void add_rows(skv_buf *out, const metric_source *sources, size_t n)
{
    static_assert(sizeof(size_t) == sizeof(uint64_t), "counters are read as 64 bits");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const metric_row *row = &rows[i];
        if (row->help) add_head(out, row->name, row->type, row->help);
        for (size_t k = 0; k < n; k++) {
            const char *at = (const char *)&sources[k].m + row->offset;
            const uint64_t value = *(const uint64_t *)(const void *)at;
            const metric_name name = {"swiftkv_", row->name, sources[k].labels, row->label};
            metric_sample(out, &name, (double)value);
        }
    }
}

static void add_scheduler(skv_buf *out, const metric_source *sources, size_t n)
{
    add_rows(out, sources, n);
    add_head(out, "kv_cache_usage_ratio", "gauge",
             "Share of the KV pages that requests use, without cached prompts.");
    for (size_t k = 0; k < n; k++) {
        const metric_name name = {"swiftkv_", "kv_cache_usage_ratio", sources[k].labels, NULL};
        metric_sample(out, &name, metric_kv_usage(&sources[k].m));
    }
    for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++) {
        add_head(out, histograms[i].name, "histogram", histograms[i].help);
        for (size_t k = 0; k < n; k++) {
            const void *at = (const char *)&sources[k].m + histograms[i].offset;
            const metric_name name = {"swiftkv_", histograms[i].name, sources[k].labels, NULL};
            metric_histogram(out, &name, at);
        }
    }
}

/* How often each model was loaded; counters of its scheduler begin anew then. */
static void add_models(skv_buf *out, http_server *server)
{
    static const char *const names[][3] = {
        {"model_loaded", "gauge", "1 if the model is loaded."},
        {"model_requests_waiting", "gauge", "Requests that wait for the model to be loaded."},
        {"model_loads_total", "counter", "How often the model was loaded."},
        {"model_load_failures_total", "counter", "How often it could not be loaded."}};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        add_head(out, names[k][0], names[k][1], names[k][2]);
        for (size_t i = 0; i < server->n_models; i++) {
            const server_model *model = &server->models[i];
            pthread_mutex_lock(&server->lock);
            const uint64_t values[] = {model_is_loaded(model), model->n_waiting, model->n_loads,
                                       model->n_failures};
            pthread_mutex_unlock(&server->lock);
            skv_buf_printf(out, "swiftkv_%s{model=", names[k][0]);
            out_json_str(out, model->name);
            skv_buf_printf(out, "} %" PRIu64 "\n", values[k]);
        }
    }
}

/* Of the models that are loaded; on the heap. NULL: none, or no memory. */
static metric_source *read_sources(http_server *server, size_t *n)
{
    metric_source *sources = calloc(server->n_models, sizeof *sources);
    *n = 0;
    for (size_t i = 0; sources && i < server->n_models; i++) {
        const server_model *model = &server->models[i];
        metric_source *source = &sources[*n];
        pthread_mutex_lock(&server->lock);
        const bool loaded = model_is_loaded(model);
        if (loaded) skv_scheduler_get_metrics(model->scheduler, &source->m);
        pthread_mutex_unlock(&server->lock);
        if (!loaded) continue;
        source->model = model;
        if (server->n_models > 1) metric_label(source, "model=");
        (*n)++;
    }
    return sources;
}

static void add_memory(skv_buf *out, http_server *server)
{
    const skv_account *account = server->account;
    add_head(out, "memory_used_bytes", "gauge", "Memory held by requests besides the KV memory.");
    skv_buf_printf(out, "swiftkv_memory_used_bytes %zu\n", skv_account_used(account));
    add_head(out, "memory_peak_bytes", "gauge", "Peak memory held by requests.");
    skv_buf_printf(out, "swiftkv_memory_peak_bytes %zu\n", skv_account_peak(account));
    add_head(out, "memory_limit_bytes", "gauge", "Limit of the memory held by requests: --memory.");
    skv_buf_printf(out, "swiftkv_memory_limit_bytes %zu\n", skv_account_max(account));
    add_head(out, "memory_waiting_requests", "gauge", "Requests that wait for memory.");
    const memory_counts counts = memory_count(server);
    skv_buf_printf(out, "swiftkv_memory_waiting_requests %zu\n", counts.n_waiting);
    add_head(out, "memory_given_up_total", "counter",
             "Requests refused because they and others waited for each other's memory.");
    skv_buf_printf(out, "swiftkv_memory_given_up_total %llu\n",
                   (unsigned long long)counts.n_given_up);
}

static void add_front(skv_buf *out, http_server *server)
{
    uint64_t responses[6], n_refused, n_late, n_peers = 0;
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < 6; i++) responses[i] = server->responses[i];
    n_refused = server->n_refused_peers;
    n_late = server->n_timed_out_peers;
    const uint64_t n_requests = server->n_limited_requests, n_tokens = server->n_limited_tokens;
    for (size_t i = 0; i < server->n_peers; i++) n_peers += server->peers[i].phase != PEER_FREE;
    const bool ready = server->state == SERVER_READY;
    pthread_mutex_unlock(&server->lock);
    add_head(out, "http_responses_total", "counter", "Responses by the class of their status.");
    for (size_t i = 2; i < 6; i++) {
        skv_buf_printf(out, "swiftkv_http_responses_total{class=\"%zuxx\"} %" PRIu64 "\n", i,
                       responses[i]);
    }
    add_head(out, "http_connections", "gauge", "Open connections.");
    skv_buf_printf(out, "swiftkv_http_connections %" PRIu64 "\n", n_peers);
    add_head(out, "http_connections_cut_total", "counter",
             "Connections closed for being too slow, or to make room.");
    skv_buf_printf(out, "swiftkv_http_connections_cut_total %" PRIu64 "\n", n_refused + n_late);
    add_memory(out, server);
    add_head(out, "rate_limited_total", "counter",
             "Requests refused by the rate limits of their key.");
    skv_buf_printf(out, "swiftkv_rate_limited_total{limit=\"requests\"} %" PRIu64 "\n", n_requests);
    skv_buf_printf(out, "swiftkv_rate_limited_total{limit=\"tokens\"} %" PRIu64 "\n", n_tokens);
    add_head(out, "ready", "gauge", "1 if the server accepts requests.");
    skv_buf_printf(out, "swiftkv_ready %d\n", ready ? 1 : 0);
    add_head(out, "build_info", "gauge", "The version.");
    skv_buf_printf(out, "swiftkv_build_info{version=\"%d.%d.%d\"} 1\n", SKV_VERSION_MAJOR,
                   SKV_VERSION_MINOR, SKV_VERSION_PATCH);
    add_head(out, "start_time_seconds", "gauge", "Start time of the server.");
    skv_buf_printf(out, "swiftkv_start_time_seconds %lld\n", (long long)server->started_s);
}

void api_metrics(exchange *ex)
{
    skv_buf out = {.max = LIMIT_TEXT_BYTES};
    add_front(&out, ex->server);
    size_t n = 0;
    metric_source *sources = read_sources(ex->server, &n);
    add_models(&out, ex->server);
    if (n > 0) {
        add_scheduler(&out, sources, n);
        if (ex->server->options.metrics_compat) metrics_add_compat(&out, sources, n);
    }
    free(sources);
    static const char type[] = "text/plain; version=0.0.4; charset=utf-8";
    if (out.failed || !ex->server->options.metrics_compat) {
        exchange_reply(ex, 200, type, &out);
        return;
    }
    exchange_response response = {.status = 200,
                                  .content_type = type,
                                  .data = out.data,
                                  .n = out.size,
                                  .fields = {.max = LIMIT_TEXT_BYTES}};
    skv_buf_printf(&response.fields, "Process-Start-Time-Unix: %lld\r\n",
                   (long long)ex->server->started_s);
    (void)exchange_send(ex, &response);
    skv_buf_release(&out);
}
