/* The gated delta rule in training, row by row: see delta_rule.h. */
#include "train/delta_rule.h"

#include <math.h>
#include <string.h>

#define NORM_EPS 1e-6f

/* A value head of a key head, as a task goes through it. */
typedef struct head {
    const skv_delta_rule *rule;
    size_t key_head, i; /* which value head */
    float *kept;        /* of the head: [its runs, key_dim, value_dim] */
    float *states;      /* [SKV_DELTA_ROWS + 1, key_dim, value_dim]: S before each row of a run */
    float *ds;          /* [key_dim, value_dim]: the gradient by S */
    float *q, *k;       /* [key_dim]: of a row, normalised */
    float *dq, *dk;     /* [key_dim]: by these */
    float *u, *error;   /* [value_dim] */
    float *du;          /* [value_dim] */
    float alpha, beta, inverse_q, inverse_k; /* of a row; 1 / sqrt(q.q + eps), and of k */
    const float *d_o;                        /* of the backward pass, and the next */
    const skv_delta_tensors *gradients;
} head;

typedef struct job {
    const skv_delta_rule *rule;
    float *o;
    const float *d_o;
    const skv_delta_tensors *gradients;
} job;

static size_t state_floats(const skv_delta_shape *s)
{
    return s->key_dim * s->value_dim;
}

/* States that a head keeps, at most: 64 rows of the document come before each. */
static size_t kept_states(size_t n_rows)
{
    return n_rows / SKV_DELTA_ROWS;
}

size_t skv_delta_rule_kept(const skv_delta_shape *shape, size_t n_rows)
{
    return kept_states(n_rows) * shape->n_value_heads * state_floats(shape);
}

size_t skv_delta_rule_scratch(const skv_delta_shape *shape)
{
    return (SKV_DELTA_ROWS + 2) * state_floats(shape) + 4 * shape->key_dim + 3 * shape->value_dim;
}

/* Rows from `row` on that are run from one kept state. */
static size_t run_end(const skv_delta_rule *rule, size_t row)
{
    const uint32_t doc = rule->doc_start[row];
    size_t end = row;
    while (end < rule->n_rows && rule->doc_start[end] == doc && end < row + SKV_DELTA_ROWS) end++;
    return end;
}

/* ---- a row ---- */

