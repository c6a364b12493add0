/*
 * KV Prediction (arXiv:2410.08391): the papers' layer maps, and tiny models against plain torch
 * (tools/oracle/make_kvpred_goldens.py): predicted keys and values, likelihoods, answers, a second
 * prompt; that chunks, batches, sharing and truncating change nothing; models that do not fit.
 * Labels: threads
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
#include "kernels/kv_page.h"
#include "prefill/kvpred.h"
#include "prefill/layer_maps.h"
#include "skv/tools.h"
#include "span_logits.h"

enum { CONTEXT = 96, IDS_MAX = 96 };

static const char *const names[] = {"qwen3-c", "openelm-lp", "llama-lp"};
enum { N_NAMES = sizeof names / sizeof *names };

/* ---- Tables 1 and 4 ---- */

typedef struct table_row {
    size_t n_base, n_auxiliary, quarters; /* quarters 0: KVP-C */
    uint16_t layers[36];
} table_row;

static const table_row table_1[] = {
    {28, 20, 0, {0, 0, 1, 1, 2,  2,  3,  3,  4,  4,  5,  5,  6,  6,
                 7, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}},
    {28, 16, 0, {0, 0, 1, 1, 2, 2, 3,  3,  4,  4,  5,  5,  6,  6,
                 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 13, 14, 15}},
    {28, 21, 3, {0,  1,  2,  2,  3,  4,  5,  5,  6,  7,  8,  8,  9,  10,
                 11, 11, 12, 13, 14, 14, 15, 16, 17, 17, 18, 19, 20, 20}},
    {28, 14, 2, {0, 0, 1, 1, 2, 2, 3,  3,  4,  4,  5,  5,  6,  6,
                 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}},
    {28, 7, 1, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3,
                3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6}},
    {36, 28, 0, {0,  0,  1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,  8,  9,
                 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27}},
    {36, 20, 0, {0, 0, 1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,  8,  8,
                 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 17, 18, 19}},
    {36, 16, 0, {0, 0, 0, 1, 1, 1, 2,  2,  2,  3,  3,  3,  4,  4,  5,  5,  6,  6,
                 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15}},
    {36, 27, 3, {0,  1,  2,  2,  3,  4,  5,  5,  6,  7,  8,  8,  9,  10, 11, 11, 12, 13,
                 14, 14, 15, 16, 17, 17, 18, 19, 20, 20, 21, 22, 23, 23, 24, 25, 26, 26}},
    {36, 18, 2, {0, 0, 1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,  8,  8,
                 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17}},
    {36, 9, 1, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4,
                4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8}},
};

static void test_table_1(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table_1 / sizeof *table_1; i++) {
        const table_row *row = &table_1[i];
        uint16_t layers[SKV_LAYERS_MAX], kept[SKV_LAYERS_MAX];
        if (row->quarters == 0) {
            skv_kvpred_map_canonical(row->n_base, row->n_auxiliary, layers);
        } else {
            size_t n = skv_kvpred_kept(row->n_base, row->quarters, kept);
            assert_int_equal(n, row->n_auxiliary);
            skv_kvpred_map_pruned(row->n_base, kept, n, layers);
        }
        assert_memory_equal(layers, row->layers, row->n_base * sizeof *layers);
    }
}

static void test_table_4(void **state)
{
    (void)state;
    static const uint16_t three[] = {0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13,
                                     14, 16, 17, 18, 20, 21, 22, 24, 25, 26};
    static const uint16_t one[] = {0, 4, 8, 12, 16, 20, 24};
    uint16_t kept[SKV_LAYERS_MAX];
    assert_int_equal(skv_kvpred_kept(28, 3, kept), 21);
    assert_memory_equal(kept, three, sizeof three);
    assert_int_equal(skv_kvpred_kept(28, 1, kept), 7);
    assert_memory_equal(kept, one, sizeof one);
    assert_int_equal(skv_kvpred_quarters("lp-0.25"), 1);
    assert_int_equal(skv_kvpred_quarters("lp-0.5"), 2);
    assert_int_equal(skv_kvpred_quarters("lp-0.75"), 3);
    assert_int_equal(skv_kvpred_quarters("lp-1"), 0);
}

