/*
 * Checks of the products with quantised weights: every form at every level, random codes and
 * scales, heap blocks of the exact size, canaries around the result, whole products and products
 * split along K, weights unpacked ahead where a product has that.
 *
 * The oracle multiplies in double: the values of the codes, as skv_quant_row_to_f32 gives them,
 * with what x is rounded to in groups of skv_i8_group (scale amax / 127). That a panel holds these
 * values is checked bit by bit through skv_quant_unpack.
 */
#include "check_quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "amx_q_model.h"
#include "base/float16.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system.h"
#include "format/dtype.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/quant_panel.h"

enum { N_CASES = 120, MAX_FAILURES = 10, MAX_NR = 64, MAX_MR = 32, BENCH_K = 2048 };

static const float CANARY = 1.0e33f;

struct run {
    skv_rng rng;
    FILE *out;
    const char *level;
    int n_failed;
};

struct problem {
    const skv_matmul *mm;
    const skv_quant_form *form;
    const char *name;
    skv_quant_rows rows; /* [n, K] */
    size_t m, n, K, ldx, ldc, split;
    bool add, fetch;
    float *x, *w, *c, *c_old; /* w [n, K]: the values of the codes */
};

static size_t pick(struct run *run, size_t n)
{
    return (size_t)skv_rng_below(&run->rng, n);
}

static float uniform(struct run *run)
{
    return (float)(2.0 * skv_rng_uniform(&run->rng) - 1.0);
}

static void report(struct run *run, const struct problem *p, const char *what, double got,
                   double expected)
{
    if (run->n_failed++ >= MAX_FAILURES) return;
    fprintf(run->out, "quant %s %s: m %zu n %zu K %zu split %zu add %d: %s: %.9g, expected %.9g\n",
            run->level, p->name, p->m, p->n, p->K, p->split, p->add, what, got, expected);
}

/* ---- random weights ---- */

static void fill_u16(struct run *run, uint16_t *out, size_t n, bool bf16)
{
    for (size_t i = 0; i < n; i++) {
        float value = 0.02f * uniform(run);
        if (pick(run, 31) == 0) value = pick(run, 2) ? 0.0f : 3.0e-6f;
        out[i] = bf16 ? skv_bf16_of_float(value) : skv_f16_of_float(value);
    }
}

/* The code of the least level, or of the greatest. */
static uint8_t outer_code(const skv_quant_form *form, bool least)
{
    uint8_t code = 0;
    for (size_t c = 1; c < SKV_QUANT_LEVELS; c++) {
        const int more = form->levels[c] - form->levels[code];
        if (least ? more < 0 : more > 0) code = (uint8_t)c;
    }
    return code;
}

/* A code, of 8 random bits. */
static uint8_t random_code(const skv_quant_form *form, unsigned any)
{
    switch (form->bits) {
    case 4: return any & 15;
    case 6: return (uint8_t)((any & 63) - 32);
    default: return (uint8_t)(any - 128);
    }
}

static void fill_rows(struct run *run, const skv_quant_form *form, skv_quant_rows *rows)
{
    size_t n_spans = rows->n * skv_quant_spans(form, rows->K);
    size_t n_groups = rows->n * (rows->K / form->group);
    const bool extreme = pick(run, 4) == 0; /* only the least and the greatest value, */
    const bool one = pick(run, 2);          /* or one of them */
    for (size_t i = 0; i < rows->n * rows->K; i++) {
        unsigned any = (unsigned)pick(run, 256);
        if (extreme) any = (one ? rows->K & 32 : any & 1) ? 0xff : 0;
        rows->codes[i] =
            extreme && form->bits == 4 ? outer_code(form, any == 0) : random_code(form, any);
    }
    fill_u16(run, rows->scales, n_spans, form->bf16);
    if (rows->mins) fill_u16(run, rows->mins, n_spans, form->bf16);
    for (size_t i = 0; form->zeros && i < n_spans; i++) {
        const float multiple = 8.0f - (float)pick(run, 17); /* GPTQ's zero points reach 16 */
        rows->mins[i] = form->bf16 ? skv_bf16_of_float(multiple) : skv_f16_of_float(multiple);
    }
    for (size_t i = 0; rows->fine && i < n_groups; i++) rows->fine[i] = (int8_t)pick(run, 256);
    for (size_t i = 0; rows->fine_min && i < n_groups; i++) {
        rows->fine_min[i] = (uint8_t)pick(run, 256);
    }
}

/* ---- the oracle ---- */

