/* Products with quantised weights: see check_quant.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "amx_q_model.h"
#include "backend/cpu/cpu_state.h"
#include "backend/devices.h"
#include "base/float16.h"
#include "check_quant.h"
#include "format/dtype.h"
#include "kernels/quant_panel.h"

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(skv_check_quant(1, false, stderr), 0);
}

/* A model in memory is as large as its file: panels take what blocks take, but for the minimums of
 * Q4_K, which have 8 bits instead of 6, and headers. */
static void test_panel_bytes(void **state)
{
    enum { NR = 64, K = 2048 };
    const skv_dtype types[] = {SKV_DTYPE_Q4_0, SKV_DTYPE_Q4_K, SKV_DTYPE_Q6_K, SKV_DTYPE_Q8_0};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        size_t in_file = 0;
        assert_true(skv_dtype_bytes(types[i], (size_t)NR * K, &in_file));
        size_t in_panel = skv_quant_panel_bytes(skv_quant_form_of(types[i]), NR, K);
        assert_in_range(in_panel, in_file, in_file + in_file * 3 / 100);
    }
}

/* ---- weights that a task unpacks once ---- */

/* y [m, N] of a product of 4-bit codes. */
typedef struct task {
    size_t m, K, N;
    skv_epilogue epilogue; /* a gated one: N columns of gate and N of up */
    const skv_quant_form *form;
} task;

static uint32_t bits_of(size_t i)
{
    return (uint32_t)(i * 2654435761U) >> 9;
}

static float number(size_t i)
{
    return (float)(bits_of(i) % 2003) / 1001.5f - 1.0f;
}

static void read_codes(const void *ctx, size_t row0, size_t n, skv_quant_rows *out)
{
    const task *t = ctx;
    const size_t n_spans = skv_quant_spans(t->form, t->K), n_groups = t->K / t->form->group;
    for (size_t i = 0; i < n; i++) {
        const skv_quant_row row = skv_quant_row_at(out, t->form, i);
        const size_t from = (row0 + i) * t->K;
        for (size_t k = 0; k < t->K; k++) row.codes[k] = bits_of(from + k) % 16;
        for (size_t s = 0; s < n_spans; s++) {
            const float scale = 0.01f + 0.001f * number(from + s);
            row.scales[s] = t->form->bf16 ? skv_bf16_of_float(scale) : skv_f16_of_float(scale);
            if (row.mins) row.mins[s] = row.scales[s];
        }
        for (size_t g = 0; row.fine && g < n_groups; g++) {
            row.fine[g] = (int8_t)(bits_of(from + g) % 64);
            if (row.fine_min) row.fine_min[g] = bits_of(from + g + 7) % 64;
        }
    }
}

static size_t n_unpacked; /* elements of rows of W */

static void count_unpacked(void *to, const void *panel, size_t K, size_t k0, size_t k1,
                           unsigned mode)
{
    n_unpacked += SKV_Q_NR * (k1 - k0);
    q_unpack_ahead(to, panel, K, k0, k1, mode);
}

