/* JSON of requests: see json_body.h. */
#include "json_body.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEPTH_MAX = 64,
    VALUES_MAX = 1 << 20,
    WORD_BYTES_MIN = 64,
    PATIENCE_MS = 1000, /* for memory that others are about to give back */
    NAP_MS = 5
};

/* ---- memory ----
 *
 * jansson reads a text or a number into a buffer that it doubles, and does not look whether that
 * worked: without memory it writes beyond the end. So what the longest one takes is asked for
 * before it reads, and where others took it meanwhile it waits for them.
 */

static void *allocate_patiently(size_t n)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    void *block = malloc(n);
    for (int i = 0; block == NULL && i < PATIENCE_MS / NAP_MS; i++) {
        (void)nanosleep(&nap, NULL);
        block = malloc(n);
    }
    return block;
}

void json_body_start(void)
{
    json_set_alloc_funcs(allocate_patiently, free);
}

static bool has_room(size_t n_word)
{
    void *block = malloc(4 * (n_word + WORD_BYTES_MIN));
    free(block);
    return block != NULL;
}

/* ---- reading ---- */

/* Depth and number of values, before the parser takes memory for them; *n_word: the bytes of the
 * longest text or number. */
static bool check_shape(const exchange *ex, size_t *n_word, api_error *error)
{
    size_t depth = 0, n_values = 0, i_word = 0;
    bool in_string = false;
    *n_word = 0;
    for (size_t i = 0; i < ex->n_body; i++) {
        const char c = ex->body[i];
        if (i - i_word > *n_word) *n_word = i - i_word;
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
            continue;
        }
        if (strchr(" \t\r\n\",:[]{}", c) != NULL) i_word = i;
        in_string = c == '"';
        n_values += c == ',' || c == ':' || c == '[';
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (depth > DEPTH_MAX) {
            return api_fail(error, 400, NULL, "the JSON is nested more than %d deep", DEPTH_MAX);
        }
        if (n_values > VALUES_MAX) {
            return api_fail(error, 400, NULL, "the JSON has more than %d values", VALUES_MAX);
        }
    }
    return true;
}

bool json_body_parse(const exchange *ex, json_t **out, api_error *error)
{
    if (ex->n_body == 0) return api_fail(error, 400, NULL, "the body is empty: JSON is expected");
    size_t n_word;
    if (!check_shape(ex, &n_word, error)) return false;
    if (!has_room(n_word)) return api_fail(error, 503, NULL, "no memory");
    json_error_t problem;
    json_t *json =
        json_loadb(ex->body, ex->n_body, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (json == NULL && json_error_code(&problem) == json_error_out_of_memory) {
        return api_fail(error, 503, NULL, "no memory");
    }
    if (json == NULL) {
        return api_fail(error, 400, NULL, "the body is not JSON: %s at byte %d", problem.text,
                        problem.position);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return api_fail(error, 400, NULL, "the body is not a JSON object");
    }
    *out = json;
    return true;
}

const json_t *json_body_get(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

const char *json_body_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

bool json_body_is(const json_t *object, const char *type)
{
    return strcmp(json_body_text(object, "type"), type) == 0;
}

bool json_body_flag(const json_t *object, const char *name, bool *out, api_error *error)
{
    const json_t *value = json_body_get(object, name);
    if (value == NULL) return true;
    if (!json_is_boolean(value)) return api_fail(error, 400, name, "%s: not true or false", name);
    *out = json_is_true(value);
    return true;
}

bool json_body_ids(const json_t *array, const char *name, size_t vocab, int32_t **ids, size_t *n,
                   api_error *error)
{
    *n = json_array_size(array);
    *ids = calloc(*n > 0 ? *n : 1, sizeof **ids);
    if (*ids == NULL) return api_fail(error, 503, NULL, "no memory");
    for (size_t i = 0; i < *n; i++) {
        const json_t *value = json_array_get(array, i);
        const json_int_t id = json_integer_value(value);
        if (json_is_integer(value) && id >= 0 && (uint64_t)id < vocab) {
            (*ids)[i] = (int32_t)id;
            continue;
        }
        free(*ids);
        *ids = NULL;
        return api_fail(error, 400, name, "%s[%zu]: not a token id from 0 to %zu", name, i,
                        vocab - 1);
    }
    return true;
}
