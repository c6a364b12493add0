/* What the host learns of logits: see check_backend.h. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "check_backend_impl.h"

enum { DRAWS = 24, IDS = 5, MOST_CHANGED = 12, N_ROWS = 3, WISHES = 6 };

/* ---- rows ---- */

typedef enum row_kind { NORMAL, PEAKED, TIES, STEPS, ODD, NOTHING, ROW_KINDS } row_kind;

/* ODD has infinities and NaN among its numbers; NOTHING is minus infinity. */
static void fill(backend_check *c, float *x, size_t n, row_kind kind)
{
    for (size_t i = 0; i < n; i++) {
        const double z = check_normal(c);
        x[i] = (float)(kind == PEAKED ? 2 * z + (i % 53 == 5 ? 12 : 0) : z);
        if (kind == TIES) x[i] = (float)check_below(c, 4) - 2;
        if (kind == STEPS) x[i] = 1 + (float)check_below(c, 900) * FLT_EPSILON;
        if (kind == NOTHING || (kind == ODD && check_one_in(c, 5))) x[i] = -HUGE_VALF;
        if (kind == ODD && check_one_in(c, 7)) x[i] = (float)NAN;
        if (kind == ODD && check_one_in(c, 300)) x[i] = HUGE_VALF;
    }
}

/* ---- what is right, in double ---- */

typedef struct token {
    int32_t id;
    double logit, p;
} token;

static int by_rank(const void *a, const void *b)
{
    const token *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* All but NaN, the largest first. */
static size_t rank(const float *x, size_t n, token *out)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] == x[i]) out[n_out++] = (token){(int32_t)i, (double)x[i], 0};
    }
    qsort(out, n_out, sizeof *out, by_rank);
    return n_out;
}

static bool has(const uint32_t *mask, size_t i)
{
    return !mask || mask[i / 32] >> i % 32 & 1;
}

/* to [n] = what is left of x; with the held ids, or without them. */
static void leave(const float *x, size_t n, const skv_pick_row *p, bool holds, float *to)
{
    for (size_t i = 0; i < n; i++) to[i] = has(p->mask, i) ? x[i] : -HUGE_VALF;
    for (size_t i = 0; i < p->n_biases; i++) to[p->biases[i].id] += p->biases[i].bias;
    for (size_t i = 0; i < p->n_penalties; i++) {
        const skv_penalty *seen = &p->penalties[i];
        const double r = p->sampling->repetition_penalty, y = (double)to[seen->id];
        const double once = seen->n_generated > 0 ? p->sampling->presence_penalty : 0;
        to[seen->id] = (float)((y > 0 ? y / r : y * r) - once -
                               p->sampling->frequency_penalty * (double)seen->n_generated);
    }
    for (size_t i = 0; holds && i < 2; i++) {
        for (size_t k = 0; k < p->n_held[i]; k++) {
            const int32_t id = p->held[i][k];
            if (id >= 0 && (size_t)id < n) to[id] = -HUGE_VALF;
        }
    }
}

/* Of ranked tokens [n] those that the options leave, with what each has of 1; *sure: no rounding of
 * sums could leave another one. */
static size_t keep(token *all, size_t n, const skv_sampling *s, bool *sure)
{
    double total = 0, kept = 0;
    size_t n_left = 0, n_kept = 0;
    *sure = true;
    for (; n_left < n && (s->top_k == 0 || n_left < s->top_k); n_left++) {
        const double p = exp((all[n_left].logit - all[0].logit) / s->temperature);
        if (fabs(p - s->min_p) < 1e-9) *sure = false;
        if (p < s->min_p || p < 0x1p-43) break;
        total += all[n_left].p = p;
    }
    while (n_kept < n_left && (s->top_p >= 1 || kept < s->top_p * total)) {
        kept += all[n_kept++].p;
        if (s->top_p < 1 && fabs(kept - s->top_p * total) < 1e-9 * total) *sure = false;
    }
    for (size_t i = 0; i < n_kept; i++) all[i].p /= kept;
    return n_kept;
}

/* ---- what was picked ---- */

