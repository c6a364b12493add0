/*
 * What sequences hold and attend to (skv/inspect.h): reading changes nothing, rows are those of the
 * cache in every form, weights are those of the rows that a token sees, and rows that a caller
 * keeps are kept as a method keeps them. Numbers are held against transformers in
 * python/tests/test_inspect.py.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "open_engine.h"
#include "property_seed.h"
#include "skv/inspect.h"

enum { N_PROMPT = 90, N_LAST = 6, N_IDS = 100, VOCAB_MAX = 128, HEADS_MAX = 8, SIZE_MOST = 64 };

static skv_engine *open_model(const char *name, skv_kv kv, size_t step_tokens)
{
    char path[512];
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s", name);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.kv = kv;
    options.context = 128;
    options.kv_tokens = 4 * 128;
    options.step_tokens = step_tokens;
    return open_or_fail(path, &options);
}

static void make_ids(int32_t ids[N_IDS])
{
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * i * 7 + 3 * i) % 85 + 3);
}

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)i_span;
    (void)i_token;
    memcpy(user, logits, VOCAB_MAX / 2 * sizeof *logits);
}

/* Tokens in chunks; the logits behind the last. */
static void run(skv_engine *e, skv_sequence *s, const int32_t *ids, size_t n, size_t chunk,
                float *logits)
{
    for (size_t done = 0, m; done < n; done += m) {
        m = n - done < chunk ? n - done : chunk;
        const skv_span span = {s, ids + done, m, SKV_WANT_LAST};
        assert_int_equal(skv_step(e, &span, 1, take_row, logits, NULL), SKV_OK);
    }
}

/* ---- attention ---- */

typedef struct watch {
    const skv_sequence *sequence;
    size_t n_told;
    bool sinks;
} watch;

static void check_weights(void *user, size_t i_layer, size_t i_token, const float *weights,
                          size_t n_heads, size_t n)
{
    watch *w = user;
    skv_kv_shape shape;
    assert_true(skv_sequence_kv_shape(w->sequence, i_layer, &shape));
    assert_int_equal(n_heads, shape.n_query_heads);
    assert_int_equal(n, N_PROMPT + i_token + 1);
    for (size_t h = 0; h < n_heads; h++) {
        double sum = 0;
        for (size_t p = 0; p < n; p++) {
            const float x = weights[h * n + p];
            assert_true(x >= 0 && x <= 1.00001f);
            if (shape.window > 0 && p + shape.window < n) assert_true(x == 0);
            sum += (double)x;
        }
        assert_true(w->sinks ? sum < 1 && sum > 0 : fabs(sum - 1) < 1e-5);
    }
    w->n_told++;
}

static size_t n_layers_of(const skv_sequence *s)
{
    skv_kv_shape shape;
    size_t n = 0;
    while (skv_sequence_kv_shape(s, n, &shape)) n++;
    return n;
}

/* The tokens are appended as by any step, to the bit, and each layer tells each of them. */
static void test_attention_only_watches(void **state)
{
    (void)state;
    static const char *const models[] = {"llama3-v5",        "qwen2-swiftkv-g2", "gemma2",
                                         "gemma4-e2b",       "gpt-oss",          "openelm",
                                         "llama-swiftkv-g1", "qwen2-window"};
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m += one_case_of(3)) {
        for (int kv = 0; kv < (few_cases() ? 1 : 2); kv++) {
            skv_engine *e = open_model(models[m], kv ? SKV_KV_INT8 : SKV_KV_F32, 64);
            skv_sequence *a = new_sequence(e), *b = new_sequence(e);
            float one[VOCAB_MAX], two[VOCAB_MAX];
            run(e, a, ids, N_PROMPT, 64, one);
            run(e, b, ids, N_PROMPT, 64, one);
            watch w = {.sequence = a, .sinks = strncmp(models[m], "gpt-oss", 7) == 0};
            skv_error err = {0};
            if (skv_step_attention(a, ids + N_PROMPT, N_LAST, check_weights, &w, &err) != 0) {
                fail_msg("%s: %s", models[m], err.text);
            }
            assert_int_equal(w.n_told, N_LAST * n_layers_of(a));
            const skv_span span = {b, ids + N_PROMPT, N_LAST, SKV_WANT_ALL};
            assert_int_equal(skv_step(e, &span, 1, take_row, one, NULL), SKV_OK);
            assert_int_equal(skv_sequence_length(a), N_PROMPT + N_LAST);
            run(e, a, ids + N_PROMPT + N_LAST, 1, 1, one);
            run(e, b, ids + N_PROMPT + N_LAST, 1, 1, two);
            assert_memory_equal(one, two, VOCAB_MAX / 2 * sizeof *one);
            skv_sequence_free(a);
            skv_sequence_free(b);
            skv_engine_close(e);
        }
    }
}

