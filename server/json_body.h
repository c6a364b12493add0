/* A request's JSON: bounds before it is parsed, and reading its members by name. */
#ifndef SKV_SERVER_JSON_BODY_H
#define SKV_SERVER_JSON_BODY_H

#include <jansson.h>
#include <stdint.h>

#include "exchange.h"

/** Once, before the first body. */
void json_body_start(void);
/** The body as an object; release it with json_decref. */
bool json_body_parse(const exchange *ex, json_t **out, api_error *error);
/** The member, NULL where it is absent or null. */
const json_t *json_body_get(const json_t *object, const char *name);
/** The member's text, "" where it is none. */
const char *json_body_text(const json_t *object, const char *name);
/** Whether its "type" is this one. */
bool json_body_is(const json_t *object, const char *type);
bool json_body_flag(const json_t *object, const char *name, bool *out, api_error *error);
/** An array of token ids below `vocab`, on the heap. */
bool json_body_ids(const json_t *array, const char *name, size_t vocab, int32_t **ids, size_t *n,
                   api_error *error);

#endif