/* The product of a row of x, as it is rounded, and a row of w; *size is the sum of magnitudes. */
static double exact(const float *x, const float *w, size_t K, double *size)
{
    double value = 0.0;
    for (size_t k = 0; k < K; k += skv_i8_group(K)) {
        size_t n = skv_min_size(skv_i8_group(K), K - k);
        float amax = 0.0f;
        for (size_t e = 0; e < n; e++) amax = fmaxf(amax, fabsf(x[k + e]));
        float scale = amax < 127.0f * FLT_MIN ? 0.0f : amax / 127.0f;
        float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
        for (size_t e = 0; e < n; e++) {
            double term = (double)rintf(x[k + e] * inverse) * (double)scale * (double)w[k + e];
            value += term;
            *size += fabs(term);
        }
    }
    return value;
}

/* What the minimum's share cancels is lost from sums of its size. */
static double min_size(const struct problem *p, size_t j)
{
    double most = 0.0;
    for (size_t k = 0; p->form->has_min && k < p->K; k++) {
        double size = fabs((double)p->w[j * p->K + k]);
        if (size > most) most = size;
    }
    return most;
}

static void check_entry(struct run *run, const struct problem *p, size_t i, size_t j)
{
    double size = 0.0, got = (double)p->c[i * p->ldc + j], x_size = 0.0;
    double old = p->add ? (double)p->c_old[i * p->ldc + j] : 0.0, value = 0.0;
    if (j < p->n) value = exact(p->x + i * p->ldx, p->w + j * p->K, p->K, &size);
    for (size_t k = 0; k < p->K; k++) x_size += fabs((double)p->x[i * p->ldx + k]);
    /* A level between 0 and 15 and a minimum may be 30 times what they add up to. */
    double loose = j < p->n ? 64.0 * min_size(p, j) * x_size : 0.0;
    double tolerance = (double)FLT_EPSILON *
                       (((double)p->K / 16.0 + 8.0) * (size + loose / 64.0) + fabs(old) + loose);
    if (!(fabs(got - (old + value)) <= tolerance + 1e-30)) {
        report(run, p, "value", got, old + value);
    }
}

static void check_panel(struct run *run, const struct problem *p, const unsigned char *panel)
{
    float *out = skv_alloc(p->K * p->mm->nr, sizeof *out);
    if (!out) return;
    skv_quant_unpack(out, panel, p->mm->nr, p->K, 0, p->K);
    for (size_t k = 0; k < p->K; k++) {
        for (size_t j = 0; j < p->mm->nr; j++) {
            float want = j < p->n ? p->w[j * p->K + k] : 0.0f, got = out[k * p->mm->nr + j];
            if (got != want) report(run, p, "unpacked", (double)got, (double)want);
        }
    }
    skv_free(out);
}

/* All of K, in one tile or two. */
static void tile_all_k(const struct problem *p, float *c, size_t ldc, const void *block,
                       const void *panel, size_t m)
{
    const skv_matmul *mm = p->mm;
    unsigned mode = (p->fetch ? SKV_TILE_PREFETCH : 0U) | (p->add ? SKV_TILE_ADD : 0U);
    if (p->split) {
        mm->tile(c, ldc, block, panel, m, p->K, 0, p->split, mode);
        mode |= SKV_TILE_ADD;
    }
    mm->tile(c, ldc, block, panel, m, p->K, p->split, p->K, mode);
}

/* Rows of a block are those of the same rows alone, to the bit: tokens do not depend on how many
 * others a step holds. */
static void check_alone(struct run *run, const struct problem *p, const unsigned char *panel)
{
    const skv_matmul *mm = p->mm;
    float *c = skv_alloc(mm->nr, sizeof *c);
    void *block = skv_alloc(mm->x_bytes(1, p->K), 1);
    for (size_t i = 0; c && block && i < p->m; i++) {
        memcpy(c, p->c_old + i * p->ldc, mm->nr * sizeof *c);
        mm->pack_x(block, p->x + i * p->ldx, p->ldx, 1, p->K);
        tile_all_k(p, c, mm->nr, block, panel, 1);
        for (size_t j = 0; j < mm->nr; j++) {
            float got = p->c[i * p->ldc + j];
            if (memcmp(&got, c + j, sizeof got) != 0) {
                report(run, p, "row alone", (double)got, (double)c[j]);
            }
        }
    }
    skv_free(c);
    skv_free(block);
}

