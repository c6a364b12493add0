#include "check_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "amx_attention_model.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/kv_page.h"

enum { CASES = 300, CANARY = 16 };

static const float CANARY_VALUE = -12345.5f;
static const char *const TYPE_NAMES[] = {"f32", "bf16", "fp8", "int8"};

/* What attention rounds, beside sums of f32. */
typedef enum arithmetic {
    EXACT,   /* nothing */
    COARSE,  /* q, k, v and weights to bfloat16 */
    SINGLE,  /* q to bfloat16, and weights to whole numbers of 15 bits */
    WHOLE15, /* q and weights to whole numbers of 15 bits, */
    WHOLE8,  /* and of 7 and 8 bits */
    N_ARITHMETIC
} arithmetic;

/* A way to fill the kernel table. */
typedef struct way {
    const char *name;
    skv_cpu_level level;
    unsigned without; /* features that are hidden from it */
    unsigned needed;  /* features without which it is another way */
    /* Of pages of 16 bits and fp8, of int8, and of int8 in a call for one token. */
    arithmetic narrow, int8, single;
    void (*replace)(skv_kernels *k); /* entries of the table, or NULL */
} way;

/* The attention of a form of AMX's, which the level has where it is asked for. */
static void init_amx(skv_kernels *k)
{
#if defined(__x86_64__)
    skv_attention_init_amx(k);
#else
    (void)k;
#endif
}

static const way WAYS[] = {
    {"ref", SKV_CPU_LEVEL_REF, 0, 0, EXACT, EXACT, EXACT, NULL},
    {"avx2", SKV_CPU_LEVEL_AVX2, 0, SKV_CPU_AVX2, EXACT, WHOLE15, EXACT, NULL},
    {"avx512", SKV_CPU_LEVEL_AVX512, SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16, SKV_CPU_AVX512,
     EXACT, EXACT, EXACT, NULL},
    {"avx512vnni", SKV_CPU_LEVEL_AVX512, SKV_CPU_AVX512_BF16, SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI,
     EXACT, WHOLE8, EXACT, NULL},
    {"avx512bf16", SKV_CPU_LEVEL_AVX512, 0,
     SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16, COARSE, WHOLE8, SINGLE, NULL},
    {"amx", SKV_CPU_LEVEL_AMX, 0,
     SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16 | SKV_CPU_AMX, COARSE, WHOLE8,
     SINGLE, init_amx},
    {"neon", SKV_CPU_LEVEL_NEON, 0, SKV_CPU_NEON, EXACT, EXACT, EXACT, NULL},
    {"a model of amx", SKV_CPU_LEVEL_REF, 0, 0, COARSE, WHOLE8, WHOLE8, amx_model_attention_init},
};
enum { N_WAYS = sizeof WAYS / sizeof WAYS[0] };

/* Fills the table; false when this processor cannot. */
static bool way_init(const way *w, skv_kernels *k)
{
    unsigned features = skv_cpu_detect() & ~w->without;
    if ((features & w->needed) != w->needed) return false;
    skv_kernels_init(k, w->level, features);
    if (w->replace) w->replace(k);
    return true;
}

/* One random call, with everything it points to. */
typedef struct fixture {
    uint64_t seed;
    int i_case;
    FILE *out;
    int n_failed;
    skv_attention a;
    size_t n_pages;
    unsigned char **pages; /* [n_pages] owned, each a block of its own, NULL where none may look */
    float *k, *v;          /* [n_rows][Dh] as the page holds them */
    float *q;
    float *sinks;                    /* [G], or NULL */
    float *result;                   /* out with canaries before and behind */
    size_t n_result;                 /* floats of out */
    double *want;                    /* [n_q][G][Dh] */
    double *tolerance[N_ARITHMETIC]; /* the same; NULL where no page of the type has it */
    size_t i_alone;                  /* the token that has a call of its own */
} fixture;

static size_t pick(skv_rng *rng, const size_t *from, size_t n)
{
    return from[skv_rng_below(rng, n)];
}

