/* The grammar of an answer that is calls: see skv_reply_rules. */
#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "skv/grammar.h"
#include "skv/reply.h"
#include "text/reply_form.h"

/* Of a parameter whose values are listed: nested unions and references, and values. */
enum { LISTED_DEPTH_MAX = 8, LISTED_MAX = SKV_GRAMMAR_TEXT_MAX / 4 /* a value's bytes */ };

/* ---- texts and marks ---- */

static void add_text(skv_buf *out, const char *text)
{
    skv_buf_byte(out, '"');
    skv_buf_json_text(out, text, strlen(text));
    skv_buf_byte(out, '"');
}

/* A part of a text: NULL is none. */
static void put(skv_buf *out, const char *text)
{
    if (text) skv_buf_json_text(out, text, strlen(text));
}

/*
 * Marks stand between two bytes that JSON has nowhere, until name_tokens replaces these:
 *
 *     MARK_BEGIN ... MARK_END     inside a text that is a part of a list
 *     UNTIL_BEGIN ... MARK_END    in place of a part: any text up to the mark
 */
enum { MARK_BEGIN = 1, UNTIL_BEGIN, MARK_END };

static void put_mark(skv_buf *out, const char *mark)
{
    if (!mark || !mark[0]) return;
    skv_buf_byte(out, MARK_BEGIN);
    put(out, mark);
    skv_buf_byte(out, MARK_END);
}

/* A grammar looks for a mark whose first byte does not come again; the rest has to follow. */
static size_t first_part(const char *mark)
{
    const char *rest = strchr(mark + 1, mark[0]);
    return rest ? (size_t)(rest - mark) : strlen(mark);
}

/* Parts of a list. */
static void add_until(skv_buf *out, const char *mark)
{
    const size_t n = first_part(mark);
    skv_buf_byte(out, UNTIL_BEGIN);
    skv_buf_json_text(out, mark, n);
    skv_buf_byte(out, MARK_END);
    if (!mark[n]) return;
    skv_buf_text(out, ",\"");
    put_mark(out, mark + n);
    skv_buf_byte(out, '"');
}

/* A function as its grammar needs it. */
typedef struct function {
    json_t *schema; /* borrowed, of its parameters; NULL: any object */
    bool loose;     /* parts of it that a grammar cannot follow are left out */
    skv_budget *budget;
    json_t *required; /* owned, the names of the parameters that must be there, as keys */
    size_t n_bytes;   /* of `required`, counted in the budget */
} function;

/* Units of work: to find a name in an object, and for each value of a list. */
enum { FIND_WORK = 16, VALUE_WORK = 2 };
enum { REQUIRED_BYTES = 96 /* of a key of an object, beside its text */ };

static void end_schema(skv_buf *out, bool loose)
{
    skv_buf_text(out, loose ? ",\"loose\":true}" : "}");
}

static void add_schema(skv_buf *out, const json_t *schema, bool loose)
{
    skv_buf_text(out, "{\"schema\":");
    if (!schema || (json_is_object(schema) && json_object_size(schema) == 0)) {
        skv_buf_text(out, "{\"type\":\"object\"}");
    } else if (json_dump_callback(schema, skv_buf_dump, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        out->failed = true;
    }
    end_schema(out, loose);
}

/* A property by itself: its references lead into the whole schema. */
static void add_property(skv_buf *out, const function *f, json_t *property)
{
    static const char *const kept[] = {"$defs", "definitions"};
    json_t *whole = json_is_object(property) ? json_copy(property) : json_true();
    for (size_t i = 0; i < 2; i++) {
        json_t *definitions = json_object_get(f->schema, kept[i]);
        if (definitions && json_is_object(whole))
            (void)json_object_set(whole, kept[i], definitions);
    }
    skv_buf_text(out, "{\"schema\":");
    if (!whole ||
        json_dump_callback(whole, skv_buf_dump, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        out->failed = true;
    }
    end_schema(out, f->loose);
    json_decref(whole);
}

static bool is_ascii(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text >= 0x80) return false;
    }
    return true;
}

