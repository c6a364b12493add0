/* Constraints: where grammars meet requests. The fields are those of OpenAI (response_format), of
 * vLLM (guided_*, structured_outputs) and of llama.cpp (grammar, json_schema). */
#include "constrain.h"

#include <stdlib.h>
#include <string.h>

#include "server_impl.h"
#include "skv/grammar.h"

/* What a request asks for: where it says so, and what its answer has to follow. */
typedef struct wish {
    const char *field; /* as errors name it; NULL: none */
    skv_grammar_kind kind;
    const json_t *value; /* a text as it is, all else as the JSON that it is; NULL: no text */
} wish;

typedef struct field_row {
    const char *name;
    skv_grammar_kind kind;
} field_row;

static const field_row fields[] = {
    {"guided_json", SKV_GRAMMAR_JSON_SCHEMA}, {"guided_regex", SKV_GRAMMAR_REGEX},
    {"guided_choice", SKV_GRAMMAR_CHOICE},    {"guided_grammar", SKV_GRAMMAR_GBNF},
    {"json_schema", SKV_GRAMMAR_JSON_SCHEMA}, {"grammar", SKV_GRAMMAR_GBNF}};

/* The members of structured_outputs. */
static const field_row structured[] = {{"json", SKV_GRAMMAR_JSON_SCHEMA},
                                       {"regex", SKV_GRAMMAR_REGEX},
                                       {"choice", SKV_GRAMMAR_CHOICE},
                                       {"grammar", SKV_GRAMMAR_GBNF},
                                       {"json_object", SKV_GRAMMAR_JSON_OBJECT}};

/* ---- what is asked for ---- */

static bool add_wish(wish *out, const char *field, skv_grammar_kind kind, const json_t *value,
                     api_error *error)
{
    if (out->field != NULL) {
        return api_fail(error, 400, field, "%s: given beside %s, an answer follows one of them",
                        field, out->field);
    }
    *out = (wish){field, kind, value};
    return true;
}

static bool read_format(const json_t *body, wish *out, api_error *error)
{
    static const char name[] = "response_format";
    const json_t *format = json_body_get(body, name);
    if (format == NULL) return true;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (type != NULL && strcmp(type, "text") == 0) return true;
    if (type != NULL && strcmp(type, "json_object") == 0) {
        return add_wish(out, name, SKV_GRAMMAR_JSON_OBJECT, NULL, error);
    }
    if (type == NULL || strcmp(type, "json_schema") != 0) {
        return api_fail(error, 400, name,
                        "%s: type \"%.40s\" is none of text, json_object, json_schema", name,
                        type != NULL ? type : "");
    }
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (!json_is_object(schema)) {
        return api_fail(error, 400, name, "%s: json_schema.schema: missing or no object", name);
    }
    return add_wish(out, name, SKV_GRAMMAR_JSON_SCHEMA, schema, error);
}

static bool read_structured(const json_t *body, wish *out, api_error *error)
{
    static const char name[] = "structured_outputs";
    const json_t *object = json_body_get(body, name);
    if (object == NULL) return true;
    if (!json_is_object(object)) return api_fail(error, 400, name, "%s: not an object", name);
    for (size_t i = 0; i < sizeof structured / sizeof structured[0]; i++) {
        const json_t *value = json_body_get(object, structured[i].name);
        if (value == NULL || json_is_false(value)) continue;
        if (!add_wish(out, name, structured[i].kind, value, error)) return false;
    }
    return true;
}

static bool read_wish(const json_t *body, wish *out, api_error *error)
{
    *out = (wish){.field = NULL};
    if (!read_format(body, out, error) || !read_structured(body, out, error)) return false;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = json_body_get(body, fields[i].name);
        if (value == NULL) continue;
        if (!add_wish(out, fields[i].name, fields[i].kind, value, error)) return false;
    }
    return true;
}

/* ---- following it ---- */

/* A grammar with a matcher that has read nothing; every answer gets a copy. */
typedef struct shared_rules {
    skv_grammar *grammar;
    skv_matcher *matcher;
} shared_rules;

typedef struct answer_rules {
    skv_matcher *matcher;
    uint32_t *bits; /* [n_words] */
    size_t n_words;
} answer_rules;

static void end_rules(void *state)
{
    answer_rules *rules = state;
    skv_matcher_free(rules->matcher);
    free(rules->bits);
    free(rules);
}

static void *begin_rules(void *user)
{
    const shared_rules *shared = user;
    answer_rules *rules = calloc(1, sizeof *rules);
    skv_error err;
    if (rules == NULL) return NULL;
    if (skv_matcher_copy(shared->matcher, &rules->matcher, &err) == SKV_OK) return rules;
    end_rules(rules);
    return NULL;
}