#define PICK(rng, ...)                                                                             \
    pick((rng), (const size_t[]){__VA_ARGS__},                                                     \
         sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static void choose_shape(fixture *f, skv_rng *rng)
{
    skv_attention *a = &f->a;
    a->n_group = PICK(rng, 1, 2, 3, 4, 5, 7, 8, 4, 1, 71);
    a->head_dim = PICK(rng, 4, 8, 12, 16, 20, 32, 48, 64, 80, 96, 128, 160, 256, 512);
    a->n_q = PICK(rng, 1, 1, 2, 3, 7, 33, 65, 130, 200);
    a->n_past = PICK(rng, 0, 0, 1, 5, 63, 64, 65, 100, 127, 128, 300, 447);
    a->window = skv_rng_below(rng, 3) ? 0 : PICK(rng, 1, 2, 7, 63, 64, 65, 100, 200, 1000);
    a->type = (skv_kv_type)skv_rng_below(rng, 4);
    a->softcap = skv_rng_below(rng, 4) ? 0.0f : 5.0f;
    a->scale = 1.0f / sqrtf((float)a->head_dim);
    /* The oracle is slow: large widths get few rows. */
    while (a->n_q * (a->n_past + a->n_q) * a->head_dim * a->n_group > 2000000) {
        a->n_q = skv_ceil_div(a->n_q, 2);
        a->n_past /= 2;
        if (a->n_q == 1 && a->n_past == 0) a->n_group = 1;
    }
    a->ld_q = a->n_group * a->head_dim + skv_rng_below(rng, 9);
    a->ld_out = a->n_group * a->head_dim + skv_rng_below(rng, 9);
}

/* Bytes that are NaN in every type of page, with the largest scale. */
static void spoil(unsigned char *bytes, size_t n)
{
    memset(bytes, 0xff, n);
}

/* Small e4m3 or int8 codes of either sign, as no store would leave them, with a large scale: so
 * that denormals and the codes next to zero weigh as much as others do. */
static void fill_codes(unsigned char *page, const skv_attention *a, size_t row, skv_rng *rng)
{
    for (size_t which = 0; which < 2; which++) {
        unsigned char *at = page + skv_page_rows_at(a->type, a->head_dim, which);
        for (size_t d = 0; d < a->head_dim; d++) {
            int code = (int)skv_rng_below(rng, 16);
            bool negative = skv_rng_below(rng, 2) != 0;
            if (a->type == SKV_KV_TYPE_INT8) code = negative ? -code : code;
            if (a->type == SKV_KV_TYPE_FP8 && negative) code |= 0x80;
            at[row * a->head_dim + d] = (unsigned char)code;
        }
        page[skv_page_scales_at(a->type, a->head_dim, which) + row] =
            (unsigned char)(a->type == SKV_KV_TYPE_INT8 ? 176 : 248);
    }
}

static void fill_pages(fixture *f, skv_rng *rng, const skv_kernels *ref)
{
    const skv_attention *a = &f->a;
    size_t Dh = a->head_dim;
    size_t n_rows = a->n_past + a->n_q;
    size_t end0 = a->n_past + 1;
    size_t begin = a->window && end0 > a->window ? end0 - a->window : 0;
    double spread = skv_rng_uniform(rng) < 0.5 ? 1.0 : 3.0;
    bool by_codes = skv_kv_has_scales(a->type) && skv_rng_below(rng, 3) == 0;
    float x[2 * SKV_HEAD_DIM_MAX];

    for (size_t i = 0; i < f->n_pages; i++) {
        if ((i + 1) * SKV_PAGE_ROWS <= begin) continue;
        size_t n = skv_kv_page_bytes(a->type, Dh);
        f->pages[i] = skv_alloc(n, 1);
        spoil(f->pages[i], n);
    }
    for (size_t r = begin; r < n_rows; r++) {
        for (size_t d = 0; d < 2 * Dh; d++) x[d] = (float)(spread * skv_rng_normal(rng));
        if (skv_rng_below(rng, 20) == 0) memset(x, 0, Dh * sizeof *x);
        unsigned char *page = f->pages[r / SKV_PAGE_ROWS];
        ref->kv_store(page, a->type, r % SKV_PAGE_ROWS, x, x + Dh, Dh);
        if (by_codes) fill_codes(page, a, r % SKV_PAGE_ROWS, rng);
        ref->kv_load(page, a->type, r % SKV_PAGE_ROWS, f->k + r * Dh, f->v + r * Dh, Dh);
    }
}

/* What rounding may do to one score and to one output. */
typedef struct rounding {
    double score;  /* times scale * sum |q k| */
    double value;  /* relative, of a weight times a value */
    double q_step; /* of whole numbers, half of it: times the largest |q| */
    double p_step; /* the same: times the largest weight, with the scale of its value */
} rounding;

static rounding rounding_of(const skv_attention *a, arithmetic kind)
{
    /* bf16: half a unit of the last of its 8 bits, beside a number just above a power of two. */
    const double eps = 0x1p-23, bf16 = 0x1p-8, coarse_exp = 4e-4;
    double codes = skv_kv_has_scales(a->type) ? 2.01 : 1.01;
    rounding r = {((double)a->head_dim + 16.0) * eps, 80.0 * eps, 0.0, 0.0};
    if (kind == COARSE || kind == SINGLE) {
        r.score += bf16 * codes;
        r.value += bf16 * codes + coarse_exp;
    }
    if (kind == SINGLE) r.p_step = 1.01 / 65534.0;
    if (kind == WHOLE15) r.q_step = r.p_step = 1.01 / 65534.0;
    if (kind == WHOLE8) {
        r.q_step = 1.01 / 254.0;
        r.p_step = 1.01 / 510.0;
        r.value += coarse_exp;
    }
    return r;
}

/* Which arithmetic meets the pages of a way; `single` if the call is for one token. */
static arithmetic arithmetic_of(const way *w, skv_kv_type type, bool single)
{
    if (type == SKV_KV_TYPE_F32) return EXACT;
    if (type != SKV_KV_TYPE_INT8) return w->narrow;
    return single ? w->single : w->int8;
}

static double v_scale(const fixture *f, size_t row)
{
    const skv_attention *a = &f->a;
    if (!skv_kv_has_scales(a->type)) return 1.0;
    const unsigned char *page = f->pages[row / SKV_PAGE_ROWS];
    return (double)skv_scale_decode(
        page[skv_page_scales_at(a->type, a->head_dim, 1) + row % SKV_PAGE_ROWS]);
}

/* Weights times scales are rounded to whole steps: half of one for every code. */
static void bound_weights(fixture *f, const double *s, size_t begin, size_t end, double step,
                          double *bound)
{
    size_t Dh = f->a.head_dim;
    double most = 0.0;
    for (size_t r = begin; r < end; r++) most = fmax(most, s[r] * v_scale(f, r));
    for (size_t r = begin; r < end; r++) {
        double scale = v_scale(f, r);
        if (!(scale > 0.0)) continue;
        for (size_t d = 0; d < Dh; d++) {
            bound[d] += fabs((double)f->v[r * Dh + d]) / scale * most * step;
        }
    }
}

static double sum_of_sizes(const float *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)x[i]);
    return sum;
}

