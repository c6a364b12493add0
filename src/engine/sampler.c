/*
 * Choosing a token from logits: penalties, temperature, top-k, min-p, top-p, and a draw.
 *
 * The order is that of the common servers: penalties on logits, then temperature, then top-k on
 * the sorted candidates, min-p against the best, top-p on what is left. One uniform number is
 * drawn for every token that is not greedy, so a seed gives the same tokens again.
 */
#include <math.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "common/sampling_fields.h"
#include "engine/engine.h"
#include "model/forward.h"

typedef struct candidate {
    int32_t id;
    float logit;
} candidate;

typedef struct recent_token {
    int32_t id;
    bool generated;
} recent_token;

struct skv_sampler {
    skv_sampling s;
    size_t vocab;
    skv_rng rng;
    candidate *candidates; /* owned, [vocab] */
    double *weights;       /* owned, [vocab] */
    uint32_t *seen;        /* owned, [vocab]: times in prompt and answer; NULL: no penalties */
    uint32_t *generated;   /* owned, [vocab]: times in the answer; NULL likewise */
    /* The tokens of a penalty window, the oldest at i_recent once it is full. */
    recent_token *recent; /* owned, [s.penalty_window]; NULL: penalties look at all tokens */
    size_t n_recent, i_recent;
};

static bool has_penalties(const skv_sampling *s)
{
    return s->penalty_window != 0 &&
           (s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0);
}

/* Tokens of the window; 0: there is none. */
static size_t window_of(const skv_sampling *s)
{
    return has_penalties(s) && s->penalty_window > 0 ? (size_t)s->penalty_window : 0;
}

size_t skv_sampler_bytes(const skv_sampling *sampling, size_t vocab)
{
    size_t each = sizeof(candidate) + sizeof(double);
    if (has_penalties(sampling)) each += 2 * sizeof(uint32_t);
    return sizeof(skv_sampler) + vocab * each + window_of(sampling) * sizeof(recent_token);
}

skv_status skv_sampler_create(const skv_sampling *sampling, size_t vocab, skv_sampler **out,
                              skv_error *err)
{
    SKV_TRY(skv_sampling_check(sampling, err));
    skv_sampler *sampler = skv_alloc_zero(1, sizeof *sampler);
    SKV_REQUIRE(sampler, err, SKV_MEMORY, "sampler: no memory");
    sampler->s = *sampling;
    sampler->vocab = vocab;
    skv_rng_init(&sampler->rng, sampling->seed);
    sampler->candidates = skv_alloc(vocab, sizeof *sampler->candidates);
    sampler->weights = skv_alloc(vocab, sizeof *sampler->weights);
    bool ok = sampler->candidates && sampler->weights;
    if (has_penalties(sampling)) {
        sampler->seen = skv_alloc_zero(vocab, sizeof *sampler->seen);
        sampler->generated = skv_alloc_zero(vocab, sizeof *sampler->generated);
        ok = ok && sampler->seen && sampler->generated;
    }
    if (window_of(sampling) > 0) {
        sampler->recent = skv_alloc(window_of(sampling), sizeof *sampler->recent);
        ok = ok && sampler->recent;
    }
    if (!ok) {
        skv_sampler_free(sampler);
        return skv_fail(err, SKV_MEMORY, "sampler: no memory for a vocabulary of %zu", vocab);
    }
    *out = sampler;
    return SKV_OK;
}

void skv_sampler_free(skv_sampler *sampler)
{
    if (!sampler) return;
    skv_free(sampler->candidates);
    skv_free(sampler->weights);
    skv_free(sampler->seen);
    skv_free(sampler->generated);
    skv_free(sampler->recent);
    skv_free(sampler);
}

/* What leaves the window counts no more. */
static void push_recent(skv_sampler *sampler, recent_token token)
{
    const size_t window = (size_t)sampler->s.penalty_window;
    recent_token *slot = &sampler->recent[sampler->i_recent];
    if (sampler->n_recent < window) {
        sampler->n_recent++;
    } else {
        sampler->seen[slot->id]--;
        if (slot->generated) sampler->generated[slot->id]--;
    }
    *slot = token;
    sampler->i_recent = (sampler->i_recent + 1) % window;
}

void skv_sampler_accept(skv_sampler *sampler, int32_t id, bool generated)
{
    if (!sampler->seen || id < 0 || (size_t)id >= sampler->vocab) return;
    sampler->seen[id]++;
    if (generated) sampler->generated[id]++;
    if (sampler->recent) push_recent(sampler, (recent_token){id, generated});
}

