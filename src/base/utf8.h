/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef SKV_BASE_UTF8_H
#define SKV_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SKV_UTF8_BAD UINT32_MAX

/**
 * Decodes the character at text[0..n), n >= 1, and returns its length in bytes. An invalid byte
 * gives SKV_UTF8_BAD and the length of the longest valid beginning (at least 1), which is how
 * Unicode recommends to replace it (one U+FFFD for each such piece).
 */
size_t skv_utf8_decode(const char *text, size_t n, uint32_t *code);

/** Writes 1 to 4 bytes; code must be a scalar value. */
size_t skv_utf8_encode(uint32_t code, char out[4]);

/** True when text[0..n) is valid; otherwise *bad is the offset of the first invalid byte. */
bool skv_utf8_valid(const char *text, size_t n, size_t *bad);

/** The length of the longest prefix of text[0..n) that does not end inside a character. */
size_t skv_utf8_complete(const char *text, size_t n);

#endif
