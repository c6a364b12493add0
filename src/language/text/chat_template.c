/* Chat templates: see chat_template.h. The interpreter is in jinja_*.c. */
#include "text/chat_template.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_doc.h"
#include "text/jinja/jinja_ast.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

struct skv_template {
    skv_jinja tree;
};

skv_status skv_template_parse(const char *source, size_t n, const char *name, skv_budget *budget,
                              skv_template **out, skv_error *err)
{
    skv_budget own;
    skv_template *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "%s: no memory", name);
    if (!budget) skv_budget_init(&own, NULL);
    skv_status status = skv_jinja_parse(source, n, name, budget ? budget : &own, &t->tree, err);
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

/* ---- one rendering ---- */

/* The variables of a rendering, and the accounting of their memory. */
typedef struct rendering {
    const skv_template *t;
    skv_template_options options;
    skv_budget own;        /* without a caller's */
    json_t *vars;          /* owned */
    size_t n_bytes;        /* of JSON that is counted */
    bool own_bos, own_eos; /* they are not the caller's */
    skv_error *err;
} rendering;

static void begin(rendering *x, const skv_template *t, const skv_template_options *options,
                  skv_error *err)
{
    *x = (rendering){.t = t, .err = err};
    if (options) x->options = *options;
    if (x->options.budget) return;
    skv_budget_init(&x->own, NULL);
    x->options.budget = &x->own;
}

static void end(rendering *x)
{
    json_decref(x->vars);
    skv_budget_give(x->options.budget, x->n_bytes);
}

