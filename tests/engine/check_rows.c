#include "check_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "check_levels.h"
#include "kernels/bf16.h"

enum { CASES = 300, N_MOST = 4097, CANARY = 16, OFFSET_MOST = 5 };

static const float CANARY_VALUE = -12345.5f;
static const double EPS = 0x1p-23;

/* One random case: rows of n floats, each a block of its own that ends where the row ends. */
typedef struct fixture {
    uint64_t seed;
    int i_case;
    FILE *out;
    int n_failed;
    const char *level;
    size_t n;
    float *x, *y, *w; /* [n] inputs, at any alignment */
    float *result;    /* [CANARY + n + CANARY] */
    double *want;     /* [n] */
    double *bound;    /* [n] what rounding may do */
    void *blocks[3];  /* owned: what x, y and w lie in */
} fixture;

static void tell(fixture *f, const char *op, size_t i, double got, double want, double bound)
{
    f->n_failed++;
    fprintf(f->out, "%s %s: seed %llu case %d: n %zu: [%zu] is %.9g, not %.9g (tolerance %g)\n", op,
            f->level, (unsigned long long)f->seed, f->i_case, f->n, i, got, want, bound);
}

static void reset(fixture *f, const float *from)
{
    for (size_t i = 0; i < f->n + 2 * CANARY; i++) f->result[i] = CANARY_VALUE;
    if (from) memcpy(f->result + CANARY, from, f->n * sizeof *from);
}

static bool near(double got, double want, double bound)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want) || fabs(want) >= (double)0x1.fffffep127f)
        return fabs(got) > 3e38 || got == want;
    return fabs(got - want) <= bound + 1e-44;
}

static void compare(fixture *f, const char *op)
{
    for (size_t i = 0; i < f->n + 2 * CANARY; i++) {
        bool inside = i >= CANARY && i < CANARY + f->n;
        double want = inside ? f->want[i - CANARY] : (double)CANARY_VALUE;
        double bound = inside ? f->bound[i - CANARY] : 0.0;
        if (near((double)f->result[i], want, bound)) continue;
        tell(f, op, i - CANARY, (double)f->result[i], want, bound);
        return;
    }
}

static void check_dot(fixture *f, const skv_kernels *k)
{
    double sum = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < f->n; i++) {
        sum += (double)f->x[i] * (double)f->y[i];
        size += fabs((double)f->x[i] * (double)f->y[i]);
    }
    double bound = (double)(f->n + 1) * EPS * size;
    double got = (double)k->dot(f->x, f->y, f->n);
    if (!near(got, sum, bound)) tell(f, "dot", 0, got, sum, bound);
}

static void check_rmsnorm(fixture *f, const skv_kernels *k)
{
    double sum = 0.0;
    for (size_t i = 0; i < f->n; i++) sum += (double)f->x[i] * (double)f->x[i];
    double inverse = 1.0 / sqrt(sum / (double)f->n + (double)1e-5f);
    for (int with = 0; with < 3; with++) {
        float offset = with == 2 ? 1.0f : 0.0f;
        for (size_t i = 0; i < f->n; i++) {
            double w = with ? (double)f->w[i] + (double)offset : 1.0;
            f->want[i] = (double)f->x[i] * inverse * w;
            double size = fabs((double)f->x[i] * inverse) * (with ? fabs((double)f->w[i]) + 1 : 1);
            f->bound[i] = ((double)f->n / 2.0 + 8.0) * EPS * size;
        }
        reset(f, f->x);
        k->rmsnorm(f->result + CANARY, f->x, with ? f->w : NULL, offset, 1e-5f, f->n);
        compare(f, "rmsnorm");
        reset(f, f->x);
        k->rmsnorm(f->result + CANARY, f->result + CANARY, with ? f->w : NULL, offset, 1e-5f, f->n);
        compare(f, "rmsnorm in place");
    }
}

