/*
 * Checks of the matrix products: random shapes around the tile's and the group's edges, unaligned
 * pointers, heap blocks of the exact size, canaries around the result, fills that hit underflow,
 * outliers and zero groups, products in one piece and split along K.
 *
 * The oracle multiplies in double what the kernel may see: the operands themselves (f32), one of
 * them (wide) or both (bf16) rounded to bfloat16, or the codes and scales that kernels.h defines
 * (int8).
 */
#include "check_matmul.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "amx_model.h"
#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"

enum { N_CASES = 400, MAX_TABLES = 32, MAX_FAILURES = 10, MAX_NR = 64, MAX_MR = 32 };

static const float CANARY = 1.0e33f;

typedef enum matmul_kind { KIND_F32, KIND_WIDE, KIND_BF16, KIND_I8, N_KINDS } matmul_kind;
static const char *const kind_names[] = {"f32", "wide", "bf16", "i8"};

typedef enum fill_kind {
    FILL_UNIFORM,
    FILL_ZERO,
    FILL_HUGE,
    FILL_DENORMAL,
    FILL_WIDE,    /* magnitudes from 2^-20 to 2^20 */
    FILL_OUTLIER, /* one value in 97 is 1000 times the others */
    FILL_EXTREME, /* +-1 only: every code is +-127 */
    N_FILLS
} fill_kind;

/* One product to check: c [m, nr] (+)= x [m, K] * w [n, K]^T. */
struct problem {
    const skv_matmul *mm;
    matmul_kind kind;
    size_t m, n, K;
    size_t ldx, ldw, ldc;
    size_t split; /* 0: one call; else a multiple of the int8 group below K */
    bool add;
    bool halves; /* columns in two calls */
    fill_kind fill_x, fill_w;
    float *x, *w, *c, *c_old;
};

struct run {
    uint64_t seed;
    skv_rng rng;
    FILE *out;
    int n_failed;
};

static size_t pick(struct run *run, size_t n)
{
    return (size_t)skv_rng_below(&run->rng, n);
}

/* n floats at an address that is a multiple of 4 but not of 8, ending where the block ends. */
static float *odd_floats(size_t n)
{
    float *block = skv_alloc(n + 1, sizeof *block);
    return block ? block + 1 : NULL;
}

static void free_odd(float *x)
{
    if (x) skv_free(x - 1);
}

static float draw(struct run *run, fill_kind fill)
{
    float u = (float)(2.0 * skv_rng_uniform(&run->rng) - 1.0);
    switch (fill) {
    case FILL_ZERO: return 0.0f;
    case FILL_HUGE: return u * 1.0e15f;
    case FILL_DENORMAL: return u * 1.0e-39f;
    case FILL_WIDE: return ldexpf(u, (int)pick(run, 41) - 20);
    case FILL_OUTLIER: return pick(run, 97) == 0 ? 1000.0f * u : u;
    case FILL_EXTREME: return u < 0.0f ? -1.0f : 1.0f;
    default: return u;
    }
}

static void fill_floats(struct run *run, float *x, size_t n, fill_kind fill)
{
    for (size_t i = 0; i < n; i++) x[i] = draw(run, fill);
}

/* ------------------------------------------------------------------------------------------ */

/* The exact value, the error that rounding allows, and (int8) what quantisation may add. */
struct expected {
    double value, tolerance;
    double unquantised, loose;
};

static double group_scale(const float *x, size_t n, bool rounded)
{
    float amax = 0.0f;
    for (size_t k = 0; k < n; k++) amax = fmaxf(amax, fabsf(x[k]));
    if (amax < 127.0f * FLT_MIN) return 0.0;
    float scale = amax / 127.0f;
    if (rounded) scale = skv_bf16_to_f32(skv_f32_to_bf16(scale));
    return (double)scale;
}

static double code(float x, double scale)
{
    if (scale == 0.0) return 0.0;
    float inverse = 1.0f / (float)scale;
    return (double)rintf(x * inverse);
}

/* How far a value can be from its code times the scale: half a step, or all of it. */
static double code_error(float x, double scale)
{
    return scale == 0.0 ? fabs((double)x) : 0.5001 * scale;
}