/* In float: gcc 12 for AArch64 does not compile the loop in double. */
static double largest_size(const float *x, size_t n)
{
    float most = 0.0f;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return (double)most;
}

/* How far the outputs of one query row may be off, by the weights s of its rows. */
static void bound_row(fixture *f, const float *q, const double *s, const double *size, size_t begin,
                      size_t end, arithmetic kind, double *bound)
{
    const skv_attention *a = &f->a;
    size_t Dh = a->head_dim;
    rounding by = rounding_of(a, kind);
    double q_off = by.q_step * largest_size(q, Dh) * (double)a->scale; /* times |k| */
    double spread = 0.0;                                               /* of the denominator */
    double *off = skv_alloc(end, sizeof(double));
    for (size_t r = begin; r < end; r++) {
        off[r] = expm1(by.score * size[r] + q_off * sum_of_sizes(f->k + r * Dh, Dh));
        spread += s[r] * off[r];
    }
    double fixed = spread + by.value + (double)(end - begin) * 0x1p-23;
    for (size_t r = begin; r < end; r++) {
        double share = s[r] * (off[r] + fixed); /* of |v| */
        for (size_t d = 0; d < Dh; d++) bound[d] += share * fabs((double)f->v[r * Dh + d]);
    }
    if (by.p_step > 0.0) bound_weights(f, s, begin, end, by.p_step * (1.0 + spread), bound);
    skv_free(off);
}

