/* JSON of requests: see json_body.h. */
#include "limits/json_body.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    WORD_BYTES_MIN = 64,
    INT64_DIGITS = 19,
    BYTES_A_UNIT = 4,     /* of a text that is written */
    LOOK_BYTES = 1 << 18, /* that are read between two looks at the client */
    SHORTEN_UNITS = 4,    /* of work for a byte */
    PATIENCE_MS = 1000,   /* for memory that others are about to give back */
    NAP_MS = 5
};

/* ---- memory ----
 *
 * jansson reads a text or a number into a buffer that it doubles, and does not look whether that
 * worked: without memory it writes beyond the end. So the memory of the longest one is taken before
 * it reads, and if others took it meanwhile it waits for them.
 */

static void *allocate_patiently(size_t n)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    void *block = malloc(n);
    for (int i = 0; !block && i < PATIENCE_MS / NAP_MS; i++) {
        (void)nanosleep(&nap, NULL);
        block = malloc(n);
    }
    return block;
}

void json_body_start(void)
{
    json_set_alloc_funcs(allocate_patiently, free);
}

static const char NUMBER[] = "+-.0123456789eE"; /* the characters of numbers */

static bool is_one_of(const char *set, char c)
{
    return c != 0 && strchr(set, c);
}

static bool has_room(skv_text_piece text)
{
    size_t begun = 0, longest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.n; i++) {
        if (i - begun > longest) longest = i - begun;
        if (in_string) {
            in_string = text.text[i] != '"';
            i += text.text[i] == '\\';
        } else if (is_one_of(" \t\r\n\",:[]{}", text.text[i])) {
            begun = i;
            in_string = text.text[i] == '"';
        }
    }
    void *block = malloc(4 * (longest + WORD_BYTES_MIN));
    free(block);
    return block;
}

/* ---- reading ---- */

/* A number that no JSON reader can hold: refused by the name before it, and as it is written. */
static bool fail_number(const json_place *place, const json_error_t *problem, api_error *error)
{
    const char *text = place->text.text;
    size_t begin = 0, n_name = 0, end = (size_t)problem->position;
    if (end > place->text.n) end = place->text.n;
    size_t number = end;
    while (number > 0 && is_one_of(NUMBER, text[number - 1])) number--;
    for (size_t i = number; i > 0 && text[i - 1] != '{';) {
        while (i > 0 && text[i - 1] != '"' && text[i - 1] != '{') i--;
        const size_t close = i;
        if (i > 0 && text[i - 1] == '"') i--;
        while (i > 0 && text[i - 1] != '"') i--;
        begin = i;
        n_name = close > i ? close - 1 - i : 0;
        break;
    }
    char name[sizeof error->param] = "";
    (void)snprintf(name, sizeof name, "%.*s", n_name < 60 ? (int)n_name : 60, text + begin);
    return api_fail(error, 400, name[0] != 0 ? name : NULL, "%s: %.*s is out of range",
                    name[0] != 0 ? name : place->name, end - number < 60 ? (int)(end - number) : 60,
                    text + number);
}

/* Whether this is an integer that 64 bits cannot hold. */
static bool is_beyond(const char *number, size_t n)
{
    char copy[INT64_DIGITS + 2] = "";
    for (size_t i = number[0] == '-'; i < n; i++) {
        if (number[i] < '0' || number[i] > '9') return false;
    }
    if (n >= sizeof copy) return true;
    memcpy(copy, number, n);
    errno = 0;
    (void)strtoll(copy, NULL, 10);
    return errno == ERANGE;
}

/* A copy whose integers beyond 64 bits end in ".0": an unused number may have any size, and a
 * field that wants an integer refuses it by its name. NULL: no memory. */
static char *with_reals(skv_text_piece text, size_t *n_out)
{
    char *out = malloc(text.n + text.n / 8 + 1); /* such integers have 19 digits or more */
    bool in_string = false;
    size_t n = 0;
    for (size_t i = 0; out && i < text.n;) {
        size_t taken = 1;
        if (in_string) {
            in_string = text.text[i] != '"';
            taken += text.text[i] == '\\' && i + 1 < text.n;
        } else if (is_one_of(NUMBER, text.text[i])) {
            while (i + taken < text.n && is_one_of(NUMBER, text.text[i + taken])) taken++;
        } else {
            in_string = text.text[i] == '"';
        }
        memcpy(out + n, text.text + i, taken);
        n += taken;
        if (!in_string && taken >= INT64_DIGITS && is_beyond(text.text + i, taken)) {
            out[n++] = '.';
            out[n++] = '0';
        }
        i += taken;
    }
    *n_out = n;
    return out;
}

