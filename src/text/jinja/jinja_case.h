/* Methods of str that look at the kind of each character: case, alignment, is...(). */
#ifndef SKV_TEXT_JINJA_CASE_H
#define SKV_TEXT_JINJA_CASE_H

#include "text/jinja/jinja_run.h"

const skv_jfunction *skv_jcase_method(const skv_jstr *name);

#endif
