/*
 * Element types: every block type against the gguf package (tests/data/format/blocks.bin, made by
 * tools/fixtures/make_format_fixtures.py), 16-bit floats against arithmetic of their own, rows in
 * pair order.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/float16.h"
#include "base/mem.h"
#include "format/tensor.h"

enum { ELEMENTS_MAX = 512 };

/* The number of blocks of each type in the file. */
static size_t blocks_in_fixture(skv_dtype type)
{
    size_t n = skv_dtype_block_elements(type);
    return n == 1 ? 8 : n == 32 ? 3 : 2;
}

static void dequantises_as_the_gguf_package(void **state)
{
    (void)state;
    char *data;
    size_t size, at = 0;
    assert_int_equal(skv_file_read(SKV_TEST_DATA "/format/blocks.bin", 1 << 20, &data, &size, NULL),
                     SKV_OK);
    for (int type = 0; type < SKV_DTYPE_PACKED_I4; type++) {
        skv_dtype t = (skv_dtype)type;
        size_t n_bytes, n = blocks_in_fixture(t) * skv_dtype_block_elements(t);
        assert_true(skv_dtype_bytes(t, n, &n_bytes));
        assert_true(n <= ELEMENTS_MAX && at + n_bytes + 4 * n <= size);
        float have[ELEMENTS_MAX], want[ELEMENTS_MAX];
        /* An exact, misaligned copy: no read beyond the blocks goes unseen by a sanitizer. */
        char *copy = skv_alloc(n_bytes + 1, 1);
        memcpy(copy + 1, data + at, n_bytes);
        memcpy(want, data + at + n_bytes, 4 * n);
        skv_dtype_to_f32(t, have, copy + 1, n);
        skv_free(copy);
        for (size_t i = 0; i < n; i++) {
            float bound = 1e-6F * fabsf(want[i]) + 1e-7F;
            if (!(fabsf(have[i] - want[i]) <= bound)) {
                fail_msg("%s element %zu: %.9g, expected %.9g", skv_dtype_name(t), i,
                         (double)have[i], (double)want[i]);
            }
        }
        at += n_bytes + 4 * n;
    }
    assert_int_equal(at, size);
    skv_free(data);
}

static double half_by_arithmetic(unsigned h)
{
    int exponent = (int)(h >> 10 & 31);
    double mantissa = (double)(h & 1023);
    double value = exponent ? ldexp(1024.0 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000u ? -value : value;
}

static void every_half_widens_and_narrows(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float value = skv_float_of_f16((uint16_t)h);
        if ((h >> 10 & 31) == 31) {
            assert_true((h & 1023) ? isnan(value) : isinf(value) && (value < 0) == (h >> 15));
        } else {
            assert_true((double)value == half_by_arithmetic(h));
        }
        if (isnan(value)) {
            assert_true(isnan(skv_float_of_f16(skv_f16_of_float(value))));
            assert_true(isnan(skv_float_of_bf16(skv_bf16_of_float(value))));
        } else {
            assert_int_equal(skv_f16_of_float(value), h);
        }
        float wide = skv_float_of_bf16((uint16_t)h);
        if (!isnan(wide)) assert_int_equal(skv_bf16_of_float(wide), h);
    }
}

/* Scales of MXFP4 from 2^-128, whose two least have no normal form, to 2^127: the levels are twice
 * the values. */
static void every_exponent_is_a_power_of_two(void **state)
{
    (void)state;
    for (int e = 0; e < 256; e++) {
        unsigned char block[17] = {(unsigned char)e, 0x71, 0x9f};
        float values[32];
        assert_true(skv_float_of_bf16(skv_bf16_of_half_e8m0((uint8_t)e)) == ldexpf(1, e - 128));
        skv_dtype_to_f32(SKV_DTYPE_MXFP4, values, block, 32);
        assert_true(values[0] == ldexpf(0.5F, e - 127) && values[16] == ldexpf(6, e - 127));
        assert_true(values[1] == ldexpf(-6, e - 127) && values[17] == ldexpf(-0.5F, e - 127));
        assert_true(values[2] == 0 && values[18] == 0);
    }
}

