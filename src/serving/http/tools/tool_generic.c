/*
 * Tools for models whose chat template has none, or writes calls in an unknown form: a system text
 * asks for calls in Hermes' form, and the turns of earlier calls become plain texts. So do those
 * that a template of a known form leaves out, in that form where it can be written.
 */

#include "request/request_input.h"
#include "skv/reply.h"

/* The history on its way: one pass, in which messages that stay move up. */
typedef struct history {
    const exchange *ex; /* borrowed */
    json_t *messages;   /* borrowed */
    bool calls;         /* whether they become texts */
    bool results;       /* the same of results, and calls are in the general form */
    bool orphans;       /* the same of results without calls in front of them */
    bool called;        /* the last message has calls, or is a result of such */
    size_t i_next, n_kept;
    api_error *error;
} history;

static bool add_json(const exchange *ex, skv_buf *out, const json_t *value, api_error *error)
{
    size_t n = 0;
    char *text = json_text_write(ex, value, "messages", &n, error);
    if (text) skv_buf_append(out, text, json_text_shorten(ex, text, n));
    json_text_free(ex, text, n);
    return text;
}

/* Text in the template's name, which may have control tokens; all other text is the client's. */
static void add_own(const exchange *ex, skv_buf *out, const char *text)
{
    skv_buf_text(out, ex->server->own_mark);
    skv_buf_text(out, text);
    skv_buf_text(out, ex->server->own_mark);
}

static void add_content(skv_buf *out, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(content) || json_string_length(content) == 0) return;
    skv_buf_append(out, json_string_value(content), json_string_length(content));
}

/* The model's text when it made the calls. */
static bool add_calls(const history *h, skv_buf *out, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    add_content(out, message);
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        if (out->size > 0) skv_buf_text(out, "\n");
        add_own(h->ex, out, "<tool_call>\n{\"name\": ");
        if (!add_json(h->ex, out, json_object_get(function, "name"), h->error)) return false;
        skv_buf_text(out, ", \"arguments\": ");
        if (!add_json(h->ex, out, json_object_get(function, "arguments"), h->error)) return false;
        add_own(h->ex, out, "}\n</tool_call>");
    }
    return true;
}

/* The calls of a message in the model's own form. *written: false where templates alone write it.
 */
static bool add_own_calls(const history *h, skv_buf *out, const json_t *message, bool *written)
{
    const exchange *ex = h->ex;
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i, n = 0, n_text = 0;
    skv_json_bytes read = {0};
    char *text = NULL;
    if (!request_hold(ex, JSON_CONTAINER_BYTES, "messages", h->error)) return false;
    json_t *functions = json_array();
    bool ok = functions;
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        ok = ok && json_array_append(functions, function) == 0;
    }
    char *json = ok ? json_text_write(ex, functions, "messages", &n, h->error) : NULL;
    json_decref(functions);
    if (!json) return ok ? false : api_fail(h->error, 503, NULL, "no memory");
    /* The memory of its values once more, and the text. */
    ok = skv_budget_json(ex->budget, json, n, &read) || request_lacks(ex, "messages", h->error);
    *written =
        ok && skv_reply_write_calls(ex->model->reply_format, (skv_text_piece){json, n},
                                    server_own_mark(ex->server), &text, &n_text, NULL) == SKV_OK;
    json_text_free(ex, json, n);
    if (*written) {
        add_content(out, message);
        skv_buf_append(out, text, n_text);
    }
    skv_text_free(text);
    skv_budget_give(ex->budget, read.values + read.reader);
    return ok;
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

/* Results in a row, and the user's text after them, are one message: many templates want turns
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
        if (result) add_own(h->ex, text, "<tool_response>\n");
        add_content(text, next);
        if (result) add_own(h->ex, text, "\n</tool_response>");
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

/* A message with calls becomes one of text. */
static bool plain_calls(history *h, skv_buf *text, json_t *message)
{
    bool written = false;
    if (!h->results && !add_own_calls(h, text, message, &written)) return false;
    return (written || add_calls(h, text, message)) &&
           set_text(h->ex, message, "assistant", text, h->error) &&
           json_object_del(message, "tool_calls") == 0;
}

/* Calls and results become texts unless the template writes them. */
static bool plain_message(history *h)
{
    json_t *message = json_array_get(h->messages, h->i_next);
    const bool has_calls = json_object_get(message, "tool_calls"), calls = has_calls && h->calls;
    const bool of_tool = json_text_is(json_object_get(message, "role"), "tool");
    const bool result = of_tool && !has_calls && (h->results || (h->orphans && !h->called));
    h->called = has_calls || (of_tool && h->called);
    skv_buf text = request_text(h->ex);
    bool ok = request_work(h->ex, 1, "messages", h->error);
    if (ok && result) {
        ok = join_results(h, &text);
    } else if (ok) {
        ok = !calls || plain_calls(h, &text, message);
        h->i_next++;
        ok = ok && keep(h, json_incref(message));
    }
    skv_buf_release(&text);
    return ok;
}

static bool plain_all(history *h)
{
    while (h->i_next < json_array_size(h->messages)) {
        if (!plain_message(h)) return false;
    }
    json_array_cut(h->messages, h->n_kept);
    return true;
}

static bool plain_history(const exchange *ex, json_t *messages, bool results, api_error *error)
{
    history h = {.ex = ex, .messages = messages, .calls = true, .results = results, .error = error};
    return plain_all(&h);
}

/* The text goes after an existing system message, or becomes one. */
static bool instruct(const exchange *ex, const json_t *tools, json_t *messages, api_error *error)
{
    const json_t *tool;
    size_t i;
    json_t *first = json_array_get(messages, 0);
    const bool has = json_text_is(json_object_get(first, "role"), "system");
    skv_buf text = request_text(ex);
    bool ok = true;
    if (has) add_content(&text, first);
    if (text.size > 0) skv_buf_text(&text, "\n\n");
    add_own(ex, &text,
            "You can call functions. To call one, write\n<tool_call>\n{\"name\": \"...\", "
            "\"arguments\": {...}}\n</tool_call>\nThe user answers with its result in "
            "<tool_response>. These are the functions, one in a line:");
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
    return plain_history(ex, messages, true, error) &&
           (json_array_size(tools) == 0 || instruct(ex, tools, messages, error));
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

bool tool_generic_plain(const exchange *ex, json_t *messages, bool results, api_error *error)
{
    return has_calls(messages, results) && plain_history(ex, messages, results, error);
}

bool tool_generic_history(const exchange *ex, json_t *messages, api_error *error)
{
    const tool_habits *habits = &ex->model->habits;
    history h = {.ex = ex,
                 .messages = messages,
                 .calls = habits->loses_calls || habits->loses_results,
                 .results = habits->loses_results,
                 .orphans = habits->loses_orphans,
                 .error = error};
    return (!h.calls && !h.orphans) || plain_all(&h);
}
