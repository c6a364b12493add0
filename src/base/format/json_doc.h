/*
 * JSON from untrusted files, through jansson: loading with caps on size and depth, and reading an
 * object's members with defaults.
 *
 * A reader keeps the first failure in `status`; later reads return their fallback. A parser can
 * therefore read everything and check once. `null` counts as absent, as in Python's `None`.
 */
#ifndef SKV_FORMAT_JSON_DOC_H
#define SKV_FORMAT_JSON_DOC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"

enum { SKV_JSON_DEPTH_MAX = 64 };

/** Checks that there is memory for the longest text or number. jansson reads it into a buffer that
 * it doubles, and writes past the end if that fails, so callers check first. */
bool skv_json_has_room(const char *text, size_t n);

/** Duplicate keys are refused. Release *out with json_decref. `name` is for errors. */
SKV_MUST_CHECK skv_status skv_json_load(const char *text, size_t n, size_t max_bytes,
                                        const char *name, json_t **out, skv_error *err);
/** Appends the JSON, indented by two spaces a level, numbers with the fewest digits that
 * distinguish them; false (and out->failed) if the buffer is full or the nesting too deep. */
bool skv_json_print(skv_buf *out, const json_t *json);

typedef struct skv_json_reader {
    const json_t *object; /* borrowed; NULL reads as an empty object */
    const char *name;     /* of the file, for errors */
    skv_error *err;
    skv_status status; /* the first failure */
} skv_json_reader;

enum { SKV_JSON_SHOWN = 64 };
/** The value as an error shows it: `"text"`, `-1.5`, `an array of 3`; "missing" for none. */
void skv_json_show(const json_t *value, char out[SKV_JSON_SHOWN]);
/** Fails with "NAME: " and the text unless something failed before. */
void skv_json_fail(skv_json_reader *r, skv_status status, const char *format, ...) SKV_PRINTF(3, 4);
/** Fails with "NAME: KEY: VALUE, expected EXPECTED" unless something failed before. */
void skv_json_refuse(skv_json_reader *r, const char *key, const json_t *value,
                     const char *expected);

/** The member, NULL when it is absent or null. */
const json_t *skv_json_get(const skv_json_reader *r, const char *key);
/** True if the member exists, even as null. */
bool skv_json_has(const skv_json_reader *r, const char *key);
/** An object inside the object, read with the same name and err; empty when absent. */
skv_json_reader skv_json_child(skv_json_reader *r, const char *key);

size_t skv_json_size(skv_json_reader *r, const char *key, size_t fallback, size_t max);
/** A finite number. */
double skv_json_double(skv_json_reader *r, const char *key, double fallback);
bool skv_json_bool(skv_json_reader *r, const char *key, bool fallback);
/** Borrowed from the object; terminated, without zero bytes inside. */
const char *skv_json_text(skv_json_reader *r, const char *key, const char *fallback);
/** Checks one value that is not a member of an object, named `key` in errors. */
size_t skv_json_size_of(skv_json_reader *r, const json_t *value, const char *key, size_t max);
double skv_json_double_of(skv_json_reader *r, const json_t *value, const char *key);

#endif
