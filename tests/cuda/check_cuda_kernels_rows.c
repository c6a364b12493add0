/* Kernels of rows against plain C in double precision. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "cuda_case.h"

enum { CASES = 12, ROWS = 5 };

static const double BF16 = 4e-3, E4M3 = 4e-2, F32 = 1e-5;

static size_t random_length(cuda_case *c, bool whole)
{
    static const size_t lengths[] = {8, 72, 584, 2056, 4104};
    const size_t n = lengths[cuda_below(c, sizeof lengths / sizeof *lengths)];
    return whole ? n : n - cuda_below(c, 8);
}

static uint32_t random_type(cuda_case *c)
{
    return cuda_one_in(c, 2) ? SKV_CUDA_F32 : SKV_CUDA_BF16;
}

static double bound_of(uint32_t type)
{
    return type == SKV_CUDA_F32 ? F32 : type == SKV_CUDA_BF16 ? BF16 : E4M3;
}

/* A list of some of ROWS rows on the host; *d_list is the device's, or NULL: all of them. */
static uint32_t *random_list(cuda_case *c, size_t n, const uint32_t **d_list)
{
    const bool listed = cuda_one_in(c, 2);
    uint32_t *list = cuda_host(c, n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = (uint32_t)(listed ? cuda_below(c, ROWS) : i);
    *d_list = listed ? cuda_upload(c, list, n * sizeof *list) : NULL;
    return list;
}

/* n numbers that each row gets, on the host; *d_bias is the device's, or NULL: zeros. */
static float *random_bias(cuda_case *c, size_t n, const float **d_bias)
{
    const bool biased = cuda_one_in(c, 2);
    float *bias = biased ? cuda_normals(c, n, 1) : cuda_host(c, n * sizeof *bias);
    *d_bias = biased ? cuda_upload(c, bias, n * sizeof *bias) : NULL;
    return bias;
}

static uint32_t portions(size_t n, size_t threads)
{
    return (uint32_t)skv_ceil_div(n, threads * 8);
}

/* ---- norm ---- */

typedef struct norm_case {
    cuda_rows x, y, sum, weight;
    const uint32_t *list;
    size_t n, n_rows;
    bool weighted, summed;
    skv_cuda_norm_args args;
} norm_case;

static norm_case random_norm(cuda_case *c)
{
    norm_case t = {.n_rows = 1 + cuda_below(c, ROWS), .weighted = cuda_one_in(c, 2)};
    const bool is_e4m3 = cuda_one_in(c, 3), aligned = is_e4m3 || cuda_one_in(c, 2);
    t.n = random_length(c, is_e4m3);
    t.summed = cuda_one_in(c, 3);
    t.x = cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), ROWS, t.n, 3);
    t.weight = cuda_random_rows(c, SKV_CUDA_F32, cuda_one_in(c, 2), 1, t.n, 0.5);
    t.sum = cuda_random_rows(c, SKV_CUDA_F32, cuda_one_in(c, 2), t.n_rows, t.n, 1);
    t.y = cuda_new_rows(c, is_e4m3 ? SKV_CUDA_E4M3 : random_type(c), aligned, t.n_rows, t.n);
    if (t.summed && cuda_one_in(c, 2) && !is_e4m3) t.y = t.sum; /* in place */
    t.args = (skv_cuda_norm_args){.y = t.y.at,
                                  .x = t.x.at,
                                  .scales = cuda_device(c, t.n_rows * sizeof(float)),
                                  .n = (uint32_t)t.n,
                                  .normed = !cuda_one_in(c, 4),
                                  .eps = 1e-5F,
                                  .offset = 1,
                                  .factor = 0.75F};
    t.list = random_list(c, t.n_rows, &t.args.rows);
    if (t.weighted) t.args.weight = t.weight.at;
    if (t.summed) t.args.sum = t.sum.at;
    return t;
}

