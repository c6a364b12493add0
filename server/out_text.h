/* Text that is written once, from front to back: JSON, event streams, metrics. */
#ifndef SKV_SERVER_OUT_TEXT_H
#define SKV_SERVER_OUT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct out_text {
    char *data; /* owned */
    size_t n, room;
    bool failed; /* memory ran out: what follows is dropped */
} out_text;

void out_release(out_text *out);
void out_clear(out_text *out);
void out_bytes(out_text *out, const char *data, size_t n);
void out_str(out_text *out, const char *text);
void out_format(out_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** A JSON string with its quotes; what is not UTF-8 becomes U+FFFD. */
void out_json(out_text *out, const char *text, size_t n);
void out_json_str(out_text *out, const char *text);
/** The shortest number that reads back as the same double; null for NaN and infinities. */
void out_number(out_text *out, double value);

#endif
