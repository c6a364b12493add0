/*
 * Rows in front of sliding windows go back as a sequence grows: answers are to the bit those of an
 * engine that keeps them all, for chunks of any size, behind truncation, sharing, eviction and the
 * prefix index; and no more pages are taken than were promised.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/size.h"
#include "engine/engine.h"
#include "kv/prefix_index.h"
#include "property_seed.h"

enum { VOCAB_MAX = 512, N_PROMPT = 300, N_MORE = 20, N = N_PROMPT + N_MORE, CONTEXT = 448 };

static const char *const models[] = {"gemma4-e2b", "gemma4-dense", "gemma3-v5", "gpt-oss",
                                     "olmo3",      "qwen2-window", "mistral"};

#define N_MODELS cases_of(sizeof models / sizeof models[0], 1)

static const float ROUNDED = 1e-4f;

typedef struct logits_of {
    float rows[N][VOCAB_MAX]; /* behind every token that was asked about */
} logits_of;

typedef struct taking {
    float *out;
    size_t vocab;
} taking;

static int32_t id_at(size_t i)
{
    return (int32_t)((i * i * 31 + i * 7) % 89);
}

static skv_engine *open_engine(const char *model, skv_kv kv, size_t step_tokens, bool keeps)
{
    char path[512];
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s", model);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.kv = kv;
    options.context = CONTEXT;
    options.kv_tokens = 6 * CONTEXT;
    options.step_tokens = step_tokens;
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true(engine->config->vocab <= VOCAB_MAX && engine->plan.layout.window > 0);
    if (keeps) engine->plan.layout.step_rows = 0;
    return engine;
}

static skv_sequence *new_sequence(skv_engine *engine)
{
    skv_sequence *s;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    return s;
}

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const taking *t = user;
    (void)i_span;
    (void)i_token;
    memcpy(t->out, logits, t->vocab * sizeof *logits);
}

static size_t used_pages(const skv_engine *engine)
{
    return skv_kv_store_pages(engine->store) - skv_kv_store_free_pages(engine->store);
}

/* Tokens up to `end`, in chunks; the logits behind the last. */
static void run_to(skv_sequence *s, size_t end, size_t chunk, float *out)
{
    skv_engine *engine = s->engine;
    while (skv_sequence_length(s) < end) {
        int32_t ids[N];
        const size_t at = skv_sequence_length(s), n = skv_min_size(chunk, end - at);
        taking t = {out, engine->config->vocab};
        for (size_t i = 0; i < n; i++) ids[i] = id_at(at + i);
        const skv_span span = {s, ids, n, at + n == end ? SKV_WANT_LAST : SKV_WANT_NONE};
        skv_error err;
        if (skv_step(engine, &span, 1, take_row, &t, &err) != SKV_OK) fail_msg("%s", err.text);
        assert_true(s->cache.front == 0 || s->cache.front + s->cache.layout->window <= at + 1);
        assert_true(skv_kv_cache_bytes(&s->cache) <= skv_kv_layout_pages(s->cache.layout, at + n) *
                                                         skv_kv_store_page_bytes(engine->store));
    }
}

/* The logits behind the prompt and behind each further token, read one by one. */
static void run_all(skv_sequence *s, size_t chunk, logits_of *out)
{
    run_to(s, N_PROMPT, chunk, out->rows[N_PROMPT - 1]);
    for (size_t n = N_PROMPT + 1; n <= N; n++) run_to(s, n, 1, out->rows[n - 1]);
}

/* The same bits; where chunks begin elsewhere, sums are rounded otherwise. */
static void check_tail(const skv_engine *engine, const logits_of *a, const logits_of *b, float most)
{
    for (size_t i = N_PROMPT - 1; i < N; i++) {
        for (size_t v = 0; v < engine->config->vocab; v++) {
            assert_true(fabsf(a->rows[i][v] - b->rows[i][v]) <= most);
        }
    }
}

static logits_of expected, got; /* too large for a stack */

static void reference(const char *model, skv_kv kv, size_t chunk)
{
    skv_engine *engine = open_engine(model, kv, chunk, true);
    skv_sequence *s = new_sequence(engine);
    run_all(s, chunk, &expected);
    assert_int_equal(s->cache.front, 0);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_same_answers(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 7, 64, N_PROMPT};
    for (size_t m = 0; m < N_MODELS; m++) {
        for (size_t c = 0; c < 2 * sizeof chunks / sizeof chunks[0]; c += one_case_of(4)) {
            const skv_kv kv = c % 2 ? SKV_KV_INT8 : SKV_KV_F32;
            reference(models[m], kv, chunks[c / 2]);
            skv_engine *engine = open_engine(models[m], kv, chunks[c / 2], false);
            skv_sequence *s = new_sequence(engine);
            run_all(s, chunks[c / 2], &got);
            check_tail(engine, &expected, &got, 0);
            assert_true(s->cache.front > 0);
            assert_true(skv_sequence_kv_bytes(s) ==
                        used_pages(engine) * skv_kv_store_page_bytes(engine->store));
            skv_sequence_free(s);
            assert_int_equal(used_pages(engine), 0);
            skv_engine_close(engine);
        }
    }
}