/* The textbook: all scores, their maximum, exponentials, quotient; and error bounds. */
static void oracle_row(fixture *f, size_t j, size_t g, double *s, double *size)
{
    const skv_attention *a = &f->a;
    size_t Dh = a->head_dim;
    const float *q = a->q + j * a->ld_q + g * Dh;
    size_t end = a->n_past + j + 1;
    size_t begin = a->window && end > a->window ? end - a->window : 0;
    double max = -HUGE_VAL, sum = 0.0;
    for (size_t r = begin; r < end; r++) {
        double dot = 0.0;
        size[r] = 0.0;
        for (size_t d = 0; d < Dh; d++) {
            double term = (double)q[d] * (double)f->k[r * Dh + d] * (double)a->scale;
            dot += term;
            size[r] += fabs(term);
        }
        if (a->softcap > 0.0f) dot = (double)a->softcap * tanh(dot / (double)a->softcap);
        s[r] = dot;
        max = fmax(max, dot);
    }
    for (size_t r = begin; r < end; r++) sum += s[r] = exp(s[r] - max);
    if (a->sinks) sum += exp((double)a->sinks[g] - max);
    size_t at = (j * a->n_group + g) * Dh;
    for (size_t r = begin; r < end; r++) {
        s[r] /= sum;
        for (size_t d = 0; d < Dh; d++) f->want[at + d] += s[r] * (double)f->v[r * Dh + d];
    }
    for (int kind = 0; kind < N_ARITHMETIC; kind++) {
        if (!f->tolerance[kind]) continue;
        bound_row(f, q, s, size, begin, end, (arithmetic)kind, f->tolerance[kind] + at);
    }
}

static void fixture_init(fixture *f, skv_rng *rng, const skv_kernels *ref)
{
    skv_attention *a = &f->a;
    choose_shape(f, rng);
    size_t n_rows = a->n_past + a->n_q;
    size_t n_out = a->n_q * a->n_group * a->head_dim;
    f->n_pages = skv_ceil_div(n_rows, SKV_PAGE_ROWS);
    f->pages = skv_alloc_zero(f->n_pages, sizeof *f->pages);
    f->k = skv_alloc_zero(n_rows * a->head_dim, sizeof(float));
    f->v = skv_alloc_zero(n_rows * a->head_dim, sizeof(float));
    fill_pages(f, rng, ref);
    a->pages = (const void *const *)f->pages;

    size_t n_q = (a->n_q - 1) * a->ld_q + a->n_group * a->head_dim;
    f->q = skv_alloc(n_q, sizeof(float));
    double size = 0.2 + 2.0 * skv_rng_uniform(rng);
    for (size_t i = 0; i < n_q; i++) f->q[i] = (float)(size * skv_rng_normal(rng));
    a->q = f->q;
    if (skv_rng_below(rng, 3) == 0) { /* some far above every score, some far below */
        f->sinks = skv_alloc(a->n_group, sizeof(float));
        for (size_t g = 0; g < a->n_group; g++) {
            f->sinks[g] = (float)skv_rng_normal(rng) * (skv_rng_below(rng, 8) ? 4.0f : 90.0f);
        }
        a->sinks = f->sinks;
    }
    f->n_result = (a->n_q - 1) * a->ld_out + a->n_group * a->head_dim;
    f->result = skv_alloc(f->n_result + 2 * CANARY, sizeof(float));
    a->out = f->result + CANARY;

    f->want = skv_alloc_zero(n_out, sizeof(double));
    for (int kind = 0; kind < N_ARITHMETIC; kind++) {
        bool is_whole = kind > COARSE, is_int8 = a->type == SKV_KV_TYPE_INT8;
        if (kind != EXACT && (a->type == SKV_KV_TYPE_F32 || is_whole != is_int8)) continue;
        f->tolerance[kind] = skv_alloc_zero(n_out, sizeof(double));
    }
    double *s = skv_alloc(2 * n_rows, sizeof(double));
    for (size_t j = 0; j < a->n_q; j++) {
        for (size_t g = 0; g < a->n_group; g++) oracle_row(f, j, g, s, s + n_rows);
    }
    skv_free(s);
}

