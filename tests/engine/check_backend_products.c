/* Products with weight matrices: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/size.h"
#include "check_backend_impl.h"

enum { PARTS = 3 };

/* A matrix as the back end packs it and as plain numbers. */
typedef struct matrix {
    skv_weight_type type;
    size_t n_parts, rows[PARTS], N, K; /* N: all rows */
    bool paired;
    bool exact;           /* small whole numbers, which no type rounds */
    float *w;             /* [N, K] */
    float *bias;          /* [N] or NULL */
    float *amax;          /* [N] the largest magnitude of each row */
    skv_quant_rows codes; /* QUANT */
    const skv_quant_form *form;
    skv_linear *packed;
} matrix;

/* A part of it, which its reader gets. */
typedef struct matrix_part {
    const matrix *m;
    size_t row0;
} matrix_part;

static void read_floats(const void *ctx, size_t row0, size_t n, float *out)
{
    const matrix_part *p = ctx;
    memcpy(out, p->m->w + (p->row0 + row0) * p->m->K, n * p->m->K * sizeof *out);
}

static void read_codes(const void *ctx, size_t row0, size_t n, skv_quant_rows *out)
{
    const matrix_part *p = ctx;
    const skv_quant_rows *from = &p->m->codes;
    const size_t at = p->row0 + row0, n_spans = skv_quant_spans(p->m->form, from->K);
    memcpy(out->codes, from->codes + at * from->K, n * from->K);
    memcpy(out->scales, from->scales + at * n_spans, n * n_spans * sizeof *out->scales);
    memcpy(out->mins, from->mins + at * n_spans, n * n_spans * sizeof *out->mins);
}

/* ---- numbers ---- */

/* n numbers; with `exact` whole ones up to 127, which each group of 32 has. */
static void fill(backend_check *c, float *x, size_t n, double size, bool exact)
{
    for (size_t i = 0; i < n; i++) {
        const double whole = (double)check_below(c, 255) - 127;
        x[i] = (float)(exact ? whole : size * check_normal(c));
        if (exact && i % SKV_QUANT_GROUP == 0) x[i] = 127;
    }
}

static void fill_codes(backend_check *c, matrix *m)
{
    static const size_t groups[] = {32, 64, 128};
    size_t group = groups[check_below(c, 3)];
    while (m->K % group != 0) group /= 2;
    m->form = skv_quant_form_zeros(group, check_one_in(c, 2));
    skv_quant_rows_init(
        &m->codes, m->form, m->N, m->K,
        (void *)skv_round_up(
            (uintptr_t)check_host(c, skv_quant_rows_bytes(m->form, m->N, m->K) + 64), 64));
    for (size_t i = 0; i < m->N * m->K; i++) m->codes.codes[i] = (uint8_t)check_below(c, 16);
    for (size_t i = 0; i < m->N * (m->K / group); i++) {
        const float scale = m->exact ? 1 : (float)(0.02 * (0.5 + fabs(check_normal(c))));
        const float min = (float)check_below(c, 9);
        m->codes.scales[i] = m->form->bf16 ? skv_bf16_of_float(scale) : skv_f16_of_float(scale);
        m->codes.mins[i] = m->form->bf16 ? skv_bf16_of_float(min) : skv_f16_of_float(min);
    }
    for (size_t j = 0; j < m->N; j++) skv_quant_row_to_f32(&m->codes, m->form, j, m->w + j * m->K);
}

