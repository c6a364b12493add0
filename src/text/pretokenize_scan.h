/*
 * Hand-written scanners for the regular expressions that published tokenizers split by.
 */
#ifndef SKV_TEXT_PRETOKENIZE_SCAN_H
#define SKV_TEXT_PRETOKENIZE_SCAN_H

#include <stddef.h>

/** The length of the match at text[0..n), n >= 1; never 0: these patterns cover every text. */
typedef size_t skv_scan_fn(const char *text, size_t n);

/** The scanner that does what this pattern does; NULL when there is none. */
skv_scan_fn *skv_scan_for_pattern(const char *pattern, size_t n);

skv_scan_fn skv_scan_gpt2;

#endif
