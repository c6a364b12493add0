/* safetensors: whatever parses lies inside the file and does not overlap. */
#include "fuzz.h"

#include <stdlib.h>

#include "format/safetensors.h"

static void check(int ok)
{
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    skv_safetensors *s = NULL;
    if (skv_safetensors_parse(data, size, "fuzz", &s, NULL) != SKV_OK) return 0;
    for (size_t i = 0; i < skv_safetensors_count(s); i++) {
        const skv_tensor *t = skv_safetensors_at(s, i);
        check(skv_safetensors_find(s, t->name) == t);
        check(!skv_safetensors_unusable(s, t->name));
        check(t->data >= data && t->n_bytes <= size && t->data <= data + size - t->n_bytes);
        size_t rows = skv_tensor_rows(t), columns = skv_tensor_columns(t);
        if (!rows || !t->n_bytes) continue;
        float *row = malloc(columns * sizeof *row);
        if (row) skv_tensor_read_rows(t, rows - 1, 1, row);
        free(row);
    }
    skv_safetensors_close(s);
    return 0;
}
