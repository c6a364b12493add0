/* Constraints: where grammars meet requests. The fields are those of OpenAI (response_format), of
 * vLLM (guided_*, structured_outputs) and of llama.cpp (grammar, json_schema). */
#include "request/request_input.h"

#include <stdlib.h>

#include "skv/grammar.h"
#include "state/server_impl.h"

/* A request's constraint: the field that sets it, and the grammar that its answer has to follow. */
typedef struct wish {
    const char *field; /* as errors name it; NULL: none */
    skv_grammar_kind kind;
    const json_t *value; /* a text as it is, all else as the JSON that it is; NULL: no text */
    bool loose;          /* parts of a schema that a grammar cannot express are left out */
    skv_text_piece lead; /* the text in front of the part that the grammar applies to; NULL: none */
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

/* ---- the request's fields ---- */

static bool add_wish(wish *out, const char *field, skv_grammar_kind kind, const json_t *value,
                     api_error *error)
{
    if (out->field) return api_refuse(error, field, "cannot be combined with %s", out->field);
    *out = (wish){.field = field, .kind = kind, .value = value};
    return true;
}

static bool read_format(const json_t *body, wish *out, api_error *error)
{
    static const char name[] = "response_format";
    const json_t *format = json_body_get(body, name);
    if (!format) return true;
    if (json_body_is(format, "text")) return true;
    const bool any_object = json_body_is(format, "json_object");
    if (any_object && !json_body_get(format, "schema")) {
        return add_wish(out, name, SKV_GRAMMAR_JSON_OBJECT, NULL, error);
    }
    if (!any_object && !json_body_is(format, "json_schema")) {
        return api_refuse(error, name, "type \"%.40s\" is not text, json_object or json_schema",
                          json_show_member(format, "type").text);
    }
    /* llama.cpp's json_object may bring a schema too, and its json_schema has it without a holder.
     */
    const json_t *holder = json_body_get(format, "json_schema");
    if (any_object || (!holder && json_body_get(format, "schema"))) holder = format;
    const json_t *schema = json_object_get(holder, "schema");
    if (!json_is_object(schema)) {
        return api_refuse(error, name, "%sschema: missing or no object",
                          any_object ? "" : "json_schema.");
    }
    if (!add_wish(out, name, SKV_GRAMMAR_JSON_SCHEMA, schema, error)) return false;
    out->loose = json_is_false(json_object_get(holder, "strict"));
    return true;
}

static bool read_structured(const json_t *body, wish *out, api_error *error)
{
    static const char name[] = "structured_outputs";
    const json_t *object = json_body_get(body, name);
    if (!object) return true;
    if (!json_is_object(object)) return api_refuse(error, name, "not an object");
    for (size_t i = 0; i < sizeof structured / sizeof structured[0]; i++) {
        const json_t *value = json_body_get(object, structured[i].name);
        if (!value || json_is_false(value)) continue;
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
        if (!value || json_text_is(value, "")) continue; /* "" is llama.cpp's default */
        if (!add_wish(out, fields[i].name, fields[i].kind, value, error)) return false;
    }
    return true;
}

/* ---- following it ---- */

/* A grammar with a matcher that has read nothing; every answer gets a copy. */
typedef struct shared_rules {
    skv_grammar *grammar;
    skv_matcher *matcher;
    skv_account *account; /* borrowed; has the grammar and the matchers */
    size_t grammar_bytes;
} shared_rules;

typedef struct answer_rules {
    const shared_rules *shared;
    skv_matcher *matcher;
    int32_t id; /* the token that comes next for the matcher; -1: it has them all */
} answer_rules;

static void end_rules(void *state)
{
    answer_rules *rules = state;
    skv_matcher_free(rules->matcher);
    free(rules);
}

static answer_rules *new_rules(const shared_rules *shared, const skv_matcher *matcher)
{
    answer_rules *rules = calloc(1, sizeof *rules);
    if (!rules) return NULL;
    *rules = (answer_rules){.shared = shared, .id = -1};
    if (skv_matcher_copy(matcher, &rules->matcher, NULL) == SKV_OK) return rules;
    end_rules(rules);
    return NULL;
}

static void *begin_rules(void *user)
{
    const shared_rules *shared = user;
    return new_rules(shared, shared->matcher);
}

static void *copy_rules(const void *state)
{
    const answer_rules *rules = state;
    answer_rules *copy = new_rules(rules->shared, rules->matcher);
    if (copy) copy->id = rules->id;
    return copy;
}

/* The token had a bit in the mask, so it fits: a failure here is a limit. */
static skv_status prepare_rules(void *state, skv_budget *budget, bool *ready, skv_error *err)
{
    answer_rules *rules = state;
    *ready = false;
    if (rules->id >= 0) {
        bool done;
        const skv_status status = skv_matcher_accept(rules->matcher, rules->id, budget, &done, err);
        if (status != SKV_OK || !done) return status;
        rules->id = -1;
    }
    return skv_matcher_prepare(rules->matcher, budget, ready, err);
}

static bool mask_rules(void *state, float *logits, size_t vocab)
{
    const answer_rules *rules = state;
    return skv_matcher_mask_logits(rules->matcher, logits, vocab);
}

static const uint32_t *rule_bits(const void *state, size_t vocab)
{
    const answer_rules *rules = state;
    return skv_matcher_mask_bits(rules->matcher, vocab);
}

static bool rules_are_complete(const void *state)
{
    const answer_rules *rules = state;
    return rules->id < 0 && skv_matcher_is_complete(rules->matcher);
}

static void accept_rules(void *state, int32_t id)
{
    answer_rules *rules = state;
    rules->id = id;
}

static size_t rules_bytes(const void *state)
{
    const answer_rules *rules = state;
    return rules->shared->grammar_bytes + skv_matcher_bytes(rules->matcher);
}

static void shrink_rules(void *state)
{
    const answer_rules *rules = state;
    skv_matcher_shrink(rules->matcher);
}

static void release_rules(void *user)
{
    shared_rules *shared = user;
    skv_matcher_free(shared->matcher);
    skv_grammar_free(shared->grammar);
    skv_account_give(shared->account, shared->grammar_bytes);
    free(shared);
}

/* The compiled grammar counts in the account as long as it is there. */
static bool keep_grammar(exchange *ex, shared_rules *out, api_error *error)
{
    const size_t n_bytes = skv_grammar_bytes(out->grammar);
    if (!exchange_take(ex, n_bytes, error)) return false;
    out->account = ex->share->account;
    out->grammar_bytes = n_bytes;
    return true;
}

typedef struct matcher_maker {
    const exchange *ex;
    shared_rules *rules;
    skv_status status;
    skv_error err;
} matcher_maker;

/* False: there is no memory for it now. */
static bool try_matcher(void *user, bool first)
{
    matcher_maker *m = user;
    (void)first;
    m->status = skv_matcher_create(m->rules->grammar, m->ex->model->tokens, m->rules->account,
                                   &m->rules->matcher, &m->err);
    return m->status != SKV_MEMORY;
}

static skv_status make_matcher(exchange *ex, shared_rules *out, skv_error *err)
{
    matcher_maker m = {.ex = ex, .rules = out};
    (void)(try_matcher(&m, false) || memory_wait(ex, (memory_turn){0}, try_matcher, &m));
    *err = m.err;
    return m.status;
}

static bool compile(exchange *ex, const wish *w, const char *text, size_t n, shared_rules *out,
                    api_error *error)
{
    skv_error err;
    if (!compile_enter(ex, error)) return false;
    const skv_grammar_source source = {w->kind, {text, n}, w->lead};
    skv_status status = skv_grammar_compile_behind(&source, ex->budget, &out->grammar, &err);
    compile_leave(ex);
    if (status == SKV_OK && !keep_grammar(ex, out, error)) return false;
    if (status == SKV_OK) status = make_matcher(ex, out, &err);
    if (status == SKV_OK) return true;
    if (status == SKV_CANCELLED || (status == SKV_MEMORY && ex->never_fits)) {
        return exchange_fail(ex, status, &err, w->field, error);
    }
    return api_fail(error, status == SKV_MEMORY ? 503 : 400, w->field, "%s: %s", w->field,
                    err.text);
}

/* Texts stand for themselves; JSON may be sent as such, or as a text. */
static bool check_type(const wish *w, api_error *error)
{
    const bool is_text = w->kind == SKV_GRAMMAR_REGEX || w->kind == SKV_GRAMMAR_GBNF;
    if (!is_text || json_is_string(w->value)) return true;
    return api_refuse(error, w->field, "expected a string");
}

static bool compile_json(exchange *ex, const wish *w, const json_t *value, shared_rules *out,
                         api_error *error)
{
    size_t n = 0;
    char *text = json_text_write(ex, value, w->field, &n, error);
    if (!text) return false;
    const bool ok = compile(ex, w, text, n, out, error);
    json_text_free(ex, text, n);
    return ok;
}

/* The schema as a part of a grammar, which may be loose. */
static bool compile_loose(exchange *ex, const wish *w, shared_rules *out, api_error *error)
{
    wish parts = *w;
    json_t *part = json_pack("{s:O,s:b}", "schema", w->value, "loose", true);
    parts.kind = SKV_GRAMMAR_PARTS;
    const bool ok = part ? compile_json(ex, &parts, part, out, error)
                         : api_fail(error, 503, w->field, "no memory");
    json_decref(part);
    return ok;
}

static bool compile_value(exchange *ex, const wish *w, shared_rules *out, api_error *error)
{
    const json_t *value = w->kind == SKV_GRAMMAR_JSON_OBJECT ? NULL : w->value;
    if (!value) return compile(ex, w, "", 0, out, error);
    if (w->loose) return compile_loose(ex, w, out, error);
    if (!json_is_string(value)) return compile_json(ex, w, value, out, error);
    return compile(ex, w, json_string_value(value), json_string_length(value), out, error);
}

/* Makes the constraint of a wish. */
static bool follow(exchange *ex, const wish *w, const char *text, size_t n, skv_constraint *out,
                   api_error *error)
{
    if (!ex->model->tokens) return api_refuse(error, w->field, "the model has no tokenizer");
    shared_rules *shared = calloc(1, sizeof *shared);
    if (!shared) return api_fail(error, 503, w->field, "no memory");
    const bool ok =
        text ? compile(ex, w, text, n, shared, error) : compile_value(ex, w, shared, error);
    if (!ok) {
        release_rules(shared);
        return false;
    }
    *out = (skv_constraint){.name = w->field,
                            .user = shared,
                            .begin = begin_rules,
                            .copy = copy_rules,
                            .prepare = prepare_rules,
                            .mask = mask_rules,
                            .bits = rule_bits,
                            .complete = rules_are_complete,
                            .accept = accept_rules,
                            .bytes = rules_bytes,
                            .shrink = shrink_rules,
                            .end = end_rules,
                            .release = release_rules};
    return true;
}

bool constrain_read(exchange *ex, const json_t *body, skv_text_piece lead, skv_constraint *out,
                    api_error *error)
{
    wish w;
    *out = (skv_constraint){0};
    if (!read_wish(body, &w, error)) return false;
    w.lead = lead;
    return !w.field || (check_type(&w, error) && follow(ex, &w, NULL, 0, out, error));
}

bool constrain_calls(exchange *ex, const char *text, size_t n, skv_constraint *out,
                     api_error *error)
{
    const wish w = {.field = "tools", .kind = SKV_GRAMMAR_PARTS};
    if (!out->begin) return follow(ex, &w, text, n, out, error);
    return api_fail(error, 400, "tool_choice",
                    "tool_choice requires a call, so the answer cannot follow another format");
}

bool constrain_start(server_model *model, char *error)
{
    size_t n_ends;
    skv_error err;
    if (!model->vocab) return true;
    const int32_t *ends = skv_engine_eos(model->engine, &n_ends);
    if (skv_token_table_create(model->vocab, ends, n_ends, &model->tokens, &err) == SKV_OK) {
        return true;
    }
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", err.text);
    return false;
}

void constrain_stop(server_model *model)
{
    skv_token_table_free(model->tokens);
    model->tokens = NULL;
}
