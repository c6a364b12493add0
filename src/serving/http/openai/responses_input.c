/*
 * OpenAI's Responses: see translate.h. Input is a list of items; those that one turn of the
 * assistant is made of (reasoning, a message, calls) become one message. A function in a namespace
 * is called NAMESPACE__NAME.
 */
#include <stdio.h>

#include "request/translate.h"
#include "tools/custom_input.h"

/* ---- items ---- */

static bool refuse_part(const translation *t, const char *where, const json_t *part)
{
    return api_fail(t->error, 400, "input",
                    "%s: parts of type \"%.40s\" are not supported, unless they are text in UTF-8",
                    where, json_show_member(part, "type").text);
}

static bool add_part(translation *t, const char *where, const json_t *part)
{
    static const char *const types[] = {"input_text", "output_text", "text", "refusal"};
    bool known = false;
    if (json_body_is(part, "input_file")) {
        return translation_file(t, json_object_get(part, "filename"),
                                json_object_get(part, "file_data")) ||
               refuse_part(t, where, part);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        known = known || json_body_is(part, types[i]);
    }
    const json_t *text = json_object_get(part, json_body_is(part, "refusal") ? "refusal" : "text");
    if (!known || !json_is_string(text)) return refuse_part(t, where, part);
    translation_add_text(t, text);
    return true;
}

/* A text, or parts of text, for the open message. */
static bool add_texts(translation *t, const char *where, const json_t *content)
{
    if (json_is_string(content)) {
        translation_add_text(t, content);
        return true;
    }
    if (!json_is_array(content)) {
        return api_fail(t->error, 400, "input", "%s: expected a string or an array of parts",
                        where);
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (!add_part(t, where, json_array_get(content, i))) return false;
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

/* NAMESPACE__NAME, to be released; NULL: no memory. */
static json_t *join_names(translation *t, const json_t *space, const json_t *name)
{
    const size_t n = json_string_length(space) + json_string_length(name);
    if (!translation_hold(t, 2 * n + JSON_MEMBER_BYTES)) return NULL;
    return json_sprintf("%s__%s", json_string_value(space), json_string_value(name));
}

/* The name of a function as the model has it, to be released; NULL: there is none. */
static json_t *full_name(translation *t, const json_t *item)
{
    json_t *name = json_object_get(item, "name"), *space = json_object_get(item, "namespace");
    if (!json_is_string(name)) return NULL;
    if (json_string_length(space) == 0) return json_incref(name);
    return join_names(t, space, name);
}

static bool add_call(translation *t, const char *where, const json_t *item)
{
    const bool custom = json_body_is(item, "custom_tool_call");
    json_t *name = full_name(t, item), *input = json_object_get(item, "input");
    if (!name || (custom && !json_is_string(input))) {
        json_decref(name);
        if (t->failed) return request_lacks(t->ex, "input", t->error);
        return api_fail(t->error, 400, "input", "%s: a %s without a name%s", where,
                        custom ? "custom_tool_call" : "function_call", custom ? " or input" : "");
    }
    if (custom) (void)translation_hold(t, JSON_CONTAINER_BYTES + JSON_MEMBER_BYTES);
    json_t *wrapped = custom ? json_pack("{s:O}", CUSTOM_INPUT_NAME, input) : NULL;
    t->failed = t->failed || (custom && !wrapped);
    translation_call(t, json_object_get(item, "call_id"), name,
                     custom ? wrapped : json_body_get(item, "arguments"));
    json_decref(wrapped);
    json_decref(name);
    return true;
}

/* A tool's result of any kind: a part that is no text is named as such. */
static bool add_result(translation *t, const char *where, const json_t *item)
{
    const json_t *output = json_object_get(item, "output"), *part;
    size_t i;
    translation_result(t, json_object_get(item, "call_id"));
    if (!json_is_array(output)) return add_texts(t, where, output);
    json_array_foreach(output, i, part)
    {
        const bool attached = json_body_is(part, "input_image") || json_body_is(part, "input_file");
        if (add_part(t, where, part)) continue;
        if (!attached || !translation_add_left_out(t, part)) return false;
    }
    return true;
}

/* The thoughts, if they are there to be read. */
static bool add_reasoning(translation *t, const char *where, const json_t *item)
{
    const json_t *content = json_body_get(item, "content");
    (void)where;
    if (json_array_size(content) > 0) translation_open(t, "assistant", true);
    for (size_t i = 0; i < json_array_size(content); i++) {
        translation_add_thought(t, json_object_get(json_array_get(content, i), "text"));
    }
    return true;
}

/* A provider's search: the texts that it found are in the messages around it. */
static bool skip_search(translation *t, const char *where, const json_t *item)
{
    (void)t;
    (void)where;
    (void)item;
    return true;
}

static bool refuse_reference(translation *t, const char *where, const json_t *item)
{
    return api_fail(t->error, 400, "input",
                    "%s: item_reference \"%.40s\": items are not kept: send the item itself", where,
                    json_show_member(item, "id").text);
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
                {"custom_tool_call", add_call},
                {"custom_tool_call_output", add_result},
                {"reasoning", add_reasoning},
                {"web_search_call", skip_search},
                {"item_reference", refuse_reference}};
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
            return api_refuse(t->error, "instructions", "expected a string");
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
        return api_refuse(t->error, "input", "neither a text nor an array of items");
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (!add_item(t, json_array_get(input, i), i)) return false;
    }
    if (json_array_size(t->messages) == 0) {
        return api_refuse(t->error, "input", "no item has a text for the model");
    }
    return true;
}

