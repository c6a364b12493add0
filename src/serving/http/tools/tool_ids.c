/*
 * Ids of calls for chat templates that take nine letters and digits only (Mistral's). Every other
 * id becomes nine of them: the same ones for a call and its result, in this request and in all that
 * follow. Where a client sends no ids (Ollama's), results belong to the calls in front of them in
 * their order.
 */
#include <stdio.h>
#include <string.h>

#include "request/request_input.h"

enum { SHORT_ID = 9, LETTERS = 62, ID_BYTES = JSON_MEMBER_BYTES };

static const char letters[LETTERS + 1] =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static bool is_short(const char *id, size_t n)
{
    size_t k = 0;
    while (k < n && id[k] != 0 && strchr(letters, id[k])) k++;
    return n == SHORT_ID && k == n;
}

/* FNV-1a, its bits mixed once more (the end of MurmurHash3): ids often differ in the last byte
 * alone. */
static uint64_t hash_of(const char *text, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 33;
}

static json_t *short_id(const char *text, size_t n)
{
    char id[SHORT_ID];
    if (is_short(text, n)) return json_stringn(text, n);
    uint64_t hash = hash_of(text, n);
    for (size_t i = 0; i < SHORT_ID; i++, hash /= LETTERS) id[i] = letters[hash % LETTERS];
    return json_stringn(id, SHORT_ID);
}

/* Of an id, or, where there is none, of a place in the conversation. */
static json_t *shorten(const json_t *id, size_t i, size_t k)
{
    char place[64];
    if (json_string_length(id) > 0) {
        return short_id(json_string_value(id), json_string_length(id));
    }
    const int n = snprintf(place, sizeof place, "%zu/%zu", i, k);
    return short_id(place, n > 0 ? (size_t)n : 0);
}

/* The ids of a message's calls. */
static bool shorten_calls(const exchange *ex, json_t *calls, size_t i, api_error *error)
{
    const size_t n = json_array_size(calls);
    json_t *call;
    size_t k;
    bool ok = true;
    if (!request_work(ex, n, "messages", error) ||
        !request_hold(ex, n * ID_BYTES, "messages", error)) {
        return false;
    }
    json_array_foreach(calls, k, call)
    {
        json_t *id = shorten(json_object_get(call, "id"), i, k);
        ok = json_object_set_new(call, "id", id) == 0 && ok;
    }
    return ok || api_fail(error, 503, NULL, "no memory");
}

bool tool_ids_shorten(const exchange *ex, json_t *messages, api_error *error)
{
    json_t *message, *calls = NULL;
    size_t i, i_result = 0;
    json_array_foreach(messages, i, message)
    {
        if (json_object_get(message, "tool_calls")) {
            calls = json_object_get(message, "tool_calls");
            i_result = 0;
            if (!shorten_calls(ex, calls, i, error)) return false;
        }
        if (!json_text_is(json_object_get(message, "role"), "tool")) continue;
        if (!request_work(ex, 1, "messages", error) ||
            !request_hold(ex, ID_BYTES, "messages", error)) {
            return false;
        }
        const json_t *given = json_object_get(message, "tool_call_id");
        json_t *of_call = json_object_get(json_array_get(calls, i_result++), "id");
        json_t *id =
            json_string_length(given) == 0 && of_call ? json_incref(of_call) : shorten(given, i, 0);
        if (json_object_set_new(message, "tool_call_id", id) != 0) {
            return api_fail(error, 503, NULL, "no memory");
        }
    }
    return true;
}
