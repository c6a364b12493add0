/*
 * The comparators of the papers against plain torch (tools/oracle/make_comparator_goldens.py):
 * FFN-SkipLLM, early exit, Merge-all-Layers, models without some of their layers. The counter of
 * arithmetic against the formulas of `info`; what does not go together.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "skv/skv.h"
#include "skv/tools.h"
#include "span_logits.h"
#include "temp_folder.h"

#define DATA SKV_TEST_DATA "/comparators"
#define EXIT_MODEL DATA "/exit"
#define MODELS SKV_TEST_DATA "/models/"

enum { N = 60, VOCAB_MAX = 512, PATH_BYTES = 512 };

static json_t *goldens;

static int load(void **state)
{
    (void)state;
    goldens = json_load_file(DATA "/comparators.json", 0, NULL);
    return !goldens;
}

static int unload(void **state)
{
    (void)state;
    json_decref(goldens);
    return 0;
}

static skv_engine_options plain(size_t step_tokens)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.kv = SKV_KV_F32;
    options.context = 96;
    options.kv_tokens = 4 * 96;
    options.step_tokens = step_tokens;
    return options;
}

static skv_engine *open_with(const char *path, const skv_engine_options *options)
{
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(path, options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static void get_ids(const json_t *c, int32_t ids[N])
{
    const json_t *list = json_object_get(c, "ids");
    assert_int_equal(json_array_size(list), N);
    for (size_t i = 0; i < N; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
}

static const char *get_text(const json_t *c, const char *key)
{
    return json_string_value(json_object_get(c, key));
}

static size_t get_size(const json_t *c, const char *key)
{
    return (size_t)json_integer_value(json_object_get(c, key));
}

/* Scores the case's ids; the work that it took. */
static skv_work check_score(skv_engine *engine, const json_t *c)
{
    int32_t ids[N], argmax[N];
    double logprobs[N];
    skv_error err;
    const skv_work before = skv_engine_get_work(engine);
    get_ids(c, ids);
    if (skv_score(engine, ids, N, logprobs, argmax, &err) != SKV_OK) fail_msg("%s", err.text);
    const json_t *want = json_object_get(c, "logprobs"), *tops = json_object_get(c, "argmax");
    for (size_t t = 1; t < N; t++) {
        const double expected = json_number_value(json_array_get(want, t - 1));
        if (fabs(logprobs[t] - expected) > 1e-3) {
            fail_msg("token %zu: %.6f, expected %.6f", t, logprobs[t], expected);
        }
    }
    for (size_t t = 0; t < json_array_size(tops); t++) {
        assert_int_equal(argmax[t], json_integer_value(json_array_get(tops, t)));
    }
    const skv_work now = skv_engine_get_work(engine);
    return skv_work_since(&now, &before);
}

/* ---- FFN-SkipLLM ---- */

static void test_skips_as_torch(void **state)
{
    (void)state;
    const json_t *cases = json_object_get(goldens, "skips");
    assert_true(json_array_size(cases) >= 6);
    for (size_t i = 0; i < 2 * json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i / 2);
        skv_engine_options options = plain(i % 2 ? 7 : 96);
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof path, MODELS "%s", get_text(c, "model"));
        assert_true(skv_ffn_skip_parse(get_text(c, "how"), &options.ffn_skip));
        skv_engine *engine = open_with(path, &options);
        const skv_work work = check_score(engine, c);
        assert_int_equal(work.mlp_skipped, get_size(c, "skipped"));
        assert_int_equal(work.mlp_blocks, get_size(c, "blocks"));
        assert_true(work.total < work.model);
        skv_engine_close(engine);
    }
}

