/* Python's operators on values. */
#ifndef SKV_TEXT_JINJA_OP_H
#define SKV_TEXT_JINJA_OP_H

#include "text/jinja/jinja_run.h"

bool skv_j_truth(skv_jrun *r, skv_jv v);
/** ==; never fails but for the depth and fuel limits. */
bool skv_j_equal(skv_jrun *r, skv_jv a, skv_jv b);
/** a < b; fails for types without an order. */
bool skv_j_less(skv_jrun *r, skv_jv a, skv_jv b);
/** One comparison of SKV_JN_COMPARE. */
bool skv_j_compare(skv_jrun *r, unsigned op, skv_jv a, skv_jv b);
/** item in container. */
bool skv_j_contains(skv_jrun *r, skv_jv container, skv_jv item);
/** a op b for + - * / // % **. */
skv_jv skv_j_binary(skv_jrun *r, unsigned op, skv_jv a, skv_jv b);
skv_jv skv_j_negate(skv_jrun *r, skv_jv v, bool negative);
/** A list of what iter(v) gives, sharing the items where it can; an iterator is used up. */
skv_jv skv_j_items(skv_jrun *r, skv_jv v);
/** len(v); false, without a failure, for what has none. */
bool skv_j_length(skv_jv v, int64_t *n);
/** obj.name and obj[key] as jinja2's sandbox finds them. */
skv_jv skv_j_getattr(skv_jrun *r, skv_jv object, const skv_jstr *name);
skv_jv skv_j_getitem(skv_jrun *r, skv_jv object, skv_jv key);
/** object[start:stop:step]; SKV_J_NONE or SKV_J_MISSING stand for an absent part. */
skv_jv skv_j_slice(skv_jrun *r, skv_jv object, const skv_jv part[3]);
/** The item of a str, list, tuple or range; false when the index is outside. */
bool skv_j_index(skv_jrun *r, skv_jv v, int64_t i, skv_jv *item);
/** The bytes of `part` in `text` from byte `from` on; SIZE_MAX when it is not there. */
size_t skv_j_find_bytes(skv_jrun *r, const skv_jstr *text, const skv_jstr *part, size_t from);
/** The text with & < > ' " escaped, marked safe; markup comes back as it is. */
skv_jv skv_j_escape(skv_jrun *r, skv_jv v);

#endif
