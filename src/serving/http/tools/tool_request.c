/* Tools in requests: see request_input.h. */
#include "request/request_input.h"
#include "tools/custom_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skv/reply.h"

enum { BYTES_A_UNIT = 8 /* of arguments, whose depth is counted */ };

/* ---- tools ---- */

static bool is_name(const json_t *value)
{
    const char *name = json_string_value(value);
    const size_t n = json_string_length(value);
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-.";
    return n > 0 && n <= TOOL_NAME_MAX && strspn(name, letters) == n;
}

/* Templates look into these without asking whether they are there. */
static bool complete_function(const exchange *ex, json_t *function, api_error *error)
{
    const char *text = ex->model->template_text;
    bool ok = true;
    if (json_object_size(json_object_get(function, "parameters")) == 0) {
        json_t *none = json_pack("{s:s,s:{}}", "type", "object", "properties");
        ok = json_object_set_new(function, "parameters", none) == 0;
    }
    const bool reads = text && strstr(text, ".description");
    if (ok && reads && !json_body_get(function, "description")) {
        ok = json_object_set_new(function, "description", json_string("")) == 0;
    }
    return ok || api_fail(error, 503, NULL, "no memory");
}

/* {"type":"grammar","grammar":{"syntax":...,"definition":...}}, or both in the format itself: a
 * regular expression becomes a pattern of the text's schema, any grammar a part of the description.
 */
static bool read_format(const exchange *ex, const json_t *format, size_t i, skv_buf *description,
                        json_t *text, api_error *error)
{
    const json_t *inner = json_body_get(format, "grammar"), *grammar = inner ? inner : format;
    const json_t *syntax = json_body_get(grammar, "syntax");
    const json_t *definition = json_body_get(grammar, "definition");
    if (!format || json_body_is(format, "text")) return true;
    const bool regex = json_text_is(syntax, "regex"), lark = json_text_is(syntax, "lark");
    if (!json_body_is(format, "grammar") || (!regex && !lark) || !json_is_string(definition)) {
        return api_fail(error, 400, "tools",
                        "tools[%zu].custom.format: neither text nor a grammar in lark or regex", i);
    }
    if (description->size > 0) skv_buf_text(description, "\n\n");
    skv_buf_printf(description, "The input follows this %s:\n",
                   regex ? "regular expression" : "grammar (lark)");
    const char *words = json_string_value(definition);
    const size_t n = json_string_length(definition);
    skv_buf_append(description, words, n);
    if (!regex) return true;
    skv_buf pattern = request_text(ex);
    skv_buf_text(&pattern, "^(?:");
    skv_buf_append(&pattern, words, n);
    skv_buf_text(&pattern, ")$");
    json_t *value = json_of_text(ex, &pattern, "tools", error);
    const bool ok = value && json_put_new(text, "pattern", value, error);
    skv_buf_release(&pattern);
    return ok;
}

/* A custom tool is a function with one text, in which a grammar holds every call of it. */
static bool make_function(const exchange *ex, json_t *tool, size_t i, api_error *error)
{
    const json_t *custom = json_object_get(tool, "custom");
    const json_t *words = json_body_get(custom, "description");
    if (words && !json_is_string(words)) {
        return api_fail(error, 400, "tools", "tools[%zu].custom.description: not a text", i);
    }
    skv_buf description = request_text(ex);
    if (words) skv_buf_append(&description, json_string_value(words), json_string_length(words));
    json_t *text = json_pack("{s:s}", "type", "string");
    bool ok = read_format(ex, json_body_get(custom, "format"), i, &description, text, error);
    json_t *told = ok ? json_of_text(ex, &description, "tools", error) : NULL;
    ok = told;
    if (ok) {
        json_t *function = json_pack(
            "{s:O*,s:O,s:b,s:{s:s,s:{s:O},s:[s],s:b}}", "name", json_object_get(custom, "name"),
            "description", told, "strict", true, "parameters", "type", "object", "properties",
            CUSTOM_INPUT_NAME, text, "required", CUSTOM_INPUT_NAME, "additionalProperties", false);
        ok = (function && json_object_set(tool, "function", function) == 0 &&
              json_object_set_new(tool, "type", json_string("function")) == 0) ||
             api_fail(error, 503, NULL, "no memory");
        json_decref(function);
        (void)json_object_del(tool, "custom");
    }
    json_decref(told);
    json_decref(text);
    skv_buf_release(&description);
    return ok;
}

