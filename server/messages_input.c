/*
 * Anthropic's Messages: see messages_input.h. Blocks of text become one text, calls and their
 * results what OpenAI calls tool_calls and tool messages.
 */
#include "messages_input.h"

#include <stdio.h>
#include <string.h>

#include "translate.h"

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static bool is_type(const json_t *block, const char *type)
{
    return strcmp(text_of(block, "type"), type) == 0;
}

/* ---- blocks ---- */

static bool refuse_block(const translation *t, const char *where, const json_t *block)
{
    return api_fail(t->error, 400, "messages", "%s: a block of type \"%.40s\" is not served", where,
                    text_of(block, "type"));
}

/* Blocks of text, or a text, for the open message. */
static bool add_texts(translation *t, const char *where, const json_t *content)
{
    if (json_is_string(content)) {
        translation_add_text(t, content);
        return true;
    }
    if (!json_is_array(content)) {
        return api_fail(t->error, 400, "messages", "%s: neither a text nor blocks", where);
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i), *text = json_object_get(block, "text");
        if (!is_type(block, "text") || !json_is_string(text)) return refuse_block(t, where, block);
        translation_add_text(t, text);
    }
    return true;
}

/* A result is a message of its own; text behind it is a new one. */
static bool add_user_block(translation *t, const char *where, const json_t *block, bool joins)
{
    const json_t *text = json_object_get(block, "text"), *content = json_body_get(block, "content");
    if (is_type(block, "tool_result")) {
        translation_result(t, json_object_get(block, "tool_use_id"));
        return content == NULL || add_texts(t, where, content);
    }
    if (!is_type(block, "text") || !json_is_string(text)) return refuse_block(t, where, block);
    translation_open(t, "user", joins);
    translation_add_text(t, text);
    return true;
}

static bool add_assistant_block(translation *t, const char *where, const json_t *block)
{
    if (is_type(block, "redacted_thinking")) return true; /* nobody but its maker can read it */
    if (is_type(block, "tool_use")) {
        const json_t *name = json_object_get(block, "name");
        if (!json_is_string(name)) {
            return api_fail(t->error, 400, "messages", "%s: a tool_use without a name", where);
        }
        translation_call(t, json_object_get(block, "id"), name, json_object_get(block, "input"));
        return true;
    }
    const bool thinks = is_type(block, "thinking");
    const json_t *text = json_object_get(block, thinks ? "thinking" : "text");
    if ((!thinks && !is_type(block, "text")) || !json_is_string(text)) {
        return refuse_block(t, where, block);
    }
    if (thinks) {
        translation_add_thought(t, text);
    } else {
        translation_add_text(t, text);
    }
    return true;
}

static bool add_message(translation *t, const json_t *message, size_t i)
{
    char where[48];
    const json_t *content = json_object_get(message, "content");
    const char *role = text_of(message, "role");
    const bool user = strcmp(role, "user") == 0;
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    if (!user && strcmp(role, "assistant") != 0) {
        return api_fail(t->error, 400, "messages",
                        "%s.role: \"%.40s\" is neither user nor assistant", where, role);
    }
    const bool blocks = json_is_array(content);
    if (!user || !blocks) translation_open(t, role, false);
    if (!blocks) return add_texts(t, where, content);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *block = json_array_get(content, k);
        const bool ok =
            user ? add_user_block(t, where, block, k > 0) : add_assistant_block(t, where, block);
        if (!ok) return false;
    }
    return true;
}

static bool add_messages(translation *t)
{
    const json_t *messages = json_body_get(t->asked, "messages");
    const json_t *system = json_body_get(t->asked, "system");
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        return api_fail(t->error, 400, "messages", "messages: not an array of messages");
    }
    if (system != NULL) {
        translation_open(t, "system", false);
        if (!add_texts(t, "system", system)) return false;
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!add_message(t, json_array_get(messages, i), i)) return false;
    }
    return true;
}

/* ---- tools ---- */