/* Whether a parameter may be a text, which stands as it is. */
static bool is_bare(const skv_reply_form *form, const function *f, const json_t *property)
{
    return is_ascii(form->value_end) &&
           (skv_reply_schema_types(f->schema, property, f->budget) & SKV_TYPE_STRING);
}

/* Adds the values that a schema lists one by one; false: it allows others too. */
static bool list_values(const function *f, const json_t *schema, size_t depth, json_t *out)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const json_t *values = json_object_get(schema, "enum"), *one;
    json_t *only = json_object_get(schema, "const");
    size_t i;
    if (depth == 0 || json_array_size(out) > LISTED_MAX) return false;
    if (!skv_budget_work(f->budget, FIND_WORK + VALUE_WORK * json_array_size(values))) return false;
    if (only) return json_array_append(out, only) == 0;
    if (json_array_size(values) > 0) {
        return json_array_extend(out, (json_t *)(uintptr_t)values) == 0;
    }
    const json_t *target = skv_schema_target(f->schema, schema, f->budget);
    if (target) return list_values(f, target, depth - 1, out);
    for (size_t k = 0; k < 2; k++) {
        const json_t *all = json_object_get(schema, unions[k]);
        if (!json_is_array(all)) continue;
        json_array_foreach(all, i, one)
        {
            if (!list_values(f, one, depth - 1, out)) return false;
        }
        return json_array_size(all) > 0;
    }
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, "null") == 0 && json_array_append_new(out, json_null()) == 0;
}

/* One of these values, texts without quotation marks. */
static void add_choice(skv_buf *out, const json_t *values)
{
    const json_t *one;
    size_t i;
    skv_buf_text(out, "{\"any\":[");
    json_array_foreach(values, i, one)
    {
        skv_buf text;
        skv_buf_init(&text, SKV_GRAMMAR_TEXT_MAX);
        if (json_is_string(one)) {
            skv_buf_append(&text, json_string_value(one), json_string_length(one));
        } else if (json_dump_callback(one, skv_buf_dump, &text, JSON_COMPACT | JSON_ENCODE_ANY) !=
                   0) {
            text.failed = true;
        }
        skv_buf_text(out, i > 0 ? ",\"" : "\"");
        skv_buf_json_text(out, text.size > 0 ? text.data : "", text.size);
        skv_buf_byte(out, '"');
        out->failed = out->failed || text.failed;
        skv_buf_release(&text);
    }
    skv_buf_text(out, "]}");
}

/* The end of a text in a list, which is a parameter. */
static void end_parameter(skv_buf *out, const skv_reply_form *form)
{
    skv_buf_text(out, form->tight ? "\"]" : "\\n\"]");
}

/* A text: one of those that the schema lists, or any. */
static void add_bare_value(skv_buf *out, const skv_reply_form *form, const function *f,
                           const json_t *property)
{
    json_t *values = json_array();
    const bool all = list_values(f, property, LISTED_DEPTH_MAX, values);
    const bool many = json_array_size(values) > LISTED_MAX;
    out->failed = out->failed || (many && !f->loose); /* as if they had been written */
    if (all && !many && json_array_size(values) > 0) {
        const bool line = form->behind_key[strlen(form->behind_key) - 1] == '\n';
        add_choice(out, values);
        skv_buf_text(out, line ? ",\"\\n" : ",\"");
        put_mark(out, form->value_end);
    } else {
        add_until(out, form->value_end);
        skv_buf_text(out, ",\"");
    }
    end_parameter(out, form);
    json_decref(values);
}

/* The type that stands in front of a value. Texts stand as they are if a grammar can look for
 * their closing mark; else they are JSON too. */
