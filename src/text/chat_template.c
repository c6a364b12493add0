/* Chat templates: see chat_template.h. The interpreter is in jinja_*.c. */
#include "text/chat_template.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_doc.h"
#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_json.h"
#include "text/jinja/jinja_parse.h"

enum {
    STEPS_DEFAULT = 50000000,
    MEMORY_DEFAULT = 256 << 20,
    OUTPUT_DEFAULT = 64 << 20,
    DEPTH_DEFAULT = 2000
};

struct skv_template {
    skv_jinja tree;
};

skv_status skv_template_parse(const char *source, size_t n, const char *name, skv_template **out,
                              skv_error *err)
{
    skv_template *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "%s: no memory", name);
    skv_status status = skv_jinja_parse(source, n, name, &t->tree, err);
    if (status != SKV_OK) {
        skv_template_free(t);
        return status;
    }
    *out = t;
    return SKV_OK;
}

void skv_template_free(skv_template *t)
{
    if (!t) return;
    skv_jinja_release(&t->tree);
    skv_free(t);
}

static size_t or_default(size_t value, size_t otherwise)
{
    return value ? value : otherwise;
}

static void begin(skv_jrun *r, const skv_template *t, const skv_template_limits *limits,
                  skv_error *err)
{
    static const skv_template_limits none = {0};
    const skv_template_limits *l = limits ? limits : &none;
    size_t depth = or_default(l->depth, DEPTH_DEFAULT);
    *r = (skv_jrun){.t = &t->tree, .err = err, .now = l->now};
    r->steps_max = or_default(l->steps, STEPS_DEFAULT);
    r->depth_max = depth < DEPTH_DEFAULT ? (unsigned)depth : DEPTH_DEFAULT;
    r->text_max = or_default(l->output_bytes, OUTPUT_DEFAULT);
    skv_jarena_init(&r->memory, or_default(l->memory_bytes, MEMORY_DEFAULT));
}

static void run(skv_jrun *r, const json_t *vars, skv_buf *text)
{
    skv_jv dict = skv_j_from_json(r, vars);
    if (!skv_j_ok(r)) return;
    r->vars = dict.as.dict;
    r->out = text;
    r->scope = skv_j_open_scope(r, NULL, r->t->scope);
    if (r->scope) skv_j_exec(r, r->t->body, r->t->n_body);
}

static skv_status render(const skv_template *t, const json_t *vars,
                         const skv_template_limits *limits, skv_buf *out, skv_error *err)
{
    skv_jrun r;
    skv_buf text;
    begin(&r, t, limits, err);
    skv_j_buf_init(&r, &text);
    run(&r, vars, &text);
    skv_status status = r.status;
    if (status == SKV_OK && !skv_buf_append(out, text.data, text.size))
        status =
            skv_fail(err, SKV_FULL, "%s: no room for %zu bytes of text", t->tree.name, text.size);
    skv_buf_release(&text);
    skv_jarena_release(&r.memory);
    return status;
}

static skv_status load(const skv_template *t, const char *what, const char *text, size_t n,
                       json_t **out, skv_error *err)
{
    json_error_t why;
    SKV_REQUIRE(skv_json_has_room(text, n), err, SKV_MEMORY, "%s: %s: no memory", t->tree.name,
                what);
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    SKV_REQUIRE(*out, err, SKV_FORMAT, "%s: %s: %s at byte %d", t->tree.name, what, why.text,
                why.position);
    return SKV_OK;
}

skv_status skv_template_render(const skv_template *t, const char *vars_json, size_t n,
                               const skv_template_limits *limits, skv_buf *out, skv_error *err)
{
    json_t *vars;
    SKV_TRY(load(t, "variables", vars_json, n, &vars, err));
    skv_status status = SKV_OK;
    if (!json_is_object(vars))
        status = skv_fail(err, SKV_FORMAT, "%s: variables are not a JSON object", t->tree.name);
    else
        status = render(t, vars, limits, out, err);
    json_decref(vars);
    return status;
}

