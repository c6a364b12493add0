/*
 * POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages, for clients and coding
 * agents that speak it. An answer is content blocks: thinking, text and tool_use.
 */
#include "api_answer.h"
#include "messages_input.h"
#include "routes.h"

static json_t *translate(const json_t *asked, api_error *error)
{
    return messages_translate(asked, false, error);
}

/* ---- pieces ---- */

/* Tokens that came from the prefix cache are counted apart. */
static void write_usage(const answer *a, out_text *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    out_format(out,
               "{\"input_tokens\":%zu,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%zu,\"output_tokens\":%zu}",
               stats.prompt_tokens - stats.cached_tokens, stats.cached_tokens,
               stats.completion_tokens);
}

static const char *stop_reason(const answer *a)
{
    const api_choice *c = &a->choices[0];
    if (c->finish == SKV_FINISH_LENGTH) {
        return a->fitted ? "model_context_window_exceeded" : "max_tokens";
    }
    return c->parts.n_whole > 0 ? "tool_use" : c->stopped.n > 0 ? "stop_sequence" : "end_turn";
}

/* "stop_reason":...,"stop_sequence":... */
static void write_stop(const answer *a, out_text *out)
{
    const api_choice *c = &a->choices[0];
    out_format(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(a));
    if (c->stopped.n > 0 && c->parts.n_whole == 0) {
        out_json(out, c->stopped.data, c->stopped.n);
    } else {
        out_str(out, "null");
    }
}

/* {"id":...,"content":[ */
static void write_head(const answer *a, out_text *out)
{
    out_format(out, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
               a->ex->id);
    out_json_str(out, a->ex->server->name);
    out_str(out, ",\"content\":[");
}

/* A block with its text, or, where it is only begun, without. The arguments are JSON already. */
static void write_block(out_text *out, const reply_part *part, bool begun)
{
    static const char *const opening[] = {
        [PART_THOUGHT] = "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":",
        [PART_TEXT] = "{\"type\":\"text\",\"text\":",
        [PART_CALL] = "{\"type\":\"tool_use\",\"id\":\"toolu_"};
    const out_text *text = &part->text;
    out_str(out, opening[part->kind]);
    if (part->kind == PART_CALL) {
        out_format(out, "%s\",\"name\":", part->id);
        out_json(out, part->name.data, part->name.n);
        out_str(out, ",\"input\":");
        if (begun) out_str(out, "{}");
        if (!begun) out_bytes(out, text->data, text->n);
    } else {
        out_json(out, begun ? "" : text->data, begun ? 0 : text->n);
    }
    out_str(out, "}");
    out->failed = out->failed || text->failed || part->name.failed;
}

/* A call that was cut off has no input, so it is left out. */
static void write_whole(answer *a, out_text *out)
{
    const reply_parts *parts = &a->choices[0].parts;
    bool any = false;
    write_head(a, out);
    for (size_t i = 0; i < parts->n; i++) {
        const reply_part *part = &parts->at[i];
        if (part->kind == PART_CALL && !part->whole) continue;
        if (any) out_str(out, ",");
        write_block(out, part, false);
        any = true;
    }
    out_str(out, "],");
    write_stop(a, out);
    out_str(out, ",\"usage\":");
    write_usage(a, out);
    out_str(out, "}");
    out->failed = out->failed || parts->failed;
}

/* ---- events ---- */

static void begin_event(out_text *out, const char *type)
{
    out_format(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void write_start(answer *a, out_text *out)
{
    if (a->n_events++ > 0) return;
    begin_event(out, "message_start");
    out_str(out, ",\"message\":");
    write_head(a, out);
    out_str(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    write_usage(a, out);
    out_str(out, "}}\n\n");
}

static void begin_part(void *user, out_text *out, const reply_part *part, size_t i)
{
    (void)user;
    begin_event(out, "content_block_start");
    out_format(out, ",\"index\":%zu,\"content_block\":", i);
    write_block(out, part, true);
    out_str(out, "}\n\n");
}

static void tell_part(void *user, out_text *out, const reply_part *part, size_t i)
{
    static const char *const delta[] = {
        [PART_THOUGHT] = "{\"type\":\"thinking_delta\",\"thinking\":",
        [PART_TEXT] = "{\"type\":\"text_delta\",\"text\":",
        [PART_CALL] = "{\"type\":\"input_json_delta\",\"partial_json\":"};
    (void)user;
    begin_event(out, "content_block_delta");
    out_format(out, ",\"index\":%zu,\"delta\":%s", i, delta[part->kind]);
    out_json(out, part->text.data + part->n_told, part->text.n - part->n_told);
    out_str(out, "}}\n\n");
}

static void end_part(void *user, out_text *out, const reply_part *part, size_t i)
{
    (void)user;
    (void)part;
    begin_event(out, "content_block_stop");
    out_format(out, ",\"index\":%zu}\n\n", i);
}

static void write_news(answer *a, out_text *out)
{
    static const part_writer writer = {begin_part, tell_part, end_part};
    api_choice *c = &a->choices[0];
    write_start(a, out);
    reply_parts_tell(&c->parts, c->ended, &writer, a, out);
}

static void write_quiet(answer *a, out_text *out)
{
    write_start(a, out);
    begin_event(out, "ping");
    out_str(out, "}\n\n");
}

static void write_done(answer *a, out_text *out)
{
    begin_event(out, "message_delta");
    out_str(out, ",\"delta\":{");
    write_stop(a, out);
    out_str(out, "},\"usage\":");
    write_usage(a, out);
    out_str(out, "}\n\n");
    begin_event(out, "message_stop");
    out_str(out, "}\n\n");
}

static void write_failed(answer *a, out_text *out, const api_error *error)
{
    out_str(out, "event: error\ndata: ");
    api_error_write_messages(out, error, a->ex->id);
    out_str(out, "\n\n");
}

void api_messages(exchange *ex)
{
    static const answer_shape shape = {write_whole, write_news, write_quiet, write_done,
                                       write_failed};
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .id_prefix = "msg_",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .fits_context = true,
                                           .translate = translate,
                                           .shape = &shape,
                                           .read_prompts = messages_read};
    answer_handle(ex, &dialect);
}

void api_count_tokens(exchange *ex)
{
    json_t *asked = NULL, *body = NULL;
    prompt_list prompts;
    api_error error;
    out_text out = {0};
    bool ok = json_body_parse(ex, &asked, &error);
    if (ok) body = messages_translate(asked, true, &error);
    ok = ok && body != NULL && messages_read(ex, body, &prompts, &error);
    if (ok) {
        out_format(&out, "{\"input_tokens\":%zu}", prompts.at[0].n_ids);
        prompts_release(&prompts);
        exchange_reply_json(ex, 200, &out);
    } else {
        exchange_refuse(ex, &error);
    }
    json_decref(body);
    json_decref(asked);
}