static double *norm_in_double(cuda_case *c, const norm_case *t)
{
    double *want = cuda_host(c, t->n_rows * t->n * sizeof *want);
    for (size_t r = 0; r < t->n_rows; r++) {
        const float *x = t->x.host + t->list[r] * t->n, *sum = t->sum.host + r * t->n;
        double squares = 0;
        for (size_t i = 0; i < t->n; i++) squares += (double)x[i] * (double)x[i];
        const double inverse = t->args.normed ? 1 / sqrt(squares / (double)t->n + 1e-5) : 1;
        for (size_t i = 0; i < t->n; i++) {
            double y = (double)x[i] * inverse;
            if (t->weighted) y *= (double)t->weight.host[i] + 1;
            want[r * t->n + i] = t->summed ? ((double)sum[i] + y) * 0.75 : y;
        }
    }
    return want;
}

static void check_norm(cuda_case *c)
{
    const norm_case t = random_norm(c);
    const double *want = norm_in_double(c, &t);
    device_launch(SKV_CUDA_skv_norm_rows,
                  (device_grid){.x = (uint32_t)t.n_rows, .shared = SKV_CUDA_ROWS_SHARED}, &t.args);
    float *got = cuda_fetch_rows(c, &t.y);
    if (t.y.at.type == SKV_CUDA_E4M3) {
        const float *scales = cuda_download(c, t.args.scales, t.n_rows * sizeof *scales);
        size_t n_without = 0;
        for (size_t r = 0; r < t.n_rows; r++) {
            float most = 0;
            for (size_t i = 0; i < t.n; i++) {
                most = fmaxf(most, fabsf(got[r * t.n + i]));
                got[r * t.n + i] *= scales[r];
            }
            n_without += most < 448; /* as the largest of every row is */
        }
        cuda_none(c, "rows do not use all of e4m3", n_without);
    }
    cuda_near(c, got, want, t.n_rows * t.n, bound_of(t.y.at.type));
}

/* ---- elements ---- */

static void check_move(cuda_case *c)
{
    const size_t n = random_length(c, false), n_rows = 1 + cuda_below(c, ROWS);
    const uint32_t op = (uint32_t)cuda_below(c, 3);
    const cuda_rows x =
        cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), ROWS, n, op == SKV_CUDA_CAP ? 3 : 1);
    cuda_rows y = cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), n_rows, n, 1);
    skv_cuda_move_args a = {.x = x.at, .y = y.at, .n = (uint32_t)n, .op = op, .factor = 1.75F};
    const uint32_t *list = random_list(c, n_rows, &a.rows);
    const float *bias = random_bias(c, n, &a.bias);
    double *want = cuda_host(c, n_rows * n * sizeof *want);
    if (op == SKV_CUDA_CAP) a.bias = NULL;
    for (size_t i = 0; i < n_rows * n; i++) {
        const double from = (double)x.host[list[i / n] * n + i % n], more = (double)bias[i % n];
        want[i] = op == SKV_CUDA_CAP
                      ? 1.75 * tanh(from / 1.75)
                      : from * 1.75 + more + (op == SKV_CUDA_ADD ? (double)y.host[i] : 0);
    }
    const device_grid grid = {(uint32_t)n_rows, portions(n, 128), 1, 0};
    device_launch(SKV_CUDA_skv_move_rows, grid, &a);
    cuda_near(c, cuda_fetch_rows(c, &y), want, n_rows * n, bound_of(y.at.type));
}

static double gated_in_double(const skv_cuda_glu_args *a, double gate, double up)
{
    switch (a->act) {
    case SKV_CUDA_SILU: return gate / (1 + exp(-gate)) * up;
    case SKV_CUDA_GELU:
        return gate * 0.5 *
               (1 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up;
    case SKV_CUDA_CLAMPED:
        gate = fmin(gate, (double)a->limit);
        up = fmax(fmin(up, (double)a->limit), -(double)a->limit);
        return gate / (1 + exp(-(double)a->alpha * gate)) * (up + 1);
    default: return gate > 0 ? gate * gate : 0;
    }
}

static void check_glu(cuda_case *c)
{
    const size_t n = random_length(c, false), n_rows = 1 + cuda_below(c, ROWS);
    const uint32_t act = (uint32_t)cuda_below(c, 4);
    const size_t n_in = act == SKV_CUDA_RELU2 ? n : 2 * n;
    const cuda_rows x = cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), n_rows, n_in, 3);
    const cuda_rows y = cuda_new_rows(c, random_type(c), cuda_one_in(c, 2), n_rows, n);
    skv_cuda_glu_args a = {
        .x = x.at, .y = y.at, .n = (uint32_t)n, .act = act, .limit = 2, .alpha = 1.702F};
    const float *bias = random_bias(c, n_in, &a.bias);
    double *want = cuda_host(c, n_rows * n * sizeof *want);
    for (size_t i = 0; i < n_rows * n; i++) {
        const float *row = x.host + i / n * n_in + i % n, *more = bias + i % n;
        const double up = n_in > n ? (double)row[n] + (double)more[n] : 0;
        want[i] = gated_in_double(&a, (double)row[0] + (double)more[0], up);
    }
    const device_grid grid = {(uint32_t)n_rows, portions(n, 256), 1, 0};
    device_launch(SKV_CUDA_skv_glu_rows, grid, &a);
    cuda_near(c, cuda_fetch_rows(c, &y), want, n_rows * n, bound_of(y.at.type));
}

