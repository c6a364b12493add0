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

void skv_buf_init_within(skv_buf *buf, size_t max, skv_budget *budget)
{
    *buf = (skv_buf){.max = max, .budget = budget};
}

static bool take(const skv_buf *buf, size_t n)
{
    if (buf->budget) return skv_budget_take(buf->budget, n);
    return !buf->memory.take || buf->memory.take(buf->memory.user, n);
}

static void give(const skv_buf *buf, size_t n)
{
    if (buf->budget) {
        skv_budget_give(buf->budget, n);
    } else if (buf->memory.give) {
        buf->memory.give(buf->memory.user, n);
    }
}

char *skv_buf_give_away(skv_buf *buf)
{
    char *data = buf->data;
    give(buf, buf->capacity);
    *buf = (skv_buf){.max = buf->max, .budget = buf->budget, .memory = buf->memory};
    return data;
}

void skv_buf_release(skv_buf *buf)
{
    skv_free(skv_buf_give_away(buf));
}

void skv_buf_clear(skv_buf *buf)
{
    buf->size = 0;
    buf->failed = buf->full = false;
    if (buf->data) buf->data[0] = 0;
}

static bool grow(skv_buf *buf, size_t capacity)
{
    size_t more = capacity - buf->capacity;
    bool counted = take(buf, more);
    char *data = counted ? skv_realloc(buf->data, capacity, 1) : NULL;
    buf->failed = !data;
    if (data) {
        buf->data = data;
        buf->capacity = capacity;
    } else if (counted) {
        give(buf, more);
    }
    return data;
}

/* And room for the terminating zero. */
bool skv_buf_reserve(skv_buf *buf, size_t n)
{
    size_t need;
    if (buf->failed) return false;
    if (!skv_size_add(buf->size, n, &need) || need > buf->max || !skv_size_add(need, 1, &need)) {
        buf->failed = buf->full = true;
        return false;
    }
    if (need <= buf->capacity) return true;
    return grow(buf, skv_max_size(skv_max_size(need, buf->capacity + buf->capacity / 2), 64));
}

bool skv_buf_append(skv_buf *buf, const void *data, size_t n)
{
    if (!skv_buf_reserve(buf, n)) return false;
    if (n) memcpy(buf->data + buf->size, data, n);
    buf->size += n;
    buf->data[buf->size] = 0;
    return true;
}

int skv_buf_dump(const char *text, size_t n, void *buf)
{
    return skv_buf_append(buf, text, n) ? 0 : -1;
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
    bool ok = n >= 0 && skv_buf_reserve(buf, (size_t)n);
    if (ok) {
        (void)vsnprintf(buf->data + buf->size, (size_t)n + 1, format, again);
        buf->size += (size_t)n;
    } else {
        buf->failed = true;
    }
    va_end(again);
    return ok;
}

/* Of one byte below 0x80. */
static size_t escape(unsigned char c, char out[SKV_JSON_PIECE_MAX])
{
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *at = c ? strchr(plain, c) : NULL;
    if (at) {
        out[0] = '\\';
        out[1] = letters[at - plain];
        return 2;
    }
    if (c < 0x20 || c == 0x7f) return (size_t)snprintf(out, SKV_JSON_PIECE_MAX, "\\u%04x", c);
    out[0] = (char)c;
    return 1;
}

size_t skv_json_piece(const char *text, size_t n, char out[SKV_JSON_PIECE_MAX], size_t *n_out)
{
    uint32_t code;
    size_t step = skv_utf8_decode(text, n, &code);
    const bool bad = code == SKV_UTF8_BAD;
    *n_out = bad ? 3 : step;
    if (!bad && step == 1) {
        *n_out = escape((unsigned char)text[0], out);
    } else {
        memcpy(out, bad ? "\xef\xbf\xbd" : text, *n_out);
    }
    return step;
}

bool skv_buf_json_text(skv_buf *buf, const char *text, size_t n)
{
    size_t done = 0; /* unchanged bytes are appended at once */
    for (size_t i = 0; i < n;) {
        char piece[SKV_JSON_PIECE_MAX];
        size_t n_piece;
        const size_t step = skv_json_piece(text + i, n - i, piece, &n_piece);
        if (n_piece != step || memcmp(piece, text + i, step) != 0) {
            (void)skv_buf_append(buf, text + done, i - done);
            (void)skv_buf_append(buf, piece, n_piece);
            done = i + step;
        }
        i += step;
    }
    return n == done ? !buf->failed : skv_buf_append(buf, text + done, n - done);
}
