/*
 * POST /v1/responses: OpenAI's Responses, for clients and coding agents that speak it. An answer
 * is output items: reasoning, a message, function_call. Nothing is stored.
 */
#include <string.h>

#include "answer/api_answer.h"
#include "limits/json_body.h"
#include "request/translate.h"
#include "routes.h"

enum {
    ASKED_AGAIN_BYTES = 1 << 16 /* the request's fields, in each event that has no others */
};

/* ---- items ---- */

static const char *id_prefix(const reply_part *part)
{
    static const char *const prefix[] = {
        [PART_THOUGHT] = "rs_", [PART_TEXT] = "msg_", [PART_CALL] = "fc_"};
    return part->custom ? "ctc_" : prefix[part->kind];
}

/* The name of a call, and the namespace that it is in. */
static void write_name(skv_buf *out, const reply_part *part)
{
    const size_t n = part->n_namespace;
    const size_t skip = n > 0 && part->name.size >= n + 2 ? n + 2 : 0;
    skv_buf_text(out, ",\"name\":");
    out_json(out, part->name.data + skip, part->name.size - skip);
    if (skip > 0) {
        skv_buf_text(out, ",\"namespace\":");
        out_json(out, part->name.data, n);
    }
    out->failed = out->failed || part->name.failed;
}

static void write_text(skv_buf *out, const reply_part *part, bool begun)
{
    out_json(out, begun ? "" : part->text.data, begun ? 0 : part->text.size);
    out->failed = out->failed || part->text.failed;
}

/* The one part of content that a message or reasoning has. */
static void write_content(skv_buf *out, const reply_part *part, bool begun)
{
    const bool thought = part->kind == PART_THOUGHT;
    skv_buf_printf(out, "{\"type\":\"%s\",\"text\":", thought ? "reasoning_text" : "output_text");
    write_text(out, part, begun);
    skv_buf_text(out, thought ? "}" : ",\"annotations\":[],\"logprobs\":[]}");
}

/* An item; `begun`: there is nothing of it but that. */
static void write_item(skv_buf *out, const reply_part *part, const char *status, bool begun)
{
    skv_buf_printf(out, "{\"id\":\"%s%s\",\"status\":\"%s\",", id_prefix(part), part->id, status);
    if (part->kind == PART_CALL) {
        skv_buf_printf(out, "\"type\":\"%s\",\"call_id\":",
                       part->custom ? "custom_tool_call" : "function_call");
        reply_part_call_id(part, "call_", out);
        write_name(out, part);
        skv_buf_text(out, part->custom ? ",\"input\":" : ",\"arguments\":");
        write_text(out, part, begun);
        skv_buf_text(out, "}");
        return;
    }
    skv_buf_text(out, part->kind == PART_THOUGHT ? "\"type\":\"reasoning\",\"summary\":[]"
                                                 : "\"type\":\"message\",\"role\":\"assistant\"");
    skv_buf_text(out, ",\"content\":[");
    if (!begun) write_content(out, part, false);
    skv_buf_text(out, "]}");
}

static const char *status_of(const answer *a, size_t i)
{
    const api_choice *c = &a->choices[0];
    const bool cut = c->ended && c->finish == SKV_FINISH_LENGTH && i + 1 == c->parts.n;
    const bool bad = c->parts.at[i].kind == PART_CALL && !c->parts.at[i].whole;
    return cut || bad ? "incomplete" : "completed";
}

/* ---- the response ---- */

static void write_usage(const answer *a, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    skv_buf_printf(out, "{\"input_tokens\":%zu,\"input_tokens_details\":", stats.prompt_tokens);
    answer_cached(out, &stats);
    skv_buf_printf(out,
                   ",\"output_tokens\":%zu,\"output_tokens_details\":{\"reasoning_tokens\":0},"
                   "\"total_tokens\":%zu}",
                   stats.completion_tokens, stats.prompt_tokens + stats.completion_tokens);
}

/* The request's fields, or their defaults. Once they are known to be long, they stand in the
 * last event again but not in signs of life. */
