/*
 * Turns with calls for templates that expect them as their own model writes them: one call in a
 * message, followed by its result, every parameter with a description.
 */

#include "request/request_input.h"

enum { ELEMENT_BYTES = 16 /* of an array */ };

/* The messages on their way into another array. */
typedef struct splitting {
    const exchange *ex; /* borrowed */
    json_t *messages;   /* borrowed */
    json_t *out;        /* owned */
    size_t i_next;
    api_error *error;
} splitting;

static bool add(splitting *s, json_t *message)
{
    if (!request_work(s->ex, 1, "messages", s->error) ||
        !request_hold(s->ex, ELEMENT_BYTES, "messages", s->error)) {
        return false;
    }
    return json_array_append(s->out, message) == 0 || api_fail(s->error, 503, NULL, "no memory");
}

/* A message with this call alone; the first one has the text and all else of the message. */
static bool add_call(splitting *s, const json_t *message, json_t *call, bool first)
{
    if (!request_hold(s->ex, 2 * JSON_CONTAINER_BYTES + 8 * JSON_MEMBER_BYTES, "messages",
                      s->error)) {
        return false;
    }
    json_t *one = first ? json_copy((json_t *)(uintptr_t)message)
                        : json_pack("{s:s,s:s}", "role", "assistant", "content", "");
    const bool made = one && json_object_set_new(one, "tool_calls", json_pack("[O]", call)) == 0;
    const bool ok = made ? add(s, one) : api_fail(s->error, 503, NULL, "no memory");
    json_decref(one);
    return ok;
}

/* Which of the results, those that were taken being null, is that of call k: the one with its id,
 * or, where there are no ids, the k-th. */
static size_t find_result(const json_t *results, const json_t *call, size_t k)
{
    const json_t *id = json_object_get(call, "id"), *result;
    size_t i;
    json_array_foreach(results, i, result)
    {
        const json_t *of = json_object_get(result, "tool_call_id");
        if (json_is_object(result) && (of && id ? json_equal(of, id) : i == k)) return i;
    }
    return json_array_size(results);
}

static bool add_calls(splitting *s, const json_t *message, const json_t *calls, json_t *results)
{
    json_t *call, *result;
    size_t k;
    json_array_foreach(calls, k, call)
    {
        if (!request_work(s->ex, json_array_size(results), "messages", s->error) ||
            !add_call(s, message, call, k == 0)) {
            return false;
        }
        const size_t i = find_result(results, call, k);
        if (i == json_array_size(results)) continue;
        if (!add(s, json_array_get(results, i))) return false;
        (void)json_array_set_new(results, i, json_null());
    }
    json_array_foreach(results, k, result)
    {
        if (json_is_object(result) && !add(s, result)) return false;
    }
    return true;
}

/* The results after a message with calls. */
static json_t *take_results(splitting *s)
{
    json_t *results = json_array(), *message;
    while ((message = json_array_get(s->messages, s->i_next)) &&
           json_text_is(json_object_get(message, "role"), "tool")) {
        const bool held = request_work(s->ex, 1, "messages", s->error) &&
                          request_hold(s->ex, ELEMENT_BYTES, "messages", s->error);
        if (held && json_array_append(results, message) == 0) {
            s->i_next++;
            continue;
        }
        if (held) (void)api_fail(s->error, 503, NULL, "no memory");
        json_decref(results);
        return NULL;
    }
    return results;
}

static bool split_next(splitting *s)
{
    json_t *message = json_array_get(s->messages, s->i_next++);
    const json_t *calls = json_object_get(message, "tool_calls");
    if (json_array_size(calls) < 2) return add(s, message);
    json_t *results = take_results(s);
    const bool ok = results && add_calls(s, message, calls, results);
    json_decref(results);
    return ok;
}

static bool has_several(const json_t *messages)
{
    const json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (json_array_size(json_object_get(message, "tool_calls")) > 1) return true;
    }
    return false;
}

bool tool_turns_split(const exchange *ex, json_t *messages, api_error *error)
{
    if (!has_several(messages)) return true;
    splitting s = {.ex = ex, .messages = messages, .out = json_array(), .error = error};
    bool ok = s.out || api_fail(error, 503, NULL, "no memory");
    while (ok && s.i_next < json_array_size(messages)) ok = split_next(&s);
    if (ok) {
        ok = (json_array_clear(messages) == 0 && json_array_extend(messages, s.out) == 0) ||
             api_fail(error, 503, NULL, "no memory");
    }
    json_decref(s.out);
    return ok;
}

/* ---- descriptions ---- */

bool tool_turns_describe(const exchange *ex, json_t *tools)
{
    json_t *tool, *property;
    const char *name;
    size_t i;
    bool any = false;
    json_array_foreach(tools, i, tool)
    {
        json_t *parameters = json_object_get(json_object_get(tool, "function"), "parameters");
        json_object_foreach(json_object_get(parameters, "properties"), name, property)
        {
            const bool lacks =
                json_is_object(property) && !json_object_get(property, "description");
            if (!lacks || !skv_budget_try(ex->budget, JSON_MEMBER_BYTES)) continue;
            any = json_object_set_new(property, "description", json_string("")) == 0 || any;
        }
    }
    return any;
}
