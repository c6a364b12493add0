/* Chat templates for programs: the variables that a model's own tokens add, and the rendering. */
#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "engine/vocab_impl.h"
#include "format/json_doc.h"
#include "skv/text.h"
#include "text/chat_template.h"

enum { VARS_BYTES_MAX = 256 << 20, TEXT_BYTES_MAX = 1 << 30 };

/* Appends `"key":"text",` unless the caller has set the key. */
static void add_token(skv_buf *out, const json_t *vars, const char *key, const skv_tokenizer *t,
                      int32_t id)
{
    size_t n;
    const char *text = id >= 0 ? skv_tokenizer_text(t, id, &n) : NULL;
    if (!text || json_object_get(vars, key)) return;
    skv_buf_printf(out, "\"%s\":\"", key);
    skv_buf_json_text(out, text, n);
    skv_buf_text(out, "\",");
}

/* The caller's object with the model's tokens put in behind its brace: what the caller wrote stays
 * as it is, since a template can tell 1 from 1.0. */
static skv_status complete_vars(const char *vars_json, size_t n, const skv_vocab *vocab,
                                skv_buf *out, skv_error *err)
{
    json_t *vars;
    SKV_TRY(skv_json_load_texts(vars_json, n, VARS_BYTES_MAX, "template variables", &vars, err));
    skv_status status = SKV_OK;
    const char *brace = memchr(vars_json, '{', n);
    if (!json_is_object(vars) || !brace) {
        status = skv_fail(err, SKV_ARGUMENT, "template variables: not a JSON object");
    } else {
        size_t n_before = (size_t)(brace - vars_json) + 1;
        skv_buf_append(out, vars_json, n_before);
        if (vocab) {
            const skv_tokenizer *t = vocab->tokenizer;
            add_token(out, vars, "bos_token", t, skv_tokenizer_bos(t));
            add_token(out, vars, "eos_token", t, skv_tokenizer_eos(t));
        }
        bool trailing_comma = out->size > n_before && json_object_size(vars) == 0;
        if (trailing_comma) out->size--;
        skv_buf_append(out, vars_json + n_before, n - n_before);
        if (out->failed) status = skv_fail(err, SKV_MEMORY, "template variables: no memory");
    }
    json_decref(vars);
    return status;
}

skv_status skv_render(const char *template_text, size_t n_template, const char *vars_json,
                      size_t n_vars, const skv_vocab *vocab, char **text, size_t *n_text,
                      skv_error *err)
{
    skv_buf vars;
    skv_buf_init(&vars, VARS_BYTES_MAX);
    skv_template *template = NULL;
    skv_buf buf;
    skv_buf_init(&buf, TEXT_BYTES_MAX);
    skv_status status = complete_vars(vars_json, n_vars, vocab, &vars, err);
    if (status == SKV_OK) {
        status = skv_template_parse(template_text, n_template, "chat template", &template, err);
    }
    if (status == SKV_OK) {
        status = skv_template_render(template, vars.data, vars.size, NULL, &buf, err);
    }
    skv_template_free(template);
    skv_buf_release(&vars);
    return skv_give_text(&buf, status, text, n_text, err);
}
