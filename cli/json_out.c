/* The JSON writer. */
#include "json_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void separate(cli_json *json)
{
    if (json->needs_comma) putc(',', json->stream);
    json->needs_comma = true;
}

void cli_json_open(cli_json *json, char bracket)
{
    separate(json);
    putc(bracket, json->stream);
    json->needs_comma = false;
}

void cli_json_close(cli_json *json, char bracket)
{
    putc(bracket, json->stream);
    json->needs_comma = true;
}

void cli_json_null(cli_json *json)
{
    separate(json);
    fputs("null", json->stream);
}

void cli_json_bool(cli_json *json, bool value)
{
    separate(json);
    fputs(value ? "true" : "false", json->stream);
}

void cli_print_integer(FILE *stream, int64_t value)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) digits[--at] = '-';
    fwrite(digits + at, 1, sizeof digits - at, stream);
}

void cli_json_integer(cli_json *json, int64_t value)
{
    separate(json);
    cli_print_integer(json->stream, value);
}

void cli_json_number(cli_json *json, double value)
{
    if (!isfinite(value)) {
        cli_json_null(json);
        return;
    }
    separate(json);
    char text[32];
    int digits = 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
        /* The comparison is exact on purpose: the text must read back as this very number. */
    } while (digits++ < 17 && strtod(text, NULL) != value);
    fputs(text, json->stream);
}

size_t cli_utf8_length(const unsigned char *text, size_t n)
{
    const unsigned char first = text[0];
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xc2 && first < 0xe0 ? 2
                          : first >= 0xe0 && first < 0xf0 ? 3
                          : first >= 0xf0 && first < 0xf5 ? 4
                                                          : 0;
    if (length == 0 || length > n) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
    }
    const bool overlong = (first == 0xe0 && text[1] < 0xa0) || (first == 0xf0 && text[1] < 0x90);
    const bool surrogate = first == 0xed && text[1] >= 0xa0;
    const bool beyond = first == 0xf4 && text[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : length;
}

static void put_ascii(FILE *stream, unsigned char c)
{
    switch (c) {
    case '"': fputs("\\\"", stream); return;
    case '\\': fputs("\\\\", stream); return;
    case '\n': fputs("\\n", stream); return;
    case '\r': fputs("\\r", stream); return;
    case '\t': fputs("\\t", stream); return;
    default: break;
    }
    if (c < 0x20 || c == 0x7f) {
        fprintf(stream, "\\u%04x", (unsigned)c);
    } else {
        putc(c, stream);
    }
}

void cli_json_text(cli_json *json, const char *text, size_t n)
{
    if (text == NULL) {
        cli_json_null(json);
        return;
    }
    separate(json);
    putc('"', json->stream);
    for (size_t i = 0; i < n;) {
        const size_t length = cli_utf8_length((const unsigned char *)text + i, n - i);
        if (length == 0) {
            fputs("\\ufffd", json->stream);
        } else if (length == 1) {
            put_ascii(json->stream, (unsigned char)text[i]);
        } else {
            fwrite(text + i, 1, length, json->stream);
        }
        i += length > 0 ? length : 1;
    }
    putc('"', json->stream);
}

void cli_json_key(cli_json *json, const char *key)
{
    cli_json_text(json, key, strlen(key));
    putc(':', json->stream);
    json->needs_comma = false;
}

void cli_json_put_integer(cli_json *json, const char *key, uint64_t value)
{
    cli_json_key(json, key);
    cli_json_integer(json, (int64_t)value);
}

void cli_json_put_number(cli_json *json, const char *key, double value)
{
    cli_json_key(json, key);
    cli_json_number(json, value);
}

void cli_json_put_text(cli_json *json, const char *key, const char *text)
{
    cli_json_key(json, key);
    cli_json_text(json, text, text != NULL ? strlen(text) : 0);
}

void cli_json_put_ids(cli_json *json, const char *key, const int32_t *ids, size_t n)
{
    cli_json_key(json, key);
    cli_json_open(json, '[');
    for (size_t i = 0; i < n; i++) cli_json_integer(json, ids[i]);
    cli_json_close(json, ']');
}
