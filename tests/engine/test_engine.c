/*
 * The engine's promises: shared beginnings, cancelling, bounds, memory said before it is taken,
 * KV memory as allocated, no allocation in a step, and that running out of memory while opening
 * leaks nothing.
 * Labels: threads
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

#include "alloc_fail.h"
#include "engine/engine.h"
#include "kernels/cpu.h"
#include "open_engine.h"
#include "prefill/method.h"
#include "property_seed.h"
#include "skv/skv.h"
#include "skv/tools.h"
#include "span_logits.h"
#include "tested_level.h"

#define MODEL SKV_TEST_DATA "/models/llama3-v5"
#define SWIFTKV_MODEL SKV_TEST_DATA "/models/llama-swiftkv-g2"
#define MINI_MODEL SKV_TEST_DATA "/../../models/mini/kv6-g2"
#define MIXTURE SKV_TEST_DATA "/models/qwen3-moe-gguf/model.gguf"
#define HYBRID SKV_TEST_DATA "/models/qwen3-5-moe"
#define SINKS SKV_TEST_DATA "/models/gpt-oss"

enum { N_IDS = 60, VOCAB_MAX = 512 };

/* All pairs of weights and KV types, or each type once. */
enum { MIX_STEP = THREADS_ONLY ? 5 : 1 };

static void make_ids(int32_t ids[N_IDS])
{
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + 5) % 90;
}

static skv_engine_options small_options(void)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = 64;
    options.kv_tokens = 4 * 64;
    options.step_tokens = 16;
    return options;
}

/* Logits after ids[0..N_IDS) that were read in steps of these sizes (ended by 0), beside `company`.
 */
static void read_in_pieces(skv_engine *engine, const int32_t *ids, const size_t *sizes,
                           bool company, float *logits)
{
    skv_sequence *own = new_sequence(engine), *other = new_sequence(engine);
    span_logits last = {.vocab = skv_engine_vocab(engine)};
    skv_error err;
    for (size_t at = 0; *sizes > 0; at += *sizes++) {
        skv_span spans[2] = {{own, ids + at, *sizes, SKV_WANT_LAST},
                             {other, ids, 3, SKV_WANT_LAST}};
        if (skv_step(engine, spans, company ? 2 : 1, span_logits_take, &last, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
    }
    assert_int_equal(skv_sequence_length(own), N_IDS);
    memcpy(logits, last.rows[0], last.vocab * sizeof *logits);
    skv_sequence_free(own);
    skv_sequence_free(other);
}

static void expect_invariant(const char *model, const skv_engine_options *options,
                             const int32_t *ids)
{
    static const size_t pieces[][N_IDS + 1] = {
        {N_IDS}, {N_IDS - 1, 1}, {1, 30, 1, 1, 20, 2, 1, 4}, {7, 16, 9, 28}};
    static float want[SPAN_LOGITS_VOCAB], got[SPAN_LOGITS_VOCAB];
    skv_engine *engine = open_or_fail(model, options);
    read_in_pieces(engine, ids, pieces[0], false, want);
    for (size_t j = 1; j < 8; j++) {
        read_in_pieces(engine, ids, pieces[j / 2], j % 2, got);
        if (memcmp(got, want, skv_engine_vocab(engine) * sizeof *got) != 0) {
            fail_msg("%s, %s: weights %d, kv %d, pieces %zu", model, options->cpu,
                     (int)options->weights, (int)options->kv, j);
        }
    }
    skv_engine_close(engine);
}

/* With batch invariance, logits have the same bits whatever a step reads beside a token. */
static void test_batch_invariance(void **state)
{
    (void)state;
    static const skv_weights weights[] = {SKV_WEIGHTS_F32, SKV_WEIGHTS_BF16, SKV_WEIGHTS_INT8,
                                          SKV_WEIGHTS_INT4};
    static const skv_kv kvs[] = {SKV_KV_F32, SKV_KV_BF16, SKV_KV_INT8, SKV_KV_FP8};
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t i = 16 * SKV_CPU_LEVEL_AVX2; i < 16 * (SKV_CPU_LEVEL_NEON + 1); i += MIX_STEP) {
        skv_cpu_level level = (skv_cpu_level)(i / 16);
        if (!tested_level(level)) continue;
        skv_engine_options options = small_options();
        options.step_tokens = options.context = 128;
        options.kv_tokens = 4 * 128;
        options.batch_invariant = true;
        options.cpu = skv_cpu_level_name(level);
        options.weights = weights[i / 4 % 4];
        options.kv = kvs[i % 4];
        expect_invariant(MINI_MODEL, &options, ids);
        expect_invariant(MIXTURE, &options, ids);
        expect_invariant(SINKS, &options, ids);
        expect_invariant(HYBRID, &options, ids);
    }
}

/* A sequence that shares another's beginning goes on exactly as if it had read it itself, and the
 * other is not disturbed. */
static void expect_shared_beginning(const char *model)
{
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine_options options = small_options();
    skv_engine *engine = open_or_fail(model, &options);
    size_t V = skv_engine_vocab(engine);
    float whole[VOCAB_MAX], forked[VOCAB_MAX], again[VOCAB_MAX];
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine);
    assert_int_equal(skv_prompt(engine, a, ids, 50, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_share(b, a, 33, NULL), SKV_OK);
    assert_int_equal(
        skv_prompt(engine, a, ids + 50, 5, &(skv_prompt_options){.logits = whole}, NULL), SKV_OK);
    assert_int_equal(
        skv_prompt(engine, b, ids + 33, 22, &(skv_prompt_options){.logits = forked}, NULL), SKV_OK);
    for (size_t i = 0; i < V; i++) assert_true(fabsf(whole[i] - forked[i]) < 1e-4f);
    skv_sequence_truncate(a, 40);
    assert_int_equal(skv_sequence_length(a), 40);
    assert_int_equal(
        skv_prompt(engine, a, ids + 40, 15, &(skv_prompt_options){.logits = again}, NULL), SKV_OK);
    for (size_t i = 0; i < V; i++) assert_true(fabsf(whole[i] - again[i]) < 1e-4f);
    assert_memory_equal(skv_sequence_ids(a), ids, 55 * sizeof *ids);
    skv_sequence_free(a);
    skv_sequence_free(b);
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.kv_bytes, 0);
    skv_engine_close(engine);
}