/* ---- two in one launch ---- */

enum { TERMS = 3 };

typedef struct join_case {
    cuda_rows left, out;
    size_t n_rows;
    skv_cuda_kernel first; /* what it is when it is launched alone */
    device_grid grid;
    skv_cuda_join_args args;
} join_case;

static void random_sum(cuda_case *c, join_case *t, size_t n)
{
    skv_cuda_mix_args *a = &t->args.first.mix;
    const size_t n_pairs = t->n_rows * TERMS;
    uint32_t *places = cuda_host(c, n_pairs * sizeof *places);
    for (size_t i = 0; i < n_pairs; i++) places[i] = (uint32_t)cuda_below(c, n_pairs);
    *a = (skv_cuda_mix_args){
        .x = t->left.at,
        .y = cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), n_pairs, n, 1).at,
        .places = cuda_upload(c, places, n_pairs * sizeof *places),
        .weights = cuda_upload(c, cuda_normals(c, n_pairs, 1), n_pairs * sizeof(float)),
        .n = (uint32_t)n,
        .n_terms = TERMS,
        .store = cuda_one_in(c, 3)};
    t->first = SKV_CUDA_skv_mix_rows;
    t->grid.y = portions(n, 128);
}

/* The first operation on t->left, of t->args.kind. */
static void random_first(cuda_case *c, join_case *t, size_t n)
{
    const size_t n_in = t->args.kind == SKV_CUDA_FIRST_GLU ? 2 * n : n;
    skv_cuda_first_args *a = &t->args.first;
    const cuda_rows x = cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), t->n_rows, n_in, 3);
    const float *bias;
    (void)random_bias(c, n_in, &bias);
    t->grid = (device_grid){.x = (uint32_t)t->n_rows, .shared = SKV_CUDA_ROWS_SHARED};
    switch (t->args.kind) {
    case SKV_CUDA_FIRST_NORM:
        a->norm = (skv_cuda_norm_args){.y = t->left.at,
                                       .sum = t->left.at,
                                       .x = x.at,
                                       .n = (uint32_t)n,
                                       .normed = 1,
                                       .eps = 1e-5F,
                                       .factor = 0.75F};
        t->first = SKV_CUDA_skv_norm_rows;
        break;
    case SKV_CUDA_FIRST_MOVE:
        a->move = (skv_cuda_move_args){.y = t->left.at,
                                       .x = x.at,
                                       .bias = bias,
                                       .n = (uint32_t)n,
                                       .op = SKV_CUDA_ADD,
                                       .factor = 1};
        t->first = SKV_CUDA_skv_move_rows;
        t->grid.y = portions(n, 128);
        break;
    case SKV_CUDA_FIRST_GLU:
        a->glu = (skv_cuda_glu_args){.y = t->left.at,
                                     .x = x.at,
                                     .bias = bias,
                                     .n = (uint32_t)n,
                                     .act = (uint32_t)cuda_below(c, 3),
                                     .limit = 2,
                                     .alpha = 1.702F};
        t->first = SKV_CUDA_skv_glu_rows;
        t->grid.y = portions(n, 256);
        break;
    default: random_sum(c, t, n); break;
    }
}