static void check_rope(fixture *f, const skv_kernels *k)
{
    size_t n_rot = f->n / 2 * 2;
    size_t half = n_rot / 2;
    for (size_t i = 0; i < f->n; i++) {
        f->want[i] = (double)f->x[i];
        f->bound[i] = 0.0;
    }
    for (size_t i = 0; i < half; i++) {
        double a = (double)f->x[i];
        double b = (double)f->x[i + half];
        double c = (double)f->y[i];
        double s = (double)f->w[i];
        f->want[i] = a * c - b * s;
        f->want[i + half] = b * c + a * s;
        f->bound[i] = 2.0 * EPS * (fabs(a * c) + fabs(b * s));
        f->bound[i + half] = 2.0 * EPS * (fabs(b * c) + fabs(a * s));
    }
    reset(f, f->x);
    k->rope(f->result + CANARY, f->y, f->w, n_rot);
    compare(f, "rope");
}

/* The gates reach from denormals to what overflows the cube in GELU. */
static void check_glus(fixture *f, const skv_kernels *k)
{
    const double c = sqrt(2.0 / acos(-1.0));
    static const char *const names[][2] = {{"silu_glu", "silu_glu in place"},
                                           {"gelu_tanh_glu", "gelu_tanh_glu in place"},
                                           {"sigmoid_glu", "sigmoid_glu in place"}};
    skv_glu_fn *const glus[] = {k->silu_glu, k->gelu_tanh_glu, k->sigmoid_glu};
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < f->n; i++) {
            double x = (double)f->x[i];
            double z = kind == 1 ? 2.0 * c * (x + 0.044715 * x * x * x) : x;
            double act = (kind == 2 ? 1.0 : x) / (1.0 + exp(-z));
            f->want[i] = act * (double)f->y[i];
            /* e^-z loses the digits of z that are before its point. */
            double relative = (8.0 + 4.0 * (z < 0.0 ? fmin(-z, 105.0) : 0.0)) * EPS;
            f->bound[i] = fabs(f->want[i]) * relative + 1e-36 * (1.0 + fabs((double)f->y[i] * x));
        }
        reset(f, f->x);
        glus[kind](f->result + CANARY, f->x, f->y, f->n);
        compare(f, names[kind][0]);
        reset(f, f->x);
        glus[kind](f->result + CANARY, f->result + CANARY, f->y, f->n);
        compare(f, names[kind][1]);
        reset(f, f->y);
        glus[kind](f->result + CANARY, f->x, f->result + CANARY, f->n);
        compare(f, names[kind][1]);
    }
}

static void check_axpy_softcap(fixture *f, const skv_kernels *k)
{
    const float a = 0.37f;
    const float cap = 30.0f;
    for (size_t i = 0; i < f->n; i++) {
        double product = (double)a * (double)f->y[i];
        f->want[i] = (double)f->x[i] + product;
        f->bound[i] = EPS * (fabs((double)f->x[i]) + 2.0 * fabs(product));
    }
    reset(f, f->x);
    k->axpy(f->result + CANARY, a, f->y, f->n);
    compare(f, "axpy");
    for (size_t i = 0; i < f->n; i++) {
        f->want[i] = (double)cap * tanh((double)f->x[i] / (double)cap);
        f->bound[i] = 6.0 * EPS * fabs(f->want[i]);
    }
    reset(f, f->x);
    k->softcap(f->result + CANARY, cap, f->n);
    compare(f, "softcap");
}

static void check_logsumexp(fixture *f, const skv_kernels *k)
{
    size_t best = 0;
    for (size_t i = 1; i < f->n; i++) best = f->x[i] > f->x[best] ? i : best;
    double sum = 0.0;
    for (size_t i = 0; i < f->n; i++) sum += exp((double)f->x[i] - (double)f->x[best]);
    double want = isinf(f->x[best]) ? (double)f->x[best] : (double)f->x[best] + log(sum);
    double bound = 2.0 * EPS * fabs(want) + (8.0 + (double)f->n / 8.0) * EPS;
    size_t i_max = SIZE_MAX;
    double got = (double)k->logsumexp(f->x, f->n, &i_max);
    if (!near(got, want, bound)) tell(f, "logsumexp", 0, got, want, bound);
    if (i_max != best) tell(f, "index in logsumexp", 0, (double)i_max, (double)best, 0.0);
    if ((double)k->logsumexp(f->x, f->n, NULL) != got) tell(f, "logsumexp", 1, 0.0, got, 0.0);
}