static void test_skip_names(void **state)
{
    (void)state;
    skv_ffn_skip how;
    char text[SKV_FFN_SKIP_TEXT];
    assert_true(skv_ffn_skip_parse("0.95", &how) && how.on && how.warm_up == 32);
    skv_ffn_skip_print(&how, text);
    assert_string_equal(text, "0.95,32,0,0.35,0.85");
    assert_true(skv_ffn_skip_parse("0.9,8,2,0.25,1", &how));
    assert_true(how.from == 0.25 && how.to == 1 && how.n_skip == 2);
    assert_true(skv_ffn_skip_parse("none", &how) && !how.on);
    skv_ffn_skip_print(&how, text);
    assert_string_equal(text, "none");
    const char *const bad[] = {"",      "x",       "1.5",           "-1",          "0.9,",
                               "0.9,x", "0.9,1.5", "0.9,8,0,.5,.5", "0.9,8,0,0,2", "0.9,8,0,0,1,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(skv_ffn_skip_parse(bad[i], &how));
    }
}

/* Logits behind two prompts in one step, or in two. */
static void read_two(skv_engine *engine, const int32_t *ids, bool together, span_logits *out)
{
    skv_sequence *s[2];
    skv_error err;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(skv_sequence_create(engine, 0, &s[i], NULL), SKV_OK);
    }
    skv_span spans[] = {{s[0], ids, 40, SKV_WANT_LAST}, {s[1], ids + 7, 30, SKV_WANT_LAST}};
    out->vocab = skv_engine_vocab(engine);
    if (together) {
        if (skv_step(engine, spans, 2, span_logits_take, out, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
    } else {
        span_logits one = {.vocab = out->vocab};
        for (size_t i = 0; i < 2; i++) {
            if (skv_step(engine, &spans[i], 1, span_logits_take, &one, &err) != SKV_OK) {
                fail_msg("%s", err.text);
            }
            memcpy(out->rows[i], one.rows[0], sizeof one.rows[0]);
        }
    }
    for (size_t i = 0; i < 2; i++) skv_sequence_free(s[i]);
}

static void assert_near(const span_logits *a, const span_logits *b)
{
    for (size_t i = 0; i < 2; i++) {
        for (size_t v = 0; v < a->vocab; v++) {
            assert_true(fabsf(a->rows[i][v] - b->rows[i][v]) < 1e-4f);
        }
    }
}

/* What a token leaves out does not depend on who runs beside it, nor on layers being skipped. */
static void test_skips_are_each_tokens_own(void **state)
{
    (void)state;
    int32_t ids[N];
    span_logits first = {.vocab = 0}, rows;
    get_ids(json_array_get(json_object_get(goldens, "skips"), 4), ids);
    for (size_t i = 0; i < 4; i++) {
        skv_engine_options options = plain(96);
        assert_true(skv_ffn_skip_parse("0.88,10,0,0,0.9", &options.ffn_skip));
        if (i >= 2) options.prefill = SKV_PREFILL_SWIFTKV_FULL;
        skv_engine *engine = open_with(MODELS "llama-swiftkv-g2", &options);
        read_two(engine, ids, i % 2 == 0, i == 0 ? &first : &rows);
        if (i > 0) assert_near(&rows, &first);
        assert_true(skv_engine_get_work(engine).mlp_skipped > 0);
        skv_engine_close(engine);
    }
}

/* ---- early exit ---- */

static void test_exits_as_torch(void **state)
{
    (void)state;
    const json_t *cases = json_object_get(goldens, "exits");
    assert_int_equal(json_array_size(cases), 3);
    for (size_t i = 0; i < 6; i++) {
        const json_t *c = json_array_get(cases, i / 2);
        skv_engine_options options = plain(i % 2 ? 7 : 96);
        options.early_exit = json_number_value(json_object_get(c, "above"));
        skv_engine *engine = open_with(EXIT_MODEL, &options);
        const skv_work work = check_score(engine, c);
        assert_int_equal(work.exits_asked, N);
        assert_int_equal(work.exits, get_size(c, "exits"));
        /* Two heads for those that go on, and the deep layers for them alone. */
        assert_int_equal(work.mlp_blocks, 2 * N + 2 * (N - get_size(c, "exits")));
        skv_engine_close(engine);
    }
}

static void keep_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)i_span;
    (void)i_token;
    memcpy(user, logits, 101 * sizeof *logits);
}