/* ---- rows ---- */

typedef struct rows {
    size_t n, head_dim, positions[N_IDS];
    float k[N_IDS * SIZE_MOST], v[N_IDS * SIZE_MOST];
} rows;

static void read_rows(const skv_sequence *s, size_t layer, size_t head, rows *out)
{
    skv_kv_shape shape;
    assert_true(skv_sequence_kv_shape(s, layer, &shape));
    assert_true(shape.head_dim <= SIZE_MOST);
    out->head_dim = shape.head_dim;
    out->n = skv_sequence_kept(s, layer, head, out->positions, N_IDS);
    assert_true(out->n <= N_IDS);
    assert_int_equal(skv_sequence_read_kv(s, layer, head, out->k, out->v, NULL), SKV_OK);
}

/* Of the rows of each head some stay: those are the same, and read as before; heads that are not
 * named, and windows, have all that can be seen. */
static void test_kept_rows_are_those_before(void **state)
{
    (void)state;
    static const char *const models[] = {"llama3-v5", "qwen2-swiftkv-g2", "gemma4-dense",
                                         "openelm"};
    static const skv_kv forms[] = {SKV_KV_F32, SKV_KV_BF16, SKV_KV_FP8, SKV_KV_INT8};
    static rows before, after;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m += one_case_of(3)) {
        for (size_t f = 0; f < cases_of(4, 1); f++) {
            skv_engine *e = open_model(models[m], forms[f], 64);
            skv_sequence *s = new_sequence(e), *whole = new_sequence(e);
            float logits[VOCAB_MAX];
            run(e, s, ids, N_PROMPT, 64, logits);
            assert_int_equal(skv_sequence_share(whole, s, N_PROMPT, NULL), SKV_OK);
            const size_t n_layers = n_layers_of(s);
            skv_kv_shape shape;
            size_t positions[N_IDS], n_kept = 0, n_named = 0;
            for (size_t p = 2; p < N_PROMPT; p += 1 + p % 3) positions[n_kept++] = p;
            for (size_t i = 0, slots = 0; i < n_layers; i++) {
                assert_true(skv_sequence_kv_shape(s, i, &shape));
                if (shape.window > 0 || shape.slot < slots) continue;
                slots = shape.slot + 1;
                const skv_head_rows head = {i, shape.n_heads - 1, positions, n_kept};
                skv_error err = {0};
                if (skv_sequence_keep(s, &head, 1, &err) != SKV_OK) fail_msg("%s", err.text);
                n_named++;
            }
            assert_true(n_named > 0);
            for (size_t i = 0; i < n_layers; i++) {
                assert_true(skv_sequence_kv_shape(s, i, &shape));
                for (size_t h = 0; h < shape.n_heads; h++) {
                    read_rows(s, i, h, &after);
                    read_rows(whole, i, h, &before);
                    const bool named = shape.window == 0 && h + 1 == shape.n_heads;
                    if (named) assert_int_equal(after.n, n_kept);
                    if (!named && shape.window == 0) assert_int_equal(after.n, before.n);
                    if (shape.window > 0) assert_in_range(after.n, shape.window, before.n);
                    for (size_t r = 0, p = 0; r < after.n; r++) {
                        if (named) assert_int_equal(after.positions[r], positions[r]);
                        while (before.positions[p] < after.positions[r]) p++;
                        const size_t Dh = after.head_dim;
                        assert_int_equal(before.positions[p], after.positions[r]);
                        assert_memory_equal(after.k + r * Dh, before.k + p * Dh,
                                            Dh * sizeof(float));
                        assert_memory_equal(after.v + r * Dh, before.v + p * Dh,
                                            Dh * sizeof(float));
                    }
                }
            }
            skv_sequence_free(whole);
            skv_sequence_free(s);
            skv_engine_close(e);
        }
    }
}