/* Weights that are unpacked ahead, all of K at once, give the bits of those in the panel. */
static void check_ahead(struct run *run, const struct problem *p, const unsigned char *block,
                        const unsigned char *panel)
{
    const skv_matmul *mm = p->mm;
    const size_t n_c = (p->m - 1) * p->ldc + mm->nr;
    unsigned mode = SKV_TILE_UNPACKED | (p->add ? SKV_TILE_ADD : 0U);
    if (!mm->unpack || p->m < mm->mr / 2) return;
    float *c = skv_alloc(n_c, sizeof *c);
    unsigned char *w = skv_alloc_aligned(1, mm->unpacked_bytes(p->K, p->K));
    if (c && w) {
        memcpy(c, p->c_old, n_c * sizeof *c);
        memset(w, 0xff, mm->unpacked_bytes(p->K, p->K));
        mm->unpack(w, panel, p->K, 0, p->K, p->fetch ? SKV_TILE_PREFETCH : 0U);
        if (p->split) mm->tile(c, p->ldc, block, w, p->m, p->K, 0, p->split, mode);
        if (p->split) mode |= SKV_TILE_ADD;
        mm->tile(c, p->ldc, block, w + mm->unpacked_bytes(p->K, p->split), p->m, p->K, p->split,
                 p->K, mode);
        if (memcmp(c, p->c, n_c * sizeof *c) != 0) report(run, p, "unpacked ahead", 0, 0);
    } else {
        report(run, p, "memory", 0, 0);
    }
    skv_free(c);
    skv_free(w);
}

static bool multiply(struct run *run, const struct problem *p)
{
    const skv_matmul *mm = p->mm;
    size_t w_bytes = skv_quant_panel_bytes(p->form, mm->nr, p->K),
           x_bytes = mm->x_bytes(p->m, p->K);
    unsigned char *panel = skv_alloc(w_bytes, 1), *block = skv_alloc(x_bytes, 1);
    bool ok = panel && block;
    if (ok) {
        memset(panel, 0xff, w_bytes);
        memset(block, 0xff, x_bytes);
        skv_quant_pack(panel, mm->nr, p->form, &p->rows);
        check_panel(run, p, panel);
        mm->pack_x(block, p->x, p->ldx, p->m, p->K);
        tile_all_k(p, p->c, p->ldc, block, panel, p->m);
        check_ahead(run, p, block, panel);
        check_alone(run, p, panel);
        skv_matmul_finish(mm);
    }
    skv_free(panel);
    skv_free(block);
    return ok;
}

static void check_result(struct run *run, const struct problem *p)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->mm->nr; j++) check_entry(run, p, i, j);
        for (size_t j = p->mm->nr; j < p->ldc && i + 1 < p->m; j++) {
            if (p->c[i * p->ldc + j] != CANARY) {
                report(run, p, "canary", (double)p->c[i * p->ldc + j], (double)CANARY);
            }
        }
    }
}

static void draw_shape(struct run *run, struct problem *p, size_t i_case)
{
    p->m = 1 + i_case % p->mm->mr;
    p->n = pick(run, 3) ? 1 + pick(run, p->mm->nr) : p->mm->nr;
    const size_t step = skv_max_size(SKV_QUANT_GROUP, p->form->group);
    p->K = step * (1 + pick(run, 21 * SKV_QUANT_GROUP / step + 1));
    p->ldx = p->K + pick(run, 4);
    p->ldc = p->mm->nr + pick(run, 4);
    if (p->K > SKV_I8_GROUP && pick(run, 2)) {
        p->split = SKV_I8_GROUP * (1 + pick(run, (p->K - 1) / SKV_I8_GROUP));
    }
    p->add = pick(run, 2);
    p->fetch = pick(run, 2);
}

static void fill_case(struct run *run, struct problem *p)
{
    float size = pick(run, 8) == 0 ? 0.0f : ldexpf(1.0f, (int)pick(run, 20) - 10);
    fill_rows(run, p->form, &p->rows);
    for (size_t j = 0; j < p->n; j++) {
        skv_quant_row_to_f32(&p->rows, p->form, j, p->w + j * p->K);
    }
    const size_t outer =
        pick(run, 6); /* 0: rows of the largest code, 1: of that and its opposite */
    for (size_t i = 0; i < (p->m - 1) * p->ldx + p->K; i++) {
        const bool less = outer == 0 ? i / p->ldx % 2 : pick(run, 2);
        p->x[i] = outer > 1 ? size * uniform(run) : less ? -size : size;
    }
    for (size_t i = 0; i < (p->m - 1) * p->ldc + p->mm->nr; i++) {
        p->c[i] = i % p->ldc < p->mm->nr ? uniform(run) : CANARY;
        p->c_old[i] = p->c[i];
    }
}