/* A prompt, then token by token: the same most likely tokens as torch, from complete caches. */
static void test_exits_while_decoding(void **state)
{
    (void)state;
    const json_t *c = json_array_get(json_object_get(goldens, "exits"), 2);
    const json_t *tops = json_object_get(c, "argmax"), *leaves = json_object_get(c, "leaves");
    skv_engine_options options = plain(16);
    int32_t ids[N];
    float row[VOCAB_MAX];
    get_ids(c, ids);
    options.early_exit = json_number_value(json_object_get(c, "above"));
    skv_engine *engine = open_with(EXIT_MODEL, &options);
    skv_sequence *s;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, 20, &(skv_prompt_options){.logits = row}, NULL),
                     SKV_OK);
    for (size_t t = 19;; t++) {
        size_t best = 0;
        for (size_t v = 1; v < 101; v++) best = row[v] > row[best] ? v : best;
        assert_int_equal(best, json_integer_value(json_array_get(tops, t)));
        if (t == N - 1) break;
        const uint64_t before = skv_engine_get_work(engine).exits;
        const skv_span span = {s, ids + t + 1, 1, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, keep_row, row, NULL), SKV_OK);
        assert_int_equal(skv_engine_get_work(engine).exits - before,
                         json_integer_value(json_array_get(leaves, t + 1)));
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
}

/* Rows that vote run every layer, so they do not leave; neither do hidden states, and sequences
 * that run as FULL. */
static void test_who_never_exits(void **state)
{
    (void)state;
    const json_t *c = json_array_get(json_object_get(goldens, "exits"), 0);
    skv_engine_options options = plain(96);
    int32_t ids[N];
    float row[VOCAB_MAX];
    get_ids(c, ids);
    options.early_exit = 0.3;
    skv_engine *engine = open_with(EXIT_MODEL, &options);
    for (size_t i = 0; i < 4; i++) {
        skv_sequence *s;
        skv_eviction how = {.method = SKV_EVICT_NONE};
        const skv_prefill prefill = i == 3 ? SKV_PREFILL_FULL : SKV_PREFILL_AUTO;
        assert_int_equal(skv_sequence_create_as(engine, prefill, 0, &s, NULL), SKV_OK);
        if (i == 1) assert_int_equal(skv_eviction_parse("snapkv:20,8", &how, NULL), SKV_OK);
        assert_int_equal(skv_sequence_set_eviction(s, &how, NULL), SKV_OK);
        assert_int_equal(skv_sequence_expect(s, 50, NULL), SKV_OK);
        const uint64_t before = skv_engine_get_work(engine).exits_asked;
        const skv_span span = {s, ids, 50, i == 2 ? SKV_WANT_LAST_HIDDEN : SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, i == 2 ? NULL : keep_row, row, NULL), SKV_OK);
        assert_int_equal(skv_engine_get_work(engine).exits_asked - before, i == 0);
        skv_sequence_free(s);
    }
    skv_engine_close(engine);
}

/* In one step with sequences that run as FULL: those leave nothing out, the others do. */
static void test_gates_are_by_sequence(void **state)
{
    (void)state;
    int32_t ids[N];
    get_ids(json_array_get(json_object_get(goldens, "exits"), 0), ids);
    for (size_t i = 0; i < 4; i++) {
        skv_engine_options options = plain(96);
        span_logits rows = {.vocab = 101};
        skv_sequence *s[2];
        if (i < 2) options.early_exit = 0.3;
        if (i >= 2) assert_true(skv_ffn_skip_parse("0.3,0,0,0,1", &options.ffn_skip));
        skv_engine *engine = open_with(EXIT_MODEL, &options);
        for (size_t j = 0; j < 2; j++) {
            const skv_prefill prefill = i % 2 == j ? SKV_PREFILL_FULL : SKV_PREFILL_AUTO;
            assert_int_equal(skv_sequence_create_as(engine, prefill, 0, &s[j], NULL), SKV_OK);
        }
        const skv_span spans[] = {{s[0], ids, 20, SKV_WANT_LAST}, {s[1], ids, 20, SKV_WANT_LAST}};
        assert_int_equal(skv_step(engine, spans, 2, span_logits_take, &rows, NULL), SKV_OK);
        const skv_work work = skv_engine_get_work(engine);
        assert_int_equal(work.exits_asked, i < 2);
        /* The one that skips: at most its block of layer 1, and of its last token those behind. */
        if (i >= 2) assert_in_range(work.mlp_skipped, 1, 20 + 2);
        skv_sequence_free(s[0]);
        skv_sequence_free(s[1]);
        skv_engine_close(engine);
    }
}

