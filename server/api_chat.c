/* POST /v1/chat/completions: conversations by the model's own template. */
#include "api_answer.h"
#include "routes.h"

static bool read_prompts(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    return messages_read(ex, body, out, error);
}

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

static void write_choice(answer *a, out_text *out, size_t i)
{
    const api_choice *c = &a->choices[i];
    out_format(out, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",\"content\":", i);
    out_json(out, c->text.data, c->text.n);
    out->failed = out->failed || c->text.failed;
    out_str(out, ",\"refusal\":null}");
    write_logprobs(a, out, c);
    answer_write_finish(out, c);
    out_str(out, "}");
}

/* The role comes with the first token: clients take the first event for it. */
static void write_chunk_choice(answer *a, out_text *out, size_t i)
{
    const api_choice *c = &a->choices[i];
    out_format(out, "{\"index\":%zu,\"delta\":{", i);
    if (!c->begun) out_str(out, "\"role\":\"assistant\",");
    if (!c->begun || c->text.n > 0) {
        out_str(out, "\"content\":");
        out_json(out, c->text.data, c->text.n);
    }
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
                                           .read_prompts = read_prompts,
                                           .add_logprob = add_logprob,
                                           .write_choice = write_choice,
                                           .write_chunk_choice = write_chunk_choice};
    answer_handle(ex, &dialect);
}
