/* Matrices of 8 and 4 bits with scales of their own: FP8, int8, packed int4, GPTQ and AWQ. The
 * first byte tells what config.json says, the rest is a safetensors file. */
#include "fuzz.h"

#include <stdlib.h>

#include "format/coded.h"
#include "format/safetensors.h"

static const skv_quant_config configs[] = {
    {.method = "gptq", .zeros_minus_one = true},
    {.method = "gptq", .schemes = {{4, 32, false}}, .n_schemes = 1},
    {.method = "awq"},
    {.method = "fp8", .block = {128, 128}},
    {.method = "fp8", .block = {3, 5}},
    {.method = "compressed-tensors"},
    {.method = "compressed-tensors", .block = {2, 3}, .schemes = {{8, 0, false}}, .n_schemes = 1},
    {.method = "compressed-tensors", .schemes = {{4, 32, true}, {8, 0, false}}, .n_schemes = 2},
};

static void read_codes(const skv_tensor *t)
{
    const skv_quant_form *form = skv_tensor_form(t);
    const size_t K = skv_tensor_columns(t);
    if (!form || K % SKV_QUANT_GROUP != 0) return;
    void *memory = aligned_alloc(64, skv_round_up(skv_quant_rows_bytes(form, 1, K) + 64, 64));
    skv_quant_rows rows;
    if (memory) {
        skv_quant_rows_init(&rows, form, 1, K, memory);
        skv_tensor_read_codes(t, skv_tensor_rows(t) - 1, 0, &rows);
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    skv_safetensors *s = NULL;
    if (size < 1) return 0;
    const skv_quant_config *config = &configs[data[0] % (sizeof configs / sizeof *configs)];
    if (skv_safetensors_parse(data + 1, size - 1, "fuzz", &s, NULL) != SKV_OK) return 0;
    for (size_t i = 0; i < skv_safetensors_count(s); i++) {
        skv_tensor t = *skv_safetensors_at(s, i);
        if (!t.coded.layout || skv_coded_settle(&t, config, NULL) != SKV_OK) continue;
        const size_t rows = skv_tensor_rows(&t), columns = skv_tensor_columns(&t);
        char text[64];
        skv_coded_text(&t, text, sizeof text);
        float *row = malloc(columns * sizeof *row);
        for (size_t r = 0; row && r < rows; r += rows / 4 + 1) skv_tensor_read_rows(&t, r, 1, row);
        if (row) skv_tensor_read_rows(&t, rows - 1, 1, row);
        free(row);
        read_codes(&t);
    }
    skv_safetensors_close(s);
    return 0;
}