/* Eight sums, which fill a vector register and round less than one. */
static float dot(const float *x, const float *y, size_t n)
{
    float sums[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (size_t j = 0; j < 8; j++) sums[j] += x[i + j] * y[i + j];
    }
    for (; i < n; i++) sums[0] += x[i] * y[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

static float normalise(float *y, const float *x, size_t n, float factor)
{
    const float inverse = 1.0f / sqrtf(dot(x, x, n) + NORM_EPS);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * inverse * factor;
    return inverse;
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* log alpha of row t. */
static float log_decay(const head *h, size_t t)
{
    const skv_delta_rule *r = h->rule;
    const float step = r->in.a[t * r->shape.n_value_heads + h->i] + r->in.dt_bias[h->i];
    return -expf(r->in.a_log[h->i]) * softplus(step);
}

static void load_row(head *h, size_t t)
{
    const skv_delta_rule *r = h->rule;
    const skv_delta_shape *s = &r->shape;
    const size_t at = (t * s->n_key_heads + h->key_head) * s->key_dim;
    h->inverse_q = normalise(h->q, r->in.q + at, s->key_dim, 1.0f / sqrtf((float)s->key_dim));
    h->inverse_k = normalise(h->k, r->in.k + at, s->key_dim, 1.0f);
    h->alpha = expf(log_decay(h, t));
    h->beta = s->write_max * sigmoid(r->in.b[t * s->n_value_heads + h->i]);
}

/* y [value_dim] = S^T x. */
static void read_state(const skv_delta_shape *s, float *y, const float *state, const float *x)
{
    memset(y, 0, s->value_dim * sizeof *y);
    for (size_t d = 0; d < s->key_dim; d++) {
        const float *row = state + d * s->value_dim;
        for (size_t c = 0; c < s->value_dim; c++) y[c] += x[d] * row[c];
    }
}

/* S += x y^T. */
static void add_outer(const skv_delta_shape *s, float *state, const float *x, const float *y)
{
    for (size_t d = 0; d < s->key_dim; d++) {
        float *row = state + d * s->value_dim;
        for (size_t c = 0; c < s->value_dim; c++) row[c] += x[d] * y[c];
    }
}

/* error = v - (alpha S)^T k and u = beta error, of the row that is loaded. */
static void find_update(const head *h, size_t t, const float *before)
{
    const skv_delta_shape *s = &h->rule->shape;
    const float *v = h->rule->in.v + (t * s->n_value_heads + h->i) * s->value_dim;
    read_state(s, h->error, before, h->k);
    for (size_t c = 0; c < s->value_dim; c++) {
        h->error[c] = v[c] - h->alpha * h->error[c];
        h->u[c] = h->beta * h->error[c];
    }
}

/* S after row t, from that before it. */
static void step(head *h, size_t t, float *after, const float *before)
{
    const skv_delta_shape *s = &h->rule->shape;
    load_row(h, t);
    find_update(h, t, before);
    for (size_t i = 0; i < state_floats(s); i++) after[i] = h->alpha * before[i];
    add_outer(s, after, h->k, h->u);
}

/* ---- forward ---- */

static void forward_head(head *h, float *o)
{
    const skv_delta_rule *r = h->rule;
    const skv_delta_shape *s = &r->shape;
    const size_t n = state_floats(s);
    float *state = h->states, *kept = h->kept;
    for (size_t t = 0; t < r->n_rows;) {
        if (r->doc_start[t] == t) {
            memset(state, 0, n * sizeof *state);
        } else {
            memcpy(kept, state, n * sizeof *kept);
            kept += n;
        }
        for (const size_t end = run_end(r, t); t < end; t++) {
            step(h, t, state, state);
            read_state(s, o + (t * s->n_value_heads + h->i) * s->value_dim, state, h->q);
        }
    }
}

/* ---- backward ---- */

/* The gradient by x of y = x factor / sqrt(x.x + eps), from dy. */
static void back_norm(float *dx, const float *dy, const float *y, size_t n, float inverse,
                      float factor)
{
    const float along = dot(dy, y, n) / (factor * factor);
    for (size_t i = 0; i < n; i++) dx[i] += factor * inverse * (dy[i] - y[i] * along);
}

/* By the numbers of row t that alpha and beta are made of, from d_alpha and d_beta. */
static void back_gates(const head *h, size_t t, float d_alpha, float d_beta)
{
    const skv_delta_rule *r = h->rule;
    const skv_delta_shape *s = &r->shape;
    const size_t at = t * s->n_value_heads + h->i;
    const float d_log = d_alpha * h->alpha, rate = -expf(r->in.a_log[h->i]);
    const float da = d_log * rate * sigmoid(r->in.a[at] + r->in.dt_bias[h->i]);
    h->gradients->a[at] += da;
    h->gradients->dt_bias[h->i] += da;
    h->gradients->a_log[h->i] += d_log * log_decay(h, t);
    h->gradients->b[at] += d_beta * h->beta * (1.0f - h->beta / s->write_max);
}

/*
 * Row t, from the states before and after it. h->ds is the gradient by S after it, and becomes that
 * by S before it. With S' = alpha S:
 *     dS += q do^T      dq = S do        dk = dS u          du = dS^T k       dv = beta du
 *     dk -= S' dv       dS' = dS - k dv^T                   d_alpha = <dS', S>
 */
static void back_row(head *h, size_t t, const float *before, const float *after)
{
    const skv_delta_rule *r = h->rule;
    const skv_delta_shape *s = &r->shape;
    const size_t n_v = s->value_dim, row = t * s->n_value_heads + h->i;
    const float *d_o = h->d_o + row * n_v;
    float *dv = h->du, d_alpha = 0;
    load_row(h, t);
    find_update(h, t, before);
    add_outer(s, h->ds, h->q, d_o);
    for (size_t d = 0; d < s->key_dim; d++) {
        h->dq[d] = dot(after + d * n_v, d_o, n_v);
        h->dk[d] = dot(h->ds + d * n_v, h->u, n_v);
    }
    read_state(s, h->du, h->ds, h->k);
    const float d_beta = dot(h->du, h->error, n_v);
    for (size_t c = 0; c < n_v; c++) {
        dv[c] = h->beta * h->du[c];
        h->gradients->v[row * n_v + c] += dv[c];
    }
    for (size_t d = 0; d < s->key_dim; d++) {
        float *ds = h->ds + d * n_v;
        const float *state = before + d * n_v;
        h->dk[d] -= h->alpha * dot(state, dv, n_v);
        for (size_t c = 0; c < n_v; c++) ds[c] -= h->k[d] * dv[c];
        d_alpha += dot(ds, state, n_v);
        for (size_t c = 0; c < n_v; c++) ds[c] *= h->alpha;
    }
    const size_t at = (t * s->n_key_heads + h->key_head) * s->key_dim;
    const float factor = 1.0f / sqrtf((float)s->key_dim);
    back_norm(h->gradients->q + at, h->dq, h->q, s->key_dim, h->inverse_q, factor);
    back_norm(h->gradients->k + at, h->dk, h->k, s->key_dim, h->inverse_k, 1.0f);
    back_gates(h, t, d_alpha, d_beta);
}

/* Rows [t, end), from their kept state; NULL: the document begins with them. */
static void back_run(head *h, size_t t, size_t end, const float *kept)
{
    const size_t n = state_floats(&h->rule->shape);
    const bool last = end == h->rule->n_rows || h->rule->doc_start[end] == end;
    if (last) memset(h->ds, 0, n * sizeof *h->ds);
    memset(h->states, 0, n * sizeof *h->states);
    if (kept) memcpy(h->states, kept, n * sizeof *kept);
    for (size_t i = t; i < end; i++)
        step(h, i, h->states + (i - t + 1) * n, h->states + (i - t) * n);
    for (size_t i = end; i-- > t;) {
        back_row(h, i, h->states + (i - t) * n, h->states + (i - t + 1) * n);
    }
}

/* The first row of the run that ends before row `end`. */
static size_t run_begin(const skv_delta_rule *rule, size_t end)
{
    const size_t doc = rule->doc_start[end - 1];
    return doc + (end - 1 - doc) / SKV_DELTA_ROWS * SKV_DELTA_ROWS;
}

/* States that a head keeps of these rows. */
static size_t count_kept(const skv_delta_rule *rule)
{
    size_t n = 0;
    for (size_t t = 0; t < rule->n_rows; t = run_end(rule, t)) n += rule->doc_start[t] != t;
    return n;
}

/* ---- tasks ---- */

static head head_of(const job *j, size_t key_head, size_t g, size_t i_thread)
{
    const skv_delta_shape *s = &j->rule->shape;
    const size_t group = s->n_value_heads / s->n_key_heads, n = state_floats(s);
    float *scratch = j->rule->scratch + i_thread * skv_delta_rule_scratch(s);
    head h = {.rule = j->rule, .key_head = key_head, .d_o = j->d_o, .gradients = j->gradients};
    h.i = s->tiled ? g * s->n_key_heads + key_head : key_head * group + g;
    h.kept = j->rule->kept + h.i * kept_states(j->rule->n_rows) * n;
    h.states = scratch;
    h.ds = scratch + (SKV_DELTA_ROWS + 1) * n;
    h.q = h.ds + n;
    h.k = h.q + s->key_dim;
    h.dq = h.k + s->key_dim;
    h.dk = h.dq + s->key_dim;
    h.u = h.dk + s->key_dim;
    h.error = h.u + s->value_dim;
    h.du = h.error + s->value_dim;
    return h;
}

static void forward_task(void *arg, size_t key_head, size_t i_thread)
{
    const job *j = arg;
    const skv_delta_shape *s = &j->rule->shape;
    for (size_t g = 0; g < s->n_value_heads / s->n_key_heads; g++) {
        head h = head_of(j, key_head, g, i_thread);
        forward_head(&h, j->o);
    }
}

static void backward_task(void *arg, size_t key_head, size_t i_thread)
{
    const job *j = arg;
    const skv_delta_shape *s = &j->rule->shape;
    const size_t n = state_floats(s);
    for (size_t g = 0; g < s->n_value_heads / s->n_key_heads; g++) {
        head h = head_of(j, key_head, g, i_thread);
        const float *kept = h.kept + count_kept(j->rule) * n;
        for (size_t end = j->rule->n_rows, begin; end > 0; end = begin) {
            begin = run_begin(j->rule, end);
            const bool is_first = j->rule->doc_start[begin] == begin;
            if (!is_first) kept -= n;
            back_run(&h, begin, end, is_first ? NULL : kept);
        }
    }
}

void skv_delta_rule_forward(const skv_delta_rule *rule, skv_pool *pool, float *o)
{
    job j = {.rule = rule, .o = o};
    skv_pool_run(pool, rule->shape.n_key_heads, forward_task, &j);
}

void skv_delta_rule_backward(const skv_delta_rule *rule, skv_pool *pool, const float *d_o,
                             const skv_delta_tensors *gradients)
{
    job j = {.rule = rule, .d_o = d_o, .gradients = gradients};
    skv_pool_run(pool, rule->shape.n_key_heads, backward_task, &j);
}