/* Packs a matrix of this form whose numbers are new. */
static void pack(backend_check *c, matrix *m)
{
    skv_backend *be = check_backend_of(c);
    skv_row_source sources[PARTS];
    matrix_part parts[PARTS];
    m->w = check_host(c, m->N * m->K * sizeof *m->w);
    m->amax = check_host(c, m->N * sizeof *m->amax);
    m->bias = check_one_in(c, 2) ? check_host(c, m->N * sizeof *m->bias) : NULL;
    m->form = NULL;
    if (skv_weight_is_quant(m->type)) {
        fill_codes(c, m);
    } else {
        for (size_t j = 0; j < m->N; j++) {
            fill(c, m->w + j * m->K, m->K, 1 / sqrt((double)m->K), m->exact);
        }
    }
    for (size_t i = 0; i < m->N * m->K; i++) {
        m->amax[i / m->K] = fmaxf(m->amax[i / m->K], fabsf(m->w[i]));
    }
    for (size_t j = 0; m->bias && j < m->N; j++) m->bias[j] = (float)check_normal(c);
    for (size_t i = 0, row0 = 0; i < m->n_parts; row0 += m->rows[i++]) {
        parts[i] = (matrix_part){m, row0};
        sources[i] = (skv_row_source){.read = read_floats,
                                      .ctx = &parts[i],
                                      .n_rows = m->rows[i],
                                      .bias = m->bias ? m->bias + row0 : NULL,
                                      .form = m->form,
                                      .read_codes = m->form ? read_codes : NULL};
    }
    const skv_linear_spec spec = {m->type, sources, m->n_parts, m->K, m->paired};
    skv_error err;
    if (be->linear_create(be, &spec, &m->packed, &err) != SKV_OK) {
        m->packed = NULL;
        check_same(c, err.text, "a packed matrix", 1);
    }
}

static matrix draw_matrix(backend_check *c)
{
    matrix m = {.type = (skv_weight_type)check_below(c, SKV_WEIGHT_QUANT_F32 + 1),
                .paired = check_one_in(c, 3),
                .exact = check_one_in(c, 2)};
    m.K = check_between(c, 1, CHECK_K);
    if (skv_weight_is_quant(m.type)) m.K = skv_round_up(m.K, SKV_QUANT_GROUP);
    m.n_parts = m.paired ? 2 : check_between(c, 1, PARTS);
    for (size_t i = 0; i < m.n_parts; i++) {
        m.rows[i] = m.paired && i > 0 ? m.rows[0] : check_between(c, 1, 70);
        m.N += m.rows[i];
    }
    return m;
}

/* ---- the product ---- */

/* The input of a product: the rows of x that it reads, normed. */
typedef struct inputs {
    check_tensor x; /* [n_all, ldx] */
    size_t ldx;
    const uint32_t *rows; /* or NULL */
    skv_norm norm;
    const float *weight; /* of the norm, the host's */
} inputs;

static inputs draw_inputs(backend_check *c, const matrix *m, size_t n_rows)
{
    const size_t n_all = n_rows + check_below(c, CHECK_ROWS);
    inputs in = {.ldx = m->K + check_below(c, 30)};
    in.x = check_operand(c, n_all * in.ldx, 1);
    for (size_t i = 0; i < n_all; i++) fill(c, in.x.host + i * in.ldx, m->K, 1, m->exact);
    check_put(c, in.x);
    if (!m->exact) in.norm = check_norm(c, m->K, &in.weight);
    if (n_all > n_rows || check_one_in(c, 2)) in.rows = check_ascending(c, n_rows, n_all);
    return in;
}

/* One number of a product before its epilogue, and what rounding may do to it. */
typedef struct sum {
    double value, error;
} sum;

/* x [K] and its errors, times row j of the matrix. */
static sum dot(const matrix *m, const double *x, const double *size, double x_amax, size_t j)
{
    double value = 0, terms = 0, halves = 0, normed = 0;
    for (size_t k = 0; k < m->K; k++) {
        const double w = (double)m->w[j * m->K + k];
        value += x[k] * w;
        terms += fabs(x[k] * w);
        normed += size[k] * fabs(w);
        halves += fabs(x[k]) * (double)m->amax[j] + fabs(w) * x_amax;
    }
    double error = normed + (double)(m->K + 4) * CHECK_F32 * terms;
    if (m->exact)
        error += (skv_weight_is_quant(m->type) || m->type == SKV_WEIGHT_I8 ? 1e-4 : 0) * terms;
    /* Half a unit of each operand: bfloat16, or a 255th of a row's range. */
    else if (m->type == SKV_WEIGHT_BF16)
        error += 2.1 * CHECK_BF16 * terms;
    else if (m->type != SKV_WEIGHT_F32)
        error += 1.05 / 254 * halves;
    if (m->bias) value += (double)m->bias[j], error += CHECK_F32 * fabs(value);
    return (sum){value, error};
}

/* Whether an epilogue makes one number of two. */
static bool is_of_pairs(skv_epilogue epilogue)
{
    return epilogue > SKV_EPILOGUE_RELU2;
}

static sum squared(sum s)
{
    const double positive = fmax(s.value, 0);
    return (sum){positive * positive, s.error * (2 * positive + s.error)};
}