static void fixture_release(fixture *f)
{
    for (size_t i = 0; i < f->n_pages; i++) skv_free(f->pages[i]);
    skv_free(f->pages);
    skv_free(f->k);
    skv_free(f->v);
    skv_free(f->q);
    skv_free(f->sinks);
    skv_free(f->result);
    skv_free(f->want);
    for (int kind = 0; kind < N_ARITHMETIC; kind++) skv_free(f->tolerance[kind]);
}

static void tell(fixture *f, const char *way_name, const char *what, size_t index, double got,
                 double want, double tolerance)
{
    const skv_attention *a = &f->a;
    f->n_failed++;
    fprintf(f->out,
            "%s %s: seed %llu case %d: %s pages, G %zu, Dh %zu, past %zu, n_q %zu, window %zu, "
            "softcap %g, %s: [%zu] is %g, not %g (tolerance %g)\n",
            what, way_name, (unsigned long long)f->seed, f->i_case, TYPE_NAMES[a->type], a->n_group,
            a->head_dim, a->n_past, a->n_q, a->window, (double)a->softcap,
            a->sinks ? "sinks" : "no sinks", index, got, want, tolerance);
}

/* Everything of `out` for the first n_q tokens; what lies between rows keeps the canary. */
static void compare(fixture *f, const way *w, const char *what, size_t n_q)
{
    const skv_attention *a = &f->a;
    const double *together = f->tolerance[arithmetic_of(w, a->type, false)];
    const double *alone = f->tolerance[arithmetic_of(w, a->type, true)];
    size_t width = a->n_group * a->head_dim;
    for (size_t i = 0; i < f->n_result + 2 * CANARY; i++) {
        size_t token = i < CANARY ? n_q : (i - CANARY) / a->ld_out;
        size_t column = i < CANARY ? 0 : (i - CANARY) % a->ld_out;
        double got = (double)f->result[i];
        if (token >= n_q || column >= width) {
            if (f->result[i] == CANARY_VALUE) continue;
            tell(f, w->name, "canary", i, got, (double)CANARY_VALUE, 0.0);
            return;
        }
        size_t at = token * width + column;
        double tolerance = together[at];
        if (token == f->i_alone) tolerance = fmax(tolerance, alone[at]); /* G may be too large */
        tolerance += 1e-30;
        if (fabs(got - f->want[at]) <= tolerance) continue;
        tell(f, w->name, what, at, got, f->want[at], tolerance);
        return;
    }
}

static void reset_result(fixture *f)
{
    for (size_t i = 0; i < f->n_result + 2 * CANARY; i++) f->result[i] = CANARY_VALUE;
}

static void check_whole(fixture *f, const skv_kernels *k, const way *w)
{
    const skv_attention *a = &f->a;
    size_t n_most = k->attention_tokens(a->n_group, a->head_dim);
    size_t n_bytes = k->attention_scratch(a->n_group, a->head_dim);
    void *scratch = skv_alloc_aligned(n_bytes, 1);
    spoil(scratch, n_bytes);
    reset_result(f);
    f->i_alone = a->n_q % n_most == 1 || n_most == 1 ? a->n_q - 1 : SIZE_MAX;
    for (size_t j = 0; j < a->n_q; j += n_most) {
        skv_attention part = *a;
        part.n_past += j;
        part.n_q = skv_min_size(n_most, a->n_q - j);
        part.q += j * a->ld_q;
        part.out += j * a->ld_out;
        k->attention(&part, scratch);
    }
    compare(f, w, "attention", a->n_q);
    skv_free(scratch);
}