static void test_shared_beginning(void **state)
{
    static const char *const models[] = {"llama-swiftkv-g2", "gemma4-e2b", "gemma4-dense",
                                         "gpt-oss",          "ministral3", "qwen3-moe-swiftkv-g2",
                                         "smollm3"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_DATA, models[i]);
        expect_shared_beginning(path);
    }
}

static void cancel_at_token(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)i_span;
    (void)i_token;
    (void)logits;
    skv_cancel(user);
}

static void test_cancelled_step_changes_nothing(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine_options options = small_options();
    skv_engine *engine = open_or_fail(MODEL, &options);
    skv_sequence *s = new_sequence(engine);
    skv_span span = {s, ids, 10, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, cancel_at_token, engine, NULL), SKV_OK);
    size_t kv_bytes = skv_sequence_kv_bytes(s);
    span = (skv_span){s, ids + 10, 10, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_CANCELLED);
    assert_int_equal(skv_sequence_length(s), 10);
    assert_int_equal(skv_sequence_kv_bytes(s), kv_bytes);
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_length(s), 20);
    skv_cancel(engine);
    skv_uncancel(engine);
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void expect_error(skv_status got, skv_status want, const skv_error *err, const char *text)
{
    assert_int_equal(got, want);
    if (!strstr(err->text, text)) fail_msg("%s", err->text);
}

