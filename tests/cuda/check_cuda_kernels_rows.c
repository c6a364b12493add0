/* Kernels of rows against plain C in double precision. */
#include <math.h>

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
    double *want = cuda_host(c, n_rows * n * sizeof *want);
    for (size_t i = 0; i < n_rows * n; i++) {
        const double from = (double)x.host[list[i / n] * n + i % n];
        want[i] = op == SKV_CUDA_CAP ? 1.75 * tanh(from / 1.75)
                                     : from * 1.75 + (op == SKV_CUDA_ADD ? (double)y.host[i] : 0);
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
    const skv_cuda_glu_args a = {
        .x = x.at, .y = y.at, .n = (uint32_t)n, .act = act, .limit = 2, .alpha = 1.702F};
    double *want = cuda_host(c, n_rows * n * sizeof *want);
    for (size_t i = 0; i < n_rows * n; i++) {
        const float *row = x.host + i / n * n_in + i % n;
        want[i] = gated_in_double(&a, (double)row[0], n_in > n ? (double)row[n] : 0);
    }
    const device_grid grid = {(uint32_t)n_rows, portions(n, 256), 1, 0};
    device_launch(SKV_CUDA_skv_glu_rows, grid, &a);
    cuda_near(c, cuda_fetch_rows(c, &y), want, n_rows * n, bound_of(y.at.type));
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
    static void (*const checks[])(cuda_case *) = {check_norm, check_move, check_glu, check_argmax};
    static const char *const names[] = {"norm", "move", "glu", "argmax"};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        for (int j = 0; j < CASES; j++) {
            c->what = names[i];
            checks[i](c);
            cuda_case_end(c);
        }
    }
}