static void put_type(skv_buf *out, const skv_reply_form *form, const function *f,
                     const json_t *property)
{
    static const struct {
        unsigned types;
        const char *word;
    } words[] = {{SKV_TYPE_STRING, "string"},
                 {SKV_TYPE_INTEGER | SKV_TYPE_NUMBER, "number"},
                 {SKV_TYPE_BOOLEAN, "boolean"},
                 {SKV_TYPE_ARRAY, "array"},
                 {SKV_TYPE_OBJECT, "object"}};
    const char *word = "null";
    if (!is_ascii(form->value_end)) {
        put(out, "false\">");
        return;
    }
    const unsigned types = skv_reply_schema_types(f->schema, property, f->budget);
    for (size_t i = sizeof words / sizeof words[0]; i > 0; i--) {
        if (types & words[i - 1].types) word = words[i - 1].word;
    }
    put(out, word);
    put(out, "\"");
    put_mark(out, form->value);
}

/* KEY behind_key VALUE value_end. */
static void add_parameter(skv_buf *out, const skv_reply_form *form, const function *f,
                          const char *key, json_t *property)
{
    const size_t n_behind = strlen(form->behind_key);
    skv_buf_text(out, "[\"");
    put_mark(out, form->key);
    put(out, key);
    put_mark(out, form->behind_key);
    if (form->typed) put_type(out, form, f, property);
    skv_buf_text(out, "\",");
    if (is_bare(form, f, property)) {
        add_bare_value(out, form, f, property);
        return;
    }
    add_property(out, f, property);
    skv_buf_text(out, ",\"");
    put(out, n_behind > 0 && form->behind_key[n_behind - 1] == '\n' ? "\n" : NULL);
    put_mark(out, form->value_end);
    end_parameter(out, form);
}

/* Counts work and memory for each name; text that they do not fit beside fails. */
static void read_required(skv_buf *out, function *f)
{
    const json_t *one;
    size_t i;
    f->required = json_object();
    out->failed = out->failed || !f->required;
    json_array_foreach(json_object_get(f->schema, "required"), i, one)
    {
        const size_t n = json_string_length(one);
        if (out->failed) return;
        if (!json_is_string(one)) continue;
        out->failed = !skv_budget_work(f->budget, FIND_WORK + n / 4) ||
                      !skv_budget_take(f->budget, REQUIRED_BYTES + n);
        if (out->failed) return;
        f->n_bytes += REQUIRED_BYTES + n;
        out->failed =
            json_object_setn_new(f->required, json_string_value(one), n, json_true()) != 0;
    }
}

static void release_required(function *f)
{
    json_decref(f->required);
    skv_budget_give(f->budget, f->n_bytes);
}

/* key=VALUE, key:VALUE; the values are JSON, which both spellings can be read as. */
static void add_argument(skv_buf *out, const skv_reply_form *form, const function *f,
                         const char *key, json_t *property, const char *comma, bool behind)
{
    skv_buf_text(out, "[\"");
    if (!behind) put(out, comma);
    put(out, key);
    skv_buf_text(out, form->spelling == SKV_SPELL_GEMMA ? ":\"," : "=\",");
    add_property(out, f, property);
    skv_buf_text(out, ",\"");
    if (behind) put(out, comma);
    skv_buf_text(out, "\"]");
}

/* All arguments of a function, those that must be there first. */
static void add_arguments(skv_buf *out, const skv_reply_form *form, function *f)
{
    const char *key, *comma = form->spelling == SKV_SPELL_GEMMA ? "," : ", ";
    const bool xml = form->spelling == SKV_SPELL_XML;
    json_t *property, *all = json_object_get(f->schema, "properties");
    size_t n_required = 0;
    read_required(out, f);
    skv_buf_byte(out, '[');
    for (int optional = 0; optional < 2; optional++) {
        json_object_foreach(all, key, property)
        {
            const bool fits = skv_budget_work(f->budget, FIND_WORK + strlen(key) / 4);
            if (!fits || out->failed) break;
            const bool needed = json_object_get(f->required, key);
            if (needed == (optional == 1)) continue;
            if (optional) skv_buf_text(out, "{\"repeat\":");
            if (xml) {
                add_parameter(out, form, f, key, property);
            } else {
                const bool behind = optional && n_required == 0;
                const bool first = !optional && n_required == 0;
                add_argument(out, form, f, key, property, first ? "" : comma, behind);
            }
            skv_buf_text(out, optional ? ",\"min\":0,\"max\":1}," : ",");
            n_required += optional ? 0 : 1;
        }
    }
    skv_buf_text(out, "\"\"]");
    release_required(f);
}

