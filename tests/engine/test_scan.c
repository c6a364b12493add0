/*
 * Linear attention. The kernels of check_scan.c, every level that this machine runs; and the
 * operations of the processor's back end against transformers' and torch's formulas in float64:
 * tests/data/scan, which tools/oracle/make_scan_goldens.py makes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "backend/devices.h"
#include "base/rng.h"
#include "check_scan.h"

enum { WIDEST = 128, STEP = 100 /* most rows of a step */ };

static void test_every_level(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        assert_int_equal(skv_check_scan(seed, false, stdout), 0);
    }
}

/* ---- goldens ---- */

/* Numbers in an area; each is one row. */
typedef struct tensor {
    skv_area *area;
    size_t n;
} tensor;

static skv_rows rows_of(tensor t, size_t row, size_t ld)
{
    return (skv_rows){t.area, row * ld, ld};
}

static skv_vec vec_of(tensor t)
{
    return (skv_vec){t.area, 0};
}

static tensor zeros(skv_backend *be, size_t n)
{
    tensor t = {.n = n};
    skv_error err;
    const skv_area_spec spec = {SKV_AREA_F32, 1, n, false, true};
    assert_int_equal(be->areas_create(be, &spec, 1, &t.area, &err), SKV_OK);
    return t;
}

/* `numbers` of make_scan_goldens.py; with `negative` minus their amounts. */
static tensor numbers(skv_backend *be, uint64_t seed, size_t n, double size, bool negative)
{
    const tensor t = zeros(be, n);
    const skv_mapped m = be->map(be, rows_of(t, 0, n), 1, n, SKV_MAP_WRITE);
    uint64_t x = seed * 2 + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        m.at[i] = ((float)(x >> 40) / (1 << 23) - 1) * (float)size;
        if (negative) m.at[i] = -fabsf(m.at[i]);
    }
    be->unmap(be, m);
    return t;
}

static double field(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_non_null(value);
    return json_is_boolean(value) ? (double)json_boolean_value(value) : json_number_value(value);
}

static size_t count(const json_t *object, const char *name)
{
    return (size_t)field(object, name);
}

/* The rows of a golden, by heads of `width`, within a share of the head's largest number. */
static void compare(skv_backend *be, const json_t *golden, tensor out, size_t ld, size_t width,
                    double tolerance)
{
    const json_t *rows = json_object_get(golden, "rows"), *want = json_object_get(golden, "out");
    const skv_mapped m = be->map(be, rows_of(out, 0, out.n), 1, out.n, SKV_MAP_READ);
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(want, i);
        const size_t t = (size_t)json_integer_value(json_array_get(rows, i));
        assert_int_equal(json_array_size(row), ld);
        for (size_t h = 0; h < ld; h += width) {
            double largest = 0, error = 0;
            for (size_t c = h; c < h + width; c++) {
                const double x = json_number_value(json_array_get(row, c));
                largest = fmax(largest, fabs(x));
                error = fmax(error, fabs(x - (double)m.at[t * ld + c]));
            }
            if (!(error <= tolerance * largest)) {
                fail_msg("%s row %zu column %zu: %g of %g",
                         json_string_value(json_object_get(golden, "name")), t, h, error, largest);
            }
        }
    }
    be->unmap(be, m);
}

/* n rows of one sequence, in state 0, are under way. */
static skv_backend_step *begin_step(skv_backend *be, size_t n_past, size_t n)
{
    const skv_backend_step_limits limits = {.max_rows = STEP};
    const skv_backend_span span = {.n = n, .n_past = n_past};
    const skv_attention_item item = {.n_q = n, .n_past = n_past};
    const skv_set_spec all = {NULL, n, &item, 1};
    const skv_backend_step_spec spec = {.spans = &span, .n_spans = 1, .sets = {all, all, all}};
    skv_backend_step *step;
    assert_int_equal(be->step_create(be, &limits, &step, NULL), SKV_OK);
    assert_int_equal(be->step_begin(be, step, &spec, NULL), SKV_OK);
    return step;
}

static void end_step(skv_backend *be, skv_backend_step *step)
{
    assert_int_equal(be->step_wait(be, step, NULL), SKV_OK);
    be->step_free(be, step);
}

/* With `bf16` each number of S loses up to 2^-9 of it at every 16th row. Earlier errors decay with
 * S, so a few of them add up in a row. */
