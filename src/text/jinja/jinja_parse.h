/* Template source to syntax tree. */
#ifndef SKV_TEXT_JINJA_PARSE_H
#define SKV_TEXT_JINJA_PARSE_H

#include "base/fail.h"
#include "text/jinja/jinja_ast.h"

/** Fills a zeroed template; it is to be released whatever the result. */
SKV_MUST_CHECK skv_status skv_jinja_parse(const char *source, size_t n, const char *name,
                                          skv_jinja *out, skv_error *err);
void skv_jinja_release(skv_jinja *t);

#endif
