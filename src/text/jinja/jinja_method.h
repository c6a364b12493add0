/* The methods of str, list, tuple and dict, in tables by name. */
#ifndef SKV_TEXT_JINJA_METHOD_H
#define SKV_TEXT_JINJA_METHOD_H

#include "text/jinja/jinja_run.h"

/** A method of a string (jinja_str.c), with `fn` NULL when Python has it and we do not. */
const skv_jfunction *skv_jstr_method(const skv_jstr *name);

/* String operations that filters share with methods. They take the call's `self` as text. */
skv_jv skv_jstr_strip(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_upper(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_lower(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_capitalize(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_center(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_splitlines(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_is_upper(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_is_lower(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_format(skv_jrun *r, const skv_jcall *call);
/** str.isalnum() of one character. */
bool skv_jstr_is_word(uint32_t code);
/** text.replace(old, new, count); a negative count replaces all. */
skv_jv skv_jstr_replace_in(skv_jrun *r, const skv_jstr *text, const skv_jstr *old,
                           const skv_jstr *with, int64_t count);
/** Upper case (or lower) of one character, up to 3 of them. */
void skv_jstr_write_case(skv_buf *buf, uint32_t code, bool upper);

#endif