/* Shifted by the most that it has, as softmax weights are: large rows vanish, none overflows. */
static void check_add_exp(fixture *f, const skv_kernels *k)
{
    float shift = f->x[0];
    for (size_t i = 1; i < f->n; i++) shift = f->x[i] > shift ? f->x[i] : shift;
    for (size_t i = 0; i < f->n; i++) {
        const double low = (double)f->x[i] - (double)shift, e = exp(low);
        f->want[i] = (double)f->y[i] + e;
        f->bound[i] = EPS * fabs(f->want[i]) + (8.0 + 2.0 * fmin(-low, 105.0)) * EPS * e + 1e-36;
    }
    reset(f, f->y);
    k->add_exp(f->result + CANARY, f->x, shift, f->n);
    compare(f, "add_exp");
}

/* All bits count here, those of NaN too. */
static void check_bf16(fixture *f, const skv_kernels *k, skv_rng *rng)
{
    uint16_t *half = skv_alloc(f->n + 1, sizeof *half);
    uint32_t bits;
    for (size_t i = 0; i < f->n; i++) {
        bits = (uint32_t)skv_rng_next(rng);
        if (skv_rng_below(rng, 4) == 0) bits &= 0xffff8000u; /* a tie */
        memcpy(&f->result[i], &bits, sizeof bits);
    }
    half[f->n] = 0x1234;
    k->to_bf16(half, f->result, f->n);
    for (size_t i = 0; i < f->n; i++) {
        uint16_t want = skv_f32_to_bf16(f->result[i]);
        if (half[i] == want) continue;
        tell(f, "to_bf16", i, half[i], want, 0.0);
        break;
    }
    if (half[f->n] != 0x1234) tell(f, "canary of to_bf16", f->n, half[f->n], 0x1234, 0.0);
    reset(f, NULL);
    k->from_bf16(f->result + CANARY, half, f->n);
    for (size_t i = 0; i < f->n; i++) {
        memcpy(&bits, &f->result[CANARY + i], sizeof bits);
        if (bits == (uint32_t)half[i] << 16) continue;
        tell(f, "from_bf16", i, bits, half[i], 0.0);
        break;
    }
    if (f->result[CANARY + f->n] != CANARY_VALUE) tell(f, "canary of from_bf16", f->n, 0, 0, 0);
    skv_free(half);
}

static float *new_row(void **block, size_t n, size_t offset)
{
    *block = skv_alloc(n + offset, sizeof(float));
    return (float *)*block + offset;
}

static void fixture_init(fixture *f, skv_rng *rng)
{
    const size_t sizes[] = {1,  2,  3,  4,  7,  8,  9,   15,  16,  17,  31,   32,
                            33, 63, 64, 65, 96, 97, 127, 128, 129, 576, 2048, N_MOST};
    f->n = sizes[skv_rng_below(rng, sizeof sizes / sizeof sizes[0])];
    f->x = new_row(&f->blocks[0], f->n, skv_rng_below(rng, OFFSET_MOST));
    f->y = new_row(&f->blocks[1], f->n, skv_rng_below(rng, OFFSET_MOST));
    f->w = new_row(&f->blocks[2], f->n, skv_rng_below(rng, OFFSET_MOST));
    f->result = skv_alloc(f->n + 2 * CANARY, sizeof(float));
    f->want = skv_alloc(f->n, sizeof(double));
    f->bound = skv_alloc(f->n, sizeof(double));
    double size = exp2(16.0 * skv_rng_uniform(rng) - 8.0);
    for (size_t i = 0; i < f->n; i++) {
        f->x[i] = (float)(size * skv_rng_normal(rng));
        f->y[i] = (float)skv_rng_normal(rng);
        f->w[i] = (float)skv_rng_normal(rng);
    }
    if (skv_rng_below(rng, 6) == 0) memset(f->x, 0, f->n * sizeof *f->x);
    if (skv_rng_below(rng, 6) == 0) f->x[skv_rng_below(rng, f->n)] = f->x[0]; /* equal maxima */
}