/* The id that stands between a name and its arguments: an index, or nine digits. */
static void add_id(skv_buf *out, const skv_reply_form *form)
{
    put_mark(out, form->id);
    skv_buf_printf(out,
                   "\",{\"repeat\":{\"any\":[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\","
                   "\"8\",\"9\"]},\"min\":%d,\"max\":%d},\"",
                   form->own_id == SKV_ID_BEHIND ? 9 : 1, form->own_id == SKV_ID_BEHIND ? 9 : 1);
}

/* What stands in front of the arguments, the beginning of a list of parts. */
static void add_head(skv_buf *out, const skv_reply_form *form, const char *name)
{
    const bool harmony = skv_reply_form_is_harmony(form);
    skv_buf_text(out, "[\"");
    if (form->open) put_mark(out, form->begin);
    switch (form->spelling) {
    case SKV_SPELL_OBJECT:
        put(out, "{\"");
        put(out, form->name_key);
        put(out, "\": \"");
        put(out, name);
        put(out, "\", \"");
        put(out, form->args_key);
        put(out, "\": ");
        break;
    case SKV_SPELL_KEYED:
        put(out, "{\"");
        put(out, name);
        put(out, "\": ");
        break;
    case SKV_SPELL_NAMED:
    case SKV_SPELL_MESSAGE:
    case SKV_SPELL_XML:
        if (harmony) put_mark(out, SKV_HARMONY_CHANNEL);
        put_mark(out, form->prefix);
        put(out, name);
        if (form->id) add_id(out, form);
        if (harmony) put_mark(out, SKV_HARMONY_FORMAT);
        put_mark(out, form->separator);
        if (form->spelling == SKV_SPELL_XML && !form->tight) put(out, "\n");
        break;
    case SKV_SPELL_PYTHON:
    case SKV_SPELL_GEMMA:
        put_mark(out, form->prefix);
        put(out, name);
        put(out, form->spelling == SKV_SPELL_GEMMA ? "{" : "(");
        break;
    }
    skv_buf_text(out, "\",");
}

/* One call with its own marks: ["{\"name\": \"f\", \"arguments\": ", {"schema": ...}, "}"] */
static skv_status add_call(skv_buf *out, const skv_reply_form *form, const json_t *tool,
                           skv_error *err)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    function f = {.schema = json_object_get(tool, "parameters"),
                  .loose = json_is_true(json_object_get(tool, "loose")),
                  .budget = out->budget};
    SKV_REQUIRE(name, err, SKV_ARGUMENT, "tools: one has no name");
    add_head(out, form, name);
    switch (form->spelling) {
    case SKV_SPELL_OBJECT:
    case SKV_SPELL_KEYED:
        add_schema(out, f.schema, f.loose);
        skv_buf_text(out, ",\"}");
        break;
    case SKV_SPELL_NAMED:
    case SKV_SPELL_MESSAGE:
        add_schema(out, f.schema, f.loose);
        skv_buf_text(out, ",\"");
        break;
    case SKV_SPELL_XML:
        add_arguments(out, form, &f);
        skv_buf_text(out, ",\"");
        break;
    case SKV_SPELL_PYTHON:
    case SKV_SPELL_GEMMA:
        add_arguments(out, form, &f);
        skv_buf_text(out, form->spelling == SKV_SPELL_GEMMA ? ",\"}" : ",\")");
        break;
    }
    const bool line = form->end && form->spelling == SKV_SPELL_OBJECT;
    if (line || (form->end && form->end[0] == '`')) put(out, "\n");
    if (form->spelling != SKV_SPELL_MESSAGE) put_mark(out, form->end);
    skv_buf_text(out, "\"]");
    return SKV_OK;
}

