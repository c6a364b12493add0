/*
 * Picking from rows of logits on the CPU: see logit_look.h for how a row is looked at.
 *
 * Each thread has a desk: a look, and room for a row where something changes it. The picks of a
 * call are dealt out to the desks; one alone is weighed by all threads. Neither changes the token
 * drawn, since weights are whole numbers.
 *
 * A row that is changed is copied in the same pass that masks it and finds the maxima of its
 * blocks. Of blocks with biases, penalties or held ids the maxima are then found again.
 */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/logit_look.h"
#include "base/size.h"
#include "kernels/logits.h"

struct skv_cpu_desk {
    skv_look look;
    float *row;      /* [limits.vocab] */
    uint32_t *stale; /* bits of blocks with maxima that are no longer right */
};

/* ---- memory ---- */

static size_t stale_words(size_t vocab)
{
    return skv_ceil_div(skv_logit_blocks(vocab), 32);
}

static size_t desk_bytes(size_t vocab)
{
    return skv_look_bytes(vocab) + skv_round_up(vocab * sizeof(float), SKV_ALIGN) +
           skv_round_up(stale_words(vocab) * sizeof(uint32_t), SKV_ALIGN);
}

static size_t desks_bytes(size_t n)
{
    return skv_round_up(n * sizeof(skv_cpu_desk), SKV_ALIGN);
}

size_t skv_cpu_pick_bytes(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    const size_t n = skv_pool_threads(be->pool);
    if (limits->vocab == 0) return 0;
    return desks_bytes(n) + n * desk_bytes(limits->vocab) +
           (n - 1) * SKV_LOGIT_BUCKETS * sizeof(uint64_t);
}

void skv_cpu_lay_out_desks(skv_cpu_backend *be, unsigned char *memory)
{
    const size_t n = skv_pool_threads(be->pool), vocab = be->limits.vocab;
    be->desks = (skv_cpu_desk *)(void *)memory;
    memory += desks_bytes(n);
    for (size_t i = 0; i < n; i++, memory += desk_bytes(vocab)) {
        skv_cpu_desk *desk = &be->desks[i];
        unsigned char *row = memory + skv_look_bytes(vocab);
        skv_look_lay_out(&desk->look, vocab, &be->kernels.logits, memory);
        desk->row = (float *)(void *)row;
        desk->stale = (uint32_t *)(void *)(row + skv_round_up(vocab * sizeof(float), SKV_ALIGN));
    }
    be->team_sums = (uint64_t *)(void *)memory;
}

/* ---- a row that is changed ---- */

static bool is_changed(const skv_pick_row *p)
{
    return p->mask || p->n_biases + p->n_penalties + p->n_held[0] + p->n_held[1] > 0;
}

/* Up to 32 logits, of which those without a bit become minus infinity. */
static void mask_word(float *to, const float *x, size_t n, uint32_t bits)
{
    if (bits == UINT32_MAX) {
        memcpy(to, x, n * sizeof *to);
        return;
    }
    for (size_t i = 0; i < n; i++) to[i] = bits >> i & 1 ? x[i] : -HUGE_VALF;
}

/* desk->row = x [n] with the mask. */
static void copy_masked(const skv_cpu_desk *desk, const float *x, size_t n, const uint32_t *mask)
{
    float *row = desk->row, *maxima = desk->look.maxima;
    if (!mask) {
        memcpy(row, x, n * sizeof *row);
        desk->look.kernels.maxima(maxima, row, n);
        return;
    }
    for (size_t b = 0; b < skv_logit_blocks(n); b++) {
        const size_t at = b * SKV_LOGIT_BLOCK, most = skv_min_size(SKV_LOGIT_BLOCK, n - at);
        bool any = false;
        for (size_t i = 0; i < most; i += 32) {
            const uint32_t bits = mask[(at + i) / 32];
            mask_word(row + at + i, x + at + i, skv_min_size(32, most - i), bits);
            any = any || bits != 0;
        }
        maxima[b] = -HUGE_VALF;
        if (any) desk->look.kernels.maxima(maxima + b, row + at, most);
    }
}

static void set(const skv_cpu_desk *desk, int32_t id, float x)
{
    const size_t b = (size_t)id / SKV_LOGIT_BLOCK;
    desk->row[id] = x;
    desk->stale[b / 32] |= UINT32_C(1) << b % 32;
}

static void find_stale_maxima(const skv_cpu_desk *desk, size_t n)
{
    for (size_t w = 0; w < stale_words(n); w++) {
        for (; desk->stale[w] != 0; desk->stale[w] &= desk->stale[w] - 1) {
            const size_t b = w * 32 + (size_t)__builtin_ctz(desk->stale[w]);
            const size_t at = b * SKV_LOGIT_BLOCK;
            desk->look.kernels.maxima(desk->look.maxima + b, desk->row + at,
                                      skv_min_size(SKV_LOGIT_BLOCK, n - at));
        }
    }
}

