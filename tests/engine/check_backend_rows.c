/* Memory, and the operations that treat one row after the other: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "check_backend_impl.h"

/* Areas made together begin as zeros and do not overlap. */
static void check_areas(backend_check *c)
{
    enum { AREAS = 4 };
    skv_backend *be = check_backend_of(c);
    skv_area_spec specs[AREAS];
    skv_area *areas[AREAS];
    skv_error err;
    check_begin(c, "areas_create");
    for (size_t i = 0; i < AREAS; i++) {
        specs[i] =
            (skv_area_spec){SKV_AREA_F32, check_below(c, 5), check_between(c, 1, 70), false, true};
    }
    if (be->areas_create(be, specs, AREAS, areas, &err) != SKV_OK) {
        check_same(c, err.text, "areas", 1);
        return;
    }
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < AREAS; i++) {
            const size_t n = specs[i].n_rows * specs[i].n_columns;
            const skv_rows row = {areas[i], 0, n};
            if (n == 0) continue;
            const skv_mapped m = be->map(be, row, 1, n, SKV_MAP_BOTH);
            for (size_t d = 0; d < n; d++) {
                check_number(c, d, n, (double)m.at[d], round ? (double)i + 1 : 0, 0);
                m.at[d] = (float)i + 1;
            }
            be->unmap(be, m);
        }
    }
    be->areas_free(be, areas, AREAS);
}

/* copy_rows, map and unmap move the same numbers, whatever stands between rows. */
void check_memory(backend_check *c)
{
    check_areas(c);
    skv_backend *be = check_backend_of(c);
    const size_t n_rows = check_between(c, 1, 20), n = check_between(c, 1, 50);
    const size_t lda = n + check_below(c, 9), ldb = n + check_below(c, 9);
    const check_tensor a = check_operand(c, n_rows * lda, 1), b = check_random(c, n_rows * ldb, 1);
    const skv_rows from = check_rows(a, lda), to = check_rows(b, ldb);
    double *want = check_host(c, b.n * sizeof *want);
    for (size_t i = 0; i < b.n; i++) {
        const bool copied = i % ldb < n;
        want[i] = (double)(copied ? a.host[i / ldb * lda + i % ldb] : b.host[i]);
    }
    check_begin(c, "copy_rows");
    be->copy_rows(be, to, from, n_rows, n);
    check_near(c, b, want, NULL);
    check_begin(c, "map");
    skv_mapped mapped = be->map(be, to, n_rows, n, SKV_MAP_BOTH);
    for (size_t i = 0; i < n_rows; i++) {
        check_same(c, mapped.at + i * mapped.ld, a.host + i * lda, n * sizeof *a.host);
        for (size_t d = 0; d < n; d++) mapped.at[i * mapped.ld + d] *= 2;
    }
    be->unmap(be, mapped);
    for (size_t i = 0; i < b.n; i++) want[i] *= i % ldb < n ? 2 : 1;
    check_near(c, b, want, NULL);
    mapped = be->map(be, to, n_rows, n, SKV_MAP_WRITE);
    for (size_t i = 0; i < n_rows; i++) {
        memcpy(mapped.at + i * mapped.ld, a.host + i * lda, n * sizeof *a.host);
    }
    be->unmap(be, mapped);
    for (size_t i = 0; i < b.n; i++) want[i] /= i % ldb < n ? 2 : 1;
    check_near(c, b, want, NULL);
}

