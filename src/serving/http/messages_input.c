/*
 * Anthropic's Messages: see translate.h. Blocks of text become one text, calls and their
 * results what OpenAI calls tool_calls and tool messages.
 */
#include "translate.h"

#include <stdio.h>

/* ---- blocks ---- */

static bool refuse_block(const translation *t, const char *where, const json_t *block)
{
    return api_fail(t->error, 400, "messages", "%s: blocks of type \"%.40s\" are not supported",
                    where, json_show_member(block, "type").text);
}

/* Blocks of text, or a text, for the open message. */
static bool add_texts(translation *t, const char *where, const json_t *content)
{
    if (json_is_string(content)) {
        translation_add_text(t, content);
        return true;
    }
    if (!json_is_array(content)) {
        return api_fail(t->error, 400, "messages", "%s: expected a string or an array of blocks",
                        where);
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i), *text = json_object_get(block, "text");
        if (!json_body_is(block, "text") || !json_is_string(text))
            return refuse_block(t, where, block);
        translation_add_text(t, text);
    }
    return true;
}

/* A result is a message of its own; text behind it is a new one. */
static bool add_user_block(translation *t, const char *where, const json_t *block, bool joins)
{
    const json_t *text = json_object_get(block, "text"), *content = json_body_get(block, "content");
    if (json_body_is(block, "tool_result")) {
        translation_result(t, json_object_get(block, "tool_use_id"));
        return !content || add_texts(t, where, content);
    }
    if (!json_body_is(block, "text") || !json_is_string(text)) return refuse_block(t, where, block);
    translation_open(t, "user", joins);
    translation_add_text(t, text);
    return true;
}

static bool add_assistant_block(translation *t, const char *where, const json_t *block)
{
    if (json_body_is(block, "redacted_thinking"))
        return true; /* nobody but its maker can read it */
    if (json_body_is(block, "tool_use")) {
        const json_t *name = json_object_get(block, "name");
        if (!json_is_string(name)) {
            return api_fail(t->error, 400, "messages", "%s: a tool_use without a name", where);
        }
        translation_call(t, json_object_get(block, "id"), name, json_object_get(block, "input"));
        return true;
    }
    const bool thinks = json_body_is(block, "thinking");
    const json_t *text = json_object_get(block, thinks ? "thinking" : "text");
    if ((!thinks && !json_body_is(block, "text")) || !json_is_string(text)) {
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
    const json_t *role = json_object_get(message, "role");
    const bool user = json_text_is(role, "user");
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    if (!user && !json_text_is(role, "assistant")) {
        return api_fail(t->error, 400, "messages", "%s.role: \"%.40s\" is not user or assistant",
                        where, json_show(role).text);
    }
    const bool blocks = json_is_array(content);
    if (!user || !blocks) translation_open(t, user ? "user" : "assistant", false);
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
        return api_fail(t->error, 400, "messages", "messages: expected an array of messages");
    }
    if (system) {
        translation_open(t, "system", false);
        if (!add_texts(t, "system", system)) return false;
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!add_message(t, json_array_get(messages, i), i)) return false;
    }
    translation_continue(t);
    return true;
}

/* ---- tools ---- */

static bool check_tool(const translation *t, const json_t *tool, size_t i)
{
    if (!json_body_is(tool, "") && !json_body_is(tool, "custom")) {
        return api_fail(t->error, 400, "tools",
                        "tools[%zu].type: \"%.40s\": only the client's own functions are served", i,
                        json_show_member(tool, "type").text);
    }
    if (json_is_string(json_object_get(tool, "name"))) return true;
    return api_fail(t->error, 400, "tools", "tools[%zu].name: not a text", i);
}

static bool set_choice(translation *t)
{
    const json_t *choice = json_body_get(t->asked, "tool_choice");
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    bool alone = false;
    if (!choice) return true;
    if (!json_body_flag(choice, "disable_parallel_tool_use", &alone, t->error)) return false;
    if (alone) translation_set(t, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!json_body_is(choice, words[i][0])) continue;
        translation_set(t, "tool_choice", json_string(words[i][1]));
        return true;
    }
    if (!json_body_is(choice, "tool")) {
        return api_fail(t->error, 400, "tool_choice",
                        "tool_choice.type: \"%.40s\" is none of auto, any, tool, none",
                        json_show_member(choice, "type").text);
    }
    translation_choose(t, choice);
    return true;
}

/* ---- the rest ---- */

static bool set_stops(translation *t)
{
    const json_t *stops = json_body_get(t->asked, "stop_sequences");
    if (!stops) return true;
    bool ok = json_is_array(stops) && json_array_size(stops) <= PARAM_STOPS_MAX;
    for (size_t i = 0; ok && i < json_array_size(stops); i++) {
        const size_t n = json_string_length(json_array_get(stops, i));
        ok = n > 0 && n <= PARAM_STOP_BYTES;
    }
    if (!ok) {
        return api_fail(t->error, 400, "stop_sequences",
                        "stop_sequences: not at most %d texts of 1 to %d bytes", PARAM_STOPS_MAX,
                        PARAM_STOP_BYTES);
    }
    translation_set(t, "stop", json_copy((json_t *)(uintptr_t)stops));
    return true;
}

static bool set_thinking(translation *t)
{
    const json_t *thinking = json_body_get(t->asked, "thinking");
    if (!thinking || json_body_is(thinking, "adaptive")) return true;
    const bool on = json_body_is(thinking, "enabled");
    if (!on && !json_body_is(thinking, "disabled")) {
        return api_fail(t->error, 400, "thinking",
                        "thinking.type: \"%.40s\" is none of enabled, adaptive, disabled",
                        json_show_member(thinking, "type").text);
    }
    translation_think(t, on);
    return true;
}

/* {"type":"json_schema","schema":...}, at one of two places. */
static bool set_format(translation *t)
{
    const json_t *format = json_body_get(t->asked, "output_format");
    if (!format) {
        format = json_body_get(json_body_get(t->asked, "output_config"), "format");
    }
    if (!format) return true;
    if (json_body_is(format, "json_schema") && translation_schema(t, format)) return true;
    return api_fail(t->error, 400, "output_format",
                    "output_format: not {\"type\":\"json_schema\",\"schema\":{...}}");
}

json_t *messages_translate(const json_t *asked, bool counts, api_error *error)
{
    translation t;
    const bool ok = translation_begin(&t, asked, error) &&
                    (counts || translation_length(&t, "max_tokens", true)) &&
                    translation_refuse(&t, "mcp_servers", "the server connects to no others") &&
                    translation_refuse(&t, "container", "there are no containers") &&
                    add_messages(&t) && translation_tools(&t, "input_schema", check_tool) &&
                    set_choice(&t) && set_stops(&t) && set_thinking(&t) && set_format(&t);
    return translation_end(&t, ok);
}
