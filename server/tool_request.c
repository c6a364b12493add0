/* Tools in requests: see tool_request.h. */
#include "tool_request.h"

#include <stdlib.h>
#include <string.h>

#include "skv/reply.h"

/* ---- tools ---- */

static bool is_name(const char *name)
{
    const size_t n = name != NULL ? strlen(name) : 0;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-.";
    return n > 0 && n <= TOOL_NAME_MAX && strspn(name, letters) == n;
}

/* Templates look into these without asking whether they are there. */
static bool complete_function(const exchange *ex, json_t *function, api_error *error)
{
    const char *text = ex->server->template_text;
    bool ok = true;
    if (json_object_size(json_object_get(function, "parameters")) == 0) {
        json_t *none = json_pack("{s:s,s:{}}", "type", "object", "properties");
        ok = json_object_set_new(function, "parameters", none) == 0;
    }
    const bool reads = text != NULL && strstr(text, ".description") != NULL;
    if (ok && reads && json_body_get(function, "description") == NULL) {
        ok = json_object_set_new(function, "description", json_string("")) == 0;
    }
    return ok || api_fail(error, 503, NULL, "no memory");
}

static bool check_tool(const exchange *ex, json_t *tool, size_t i, api_error *error)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (type == NULL || strcmp(type, "function") != 0) {
        return api_fail(error, 400, "tools",
                        "tools[%zu].type: \"%.40s\": only functions are served", i,
                        type != NULL ? type : "");
    }
    json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!is_name(name)) {
        return api_fail(error, 400, "tools",
                        "tools[%zu].function.name: not 1 to %d letters, digits, _, - and .", i,
                        TOOL_NAME_MAX);
    }
    const json_t *parameters = json_body_get(function, "parameters");
    if (parameters != NULL && !json_is_object(parameters)) {
        return api_fail(error, 400, "tools", "tools[%zu].function.parameters: not an object", i);
    }
    return complete_function(ex, function, error);
}

static bool read_tools(const exchange *ex, const json_t *given, tool_request *out, api_error *error)
{
    out->n = json_array_size(given);
    if (out->n > TOOLS_MAX) {
        return api_fail(error, 400, "tools", "tools: %zu of them, at most %d", out->n, TOOLS_MAX);
    }
    out->tools = json_deep_copy(given);
    out->names = calloc(out->n, sizeof *out->names);
    if (out->tools == NULL || out->names == NULL) return api_fail(error, 503, NULL, "no memory");
    for (size_t i = 0; i < out->n; i++) {
        json_t *tool = json_array_get(out->tools, i);
        bool strict = false;
        if (!check_tool(ex, tool, i, error) ||
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

static bool read_named(const json_t *choice, tool_request *out, api_error *error)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (type == NULL || strcmp(type, "function") != 0 || name == NULL) {
        return api_fail(error, 400, "tool_choice",
                        "tool_choice: none of \"auto\", \"none\", \"required\" and "
                        "{\"type\":\"function\",\"function\":{\"name\":...}}");
    }
    out->choice = TOOL_CHOICE_NAMED;
    for (out->i_named = 0; out->i_named < out->n; out->i_named++) {
        if (strcmp(out->names[out->i_named], name) == 0) return true;
    }
    return api_fail(error, 400, "tool_choice", "tool_choice: \"%.64s\" is none of the tools", name);
}

static bool read_choice(const json_t *body, tool_request *out, api_error *error)
{
    static const struct {
        const char *name;
        tool_choice choice;
    } words[] = {
        {"auto", TOOL_CHOICE_AUTO}, {"none", TOOL_CHOICE_NONE}, {"required", TOOL_CHOICE_REQUIRED}};
    const json_t *choice = json_body_get(body, "tool_choice");
    if (choice == NULL) return true;
    for (size_t i = 0; json_is_string(choice) && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(json_string_value(choice), words[i].name) != 0) continue;
        out->choice = words[i].choice;
        if (out->choice != TOOL_CHOICE_REQUIRED || out->n > 0) return true;
        return api_fail(error, 400, "tool_choice", "tool_choice: \"required\", but no tools");
    }
    return read_named(choice, out, error);
}

bool tool_request_read(const exchange *ex, const json_t *body, tool_request *out, api_error *error)
{
    *out = (tool_request){.parallel = true};
    const json_t *tools = json_body_get(body, "tools");
    if (tools != NULL && !json_is_array(tools)) {
        return api_fail(error, 400, "tools", "tools: not an array");
    }
    const bool ok = (json_array_size(tools) == 0 || read_tools(ex, tools, out, error)) &&
                    read_choice(body, out, error) &&
                    json_body_flag(body, "parallel_tool_calls", &out->parallel, error);
    const bool wanted = out->n > 0 && out->choice != TOOL_CHOICE_NONE;
    if (ok && wanted && ex->server->reply_format.calls == SKV_CALLS_NONE) {
        (void)api_fail(error, 400, "tools",
                       "tools: the calls of this model's chat template are not known "
                       "(serve --tool-format NAME)");
    } else if (ok) {
        return true;
    }
    tool_request_release(out);
    return false;
}

void tool_request_release(tool_request *request)
{
    json_decref(request->tools);
    free(request->names);
    *request = (tool_request){.parallel = true};
}

bool tool_request_vars(const exchange *ex, const json_t *body, json_t *vars, api_error *error)
{
    tool_request request;
    if (!tool_request_read(ex, body, &request, error)) return false;
    bool ok = true;
    if (request.n > 0 && request.choice != TOOL_CHOICE_NONE) {
        /* That is for us, not for the model. */
        for (size_t i = 0; i < request.n; i++) {
            (void)json_object_del(json_object_get(json_array_get(request.tools, i), "function"),
                                  "strict");
        }
        ok = json_object_set(vars, "tools", request.tools) == 0 ||
             api_fail(error, 503, NULL, "no memory");
    }
    tool_request_release(&request);
    return ok;
}

/* ---- messages ---- */

/* Clients send the text that they got; templates write an object. What is no JSON stays a text. */
static bool tidy_call(json_t *call, size_t i, api_error *error)
{
    json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name"))) {
        return api_fail(error, 400, "messages",
                        "messages[%zu].tool_calls: one has no function.name", i);
    }
    if (arguments != NULL && !json_is_string(arguments)) return true;
    const char *text = arguments != NULL ? json_string_value(arguments) : "{}";
    const size_t n = arguments != NULL ? json_string_length(arguments) : 2;
    json_error_t problem;
    json_t *object = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (object == NULL) return true;
    return json_object_set_new(function, "arguments", object) == 0 ||
           api_fail(error, 503, NULL, "no memory");
}

