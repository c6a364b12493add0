/*
 * A byte buffer that grows up to a maximum given at its start, and text printing into it.
 * A failed append sets `failed` and drops what follows, so that callers check once at the end.
 */
#ifndef SKV_BASE_BUF_H
#define SKV_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "skv/budget.h"

/* Allocator hooks, used instead of a budget; `take` may wait. */
typedef struct skv_buf_memory {
    bool (*take)(void *user, size_t n_bytes); /* NULL: no hooks */
    void (*give)(void *user, size_t n_bytes);
    void *user; /* borrowed */
} skv_buf_memory;

typedef struct skv_buf {
    char *data;         /* owned; terminated by a zero byte that `size` does not count */
    size_t size;        /* bytes in use */
    size_t capacity;    /* bytes allocated */
    size_t max;         /* bytes it may ever hold */
    bool full;          /* an append failed: it would have exceeded the maximum */
    bool failed;        /* the maximum was reached, memory ran out, or the budget refused */
    skv_budget *budget; /* borrowed: `capacity` counts there; NULL: with `memory` */
    skv_buf_memory memory;
} skv_buf;

void skv_buf_init(skv_buf *buf, size_t max);
/** As skv_buf_init; the memory counts in a budget (NULL: in none) until it is released or given
 * away. */
void skv_buf_init_within(skv_buf *buf, size_t max, skv_budget *budget);
void skv_buf_release(skv_buf *buf);
/** Hands the text over, which skv_free frees and no budget counts any more; NULL when nothing was
 * ever appended. The buffer is empty then. */
char *skv_buf_give_away(skv_buf *buf);
/** Empties it and keeps its memory. */
void skv_buf_clear(skv_buf *buf);
/** Makes room for n more bytes. */
bool skv_buf_reserve(skv_buf *buf, size_t n);
bool skv_buf_append(skv_buf *buf, const void *data, size_t n);
/** Appends to the skv_buf `buf`; for json_dump_callback. Returns -1 on failure. */
int skv_buf_dump(const char *text, size_t n, void *buf);
bool skv_buf_text(skv_buf *buf, const char *text);
bool skv_buf_byte(skv_buf *buf, char byte);
bool skv_buf_printf(skv_buf *buf, const char *format, ...) SKV_PRINTF(2, 3);
/** Appends text as the inside of a JSON string; bytes that are not UTF-8 become U+FFFD. */
bool skv_buf_json_text(skv_buf *buf, const char *text, size_t n);

enum { SKV_JSON_PIECE_MAX = 8 }; /* bytes */

/** As skv_buf_json_text, for the first character of text[0..n), n >= 1. Writes it and returns its
 * bytes in the text. */
size_t skv_json_piece(const char *text, size_t n, char out[SKV_JSON_PIECE_MAX], size_t *n_out);

#endif