/* {"any":[call, ...]} */
static skv_status add_any(skv_buf *out, const skv_reply_form *form, json_t *tools, skv_error *err)
{
    json_t *tool;
    size_t i;
    skv_buf_text(out, "{\"any\":[");
    json_array_foreach(tools, i, tool)
    {
        if (i > 0) skv_buf_byte(out, ',');
        SKV_TRY(add_call(out, form, tool, err));
    }
    skv_buf_text(out, "]}");
    return SKV_OK;
}

/* Whether every call has its own opening mark; else one mark opens them all. */
static bool opens_each(const skv_reply_form *form)
{
    return form->alone || (!form->list && !form->begin && !form->close);
}

/* What follows the opening mark. */
static skv_status add_opened(skv_buf *out, const skv_reply_rules *rules, const skv_reply_form *form,
                             json_t *tools, skv_error *err)
{
    const bool each = opens_each(form);
    const bool line = form->end && form->spelling == SKV_SPELL_OBJECT;
    const bool lines = (form->spelling == SKV_SPELL_XML && form->begin && !form->tight) ||
                       skv_reply_form_has_objects(form);
    add_text(out, form->list ? "[" : line || lines ? "\n" : "");
    skv_buf_byte(out, ',');
    if (!each) skv_buf_text(out, "{\"repeat\":");
    SKV_TRY(add_any(out, form, tools, err));
    if (!each) {
        skv_buf_printf(out, ",\"min\":1,\"max\":%zu,\"between\":\"%s\"}", rules->max_calls,
                       form->list ? ", "
                       : lines    ? "\\n"
                                  : "");
    }
    skv_buf_text(out, ",\"");
    put(out, form->list ? "]" : lines ? "\n" : NULL);
    put_mark(out, form->close);
    skv_buf_byte(out, '"');
    return SKV_OK;
}

/* The marks that may precede calls, and the address of a message with one: parts of a list. */
static void add_front(skv_buf *out, const skv_reply_form *form, const json_t *tools)
{
    const json_t *tool;
    size_t i;
    for (i = 0; i < 2 && form->front[i]; i++) {
        skv_buf_text(out, "{\"any\":[\"\",[\"");
        put_mark(out, form->front[i]);
        skv_buf_text(out, "\"]]},");
    }
    if (!form->address) return;
    skv_buf_text(out, "\" ");
    put(out, form->address->to);
    skv_buf_text(out, "\",{\"any\":[");
    json_array_foreach(tools, i, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (i > 0) skv_buf_byte(out, ',');
        add_text(out, name ? name : "");
    }
    skv_buf_text(out, "]},\"");
    put_mark(out, form->address->end);
    skv_buf_text(out, "\",");
}

/* Calls by themselves, or text in which whole calls stand. */
static skv_status add_marked(skv_buf *out, const skv_reply_rules *rules, const skv_reply_form *form,
                             json_t *tools, skv_error *err)
{
    const bool each = opens_each(form);
    skv_buf_text(out, "{\"repeat\":[");
    if (rules->may_talk) {
        add_until(out, form->open);
    } else {
        add_front(out, form, tools);
        skv_buf_byte(out, '"');
        put_mark(out, form->open);
        skv_buf_byte(out, '"');
    }
    skv_buf_byte(out, ',');
    SKV_TRY(add_opened(out, rules, form, tools, err));
    skv_buf_printf(out, "],\"min\":%d,\"max\":%zu,\"between\":\"%s\"}", rules->may_talk ? 0 : 1,
                   each ? rules->max_calls : 1,
                   !rules->may_talk && (form->end && form->spelling != SKV_SPELL_NAMED) ? "\\n"
                                                                                        : "");
    if (rules->may_talk) {
        skv_buf_text(out, ",{\"without\":");
        add_text(out, form->open);
        skv_buf_byte(out, '}');
    }
    return SKV_OK;
}

/* One call, or a text that is none. */
static skv_status add_bare(skv_buf *out, const skv_reply_rules *rules, const skv_reply_form *form,
                           json_t *tools, skv_error *err)
{
    skv_buf_text(out, "{\"any\":[");
    SKV_TRY(add_any(out, form, tools, err));
    if (rules->may_talk) skv_buf_text(out, ",{\"unlike\":\"{\\\"name\\\": \"}");
    skv_buf_text(out, "]}");
    return SKV_OK;
}

