/* Picks from rows of logits against a plain look at a sorted row: all results are the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cuda_case.h"
#include "kernels/logits.h"

enum { CASES = 14, WISHES = 3, MOST_CHANGED = 9, LENGTH_MAX = 4500, TOP_MAX = 40 };

static const double LOG2_E = 1.4426950408889634;

/* A wish, with lists of the host. */
typedef struct wish {
    skv_cuda_wish w; /* the device's */
    float *x;        /* [n] */
    uint32_t *may, *held;
    skv_cuda_bias *biases;
    skv_cuda_penalty *penalties;
    int32_t *ids;
    bool masked, holds;
} wish;

/* ---- rows ---- */

/* Normal numbers, ties with zeros of both signs, close neighbours, odd ones, minus infinity. */
static float random_logit(cuda_case *c, size_t kind, float normal)
{
    switch (kind) {
    case 0: return normal;
    case 1: return cuda_one_in(c, 2) ? (float)cuda_below(c, 4) - 2 : -0.0F;
    case 2: return 3 + (float)cuda_below(c, 900) * 0x1p-22F;
    case 3:
        if (cuda_one_in(c, 4)) return (float)NAN;
        return cuda_one_in(c, 900) ? HUGE_VALF : cuda_one_in(c, 5) ? -HUGE_VALF : normal;
    default: return cuda_one_in(c, 3) ? (float)NAN : -HUGE_VALF;
    }
}

static uint32_t *random_bits(cuda_case *c, size_t n, size_t one_in)
{
    uint32_t *bits = cuda_host(c, skv_ceil_div(n, 32) * sizeof *bits);
    for (size_t i = 0; i < n; i++) bits[i / 32] |= (uint32_t)cuda_one_in(c, one_in) << i % 32;
    return bits;
}

static void random_changes(cuda_case *c, wish *t, size_t n)
{
    const size_t n_changed = cuda_below(c, skv_min_size(MOST_CHANGED, n) + 1);
    t->biases = cuda_host(c, MOST_CHANGED * sizeof *t->biases);
    t->penalties = cuda_host(c, MOST_CHANGED * sizeof *t->penalties);
    t->w.n_biases = (uint32_t)n_changed;
    t->w.n_penalties = (uint32_t)n_changed;
    t->w.repetition = 1.3, t->w.presence = 0.4, t->w.frequency = -0.2;
    for (size_t i = 0; i < n_changed; i++) { /* an id may have several biases */
        const int32_t id = (int32_t)(i * (n / n_changed));
        const int32_t other = cuda_one_in(c, 2) ? id : (int32_t)cuda_below(c, n);
        t->biases[i] = (skv_cuda_bias){other, (float)cuda_below(c, 7) - 3.1F};
        t->penalties[i] = (skv_cuda_penalty){id, 3, (uint32_t)i % 3};
    }
    t->w.biases = cuda_upload(c, t->biases, MOST_CHANGED * sizeof *t->biases);
    t->w.penalties = cuda_upload(c, t->penalties, MOST_CHANGED * sizeof *t->penalties);
    if (n_changed > 0) t->w.changed = cuda_device(c, n * sizeof(float));
}

static void random_options(cuda_case *c, wish *t, size_t n)
{
    static const double temperatures[] = {0, 0.05, 0.8, 1, 1, 70}, top_ps[] = {1, 1, 0.9, 0.3};
    const size_t top_ks[] = {0, 0, 3, 300, n / 2 + 1, n + 9};
    const double temperature = temperatures[cuda_below(c, 6)];
    t->w.factor = temperature > 0 ? LOG2_E / temperature : 0;
    t->w.top_p = top_ps[cuda_below(c, 4)];
    t->w.top_k = (uint32_t)top_ks[cuda_below(c, 6)];
    t->w.least = cuda_one_in(c, 3) ? SKV_LOGIT_ONE / 16 : 1;
    t->w.u = (double)cuda_below(c, 1000) / 1000;
    t->w.norm = cuda_one_in(c, 2);
    t->w.n_top = (uint32_t)cuda_below(c, TOP_MAX);
    t->w.n_ids = (uint32_t)cuda_below(c, MOST_CHANGED);
}

