/*
 * Character classes as the tokenizers' own libraries define them.
 *
 * Their parts follow different versions of Unicode, and equal ids need the same mistakes: the regex
 * classes are Unicode 16.0 (Oniguruma 6.9.10), NUMERIC and lower case 17.0 (Rust's own), OLD_PUNCT
 * and OLD_MARK those of crates that stopped at Unicode 8 and 9.
 */
#ifndef SKV_TEXT_UNICODE_CLASS_H
#define SKV_TEXT_UNICODE_CLASS_H

#include <stddef.h>
#include <stdint.h>

enum skv_unicode {
    SKV_U_LETTER = 1 << 0,    /* \p{L} */
    SKV_U_NUMBER = 1 << 1,    /* \p{N} */
    SKV_U_PUNCT = 1 << 2,     /* \p{P} */
    SKV_U_SYMBOL = 1 << 3,    /* \p{S} */
    SKV_U_MARK = 1 << 4,      /* \p{M} */
    SKV_U_SPACE = 1 << 5,     /* \s */
    SKV_U_UPPER = 1 << 6,     /* \p{Lu}, \p{Lt} */
    SKV_U_LOWER = 1 << 7,     /* \p{Ll} */
    SKV_U_NUMERIC = 1 << 8,   /* the Digits pre-tokenizer splits at these */
    SKV_U_OLD_PUNCT = 1 << 9, /* the Punctuation pre-tokenizer splits at these */
    SKV_U_OLD_MARK = 1 << 10, /* the StripAccents normalizer drops these */
    SKV_U_WORD = 1 << 11,     /* \w: a single-word token may not touch these */
    SKV_U_HAN = 1 << 12,      /* \p{Han} */
    SKV_U_NEWER = 1 << 13     /* unassigned for the normalizers: no decomposition, no order */
};

/* Codes from SKV_UNICODE_TABLE_END on have a list of runs: most are unassigned. */
enum { SKV_UNICODE_BLOCK = 16, SKV_UNICODE_TABLE_END = 0x20000, SKV_UNICODE_END = 0x110000 };

typedef struct skv_unicode_run {
    uint32_t first; /* up to the next run's */
    uint16_t flags;
} skv_unicode_run;

typedef struct skv_unicode_case {
    uint32_t first, last; /* capital letters first, first + step .. last */
    int32_t step, delta;  /* the small letter is at code + delta */
} skv_unicode_case;

extern const uint16_t skv_unicode_block[SKV_UNICODE_TABLE_END / SKV_UNICODE_BLOCK];
extern const uint8_t skv_unicode_set[];
extern const uint16_t skv_unicode_flags[];
extern const skv_unicode_run skv_unicode_high[]; /* the last begins at SKV_UNICODE_END */
extern const skv_unicode_case skv_unicode_lower_runs[];
extern const size_t skv_unicode_n_lower;

/** Returns the flags above of a code from SKV_UNICODE_TABLE_END on. */
unsigned skv_unicode_high_class(uint32_t code);

/** Returns the flags above; 0 for invalid characters (SKV_UTF8_BAD too). */
static inline unsigned skv_unicode_class(uint32_t code)
{
    if (code >= SKV_UNICODE_TABLE_END) return skv_unicode_high_class(code);
    size_t at = (size_t)skv_unicode_block[code / SKV_UNICODE_BLOCK] * SKV_UNICODE_BLOCK;
    return skv_unicode_flags[skv_unicode_set[at + code % SKV_UNICODE_BLOCK]];
}

#endif