static void add_i8_group(struct expected *e, const float *x, const float *w, size_t n)
{
    double xs = group_scale(x, n, false), ws = group_scale(w, n, true), dot = 0.0;
    for (size_t k = 0; k < n; k++) {
        double dx = code_error(x[k], xs), dw = code_error(w[k], ws);
        dot += code(x[k], xs) * code(w[k], ws);
        e->unquantised += (double)x[k] * (double)w[k];
        e->loose += fabs((double)x[k]) * dw + fabs((double)w[k]) * dx + dx * dw;
    }
    e->value += dot * xs * ws;
    e->tolerance += fabs(dot * xs * ws);
}

static struct expected expect_i8(const float *x, const float *w, size_t K, size_t wide)
{
    struct expected e = {0};
    size_t length = K <= 512 ? 32 : wide;
    for (size_t k = 0; k < K; k += length) {
        add_i8_group(&e, x + k, w + k, skv_min_size(length, K - k));
    }
    double n_groups = (double)skv_ceil_div(K, length);
    e.tolerance = (n_groups + 3.0) * (double)FLT_EPSILON * e.tolerance + n_groups * (double)FLT_MIN;
    e.loose += e.tolerance;
    return e;
}

static double as_kept(float x, bool rounded)
{
    return (double)(rounded ? skv_bf16_to_f32(skv_f32_to_bf16(x)) : x);
}

static struct expected expect_float(const float *x, const float *w, size_t K, matmul_kind kind)
{
    struct expected e = {0};
    double small = 0.0; /* what flushing denormal operands and sums to zero may cost */
    for (size_t k = 0; k < K; k++) {
        double a = as_kept(x[k], kind == KIND_BF16), b = as_kept(w[k], kind != KIND_F32);
        e.value += a * b;
        e.tolerance += fabs(a * b);
        small += (double)FLT_MIN * (fabs(a) + fabs(b) + 1.0);
    }
    e.tolerance = ((double)K + 2.0) * (double)FLT_EPSILON * e.tolerance + small;
    e.unquantised = e.value;
    e.loose = e.tolerance;
    return e;
}

/* Of wide products: groups are 128 long, or as a level says. */
static size_t i8_group(const skv_matmul *mm)
{
    return mm->group ? mm->group : 128;
}

static struct expected expect(const struct problem *p, size_t i, size_t j)
{
    const float *x = p->x + i * p->ldx, *w = p->w + j * p->ldw;
    if (j >= p->n) return (struct expected){0};
    return p->kind == KIND_I8 ? expect_i8(x, w, p->K, i8_group(p->mm))
                              : expect_float(x, w, p->K, p->kind);
}

/* ------------------------------------------------------------------------------------------ */

static void report(struct run *run, const struct problem *p, size_t i, size_t j, const char *what,
                   double expected, double tolerance)
{
    if (run->n_failed++ >= MAX_FAILURES) return;
    fprintf(run->out,
            "matmul %s nr %zu mr %zu seed %llu: m %zu n %zu K %zu split %zu add %d fills %d %d "
            "c[%zu, %zu]: %s: %.9g, expected %.9g +- %.3g\n",
            kind_names[p->kind], p->mm->nr, p->mm->mr, (unsigned long long)run->seed, p->m, p->n,
            p->K, p->split, p->add, (int)p->fill_x, (int)p->fill_w, i, j, what,
            (double)p->c[i * p->ldc + j], expected, tolerance);
}

static void check_entry(struct run *run, const struct problem *p, size_t i, size_t j)
{
    double got = (double)p->c[i * p->ldc + j];
    double old = p->add ? (double)p->c_old[i * p->ldc + j] : 0.0;
    struct expected e = expect(p, i, j);
    /* The sum of what was there and two pieces rounds up to twice more. */
    double extra = 2.0 * (double)FLT_EPSILON * (fabs(old) + fabs(e.value));
    if (!(fabs(got - (old + e.value)) <= e.tolerance + extra)) {
        report(run, p, i, j, "value", old + e.value, e.tolerance + extra);
    } else if (!(fabs(got - (old + e.unquantised)) <= e.loose + extra)) {
        report(run, p, i, j, "distance from the unquantised product", old + e.unquantised, e.loose);
    }
}

