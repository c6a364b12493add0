/* Filters by name. */
#ifndef SKV_TEXT_JINJA_FILTER_H
#define SKV_TEXT_JINJA_FILTER_H

#include "text/jinja/jinja_run.h"

/** A filter, with `fn` NULL when jinja2 has it and we do not; NULL when there is none. */
const skv_jfunction *skv_jfilter_find(const skv_jstr *name);
/** The half of the table that works on sequences: jinja_filter_seq.c. */
const skv_jfunction *skv_jfilter_find_seq(const skv_jstr *name);
/** tojson: jinja_json.c. */
skv_jv skv_jfilter_tojson(skv_jrun *r, const skv_jcall *call);
/** Lower case for strings, anything else as it is: the default order of sort and its kin. */
skv_jv skv_jfilter_fold(skv_jrun *r, skv_jv v);

#endif
