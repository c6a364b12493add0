/* A request's JSON: bounds before it is parsed, the error of a client that exceeds them, and
 * reading its members by name. */
#ifndef SKV_SERVER_JSON_BODY_H
#define SKV_SERVER_JSON_BODY_H

#include <jansson.h>
#include <stdint.h>

#include "limits/request_budget.h"

/* Bytes of a value that is made, on the heap: see budget_json.c. */
enum { JSON_CONTAINER_BYTES = 240, JSON_MEMBER_BYTES = 160 };

/** Once, before the first body. */
void json_body_start(void);

/* A text out of a request that is to be read as JSON. */
typedef struct json_place {
    const char *name;  /* in errors: "messages[3].tool_calls[0].function.arguments" */
    const char *param; /* the field of the request; NULL: none */
    skv_text_piece text;
} json_place;

typedef enum json_reading {
    JSON_READ,
    JSON_READ_BAD,    /* it is not JSON: `problem` tells why */
    JSON_READ_REFUSED /* it exceeds a limit: `error` tells which */
} json_reading;

/** The only way in which a request's text reaches the JSON reader: within the request's budget,
 * which the values count in until the request ends. Release *out with json_decref. */
json_reading json_text_read(const exchange *ex, const json_place *place, json_t **out,
                            json_error_t *problem, api_error *error);
/** A value as JSON on the heap; NULL with an error beyond the budget. Free it with
 * json_text_free, which needs the same n. */
char *json_text_write(const exchange *ex, const json_t *value, const char *name, size_t *n,
                      api_error *error);
/** A copy whose objects have their members in the order of their names; NULL with an error. */
json_t *json_sorted_copy(const exchange *ex, const json_t *value, const char *name,
                         api_error *error);
void json_text_free(const exchange *ex, char *text, size_t n);
/** Appends a value as JSON, so that no more is held than `out` has. */
void out_json_value(skv_buf *out, const json_t *value);
/** Sets a member of an object and takes the value over. */
bool json_put_new(json_t *object, const char *name, json_t *value, api_error *error);
/** A text as a value, which counts until the request ends; NULL with an error. */
json_t *json_of_text(const exchange *ex, const skv_buf *text, const char *name, api_error *error);
/** Removes the items of an array from the n-th on. */
void json_array_cut(json_t *array, size_t n);
/** Writes the numbers in such a text in their shortest form, 0.1 and not with 17 digits; returns
 * the length that it has then. */
size_t json_text_shorten(const exchange *ex, char *text, size_t n);
/** A copy of an object or array that shares its members; NULL with an error. */
json_t *json_copy_within(const exchange *ex, json_t *value, const char *name, api_error *error);

/** The body as an object; release it with json_decref. */
bool json_body_parse(const exchange *ex, json_t **out, api_error *error);
/** The member, NULL where it is absent or null. */
const json_t *json_body_get(const json_t *object, const char *name);
/** Whether a value is this text, all of it: a text of JSON may have zero bytes inside. */
bool json_text_is(const json_t *value, const char *word);
/** Refuses values that are no text, and texts with zero bytes inside. */
bool json_text_whole(const json_t *value, const char *name, api_error *error);
/** Whether its "type" is this one; "": there is none. */
bool json_body_is(const json_t *object, const char *type);

/* A value for an error: as much of a text as fits, a number, "an object". */
typedef struct json_shown {
    char text[56];
} json_shown;
json_shown json_show(const json_t *value);
json_shown json_show_member(const json_t *object, const char *name);
bool json_body_flag(const json_t *object, const char *name, bool *out, api_error *error);
/** An array of token ids of the model, on the heap, which count until the request ends. */
bool json_body_ids(const exchange *ex, const json_t *array, const char *name, int32_t **ids,
                   size_t *n, api_error *error);

#endif