static skv_status load(rendering *x, const char *what, skv_text_piece text, json_t **out)
{
    json_error_t why;
    char name[128];
    skv_json_bytes bytes;
    (void)snprintf(name, sizeof name, "%.60s: %s", x->t->tree.name, what);
    if (!skv_budget_json(x->options.budget, text.text, text.n, &bytes))
        return skv_budget_check(x->options.budget, name, x->err);
    x->n_bytes += bytes.values;
    const bool has_room = skv_json_has_room(text.text, text.n);
    if (has_room) {
        *out = json_loadb(text.text, text.n,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    }
    skv_budget_give(x->options.budget, bytes.reader);
    SKV_REQUIRE(has_room, x->err, SKV_MEMORY, "%s: no memory", name);
    SKV_REQUIRE(*out, x->err, SKV_FORMAT, "%s: %s at byte %d", name, why.text, why.position);
    return SKV_OK;
}

/* A special token, unless the variables have it. Its bytes need not be UTF-8. *own: it was added.
 */
static skv_status add_token(rendering *x, const char *name, skv_text_piece token, bool *own)
{
    skv_buf text;
    json_t *value = NULL;
    if (!token.text || json_object_get(x->vars, name)) return SKV_OK;
    skv_buf_init(&text, 1 << 20);
    skv_buf_byte(&text, '"');
    skv_buf_json_text(&text, token.text, token.n);
    skv_buf_byte(&text, '"');
    skv_status status = text.failed ? skv_fail(x->err, SKV_MEMORY, "%s: no memory", name)
                                    : load(x, name, (skv_text_piece){text.data, text.size}, &value);
    skv_buf_release(&text);
    if (status != SKV_OK) return status;
    SKV_REQUIRE(json_object_set_new(x->vars, name, value) == 0, x->err, SKV_MEMORY,
                "%s: no memory for %s", x->t->tree.name, name);
    *own = true;
    return SKV_OK;
}

/* A text of the variables that is no data. */
static void clear_marks(skv_jrun *r, skv_jdict *dict, const char *name)
{
    const skv_jstr key = {.data = name, .size = strlen(name)};
    const skv_jv *found = skv_jdict_get(r->budget, dict, &key);
    if (!found || found->kind != SKV_J_STRING || !found->as.s->marks) return;
    skv_jstr *own = skv_j_take(r, 1, sizeof *own);
    if (!own) return;
    *own = *found->as.s;
    own->marks = NULL;
    skv_jv value = {.kind = SKV_J_STRING, .as.s = own};
    (void)skv_j_put(r, dict, skv_j_text_value(r, name), value);
}

/* Roles that templates write into their marks ("<|" + role + "|>"). */
static bool is_role(const skv_jstr *text)
{
    static const char *const known[] = {"system",    "developer", "user",        "assistant",
                                        "tool",      "function",  "ipython",     "observation",
                                        "tool_call", "model",     "environment", "context"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (skv_jstr_is(text, known[i])) return true;
    return false;
}

static void clear_roles(skv_jrun *r, const skv_jdict *vars)
{
    static const skv_jstr name = {.data = "messages", .size = 8},
                          role = {.data = "role", .size = 4};
    const skv_jv *messages = skv_jdict_get(r->budget, vars, &name);
    if (!messages || messages->kind != SKV_J_LIST) return;
    for (size_t i = 0; i < messages->as.list->n && skv_j_spend(r, 1); i++) {
        skv_jv message = messages->as.list->items[i];
        if (message.kind != SKV_J_DICT) continue;
        const skv_jv *value = skv_jdict_get(r->budget, message.as.dict, &role);
        if (value && value->kind == SKV_J_STRING && is_role(value->as.s))
            clear_marks(r, message.as.dict, "role");
    }
}

static void run(skv_jrun *r, const rendering *x, skv_jout *text)
{
    skv_jv dict = skv_j_from_json(r, x->vars);
    if (!skv_j_ok(r)) return;
    if (x->own_bos) clear_marks(r, dict.as.dict, "bos_token");
    if (x->own_eos) clear_marks(r, dict.as.dict, "eos_token");
    clear_roles(r, dict.as.dict);
    if (!skv_j_ok(r)) return;
    r->vars = dict.as.dict;
    r->out = text;
    r->scope = skv_j_open_scope(r, NULL, r->t->scope);
    if (r->scope) skv_j_exec(r, r->t->body, r->t->n_body);
}

/* Writes the marks of a text that follows `before` bytes. */
static bool write_marks(const skv_jout *text, size_t before, skv_buf *out)
{
    const size_t size = text->text.size, n = skv_jmarker_count(&text->marks, size);
    const size_t *at = (const size_t *)(const void *)text->marks.at.data;
    bool ok = true;
    for (size_t i = 0; i < n + n % 2; i++) {
        const size_t place = before + (i < n ? at[i] : size);
        ok = skv_buf_append(out, &place, sizeof place);
    }
    return ok;
}

static skv_status render(rendering *x, skv_buf *out)
{
    skv_jrun r = {.t = &x->t->tree,
                  .names = &skv_jbuiltin_names,
                  .err = x->err,
                  .now = x->options.now,
                  .budget = x->options.budget,
                  .own_mark = x->options.own_mark};
    skv_jout text;
    skv_buf *marks = x->options.marks;
    SKV_TRY(add_token(x, "bos_token", x->options.bos_token, &x->own_bos));
    SKV_TRY(add_token(x, "eos_token", x->options.eos_token, &x->own_eos));
    skv_jarena_init(&r.memory, r.budget);
    skv_j_out_init(&r, &text);
    run(&r, x, &text);
    skv_status status = r.status;
    const size_t n = text.text.size;
    if (status == SKV_OK) status = skv_budget_check(r.budget, r.t->name, x->err);
    if (status == SKV_OK && marks && !write_marks(&text, out->size, marks))
        status =
            skv_fail(x->err, SKV_RANGE, "%s: no room for the marks of %zu bytes", r.t->name, n);
    if (status == SKV_OK && !skv_buf_append(out, text.text.data, n))
        status = skv_fail(x->err, SKV_RANGE, "%s: no room for %zu bytes of text", r.t->name, n);
    skv_jout_release(&text);
    skv_jarena_release(&r.memory);
    return status;
}

skv_status skv_template_render(const skv_template *t, const char *vars_json, size_t n,
                               const skv_template_options *options, skv_buf *out, skv_error *err)
{
    rendering x;
    begin(&x, t, options, err);
    skv_status status = load(&x, "variables", (skv_text_piece){vars_json, n}, &x.vars);
    if (status == SKV_OK && !json_is_object(x.vars))
        status = skv_fail(err, SKV_FORMAT, "%s: variables are not a JSON object", t->tree.name);
    if (status == SKV_OK) status = render(&x, out);
    end(&x);
    return status;
}

/* ---- conversations ---- */

/* Adds a variable given as JSON text of one type; JSON null without a text. */
static skv_status add_json(rendering *x, const char *name, const char *text)
{
    json_t *value = NULL;
    if (text) {
        SKV_TRY(load(x, name, (skv_text_piece){text, strlen(text)}, &value));
        if (!json_is_array(value)) {
            json_decref(value);
            return skv_fail(x->err, SKV_FORMAT, "%s: %s is not an array", x->t->tree.name, name);
        }
    }
    int failed = json_object_set_new(x->vars, name, value ? value : json_null());
    return failed ? skv_fail(x->err, SKV_MEMORY, "%s: no memory for %s", x->t->tree.name, name)
                  : SKV_OK;
}

static skv_status add_extra(rendering *x, const char *text)
{
    json_t *extra = NULL;
    if (!text) return SKV_OK;
    SKV_TRY(load(x, "extra variables", (skv_text_piece){text, strlen(text)}, &extra));
    const char *name = x->t->tree.name;
    skv_status status = SKV_OK;
    if (!json_is_object(extra))
        status = skv_fail(x->err, SKV_FORMAT, "%s: extra variables are not an object", name);
    else if (json_object_update(x->vars, extra))
        status = skv_fail(x->err, SKV_MEMORY, "%s: no memory for variables", name);
    json_decref(extra);
    return status;
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

static skv_status gather(rendering *x, const skv_chat_input *in)
{
    const char *name = x->t->tree.name;
    SKV_REQUIRE(in->messages_json, x->err, SKV_ARGUMENT, "%s: no messages", name);
    SKV_TRY(add_extra(x, in->extra_json));
    SKV_TRY(add_json(x, "messages", in->messages_json));
    SKV_TRY(add_json(x, "tools", in->tools_json));
    SKV_TRY(add_json(x, "documents", in->documents_json));
    SKV_TRY(alias_reasoning(x->t, json_object_get(x->vars, "messages"), x->err));
    int failed = json_object_set_new(x->vars, "add_generation_prompt",
                                     json_boolean(in->add_generation_prompt));
    SKV_REQUIRE(!failed, x->err, SKV_MEMORY, "%s: no memory for variables", name);
    return SKV_OK;
}

skv_status skv_chat_render(const skv_template *t, const skv_chat_input *input,
                           const skv_template_options *options, skv_buf *out, skv_error *err)
{
    rendering x;
    begin(&x, t, options, err);
    x.vars = json_object();
    SKV_REQUIRE(x.vars, err, SKV_MEMORY, "%s: no memory for variables", t->tree.name);
    if (input->bos_token)
        x.options.bos_token = (skv_text_piece){input->bos_token, strlen(input->bos_token)};
    if (input->eos_token)
        x.options.eos_token = (skv_text_piece){input->eos_token, strlen(input->eos_token)};
    skv_status status = gather(&x, input);
    if (status == SKV_OK) status = render(&x, out);
    end(&x);
    return status;
}