static wish random_wish(cuda_case *c, size_t n)
{
    wish t = {.x = cuda_normals(c, n, 2), .masked = cuda_one_in(c, 3), .holds = cuda_one_in(c, 3)};
    const size_t kind = cuda_below(c, 12);
    for (size_t i = 0; i < n; i++) t.x[i] = random_logit(c, kind < 5 ? kind : 0, t.x[i]);
    random_options(c, &t, n);
    t.ids = cuda_host(c, MOST_CHANGED * sizeof *t.ids);
    for (size_t i = 0; i < MOST_CHANGED; i++) t.ids[i] = (int32_t)cuda_below(c, n);
    t.may = random_bits(c, n, 1 + cuda_below(c, 3));
    t.held = random_bits(c, n, cuda_one_in(c, 2) ? 1 : 5); /* all of them, or some */
    if (cuda_one_in(c, 2)) random_changes(c, &t, n);
    t.w.x = cuda_upload(c, t.x, n * sizeof *t.x);
    t.w.ids = cuda_upload(c, t.ids, MOST_CHANGED * sizeof *t.ids);
    t.w.at = cuda_device(c, MOST_CHANGED * sizeof(float));
    t.w.top = cuda_device(c, TOP_MAX * sizeof *t.w.top);
    if (t.masked) t.w.may = cuda_upload(c, t.may, skv_ceil_div(n, 32) * sizeof *t.may);
    if (t.holds) t.w.held = cuda_upload(c, t.held, skv_ceil_div(n, 32) * sizeof *t.held);
    return t;
}

/* ---- what is right ---- */

static bool has(const uint32_t *bits, size_t i)
{
    return bits[i / 32] >> i % 32 & 1;
}

static void leave(const wish *t, size_t n, bool holds, float *to)
{
    for (size_t i = 0; i < n; i++) to[i] = !t->masked || has(t->may, i) ? t->x[i] : -HUGE_VALF;
    for (size_t i = 0; i < t->w.n_biases; i++) to[t->biases[i].id] += t->biases[i].bias;
    for (size_t i = 0; i < t->w.n_penalties; i++) {
        const skv_cuda_penalty *p = &t->penalties[i];
        double x = (double)to[p->id];
        x = x > 0 ? x / t->w.repetition : x * t->w.repetition;
        if (p->n_generated > 0) x -= t->w.presence;
        to[p->id] = (float)(x - t->w.frequency * p->n_generated);
    }
    for (size_t i = 0; holds && i < n; i++) to[i] = has(t->held, i) ? -HUGE_VALF : to[i];
}

static int by_rank(const void *a, const void *b)
{
    const skv_cuda_candidate *x = a, *y = b;
    if (x->logit > y->logit || x->logit < y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* All but NaN. */
static size_t rank(const float *x, size_t n, skv_cuda_candidate *to)
{
    size_t n_ranked = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isnan(x[i])) to[n_ranked++] = (skv_cuda_candidate){(int32_t)i, x[i]};
    }
    qsort(to, n_ranked, sizeof *to, by_rank);
    return n_ranked;
}

static uint64_t weight(const wish *t, float max, float x)
{
    const skv_logit_scale scale = {.max = max, .factor = t->w.factor};
    const uint64_t w = skv_logit_weight(&scale, x);
    return w >= t->w.least ? w : 0;
}

/* Of ranked tokens; the one at place u of the sum by id. */
static int32_t draw(cuda_case *c, const wish *t, const skv_cuda_candidate *all, size_t n_all,
                    size_t n)
{
    uint64_t total = 0, kept = 0, at, *by_id = cuda_host(c, n * sizeof *by_id);
    if (t->w.top_k > 0) n_all = skv_min_size(n_all, t->w.top_k);
    for (size_t i = 0; i < n_all; i++) total += weight(t, all[0].logit, all[i].logit);
    const double share = ceil((double)total * t->w.top_p);
    uint64_t need = share < (double)total ? (uint64_t)share : total;
    need += need == 0;
    for (size_t i = 0; i < n_all && kept < need; i++) {
        kept += by_id[all[i].id] = weight(t, all[0].logit, all[i].logit);
    }
    at = (uint64_t)((double)kept * t->w.u);
    at = at < kept ? at : kept - 1;
    for (size_t i = 0;; i++) {
        if (at < by_id[i]) return (int32_t)i;
        at -= by_id[i];
    }
}

