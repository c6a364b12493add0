/*
 * /tokenize, /detokenize, /tokenizer_info and /apply-template, in the shapes of both families of
 * clients: {"content"} and {"prompt"}; and the tokens that a prompt of Messages or Responses has.
 */
#include <stdlib.h>

#include "answer/api_answer.h"
#include "request/request_input.h"
#include "request/translate.h"
#include "routes.h"

enum { LOOK_IDS = 1 << 12 /* that are written, some milliseconds */ };

/* Runs an endpoint that turns a JSON body into JSON. */
static void answer_body(exchange *ex, bool (*make)(exchange *ex, const json_t *body, skv_buf *out,
                                                   api_error *error))
{
    json_t *body = NULL;
    api_error error;
    skv_buf out = exchange_text(ex);
    if (request_body_read(ex, &body, &error) && make(ex, body, &out, &error)) {
        exchange_reply_json(ex, 200, &out);
    } else {
        skv_buf_release(&out);
        exchange_refuse(ex, &error);
    }
    json_decref(body);
}

/* Either name of a flag. */
static bool read_flag(const json_t *body, const char *name, const char *other, bool *out,
                      api_error *error)
{
    return json_body_flag(body, name, out, error) && json_body_flag(body, other, out, error);
}

static bool write_ids(const exchange *ex, const int32_t *ids, size_t n, bool with_pieces,
                      skv_buf *out, api_error *error)
{
    skv_buf_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        if (i % LOOK_IDS == 0 && !request_goes_on(ex, error)) return false;
        if (i > 0) skv_buf_text(out, ",");
        if (with_pieces) {
            skv_buf_printf(out, "{\"id\":%d,\"piece\":", ids[i]);
            answer_token(ex, out, ids[i]);
            skv_buf_text(out, "}");
        } else {
            skv_buf_printf(out, "%d", ids[i]);
        }
    }
    skv_buf_printf(out, "],\"count\":%zu,\"max_model_len\":%zu}", n, ex->model->limits.context);
    return true;
}

static bool tokenize_text(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    const json_t *content = json_body_get(body, "content");
    const json_t *text = content ? content : json_body_get(body, "prompt");
    encode_flags flags = {.add_special = !content, .parse_special = true};
    bool with_pieces = false;
    if (!json_is_string(text)) return api_refuse(error, "prompt", "not a text");
    if (!read_flag(body, "add_special", "add_special_tokens", &flags.add_special, error) ||
        !read_flag(body, "parse_special", "parse_special_tokens", &flags.parse_special, error) ||
        !json_body_flag(body, "with_pieces", &with_pieces, error)) {
        return false;
    }
    int32_t *ids = NULL;
    size_t n = 0;
    if (!text_encode(ex, json_string_value(text), json_string_length(text), flags, &ids, &n,
                     error)) {
        return false;
    }
    const bool ok = write_ids(ex, ids, n, with_pieces, out, error);
    text_ids_free(ex, ids, n);
    return ok;
}

static bool tokenize(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    if (!json_body_get(body, "messages")) return tokenize_text(ex, body, out, error);
    prompt_list list;
    if (!messages_read_whole(ex, body, &list, error)) return false;
    const bool ok = write_ids(ex, list.at[0].ids, list.at[0].n_ids, false, out, error);
    prompts_release(&list);
    return ok;
}

static bool detokenize(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    const json_t *tokens = json_body_get(body, "tokens");
    int32_t *ids = NULL;
    size_t n_ids = 0, n = 0;
    char *text = NULL;
    skv_error err;
    if (!json_is_array(tokens)) return api_refuse(error, "tokens", "not an array");
    if (!ex->model->vocab) return api_refuse(error, "tokens", "this model has no tokenizer");
    if (!json_body_ids(ex, tokens, "tokens", &ids, &n_ids, error)) return false;
    const skv_status status = skv_vocab_decode(
        ex->model->vocab, (skv_id_piece){ids, n_ids},
        (skv_decode_options){.with_special = true, .budget = ex->budget}, &text, &n, &err);
    free(ids);
    if (status != SKV_OK) return exchange_fail(ex, status, &err, "tokens", error);
    const bool ok = request_hold(ex, n, "tokens", error);
    skv_buf_text(out, "{\"prompt\":");
    out_json(out, text, ok ? n : 0);
    skv_buf_text(out, ",\"content\":");
    out_json(out, text, ok ? n : 0);
    skv_buf_text(out, "}");
    skv_text_free(text);
    return ok;
}

