/* Kernels of mixtures of experts against plain C: the choice against kernels/experts.h, products
 * and sums in double precision. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "cuda_case.h"
#include "kernels/experts.h"

enum { CASES = 8, MANY_ROWS = 90, SHAPES = 3 };

/* Rows, their experts, and what the kernels make of them. */
typedef struct routed {
    size_t n_rows, n_experts, n_active, n_terms;
    uint32_t *chosen, *places, *first; /* of the host */
    float *weights;
    uint32_t *d_chosen, *d_places, *d_first, *d_rows; /* of the device */
    float *d_weights;
} routed;

static const size_t shapes[SHAPES][3] = {{3, 70, 2}, {MANY_ROWS, 4, 3}, {7, 1, 1}};

static routed new_routed(cuda_case *c)
{
    const size_t *shape = shapes[cuda_below(c, SHAPES)];
    routed r = {.n_rows = shape[0], .n_experts = shape[1], .n_active = shape[2]};
    r.n_terms = r.n_active + cuda_below(c, 2);
    const size_t n = r.n_rows * r.n_terms * 4, n_first = (r.n_experts + 1) * 4;
    r.chosen = cuda_host(c, r.n_rows * r.n_active * 4);
    r.places = cuda_host(c, n);
    r.weights = cuda_host(c, n);
    r.first = cuda_host(c, n_first);
    r.d_chosen = cuda_device(c, r.n_rows * r.n_active * 4);
    r.d_rows = cuda_device(c, r.n_rows * r.n_active * 4);
    r.d_places = cuda_device(c, n);
    r.d_weights = cuda_device(c, n);
    r.d_first = cuda_device(c, n_first);
    return r;
}

/* ---- the choice, and places ---- */

/* Scores that no rounding confuses: equal, or apart. Some are NaN and infinite. */
static float *random_scores(cuda_case *c, size_t n)
{
    float *x = cuda_host(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)cuda_below(c, 30) / 10 - 1;
        if (cuda_one_in(c, 40)) x[i] = cuda_one_in(c, 2) ? -HUGE_VALF : (float)NAN;
        if (cuda_one_in(c, 30)) x[i] = cuda_one_in(c, 2) ? -0.0F : 0.0F;
    }
    return x;
}

static void sort_on_host(routed *r)
{
    uint32_t n = 0;
    for (size_t e = 0; e < r->n_experts; e++) {
        r->first[e] = n;
        for (size_t j = 0; j < r->n_rows * r->n_active; j++) {
            if (r->chosen[j] != e) continue;
            r->places[j / r->n_active * r->n_terms + j % r->n_active] = n++;
        }
    }
    r->first[r->n_experts] = n;
}

static size_t n_other(const uint32_t *got, const uint32_t *want, size_t n)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < n; i++) n_wrong += got[i] != want[i];
    return n_wrong;
}

/* Rows with a NaN are only chosen from: every expert once. */
static void compare_choice(cuda_case *c, routed *r, const float *logits, size_t ld)
{
    const size_t k = r->n_active;
    uint32_t *chosen = cuda_download(c, r->d_chosen, r->n_rows * k * 4);
    const float *weights = cuda_download(c, r->d_weights, r->n_rows * r->n_terms * 4);
    size_t n_wrong = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        bool odd = false;
        for (size_t e = 0; e < r->n_experts; e++) odd = odd || isnan(logits[i * ld + e]);
        for (size_t j = 0; j < k; j++) {
            const float w = weights[i * r->n_terms + j], want = r->weights[i * r->n_terms + j];
            n_wrong += chosen[i * k + j] >= r->n_experts;
            for (size_t l = 0; l < j; l++) n_wrong += chosen[i * k + j] == chosen[i * k + l];
            if (odd) continue;
            n_wrong += chosen[i * k + j] != r->chosen[i * k + j];
            n_wrong += !(fabsf(w - want) <= 1e-5F * fabsf(want)) && !isnan(want);
        }
    }
    cuda_none(c, "wrong experts or weights", n_wrong);
    memcpy(r->chosen, chosen, r->n_rows * k * 4);
}