/* Token 0 in random portions, some of them empty or unseen. */
static void check_parts(fixture *f, const skv_kernels *k, const way *w, skv_rng *rng)
{
    skv_attention one = f->a;
    one.n_q = 1;
    size_t n_rows = one.n_past + 1;
    size_t n_parts = 1 + skv_rng_below(rng, 5);
    size_t per_part = one.n_group * (one.head_dim + 2);
    float *partials = skv_alloc(n_parts * per_part, sizeof(float));
    void *scratch = skv_alloc_aligned(k->attention_scratch(one.n_group, one.head_dim), 1);
    size_t row0 = 0;
    for (size_t i = 0; i < n_parts; i++) {
        size_t row1 = i + 1 == n_parts ? n_rows : row0 + skv_rng_below(rng, n_rows - row0 + 1);
        k->attention_part(&one, row0, row1, partials + i * per_part, scratch);
        row0 = row1;
    }
    reset_result(f);
    f->i_alone = 0;
    k->attention_join(&one, partials, per_part, n_parts);
    compare(f, w, "attention in parts", 1);
    skv_free(partials);
    skv_free(scratch);
}

/* All tokens in portions of several of them at once, with rows of q in another order. */
static void check_shared_parts(fixture *f, const skv_kernels *k, const way *w, skv_rng *rng)
{
    skv_attention all = f->a;
    size_t n = skv_min_size(all.n_q, k->attention_tokens(all.n_group, all.head_dim));
    size_t n_rows = all.n_past + n, cut = skv_rng_below(rng, n_rows + 1);
    size_t per_part = all.n_group * (all.head_dim + 2);
    float *partials = skv_alloc(2 * n * per_part, sizeof(float));
    float *q = skv_alloc(all.n_q * all.ld_q, sizeof(float));
    uint32_t *rows = skv_alloc(n, sizeof *rows);
    void *scratch = skv_alloc_aligned(k->attention_scratch(all.n_group, all.head_dim), 1);
    for (size_t j = 0; j < n; j++) {
        rows[j] = (uint32_t)(n - 1 - j);
        memcpy(q + rows[j] * all.ld_q, f->a.q + j * all.ld_q,
               all.n_group * all.head_dim * sizeof *q);
    }
    all.q = q;
    all.n_q = n;
    all.rows = rows;
    all.ld_out = 2 * per_part;
    k->attention_part(&all, 0, cut, partials, scratch);
    k->attention_part(&all, cut, n_rows, partials + per_part, scratch);
    reset_result(f);
    f->i_alone = n == 1 ? 0 : SIZE_MAX;
    for (size_t j = 0; j < n; j++) {
        all.out = f->a.out + j * f->a.ld_out;
        k->attention_join(&all, partials + j * 2 * per_part, per_part, 2);
    }
    compare(f, w, "attention of several tokens in parts", n);
    skv_free(partials);
    skv_free(q);
    skv_free(rows);
    skv_free(scratch);
}

/* With skv_attention.invariant, and with `singly` where the call for one token has neither, a token
 * has the same bits alone and in calls of any size. */
static void check_invariant(fixture *f, const skv_kernels *k, const way *w, skv_rng *rng,
                            bool singly)
{
    skv_attention a = f->a;
    size_t n_most = k->attention_tokens(a.n_group, a.head_dim), width = a.n_group * a.head_dim;
    void *scratch = skv_alloc_aligned(k->attention_scratch(a.n_group, a.head_dim), 1);
    float *alone = skv_alloc(width, sizeof *alone);
    a.invariant = !singly;
    for (size_t j = 0; j < a.n_q;) {
        skv_attention part = a, one = a;
        part.n_q = 1 + skv_rng_below(rng, skv_min_size(n_most, a.n_q - j));
        part.n_past += j;
        part.q += j * a.ld_q;
        part.out += j * a.ld_out;
        part.singly = singly;
        k->attention(&part, scratch);
        size_t i = skv_rng_below(rng, part.n_q);
        one.n_q = 1;
        one.n_past = part.n_past + i;
        one.q = part.q + i * a.ld_q;
        one.out = alone;
        k->attention(&one, scratch);
        const float *beside = part.out + i * a.ld_out;
        for (size_t c = 0; c < width; c++) {
            if (alone[c] == beside[c]) continue;
            tell(f, w->name, singly ? "singly" : "invariant", (j + i) * width + c, (double)alone[c],
                 (double)beside[c], 0.0);
            break;
        }
        j += part.n_q;
    }
    skv_free(alone);
    skv_free(scratch);
}

