/* Norm and rotation of heads and the storing of keys and values, against plain C in double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cuda_case.h"

enum { CASES = 28, T = 9, SEQS = 2, MAX_PAGES = 3 };

typedef struct rotation {
    float *cosine, *sine; /* [T, n] */
    size_t n;
    skv_cuda_angles device;
} rotation;

typedef struct place_case {
    size_t head_dim, n_heads, n_kv_heads, n_copies, n_q;
    uint32_t rows[T]; /* of q */
    size_t seq[T], place[T];
    cuda_rows q, k, v;
    rotation q_angles, k_angles;
    float *q_norm, *k_norm; /* [head_dim] or NULL */
    double v_eps;
    cuda_cache cache;
} place_case;

static rotation random_rotation(cuda_case *c, size_t head_dim)
{
    rotation out = {.n = head_dim / 2 / (1 + cuda_below(c, 3))};
    if (cuda_one_in(c, 5)) out.n = 0;
    out.cosine = cuda_host(c, T * out.n * sizeof(float));
    out.sine = cuda_host(c, T * out.n * sizeof(float));
    for (size_t i = 0; i < T * out.n; i++) {
        const double angle = 6 * skv_rng_uniform(&c->rng);
        out.cosine[i] = (float)cos(angle);
        out.sine[i] = (float)sin(angle);
    }
    out.device = (skv_cuda_angles){.cosine = cuda_upload(c, out.cosine, T * out.n * sizeof(float)),
                                   .sine = cuda_upload(c, out.sine, T * out.n * sizeof(float)),
                                   .n = (uint32_t)out.n};
    return out;
}

static place_case random_place(cuda_case *c, int i)
{
    static const size_t dims[] = {16, 32, 64, 80, 96, 128, 256};
    place_case p = {.head_dim = dims[i % 7],
                    .n_heads = cuda_one_in(c, 5) ? 0 : 1 + cuda_below(c, 6),
                    .n_kv_heads = cuda_one_in(c, 5) ? 0 : 1 + cuda_below(c, 3),
                    .n_copies = 1 + cuda_below(c, 2),
                    .n_q = 1 + cuda_below(c, T)};
    const skv_kv_type type = SKV_KV_TYPE_F32 + (skv_kv_type)(i / 7);
    const size_t n_tracks = skv_max_size(1, p.n_kv_heads) * p.n_copies, Dh = p.head_dim;
    for (size_t r = 0; r < T; r++) {
        p.rows[r] = (uint32_t)(r + T - p.n_q);
        p.seq[r] = r < 5 ? 0 : 1;
        p.place[r] = r < 5 ? 61 + r : 126 + r - 5; /* over the end of a page */
    }
    p.q = cuda_random_rows(c, SKV_CUDA_BF16, false, p.n_q, skv_max_size(1, p.n_heads * Dh), 1);
    p.k = cuda_random_rows(c, SKV_CUDA_BF16, false, T, skv_max_size(1, p.n_kv_heads * Dh), 1);
    p.v = cuda_random_rows(c, SKV_CUDA_BF16, false, T, skv_max_size(1, p.n_kv_heads * Dh), 2);
    if (cuda_one_in(c, 3)) p.v = p.k;
    p.q_angles = random_rotation(c, Dh);
    p.k_angles = random_rotation(c, Dh);
    if (cuda_one_in(c, 2)) p.q_norm = cuda_normals(c, Dh, 0.5);
    if (cuda_one_in(c, 2)) p.k_norm = cuda_normals(c, Dh, 0.5);
    p.v_eps = cuda_one_in(c, 2) ? 1e-6 : 0;
    p.cache = cuda_new_cache(c, type, Dh, n_tracks, SEQS, MAX_PAGES, cuda_one_in(c, 2) ? 40 : 0);
    return p;
}

/* y [n] = x normed with weight + offset (NULL: without either), unless eps is 0. */
static void norm_in_double(const float *x, const float *weight, double eps, size_t n, double *y)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    const double inverse = eps > 0 ? 1 / sqrt(squares / (double)n + eps) : 1;
    for (size_t i = 0; i < n; i++) {
        y[i] = (double)x[i] * inverse * (weight ? (double)weight[i] + 1 : 1);
    }
}

static void rotate_in_double(double *x, const rotation *r, size_t row)
{
    for (size_t i = 0; i < r->n; i++) {
        const double cosine = (double)r->cosine[row * r->n + i];
        const double sine = (double)r->sine[row * r->n + i], low = x[i], high = x[i + r->n];
        x[i] = low * cosine - high * sine;
        x[i + r->n] = high * cosine + low * sine;
    }
}

static void check_queries(cuda_case *c, const place_case *p)
{
    const size_t n = p->n_heads * p->head_dim, Dh = p->head_dim;
    double *want = cuda_host(c, p->n_q * n * sizeof *want);
    for (size_t i = 0; i < p->n_q * p->n_heads; i++) {
        norm_in_double(p->q.host + i * Dh, p->q_norm, p->q_norm ? 1e-6 : 0, Dh, want + i * Dh);
        rotate_in_double(want + i * Dh, &p->q_angles, p->rows[i / p->n_heads]);
    }
    if (n > 0) cuda_near(c, cuda_fetch_rows(c, &p->q), want, p->n_q * n, 4e-3);
}

/* How far a head x [n] may be off as it is stored, by its own length. Scales are rounded up to the
 * next of 8 between two powers of 2. */