/* The desk looks at the changed row of x [n]; with the held ids, or without them. */
static void lay_row(skv_cpu_desk *desk, const float *x, size_t n, const skv_pick_row *p, bool holds)
{
    copy_masked(desk, x, n, p->mask);
    for (size_t i = 0; i < p->n_biases; i++) {
        const skv_logit_bias *bias = &p->biases[i];
        set(desk, bias->id, desk->row[bias->id] + bias->bias);
    }
    for (size_t i = 0; i < p->n_penalties; i++) {
        const int32_t id = p->penalties[i].id;
        set(desk, id, skv_look_penalised(p->sampling, &p->penalties[i], desk->row[id]));
    }
    for (size_t i = 0; holds && i < 2; i++) {
        for (size_t k = 0; k < p->n_held[i]; k++) {
            const int32_t id = p->held[i][k];
            if (id >= 0 && (size_t)id < n) set(desk, id, -HUGE_VALF);
        }
    }
    find_stale_maxima(desk, n);
    skv_look_at_blocks(&desk->look, desk->row, n);
}

/* ---- one pick ---- */

typedef struct pick_job {
    skv_cpu_backend *be;
    const float *x; /* [.., ld] */
    size_t ld, V;
    const skv_pick_row *rows; /* [n] */
    skv_cpu_picked *out;      /* [n] */
    size_t n;
    atomic_size_t next;
} pick_job;

/* The results that describe x as it is. */
static void tell(skv_cpu_desk *desk, const float *x, const skv_pick_row *p, skv_cpu_picked *out)
{
    if (p->norm) out->told.norm = skv_look_norm(&desk->look);
    out->told.n_top = skv_look_top(&desk->look, p->n_top, out->top);
    for (size_t i = 0; i < p->n_ids; i++) out->at[i] = x[p->ids[i]];
}

static void pick_one(const pick_job *job, skv_cpu_desk *desk, size_t i)
{
    const skv_pick_row *p = &job->rows[i];
    const float *x = job->x + p->row * job->ld;
    skv_cpu_picked *out = &job->out[i];
    const bool changed = is_changed(p);
    skv_look *look = &desk->look;
    if (!changed || p->norm || p->n_top > 0) {
        look->kernels.maxima(look->maxima, x, job->V);
        skv_look_at_blocks(look, x, job->V);
    }
    tell(desk, x, p, out);
    if (changed) lay_row(desk, x, job->V, p, true);
    if (!(look->max > -HUGE_VALF) && p->n_held[0] + p->n_held[1] > 0) {
        lay_row(desk, x, job->V, p, false);
        out->told.released = true;
    }
    out->told.best = (skv_candidate){(int32_t)look->best, look->max};
    out->told.id = (int32_t)look->best;
    if (p->sampling && !skv_sampling_is_greedy(p->sampling)) {
        out->told.id = skv_look_draw(look, p->sampling, p->u);
    }
    out->told.logit = x[out->told.id];
}

static void pick_at_desk(void *arg, size_t i_desk, size_t i_thread)
{
    pick_job *job = arg;
    (void)i_thread;
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;) {
        pick_one(job, &job->be->desks[i_desk], i);
    }
}

/* All threads weigh each row. */
static void pick_by_team(const pick_job *job)
{
    skv_cpu_desk *desk = &job->be->desks[0];
    desk->look.team =
        (skv_look_team){job->be->pool, skv_pool_threads(job->be->pool), job->be->team_sums};
    for (size_t i = 0; i < job->n; i++) pick_one(job, desk, i);
    desk->look.team = (skv_look_team){.n = 1};
}

/* ---- the operation ---- */

/* The results of these get room after those that the step has. */
static void take_room(skv_backend_step *step, const skv_pick_row *rows, size_t n, size_t first)
{
    size_t used = first == 0 ? 0 : step->n_numbers;
    assert(first + n <= step->max_picks);
    for (size_t i = 0; i < n; i++) {
        skv_cpu_picked *p = &step->picked[first + i];
        assert(rows[i].n_top <= SKV_PICK_MAX);
        assert(used + rows[i].n_top + rows[i].n_ids <= step->max_numbers);
        *p = (skv_cpu_picked){.top = step->candidates + used, .at = step->found + used};
        used += rows[i].n_top + rows[i].n_ids;
        p->told = (skv_picked){.top = p->top, .at = p->at, .norm = (double)NAN};
    }
    step->n_numbers = used;
}

void skv_cpu_pick(skv_backend *base, skv_backend_step *step, skv_rows logits, size_t V,
                  const skv_pick_row *rows, size_t n, size_t first)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    pick_job job = {.be = be,
                    .x = skv_cpu_at(logits),
                    .ld = logits.ld,
                    .V = V,
                    .rows = rows,
                    .out = step->picked + first,
                    .n = n};
    const size_t n_threads = skv_pool_threads(be->pool);
    assert(V >= 1 && V <= be->limits.vocab);
    take_room(step, rows, n, first);
    atomic_init(&job.next, 0);
    if (n_threads > 1 && n > n_threads / 2) {
        skv_pool_run(be->pool, skv_min_size(n, n_threads), pick_at_desk, &job);
    } else {
        pick_by_team(&job);
    }
}

skv_picked skv_cpu_picked_row(skv_backend *base, const skv_backend_step *step, size_t i)
{
    (void)base;
    assert(i < step->max_picks);
    return step->picked[i].told;
}