/* ---- tools ---- */

/* Tools that OpenAI runs, or knows the parameters of. */
static const char *const provider_tools[] = {
    "web_search", "file_search", "code_interpreter", "image_generation", "mcp",         "computer",
    "shell",      "local_shell", "apply_patch",      "tool_search",      "programmatic"};

/* {"type":"custom","custom":{...}}, as chats have it. */
static json_t *custom_of(const json_t *tool)
{
    return json_pack("{s:s,s:{s:O*,s:O*,s:O*}}", "type", "custom", "custom", "name",
                     json_object_get(tool, "name"), "description",
                     json_object_get(tool, "description"), "format",
                     json_object_get(tool, "format"));
}

/* A function or custom tool, by its own name or in a namespace. */
static bool add_function(translation *t, const json_t *tool, const json_t *space, size_t i)
{
    const bool custom = json_body_is(tool, "custom");
    if ((!custom && !json_body_is(tool, "function")) ||
        !json_is_string(json_object_get(tool, "name"))) {
        return api_fail(t->error, 400, "tools",
                        "tools[%zu].type: \"%.40s\": only functions and custom tools with a name "
                        "are served",
                        i, json_show_member(tool, "type").text);
    }
    json_t *one = custom ? custom_of(tool) : translation_function(tool, "parameters");
    if (one && space) {
        json_t *function = json_object_get(one, custom ? "custom" : "function");
        json_t *name = join_names(t, space, json_object_get(tool, "name"));
        t->failed = t->failed || json_object_set_new(function, "name", name) != 0 ||
                    json_object_set(one, "namespace", (json_t *)(uintptr_t)space) != 0;
    }
    translation_tool(t, one);
    return true;
}

static bool add_namespace(translation *t, const json_t *tool, size_t i)
{
    const json_t *name = json_object_get(tool, "name"), *inner = json_object_get(tool, "tools");
    if (json_string_length(name) == 0 || !json_is_array(inner)) {
        return api_fail(t->error, 400, "tools", "tools[%zu]: a namespace without a name or tools",
                        i);
    }
    for (size_t k = 0; k < json_array_size(inner) && !t->failed; k++) {
        if (!add_function(t, json_array_get(inner, k), name, i)) return false;
    }
    return true;
}

static bool add_tool(translation *t, const json_t *tool, size_t i)
{
    if (json_body_is(tool, "namespace")) return add_namespace(t, tool, i);
    return translation_leave_out(t, tool, provider_tools,
                                 sizeof provider_tools / sizeof provider_tools[0]) ||
           add_function(t, tool, NULL, i);
}

static json_t *choice_of(translation *t, const json_t *choice)
{
    json_t *name = full_name(t, choice);
    if (!name) name = json_string("");
    return json_pack("{s:s,s:{s:o}}", "type", "function", "function", "name", name);
}

/* Chats have {"type":"allowed_tools","allowed_tools":{...}}. Tools that were left out are left
 * out here too. */
static bool set_allowed(translation *t, const json_t *choice)
{
    const json_t *given = json_object_get(choice, "tools");
    json_t *mode = json_object_get(choice, "mode");
    json_t *tools = json_array();
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i);
        if (!translation_hold(t, 2 * JSON_CONTAINER_BYTES + 3 * JSON_MEMBER_BYTES)) break;
        if (translation_leave_out(t, one, provider_tools,
                                  sizeof provider_tools / sizeof provider_tools[0])) {
            continue;
        }
        if (json_array_append_new(tools, choice_of(t, one)) != 0) t->failed = true;
    }
    json_t *allowed = json_pack("{s:o,s:O*}", "tools", tools, "mode", mode);
    translation_set(t, "tool_choice",
                    json_pack("{s:s,s:o}", "type", "allowed_tools", "allowed_tools", allowed));
    return true;
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
    if (json_body_is(choice, "allowed_tools")) return set_allowed(t, choice);
    if (!json_body_is(choice, "function") && !json_body_is(choice, "custom")) {
        return api_fail(t->error, 400, "tool_choice",
                        "tool_choice.type: \"%.40s\": only functions and custom tools are served",
                        json_show_member(choice, "type").text);
    }
    translation_set(t, "tool_choice", choice_of(t, choice));
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
    return api_refuse(t->error, "truncation",
                      "\"%.40s\": nothing is cut silently, only \"disabled\" is served",
                      json_show(truncation).text);
}

json_t *responses_translate(exchange *ex, const json_t *asked, api_error *error)
{
    translation t;
    bool ok = translation_begin(&t, ex, asked, error);
    ok = ok && refuse(&t) && translation_length(&t, "max_output_tokens", false) && add_input(&t) &&
         translation_tools(&t, add_tool) && set_choice(&t) && set_format(&t) && set_reasoning(&t);
    return translation_end(&t, ok);
}