/* A text that the JSON reader takes piece by piece. */
typedef struct json_pieces {
    const exchange *ex;
    skv_text_piece text;
    size_t at, looked;
} json_pieces;

/* The next piece; none if the client has left. */
static size_t next_piece(void *out, size_t room, void *user)
{
    json_pieces *p = user;
    size_t n = p->text.n - p->at;
    if (p->at - p->looked >= LOOK_BYTES) {
        p->looked = p->at;
        api_error error;
        if (!request_goes_on(p->ex, &error)) return (size_t)-1;
    }
    if (n > room) n = room;
    memcpy(out, p->text.text + p->at, n);
    p->at += n;
    return n;
}

static json_reading read_checked(const exchange *ex, const json_place *place, json_t **out,
                                 json_error_t *problem, api_error *error)
{
    json_pieces pieces = {.ex = ex, .text = place->text};
    if (!has_room(place->text)) {
        (void)api_fail(error, 503, NULL, "no memory");
        return JSON_READ_REFUSED;
    }
    *out = json_load_callback(next_piece, &pieces, JSON_ALLOW_NUL, problem);
    if (*out) return JSON_READ;
    if (!request_check(ex, place->name, place->param, error)) return JSON_READ_REFUSED;
    switch (json_error_code(problem)) {
    case json_error_out_of_memory: (void)api_fail(error, 503, NULL, "no memory"); break;
    case json_error_numeric_overflow: (void)fail_number(place, problem, error); break;
    default: return JSON_READ_BAD;
    }
    return JSON_READ_REFUSED;
}

/* Reads a text again that has numbers beyond 64 bits. */
static json_reading read_large_numbers(const exchange *ex, json_place place, json_t **out,
                                       json_error_t *problem, api_error *error)
{
    const size_t n_bytes = place.text.n + place.text.n / 8 + 1;
    json_reading reading = JSON_READ_REFUSED;
    if (!skv_budget_take(ex->budget, n_bytes)) {
        (void)request_check(ex, place.name, place.param, error);
        return reading;
    }
    char *copy = with_reals(place.text, &place.text.n);
    place.text.text = copy;
    if (copy) {
        reading = read_checked(ex, &place, out, problem, error);
    } else {
        (void)api_fail(error, 503, NULL, "no memory");
    }
    free(copy);
    skv_budget_give(ex->budget, n_bytes);
    return reading;
}

json_reading json_text_read(const exchange *ex, const json_place *place, json_t **out,
                            json_error_t *problem, api_error *error)
{
    const skv_text_piece text = place->text;
    skv_json_bytes bytes;
    if (!skv_budget_json(ex->budget, text.text, text.n, &bytes)) {
        (void)request_check(ex, place->name, place->param, error);
        return JSON_READ_REFUSED;
    }
    memset(problem, 0, sizeof *problem);
    json_reading reading = read_checked(ex, place, out, problem, error);
    if (reading == JSON_READ_REFUSED && json_error_code(problem) == json_error_numeric_overflow) {
        reading = read_large_numbers(ex, *place, out, problem, error);
    }
    skv_budget_give(ex->budget, bytes.reader);
    return reading;
}

