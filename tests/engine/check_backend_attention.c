/* Attention and votes: see check_backend.h. */
#include <math.h>

#include "check_backend_kv.h"

/* What an arithmetic of attention may round: a part of each term, a part of the query's range, and
 * a part of each weight. */
typedef struct rounding {
    double terms, range, weights;
} rounding;

static rounding rounding_of(skv_kv_type type)
{
    if (type == SKV_KV_TYPE_F32) return (rounding){1e-6, 0, 1e-5};
    if (type == SKV_KV_TYPE_INT8) return (rounding){2.1 * CHECK_BF16, 1.05 / 254, 1.0 / 100};
    return (rounding){2.1 * CHECK_BF16, 0, 2.1 * CHECK_BF16};
}

/* One query: its scores by row, and what they may be wrong by. */
typedef struct scores {
    double at[CHECK_KV_ROWS], most, sum; /* sum: of exp(at - most), the sink included */
    double error;
} scores;

typedef struct query {
    const sequence *s;
    size_t head; /* of keys and values */
    const float *q;
    size_t begin, end; /* rows that it sees */
    float scale, softcap;
    const float *sink;
    rounding may;
} query;

static void score(const query *q, scores *out)
{
    float k[CHECK_HEAD_DIM];
    double amax = 0;
    out->most = q->sink ? (double)*q->sink : -HUGE_VAL;
    out->error = 0;
    const size_t Dh = q->s->m->head_dim;
    for (size_t d = 0; d < Dh; d++) amax = fmax(amax, fabs((double)q->q[d]));
    for (size_t r = q->begin; r < q->end; r++) {
        double value = 0, terms = 0, keys = 0;
        check_load_row(q->s, q->head, r, k, NULL);
        for (size_t d = 0; d < Dh; d++) {
            value += (double)q->q[d] * (double)k[d];
            terms += fabs((double)q->q[d] * (double)k[d]);
            keys += fabs((double)k[d]);
        }
        value *= (double)q->scale;
        out->error = fmax(out->error,
                          (double)q->scale * (q->may.terms * terms + q->may.range * amax * keys));
        if (q->softcap > 0) value = (double)q->softcap * tanh(value / (double)q->softcap);
        out->at[r] = value;
        out->most = fmax(out->most, value);
    }
    out->sum = q->sink ? exp((double)*q->sink - out->most) : 0;
    for (size_t r = q->begin; r < q->end; r++) out->sum += exp(out->at[r] - out->most);
}

static double weight_of(const scores *s, size_t r)
{
    return exp(s->at[r] - s->most) / s->sum;
}

/* The part of a weight that errors of the scores may change. */
static double weight_error(const scores *s, const rounding *may)
{
    return exp(2 * s->error) * (1 + may->weights) - 1;
}

/* out [head_dim] of one query. */
static void attend(const query *q, scores *s, double *want, double *bound)
{
    float v[CHECK_HEAD_DIM];
    const size_t Dh = q->s->m->head_dim;
    double parts[CHECK_HEAD_DIM] = {0}, amax = 0;
    score(q, s);
    for (size_t d = 0; d < Dh; d++) want[d] = 0;
    for (size_t r = q->begin; r < q->end; r++) {
        check_load_row(q->s, q->head, r, NULL, v);
        for (size_t d = 0; d < Dh; d++) {
            want[d] += weight_of(s, r) * (double)v[d];
            parts[d] += weight_of(s, r) * fabs((double)v[d]);
            amax = fmax(amax, fabs((double)v[d]));
        }
    }
    /* Weights of 8 bits are whole parts of the largest one. */
    const double whole = q->s->m->type == SKV_KV_TYPE_INT8 ? amax / 200 : 0;
    for (size_t d = 0; d < Dh; d++)
        bound[d] = weight_error(s, &q->may) * parts[d] + whole + 1e-6 * amax;
}

/* Heads and their sizes, and a q [n_rows, ld]. */
typedef struct heads {
    size_t n_kv, n_group, n, head_dim, ld;
    check_tensor q, sinks;
    bool has_sinks;
    float scale, softcap;
} heads;

static heads draw_heads(backend_check *c, size_t n_rows)
{
    heads h = {.n_kv = check_between(c, 1, KV_HEADS), .softcap = check_one_in(c, 3) ? 5 : 0};
    h.n_group = check_between(c, 1, CHECK_HEADS / h.n_kv);
    h.n = h.n_kv * h.n_group;
    h.head_dim = check_draw_head_dim(c);
    h.ld = h.n * h.head_dim + 8 * check_below(c, 4);
    h.q = check_operand(c, n_rows * h.ld, 1);
    h.has_sinks = check_one_in(c, 3);
    h.sinks = check_random(c, h.n, 1);
    h.scale = (float)(1 / sqrt((double)h.head_dim));
    return h;
}

static query query_of(const heads *h, const sequence *s, size_t row, size_t g, size_t end,
                      size_t window)
{
    return (query){.s = s,
                   .head = g / h->n_group,
                   .q = h->q.host + row * h->ld + g * h->head_dim,
                   .begin = window && end > window ? end - window : 0,
                   .end = end,
                   .scale = h->scale,
                   .softcap = h->softcap,
                   .sink = h->has_sinks ? h->sinks.host + g : NULL,
                   .may = rounding_of(s->m->type)};
}

