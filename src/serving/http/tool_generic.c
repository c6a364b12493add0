/*
 * Tools for models whose chat template has none, or writes calls in a form that nobody knows: a
 * system text asks for calls in Hermes' form, and the turns of earlier calls become plain texts.
 */
#include <string.h>

#include "request_input.h"

static const char probe[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":true,"
    "\"date_string\":\"\",\"datetime\":\"\",\"functions\":\"skv_probe\",\"tools\":[{\"type\":"
    "\"function\",\"function\":{\"name\":\"skv_probe\",\"description\":\"\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{}}}}]}";

bool tool_template_ignores(const skv_vocab *vocab, const char *text, size_t n)
{
    char *shown = NULL;
    size_t n_shown = 0;
    const skv_render_input input = {
        .template_text = {text, n}, .vars = {probe, sizeof probe - 1}, .vocab = vocab};
    const bool ok = skv_render(&input, &shown, &n_shown, NULL) == SKV_OK;
    const bool ignores = !ok || !strstr(shown, "skv_probe");
    skv_text_free(shown);
    return ignores;
}

static void add_json(const exchange *ex, skv_buf *out, const json_t *value)
{
    api_error error;
    size_t n = 0;
    char *text = json_text_write(ex, value, "messages", &n, &error);
    if (text) {
        skv_buf_append(out, text, json_text_shorten(ex, text, n));
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

static bool plain_history(const exchange *ex, json_t *messages)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const bool calls = json_object_get(message, "tool_calls");
        if (!calls && !json_text_is(json_object_get(message, "role"), "tool")) continue;
        skv_buf text = {.max = LIMIT_TEXT_BYTES};
        if (calls) {
            add_calls(ex, &text, message);
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
    const bool ok = plain_history(ex, messages) &&
                    (json_array_size(tools) == 0 || instruct(ex, tools, messages));
    return ok || api_fail(error, 503, NULL, "no memory");
}