bool json_body_parse(const exchange *ex, json_t **out, api_error *error)
{
    if (ex->n_body == 0) return api_fail(error, 400, NULL, "the body is empty: JSON is expected");
    static const char mark[] = "\xef\xbb\xbf"; /* some editors begin UTF-8 with it */
    const size_t n_mark = strncmp(ex->body, mark, 3) == 0 ? 3 : 0;
    json_error_t problem;
    const json_place place = {.name = "body", .text = {ex->body + n_mark, ex->n_body - n_mark}};
    json_t *json = NULL;
    switch (json_text_read(ex, &place, &json, &problem, error)) {
    case JSON_READ: break;
    case JSON_READ_REFUSED: return false;
    case JSON_READ_BAD:
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

static char *write_text(const exchange *ex, const json_t *value, size_t flags, const char *name,
                        size_t *n, api_error *error)
{
    *n = json_dumpb(value, NULL, 0, flags);
    if (!skv_budget_work(ex->budget, *n / BYTES_A_UNIT) || !skv_budget_take(ex->budget, *n)) {
        (void)request_check(ex, name, name, error);
        return NULL;
    }
    char *text = *n > 0 ? malloc(*n) : NULL;
    if (text) {
        *n = json_dumpb(value, text, *n, flags);
        return text;
    }
    skv_budget_give(ex->budget, *n);
    (void)api_fail(error, 503, NULL, "no memory");
    return NULL;
}

char *json_text_write(const exchange *ex, const json_t *value, const char *name, size_t *n,
                      api_error *error)
{
    return write_text(ex, value, JSON_COMPACT | JSON_ENCODE_ANY, name, n, error);
}

json_t *json_sorted_copy(const exchange *ex, const json_t *value, const char *name,
                         api_error *error)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS;
    size_t n = 0;
    json_t *out = NULL;
    json_error_t problem;
    char *text = write_text(ex, value, flags, name, &n, error);
    if (!text) return NULL;
    const json_place place = {.name = name, .param = name, .text = {text, n}};
    const json_reading reading = json_text_read(ex, &place, &out, &problem, error);
    if (reading == JSON_READ_BAD) (void)api_refuse(error, name, "%s", problem.text);
    json_text_free(ex, text, n);
    return reading == JSON_READ ? out : NULL;
}

void json_text_free(const exchange *ex, char *text, size_t n)
{
    if (text) skv_budget_give(ex->budget, n);
    free(text);
}

bool json_put_new(json_t *object, const char *name, json_t *value, api_error *error)
{
    return json_object_set_new(object, name, value) == 0 || api_fail(error, 503, NULL, "no memory");
}

void out_json_value(skv_buf *out, const json_t *value)
{
    if (json_dump_callback(value, skv_buf_dump, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        out->failed = true;
    }
}

json_t *json_of_text(const exchange *ex, const skv_buf *text, const char *name, api_error *error)
{
    json_t *value = NULL;
    if (!text->failed && skv_budget_take(ex->budget, JSON_MEMBER_BYTES + text->size)) {
        value = json_stringn(text->size > 0 ? text->data : "", text->size);
    }
    if (!value) (void)request_lacks(ex, name, error);
    return value;
}

void json_array_cut(json_t *array, size_t n)
{
    while (json_array_size(array) > n) (void)json_array_remove(array, json_array_size(array) - 1);
}

/* The shortest digits that make the same number again, of a number with a point or an exponent.
 * Returns how many bytes it has now: not more. */
static size_t shorten(char *at, size_t n)
{
    char given[64], best[64];
    if (n >= sizeof given) return n;
    memcpy(given, at, n);
    given[n] = '\0';
    const double number = strtod(given, NULL);
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        (void)snprintf(best, sizeof best, "%.*g", digits, number);
        if (strtod(best, NULL) == number) break;
    }
    size_t n_best = strlen(best);
    if (!strpbrk(best, ".e")) { /* stays as it is */
        (void)snprintf(best + n_best, sizeof best - n_best, ".0");
        n_best = strlen(best);
    }
    if (n_best >= n) return n;
    for (size_t i = 0; i < n_best; i++) at[i] = best[i];
    return n_best;
}

static size_t span_of(const char *text, size_t n, const char *letters)
{
    size_t k = 0;
    while (k < n && text[k] && strchr(letters, text[k])) k++;
    return k;
}

size_t json_text_shorten(const exchange *ex, char *text, size_t n)
{
    size_t n_out = 0;
    bool in_text = false;
    if (!skv_budget_work(ex->budget, n * SHORTEN_UNITS)) return n; /* the next caller is told */
    for (size_t i = 0; i < n;) {
        const char c = text[i];
        const size_t n_number = in_text ? 0 : span_of(text + i, n - i, "-+.0123456789eE");
        const bool starts = c == '-' || (c >= '0' && c <= '9');
        const bool real = starts && span_of(text + i, n_number, "-0123456789") < n_number;
        size_t n_taken = real ? n_number : 1;
        if (in_text && c == '\\' && i + 1 < n) n_taken = 2;
        if (c == '"') in_text = !in_text;
        memmove(text + n_out, text + i, n_taken);
        n_out += real ? shorten(text + n_out, n_taken) : n_taken;
        i += n_taken;
    }
    return n_out;
}

json_t *json_copy_within(const exchange *ex, json_t *value, const char *name, api_error *error)
{
    const size_t n_members = json_object_size(value) + json_array_size(value),
                 n_bytes = JSON_CONTAINER_BYTES + JSON_MEMBER_BYTES * n_members;
    if (!skv_budget_take(ex->budget, n_bytes)) {
        (void)request_check(ex, name, name, error);
        return NULL;
    }
    json_t *copy = json_copy(value);
    if (!copy) (void)api_fail(error, 503, NULL, "no memory");
    return copy;
}

/* ---- members ---- */

const json_t *json_body_get(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

bool json_text_is(const json_t *value, const char *word)
{
    const size_t n = strlen(word);
    return json_is_string(value) && json_string_length(value) == n &&
           memcmp(json_string_value(value), word, n) == 0;
}

bool json_text_whole(const json_t *value, const char *name, api_error *error)
{
    if (json_is_string(value) && !memchr(json_string_value(value), 0, json_string_length(value))) {
        return true;
    }
    return api_refuse(error, name, "\"%s\" must be a string without zero bytes",
                      json_show(value).text);
}

bool json_body_is(const json_t *object, const char *type)
{
    const json_t *value = json_object_get(object, "type");
    return json_is_string(value) ? json_text_is(value, type) : type[0] == 0;
}

/* Characters stay whole; those that cannot be shown are written as JSON would. */
static void show_text(const json_t *value, json_shown *out)
{
    const char *text = json_string_value(value);
    const size_t n = json_string_length(value), room = sizeof out->text - 8;
    size_t at = 0;
    for (size_t i = 0; i < n && at < room; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20) {
            at += (size_t)snprintf(out->text + at, 7, "\\u%04x", c);
        } else if ((c & 0xc0) != 0x80 && c >= 0xc0 && at + 4 > room) {
            break;
        } else {
            out->text[at++] = text[i];
        }
    }
    out->text[at] = 0;
}

json_shown json_show(const json_t *value)
{
    json_shown out = {""};
    if (json_is_string(value)) {
        show_text(value, &out);
    } else if (json_is_integer(value)) {
        (void)snprintf(out.text, sizeof out.text, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        (void)snprintf(out.text, sizeof out.text, "%.15g", json_real_value(value));
    } else if (value) {
        const char *what = json_is_object(value)  ? "an object"
                           : json_is_array(value) ? "an array"
                           : json_is_null(value)  ? "null"
                           : json_is_true(value)  ? "true"
                                                  : "false";
        (void)snprintf(out.text, sizeof out.text, "%s", what);
    }
    return out;
}

json_shown json_show_member(const json_t *object, const char *name)
{
    return json_show(json_object_get(object, name));
}

bool json_body_flag(const json_t *object, const char *name, bool *out, api_error *error)
{
    const json_t *value = json_body_get(object, name);
    if (!value) return true;
    if (!json_is_boolean(value)) {
        return api_refuse(error, name, "%s is not true or false", json_show(value).text);
    }
    *out = json_is_true(value);
    return true;
}

bool json_body_ids(const exchange *ex, const json_t *array, const char *name, int32_t **ids,
                   size_t *n, api_error *error)
{
    const size_t vocab = skv_engine_vocab(ex->model->engine);
    *n = json_array_size(array);
    if (!request_work(ex, *n, name, error) || !request_hold(ex, *n * sizeof **ids, name, error)) {
        return false;
    }
    *ids = calloc(*n > 0 ? *n : 1, sizeof **ids);
    if (!*ids) return api_fail(error, 503, NULL, "no memory");
    for (size_t i = 0; i < *n; i++) {
        const json_t *value = json_array_get(array, i);
        const json_int_t id = json_integer_value(value);
        if (json_is_integer(value) && id >= 0 && (uint64_t)id < vocab) {
            (*ids)[i] = (int32_t)id;
            continue;
        }
        free(*ids);
        *ids = NULL;
        return api_fail(error, 400, name, "%s[%zu]: %s is not a token id from 0 to %zu", name, i,
                        json_show(value).text, vocab - 1);
    }
    return true;
}
