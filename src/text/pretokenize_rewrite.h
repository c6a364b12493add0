/* A pattern written for Oniguruma's Ruby syntax, rewritten for PCRE2. */
#ifndef SKV_TEXT_PRETOKENIZE_REWRITE_H
#define SKV_TEXT_PRETOKENIZE_REWRITE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/fail.h"

/** Appends the rewritten pattern; SKV_UNSUPPORTED names what PCRE2 cannot say. */
SKV_MUST_CHECK skv_status skv_regex_rewrite(const char *pattern, size_t n, const char *name,
                                            skv_buf *out, skv_error *err);

#endif