static bool check_tool(const exchange *ex, json_t *tool, size_t i, api_error *error)
{
    if (!json_body_is(tool, "function")) {
        return api_fail(error, 400, "tools",
                        "tools[%zu].type: \"%.40s\": only functions and custom tools are served", i,
                        json_show_member(tool, "type").text);
    }
    json_t *function = json_object_get(tool, "function");
    if (!is_name(json_object_get(function, "name"))) {
        return api_fail(error, 400, "tools",
                        "tools[%zu].function.name: \"%s\" is not 1 to %d letters, digits, _, - "
                        "and .",
                        i, json_show_member(function, "name").text, TOOL_NAME_MAX);
    }
    const json_t *parameters = json_body_get(function, "parameters");
    if (parameters && !json_is_object(parameters)) {
        return api_fail(error, 400, "tools", "tools[%zu].function.parameters: not an object", i);
    }
    const json_t *description = json_body_get(function, "description");
    if (description && !json_is_string(description)) {
        return api_fail(error, 400, "tools", "tools[%zu].function.description: not a text", i);
    }
    return complete_function(ex, function, error);
}

/* A tool whose function may be changed, at the end of `tools`; its contents are shared. */
static json_t *copy_tool(const exchange *ex, json_t *given, json_t *tools, tool_origin *origin,
                         api_error *error)
{
    json_t *tool = json_copy_within(ex, given, "tools", error);
    if (!tool) return NULL;
    const size_t i = json_array_size(tools);
    const bool added = json_array_append_new(tools, tool) == 0;
    origin->custom =
        json_body_is(tool, "custom") && json_is_object(json_object_get(tool, "custom"));
    origin->n_namespace = json_string_length(json_object_get(tool, "namespace"));
    (void)json_object_del(tool, "namespace");
    if (added && origin->custom && !make_function(ex, tool, i, error)) return NULL;
    json_t *function = json_object_get(tool, "function");
    if (added && !json_is_object(function)) return tool;
    function = added ? json_copy_within(ex, function, "tools", error) : NULL;
    if (!function) return NULL;
    if (json_object_set_new(tool, "function", function) == 0) return tool;
    (void)api_fail(error, 503, NULL, "no memory");
    return NULL;
}

static bool read_tools(const exchange *ex, const json_t *given, tool_request *out, api_error *error)
{
    out->n = json_array_size(given);
    if (out->n > TOOLS_MAX) {
        return api_refuse(error, "tools", "%zu of them, at most %d", out->n, TOOLS_MAX);
    }
    out->tools = json_array();
    out->names = calloc(out->n, sizeof *out->names);
    out->origins = calloc(out->n, sizeof *out->origins);
    if (!out->tools || !out->names || !out->origins) {
        return api_fail(error, 503, NULL, "no memory");
    }
    for (size_t i = 0; i < out->n; i++) {
        bool strict = false;
        json_t *tool = copy_tool(ex, json_array_get(given, i), out->tools, &out->origins[i], error);
        if (!tool || !check_tool(ex, tool, i, error) ||
            !json_body_flag(json_object_get(tool, "function"), "strict", &strict, error)) {
            return false;
        }
        out->strict = out->strict || strict;
        out->names[i] =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(out->names[i], out->names[j]) != 0) continue;
            return api_fail(error, 400, "tools", "tools[%zu]: \"%s\" is there twice", i,
                            out->names[i]);
        }
    }
    return true;
}

/* ---- tool_choice ---- */

/* The name in {"type":"function","function":{"name":...}} and the same with "custom". */
static const json_t *chosen_name(const json_t *choice)
{
    static const char *const types[] = {"function", "custom"};
    for (size_t i = 0; i < 2; i++) {
        if (!json_body_is(choice, types[i])) continue;
        return json_object_get(json_object_get(choice, types[i]), "name");
    }
    return NULL;
}

