/* JSON in: the variables of a rendering. (JSON out is the filter tojson, in jinja_filter.h.) */
#ifndef SKV_TEXT_JINJA_JSON_H
#define SKV_TEXT_JINJA_JSON_H

#include <jansson.h>

#include "text/jinja/jinja_run.h"

/** A value of the rendering that equals the JSON value. */
skv_jv skv_j_from_json(skv_jrun *r, const json_t *json);

#endif
