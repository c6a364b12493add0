/*
 * Linear attention: conv, scan and their states, by recurrences in double precision, row by row.
 *
 * Several sequences are read twice, each time in other random steps: with drafts that are taken
 * back, in states that held NaN before, and with states copied, or written and read, in between.
 * Every result must be near the recurrence, and have the same bits both times; where the back end
 * does not promise that for any cuts, half of the cases have short spans alone, and the others may
 * differ by rounding. Rows are floats or
 * activations. What these cannot hold the recurrence does not get, and all between is f32, so a
 * result is rounded once more at most.
 */
#include <math.h>
#include <string.h>

#include "check_backend_impl.h"

enum { SEQUENCES = 3, LENGTH = 80, STATES = 2 * SEQUENCES, UNDO = 20, SHORT = 15 };

/* Inputs of a row, one after the other. */
typedef struct widths {
    size_t q, k, v, gate; /* scan: gate is that of a and of b */
    size_t conv;          /* x of the convolution */
} widths;

typedef struct rows {
    float *q, *k, *v, *a, *b, *x, *gate; /* [*, width]; gate is that of x */
} rows;

/* A sequence, and what its rows give. */
typedef struct sequence {
    size_t n, at, state;
    rows in;
    double *want, *bound, *conv, *conv_bound; /* [n, v], [n, conv] */
    float *got, *conv_got;                    /* of the first reading */
    bool *has;                                /* [n] */
} sequence;

/* Rows of a step that are a sequence's. */
typedef struct state_span {
    size_t state, row0, n, n_past, n_undo;
} state_span;

typedef struct mixer {
    backend_check *c;
    skv_state_layer layer;
    skv_states *states;
    widths w;
    size_t max_undo;
    check_tensor rate, dt_bias, skip, weight, bias; /* skip.n, bias.n 0: none */
    float dt_min, dt_max, write_max;
    bool silu;
    bool same_bits; /* both readings have */
    size_t longest; /* span */
    /* Of the convolution; n 0: none. Rows of gate_out and newest are equal. */
    check_tensor gate_in, gate_out, newest;
    size_t column0;
    sequence s[SEQUENCES];
    /* A step. */
    size_t T, n_spans, n_rows;
    skv_backend_step *step;
    state_span spans[SEQUENCES];
    size_t i_sequence[SEQUENCES];
    uint32_t rows[CHECK_ROWS];  /* wanted */
    uint32_t given[CHECK_ROWS]; /* to the convolution: those that somebody needs, and some others */
    size_t n_given;
    bool all_given;
    bool in_place; /* the convolution */
    rows host;
    check_tensor q, k, v, a, b, x, out, y;
} mixer;

static float *floats(backend_check *c, size_t n)
{
    return check_host(c, n * sizeof(float));
}

static float *random_floats(backend_check *c, size_t n)
{
    float *x = floats(c, n);
    for (size_t i = 0; i < n; i++) x[i] = (float)check_normal(c);
    return x;
}

/* ---- what is right ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double norm_of(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Head h of a sequence. S is at most `size` long, and has errors of at most `error`: rows shrink
 * both as they shrink S, since I - beta k k^T lengthens nothing for beta from 0 to 2. */