static bool read_named(const json_t *choice, tool_request *out, api_error *error)
{
    const json_t *name = chosen_name(choice);
    if (!json_is_string(name)) {
        return api_refuse(error, "tool_choice",
                          "none of \"auto\", \"none\", \"required\" and "
                          "{\"type\":\"function\",\"function\":{\"name\":...}}");
    }
    out->choice = TOOL_CHOICE_NAMED;
    for (out->i_named = 0; out->i_named < out->n; out->i_named++) {
        if (json_text_is(name, out->names[out->i_named])) return true;
    }
    return api_refuse(error, "tool_choice", "\"%s\" is none of the tools", json_show(name).text);
}

/* {"type":"allowed_tools","allowed_tools":{"mode":...,"tools":[...]}}: the mode, and of the tools
 * those that are named. */
static bool read_allowed(const json_t *choice, tool_request *out, const json_t **mode,
                         api_error *error)
{
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    const json_t *wanted = json_object_get(allowed, "tools");
    *mode = json_object_get(allowed, "mode");
    if (!json_is_array(wanted) || json_array_size(wanted) == 0 ||
        json_array_size(wanted) > TOOLS_MAX) {
        return api_refuse(error, "tool_choice",
                          "allowed_tools.tools is not an array of 1 to %d tools", TOOLS_MAX);
    }
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++) {
        bool keeps = false;
        for (size_t k = 0; !keeps && k < json_array_size(wanted); k++) {
            keeps = json_text_is(chosen_name(json_array_get(wanted, k)), out->names[i]);
        }
        if (keeps) {
            out->names[n] = out->names[i];
            out->origins[n] = out->origins[i];
            if (json_array_set(out->tools, n++, json_array_get(out->tools, i)) != 0) {
                return api_fail(error, 503, NULL, "no memory");
            }
        }
    }
    json_array_cut(out->tools, n);
    out->n = n;
    out->strict = false;
    for (size_t i = 0; i < n; i++) {
        const json_t *function = json_object_get(json_array_get(out->tools, i), "function");
        out->strict = out->strict || json_is_true(json_object_get(function, "strict"));
    }
    if (n == json_array_size(wanted)) return true;
    return api_refuse(error, "tool_choice",
                      "allowed_tools.tools: %zu named, of which %zu are among the tools",
                      json_array_size(wanted), n);
}

static bool read_choice(const json_t *body, tool_request *out, api_error *error)
{
    static const struct {
        const char *name;
        tool_choice choice;
    } words[] = {
        {"auto", TOOL_CHOICE_AUTO}, {"none", TOOL_CHOICE_NONE}, {"required", TOOL_CHOICE_REQUIRED}};
    const json_t *choice = json_body_get(body, "tool_choice");
    if (!choice) return true;
    if (json_body_is(choice, "allowed_tools") && !read_allowed(choice, out, &choice, error)) {
        return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!json_text_is(choice, words[i].name)) continue;
        out->choice = words[i].choice;
        if (out->choice != TOOL_CHOICE_REQUIRED || out->n > 0) return true;
        return api_refuse(error, "tool_choice", "\"required\", but no tools");
    }
    return read_named(choice, out, error);
}

bool tool_request_read(const exchange *ex, const json_t *body, tool_request *out, api_error *error)
{
    *out = (tool_request){.parallel = true};
    const json_t *tools = json_body_get(body, "tools");
    if (tools && !json_is_array(tools)) return api_refuse(error, "tools", "not an array");
    const bool ok = (json_array_size(tools) == 0 || read_tools(ex, tools, out, error)) &&
                    read_choice(body, out, error) &&
                    json_body_flag(body, "parallel_tool_calls", &out->parallel, error);
    const bool wanted = out->n > 0 && out->choice != TOOL_CHOICE_NONE;
    if (ok && wanted && ex->model->reply_format.calls == SKV_CALLS_NONE) {
        (void)api_refuse(
            error, "tools",
            "the calls of this model's chat template are not known (serve --tool-format NAME)");
    } else if (ok) {
        return true;
    }
    tool_request_release(out);
    return false;
}

void tool_request_release(tool_request *request)
{
    json_decref(request->tools);
    json_decref(request->types);
    free(request->names);
    free(request->origins);
    *request = (tool_request){.parallel = true};
}

const tool_origin *tool_request_origin(const tool_request *request, const char *name, size_t n)
{
    for (size_t i = 0; i < request->n; i++) {
        if (strlen(request->names[i]) == n && memcmp(request->names[i], name, n) == 0) {
            return &request->origins[i];
        }
    }
    return NULL;
}

