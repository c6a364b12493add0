/*
 * Token pruning: which tokens stay, that what is left is computed as a prompt of its own, whatever
 * the chunks; attention of the first layers against scores computed from hidden states.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "alloc_fail.h"
#include "engine/engine.h"
#include "prefill/pruning.h"
#include "skv/skv.h"

#define MODEL SKV_TEST_DATA "/models/qwen3-v5"

enum { N = 60, VOCAB_MAX = 512 };

static void make_ids(int32_t ids[N])
{
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 5) % 90;
}

static skv_engine *open_with(const char *pruning, size_t step_tokens)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    skv_error err;
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.context = 96;
    options.kv_tokens = 4 * 96;
    options.step_tokens = step_tokens;
    assert_true(skv_pruning_parse(pruning, &options.pruning));
    if (skv_engine_open(MODEL, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_sequence *new_sequence(skv_engine *engine)
{
    skv_sequence *s = NULL;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    return s;
}

static void read_prompt(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n,
                        float *logits)
{
    skv_error err;
    if (skv_prompt(engine, s, ids, n, &(skv_prompt_options){.logits = logits}, &err) != SKV_OK)
        fail_msg("%s", err.text);
}

static void assert_close(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_true(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i])));
}

static void test_by_score(void **state)
{
    (void)state;
    const double scores[] = {0.5, 0.1, 0.5, 0.9, 0.0, 0.5, 0.2};
    static const struct {
        size_t n_keep;
        bool kept[7];
    } want[] = {{0, {0}},
                {1, {0, 0, 0, 1}},
                {2, {1, 0, 0, 1}},
                {3, {1, 0, 1, 1}},
                {5, {1, 0, 1, 1, 0, 1, 1}},
                {6, {1, 1, 1, 1, 0, 1, 1}},
                {7, {1, 1, 1, 1, 1, 1, 1}}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        bool kept[7];
        skv_prune_by_score(scores, 7, want[i].n_keep, kept);
        assert_memory_equal(kept, want[i].kept, sizeof kept);
    }
}

static void test_names(void **state)
{
    (void)state;
    skv_pruning p;
    assert_true(skv_pruning_parse("random:0.25", &p) && p.kind == SKV_PRUNE_RANDOM);
    assert_true(p.keep == 0.25 && skv_pruning_parse("static:1", &p));
    const char *const bad[] = {"random",  "random:",  "random:0",     "static:1.5", "static:x",
                               "other:1", "lazy:0.5", "lazy:0.5,0.6", "lazy:0.5,",  "lazy:,0.5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(skv_pruning_parse(bad[i], &p));
}

/* Logits are those of a prompt of the kept tokens alone. */
static void check_kept(const char *pruning, size_t step_tokens, double share)
{
    int32_t ids[N], left[N];
    float got[VOCAB_MAX], want[VOCAB_MAX];
    make_ids(ids);
    skv_engine *engine = open_with(pruning, step_tokens), *plain = open_with("none", 96);
    skv_sequence *s = new_sequence(engine), *alone = new_sequence(plain);
    read_prompt(engine, s, ids, N, got);
    size_t n = 0;
    for (size_t t = 0; t < N; t++) {
        size_t next = t + 1 < N ? s->pruned->row_of[t + 1] : s->cache.n_rows;
        if (next > s->pruned->row_of[t]) left[n++] = ids[t];
    }
    assert_int_equal(n, 1 + (size_t)(share * (N - 1) + 0.5));
    assert_int_equal(left[n - 1], ids[N - 1]);
    assert_int_equal(skv_sequence_length(s), N);
    read_prompt(plain, alone, left, n, want);
    assert_close(got, want, skv_engine_vocab(engine));
    skv_sequence_free(s);
    skv_sequence_free(alone);
    skv_engine_close(engine);
    skv_engine_close(plain);
}

static void test_kept_tokens_alone(void **state)
{
    (void)state;
    check_kept("random:0.5", 96, 0.5);
    check_kept("random:0.75", 7, 0.75);
    check_kept("static:0.5", 96, 0.5);
    check_kept("static:0.25", 7, 0.25);
    check_kept("static:1", 16, 1);
}