/* Back by as much as is promised, and further than that; a shared beginning is continued. */
static void test_truncate_and_share(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        reference(models[m], SKV_KV_F32, 64);
        skv_engine *engine = open_engine(models[m], SKV_KV_F32, 64, false);
        skv_sequence *s = new_sequence(engine), *other = new_sequence(engine);
        run_all(s, 64, &got);
        const size_t back = N_PROMPT - 1;
        assert_int_equal(skv_sequence_truncate(s, N - SKV_KV_SLACK + 1), N - SKV_KV_SLACK + 1);
        memset(&got, 0, sizeof got);
        run_to(s, back, 64, got.rows[back - 1]);
        assert_int_equal(skv_sequence_share(other, s, back, NULL), SKV_OK);
        assert_int_equal(skv_sequence_length(other), back);
        run_all(s, 64, &got);
        check_tail(engine, &expected, &got, ROUNDED);
        run_all(other, 64, &got);
        check_tail(engine, &expected, &got, ROUNDED);
        skv_sequence_truncate(other, 0);
        const size_t n_used = used_pages(engine);
        assert_int_equal(skv_sequence_share(other, s, 70, NULL), SKV_OK);
        assert_int_equal(skv_sequence_length(other), 0);
        assert_int_equal(used_pages(engine), n_used);
        assert_int_equal(skv_sequence_truncate(s, 70), 0);
        assert_int_equal(used_pages(engine), 0);
        run_all(s, 64, &got);
        check_tail(engine, &expected, &got, 0);
        skv_sequence_free(s);
        skv_sequence_free(other);
        skv_engine_close(engine);
    }
}

/* Two prompts, each of which loses rows. */
static void run_evicting(const char *model, bool keeps, logits_of *out, size_t *n_bytes)
{
    skv_engine *engine = open_engine(model, SKV_KV_F32, 48, keeps);
    skv_sequence *s = new_sequence(engine);
    skv_eviction how;
    int32_t ids[N];
    assert_int_equal(skv_eviction_parse("snapkv:90,8,5", &how, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_eviction(s, &how, NULL), SKV_OK);
    for (size_t i = 0; i < N; i++) ids[i] = id_at(i);
    for (size_t at = 0, n = 150; at < N_PROMPT; at += n) {
        const skv_prompt_options options = {.logits = out->rows[N_PROMPT - 1]};
        skv_error err;
        if (skv_prompt(engine, s, ids + at, n, &options, &err) != SKV_OK) fail_msg("%s", err.text);
    }
    for (size_t n = N_PROMPT + 1; n <= N; n++) run_to(s, n, 1, out->rows[n - 1]);
    *n_bytes = skv_sequence_kv_bytes(s);
    skv_sequence_free(s);
    assert_int_equal(used_pages(engine), 0);
    skv_engine_close(engine);
}

static void test_eviction(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        size_t n_kept, n_bytes;
        run_evicting(models[m], true, &expected, &n_kept);
        run_evicting(models[m], false, &got, &n_bytes);
        for (size_t i = N_PROMPT - 1; i < N; i++) {
            assert_memory_equal(expected.rows[i], got.rows[i], 80 * sizeof(float));
        }
        assert_true(n_bytes <= n_kept);
    }
}

/* Sequences begin with what the index has of them, while it gives up pages at random. */
static void test_prefix_index(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 5);
    for (size_t m = 0; m < N_MODELS; m++) {
        reference(models[m], SKV_KV_F32, 64);
        skv_engine *engine = open_engine(models[m], SKV_KV_F32, 64, false);
        skv_prefix_index *index;
        int32_t ids[N];
        const size_t n_rounds = cases_of(24, 9);
        size_t n_hits = 0, n_full = 0;
        for (size_t i = 0; i < N; i++) ids[i] = id_at(i);
        assert_int_equal(skv_prefix_index_create(engine->store, 64, 1, &index, NULL), SKV_OK);
        for (size_t round = 0; round < n_rounds; round++) {
            skv_sequence *s = new_sequence(engine);
            const size_t most = 1 + (size_t)skv_rng_below(&rng, N_PROMPT - 1);
            const size_t n_use = skv_prefix_index_in_use(index, 0, ids, most);
            size_t checkpoint;
            const size_t n = skv_prefix_index_match(index, 0, ids, most, &s->cache, &checkpoint);
            assert_int_equal(n_use, 0);
            skv_sequence_adopt(s, ids, n, checkpoint);
            n_hits += n > 0;
            n_full += n == most / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
            while (skv_sequence_length(s) < N_PROMPT) {
                const size_t at = skv_sequence_length(s);
                run_to(s, skv_min_size(N_PROMPT, at + 64), 64, got.rows[N_PROMPT - 1]);
                if (round % 3 < 2) {
                    skv_prefix_index_insert(index, 0, ids, skv_sequence_length(s), &s->cache);
                }
                if (skv_rng_below(&rng, 4) == 0) (void)skv_prefix_index_evict(index, 3);
            }
            for (size_t i = N_PROMPT + 1; i <= N; i++) run_to(s, i, 1, got.rows[i - 1]);
            check_tail(engine, &expected, &got, 0); /* chunks stand where they stood */
            if (round % 3 == 2) {
                skv_prefix_index_insert(index, 0, ids, skv_sequence_length(s), &s->cache);
            }
            skv_sequence_free(s);
            assert_true(skv_prefix_index_evictable(index) == used_pages(engine));
        }
        assert_true(n_hits > n_rounds / 6 && n_full < n_rounds);
        while (skv_prefix_index_evict(index, SIZE_MAX) > 0) {}
        assert_int_equal(used_pages(engine), 0);
        skv_prefix_index_free(index);
        skv_engine_close(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_truncate_and_share),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_prefix_index),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