/* ---- Merge-all-Layers ---- */

static void test_merged_as_torch(void **state)
{
    (void)state;
    const json_t *cases = json_object_get(goldens, "merges");
    assert_int_equal(json_array_size(cases), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *c = json_array_get(cases, i);
        skv_engine_options options = plain(get_size(c, "step"));
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof path, MODELS "%s", get_text(c, "model"));
        options.prefill = SKV_PREFILL_MERGED;
        skv_engine *engine = open_with(path, &options);
        const skv_work work = check_score(engine, c);
        assert_true(fabs(work.total - work.model) < 1e-9 * work.model);
        skv_engine_close(engine);
    }
}

/* The memory of one layer; a prompt in one step is the ordinary model's, to the bit. */
static void test_merged_memory(void **state)
{
    (void)state;
    int32_t ids[N];
    float rows[2][VOCAB_MAX];
    size_t bytes[2];
    get_ids(json_array_get(json_object_get(goldens, "merges"), 0), ids);
    for (size_t i = 0; i < 2; i++) {
        skv_engine_options options = plain(96);
        if (i == 1) options.prefill = SKV_PREFILL_MERGED;
        skv_engine *engine = open_with(MODELS "llama3-v5", &options);
        skv_sequence *s;
        assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
        assert_int_equal(
            skv_prompt(engine, s, ids, N, &(skv_prompt_options){.logits = rows[i]}, NULL), SKV_OK);
        bytes[i] = skv_sequence_kv_bytes(s);
        skv_sequence_free(s);
        if (i == 1) {
            assert_memory_equal(rows[0], rows[1], skv_engine_vocab(engine) * sizeof(float));
        }
        skv_engine_close(engine);
    }
    assert_int_equal(bytes[0], 6 * bytes[1]);
}

/* ---- fewer layers ---- */

static void test_pruned_as_torch(void **state)
{
    (void)state;
    const json_t *cases = json_object_get(goldens, "pruned");
    assert_int_equal(json_array_size(cases), 6);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        char folder[] = "/tmp/test_comparatorsXXXXXX", from[PATH_BYTES], out[PATH_BYTES];
        skv_transform_options how = skv_transform_options_default();
        skv_model_info info;
        skv_error err;
        assert_non_null(mkdtemp(folder));
        (void)snprintf(from, sizeof from, MODELS "%s", get_text(c, "model"));
        (void)snprintf(out, sizeof out, "%s/pruned", folder);
        how.keep_layers = get_text(c, "how");
        if (skv_transform_run(from, out, &how, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
        assert_int_equal(skv_model_info_read(out, &info, NULL), SKV_OK);
        assert_int_equal(info.layers, json_array_size(json_object_get(c, "kept")));
        assert_false(info.swiftkv);
        const skv_engine_options options = plain(96);
        skv_engine *engine = open_with(out, &options);
        (void)check_score(engine, c);
        skv_engine_close(engine);
        assert_int_equal(temp_folder_remove(folder), 0);
    }
}

static void test_pruned_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *model, *layers, *part;
    } cases[] = {
        {MODELS "qwen3-v5", "2,1", "ascending"},
        {MODELS "qwen3-v5", "0,4", "below 4"},
        {MODELS "qwen3-v5", "0,,1", "0,,1"},
        {MODELS "qwen3-v5", "", "lp-0.50"},
        {MODELS "qwen2-swiftkv-g2", "0,1", "deep layers"},
        {SKV_TEST_DATA "/kvpred/openelm-lp", "0,1", "auxiliary"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skv_transform_options how = skv_transform_options_default();
        skv_error err;
        how.keep_layers = cases[i].layers;
        assert_int_not_equal(skv_transform_run(cases[i].model, "/nowhere", &how, NULL, &err),
                             SKV_OK);
        if (!strstr(err.text, cases[i].part)) fail_msg("%s", err.text);
    }
}