static void expect_head(const mixer *m, sequence *s, size_t h)
{
    const skv_state_layer *l = &m->layer;
    const size_t dk = l->key_dim, dv = l->value_dim, group = l->n_value_heads / l->n_key_heads;
    const size_t kh = l->tiled ? h % l->n_key_heads : h / group;
    const bool delta = l->kind == SKV_SCAN_GATED_DELTA;
    double *S = check_host(m->c, dk * dv * sizeof *S), size = 0, error = 0;
    for (size_t t = 0; t < s->n; t++) {
        const float *q = s->in.q + t * m->w.q + kh * dk, *k = s->in.k + t * m->w.k + kh * dk;
        const float *v = s->in.v + t * m->w.v + h * dv;
        const double lq = norm_of(q, dk), lk = norm_of(k, dk), lv = norm_of(v, dv);
        const double fq = delta ? 1 / sqrt(lq * lq + 1e-6) / sqrt((double)dk) : 1;
        const double fk = delta ? 1 / sqrt(lk * lk + 1e-6) : 1;
        double dt = (double)s->in.a[t * m->w.gate + h] + (double)m->dt_bias.host[h];
        dt = dt > 30 ? dt : log1p(exp(dt));
        if (!delta) dt = fmax(dt, (double)m->dt_min);
        if (!delta && m->dt_max > 0) dt = fmin(dt, (double)m->dt_max);
        const double alpha = exp((double)m->rate.host[h] * dt);
        const double beta =
            delta ? (double)m->write_max * sigmoid((double)s->in.b[t * m->w.gate + h]) : dt;
        const double part = (double)(dk + 40) * CHECK_F32;
        size = alpha * size + beta * lv * lk * fk;
        error = alpha * error + part * size;
        for (size_t c = 0; c < dv; c++) {
            double r = 0, o = 0;
            for (size_t d = 0; d < dk; d++) r += alpha * S[d * dv + c] * (double)k[d] * fk;
            const double u = beta * ((double)v[c] - (delta ? r : 0));
            for (size_t d = 0; d < dk; d++) {
                S[d * dv + c] = alpha * S[d * dv + c] + (double)k[d] * fk * u;
                o += S[d * dv + c] * (double)q[d] * fq;
            }
            const double skip = m->skip.n ? (double)m->skip.host[h] * (double)v[c] : 0;
            s->want[t * m->w.v + h * dv + c] = o + skip;
            s->bound[t * m->w.v + h * dv + c] =
                2 * lq * fq * (error + part * size) + CHECK_F32 * fabs(skip);
        }
    }
}

static void expect_conv(const mixer *m, sequence *s)
{
    const size_t n = m->w.conv, K = m->layer.conv_taps;
    for (size_t i = 0; i < s->n * n; i++) {
        const size_t t = i / n, c = i % n;
        double sum = m->bias.n ? (double)m->bias.host[c] : 0, size = fabs(sum);
        for (size_t j = 0; j < K; j++) {
            if (t + j + 1 < K) continue;
            const size_t at = (t + j + 1 - K) * n + c;
            double x = (double)s->in.x[at] * (m->gate_in.n ? (double)s->in.gate[at] : 1);
            if (j + 1 == K && m->newest.n) x = (double)m->newest.host[c];
            sum += (double)m->weight.host[j * n + c] * x;
            size += fabs((double)m->weight.host[j * n + c] * x);
        }
        const double factor = m->gate_out.n ? (double)m->gate_out.host[c] : 1;
        s->conv[i] = factor * (m->silu ? sum * sigmoid(sum) : sum);
        s->conv_bound[i] = (double)(K + 9) * CHECK_F32 * 1.2 * size * fabs(factor);
    }
}

/* ---- cases ---- */

static rows inputs(const mixer *m, size_t n)
{
    rows r = {random_floats(m->c, n * m->w.q),    random_floats(m->c, n * m->w.k),
              random_floats(m->c, n * m->w.v),    random_floats(m->c, n * m->w.gate),
              random_floats(m->c, n * m->w.gate), random_floats(m->c, n * m->w.conv),
              random_floats(m->c, n * m->w.conv)};
    for (size_t i = 0; i < n * m->w.gate; i++) { /* decays and writes that are all or nothing */
        if (check_one_in(m->c, 12)) r.a[i] *= 40;
        if (check_one_in(m->c, 12)) r.b[i] *= 40;
    }
    return r;
}