/* The tokens that plain torch keeps (tools/oracle/make_kvpred_goldens.py). */
static void test_kept_as_torch(void **state)
{
    (void)state;
    json_t *root = json_load_file(SKV_TEST_DATA "/kvpred/pruned.json", 0, NULL);
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) == 4);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *kept = json_object_get(c, "kept");
        int32_t ids[N];
        float logits[VOCAB_MAX];
        make_ids(ids);
        skv_engine_options options = skv_engine_options_default();
        skv_engine *engine = NULL;
        char path[512];
        options.threads = 1;
        options.weights = SKV_WEIGHTS_F32;
        options.context = 96;
        options.step_tokens = 16;
        options.pruning =
            (skv_pruning){SKV_PRUNE_STATIC, json_number_value(json_object_get(c, "keep")), 1};
        (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_DATA,
                       json_string_value(json_object_get(c, "model")));
        assert_int_equal(skv_engine_open(path, &options, &engine, NULL), SKV_OK);
        skv_sequence *s = new_sequence(engine);
        read_prompt(engine, s, ids, N, logits);
        size_t n = 0;
        for (size_t t = 0; t + 1 < N; t++) {
            if (s->pruned->row_of[t + 1] == s->pruned->row_of[t]) continue;
            assert_int_equal(json_integer_value(json_array_get(kept, n++)), t);
        }
        assert_int_equal(n, json_array_size(kept));
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
    json_decref(root);
}

/* LazyLLM's schedule: all tokens up to 30 % of the layers, then fewer on a line up to 90 %. */
static double lazy_share(size_t i, size_t n, double keep, double end)
{
    const double along = (((double)i + 0.5) / (double)n - 0.3) / 0.6;
    return along < 0 ? 1 : along >= 1 ? end : keep + (end - keep) * along;
}

