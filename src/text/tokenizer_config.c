/* tokenizer_config.json: which tokens begin and end a text, and the chat template. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"

/* "bos_token": a text, or an added token's object with its content; -1 when it is no token. */
static int32_t named_token(const skv_tokenizer *t, const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) return -1;
    return skv_tokenizer_find(t, json_string_value(value), json_string_length(value));
}

/* chat_template: a text, or a list of named ones of which "default" counts. */
static const json_t *find_template(const json_t *root)
{
    const json_t *value = json_object_get(root, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_object_get(item, "template");
    }
    return json_is_string(value) ? value : NULL;
}

static skv_status read_config(skv_tokenizer *t, const json_t *root, skv_error *err)
{
    int32_t bos = named_token(t, root, "bos_token"), eos = named_token(t, root, "eos_token");
    if (bos >= 0) t->bos = bos;
    if (eos >= 0) t->eos = eos;
    const json_t *text = find_template(root);
    if (!json_is_string(text)) return SKV_OK;
    skv_free(t->chat_template);
    t->chat_template = skv_strndup(json_string_value(text), json_string_length(text));
    SKV_REQUIRE(t->chat_template != NULL, err, SKV_MEMORY, "%s: no memory for the chat template",
                t->name);
    return SKV_OK;
}

/* SentencePiece files leave it to the configuration what is added; tokenizer.json says it itself.
 */
static skv_status read_adding(skv_tokenizer *t, const json_t *root, skv_error *err)
{
    bool bos, eos;
    if (!t->spm.active) return SKV_OK;
    SKV_TRY(skv_node_bool(t, root, "add_bos_token", t->n_prefix > 0, &bos, err));
    SKV_TRY(skv_node_bool(t, root, "add_eos_token", t->n_suffix > 0, &eos, err));
    t->n_prefix = bos && t->bos >= 0 ? 1 : 0;
    t->n_suffix = eos && t->eos >= 0 ? 1 : 0;
    t->prefix[0] = t->bos;
    t->suffix[0] = t->eos;
    return SKV_OK;
}

skv_status skv_read_tokenizer_config(skv_tokenizer *t, const char *json, size_t n, skv_error *err)
{
    /* model_max_length is often 10^30: numbers are read as reals, nothing here needs them. */
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    json_error_t why;
    json_t *root = json_loadb(n > 0 ? json : "", n, flags, &why);
    SKV_REQUIRE(root != NULL, err, SKV_FORMAT, "tokenizer_config.json: line %d, column %d: %s",
                why.line, why.column, why.text);
    skv_status status = read_config(t, root, err);
    if (status == SKV_OK) status = read_adding(t, root, err);
    json_decref(root);
    return status;
}