/* The rest of a thought, its end, and the blanks that models write after it: parts of a list. */
static void add_thought(skv_buf *out, skv_reply_format format)
{
    const char *end = skv_thought_form_at(format.thinks)->end;
    add_until(out, end ? end : "</think>");
    skv_buf_text(out, ",{\"any\":[\"\",\"\\n\",\"\\n\\n\",\" \"]}");
}

static skv_status write_grammar(skv_buf *out, const skv_reply_rules *rules, json_t *tools,
                                skv_error *err)
{
    const skv_reply_form *form = skv_reply_form_at(rules->format.calls);
    /* A text up to these marks is none that a grammar can look for. */
    const bool is_free =
        rules->may_talk && (form->spelling == SKV_SPELL_MESSAGE || form->address ||
                            (form->open && (!is_ascii(form->open) || form->front[0])));
    skv_buf_byte(out, '[');
    if (rules->in_thought && !rules->may_talk) {
        add_thought(out, rules->format);
        skv_buf_byte(out, ',');
    }
    if (is_free) {
        skv_buf_text(out, "{\"without\":\"\\u0001\"}");
    } else if (form->open) {
        SKV_TRY(add_marked(out, rules, form, tools, err));
    } else {
        SKV_TRY(add_bare(out, rules, form, tools, err));
    }
    skv_buf_byte(out, ']');
    return SKV_OK;
}

/* The length of the special token at the beginning of a mark in JSON, 0: there is none; `token` is
 * its text in JSON. The longest counts. */
static size_t find_special(const skv_reply_rules *rules, const char *at, size_t n, skv_buf *token)
{
    size_t best = 0;
    for (size_t i = 0; i < rules->n_special; i++) {
        skv_buf text;
        skv_buf_init(&text, SKV_GRAMMAR_TEXT_MAX);
        put(&text, rules->special[i]);
        if (text.size > best && text.size <= n && memcmp(at, text.data, text.size) == 0) {
            best = text.size;
            skv_buf_clear(token);
            skv_buf_append(token, text.data, text.size);
        }
        skv_buf_release(&text);
    }
    return best;
}

/* A mark inside a text: its special tokens become parts of the list that the text is in. */
static void split_mark(const skv_reply_rules *rules, const char *mark, size_t n, skv_buf *out)
{
    skv_buf token;
    skv_buf_init(&token, SKV_GRAMMAR_TEXT_MAX);
    for (size_t i = 0; i < n;) {
        const size_t n_token = find_special(rules, mark + i, n - i, &token);
        if (n_token == 0) {
            skv_buf_byte(out, mark[i++]);
            continue;
        }
        skv_buf_text(out, "\",{\"token\":\"");
        skv_buf_append(out, token.data, token.size);
        skv_buf_text(out, "\"},\"");
        i += n_token;
    }
    skv_buf_release(&token);
}

/* Any text up to a mark, which begins with a token or is spelt. */
static void write_until(const skv_reply_rules *rules, const char *mark, size_t n, skv_buf *out)
{
    skv_buf token;
    skv_buf_init(&token, SKV_GRAMMAR_TEXT_MAX);
    const size_t n_token = find_special(rules, mark, n, &token);
    skv_buf_text(out, n_token > 0 ? "[{\"without\":\"" : "{\"until\":\"");
    skv_buf_append(out, mark, n_token > 0 ? n_token : n);
    skv_buf_text(out, "\"}");
    if (n_token > 0) {
        skv_buf_text(out, ",\"");
        split_mark(rules, mark, n, out);
        skv_buf_text(out, "\"]");
    }
    skv_buf_release(&token);
}