/* The nearest half: no other half is nearer, and of two equally near the even one. */
static void rounds_to_the_nearest_half(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++) {
        double low = half_by_arithmetic(h), high = half_by_arithmetic(h + 1);
        float middle = (float)((low + high) / 2); /* exact */
        assert_int_equal(skv_f16_of_float(middle), h % 2 ? h + 1 : h);
        assert_int_equal(skv_f16_of_float(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(skv_f16_of_float(nextafterf(middle, 0)), h);
        assert_int_equal(skv_f16_of_float(-middle), (h % 2 ? h + 1 : h) | 0x8000u);
    }
    assert_int_equal(skv_f16_of_float(65519.0F), 0x7bff);
    assert_int_equal(skv_f16_of_float(65520.0F), 0x7c00);
    assert_int_equal(skv_f16_of_float(INFINITY), 0x7c00);
    for (unsigned h = 0; h < 0x7f7f; h++) {
        uint32_t middle = h << 16 | 0x8000u;
        assert_int_equal(skv_bf16_of_float(skv_float_of_bits(middle)), h % 2 ? h + 1 : h);
        assert_int_equal(skv_bf16_of_float(skv_float_of_bits(middle + 1)), h + 1);
        assert_int_equal(skv_bf16_of_float(skv_float_of_bits(middle - 1)), h);
    }
}

static void sizes_are_whole_blocks(void **state)
{
    (void)state;
    size_t n_bytes = 77;
    assert_true(skv_dtype_bytes(SKV_DTYPE_Q4_K, 512, &n_bytes));
    assert_int_equal(n_bytes, 288);
    assert_false(skv_dtype_bytes(SKV_DTYPE_Q4_K, 511, &n_bytes));
    assert_false(skv_dtype_bytes(SKV_DTYPE_F32, SIZE_MAX / 2, &n_bytes));
    assert_int_equal(n_bytes, 288);
    assert_string_equal(skv_dtype_name(SKV_DTYPE_IQ4_NL), "IQ4_NL");
    assert_string_equal(skv_dtype_name((skv_dtype)99), "unknown");
}

/* GGUF's conversion reshapes [heads, 2, half] to [heads, half, 2]. */
static void pair_order_is_undone(void **state)
{
    (void)state;
    enum { HEADS = 3, HALF = 4, ROWS = HEADS * 2 * HALF, COLUMNS = 2 };
    float stored[ROWS * COLUMNS], bias[ROWS], out[ROWS * COLUMNS];
    for (size_t h = 0; h < HEADS; h++) {
        for (size_t j = 0; j < HALF; j++) {
            for (size_t side = 0; side < 2; side++) {
                size_t row = h * 2 * HALF + side * HALF + j; /* of the published matrix */
                size_t at = h * 2 * HALF + j * 2 + side;
                bias[at] = (float)row;
                for (size_t k = 0; k < COLUMNS; k++) {
                    stored[at * COLUMNS + k] = (float)(row * 10 + k);
                }
            }
        }
    }
    skv_tensor t = {.type = SKV_DTYPE_F32,
                    .n_dims = 2,
                    .dims = {ROWS, COLUMNS},
                    .data = (const unsigned char *)stored,
                    .n_bytes = sizeof stored,
                    .n_rope_heads = HEADS};
    for (size_t row0 = 0; row0 < ROWS; row0 += 5) {
        size_t n = row0 + 5 <= ROWS ? 5 : ROWS - row0;
        skv_tensor_read_rows(&t, row0, n, out);
        for (size_t i = 0; i < n * COLUMNS; i++) {
            assert_true(out[i] == (float)((row0 + i / COLUMNS) * 10 + i % COLUMNS));
        }
    }
    t.n_dims = 1;
    t.dims[0] = ROWS;
    t.data = (const unsigned char *)bias;
    skv_tensor_read_rows(&t, 0, 1, out);
    for (size_t i = 0; i < ROWS; i++) assert_true(out[i] == (float)i);
}

static void shapes_print(void **state)
{
    (void)state;
    size_t dims[] = {4096, 1024};
    char text[32];
    assert_int_equal(skv_tensor_shape_text(dims, 2, text, sizeof text), 11);
    assert_string_equal(text, "[4096,1024]");
    skv_tensor_shape_text(dims, 0, text, sizeof text);
    assert_string_equal(text, "[]");
    skv_tensor_shape_text(dims, 2, text, 6);
    assert_string_equal(text, "[4096");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dequantises_as_the_gguf_package),
        cmocka_unit_test(every_half_widens_and_narrows),
        cmocka_unit_test(every_exponent_is_a_power_of_two),
        cmocka_unit_test(rounds_to_the_nearest_half),
        cmocka_unit_test(sizes_are_whole_blocks),
        cmocka_unit_test(pair_order_is_undone),
        cmocka_unit_test(shapes_print),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