/* A portion of tokens that are taken singly has the bits of a call for each. */
static void check_single_parts(fixture *f, const skv_kernels *k, const way *w, skv_rng *rng)
{
    skv_attention all = f->a;
    all.n_q = skv_min_size(all.n_q, k->attention_tokens(all.n_group, all.head_dim));
    size_t n_rows = all.n_past + all.n_q, per_part = all.n_group * (all.head_dim + 2);
    size_t row0 = skv_rng_below(rng, n_rows);
    size_t row1 = row0 + 1 + skv_rng_below(rng, n_rows - row0);
    float *partials = skv_alloc(all.n_q * per_part, sizeof(float));
    float *alone = skv_alloc(per_part, sizeof *alone);
    void *scratch = skv_alloc_aligned(k->attention_scratch(all.n_group, all.head_dim), 1);
    all.singly = true;
    all.ld_out = per_part;
    k->attention_part(&all, row0, row1, partials, scratch);
    for (size_t j = 0; j < all.n_q; j++) {
        skv_attention one = f->a;
        one.n_q = 1;
        one.n_past += j;
        one.q += j * one.ld_q;
        k->attention_part(&one, row0, row1, alone, scratch);
        if (memcmp(alone, partials + j * per_part, per_part * sizeof *alone) == 0) continue;
        tell(f, w->name, "singly in parts", j, (double)alone[0], (double)partials[j * per_part],
             0.0);
        break;
    }
    skv_free(partials);
    skv_free(alone);
    skv_free(scratch);
}

/* A row stored by this level is the reference's row, bit for bit, and so is what is read back. */
static void check_page(fixture *f, const skv_kernels *k, const skv_kernels *ref, const way *w,
                       skv_rng *rng)
{
    const skv_attention *a = &f->a;
    size_t Dh = a->head_dim;
    size_t n = skv_kv_page_bytes(a->type, Dh);
    size_t row = skv_rng_below(rng, SKV_PAGE_ROWS);
    unsigned char *page[2] = {skv_alloc(n, 1), skv_alloc(n, 1)};
    float *x = skv_alloc(2 * Dh, sizeof(float));
    float *y = skv_alloc(4 * Dh, sizeof(float));
    double size = exp2(40.0 * skv_rng_uniform(rng) - 22.0);
    for (size_t d = 0; d < 2 * Dh; d++) x[d] = (float)(size * skv_rng_normal(rng));
    if (skv_rng_below(rng, 8) == 0) x[skv_rng_below(rng, 2 * Dh)] = HUGE_VALF;
    if (skv_rng_below(rng, 8) == 0) x[skv_rng_below(rng, 2 * Dh)] = nanf("");
    if (skv_rng_below(rng, 8) == 0) memset(x, 0, Dh * sizeof *x);
    spoil(page[0], n);
    spoil(page[1], n);
    ref->kv_store(page[0], a->type, row, x, x + Dh, Dh);
    k->kv_store(page[1], a->type, row, x, x + Dh, Dh);
    if (memcmp(page[0], page[1], n) != 0) tell(f, w->name, "kv_store", row, 0.0, 0.0, 0.0);
    for (size_t i = 0; i < SKV_PAGE_ROWS; i++) {
        /* Another row too: what was never stored may hold any bits, but not cost an exception. */
        if (i != row && i != 0) continue;
        ref->kv_load(page[0], a->type, row, y, y + Dh, Dh);
        k->kv_load(page[0], a->type, row, y + 2 * Dh, y + 3 * Dh, Dh);
    }
    for (size_t d = 0; d < 2 * Dh; d++) {
        bool both_nan = isnan(y[d]) && (isnan(y[2 * Dh + d]) || a->type == SKV_KV_TYPE_FP8);
        if (both_nan || y[d] == y[2 * Dh + d]) continue;
        tell(f, w->name, "kv_load", d, (double)y[2 * Dh + d], (double)y[d], 0.0);
        break;
    }
    skv_free(page[0]);
    skv_free(page[1]);
    skv_free(x);
    skv_free(y);
}

static int fail_number(FILE *out, const char *what, double x, double got)
{
    fprintf(out, "%s(%.9g) is %.9g\n", what, x, got);
    return 1;
}

