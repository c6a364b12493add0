/*
 * Rows that do not stay, in models whose layers keep states: drafts of which some tokens are wrong,
 * and prompts whose attention layers lose rows while the states have seen all of them. Results are
 * compared to the bit with a sequence that never drafted, and with one whose rows were named by
 * hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/inspect.h"

#define MODELS SKV_TEST_DATA "/models/"

static const char *const models[] = {MODELS "qwen3-5",
                                     MODELS "qwen3-next",
                                     MODELS "lfm2-v5",
                                     MODELS "granite-h",
                                     MODELS "qwen3-5-swiftkv",
                                     MODELS "qwen3-5-gguf/model.gguf",
                                     MODELS "qwen3-5-swiftkv-wide-keys"};

enum {
    N_MODELS = sizeof models / sizeof models[0],
    N_IDS = 240,
    N_PROMPT = 230,
    VOCAB_MAX = 128,
    DRAFT_MOST = 18
};

/* Logits behind each token of a step. */
typedef struct rows {
    float at[N_IDS][VOCAB_MAX];
    size_t vocab;
} rows;

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    rows *to = user;
    (void)i_span;
    memcpy(to->at[i_token], logits, to->vocab * sizeof *logits);
}

static skv_engine_options hybrid_options(void)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = 256;
    options.kv_tokens = 3 * 256;
    options.step_tokens = 240;
    options.batch_invariant = true;
    return options;
}

static void make_ids(int32_t ids[N_IDS])
{
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + i * i % 11 + 5) % 90;
}

