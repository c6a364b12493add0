/* POST /v1/chat/completions: conversations by the model's own template. */
#include "api_answer.h"
#include "routes.h"

static void add_logprob(answer *a, api_choice *c, const skv_output *token)
{
    if (c->n_tokens++ > 0) out_str(&c->tokens, ",");
    answer_chat_logprob(a->ex, &c->tokens, token);
}

static void write_logprobs(const answer *a, out_text *out, const api_choice *c)
{
    if (!a->params.wants_logprobs || (a->params.stream && c->n_tokens == 0)) {
        out_str(out, ",\"logprobs\":null");
        return;
    }
    out_str(out, ",\"logprobs\":{\"content\":[");
    out_bytes(out, c->tokens.data, c->tokens.n);
    out_str(out, "],\"refusal\":null}");
    out->failed = out->failed || c->tokens.failed;
}

/* A call, or what is new of it: {"index":0,"id":...,"type":"function","function":{...}} */
static void write_call(out_text *out, reply_part *part, size_t i_call, bool chunk)
{
    out_str(out, "{");
    if (chunk) out_format(out, "\"index\":%zu,", i_call);
    if (!part->begun) out_format(out, "\"id\":\"call_%s\",\"type\":\"function\",", part->id);
    out_str(out, "\"function\":{");
    if (!part->begun) {
        out_str(out, "\"name\":");
        out_json(out, part->name.data, part->name.n);
        out_str(out, ",");
    }
    out_str(out, "\"arguments\":");
    out_json(out, part->text.data + part->n_told, part->text.n - part->n_told);
    out_str(out, "}}");
    out->failed = out->failed || part->text.failed || part->name.failed;
    part->begun = true;
    part->n_told = part->text.n;
}

/* "tool_calls":[...] with what is new, `before` in front; false: nothing is. */
static bool write_calls(out_text *out, reply_parts *parts, const char *before, bool chunk)
{
    size_t i_call = 0;
    bool any = false;
    for (size_t i = 0; i < parts->n; i++) {
        reply_part *part = &parts->at[i];
        if (part->kind != PART_CALL) continue;
        if (!part->begun || part->n_told < part->text.n) {
            out_str(out, any ? "," : before);
            if (!any) out_str(out, "\"tool_calls\":[");
            write_call(out, part, i_call, chunk);
            any = true;
        }
        i_call++;
    }
    if (any) out_str(out, "]");
    return any;
}

static bool has_calls(const reply_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (parts->at[i].kind == PART_CALL) return true;
    }
    return false;
}

static void write_choice(answer *a, out_text *out, size_t i)
{
    api_choice *c = &a->choices[i];
    out_format(out, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",", i);
    if (!reply_parts_write(&c->parts, PART_TEXT, "\"content\":", out)) {
        out_str(out, has_calls(&c->parts) ? "\"content\":null" : "\"content\":\"\"");
    }
    out_str(out, ",\"refusal\":null");
    (void)reply_parts_write(&c->parts, PART_THOUGHT, ",\"reasoning_content\":", out);
    (void)write_calls(out, &c->parts, ",", false);
    out_str(out, "}");
    write_logprobs(a, out, c);
    answer_write_finish(out, c);
    out_str(out, "}");
}

/* The role comes with the first token: clients take the first event for it. */
static void write_chunk_choice(answer *a, out_text *out, size_t i)
{
    api_choice *c = &a->choices[i];
    out_format(out, "{\"index\":%zu,\"delta\":{", i);
    const char *comma = c->begun ? "" : ",";
    if (!c->begun) out_str(out, "\"role\":\"assistant\",");
    if (reply_parts_write(&c->parts, PART_TEXT, "\"content\":", out)) {
        comma = ",";
    } else if (!c->begun) {
        out_str(out, c->parts.n > 0 ? "\"content\":null" : "\"content\":\"\"");
    }
    const bool first = comma[0] == 0;
    const char *thought = first ? "\"reasoning_content\":" : ",\"reasoning_content\":";
    if (reply_parts_write(&c->parts, PART_THOUGHT, thought, out)) comma = ",";
    (void)write_calls(out, &c->parts, comma, true);
    if (c->parts.n > 0) c->parts.i_told = c->parts.n - 1;
    out_str(out, "}");
    write_logprobs(a, out, c);
    answer_write_finish(out, c);
    out_str(out, "}");
}

void api_chat(exchange *ex)
{
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .id_prefix = "chatcmpl-",
                                           .object = "chat.completion",
                                           .chunk_object = "chat.completion.chunk",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .read_prompts = messages_read,
                                           .add_logprob = add_logprob,
                                           .write_choice = write_choice,
                                           .write_chunk_choice = write_chunk_choice};
    answer_handle(ex, &dialect);
}
