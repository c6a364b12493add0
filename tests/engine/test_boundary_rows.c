/*
 * Rows of boundary l make the deep K,V again, bit for bit: whatever weights, cache, kernels and
 * shape, and whether the tokens came in chunks or one by one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "skv/skv.h"

#define MODELS SKV_TEST_DATA "/models/"

/* Two pages and a half; narrow products end at SKV_NARROW_K. */
enum { CONTEXT = 192, N_TOKENS = 160, STEP = 40, WIDE = 640, VOCAB = 90, N_OPTIONS = 48 };

typedef struct fixture {
    skv_engine *engine;
    unsigned char *rows; /* [N_TOKENS][row bytes] */
    size_t n_rows;
} fixture;

static void take(void *user, size_t i_layer, skv_rows x, size_t n_rows)
{
    fixture *f = user;
    if (i_layer != skv_boundary_layer(f->engine)) return;
    skv_boundary_take(f->engine, x, n_rows,
                      f->rows + f->n_rows * skv_boundary_row_bytes(f->engine));
    f->n_rows += n_rows;
}

/* Chunks of several lengths, some of whose logits are wanted. */
static void read_prompt(fixture *f, skv_sequence *s)
{
    static const size_t lengths[] = {STEP, 1, 7, STEP, 1, 1, 30};
    int32_t ids[N_TOKENS];
    skv_error err;
    for (size_t i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(skv_mix64(i) % VOCAB);
    for (size_t at = 0, i = 0; at < N_TOKENS; i++) {
        size_t n = lengths[i % 7] < N_TOKENS - at ? lengths[i % 7] : N_TOKENS - at;
        skv_span span = {.sequence = s,
                         .ids = ids + at,
                         .n = n,
                         .want = i % 3 == 1 ? SKV_WANT_LAST : SKV_WANT_NONE};
        const skv_hook tap = {.user = f, .on_hidden = take};
        if (skv_engine_step(f->engine, &span, 1, &(skv_step_sink){.tap = &tap}, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        at += n;
    }
    assert_int_equal(f->n_rows, N_TOKENS);
}

static void compare_pages(skv_kv_store *store, uint32_t got, uint32_t want)
{
    const void *a = skv_kv_page_map(store, got), *b = skv_kv_page_map(store, want);
    assert_memory_equal(a, b, skv_kv_store_page_bytes(store));
    skv_kv_page_unmap(store, a);
    skv_kv_page_unmap(store, b);
}

/* Every page row of the sequence against what its rows make. */
static void compare(const fixture *f, const skv_sequence *s)
{
    skv_kv_store *store = f->engine->store;
    size_t n_tracks = skv_kv_layout_tracks(&f->engine->plan.layout);
    size_t first = skv_boundary_tracks(f->engine), page_bytes = skv_kv_store_page_bytes(store);
    assert_true(first > 0 && first < n_tracks);
    uint32_t *pages = skv_alloc(n_tracks, sizeof *pages);
    unsigned char *nonsense = skv_alloc(page_bytes, 1);
    assert_true(pages && nonsense);
    memset(nonsense, 0x5a, page_bytes);
    for (size_t t = 0; t < n_tracks; t++) pages[t] = skv_kv_page_take(store, 0);
    for (size_t i = 0; (i + 1) * SKV_PAGE_ROWS <= N_TOKENS; i++) {
        size_t position = i * SKV_PAGE_ROWS;
        for (size_t t = first; t < n_tracks; t++) skv_kv_pages_write(store, &pages[t], 1, nonsense);
        skv_boundary_restore(f->engine, f->rows + position * skv_boundary_row_bytes(f->engine),
                             position, CONTEXT, pages);
        for (size_t t = first; t < n_tracks; t++) {
            compare_pages(store, pages[t], skv_kv_cache_page(&s->cache, t, i));
        }
    }
    for (size_t t = 0; t < n_tracks; t++) skv_kv_page_drop(store, pages[t]);
    skv_free(nonsense);
    skv_free(pages);
}

static void check_engine(skv_engine *engine, size_t row_bytes)
{
    fixture f = {.engine = engine};
    skv_sequence *s;
    assert_int_equal(skv_boundary_row_bytes(engine), row_bytes);
    f.rows = skv_alloc(N_TOKENS, row_bytes);
    assert_non_null(f.rows);
    assert_int_equal(skv_sequence_create(engine, CONTEXT, &s, NULL), SKV_OK);
    read_prompt(&f, s);
    compare(&f, s);
    skv_sequence_free(s);
    skv_free(f.rows);
}

static const skv_weights weights[] = {SKV_WEIGHTS_F32, SKV_WEIGHTS_BF16, SKV_WEIGHTS_INT8};
static const skv_kv caches[] = {SKV_KV_F32, SKV_KV_BF16, SKV_KV_FP8, SKV_KV_INT8};
static const char *const levels[] = {"ref", "avx2", "avxvnni", "avx512", "best"};

static skv_engine_options options_of(size_t i)
{
    skv_engine_options o = skv_engine_options_default();
    o.threads = 1;
    o.weights = weights[i % 3];
    o.kv = caches[i / 3 % 4];
    o.cpu = levels[i / 12];
    o.context = CONTEXT;
    o.kv_tokens = 2 * CONTEXT;
    o.step_tokens = STEP;
    return o;
}

/* A processor without a level has no engine for it. */
static bool has_level(const skv_engine_options *o, skv_status status)
{
    return status != SKV_UNSUPPORTED && !(status == SKV_ARGUMENT && strcmp(o->cpu, "best") != 0);
}

static void test_models(void **state)
{
    (void)state;
    static const char *const paths[] = {MODELS "llama-swiftkv-g1", MODELS "llama-swiftkv-g2",
                                        MODELS "qwen2-swiftkv-g2", MODELS "qwen3-swiftkv-g1"};
    for (size_t i = 0; i < N_OPTIONS * 2; i++) {
        skv_engine_options o = options_of(i / 2);
        skv_engine *engine = NULL;
        skv_error err;
        skv_status status = skv_engine_open(paths[(i + i / 8) % 4], &o, &engine, &err);
        if (!has_level(&o, status)) continue;
        if (status != SKV_OK) fail_msg("%s", err.text);
        size_t D = skv_engine_hidden(engine), n_groups = (D + 31) / 32;
        check_engine(engine, o.weights == SKV_WEIGHTS_INT8 ? D + 4 * n_groups : 4 * D);
        skv_engine_close(engine);
    }
}

/* Wide products read rows of bfloat16, and int8 codes in long groups. */
/* Length of an int8 group of rows [K] at the level of that name. */
static size_t int8_group(const char *name, size_t K)
{
    skv_kernels k;
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    assert_true(strcmp(name, "best") == 0 || skv_cpu_level_parse(name, &level));
    skv_kernels_init(&k, level, skv_cpu_detect());
    return skv_matmul_group(&k.i8, K);
}

static void test_wide_shapes(void **state)
{
    (void)state;
    /* The form is a matter of weights and kernels; caches take turns. */
    for (size_t i = 0; i < 12; i++) {
        skv_engine_options o = options_of(i % 3 + 12 * (i / 3));
        o.kv = caches[i % 4];
        skv_config *config;
        skv_engine *engine = NULL;
        skv_error err;
        assert_int_equal(skv_preset_config("tiny-128k", 1, 1, &config, NULL), SKV_OK);
        config->hidden = i % 2 ? WIDE : WIDE + 36; /* the last group is a short one */
        config->vocab = VOCAB;
        skv_status status = skv_engine_open_shape(config, NULL, &o, &engine, &err);
        if (!has_level(&o, status)) continue;
        if (status != SKV_OK) fail_msg("%s", err.text);
        size_t D = skv_engine_hidden(engine), n_groups = skv_ceil_div(D, int8_group(o.cpu, D));
        size_t bytes = o.weights == SKV_WEIGHTS_INT8 ? D + 4 * n_groups : 4 * D;
        check_engine(engine, o.weights == SKV_WEIGHTS_BF16 ? 2 * D : bytes);
        skv_engine_close(engine);
    }
}

static void test_others_have_none(void **state)
{
    (void)state;
    skv_engine_options o = options_of(0);
    skv_engine *engine = NULL;
    assert_int_equal(skv_engine_open(MODELS "llama3-v5", &o, &engine, NULL), SKV_OK);
    assert_int_equal(skv_boundary_row_bytes(engine), 0);
    skv_engine_close(engine);
    o.prefill = SKV_PREFILL_TEACHER;
    assert_int_equal(skv_engine_open(MODELS "qwen2-swiftkv-g2", &o, &engine, NULL), SKV_OK);
    assert_int_equal(skv_boundary_row_bytes(engine), 0);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_wide_shapes),
        cmocka_unit_test(test_others_have_none),
    };
    return cmocka_run_group_tests_name("boundary_rows", tests, NULL, NULL);
}