static join_case random_join(cuda_case *c)
{
    join_case t = {.n_rows = 1 + cuda_below(c, ROWS), .args.kind = (uint32_t)cuda_below(c, 4)};
    const bool is_e4m3 = cuda_one_in(c, 3), aligned = is_e4m3 || cuda_one_in(c, 2);
    const size_t n = random_length(c, is_e4m3);
    t.left = cuda_random_rows(c, random_type(c), cuda_one_in(c, 2), t.n_rows, n, 1);
    t.out = cuda_new_rows(c, is_e4m3 ? SKV_CUDA_E4M3 : random_type(c), aligned, t.n_rows, n);
    random_first(c, &t, n);
    t.args.then = (skv_cuda_norm_args){.y = t.out.at,
                                       .x = t.left.at,
                                       .scales = cuda_device(c, t.n_rows * sizeof(float)),
                                       .n = (uint32_t)n,
                                       .normed = !cuda_one_in(c, 4),
                                       .eps = 1e-5F,
                                       .offset = 1,
                                       .factor = 1};
    if (cuda_one_in(c, 2)) {
        t.args.then.weight = cuda_random_rows(c, SKV_CUDA_F32, cuda_one_in(c, 2), 1, n, 0.5).at;
    }
    return t;
}

/* The same rows twice: by two launches, and by one, to the bit. */
static void check_join(cuda_case *c)
{
    const skv_rng rng = c->rng;
    join_case two = random_join(c);
    c->rng = rng;
    join_case one = random_join(c);
    const device_grid rows = {.x = (uint32_t)two.n_rows, .shared = SKV_CUDA_ROWS_SHARED};
    const size_t n_bytes = two.n_rows * two.out.n * sizeof(float);
    device_launch(two.first, two.grid, &two.args.first);
    device_launch(SKV_CUDA_skv_norm_rows, rows, &two.args.then);
    device_launch(SKV_CUDA_skv_join_rows, rows, &one.args);
    cuda_none(c, "rows that are left differ",
              memcmp(cuda_fetch_rows(c, &two.left), cuda_fetch_rows(c, &one.left), n_bytes) != 0);
    cuda_none(c, "their norms differ",
              memcmp(cuda_fetch_rows(c, &two.out), cuda_fetch_rows(c, &one.out), n_bytes) != 0);
    if (two.out.at.type != SKV_CUDA_E4M3) return;
    const size_t n_scales = two.n_rows * sizeof(float);
    cuda_none(c, "their scales differ",
              memcmp(cuda_download(c, two.args.then.scales, n_scales),
                     cuda_download(c, one.args.then.scales, n_scales), n_scales) != 0);
}

/* Of equal numbers the first one counts. */
static void check_argmax(cuda_case *c)
{
    const size_t n = random_length(c, false);
    cuda_rows x = cuda_random_rows(c, SKV_CUDA_F32, false, ROWS, n, 1);
    uint32_t want[ROWS];
    size_t n_wrong = 0;
    for (size_t r = 0; r < ROWS; r++) {
        const size_t first = cuda_below(c, n), again = first + cuda_below(c, n - first);
        float *row = (float *)x.at.at + r * x.at.ld;
        want[r] = (uint32_t)first;
        device_put(row + first, &(float){9}, sizeof *row);
        device_put(row + again, &(float){9}, sizeof *row);
    }
    uint32_t *at = cuda_device(c, sizeof want);
    const skv_cuda_argmax_args a = {.x = x.at.at, .at = at, .n = (uint32_t)n, .ld = x.at.ld};
    device_launch(SKV_CUDA_skv_argmax_rows,
                  (device_grid){.x = ROWS, .shared = SKV_CUDA_ROWS_SHARED}, &a);
    const uint32_t *got = cuda_download(c, at, sizeof want);
    for (size_t r = 0; r < ROWS; r++) n_wrong += got[r] != want[r];
    cuda_none(c, "wrong places", n_wrong);
}

void check_cuda_rows(cuda_case *c)
{
    static void (*const checks[])(cuda_case *) = {check_norm, check_move, check_glu, check_join,
                                                  check_argmax};
    static const char *const names[] = {"norm", "move", "glu", "join", "argmax"};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        for (int j = 0; j < CASES; j++) {
            c->what = names[i];
            checks[i](c);
            cuda_case_end(c);
        }
    }
}