static void step(skv_sequence *s, const int32_t *ids, size_t n, skv_want want, rows *out)
{
    const skv_span span = {s, ids, n, want};
    skv_error err;
    if (out) out->vocab = skv_engine_vocab(s->engine);
    if (skv_step(s->engine, &span, 1, out ? take_row : NULL, out, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

static void assert_same(const rows *a, size_t i, const rows *b, size_t j)
{
    assert_memory_equal(a->at[i], b->at[j], b->vocab * sizeof(float));
}

/* ---- drafts ---- */

/* A token and a draft of n behind it, of which n_right are kept. */
static void draft(skv_sequence *s, const int32_t *ids, size_t at, size_t n, size_t n_right,
                  const rows *want)
{
    static rows got;
    int32_t ids_of_step[1 + DRAFT_MOST];
    for (size_t i = 0; i <= n; i++) {
        ids_of_step[i] = i <= n_right ? ids[at + i] : (ids[at + i] + 7) % 90;
    }
    step(s, ids_of_step, 1 + n, SKV_WANT_DRAFTED, &got);
    for (size_t i = 0; i <= n_right; i++) assert_same(&got, i, want, at + i);
    assert_int_equal(skv_sequence_truncate(s, at + 1 + n_right), at + 1 + n_right);
}

/* Drafts of many lengths, of which every number of tokens is right, one behind the other. */
static void test_drafts_roll_back(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 2, 3, 4, 9, DRAFT_MOST};
    static rows want;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < N_MODELS; m += one_case_of(3)) {
        skv_engine_options options = hybrid_options();
        options.draft_tokens = DRAFT_MOST;
        skv_engine *engine = open_or_fail(models[m], &options);
        skv_sequence *s = new_sequence(engine);
        step(s, ids, N_IDS, SKV_WANT_ALL, &want);
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k += one_case_of(3)) {
            for (size_t right = 0; right <= lengths[k]; right += one_case_of(3)) {
                skv_sequence_truncate(s, 0);
                size_t at = 30 + 5 * k + right;
                step(s, ids, at, SKV_WANT_NONE, NULL);
                for (int i = 0; i < 4 && at + lengths[k] < N_IDS; i++, at += 1 + right) {
                    draft(s, ids, at, lengths[k], right, &want);
                }
            }
        }
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
}

/* What was not drafted is not taken back, and a copy of a beginning may end within a draft. */
static void test_only_drafts_roll_back(void **state)
{
    (void)state;
    static rows want, got;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine_options options = hybrid_options();
    options.draft_tokens = 8;
    skv_engine *engine = open_or_fail(models[0], &options);
    skv_sequence *s = new_sequence(engine), *copy = new_sequence(engine);
    step(s, ids, N_IDS, SKV_WANT_ALL, &want);
    skv_sequence_truncate(s, 0);
    step(s, ids, 70, SKV_WANT_NONE, NULL);
    step(s, ids + 70, 9, SKV_WANT_DRAFTED, &got);
    assert_int_equal(skv_sequence_share(copy, s, 74, NULL), SKV_OK);
    assert_int_equal(skv_sequence_length(copy), 74);
    step(copy, ids + 74, 20, SKV_WANT_ALL, &got);
    for (size_t i = 0; i < 20; i++) assert_same(&got, i, &want, 74 + i);
    assert_int_equal(skv_sequence_truncate(s, 71), 71);
    assert_int_equal(skv_sequence_truncate(s, 70), 0);
    skv_sequence_free(copy);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static bool take_id(void *user, int32_t id)
{
    int32_t **to = user;
    *(*to)++ = id;
    return true;
}

/* Drafts from the text give the same answer, and some of them are right. Longer ones than states
 * have room for are refused. */
static void test_drafts_change_no_answer(void **state)
{
    (void)state;
    enum { ANSWER = 40 };
    int32_t ids[N_IDS], answers[2][ANSWER];
    for (int i = 0; i < N_IDS; i++) ids[i] = i % 7 * 5;
    uint64_t n_drafted = 0;
    for (size_t m = 0; m < N_MODELS; m += one_case_of(3)) {
        for (int drafts = 0; drafts < 2; drafts++) {
            skv_engine_options options = hybrid_options();
            const skv_speculation text = {.source = SKV_DRAFT_TEXT, .most = 6};
            if (drafts) options.speculation = text;
            skv_engine *engine = open_or_fail(models[m], &options);
            skv_sequence *s = new_sequence(engine);
            skv_sampler *sampler;
            const skv_sampling greedy = skv_sampling_default();
            assert_int_equal(skv_sampler_create(&greedy, skv_engine_vocab(engine), &sampler, NULL),
                             SKV_OK);
            int32_t *to = answers[drafts];
            const skv_generation how = {.sampler = sampler,
                                        .max_tokens = ANSWER,
                                        .ignore_eos = true,
                                        .on_token = take_id,
                                        .user = &to};
            assert_int_equal(skv_generate(engine, s, ids, 100, &how, NULL), SKV_OK);
            n_drafted += skv_sequence_drafts(s, SKV_DRAFT_TEXT).drafted;
            skv_error err;
            const skv_speculation longer = {.source = SKV_DRAFT_TEXT, .most = 7};
            assert_int_equal(skv_sequence_set_speculation(s, &longer, &err), SKV_UNSUPPORTED);
            assert_non_null(strstr(err.text, drafts ? "have room for 6" : "have room for 0"));
            skv_sampler_free(sampler);
            skv_sequence_free(s);
            skv_engine_close(engine);
        }
        assert_memory_equal(answers[0], answers[1], sizeof answers[0]);
    }
    assert_true(n_drafted > 0);
}

/* ---- eviction ---- */

static const skv_eviction evictions[] = {
    {.method = SKV_EVICT_SNAPKV, .capacity = 40, .window = 8, .kernel = 5},
    {.method = SKV_EVICT_H2O, .capacity = 60, .window = 20, .kernel = 1},
    {.method = SKV_EVICT_STREAMING, .capacity = 30, .window = 1, .kernel = 1, .sinks = 4},
    {.method = SKV_EVICT_PYRAMIDKV, .capacity = 50, .window = 8, .kernel = 5, .beta = 10},
    {.method = SKV_EVICT_ADAKV, .capacity = 50, .window = 8, .kernel = 5, .floor = 0.2},
    {.method = SKV_EVICT_SNAPKV, .capacity = 40, .window = 8, .kernel = 5, .by_query_head = true},
};

enum { N_EVICTIONS = sizeof evictions / sizeof evictions[0] };

/* The prompt, evicted behind its end, and the tokens behind it. */
static void read_evicted(skv_sequence *s, const int32_t *ids, const skv_eviction *how, rows *out,
                         rows *last)
{
    skv_error err;
    const skv_prompt_options options = {.logits = last->at[0]};
    last->vocab = skv_engine_vocab(s->engine);
    assert_int_equal(skv_sequence_set_eviction(s, how, NULL), SKV_OK);
    if (skv_prompt(s->engine, s, ids, N_PROMPT, &options, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(skv_kv_cache_most_rows(&s->cache) < N_PROMPT);
    step(s, ids + N_PROMPT, N_IDS - N_PROMPT, SKV_WANT_ALL, out);
}

/* Names by hand what another sequence's attention layers have kept of the prompt. */
static void keep_same(skv_sequence *s, const skv_sequence *from)
{
    static size_t positions[64][N_IDS];
    skv_head_rows heads[64];
    size_t n_heads = 0;
    for (size_t i = 0; i < s->plan->n_layers; i++) {
        if (s->plan->layers[i].kept == SKV_KEPT_STATE) continue;
        for (size_t h = 0; h < s->engine->config->layers[i].n_kv_heads; h++, n_heads++) {
            assert_true(n_heads < 64);
            size_t *at = positions[n_heads];
            const size_t n = skv_sequence_kept(from, i, h, at, N_IDS);
            heads[n_heads] = (skv_head_rows){.i_layer = i, .i_head = h, .positions = at};
            while (heads[n_heads].n < n && at[heads[n_heads].n] < N_PROMPT) heads[n_heads].n++;
        }
    }
    skv_error err;
    if (skv_sequence_keep(s, heads, n_heads, &err) != SKV_OK) fail_msg("%s", err.text);
}

/* Every method, with pages for the prompt, in steps of several sizes, and with so few that it is
 * read layer by layer: attention sees what was kept, and the states are those of all tokens. */
static void test_eviction(void **state)
{
    (void)state;
    static const struct {
        size_t kv_tokens, step_tokens;
    } ways[] = {{3 * 256, 240}, {3 * 256, 33}, {192, 240}, {192, 33}};
    static rows want, got, last, full_last;
    int32_t ids[N_IDS];
    size_t n_layered = 0;
    make_ids(ids);
    for (size_t k = 0; k < N_MODELS * N_EVICTIONS; k += one_case_of(5)) {
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            skv_engine_options options = hybrid_options();
            options.kv_tokens = ways[w].kv_tokens;
            options.step_tokens = ways[w].step_tokens;
            options.kv_sequences = 2;
            skv_engine *engine = open_or_fail(models[k % N_MODELS], &options);
            skv_sequence *s = new_sequence(engine);
            const skv_eviction *how = &evictions[k / N_MODELS];
            const bool fed = skv_plan_next_fed(s->plan, 0) < s->plan->n_layers;
            const bool layered = s->cache.layout->n_slots > 1 && !how->by_query_head && !fed;
            if (!layered && ways[w].kv_tokens < N_PROMPT) { /* one layer is the whole prompt */
                skv_sequence_free(s);
                skv_engine_close(engine);
                continue;
            }
            n_layered += ways[w].kv_tokens < N_PROMPT;
            read_evicted(s, ids, how, &got, &last);
            if (w == 0) {
                skv_sequence *plain = new_sequence(engine);
                step(plain, ids, N_PROMPT, SKV_WANT_ALL, &full_last);
                if (how->by_query_head) {
                    want = got; /* nobody can name such rows: steps are compared */
                } else {
                    keep_same(plain, s);
                    step(plain, ids + N_PROMPT, N_IDS - N_PROMPT, SKV_WANT_ALL, &want);
                }
                skv_sequence_free(plain);
            }
            assert_same(&last, 0, &full_last, N_PROMPT - 1);
            for (size_t i = 0; i < N_IDS - N_PROMPT; i++) assert_same(&got, i, &want, i);
            skv_sequence_free(s);
            skv_engine_close(engine);
        }
    }
    assert_true(n_layered * one_case_of(5) >= 2 * (N_EVICTIONS - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drafts_roll_back),
        cmocka_unit_test(test_only_drafts_roll_back),
        cmocka_unit_test(test_drafts_change_no_answer),
        cmocka_unit_test(test_eviction),
    };
    return cmocka_run_group_tests_name("hybrid_rows", tests, NULL, NULL);
}
