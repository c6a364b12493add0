/*
 * Requests of Ollama's clients: see translate.h. `options` become fields of the request, and a
 * prompt a message of the user.
 */
#include <stdio.h>
#include <string.h>

#include "common/sampling_fields.h"
#include "request/request_input.h"
#include "request/translate.h"

/* Options beside those of sampling, and their names in OpenAI's requests and ours. */
static const char *const options[][2] = {
    {"stop", "stop"}, {"repeat_penalty", "repeat_penalty"}, {"repeat_last_n", "repeat_last_n"}};

static void set_option(translation *t, const json_t *given, const char *name, const char *ours)
{
    json_t *value = json_object_get(given, name);
    if (value) translation_set(t, ours, json_incref(value));
}

/* How long the answer may be; below zero: as long as the context allows. */
static bool set_length(translation *t, const json_t *given)
{
    json_t *value = json_object_get(given, "num_predict");
    if (!value || json_is_null(value)) return true;
    if (!json_is_integer(value)) {
        return api_fail(t->error, 400, "options", "options.num_predict: %s is not a whole number",
                        json_show(value).text);
    }
    translation_set(t, "max_tokens",
                    json_integer_value(value) < 0 ? json_integer(-1) : json_incref(value));
    return true;
}

static bool set_options(translation *t)
{
    const json_t *given = json_body_get(t->asked, "options");
    if (!given) return true;
    if (!json_is_object(given)) return api_refuse(t->error, "options", "not an object");
    for (size_t i = 0; skv_sampling_field(i); i++) {
        const char *name = skv_sampling_field(i)->name;
        set_option(t, given, name, name);
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        set_option(t, given, options[i][0], options[i][1]);
    }
    for (size_t i = 0; request_refused_field(i); i++) {
        set_option(t, given, request_refused_field(i), request_refused_field(i));
    }
    return set_length(t, given);
}

/* "json", or a schema. */
static bool set_format(translation *t)
{
    json_t *format = json_object_get(t->asked, "format");
    if (!format || json_is_null(format) || json_text_is(format, "")) return true;
    if (json_text_is(format, "json")) {
        translation_set(t, "response_format", json_pack("{s:s}", "type", "json_object"));
        return true;
    }
    if (json_is_object(format)) {
        translation_set(
            t, "response_format",
            json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", format));
        return true;
    }
    return api_refuse(t->error, "format", "%s is neither \"json\" nor a schema",
                      json_show(format).text);
}

/* Whether to think, or how much. */
static bool set_thinking(translation *t)
{
    const json_t *think = json_body_get(t->asked, "think");
    if (!think) return true;
    if (json_is_string(think)) {
        translation_set(t, "reasoning_effort", json_copy((json_t *)(uintptr_t)think));
        return true;
    }
    if (!json_is_boolean(think)) {
        return api_refuse(t->error, "think", "%s is neither true, false nor a word",
                          json_show(think).text);
    }
    translation_var(t, "enable_thinking", json_boolean(json_is_true(think)));
    return true;
}

/* Ollama streams unless it is told not to. */
static bool begin(translation *t, exchange *ex, const json_t *asked, api_error *error)
{
    if (!translation_begin(t, ex, asked, error)) return false;
    if (!json_body_get(asked, "stream")) translation_set(t, "stream", json_true());
    return set_options(t) && set_format(t) && set_thinking(t) &&
           translation_refuse(t, "images", "only text is supported");
}

/* ---- messages ---- */

static bool add_calls(translation *t, const char *where, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const json_t *function = json_object_get(call, "function");
        const json_t *name = json_object_get(function, "name");
        if (!json_is_string(name)) {
            return api_fail(t->error, 400, "messages",
                            "%s.tool_calls[%zu].function.name: not a text", where, i);
        }
        translation_call(t, json_object_get(call, "id"), name,
                         json_object_get(function, "arguments"));
    }
    return true;
}