/* Gates and scores at the ends of the range, each alone among ordinary ones. */
static void spice(fixture *f, skv_rng *rng)
{
    const float odd[] = {0.0f,  -0.0f,  88.0f,  -88.0f,  104.0f, -104.0f, 1e4f,   -1e4f,
                         3e38f, -3e38f, 1e-38f, -1e-38f, 1e-42f, 1e13f,   -1e13f, 20.0f};
    f->x[skv_rng_below(rng, f->n)] = odd[skv_rng_below(rng, sizeof odd / sizeof odd[0])];
}

static void fixture_release(fixture *f)
{
    for (int i = 0; i < 3; i++) skv_free(f->blocks[i]);
    skv_free(f->result);
    skv_free(f->want);
    skv_free(f->bound);
}

/* Infinities have a meaning for logsumexp: masked logits, and a logit that overflowed. */
static void check_infinities(fixture *f, const skv_kernels *k, skv_rng *rng)
{
    f->x[skv_rng_below(rng, f->n)] = -HUGE_VALF;
    check_logsumexp(f, k);
    for (size_t i = 0; i < f->n; i++) f->x[i] = -HUGE_VALF;
    check_logsumexp(f, k);
    f->x[skv_rng_below(rng, f->n)] = HUGE_VALF;
    check_logsumexp(f, k);
}

/* Nanoseconds of each operation on rows that stay in the cache. */
static void bench_level(const skv_kernels *k, const char *name, FILE *out)
{
    enum { N = 4096, LOGITS = 128256, TIMES = 2000 };
    float *x = skv_alloc_zero(LOGITS, sizeof(float));
    float *y = skv_alloc_zero(N, sizeof(float));
    uint64_t begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->rmsnorm(y, x, x, 0.0f, 1e-5f, N);
    fprintf(out, "%s: rmsnorm %.0f ns", name, elapsed_ns(begin, TIMES));
    begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->silu_glu(y, x, x, N);
    fprintf(out, ", silu_glu %.0f ns", elapsed_ns(begin, TIMES));
    begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->gelu_tanh_glu(y, x, x, N);
    fprintf(out, ", gelu_tanh_glu %.0f ns", elapsed_ns(begin, TIMES));
    begin = skv_clock_ns();
    for (int i = 0; i < TIMES; i++) k->axpy(y, 0.5f, x, N);
    fprintf(out, ", axpy %.0f ns (%d each)", elapsed_ns(begin, TIMES), N);
    begin = skv_clock_ns();
    for (int i = 0; i < 20; i++) y[i] = k->logsumexp(x, LOGITS, NULL);
    fprintf(out, ", logsumexp %.1f us (%d)\n", elapsed_ns(begin, 20) * 1e-3, LOGITS);
    skv_free(x);
    skv_free(y);
}

int skv_check_rows(uint64_t seed, bool bench, FILE *out)
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
            check_dot(&f, &k);
            check_rmsnorm(&f, &k);
            check_rope(&f, &k);
            check_axpy_softcap(&f, &k);
            check_logsumexp(&f, &k);
            check_add_exp(&f, &k);
            spice(&f, &rng);
            check_glus(&f, &k);
            check_bf16(&f, &k, &rng);
            check_infinities(&f, &k, &rng);
            n_failed += f.n_failed;
            fixture_release(&f);
        }
    }
    return n_failed;
}
