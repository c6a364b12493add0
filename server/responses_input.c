/*
 * OpenAI's Responses: see responses_input.h. Input is a list of items; those that one turn of the
 * assistant is made of (reasoning, a message, calls) become one message.
 */
#include "responses_input.h"

#include <stdio.h>
#include <string.h>

#include "translate.h"

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
        return api_fail(t->error, 400, "input", "%s: neither a text nor parts", where);
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        bool known = false;
        for (size_t k = 0; k < 4; k++) known = known || json_body_is(part, types[k]);
        const json_t *text =
            json_object_get(part, json_body_is(part, "refusal") ? "refusal" : "text");
        if (!known || !json_is_string(text)) {
            return api_fail(t->error, 400, "input", "%s: a part of type \"%.40s\" is not served",
                            where, json_body_text(part, "type"));
        }
        translation_add_text(t, text);
    }
    return true;
}

static bool add_message(translation *t, const char *where, const json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = json_body_text(item, "role");
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) != 0) continue;
        translation_open(t, role, strcmp(role, "assistant") == 0);
        return add_texts(t, where, json_object_get(item, "content"));
    }
    return api_fail(t->error, 400, "input",
                    "%s.role: \"%.40s\" is none of user, assistant, system, developer", where,
                    role);
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
    return api_fail(t->error, 400, "input", "%s: an item of type \"%.40s\" is not served", where,
                    json_body_text(item, "type"));
}

static bool add_input(translation *t)
{
    const json_t *input = json_body_get(t->asked, "input");
    const json_t *instructions = json_body_get(t->asked, "instructions");
    if (instructions != NULL) {
        if (!json_is_string(instructions)) {
            return api_fail(t->error, 400, "instructions", "instructions: not a text");
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
                    json_body_text(tool, "type"));
}

static bool set_choice(translation *t)
{
    const json_t *choice = json_body_get(t->asked, "tool_choice");
    json_t *parallel = json_object_get(t->asked, "parallel_tool_calls");
    if (parallel != NULL) translation_set(t, "parallel_tool_calls", json_incref(parallel));
    if (choice == NULL) return true;
    if (json_is_string(choice)) {
        translation_set(t, "tool_choice", json_string(json_string_value(choice)));
        return true;
    }
    if (!json_body_is(choice, "function")) {
        return api_fail(t->error, 400, "tool_choice",
                        "tool_choice.type: \"%.40s\": only functions are served",
                        json_body_text(choice, "type"));
    }
    translation_choose(t, choice);
    return true;
}

/* ---- the rest ---- */

static bool set_format(translation *t)
{
    const json_t *text = json_body_get(t->asked, "text"), *format = json_body_get(text, "format");
    if (format == NULL) return true;
    const bool schemaless = json_body_is(format, "text") || json_body_is(format, "json_object");
    if (!schemaless && !json_body_is(format, "json_schema")) {
        return api_fail(t->error, 400, "text",
                        "text.format.type: \"%.40s\" is none of text, json_object, json_schema",
                        json_body_text(format, "type"));
    }
    if (schemaless) {
        translation_set(t, "response_format",
                        json_pack("{s:s}", "type", json_body_text(format, "type")));
        return true;
    }
    return translation_schema(t, format) ||
           api_fail(t->error, 400, "text", "text.format.schema: missing or no object");
}

static bool set_reasoning(translation *t)
{
    const json_t *reasoning = json_body_get(t->asked, "reasoning");
    const char *effort = json_body_text(reasoning, "effort");
    if (effort[0] != 0) translation_think(t, strcmp(effort, "none") != 0);
    return true;
}

static bool refuse(translation *t)
{
    static const char *const rows[][2] = {
        {"previous_response_id", "responses are not kept: send the items of earlier turns"},
        {"conversation", "conversations are not kept: send the items of earlier turns"},
        {"prompt", "there are no stored prompts"},
        {"background", "a response is made while the client waits"},
        {"top_logprobs", "log-probabilities are told by /v1/chat/completions"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!translation_refuse(t, rows[i][0], rows[i][1])) return false;
    }
    const char *truncation = json_body_text(t->asked, "truncation");
    if (truncation[0] == 0 || strcmp(truncation, "disabled") == 0) return true;
    return api_fail(t->error, 400, "truncation",
                    "truncation: \"%.40s\": nothing is cut silently, only \"disabled\" is served",
                    truncation);
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