/* Table 5 of arXiv:2410.08391: FLOPs of the whole against the share that is left of them. */
static void test_lazy_schedule(void **state)
{
    (void)state;
    static const struct {
        double keep, end, reduction;
    } rows[] = {{0.75, 0.75, 1.21}, {0.75, 0.50, 1.38}, {0.75, 0.25, 1.60}, {0.75, 0.10, 1.77},
                {0.75, 0.05, 1.83}, {0.75, 0.01, 1.89}, {0.50, 0.50, 1.54}, {0.50, 0.25, 1.82},
                {0.50, 0.10, 2.04}, {0.50, 0.05, 2.13}, {0.50, 0.01, 2.20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double sum = 0;
        for (size_t l = 0; l < 1000; l++) sum += lazy_share(l, 1000, rows[i].keep, rows[i].end);
        assert_true(fabs(1000 / sum - rows[i].reduction) < 0.006);
        sum = 0;
        for (size_t l = 0; l < 28; l++) sum += lazy_share(l, 28, rows[i].keep, rows[i].end);
        assert_true(fabs(28 / sum - rows[i].reduction) < 0.05);
    }
}

/* With all kept nothing changes; with less, the layers have the rows that the schedule says, the
 * answer goes on, and what was forgotten is read again. */
static void test_lazy(void **state)
{
    (void)state;
    int32_t ids[N];
    float whole[VOCAB_MAX], got[VOCAB_MAX], again[VOCAB_MAX];
    make_ids(ids);
    skv_engine *plain = open_with("none", 96), *all = open_with("lazy:1,1", 96);
    skv_engine *some = open_with("lazy:0.5,0.1", 96);
    size_t vocab = skv_engine_vocab(plain), L = plain->config->n_layers;
    skv_sequence *s = new_sequence(plain), *a = new_sequence(all), *b = new_sequence(some);
    read_prompt(plain, s, ids, N, whole);
    read_prompt(all, a, ids, N, got);
    assert_close(got, whole, vocab);
    read_prompt(some, b, ids, N, got);
    for (size_t i = 0; i < L; i++) {
        size_t n = (size_t)(lazy_share(i, L, 0.5, 0.1) * (N - 1) + 0.5);
        assert_int_equal(b->pruned->slot_rows[i], n + 1);
        assert_int_equal(a->pruned->slot_rows[i], N);
    }
    for (int i = 0; i < 5; i++) {
        read_prompt(plain, s, ids + i, 1, whole);
        read_prompt(all, a, ids + i, 1, again);
        assert_close(again, whole, vocab);
        read_prompt(some, b, ids + i, 1, again);
        for (size_t j = 0; j < vocab; j++) assert_true(isfinite(again[j]));
    }
    skv_sequence_truncate(b, N - 1);
    assert_true(b->pruned->n_run == 0 && b->n_seen == N - 1 && b->cache.n_rows == 0);
    read_prompt(some, b, ids + N - 1, 1, again);
    assert_close(again, got, vocab);
    skv_sequence *shared = new_sequence(some);
    assert_int_equal(skv_sequence_share(shared, b, N, NULL), SKV_OK);
    skv_span more[] = {{shared, ids, 7, SKV_WANT_ALL}, {b, ids, 7, SKV_WANT_ALL}};
    assert_int_equal(skv_step(some, more, 2, NULL, NULL, NULL), SKV_OK);
    assert_memory_equal(shared->pruned->slot_rows, b->pruned->slot_rows, L * sizeof(size_t));
    skv_sequence_free(shared);
    skv_sequence_free(s);
    skv_sequence_free(a);
    skv_sequence_free(b);
    skv_engine_close(plain);
    skv_engine_close(all);
    skv_engine_close(some);
    some = open_with("lazy:0.5,0.1", 16);
    b = new_sequence(some);
    skv_error err;
    assert_int_equal(skv_prompt(some, b, ids, N, &(skv_prompt_options){.logits = got}, &err),
                     SKV_RANGE);
    assert_non_null(strstr(err.text, "--chunk"));
    skv_sequence_free(b);
    skv_engine_close(some);
}

/* Log-probabilities of plain torch after the prompt and after two more tokens. */
static void test_lazy_as_torch(void **state)
{
    (void)state;
    json_t *root = json_load_file(SKV_TEST_DATA "/kvpred/pruned.json", 0, NULL);
    const json_t *cases = json_object_get(root, "lazy");
    assert_true(json_array_size(cases) == 4);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *rows = json_object_get(c, "logprobs");
        skv_engine_options options = skv_engine_options_default();
        skv_engine *engine = NULL;
        char path[512];
        int32_t ids[N];
        const int32_t more[] = {7, 11};
        float logits[VOCAB_MAX];
        make_ids(ids);
        options.threads = 1;
        options.weights = SKV_WEIGHTS_F32;
        options.context = 96;
        options.pruning =
            (skv_pruning){SKV_PRUNE_LAZY, json_number_value(json_object_get(c, "keep")),
                          json_number_value(json_object_get(c, "end"))};
        (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s",
                       json_string_value(json_object_get(c, "model")));
        assert_int_equal(skv_engine_open(path, &options, &engine, NULL), SKV_OK);
        skv_sequence *s = new_sequence(engine);
        for (size_t r = 0; r < 3; r++) {
            read_prompt(engine, s, r ? &more[r - 1] : ids, r ? 1 : N, logits);
            const json_t *want = json_array_get(rows, r);
            double sum = 0;
            size_t vocab = skv_engine_vocab(engine);
            for (size_t v = 0; v < vocab; v++) sum += exp((double)logits[v]);
            for (size_t v = 0; v < vocab; v++) {
                double logp = (double)logits[v] - log(sum);
                assert_true(fabs(logp - json_number_value(json_array_get(want, v))) < 1e-3);
            }
        }
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
    json_decref(root);
}

/* Chunks, a shared beginning and one that was cut back: the same tokens stay. */
static void test_whatever_the_steps(void **state)
{
    (void)state;
    int32_t ids[N];
    float whole[VOCAB_MAX], cut[VOCAB_MAX];
    make_ids(ids);
    skv_engine *engine = open_with("static:0.5", 9);
    size_t vocab = skv_engine_vocab(engine);
    skv_sequence *s = new_sequence(engine), *other = new_sequence(engine);
    read_prompt(engine, s, ids, N, whole);
    read_prompt(engine, other, ids, 20, NULL);
    assert_int_equal(other->cache.n_rows, 0); /* they wait */
    skv_sequence *third = new_sequence(engine);
    assert_int_equal(skv_sequence_share(third, other, 15, NULL), SKV_OK);
    read_prompt(engine, other, ids + 20, N - 20, cut);
    assert_close(cut, whole, vocab);
    read_prompt(engine, third, ids + 15, N - 15, cut);
    assert_close(cut, whole, vocab);
    /* Cut back by a token and read again, the last one is alone: nothing is pruned for it. */
    skv_sequence_truncate(s, N - 1);
    assert_int_equal(s->cache.n_rows, other->cache.n_rows - 1);
    read_prompt(engine, s, ids + N - 1, 1, cut);
    assert_close(cut, whole, vocab);
    skv_span bad = {s, (const int32_t[]){100000}, 1, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &bad, 1, NULL, NULL, NULL), SKV_RANGE);
    skv_span more = {s, ids, 5, SKV_WANT_LAST};
    size_t n_rows = s->cache.n_rows;
    skv_cancel(engine);
    assert_int_equal(skv_step(engine, &more, 1, NULL, NULL, NULL), SKV_CANCELLED);
    assert_true(s->cache.n_rows == n_rows && s->n_seen == N && s->pruned->n_run == N);
    skv_sequence_free(s);
    skv_sequence_free(other);
    skv_sequence_free(third);
    skv_engine_close(engine);
}

