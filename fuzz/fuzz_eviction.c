/* libFuzzer target: methods of eviction as text; what is read is written and read again. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "skv/eviction.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[256], first[SKV_EVICTION_TEXT], second[SKV_EVICTION_TEXT];
    skv_eviction how, again;
    skv_error err;
    size_t n = size < sizeof text ? size : sizeof text - 1;
    if (n > 0) memcpy(text, data, n);
    text[n] = 0;
    if (skv_eviction_parse(text, &how, &err) != SKV_OK) return 0;
    skv_eviction_print(&how, first);
    if (skv_eviction_parse(first, &again, &err) != SKV_OK) abort();
    skv_eviction_print(&again, second);
    if (strcmp(first, second) != 0) abort();
    return 0;
}