/* silu of z, or its sigmoid, times x; norms are by groups. */
static void check_gated_norm(backend_check *c)
{
    check_begin(c, "gated_norm");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), G = check_between(c, 1, 5);
    const size_t n = check_between(c, 1, 70), ld = G * n + check_below(c, 9);
    const check_tensor x = check_operand(c, n_rows * ld, 1),
                       z = check_operand(c, n_rows * G * n, 2);
    const bool each = check_one_in(c, 2), sigmoid = check_one_in(c, 2), first = check_one_in(c, 2);
    const float *weight;
    const skv_norm norm = check_norm(c, each ? G * n : n, &weight);
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    float *gated = check_host(c, n * sizeof *gated);
    for (size_t i = 0; i < x.n; i++) want[i] = (double)x.host[i];
    for (size_t i = 0; i < n_rows * G; i++) {
        const size_t g = i % G, at = i / G * ld + g * n;
        double *to = want + at, *most = bound + at, act[70];
        for (size_t d = 0; d < n; d++) {
            const double gate = (double)z.host[i * n + d];
            act[d] = (sigmoid ? 1 : gate) / (1 + exp(-gate));
            gated[d] = (float)((double)x.host[at + d] * (first && weight ? act[d] : 1));
        }
        check_normed(&norm, weight ? weight + (each ? g * n : 0) : NULL, gated, n, to, most);
        for (size_t d = 0; d < n; d++) {
            const double factor = first && weight ? 1 : act[d];
            most[d] = (most[d] * 2 + 30 * CHECK_F32 * fabs(to[d])) * fabs(factor);
            to[d] *= factor;
        }
    }
    skv_backend *be = check_backend_of(c);
    be->gated_norm(be, &(skv_gated_norm_args){.x = check_rows(x, ld),
                                              .z = check_rows(z, G * n),
                                              .n_rows = n_rows,
                                              .n_groups = G,
                                              .n = n,
                                              .norm = norm,
                                              .weight_per_group = each,
                                              .sigmoid = sigmoid,
                                              .gate_first = first});
    check_near(c, x, want, bound);
}

static void check_norm_alone(backend_check *c)
{
    check_begin(c, "norm");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), n = check_between(c, 1, CHECK_K);
    const check_tensor x = check_operand(c, n_rows * n, 2), w = check_random(c, n, 0.5);
    const check_tensor y = check_one_in(c, 2) ? x : check_operand(c, n_rows * n, 1);
    const skv_norm norm = {
        .weight = check_vec(w), .offset = check_one_in(c, 2) ? 1.0f : 0, .eps = 1e-6f};
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    for (size_t i = 0; i < x.n; i += n) {
        check_normed(&norm, w.host, x.host + i, n, want + i, bound + i);
    }
    skv_backend *be = check_backend_of(c);
    be->norm(be, &(skv_norm_args){check_rows(y, n), check_rows(x, n), n_rows, n, norm});
    check_near(c, y, want, bound);
}

static void check_norm_add(backend_check *c)
{
    check_begin(c, "norm_add");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), n = check_between(c, 1, CHECK_K);
    const check_tensor x = check_random(c, n_rows * n, 1), y = check_operand(c, n_rows * n, 2);
    const float *weight;
    skv_norm norm = check_norm(c, n, &weight);
    if (!weight) norm.eps = 1e-6f; /* a norm there is, without a weight */
    float *ones = check_host(c, n * sizeof *ones);
    for (size_t i = 0; i < n; i++) ones[i] = 1;
    const skv_norm plain = {.eps = norm.eps, .offset = weight ? norm.offset : 0};
    const float scales[] = {0, 1, 0.25f};
    const float scale = scales[check_below(c, 3)];
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    for (size_t i = 0; i < n_rows; i++) {
        check_normed(&plain, weight ? weight : ones, y.host + i * n, n, want + i * n,
                     bound + i * n);
    }
    for (size_t i = 0; i < x.n; i++) {
        const double before = (double)x.host[i], factor = scale == 0 ? 1 : (double)scale;
        bound[i] = factor * (bound[i] + 2 * CHECK_F32 * (fabs(before) + fabs(want[i])));
        want[i] = factor * (before + want[i]);
    }
    const skv_norm_add_args args = {check_rows(x, n), check_rows(y, n), n_rows, n, norm, scale};
    skv_backend *be = check_backend_of(c);
    be->norm_add(be, &args);
    check_near(c, x, want, bound);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* What an activation may be wrong by: checkkernels holds it far closer. */