static void check_case(struct run *run, const skv_matmul *mm, const skv_quant_form *form,
                       const char *name, size_t i_case)
{
    struct problem p = {.mm = mm, .form = form, .name = name};
    draw_shape(run, &p, i_case);
    size_t n_c = (p.m - 1) * p.ldc + mm->nr;
    void *memory = skv_alloc_aligned(skv_quant_rows_bytes(form, p.n, p.K), 1);
    p.x = skv_alloc((p.m - 1) * p.ldx + p.K, sizeof *p.x);
    p.w = skv_alloc(p.n * p.K, sizeof *p.w);
    p.c = skv_alloc(n_c, sizeof *p.c);
    p.c_old = skv_alloc(n_c, sizeof *p.c);
    if (memory && p.x && p.w && p.c && p.c_old) {
        skv_quant_rows_init(&p.rows, form, p.n, p.K, memory);
        fill_case(run, &p);
        if (multiply(run, &p)) check_result(run, &p);
    } else {
        report(run, &p, "memory", 0, 0);
    }
    skv_free(memory);
    skv_free(p.x);
    skv_free(p.w);
    skv_free(p.c);
    skv_free(p.c_old);
}

/* ---- types of files ---- */

/* Blocks of random bytes: codes and scales give the very floats that dtype.h gives. */
static void check_type(struct run *run, skv_dtype type, const skv_quant_form *form)
{
    enum { K = 1024 };
    struct problem p = {.form = form, .name = skv_dtype_name(type), .n = 1, .K = K};
    unsigned char blocks[K * 2];
    float want[K], got[K];
    size_t n_bytes = 0;
    void *memory = skv_alloc_aligned(skv_quant_rows_bytes(form, 1, K), 1);
    bool whole = skv_dtype_bytes(type, K, &n_bytes) && n_bytes <= sizeof blocks;
    if (memory && whole) {
        for (size_t i = 0; i < n_bytes; i++) blocks[i] = (unsigned char)pick(run, 256);
        skv_quant_rows_init(&p.rows, form, 1, K, memory);
        skv_quant_read(&p.rows, 0, type, blocks);
        skv_quant_row_to_f32(&p.rows, form, 0, got);
        skv_dtype_to_f32(type, want, blocks, K);
        for (size_t k = 0; k < K; k++) {
            bool same = got[k] == want[k] || (isnan(got[k]) && isnan(want[k]));
            if (!same) report(run, &p, "read", (double)got[k], (double)want[k]);
        }
    } else {
        report(run, &p, "memory", 0, 0);
    }
    skv_free(memory);
}

/* Floats rounded to 4 bits are within half a step of the largest magnitude's scale, but for the
 * positive end, which has one level less. */
static double squared_miss(const float *x, const float *y)
{
    double sum = 0;
    for (size_t k = 0; k < 32; k++) {
        double miss = (double)x[k] - (double)y[k];
        sum += miss * miss;
    }
    return sum;
}

/* Of x [32] rounded as llama.cpp's Q4_0: -8 stands for the element of largest magnitude. */
static double plain_miss(const float *x)
{
    float most = 0.0f, y[32];
    for (size_t k = 0; k < 32; k++) most = fabsf(x[k]) > fabsf(most) ? x[k] : most;
    float scale = skv_float_of_f16(skv_f16_of_float(most / -8.0f));
    for (size_t k = 0; k < 32; k++) {
        y[k] = scale == 0.0f ? 0.0f : scale * fminf(fmaxf(rintf(x[k] / scale), -8.0f), 7.0f);
    }
    return squared_miss(x, y);
}

/* Groups of zeros, of tiny and of huge floats, whose scales are 0 or infinite, and of floats that
 * are not numbers. */
static void fill_odd_groups(struct run *run, float *x, size_t K)
{
    for (size_t k = 0; k < K; k++) {
        const float u = uniform(run);
        switch (k / 32) {
        case 0: x[k] = k % 2 ? 0.0f : -0.0f; break;
        case 1: x[k] = 1e-7f * u; break;
        case 2: x[k] = 1e6f * u; break;
        case 3: x[k] = k % 5 ? u : NAN; break;
        case 4: x[k] = k % 7 ? u : -INFINITY; break;
        case 5: x[k] = k % 3 ? 1.0f : -1.0f; break;
        case 6: x[k] = k % 32 ? 3e-41f * u : 2e-41f; break;
        default: x[k] = u * u * u; break;
        }
    }
}

