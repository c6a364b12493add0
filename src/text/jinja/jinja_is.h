/* Tests by name: what may follow `is`. */
#ifndef SKV_TEXT_JINJA_IS_H
#define SKV_TEXT_JINJA_IS_H

#include "text/jinja/jinja_run.h"

/** A test, or NULL when there is none of that name. All that jinja2 has are here. */
const skv_jfunction *skv_jtest_find(const skv_jstr *name);

#endif
