/*
 * Speculation in batches: sequences that a model drafts for share its steps and those of the
 * engine, come and go, are cancelled, and still have the bits of plain decoding alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "property_seed.h"
#include "skv/skv.h"

#define EXIT_MODEL SKV_TEST_DATA "/comparators/exit"
#define MINI SKV_TEST_DATA "/../../models/mini"

enum { N_LANES = 5, N_PROMPT = 90, N_ANSWER = 40, N_STEPS_MAX = 20 * N_ANSWER };

/* One sequence after another in a place of the batch. */
typedef struct lane {
    skv_sequence *sequence;
    size_t n_prompt;
    int32_t plain[N_ANSWER]; /* what it answers alone, without drafts */
    int32_t said[N_ANSWER];
    size_t n_said, n_wanted;
    int32_t ids[1 + SKV_DRAFT_MAX]; /* of a step */
    size_t n_right;
    bool judged;
} lane;

typedef struct batch {
    skv_engine *engine;
    const char *how;
    lane lanes[N_LANES];
    lane *of_span[N_LANES];
    skv_draft_request requests[N_LANES];
    skv_span spans[N_LANES];
    size_t n_started, n_cancelled;
    uint64_t drafted, accepted;
} batch;

static int32_t best_of(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* Prompts repeat themselves, and differ from each other. */
static void make_ids(int32_t ids[N_PROMPT], size_t i_prompt)
{
    for (size_t i = 0; i < N_PROMPT; i++) {
        ids[i] = (int32_t)((i % (13 + i_prompt) * 37 + (i % 41 == 0) + 5 + i_prompt) % 90);
    }
}

static void set_source(skv_sequence *s, const char *how)
{
    skv_speculation speculation;
    assert_int_equal(skv_speculation_parse(how, &speculation, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_speculation(s, &speculation, NULL), SKV_OK);
}

/* A new sequence that has read its prompt; its first token. */
static int32_t begin(skv_engine *engine, size_t i_prompt, size_t n_prompt, const char *how,
                     skv_sequence **out)
{
    const size_t V = skv_engine_vocab(engine);
    float *logits = calloc(V, sizeof *logits);
    int32_t ids[N_PROMPT];
    skv_error err;
    assert_non_null(logits);
    make_ids(ids, i_prompt);
    assert_int_equal(skv_sequence_create(engine, 0, out, NULL), SKV_OK);
    set_source(*out, how);
    if (skv_prompt(engine, *out, ids, n_prompt, &(skv_prompt_options){.logits = logits}, &err) !=
        SKV_OK) {
        fail_msg("%s", err.text);
    }
    const int32_t first = best_of(logits, V);
    free(logits);
    return first;
}

typedef struct row {
    skv_engine *engine;
    int32_t best;
} row;

static void take_best(void *user, size_t i_span, size_t i_token, const float *logits)
{
    row *r = user;
    (void)i_span;
    (void)i_token;
    r->best = best_of(logits, skv_engine_vocab(r->engine));
}

/* Alone, a token a step. */
static void answer_plainly(skv_engine *engine, size_t i_prompt, lane *l)
{
    skv_sequence *s;
    row r = {engine, begin(engine, i_prompt, l->n_prompt, "none", &s)};
    for (size_t i = 0; i < N_ANSWER; i++) {
        l->plain[i] = r.best;
        const skv_span span = {s, &l->plain[i], 1, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, take_best, &r, NULL), SKV_OK);
    }
    skv_sequence_free(s);
}

static void start_lane(batch *b, lane *l)
{
    const size_t i_prompt = b->n_started++;
    memset(l, 0, sizeof *l);
    l->n_prompt = N_PROMPT - 7 * (i_prompt % 4);
    l->n_wanted = i_prompt % 3 == 1 ? N_ANSWER / 3 : N_ANSWER; /* some leave early */
    answer_plainly(b->engine, i_prompt, l);
    l->said[l->n_said++] = begin(b->engine, i_prompt, l->n_prompt, b->how, &l->sequence);
}

static void judge(void *user, size_t i_span, size_t i_token, const float *logits)
{
    batch *b = user;
    lane *l = b->of_span[i_span];
    if (l->judged || l->n_said == l->n_wanted) return;
    const int32_t id = best_of(logits, skv_engine_vocab(b->engine));
    l->said[l->n_said++] = id;
    const bool was_drafted = i_token + 1 < b->spans[i_span].n;
    l->judged = !was_drafted || id != l->ids[1 + i_token];
    l->n_right += !l->judged;
}

/* Drafts for all lanes, and a step of all of them. A cancelled one changes nothing. */
static void run_step(batch *b, bool cancel_drafts, bool cancel_step)
{
    skv_error err;
    size_t n = 0;
    for (size_t i = 0; i < N_LANES; i++) {
        lane *l = &b->lanes[i];
        if (!l->sequence) continue;
        l->ids[0] = l->said[l->n_said - 1];
        l->n_right = 0;
        l->judged = false;
        b->of_span[n] = l;
        b->requests[n++] = (skv_draft_request){l->sequence, l->ids[0], l->ids + 1, 6, 0};
    }
    if (cancel_drafts) skv_cancel(b->engine);
    skv_sequences_draft(b->requests, n);
    if (cancel_step) skv_cancel(b->engine);
    for (size_t i = 0; i < n; i++) {
        b->spans[i] = (skv_span){b->requests[i].sequence, b->of_span[i]->ids, 1 + b->requests[i].n,
                                 SKV_WANT_DRAFTED};
    }
    const skv_status status = skv_step(b->engine, b->spans, n, judge, b, &err);
    if (status == SKV_CANCELLED) {
        assert_true(cancel_drafts || cancel_step);
        b->n_cancelled++;
        return;
    }
    if (status != SKV_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        const size_t n_drafted = b->requests[i].n;
        b->drafted += n_drafted;
        b->accepted += b->of_span[i]->n_right;
        if (n_drafted > 0) {
            skv_sequence_settle(b->requests[i].sequence, n_drafted, b->of_span[i]->n_right);
        }
    }
}

/* Answers of 9 prompts, 5 at a time. */
static void expect_plain_answers(const char *model, const char *draft, const char *how, size_t mix,
                                 skv_draft_counts *sum)
{
    enum { N_PROMPTS = 9 };
    static const char *const evicts[] = {"none", "snapkv:40,8,5", "pyramidkv:40,8,5"};
    batch *b = calloc(1, sizeof *b);
    skv_engine_options options = skv_engine_options_default();
    skv_error err;
    assert_non_null(b);
    options.threads = 1;
    options.context = 256;
    options.kv_tokens = 4096;
    options.step_tokens = 128;
    options.batch_invariant = true; /* what steps are shared with others changes no bit */
    options.draft_model = draft;
    options.kv = mix % 2 == 1 ? SKV_KV_INT8 : SKV_KV_AUTO;
    assert_int_equal(skv_eviction_parse(evicts[mix % 3], &options.eviction, NULL), SKV_OK);
    if (skv_engine_open(model, &options, &b->engine, &err) != SKV_OK) fail_msg("%s", err.text);
    b->how = how;
    for (size_t i = 0; i < N_LANES; i++) start_lane(b, &b->lanes[i]);
    size_t n_done = 0;
    for (size_t step = 0; n_done < N_PROMPTS; step++) {
        assert_true(step < N_STEPS_MAX);
        run_step(b, step % 7 == 3, step % 11 == 5);
        for (size_t i = 0; i < N_LANES; i++) {
            lane *l = &b->lanes[i];
            if (!l->sequence || l->n_said < l->n_wanted) continue;
            assert_memory_equal(l->said, l->plain, l->n_wanted * sizeof *l->said);
            skv_sequence_free(l->sequence);
            l->sequence = NULL;
            n_done++;
            if (b->n_started < N_PROMPTS) start_lane(b, l);
        }
    }
    assert_true(b->n_cancelled > 2);
    sum->drafted += b->drafted;
    sum->accepted += b->accepted;
    skv_engine_close(b->engine);
    free(b);
}

static void test_auxiliary(void **state)
{
    (void)state;
    static const char *const hows[] = {"aux:4,0", "text+aux:6,0.1"};
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < cases_of(6, 1); i++) {
        /* Each mix with one of two models: each has both sources and types of the cache and all
         * evictions. */
        const bool first = i < 2 || i == 5;
        if (every_case() || first) {
            expect_plain_answers(MINI "/kvpred", NULL, hows[i % 2], i, &sum);
        }
        if (every_case() || !first) {
            expect_plain_answers(SKV_TEST_DATA "/kvpred/qwen3-c", NULL, hows[i % 2], i, &sum);
        }
    }
    assert_true(sum.accepted > cases_of(100, 10) && sum.drafted > sum.accepted);
}

static void test_others(void **state)
{
    (void)state;
    static const char *const hows[] = {"text:6", "self:4,0", "text+self:6,0.1", "auto:6,0"};
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < cases_of(4, 1); i++) {
        expect_plain_answers(EXIT_MODEL, NULL, hows[i + few_cases()], i, &sum);
    }
    if (few_cases()) return;
    for (size_t i = 0; i < 4; i++) expect_plain_answers(MINI "/kv6", NULL, hows[i], i, &sum);
    expect_plain_answers(MINI "/base", MINI "/kv6", "model:4,0", 1, &sum);
    expect_plain_answers(MINI "/kv6", MINI "/base", "text+model:6,0.1", 2, &sum);
    assert_true(sum.accepted > cases_of(100, 10) && sum.drafted > sum.accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auxiliary),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