/* By one thread, with this product, or that of the processor where it is NULL. */
static void multiply(const task *t, const skv_matmul *q, float *y)
{
    const bool paired = t->epilogue == SKV_EPILOGUE_SILU_GLU;
    const skv_area_spec specs[] = {{SKV_AREA_F32, t->m, t->K, false, true},
                                   {SKV_AREA_F32, t->m, t->N, false, true}};
    const skv_backend_limits limits = {.max_rows = t->m,
                                       .max_K = t->K,
                                       .max_heads = 1,
                                       .head_dim = 64,
                                       .max_group = 1,
                                       .max_kv_rows = 64};
    skv_pool *pool;
    skv_backend *be;
    skv_linear *w;
    skv_area *areas[2];
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    assert_int_equal(skv_backend_create(&(skv_backend_options){.threads = pool}, &be, NULL),
                     SKV_OK);
    const size_t usual_bytes = be->reserve_bytes(be, &limits).host;
    if (q) ((skv_cpu_backend *)be)->kernels.q = *q;
    if (q && q->unpack) { /* what is counted is bounded */
        assert_in_range(be->reserve_bytes(be, &limits).host, usual_bytes + 1,
                        usual_bytes + (2 << 20));
    }
    assert_int_equal(be->reserve(be, &limits, NULL), SKV_OK);
    const skv_row_source source = {
        .read_codes = read_codes, .ctx = t, .form = t->form, .n_rows = t->N};
    const skv_row_source parts[] = {source, source};
    const skv_linear_spec spec = {SKV_WEIGHT_QUANT, parts, paired ? 2 : 1, t->K, paired};
    assert_int_equal(be->linear_create(be, &spec, &w, NULL), SKV_OK);
    assert_int_equal(be->areas_create(be, specs, 2, areas, NULL), SKV_OK);
    const skv_mapped x = be->map(be, (skv_rows){areas[0], 0, t->K}, t->m, t->K, SKV_MAP_WRITE);
    for (size_t i = 0; i < t->m * t->K; i++) x.at[i] = number(i + 11);
    be->unmap(be, x);
    be->linear(be, &(skv_linear_args){.w = w,
                                      .y = {areas[1], 0, t->N},
                                      .x = {areas[0], 0, t->K},
                                      .n_rows = t->m,
                                      .epilogue = t->epilogue});
    const skv_mapped out = be->map(be, (skv_rows){areas[1], 0, t->N}, t->m, t->N, SKV_MAP_READ);
    memcpy(y, out.at, t->m * t->N * sizeof *y);
    be->unmap(be, out);
    be->areas_free(be, areas, 2);
    be->linear_free(be, w);
    be->free(be);
    skv_pool_free(pool);
}

/* The bits of today's product, and of the level below where this machine has it. Weights that meet
 * several blocks are unpacked once for all of them, those of one block within it. */
static void check_once(const task *t, bool fits)
{
    static float y[3][70 * 150];
    const skv_matmul each = AMX_MATMUL_Q;
    skv_matmul once = AMX_MATMUL_Q_ONCE;
    const size_t n_y = t->m * t->N * sizeof **y;
    const size_t n_rows = (t->epilogue == SKV_EPILOGUE_SILU_GLU ? 2 : 1) * skv_round_up(t->N, 64);
    assert_true(n_y <= sizeof *y);
    once.unpack = count_unpacked;
    n_unpacked = 0;
    multiply(t, &once, y[0]);
    assert_int_equal(n_unpacked, fits && t->m > Q_MR ? n_rows * t->K : 0);
    multiply(t, &each, y[1]);
    assert_memory_equal(y[0], y[1], n_y);
    if (!amx_model_has_few()) return;
    multiply(t, NULL, y[2]);
    assert_memory_equal(y[0], y[2], n_y);
}

static void test_weights_are_unpacked_once(void **state)
{
    const skv_quant_form *forms[] = {skv_quant_form_of(SKV_DTYPE_Q4_0),
                                     skv_quant_form_of(SKV_DTYPE_Q4_K),
                                     skv_quant_form_of(SKV_DTYPE_MXFP4), skv_quant_form_int4()};
    (void)state;
    for (size_t m = 1; m <= 70; m++) {
        check_once(&(task){m, m % 3 ? 96 : 160, 20, SKV_EPILOGUE_STORE, forms[m % 4]}, true);
    }
    for (size_t i = 0; i < 4; i++) {
        check_once(&(task){33, 2080, 70, SKV_EPILOGUE_ADD, forms[i]}, true);
        check_once(&(task){65, 544, 150, SKV_EPILOGUE_RELU2, forms[i]}, true);
        check_once(&(task){34, 2208, 40, SKV_EPILOGUE_SILU_GLU, forms[i]}, true);
    }
    /* Pairs of rows that are longer than the scratch are unpacked for each block. */
    check_once(&(task){33, 8704, 8, SKV_EPILOGUE_SILU_GLU, forms[1]}, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_panel_bytes),
                                       cmocka_unit_test(test_weights_are_unpacked_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
