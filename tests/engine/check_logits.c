#include "check_logits.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "check_levels.h"
#include "kernels/logits.h"

enum { CASES = 200, N_MOST = 5003, CANARY = 8, OFFSET_MOST = 5, LIST = 192 };

/* One random row, in a block of its own that ends where the row ends. */
typedef struct fixture {
    uint64_t seed;
    int i_case;
    FILE *out;
    int n_failed;
    const char *level;
    size_t n, n_blocks;
    float *x;
    void *block;           /* owned: what x lies in */
    float *maxima;         /* owned, [n_blocks + CANARY] */
    uint64_t *sums, *want; /* owned, [SKV_LOGIT_BUCKETS + CANARY] */
} fixture;

static void tell(fixture *f, const char *op, size_t i, double got, double want)
{
    f->n_failed++;
    fprintf(f->out, "%s %s: seed %llu case %d: n %zu: [%zu] is %.17g, not %.17g\n", op, f->level,
            (unsigned long long)f->seed, f->i_case, f->n, i, got, want);
}

/* ---- the reference ---- */

static void check_weights(fixture *f, const skv_logit_scale *s)
{
    for (size_t i = 0; i < f->n; i++) {
        if (!(f->x[i] <= s->max)) continue;
        const double want =
            exp2(((double)f->x[i] - (double)s->max) * s->factor) * (double)SKV_LOGIT_ONE;
        const double got = (double)skv_logit_weight(s, f->x[i]);
        if (fabs(got - want) > 0.501 + 1e-12 * want) tell(f, "weight", i, got, want);
    }
    if (skv_logit_weight(s, s->max) != SKV_LOGIT_ONE) tell(f, "weight of the largest", 0, 0, 1);
    if (s->factor > 0 && skv_logit_weight(s, -HUGE_VALF) != 0) tell(f, "weight of -inf", 0, 1, 0);
    if (skv_logit_weight(s, (float)NAN) != 0) tell(f, "weight of NaN", 0, 1, 0);
}

/* ---- levels ---- */

static void check_maxima(fixture *f, const skv_kernels *k)
{
    for (size_t b = 0; b < f->n_blocks + CANARY; b++) f->maxima[b] = 12345.5f;
    k->logits.maxima(f->maxima, f->x, f->n);
    for (size_t b = 0; b < f->n_blocks + CANARY; b++) {
        float want = b < f->n_blocks ? -HUGE_VALF : 12345.5f;
        for (size_t i = b * SKV_LOGIT_BLOCK; i < f->n && i < (b + 1) * SKV_LOGIT_BLOCK; i++) {
            if (f->x[i] > want) want = f->x[i];
        }
        if (f->maxima[b] == want) continue;
        tell(f, "maxima", b, (double)f->maxima[b], (double)want);
        return;
    }
}

static void check_spread(fixture *f, const skv_kernels *k, const skv_logit_scale *s)
{
    const skv_logit_row row = {f->x, f->maxima, f->n};
    for (size_t b = 0; b < SKV_LOGIT_BUCKETS + CANARY; b++) f->sums[b] = f->want[b] = b;
    for (size_t i = 0; i < f->n; i++) {
        if (!(f->x[i] >= s->low && f->x[i] <= s->high)) continue;
        f->want[skv_logit_bucket(s, f->x[i])] += skv_logit_weight(s, f->x[i]);
    }
    k->logits.spread(f->sums, &row, s);
    for (size_t b = 0; b < SKV_LOGIT_BUCKETS + CANARY; b++) {
        if (f->sums[b] == f->want[b]) continue;
        tell(f, "spread", b, (double)f->sums[b], (double)f->want[b]);
        return;
    }
}

