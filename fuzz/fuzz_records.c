/* Files of examples: lines of JSON, arrays and CSV. The first byte says which. */
#include "fuzz.h"

#include <stdlib.h>

#include "eval/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"x.jsonl", "x.json", "x.csv"};
    if (size == 0) return 0;
    skv_records records = {.n = 0};
    skv_error err = {0};
    const skv_status status =
        skv_records_parse(&records, (const char *)data + 1, size - 1, names[data[0] % 3], 0, &err);
    if (status != SKV_OK && err.text[0] == 0) abort();
    skv_records_release(&records);
    return 0;
}