static bool mask_rules(void *state, float *logits, size_t vocab)
{
    answer_rules *rules = state;
    const size_t n_words = (vocab + 31) / 32;
    skv_error err;
    if (n_words > rules->n_words) {
        uint32_t *bits = realloc(rules->bits, n_words * sizeof *bits);
        if (bits == NULL) return false;
        rules->bits = bits;
        rules->n_words = n_words;
    }
    if (skv_matcher_mask(rules->matcher, rules->bits, vocab, &err) != SKV_OK) return false;
    bool any = false;
    for (size_t i = 0; i < n_words; i++) any = any || rules->bits[i] != 0;
    if (any) skv_mask_logits(rules->bits, logits, vocab);
    return any;
}

/* The token had a bit in the mask, so it fits. */
static void accept_rules(void *state, int32_t id)
{
    answer_rules *rules = state;
    skv_error err;
    (void)!skv_matcher_accept(rules->matcher, id, &err);
}

static void release_rules(void *user)
{
    shared_rules *shared = user;
    skv_matcher_free(shared->matcher);
    skv_grammar_free(shared->grammar);
    free(shared);
}

static bool compile(const http_server *server, const wish *w, const char *text, size_t n,
                    shared_rules *out, api_error *error)
{
    skv_error err;
    skv_status status = skv_grammar_compile(w->kind, text, n, &out->grammar, &err);
    if (status == SKV_OK) {
        status = skv_matcher_create(out->grammar, server->tokens, &out->matcher, &err);
    }
    if (status == SKV_OK) return true;
    return api_fail(error, status == SKV_MEMORY ? 503 : 400, w->field, "%s: %s", w->field,
                    err.text);
}

/* Texts are what they say; JSON may be sent as such, or as a text. */
static bool check_type(const wish *w, api_error *error)
{
    const bool is_text = w->kind == SKV_GRAMMAR_REGEX || w->kind == SKV_GRAMMAR_GBNF;
    if (!is_text || json_is_string(w->value)) return true;
    return api_fail(error, 400, w->field, "%s: not a text", w->field);
}

static bool compile_value(const http_server *server, const wish *w, shared_rules *out,
                          api_error *error)
{
    const json_t *value = w->kind == SKV_GRAMMAR_JSON_OBJECT ? NULL : w->value;
    if (value == NULL) return compile(server, w, "", 0, out, error);
    if (json_is_string(value)) {
        return compile(server, w, json_string_value(value), json_string_length(value), out, error);
    }
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL) return api_fail(error, 503, w->field, "no memory");
    const bool ok = compile(server, w, text, strlen(text), out, error);
    free(text);
    return ok;
}

/* Makes the constraint of a wish. */
static bool follow(const exchange *ex, const wish *w, const char *text, size_t n,
                   skv_constraint *out, api_error *error)
{
    if (ex->server->tokens == NULL) {
        return api_fail(error, 400, w->field, "%s: the model has no tokenizer", w->field);
    }
    shared_rules *shared = calloc(1, sizeof *shared);
    if (shared == NULL) return api_fail(error, 503, w->field, "no memory");
    const bool ok = text != NULL ? compile(ex->server, w, text, n, shared, error)
                                 : compile_value(ex->server, w, shared, error);
    if (!ok) {
        release_rules(shared);
        return false;
    }
    *out = (skv_constraint){.user = shared,
                            .begin = begin_rules,
                            .mask = mask_rules,
                            .accept = accept_rules,
                            .end = end_rules,
                            .release = release_rules};
    return true;
}

bool constrain_read(const exchange *ex, const json_t *body, skv_constraint *out, api_error *error)
{
    wish w;
    *out = (skv_constraint){0};
    if (!read_wish(body, &w, error)) return false;
    return w.field == NULL || (check_type(&w, error) && follow(ex, &w, NULL, 0, out, error));
}

bool constrain_calls(const exchange *ex, const char *text, size_t n, skv_constraint *out,
                     api_error *error)
{
    const wish w = {.field = "tools", .kind = SKV_GRAMMAR_PARTS};
    if (out->begin == NULL) return follow(ex, &w, text, n, out, error);
    return api_fail(error, 400, "tool_choice",
                    "tool_choice: calls are demanded, so the answer cannot follow another format");
}

void constrain_release(skv_constraint *constraint)
{
    if (constraint->begin != NULL && constraint->release != NULL) {
        constraint->release(constraint->user);
    }
    *constraint = (skv_constraint){0};
}

bool constrain_start(http_server *server, char *error)
{
    size_t n_ends;
    skv_error err;
    if (server->vocab == NULL) return true;
    const int32_t *ends = skv_engine_eos(server->engine, &n_ends);
    if (skv_token_table_create(server->vocab, ends, n_ends, &server->tokens, &err) == SKV_OK) {
        return true;
    }
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", err.text);
    return false;
}

void constrain_stop(http_server *server)
{
    skv_token_table_free(server->tokens);
    server->tokens = NULL;
}