static void route_on_device(cuda_case *c, routed *r, const skv_experts_choice *how, size_t ld,
                            const float *logits, const float *bias)
{
    const skv_cuda_route_args a = {.logits = cuda_upload(c, logits, r->n_rows * ld * 4),
                                   .bias = bias ? cuda_upload(c, bias, r->n_experts * 4) : NULL,
                                   .chosen = r->d_chosen,
                                   .places = r->d_places,
                                   .weights = r->d_weights,
                                   .ld = (uint32_t)ld,
                                   .n_experts = (uint32_t)r->n_experts,
                                   .n_active = (uint32_t)r->n_active,
                                   .n_terms = (uint32_t)r->n_terms,
                                   .sigmoid = how->sigmoid,
                                   .renormalise = how->renormalise,
                                   .eps = how->eps,
                                   .scale = how->sigmoid ? how->scale : 1};
    device_launch(SKV_CUDA_skv_route_rows,
                  (device_grid){.x = (uint32_t)r->n_rows, .shared = (uint32_t)r->n_experts * 4},
                  &a);
}

static void sort_on_device(const routed *r)
{
    const skv_cuda_sort_args a = {.chosen = r->d_chosen,
                                  .first = r->d_first,
                                  .rows = r->d_rows,
                                  .places = r->d_places,
                                  .n_pairs = (uint32_t)(r->n_rows * r->n_active),
                                  .n_active = (uint32_t)r->n_active,
                                  .n_terms = (uint32_t)r->n_terms};
    device_launch(SKV_CUDA_skv_sort_pairs,
                  (device_grid){.x = (uint32_t)r->n_experts, .shared = SKV_CUDA_ROWS_SHARED}, &a);
}

static void check_choice(cuda_case *c)
{
    routed r = new_routed(c);
    const skv_experts_choice how = {.n_experts = r.n_experts,
                                    .n_active = r.n_active,
                                    .sigmoid = cuda_one_in(c, 2),
                                    .renormalise = cuda_one_in(c, 2),
                                    .eps = 0.125F,
                                    .scale = 2.5F};
    const size_t ld = r.n_experts + cuda_below(c, 3);
    const float *logits = random_scores(c, r.n_rows * ld);
    float *bias = cuda_one_in(c, 2) ? cuda_host(c, r.n_experts * 4) : NULL;
    for (size_t e = 0; bias && e < r.n_experts; e++) bias[e] = (float)cuda_below(c, 4);
    for (size_t i = 0; i < r.n_rows; i++) {
        skv_experts_choose(&how, logits + i * ld, bias, r.chosen + i * r.n_active,
                           r.weights + i * r.n_terms);
    }
    route_on_device(c, &r, &how, ld, logits, bias);
    compare_choice(c, &r, logits, ld);
    sort_on_device(&r);
    sort_on_host(&r);
    for (size_t i = 0; r.n_terms > r.n_active && i < r.n_rows; i++) { /* the shared expert */
        r.places[i * r.n_terms + r.n_active] = (uint32_t)(r.n_rows * r.n_active + i);
    }
    const uint32_t *first = cuda_download(c, r.d_first, (r.n_experts + 1) * 4);
    const uint32_t *places = cuda_download(c, r.d_places, r.n_rows * r.n_terms * 4);
    const uint32_t *rows = cuda_download(c, r.d_rows, r.n_rows * r.n_active * 4);
    size_t n_wrong = n_other(first, r.first, r.n_experts + 1);
    n_wrong += n_other(places, r.places, r.n_rows * r.n_terms);
    for (size_t j = 0; j < r.n_rows * r.n_active; j++) {
        n_wrong += rows[r.places[j / r.n_active * r.n_terms + j % r.n_active]] != j / r.n_active;
    }
    cuda_none(c, "wrong places", n_wrong);
}

/* ---- products ---- */

/* Pairs of random rows, sorted. */
static routed random_pairs(cuda_case *c)
{
    routed r = new_routed(c);
    for (size_t j = 0; j < r.n_rows * r.n_active; j++) {
        r.chosen[j] = (uint32_t)cuda_below(c, (r.n_experts + 1) / 2); /* others have none */
    }
    device_put(r.d_chosen, r.chosen, r.n_rows * r.n_active * 4);
    sort_on_device(&r);
    sort_on_host(&r);
    return r;
}

