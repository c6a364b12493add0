/* Requests in the words of OpenAI's chats: see translate.h. */
#include "request/translate.h"

#include <stdio.h>
#include <string.h>

#include "common/sampling_fields.h"
#include "request/request_input.h"

/* Fields of all dialects, apart from those of sampling. */
static const char *const shared_fields[] = {"model",
                                            "lora",
                                            "stream",
                                            "stream_options",
                                            "return_progress",
                                            "timings_per_token",
                                            "swiftkv",
                                            "evict",
                                            "snapkv",
                                            "speculate",
                                            "logit_bias",
                                            "min_tokens",
                                            "ignore_eos",
                                            "guided_json",
                                            "guided_regex",
                                            "guided_choice",
                                            "guided_grammar",
                                            "grammar",
                                            "json_schema",
                                            "stop_token_ids",
                                            "chat_template_kwargs",
                                            "chat_template",
                                            "structured_outputs",
                                            "cache_control",
                                            "prompt_cache_key",
                                            "prompt_cache_retention"};

static void copy_field(translation *t, const char *name)
{
    json_t *value = json_object_get(t->asked, name);
    if (value) translation_set(t, name, json_incref(value));
}

bool translation_begin(translation *t, exchange *ex, const json_t *asked, api_error *error)
{
    *t = (translation){.ex = ex,
                       .asked = asked,
                       .body = json_object(),
                       .text = request_text(ex),
                       .thought = request_text(ex),
                       .error = error};
    for (size_t i = 0; i < sizeof shared_fields / sizeof shared_fields[0]; i++) {
        copy_field(t, shared_fields[i]);
    }
    for (size_t i = 0; skv_sampling_field(i); i++) {
        copy_field(t, skv_sampling_field(i)->name);
    }
    /* They are refused where the request is read. */
    for (size_t i = 0; request_refused_field(i); i++) {
        if (!json_object_get(t->body, request_refused_field(i)) &&
            strcmp(request_refused_field(i), "tools") != 0 &&
            strcmp(request_refused_field(i), "suffix") != 0) {
            copy_field(t, request_refused_field(i));
        }
    }
    t->messages = json_array();
    translation_set(t, "messages", t->messages);
    return !t->failed || api_fail(error, 503, NULL, "no memory");
}

bool translation_hold(translation *t, size_t n_bytes)
{
    skv_budget *budget = t->ex->budget;
    if (!skv_budget_work(budget, 1) || !skv_budget_take(budget, n_bytes)) t->failed = true;
    return !t->failed;
}

static void set_in(translation *t, json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0) t->failed = true;
}

void translation_set(translation *t, const char *name, json_t *value)
{
    set_in(t, t->body, name, value);
}

/* ---- messages ---- */

static void set_text(translation *t, const char *name, const skv_buf *text)
{
    json_t *value = t->failed ? NULL : json_of_text(t->ex, text, "request", t->error);
    set_in(t, t->open, name, value);
}

/* Texts become one only when all are there: a message may have very many. */
static void close_message(translation *t)
{
    if (!t->open) return;
    set_text(t, "content", &t->text);
    if (t->thought.size > 0) set_text(t, "reasoning_content", &t->thought);
    t->open = NULL;
    skv_buf_clear(&t->text);
    skv_buf_clear(&t->thought);
}

json_t *translation_end(translation *t, bool ok)
{
    close_message(t);
    skv_buf_release(&t->text);
    skv_buf_release(&t->thought);
    if (ok && t->failed) ok = request_lacks(t->ex, "request", t->error);
    if (ok) return t->body;
    json_decref(t->body);
    return NULL;
}

void translation_open(translation *t, const char *role, bool joins)
{
    const char *now = json_string_value(json_object_get(t->open, "role"));
    if (joins && now && strcmp(now, role) == 0) return;
    close_message(t);
    if (!translation_hold(t, JSON_CONTAINER_BYTES + 3 * JSON_MEMBER_BYTES)) return;
    json_t *message = json_object();
    set_in(t, message, "role", json_string(role));
    if (json_array_append_new(t->messages, message) != 0) {
        t->failed = true;
    } else {
        t->open = message;
    }
}

static void add_line(skv_buf *out, const json_t *text)
{
    if (out->size > 0 && json_string_length(text) > 0) skv_buf_text(out, "\n");
    skv_buf_append(out, json_string_value(text), json_string_length(text));
}

void translation_add_text(translation *t, const json_t *text)
{
    add_line(&t->text, text);
}

void translation_add_thought(translation *t, const json_t *text)
{
    add_line(&t->thought, text);
}

/* A value of the request in ours: counted, and not written to. */
static json_t *share(const json_t *value)
{
    return json_incref((json_t *)(uintptr_t)value);
}

void translation_call(translation *t, const json_t *id, const json_t *name, const json_t *arguments)
{
    translation_open(t, "assistant", true);
    if (!translation_hold(t, 3 * JSON_CONTAINER_BYTES + 7 * JSON_MEMBER_BYTES)) return;
    json_t *calls = json_object_get(t->open, "tool_calls");
    if (!calls) {
        calls = json_array();
        set_in(t, t->open, "tool_calls", calls);
    }
    if (t->failed) return;
    json_t *call = json_object(), *function = json_object();
    if (id) set_in(t, call, "id", share(id));
    set_in(t, call, "type", json_string("function"));
    set_in(t, function, "name", share(name));
    set_in(t, function, "arguments", arguments ? share(arguments) : json_object());
    set_in(t, call, "function", function);
    if (json_array_append_new(calls, call) != 0) t->failed = true;
}

