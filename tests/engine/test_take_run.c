/*
 * Rows that a sequence takes from another place: at the same place, behind the same text, they give
 * the logits of the text to the bit; at another place the keys of the first layer, which depend on
 * token and position alone, are those that are computed there, for every kind of rotary embedding
 * and of rows, and values are the same to the bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/inspect.h"

enum { CONTEXT = 448, VOCAB_MAX = 512, BEFORE = 128, RUN = 192, OTHER = 37, DIM_MAX = 128 };

static const char *const models[] = {"llama3-v5",        "llama-linear-v5",  "llama-swiftkv-g1",
                                     "llama-swiftkv-g2", "qwen2-swiftkv-g2", "qwen3-yarn",
                                     "phi3-longrope-v5", "phi3-partial",     "smollm3",
                                     "llama-shared",     "qwen3-moe-v5",     "glm4",
                                     "ministral3"};

enum { N_MODELS = sizeof models / sizeof models[0] };

static skv_engine *open_model(const char *model, skv_kv kv)
{
    char path[512];
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s", model);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.kv = kv;
    options.context = CONTEXT;
    options.kv_tokens = 6 * CONTEXT;
    options.step_tokens = 64;
    options.batch_invariant = true;
    skv_engine *engine = open_or_fail(path, &options);
    assert_true(engine->config->vocab <= VOCAB_MAX && engine->plan.layout.window == 0);
    return engine;
}

static int32_t id_at(size_t text, size_t i)
{
    return (int32_t)((i * i * 31 + i * 7 + text * 13) % 79);
}

/* A sequence that has read tokens [first, first + n) of a text. */
static void read_text(skv_sequence *s, size_t text, size_t first, size_t n, float *logits)
{
    int32_t ids[CONTEXT];
    const skv_prompt_options how = {.logits = logits};
    skv_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(text, first + i);
    if (skv_prompt(s->engine, s, ids, n, &how, &err) != SKV_OK) fail_msg("%s", err.text);
}

/* Tokens [BEFORE, BEFORE + n) of text 1, which `from` has read. */
static void take(skv_sequence *s, const skv_sequence *from, size_t n)
{
    const size_t n_bundles = from->cache.layout->n_bundles, n_pages = (n + 63) / SKV_PAGE_ROWS;
    uint32_t *pages = test_malloc(n_bundles * n_pages * sizeof *pages);
    int32_t ids[RUN];
    for (size_t b = 0; b < n_bundles; b++) {
        for (size_t p = 0; p < n_pages; p++) {
            pages[b * n_pages + p] =
                skv_kv_cache_block(&from->cache, b, BEFORE / SKV_PAGE_ROWS + p);
        }
    }
    for (size_t i = 0; i < n; i++) ids[i] = id_at(1, BEFORE + i);
    skv_error err;
    if (skv_sequence_take_run(s, ids, n, pages, n_pages, BEFORE, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    test_free(pages);
}

static void test_at_the_same_place(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m += one_case_of(4)) {
        for (skv_kv kv = SKV_KV_F32; kv <= (few_cases() ? SKV_KV_F32 : SKV_KV_INT8); kv++) {
            static float want[VOCAB_MAX], got[VOCAB_MAX];
            skv_engine *engine = open_model(models[m], kv);
            skv_sequence *whole = new_sequence(engine), *s = new_sequence(engine);
            read_text(whole, 1, 0, BEFORE + RUN, want);
            read_text(s, 1, 0, BEFORE, got);
            take(s, whole, RUN - 5);
            read_text(s, 1, BEFORE + RUN - 5, 5, got);
            assert_int_equal(skv_sequence_length(s), BEFORE + RUN);
            assert_memory_equal(want, got, engine->config->vocab * sizeof *want);
            skv_sequence_free(whole);
            skv_sequence_free(s);
            assert_int_equal(skv_kv_store_free_pages(engine->store),
                             skv_kv_store_pages(engine->store));
            skv_engine_close(engine);
        }
    }
}

/* What one more rounding of a row with this largest magnitude may add, beside that of the key that
 * it is compared with. */
static double bound_of(skv_kv kv, double amax)
{
    switch (kv) {
    case SKV_KV_BF16: return 2 * 0x1p-8 * amax;
    case SKV_KV_FP8: return 2 * 0x1.1p-4 * amax;
    case SKV_KV_INT8: return 2 * 1.14 / 254 * amax;
    default: return 1e-5 * amax;
    }
}

/* Rows [OTHER, OTHER + n) of a head of the first layer. */
static void check_head(const skv_sequence *got, const skv_sequence *want, size_t h, size_t n,
                       skv_kv kv, size_t head_dim)
{
    const size_t n_rows = skv_sequence_length(got), n_floats = n_rows * head_dim;
    float *k[2], *v[2];
    assert_true(head_dim <= DIM_MAX && skv_sequence_length(want) == n_rows);
    for (size_t i = 0; i < 2; i++) {
        k[i] = test_malloc(n_floats * sizeof **k);
        v[i] = test_malloc(n_floats * sizeof **v);
        const skv_sequence *s = i == 0 ? got : want;
        assert_int_equal(skv_sequence_read_kv(s, 0, h, k[i], v[i], NULL), SKV_OK);
    }
    assert_memory_equal(v[0], v[1], n_floats * sizeof **v);
    for (size_t r = OTHER; r < OTHER + n; r++) {
        double amax = 0;
        for (size_t d = 0; d < head_dim; d++) {
            amax = fmax(amax, fabs((double)k[1][r * head_dim + d]));
        }
        for (size_t d = 0; d < head_dim; d++) {
            const double x = (double)k[0][r * head_dim + d], y = (double)k[1][r * head_dim + d];
            if (fabs(x - y) > 1.5 * bound_of(kv, amax)) {
                fail_msg("head %zu, row %zu, number %zu: %g, not %g", h, r, d, x, y);
            }
        }
    }
    for (size_t i = 0; i < 2; i++) {
        test_free(k[i]);
        test_free(v[i]);
    }
}

static void test_at_another_place(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m += one_case_of(4)) {
        for (skv_kv kv = SKV_KV_F32; kv <= (few_cases() ? SKV_KV_F32 : SKV_KV_INT8); kv++) {
            skv_engine *engine = open_model(models[m], kv);
            skv_sequence *whole = new_sequence(engine), *s = new_sequence(engine);
            skv_sequence *want = new_sequence(engine);
            skv_kv_shape shape;
            read_text(whole, 1, 0, BEFORE + RUN, NULL);
            read_text(s, 2, 0, OTHER, NULL);
            take(s, whole, RUN);
            read_text(want, 2, 0, OTHER, NULL);
            read_text(want, 1, BEFORE, RUN, NULL);
            assert_true(skv_sequence_kv_shape(s, 0, &shape));
            for (size_t h = 0; h < shape.n_heads; h++) {
                check_head(s, want, h, RUN, kv, shape.head_dim);
            }
            skv_sequence_free(whole);
            skv_sequence_free(s);
            skv_sequence_free(want);
            skv_engine_close(engine);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_the_same_place),
        cmocka_unit_test(test_at_another_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