/* Adds a variable given as JSON text of one type; JSON null without a text. */
static skv_status add_json(const skv_template *t, json_t *vars, const char *name, const char *text,
                           skv_error *err)
{
    json_t *value = NULL;
    if (text) {
        SKV_TRY(load(t, name, text, strlen(text), &value, err));
        if (!json_is_array(value)) {
            json_decref(value);
            return skv_fail(err, SKV_FORMAT, "%s: %s is not an array", t->tree.name, name);
        }
    }
    int failed = json_object_set_new(vars, name, value ? value : json_null());
    return failed ? skv_fail(err, SKV_MEMORY, "%s: no memory for %s", t->tree.name, name) : SKV_OK;
}

static skv_status add_extra(const skv_template *t, json_t *vars, const char *text, skv_error *err)
{
    json_t *extra;
    if (!text) return SKV_OK;
    SKV_TRY(load(t, "extra variables", text, strlen(text), &extra, err));
    skv_status status = SKV_OK;
    if (!json_is_object(extra))
        status = skv_fail(err, SKV_FORMAT, "%s: extra variables are not an object", t->tree.name);
    else if (json_object_update(vars, extra))
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for variables", t->tree.name);
    json_decref(extra);
    return status;
}

static skv_status add_token(const skv_template *t, json_t *vars, const char *name,
                            const char *token, skv_error *err)
{
    if (!token) return SKV_OK;
    SKV_REQUIRE(!json_object_set_new(vars, name, json_string(token)), err, SKV_FORMAT,
                "%s: %s is not valid UTF-8", t->tree.name, name);
    return SKV_OK;
}

/* Reasoning goes by several names; templates read one of these two. */
static skv_status alias_reasoning(const skv_template *t, json_t *messages, skv_error *err)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        SKV_REQUIRE(json_is_object(message), err, SKV_FORMAT, "%s: messages[%zu] is not an object",
                    t->tree.name, i);
        json_t *reasoning = NULL;
        for (size_t k = 0; k < 3 && (!reasoning || json_is_null(reasoning)); k++)
            reasoning = json_object_get(message, names[k]);
        if (!reasoning || json_is_null(reasoning)) continue;
        json_incref(reasoning);
        int failed = json_object_set(message, "reasoning_content", reasoning);
        if (!json_object_get(message, "thinking"))
            failed |= json_object_set(message, "thinking", reasoning);
        json_decref(reasoning);
        SKV_REQUIRE(!failed, err, SKV_MEMORY, "%s: no memory for messages", t->tree.name);
    }
    return SKV_OK;
}

static skv_status gather(const skv_template *t, const skv_chat_input *in, json_t *vars,
                         skv_error *err)
{
    SKV_REQUIRE(in->messages_json, err, SKV_ARGUMENT, "%s: no messages", t->tree.name);
    SKV_TRY(add_token(t, vars, "bos_token", in->bos_token, err));
    SKV_TRY(add_token(t, vars, "eos_token", in->eos_token, err));
    SKV_TRY(add_extra(t, vars, in->extra_json, err));
    SKV_TRY(add_json(t, vars, "messages", in->messages_json, err));
    SKV_TRY(add_json(t, vars, "tools", in->tools_json, err));
    SKV_TRY(add_json(t, vars, "documents", in->documents_json, err));
    SKV_TRY(alias_reasoning(t, json_object_get(vars, "messages"), err));
    int failed =
        json_object_set_new(vars, "add_generation_prompt", json_boolean(in->add_generation_prompt));
    SKV_REQUIRE(!failed, err, SKV_MEMORY, "%s: no memory for variables", t->tree.name);
    return SKV_OK;
}

skv_status skv_chat_render(const skv_template *t, const skv_chat_input *input,
                           const skv_template_limits *limits, skv_buf *out, skv_error *err)
{
    json_t *vars = json_object();
    SKV_REQUIRE(vars, err, SKV_MEMORY, "%s: no memory for variables", t->tree.name);
    skv_status status = gather(t, input, vars, err);
    if (status == SKV_OK) status = render(t, vars, limits, out, err);
    json_decref(vars);
    return status;
}
