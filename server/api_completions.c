/* POST /v1/completions: texts and token ids, batches, and prompts with their log-probabilities. */
#include <math.h>
#include <string.h>

#include "api_answer.h"
#include "routes.h"

enum { DEFAULT_TOKENS = 16 };

static bool read_prompts(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    return prompts_read(ex, body, "prompt", out, error);
}

/* Characters of a token's text as it stands in JSON: what begins none is counted. */
static size_t count_chars(const char *json, size_t n)
{
    size_t n_chars = 0;
    for (size_t i = 0; i < n; i++) {
        if (json[i] == '\\' && i + 1 < n) i += json[i + 1] == 'u' ? 5 : 1;
        n_chars += ((unsigned char)json[i] & 0xc0) != 0x80;
    }
    return n_chars;
}

/* {"text": logprob, ...}: the most likely ones and the token itself. Of two tokens with the same
 * text the more likely one counts. */
static void add_top(const answer *a, out_text *out, const skv_output *token)
{
    bool has_own = false;
    out_text names = {0};
    out_str(out, "{");
    for (size_t i = 0; i <= token->n_top; i++) {
        const bool own = i == token->n_top;
        const skv_token_prob entry =
            own ? (skv_token_prob){token->id, token->logprob} : token->top[i];
        if (own && has_own) break;
        has_own = has_own || entry.id == token->id;
        out_text name = {0};
        out_str(&name, "\n");
        answer_token(a->ex, &name, entry.id);
        out_bytes(&name, "\n", 2);
        /* Names stand between newlines, which JSON never has inside a string. */
        const bool known = names.n > 0 && name.n > 0 && strstr(names.data, name.data) != NULL;
        if (!known && name.n > 2) {
            if (names.n > 0) {
                names.n--;
                out_str(out, ",");
            }
            out_bytes(out, name.data + 1, name.n - 3);
            out_str(out, ":");
            out_number(out, entry.logprob);
            out_bytes(&names, name.data, name.n);
        }
        out->failed = out->failed || name.failed || names.failed;
        out_release(&name);
    }
    out_release(&names);
    out_str(out, "}");
}

static void add_logprob(answer *a, api_choice *c, const skv_output *token)
{
    const char *comma = c->n_tokens > 0 ? "," : "";
    out_str(&c->tokens, comma);
    const size_t start = c->tokens.n;
    answer_token(a->ex, &c->tokens, token->id);
    const size_t n = c->tokens.n - start;
    out_format(&c->text_offset, "%s%zu", comma, c->n_chars);
    if (n > 2) c->n_chars += count_chars(c->tokens.data + start + 1, n - 2);
    out_str(&c->token_logprobs, comma);
    out_number(&c->token_logprobs, token->logprob);
    out_str(&c->top_logprobs, comma);
    if (isnan(token->logprob)) {
        out_str(&c->top_logprobs, "null");
    } else {
        add_top(a, &c->top_logprobs, token);
    }
    c->n_tokens++;
}

static void add_array(out_text *out, const char *name, const out_text *inside)
{
    out_format(out, "\"%s\":[", name);
    out_bytes(out, inside->data, inside->n);
    out_str(out, "]");
    out->failed = out->failed || inside->failed;
}

static void write_choice(answer *a, out_text *out, size_t i)
{
    const api_choice *c = &a->choices[i];
    out_format(out, "{\"index\":%zu,\"text\":", i);
    out_json(out, c->text.data, c->text.n);
    out->failed = out->failed || c->text.failed;
    if (a->params.wants_logprobs) {
        out_str(out, ",\"logprobs\":{");
        add_array(out, "tokens", &c->tokens);
        out_str(out, ",");
        add_array(out, "token_logprobs", &c->token_logprobs);
        out_str(out, ",");
        add_array(out, "top_logprobs", &c->top_logprobs);
        out_str(out, ",");
        add_array(out, "text_offset", &c->text_offset);
        out_str(out, "}");
    } else {
        out_str(out, ",\"logprobs\":null");
    }
    answer_write_finish(out, c);
    out_str(out, "}");
}

void api_completions(exchange *ex)
{
    static const answer_dialect dialect = {.api = PARAM_COMPLETIONS,
                                           .id_prefix = "cmpl-",
                                           .object = "text_completion",
                                           .chunk_object = "text_completion",
                                           .default_tokens = DEFAULT_TOKENS,
                                           .read_prompts = read_prompts,
                                           .add_logprob = add_logprob,
                                           .write_choice = write_choice,
                                           .write_chunk_choice = write_choice};
    answer_handle(ex, &dialect);
}