static void test_bounds(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_error err = {0};
    skv_engine_options options = small_options();
    skv_engine *engine = open_or_fail(MODEL, &options);
    skv_sequence *s = new_sequence(engine), *t;
    expect_error(skv_prompt(engine, s, ids, 0, NULL, &err), SKV_ARGUMENT, &err, "prompt: empty");
    int32_t bad[] = {3, -1};
    expect_error(skv_prompt(engine, s, bad, 2, NULL, &err), SKV_RANGE, &err,
                 "ids[1]: -1, the vocabulary has");
    bad[1] = (int32_t)skv_engine_vocab(engine);
    expect_error(skv_prompt(engine, s, bad, 2, NULL, &err), SKV_RANGE, &err, "the vocabulary has");
    assert_int_equal(skv_sequence_length(s), 0);
    assert_int_equal(skv_prompt(engine, s, ids, 60, NULL, NULL), SKV_OK);
    expect_error(skv_prompt(engine, s, ids, 5, NULL, &err), SKV_FULL, &err,
                 "prompt: 5 tokens after 60, but the context is 64");
    expect_error(skv_sequence_create(engine, 65, &t, &err), SKV_RANGE, &err,
                 "sequence: 65 tokens, the context is 64");
    skv_span twice[] = {{s, ids, 1, SKV_WANT_NONE}, {s, ids, 1, SKV_WANT_NONE}};
    expect_error(skv_step(engine, twice, 2, NULL, NULL, &err), SKV_ARGUMENT, &err,
                 "spans 0 and 1 are of one sequence");
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_pool_runs_out_cleanly(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_error err = {0};
    skv_engine_options options = small_options();
    options.kv_tokens = 64;
    skv_engine *engine = open_or_fail(MODEL, &options);
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine);
    assert_int_equal(skv_prompt(engine, a, ids, 10, NULL, NULL), SKV_OK);
    expect_error(skv_prompt(engine, b, ids, 10, NULL, &err), SKV_FULL, &err,
                 "pages are needed, 0 of");
    assert_int_equal(skv_sequence_length(b), 0);
    skv_sequence_free(a);
    assert_int_equal(skv_prompt(engine, b, ids, 10, NULL, NULL), SKV_OK);
    skv_sequence_free(b);
    skv_engine_close(engine);
}

static void test_options_are_refused_by_name(void **state)
{
    (void)state;
    skv_error err = {0};
    skv_engine *engine;
    skv_engine_options options = small_options();
    options.prefill = SKV_PREFILL_SWIFTKV;
    expect_error(skv_engine_open(MODEL, &options, &engine, &err), SKV_UNSUPPORTED, &err,
                 "ordinary model, prefill swiftkv: the model has no SwiftKV weights");
    options = small_options();
    options.context = (size_t)1 << 30;
    expect_error(skv_engine_open(MODEL, &options, &engine, &err), SKV_RANGE, &err,
                 "context: 1073741824 tokens, at most");
    options = small_options();
    options.cpu = "z80";
    expect_error(skv_engine_open(MODEL, &options, &engine, &err), SKV_ARGUMENT, &err,
                 "cpu: unknown level \"z80\"");
    expect_error(skv_engine_open_preset("gpt-9", NULL, &engine, &err), SKV_ARGUMENT, &err,
                 "preset: unknown name \"gpt-9\"");
}

/* Methods are checked by the options as they were given: a method that runs every layer may still
 * lose rows. */