/* Gives tools and their schemas one order, where the operator wants that. Names are no longer
 * those of the request then. */
static bool sort_tools(const exchange *ex, tool_request *request, api_error *error)
{
    if (!ex->server->options.prompt_sort_tools || request->n == 0) return true;
    const size_t n_bytes = request->n * (sizeof(json_t *) + JSON_MEMBER_BYTES);
    if (!request_hold(ex, n_bytes, "tools", error)) return false;
    json_t *ordered = prompt_order_tools(request->tools);
    json_t *sorted = ordered ? json_sorted_copy(ex, ordered, "tools", error) : NULL;
    if (!ordered) (void)api_fail(error, 503, NULL, "no memory");
    json_decref(ordered);
    if (!sorted) return false;
    json_decref(request->tools);
    request->tools = sorted;
    ex->changes->sorted = true;
    return true;
}

bool tool_request_vars(const exchange *ex, const json_t *body, json_t *vars, api_error *error)
{
    tool_request request;
    if (!tool_request_read(ex, body, &request, error)) return false;
    bool ok = sort_tools(ex, &request, error);
    if (ok && request.n > 0 && request.choice != TOOL_CHOICE_NONE) {
        /* That is for us, not for the model. */
        for (size_t i = 0; i < request.n; i++) {
            (void)json_object_del(json_object_get(json_array_get(request.tools, i), "function"),
                                  "strict");
        }
        ok = ex->model->generic_tools || json_object_set(vars, "tools", request.tools) == 0 ||
             api_fail(error, 503, NULL, "no memory");
    }
    if (ok && ex->model->generic_tools) {
        const bool any = request.choice != TOOL_CHOICE_NONE;
        ok = tool_generic_render(ex, any ? request.tools : NULL, json_object_get(vars, "messages"),
                                 error);
    }
    if (ok && !ex->model->generic_tools) {
        ok = tool_generic_history(ex, json_object_get(vars, "messages"), error);
    }
    /* Firefunction's templates want the tools as a text. */
    if (ok && strstr(ex->model->template_text, "+ functions")) {
        size_t n = 0;
        const json_t *tools = json_object_get(vars, "tools");
        char *text = tools ? json_text_write(ex, tools, "tools", &n, error) : NULL;
        ok = (!tools || (text && request_hold(ex, n, "tools", error))) &&
             json_put_new(vars, "functions", json_stringn(text ? text : "", n), error);
        json_text_free(ex, text, n);
    }
    tool_request_release(&request);
    return ok;
}

/* ---- messages ---- */

/* {"type":"custom","custom":{"name":...,"input":...}} as the call that the model wrote. */
static bool tidy_custom(const exchange *ex, json_t *call, api_error *error)
{
    const json_t *custom = json_object_get(call, "custom");
    json_t *name = json_object_get(custom, "name"), *input = json_object_get(custom, "input");
    if (!json_body_is(call, "custom") || !json_is_string(input)) return true;
    if (!request_hold(ex, 2 * JSON_CONTAINER_BYTES + 5 * JSON_MEMBER_BYTES, "messages", error)) {
        return false;
    }
    json_t *function =
        json_pack("{s:O*,s:{s:O}}", "name", name, "arguments", CUSTOM_INPUT_NAME, input);
    const bool ok = function && json_object_set(call, "function", function) == 0 &&
                    json_object_set_new(call, "type", json_string("function")) == 0;
    json_decref(function);
    (void)json_object_del(call, "custom");
    return ok || api_fail(error, 503, NULL, "no memory");
}

/* Reads a text as JSON; *out stays NULL where it is no object. False: it exceeds a limit. */
static bool read_object(const exchange *ex, const json_place *place, json_t **out, api_error *error)
{
    json_error_t problem;
    json_t *value = NULL;
    const json_reading reading = json_text_read(ex, place, &value, &problem, error);
    if (json_is_object(value)) {
        *out = value;
    } else {
        json_decref(value);
    }
    return reading != JSON_READ_REFUSED;
}

/* The text of arguments as an object: an object, also one that was cut off; {} for an empty
 * text. *out stays NULL if it is none, or nests deeper than any call that was answered. False:
 * it exceeds a limit. */