/* The rows that a method keeps, kept by hand: what follows is the same to the bit. */
static void test_kept_as_a_method_does(void **state)
{
    (void)state;
    static const char *const hows[] = {"streaming:4,24", "snapkv:24,8,5", "adakv:24,8,5"};
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t k = 0; k < sizeof hows / sizeof hows[0]; k++) {
        skv_engine *e = open_model("qwen2-swiftkv-g2", SKV_KV_BF16, 64);
        skv_sequence *method = new_sequence(e), *own = new_sequence(e);
        skv_eviction how;
        assert_int_equal(skv_eviction_parse(hows[k], &how, NULL), SKV_OK);
        assert_int_equal(skv_sequence_set_eviction(method, &how, NULL), SKV_OK);
        assert_int_equal(skv_prompt(e, method, ids, N_PROMPT, NULL, NULL), SKV_OK);
        assert_int_equal(skv_prompt(e, own, ids, N_PROMPT, NULL, NULL), SKV_OK);
        static size_t positions[16 * HEADS_MAX][N_IDS];
        skv_head_rows heads[16 * HEADS_MAX];
        size_t n = 0;
        skv_kv_shape shape;
        for (size_t i = 0, slots = 0; skv_sequence_kv_shape(own, i, &shape); i++) {
            for (size_t h = 0; h < shape.n_heads && shape.slot >= slots; h++, n++) {
                const size_t n_kept = skv_sequence_kept(method, i, h, positions[n], N_IDS);
                heads[n] = (skv_head_rows){i, h, positions[n], n_kept};
            }
            slots = shape.slot + 1;
        }
        assert_int_equal(skv_sequence_keep(own, heads, n, NULL), SKV_OK);
        assert_int_equal(skv_sequence_kv_bytes(own), skv_sequence_kv_bytes(method));
        for (size_t i = 0; i < 4; i++) {
            float one[VOCAB_MAX], two[VOCAB_MAX];
            run(e, method, ids + N_PROMPT + i, 1, 1, one);
            run(e, own, ids + N_PROMPT + i, 1, 1, two);
            assert_memory_equal(one, two, VOCAB_MAX / 2 * sizeof *one);
        }
        skv_sequence_free(method);
        skv_sequence_free(own);
        skv_engine_close(e);
    }
}

static void take_sums(void *user, size_t i_layer, size_t i_token, const float *weights,
                      size_t n_heads, size_t n)
{
    (void)i_token;
    float *sums = user; /* [4][N_IDS]: of layer 0 */
    for (size_t h = 0; h < n_heads && h < 4 && i_layer == 0; h++) {
        for (size_t p = 0; p < n; p++) sums[h * N_IDS + p] = weights[h * n + p];
    }
}

/* Behind an eviction the weights are by position still. */
static void test_weights_of_evicted_rows(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine *e = open_model("llama3-v5", SKV_KV_F32, 64);
    skv_sequence *s = new_sequence(e);
    float logits[VOCAB_MAX];
    run(e, s, ids, N_PROMPT, 64, logits);
    const size_t kept[] = {0, 7, 40, N_PROMPT - 1};
    const skv_head_rows head = {0, 0, kept, 4};
    assert_int_equal(skv_sequence_keep(s, &head, 1, NULL), SKV_OK);
    static float weights[4][N_IDS];
    assert_int_equal(skv_step_attention(s, ids + N_PROMPT, 1, take_sums, weights, NULL), SKV_OK);
    double sum = 0;
    for (size_t p = 0; p <= N_PROMPT; p++) {
        const bool there = p == 0 || p == 7 || p == 40 || p >= N_PROMPT - 1;
        assert_int_equal(weights[0][p] > 0, there);
        sum += (double)weights[0][p];
    }
    assert_true(fabs(sum - 1) < 1e-5);
    skv_sequence_free(s);
    skv_engine_close(e);
}

/* ---- what is refused ---- */

static void refuse_keep(skv_sequence *s, const skv_head_rows *heads, size_t n, skv_status status,
                        const char *words)
{
    skv_error err = {0};
    assert_int_equal(skv_sequence_keep(s, heads, n, &err), status);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
}