typedef struct picks {
    backend_check *c;
    skv_backend_step *step;
    check_tensor logits;
    size_t V, ld;
    skv_sampling sampling;
} picks;

static void check_candidate(const picks *k, skv_candidate got, token want)
{
    (void)check_number(k->c, 0, 1, got.id, want.id, 0);
    if (!(isinf(got.logit) && (double)got.logit == want.logit)) {
        (void)check_number(k->c, 0, 1, (double)got.logit, want.logit, 0);
    }
}

/* Weights are rounded to 2^-42 of that of the largest. */
static void check_norm_of(const picks *k, const float *x, const token *all, size_t n, double norm)
{
    double sum = 0;
    const double max = n > 0 ? all[0].logit : -HUGE_VAL;
    if (isinf(max)) {
        (void)check_number(k->c, 0, 1, norm == max, 1, 0);
        return;
    }
    for (size_t i = 0; i < k->V; i++) sum += x[i] == x[i] ? exp((double)x[i] - max) : 0;
    (void)check_number(k->c, 0, 1, norm, max + log(sum), (double)n * 0x1p-42 + 1e-12 * fabs(max));
}

/* What is told of the row as it is. */
static void check_told(const picks *k, const skv_pick_row *p, const skv_picked *got,
                       const token *all, size_t n)
{
    const float *x = k->logits.host + p->row * k->ld;
    const size_t n_top = skv_min_size(p->n_top, n);
    check_begin(k->c, "pick: top");
    if (check_number(k->c, 0, 1, (double)got->n_top, (double)n_top, 0)) {
        for (size_t i = 0; i < n_top; i++) check_candidate(k, got->top[i], all[i]);
    }
    check_begin(k->c, "pick: logits");
    for (size_t i = 0; i < p->n_ids; i++) check_same(k->c, &got->at[i], &x[p->ids[i]], sizeof *x);
    check_same(k->c, &got->logit, &x[got->id], sizeof *x);
    check_begin(k->c, "pick: norm");
    if (p->norm) check_norm_of(k, x, all, n, got->norm);
    if (!p->norm) (void)check_number(k->c, 0, 1, isnan(got->norm), 1, 0);
}

/* Picks of one row, by numbers in equal steps, draw each token as often as it has of 1, but for the
 * ends of its part. */
static void check_draws(const picks *k, const skv_picked *got, token *all, size_t n, bool greedy)
{
    bool sure = true;
    size_t n_other = 0;
    if (n == 0 || isinf(all[0].logit)) greedy = true;
    const size_t n_kept = greedy ? 1 : keep(all, n, &k->sampling, &sure);
    if (!sure) return;
    if (greedy) all[0].p = 1;
    if (n == 0) all[0].id = 0;
    check_begin(k->c, "pick: draws");
    for (size_t j = 0; j < n_kept; j++) {
        size_t n_drawn = 0;
        for (size_t i = 0; i < DRAWS; i++) n_drawn += got[i].id == all[j].id;
        (void)check_number(k->c, j, n_kept, (double)n_drawn, DRAWS * all[j].p, 1.001);
        n_other += n_drawn;
    }
    (void)check_number(k->c, 0, 1, (double)n_other, DRAWS, 0);
}

static void check_left(const picks *k, const skv_pick_row *p, const skv_picked *got, token *all,
                       float *left)
{
    const float *x = k->logits.host + p->row * k->ld;
    bool released = false;
    leave(x, k->V, p, true, left);
    size_t n = rank(left, k->V, all);
    if ((n == 0 || all[0].logit < -DBL_MAX) && p->n_held[0] + p->n_held[1] > 0) {
        leave(x, k->V, p, false, left);
        n = rank(left, k->V, all);
        released = true;
    }
    check_begin(k->c, "pick: best");
    for (size_t i = 0; i < DRAWS; i++) {
        check_candidate(k, got[i].best, n > 0 ? all[0] : (token){.logit = -HUGE_VAL});
        (void)check_number(k->c, i, DRAWS, got[i].released, released, 0);
    }
    check_draws(k, got, all, n, !p->sampling || p->sampling->temperature <= 0);
}

/* ---- wishes ---- */