/* What the weights are. */
typedef enum weight_type { BF16, F32, CODES } weight_type;

typedef struct product {
    routed r;
    weight_type type;
    size_t N, K, n_first; /* n_first: rows of the first run of codes */
    cuda_rows w, x, y;    /* w: [n_experts * N, K] */
    cuda_coded runs[2];   /* of all experts */
    float *bias;          /* [n_experts, N] or NULL */
    skv_cuda_experts_args args;
} product;

static skv_cuda_codes codes_from(const cuda_coded *m, size_t row)
{
    skv_cuda_codes c = m->at;
    c.codes += row * c.row_bytes;
    c.scales = (const unsigned char *)c.scales +
               row * c.n_scales * (c.kind == SKV_CUDA_CODES_E4M3 ? 4 : 2);
    if (c.mins) c.mins += row * c.n_scales;
    if (c.fine) c.fine += row * c.n_fine;
    if (c.fine_min) c.fine_min += row * c.n_fine;
    return c;
}

/* Gate and up may have codes of different forms. */
static void draw_codes(cuda_case *c, product *p, skv_cuda_expert *w)
{
    const size_t E = p->r.n_experts;
    if (p->args.paired && cuda_one_in(c, 2)) p->n_first = p->N / 2;
    p->runs[0] = cuda_random_coded(c, E * p->n_first, p->K);
    if (p->n_first < p->N) p->runs[1] = cuda_random_coded(c, E * (p->N - p->n_first), p->K);
    for (size_t e = 0; e < E; e++) {
        w[e].runs[0] = codes_from(&p->runs[0], e * p->n_first);
        if (p->runs[1].w) w[e].runs[1] = codes_from(&p->runs[1], e * (p->N - p->n_first));
    }
}

static void draw_weights(cuda_case *c, product *p)
{
    const size_t E = p->r.n_experts, size = p->type == F32 ? 4 : 2;
    const uint32_t type = p->type == F32 ? SKV_CUDA_F32 : SKV_CUDA_BF16;
    skv_cuda_expert *w = cuda_host(c, E * sizeof *w);
    if (cuda_one_in(c, 2)) p->bias = cuda_normals(c, E * p->N, 1);
    const float *d_bias = p->bias ? cuda_upload(c, p->bias, E * p->N * 4) : NULL;
    p->args.ld_w = (uint32_t)p->K;
    p->n_first = p->N;
    if (p->type == CODES) {
        draw_codes(c, p, w);
    } else {
        p->w = cuda_random_rows(c, type, true, E * p->N, p->K, 1);
        p->args.ld_w = p->w.at.ld;
    }
    for (size_t e = 0; e < E; e++) {
        w[e].n_first = (uint32_t)p->n_first;
        if (p->type != CODES) {
            w[e].at = (unsigned char *)p->w.at.at + e * p->N * p->w.at.ld * size;
        }
        if (d_bias) w[e].bias = d_bias + e * p->N;
    }
    p->args.w = cuda_upload(c, w, E * sizeof *w);
}