static double activation_error(double x, double y)
{
    return 1e-5 * (fabs(x) + 0.01) * (fabs(y) + 0.01);
}

static void check_glu(backend_check *c)
{
    check_begin(c, "glu");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), n = check_between(c, 1, CHECK_K);
    const size_t ld = n + check_below(c, 9);
    const check_tensor x = check_operand(c, n_rows * 2 * n, 3),
                       y = check_operand(c, n_rows * ld, 1);
    const bool is_gelu = check_one_in(c, 2);
    double *want = check_host(c, y.n * sizeof *want), *bound = check_host(c, y.n * sizeof *bound);
    for (size_t i = 0; i < y.n; i++) want[i] = (double)y.host[i];
    for (size_t i = 0; i < n_rows * n; i++) {
        const float *row = x.host + i / n * 2 * n;
        const double gate = (double)row[i % n], up = (double)row[n + i % n];
        want[i / n * ld + i % n] = (is_gelu ? gelu(gate) : silu(gate)) * up;
        bound[i / n * ld + i % n] = activation_error(gate, up);
    }
    const skv_glu_args args = {.y = check_rows(y, ld),
                               .x = check_rows(x, 2 * n),
                               .n_rows = n_rows,
                               .n = n,
                               .epilogue = is_gelu ? SKV_EPILOGUE_GELU_GLU : SKV_EPILOGUE_SILU_GLU};
    skv_backend *be = check_backend_of(c);
    be->glu(be, &args);
    check_near(c, y, want, bound);
}

static void check_scale(backend_check *c)
{
    check_begin(c, "scale");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), n = check_between(c, 1, 100);
    const size_t ld = n + check_below(c, 5);
    const check_tensor x = check_operand(c, n_rows * ld, 1);
    const float factor = (float)check_normal(c);
    double *want = check_host(c, x.n * sizeof *want);
    for (size_t i = 0; i < x.n; i++) {
        want[i] = (double)(i % ld < n ? x.host[i] * factor : x.host[i]);
    }
    skv_backend *be = check_backend_of(c);
    be->scale(be, check_rows(x, ld), n_rows, n, factor);
    check_near(c, x, want, NULL);
}

static void check_softcap(backend_check *c)
{
    check_begin(c, "softcap");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), n = check_between(c, 1, 100);
    const size_t ld = n + check_below(c, 5);
    const check_tensor x = check_random(c, n_rows * ld, 40);
    const float cap = 30;
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    for (size_t i = 0; i < x.n; i++) {
        const bool capped = i % ld < n;
        want[i] = capped ? (double)cap * tanh((double)x.host[i] / (double)cap) : (double)x.host[i];
        bound[i] = capped ? 1e-6 * (double)cap : 0;
    }
    skv_backend *be = check_backend_of(c);
    be->softcap(be, check_rows(x, ld), n_rows, n, cap);
    check_near(c, x, want, bound);
}

void check_ranks_sum(void *ctx, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] * 1.5f + (float)i * *(const float *)ctx;
}

static void check_sum(backend_check *c)
{
    check_begin(c, "sum");
    const size_t n_rows = check_between(c, 1, CHECK_ROWS), n = check_between(c, 1, 200);
    const check_tensor x = check_random(c, n_rows * n, 1);
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    for (size_t i = 0; i < x.n; i++) {
        want[i] = 1.5 * (double)x.host[i] + (double)i;
        bound[i] = 2 * CHECK_F32 * (fabs(want[i]) + (double)i);
    }
    skv_backend *be = check_backend_of(c);
    be->sum(be, check_rows(x, n), n_rows, n);
    check_near(c, x, want, bound);
}

void check_row_operations(backend_check *c)
{
    check_norm_alone(c);
    if (check_has_states(c)) check_gated_norm(c); /* it comes with them */
    check_norm_add(c);
    check_glu(c);
    check_scale(c);
    check_softcap(c);
    check_sum(c);
}
