/*
 * Picks from rows of logits: a block of the device looks at a row for one wish, and the host gets
 * the numbers it asked for. Lists of wishes are copied to pinned memory, from which they go to the
 * device at once with those of up to SKV_CUDA_PICKS wishes. Results come back at the first look at
 * one.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"
#include "kernels/kernels.h"

enum { ALIGNMENT = 64 };

static const double LOG2_E = 1.4426950408889634, FACTOR_MAX = 0x1p900;

/* ---- results of a step ---- */

/* A pick that is to come. */
typedef struct asked {
    size_t top, at; /* where its numbers begin */
    bool norm;
} asked;

/* The device's lists follow each other in `device`, and so do the host's. */
struct skv_cuda_picks {
    skv_cuda_pick *device; /* owned: [max_picks], then: */
    skv_cuda_candidate *device_top;
    float *device_at;    /* [max_numbers] */
    skv_cuda_pick *host; /* owned, pinned: [max_picks], then: */
    skv_candidate *top;
    float *at;    /* [max_numbers] */
    asked *asked; /* [max_picks] owned */
    size_t n, n_top, n_at;
    size_t max_picks, max_numbers;
    bool there; /* the host has them */
};

/* Where the lists begin; returns their bytes. */
static size_t lay_out(const skv_backend_step_limits *limits, size_t *top, size_t *at)
{
    *top = skv_round_up(limits->max_picks * sizeof(skv_cuda_pick), ALIGNMENT);
    *at = *top + skv_round_up(limits->max_numbers * sizeof(skv_candidate), ALIGNMENT);
    return *at + limits->max_numbers * sizeof(float);
}

skv_bytes skv_cuda_picks_bytes(const skv_backend_step_limits *limits)
{
    size_t top, at;
    const size_t n = lay_out(limits, &top, &at);
    return (skv_bytes){.device = n,
                       .host = n + limits->max_picks * sizeof(asked) + sizeof(skv_cuda_picks)};
}

void skv_cuda_picks_free(skv_cuda_backend *be, skv_cuda_picks *picks)
{
    if (!picks) return;
    skv_cuda_delete(&be->device, picks->device);
    skv_cuda_host_delete(&be->device, picks->host);
    skv_free(picks->asked);
    skv_free(picks);
}

static skv_status take_lists(skv_cuda_backend *be, skv_cuda_picks *picks,
                             const skv_backend_step_limits *limits, skv_error *err)
{
    size_t top, at;
    void *device = NULL, *host = NULL;
    const size_t n = lay_out(limits, &top, &at);
    picks->asked = skv_alloc_zero(limits->max_picks, sizeof *picks->asked);
    SKV_REQUIRE(picks->asked, err, SKV_MEMORY, "a step: out of memory");
    SKV_TRY(skv_cuda_new(&be->device, n, &device, err));
    picks->device = device;
    picks->device_top = (void *)((unsigned char *)device + top);
    picks->device_at = (void *)((unsigned char *)device + at);
    SKV_TRY(skv_cuda_host_new(&be->device, n, &host, err));
    picks->host = host;
    picks->top = (void *)((unsigned char *)host + top);
    picks->at = (void *)((unsigned char *)host + at);
    return SKV_OK;
}

skv_status skv_cuda_picks_create(skv_cuda_backend *be, const skv_backend_step_limits *limits,
                                 skv_cuda_picks **out, skv_error *err)
{
    skv_cuda_picks *picks = skv_alloc_zero(1, sizeof *picks);
    SKV_REQUIRE(picks, err, SKV_MEMORY, "a step: out of memory");
    *picks = (skv_cuda_picks){.max_picks = limits->max_picks, .max_numbers = limits->max_numbers};
    const skv_status status = take_lists(be, picks, limits, err);
    if (status != SKV_OK) {
        skv_cuda_picks_free(be, picks);
        return status;
    }
    *out = picks;
    return SKV_OK;
}

/* ---- lists of wishes ---- */

static size_t mask_bytes(size_t V)
{
    return skv_ceil_div(V, 32) * sizeof(uint32_t);
}

/* The most that a wish for a row of V logits takes. */
static size_t most_of(size_t V)
{
    return sizeof(skv_cuda_wish) + V * sizeof(skv_penalty) + 2 * mask_bytes(V) +
           SKV_PICK_BIASES_MAX * sizeof(skv_logit_bias) + SKV_PICK_IDS_MAX * sizeof(int32_t) +
           6 * (size_t)ALIGNMENT;
}

