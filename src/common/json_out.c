/* The JSON writer: see json_out.h. */
#include "common/json_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INTEGER_MAX = 24 }; /* bytes of its text */

static void put(skv_json_out *json, const char *data, size_t n)
{
    if (json->stream) {
        (void)fwrite(data, 1, n, json->stream);
    } else {
        (void)skv_buf_append(json->buf, data, n);
    }
}

static void put_word(skv_json_out *json, const char *word)
{
    put(json, word, strlen(word));
}

static void separate(skv_json_out *json)
{
    if (json->needs_comma) put(json, ",", 1);
    json->needs_comma = true;
}

void skv_json_out_open(skv_json_out *json, char bracket)
{
    separate(json);
    put(json, &bracket, 1);
    json->needs_comma = false;
}

void skv_json_out_close(skv_json_out *json, char bracket)
{
    put(json, &bracket, 1);
    json->needs_comma = true;
}

void skv_json_out_null(skv_json_out *json)
{
    separate(json);
    put_word(json, "null");
}

void skv_json_out_bool(skv_json_out *json, bool value)
{
    separate(json);
    put_word(json, value ? "true" : "false");
}

/* Where in `digits` the text begins that ends with it. */
static size_t write_integer(char digits[INTEGER_MAX], int64_t value)
{
    size_t at = INTEGER_MAX;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) digits[--at] = '-';
    return at;
}

void skv_json_out_integer(skv_json_out *json, int64_t value)
{
    char digits[INTEGER_MAX];
    const size_t at = write_integer(digits, value);
    separate(json);
    put(json, digits + at, sizeof digits - at);
}

void skv_put_integer(FILE *stream, int64_t value)
{
    char digits[INTEGER_MAX];
    const size_t at = write_integer(digits, value);
    (void)fwrite(digits + at, 1, sizeof digits - at, stream);
}

void skv_json_number_text(double value, int digits, int step, char out[SKV_JSON_NUMBER_MAX])
{
    (void)snprintf(out, SKV_JSON_NUMBER_MAX, "null");
    for (; isfinite(value) && digits <= 17; digits += step) {
        (void)snprintf(out, SKV_JSON_NUMBER_MAX, "%.*g", digits, value);
        /* The comparison is exact on purpose: the text must read back as this very number. */
        if (strtod(out, NULL) == value) break;
    }
}

void skv_json_out_number(skv_json_out *json, double value)
{
    char text[SKV_JSON_NUMBER_MAX];
    skv_json_number_text(value, 15, 1, text);
    separate(json);
    put_word(json, text);
}

void skv_json_out_text(skv_json_out *json, const char *text, size_t n)
{
    if (!text) {
        skv_json_out_null(json);
        return;
    }
    separate(json);
    put(json, "\"", 1);
    while (n > 0) {
        char piece[SKV_JSON_PIECE_MAX];
        size_t n_piece;
        const size_t step = skv_json_piece(text, n, piece, &n_piece);
        put(json, piece, n_piece);
        text += step;
        n -= step;
    }
    put(json, "\"", 1);
}

void skv_json_out_key(skv_json_out *json, const char *key)
{
    skv_json_out_text(json, key, strlen(key));
    put(json, ":", 1);
    json->needs_comma = false;
}

void skv_json_out_put_open(skv_json_out *json, const char *key, char bracket)
{
    skv_json_out_key(json, key);
    skv_json_out_open(json, bracket);
}

void skv_json_out_put_bool(skv_json_out *json, const char *key, bool value)
{
    skv_json_out_key(json, key);
    skv_json_out_bool(json, value);
}

void skv_json_out_put_integer(skv_json_out *json, const char *key, uint64_t value)
{
    skv_json_out_key(json, key);
    skv_json_out_integer(json, (int64_t)value);
}

void skv_json_out_put_number(skv_json_out *json, const char *key, double value)
{
    skv_json_out_key(json, key);
    skv_json_out_number(json, value);
}

void skv_json_out_put_text(skv_json_out *json, const char *key, const char *text)
{
    skv_json_out_key(json, key);
    skv_json_out_text(json, text, text ? strlen(text) : 0);
}

void skv_json_out_put_ids(skv_json_out *json, const char *key, const int32_t *ids, size_t n)
{
    skv_json_out_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++) skv_json_out_integer(json, ids[i]);
    skv_json_out_close(json, ']');
}

void skv_buf_json(skv_buf *buf, const char *text, size_t n)
{
    skv_json_out_text(&(skv_json_out){.buf = buf}, text, n);
}

void skv_buf_json_str(skv_buf *buf, const char *text)
{
    skv_buf_json(buf, text, text ? strlen(text) : 0);
}