static void draw_layer(backend_check *c, mixer *m)
{
    static const size_t dims[] = {1, 16, 20, 31, 48, 64};
    const size_t nk = check_between(c, 1, 3), nv = nk * check_between(c, 1, 3);
    m->layer = (skv_state_layer){
        .kind = check_one_in(c, 2) ? SKV_SCAN_GATED_DELTA : SKV_SCAN_MAMBA2,
        .n_key_heads = nk,
        .n_value_heads = nv,
        .key_dim = dims[check_below(c, 6)],
        .value_dim = check_between(c, 1, 50),
        .tiled = check_one_in(c, 2),
        .conv_columns = check_one_in(c, 4) ? check_between(c, 500, 1100) : check_between(c, 1, 70),
        .conv_taps = check_between(c, 1, SKV_CONV_TAPS_MAX)};
    m->w = (widths){nk * m->layer.key_dim, nk * m->layer.key_dim, nv * m->layer.value_dim, nv,
                    m->layer.conv_columns};
    m->column0 = check_one_in(c, 2) ? 0 : check_between(c, 1, 20);
    m->layer.conv_columns += m->column0;
    m->max_undo = check_one_in(c, 2) ? 0 : check_between(c, 1, UNDO);
}

static check_tensor equal_rows(backend_check *c, size_t n_rows, size_t n)
{
    const check_tensor t = check_operand(c, n_rows * n, 1);
    for (size_t i = n; i < t.n; i++) t.host[i] = t.host[i - n];
    check_put(c, t);
    return t;
}

static skv_rows rows_or_none(check_tensor t, size_t ld)
{
    return t.n ? check_rows(t, ld) : (skv_rows){0};
}

static void draw_weights(backend_check *c, mixer *m)
{
    const bool delta = m->layer.kind == SKV_SCAN_GATED_DELTA;
    const size_t nv = m->layer.n_value_heads, n = m->w.conv;
    m->rate = check_random(c, nv, 1);
    for (size_t i = 0; i < nv; i++) m->rate.host[i] = -fabsf(m->rate.host[i]);
    check_put(c, m->rate);
    m->dt_bias = check_random(c, nv, 2);
    if (!delta && check_one_in(c, 2)) m->skip = check_random(c, nv, 1);
    m->weight = check_random(c, m->layer.conv_taps * n, 1);
    if (check_one_in(c, 2)) m->bias = check_random(c, n, 1);
    m->silu = check_one_in(c, 2);
    if (check_one_in(c, 2)) m->gate_in = check_operand(c, CHECK_ROWS * n, 1);
    if (check_one_in(c, 2)) m->gate_out = equal_rows(c, CHECK_ROWS, n);
    if (check_one_in(c, 3)) m->newest = equal_rows(c, CHECK_ROWS, n);
    m->write_max = check_one_in(c, 2) ? 1 : 2;
    if (check_one_in(c, 2)) m->dt_min = 0.1f;
    if (check_one_in(c, 2)) m->dt_max = 1.5f;
}

/* Rows of a step; those that decide about states are floats. */
static void draw_rows(backend_check *c, mixer *m)
{
    m->q = check_operand(c, CHECK_ROWS * m->w.q, 1);
    m->k = check_operand(c, CHECK_ROWS * m->w.k, 1);
    m->v = check_operand(c, CHECK_ROWS * m->w.v, 1);
    m->a = check_random(c, CHECK_ROWS * m->w.gate, 1);
    m->b = check_random(c, CHECK_ROWS * m->w.gate, 1);
    m->x = check_operand(c, CHECK_ROWS * m->w.conv, 1);
    m->out = check_operand(c, CHECK_ROWS * m->w.v, 1);
    m->y = check_operand(c, CHECK_ROWS * m->w.conv, 1);
}

/* x [n] becomes what rows of t can hold. */
static void hold(backend_check *c, check_tensor t, float *x, size_t n)
{
    for (size_t at = 0, some; t.unit > 0 && at < n; at += some) {
        some = t.n < n - at ? t.n : n - at;
        memcpy(t.host, x + at, some * sizeof *x);
        check_put(c, t);
        memcpy(x + at, t.host, some * sizeof *x);
    }
}

