/* Letter case by the runs of unicode_tables.c. */
#include "text/unicode_class.h"

uint32_t skv_unicode_lower(uint32_t code)
{
    size_t low = 0, high = skv_unicode_n_lower;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (skv_unicode_lower_runs[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == skv_unicode_n_lower) return code;
    const skv_unicode_case *run = &skv_unicode_lower_runs[low];
    if (code < run->first || (code - run->first) % (uint32_t)run->step != 0) return code;
    return (uint32_t)((int32_t)code + run->delta);
}
