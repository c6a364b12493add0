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

/* The history on its way: one pass, in which messages that stay move up. */
typedef struct history {
    const exchange *ex; /* borrowed */
    json_t *messages;   /* borrowed */
    size_t i_next, n_kept;
    api_error *error;
} history;

static bool add_json(const exchange *ex, skv_buf *out, const json_t *value, api_error *error)
{
    size_t n = 0;
    char *text = json_text_write(ex, value, "messages", &n, error);
    if (text) skv_buf_append(out, text, n);
    json_text_free(ex, text, n);
    return text;
}

static void add_content(skv_buf *out, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(content) || json_string_length(content) == 0) return;
    skv_buf_append(out, json_string_value(content), json_string_length(content));
}

/* What the model wrote when it made the calls. */
static bool add_calls(const history *h, skv_buf *out, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    add_content(out, message);
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        skv_buf_printf(out, "%s<tool_call>\n{\"name\": ", out->size > 0 ? "\n" : "");
        if (!add_json(h->ex, out, json_object_get(function, "name"), h->error)) return false;
        skv_buf_text(out, ", \"arguments\": ");
        if (!add_json(h->ex, out, json_object_get(function, "arguments"), h->error)) return false;
        skv_buf_text(out, "}\n</tool_call>");
    }
    return true;
}

static bool set_text(const exchange *ex, json_t *message, const char *role, const skv_buf *text,
                     api_error *error)
{
    json_t *content = json_of_text(ex, text, "messages", error);
    if (!content) return false;
    return (json_object_set_new(message, "content", content) == 0 &&
            json_object_set_new(message, "role", json_string(role)) == 0) ||
           api_fail(error, 503, NULL, "no memory");
}

/* A message as the next one that stays; its reference is taken over. */
static bool keep(history *h, json_t *message)
{
    return (message && json_array_set_new(h->messages, h->n_kept++, message) == 0) ||
           api_fail(h->error, 503, NULL, "no memory");
}

/* Results in a row, and the user's text behind them, are one message: many templates want turns
 * to alternate. */
static bool join_results(history *h, skv_buf *text)
{
    const json_t *next;
    for (bool user = false; !user && (next = json_array_get(h->messages, h->i_next)); h->i_next++) {
        const bool result = json_text_is(json_object_get(next, "role"), "tool");
        user = json_text_is(json_object_get(next, "role"), "user");
        if (!result && !user) break;
        if (!request_work(h->ex, 1, "messages", h->error)) return false;
        if (text->size > 0) skv_buf_text(text, "\n");
        if (result) skv_buf_text(text, "<tool_response>\n");
        add_content(text, next);
        if (result) skv_buf_text(text, "\n</tool_response>");
    }
    if (!request_hold(h->ex, JSON_CONTAINER_BYTES + 2 * JSON_MEMBER_BYTES, "messages", h->error)) {
        return false;
    }
    json_t *joined = json_object();
    if (joined && set_text(h->ex, joined, "user", text, h->error)) return keep(h, joined);
    if (!joined) (void)api_fail(h->error, 503, NULL, "no memory");
    json_decref(joined);
    return false;
}

static bool plain_message(history *h)
{
    json_t *message = json_array_get(h->messages, h->i_next);
    const bool calls = json_object_get(message, "tool_calls");
    skv_buf text = request_text(h->ex);
    bool ok = request_work(h->ex, 1, "messages", h->error);
    if (ok && !calls && json_text_is(json_object_get(message, "role"), "tool")) {
        ok = join_results(h, &text);
    } else if (ok) {
        ok = !calls || (add_calls(h, &text, message) &&
                        set_text(h->ex, message, "assistant", &text, h->error));
        if (calls) (void)json_object_del(message, "tool_calls");
        h->i_next++;
        ok = ok && keep(h, json_incref(message));
    }
    skv_buf_release(&text);
    return ok;
}

static bool plain_history(const exchange *ex, json_t *messages, api_error *error)
{
    history h = {.ex = ex, .messages = messages, .error = error};
    while (h.i_next < json_array_size(messages)) {
        if (!plain_message(&h)) return false;
    }
    json_array_cut(messages, h.n_kept);
    return true;
}

/* The text goes behind the system message that there is, or becomes one. */
static bool instruct(const exchange *ex, const json_t *tools, json_t *messages, api_error *error)
{
    const json_t *tool;
    size_t i;
    json_t *first = json_array_get(messages, 0);
    const bool has = json_text_is(json_object_get(first, "role"), "system");
    skv_buf text = request_text(ex);
    bool ok = true;
    if (has) add_content(&text, first);
    skv_buf_printf(&text,
                   "%sYou can call functions. To call one, write\n<tool_call>\n{\"name\": \"...\", "
                   "\"arguments\": {...}}\n</tool_call>\nThe user answers with its result in "
                   "<tool_response>. These are the functions, one in a line:",
                   text.size > 0 ? "\n\n" : "");
    json_array_foreach(tools, i, tool)
    {
        skv_buf_byte(&text, '\n');
        ok = ok && add_json(ex, &text, json_object_get(tool, "function"), error);
    }
    json_t *message = has ? json_incref(first) : json_object();
    ok = ok && set_text(ex, message, "system", &text, error);
    if (ok && !has && json_array_insert(messages, 0, message) != 0) {
        ok = api_fail(error, 503, NULL, "no memory");
    }
    json_decref(message);
    skv_buf_release(&text);
    return ok;
}

bool tool_generic_render(const exchange *ex, const json_t *tools, json_t *messages,
                         api_error *error)
{
    return plain_history(ex, messages, error) &&
           (json_array_size(tools) == 0 || instruct(ex, tools, messages, error));
}