static void draw_sequences(backend_check *c, mixer *m)
{
    for (size_t i = 0; i < SEQUENCES; i++) {
        sequence *s = &m->s[i];
        s->n = check_between(c, 1, LENGTH);
        s->in = inputs(m, s->n);
        hold(m->c, m->q, s->in.q, s->n * m->w.q);
        hold(m->c, m->k, s->in.k, s->n * m->w.k);
        hold(m->c, m->v, s->in.v, s->n * m->w.v);
        hold(m->c, m->x, s->in.x, s->n * m->w.conv);
        hold(m->c, m->gate_in, s->in.gate, s->n * m->w.conv);
        s->want = check_host(c, s->n * m->w.v * sizeof *s->want);
        s->bound = check_host(c, s->n * m->w.v * sizeof *s->bound);
        s->conv = check_host(c, s->n * m->w.conv * sizeof *s->conv);
        s->conv_bound = check_host(c, s->n * m->w.conv * sizeof *s->conv_bound);
        s->got = floats(c, s->n * m->w.v);
        s->conv_got = floats(c, s->n * m->w.conv);
        s->has = check_host(c, s->n * sizeof *s->has);
        for (size_t h = 0; h < m->layer.n_value_heads; h++) expect_head(m, s, h);
        expect_conv(m, s);
    }
    m->host = (rows){floats(c, CHECK_ROWS * m->w.q),
                     floats(c, CHECK_ROWS * m->w.k),
                     floats(c, CHECK_ROWS * m->w.v),
                     floats(c, CHECK_ROWS * m->w.gate),
                     floats(c, CHECK_ROWS * m->w.gate),
                     floats(c, CHECK_ROWS * m->w.conv),
                     NULL};
}

/* ---- a step ---- */

static void put_row(const mixer *m, size_t row, const rows *from, size_t i)
{
    const struct {
        float *to;
        const float *from;
        size_t n;
    } parts[] = {{m->k.host, from->k, m->w.k},
                 {m->v.host, from->v, m->w.v},
                 {m->a.host, from->a, m->w.gate},
                 {m->b.host, from->b, m->w.gate},
                 {m->x.host, from->x, m->w.conv},
                 {m->host.q, from->q, m->w.q},
                 {m->gate_in.host, from->gate, m->w.conv}};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        if (!parts[p].to) continue;
        memcpy(parts[p].to + row * parts[p].n, parts[p].from + i * parts[p].n,
               parts[p].n * sizeof(float));
    }
}

/* Adds n rows of a sequence to the step, the last `drafts` of which are others. */
static void add_span(mixer *m, size_t i_sequence, size_t n, size_t n_undo, size_t drafts)
{
    sequence *s = &m->s[i_sequence];
    m->i_sequence[m->n_spans] = i_sequence;
    m->spans[m->n_spans++] =
        (state_span){.state = s->state, .row0 = m->T, .n = n, .n_past = s->at, .n_undo = n_undo};
    for (size_t i = 0; i < n; i++) {
        const bool draft = i + drafts >= n;
        const size_t from = draft ? check_below(m->c, m->s[0].n) : s->at + i;
        put_row(m, m->T + i, draft ? &m->s[0].in : &s->in, from);
    }
    m->T += n;
}

static void choose_rows(mixer *m)
{
    m->n_rows = check_one_in(m->c, 4) ? 0 : check_between(m->c, 1, m->T);
    if (check_one_in(m->c, 2)) m->n_rows = m->T;
    const uint32_t *chosen = check_ascending(m->c, m->n_rows, m->T);
    for (size_t i = 0; i < m->n_rows; i++) {
        m->rows[i] = chosen[i];
        memcpy(m->q.host + i * m->w.q, m->host.q + chosen[i] * m->w.q, m->w.q * sizeof(float));
    }
}

