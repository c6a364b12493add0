/*
 * Marks of a text: offsets that rise, at[0..n). Data begin at the first, end at the second, begin
 * again at the third, and so on; an odd last one has no end.
 */
#ifndef SKV_BASE_MARKS_H
#define SKV_BASE_MARKS_H

#include <stdbool.h>
#include <stddef.h>

/** Returns the number of marks at or before a byte: if it is odd, the byte is data. */
static inline size_t skv_marks_before(const size_t *at, size_t n, size_t byte)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (at[middle] <= byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/** Whether a byte of text[start..end) is data. *i_end: which mark ends the first of these data;
 * n: none does. */
static inline bool skv_marks_touch(const size_t *at, size_t n, size_t start, size_t end,
                                   size_t *i_end)
{
    const size_t i = skv_marks_before(at, n, start);
    *i_end = i + (i % 2 == 0);
    return i % 2 == 1 || (i < n && at[i] < end);
}

#endif
