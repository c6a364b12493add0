#include "check_scan.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "check_levels.h"

enum {
    CASES = 60,
    B = SKV_SCAN_BLOCK,
    PANEL = B * B,
    PANELS = 6,
    DK = 256,
    CHANNELS = 300,
    TAPS = 8,
    EDGE = 16
};

static const float EDGE_VALUE = -12345.5f;

/* A case: inputs, and results of two ways to compute them. */
typedef struct fixture {
    uint64_t seed;
    int i_case, n_failed;
    FILE *out;
    const char *level;
    size_t n_panels;
    skv_scan_block block;
    float s[PANELS * DK * B], kt[DK * B], qt[DK * B], v[PANELS * PANEL];
    float decay[B], beta[B], weight[B], a[PANEL], b[PANEL];
    float x[TAPS][CHANNELS], w[TAPS * CHANNELS], bias[CHANNELS];
    float got[EDGE + PANELS * DK * B + EDGE], want[EDGE + PANELS * DK * B + EDGE];
    float u_got[PANELS * PANEL], u_want[PANELS * PANEL];
} fixture;

static void fill(skv_rng *rng, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)skv_rng_normal(rng);
}

static size_t between(skv_rng *rng, size_t a, size_t b)
{
    return a + (size_t)skv_rng_below(rng, b - a + 1);
}

static void draw(fixture *f, skv_rng *rng)
{
    static const size_t dims[] = {64, 96, 128, 256};
    const size_t n = between(rng, 1, B), n0 = between(rng, 0, n - 1);
    const size_t dk = between(rng, 0, 1) ? dims[between(rng, 0, 3)] : between(rng, 1, DK);
    const size_t q0 = between(rng, n0, n), q1 = between(rng, q0, n);
    f->n_panels = between(rng, 1, PANELS);
    f->block = (skv_scan_block){.key_dim = dk,
                                .n0 = n0,
                                .n = n,
                                .q0 = q0,
                                .q1 = q1,
                                .kt = f->kt,
                                .qt = f->qt,
                                .decay = f->decay,
                                .beta = f->beta,
                                .a = between(rng, 0, 3) ? f->a : NULL,
                                .b = f->b};
    fill(rng, f->s, PANELS * DK * B);
    fill(rng, f->kt, DK * B);
    fill(rng, f->qt, DK * B);
    fill(rng, f->v, PANELS * PANEL);
    fill(rng, f->decay, B);
    fill(rng, f->beta, B);
    fill(rng, f->weight, B);
    fill(rng, f->a, PANEL);
    fill(rng, f->b, PANEL);
    fill(rng, f->x[0], TAPS * CHANNELS);
    fill(rng, f->w, TAPS * CHANNELS);
    fill(rng, f->bias, CHANNELS);
}

static void begin(fixture *f)
{
    for (size_t i = 0; i < sizeof f->got / sizeof f->got[0]; i++) f->got[i] = EDGE_VALUE;
    memcpy(f->want, f->got, sizeof f->got);
    memcpy(f->u_got, f->v, sizeof f->v);
    memcpy(f->u_want, f->v, sizeof f->v);
}

static void compare(fixture *f, const char *op, const float *got, const float *want, size_t n)
{
    size_t i = 0;
    while (i < n && memcmp(got + i, want + i, sizeof *got) == 0) i++;
    if (i == n) return;
    f->n_failed++;
    fprintf(f->out,
            "%s %s: seed %llu case %d: key_dim %zu rows %zu..%zu: [%zu] is %.9g, not %.9g\n", op,
            f->level, (unsigned long long)f->seed, f->i_case, f->block.key_dim, f->block.n0,
            f->block.n, i, (double)got[i], (double)want[i]);
}

/* Rows at once, by the reference, and in two parts. */
static void check_rows(fixture *f, const skv_scan_kernels *k, const skv_scan_kernels *ref,
                       size_t middle)
{
    begin(f);
    k->rows(&f->block, f->s, f->u_got, f->got + EDGE, f->n_panels);
    ref->rows(&f->block, f->s, f->u_want, f->want + EDGE, f->n_panels);
    compare(f, "rows: out", f->got, f->want, sizeof f->got / sizeof *f->got);
    compare(f, "rows: u", f->u_got, f->u_want, sizeof f->u_got / sizeof *f->u_got);
    begin(f);
    skv_scan_block part = f->block;
    part.n = middle;
    part.q1 = skv_min_size(part.q1, middle);
    if (part.n0 < part.n) k->rows(&part, f->s, f->u_got, f->got + EDGE, f->n_panels);
    part = f->block;
    part.n0 = middle;
    part.q0 = skv_max_size(part.q0, middle);
    if (part.n0 < part.n) k->rows(&part, f->s, f->u_got, f->got + EDGE, f->n_panels);
    ref->rows(&f->block, f->s, f->u_want, f->want + EDGE, f->n_panels);
    compare(f, "rows in parts: out", f->got, f->want, sizeof f->got / sizeof *f->got);
    compare(f, "rows in parts: u", f->u_got, f->u_want, sizeof f->u_got / sizeof *f->u_got);
}