static void check_result(struct run *run, const struct problem *p)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->mm->nr; j++) check_entry(run, p, i, j);
        for (size_t j = p->mm->nr; j < p->ldc && i + 1 < p->m; j++) {
            if (p->c[i * p->ldc + j] != CANARY) report(run, p, i, j, "canary", (double)CANARY, 0);
        }
    }
}

static void multiply_piece(const struct problem *p, const void *block, const void *panel, size_t k0,
                           size_t k1, unsigned mode)
{
    const unsigned halves[] = {SKV_TILE_RIGHT, SKV_TILE_LEFT};
    for (size_t i = p->halves ? 0 : 1; i < 2; i++) {
        const unsigned half = p->halves ? halves[i] : 0;
        p->mm->tile(p->c, p->ldc, block, panel, p->m, p->K, k0, k1, mode | half);
    }
}

/* Packs into blocks of the exact size that hold NaN before, and multiplies. */
static bool multiply(const struct problem *p)
{
    const skv_matmul *mm = p->mm;
    size_t w_bytes = mm->w_bytes(p->K), x_bytes = mm->x_bytes(p->m, p->K);
    unsigned char *panel = skv_alloc(w_bytes, 1), *block = skv_alloc(x_bytes, 1);
    const unsigned mode = p->add ? SKV_TILE_ADD : 0, second = p->split ? SKV_TILE_ADD : mode;
    bool ok = panel && block;
    if (ok) {
        memset(panel, 0xff, w_bytes);
        memset(block, 0xff, x_bytes);
        mm->pack_w(panel, p->w, p->ldw, p->n, p->K);
        mm->pack_x(block, p->x, p->ldx, p->m, p->K);
        if (p->split) multiply_piece(p, block, panel, 0, p->split, mode);
        multiply_piece(p, block, panel, p->split, p->K, second);
        skv_matmul_finish(mm);
    }
    skv_free(panel);
    skv_free(block);
    return ok;
}

/* K 0: one of the lengths below. */
static void draw_shape(struct run *run, struct problem *p, size_t i_case, size_t K)
{
    static const size_t lengths[] = {1,   2,   3,   4,   5,   7,   8,   13,  15,   16,  17,  29,
                                     31,  32,  33,  61,  64,  65,  127, 128, 129,  131, 255, 256,
                                     257, 300, 511, 512, 513, 640, 643, 700, 1024, 1091};
    size_t nr = p->mm->nr, mr = p->mm->mr;
    p->m = 1 + i_case % mr;
    p->n = pick(run, 3) ? 1 + pick(run, nr) : nr;
    p->K = K > 0 ? K : lengths[pick(run, sizeof lengths / sizeof lengths[0])];
    p->ldx = p->K + pick(run, 4);
    p->ldw = p->K + pick(run, 4);
    p->ldc = nr + pick(run, 4);
    const size_t group = i8_group(p->mm);
    if (p->K > group && pick(run, 2)) p->split = group * (1 + pick(run, (p->K - 1) / group));
    p->add = pick(run, 2);
    p->fill_x = pick(run, 2) ? (fill_kind)pick(run, N_FILLS) : FILL_UNIFORM;
    p->fill_w = pick(run, 2) ? (fill_kind)pick(run, N_FILLS) : FILL_UNIFORM;
}

static void free_problem(struct problem *p)
{
    free_odd(p->x);
    free_odd(p->w);
    free_odd(p->c);
    free_odd(p->c_old);
}

static size_t result_floats(const struct problem *p)
{
    return (p->m - 1) * p->ldc + p->mm->nr;
}