/* Every level gives the reference's scales and codes, to the bit, and stays within them. */
static void check_round_level(struct run *run, const skv_kernels *k)
{
    enum { K = 9 * 32, G = K / 32, ROOM = 64 };
    const struct problem p = {.name = "round", .n = 1, .K = K};
    uint8_t codes[2][K + ROOM];
    uint16_t scales[2][G + ROOM];
    float *x = skv_alloc(K, sizeof *x);
    if (!x) return;
    memset(codes, 0xa5, sizeof codes);
    memset(scales, 0xa5, sizeof scales);
    fill_odd_groups(run, x, K);
    skv_round_int4_ref(codes[0], scales[0], x, K);
    k->round_int4(codes[1], scales[1], x, K);
    for (size_t i = 0; i < G + ROOM; i++) {
        if (scales[1][i] != scales[0][i]) report(run, &p, "scale", scales[1][i], scales[0][i]);
    }
    for (size_t i = 0; i < K + ROOM; i++) {
        if (codes[1][i] != codes[0][i]) report(run, &p, "code", codes[1][i], codes[0][i]);
    }
    skv_free(x);
}

/* The scale with the least squared error of nine. */
static void check_round(struct run *run)
{
    enum { K = 256 };
    const skv_quant_form *form = skv_quant_form_int4();
    struct problem p = {.form = form, .name = "round", .n = 1, .K = K};
    float x[K], y[K];
    void *memory = skv_alloc_aligned(skv_quant_rows_bytes(form, 1, K), 1);
    if (!memory) return;
    skv_quant_rows_init(&p.rows, form, 1, K, memory);
    for (size_t k = 0; k < K; k++) x[k] = k < 32 ? 0.0f : uniform(run);
    skv_round_int4_ref(p.rows.codes, p.rows.scales, x, K);
    skv_quant_row_to_f32(&p.rows, form, 0, y);
    for (size_t k = 0; k < K; k++) {
        /* The smallest scale that is tried is amax / 8.5, and 7 of it lie farthest from amax. */
        float amax = 0.0f;
        for (size_t e = 0; e < 32; e++) amax = fmaxf(amax, fabsf(x[k / 32 * 32 + e]));
        if (!(fabsf(x[k] - y[k]) <= amax * (1.0f - 7.0f / 8.5f) * 1.001f))
            report(run, &p, "far", (double)y[k], (double)x[k]);
    }
    for (size_t k = 0; k < K; k += 32) {
        double chosen = squared_miss(x + k, y + k), plain = plain_miss(x + k);
        if (!(chosen <= plain * 1.0001)) report(run, &p, "worse than plain", chosen, plain);
    }
    skv_free(memory);
}

/* ---- speed ---- */

static double now_ns(void)
{
    return (double)skv_clock_ns();
}

static void bench_form(struct run *run, const skv_matmul *mm, const skv_quant_form *form,
                       const char *name)
{
    float c[MAX_MR * MAX_NR], *x = skv_alloc(MAX_MR * BENCH_K, sizeof *x);
    unsigned char *panel = skv_alloc_aligned(skv_quant_panel_bytes(form, mm->nr, BENCH_K), 1);
    unsigned char *block = skv_alloc_aligned(mm->x_bytes(mm->mr, BENCH_K), 1);
    void *memory = skv_alloc_aligned(skv_quant_rows_bytes(form, mm->nr, BENCH_K), 1);
    if (x && panel && block && memory) {
        skv_quant_rows rows;
        skv_quant_rows_init(&rows, form, mm->nr, BENCH_K, memory);
        fill_rows(run, form, &rows);
        for (size_t i = 0; i < mm->mr * BENCH_K; i++) x[i] = uniform(run);
        skv_quant_pack(panel, mm->nr, form, &rows);
        for (size_t m = 1; m <= mm->mr; m += mm->mr - 1) {
            double best = (double)INFINITY;
            mm->pack_x(block, x, BENCH_K, m, BENCH_K);
            for (int i = 0; i < 200; i++) {
                double start = now_ns();
                mm->tile(c, mm->nr, block, panel, m, BENCH_K, 0, BENCH_K, SKV_TILE_PREFETCH);
                best = fmin(best, now_ns() - start);
            }
            fprintf(run->out, "quant %-6s %-7s %zu x %2zu x %d: %9.0f ns %8.1f GOP/s\n", name,
                    run->level, m, mm->nr, BENCH_K, best,
                    2.0 * (double)(m * mm->nr * BENCH_K) / best);
        }
    }
    skv_free(x);
    skv_free(panel);
    skv_free(block);
    skv_free(memory);
}