static skv_sampling draw_sampling(backend_check *c, size_t V)
{
    static const double temperatures[] = {0, 0.05, 0.7, 1, 1, 90};
    static const double top_ps[] = {1, 1, 0.95, 0.5, 0.01}, min_ps[] = {0, 0, 0.05, 0.4};
    const size_t top_ks[] = {0, 0, 0, 2, 20, 256, 257, V / 2 + 2, V, V + 100};
    skv_sampling s = skv_sampling_default();
    s.temperature = temperatures[check_below(c, 6)];
    s.top_p = top_ps[check_below(c, 5)];
    s.min_p = min_ps[check_below(c, 4)];
    s.top_k = top_ks[check_below(c, 10)];
    if (check_one_in(c, 2)) s.repetition_penalty = 1.3;
    if (check_one_in(c, 2)) s.presence_penalty = 0.4;
    if (check_one_in(c, 2)) s.frequency_penalty = -0.2;
    return s;
}

/* Ids below V that differ, and how many. */
static int32_t *draw_ids(backend_check *c, size_t V, size_t most, size_t *n)
{
    *n = check_below(c, skv_min_size(most, V) + 1);
    return (int32_t *)check_ascending(c, *n, V);
}

/* Some tokens, all of them, one, or none. */
static uint32_t *draw_mask(backend_check *c, size_t V)
{
    const size_t n = skv_ceil_div(V, 32), kind = check_below(c, 4), one = check_below(c, V);
    uint32_t *bits = check_host(c, n * sizeof *bits);
    for (size_t i = 0; i < V; i++) {
        const bool may = kind == 0   ? check_one_in(c, 3)
                         : kind == 1 ? true
                         : kind == 2 ? i == one
                                     : false;
        bits[i / 32] |= (uint32_t)may << i % 32;
    }
    return bits;
}

/* Ids that may not come: the best of a row among them, if there are any, and one beyond the
 * vocabulary. */
static const int32_t *draw_held(picks *k, size_t row, size_t *n)
{
    const float *x = k->logits.host + row * k->ld;
    int32_t *ids = draw_ids(k->c, k->V, MOST_CHANGED, n), best = 0;
    for (size_t i = 1; i < k->V; i++) best = x[i] > x[best] ? (int32_t)i : best;
    if (*n > 0) ids[*n - 1] = best;
    if (*n > 1) ids[0] = check_one_in(k->c, 2) ? -1 : 1 << 30;
    return ids;
}

static void draw_changes(picks *k, skv_pick_row *p)
{
    backend_check *c = k->c;
    if (check_one_in(c, 2)) p->mask = draw_mask(c, k->V);
    if (check_one_in(c, 2)) {
        const int32_t *ids = draw_ids(c, k->V, MOST_CHANGED, &p->n_biases);
        skv_logit_bias *biases = check_host(c, p->n_biases * sizeof *biases);
        for (size_t i = 0; i < p->n_biases; i++) {
            biases[i] = (skv_logit_bias){ids[i], (float)(4 * check_normal(c))};
        }
        p->biases = biases;
    }
    if (check_one_in(c, 2)) {
        const int32_t *ids = draw_ids(c, k->V, MOST_CHANGED, &p->n_penalties);
        skv_penalty *seen = check_host(c, p->n_penalties * sizeof *seen);
        for (size_t i = 0; i < p->n_penalties; i++) {
            const uint32_t n = (uint32_t)check_between(c, 1, 4);
            seen[i] = (skv_penalty){ids[i], n, (uint32_t)check_below(c, n + 1)};
        }
        p->penalties = seen;
    }
    for (size_t i = 0; i < 2; i++) {
        if (check_one_in(c, 2)) p->held[i] = draw_held(k, p->row, &p->n_held[i]);
    }
}

static skv_pick_row draw_wish(picks *k)
{
    backend_check *c = k->c;
    skv_pick_row p = {.row = check_below(c, N_ROWS), .norm = check_one_in(c, 2)};
    k->sampling = draw_sampling(c, k->V);
    p.sampling = &k->sampling;
    if (check_one_in(c, 2)) p.n_top = check_below(c, CHECK_PICK_TOP + 1);
    p.ids = draw_ids(c, k->V, IDS, &p.n_ids);
    if (check_one_in(c, 3)) return p;
    draw_changes(k, &p);
    return p;
}

