/*
 * Packed codes of compressed-tensors: values and codes of matrices that the package itself packed
 * (tools/fixtures/make_packed_goldens.py), and parts that do not fit together.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "format/coded.h"
#include "format/safetensors.h"
#include "format/source.h"
#include "kernels/kv_page.h"

static const char *const names[] = {"a", "b", "c", "d"};

static void values_are_the_packages(void **state)
{
    (void)state;
    skv_safetensors *file;
    skv_error err;
    if (skv_safetensors_open(SKV_TEST_DATA "/format/packed.safetensors", &file, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(skv_safetensors_count(file), 2 * sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[2][32];
        (void)snprintf(name[0], sizeof name[0], "%s.weight", names[i]);
        (void)snprintf(name[1], sizeof name[1], "%s.want", names[i]);
        const skv_tensor *t = skv_safetensors_find(file, name[0]),
                         *want = skv_safetensors_find(file, name[1]);
        assert_non_null(t);
        assert_non_null(want);
        assert_memory_equal(t->dims, want->dims, 2 * sizeof *t->dims);
        const size_t N = t->dims[0], K = t->dims[1];
        float *have = calloc(N * K, sizeof *have), *expected = calloc(N * K, sizeof *expected);
        skv_tensor_read_rows(t, 0, N, have);
        skv_tensor_read_rows(want, 0, N, expected);
        assert_memory_equal(have, expected, N * K * sizeof *have);
        assert_int_equal(skv_tensor_fetch_row(t, N - 1, have, NULL), SKV_OK);
        assert_memory_equal(have, expected + (N - 1) * K, K * sizeof *have);
        const skv_quant_form *form = skv_tensor_form(t);
        assert_true(!form == (i == 3)); /* scales of f32 have none */
        if (form) {
            void *memory = aligned_alloc(64, skv_round_up(skv_quant_rows_bytes(form, N, K), 64));
            skv_quant_rows rows;
            skv_quant_rows_init(&rows, form, N, K, memory);
            skv_tensor_read_codes(t, 0, 0, &rows);
            for (size_t j = 0; j < N; j++) {
                skv_quant_row_to_f32(&rows, form, j, have);
                assert_memory_equal(have, expected + j * K, K * sizeof *have);
            }
            free(memory);
        }
        free(have);
        free(expected);
    }
    skv_safetensors_close(file);
}

/* Codes of e4m3 times their scales are the rows. Returns whether columns from `column0` on, n of
 * them, have codes that can be kept. */
static bool same_fp8(const skv_tensor *t, size_t column0, size_t n)
{
    const size_t N = skv_tensor_rows(t), group = skv_tensor_fp8_group(t, column0, n);
    if (group == 0) return false;
    const size_t G = skv_ceil_div(n, group);
    float *want = calloc(N * n, sizeof *want), *scales = calloc(N * G, sizeof *scales);
    uint8_t *codes = calloc(N * n, 1);
    skv_tensor_read_part(t, 0, N, column0, n, want);
    skv_tensor_read_fp8(t, 0, N, column0, n, codes, scales);
    for (size_t i = 0; i < N * n; i++) {
        const float value = skv_fp8_decode(codes[i]) * scales[i / n * G + i % n / group];
        assert_true(value == want[i]);
    }
    free(want);
    free(scales);
    free(codes);
    return true;
}

/* Scales of a tensor, of rows, of blocks, which can be too short to keep (16 by 16). */
static void codes_of_fp8_are_the_rows(void **state)
{
    static const struct {
        const char *model;
        bool kept;
    } models[] = {{"fp8-tensor", true}, {"fp8-row-swiftkv", true}, {"fp8-fbgemm", true},
                  {"fp8-block", false}, {"fp8-scalar", true},      {"fp8-block-fused", true},
                  {"awq", false}};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char path[512];
        skv_source *source;
        skv_error err;
        size_t n_kept = 0;
        (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s", models[m].model);
        if (skv_source_open(path, &source, &err) != SKV_OK) fail_msg("%s", err.text);
        for (size_t i = 0; i < skv_source_count(source); i++) {
            const skv_tensor *t = skv_source_at(source, i);
            if (t->n_dims != 2) continue;
            n_kept += same_fp8(t, 0, skv_tensor_columns(t));
            if (skv_tensor_divides(t, 16)) n_kept += same_fp8(t, 16, skv_tensor_columns(t) - 16);
        }
        if (models[m].kept != (n_kept > 0)) fail_msg("%s: %zu parts", models[m].model, n_kept);
        skv_source_close(source);
    }
}

typedef struct bad_case {
    size_t codes[2], scales[2];
    uint64_t shape[2];
    const char *want; /* in the error, or in the reason */
    bool is_error;
} bad_case;

static void parts_that_do_not_fit(void **state)
{
    (void)state;
    static const bad_case cases[] = {
        {{2, 8},
         {2, 2},
         {3, 64},
         "weight_shape: [3, 64], expected [2, 1 to 288230376151711743]",
         true},
        {{2, 8}, {2, 2}, {2, 0}, "weight_shape", true},
        {{2, 8}, {2, 2}, {2, UINT64_MAX}, "weight_shape", true},
        {{2, 8}, {1, 2}, {2, 64}, "weight_scale: shape [1,2]", true},
        {{2, 8}, {2, 3}, {2, 64}, "weight_scale: shape [2,3]", true},
        {{2, 8}, {2, 0}, {2, 64}, "weight_scale: shape [2,0]", true},
        {{2, 8}, {2, 1}, {2, 200}, "neither of 4 nor of 8 bits", false},
        {{2, 8}, {2, 1}, {2, 63}, "end inside an int32", false},
    };
    static const unsigned char data[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bad_case *c = &cases[i];
        skv_tensor codes = {
            .name = "weight_packed", .type = SKV_DTYPE_I32, .n_dims = 2, .data = data};
        skv_tensor scales = {
            .name = "weight_scale", .type = SKV_DTYPE_F16, .n_dims = 2, .data = data};
        const skv_tensor shape = {.name = "weight_shape",
                                  .type = SKV_DTYPE_I64,
                                  .n_dims = 1,
                                  .dims = {2},
                                  .data = (const unsigned char *)c->shape};
        memcpy(codes.dims, c->codes, sizeof c->codes);
        memcpy(scales.dims, c->scales, sizeof c->scales);
        const skv_coded_parts parts = {.scales = &scales, .shape = &shape};
        const char *unusable = "";
        skv_error err = {0};
        const skv_status status = skv_coded_join(&codes, &parts, &unusable, &err);
        assert_int_equal(status, c->is_error ? SKV_FORMAT : SKV_OK);
        const char *said = c->is_error ? err.text : unusable;
        if (!strstr(said, c->want)) fail_msg("%zu: \"%s\", expected \"%s\"", i, said, c->want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_packages),
        cmocka_unit_test(codes_of_fp8_are_the_rows),
        cmocka_unit_test(parts_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