/* Operands, and what the result's memory holds before. */
static bool make_problem(struct run *run, struct problem *p, size_t i_case, size_t K)
{
    draw_shape(run, p, i_case, K);
    /* The last row of each matrix ends with its last element: what comes after is not ours. */
    size_t n_x = (p->m - 1) * p->ldx + p->K, n_w = (p->n - 1) * p->ldw + p->K;
    size_t n_c = result_floats(p);
    p->x = odd_floats(n_x);
    p->w = odd_floats(n_w);
    p->c = odd_floats(n_c);
    p->c_old = odd_floats(n_c);
    if (!p->x || !p->w || !p->c || !p->c_old) return false;
    fill_floats(run, p->x, n_x, p->fill_x);
    fill_floats(run, p->w, n_w, p->fill_w);
    fill_floats(run, p->c, n_c, FILL_UNIFORM);
    for (size_t i = 0; i + 1 < p->m; i++) {
        for (size_t j = p->mm->nr; j < p->ldc; j++) p->c[i * p->ldc + j] = CANARY;
    }
    memcpy(p->c_old, p->c, n_c * sizeof *p->c);
    return true;
}

static void check_case(struct run *run, const skv_matmul *mm, matmul_kind kind, size_t i_case,
                       size_t K)
{
    struct problem p = {.mm = mm, .kind = kind};
    if (make_problem(run, &p, i_case, K) && multiply(&p)) check_result(run, &p);
    free_problem(&p);
}

/* Two forms of a product have the same bits; or one, whose columns the second computes by halves.
 */
static void check_equal(struct run *run, const skv_matmul *mm, const skv_matmul *other,
                        matmul_kind kind, size_t i_case)
{
    struct problem p = {.mm = mm, .kind = kind};
    if (make_problem(run, &p, i_case, 0) && multiply(&p)) {
        struct problem q = p;
        q.mm = other;
        q.c = p.c_old;
        q.halves = other->halves;
        const bool same = multiply(&q) && memcmp(p.c, q.c, result_floats(&p) * sizeof *p.c) == 0;
        if (!same) report(run, &p, 0, 0, "two forms differ", (double)q.c[0], 0);
    }
    free_problem(&p);
}

/* ------------------------------------------------------------------------------------------ */

/* Nanoseconds of the fastest of several calls of one whole tile over K. */
static double time_tile(const skv_matmul *mm, const float *x, const float *w, size_t K)
{
    float c[MAX_MR * MAX_NR];
    double best = (double)INFINITY;
    unsigned char *panel = skv_alloc_aligned(mm->w_bytes(K), 1);
    unsigned char *block = skv_alloc_aligned(mm->x_bytes(mm->mr, K), 1);
    if (panel && block) {
        mm->pack_w(panel, w, K, mm->nr, K);
        mm->pack_x(block, x, K, mm->mr, K);
        for (int i = 0; i < 200; i++) {
            uint64_t start = skv_clock_ns();
            mm->tile(c, mm->nr, block, panel, mm->mr, K, 0, K, 0);
            best = fmin(best, (double)(skv_clock_ns() - start));
        }
        skv_matmul_finish(mm);
    }
    skv_free(panel);
    skv_free(block);
    return best;
}

static void bench_table(struct run *run, const skv_matmul *mm, matmul_kind kind, const char *level)
{
    const size_t K = 1024;
    float *x = skv_alloc(MAX_MR * K, sizeof *x), *w = skv_alloc(MAX_NR * K, sizeof *w);
    if (x && w) {
        fill_floats(run, x, MAX_MR * K, FILL_UNIFORM);
        fill_floats(run, w, MAX_NR * K, FILL_UNIFORM);
        double ns = time_tile(mm, x, w, K);
        double n_ops = 2.0 * (double)(mm->mr * mm->nr * K);
        fprintf(run->out, "matmul %-4s %-7s %zu x %2zu x %zu: %9.0f ns %8.1f GOP/s\n",
                kind_names[kind], level, mm->mr, mm->nr, K, ns, n_ops / ns);
    }
    skv_free(x);
    skv_free(w);
}

/* The tables already checked: a level that adds nothing to a kind repeats the one below. */
struct seen {
    skv_matmul tables[MAX_TABLES];
    size_t n;
};

