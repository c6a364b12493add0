/** Writes JSON to a stream or a buffer: commas, escapes and numbers in one place. */
#ifndef SKV_COMMON_JSON_OUT_H
#define SKV_COMMON_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

typedef struct skv_json_out {
    FILE *stream;     /* borrowed; NULL: to the buffer */
    skv_buf *buf;     /* borrowed */
    bool needs_comma; /* something stands before, on this level */
} skv_json_out;

/** An object or array opens: '{' or '['. */
void skv_json_out_open(skv_json_out *json, char bracket);
/** '}' or ']'. */
void skv_json_out_close(skv_json_out *json, char bracket);
/** Writes the key of the next value. */
void skv_json_out_key(skv_json_out *json, const char *key);
void skv_json_out_null(skv_json_out *json);
void skv_json_out_bool(skv_json_out *json, bool value);
void skv_json_out_integer(skv_json_out *json, int64_t value);
/** The shortest form that reads back as the same double; null for NaN and infinities. */
void skv_json_out_number(skv_json_out *json, double value);
/** Writes n bytes of UTF-8; invalid UTF-8 becomes U+FFFD. NULL: null. */
void skv_json_out_text(skv_json_out *json, const char *text, size_t n);

/* Keys with their values. */
void skv_json_out_put_open(skv_json_out *json, const char *key, char bracket);
void skv_json_out_put_bool(skv_json_out *json, const char *key, bool value);
void skv_json_out_put_integer(skv_json_out *json, const char *key, uint64_t value);
void skv_json_out_put_number(skv_json_out *json, const char *key, double value);
void skv_json_out_put_text(skv_json_out *json, const char *key, const char *text);
void skv_json_out_put_ids(skv_json_out *json, const char *key, const int32_t *ids, size_t n);

/* One value alone, for text that has its own punctuation. */
void skv_buf_json(skv_buf *buf, const char *text, size_t n);
void skv_buf_json_str(skv_buf *buf, const char *text); /* NULL: null */

enum { SKV_JSON_NUMBER_MAX = 32 }; /* bytes */

/** Tries `digits`, digits + step, ... up to 17 until the number reads back as the same double;
 * "null" for NaN and infinities. */
void skv_json_number_text(double value, int digits, int step, char out[SKV_JSON_NUMBER_MAX]);

/** The integer in decimal, quickly: millions of ids are printed. */
void skv_put_integer(FILE *stream, int64_t value);

#endif
