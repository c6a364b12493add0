/* Sets of Unicode code points as sorted ranges: character classes. */
#ifndef SKV_GRAMMAR_CODE_SET_H
#define SKV_GRAMMAR_CODE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/budget.h"

enum { SKV_CODE_RANGES_MAX = 4096, SKV_CODE_MAX = 0x10ffff };

typedef struct skv_code_range {
    uint32_t lo, hi; /* both belong to it */
} skv_code_range;

typedef struct skv_code_set {
    skv_code_range *at; /* owned */
    size_t n, capacity;
    skv_budget *budget; /* borrowed: counts the memory; NULL: not counted */
    bool failed;        /* out of memory, or too many ranges */
} skv_code_set;

void skv_code_set_release(skv_code_set *set);
/** Adds lo..hi; the set is in order again after skv_code_set_tidy. */
void skv_code_set_add(skv_code_set *set, uint32_t lo, uint32_t hi);
void skv_code_set_add_all(skv_code_set *set, const skv_code_range *ranges, size_t n);
/** Sorts, joins adjacent ranges, and removes the surrogates, which valid text cannot contain. */
void skv_code_set_tidy(skv_code_set *set);
/** Everything but the set, which must be tidy; the result is. */
void skv_code_set_invert(skv_code_set *set);
/** Adds the code points of a within lo..hi to out. */
void skv_code_set_cut(const skv_code_set *a, uint32_t lo, uint32_t hi, skv_code_set *out);

/* Classes of the ASCII text that \d, \w and \s name. */
extern const skv_code_range skv_code_digits[1];
extern const skv_code_range skv_code_words[4];
extern const skv_code_range skv_code_spaces[2];

/* One way to spell code points in UTF-8: a byte of each range, one after the other. */
typedef struct skv_utf8_spelling {
    size_t n; /* 1..4 */
    uint8_t lo[4], hi[4];
} skv_utf8_spelling;

/** Splits lo..hi into spellings, in order; `put` gets each. */
void skv_utf8_spell(skv_code_range range, void (*put)(void *user, const skv_utf8_spelling *s),
                    void *user);

#endif