/* The reductions of Table 5 and 6 are those of the parameters. */
static void test_parameters_of_the_paper(void **state)
{
    (void)state;
    static const struct {
        const char *pair;
        double reduction, predictor; /* in millions */
    } rows[] = {
        {"openelm-1.1b+openelm-450m", 2.36, 6.21}, {"openelm-1.1b+openelm-270m", 3.98, 5.44},
        {"openelm-1.1b+lp-0.75", 1.34, 8.67},      {"openelm-1.1b+lp-0.50", 1.93, 8.67},
        {"openelm-1.1b+lp-0.25", 3.595, 8.46},     {"openelm-3b+openelm-1.1b", 2.81, 16.0},
        {"openelm-3b+openelm-450m", 6.64, 12.3},   {"openelm-3b+openelm-270m", 11.18, 10.7},
        {"openelm-3b+lp-0.75", 1.34, 25.5},        {"openelm-3b+lp-0.50", 1.97, 25.5},
        {"openelm-3b+lp-0.25", 3.84, 24.7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        skv_model_info info;
        skv_error err;
        char path[64];
        (void)snprintf(path, sizeof path, "preset:%s", rows[i].pair);
        if (skv_model_info_read(path, &info, &err) != SKV_OK) fail_msg("%s", err.text);
        double reduction = (double)info.parameters / (double)info.auxiliary_parameters;
        assert_true(fabs(reduction - rows[i].reduction) < 0.006);
        double predictor = (double)info.predictor_parameters * 1e-6;
        assert_true(fabs(predictor - rows[i].predictor) < 0.06);
    }
}

/* ---- golden files ---- */

typedef struct golden_turns {
    int32_t ids[IDS_MAX], argmax[IDS_MAX], greedy[IDS_MAX], more[IDS_MAX], after[IDS_MAX];
    double logprobs[IDS_MAX], logprobs_bf16[IDS_MAX];
    size_t n, n_greedy, n_more, n_after;
} golden_turns;

static size_t read_ints(const json_t *list, int32_t *out)
{
    size_t n = json_array_size(list);
    assert_true(n <= IDS_MAX);
    for (size_t i = 0; i < n; i++) {
        out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return n;
}

static json_t *load_golden(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/kvpred/%s/golden.json", SKV_TEST_DATA, name);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static size_t count_cases(const json_t *root)
{
    return json_array_size(json_object_get(root, "cases"));
}

static golden_turns read_case(const json_t *root, size_t i)
{
    golden_turns g = {.n = 0};
    const json_t *c = json_array_get(json_object_get(root, "cases"), i);
    g.n = read_ints(json_object_get(c, "ids"), g.ids);
    (void)read_ints(json_object_get(c, "argmax"), g.argmax);
    g.n_greedy = read_ints(json_object_get(c, "greedy"), g.greedy);
    g.n_more = read_ints(json_object_get(c, "more"), g.more);
    g.n_after = read_ints(json_object_get(c, "greedy_after"), g.after);
    for (size_t t = 1; t < g.n; t++) {
        g.logprobs[t] = json_number_value(json_array_get(json_object_get(c, "logprobs"), t));
        g.logprobs_bf16[t] =
            json_number_value(json_array_get(json_object_get(c, "logprobs_bf16"), t));
    }
    return g;
}

static skv_engine_options small_options(skv_weights weights)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = weights;
    options.context = CONTEXT;
    options.kv_tokens = 4 * CONTEXT;
    options.step_tokens = CONTEXT;
    return options;
}

static skv_engine *open_with(const char *name, const skv_engine_options *options)
{
    char path[512];
    skv_engine *engine = NULL;
    skv_error err;
    (void)snprintf(path, sizeof path, "%s/kvpred/%s", SKV_TEST_DATA, name);
    if (skv_engine_open(path, options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_engine *open_golden(const char *name)
{
    skv_engine_options options = small_options(SKV_WEIGHTS_F32);
    return open_with(name, &options);
}

static skv_sequence *new_sequence(skv_engine *engine)
{
    skv_sequence *s = NULL;
    skv_error err;
    if (skv_sequence_create(engine, 0, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

static void check_scores(skv_engine *engine, const char *name, const golden_turns *g,
                         double tolerance, bool and_argmax)
{
    double logprobs[IDS_MAX];
    int32_t argmax[IDS_MAX];
    skv_error err;
    if (skv_score(engine, g->ids, g->n, logprobs, argmax, &err) != SKV_OK) fail_msg("%s", err.text);
    for (size_t t = 0; t < g->n; t++) {
        if (t > 0 && !(fabs(logprobs[t] - g->logprobs[t]) <= tolerance)) {
            fail_msg("%s, %zu ids: logprobs[%zu] %.6f, expected %.6f", name, g->n, t, logprobs[t],
                     g->logprobs[t]);
        }
        if (and_argmax) assert_int_equal(argmax[t], g->argmax[t]);
    }
}

typedef struct collected {
    int32_t ids[IDS_MAX];
    size_t n;
} collected;

static bool collect(void *user, int32_t id)
{
    collected *c = user;
    c->ids[c->n++] = id;
    return true;
}

static void check_answer(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n,
                         const int32_t *want, size_t n_want)
{
    collected got = {.n = 0};
    skv_sampler *sampler;
    skv_sampling sampling = skv_sampling_default();
    skv_generation generation = {
        .max_tokens = n_want, .ignore_eos = true, .on_token = collect, .user = &got};
    skv_error err;
    assert_int_equal(skv_sampler_create(&sampling, skv_engine_vocab(engine), &sampler, &err),
                     SKV_OK);
    generation.sampler = sampler;
    if (skv_generate(engine, s, ids, n, &generation, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    skv_sampler_free(sampler);
    assert_int_equal(got.n, n_want);
    assert_memory_equal(got.ids, want, n_want * sizeof *want);
}

/* The answer to a prompt, and to a second one that begins with the last token of the first
 * answer, which nobody has run. */
static void check_turns(skv_engine *engine, const golden_turns *g)
{
    skv_sequence *s = new_sequence(engine);
    check_answer(engine, s, g->ids, g->n, g->greedy, g->n_greedy);
    int32_t second[IDS_MAX];
    second[0] = g->greedy[g->n_greedy - 1];
    memcpy(second + 1, g->more, g->n_more * sizeof *second);
    check_answer(engine, s, second, g->n_more + 1, g->after, g->n_after);
    skv_sequence_free(s);
}

static void test_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        json_t *root = load_golden(names[i]);
        skv_engine *engine = open_golden(names[i]);
        for (size_t j = 0; j < count_cases(root); j++) {
            golden_turns g = read_case(root, j);
            check_scores(engine, names[i], &g, 1e-4, true);
            check_turns(engine, &g);
        }
        skv_engine_close(engine);
        json_decref(root);
    }
}

/* Torch with rounded matrices is met as closely as with whole ones: nothing else is rounded where
 * products are as narrow as here. */
static void test_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        json_t *root = load_golden(names[i]);
        skv_engine_options options = small_options(SKV_WEIGHTS_BF16);
        options.kv = SKV_KV_F32;
        skv_engine *engine = open_with(names[i], &options);
        for (size_t j = 0; j < count_cases(root); j++) {
            golden_turns g = read_case(root, j);
            memcpy(g.logprobs, g.logprobs_bf16, sizeof g.logprobs);
            check_scores(engine, names[i], &g, 1e-4, false);
        }
        skv_engine_close(engine);
        json_decref(root);
    }
}

/* ---- the cache ---- */

static float value_at(const skv_sequence *s, size_t slot, size_t head, size_t row, size_t which,
                      size_t d)
{
    size_t Dh = s->engine->config->head_dim;
    const size_t track = s->cache.layout->track0[slot] + head;
    const unsigned char *page =
        skv_kv_page_map(s->cache.store, skv_kv_cache_page(&s->cache, track, row / SKV_PAGE_ROWS));
    const unsigned char *rows = page + skv_page_rows_at(SKV_KV_TYPE_F32, Dh, which);
    float x;
    memcpy(&x, rows + ((row % SKV_PAGE_ROWS) * Dh + d) * sizeof x, sizeof x);
    skv_kv_page_unmap(s->cache.store, page);
    return x;
}

static void check_layer(const skv_sequence *s, size_t i, const skv_safetensors *file, size_t n)
{
    const skv_config *c = s->engine->config;
    size_t columns = c->layers[i].n_kv_heads * c->head_dim;
    float *want = malloc(n * columns * sizeof *want);
    for (size_t which = 0; which < 2; which++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%c.%zu", which ? 'v' : 'k', i);
        const skv_tensor *t = skv_safetensors_find(file, name);
        assert_true(t && skv_tensor_rows(t) == n && skv_tensor_columns(t) == columns);
        skv_tensor_read_rows(t, 0, n, want);
        for (size_t at = 0; at < n * columns; at++) {
            size_t row = at / columns, head = at % columns / c->head_dim;
            float got = value_at(s, i, head, row, which, at % c->head_dim);
            assert_true(fabsf(got - want[at]) <= 1e-4f * (1 + fabsf(want[at])));
        }
    }
    free(want);
}

static void test_predicted_keys_and_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        json_t *root = load_golden(names[i]);
        golden_turns g = read_case(root, count_cases(root) - 1);
        skv_engine *engine = open_golden(names[i]);
        skv_sequence *s = new_sequence(engine);
        skv_span span = {s, g.ids, g.n, SKV_WANT_NONE};
        assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
        char path[512];
        skv_safetensors *file;
        (void)snprintf(path, sizeof path, "%s/kvpred/%s/kv.safetensors", SKV_TEST_DATA, names[i]);
        assert_int_equal(skv_safetensors_open(path, &file, NULL), SKV_OK);
        for (size_t l = 0; l < engine->config->n_layers; l++) check_layer(s, l, file, g.n);
        skv_safetensors_close(file);
        skv_sequence_free(s);
        skv_engine_close(engine);
        json_decref(root);
    }
}

/* ---- the same, however it is cut ---- */

static void assert_close(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_true(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i])));
}

/* Reads ids in chunks and leaves the logits after the last in row 0. */
static void read_in_chunks(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n,
                           size_t chunk, span_logits *out)
{
    skv_error err;
    for (size_t at = 0; at < n; at += chunk) {
        size_t now = n - at < chunk ? n - at : chunk;
        skv_span span = {s, ids + at, now, at + now == n ? SKV_WANT_LAST : SKV_WANT_NONE};
        if (skv_step(engine, &span, 1, span_logits_take, out, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
    }
}

static void test_chunks(void **state)
{
    (void)state;
    const size_t chunks[] = {1, 7, 64};
    for (size_t i = 0; i < N_NAMES; i++) {
        json_t *root = load_golden(names[i]);
        golden_turns g = read_case(root, count_cases(root) - 1);
        skv_engine *engine = open_golden(names[i]);
        span_logits whole = {.vocab = skv_engine_vocab(engine)}, cut = whole;
        skv_sequence *s = new_sequence(engine);
        read_in_chunks(engine, s, g.ids, g.n, g.n, &whole);
        skv_sequence_free(s);
        for (size_t j = 0; j < 3; j++) {
            s = new_sequence(engine);
            read_in_chunks(engine, s, g.ids, g.n, chunks[j], &cut);
            assert_close(cut.rows[0], whole.rows[0], whole.vocab);
            skv_sequence_free(s);
        }
        skv_engine_close(engine);
        json_decref(root);
    }
}

/* Prompts, generated tokens and the base's own reading beside one another; one prompt shares the
 * beginning of another, one was cut back; all as if alone. */
static void test_batches(void **state)
{
    (void)state;
    json_t *root = load_golden(names[1]);
    golden_turns g = read_case(root, count_cases(root) - 1);
    skv_engine *engine = open_golden(names[1]);
    span_logits alone = {.vocab = skv_engine_vocab(engine)}, base = alone, got = alone;
    skv_sequence *s[4];
    skv_error err;
    for (size_t i = 0; i < 3; i++) s[i] = new_sequence(engine);
    assert_int_equal(skv_sequence_create_as(engine, SKV_PREFILL_FULL, 0, &s[3], &err), SKV_OK);
    read_in_chunks(engine, s[0], g.ids, g.n, g.n, &alone);
    read_in_chunks(engine, s[3], g.ids, g.n, g.n, &base);
    skv_sequence_truncate(s[0], 30);
    assert_int_equal(skv_sequence_share(s[1], s[0], 20, &err), SKV_OK);
    skv_sequence_truncate(s[3], 10);
    skv_span spans[] = {{s[0], g.ids + 30, g.n - 30, SKV_WANT_LAST},
                        {s[1], g.ids + 20, 10, SKV_WANT_NONE},
                        {s[2], g.ids, 15, SKV_WANT_NONE},
                        {s[3], g.ids + 10, 12, SKV_WANT_NONE}};
    if (skv_step(engine, spans, 4, span_logits_take, &got, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    assert_close(got.rows[0], alone.rows[0], alone.vocab);
    read_in_chunks(engine, s[3], g.ids + 22, g.n - 22, 32, &got);
    assert_close(got.rows[0], base.rows[0], base.vocab);
    read_in_chunks(engine, s[1], g.ids + 30, g.n - 30, 32, &got);
    assert_close(got.rows[0], alone.rows[0], alone.vocab);
    read_in_chunks(engine, s[2], g.ids + 15, g.n - 15, 32, &got);
    assert_close(got.rows[0], alone.rows[0], alone.vocab);
    for (size_t i = 0; i < 4; i++) skv_sequence_free(s[i]);
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.kv_bytes, 0);
    assert_true(stats.kv_prediction);
    skv_engine_close(engine);
    json_decref(root);
}

/* One token has nothing before it to predict: it is the base's own. A step that fails leaves both
 * caches as they were. */
static void test_one_token_and_failures(void **state)
{
    (void)state;
    skv_engine *engine = open_golden(names[2]);
    span_logits own = {.vocab = skv_engine_vocab(engine)}, full = own;
    skv_sequence *s = new_sequence(engine), *base;
    skv_error err;
    const int32_t one[] = {5}, bad[] = {7, 8, 100000};
    read_in_chunks(engine, s, one, 1, 1, &own);
    assert_int_equal(skv_sequence_create_as(engine, SKV_PREFILL_FULL, 0, &base, &err), SKV_OK);
    read_in_chunks(engine, base, one, 1, 1, &full);
    assert_memory_equal(own.rows[0], full.rows[0], own.vocab * sizeof(float));
    skv_span span = {s, bad, 3, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, span_logits_take, &own, &err), SKV_RANGE);
    span.n = 2;
    skv_cancel(engine);
    assert_int_equal(skv_step(engine, &span, 1, span_logits_take, &own, &err), SKV_CANCELLED);
    assert_int_equal(s->reader->cache.n_rows, 0);
    assert_int_equal(s->cache.n_rows, 1);
    assert_int_equal(skv_step(engine, &span, 1, span_logits_take, &own, &err), SKV_OK);
    assert_int_equal(s->reader->cache.n_rows,
                     2); /* the first token was caught up with, the last is own */
    skv_sequence_free(s);
    skv_sequence_free(base);
    skv_engine_close(engine);
}

/* ---- eviction ---- */

static skv_engine *open_evicting(const char *name, const char *how, size_t step_tokens)
{
    skv_engine_options options = small_options(SKV_WEIGHTS_F32);
    skv_error err;
    options.step_tokens = step_tokens;
    if (skv_eviction_parse(how, &options.eviction, &err) != SKV_OK) fail_msg("%s", err.text);
    return open_with(name, &options);
}

static void read_prompt(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n,
                        float *logits)
{
    skv_error err;
    if (skv_prompt(engine, s, ids, n, &(skv_prompt_options){.logits = logits}, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

static void expect_kept(const char *what, const skv_sequence *s, const json_t *kept)
{
    for (size_t i = 0; i < json_array_size(kept); i++) {
        const json_t *of_layer = json_array_get(kept, i);
        for (size_t h = 0; h < json_array_size(of_layer); h++) {
            int32_t want[IDS_MAX];
            size_t got[IDS_MAX], n = read_ints(json_array_get(of_layer, h), want);
            assert_int_equal(skv_sequence_kept(s, i, h, got, IDS_MAX), n);
            for (size_t r = 0; r < n; r++) {
                if (got[r] == (size_t)want[r]) continue;
                fail_msg("%s: layer %zu, head %zu keeps %zu, not %d", what, i, h, got[r], want[r]);
            }
        }
    }
}

static double log_probability(const float *logits, size_t n, int32_t id)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[id]);
    return -log(sum);
}

/* The rows that stay and what the base says behind them, as plain torch has it
 * (tools/oracle/make_kvpred_evict_goldens.py). The first token is, to the bit, the one that comes
 * without eviction. */
static void check_evicted(const json_t *c, size_t step_tokens)
{
    const char *name = json_string_value(json_object_get(c, "model"));
    const char *how = json_string_value(json_object_get(c, "how"));
    const json_t *want = json_object_get(c, "logprobs");
    int32_t ids[IDS_MAX];
    size_t n_all = read_ints(json_object_get(c, "ids"), ids);
    size_t n = (size_t)json_integer_value(json_object_get(c, "n"));
    skv_engine *engine = open_evicting(name, how, step_tokens);
    skv_engine *whole = open_evicting(name, "none", step_tokens);
    span_logits got = {.vocab = skv_engine_vocab(engine)}, all = got;
    skv_sequence *s = new_sequence(engine), *s_whole = new_sequence(whole);
    read_prompt(engine, s, ids, n, got.rows[0]);
    read_prompt(whole, s_whole, ids, n, all.rows[0]);
    assert_memory_equal(got.rows[0], all.rows[0], got.vocab * sizeof(float));
    assert_int_equal(s->reader->cache.n_rows, n - 1);
    assert_true(skv_kv_cache_bytes(&s->cache) <= skv_kv_cache_bytes(&s_whole->cache));
    expect_kept(how, s, json_object_get(c, "kept"));
    for (size_t t = n; t < n_all; t++) {
        double found = log_probability(got.rows[0], got.vocab, ids[t]);
        double expected = json_number_value(json_array_get(want, t - n));
        if (!(fabs(found - expected) <= 1e-4)) {
            fail_msg("%s %s: token %zu: %.6f, expected %.6f", name, how, t, found, expected);
        }
        read_in_chunks(engine, s, ids + t, 1, 1, &got);
    }
    skv_sequence_free(s);
    skv_sequence_free(s_whole);
    skv_engine_close(engine);
    skv_engine_close(whole);
}

static void test_eviction(void **state)
{
    (void)state;
    json_t *root = json_load_file(SKV_TEST_DATA "/kvpred/evict.json", 0, NULL);
    assert_int_equal(count_cases(root), 18);
    for (size_t i = 0; i < count_cases(root); i++) {
        const json_t *c = json_array_get(json_object_get(root, "cases"), i);
        check_evicted(c, CONTEXT);
        check_evicted(c, 7);
    }
    json_decref(root);
}

/* Prompts whose tokens vote beside one that does not, in one step, as if each were alone; with room
 * for all the answers are those without eviction, and a second prompt follows. */
static void test_eviction_in_batches(void **state)
{
    (void)state;
    json_t *root = load_golden(names[0]);
    golden_turns g = read_case(root, count_cases(root) - 1);
    skv_engine *engine = open_evicting(names[0], "snapkv:24,8,5", CONTEXT);
    skv_engine *roomy = open_evicting(names[0], "snapkv:80,1", CONTEXT);
    span_logits alone = {.vocab = skv_engine_vocab(engine)}, got = alone;
    skv_sequence *s[3], *all = new_sequence(roomy);
    skv_error err;
    for (size_t i = 0; i < 3; i++) s[i] = new_sequence(engine);
    read_prompt(engine, s[0], g.ids, g.n, alone.rows[0]);
    assert_int_equal(skv_sequence_expect(s[1], g.n, &err), SKV_OK);
    skv_span spans[] = {{s[1], g.ids, g.n, SKV_WANT_LAST}, {s[2], g.ids, 12, SKV_WANT_NONE}};
    assert_int_equal(skv_step(engine, spans, 2, span_logits_take, &got, &err), SKV_OK);
    assert_int_equal(skv_sequence_evict(s[1], &err), SKV_OK);
    assert_close(got.rows[0], alone.rows[0], alone.vocab);
    for (size_t i = 0; i < engine->config->n_layers; i++) {
        size_t one[IDS_MAX], two[IDS_MAX], n = skv_sequence_kept(s[0], i, 0, one, IDS_MAX);
        assert_int_equal(skv_sequence_kept(s[1], i, 0, two, IDS_MAX), n);
        assert_memory_equal(one, two, n * sizeof *one);
    }
    read_prompt(engine, s[1], g.more, g.n_more, got.rows[0]);
    for (size_t j = 0; j < got.vocab; j++) assert_true(isfinite(got.rows[0][j]));
    check_answer(roomy, all, g.ids, g.n, g.greedy, g.n_greedy);
    for (size_t i = 0; i < 3; i++) skv_sequence_free(s[i]);
    skv_sequence_free(all);
    skv_engine_close(engine);
    skv_engine_close(roomy);
    json_decref(root);
}

static void test_8_bits(void **state)
{
    (void)state;
    json_t *root = load_golden(names[0]);
    golden_turns g = read_case(root, count_cases(root) - 1);
    skv_engine_options options = small_options(SKV_WEIGHTS_INT8);
    options.kv = SKV_KV_FP8;
    options.step_tokens = 16;
    skv_engine *engine = open_with(names[0], &options);
    span_logits l = {.vocab = skv_engine_vocab(engine)};
    skv_sequence *s = new_sequence(engine);
    read_in_chunks(engine, s, g.ids, g.n, 16, &l);
    for (size_t i = 0; i < l.vocab; i++) assert_true(isfinite(l.rows[0][i]));
    skv_sequence_free(s);
    skv_engine_close(engine);
    json_decref(root);
}

/* ---- what is refused ---- */

static void assert_refused(skv_status status, const skv_error *err, const char *part)
{
    assert_int_not_equal(status, SKV_OK);
    if (!strstr(err->text, part)) fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

static void test_refusals(void **state)
{
    (void)state;
    skv_engine *engine = NULL;
    skv_error err;
    skv_engine_options options = small_options(SKV_WEIGHTS_F32);
    options.prefill = SKV_PREFILL_KVPRED;
    assert_refused(skv_engine_open(SKV_TEST_DATA "/models/llama-mha", &options, &engine, &err),
                   &err, "no auxiliary model");
    options.no_skip = true;
    assert_refused(skv_engine_open(SKV_TEST_DATA "/kvpred/llama-lp", &options, &engine, &err), &err,
                   "kvpred");
    options.no_skip = false;
    options.preset_kv_layers = 4;
    assert_refused(skv_engine_open_preset("tiny-128k+tiny-128k", &options, &engine, &err), &err,
                   "SwiftKV base");
    options.preset_kv_layers = 0;
    assert_refused(skv_engine_open_preset("tiny-128k+none", &options, &engine, &err), &err,
                   "unknown auxiliary");
    assert_refused(skv_engine_open_preset("tiny-128k+openelm-270m", &options, &engine, &err), &err,
                   "more than the base's");
}

/* A preset pair runs; its auxiliary alone is an ordinary sequence of the base's method. */
static void test_preset_pair(void **state)
{
    (void)state;
    skv_engine *engine = NULL;
    skv_error err;
    skv_engine_options options = small_options(SKV_WEIGHTS_BF16);
    if (skv_engine_open_preset("tiny-128k+lp-0.5", &options, &engine, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    skv_sequence *s = new_sequence(engine);
    int32_t ids[50];
    for (int i = 0; i < 50; i++) ids[i] = i * 7;
    float *logits = malloc(skv_engine_vocab(engine) * sizeof *logits);
    assert_int_equal(skv_prompt(engine, s, ids, 50, &(skv_prompt_options){.logits = logits}, &err),
                     SKV_OK);
    assert_true(isfinite(logits[0]));
    free(logits);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static bool open_and_read(void *arg)
{
    skv_engine_options options = small_options(SKV_WEIGHTS_F32);
    options.threads = 1;
    skv_engine *engine;
    skv_sequence *sequence;
    (void)arg;
    if (skv_engine_open(SKV_TEST_DATA "/kvpred/qwen3-c", &options, &engine, NULL) != SKV_OK) {
        return false;
    }
    bool ok = skv_sequence_create(engine, 0, &sequence, NULL) == SKV_OK;
    if (ok) {
        const int32_t ids[] = {3, 4, 5, 6};
        ok = skv_prompt(engine, sequence, ids, 4, NULL, NULL) == SKV_OK;
        skv_sequence_free(sequence);
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
        cmocka_unit_test(test_table_1),
        cmocka_unit_test(test_table_4),
        cmocka_unit_test(test_parameters_of_the_paper),
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_predicted_keys_and_values),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_one_token_and_failures),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_eviction_in_batches),
        cmocka_unit_test(test_8_bits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_preset_pair),
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
    };
    return cmocka_run_group_tests_name("kvpred", tests, NULL, NULL);
}
