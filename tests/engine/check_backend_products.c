/* Products with weight matrices: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/size.h"
#include "check_backend_kv.h"

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
    uint8_t *fp8; /* FP8: codes [N, K] of a file, with scales [N, ceil(K / fp8_group)]; or NULL */
    float *fp8_scales;
    size_t fp8_group;
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

static void read_fp8(const void *ctx, size_t row0, size_t n, uint8_t *codes, float *scales)
{
    const matrix_part *p = ctx;
    const size_t at = p->row0 + row0, K = p->m->K, n_groups = skv_ceil_div(K, p->m->fp8_group);
    memcpy(codes, p->m->fp8 + at * K, n * K);
    memcpy(scales, p->m->fp8_scales + at * n_groups, n * n_groups * sizeof *scales);
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

static void fill_fp8(backend_check *c, matrix *m)
{
    static const size_t groups[] = {32, 64, 128, SIZE_MAX};
    m->fp8_group = skv_min_size(groups[check_below(c, 4)], m->K);
    const size_t n_groups = skv_ceil_div(m->K, m->fp8_group);
    m->fp8 = check_host(c, m->N * m->K);
    m->fp8_scales = check_host(c, m->N * n_groups * sizeof *m->fp8_scales);
    for (size_t i = 0; i < m->N * n_groups; i++) {
        m->fp8_scales[i] = (float)(0.01 * (0.5 + fabs(check_normal(c))));
    }
    for (size_t i = 0; i < m->N * m->K; i++) {
        m->fp8[i] = skv_fp8_encode((float)(8 * check_normal(c)));
        m->w[i] = skv_fp8_decode(m->fp8[i]) *
                  m->fp8_scales[i / m->K * n_groups + i % m->K / m->fp8_group];
    }
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
    m->fp8 = NULL;
    if (skv_weight_is_quant(m->type)) {
        fill_codes(c, m);
    } else if (m->type == SKV_WEIGHT_FP8 && check_one_in(c, 2)) {
        fill_fp8(c, m);
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
                                      .read_codes = m->form ? read_codes : NULL,
                                      .fp8_group = m->fp8 ? m->fp8_group : 0,
                                      .read_fp8 = m->fp8 ? read_fp8 : NULL};
    }
    const skv_linear_spec spec = {m->type, sources, m->n_parts, m->K, m->paired};
    skv_error err;
    if (be->linear_create(be, &spec, &m->packed, &err) != SKV_OK) {
        m->packed = NULL;
        check_same(c, err.text, "a packed matrix", 1);
    }
}

static bool has_weights(backend_check *c, skv_weight_type type, bool expert)
{
    return expert ? check_fits_experts(c, type)
                  : check_fits(c, (skv_backend_shape){.weights = type, .kv = check_kv(c)});
}

static matrix draw_matrix(backend_check *c, bool expert)
{
    matrix m = {.w = NULL};
    do {
        m.type = (skv_weight_type)check_below(c, SKV_WEIGHT_FP8 + 1);
    } while (!has_weights(c, m.type, expert));
    m.paired = check_one_in(c, 3);
    m.exact = check_one_in(c, 2);
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
    size_t ldx, n_rows;
    step *step; /* of whose rows those of `set` are read; NULL: n_rows of them are */
    skv_row_set set;
    skv_norm norm;
    const float *weight; /* of the norm, the host's */
} inputs;