/* ---- the counter ---- */

static double without_head(const skv_cost *c)
{
    return c->total - c->vocabulary;
}

/* A prompt, its last token wanted. */
static skv_work work_with(const char *path, const skv_engine_options *options)
{
    int32_t ids[N];
    float row[VOCAB_MAX];
    for (size_t i = 0; i < N; i++) ids[i] = (int32_t)(i % 50) + 3;
    skv_engine *engine = open_with(path, options);
    skv_sequence *s;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N, &(skv_prompt_options){.logits = row}, NULL),
                     SKV_OK);
    const skv_work work = skv_engine_get_work(engine);
    skv_sequence_free(s);
    skv_engine_close(engine);
    return work;
}

/* The same in pieces. */
static skv_work work_of_prompt(const char *path, skv_prefill prefill)
{
    skv_engine_options options = plain(16);
    options.prefill = prefill;
    return work_with(path, &options);
}

/* All tokens through the first l layers, the last one through all. */
static void test_work_is_what_info_says(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        skv_prefill prefill;
        size_t L, l, g;
    } cases[] = {
        {MODELS "llama3-v5", SKV_PREFILL_AUTO, 6, 5, 1},
        {MODELS "qwen3-v5", SKV_PREFILL_AUTO, 4, 3, 1},
        {MODELS "mistral", SKV_PREFILL_AUTO, 4, 3, 1},
        {MODELS "llama-swiftkv-g2", SKV_PREFILL_AUTO, 6, 2, 2},
        {MODELS "qwen2-swiftkv-g2", SKV_PREFILL_TEACHER, 6, 5, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t L = cases[i].L, l = cases[i].l, g = cases[i].g;
        skv_cost all, shallow, less, less_shallow;
        assert_int_equal(skv_model_cost(cases[i].path, L, 1, N, &all, NULL), SKV_OK);
        assert_int_equal(skv_model_cost(cases[i].path, l, g, N, &shallow, NULL), SKV_OK);
        assert_int_equal(skv_model_cost(cases[i].path, L, 1, N - 1, &less, NULL), SKV_OK);
        assert_int_equal(skv_model_cost(cases[i].path, l, g, N - 1, &less_shallow, NULL), SKV_OK);
        const double seen = (all.attention - shallow.attention) * N -
                            (less.attention - less_shallow.attention) * (N - 1);
        const double deep = all.q + all.o + all.mlp - shallow.q - shallow.o - shallow.mlp + seen;
        const double want = N * without_head(&shallow) + deep + all.vocabulary;
        const skv_work work = work_of_prompt(cases[i].path, cases[i].prefill);
        assert_true(fabs(work.total - want) < 1e-9 * want);
        const double model = N * without_head(&all) + all.vocabulary;
        assert_true(fabs(work.model - model) < 1e-9 * model);
        assert_true(work.mlp_skipped == 0 && work.exits_asked == 0);
    }
}

static skv_work work_of_pruning(const char *text)
{
    skv_engine_options options = plain(N);
    assert_true(skv_pruning_parse(text, &options.pruning));
    return work_with(MODELS "llama3-v5", &options);
}

/* What choosing tokens takes is counted: static pruning runs a quarter of the layers (2 of 6) for
 * the whole prompt, with a row of scores in each; LazyLLM takes such a row before layer 2, where
 * all but 30 of the tokens before the last one drop out. */
