/*
 * Small binary files written as text, for tests of parsers. A script is a list of words:
 *
 *     4:N 8:N     N as little-endian u32, u64        s:TEXT  a u64 length and the text
 *     r:TEXT      the text                           z:N     N zero bytes
 *     p:N         zero bytes up to a multiple of N   b:N     one byte
 */
#ifndef SKV_TESTS_BYTES_SCRIPT_H
#define SKV_TESTS_BYTES_SCRIPT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static inline void bytes_number(skv_buf *out, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) skv_buf_byte(out, (char)(unsigned char)(value >> (8 * i)));
}

static inline void bytes_word(skv_buf *out, const char *word, size_t n)
{
    const char *text = word + 2;
    uint64_t number = strtoull(text, NULL, 0);
    switch (word[0]) {
    case '4': bytes_number(out, number, 4); break;
    case '8': bytes_number(out, number, 8); break;
    case 'b': bytes_number(out, number, 1); break;
    case 's':
        bytes_number(out, n - 2, 8);
        skv_buf_append(out, text, n - 2);
        break;
    case 'r': skv_buf_append(out, text, n - 2); break;
    case 'z':
        while (number--) skv_buf_byte(out, 0);
        break;
    default:
        while (out->size % number) skv_buf_byte(out, 0);
        break;
    }
}

/** Appends what the script says. */
static inline void bytes_script(skv_buf *out, const char *script)
{
    for (const char *at = script + strspn(script, " "); *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        bytes_word(out, at, n);
        at += n;
    }
}

/** A heap copy of exactly n bytes, so that a read beyond them is seen by a sanitizer. */
static inline void *bytes_exact(const void *data, size_t n)
{
    void *copy = malloc(n ? n : 1);
    if (copy && n) memcpy(copy, data, n);
    return copy;
}

#endif