static sum activated(skv_epilogue epilogue, const skv_linear_args *a, sum gate, sum up)
{
    double g = gate.value, u = up.value, act;
    if (epilogue == SKV_EPILOGUE_CLAMPED) {
        g = fmin(g, (double)a->limit);
        u = fmax(-(double)a->limit, fmin(u, (double)a->limit)) + 1;
        act = g / (1 + exp(-(double)a->alpha * g));
    } else if (epilogue == SKV_EPILOGUE_GELU_GLU) {
        act = 0.5 * g * (1 + tanh(sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g)));
    } else {
        act = g / (1 + exp(-g));
    }
    /* No slope of an activation is above 1.2. */
    const double error = 1.2 * gate.error * (fabs(u) + up.error) + fabs(act) * up.error;
    return (sum){act * u, error + 1e-5 * (fabs(g) + 0.01) * (fabs(u) + 0.01)};
}

/* Row i of y: columns of parts that begin at row j0 of the matrix, n of them. */
static void want_row(backend_check *c, const matrix *m, const inputs *in, size_t i_x,
                     const skv_linear_args *a, size_t j0, size_t n, const float *y_host,
                     double *want, double *bound)
{
    double *x = check_host(c, m->K * sizeof *x), *size = check_host(c, m->K * sizeof *size),
           amax = 0;
    check_normed(&in->norm, in->weight, in->x.host + i_x * in->ldx, m->K, x, size);
    for (size_t k = 0; k < m->K; k++) amax = fmax(amax, fabs(x[k]));
    for (size_t j = 0; j < n; j++) {
        sum s = dot(m, x, size, amax, j0 + j);
        if (is_of_pairs(a->epilogue)) {
            s = activated(a->epilogue, a, s, dot(m, x, size, amax, j0 + m->rows[0] + j));
        }
        if (a->epilogue == SKV_EPILOGUE_RELU2) s = squared(s);
        if (a->epilogue == SKV_EPILOGUE_ADD) s.value += (double)y_host[j];
        want[j] = s.value;
        bound[j] = s.error + CHECK_F32 * fabs(s.value);
    }
}

static skv_epilogue draw_epilogue(backend_check *c, const matrix *m)
{
    static const skv_epilogue of_pairs[] = {SKV_EPILOGUE_STORE, SKV_EPILOGUE_SILU_GLU,
                                            SKV_EPILOGUE_GELU_GLU, SKV_EPILOGUE_CLAMPED};
    static const skv_epilogue of_one[] = {SKV_EPILOGUE_STORE, SKV_EPILOGUE_ADD, SKV_EPILOGUE_RELU2};
    return m->paired ? of_pairs[check_below(c, 4)] : of_one[check_below(c, 3)];
}

static skv_linear_args draw_args(backend_check *c, const matrix *m, const inputs *in, size_t n_rows)
{
    return (skv_linear_args){.w = m->packed,
                             .x = check_rows(in->x, in->ldx),
                             .rows = check_list(c, in->rows, n_rows * sizeof *in->rows),
                             .n_rows = n_rows,
                             .norm = in->norm,
                             .epilogue = draw_epilogue(c, m),
                             .limit = 7,
                             .alpha = 1.702f};
}

void check_linear(backend_check *c)
{
    static const char *const names[] = {"linear f32", "linear bf16", "linear int8", "linear quant",
                                        "linear quant, f32"};
    skv_backend *be = check_backend_of(c);
    matrix m = draw_matrix(c);
    check_begin(c, names[m.type]);
    pack(c, &m);
    if (!m.packed) return;
    const size_t n_rows = check_between(c, 1, CHECK_ROWS);
    const inputs in = draw_inputs(c, &m, n_rows);
    skv_linear_args a = draw_args(c, &m, &in, n_rows);
    size_t j0 = 0, n = is_of_pairs(a.epilogue) ? m.rows[0] : m.N;
    if (!m.paired && check_one_in(c, 2)) {
        a.part0 = check_below(c, m.n_parts);
        a.part1 = check_between(c, a.part0 + 1, m.n_parts);
        for (size_t i = 0; i < a.part0; i++) j0 += m.rows[i];
        n = 0;
        for (size_t i = a.part0; i < a.part1; i++) n += m.rows[i];
    }
    const size_t ldy = n + check_below(c, 20);
    const check_tensor y = check_operand(c, n_rows * ldy, 1);
    double *want = check_host(c, y.n * sizeof *want), *bound = check_host(c, y.n * sizeof *bound);
    for (size_t i = 0; i < y.n; i++) want[i] = (double)y.host[i];
    for (size_t i = 0; i < n_rows; i++) {
        want_row(c, &m, &in, in.rows ? in.rows[i] : i, &a, j0, n, y.host + i * ldy, want + i * ldy,
                 bound + i * ldy);
    }
    a.y = check_rows(y, ldy);
    be->linear(be, &a);
    check_done(c);
    check_near(c, y, want, bound);
    be->linear_free(be, m.packed);
}