/* Whether a result or a later step needs what row i of span s puts into the convolution. */
static bool is_needed(const mixer *m, const state_span *s, size_t i)
{
    const size_t before = m->layer.conv_taps - 1;
    if (i + before + s->n_undo >= s->n) return true;
    for (size_t j = 0; j < m->n_rows; j++) {
        const size_t row = m->rows[j];
        if (row >= s->row0 + i && row <= s->row0 + i + before && row < s->row0 + s->n) return true;
    }
    return false;
}

/* Rows that nobody needs may be missing: x and gate_in have the others. */
static void choose_given(mixer *m)
{
    m->all_given = m->in_place || check_one_in(m->c, 2);
    m->n_given = 0;
    for (size_t k = 0; !m->all_given && k < m->n_spans; k++) {
        const state_span *s = &m->spans[k];
        for (size_t i = 0; i < s->n; i++) {
            if (!is_needed(m, s, i) && !check_one_in(m->c, 6)) continue;
            const size_t row = s->row0 + i, n = m->w.conv;
            memmove(m->x.host + m->n_given * n, m->x.host + row * n, n * sizeof(float));
            if (m->gate_in.n) {
                memmove(m->gate_in.host + m->n_given * n, m->gate_in.host + row * n,
                        n * sizeof(float));
            }
            m->given[m->n_given++] = (uint32_t)row;
        }
    }
}

/* Without keys and values; the rows that come out are wanted. */
static void begin_step(mixer *m)
{
    backend_check *c = m->c;
    skv_backend_span spans[SEQUENCES];
    skv_attention_item items[SEQUENCES];
    for (size_t i = 0; i < m->n_spans; i++) {
        const state_span *s = &m->spans[i];
        spans[i] = (skv_backend_span){
            .n = s->n, .n_past = s->n_past, .state = s->state, .n_undo = s->n_undo};
        items[i] = (skv_attention_item){s->row0, s->n, s->n_past, i, false};
    }
    const skv_attention_item *lent = check_list(c, items, m->n_spans * sizeof *items);
    const skv_set_spec all = {NULL, m->T, lent, m->n_spans};
    const uint32_t *wanted = check_list(c, m->rows, m->n_rows * sizeof *m->rows);
    const uint32_t *given = check_list(c, m->given, m->n_given * sizeof *m->given);
    const skv_backend_step_spec spec = {
        .spans = check_list(c, spans, m->n_spans * sizeof *spans),
        .n_spans = m->n_spans,
        .sets = {all, all, {wanted, m->n_rows, NULL, 0}, {given, m->n_given, NULL, 0}}};
    check_begin_described(c, m->step, &spec);
}

static void run_step(mixer *m)
{
    backend_check *c = m->c;
    skv_backend *be = check_backend_of(c);
    choose_rows(m);
    m->in_place =
        m->n_rows == m->T && m->x.unit <= m->y.unit && m->y.unit <= m->x.unit && check_one_in(c, 2);
    choose_given(m);
    const check_tensor *const in[] = {&m->q, &m->k, &m->v, &m->a, &m->b, &m->x};
    for (size_t i = 0; i < 6; i++) check_put(c, *in[i]);
    if (m->gate_in.n) check_put(c, m->gate_in);
    begin_step(m);
    const skv_row_set set = m->n_rows == m->T && check_one_in(c, 2) ? SKV_SET_ALL : SKV_SET_WANTED;
    check_begin(c, "conv");
    be->conv(be, &(skv_conv_args){.step = m->step,
                                  .set = set,
                                  .states = m->states,
                                  .column0 = m->column0,
                                  .n = m->w.conv,
                                  .given = m->all_given ? SKV_SET_ALL : SKV_SET_TAPS,
                                  .x = check_rows(m->x, m->w.conv),
                                  .gate_in = rows_or_none(m->gate_in, m->w.conv),
                                  .newest = rows_or_none(m->newest, m->w.conv),
                                  .y = check_rows(m->in_place ? m->x : m->y, m->w.conv),
                                  .gate_out = rows_or_none(m->gate_out, m->w.conv),
                                  .weight = check_vec(m->weight),
                                  .bias = m->bias.n ? check_vec(m->bias) : (skv_vec){0},
                                  .silu = m->silu});
    check_begin(c, "scan");
    be->scan(be, &(skv_scan_args){.step = m->step,
                                  .set = set,
                                  .states = m->states,
                                  .q = check_rows(m->q, m->w.q),
                                  .k = check_rows(m->k, m->w.k),
                                  .v = check_rows(m->v, m->w.v),
                                  .decay = check_rows(m->a, m->w.gate),
                                  .write = check_rows(m->b, m->w.gate),
                                  .out = check_rows(m->out, m->w.v),
                                  .rate = check_vec(m->rate),
                                  .dt_bias = check_vec(m->dt_bias),
                                  .skip = m->skip.n ? check_vec(m->skip) : (skv_vec){0},
                                  .dt_min = m->dt_min,
                                  .dt_max = m->dt_max,
                                  .write_max = m->write_max});
    check_end_step(c, m->step);
}

