/* POST /v1/chat/completions: conversations by the model's own template. */
#include "answer/api_answer.h"
#include "routes.h"

static void add_logprob(answer *a, api_choice *c, const skv_output *token)
{
    if (c->n_tokens++ > 0) skv_buf_text(&c->tokens, ",");
    answer_chat_logprob(a->ex, &c->tokens, token);
}

static void write_logprobs(const answer *a, skv_buf *out, const api_choice *c)
{
    if (!a->params.wants_logprobs || (a->params.stream && c->n_tokens == 0)) {
        skv_buf_text(out, ",\"logprobs\":null");
        return;
    }
    skv_buf_text(out, ",\"logprobs\":{\"content\":[");
    skv_buf_append(out, c->tokens.data, c->tokens.size);
    skv_buf_text(out, "],\"refusal\":null}");
    out->failed = out->failed || c->tokens.failed;
}

/* A call, or its new part: {"index":0,"id":...,"type":"function","function":{...}}, or
 * {"type":"custom","custom":{...}} */
static void write_call(skv_buf *out, reply_part *part, size_t i_call, bool chunk)
{
    skv_buf_text(out, "{");
    if (chunk) skv_buf_printf(out, "\"index\":%zu,", i_call);
    const char *type = part->custom ? "custom" : "function";
    if (!part->begun) {
        skv_buf_text(out, "\"id\":");
        reply_part_call_id(part, "call_", out);
        skv_buf_printf(out, ",\"type\":\"%s\",", type);
    }
    skv_buf_printf(out, "\"%s\":{", type);
    if (!part->begun) {
        skv_buf_text(out, "\"name\":");
        out_json(out, part->name.data, part->name.size);
        skv_buf_text(out, ",");
    }
    skv_buf_text(out, part->custom ? "\"input\":" : "\"arguments\":");
    out_json(out, part->text.data + part->n_told, part->text.size - part->n_told);
    skv_buf_text(out, "}}");
    out->failed = out->failed || part->text.failed || part->name.failed;
    part->begun = true;
    part->n_told = part->text.size;
}

/* "tool_calls":[...] with the new parts, `before` in front; false: there are none. */
static bool write_calls(skv_buf *out, reply_parts *parts, const char *before, bool chunk)
{
    size_t i_call = 0;
    bool any = false;
    for (size_t i = 0; i < parts->n; i++) {
        reply_part *part = &parts->at[i];
        if (part->kind != PART_CALL) continue;
        if (!part->begun || part->n_told < part->text.size) {
            skv_buf_text(out, any ? "," : before);
            if (!any) skv_buf_text(out, "\"tool_calls\":[");
            write_call(out, part, i_call, chunk);
            any = true;
        }
        i_call++;
    }
    if (any) skv_buf_text(out, "]");
    return any;
}

static bool has_calls(const reply_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (parts->at[i].kind == PART_CALL) return true;
    }
    return false;
}

static void write_choice(answer *a, skv_buf *out, size_t i)
{
    api_choice *c = &a->choices[i];
    skv_buf_printf(out, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",", i);
    if (!reply_parts_write(&c->parts, PART_TEXT, "\"content\":", out)) {
        skv_buf_text(out, has_calls(&c->parts) ? "\"content\":null" : "\"content\":\"\"");
    }
    skv_buf_text(out, ",\"refusal\":null");
    (void)reply_parts_write(&c->parts, PART_THOUGHT, ",\"reasoning_content\":", out);
    (void)write_calls(out, &c->parts, ",", false);
    skv_buf_text(out, "}");
    write_logprobs(a, out, c);
    answer_write_finish(out, c);
    skv_buf_text(out, "}");
}

static void write_chunk_choice(answer *a, skv_buf *out, size_t i)
{
    api_choice *c = &a->choices[i];
    skv_buf_printf(out, "{\"index\":%zu,\"delta\":{", i);
    const char *comma = "";
    if (reply_parts_write(&c->parts, PART_TEXT, "\"content\":", out)) comma = ",";
    const bool first = comma[0] == 0;
    const char *thought = first ? "\"reasoning_content\":" : ",\"reasoning_content\":";
    if (reply_parts_write(&c->parts, PART_THOUGHT, thought, out)) comma = ",";
    (void)write_calls(out, &c->parts, comma, true);
    if (c->parts.n > 0) c->parts.i_told = c->parts.n - 1;
    skv_buf_text(out, "}");
    write_logprobs(a, out, c);
    answer_write_finish(out, c);
    skv_buf_text(out, "}");
}

void api_chat(exchange *ex)
{
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .id_prefix = "chatcmpl-",
                                           .object = "chat.completion",
                                           .chunk_object = "chat.completion.chunk",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .shape = &answer_choices,
                                           .read_prompts = messages_read,
                                           .add_logprob = add_logprob,
                                           .write_choice = write_choice,
                                           .write_chunk_choice = write_chunk_choice};
    answer_handle(ex, &dialect);
}