static double rounding_of(skv_kv_type type, const double *x, size_t n)
{
    double most = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(x[i]));
        squares += x[i] * x[i];
    }
    if (type == SKV_KV_TYPE_F32) return 2e-6;
    if (type == SKV_KV_TYPE_BF16) return 0x1p-8;
    if (type == SKV_KV_TYPE_FP8) return 0x1p-4;
    return 1e-5 + sqrt((double)n / squares) * most * 1.125 / SKV_INT8_MAX / 2;
}

/* Row i of K (which 0) or V: the heads as they are in the pages `pool`, which become 0xff. */
static void check_cached(cuda_case *c, const place_case *p, size_t i, size_t which,
                         unsigned char *pool)
{
    const size_t Dh = p->head_dim, n = p->n_kv_heads * Dh;
    float *blank = cuda_host(c, Dh * sizeof *blank), *got = cuda_host(c, Dh * sizeof *got);
    double *want = cuda_host(c, Dh * sizeof *want);
    for (size_t t = 0; t < p->n_kv_heads * p->n_copies; t++) {
        const float *x = (which ? p->v.host : p->k.host) + i * n + t / p->n_copies * Dh;
        const size_t row = p->place[i] - cuda_dropped(&p->cache, p->seq[i], t);
        unsigned char *page = cuda_page(&p->cache, pool, p->seq[i], t, row);
        const double eps = which ? p->v_eps : p->k_norm ? 1e-6 : 0;
        norm_in_double(x, which ? NULL : p->k_norm, eps, Dh, want);
        if (!which) rotate_in_double(want, &p->k_angles, i);
        cuda_get_row(&p->cache, page, row % SKV_PAGE_ROWS, which, got);
        cuda_near(c, got, want, Dh, rounding_of(p->cache.type, want, Dh));
        cuda_set_row(&p->cache, page, row % SKV_PAGE_ROWS, which, blank);
    }
}

/* Every byte of the pool that is no row of the case is as it was; rows have become zeros. */
static void check_others(cuda_case *c, const place_case *p, const unsigned char *pool)
{
    const size_t n_bytes = p->cache.n_pool * p->cache.page_bytes, Dh = p->head_dim;
    unsigned char *want = cuda_host(c, n_bytes);
    float *zeros = cuda_host(c, Dh * sizeof *zeros);
    memset(want, 0xff, n_bytes);
    for (size_t i = 0; i < T * p->n_kv_heads * p->n_copies * 2; i++) {
        const size_t row = i / 2 / (p->n_kv_heads * p->n_copies);
        const size_t t = i / 2 % (p->n_kv_heads * p->n_copies);
        const size_t at = p->place[row] - cuda_dropped(&p->cache, p->seq[row], t);
        unsigned char *page = cuda_page(&p->cache, want, p->seq[row], t, at);
        cuda_set_row(&p->cache, page, at % SKV_PAGE_ROWS, i % 2, zeros);
    }
    size_t n_wrong = 0;
    for (size_t i = 0; i < n_bytes; i++) n_wrong += pool[i] != want[i];
    cuda_none(c, "bytes of other rows are written", n_wrong);
}

static void run_place(cuda_case *c, const place_case *p)
{
    skv_cuda_step_row step[T];
    for (size_t i = 0; i < T; i++) {
        step[i] = (skv_cuda_step_row){.table = cuda_table(&p->cache, p->seq[i]),
                                      .place = (uint32_t)p->place[i]};
    }
    const size_t Dh = p->head_dim;
    skv_cuda_place_args a = {.q = p->q.at,
                             .q_from = p->q.at,
                             .k = p->k.at,
                             .v = p->v.at,
                             .rows = cuda_upload(c, p->rows, sizeof p->rows),
                             .step = cuda_upload(c, step, sizeof step),
                             .q_angles = p->q_angles.device,
                             .k_angles = p->k_angles.device,
                             .kv = p->cache.kv,
                             .n_q = (uint32_t)p->n_q,
                             .n_rows = T,
                             .n_heads = (uint32_t)p->n_heads,
                             .n_kv_heads = (uint32_t)p->n_kv_heads,
                             .n_copies = (uint32_t)p->n_copies,
                             .head_dim = (uint32_t)Dh,
                             .v_eps = (float)p->v_eps};
    a.q_norm = a.k_norm = (skv_cuda_head_norm){.eps = 1e-6F, .offset = 1};
    if (p->q_norm) a.q_norm.weight = cuda_upload(c, p->q_norm, Dh * sizeof(float));
    if (p->k_norm) a.k_norm.weight = cuda_upload(c, p->k_norm, Dh * sizeof(float));
    const size_t n_heads = p->n_heads + 2 * p->n_kv_heads;
    device_launch(SKV_CUDA_skv_place_heads,
                  (device_grid){T, (uint32_t)skv_ceil_div(n_heads, 4), 1, (uint32_t)(16 * Dh)}, &a);
}

void check_cuda_place(cuda_case *c)
{
    char what[64];
    for (int i = 0; i < CASES; i++) {
        const place_case p = random_place(c, i);
        (void)snprintf(what, sizeof what, "place: %zu numbers a head, pages of type %d", p.head_dim,
                       (int)p.cache.type);
        c->what = what;
        run_place(c, &p);
        unsigned char *pool = cuda_download(c, p.cache.d_pool, p.cache.n_pool * p.cache.page_bytes);
        check_queries(c, &p);
        for (size_t row = 0; row < T; row++) {
            check_cached(c, &p, row, 0, pool);
            check_cached(c, &p, row, 1, pool);
        }
        check_others(c, &p, pool);
        cuda_case_end(c);
    }
}
