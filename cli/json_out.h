/** Writes JSON to a stream: commas, escapes and numbers in one place. */
#ifndef SKV_CLI_JSON_OUT_H
#define SKV_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_json {
    FILE *stream;
    bool needs_comma; /* something stands before, on this level */
} cli_json;

/** An object or array opens: '{' or '['. */
void cli_json_open(cli_json *json, char bracket);
/** '}' or ']'. */
void cli_json_close(cli_json *json, char bracket);
/** The key of what comes next. */
void cli_json_key(cli_json *json, const char *key);
void cli_json_null(cli_json *json);
void cli_json_bool(cli_json *json, bool value);
void cli_json_integer(cli_json *json, int64_t value);
/** The shortest form that reads back as the same double; null for NaN and infinities. */
void cli_json_number(cli_json *json, double value);
/** Bytes of the UTF-8 character at text[0..n), 0 when it is not valid. */
size_t cli_utf8_length(const unsigned char *text, size_t n);
/** n bytes of UTF-8; what is not valid UTF-8 becomes U+FFFD. NULL: null. */
void cli_json_text(cli_json *json, const char *text, size_t n);

/* Keys with their values. */
void cli_json_put_integer(cli_json *json, const char *key, uint64_t value);
void cli_json_put_number(cli_json *json, const char *key, double value);
void cli_json_put_text(cli_json *json, const char *key, const char *text);
void cli_json_put_ids(cli_json *json, const char *key, const int32_t *ids, size_t n);

/** The integer in decimal, quickly: millions of ids are printed. */
void cli_print_integer(FILE *stream, int64_t value);

#endif