static bool same_top(cuda_case *c, const wish *t, const skv_cuda_pick *got,
                     const skv_cuda_candidate *all, size_t n_all)
{
    const size_t n_top = skv_min_size(t->w.n_top, n_all);
    skv_cuda_candidate *top = cuda_download(c, t->w.top, TOP_MAX * sizeof *top);
    if (got->n_top != n_top) return false;
    qsort(top, n_top, sizeof *top, by_rank);
    for (size_t i = 0; i < n_top; i++) {
        if (by_rank(&top[i], &all[i]) != 0) return false;
    }
    return true;
}

static void check_wish(cuda_case *c, const wish *t, const skv_cuda_pick *got, size_t n)
{
    skv_cuda_candidate *all = cuda_host(c, n * sizeof *all);
    float *left = cuda_host(c, n * sizeof *left);
    const float *at = cuda_download(c, t->w.at, MOST_CHANGED * sizeof *at);
    size_t n_all = rank(t->x, n, all), n_wrong = 0;
    cuda_none(c, "the largest", !same_top(c, t, got, all, n_all));
    for (size_t i = 0; i < t->w.n_ids; i++) {
        n_wrong += memcmp(&at[i], &t->x[t->ids[i]], sizeof *at) != 0;
    }
    cuda_none(c, "logits of ids", n_wrong);
    if (t->w.norm && n_all > 0 && isfinite(all[0].logit)) {
        const skv_logit_scale scale = {.max = all[0].logit, .factor = LOG2_E};
        uint64_t sum = 0;
        for (size_t i = 0; i < n_all; i++) sum += skv_logit_weight(&scale, all[i].logit);
        cuda_none(c, "the norm", got->norm_sum != sum);
    }
    leave(t, n, t->holds, left);
    n_all = rank(left, n, all);
    const bool released =
        t->holds && (n_all == 0 || isinf(all[0].logit)) && (n_all == 0 || all[0].logit < 0);
    if (released) {
        leave(t, n, false, left);
        n_all = rank(left, n, all);
    }
    const skv_cuda_candidate best = n_all ? all[0] : (skv_cuda_candidate){0, -HUGE_VALF};
    const bool greedy = !(t->w.factor > 0) || !isfinite(best.logit);
    const int32_t id = greedy ? best.id : draw(c, t, all, n_all, n);
    cuda_none(c, "released", (got->released != 0) != released);
    cuda_none(c, "the best", by_rank(&got->best, &best) != 0);
    cuda_none(c, "the token", got->id != id);
    cuda_none(c, "its logit", memcmp(&got->logit, &t->x[id], sizeof *t->x) != 0);
}

static void check_picks(cuda_case *c)
{
    static const size_t lengths[] = {1, 2, 31, 33, 511, 700, 2049, LENGTH_MAX};
    const size_t n = lengths[cuda_below(c, sizeof lengths / sizeof *lengths)];
    wish wishes[WISHES];
    skv_cuda_wish lent[WISHES];
    for (size_t i = 0; i < WISHES; i++) lent[i] = (wishes[i] = random_wish(c, n)).w;
    const skv_cuda_pick_args a = {.wishes = cuda_upload(c, lent, sizeof lent),
                                  .out = cuda_device(c, WISHES * sizeof(skv_cuda_pick)),
                                  .n = (uint32_t)n};
    device_launch(SKV_CUDA_skv_pick_rows,
                  (device_grid){.x = WISHES, .shared = SKV_CUDA_PICK_SHARED}, &a);
    const skv_cuda_pick *got = cuda_download(c, a.out, WISHES * sizeof *got);
    for (size_t i = 0; i < WISHES; i++) check_wish(c, &wishes[i], &got[i], n);
}

void check_cuda_picks(cuda_case *c)
{
    c->what = "picks";
    for (int i = 0; i < CASES; i++) {
        check_picks(c);
        cuda_case_end(c);
    }
}