static void test_options_are_checked_as_given(void **state)
{
    (void)state;
    skv_engine_options options = skv_engine_options_default();
    skv_error err;
    options.threads = 1;
    options.context = 64;
    options.device = "cpu";
    options.prefill = SKV_PREFILL_SWIFTKV_FULL;
    assert_int_equal(skv_eviction_parse("snapkv:40,8,5", &options.eviction, &err), SKV_OK);
    skv_engine *engine = NULL;
    const skv_status status =
        skv_engine_open(SKV_TEST_DATA "/models/llama-swiftkv-g1", &options, &engine, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    skv_engine_close(engine);
}

static void test_memory_is_said_before_it_is_taken(void **state)
{
    (void)state;
    skv_error err = {0};
    skv_engine *engine;
    skv_engine_options options = skv_engine_options_default();
    options.weights = SKV_WEIGHTS_F32;
    size_t before = skv_peak_rss();
    expect_error(skv_engine_open_preset("llama-3.1-405b", &options, &engine, &err), SKV_MEMORY,
                 &err, "memory: weights 154");
    assert_true(skv_peak_rss() < before + ((size_t)64 << 20));
}

/* What a plan says, an engine with its options takes; and the most that it says fits does, to the
 * byte: one token more is refused. */
static void check_plan(const char *path, skv_engine_options options)
{
    static const size_t room = (size_t)64 << 20;
    skv_memory_plan plan;
    skv_engine_stats stats;
    skv_engine *engine;
    skv_error err = {0};
    size_t needed = 0;
    options.memory_needed = &needed;
    assert_int_equal(skv_memory_plan_make(path, &options, room, &plan, &err), SKV_OK);
    assert_int_equal(skv_engine_open(path, &options, &engine, &err), SKV_OK);
    skv_engine_get_stats(engine, &stats);
    skv_engine_close(engine);
    assert_int_equal(plan.needed, needed);
    assert_int_equal(plan.weight_bytes + plan.kv_bytes + plan.workspace_bytes, plan.needed);
    assert_int_equal(plan.kv_bytes, stats.kv_bytes_max);
    assert_int_equal(plan.workspace_bytes, stats.workspace_bytes);
    /* Norms and biases, small beside all but the smallest models, are not in the plan. */
    assert_in_range(stats.weight_bytes, plan.weight_bytes, plan.weight_bytes * 21 / 20 + 8192);
    assert_int_equal(plan.context, stats.context);
    assert_int_equal(plan.threads, stats.threads);
    assert_int_equal(plan.weights, stats.weights);
    assert_int_equal(plan.kv, stats.kv);
    assert_true(plan.fits && plan.kv_tokens_max > plan.kv_tokens);
    options.memory_max = room;
    options.kv_tokens = plan.kv_tokens_max;
    assert_int_equal(skv_engine_open(path, &options, &engine, &err), SKV_OK);
    skv_engine_close(engine);
    options.kv_tokens++;
    assert_int_equal(skv_engine_open(path, &options, &engine, &err), SKV_MEMORY);
    options.context = options.kv_tokens = plan.context_max;
    assert_int_equal(skv_engine_open(path, &options, &engine, &err), SKV_OK);
    skv_engine_close(engine);
    options.context = ++options.kv_tokens;
    assert_int_equal(skv_engine_open(path, &options, &engine, &err), SKV_MEMORY);
}

/* What a device does not have, neither a plan nor an engine promises. */
static void check_refused(const char *path, skv_engine_options options)
{
    skv_memory_plan plan;
    skv_engine *engine = NULL;
    skv_error err = {0};
    expect_error(skv_memory_plan_make(path, &options, 0, &plan, &err), SKV_UNSUPPORTED, &err,
                 "fp8");
    expect_error(skv_engine_open(path, &options, &engine, &err), SKV_UNSUPPORTED, &err, "fp8");
}

static void test_plan_is_what_an_engine_takes(void **state)
{
    static const char *const paths[] = {MODEL,
                                        SWIFTKV_MODEL,
                                        MINI_MODEL,
                                        MIXTURE,
                                        HYBRID,
                                        SKV_TEST_DATA "/models/gptq",
                                        SKV_TEST_DATA "/models/llama-gguf/model.gguf"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        for (int w = SKV_WEIGHTS_AUTO; skv_weights_name((skv_weights)w); w++) {
            skv_engine_options options = small_options();
            options.weights = (skv_weights)w;
            options.kv = w % 2 ? SKV_KV_INT8 : SKV_KV_AUTO;
            options.with_teacher = w == SKV_WEIGHTS_AUTO;
            if (w == SKV_WEIGHTS_FP8) {
                check_refused(paths[i], options);
            } else {
                check_plan(paths[i], options);
            }
        }
    }
}

static void test_plan_of_what_is_not_there(void **state)
{
    (void)state;
    skv_error err = {0};
    skv_memory_plan plan;
    skv_engine_options options = skv_engine_options_default();
    const size_t before = skv_peak_rss();
    assert_int_equal(skv_memory_plan_make("preset:llama-3.1-405b", &options, 0, &plan, &err),
                     SKV_OK);
    assert_true(!plan.fits && plan.needed > (size_t)700 << 30 && plan.kv_tokens_max == 0);
    options.threads = 64;
    assert_int_equal(
        skv_memory_plan_make("preset:llama-3.1-405b", &options, (size_t)1 << 40, &plan, &err),
        SKV_OK);
    assert_true(plan.fits && plan.threads == 64 && plan.context_max > plan.context);
    assert_true(skv_peak_rss() < before + ((size_t)64 << 20));
    expect_error(skv_memory_plan_make("preset:gpt-9", NULL, 0, &plan, &err), SKV_ARGUMENT, &err,
                 "preset: unknown name \"gpt-9\"");
}

/* Bytes of the pages that 1024 tokens take, as the store counts them. */
static size_t allocated_bytes(const char *preset, size_t l, size_t g, skv_kv_type type)
{
    enum { N_TOKENS = 1024 };
    skv_config *config;
    skv_plan plan;
    skv_pool *pool;
    skv_backend *be;
    skv_kv_store *store;
    skv_kv_cache cache;
    assert_int_equal(skv_preset_config(preset, l, g, &config, NULL), SKV_OK);
    const skv_prefill prefill = l > 0 ? SKV_PREFILL_SWIFTKV : SKV_PREFILL_FULL;
    assert_int_equal(skv_plan_method(&plan, prefill, config, true, NULL), SKV_OK);
    size_t n_pages = skv_kv_layout_pages(&plan.layout, N_TOKENS);
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    assert_int_equal(
        skv_backend_create(&(skv_backend_options){.threads = pool, .level = SKV_CPU_LEVEL_REF}, &be,
                           NULL),
        SKV_OK);
    assert_int_equal(
        skv_kv_store_create(be, type, skv_plan_page_bytes(config, type), n_pages, &store, NULL),
        SKV_OK);
    assert_int_equal(skv_kv_layout_bind(&plan.layout, store, N_TOKENS, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_init(&cache, &plan.layout, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_grow(&cache, N_TOKENS, NULL), SKV_OK);
    assert_int_equal(skv_kv_store_free_pages(store), 0);
    size_t n_bytes = skv_kv_cache_bytes(&cache);
    skv_kv_cache_release(&cache);
    skv_plan_release(&plan);
    skv_kv_store_free(store);
    be->free(be);
    skv_pool_free(pool);
    skv_preset_free(config);
    return n_bytes;
}

/* l = L/2: 25 % less with g = 2, 37.5 % with g = 4, 62 % with g = 2 and 8 bits. */
static void test_kv_memory_is_saved(void **state)
{
    (void)state;
    const char *name = "llama-3.1-8b";
    double full = (double)allocated_bytes(name, 0, 0, SKV_KV_TYPE_BF16);
    assert_true(full == 32.0 * 2 * 8 * 128 * 2 * 1024);
    assert_true((double)allocated_bytes(name, 16, 2, SKV_KV_TYPE_BF16) == 0.75 * full);
    assert_true((double)allocated_bytes(name, 16, 4, SKV_KV_TYPE_BF16) == 0.625 * full);
    assert_true((double)allocated_bytes(name, 16, 2, SKV_KV_TYPE_FP8) <= 0.38 * full);
    assert_true((double)allocated_bytes(name, 16, 2, SKV_KV_TYPE_INT8) <= 0.38 * full);
}

static void test_a_step_allocates_nothing(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine_options options = small_options();
    static const char *const paths[] = {SWIFTKV_MODEL, HYBRID};
    for (size_t m = 0; m < sizeof paths / sizeof paths[0]; m++) {
        skv_engine *engine = open_or_fail(paths[m], &options);
        skv_sequence *s = new_sequence(engine);
        alloc_fail_at(0);
        skv_span span = {s, ids, 16, SKV_WANT_ALL};
        assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
        for (size_t i = 16; i < 40; i++) {
            span = (skv_span){s, ids + i, 1, SKV_WANT_LAST};
            assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
        }
        assert_int_equal(alloc_fail_count(), 0);
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
}

static bool open_and_generate(void *arg)
{
    skv_engine_options options = small_options();
    options.threads = 1;
    skv_engine *engine;
    skv_sequence *sequence;
    if (skv_engine_open(arg, &options, &engine, NULL) != SKV_OK) return false;
    bool ok = skv_sequence_create(engine, 0, &sequence, NULL) == SKV_OK;
    if (ok) {
        int32_t ids[N_IDS];
        make_ids(ids);
        ok = skv_prompt(engine, sequence, ids, 20, NULL, NULL) == SKV_OK;
        skv_sequence_free(sequence);
    }
    skv_engine_close(engine);
    return ok;
}

static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    static char paths[][512] = {SWIFTKV_MODEL, HYBRID};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        size_t n = alloc_fail_each(open_and_generate, paths[i], false);
        assert_true(n > 50 && n < SIZE_MAX);
    }
}

/* The published tables count 302, 228, 154 and 153 GFLOPs for Llama-3.1-70B at 128K tokens, with
 * the vocabulary counted twice and attention in units of 2^30 (skv_model_cost). */
static void test_cost_is_the_papers(void **state)
{
    (void)state;
    static const struct {
        size_t l, g;
        double total, kv, qo, mlp, attention;
    } table[] = {{80, 1, 302, 2.6, 22, 113, 160},
                 {60, 1, 228, 2.6, 16, 85, 120},
                 {40, 1, 154, 2.6, 11, 56, 80},
                 {40, 4, 153, 1.7, 11, 56, 80}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        skv_cost c;
        assert_int_equal(
            skv_model_cost("preset:llama-3.1-70b", table[i].l, table[i].g, 131072, &c, NULL),
            SKV_OK);
        double vocabulary = 2 * c.vocabulary * 1e-9, attention = c.attention / 0x1p30;
        assert_true(fabs(vocabulary - 4.3) < 0.15);
        assert_true(fabs(c.kv * 1e-9 - table[i].kv) < 0.1);
        assert_true(fabs((c.q + c.o) * 1e-9 - table[i].qo) < 0.6);
        assert_true(fabs(c.mlp * 1e-9 - table[i].mlp) < 0.6);
        assert_true(fabs(attention - table[i].attention) < 0.6);
        double total = vocabulary + (c.kv + c.q + c.o + c.mlp) * 1e-9 + attention;
        assert_true(fabs(total - table[i].total) < 1.0);
    }
}

/* Qwen 3.6: GFLOP of a prompt token without attention and vocabulary, counted by hand from the
 * shapes. Where a token stops, 8288 columns a linear layer are left, and 2048 a layer with
 * attention. Those totals count the rules by chunks of 64, skv_model_cost as the recurrence, which
 * is 0.01 less in full and as much more where nothing comes out. */
static void test_cost_of_hybrids(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        size_t l;
        double total, fed;
        size_t state_bytes, kv_bytes;
    } table[] = {
        {"preset:qwen3.6-27b", 64, 48.98, 4.41, 156893184, 65536},
        {"preset:qwen3.6-27b", 32, 26.78, 4.41, 156893184, 65536},
        {"preset:qwen3.6-35b-a3b", 40, 4.99, 0.81, 65863680, 20480},
        {"preset:qwen3.6-35b-a3b", 20, 2.94, 0.81, 65863680, 20480},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const size_t l = table[i].l;
        skv_model_info info;
        skv_cost one;
        assert_int_equal(skv_model_info_swiftkv(table[i].preset, l, 1, &info, NULL), SKV_OK);
        assert_int_equal(info.state_bytes, table[i].state_bytes);
        assert_int_equal(skv_model_kv_bytes_per_token(&info, SKV_KV_BF16), table[i].kv_bytes);
        assert_int_equal(skv_model_cost(table[i].preset, l, 1, 1, &one, NULL), SKV_OK);
        const double total = one.q + one.kv + one.o + one.mlp + one.attention;
        assert_true(fabs(one.kv * 1e-9 - table[i].fed) < 0.006);
        assert_true(fabs(total * 1e-9 - table[i].total) < 0.0105);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_beginning),
        cmocka_unit_test(test_batch_invariance),
        cmocka_unit_test(test_cancelled_step_changes_nothing),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_pool_runs_out_cleanly),
        cmocka_unit_test(test_options_are_refused_by_name),
        cmocka_unit_test(test_options_are_checked_as_given),
        cmocka_unit_test(test_memory_is_said_before_it_is_taken),
        cmocka_unit_test(test_plan_is_what_an_engine_takes),
        cmocka_unit_test(test_plan_of_what_is_not_there),
        cmocka_unit_test(test_kv_memory_is_saved),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
        cmocka_unit_test(test_cost_is_the_papers),
        cmocka_unit_test(test_cost_of_hybrids),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
