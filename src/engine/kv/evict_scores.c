/*
 * Functions that the methods that choose by votes share: smoothing, the highest of many scores.
 *
 * Smoothing is torch's max_pool1d and avg_pool1d with stride 1 and padding k / 2 over the
 * prefix alone: entry j covers votes j - k / 2 .. j - k / 2 + k - 1 as far as they exist, and a
 * mean is divided by k even at the ends (count_include_pad). An even k would give one entry more
 * than there are rows; that one is left out.
 */
#include "kv/evict.h"

#include <string.h>

#include "base/size.h"

static float smoothed(const float *votes, size_t n, size_t j, size_t kernel, bool average)
{
    size_t before = kernel / 2, end = skv_min_size(n, j + kernel - before);
    size_t first = j > before ? j - before : 0;
    float sum = 0, most = votes[first];
    for (size_t i = first; i < end; i++) {
        sum += votes[i];
        most = votes[i] > most ? votes[i] : most;
    }
    return average ? sum / (float)kernel : most;
}

/* Smooths votes over `kernel` neighbours within [0, n). */
static void smooth(float *votes, size_t n, size_t kernel, bool average, float *scratch)
{
    if (kernel <= 1 || n == 0) return;
    memcpy(scratch, votes, n * sizeof *votes);
    for (size_t j = 0; j < n; j++) votes[j] = smoothed(scratch, n, j, kernel, average);
}

void skv_evict_score_smoothed(const skv_evict_slot *slot, size_t head)
{
    smooth(slot->votes + head * slot->stride, skv_evict_prefix(slot, head), slot->how->kernel,
           slot->how->average, slot->scratch);
}

void skv_evict_share_equally(const skv_evict_slot *slot, size_t *n_kept)
{
    size_t budget = slot->how->capacity - slot->how->window;
    for (size_t h = 0; h < slot->n_heads; h++) {
        n_kept[h] = skv_min_size(budget, skv_evict_prefix(slot, h));
    }
}

/* ---- the highest of many ---- */

/* Floats that are not negative compare as their bits do; a NaN, as above them all. */
static uint32_t order_of(float score)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = score};
    return v.u & 0x7fffffffu;
}

/* How many scores agree with `bits` above `shift` + 8, by their 8 bits from `shift` on. */
static void count_digits(const float *scores, size_t n, uint32_t bits, unsigned shift,
                         size_t counts[256])
{
    for (size_t i = 0; i < n; i++) {
        uint32_t order = order_of(scores[i]);
        if (shift < 24 && order >> (shift + 8) != bits >> (shift + 8)) continue;
        counts[order >> shift & 255u]++;
    }
}

/* Digit by digit from the highest: which value the n-th highest score has. */
skv_evict_limit skv_evict_find_limit(const float *const *scores, const size_t *n, size_t n_lists,
                                     size_t n_chosen)
{
    union {
        uint32_t u;
        float f;
    } value = {.u = 0};
    size_t left = n_chosen;
    for (unsigned shift = 32; shift > 0 && n_chosen > 0;) {
        size_t counts[256] = {0}, digit = 255;
        shift -= 8;
        for (size_t i = 0; i < n_lists; i++) {
            count_digits(scores[i], n[i], value.u, shift, counts);
        }
        while (digit > 0 && counts[digit] < left) left -= counts[digit--];
        value.u |= (uint32_t)digit << shift;
    }
    return (skv_evict_limit){value.f, left};
}

void skv_evict_top(const float *scores, size_t n, size_t n_kept, uint32_t *kept)
{
    if (n_kept == 0) return;
    skv_evict_limit limit = skv_evict_find_limit(&scores, &n, 1, n_kept);
    size_t n_equal = limit.n_equal, n_done = 0;
    uint32_t order = order_of(limit.score);
    for (size_t i = 0; i < n && n_done < n_kept; i++) {
        uint32_t own = order_of(scores[i]);
        if (own < order || (own == order && n_equal == 0)) continue;
        if (own == order) n_equal--;
        kept[n_done++] = (uint32_t)i;
    }
}