static void test_work_of_pruning(void **state)
{
    (void)state;
    skv_cost probe;
    assert_int_equal(skv_model_cost(MODELS "llama3-v5", 2, 1, N, &probe, NULL), SKV_OK);
    const skv_work chance = work_of_pruning("random:0.5"), chosen = work_of_pruning("static:0.5");
    const double pair = probe.attention / (N + 1); /* of a query and a row, in two layers */
    const double attention = N * probe.attention + pair * N, mlp = N * probe.mlp;
    assert_true(fabs(chosen.attention - chance.attention - attention) < 1e-9 * attention);
    assert_true(fabs(chosen.mlp - chance.mlp - mlp) < 1e-9 * mlp);
    const double whole = (N - 1) * N / 2 + N, left = 30 * 31 / 2 + 31;
    const double lazy = pair * (2 * whole + 3 * left + 31 + (double)N / 2);
    assert_true(fabs(work_of_pruning("lazy:0.5,0.5").attention - lazy) < 1e-9 * lazy);
    const double all = pair * (5 * whole + N);
    assert_true(fabs(work_of_pruning("lazy:1,1").attention - all) < 1e-9 * all);
}

/* KV Prediction: all but the last token through the auxiliary and the maps. */
static void test_work_of_predictions(void **state)
{
    (void)state;
    const char *path = SKV_TEST_DATA "/kvpred/openelm-lp";
    skv_cost all, auxiliary;
    double predictor;
    assert_int_equal(skv_model_cost(path, 4, 1, N, &all, NULL), SKV_OK);
    assert_int_equal(skv_kvpred_cost(path, N - 1, &auxiliary, &predictor, NULL), SKV_OK);
    const skv_work work = work_of_prompt(path, SKV_PREFILL_AUTO);
    assert_true(work.prediction > 0 && work.prediction < (N - 1) * predictor);
    assert_true(work.prediction > 0.9 * (N - 1) * predictor); /* which counts biases too */
    const double mlp = (N - 1) * auxiliary.mlp + all.mlp;
    assert_true(fabs(work.mlp - mlp) < 1e-9 * mlp);
    assert_true(work.total < 0.6 * work.model);
}

/* ---- what does not go together ---- */

static void refuse(const char *path, const skv_engine_options *options, const char *method,
                   const char *other)
{
    skv_engine *engine = NULL;
    skv_error err = {0};
    assert_int_equal(skv_engine_open(path, options, &engine, &err), SKV_UNSUPPORTED);
    if (!strstr(err.text, method) || !strstr(err.text, other)) fail_msg("%s", err.text);
}

static void test_refusals(void **state)
{
    (void)state;
    skv_engine_options options = plain(16);
    options.early_exit = 0.95;
    refuse(MODELS "qwen2-swiftkv-g2", &options, "early-exit on", "no exit head");
    options.prefill = SKV_PREFILL_TEACHER;
    refuse(EXIT_MODEL, &options, "early-exit on", "prefill teacher");
    options.prefill = SKV_PREFILL_FULL;
    refuse(EXIT_MODEL, &options, "early-exit on", "prefill full");
    options = plain(16);
    options.prefill = SKV_PREFILL_MERGED;
    refuse(EXIT_MODEL, &options, "prefill merged", "AcrossKV model");
    refuse(MODELS "openelm", &options, "merged", "KV heads");
    options.batch_invariant = true;
    refuse(MODELS "llama3-v5", &options, "prefill merged", "batch invariance");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skips_as_torch),
        cmocka_unit_test(test_skip_names),
        cmocka_unit_test(test_skips_are_each_tokens_own),
        cmocka_unit_test(test_exits_as_torch),
        cmocka_unit_test(test_exits_while_decoding),
        cmocka_unit_test(test_who_never_exits),
        cmocka_unit_test(test_gates_are_by_sequence),
        cmocka_unit_test(test_merged_as_torch),
        cmocka_unit_test(test_merged_memory),
        cmocka_unit_test(test_pruned_as_torch),
        cmocka_unit_test(test_pruned_refusals),
        cmocka_unit_test(test_work_is_what_info_says),
        cmocka_unit_test(test_work_of_predictions),
        cmocka_unit_test(test_work_of_pruning),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