/* The results of a row, as t holds them, near `want`, and equal to `before` if that is known. */
static void check_result(backend_check *c, check_tensor t, const float *got, size_t n,
                         const double *want, const double *bound, float *before, bool known)
{
    for (size_t i = 0; i < n; i++) {
        const double most = bound[i] + t.unit * (fabs(want[i]) + bound[i]) + 1e-30;
        if (!check_number(c, i, n, (double)got[i], want[i], most)) return;
    }
    if (known) check_same(c, got, before, n * sizeof *got);
    memcpy(before, got, n * sizeof *got);
}

/* `drafts` are the rows at the end of each span that are not its sequence's. */
static void check_step(mixer *m, const size_t *drafts)
{
    float *out = floats(m->c, CHECK_ROWS * m->w.v), *y = floats(m->c, CHECK_ROWS * m->w.conv);
    const check_tensor at = m->in_place ? m->x : m->y;
    if (m->n_rows > 0) {
        check_get(m->c, check_rows(m->out, m->w.v), m->n_rows, m->w.v, out);
        check_get(m->c, check_rows(at, m->w.conv), m->n_rows, m->w.conv, y);
    }
    for (size_t i = 0; i < m->n_rows; i++) {
        size_t k = 0;
        while (m->rows[i] >= m->spans[k].row0 + m->spans[k].n) k++;
        const size_t in_span = m->rows[i] - m->spans[k].row0;
        if (in_span + drafts[k] >= m->spans[k].n) continue;
        sequence *s = &m->s[m->i_sequence[k]];
        const size_t t = m->spans[k].n_past + in_span, v = m->w.v, conv = m->w.conv;
        check_begin(m->c, "scan");
        check_result(m->c, m->out, out + i * v, v, s->want + t * v, s->bound + t * v,
                     s->got + t * v, s->has[t] && m->same_bits);
        check_begin(m->c, "conv");
        check_result(m->c, at, y + i * conv, conv, s->conv + t * conv, s->conv_bound + t * conv,
                     s->conv_got + t * conv, s->has[t]);
        s->has[t] = true;
    }
}

/* Rows of some sequences. */
static void step(mixer *m)
{
    backend_check *c = m->c;
    size_t drafts[SEQUENCES] = {0}, first = check_below(c, SEQUENCES);
    m->T = m->n_spans = 0;
    for (size_t k = 0; k < SEQUENCES; k++) {
        sequence *s = &m->s[(first + k) % SEQUENCES];
        const size_t room = CHECK_ROWS / SEQUENCES * (k + 1) - m->T;
        if (s->at == s->n || check_one_in(c, 4)) continue;
        const size_t left = s->n - s->at < room ? s->n - s->at : room;
        const size_t most_rows = left < m->longest ? left : m->longest;
        const size_t n = check_one_in(c, 2) ? 1 : check_between(c, 1, most_rows);
        size_t most = m->max_undo < n ? m->max_undo : n;
        const size_t n_undo = check_below(c, most + 1);
        drafts[m->n_spans] = check_below(c, n_undo + 1);
        add_span(m, (first + k) % SEQUENCES, n, n_undo, drafts[m->n_spans]);
    }
    if (m->T == 0) return;
    run_step(m);
    check_step(m, drafts);
    for (size_t k = 0; k < m->n_spans; k++) {
        m->s[m->i_sequence[k]].at += m->spans[k].n - drafts[k];
    }
}