/* A step under way, whose sequences have random keys and values. */
static step *draw_filled(backend_check *c, memory *m, bool drops)
{
    step *t = check_draw_step(c, m, 250, drops);
    for (size_t i = 0; i < t->n_spans; i++) {
        check_fill_sequence(c, t->of[i], t->spans[i].n_past + t->spans[i].n);
    }
    check_begin_step(c, t);
    return t;
}

void check_attention(backend_check *c)
{
    check_begin(c, "attention");
    skv_backend *be = check_backend_of(c);
    const heads h = draw_heads(c, CHECK_ROWS);
    const size_t window = check_one_in(c, 3) ? check_between(c, 1, 100) : 0;
    const check_tensor out = check_operand(c, CHECK_ROWS * h.ld, 1);
    double *want = check_host(c, out.n * sizeof *want),
           *bound = check_host(c, out.n * sizeof *bound);
    scores *s = check_host(c, sizeof *s);
    memory *m = check_draw_memory(c, check_draw_type(c), h.n_kv, h.head_dim);
    step *t = draw_filled(c, m, window == 0);
    for (size_t i = 0; i < out.n; i++) want[i] = (double)out.host[i];
    const skv_row_set set = check_draw_set(c, t);
    for (size_t i = 0; i < t->sets[set].n_rows; i++) {
        const size_t row = check_row_of(t, set, i);
        const sequence *seq = t->of[t->span_of[row]];
        for (size_t g = 0; g < h.n; g++) {
            const size_t end = t->place[row] + 1 - check_dropped_of(seq, g / h.n_group);
            const query q = query_of(&h, seq, i, g, end, window);
            const size_t at = i * h.ld + g * h.head_dim;
            attend(&q, s, want + at, bound + at);
        }
    }
    check_begin(c, "attention");
    const skv_attention_args args = {.step = t->at,
                                     .set = set,
                                     .out = check_rows(out, h.ld),
                                     .q = check_rows(h.q, h.ld),
                                     .slot = SLOT,
                                     .n_heads = h.n,
                                     .head_dim = h.head_dim,
                                     .window = window,
                                     .scale = h.scale,
                                     .softcap = h.softcap,
                                     .sinks = h.has_sinks ? check_vec(h.sinks) : (skv_vec){0}};
    be->attention(be, &args);
    check_near(c, out, want, bound);
}

void check_votes(backend_check *c)
{
    check_begin(c, "votes");
    skv_backend *be = check_backend_of(c);
    const heads h = draw_heads(c, CHECK_ROWS);
    const bool by_query_head = check_one_in(c, 2);
    const size_t window = check_one_in(c, 2) ? check_between(c, 1, 150) : 0;
    memory *m = check_draw_memory(c, check_draw_type(c), h.n_kv, h.head_dim);
    step *t = draw_filled(c, m, check_one_in(c, 2));
    const skv_row_set set = check_draw_set(c, t);
    const size_t n_tracks = by_query_head ? h.n : h.n_kv;
    const size_t ld = CHECK_KV_ROWS + check_below(c, 9);
    const check_tensor votes = check_random(c, n_tracks * ld, 1);
    double *want = check_host(c, votes.n * sizeof *want),
           *bound = check_host(c, votes.n * sizeof *bound);
    scores *s = check_host(c, sizeof *s);
    const size_t i_item = check_below(c, t->sets[set].n_items);
    const skv_attention_item *item = &t->sets[set].items[i_item];
    const size_t first = check_below(c, item->n_q), n_q = check_between(c, 1, item->n_q - first);
    const sequence *seq = t->of[item->span];
    for (size_t i = 0; i < votes.n; i++) votes.host[i] = (float)check_below(c, 3);
    check_put(c, votes);
    for (size_t i = 0; i < votes.n; i++) want[i] = (double)votes.host[i];
    for (size_t j = first; j < first + n_q; j++) {
        for (size_t g = 0; g < h.n; g++) {
            const size_t end = item->n_past + j + 1 - check_dropped_of(seq, g / h.n_group);
            query q = query_of(&h, seq, item->row0 + j, g, end, window);
            q.may = (rounding){1e-6, 0, 1e-5};
            score(&q, s);
            for (size_t r = q.begin; r < end; r++) {
                const size_t at = (by_query_head ? g : g / h.n_group) * ld + r;
                want[at] += weight_of(s, r);
                bound[at] += weight_error(s, &q.may) * weight_of(s, r) + 4 * CHECK_F32 * want[at];
            }
        }
    }
    check_begin(c, "votes");
    const skv_votes_args args = {.step = t->at,
                                 .set = set,
                                 .item = i_item,
                                 .first = first,
                                 .n = n_q,
                                 .q = check_rows(h.q, h.ld),
                                 .slot = SLOT,
                                 .n_heads = h.n,
                                 .head_dim = h.head_dim,
                                 .window = window,
                                 .scale = h.scale,
                                 .softcap = h.softcap,
                                 .sinks = h.has_sinks ? check_vec(h.sinks) : (skv_vec){0},
                                 .votes = check_rows(votes, ld),
                                 .by_query_head = by_query_head};
    be->votes(be, &args);
    check_near(c, votes, want, bound);
}