static bool is_new(struct seen *seen, const skv_matmul *mm)
{
    for (size_t i = 0; i < seen->n; i++) {
        const skv_matmul *known = &seen->tables[i];
        if (known->tile == mm->tile && known->pack_x == mm->pack_x) return false;
    }
    if (seen->n < MAX_TABLES) seen->tables[seen->n++] = *mm;
    return true;
}

/* 400 random cases, and one without any rounding. */
static void check_table(struct run *run, const skv_matmul *mm, matmul_kind kind)
{
    for (size_t i = 0; i < N_CASES; i++) check_case(run, mm, kind, i, 0);
    for (size_t i = 0; mm->halves && i < N_CASES / 4; i++) check_equal(run, mm, mm, kind, i);
    if (skv_matmul_is_exact(mm)) return;
    fprintf(run->out, "%s: differs from an integer product\n", kind_names[kind]);
    run->n_failed++;
}

static void check_level(struct run *run, struct seen *seen, skv_cpu_level level, unsigned features,
                        bool bench)
{
    skv_kernels k;
    skv_kernels_init(&k, level, features);
    const skv_matmul *tables[N_KINDS] = {&k.f32, &k.wide, &k.bf16, &k.i8};
    for (size_t i = 0; i < N_KINDS; i++) {
        if (!is_new(seen, tables[i])) continue;
        check_table(run, tables[i], (matmul_kind)i);
        if (bench) bench_table(run, tables[i], (matmul_kind)i, skv_cpu_level_name(k.level));
    }
}

/* The products of AMX over plain C. */
static void check_model(struct run *run)
{
    static const size_t lengths[] = {1025, 1087, 1088, 2048, 2113};
    const skv_matmul bf16 = AMX_MATMUL_BF16, i8 = AMX_MATMUL_I8;
    const skv_matmul bf16_paired = AMX_MATMUL_BF16_PAIRED, i8_paired = AMX_MATMUL_I8_PAIRED;
    const skv_matmul bf16_few = AMX_MATMUL_BF16_FEW, i8_few = AMX_MATMUL_I8_FEW;
    const skv_matmul whole = AMX_MATMUL_I8_WHOLE;
    check_table(run, &bf16, KIND_BF16);
    check_table(run, &i8, KIND_I8);
    check_table(run, &whole, KIND_I8);
    for (size_t i = 0; i < N_CASES / 4; i++) {
        check_equal(run, &bf16, &bf16_paired, KIND_BF16, i);
        check_equal(run, &i8, &i8_paired, KIND_I8, i);
        /* One to five rows, and then all heights: the kernels that this machine runs. */
        check_equal(run, &bf16, &bf16_few, KIND_BF16, i % 2 ? i : i / 2 % 5);
        check_equal(run, &i8, &i8_few, KIND_I8, i % 2 ? i : i / 2 % 5);
    }
    /* Several pieces of X, the last of any length; and several groups. */
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        check_case(run, &whole, KIND_I8, 31 - i, lengths[i]);
    }
    check_case(run, &whole, KIND_I8, 0, 65536);
    check_case(run, &whole, KIND_I8, 0, 65536 + 65);
    if (!skv_matmul_is_exact(&bf16_paired) || !skv_matmul_is_exact(&i8_paired)) {
        fprintf(run->out, "paired: differs from an integer product\n");
        run->n_failed++;
    }
}

int skv_check_matmul(uint64_t seed, bool bench, FILE *out)
{
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_REF,    SKV_CPU_LEVEL_AVX2, SKV_CPU_LEVEL_AVXVNNI,
                                    SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_AMX,  SKV_CPU_LEVEL_NEON};
    const unsigned extras = SKV_CPU_AVX_VNNI | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16 |
                            SKV_CPU_NEON_DOT | SKV_CPU_NEON_I8MM | SKV_CPU_NEON_BF16;
    unsigned features = skv_cpu_detect();
    struct run run = {.seed = seed, .out = out};
    struct seen seen = {0};
    skv_rng_init(&run.rng, seed);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!skv_cpu_level_runs(levels[i], features)) continue;
        check_level(&run, &seen, levels[i], features & ~extras, bench);
        check_level(&run, &seen, levels[i], features, bench);
    }
    check_model(&run);
    return run.n_failed;
}
