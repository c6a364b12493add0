/* Logits of two engines on the same prompt: how far are they apart? */
#ifndef SKV_TESTS_SCORED_PROMPT_H
#define SKV_TESTS_SCORED_PROMPT_H

#include <math.h>
#include <string.h>

#include "open_engine.h"

enum { N_PROMPT = 150, N_SCORED = 12, VOCAB_MAX = 3072 };

typedef struct logits_row {
    float *at; /* [n] */
    size_t n;
} logits_row;

static inline void copy_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    logits_row *to = user;
    (void)i_span;
    (void)i_token;
    memcpy(to->at, logits, to->n * sizeof *logits);
}

/** Logits of a prompt's last token, and of the N_SCORED that follow one by one. */
static inline void score_prompt(skv_engine *engine, float *logits)
{
    int32_t ids[N_PROMPT + N_SCORED];
    const size_t V = skv_engine_vocab(engine);
    skv_error err;
    make_repeating_ids(ids, N_PROMPT + N_SCORED, V);
    skv_sequence *s = new_sequence(engine);
    const skv_prompt_options options = {.logits = logits};
    if (skv_prompt(engine, s, ids, N_PROMPT, &options, &err) != SKV_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < N_SCORED; i++) {
        const skv_span span = {s, ids + N_PROMPT + i, 1, SKV_WANT_LAST};
        logits_row to = {logits + (i + 1) * V, V};
        assert_int_equal(skv_step(engine, &span, 1, copy_logits, &to, &err), SKV_OK);
    }
    skv_sequence_free(s);
}

/** Root mean square of a - b, as a part of the deviation of b. */
static inline double logits_difference(const float *a, const float *b, size_t n)
{
    double mean = 0, between = 0, own = 0;
    for (size_t i = 0; i < n; i++) mean += (double)b[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        between += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        own += ((double)b[i] - mean) * ((double)b[i] - mean);
    }
    return sqrt(between / own);
}

#endif