static bool apply_template(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    rendered_text rendered;
    const skv_buf *text = &rendered.text;
    const bool ok = messages_render(ex, body, &rendered, error);
    if (ok) {
        skv_buf_text(out, "{\"prompt\":");
        out_json(out, text->size > 0 ? text->data : "", text->size);
        skv_buf_text(out, "}");
    }
    rendered_release(&rendered);
    return ok;
}

void api_tokenize(exchange *ex)
{
    answer_body(ex, tokenize);
}

void api_detokenize(exchange *ex)
{
    answer_body(ex, detokenize);
}

void api_apply_template(exchange *ex)
{
    answer_body(ex, apply_template);
}

/* ---- counting ---- */

static bool write_count(const exchange *ex, json_t *chat, const char *before, skv_buf *out,
                        api_error *error)
{
    prompt_list prompts;
    const bool ok = chat && messages_read_whole(ex, chat, &prompts, error);
    json_decref(chat);
    if (!ok) return false;
    skv_buf_printf(out, "{%s\"input_tokens\":%zu}", before, prompts.at[0].n_ids);
    prompts_release(&prompts);
    return true;
}

static bool count_messages(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    return write_count(ex, messages_translate(ex, body, true, error), "", out, error);
}

/* The request is that of an answer, so its other fields have to be right too. */
static bool count_responses(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    request_params params = {0};
    json_t *chat = responses_translate(ex, body, error);
    bool ok = chat && request_params_read(ex, chat, PARAM_CHAT, &params, error);
    request_params_release(&params);
    if (ok) {
        ok =
            write_count(ex, json_incref(chat), "\"object\":\"response.input_tokens\",", out, error);
    }
    json_decref(chat);
    return ok;
}

static bool count_chat(exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    json_t *chat = json_copy_within(ex, (json_t *)(uintptr_t)body, "request", error);
    return write_count(ex, chat, "", out, error);
}

void api_count_chat(exchange *ex)
{
    answer_body(ex, count_chat);
}

void api_count_messages(exchange *ex)
{
    answer_body(ex, count_messages);
}

void api_count_responses(exchange *ex)
{
    answer_body(ex, count_responses);
}

static void add_token(const exchange *ex, skv_buf *out, const char *name, int32_t id)
{
    char *text = NULL;
    size_t n = 0;
    const bool has =
        id >= 0 && ex->model->vocab &&
        skv_vocab_decode(ex->model->vocab, (skv_id_piece){&id, 1},
                         (skv_decode_options){.with_special = true}, &text, &n, NULL) == SKV_OK;
    skv_buf_printf(out, "\"%s\":", name);
    if (has) {
        out_json(out, text, n);
    } else {
        skv_buf_text(out, "null");
    }
    skv_buf_text(out, ",");
    skv_text_free(text);
}

void api_tokenizer_info(exchange *ex)
{
    const server_model *model = ex->model;
    skv_buf out = exchange_text(ex);
    skv_buf_text(&out, "{");
    add_token(ex, &out, "bos_token", model->vocab ? skv_vocab_bos(model->vocab) : -1);
    add_token(ex, &out, "eos_token", model->vocab ? skv_vocab_eos(model->vocab) : -1);
    skv_buf_printf(&out, "\"pad_token\":null,\"vocab_size\":%zu,\"model_max_length\":%zu,",
                   skv_engine_vocab(model->engine), model->limits.context);
    skv_buf_text(&out, "\"chat_template\":");
    out_json_str(&out, model->guesses_template ? NULL : model->template_text);
    skv_buf_text(&out, "}");
    exchange_reply_json(ex, 200, &out);
}