/* ---- states ---- */

static void check_state(mixer *m, size_t i, const unsigned char *want, size_t n_bytes)
{
    skv_backend *be = check_backend_of(m->c);
    unsigned char *got = check_host(m->c, n_bytes);
    be->state_read(be, got, m->states, i);
    check_same(m->c, got, want, n_bytes);
}

/* A sequence goes on in another state, which is given its own by one way or the other. */
static void move_state(mixer *m, sequence *s, size_t n_bytes, const unsigned char *zeros)
{
    skv_backend *be = check_backend_of(m->c);
    const size_t to = (s->state + SEQUENCES) % STATES;
    if (check_one_in(m->c, 2)) {
        be->state_copy(be, m->states, to, m->states, s->state);
    } else {
        unsigned char *host = check_host(m->c, n_bytes);
        be->state_read(be, host, m->states, s->state);
        check_begin(m->c, "state_write");
        const bool written = be->state_write(be, m->states, to, host, s->at);
        check_number(m->c, 0, 1, written, 1, 0);
        check_number(m->c, 0, 1, be->state_write(be, m->states, s->state, host, s->n + 1000), 0, 0);
        check_state(m, s->state, zeros, n_bytes);
    }
    s->state = to;
}

/* Every state holds NaN. */
static void spoil_states(mixer *m)
{
    const double nan = (double)NAN;
    for (size_t i = 0; i < STATES; i++) {
        m->T = m->n_spans = 0;
        m->s[0].state = i;
        m->s[0].at = 0;
        add_span(m, 0, 33, 0, 33);
        for (size_t d = 0; d < m->T * m->w.v; d++) m->v.host[d] = (float)nan;
        for (size_t d = 0; d < m->T * m->w.conv; d++) m->x.host[d] = (float)nan;
        run_step(m);
    }
}

void check_states(backend_check *c)
{
    mixer *m = check_host(c, sizeof *m);
    skv_backend *be = check_backend_of(c);
    skv_error err;
    m->c = c;
    m->step = check_new_step(c, 0);
    draw_layer(c, m);
    draw_weights(c, m);
    m->same_bits = (be->promises & SKV_PROMISE_CUTS) || check_one_in(c, 2);
    m->longest = m->same_bits && !(be->promises & SKV_PROMISE_CUTS) ? SHORT : LENGTH;
    const skv_states_spec spec = {&m->layer, 1, STATES, m->max_undo, false};
    const size_t n_bytes = skv_bytes_sum(be->states_bytes(be, &spec)) / STATES;
    check_begin(c, "states_create");
    if (be->states_create(be, &spec, &m->states, &err) != SKV_OK) {
        check_same(c, err.text, "states", 1);
        return;
    }
    unsigned char *zeros = check_host(c, n_bytes);
    be->state_read(be, zeros, m->states, 0);
    draw_rows(c, m);
    draw_sequences(c, m);
    spoil_states(m);
    check_begin(c, "state_clear");
    be->state_clear(be, m->states, STATES - 1);
    check_state(m, STATES - 1, zeros, n_bytes);
    for (int reading = 0; reading < 2; reading++) {
        for (size_t i = 0; i < SEQUENCES; i++) {
            m->s[i].at = 0;
            m->s[i].state = reading == 0 ? i : STATES - 1 - i;
        }
        for (int i_step = 0; i_step < 25; i_step++) {
            step(m);
            sequence *s = &m->s[check_below(c, SEQUENCES)];
            if (i_step % 10 == 4 && s->at > 0) move_state(m, s, n_bytes, zeros);
        }
    }
    be->states_free(be, m->states);
}
