/* A bounded byte buffer: see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"

void skv_buf_init(skv_buf *buf, size_t max)
{
    *buf = (skv_buf){.max = max};
}

void skv_buf_release(skv_buf *buf)
{
    skv_free(buf->data);
    *buf = (skv_buf){.max = buf->max};
}

void skv_buf_clear(skv_buf *buf)
{
    buf->size = 0;
    buf->failed = false;
    if (buf->data) buf->data[0] = 0;
}

/* Room for n more bytes and the terminating zero. */
static bool reserve(skv_buf *buf, size_t n)
{
    size_t need;
    if (buf->failed) return false;
    if (!skv_size_add(buf->size, n, &need) || need > buf->max || !skv_size_add(need, 1, &need)) {
        buf->failed = true;
        return false;
    }
    if (need <= buf->capacity) return true;
    size_t capacity = skv_max_size(need, buf->capacity + buf->capacity / 2);
    char *data = skv_realloc(buf->data, skv_max_size(capacity, 64), 1);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = skv_max_size(capacity, 64);
    return true;
}

bool skv_buf_append(skv_buf *buf, const void *data, size_t n)
{
    if (!reserve(buf, n)) return false;
    if (n) memcpy(buf->data + buf->size, data, n);
    buf->size += n;
    buf->data[buf->size] = 0;
    return true;
}

bool skv_buf_text(skv_buf *buf, const char *text)
{
    return skv_buf_append(buf, text, strlen(text));
}

bool skv_buf_byte(skv_buf *buf, char byte)
{
    return skv_buf_append(buf, &byte, 1);
}

bool skv_buf_printf(skv_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && reserve(buf, (size_t)n);
    if (ok) {
        (void)vsnprintf(buf->data + buf->size, (size_t)n + 1, format, again);
        buf->size += (size_t)n;
    } else {
        buf->failed = true;
    }
    va_end(again);
    return ok;
}

static bool json_char(skv_buf *buf, unsigned char c)
{
    switch (c) {
    case '"': return skv_buf_text(buf, "\\\"");
    case '\\': return skv_buf_text(buf, "\\\\");
    case '\n': return skv_buf_text(buf, "\\n");
    case '\r': return skv_buf_text(buf, "\\r");
    case '\t': return skv_buf_text(buf, "\\t");
    default: break;
    }
    if (c < 0x20 || c == 0x7f) return skv_buf_printf(buf, "\\u%04x", c);
    return skv_buf_byte(buf, (char)c);
}

bool skv_buf_json_text(skv_buf *buf, const char *text, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t code;
        size_t step = skv_utf8_decode(text + i, n - i, &code);
        if (code == SKV_UTF8_BAD) {
            skv_buf_text(buf, "\xef\xbf\xbd");
        } else if (step == 1) {
            json_char(buf, (unsigned char)text[i]);
        } else {
            skv_buf_append(buf, text + i, step);
        }
        i += step;
    }
    return !buf->failed;
}
