/*
 * Prompts that are read layer by layer because the store has no room for all their rows: the same
 * rows, logits and answers, to the bit, as where it has (those are held against torch in
 * test_evict.c); that without eviction they are refused; and that nothing is left of one that was
 * cancelled or found no memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "engine/engine.h"
#include "property_seed.h"

enum { VOCAB_MAX = 128, N_PROMPT = 250, CONTEXT = 320, N_MORE = 4, SMALL = 192 };

typedef struct outcome {
    float logits[1 + N_MORE][VOCAB_MAX]; /* behind the prompt and each further token */
    size_t rows[8][4][CONTEXT], n_rows[8][4];
    size_t bytes;
} outcome;

static void make_ids(int32_t *ids)
{
    for (size_t i = 0; i < N_PROMPT + N_MORE; i++) ids[i] = (int32_t)((i * i * 31 + i * 7) % 89);
}

static skv_engine *open_engine(const char *model, const char *how, size_t kv_tokens)
{
    char path[512];
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s", model);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.kv = SKV_KV_F32;
    options.context = CONTEXT;
    options.kv_tokens = kv_tokens;
    options.step_tokens = 48;
    skv_engine *engine = NULL;
    skv_error err;
    assert_int_equal(skv_eviction_parse(how, &options.eviction, &err), SKV_OK);
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static void take_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const skv_engine *engine = ((skv_sequence **)user)[0]->engine;
    (void)i_span;
    (void)i_token;
    memcpy(((void **)user)[1], logits, engine->config->vocab * sizeof *logits);
}

static void run_whole(const char *model, const char *how, bool unskipped, size_t kv_tokens,
                      outcome *out)
{
    int32_t ids[N_PROMPT + N_MORE];
    make_ids(ids);
    *out = (outcome){.bytes = 0};
    skv_engine *engine = open_engine(model, how, kv_tokens);
    bool fits =
        skv_kv_layout_pages(&engine->plan.layout, N_PROMPT) <= skv_kv_store_pages(engine->store);
    assert_true(fits == (kv_tokens != SMALL));
    skv_sequence *s = NULL;
    skv_error err;
    skv_prefill prefill = unskipped ? SKV_PREFILL_FULL : SKV_PREFILL_AUTO;
    assert_int_equal(skv_sequence_create_as(engine, prefill, 0, &s, &err), SKV_OK);
    if (skv_prompt(engine, s, ids, N_PROMPT, &(skv_prompt_options){.logits = out->logits[0]},
                   &err) != SKV_OK) {
        fail_msg("%s, %s: %s", model, how, err.text);
    }
    for (size_t i = 0; i < engine->config->n_layers; i++) {
        for (size_t h = 0; h < engine->config->layers[i].n_kv_heads; h++) {
            out->n_rows[i][h] = skv_sequence_kept(s, i, h, out->rows[i][h], CONTEXT);
        }
    }
    out->bytes = skv_sequence_kv_bytes(s);
    for (size_t i = 0; i < N_MORE; i++) {
        skv_span span = {s, ids + N_PROMPT + i, 1, SKV_WANT_LAST};
        void *sink[2] = {s, out->logits[1 + i]};
        assert_int_equal(skv_step(engine, &span, 1, take_logits, sink, &err), SKV_OK);
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_the_same_to_the_bit(void **state)
{
    (void)state;
    static const char *const models[] = {"llama3-v5",        "gemma2",
                                         "openelm",          "llama-swiftkv-g1",
                                         "llama-swiftkv-g2", "qwen2-swiftkv-g2"};
    static const char *const hows[] = {"snapkv:40,8,5",    "snapkv:40,8,5,avg,last",
                                       "pyramidkv:40,8,5", "adakv:40,8,5",
                                       "h2o:40",           "streaming:4,40"};
    static outcome whole, layers;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m += one_case_of(5)) {
        for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i += one_case_of(2)) {
            run_whole(models[m], hows[i], i == 1, CONTEXT, &whole);
            run_whole(models[m], hows[i], i == 1, SMALL, &layers);
            assert_true(whole.n_rows[2][0] < N_PROMPT);
            assert_memory_equal(&whole, &layers, sizeof whole);
        }
    }
}

static void count_progress(void *user, size_t done, size_t total)
{
    size_t *seen = user;
    assert_true(done > seen[0] && done <= total);
    seen[0] = done;
    seen[1]++;
}

static void test_what_fits_and_what_does_not(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT + N_MORE];
    make_ids(ids);
    skv_error err;
    skv_sequence *s = NULL;
    skv_engine *engine = open_engine("llama3-v5", "none", SMALL);
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, &err), SKV_FULL);
    skv_eviction how;
    assert_int_equal(skv_eviction_parse("snapkv:40,8,5", &how, &err), SKV_OK);
    assert_int_equal(skv_sequence_set_eviction(s, &how, &err), SKV_OK);
    size_t seen[2] = {0, 0};
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT,
                                &(skv_prompt_options){.progress = count_progress, .user = seen},
                                &err),
                     SKV_OK);
    assert_int_equal(seen[0], N_PROMPT);
    assert_int_equal(seen[1], engine->config->n_layers);
    assert_int_equal(skv_sequence_length(s), N_PROMPT);
    skv_sequence_free(s);
    skv_engine_close(engine);
    /* One layer's rows do not fit either, beside what the others have kept. */
    engine = open_engine("llama3-v5", "snapkv:40,8,5", 64);
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, &err), SKV_FULL);
    assert_non_null(strstr(err.text, "one layer"));
    assert_int_equal(skv_kv_store_free_pages(engine->store), skv_kv_store_pages(engine->store));
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void cancel_later(void *user, size_t done, size_t total)
{
    if (2 * done >= total) skv_cancel(user);
}

static void test_cancelled(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT + N_MORE];
    make_ids(ids);
    skv_engine *engine = open_engine("llama3-v5", "snapkv:40,8,5", SMALL);
    skv_sequence *s = NULL;
    skv_error err;
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT,
                                &(skv_prompt_options){.progress = cancel_later, .user = engine},
                                &err),
                     SKV_CANCELLED);
    assert_int_equal(skv_sequence_length(s), 0);
    assert_int_equal(skv_kv_store_free_pages(engine->store), skv_kv_store_pages(engine->store));
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, &err), SKV_OK);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static bool prompt_once(void *arg)
{
    skv_engine *engine = arg;
    int32_t ids[N_PROMPT + N_MORE];
    make_ids(ids);
    skv_sequence *s = NULL;
    bool ok = skv_sequence_create(engine, 0, &s, NULL) == SKV_OK &&
              skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL) == SKV_OK;
    skv_sequence_free(s);
    assert_int_equal(skv_kv_store_free_pages(engine->store), skv_kv_store_pages(engine->store));
    return ok;
}

static void test_no_memory(void **state)
{
    (void)state;
    skv_engine *engine = open_engine("openelm", "snapkv:40,8,5", SMALL);
    size_t n = alloc_fail_each(prompt_once, engine, false);
    assert_true(n > 8 && n < SIZE_MAX);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_to_the_bit),
        cmocka_unit_test(test_what_fits_and_what_does_not),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
