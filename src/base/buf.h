/*
 * A byte buffer that grows up to a maximum given at its start, and text printing into it.
 * A failed append sets `failed` and drops what follows, so that callers check once at the end.
 */
#ifndef SKV_BASE_BUF_H
#define SKV_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

typedef struct skv_buf {
    char *data;      /* owned; terminated by a zero byte that `size` does not count */
    size_t size;     /* bytes in use */
    size_t capacity; /* bytes allocated */
    size_t max;      /* bytes it may ever hold */
    bool failed;     /* the maximum was reached or memory ran out */
} skv_buf;

void skv_buf_init(skv_buf *buf, size_t max);
void skv_buf_release(skv_buf *buf);
/** Empties it and keeps its memory. */
void skv_buf_clear(skv_buf *buf);
bool skv_buf_append(skv_buf *buf, const void *data, size_t n);
bool skv_buf_text(skv_buf *buf, const char *text);
bool skv_buf_byte(skv_buf *buf, char byte);
bool skv_buf_printf(skv_buf *buf, const char *format, ...) SKV_PRINTF(2, 3);
/** Appends text as the inside of a JSON string; bytes that are not UTF-8 become U+FFFD. */
bool skv_buf_json_text(skv_buf *buf, const char *text, size_t n);

#endif