static product random_product(cuda_case *c, weight_type type)
{
    product p = {.r = random_pairs(c), .type = type, .K = 8 * (1 + cuda_below(c, 40))};
    const size_t n_pairs = p.r.n_rows * p.r.n_active;
    const bool by_row = cuda_one_in(c, 2), paired = cuda_one_in(c, 2), act = cuda_one_in(c, 2);
    const uint32_t rows = type == F32 ? SKV_CUDA_F32 : SKV_CUDA_BF16;
    const uint32_t with = paired ? SKV_CUDA_CLAMPED : SKV_CUDA_RELU2;
    p.N = (1 + cuda_below(c, 50)) << paired;
    if (type == CODES) p.K = CUDA_CODED_GROUP * (1 + cuda_below(c, 4));
    p.x = cuda_random_rows(c, rows, true, by_row ? p.r.n_rows : n_pairs, p.K, 1);
    p.y = cuda_new_rows(c, SKV_CUDA_F32, cuda_one_in(c, 2), n_pairs, act && paired ? p.N / 2 : p.N);
    p.args = (skv_cuda_experts_args){.y = p.y.at,
                                     .x = p.x.at.at,
                                     .rows = by_row ? p.r.d_rows : NULL,
                                     .first = p.r.d_first,
                                     .end_expert = (uint32_t)p.r.n_experts,
                                     .end = (uint32_t)n_pairs,
                                     .n_tiles = (uint32_t)skv_ceil_div(p.N, 64),
                                     .ld_x = p.x.at.ld,
                                     .K = (uint32_t)p.K,
                                     .N = (uint32_t)p.N,
                                     .paired = paired,
                                     .act = act ? with : (uint32_t)SKV_CUDA_NO_ACT,
                                     .limit = 7,
                                     .alpha = 1.702F};
    draw_weights(c, &p);
    return p;
}

static double weight(const product *p, size_t expert, size_t j, size_t k)
{
    const size_t run = j >= p->n_first, n = run ? p->N - p->n_first : p->n_first;
    if (p->type != CODES) return (double)p->w.host[(expert * p->N + j) * p->K + k];
    return cuda_coded_value(&p->runs[run], (expert * n + j - run * p->n_first) * p->K + k);
}

static double dot(const product *p, size_t row, size_t expert, size_t j)
{
    double sum = p->bias ? (double)p->bias[expert * p->N + j] : 0;
    for (size_t k = 0; k < p->K; k++) {
        sum += (double)p->x.host[row * p->K + k] * weight(p, expert, j, k);
    }
    return sum;
}

static double result(const product *p, size_t row, size_t expert, size_t j)
{
    const double x = dot(p, row, expert, j);
    if (p->args.act == SKV_CUDA_NO_ACT) return x;
    if (!p->args.paired) return x > 0 ? x * x : 0;
    const double gate = fmin(x, 7), up = fmax(fmin(dot(p, row, expert, j + p->N / 2), 7), -7);
    return gate / (1 + exp(-(double)p->args.alpha * gate)) * (up + 1);
}

/* Tiles of m rows of the experts that the product is of. */
static uint32_t tiles_of(product *p, size_t m)
{
    const size_t n_pairs = p->r.n_rows * p->r.n_active;
    const size_t n = n_pairs / m + p->args.end_expert - p->args.first_expert;
    p->args.by_pair = n_pairs <= n;
    return (uint32_t)(p->args.by_pair ? n_pairs : n);
}

static void launch_tiles(product *p, size_t m)
{
    const device_grid grid = {p->args.n_tiles, tiles_of(p, m), 1,
                              skv_cuda_experts_shared((uint32_t)m)};
    device_launch(m == 16 ? SKV_CUDA_skv_experts_16 : SKV_CUDA_skv_experts_64, grid, &p->args);
}

/* Some experts after others, a tile of their weights at a time. */
static void launch_unpacked(cuda_case *c, product *p)
{
    const uint32_t E = (uint32_t)p->r.n_experts, n = p->args.n_tiles;
    p->args.unpacked = cuda_device(c, (size_t)2 * 64 * p->K * 2);
    p->args.n_tiles = 1;
    for (uint32_t e = 0; e < E; e += 2) {
        p->args.first_expert = e;
        p->args.end_expert = e + 2 < E ? e + 2 : E;
        for (uint32_t tile = 0; tile < n; tile++) {
            p->args.first_tile = tile;
            const uint32_t n_rows = (p->args.end_expert - e) * 64;
            device_launch(SKV_CUDA_skv_unpack_experts,
                          (device_grid){n_rows, 1, 1, SKV_CUDA_UNPACK_SHARED}, &p->args);
            launch_tiles(p, 64);
        }
    }
}