/* The lists of a wish are gone when the call has returned; those of all its draws are the same. */
static skv_pick_row lend(backend_check *c, const skv_pick_row *p, size_t V)
{
    skv_pick_row out = *p;
    out.ids = check_list(c, p->ids, p->n_ids * sizeof *p->ids);
    out.mask = check_list(c, p->mask, skv_ceil_div(V, 32) * sizeof *p->mask);
    out.biases = check_list(c, p->biases, p->n_biases * sizeof *p->biases);
    out.penalties = check_list(c, p->penalties, p->n_penalties * sizeof *p->penalties);
    for (size_t i = 0; i < 2; i++) {
        out.held[i] = check_list(c, p->held[i], p->n_held[i] * sizeof *p->held[i]);
    }
    out.sampling = check_list(c, p->sampling, sizeof *p->sampling);
    return out;
}

static void begin_step(backend_check *c, skv_backend_step *step)
{
    const skv_backend_span span = {.n = 1};
    const skv_attention_item item = {.n_q = 1};
    const skv_set_spec all = {.n_rows = 1, .items = &item, .n_items = 1};
    const skv_backend_step_spec spec = {
        .spans = &span,
        .n_spans = 1,
        .sets = {[SKV_SET_ALL] = all, [SKV_SET_KEPT] = all, [SKV_SET_WANTED] = {.n_rows = 1}}};
    check_begin_described(c, step, &spec);
}

/* In one call, or in several of a step: where there is one pick, all threads may share its row. The
 * last one, of another row, leaves those before as they are. */
static void pick(picks *k, const skv_pick_row *p, skv_picked *out)
{
    backend_check *c = k->c;
    skv_backend *be = check_backend_of(c);
    const skv_pick_row lent = lend(c, p, k->V);
    skv_pick_row all[DRAWS + 1];
    const size_t most = check_one_in(c, 2) ? 1 : check_between(c, 1, DRAWS);
    const skv_rows logits = check_rows(k->logits, k->ld);
    for (size_t i = 0; i < DRAWS; i++) {
        all[i] = lent;
        all[i].u = ((double)i + 0.5) / DRAWS;
    }
    all[DRAWS] = lent;
    all[DRAWS].row = (lent.row + 1) % N_ROWS;
    for (size_t i = 0, n; i <= DRAWS; i += n) {
        n = skv_min_size(most, DRAWS + 1 - i);
        be->pick(be, k->step, logits, k->V, check_list(c, all + i, n * sizeof *all), n, i);
    }
    check_done(c);
    for (size_t i = 0; i < DRAWS; i++) out[i] = be->picked(be, k->step, i);
    (void)be->picked(be, k->step, DRAWS);
}

static void check_wish(picks *k)
{
    backend_check *c = k->c;
    skv_picked got[DRAWS];
    const skv_pick_row p = draw_wish(k);
    token *all = check_host(c, k->V * sizeof *all);
    float *left = check_host(c, k->V * sizeof *left);
    check_begin(c, "pick");
    pick(k, &p, got);
    const size_t n = rank(k->logits.host + p.row * k->ld, k->V, all);
    for (size_t i = 0; i < DRAWS; i++) check_told(k, &p, &got[i], all, n);
    check_left(k, &p, got, all, left);
}

void check_pick(backend_check *c)
{
    static const size_t sizes[] = {1, 2, 31, 63, 64, 65, 129, 300, 1000, CHECK_VOCAB};
    picks k = {.c = c, .V = sizes[check_below(c, sizeof sizes / sizeof *sizes)]};
    const row_kind kind = (row_kind)check_below(c, ROW_KINDS);
    k.ld = k.V + check_below(c, 9);
    k.logits = check_random(c, N_ROWS * k.ld, 1);
    fill(c, k.logits.host, k.logits.n, kind);
    check_put(c, k.logits);
    k.step = check_new_step(c, 0);
    begin_step(c, k.step);
    for (size_t i = 0; i < WISHES; i++) check_wish(&k);
}