static bool check_message(const translation *t, const char *where, const json_t *message)
{
    static const char *const texts[] = {"content", "thinking", "tool_name", "tool_call_id"};
    const json_t *images = json_body_get(message, "images");
    const bool result = json_text_is(json_object_get(message, "role"), "tool");
    if (json_array_size(images) > 0 && !result) {
        return api_fail(t->error, 400, "messages", "%s.images: only text is supported", where);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const json_t *text = json_body_get(message, texts[i]);
        if (!text || json_is_string(text)) continue;
        return api_fail(t->error, 400, "messages", "%s.%s: not a text", where, texts[i]);
    }
    return true;
}

/* Those of a tool: they are told to be left out. */
static bool add_pictures(translation *t, const json_t *images)
{
    if (json_array_size(images) == 0) return true;
    json_t *part = json_pack("{s:s}", "type", "images");
    const bool ok = translation_add_left_out(t, part);
    json_decref(part);
    return ok || api_fail(t->error, 503, NULL, "no memory");
}

static bool add_message(translation *t, const json_t *message, size_t i)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    char where[48];
    const json_t *role = json_object_get(message, "role"), *name;
    const char *known = NULL;
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        if (json_text_is(role, roles[k])) known = roles[k];
    }
    if (!known) {
        return api_fail(t->error, 400, "messages",
                        "%s.role: \"%.40s\" is none of system, user, assistant, tool", where,
                        json_show(role).text);
    }
    if (!check_message(t, where, message)) return false;
    if (strcmp(known, "tool") == 0) {
        translation_result(t, json_object_get(message, "tool_call_id"));
        name = json_body_get(message, "tool_name");
        if (name) translation_name(t, name);
    } else {
        translation_open(t, known, false);
    }
    translation_add_text(t, json_object_get(message, "content"));
    if (!add_pictures(t, json_object_get(message, "images"))) return false;
    translation_add_thought(t, json_object_get(message, "thinking"));
    return add_calls(t, where, json_body_get(message, "tool_calls"));
}

static bool add_messages(translation *t)
{
    const json_t *messages = json_body_get(t->asked, "messages");
    if (messages && !json_is_array(messages)) {
        return api_refuse(t->error, "messages", "expected an array of messages");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!add_message(t, json_array_get(messages, i), i)) return false;
    }
    translation_continue(t);
    return true;
}

json_t *ollama_chat_translate(exchange *ex, const json_t *asked, api_error *error)
{
    translation t;
    json_t *tools = json_object_get(asked, "tools"), *tool;
    size_t i;
    bool ok = begin(&t, ex, asked, error) && add_messages(&t);
    json_array_foreach(tools, i, tool)
    {
        if (!ok || !json_body_is(tool, "custom")) continue;
        ok = api_fail(error, 400, "tools", "tools[%zu].type: \"custom\": only functions are served",
                      i);
    }
    if (ok && tools) translation_set(&t, "tools", json_incref(tools));
    return translation_end(&t, ok);
}

/* ---- a prompt ---- */

static bool add_text(translation *t, const char *name, const char *role)
{
    json_t *text = json_object_get(t->asked, name);
    if (!text || json_is_null(text) || json_text_is(text, "")) return true;
    if (!json_is_string(text)) return api_refuse(t->error, name, "not a text");
    translation_open(t, role, false);
    translation_add_text(t, text);
    return true;
}

/* The prompt is in the body twice: as a message, and as it is for `raw`. */
json_t *ollama_prompt_translate(exchange *ex, const json_t *asked, api_error *error)
{
    translation t;
    bool raw = false;
    const bool ok = begin(&t, ex, asked, error) && json_body_flag(asked, "raw", &raw, error) &&
                    translation_refuse(&t, "context", "send the conversation to /api/chat") &&
                    translation_refuse(&t, "template", "templates cannot be sent with a request") &&
                    translation_refuse(&t, "suffix", "text is only continued at its end") &&
                    add_text(&t, "system", "system") && add_text(&t, "prompt", "user");
    json_t *prompt = json_object_get(asked, "prompt");
    if (ok && prompt) translation_set(&t, "prompt", json_incref(prompt));
    if (ok && raw) {
        translation_set(&t, "raw", json_true());
        translation_set(&t, "reasoning_format", json_string("none"));
    }
    return translation_end(&t, ok);
}