static void check_weigh(fixture *f, const skv_kernels *k, const skv_logit_scale *s)
{
    const skv_logit_row row = {f->x, f->maxima, f->n};
    for (size_t b = 0; b < f->n_blocks + CANARY; b++) {
        f->sums[b] = 77;
        f->want[b] = b < f->n_blocks ? 0 : 77;
    }
    for (size_t i = 0; i < f->n; i++) {
        if (!(f->x[i] >= s->low && f->x[i] <= s->high)) continue;
        f->want[i / SKV_LOGIT_BLOCK] += skv_logit_weight(s, f->x[i]);
    }
    k->logits.weigh(f->sums, &row, s);
    for (size_t b = 0; b < f->n_blocks + CANARY; b++) {
        if (f->sums[b] == f->want[b]) continue;
        tell(f, "weigh", b, (double)f->sums[b], (double)f->want[b]);
        return;
    }
}

static void check_between(fixture *f, const skv_kernels *k, float low, float high)
{
    const skv_logit_row row = {f->x, f->maxima, f->n};
    uint32_t ids[LIST + 1];
    size_t i_block = 0, at = 0;
    ids[LIST] = 77;
    while (i_block < f->n_blocks) {
        const size_t before = i_block;
        const size_t n = k->logits.between(ids, LIST, &row, low, high, &i_block);
        if (n > LIST || i_block <= before || ids[LIST] != 77) {
            tell(f, "blocks of between", before, (double)i_block, (double)n);
            return;
        }
        for (size_t i = 0; i < n; i++, at++) {
            while (at < f->n && !(f->x[at] >= low && f->x[at] <= high)) at++;
            if (ids[i] == at) continue;
            tell(f, "between", i, ids[i], (double)at);
            return;
        }
    }
    for (; at < f->n; at++) {
        if (f->x[at] >= low && f->x[at] <= high) tell(f, "end of between", at, 0, 1);
    }
}

/* ---- cases ---- */

static void fixture_init(fixture *f, skv_rng *rng)
{
    const size_t sizes[] = {1,   2,   7,   8,   15,  16,  17,  31,  33,   63,   64,   65,    127,
                            128, 129, 191, 192, 193, 300, 577, 640, 2048, 4095, 4096, N_MOST};
    f->n = sizes[skv_rng_below(rng, sizeof sizes / sizeof sizes[0])];
    f->n_blocks = skv_logit_blocks(f->n);
    const size_t offset = skv_rng_below(rng, OFFSET_MOST);
    f->block = skv_alloc(f->n + offset, sizeof *f->x);
    f->x = (float *)f->block + offset;
    f->maxima = skv_alloc(f->n_blocks + CANARY, sizeof *f->maxima);
    f->sums = skv_alloc(SKV_LOGIT_BUCKETS + CANARY, sizeof *f->sums);
    f->want = skv_alloc(SKV_LOGIT_BUCKETS + CANARY, sizeof *f->want);
    const double size = exp2(12.0 * skv_rng_uniform(rng) - 6.0);
    for (size_t i = 0; i < f->n; i++) f->x[i] = (float)(size * skv_rng_normal(rng));
    if (skv_rng_below(rng, 6) == 0) { /* ties */
        for (size_t i = 0; i < f->n; i++) f->x[i] = (float)skv_rng_below(rng, 3);
    }
    if (skv_rng_below(rng, 4) == 0) { /* what may not come */
        for (size_t i = 0; i < f->n; i++) {
            if (skv_rng_below(rng, 8) > 0) f->x[i] = -HUGE_VALF;
        }
    }
    const float odd[] = {0.0f, -0.0f, (float)NAN, -HUGE_VALF, -FLT_MAX, 1e-42f, -1e-42f};
    f->x[skv_rng_below(rng, f->n)] = odd[skv_rng_below(rng, sizeof odd / sizeof odd[0])];
}

static void fixture_release(fixture *f)
{
    skv_free(f->block);
    skv_free(f->maxima);
    skv_free(f->sums);
    skv_free(f->want);
}

static float largest(const fixture *f)
{
    float max = -HUGE_VALF;
    for (size_t i = 0; i < f->n; i++) max = f->x[i] > max ? f->x[i] : max;
    return max;
}

