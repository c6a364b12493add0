/* POST /v1/completions: texts and token ids, batches, and prompts with their log-probabilities. */
#include <math.h>
#include <string.h>

#include "answer/api_answer.h"
#include "routes.h"

enum { DEFAULT_TOKENS = 16 };

static bool read_prompts(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    return prompts_read(ex, body, "prompt", true, out, error);
}

/* The first token of a prompt is no part of its text where the tokenizer has put it there. */
static bool is_added(const answer *a, const api_choice *echo, int32_t id)
{
    char *bytes = NULL;
    size_t n = 0;
    const skv_vocab *vocab = a->ex->model->vocab;
    if (echo->n_tokens > 0 || id != skv_vocab_bos(vocab)) return false;
    const bool known = skv_vocab_token_bytes(vocab, id, &bytes, &n, NULL) == SKV_OK;
    const bool spelled =
        known && echo->text.size >= n && n > 0 && memcmp(echo->text.data, bytes, n) == 0;
    skv_text_free(bytes);
    return !spelled;
}

/* Whole characters of the echo in front of its next token. */
static size_t echo_offset(const answer *a, api_choice *echo, int32_t id)
{
    const char *text = "";
    size_t n = 0;
    const size_t offset = echo->n_chars;
    if (!echo->reader || is_added(a, echo, id)) return offset;
    if (skv_text_stream_push(echo->reader, id, &text, &n, NULL) == SKV_OK) {
        echo->n_chars += answer_count_chars(text, n);
    }
    return offset;
}

/* Where the token stands in the text that is sent. */
static size_t offset_of(const answer *a, api_choice *c, const skv_output *token)
{
    if (token->kind == SKV_OUTPUT_PROMPT) return echo_offset(a, c, token->id);
    return (c->echo ? c->echo->n_text_chars : 0) + token->i_char;
}

/* {"text": logprob, ...}: the most likely ones and the token itself. Of two tokens with the same
 * text the more likely one counts. */
static void add_top(const answer *a, skv_buf *out, const skv_output *token)
{
    bool has_own = false;
    skv_buf names = {.max = LIMIT_TEXT_BYTES};
    skv_buf_text(out, "{");
    for (size_t i = 0; i <= token->n_top; i++) {
        const bool own = i == token->n_top;
        const skv_token_prob entry =
            own ? (skv_token_prob){token->id, token->logprob} : token->top[i];
        if (own && has_own) break;
        has_own = has_own || entry.id == token->id;
        skv_buf name = {.max = LIMIT_TEXT_BYTES};
        skv_buf_text(&name, "\n");
        answer_token(a->ex, &name, entry.id);
        skv_buf_append(&name, "\n", 2);
        /* Names stand between newlines, which JSON never has inside a string. */
        const bool known = names.size > 0 && name.size > 0 && strstr(names.data, name.data);
        if (!known && name.size > 2) {
            if (names.size > 0) {
                names.size--;
                skv_buf_text(out, ",");
            }
            skv_buf_append(out, name.data + 1, name.size - 3);
            skv_buf_text(out, ":");
            out_number(out, entry.logprob);
            skv_buf_append(&names, name.data, name.size);
        }
        out->failed = out->failed || name.failed || names.failed;
        skv_buf_release(&name);
    }
    skv_buf_release(&names);
    skv_buf_text(out, "}");
}

static void add_logprob(answer *a, api_choice *c, const skv_output *token)
{
    const char *comma = c->n_tokens > 0 ? "," : "";
    skv_buf_text(&c->tokens, comma);
    answer_token(a->ex, &c->tokens, token->id);
    skv_buf_printf(&c->text_offset, "%s%zu", comma, offset_of(a, c, token));
    skv_buf_text(&c->token_logprobs, comma);
    out_number(&c->token_logprobs, token->logprob);
    skv_buf_text(&c->top_logprobs, comma);
    if (isnan(token->logprob)) {
        skv_buf_text(&c->top_logprobs, "null");
    } else {
        add_top(a, &c->top_logprobs, token);
    }
    c->n_tokens++;
}

/* The echo's part in front, and the choice after it. */
static void add_array(skv_buf *out, const char *name, const skv_buf *front, const skv_buf *own)
{
    skv_buf_printf(out, "\"%s\":[", name);
    if (front) skv_buf_append(out, front->data, front->size);
    if (front && front->size > 0 && own->size > 0) skv_buf_text(out, ",");
    skv_buf_append(out, own->data, own->size);
    skv_buf_text(out, "]");
    out->failed = out->failed || own->failed || (front && front->failed);
}

static void add_logprobs(skv_buf *out, const api_choice *echo, const api_choice *c)
{
    skv_buf_text(out, ",\"logprobs\":{");
    add_array(out, "tokens", echo ? &echo->tokens : NULL, &c->tokens);
    skv_buf_text(out, ",");
    add_array(out, "token_logprobs", echo ? &echo->token_logprobs : NULL, &c->token_logprobs);
    skv_buf_text(out, ",");
    add_array(out, "top_logprobs", echo ? &echo->top_logprobs : NULL, &c->top_logprobs);
    skv_buf_text(out, ",");
    add_array(out, "text_offset", echo ? &echo->text_offset : NULL, &c->text_offset);
    skv_buf_text(out, "}");
}

static void write_choice(answer *a, skv_buf *out, size_t i)
{
    const api_choice *c = &a->choices[i], *echo = answer_echo_of(c);
    skv_buf_printf(out, "{\"index\":%zu,\"text\":\"", i);
    if (echo) out_json_inside(out, echo->text.data, echo->text.size);
    out_json_inside(out, c->text.data, c->text.size);
    skv_buf_text(out, "\"");
    out->failed = out->failed || c->text.failed || (echo && echo->text.failed);
    if (a->params.wants_logprobs) {
        add_logprobs(out, echo, c);
    } else {
        skv_buf_text(out, ",\"logprobs\":null");
    }
    answer_write_finish(out, c);
    skv_buf_text(out, "}");
}

void api_completions(exchange *ex)
{
    static const answer_dialect dialect = {.api = PARAM_COMPLETIONS,
                                           .id_prefix = "cmpl-",
                                           .object = "text_completion",
                                           .chunk_object = "text_completion",
                                           .default_tokens = DEFAULT_TOKENS,
                                           .shape = &answer_choices,
                                           .read_prompts = read_prompts,
                                           .add_logprob = add_logprob,
                                           .write_choice = write_choice,
                                           .write_chunk_choice = write_choice};
    answer_handle(ex, &dialect);
}