static void check_scan(skv_backend *be, const json_t *g, skv_rng *rng, bool bf16)
{
    const bool mamba = json_is_true(json_object_get(g, "mamba2"));
    const size_t nk = count(g, "key_heads"), nv = count(g, "value_heads"), n = count(g, "n");
    const size_t keys = nk * count(g, "key_dim"), values = nv * count(g, "value_dim");
    const uint64_t seed = count(g, "seed");
    const skv_state_layer layer = {.kind = mamba ? SKV_SCAN_MAMBA2 : SKV_SCAN_GATED_DELTA,
                                   .n_key_heads = nk,
                                   .n_value_heads = nv,
                                   .key_dim = count(g, "key_dim"),
                                   .value_dim = count(g, "value_dim"),
                                   .tiled = json_is_true(json_object_get(g, "tiled"))};
    skv_states *states;
    skv_error err;
    const skv_states_spec spec = {&layer, 1, 1, 0, bf16};
    assert_int_equal(be->states_create(be, &spec, &states, &err), SKV_OK);
    tensor t[] = {numbers(be, seed, n * keys, 1, false),
                  numbers(be, seed + 1, n * keys, 1, false),
                  numbers(be, seed + 2, n * values, 1, false),
                  numbers(be, seed + 3, n * nv, field(g, "size_a"), false),
                  numbers(be, seed + 4, n * nv, field(g, "size_b"), false),
                  numbers(be, seed + 5, nv, field(g, "size_rate"), true),
                  numbers(be, seed + 6, nv, 1, false),
                  numbers(be, seed + 7, nv, 1, false),
                  zeros(be, n * values)};
    for (size_t at = 0, step; at < n; at += step) {
        step = 1 + (size_t)skv_rng_below(rng, STEP);
        if (step > n - at) step = n - at;
        skv_backend_step *rows = begin_step(be, at, step);
        be->scan(be, &(skv_scan_args){.step = rows,
                                      .states = states,
                                      .q = rows_of(t[0], at, keys),
                                      .k = rows_of(t[1], at, keys),
                                      .v = rows_of(t[2], at, values),
                                      .decay = rows_of(t[3], at, nv),
                                      .write = rows_of(t[4], at, nv),
                                      .out = rows_of(t[8], at, values),
                                      .rate = vec_of(t[5]),
                                      .dt_bias = vec_of(t[6]),
                                      .skip = mamba ? vec_of(t[7]) : (skv_vec){0},
                                      .dt_min = (float)field(g, "dt_min"),
                                      .dt_max = (float)field(g, "dt_max"),
                                      .write_max = (float)field(g, "write_max")});
        end_step(be, rows);
    }
    compare(be, g, t[8], values, layer.value_dim, bf16 ? 4 * 0x1p-9 : 1e-5);
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) be->areas_free(be, &t[i].area, 1);
    be->states_free(be, states);
}

static void check_convolution(skv_backend *be, const json_t *g, skv_rng *rng)
{
    const size_t n = count(g, "n"), C = count(g, "channels"), K = count(g, "taps");
    const uint64_t seed = count(g, "seed");
    const skv_state_layer layer = {.conv_columns = C, .conv_taps = K};
    skv_states *states;
    skv_error err;
    assert_int_equal(
        be->states_create(be, &(skv_states_spec){&layer, 1, 1, 0, false}, &states, &err), SKV_OK);
    tensor t[] = {numbers(be, seed, n * C, 1, false), numbers(be, seed + 1, K * C, 1, false),
                  numbers(be, seed + 2, C, 1, false)};
    for (size_t at = 0, step; at < n; at += step) { /* in place */
        step = 1 + (size_t)skv_rng_below(rng, 5);
        if (step > n - at) step = n - at;
        skv_backend_step *rows = begin_step(be, at, step);
        be->conv(be, &(skv_conv_args){.step = rows,
                                      .states = states,
                                      .n = C,
                                      .x = rows_of(t[0], at, C),
                                      .y = rows_of(t[0], at, C),
                                      .weight = vec_of(t[1]),
                                      .bias = field(g, "bias") > 0 ? vec_of(t[2]) : (skv_vec){0},
                                      .silu = field(g, "silu") > 0});
        end_step(be, rows);
    }
    compare(be, g, t[0], C, C, 1e-5);
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) be->areas_free(be, &t[i].area, 1);
    be->states_free(be, states);
}

static void test_goldens(void **state)
{
    json_t *goldens = json_load_file(SKV_TEST_DATA "/scan/goldens.json", 0, NULL);
    const skv_backend_limits limits = {.max_rows = STEP,
                                       .max_K = 16,
                                       .max_heads = 1,
                                       .head_dim = 16,
                                       .max_group = 1,
                                       .max_kv_rows = 1,
                                       .state_key_dim = WIDEST,
                                       .state_value_dim = WIDEST};
    const json_t *golden;
    size_t i;
    skv_rng rng;
    (void)state;
    assert_non_null(goldens);
    skv_rng_init(&rng, 1);
    for (skv_cpu_level level = SKV_CPU_LEVEL_BEST; level <= SKV_CPU_LEVEL_NEON; level++) {
        skv_backend *be;
        skv_error err;
        skv_pool *pool;
        assert_int_equal(skv_pool_create(2, &pool, &err), SKV_OK);
        const skv_backend_options options = {.threads = pool, .level = level};
        if (skv_backend_create(&options, &be, &err) == SKV_OK) { /* else: not here */
            assert_int_equal(be->reserve(be, &limits, &err), SKV_OK);
            json_array_foreach(json_object_get(goldens, "scans"), i, golden) for (int bf16 = 0;
                                                                                  bf16 < 2; bf16++)
                check_scan(be, golden, &rng, bf16);
            json_array_foreach(json_object_get(goldens, "convolutions"), i, golden)
                check_convolution(be, golden, &rng);
            be->free(be);
        }
        skv_pool_free(pool);
    }
    json_decref(goldens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level),
        cmocka_unit_test(test_goldens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