static void write_asked(answer *a, const char *status, skv_buf *out)
{
    static const char *const rows[][2] = {{"instructions", "null"},
                                          {"max_output_tokens", "null"},
                                          {"metadata", "{}"},
                                          {"parallel_tool_calls", "true"},
                                          {"reasoning", "{\"effort\":null,\"summary\":null}"},
                                          {"temperature", "1"},
                                          {"text", "{\"format\":{\"type\":\"text\"}}"},
                                          {"tool_choice", "\"auto\""},
                                          {"tools", "[]"},
                                          {"top_p", "1"},
                                          {"user", "null"}};
    const bool sign = strcmp(status, "in_progress") == 0,
               tells = !sign || a->n_asked <= ASKED_AGAIN_BYTES;
    const size_t begin = out->size;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json_t *value = tells ? json_body_get(a->asked, rows[i][0]) : NULL;
        skv_buf_printf(out, ",\"%s\":", rows[i][0]);
        if (value) {
            out_json_value(out, value);
        } else {
            skv_buf_text(out, rows[i][1]);
        }
    }
    if (tells) a->n_asked = out->size - begin;
}

static void write_output(answer *a, skv_buf *out)
{
    const reply_parts *parts = &a->choices[0].parts;
    for (size_t i = 0; i < parts->n; i++) {
        if (i > 0) skv_buf_text(out, ",");
        write_item(out, &parts->at[i], status_of(a, i), false);
    }
    out->failed = out->failed || parts->failed;
}

static void write_response(answer *a, skv_buf *out, const char *status, const api_error *error)
{
    skv_buf_printf(out,
                   "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"model\":",
                   a->ex->id, (long long)a->created_s);
    out_json_str(out, a->ex->model->name);
    skv_buf_printf(out, ",\"status\":\"%s\",\"error\":", status);
    if (error) {
        skv_buf_text(out, "{\"code\":\"server_error\",\"message\":");
        out_json_str(out, error->message);
        skv_buf_text(out, "}");
    } else {
        skv_buf_text(out, "null");
    }
    const bool incomplete = strcmp(status, "incomplete") == 0;
    skv_buf_printf(out, ",\"incomplete_details\":%s",
                   incomplete ? "{\"reason\":\"max_output_tokens\"}" : "null");
    skv_buf_text(out, ",\"background\":false,\"store\":false,\"truncation\":\"disabled\","
                      "\"previous_response_id\":null");
    write_asked(a, status, out);
    skv_buf_text(out, ",\"output\":[");
    const bool ended = a->choices[0].ended;
    if (ended) write_output(a, out);
    skv_buf_text(out, "],\"usage\":");
    if (ended) {
        write_usage(a, out);
    } else {
        skv_buf_text(out, "null");
    }
    skv_buf_text(out, "}");
}

static const char *final_status(const answer *a)
{
    return a->choices[0].finish == SKV_FINISH_LENGTH ? "incomplete" : "completed";
}

static void write_whole(answer *a, skv_buf *out)
{
    write_response(a, out, final_status(a), NULL);
}

/* ---- events ---- */

static void begin_event(answer *a, skv_buf *out, const char *type)
{
    skv_buf_printf(out,
                   "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%zu",
                   type, type, a->n_events++);
}

static void write_response_event(answer *a, skv_buf *out, const char *type, const char *status,
                                 const api_error *error)
{
    begin_event(a, out, type);
    skv_buf_text(out, ",\"response\":");
    write_response(a, out, status, error);
    skv_buf_text(out, "}\n\n");
}

static void write_start(answer *a, skv_buf *out)
{
    if (a->n_events > 0) return;
    write_response_event(a, out, "created", "in_progress", NULL);
    write_response_event(a, out, "in_progress", "in_progress", NULL);
}

static void begin_item_event(answer *a, skv_buf *out, const char *type, const reply_part *part,
                             size_t i)
{
    begin_event(a, out, type);
    skv_buf_printf(out, ",\"item_id\":\"%s%s\",\"output_index\":%zu", id_prefix(part), part->id, i);
    if (part->kind != PART_CALL) skv_buf_text(out, ",\"content_index\":0");
}

static void begin_part(void *user, skv_buf *out, const reply_part *part, size_t i)
{
    answer *a = user;
    begin_event(a, out, "output_item.added");
    skv_buf_printf(out, ",\"output_index\":%zu,\"item\":", i);
    write_item(out, part, "in_progress", true);
    skv_buf_text(out, "}\n\n");
    if (part->kind == PART_CALL) return;
    begin_item_event(a, out, "content_part.added", part, i);
    skv_buf_text(out, ",\"part\":");
    write_content(out, part, true);
    skv_buf_text(out, "}\n\n");
}