static bool read_arguments(const exchange *ex, json_place *place, json_t **out, api_error *error)
{
    const char *text = place->text.text;
    size_t n = place->text.n, begin = 0;
    while (begin < n && strchr(" \t\r\n", text[begin]) && text[begin] != 0) begin++;
    const bool none = begin == n || (n - begin == 4 && memcmp(text + begin, "null", 4) == 0);
    if (none) place->text = (skv_text_piece){"{}", 2};
    if (!request_work(ex, n / BYTES_A_UNIT, "messages", error)) return false;
    if (skv_reply_is_deep(text, n)) return true;
    if (!read_object(ex, place, out, error)) return false;
    char *closed = NULL;
    if (*out || !skv_budget_work(ex->budget, n) ||
        skv_reply_close_object(text, n, &closed, &place->text.n, NULL) != SKV_OK) {
        return true;
    }
    place->text.text = closed;
    const bool ok = read_object(ex, place, out, error);
    skv_text_free(closed);
    return ok;
}

/* Ids are texts where templates add them to others. */
static bool tidy_id(json_t *object, const char *name, api_error *error)
{
    const json_t *id = json_object_get(object, name);
    if (!id || json_is_string(id)) return true;
    const bool ok = json_is_null(id)
                        ? json_object_del(object, name) == 0
                        : json_object_set_new(object, name, json_string(json_show(id).text)) == 0;
    return ok || api_fail(error, 503, NULL, "no memory");
}

/* Clients send the text that they got; templates write an object. Whatever else the arguments are
 * is the text of one argument. */
static bool tidy_call(const exchange *ex, json_t *call, size_t i, size_t k, api_error *error)
{
    if (!tidy_custom(ex, call, error) || !tidy_id(call, "id", error)) return false;
    json_t *function = json_object_get(call, "function");
    json_t *arguments = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name"))) {
        return api_fail(error, 400, "messages",
                        "messages[%zu].tool_calls: one has no function.name", i);
    }
    if (json_is_object(arguments)) return true;
    char name[80];
    (void)snprintf(name, sizeof name, "messages[%zu].tool_calls[%zu].function.arguments", i, k);
    json_place place = {.name = name, .param = "messages", .text = {"", 0}};
    if (json_is_string(arguments)) {
        place.text = (skv_text_piece){json_string_value(arguments), json_string_length(arguments)};
    }
    const bool reads = !arguments || json_is_string(arguments) || json_is_null(arguments);
    json_t *object = NULL;
    if (reads && !read_arguments(ex, &place, &object, error)) return false;
    if (!object) object = json_pack("{s:O}", CUSTOM_INPUT_NAME, arguments);
    return json_put_new(function, "arguments", object, error);
}

static bool tidy_calls(const exchange *ex, json_t *message, size_t i, api_error *error)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) return true;
    /* Templates ask whether the member is there. */
    if (json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0)) {
        (void)json_object_del(message, "tool_calls");
        return true;
    }
    if (!json_is_array(calls)) {
        return api_fail(error, 400, "messages", "messages[%zu].tool_calls: expected an array", i);
    }
    for (size_t k = 0; k < json_array_size(calls); k++) {
        if (!tidy_call(ex, json_array_get(calls, k), i, k, error)) return false;
    }
    return true;
}

bool tool_message_tidy(const exchange *ex, json_t *message, size_t i, api_error *error)
{
    if (!tidy_calls(ex, message, i, error) || !tidy_id(message, "tool_call_id", error))
        return false;
    const bool developer =
        !ex->model->knows_developer && json_text_is(json_object_get(message, "role"), "developer");
    if (developer && json_object_set_new(message, "role", json_string("system")) != 0) {
        return api_fail(error, 503, NULL, "no memory");
    }
    /* Templates expect a text, also where there is none. */
    if (json_body_get(message, "content")) return true;
    if (!request_hold(ex, JSON_MEMBER_BYTES, "messages", error)) return false;
    return json_put_new(message, "content", json_string(""), error);
}

/* ---- grammars ---- */

bool tool_request_forces(const tool_request *request)
{
    return request->choice == TOOL_CHOICE_REQUIRED || request->choice == TOOL_CHOICE_NAMED;
}

bool tool_request_constrains(const exchange *ex, const tool_request *request)
{
    const bool may_call = request->n > 0 && request->choice != TOOL_CHOICE_NONE;
    const bool untrained = ex->model->generic_tools && !ex->model->special_marks;
    return tool_request_forces(request) || (may_call && (request->strict || untrained));
}