/* Room for two of the largest and as many of the smallest as are picked at a time. */
size_t skv_cuda_wishes_bytes(size_t vocab)
{
    if (vocab == 0) return 0;
    return skv_round_up(SKV_CUDA_PICKS * sizeof(skv_cuda_wish), ALIGNMENT) + 2 * most_of(vocab);
}

/* Copies a list (NULL: zeros) to the next place; *device: where the device will have it. */
static void *add_list(skv_cuda_backend *be, const void *list, size_t n_bytes, const void **device)
{
    unsigned char *to = be->host_wishes + be->n_wishes;
    if (list) {
        memcpy(to, list, n_bytes);
    } else {
        memset(to, 0, n_bytes);
    }
    *device = be->wishes + be->n_wishes;
    be->n_wishes += skv_round_up(n_bytes, ALIGNMENT);
    assert(be->n_wishes <= skv_cuda_wishes_bytes(be->limits.vocab));
    return to;
}

/* The bits of the held ids that the row has. */
static const uint32_t *add_held(skv_cuda_backend *be, const skv_pick_row *p, size_t V)
{
    const void *device;
    if (p->n_held[0] + p->n_held[1] == 0) return NULL;
    uint32_t *bits = add_list(be, NULL, mask_bytes(V), &device);
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < p->n_held[i]; k++) {
            const int32_t id = p->held[i][k];
            if (id >= 0 && (size_t)id < V) bits[id / 32] |= UINT32_C(1) << id % 32;
        }
    }
    return device;
}

static void set_draw(skv_cuda_wish *w, const skv_pick_row *p)
{
    const skv_sampling *s = p->sampling;
    if (!s) return;
    w->repetition = s->repetition_penalty;
    w->presence = s->presence_penalty;
    w->frequency = s->frequency_penalty;
    if (skv_sampling_is_greedy(s)) return;
    const double least = ceil(s->min_p * (double)SKV_LOGIT_ONE);
    w->factor = fmin(LOG2_E / s->temperature, FACTOR_MAX);
    w->least = least > 1 ? (uint64_t)least : 1;
    w->top_k = (uint32_t)skv_min_size(s->top_k, UINT32_MAX);
    w->top_p = s->top_p;
    w->u = p->u;
}

/* A wish of the batch, number i of it, for x; its lists go to pinned memory. */
static skv_cuda_wish lend(skv_cuda_backend *be, const skv_pick_row *p, const float *x, size_t V,
                          size_t i)
{
    const void *may = NULL, *biases = NULL, *penalties = NULL, *ids = NULL;
    static_assert(sizeof(skv_cuda_bias) == sizeof(skv_logit_bias), "lists of biases are copied");
    static_assert(sizeof(skv_cuda_penalty) == sizeof(skv_penalty), "lists of penalties are copied");
    static_assert(sizeof(skv_cuda_candidate) == sizeof(skv_candidate), "candidates are copied");
    assert(p->n_biases <= SKV_PICK_BIASES_MAX && p->n_ids <= SKV_PICK_IDS_MAX);
    assert(p->n_penalties <= V && p->n_top <= SKV_PICK_MAX);
    if (p->mask) (void)add_list(be, p->mask, mask_bytes(V), &may);
    if (p->n_biases > 0) {
        (void)add_list(be, p->biases, p->n_biases * sizeof *p->biases, &biases);
    }
    if (p->n_penalties > 0) {
        (void)add_list(be, p->penalties, p->n_penalties * sizeof *p->penalties, &penalties);
    }
    if (p->n_ids > 0) (void)add_list(be, p->ids, p->n_ids * sizeof *p->ids, &ids);
    skv_cuda_wish w = {.x = x,
                       .may = may,
                       .held = add_held(be, p, V),
                       .biases = biases,
                       .penalties = penalties,
                       .ids = ids,
                       .n_biases = (uint32_t)p->n_biases,
                       .n_penalties = (uint32_t)p->n_penalties,
                       .n_ids = (uint32_t)p->n_ids,
                       .n_top = (uint32_t)p->n_top,
                       .norm = p->norm};
    if (p->n_biases + p->n_penalties > 0) w.changed = be->changed + i * be->limits.vocab;
    set_draw(&w, p);
    return w;
}

/* ---- the operation ---- */

static bool has_room(const skv_cuda_backend *be)
{
    const size_t all = skv_cuda_wishes_bytes(be->limits.vocab);
    return be->n_wishes + most_of(be->limits.vocab) <= all;
}

