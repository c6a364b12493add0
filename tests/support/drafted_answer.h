/* An answer with drafts or without, for tests that compare the two. */
#ifndef SKV_TESTS_DRAFTED_ANSWER_H
#define SKV_TESTS_DRAFTED_ANSWER_H

#include "open_engine.h"
#include "skv/tools.h"

enum { N_PROMPT = 90, N_ANSWER = 60 };

typedef struct answer {
    int32_t ids[N_ANSWER];
    size_t n;
    skv_draft_counts drafts;
} answer;

static inline bool on_token(void *user, int32_t id)
{
    answer *a = user;
    a->ids[a->n++] = id;
    return true;
}

/** What follows ids [N_PROMPT], with drafts of this source or without (`how`). */
static inline answer answer_of(skv_engine *engine, const int32_t *ids, const skv_sampling *sampling,
                               const char *how)
{
    answer out = {.n = 0};
    skv_error err;
    skv_speculation speculation;
    skv_sampler *sampler = NULL;
    skv_generation_stats stats;
    skv_sequence *s = new_sequence(engine);
    assert_int_equal(skv_speculation_parse(how, &speculation, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_speculation(s, &speculation, NULL), SKV_OK);
    assert_int_equal(skv_sampler_create(sampling, skv_engine_vocab(engine), &sampler, NULL),
                     SKV_OK);
    const skv_generation g = {.max_tokens = N_ANSWER,
                              .sampler = sampler,
                              .ignore_eos = true,
                              .on_token = on_token,
                              .user = &out,
                              .stats = &stats};
    if (skv_generate(engine, s, ids, N_PROMPT, &g, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(out.n, N_ANSWER);
    assert_int_equal(skv_sequence_length(s), N_PROMPT + N_ANSWER - 1);
    assert_memory_equal(skv_sequence_ids(s) + N_PROMPT, out.ids, (N_ANSWER - 1) * sizeof *out.ids);
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        out.drafts.drafted += stats.drafts[i].drafted;
        out.drafts.accepted += stats.drafts[i].accepted;
    }
    skv_sampler_free(sampler);
    skv_sequence_free(s);
    return out;
}

#endif
