/* Methods of str that look at the kind of each character: case, alignment, is...(). */
#ifndef SKV_FORMAT_JINJA_CASE_H
#define SKV_FORMAT_JINJA_CASE_H

#include "format/jinja_run.h"

const skv_jfunction *skv_jcase_method(const skv_jstr *name);

#endif