static void test_refusals(void **state)
{
    (void)state;
    static const size_t fine[] = {1, 5}, back[] = {5, 1}, gone[] = {1, 95}, twice[] = {5, 5};
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine *e = open_model("qwen2-swiftkv-g2", SKV_KV_F32, 64);
    skv_sequence *s = new_sequence(e);
    skv_kv_shape shape;
    skv_error err = {0};
    float logits[VOCAB_MAX], one[VOCAB_MAX];
    assert_false(skv_sequence_kv_shape(s, 6, &shape));
    refuse_keep(s, &(skv_head_rows){0, 0, fine, 2}, 1, SKV_ARGUMENT, "2 positions");
    run(e, s, ids, N_PROMPT, 64, logits);
    refuse_keep(s, &(skv_head_rows){6, 0, fine, 2}, 1, SKV_ARGUMENT, "layer 6 has no head 0");
    refuse_keep(s, &(skv_head_rows){0, 2, fine, 2}, 1, SKV_ARGUMENT, "layer 0 has no head 2");
    refuse_keep(s, &(skv_head_rows){0, 1, fine, 0}, 1, SKV_ARGUMENT, "layer 0, head 1: 0 pos");
    refuse_keep(s, &(skv_head_rows){0, 1, back, 2}, 1, SKV_ARGUMENT, "ascending");
    refuse_keep(s, &(skv_head_rows){0, 1, gone, 2}, 1, SKV_ARGUMENT, "that it holds");
    refuse_keep(s, &(skv_head_rows){0, 1, twice, 2}, 1, SKV_ARGUMENT, "ascending");
    /* The last layers share a slot. */
    const skv_head_rows same[] = {{4, 0, fine, 2}, {5, 0, fine, 2}};
    refuse_keep(s, same, 2, SKV_ARGUMENT, "layer 5, head 0 are named twice");
    assert_int_equal(skv_sequence_read_kv(s, 0, 2, NULL, NULL, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "layer 0 has no head 2"));
    assert_int_equal(skv_sequence_read_kv(s, 0, 1, NULL, NULL, &err), SKV_OK);
    assert_int_equal(skv_step_attention(s, ids, 64, take_sums, one, &err), SKV_FULL);
    assert_int_equal(skv_sequence_length(s), N_PROMPT);
    /* Nothing has changed. */
    skv_sequence *fresh = new_sequence(e);
    assert_int_equal(skv_step_attention(fresh, ids, 65, take_sums, one, &err), SKV_RANGE);
    run(e, fresh, ids, N_PROMPT, 64, one);
    run(e, s, ids + N_PROMPT, 1, 1, logits);
    run(e, fresh, ids + N_PROMPT, 1, 1, one);
    assert_memory_equal(logits, one, VOCAB_MAX / 2 * sizeof *one);
    /* A prompt that is announced will be evicted by its votes. */
    skv_eviction how;
    assert_int_equal(skv_eviction_parse("snapkv:24,8,query", &how, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_eviction(s, &how, NULL), SKV_OK);
    refuse_keep(s, &(skv_head_rows){0, 1, fine, 2}, 1, SKV_UNSUPPORTED, "by query head");
    how.by_query_head = false;
    assert_int_equal(skv_sequence_set_eviction(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_sequence_expect(s, 4, NULL), SKV_OK);
    refuse_keep(s, &(skv_head_rows){0, 1, fine, 2}, 1, SKV_ARGUMENT, "announced");
    skv_sequence_free(fresh);
    skv_sequence_free(s);
    skv_engine_close(e);
}

static void test_what_other_methods_refuse(void **state)
{
    (void)state;
    static const size_t fine[] = {1, 5};
    const skv_head_rows head = {0, 0, fine, 2};
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine *e = open_model("qwen2-window", SKV_KV_F32, 64);
    skv_sequence *s = new_sequence(e);
    float logits[VOCAB_MAX];
    skv_kv_shape shape;
    run(e, s, ids, N_PROMPT, 64, logits);
    size_t windowed = 0;
    while (skv_sequence_kv_shape(s, windowed, &shape) && shape.window == 0) windowed++;
    const skv_head_rows hidden = {windowed, 0, fine, 2};
    refuse_keep(s, &hidden, 1, SKV_UNSUPPORTED, "sliding window");
    skv_sequence_free(s);
    skv_engine_close(e);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.context = options.kv_tokens = 128;
    options.pruning = (skv_pruning){SKV_PRUNE_RANDOM, 0.5, 0.5};
    e = open_or_fail(SKV_TEST_DATA "/models/llama3-v5", &options);
    s = new_sequence(e);
    skv_error err = {0};
    refuse_keep(s, &head, 1, SKV_UNSUPPORTED, "prune random");
    assert_int_equal(skv_sequence_read_kv(s, 0, 0, NULL, NULL, &err), SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "prune random"));
    assert_int_equal(skv_step_attention(s, ids, 4, take_sums, logits, &err), SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "prune random"));
    skv_sequence_free(s);
    skv_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_only_watches),
        cmocka_unit_test(test_kept_rows_are_those_before),
        cmocka_unit_test(test_kept_as_a_method_does),
        cmocka_unit_test(test_weights_of_evicted_rows),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_other_methods_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