/* ---- */

/* `model`: a few cases, since tiles in plain C are slow: whole and half blocks, and parts of them.
 */
static void check_form(struct run *run, const skv_matmul *mm, const skv_quant_form *form,
                       const char *name, bool model, bool bench)
{
    static const size_t few[] = {31, 16, 8, 15};
    const size_t n = model ? sizeof few / sizeof few[0] : N_CASES;
    for (size_t j = 0; j < n; j++) check_case(run, mm, form, name, model ? few[j] : j);
    if (bench) bench_form(run, mm, form, name);
}

/* Every form of a panel. */
static void check_forms(struct run *run, const skv_matmul *q, bool model, bool bench)
{
    for (int t = 0; t < SKV_DTYPE_COUNT; t++) {
        const skv_quant_form *form = skv_quant_form_of((skv_dtype)t);
        if (form) check_form(run, q, form, skv_dtype_name((skv_dtype)t), model, bench);
    }
    skv_quant_form wide = *skv_quant_form_int4(); /* as other packages write it */
    wide.bf16 = true;
    check_form(run, q, &wide, "bf16", model, false);
    for (size_t group = 32; group <= SKV_QUANT_WIDE; group *= 2) {
        for (int bf16 = 0; bf16 <= 1; bf16++) {
            char name[32];
            (void)snprintf(name, sizeof name, "zeros %zu%s", group, bf16 ? " bf16" : "");
            check_form(run, q, skv_quant_form_zeros(group, bf16), name, model, bench);
            const skv_dtype types[] = {SKV_DTYPE_PACKED_I4, SKV_DTYPE_PACKED_I8};
            for (size_t t = 0; t < 2; t++) {
                (void)snprintf(name, sizeof name, "packed %s %zu%s", t ? "i8" : "i4", group,
                               bf16 ? " bf16" : "");
                check_form(run, q, skv_quant_form_packed(types[t], group, bf16), name, model,
                           bench);
            }
        }
    }
}

static void check_level(struct run *run, skv_cpu_level level, unsigned features, bool bench)
{
    skv_kernels k;
    skv_kernels_init(&k, level, features);
    run->level = skv_cpu_level_name(k.level);
    for (int i = 0; i < 20; i++) check_round_level(run, &k);
    check_forms(run, &k.q, false, bench);
}

/* The products of AMX over plain C: rows alone, which check_alone compares, are those of the level
 * below where this machine has it. And the products themselves, where it has AMX. */
static void check_amx(struct run *run, unsigned features, bool bench)
{
    const skv_matmul model = AMX_MATMUL_Q_ONCE;
    run->level = "a model of amx-q";
    check_forms(run, &model, true, false);
#if defined(__x86_64__)
    run->level = "amx-q";
    if (skv_cpu_level_runs(SKV_CPU_LEVEL_AMX, features)) {
        check_forms(run, &skv_matmul_q_amx_once, false, bench);
    }
#else
    (void)features;
    (void)bench;
#endif
}

int skv_check_quant(uint64_t seed, bool bench, FILE *out)
{
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_REF, SKV_CPU_LEVEL_AVX2, SKV_CPU_LEVEL_AVXVNNI,
                                    SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_NEON};
    const unsigned extras = SKV_CPU_AVX_VNNI | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16 |
                            SKV_CPU_NEON_DOT | SKV_CPU_NEON_I8MM | SKV_CPU_NEON_BF16;
    unsigned features = skv_cpu_detect();
    struct run run = {.out = out, .level = "types"};
    skv_rng_init(&run.rng, seed);
    for (int t = 0; t < SKV_DTYPE_COUNT; t++) {
        const skv_quant_form *form = skv_quant_form_of((skv_dtype)t);
        for (size_t i = 0; form && i < 20; i++) check_type(&run, (skv_dtype)t, form);
    }
    for (size_t i = 0; i < 20; i++) check_round(&run);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!skv_cpu_level_runs(levels[i], features)) continue;
        if (levels[i] == SKV_CPU_LEVEL_NEON)
            check_level(&run, levels[i], features & ~extras, false);
        check_level(&run, levels[i], features, bench);
    }
    check_amx(&run, features, bench);
    return run.n_failed;
}
