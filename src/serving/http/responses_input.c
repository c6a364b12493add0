/*
 * OpenAI's Responses: see translate.h. Input is a list of items; those that one turn of the
 * assistant is made of (reasoning, a message, calls) become one message.
 */
#include "translate.h"

#include <stdio.h>

/* ---- items ---- */

/* A text, or parts of text, for the open message. */
static bool add_texts(translation *t, const char *where, const json_t *content)
{
    static const char *const types[] = {"input_text", "output_text", "text", "refusal"};
    if (json_is_string(content)) {
        translation_add_text(t, content);
        return true;
    }
    if (!json_is_array(content)) {
        return api_fail(t->error, 400, "input", "%s: expected a string or an array of parts",
                        where);
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        bool known = false;
        for (size_t k = 0; k < 4; k++) known = known || json_body_is(part, types[k]);
        const json_t *text =
            json_object_get(part, json_body_is(part, "refusal") ? "refusal" : "text");
        if (!known || !json_is_string(text)) {
            return api_fail(t->error, 400, "input", "%s: parts of type \"%.40s\" are not supported",
                            where, json_show_member(part, "type").text);
        }
        translation_add_text(t, text);
    }
    return true;
}

static bool add_message(translation *t, const char *where, const json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const json_t *role = json_object_get(item, "role");
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (!json_text_is(role, roles[i])) continue;
        translation_open(t, roles[i], json_text_is(role, "assistant"));
        return add_texts(t, where, json_object_get(item, "content"));
    }
    return api_fail(t->error, 400, "input",
                    "%s.role: \"%.40s\" is not user, assistant, system or developer", where,
                    json_show(role).text);
}

static bool add_call(translation *t, const char *where, const json_t *item)
{
    const json_t *name = json_object_get(item, "name");
    if (!json_is_string(name)) {
        return api_fail(t->error, 400, "input", "%s: a function_call without a name", where);
    }
    translation_call(t, json_object_get(item, "call_id"), name, json_body_get(item, "arguments"));
    return true;
}

static bool add_result(translation *t, const char *where, const json_t *item)
{
    translation_result(t, json_object_get(item, "call_id"));
    return add_texts(t, where, json_object_get(item, "output"));
}

/* What was thought, where it is there to be read. */
static bool add_reasoning(translation *t, const char *where, const json_t *item)
{
    const json_t *content = json_body_get(item, "content");
    (void)where;
    translation_open(t, "assistant", true);
    for (size_t i = 0; i < json_array_size(content); i++) {
        translation_add_thought(t, json_object_get(json_array_get(content, i), "text"));
    }
    return true;
}

static bool add_item(translation *t, const json_t *item, size_t i)
{
    static const struct {
        const char *type;
        bool (*add)(translation *t, const char *where, const json_t *item);
    } rows[] = {{"", add_message},
                {"message", add_message},
                {"function_call", add_call},
                {"function_call_output", add_result},
                {"reasoning", add_reasoning}};
    char where[48];
    (void)snprintf(where, sizeof where, "input[%zu]", i);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if (json_body_is(item, rows[k].type)) return rows[k].add(t, where, item);
    }
    return api_fail(t->error, 400, "input", "%s: items of type \"%.40s\" are not supported", where,
                    json_show_member(item, "type").text);
}

static bool add_input(translation *t)
{
    const json_t *input = json_body_get(t->asked, "input");
    const json_t *instructions = json_body_get(t->asked, "instructions");
    if (instructions) {
        if (!json_is_string(instructions)) {
            return api_fail(t->error, 400, "instructions", "instructions: expected a string");
        }
        translation_open(t, "system", false);
        translation_add_text(t, instructions);
    }
    if (json_is_string(input)) {
        translation_open(t, "user", false);
        translation_add_text(t, input);
        return true;
    }
    if (!json_is_array(input) || json_array_size(input) == 0) {
        return api_fail(t->error, 400, "input", "input: neither a text nor an array of items");
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (!add_item(t, json_array_get(input, i), i)) return false;
    }
    return true;
}

/* ---- tools ---- */

static bool check_tool(const translation *t, const json_t *tool, size_t i)
{
    if (json_body_is(tool, "function") && json_is_string(json_object_get(tool, "name")))
        return true;
    return api_fail(t->error, 400, "tools",
                    "tools[%zu].type: \"%.40s\": only functions with a name are served", i,
                    json_show_member(tool, "type").text);
}

static bool set_choice(translation *t)
{
    json_t *choice = json_object_get(t->asked, "tool_choice");
    json_t *parallel = json_object_get(t->asked, "parallel_tool_calls");
    if (parallel) translation_set(t, "parallel_tool_calls", json_incref(parallel));
    if (!choice || json_is_null(choice)) return true;
    if (json_is_string(choice)) {
        translation_set(t, "tool_choice", json_incref(choice));
        return true;
    }
    if (!json_body_is(choice, "function")) {
        return api_fail(t->error, 400, "tool_choice",
                        "tool_choice.type: \"%.40s\": only functions are served",
                        json_show_member(choice, "type").text);
    }
    translation_choose(t, choice);
    return true;
}

/* ---- the rest ---- */

static bool set_format(translation *t)
{
    const json_t *text = json_body_get(t->asked, "text"), *format = json_body_get(text, "format");
    if (!format) return true;
    const bool is_text = json_body_is(format, "text");
    const bool schemaless = is_text || json_body_is(format, "json_object");
    if (!schemaless && !json_body_is(format, "json_schema")) {
        return api_fail(t->error, 400, "text",
                        "text.format.type: \"%.40s\" is not text, json_object or json_schema",
                        json_show_member(format, "type").text);
    }
    if (schemaless) {
        translation_set(t, "response_format",
                        json_pack("{s:s}", "type", is_text ? "text" : "json_object"));
        return true;
    }
    return translation_schema(t, format) ||
           api_fail(t->error, 400, "text", "text.format.schema: missing or no object");
}

static bool set_reasoning(translation *t)
{
    const json_t *reasoning = json_body_get(t->asked, "reasoning");
    const json_t *effort = json_body_get(reasoning, "effort");
    if (!effort || json_text_is(effort, "")) return true;
    if (!json_text_whole(effort, "reasoning.effort", t->error)) return false;
    translation_set(t, "reasoning_effort", json_copy((json_t *)(uintptr_t)effort));
    return true;
}

static bool refuse(translation *t)
{
    static const char *const rows[][2] = {
        {"previous_response_id", "responses are not kept: send the items of earlier turns"},
        {"conversation", "conversations are not stored: send the items of earlier messages"},
        {"prompt", "there are no stored prompts"},
        {"background", "a response is made while the client waits"},
        {"top_logprobs", "log-probabilities are available from /v1/chat/completions"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!translation_refuse(t, rows[i][0], rows[i][1])) return false;
    }
    const json_t *truncation = json_body_get(t->asked, "truncation");
    if (!truncation || json_text_is(truncation, "disabled")) return true;
    return api_fail(t->error, 400, "truncation",
                    "truncation: \"%.40s\": nothing is cut silently, only \"disabled\" is served",
                    json_show(truncation).text);
}

json_t *responses_translate(const json_t *asked, api_error *error)
{
    translation t;
    const bool ok = translation_begin(&t, asked, error) && refuse(&t) &&
                    translation_length(&t, "max_output_tokens", false) && add_input(&t) &&
                    translation_tools(&t, "parameters", check_tool) && set_choice(&t) &&
                    set_format(&t) && set_reasoning(&t);
    return translation_end(&t, ok);
}