/* Where they are wanted. */
static void add_timings(const answer *a, skv_buf *out)
{
    if (!a->params.timings_per_token) return;
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    skv_buf_text(out, ",\"timings\":");
    answer_timings(out, &stats);
}

static void tell_part(void *user, skv_buf *out, const reply_part *part, size_t i)
{
    static const char *const types[] = {[PART_THOUGHT] = "reasoning_text.delta",
                                        [PART_TEXT] = "output_text.delta",
                                        [PART_CALL] = "function_call_arguments.delta"};
    const char *type = part->custom ? "custom_tool_call_input.delta" : types[part->kind];
    begin_item_event(user, out, type, part, i);
    skv_buf_text(out, part->kind == PART_TEXT ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
    out_json(out, part->text.data + part->n_told, part->text.size - part->n_told);
    add_timings(user, out);
    skv_buf_text(out, "}\n\n");
}

static void end_text(answer *a, skv_buf *out, const reply_part *part, size_t i)
{
    const bool thought = part->kind == PART_THOUGHT;
    begin_item_event(a, out, thought ? "reasoning_text.done" : "output_text.done", part, i);
    skv_buf_text(out, thought ? ",\"text\":" : ",\"logprobs\":[],\"text\":");
    write_text(out, part, false);
    skv_buf_text(out, "}\n\n");
    begin_item_event(a, out, "content_part.done", part, i);
    skv_buf_text(out, ",\"part\":");
    write_content(out, part, false);
    skv_buf_text(out, "}\n\n");
}

static void end_part(void *user, skv_buf *out, const reply_part *part, size_t i)
{
    answer *a = user;
    if (part->custom) {
        begin_item_event(a, out, "custom_tool_call_input.done", part, i);
        skv_buf_text(out, ",\"input\":");
        write_text(out, part, false);
        skv_buf_text(out, "}\n\n");
    } else if (part->kind == PART_CALL) {
        begin_item_event(a, out, "function_call_arguments.done", part, i);
        write_name(out, part);
        skv_buf_text(out, ",\"arguments\":");
        write_text(out, part, false);
        skv_buf_text(out, "}\n\n");
    } else {
        end_text(a, out, part, i);
    }
    begin_event(a, out, "output_item.done");
    skv_buf_printf(out, ",\"output_index\":%zu,\"item\":", i);
    write_item(out, part, status_of(a, i), false);
    skv_buf_text(out, "}\n\n");
}

static void write_news(answer *a, skv_buf *out, size_t i)
{
    (void)i;
    static const part_writer writer = {begin_part, tell_part, end_part};
    api_choice *c = &a->choices[0];
    write_start(a, out);
    reply_parts_tell(&c->parts, c->ended, &writer, a, out);
}

/* An event, since clients that watch for silence do not see comments. */
static void write_quiet(answer *a, skv_buf *out)
{
    if (a->n_events == 0) {
        write_start(a, out);
    } else {
        write_response_event(a, out, "in_progress", "in_progress", NULL);
    }
}

static void write_progress(answer *a, skv_buf *out, const skv_job_stats *stats)
{
    write_start(a, out);
    begin_event(a, out, "in_progress");
    skv_buf_text(out, ",\"response\":");
    write_response(a, out, "in_progress", NULL);
    skv_buf_text(out, ",\"prompt_progress\":");
    answer_progress(out, &a->g, stats);
    skv_buf_text(out, "}\n\n");
}

static void write_done(answer *a, skv_buf *out)
{
    begin_event(a, out, final_status(a));
    skv_buf_text(out, ",\"response\":");
    write_response(a, out, final_status(a), NULL);
    add_timings(a, out);
    skv_buf_text(out, "}\n\n");
}

static void write_failed(answer *a, skv_buf *out, const api_error *error)
{
    write_start(a, out);
    write_response_event(a, out, "failed", "failed", error);
}

static json_t *translate(exchange *ex, const json_t *asked, api_error *error)
{
    return responses_translate(ex, asked, error);
}

void api_responses(exchange *ex)
{
    static const answer_shape shape = {.whole = write_whole,
                                       .news = write_news,
                                       .quiet = write_quiet,
                                       .done = write_done,
                                       .failed = write_failed,
                                       .progress = write_progress};
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .id_prefix = "resp_",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .translate = translate,
                                           .shape = &shape,
                                           .read_prompts = messages_read};
    answer_handle(ex, &dialect);
}
