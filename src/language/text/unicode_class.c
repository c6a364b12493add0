/* Classes beyond the table, apart so that lookups in the table stay short: see unicode_class.h. */
#include "text/unicode_class.h"

unsigned skv_unicode_high_class(uint32_t code)
{
    size_t i = 0;
    if (code >= SKV_UNICODE_END) return 0;
    while (skv_unicode_high[i + 1].first <= code) i++;
    return skv_unicode_high[i].flags;
}