static void apply_penalties(const skv_sampler *sampler, float *logits)
{
    if (!sampler->seen) return;
    const skv_sampling *s = &sampler->s;
    for (size_t i = 0; i < sampler->vocab; i++) {
        if (sampler->seen[i] == 0) continue;
        double x = (double)logits[i];
        x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
        if (sampler->generated[i] > 0) x -= s->presence_penalty;
        x -= s->frequency_penalty * (double)sampler->generated[i];
        logits[i] = (float)x;
    }
}

/* True when a stands before b: larger logit, lower id among equals. */
static bool before(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(candidate *heap, size_t n, size_t i)
{
    for (;;) {
        size_t best = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
            if (before(heap[child], heap[best])) best = child;
        }
        if (best == i) return;
        candidate moved = heap[i];
        heap[i] = heap[best];
        heap[best] = moved;
        i = best;
    }
}

/* Takes the first of a heap of *n candidates. */
static candidate pop(candidate *heap, size_t *n)
{
    candidate first = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    return first;
}

static void make_heap(skv_sampler *sampler, const float *logits)
{
    const size_t V = sampler->vocab;
    for (size_t i = 0; i < V; i++) sampler->candidates[i] = (candidate){(int32_t)i, logits[i]};
    for (size_t i = V / 2; i-- > 0;) sift_down(sampler->candidates, V, i);
}

/*
 * Candidates leave a heap in order of probability, so only as many are sorted as are kept. The
 * j-th one taken is put behind the shrinking heap: it stands at V - 1 - j.
 */
static size_t take_best(skv_sampler *sampler, const float *logits)
{
    const skv_sampling *s = &sampler->s;
    size_t V = sampler->vocab, n_heap = V, n_kept = 0;
    size_t max_kept = s->top_k > 0 ? skv_min_size(s->top_k, V) : V;
    make_heap(sampler, logits);
    double best = (double)sampler->candidates[0].logit, kept = 0;
    /* With top_k, top_p is a share of what top_k leaves, known only when all are taken. */
    double enough = HUGE_VAL;
    if (s->top_p < 1 && max_kept == V) {
        enough = 0;
        for (size_t i = 0; i < V; i++) {
            double p = exp(((double)logits[i] - best) / s->temperature);
            if (p >= s->min_p) enough += s->top_p * p;
        }
    }
    while (n_kept < max_kept && kept < enough) {
        candidate c = pop(sampler->candidates, &n_heap);
        double p = exp(((double)c.logit - best) / s->temperature);
        /* Tokens with logits of minus infinity are forbidden, not unlikely. */
        if (n_kept > 0 && (p < s->min_p || p == 0)) break;
        sampler->candidates[n_heap] = c;
        sampler->weights[n_kept++] = p;
        kept += p;
    }
    return n_kept;
}

/* The same where nothing is cut off: candidates leave the heap until the number that was drawn is
 * used up, which is mostly after a few, instead of all of them. */
static int32_t sample_from_all(skv_sampler *sampler, const float *logits)
{
    size_t n_heap = sampler->vocab;
    make_heap(sampler, logits);
    const double best = (double)sampler->candidates[0].logit, t = sampler->s.temperature;
    double all = 0;
    for (size_t i = 0; i < sampler->vocab; i++) all += exp(((double)logits[i] - best) / t);
    double u = skv_rng_uniform(&sampler->rng) * all;
    int32_t id = sampler->candidates[0].id;
    while (n_heap > 0) {
        const candidate c = pop(sampler->candidates, &n_heap);
        const double p = exp(((double)c.logit - best) / t);
        if (!(p > 0)) break; /* forbidden, and so is all that follows */
        id = c.id;
        if (u < p) break;
        u -= p;
    }
    return id;
}

static int32_t sample(skv_sampler *sampler, const float *logits)
{
    const skv_sampling *s = &sampler->s;
    if (s->top_k == 0 && s->top_p >= 1 && s->min_p <= 0) return sample_from_all(sampler, logits);
    size_t n_taken = take_best(sampler, logits), n_kept = 0;
    double taken = 0, kept = 0;
    for (size_t i = 0; i < n_taken; i++) taken += sampler->weights[i];
    bool cut = s->top_k > 0 && s->top_p < 1;
    while (n_kept < n_taken && (!cut || kept < s->top_p * taken)) {
        kept += sampler->weights[n_kept++];
    }
    double u = skv_rng_uniform(&sampler->rng) * kept;
    size_t j = 0;
    while (j + 1 < n_kept && u >= sampler->weights[j]) u -= sampler->weights[j++];
    return sampler->candidates[sampler->vocab - 1 - j].id;
}

int32_t skv_sampler_choose(skv_sampler *sampler, float *logits)
{
    apply_penalties(sampler, logits);
    if (sampler->s.temperature == 0 || sampler->s.top_k == 1 || sampler->s.top_p == 0) {
        return (int32_t)skv_logits_best(logits, sampler->vocab);
    }
    return sample(sampler, logits);
}