static inputs draw_inputs(backend_check *c, const matrix *m)
{
    inputs in = {.ldx = m->K + check_below(c, 30), .n_rows = check_between(c, 1, CHECK_ROWS)};
    size_t n_all = in.n_rows;
    if (check_one_in(c, 2)) {
        in.step = check_draw_step(c, check_draw_memory(c, SKV_KV_TYPE_F32, 1, 8), 100, false);
        check_begin_step(c, in.step);
        in.set = check_draw_set(c, in.step);
        in.n_rows = in.step->sets[in.set].n_rows;
        n_all = in.step->n_rows;
    }
    in.x = check_operand(c, n_all * in.ldx, 1);
    for (size_t i = 0; i < n_all; i++) fill(c, in.x.host + i * in.ldx, m->K, 1, m->exact);
    check_put(c, in.x);
    if (!m->exact) in.norm = check_norm(c, m->K, &in.weight);
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
    if (m->type == SKV_WEIGHT_FP8) /* of both: 4 bits, and a step of the least scale */
        error += 2.1 * 0x1p-4 * terms + 0x1p-18 * halves;
    else if (m->exact)
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
static void want_row(const matrix *m, const inputs *in, size_t i_x, const skv_linear_args *a,
                     size_t j0, size_t n, const float *y_host, double *want, double *bound)
{
    double x[CHECK_K], size[CHECK_K], amax = 0;
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

static const char *const linear_names[] = {"linear f32",   "linear bf16",       "linear int8",
                                           "linear quant", "linear quant, f32", "linear fp8"};

static skv_epilogue draw_epilogue(backend_check *c, const matrix *m)
{
    static const skv_epilogue of_pairs[] = {SKV_EPILOGUE_STORE, SKV_EPILOGUE_SILU_GLU,
                                            SKV_EPILOGUE_GELU_GLU, SKV_EPILOGUE_CLAMPED};
    static const skv_epilogue of_one[] = {SKV_EPILOGUE_STORE, SKV_EPILOGUE_ADD, SKV_EPILOGUE_RELU2};
    return m->paired ? of_pairs[check_below(c, 4)] : of_one[check_below(c, 3)];
}

static skv_linear_args draw_args(backend_check *c, const matrix *m, const inputs *in)
{
    return (skv_linear_args){.w = m->packed,
                             .x = check_rows(in->x, in->ldx),
                             .n_rows = in->n_rows,
                             .step = in->step ? in->step->at : NULL,
                             .set = in->set,
                             .norm = in->norm,
                             .epilogue = draw_epilogue(c, m),
                             .limit = 7,
                             .alpha = 1.702f};
}

/* Columns [j0, j0 + n) of the product, in rows of ldy numbers. */
typedef struct product_part {
    size_t j0, n, ldy;
} product_part;

static void check_product(backend_check *c, const matrix *m, const inputs *in, skv_linear_args a,
                          const product_part *p)
{
    skv_backend *be = check_backend_of(c);
    const check_tensor y = check_operand(c, in->n_rows * p->ldy, 1);
    double *want = check_host(c, y.n * sizeof *want), *bound = check_host(c, y.n * sizeof *bound);
    for (size_t i = 0; i < y.n; i++) want[i] = (double)y.host[i];
    for (size_t i = 0; i < in->n_rows; i++) {
        want_row(m, in, in->step ? check_row_of(in->step, in->set, i) : i, &a, p->j0, p->n,
                 y.host + i * p->ldy, want + i * p->ldy, bound + i * p->ldy);
    }
    a.y = check_rows(y, p->ldy);
    check_begin(c, linear_names[m->type]);
    be->linear(be, check_list(c, &a, sizeof a));
    check_done(c);
    check_near(c, y, want, bound);
}

void check_linear(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    matrix m = draw_matrix(c, false);
    check_begin(c, linear_names[m.type]);
    pack(c, &m);
    if (!m.packed) return;
    const inputs in = draw_inputs(c, &m);
    skv_linear_args a = draw_args(c, &m, &in);
    product_part p = {.n = is_of_pairs(a.epilogue) ? m.rows[0] : m.N};
    if (!m.paired && check_one_in(c, 2)) {
        a.part0 = check_below(c, m.n_parts);
        a.part1 = check_between(c, a.part0 + 1, m.n_parts);
        for (size_t i = 0; i < a.part0; i++) p.j0 += m.rows[i];
        p.n = 0;
        for (size_t i = a.part0; i < a.part1; i++) p.n += m.rows[i];
    }
    p.ldy = p.n + check_below(c, 20);
    if (check_one_in(c, 2)) p.ldy = skv_round_up(p.ldy, 8); /* as models have */
    check_product(c, &m, &in, a, &p);
    if (check_one_in(c, 2)) { /* two products that differ in the rows of y alone */
        p.ldy += 16;
        check_product(c, &m, &in, a, &p);
    }
    be->linear_free(be, m.packed);
}

/* ---- experts ---- */

enum { TERMS = CHECK_ACTIVE + 1 };

/* Which experts each row meets. */
typedef struct routes {
    size_t n_rows, n_experts, k, n_terms; /* n_terms: with the shared one */
    skv_route_args args;
    size_t chosen[CHECK_ROWS][TERMS], place[CHECK_ROWS][TERMS];
    double weights[CHECK_ROWS][TERMS];
} routes;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The experts of row i, and what they count. */
static void choose_row(routes *r, size_t i, const float *logits, const float *bias,
                       const float *scale)
{
    const skv_experts_choice *how = &r->args.how;
    double scores[CHECK_EXPERTS], all = how->sigmoid ? (double)how->eps : 0;
    bool taken[CHECK_EXPERTS] = {false};
    for (size_t e = 0; e < r->n_experts; e++) {
        const double x = (double)logits[e];
        scores[e] = how->sigmoid ? sigmoid(x) + (bias ? (double)bias[e] : 0) : x;
    }
    for (size_t j = 0; j < r->k; j++) {
        size_t best = SIZE_MAX;
        for (size_t e = 0; e < r->n_experts; e++) {
            if (!taken[e] && (best == SIZE_MAX || scores[e] > scores[best])) best = e;
        }
        taken[best] = true;
        r->chosen[i][j] = best;
        r->weights[i][j] = how->sigmoid ? sigmoid((double)logits[best]) : exp((double)logits[best]);
        if (how->sigmoid || how->renormalise) all += r->weights[i][j];
    }
    for (size_t e = 0; !how->sigmoid && !how->renormalise && e < r->n_experts; e++) {
        all += exp((double)logits[e]);
    }
    for (size_t j = 0; j < r->k; j++) {
        double *w = &r->weights[i][j];
        if (!how->sigmoid || how->renormalise) *w /= all;
        if (how->sigmoid && how->scale != 0) *w *= (double)how->scale;
        if (scale) *w *= (double)scale[r->chosen[i][j]];
    }
    if (r->args.shared) {
        r->weights[i][r->k] = r->args.shared_gate ? sigmoid((double)logits[r->n_experts]) : 1;
    }
}

static void find_places(routes *r)
{
    size_t n = 0;
    for (size_t e = 0; e < r->n_experts; e++) {
        for (size_t i = 0; i < r->n_rows; i++) {
            for (size_t j = 0; j < r->k; j++) {
                if (r->chosen[i][j] == e) r->place[i][j] = n++;
            }
        }
    }
    for (size_t i = 0; r->args.shared && i < r->n_rows; i++) r->place[i][r->k] = n++;
}

/* Scores that no rounding confuses: they are equal, or apart. A bias adds half numbers. */
static void draw_logits(backend_check *c, check_tensor t)
{
    for (size_t i = 0; i < t.n; i++) t.host[i] = (float)check_below(c, 40) / 10 - 2;
    check_put(c, t);
}

static routes *draw_routes(backend_check *c, size_t n_experts)
{
    skv_backend *be = check_backend_of(c);
    routes *r = check_host(c, sizeof *r);
    r->n_rows = check_between(c, 1, CHECK_ROWS);
    r->n_experts = n_experts;
    r->k = check_between(c, 1, skv_min_size(CHECK_ACTIVE, n_experts));
    const bool shared = check_one_in(c, 2), gated = shared && check_one_in(c, 2);
    const bool has_bias = check_one_in(c, 2), has_scale = check_one_in(c, 2);
    const size_t ld = n_experts + gated + check_below(c, 5);
    const check_tensor logits = check_random(c, r->n_rows * ld, 1);
    const check_tensor bias = check_random(c, n_experts, 1), scale = check_random(c, n_experts, 1);
    draw_logits(c, logits);
    for (size_t e = 0; e < n_experts; e++) bias.host[e] = (float)check_below(c, 4);
    check_put(c, bias);
    r->n_terms = r->k + shared;
    r->args = (skv_route_args){.logits = check_rows(logits, ld),
                               .n_rows = r->n_rows,
                               .how = {.n_experts = n_experts,
                                       .n_active = r->k,
                                       .sigmoid = check_one_in(c, 2),
                                       .renormalise = check_one_in(c, 2),
                                       .eps = check_one_in(c, 2) ? 0.125f : 0,
                                       .scale = check_one_in(c, 2) ? 2.5f : 0},
                               .bias = has_bias ? check_vec(bias) : (skv_vec){0},
                               .expert_scale = has_scale ? check_vec(scale) : (skv_vec){0},
                               .shared = shared,
                               .shared_gate = gated};
    for (size_t i = 0; i < r->n_rows; i++) {
        choose_row(r, i, logits.host + i * ld, has_bias ? bias.host : NULL,
                   has_scale ? scale.host : NULL);
    }
    find_places(r);
    be->route(be, check_list(c, &r->args, sizeof r->args));
    check_done(c);
    return r;
}

/* What the terms of each row come to, by other numbers than experts_linear makes. */
static void check_mix(backend_check *c, const routes *r)
{
    skv_backend *be = check_backend_of(c);
    const size_t n = check_between(c, 1, 200), ldx = n + check_below(c, 9);
    const check_tensor x = check_random(c, r->n_rows * ldx, 1);
    const check_tensor y = check_operand(c, r->n_rows * r->n_terms * n, 1);
    const bool store = check_one_in(c, 2);
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    for (size_t at = 0; at < x.n; at++) {
        const size_t i = at / ldx, d = at % ldx;
        want[at] = (double)x.host[at];
        if (d >= n) continue;
        double size = store ? 0 : fabs(want[at]);
        if (store) want[at] = 0;
        for (size_t j = 0; j < r->n_terms; j++) {
            const double term = r->weights[i][j] * (double)y.host[r->place[i][j] * n + d];
            want[at] += term;
            size += fabs(term);
        }
        bound[at] = (double)(r->n_experts + 16) * CHECK_F32 * size;
    }
    check_begin(c, "route and mix");
    const skv_mix_args args = {check_rows(x, ldx), check_rows(y, n), n, store};
    be->mix(be, check_list(c, &args, sizeof args));
    check_done(c);
    check_near(c, x, want, bound);
}

/* y of all pairs. */
static void check_pairs(backend_check *c, const routes *r, const matrix *m, skv_experts_args *a)
{
    skv_backend *be = check_backend_of(c);
    const skv_linear_args alike = {.epilogue = a->epilogue, .limit = 7, .alpha = 1.702f};
    const size_t n = is_of_pairs(a->epilogue) ? m[0].rows[0] : m[0].N, n_pairs = r->n_rows * r->k;
    inputs in = {.ldx = m[0].K + check_below(c, 30)};
    in.x = check_operand(c, (a->by_row ? r->n_rows : n_pairs) * in.ldx, 1);
    if (m[0].exact) {
        for (size_t i = 0; i < in.x.n / in.ldx; i++) {
            fill(c, in.x.host + i * in.ldx, m[0].K, 1, true);
        }
        check_put(c, in.x);
    } else {
        in.norm = check_norm(c, m[0].K, &in.weight);
    }
    const size_t ldy = n + check_below(c, 20);
    const check_tensor y = check_operand(c, n_pairs * ldy, 1);
    double *want = check_host(c, y.n * sizeof *want), *bound = check_host(c, y.n * sizeof *bound);
    for (size_t i = 0; i < y.n; i++) want[i] = (double)y.host[i];
    for (size_t j = 0; j < n_pairs; j++) {
        const size_t i = j / r->k, p = r->place[i][j % r->k];
        want_row(&m[r->chosen[i][j % r->k]], &in, a->by_row ? i : p, &alike, 0, n, y.host + p * ldy,
                 want + p * ldy, bound + p * ldy);
    }
    a->norm = in.norm;
    a->limit = alike.limit;
    a->alpha = alike.alpha;
    a->x = check_rows(in.x, in.ldx);
    a->y = check_rows(y, ldy);
    check_begin(c, "experts_linear");
    be->experts_linear(be, check_list(c, a, sizeof *a));
    check_done(c);
    check_near(c, y, want, bound);
}

void check_experts(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    const size_t E = check_between(c, 1, CHECK_EXPERTS);
    matrix m[CHECK_EXPERTS] = {draw_matrix(c, true)};
    const skv_linear *packed[CHECK_EXPERTS];
    skv_experts *experts = NULL;
    skv_error err;
    check_begin(c, "experts_create");
    for (size_t e = 0; e < E; e++) {
        m[e] = m[0];
        pack(c, &m[e]);
        if (!m[e].packed) return;
        packed[e] = m[e].packed;
    }
    if (be->experts_create(be, check_list(c, packed, E * sizeof(skv_linear *)), E, &experts,
                           &err) != SKV_OK) {
        check_same(c, err.text, "experts", 1);
        return;
    }
    check_done(c);
    const routes *r = draw_routes(c, E);
    for (size_t i = 0; i < 2; i++) { /* both go by one `route` */
        skv_experts_args a = {.w = experts, .by_row = check_one_in(c, 2)};
        do {
            a.epilogue = draw_epilogue(c, &m[0]);
        } while (a.epilogue == SKV_EPILOGUE_ADD);
        check_pairs(c, r, m, &a);
    }
    check_mix(c, r);
    be->experts_free(be, experts);
    for (size_t e = 0; e < E; e++) be->linear_free(be, m[e].packed);
}

/* A product of rows that were saved by way of a norm, and loaded, has the bits of that of the rows
 * themselves by way of this norm. */
void check_saved_rows(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    matrix m = draw_matrix(c, false);
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
    skv_backend_step *at = check_new_step(c, 0);
    check_begin_bare(c, at);
    be->save_rows(be, m.type, saved, check_rows(x, ldx), n, K, norm);
    check_end_step(c, at); /* now they have arrived */
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