static bool add_tools(translation *t)
{
    const json_t *given = json_body_get(t->asked, "tools");
    if (given == NULL) return true;
    if (!json_is_array(given)) return api_fail(t->error, 400, "tools", "tools: not an array");
    json_t *tools = json_array();
    translation_set(t, "tools", tools);
    for (size_t i = 0; i < json_array_size(given) && !t->failed; i++) {
        const json_t *tool = json_array_get(given, i), *name = json_object_get(tool, "name");
        const char *type = text_of(tool, "type");
        if (type[0] != 0 && strcmp(type, "custom") != 0) {
            return api_fail(
                t->error, 400, "tools",
                "tools[%zu].type: \"%.40s\": only the client's own functions are served", i, type);
        }
        if (!json_is_string(name)) {
            return api_fail(t->error, 400, "tools", "tools[%zu].name: not a text", i);
        }
        json_t *one = translation_function(tool, "input_schema");
        if (one == NULL || json_array_append_new(tools, one) != 0) t->failed = true;
    }
    return true;
}

static bool set_choice(translation *t)
{
    const json_t *choice = json_body_get(t->asked, "tool_choice");
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    bool alone = false;
    if (choice == NULL) return true;
    if (!json_body_flag(choice, "disable_parallel_tool_use", &alone, t->error)) return false;
    if (alone) translation_set(t, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!is_type(choice, words[i][0])) continue;
        translation_set(t, "tool_choice", json_string(words[i][1]));
        return true;
    }
    if (!is_type(choice, "tool")) {
        return api_fail(t->error, 400, "tool_choice",
                        "tool_choice.type: \"%.40s\" is none of auto, any, tool, none",
                        text_of(choice, "type"));
    }
    translation_set(t, "tool_choice",
                    json_pack("{s:s,s:{s:s}}", "type", "function", "function", "name",
                              text_of(choice, "name")));
    return true;
}

/* ---- the rest ---- */

static bool set_stops(translation *t)
{
    const json_t *stops = json_body_get(t->asked, "stop_sequences");
    if (stops == NULL) return true;
    bool ok = json_is_array(stops) && json_array_size(stops) <= 16;
    for (size_t i = 0; ok && i < json_array_size(stops); i++) {
        const size_t n = json_string_length(json_array_get(stops, i));
        ok = n > 0 && n <= 256;
    }
    if (!ok) {
        return api_fail(t->error, 400, "stop_sequences",
                        "stop_sequences: not at most 16 texts of 1 to 256 bytes");
    }
    translation_set(t, "stop", json_copy((json_t *)(uintptr_t)stops));
    return true;
}

static bool set_thinking(translation *t)
{
    const json_t *thinking = json_body_get(t->asked, "thinking");
    if (thinking == NULL || is_type(thinking, "adaptive")) return true;
    const bool on = is_type(thinking, "enabled");
    if (!on && !is_type(thinking, "disabled")) {
        return api_fail(t->error, 400, "thinking",
                        "thinking.type: \"%.40s\" is none of enabled, adaptive, disabled",
                        text_of(thinking, "type"));
    }
    translation_think(t, on);
    return true;
}

/* {"type":"json_schema","schema":...}, at one of two places. */
static bool set_format(translation *t)
{
    const json_t *format = json_body_get(t->asked, "output_format");
    if (format == NULL) {
        format = json_body_get(json_body_get(t->asked, "output_config"), "format");
    }
    if (format == NULL) return true;
    json_t *schema = json_object_get(format, "schema");
    if (!is_type(format, "json_schema") || !json_is_object(schema)) {
        return api_fail(t->error, 400, "output_format",
                        "output_format: not {\"type\":\"json_schema\",\"schema\":{...}}");
    }
    translation_set(
        t, "response_format",
        json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema));
    return true;
}

static bool set_length(translation *t, bool counts)
{
    json_t *max_tokens = json_object_get(t->asked, "max_tokens");
    if (counts) return true;
    if (!json_is_integer(max_tokens) || json_integer_value(max_tokens) < 1) {
        return api_fail(t->error, 400, "max_tokens", "max_tokens: not a whole number from 1 on");
    }
    translation_set(t, "max_tokens", json_incref(max_tokens));
    return true;
}

json_t *messages_translate(const json_t *asked, bool counts, api_error *error)
{
    translation t;
    const bool ok = translation_begin(&t, asked, error) && set_length(&t, counts) &&
                    translation_refuse(&t, "mcp_servers", "the server connects to no others") &&
                    translation_refuse(&t, "container", "there are no containers") &&
                    add_messages(&t) && add_tools(&t) && set_choice(&t) && set_stops(&t) &&
                    set_thinking(&t) && set_format(&t);
    return translation_end(&t, ok);
}
