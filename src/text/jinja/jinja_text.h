/* Text of values: Python's str() and repr(), and code points of strings. */
#ifndef SKV_TEXT_JINJA_TEXT_H
#define SKV_TEXT_JINJA_TEXT_H

#include "text/jinja/jinja_run.h"

/** Code points of valid UTF-8. */
size_t skv_j_count_chars(const char *data, size_t size);
/** The byte offset of code point i <= n_chars. */
size_t skv_j_offset(const skv_jstr *s, size_t i);

/** Appends str(v) or repr(v). What has no stable text in Python fails. */
void skv_j_write_str(skv_jrun *r, skv_buf *buf, skv_jv v);
void skv_j_write_repr(skv_jrun *r, skv_buf *buf, skv_jv v);
/** Python's repr of a float: the shortest digits that read back as the same number. */
void skv_j_write_float(skv_buf *buf, double f);
/** str(v) as a value; strings come back as they are. */
skv_jv skv_j_str(skv_jrun *r, skv_jv v);

#endif