/* The types of a function's parameters by their names. */
static bool add_types(const exchange *ex, const json_t *schema, json_t *types, api_error *error)
{
    const char *name;
    json_t *property;
    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        if (!request_hold(ex, JSON_MEMBER_BYTES, "tools", error)) return false;
        const unsigned some = skv_reply_schema_types(schema, property, ex->budget);
        if (!request_work(ex, 1, "tools", error)) return false;
        if (json_object_setn_new(types, name, strlen(name), json_integer(some)) != 0) {
            return api_fail(error, 503, NULL, "no memory");
        }
    }
    return true;
}

bool tool_request_read_types(const exchange *ex, tool_request *out, api_error *error)
{
    const bool wanted = out->n > 0 && out->choice != TOOL_CHOICE_NONE;
    if (!wanted || !skv_call_syntax_lacks_types(ex->model->reply_format.calls)) return true;
    if (!request_hold(ex, (out->n + 1) * JSON_CONTAINER_BYTES, "tools", error)) return false;
    out->types = json_array();
    for (size_t i = 0; i < out->n; i++) {
        const json_t *function = json_object_get(json_array_get(out->tools, i), "function");
        json_t *types = json_object();
        if (!types || json_array_append_new(out->types, types) != 0) {
            return api_fail(error, 503, NULL, "no memory");
        }
        if (!add_types(ex, json_object_get(function, "parameters"), types, error)) return false;
    }
    return true;
}

unsigned tool_request_types(const void *functions, const char *function, size_t n_function,
                            const char *parameter, size_t n_parameter)
{
    const tool_request *request = functions;
    for (size_t i = 0; i < request->n; i++) {
        const char *name = request->names[i];
        if (strlen(name) != n_function || memcmp(name, function, n_function) != 0) continue;
        return (unsigned)json_integer_value(
            json_object_getn(json_array_get(request->types, i), parameter, n_parameter));
    }
    return 0;
}

/* The schema of a function's arguments: its own if a call is demanded or the function is strict.
 * NULL: any object. */
static json_t *schema_of(const tool_request *request, const json_t *function)
{
    const bool follows =
        tool_request_forces(request) || json_is_true(json_object_get(function, "strict"));
    return follows ? json_object_get(function, "parameters") : NULL;
}

static json_t *list_functions(const tool_request *request)
{
    json_t *functions = json_array();
    const bool named = request->choice == TOOL_CHOICE_NAMED;
    for (size_t i = 0; i < request->n; i++) {
        if (named && i != request->i_named) continue;
        const json_t *function = json_object_get(json_array_get(request->tools, i), "function");
        const bool strict = json_is_true(json_object_get(function, "strict"));
        json_t *one = json_pack("{s:O,s:b,s:O*}", "name", json_object_get(function, "name"),
                                "loose", !strict, "parameters", schema_of(request, function));
        if (json_array_append_new(functions, one) == 0) continue;
        json_decref(functions);
        return NULL;
    }
    return functions;
}

bool tool_request_grammar(const exchange *ex, const tool_request *request, bool in_thought,
                          char **text, size_t *n, api_error *error)
{
    const bool one = request->choice == TOOL_CHOICE_NAMED || !request->parallel;
    json_t *functions = list_functions(request);
    if (!functions) return api_fail(error, 503, NULL, "no memory");
    size_t n_json = 0;
    char *json = json_text_write(ex, functions, "tools", &n_json, error);
    json_decref(functions);
    if (!json) return false;
    const skv_reply_rules rules = {.format = ex->model->reply_format,
                                   .in_thought = in_thought,
                                   .tools_json = json,
                                   .n_tools_json = n_json,
                                   .may_talk = !tool_request_forces(request),
                                   .special = (const char *const *)ex->model->special,
                                   .n_special = ex->model->n_special,
                                   .max_calls = one ? 1 : SKV_REPLY_CALLS_MAX,
                                   .budget = ex->budget};
    skv_error err;
    const skv_status status = skv_reply_grammar(&rules, text, n, &err);
    json_text_free(ex, json, n_json);
    return status == SKV_OK || exchange_fail(ex, status, &err, "tools", error);
}