void translation_result(translation *t, const json_t *id)
{
    translation_open(t, "tool", false);
    if (id && t->open) set_in(t, t->open, "tool_call_id", share(id));
}

void translation_name(translation *t, const json_t *name)
{
    if (t->open) set_in(t, t->open, "name", share(name));
}

/* ---- other fields ---- */

void translation_continue(translation *t)
{
    if (t->open && !json_object_get(t->open, "tool_calls") &&
        json_text_is(json_object_get(t->open, "role"), "assistant")) {
        translation_set(t, "continue_final_message", json_true());
    }
}

void translation_var(translation *t, const char *name, json_t *value)
{
    const json_t *given = json_object_get(t->body, "chat_template_kwargs");
    if (json_object_get(given, name)) {
        json_decref(value);
        return;
    }
    json_t *kwargs = json_is_object(given) ? json_copy_within(t->ex, (json_t *)(uintptr_t)given,
                                                              "chat_template_kwargs", t->error)
                                           : json_object();
    set_in(t, kwargs, name, value);
    translation_set(t, "chat_template_kwargs", kwargs);
}

bool translation_length(translation *t, const char *name, bool is_required)
{
    json_t *value = json_object_get(t->asked, name);
    if (!is_required && (!value || json_is_null(value))) return true;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_number_value(value) > SKV_ANSWER_TOKENS_MAX) {
        return api_refuse(t->error, name, "%s is not a whole number from 1 to %.15g",
                          json_show(value).text, SKV_ANSWER_TOKENS_MAX);
    }
    translation_set(t, "max_tokens", json_incref(value));
    return true;
}

bool translation_schema(translation *t, const json_t *format)
{
    json_t *schema = json_object_get(format, "schema");
    if (!json_is_object(schema)) return false;
    translation_set(
        t, "response_format",
        json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema));
    return true;
}

json_t *translation_function(const json_t *tool, const char *schema)
{
    const char *const names[][2] = {{"name", "name"},
                                    {"description", "description"},
                                    {"strict", "strict"},
                                    {"parameters", schema}};
    json_t *function = json_object(), *out = json_object();
    int failed = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *value = json_body_get(tool, names[i][1]);
        if (value) failed |= json_object_set_new(function, names[i][0], share(value));
    }
    failed |= json_object_set_new(out, "type", json_string("function"));
    failed |= json_object_set_new(out, "function", function);
    if (failed == 0) return out;
    json_decref(out);
    return NULL;
}

void translation_tool(translation *t, json_t *tool)
{
    (void)translation_hold(t, 3 * JSON_CONTAINER_BYTES + 8 * JSON_MEMBER_BYTES);
    if (json_array_append_new(t->tools, tool) != 0) t->failed = true;
}

bool translation_tools(translation *t, bool (*add)(translation *t, const json_t *tool, size_t i))
{
    const json_t *given = json_body_get(t->asked, "tools");
    if (!given) return true;
    if (!json_is_array(given)) return api_refuse(t->error, "tools", "not an array");
    t->tools = json_array();
    translation_set(t, "tools", t->tools);
    for (size_t i = 0; i < json_array_size(given) && !t->failed; i++) {
        if (!add(t, json_array_get(given, i), i)) return false;
    }
    /* An answer as if it had been searched for would mislead. */
    if (json_array_size(t->tools) > 0 || json_array_size(given) == 0) return true;
    return api_refuse(t->error, "tools",
                      "nothing but %s, which only the client's own provider can run",
                      t->ex->left_out);
}

static void note_left_out(exchange *ex, const char *type)
{
    const size_t n = strlen(ex->left_out);
    if (strstr(ex->left_out, type)) return;
    const int n_more =
        snprintf(ex->left_out + n, sizeof ex->left_out - n, "%s%s", n > 0 ? ", " : "", type);
    if (n_more < 0 || (size_t)n_more >= sizeof ex->left_out - n) ex->left_out[n] = 0;
}

bool translation_add_left_out(translation *t, const json_t *part)
{
    const char *type = part_type(part);
    if (!type) return false;
    json_t *line = json_sprintf(PART_LEFT_OUT, type);
    note_left_out(t->ex, type);
    translation_add_text(t, line);
    t->failed = t->failed || !line;
    json_decref(line);
    return true;
}

bool translation_leave_out(translation *t, const json_t *tool, const char *const *words, size_t n)
{
    const char *type = part_type(tool);
    if (!type) return false;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(type, words[i], strlen(words[i])) != 0) continue;
        note_left_out(t->ex, type);
        return true;
    }
    return false;
}

void translation_choose(translation *t, const json_t *choice)
{
    json_t *name = json_object_get(choice, "name");
    name = json_is_string(name) ? json_incref(name) : json_string("");
    translation_set(t, "tool_choice",
                    json_pack("{s:s,s:{s:o}}", "type", "function", "function", "name", name));
}

bool translation_refuse(const translation *t, const char *name, const char *why)
{
    const json_t *value = json_body_get(t->asked, name);
    const bool empty = !value || json_is_false(value) || json_text_is(value, "") ||
                       (json_is_array(value) && json_array_size(value) == 0);
    return empty || api_refuse(t->error, name, "%s", why);
}