static void check_row(fixture *f, const skv_kernels *k, skv_rng *rng)
{
    const double factors[] = {0, 0.01, 1.4426950408889634, 20, 0x1p900};
    skv_logit_scale s = {.max = largest(f)};
    check_maxima(f, k);
    if (!isfinite(s.max)) return;
    s.factor = factors[skv_rng_below(rng, sizeof factors / sizeof factors[0])];
    check_weights(f, &s);
    s.low = -FLT_MAX;
    s.high = s.max;
    s.per = SKV_LOGIT_BUCKETS / (20 * skv_rng_uniform(rng));
    check_spread(f, k, &s);
    check_weigh(f, k, &s);
    for (int i = 0; i < 2; i++) { /* a part of it, and one value */
        const float a = f->x[skv_rng_below(rng, f->n)], b = f->x[skv_rng_below(rng, f->n)];
        if (!isfinite(a) || !isfinite(b)) continue;
        s.low = a < b ? a : b;
        s.high = i == 0 && a < b ? b : s.low;
        const double width = (double)s.high - (double)s.low;
        s.per = width > 0 ? SKV_LOGIT_BUCKETS / width : 0;
        check_spread(f, k, &s);
        check_weigh(f, k, &s);
        check_between(f, k, s.low, s.high);
    }
    check_between(f, k, -HUGE_VALF, HUGE_VALF);
    check_between(f, k, s.max, HUGE_VALF);
}

/* Microseconds of each operation on a row that stays in the cache. */
static void bench_level(const skv_kernels *k, const char *name, FILE *out)
{
    enum { N = 151936, TIMES = 50 };
    float *x = skv_alloc(N, sizeof *x), *maxima = skv_alloc(skv_logit_blocks(N), sizeof *maxima);
    uint64_t *sums = skv_alloc_zero(SKV_LOGIT_BUCKETS, sizeof *sums);
    uint64_t *weights = skv_alloc(skv_logit_blocks(N), sizeof *weights);
    uint32_t ids[2048];
    skv_rng rng;
    skv_rng_init(&rng, 1);
    for (size_t i = 0; i < N; i++) x[i] = (float)skv_rng_normal(&rng);
    const skv_logit_row row = {x, maxima, N};
    const skv_logit_scale s = {
        .max = 5, .factor = 1.44, .low = -20, .high = 5, .per = SKV_LOGIT_BUCKETS / 10.0};
    uint64_t begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->logits.maxima(maxima, x, N);
    fprintf(out, "%s: maxima %.1f us", name, elapsed_ns(begin, TIMES) * 1e-3);
    begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->logits.weigh(weights, &row, &s);
    fprintf(out, ", weigh %.1f us", elapsed_ns(begin, TIMES) * 1e-3);
    begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->logits.spread(sums, &row, &s);
    fprintf(out, ", spread %.1f us", elapsed_ns(begin, TIMES) * 1e-3);
    begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) {
        size_t i_block = 0;
        (void)k->logits.between(ids, 2048, &row, 1.0f, 1.005f, &i_block);
    }
    fprintf(out, ", between %.1f us (%d)\n", elapsed_ns(begin, TIMES) * 1e-3, N);
    skv_free(x);
    skv_free(maxima);
    skv_free(sums);
    skv_free(weights);
}

int skv_check_logits(uint64_t seed, bool bench, FILE *out)
{
    skv_rng rng;
    int n_failed = 0;
    skv_rng_init(&rng, seed);
    for (int i = 0; i < CASES; i++) {
        for (size_t n = 0; n < N_LEVELS; n++) {
            skv_kernels k;
            if (!level_init(n, &k)) continue;
            if (bench && i == 0) bench_level(&k, LEVELS[n].name, out);
            fixture f = {.seed = seed, .i_case = i, .out = out, .level = LEVELS[n].name};
            fixture_init(&f, &rng);
            check_row(&f, &k, &rng);
            n_failed += f.n_failed;
            fixture_release(&f);
        }
    }
    return n_failed;
}