static void launch_product(cuda_case *c, product *p)
{
    const bool few = p->r.n_rows * p->r.n_active <= 60;
    if (p->type == BF16) {
        launch_tiles(p, few ? 16 : 64);
    } else if (p->type == F32) {
        const device_grid grid = {tiles_of(p, 1), (uint32_t)skv_ceil_div(p->N, 4), 1, 0};
        device_launch(SKV_CUDA_skv_experts_exact, grid, &p->args);
    } else if (few || cuda_one_in(c, 3)) {
        const uint32_t columns = (uint32_t)skv_ceil_div(p->N, SKV_CUDA_FEW_COLUMNS);
        const device_grid grid = {columns, tiles_of(p, SKV_CUDA_FEW), 1,
                                  SKV_CUDA_EXPERTS_FEW_SHARED};
        device_launch(SKV_CUDA_skv_experts_few, grid, &p->args);
    } else {
        launch_unpacked(c, p);
    }
}

static void check_product_of(cuda_case *c, weight_type type, double most)
{
    product p = random_product(c, type);
    const size_t n = p.y.n, k = p.r.n_active, n_pairs = p.r.n_rows * k;
    double *want = cuda_host(c, n_pairs * n * sizeof *want);
    for (size_t j = 0; j < n_pairs; j++) {
        const size_t place = p.r.places[j / k * p.r.n_terms + j % k];
        for (size_t i = 0; i < n; i++) {
            want[place * n + i] = result(&p, p.args.rows ? j / k : place, p.r.chosen[j], i);
        }
    }
    launch_product(c, &p);
    cuda_near(c, cuda_fetch_rows(c, &p.y), want, n_pairs * n, most);
}

static void check_product(cuda_case *c)
{
    check_product_of(c, BF16, 1e-5);
}

static void check_exact(cuda_case *c)
{
    check_product_of(c, F32, 1e-6);
}

/* Codes that lie at the middle of two numbers of bf16 may become the other one. */
static void check_coded(cuda_case *c)
{
    check_product_of(c, CODES, 2e-4);
}

/* ---- sums ---- */

static void check_mix(cuda_case *c)
{
    const routed r = new_routed(c);
    const size_t n = 1 + cuda_below(c, 1100), n_y = r.n_rows * r.n_terms;
    const bool store = cuda_one_in(c, 2);
    const cuda_rows x = cuda_random_rows(c, SKV_CUDA_F32, cuda_one_in(c, 2), r.n_rows, n, 1);
    const cuda_rows y = cuda_random_rows(c, SKV_CUDA_BF16, cuda_one_in(c, 2), n_y, n, 1);
    const float *weights = cuda_normals(c, n_y, 1);
    double *want = cuda_host(c, r.n_rows * n * sizeof *want);
    for (size_t i = 0; i < n_y; i++) r.places[i] = (uint32_t)cuda_below(c, n_y);
    for (size_t i = 0; i < r.n_rows * n; i++) {
        want[i] = store ? 0 : (double)x.host[i];
        for (size_t t = 0; t < r.n_terms; t++) {
            const size_t at = i / n * r.n_terms + t;
            want[i] += (double)weights[at] * (double)y.host[r.places[at] * n + i % n];
        }
    }
    const skv_cuda_mix_args a = {.x = x.at,
                                 .y = y.at,
                                 .places = cuda_upload(c, r.places, n_y * 4),
                                 .weights = cuda_upload(c, weights, n_y * 4),
                                 .n = (uint32_t)n,
                                 .n_terms = (uint32_t)r.n_terms,
                                 .store = store};
    device_launch(SKV_CUDA_skv_mix_rows,
                  (device_grid){(uint32_t)r.n_rows, (uint32_t)skv_ceil_div(n, 128 * 8), 1, 0}, &a);
    cuda_near(c, cuda_fetch_rows(c, &x), want, r.n_rows * n, 1e-5);
}

void check_cuda_experts(cuda_case *c)
{
    static void (*const checks[])(cuda_case *) = {check_choice, check_product, check_exact,
                                                  check_coded, check_mix};
    static const char *const names[] = {"experts", "products of experts",
                                        "products of experts in f32",
                                        "products of experts by codes", "mix"};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        for (int j = 0; j < CASES; j++) {
            c->what = names[i];
            checks[i](c);
            cuda_case_end(c);
        }
    }
}