static bool tidy_calls(json_t *message, size_t i, api_error *error)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (calls == NULL) return true;
    /* Templates ask whether the member is there. */
    if (json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0)) {
        (void)json_object_del(message, "tool_calls");
        return true;
    }
    if (!json_is_array(calls)) {
        return api_fail(error, 400, "messages", "messages[%zu].tool_calls: not an array", i);
    }
    for (size_t k = 0; k < json_array_size(calls); k++) {
        if (!tidy_call(json_array_get(calls, k), i, error)) return false;
    }
    return true;
}

bool tool_message_tidy(const exchange *ex, json_t *message, size_t i, api_error *error)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!tidy_calls(message, i, error)) return false;
    const bool developer = role != NULL && strcmp(role, "developer") == 0 &&
                           strstr(ex->server->template_text, "developer") == NULL;
    if (developer && json_object_set_new(message, "role", json_string("system")) != 0) {
        return api_fail(error, 503, NULL, "no memory");
    }
    const bool has_calls = json_object_get(message, "tool_calls") != NULL;
    if (!has_calls || json_body_get(message, "content") != NULL) return true;
    return json_object_set_new(message, "content", json_string("")) == 0 ||
           api_fail(error, 503, NULL, "no memory");
}

/* ---- grammars ---- */

bool tool_request_forces(const tool_request *request)
{
    return request->choice == TOOL_CHOICE_REQUIRED || request->choice == TOOL_CHOICE_NAMED;
}

bool tool_request_constrains(const tool_request *request)
{
    const bool may_call = request->n > 0 && request->choice != TOOL_CHOICE_NONE;
    return tool_request_forces(request) || (may_call && request->strict);
}

/* What a function's arguments have to follow: its schema where a call is demanded or the function
 * is strict. NULL: any object. */
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
        json_t *one = json_pack("{s:O,s:O*}", "name", json_object_get(function, "name"),
                                "parameters", schema_of(request, function));
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
    char *json = functions != NULL ? json_dumps(functions, JSON_COMPACT) : NULL;
    json_decref(functions);
    if (json == NULL) return api_fail(error, 503, NULL, "no memory");
    const skv_reply_rules rules = {.format = ex->server->reply_format,
                                   .in_thought = in_thought,
                                   .tools_json = json,
                                   .n_tools_json = strlen(json),
                                   .may_talk = !tool_request_forces(request),
                                   .max_calls = one ? 1 : SKV_REPLY_CALLS_MAX};
    skv_error err;
    const skv_status status = skv_reply_grammar(&rules, text, n, &err);
    free(json);
    return status == SKV_OK || api_fail_status(error, status, &err);
}