/* The 8-bit numbers against their definition, code by code. */
static int check_numbers(skv_rng *rng, FILE *out)
{
    int n_failed = 0;
    for (int c = 0; c < 256; c++) {
        int e = c >> 3 & 15;
        double m = (double)(c & 7);
        double want = e == 0 ? ldexp(m, -9) : ldexp(8.0 + m, e - 10);
        if (c & 128) want = -want;
        float got = skv_fp8_decode((uint8_t)c);
        if ((c & 127) == 127) {
            if (!isnan(got)) n_failed += fail_number(out, "skv_fp8_decode", c, (double)got);
            continue;
        }
        if ((double)got != want) n_failed += fail_number(out, "skv_fp8_decode", c, (double)got);
        if (skv_fp8_encode(got) != c) n_failed += fail_number(out, "skv_fp8_encode", want, c);
        want = c == 0 ? 0.0 : ldexp(8.0 + (c & 7), (c >> 3) - 28);
        double scale = (double)skv_scale_decode((uint8_t)c);
        if (scale != want) n_failed += fail_number(out, "skv_scale_decode", c, scale);
        int above = skv_scale_encode(nextafterf((float)scale, HUGE_VALF));
        if (skv_scale_encode((float)scale) != c || above != (c < 255 ? c + 1 : 255)) {
            n_failed += fail_number(out, "skv_scale_encode", scale, above);
        }
    }
    for (int i = 0; i < 20000; i++) {
        float x = (float)exp2(20.0 * skv_rng_uniform(rng) - 11.0);
        double nearest = 448.0;
        uint8_t code = 0x7e;
        for (int c = 0; c < 127; c++) { /* even codes win ties */
            double d = fabs((double)skv_fp8_decode((uint8_t)c) - (double)x);
            if (d > nearest || (d == nearest && (c & 1))) continue;
            nearest = d;
            code = (uint8_t)c;
        }
        if ((double)x > 448.0) code = 0x7e;
        if (skv_fp8_encode(x) != code) n_failed += fail_number(out, "skv_fp8_encode", (double)x, 0);
        if (skv_fp8_encode(-x) != (code | 128)) {
            n_failed += fail_number(out, "skv_fp8_encode", -(double)x, 0);
        }
        x = (float)exp2(40.0 * skv_rng_uniform(rng) - 30.0);
        uint8_t s = skv_scale_encode(x);
        bool high = s == 255 || skv_scale_decode(s) >= x;
        bool low = s <= 1 || skv_scale_decode((uint8_t)(s - 1)) < x;
        if (!high || !low) n_failed += fail_number(out, "skv_scale_encode", (double)x, s);
    }
    if (skv_scale_encode(0.0f) != 0 || skv_scale_encode(nanf("")) != 0) n_failed++;
    if (skv_fp8_encode(nanf("")) != 0x7f) n_failed++;
    return n_failed;
}

int skv_check_attention(uint64_t seed, bool bench, FILE *out)
{
    skv_rng rng;
    skv_kernels ref;
    int n_failed = 0;
    (void)bench; /* bench/bench_attention.c times it against the machine's limits */
    skv_rng_init(&rng, seed);
    skv_kernels_init(&ref, SKV_CPU_LEVEL_REF, 0);
    n_failed += check_numbers(&rng, out);
    for (int i = 0; i < CASES; i++) {
        fixture f = {.seed = seed, .i_case = i, .out = out};
        fixture_init(&f, &rng, &ref);
        for (size_t n = 0; n < N_WAYS; n++) {
            skv_kernels k;
            if (WAYS[n].replace == amx_model_attention_init && i % 3 != 0)
                continue; /* it is slow */
            if (!way_init(&WAYS[n], &k)) continue;
            check_whole(&f, &k, &WAYS[n]);
            check_parts(&f, &k, &WAYS[n], &rng);
            check_shared_parts(&f, &k, &WAYS[n], &rng);
            check_invariant(&f, &k, &WAYS[n], &rng, false);
            check_invariant(&f, &k, &WAYS[n], &rng, true);
            check_single_parts(&f, &k, &WAYS[n], &rng);
            check_page(&f, &k, &ref, &WAYS[n], &rng);
        }
        n_failed += f.n_failed;
        fixture_release(&f);
    }
    return n_failed;
}
