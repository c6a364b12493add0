/* A stable sort by keys. */
#ifndef SKV_TEXT_JINJA_SORT_H
#define SKV_TEXT_JINJA_SORT_H

#include "text/jinja/jinja_run.h"

/** A new list of `items` in the order of their keys; `reverse` keeps equal ones in place too. */
skv_jv skv_j_sorted(skv_jrun *r, const skv_jlist *items, const skv_jlist *keys, bool reverse);

#endif