static void check_others(fixture *f, const skv_scan_kernels *k, const skv_scan_kernels *ref)
{
    const size_t dk = f->block.key_dim, n = f->n_panels * dk * B;
    const size_t i0 = f->block.n0, i1 = f->block.n;
    begin(f);
    memcpy(f->got + EDGE, f->s, n * sizeof *f->s);
    memcpy(f->want + EDGE, f->s, n * sizeof *f->s);
    k->fold(f->got + EDGE, f->kt, f->v, f->weight, f->decay[B - 1], dk, f->n_panels);
    ref->fold(f->want + EDGE, f->kt, f->v, f->weight, f->decay[B - 1], dk, f->n_panels);
    compare(f, "fold", f->got, f->want, sizeof f->got / sizeof *f->got);
    begin(f);
    k->gram(f->got + EDGE, f->qt, f->kt, i0, i1, dk);
    ref->gram(f->want + EDGE, f->qt, f->kt, i0, i1, dk);
    compare(f, "gram", f->got, f->want, sizeof f->got / sizeof *f->got);
}

static void check_conv(fixture *f, const skv_scan_kernels *k, const skv_scan_kernels *ref,
                       skv_rng *rng)
{
    static const size_t taps[] = {3, 4, 7};
    const float *x[TAPS];
    skv_conv_row row = {.x = x,
                        .w = f->w,
                        .bias = between(rng, 0, 1) ? f->bias : NULL,
                        .ldw = CHANNELS,
                        .n_taps =
                            between(rng, 0, 1) ? taps[between(rng, 0, 2)] : between(rng, 1, TAPS),
                        .n = between(rng, 1, CHANNELS)};
    for (size_t j = 0; j < TAPS; j++) x[j] = f->x[j];
    begin(f);
    k->conv(f->got + EDGE, &row);
    ref->conv(f->want + EDGE, &row);
    compare(f, "conv", f->got, f->want, sizeof f->got / sizeof *f->got);
    row.silu = true;
    k->conv(f->got + EDGE, &row);
    for (size_t c = 0; c < row.n; c++) {
        const double sum = (double)f->want[EDGE + c], y = sum / (1 + exp(-sum));
        if (fabs((double)f->got[EDGE + c] - y) <= 8 * 0x1p-23 * fabs(y) + 1e-38) continue;
        compare(f, "conv with silu", f->got + EDGE + c, &(float){(float)y}, 1);
        break;
    }
}

/* Nanoseconds of 16 rows of a head of 128, and of one row. */
static void bench_level(fixture *f, const skv_scan_kernels *k, FILE *out)
{
    enum { TIMES = 200 };
    f->n_panels = PANELS;
    f->block = (skv_scan_block){.key_dim = 128,
                                .n = B,
                                .q1 = B,
                                .kt = f->kt,
                                .qt = f->qt,
                                .decay = f->decay,
                                .beta = f->beta,
                                .a = f->a,
                                .b = f->b};
    uint64_t start = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) {
        memcpy(f->u_got, f->v, sizeof f->v); /* else they grow beyond floats */
        k->rows(&f->block, f->s, f->u_got, f->got + EDGE, PANELS);
    }
    fprintf(out, "%s: rows %.0f ns", f->level, elapsed_ns(start, TIMES));
    start = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->fold(f->s, f->kt, f->v, f->weight, 0.5f, 128, PANELS);
    fprintf(out, ", fold %.0f ns", elapsed_ns(start, TIMES));
    start = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->gram(f->got, f->qt, f->kt, 0, B, 128);
    fprintf(out, ", gram %.0f ns", elapsed_ns(start, TIMES));
    f->block.n0 = f->block.q0 = B - 1;
    start = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->rows(&f->block, f->s, f->u_got, f->got + EDGE, PANELS);
    fprintf(out, ", one row %.0f ns (128 x %d)\n", elapsed_ns(start, TIMES), PANELS * B);
}

int skv_check_scan(uint64_t seed, bool bench, FILE *out)
{
    skv_rng rng;
    skv_kernels ref;
    int n_failed = 0;
    fixture *f = skv_alloc_zero(1, sizeof *f);
    skv_kernels_init(&ref, SKV_CPU_LEVEL_REF, 0);
    for (size_t n = 0; f && n < N_LEVELS; n++) {
        skv_kernels k;
        if (!level_init(n, &k)) continue;
        skv_rng_init(&rng, seed);
        *f = (fixture){.seed = seed, .out = out, .level = LEVELS[n].name};
        for (; f->i_case < CASES; f->i_case++) {
            draw(f, &rng);
            if (bench && f->i_case == 0) bench_level(f, &k.scan, out);
            draw(f, &rng);
            check_rows(f, &k.scan, &ref.scan, between(&rng, f->block.n0, f->block.n));
            check_others(f, &k.scan, &ref.scan);
            check_conv(f, &k.scan, &ref.scan, &rng);
        }
        n_failed += f->n_failed;
    }
    n_failed += !f;
    skv_free(f);
    return n_failed;
}
