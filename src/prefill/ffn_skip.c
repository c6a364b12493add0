/*
 * FFN-SkipLLM (arXiv:2404.03865), as SwiftKV's paper compares with it (arXiv:2410.03960, Table 2):
 * feed-forward blocks of the middle layers change a token less and less, so once one of them has
 * left the direction of its residual stream as it was, the next ones are left out. Attention runs
 * in every layer, so that keys and values are complete. The first layers and the last ones are
 * "cold": they run whole, and so do the first tokens of a sequence, which others attend to most.
 *
 *     sim = cos(x, x + FFN(x));    sim >= similarity: the token leaves out the next n_skip blocks
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cosine.h"
#include "base/size.h"
#include "prefill/gates.h"

enum { WARM_UP = 32, N_NUMBERS = 5, WARM_UP_MAX = 1 << 24, SKIP_MAX = 1 << 10 };
static const double default_from = 0.35, default_to = 0.85;

bool skv_ffn_skip_parse(const char *text, skv_ffn_skip *out)
{
    double numbers[N_NUMBERS] = {0, WARM_UP, 0, default_from, default_to};
    *out = (skv_ffn_skip){.on = false};
    if (strcmp(text, "none") == 0) return true;
    for (size_t i = 0;; i++) {
        char *end;
        if (i == N_NUMBERS) return false;
        numbers[i] = strtod(text, &end);
        if (end == text || (*end != 0 && *end != ',')) return false;
        if (*end == 0) break;
        text = end + 1;
    }
    const double warm = numbers[1], n = numbers[2];
    if (!(numbers[0] > -1 && numbers[0] <= 1)) return false;
    if (!(warm >= 0 && warm <= WARM_UP_MAX && n >= 0 && n <= SKIP_MAX)) return false;
    if (warm != floor(warm) || n != floor(n)) return false;
    if (!(numbers[3] >= 0 && numbers[3] < numbers[4] && numbers[4] <= 1)) return false;
    *out = (skv_ffn_skip){true, numbers[0], (size_t)warm, (size_t)n, numbers[3], numbers[4]};
    return true;
}

void skv_ffn_skip_print(const skv_ffn_skip *how, char out[SKV_FFN_SKIP_TEXT])
{
    if (!how->on) {
        (void)snprintf(out, SKV_FFN_SKIP_TEXT, "none");
        return;
    }
    (void)snprintf(out, SKV_FFN_SKIP_TEXT, "%g,%zu,%zu,%g,%g", how->similarity, how->warm_up,
                   how->n_skip, how->from, how->to);
}

void skv_ffn_skip_layers(const skv_ffn_skip *how, size_t n_layers, size_t *first, size_t *end)
{
    *first = (size_t)(how->from * (double)n_layers + 0.5);
    *end = (size_t)(how->to * (double)n_layers + 0.5);
}

static size_t choose(const void *user, const float *before, const float *after, size_t n)
{
    const skv_ffn_skip *how = user;
    if (skv_cosine(before, after, n) < how->similarity) return 0;
    return how->n_skip == 0 ? SIZE_MAX : how->n_skip;
}

skv_mlp_gate skv_ffn_skip_gate(const skv_ffn_skip *how, size_t n_layers)
{
    skv_mlp_gate gate = {.warm_up = how->warm_up, .choose = choose, .user = how};
    assert(how->on);
    skv_ffn_skip_layers(how, n_layers, &gate.first_layer, &gate.end_layer);
    return gate;
}
