/*
 * An engine that only makes keys and values of prompts (prompt_only): the same bits as the whole
 * model's in every slot, in little more than half of its memory, and nothing but that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "skv/skv.h"

#define MODELS SKV_TEST_DATA "/models/"
#define MINI SKV_TEST_DATA "/../../models/mini/"

enum { N_TOKENS = 128, STEP = 48, VOCAB = 90 };

static skv_engine *open_engine(const char *path, skv_engine_options options, bool prompt_only)
{
    skv_error err;
    skv_engine *engine = NULL;
    options.prompt_only = prompt_only;
    options.threads = 1;
    options.context = options.kv_tokens = 2 * SKV_PAGE_ROWS;
    options.step_tokens = STEP;
    options.batch_invariant = true;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_sequence *read_prompt(skv_engine *engine)
{
    int32_t ids[N_TOKENS];
    skv_error err;
    skv_sequence *s = NULL;
    for (size_t i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(skv_mix64(i) % VOCAB);
    if (skv_sequence_create(engine, 0, &s, &err) != SKV_OK ||
        skv_prompt(engine, s, ids, N_TOKENS, NULL, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return s;
}

static void compare_pages(const skv_sequence *got, const skv_sequence *want)
{
    skv_kv_store *a = got->engine->store, *b = want->engine->store;
    const size_t n_bytes = skv_kv_store_page_bytes(a), n = want->cache.layout->n_bundles;
    assert_int_equal(n_bytes, skv_kv_store_page_bytes(b));
    assert_int_equal(got->cache.layout->n_bundles, n);
    for (size_t t = 0; t < n; t++) {
        for (size_t i = 0; i < N_TOKENS / SKV_PAGE_ROWS; i++) {
            const uint32_t own = skv_kv_cache_block(&got->cache, t, i);
            const uint32_t other = skv_kv_cache_block(&want->cache, t, i);
            /* In front of a window it is gone. */
            assert_int_equal(own == SKV_KV_NO_PAGE, other == SKV_KV_NO_PAGE);
            if (own == SKV_KV_NO_PAGE) continue;
            const void *own_bytes = skv_kv_page_map(a, own), *bytes = skv_kv_page_map(b, other);
            assert_memory_equal(own_bytes, bytes, n_bytes);
            skv_kv_page_unmap(a, own_bytes);
            skv_kv_page_unmap(b, bytes);
        }
    }
}

static void check_same(const char *path, skv_engine_options options)
{
    skv_engine *whole = open_engine(path, options, false), *part = open_engine(path, options, true);
    skv_sequence *want = read_prompt(whole), *got = read_prompt(part);
    compare_pages(got, want);
    skv_engine_stats all, some;
    skv_engine_get_stats(whole, &all);
    skv_engine_get_stats(part, &some);
    assert_true(some.weight_bytes < all.weight_bytes);
    skv_sequence_free(want);
    skv_sequence_free(got);
    skv_engine_close(whole);
    skv_engine_close(part);
}

static void test_same_bits(void **state)
{
    static const char *const models[] = {
        "qwen2-swiftkv-g1", "qwen3-moe-swiftkv-g2", "llama3-v5",    "qwen2-window",
        "mixtral-v5",       "gemma4-e2b",           "llama-shared", "openelm"};
    static const skv_engine_options kinds[] = {{.weights = SKV_WEIGHTS_BF16, .kv = SKV_KV_BF16},
                                               {.weights = SKV_WEIGHTS_INT8, .kv = SKV_KV_INT8},
                                               {.weights = SKV_WEIGHTS_F32, .kv = SKV_KV_FP8}};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, MODELS "%s", models[i]);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) check_same(path, kinds[k]);
    }
    /* The teacher's own method on a SwiftKV file, and an explicit "full". */
    check_same(MODELS "qwen2-swiftkv-g2", (skv_engine_options){.prefill = SKV_PREFILL_TEACHER});
    check_same(MODELS "llama3-v5", (skv_engine_options){.prefill = SKV_PREFILL_FULL});
}

/* What the process holds of the machine's memory beside files, in bytes. */
static size_t own_bytes(void)
{
    size_t kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "RssAnon:", 8) == 0) kib = strtoul(line + 8, NULL, 10);
    }
    (void)fclose(file);
    return kib << 10;
}

static void test_memory(void **state)
{
    size_t weights[2], taken[2];
    (void)state;
    for (int part = 0; part < 2; part++) {
        const size_t before = own_bytes();
        skv_engine_stats stats;
        skv_engine *engine = open_engine(
            MINI "kv6", (skv_engine_options){.weights = SKV_WEIGHTS_F32, .kv = SKV_KV_INT8}, part);
        skv_engine_get_stats(engine, &stats);
        skv_sequence *s = read_prompt(engine);
        weights[part] = stats.weight_bytes;
        taken[part] = own_bytes() - before;
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
    assert_true(weights[1] * 10 <= weights[0] * 6);
    assert_true(taken[0] >= weights[0] && taken[1] >= weights[1]);
#ifndef __SANITIZE_ADDRESS__ /* It keeps what is freed, so the second count has some of the first. \
                              */
    assert_true(taken[1] * 10 <= taken[0] * 6);
#endif
}

static void test_refusals(void **state)
{
    skv_error err;
    skv_sequence *s = NULL;
    skv_engine *engine = open_engine(MODELS "qwen2-swiftkv-g2", (skv_engine_options){0}, true);
    const int32_t ids[] = {1, 2, 3, 4};
    (void)state;
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    for (skv_want want = SKV_WANT_LAST; want <= SKV_WANT_DRAFTED; want++) {
        const skv_span span = {.sequence = s, .ids = ids, .n = 4, .want = want};
        assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, &err), SKV_UNSUPPORTED);
        assert_non_null(strstr(err.text, "prompt_only"));
        assert_int_equal(skv_sequence_length(s), 0);
    }
    /* Rows that vote run the layers that are not there. */
    const skv_eviction how = {.method = SKV_EVICT_SNAPKV, .capacity = 2, .window = 1, .kernel = 1};
    assert_int_not_equal(skv_sequence_set_eviction(s, &how, &err) == SKV_OK
                             ? skv_prompt(engine, s, ids, 4, NULL, &err)
                             : SKV_UNSUPPORTED,
                         SKV_OK);
    skv_sequence_free(s);
    assert_int_equal(skv_sequence_create_as(engine, SKV_PREFILL_FULL, 0, &s, &err),
                     SKV_UNSUPPORTED);
    assert_int_equal(skv_sequence_create_as(engine, SKV_PREFILL_TEACHER, 0, &s, &err),
                     SKV_UNSUPPORTED);
    skv_engine_close(engine);
    static const skv_engine_options wrong[] = {
        {.prompt_only = true, .no_skip = true},
        {.prompt_only = true, .with_teacher = true},
        {.prompt_only = true, .prefill = SKV_PREFILL_FULL},
        {.prompt_only = true,
         .eviction = {.method = SKV_EVICT_SNAPKV, .capacity = 9, .window = 2, .kernel = 1}},
        {.prompt_only = true, .speculation = {.source = SKV_DRAFT_TEXT, .most = 4}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_not_equal(skv_engine_open(MODELS "qwen2-swiftkv-g2", &wrong[i], &engine, &err),
                             SKV_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