/* A token that every head of the first layer looks at is not dropped: its score is the sum of
 * probabilities, which are 1 a head and layer together. */
static void test_scores_are_probabilities(void **state)
{
    (void)state;
    int32_t ids[N];
    float logits[VOCAB_MAX];
    make_ids(ids);
    skv_engine *engine = open_with("static:0.5", 96);
    skv_sequence *s = new_sequence(engine);
    read_prompt(engine, s, ids, N, logits);
    const skv_config *c = engine->config;
    size_t n_layers = skv_prune_probe_layers(c->n_layers);
    double sum = 0;
    for (size_t t = 0; t < N - 1; t++) {
        assert_true(engine->prune.scores[t] >= 0);
        sum += engine->prune.scores[t];
    }
    /* The last token's attention to itself is missing. */
    assert_true(sum > 0 && sum < (double)(n_layers * c->layers[0].n_heads));
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_refusals(void **state)
{
    (void)state;
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    skv_error err;
    options.pruning = (skv_pruning){SKV_PRUNE_RANDOM, 0.5, 0.5};
    assert_int_equal(
        skv_engine_open(SKV_TEST_DATA "/models/llama-swiftkv-g2", &options, &engine, &err),
        SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "only with ordinary models"));
    assert_int_equal(skv_engine_open(SKV_TEST_DATA "/kvpred/llama-lp", &options, &engine, &err),
                     SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "kvpred"));
    options.pruning.keep = 0;
    assert_int_equal(skv_engine_open(MODEL, &options, &engine, &err), SKV_RANGE);
}

static bool open_and_read(void *arg)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine;
    skv_sequence *s;
    (void)arg;
    options.threads = 1;
    options.context = 64;
    options.pruning = (skv_pruning){SKV_PRUNE_STATIC, 0.5, 0.5};
    if (skv_engine_open(MODEL, &options, &engine, NULL) != SKV_OK) return false;
    bool ok = skv_sequence_create(engine, 0, &s, NULL) == SKV_OK;
    if (ok) {
        int32_t ids[N];
        make_ids(ids);
        float logits[VOCAB_MAX];
        ok =
            skv_prompt(engine, s, ids, 20, &(skv_prompt_options){.logits = logits}, NULL) == SKV_OK;
        skv_sequence_free(s);
    }
    skv_engine_close(engine);
    return ok;
}

static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    size_t n = alloc_fail_each(open_and_read, NULL, false);
    assert_true(n > 50 && n < SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_score),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_kept_tokens_alone),
        cmocka_unit_test(test_kept_as_torch),
        cmocka_unit_test(test_lazy_schedule),
        cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_lazy_as_torch),
        cmocka_unit_test(test_whatever_the_steps),
        cmocka_unit_test(test_scores_are_probabilities),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
    };
    return cmocka_run_group_tests_name("prune", tests, NULL, NULL);
}