/* The results of pick i get room after those before it. */
static void take_room(skv_cuda_picks *picks, const skv_pick_row *p, size_t i, skv_cuda_wish *w)
{
    assert(i < picks->max_picks);
    assert(picks->n_top + p->n_top <= picks->max_numbers);
    assert(picks->n_at + p->n_ids <= picks->max_numbers);
    picks->asked[i] = (asked){picks->n_top, picks->n_at, p->norm};
    w->top = picks->device_top + picks->n_top;
    w->at = picks->device_at + picks->n_at;
    picks->n_top += p->n_top;
    picks->n_at += p->n_ids;
    picks->n = i + 1;
}

/* Wishes rows [n] from pick `first` on: as many as there is room for, whose number it returns.
 * Waits where lists of earlier wishes fill the memory. */
static size_t pick_some(skv_cuda_backend *be, skv_cuda_picks *picks, skv_cuda_rows logits,
                        const skv_pick_row *rows, size_t n, size_t first, size_t V)
{
    const size_t n_most = skv_min_size(n, SKV_CUDA_PICKS);
    const size_t n_bytes = skv_round_up(n_most * sizeof(skv_cuda_wish), ALIGNMENT);
    be->n_wishes += n_bytes;
    if (!has_room(be)) {
        skv_cuda_settle(&be->device);
        be->n_wishes = n_bytes;
    }
    const size_t begin = be->n_wishes - n_bytes;
    skv_cuda_wish *wishes = (void *)(be->host_wishes + begin);
    size_t i = 0;
    for (; i < n_most && has_room(be); i++) {
        const float *x = (const float *)logits.at + rows[i].row * logits.ld;
        wishes[i] = lend(be, &rows[i], x, V, i);
        take_room(picks, &rows[i], first + i, &wishes[i]);
    }
    skv_cuda_put_first(&be->device, be->wishes + begin, wishes, be->n_wishes - begin);
    const skv_cuda_pick_args args = {.wishes = (const void *)(be->wishes + begin),
                                     .out = picks->device + first,
                                     .n = (uint32_t)V};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_pick_rows,
                    (skv_cuda_grid){.x = (uint32_t)i, .shared = SKV_CUDA_PICK_SHARED}, &args);
    return i;
}

static void pick(skv_backend *base, skv_backend_step *step, skv_rows logits, size_t V,
                 const skv_pick_row *rows, size_t n, size_t first)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    skv_cuda_picks *picks = step->picks;
    assert(V >= 1 && V <= be->limits.vocab);
    if (first == 0) picks->n_top = picks->n_at = 0;
    picks->there = false;
    for (size_t i = 0; i < n;) {
        i += pick_some(be, picks, skv_cuda_rows_of(logits), rows + i, n - i, first + i, V);
    }
}

/* ---- results ---- */

static int by_rank(const void *a, const void *b)
{
    const skv_candidate *x = a, *y = b;
    if (x->logit > y->logit || x->logit < y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Waits. A device that has failed tells nothing. */
static void fetch(skv_cuda_backend *be, skv_cuda_picks *picks)
{
    skv_cuda_begin_get(&be->device, picks->top, picks->device_top,
                       picks->n_top * sizeof *picks->top);
    skv_cuda_begin_get(&be->device, picks->at, picks->device_at, picks->n_at * sizeof *picks->at);
    skv_cuda_get(&be->device, picks->host, picks->device, picks->n * sizeof *picks->host);
    be->n_wishes = 0;
    picks->there = true;
    for (size_t i = 0; i < picks->n; i++) {
        if (be->device.failed != SKV_OK) picks->host[i] = (skv_cuda_pick){.id = 0};
        qsort(picks->top + picks->asked[i].top, picks->host[i].n_top, sizeof *picks->top, by_rank);
    }
}

static double norm_of(const skv_cuda_pick *p)
{
    const double max = (double)p->norm_max;
    return isfinite(max) ? max + log((double)p->norm_sum / (double)SKV_LOGIT_ONE) : max;
}

static skv_picked picked(skv_backend *base, const skv_backend_step *step, size_t i)
{
    skv_cuda_picks *picks = step->picks;
    assert(i < picks->n);
    if (!picks->there) fetch(skv_cuda_of(base), picks);
    const skv_cuda_pick *p = &picks->host[i];
    return (skv_picked){.top = picks->top + picks->asked[i].top,
                        .n_top = p->n_top,
                        .at = picks->at + picks->asked[i].at,
                        .norm = picks->asked[i].norm ? norm_of(p) : (double)NAN,
                        .best = {p->best.id, p->best.logit},
                        .id = p->id,
                        .logit = p->logit,
                        .released = p->released};
}

void skv_cuda_fill_picks(skv_backend *table)
{
    table->pick = pick;
    table->picked = picked;
}