/* Writes the text between MARK_BEGIN and MARK_END as parts. */
static void name_tokens(const skv_reply_rules *rules, const skv_buf *in, skv_buf *out)
{
    for (size_t i = 0; i < in->size; i++) {
        const char byte = in->data[i];
        if (byte != MARK_BEGIN && byte != UNTIL_BEGIN) {
            skv_buf_byte(out, byte);
            continue;
        }
        const char *mark = in->data + i + 1, *end = memchr(mark, MARK_END, in->size - i - 1);
        if (!end) break;
        const size_t n = (size_t)(end - mark);
        if (byte == MARK_BEGIN) {
            split_mark(rules, mark, n, out);
        } else {
            write_until(rules, mark, n, out);
        }
        i += n + 1;
    }
    out->failed = out->failed || in->failed;
}

/* The tools; *n_bytes is their share of the budget. */
static skv_status load_tools(const skv_reply_rules *rules, skv_budget *budget, json_t **out,
                             size_t *n_bytes, skv_error *err)
{
    json_error_t problem;
    skv_json_bytes bytes;
    if (!skv_budget_json(budget, rules->tools_json, rules->n_tools_json, &bytes)) {
        return skv_budget_check(budget, "tools", err);
    }
    json_t *tools = json_loadb(rules->tools_json, rules->n_tools_json, JSON_ALLOW_NUL, &problem);
    skv_budget_give(budget, bytes.reader);
    *n_bytes = bytes.values;
    if (json_is_array(tools) && json_array_size(tools) > 0) {
        *out = tools;
        return SKV_OK;
    }
    json_decref(tools);
    skv_budget_give(budget, *n_bytes);
    return skv_fail(err, SKV_ARGUMENT, "tools: no array of tools");
}

/* The grammar for the caller, from one whose marks stand between MARK_BEGIN and MARK_END. */
static skv_status finish_grammar(const skv_reply_rules *rules, const skv_buf *marked, char **text,
                                 size_t *n, skv_error *err)
{
    skv_buf out;
    skv_buf_init(&out, SKV_GRAMMAR_TEXT_MAX);
    name_tokens(rules, marked, &out);
    if (out.failed) {
        skv_buf_release(&out);
        return skv_fail(err, SKV_RANGE, "tools: schemas of more than %zu bytes, or no memory",
                        SKV_GRAMMAR_TEXT_MAX);
    }
    *text = out.data;
    *n = out.size;
    return SKV_OK;
}

skv_status skv_reply_grammar(const skv_reply_rules *rules, char **text, size_t *n, skv_error *err)
{
    skv_budget own;
    size_t n_bytes = 0;
    json_t *tools = NULL;
    if (!rules->budget) skv_budget_init(&own, NULL);
    skv_budget *budget = rules->budget ? rules->budget : &own;
    SKV_REQUIRE(rules->format.calls != SKV_CALLS_NONE, err, SKV_UNSUPPORTED,
                "tools: the model's template has no calls");
    SKV_REQUIRE(rules->max_calls >= 1 && rules->max_calls <= SKV_REPLY_CALLS_MAX, err, SKV_RANGE,
                "tools: %zu calls, 1 to %d", rules->max_calls, SKV_REPLY_CALLS_MAX);
    SKV_TRY(load_tools(rules, budget, &tools, &n_bytes, err));
    skv_buf marked;
    skv_buf_init_within(&marked, SKV_GRAMMAR_TEXT_MAX, budget);
    skv_status status = write_grammar(&marked, rules, tools, err);
    if (status == SKV_OK) status = skv_budget_check(budget, "tools", err);
    if (status == SKV_OK) status = finish_grammar(rules, &marked, text, n, err);
    skv_buf_release(&marked);
    json_decref(tools);
    skv_budget_give(budget, n_bytes);
    return status;
}

skv_status skv_reply_thought_grammar(const skv_reply_rules *rules, char **text, size_t *n,
                                     skv_error *err)
{
    skv_buf marked;
    skv_buf_init(&marked, SKV_GRAMMAR_TEXT_MAX);
    skv_buf_byte(&marked, '[');
    add_thought(&marked, rules->format);
    skv_buf_byte(&marked, ']');
    const skv_status status = finish_grammar(rules, &marked, text, n, err);
    skv_buf_release(&marked);
    return status;
}
