/*
 * Tools for models whose chat template has none, or writes calls in a form that nobody knows: a
 * system text asks for calls in Hermes' form, and the turns of earlier calls become plain texts. So
 * do those that a template of a known form leaves out, in that form where it can be written.
 */
#include <string.h>

#include "request_input.h"
#include "skv/reply.h"

static void add_json(const exchange *ex, skv_buf *out, const json_t *value)
{
    api_error error;
    size_t n = 0;
    char *text = json_text_write(ex, value, "messages", &n, &error);
    if (text) {
        skv_buf_append(out, text, n);
    } else {
        out->failed = true;
    }
    json_text_free(ex, text, n);
}

static void add_content(skv_buf *out, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(content) || json_string_length(content) == 0) return;
    skv_buf_append(out, json_string_value(content), json_string_length(content));
}

/* What the model wrote when it made the calls. */
static void add_calls(const exchange *ex, skv_buf *out, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    add_content(out, message);
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        skv_buf_printf(out, "%s<tool_call>\n{\"name\": ", out->size > 0 ? "\n" : "");
        add_json(ex, out, json_object_get(function, "name"));
        skv_buf_text(out, ", \"arguments\": ");
        add_json(ex, out, json_object_get(function, "arguments"));
        skv_buf_text(out, "}\n</tool_call>");
    }
}

/* The calls of a message in the model's own form; false: it is written by templates alone. */
static bool add_own_calls(const exchange *ex, skv_buf *out, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    api_error error;
    size_t i, n = 0, n_text = 0;
    char *text = NULL;
    json_t *functions = json_array();
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        if (json_array_append(functions, (json_t *)(uintptr_t)function) != 0) out->failed = true;
    }
    char *json = functions ? json_text_write(ex, functions, "messages", &n, &error) : NULL;
    json_decref(functions);
    out->failed = out->failed || !json;
    const skv_status status =
        json ? skv_reply_write_calls(ex->model->reply_format, json, n, &text, &n_text, NULL)
             : SKV_MEMORY;
    json_text_free(ex, json, n);
    if (status == SKV_OK) {
        add_content(out, message);
        skv_buf_append(out, text, n_text);
    }
    skv_text_free(text);
    return status == SKV_OK;
}

static bool set_text(json_t *message, const char *role, const skv_buf *text)
{
    return !text->failed && json_object_set_new(message, "role", json_string(role)) == 0 &&
           json_object_set_new(message, "content",
                               json_stringn(text->size > 0 ? text->data : "", text->size)) == 0;
}

/* Results in a row, and the user's text behind them, are one message: many templates want turns
 * to alternate. */
static bool join_results(json_t *messages, size_t i, skv_buf *text)
{
    json_t *next;
    while ((next = json_array_get(messages, i))) {
        const bool result = json_text_is(json_object_get(next, "role"), "tool");
        const bool user = json_text_is(json_object_get(next, "role"), "user");
        if (!result && (!user || text->size == 0)) break;
        if (text->size > 0) skv_buf_text(text, "\n");
        if (result) skv_buf_text(text, "<tool_response>\n");
        add_content(text, next);
        if (result) skv_buf_text(text, "\n</tool_response>");
        if (json_array_remove(messages, i) != 0) return false;
        if (user) break;
    }
    json_t *joined = json_object();
    return set_text(joined, "user", text) && json_array_insert_new(messages, i, joined) == 0;
}

/* Calls become texts, and results do unless the template writes them. */
static bool plain_history(const exchange *ex, json_t *messages, bool results)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const bool calls = json_object_get(message, "tool_calls");
        const bool result = results && json_text_is(json_object_get(message, "role"), "tool");
        if (!calls && !result) continue;
        skv_buf text = {.max = LIMIT_TEXT_BYTES};
        if (calls) {
            if (results || !add_own_calls(ex, &text, message)) add_calls(ex, &text, message);
            ok = set_text(message, "assistant", &text);
            (void)json_object_del(message, "tool_calls");
        } else {
            ok = join_results(messages, i, &text);
        }
        skv_buf_release(&text);
    }
    return ok;
}

/* The text goes behind the system message that there is, or becomes one. */
static bool instruct(const exchange *ex, const json_t *tools, json_t *messages)
{
    const json_t *tool;
    size_t i;
    json_t *first = json_array_get(messages, 0);
    const bool has = json_text_is(json_object_get(first, "role"), "system");
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    if (has) add_content(&text, first);
    skv_buf_printf(&text,
                   "%sYou can call functions. To call one, write\n<tool_call>\n{\"name\": \"...\", "
                   "\"arguments\": {...}}\n</tool_call>\nThe user answers with its result in "
                   "<tool_response>. These are the functions, one in a line:",
                   text.size > 0 ? "\n\n" : "");
    json_array_foreach(tools, i, tool)
    {
        skv_buf_byte(&text, '\n');
        add_json(ex, &text, json_object_get(tool, "function"));
    }
    json_t *message = has ? json_incref(first) : json_object();
    bool ok = set_text(message, "system", &text);
    if (!has) ok = ok && json_array_insert(messages, 0, message) == 0;
    json_decref(message);
    skv_buf_release(&text);
    return ok;
}

bool tool_generic_render(const exchange *ex, const json_t *tools, json_t *messages,
                         api_error *error)
{
    const bool ok = plain_history(ex, messages, true) &&
                    (json_array_size(tools) == 0 || instruct(ex, tools, messages));
    return ok || api_fail(error, 503, NULL, "no memory");
}

static bool has_calls(const json_t *messages, bool results)
{
    const json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (json_object_get(message, "tool_calls")) return true;
        if (results && json_text_is(json_object_get(message, "role"), "tool")) return true;
    }
    return false;
}

bool tool_generic_plain(const exchange *ex, json_t *messages, bool results)
{
    return has_calls(messages, results) && plain_history(ex, messages, results);
}

bool tool_generic_history(const exchange *ex, json_t *messages, api_error *error)
{
    const tool_habits *habits = &ex->model->habits;
    if (!habits->loses_calls && !habits->loses_results) return true;
    return plain_history(ex, messages, habits->loses_results) ||
           api_fail(error, 503, NULL, "no memory");
}