void check_linear_groups(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    const size_t n_groups = check_between(c, 1, CHECK_GROUPS);
    matrix m[CHECK_GROUPS] = {draw_matrix(c)};
    skv_linear_group groups[CHECK_GROUPS];
    check_begin(c, "linear_groups");
    size_t n_rows = 0;
    for (size_t g = 0; g < n_groups; g++) {
        m[g] = m[0];
        const size_t n = check_below(c, 12); /* may be none */
        groups[g] = (skv_linear_group){NULL, n_rows, n};
        n_rows += n;
    }
    for (size_t g = 0; g < n_groups; g++) {
        pack(c, &m[g]);
        if (!m[g].packed) return;
        groups[g].w = m[g].packed;
    }
    const inputs in = draw_inputs(c, &m[0], n_rows);
    skv_linear_args a = draw_args(c, &m[0], &in, n_rows);
    const size_t n = is_of_pairs(a.epilogue) ? m[0].rows[0] : m[0].N;
    const check_tensor y = check_operand(c, n_rows * n, 1);
    double *want = check_host(c, y.n * sizeof *want), *bound = check_host(c, y.n * sizeof *bound);
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = groups[g].row0; i < groups[g].row0 + groups[g].n_rows; i++) {
            want_row(c, &m[g], &in, in.rows ? in.rows[i] : i, &a, 0, n, y.host + i * n,
                     want + i * n, bound + i * n);
        }
    }
    a.y = check_rows(y, n);
    be->linear_groups(be, &a, check_list(c, groups, n_groups * sizeof *groups), n_groups);
    check_done(c);
    check_near(c, y, want, bound);
    for (size_t g = 0; g < n_groups; g++) be->linear_free(be, m[g].packed);
}

/* A product of rows that were saved by way of a norm, and loaded, has the bits of that of the rows
 * themselves by way of this norm. */
void check_saved_rows(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    matrix m = draw_matrix(c);
    check_begin(c, "save_rows and load_rows");
    pack(c, &m);
    if (!m.packed) return;
    const size_t n = check_between(c, 1, 20), N = m.N, K = m.K;
    const size_t ldx = K + check_below(c, 9), ld_back = K + check_below(c, 9);
    const check_tensor x = check_operand(c, n * ldx, 1), back = check_random(c, n * ld_back, 1);
    const float *weight;
    const skv_norm norm = check_norm(c, K, &weight);
    const size_t n_bytes = n * be->row_bytes(be, m.type, K);
    unsigned char *saved = check_host(c, n_bytes);
    skv_backend_step *step = check_new_step(c, 0);
    check_begin_bare(c, step);
    be->save_rows(be, m.type, saved, check_rows(x, ldx), n, K, norm);
    check_end_step(c, step); /* now they have arrived */
    be->load_rows(be, m.type, check_rows(back, ld_back), check_list(c, saved, n_bytes), n, K);
    check_done(c);
    float *results[2];
    for (int i = 0; i < 2; i++) {
        const check_tensor y = check_random(c, n * N, 1);
        skv_linear_args a = {.w = m.packed, .y = check_rows(y, N), .n_rows = n};
        a.x = i ? check_rows(back, ld_back) : check_rows(x, ldx);
        if (i == 0) a.norm = norm;
        be->linear(be, &a);
        results[i] = check_host(c, n * N * sizeof *results[i]);
        check_get(c, a.y, n, N, results[i]);
    }
    check_same(c, results[1], results[0], n * N * sizeof *results[0]);
    be->linear_free(be, m.packed);
}
