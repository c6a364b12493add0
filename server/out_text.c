/* Text that is written: see out_text.h. */
#include "out_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 1024 };

void out_release(out_text *out)
{
    free(out->data);
    *out = (out_text){0};
}

void out_clear(out_text *out)
{
    out->n = 0;
    out->failed = false;
}

/* Room for n more bytes and a terminating zero. */
static bool reserve(out_text *out, size_t n)
{
    if (out->failed) return false;
    if (n < out->room - out->n) return true;
    size_t room = out->room > 0 ? out->room : FIRST_ROOM;
    while (room - out->n <= n && room <= SIZE_MAX / 4) room *= 2;
    char *data = room - out->n > n ? realloc(out->data, room) : NULL;
    if (data == NULL) {
        out->failed = true;
        return false;
    }
    out->data = data;
    out->room = room;
    return true;
}

void out_bytes(out_text *out, const char *data, size_t n)
{
    if (n == 0 || !reserve(out, n)) return;
    memcpy(out->data + out->n, data, n);
    out->n += n;
}

void out_str(out_text *out, const char *text)
{
    out_bytes(out, text, strlen(text));
}

void out_format(out_text *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n <= 0 || !reserve(out, (size_t)n)) return;
    va_start(args, format);
    (void)vsnprintf(out->data + out->n, (size_t)n + 1, format, args);
    va_end(args);
    out->n += (size_t)n;
}

/* The length of the UTF-8 character at text[0..n); 0: it is none. */
static size_t character_bytes(const unsigned char *text, size_t n)
{
    const unsigned first = text[0];
    const size_t bytes = first < 0x80   ? 1
                         : first < 0xc2 ? 0
                         : first < 0xe0 ? 2
                         : first < 0xf0 ? 3
                         : first < 0xf5 ? 4
                                        : 0;
    if (bytes == 0 || bytes > n) return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
    }
    if (first == 0xe0 && text[1] < 0xa0) return 0;
    if (first == 0xed && text[1] >= 0xa0) return 0;
    if (first == 0xf0 && text[1] < 0x90) return 0;
    if (first == 0xf4 && text[1] >= 0x90) return 0;
    return bytes;
}

static void out_escape(out_text *out, unsigned char c)
{
    switch (c) {
    case '"': out_str(out, "\\\""); break;
    case '\\': out_str(out, "\\\\"); break;
    case '\n': out_str(out, "\\n"); break;
    case '\r': out_str(out, "\\r"); break;
    case '\t': out_str(out, "\\t"); break;
    default: out_format(out, "\\u%04x", c); break;
    }
}

void out_json(out_text *out, const char *text, size_t n)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t done = 0;
    out_bytes(out, "\"", 1);
    for (size_t i = 0; i < n;) {
        const size_t bytes = character_bytes(at + i, n - i);
        const bool plain = bytes > 1 || (bytes == 1 && at[i] >= 0x20 && at[i] != '"' &&
                                         at[i] != '\\' && at[i] != 0x7f);
        if (plain) {
            i += bytes;
            continue;
        }
        out_bytes(out, text + done, i - done);
        if (bytes == 0) {
            out_str(out, "\xef\xbf\xbd");
        } else {
            out_escape(out, at[i]);
        }
        done = ++i;
    }
    out_bytes(out, text + done, n - done);
    out_bytes(out, "\"", 1);
}

void out_json_str(out_text *out, const char *text)
{
    if (text == NULL) {
        out_str(out, "null");
    } else {
        out_json(out, text, strlen(text));
    }
}

void out_number(out_text *out, double value)
{
    if (!isfinite(value)) {
        out_str(out, "null");
        return;
    }
    char text[40];
    for (int digits = 9; digits <= 17; digits += 4) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    out_str(out, text);
}
