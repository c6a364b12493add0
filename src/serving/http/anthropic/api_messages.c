/*
 * POST /v1/messages: Anthropic's Messages, for clients and coding agents that speak it. An answer
 * is content blocks: thinking, text and tool_use.
 */
#include "answer/api_answer.h"
#include "request/translate.h"
#include "routes.h"

static json_t *translate(exchange *ex, const json_t *asked, api_error *error)
{
    return messages_translate(ex, asked, false, error);
}

/* ---- pieces ---- */

/* Tokens that came from the prefix cache are counted apart, and those that it has got from this
 * prompt, by their lifetime: blocks are whole, and what no mark keeps is kept as by the short one.
 */
static void write_usage(const answer *a, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    const size_t n_read = stats.cached_tokens, n_left = stats.prompt_tokens - n_read;
    const size_t n_made = stats.kept_tokens > n_read ? stats.kept_tokens - n_read : 0;
    const size_t n_long = stats.kept_long_tokens > n_read ? stats.kept_long_tokens - n_read : 0;
    skv_buf_printf(out,
                   "{\"input_tokens\":%zu,\"cache_creation_input_tokens\":%zu,"
                   "\"cache_creation\":{\"ephemeral_5m_input_tokens\":%zu,"
                   "\"ephemeral_1h_input_tokens\":%zu},"
                   "\"cache_read_input_tokens\":%zu,\"output_tokens\":%zu",
                   n_left - n_made, n_made, n_made - n_long, n_long, n_read,
                   stats.completion_tokens);
    if (stats.shifted_tokens > 0) {
        skv_buf_printf(out, ",\"shifted_input_tokens\":%zu", stats.shifted_tokens);
    }
    skv_buf_text(out, "}");
}

static const char *stop_reason(const answer *a)
{
    const api_choice *c = &a->choices[0];
    if (c->finish == SKV_FINISH_LENGTH) {
        return a->fitted ? "model_context_window_exceeded" : "max_tokens";
    }
    return c->parts.n_whole > 0 ? "tool_use" : c->stopped.size > 0 ? "stop_sequence" : "end_turn";
}

/* "stop_reason":...,"stop_sequence":... */
static void write_stop(const answer *a, skv_buf *out)
{
    const api_choice *c = &a->choices[0];
    skv_buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(a));
    if (c->stopped.size > 0 && c->parts.n_whole == 0) {
        out_json(out, c->stopped.data, c->stopped.size);
    } else {
        skv_buf_text(out, "null");
    }
}

/* {"id":...,"content":[ */
static void write_head(const answer *a, skv_buf *out)
{
    skv_buf_printf(out, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
                   a->ex->id);
    out_json_str(out, a->ex->model->name);
    skv_buf_text(out, ",\"content\":[");
}

/* A block with its text, or, where it is only begun, without. The arguments are JSON already. */
static void write_block(skv_buf *out, const reply_part *part, bool begun)
{
    static const char *const opening[] = {
        [PART_THOUGHT] = "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":",
        [PART_TEXT] = "{\"type\":\"text\",\"text\":",
        [PART_CALL] = "{\"type\":\"tool_use\",\"id\":"};
    const skv_buf *text = &part->text;
    skv_buf_text(out, opening[part->kind]);
    if (part->kind == PART_CALL) {
        reply_part_call_id(part, "toolu_", out);
        skv_buf_text(out, ",\"name\":");
        out_json(out, part->name.data, part->name.size);
        skv_buf_text(out, ",\"input\":");
        if (begun) skv_buf_text(out, "{}");
        if (!begun) skv_buf_append(out, text->data, text->size);
    } else {
        out_json(out, begun ? "" : text->data, begun ? 0 : text->size);
    }
    skv_buf_text(out, "}");
    out->failed = out->failed || text->failed || part->name.failed;
}

/* A call that was cut off has become text: every one has an input. */
static void write_whole(answer *a, skv_buf *out)
{
    const reply_parts *parts = &a->choices[0].parts;
    write_head(a, out);
    for (size_t i = 0; i < parts->n; i++) {
        if (i > 0) skv_buf_text(out, ",");
        write_block(out, &parts->at[i], false);
    }
    skv_buf_text(out, "],");
    write_stop(a, out);
    skv_buf_text(out, ",\"usage\":");
    write_usage(a, out);
    skv_buf_text(out, "}");
    out->failed = out->failed || parts->failed;
}

/* ---- events ---- */

static void begin_event(skv_buf *out, const char *type)
{
    skv_buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void write_start(answer *a, skv_buf *out)
{
    if (a->n_events++ > 0) return;
    begin_event(out, "message_start");
    skv_buf_text(out, ",\"message\":");
    write_head(a, out);
    skv_buf_text(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    write_usage(a, out);
    skv_buf_text(out, "}}\n\n");
}

static void begin_part(void *user, skv_buf *out, const reply_part *part, size_t i)
{
    (void)user;
    begin_event(out, "content_block_start");
    skv_buf_printf(out, ",\"index\":%zu,\"content_block\":", i);
    write_block(out, part, true);
    skv_buf_text(out, "}\n\n");
}

static void tell_part(void *user, skv_buf *out, const reply_part *part, size_t i)
{
    static const char *const delta[] = {
        [PART_THOUGHT] = "{\"type\":\"thinking_delta\",\"thinking\":",
        [PART_TEXT] = "{\"type\":\"text_delta\",\"text\":",
        [PART_CALL] = "{\"type\":\"input_json_delta\",\"partial_json\":"};
    (void)user;
    begin_event(out, "content_block_delta");
    skv_buf_printf(out, ",\"index\":%zu,\"delta\":%s", i, delta[part->kind]);
    out_json(out, part->text.data + part->n_told, part->text.size - part->n_told);
    skv_buf_text(out, "}}\n\n");
}

static void end_part(void *user, skv_buf *out, const reply_part *part, size_t i)
{
    (void)user;
    (void)part;
    begin_event(out, "content_block_stop");
    skv_buf_printf(out, ",\"index\":%zu}\n\n", i);
}

static void write_news(answer *a, skv_buf *out, size_t i)
{
    (void)i;
    static const part_writer writer = {begin_part, tell_part, end_part};
    api_choice *c = &a->choices[0];
    write_start(a, out);
    reply_parts_tell(&c->parts, c->ended, &writer, a, out);
}

static void write_quiet(answer *a, skv_buf *out)
{
    write_start(a, out);
    begin_event(out, "ping");
    skv_buf_text(out, "}\n\n");
}

static void write_done(answer *a, skv_buf *out)
{
    begin_event(out, "message_delta");
    skv_buf_text(out, ",\"delta\":{");
    write_stop(a, out);
    skv_buf_text(out, "},\"usage\":");
    write_usage(a, out);
    skv_buf_text(out, "}\n\n");
    begin_event(out, "message_stop");
    skv_buf_text(out, "}\n\n");
}

static void write_failed(answer *a, skv_buf *out, const api_error *error)
{
    skv_buf_text(out, "event: error\ndata: ");
    api_error_write(out, error, ERRORS_MESSAGES, a->ex->id);
    skv_buf_text(out, "\n\n");
}

void api_messages(exchange *ex)
{
    static const answer_shape shape = {.whole = write_whole,
                                       .news = write_news,
                                       .quiet = write_quiet,
                                       .done = write_done,
                                       .failed = write_failed};
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .id_prefix = "msg_",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .translate = translate,
                                           .shape = &shape,
                                           .read_prompts = messages_read};
    answer_handle(ex, &dialect);
}
