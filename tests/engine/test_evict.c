/*
 * Evicting rows: which are kept and what the model says afterwards, against an independent
 * implementation (tools/oracle/make_evict_goldens.py), whatever the chunks; that what fits loses
 * nothing, to the bit; that pages come back and those of others stay as they are; and that methods
 * are read from text and refused by name.
 */
#include <jansson.h>
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
#include "kernels/kernels.h"
#include "kv/votes.h"
#include "skv/skv.h"

enum { VOCAB_MAX = 128, N_PROMPT = 90, IDS_MAX = 512 };

static json_t *goldens;

static int load(void **state)
{
    (void)state;
    goldens = json_load_file(SKV_TEST_DATA "/evict.json", 0, NULL);
    return !goldens;
}

static int unload(void **state)
{
    (void)state;
    json_decref(goldens);
    return 0;
}

static skv_eviction parse(const char *how)
{
    skv_eviction e;
    skv_error err;
    if (skv_eviction_parse(how, &e, &err) != SKV_OK) fail_msg("%s", err.text);
    return e;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static size_t size_of(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

/* ---- choosing ---- */

static void expect_rows(const char *how, size_t head, const json_t *want, const uint32_t *got,
                        size_t n)
{
    bool same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++) {
        same = json_integer_value(json_array_get(want, i)) == (json_int_t)got[i];
    }
    if (!same) fail_msg("%s: head %zu of %zu rows keeps others", how, head, n);
}

static void check_choice(const json_t *c)
{
    enum { HEADS_MAX = 4, ROWS_MAX = 128 };
    float votes[HEADS_MAX * ROWS_MAX] = {0}, scratch[ROWS_MAX];
    uint32_t rows[HEADS_MAX * ROWS_MAX] = {0};
    size_t n_rows[HEADS_MAX], n_kept[HEADS_MAX];
    const json_t *all = json_object_get(c, "votes"), *kept = json_object_get(c, "kept");
    skv_eviction how = parse(text_of(c, "how"));
    skv_evict_slot slot = {.how = &how,
                           .i_slot = size_of(c, "place"),
                           .n_slots = size_of(c, "slots"),
                           .n_heads = json_array_size(all),
                           .n_rows = n_rows,
                           .votes = votes,
                           .stride = ROWS_MAX,
                           .scratch = scratch};
    for (size_t h = 0; h < slot.n_heads; h++) {
        const json_t *own = json_array_get(all, h);
        n_rows[h] = json_array_size(own);
        for (size_t i = 0; i < n_rows[h]; i++) {
            votes[h * ROWS_MAX + i] = (float)json_integer_value(json_array_get(own, i));
        }
    }
    slot.n_window = how.window < n_rows[0] ? how.window : n_rows[0];
    skv_evict_choose(&slot, rows, ROWS_MAX, n_kept);
    for (size_t h = 0; h < slot.n_heads; h++) {
        expect_rows(text_of(c, "how"), h, json_array_get(kept, h), rows + h * ROWS_MAX, n_kept[h]);
    }
}

static void test_choices(void **state)
{
    (void)state;
    const json_t *cases = json_object_get(goldens, "choices");
    assert_true(json_array_size(cases) > 50);
    for (size_t i = 0; i < json_array_size(cases); i++) check_choice(json_array_get(cases, i));
}

/* Whether a case of a list is of this method. */
static bool has_case(const char *list, const char *name)
{
    const json_t *cases = json_object_get(goldens, list);
    const size_t n = strlen(name);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const char *how = text_of(json_array_get(cases, i), "how");
        if (strncmp(how, name, n) == 0 && how[n] == ':') return true;
    }
    return false;
}

/* Each method's choices and what follows them are held against torch, and its form says what it
 * takes. */
static void test_every_method_has_cases(void **state)
{
    (void)state;
    static const char *const lists[] = {"choices", "runs", "trained"};
    const char *name, *form, *about;
    for (size_t i = 0; skv_eviction_form(i, &name, &form, &about); i++) {
        for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
            if (has_case(lists[k], name)) continue;
            fail_msg("%s has no case in %s of tests/data/evict.json: add some to "
                     "tools/oracle/make_evict_goldens.py, which writes it",
                     name, lists[k]);
        }
        char text[SKV_EVICTION_TEXT];
        skv_eviction e;
        const bool sinks = strncmp(form, "SINKS", 5) == 0;
        (void)snprintf(text, sizeof text, "%s:%s,query", name, sinks ? "4,64" : "64");
        const bool spreads = skv_eviction_parse(text, &e, NULL) == SKV_OK;
        const bool says = strstr(form, "[,kv|query]");
        assert_int_equal(spreads, says);
        text[strlen(text) - strlen(",query")] = 0;
        e = parse(text);
        e.by_query_head = true;
        assert_int_equal(skv_eviction_check(&e, NULL) == SKV_OK, spreads);
    }
}

/* ---- runs ---- */

static skv_engine *open_with(const char *model, const skv_engine_options *options)
{
    char path[512];
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/%s", model);
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(path, options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_engine_options exact_options(const char *how, size_t step_tokens, size_t context)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.kv = SKV_KV_F32;
    options.context = context;
    options.kv_tokens = 3 * context;
    options.step_tokens = step_tokens;
    options.eviction = parse(how);
    return options;
}

static skv_engine *open_engine(const char *model, const char *how, size_t step_tokens, skv_kv kv,
                               bool teacher)
{
    char path[128];
    (void)snprintf(path, sizeof path, "models/%s", model);
    skv_engine_options options = exact_options(how, step_tokens, 128);
    options.kv = kv;
    options.prefill = teacher ? SKV_PREFILL_TEACHER : SKV_PREFILL_AUTO;
    return open_with(path, &options);
}

static skv_sequence *new_sequence(skv_engine *engine)
{
    skv_sequence *s = NULL;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    return s;
}

static size_t read_ids(const json_t *array, int32_t *ids)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return json_array_size(array);
}

static void expect_kept(const char *name, const skv_sequence *s, const json_t *kept)
{
    for (size_t i = 0; i < json_array_size(kept); i++) {
        const json_t *heads = json_array_get(kept, i);
        for (size_t h = 0; h < json_array_size(heads); h++) {
            const json_t *want = json_array_get(heads, h);
            size_t rows[IDS_MAX], n = skv_sequence_kept(s, i, h, rows, IDS_MAX);
            bool same = n == json_array_size(want);
            for (size_t r = 0; same && r < n; r++) {
                same = json_integer_value(json_array_get(want, r)) == (json_int_t)rows[r];
            }
            if (!same) fail_msg("%s: layer %zu head %zu keeps others (%zu rows)", name, i, h, n);
        }
        size_t row;
        assert_int_equal(skv_sequence_kept(s, i, json_array_size(heads), &row, 1), 0);
    }
}

static double log_probability(const float *logits, size_t n, int32_t id)
{
    double sum = 0, most = (double)logits[0];
    for (size_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return (double)logits[id] - most - log(sum);
}

typedef struct taker {
    const skv_engine *engine;
    float *to; /* [VOCAB_MAX] */
} taker;

static void take_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const taker *t = user;
    (void)i_span;
    (void)i_token;
    memcpy(t->to, logits, t->engine->config->vocab * sizeof *logits);
}

static void check_run(const json_t *run, size_t step_tokens)
{
    int32_t ids[128];
    float logits[4 * VOCAB_MAX];
    const char *how = text_of(run, "how");
    const json_t *lengths = json_object_get(run, "lengths"), *want;
    bool teacher = json_is_true(json_object_get(run, "teacher"));
    char name[128];
    (void)snprintf(name, sizeof name, "%s %s, chunks of %zu", text_of(run, "model"), how,
                   step_tokens);
    skv_engine *engine = open_engine(text_of(run, "model"), how, step_tokens, SKV_KV_F32, teacher);
    skv_sequence *s = new_sequence(engine);
    size_t V = skv_engine_vocab(engine), at = 0, n = read_ids(json_object_get(run, "ids"), ids);
    skv_error err;
    for (size_t i = 0; i < json_array_size(lengths); i++) {
        size_t length = (size_t)json_integer_value(json_array_get(lengths, i));
        if (skv_prompt(engine, s, ids + at, length, &(skv_prompt_options){.logits = logits},
                       &err) != SKV_OK) {
            fail_msg("%s: %s", name, err.text);
        }
        at += length;
    }
    expect_kept(name, s, json_object_get(run, "kept"));
    want = json_object_get(run, "logprobs");
    for (size_t t = at; t < n; t++) {
        double got = log_probability(logits, V, ids[t]);
        double expected = json_number_value(json_array_get(want, t - at));
        if (!(fabs(got - expected) < 1e-3)) {
            fail_msg("%s: token %zu has %.6f, expected %.6f", name, t, got, expected);
        }
        skv_span span = {s, ids + t, 1, SKV_WANT_LAST};
        assert_true(V <= VOCAB_MAX);
        assert_int_equal(skv_step(engine, &span, 1, take_logits, &(taker){engine, logits}, NULL),
                         SKV_OK);
    }
    skv_sequence_free(s);
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.kv_bytes, 0);
    skv_engine_close(engine);
}

static void test_runs(void **state)
{
    (void)state;
    const json_t *runs = json_object_get(goldens, "runs");
    assert_true(json_array_size(runs) > 20);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        check_run(json_array_get(runs, i), 7);
        if (i % 3 == 0) check_run(json_array_get(runs, i), 1);
        if (i % 3 == 1) check_run(json_array_get(runs, i), 64);
    }
}

typedef struct following {
    const int32_t *ids;
    size_t V, n;
    double worst; /* distance from what is expected */
    const json_t *want;
} following;

static void compare_next(void *user, size_t i_span, size_t i_token, const float *logits)
{
    following *f = user;
    (void)i_span;
    const size_t t = i_token + 1;
    if (t >= f->n) return;
    const double want = json_number_value(json_array_get(f->want, t));
    f->worst = fmax(f->worst, fabs(log_probability(logits, f->V, f->ids[t]) - want));
}

/* The same of a trained model, models/mini/base, whose attention is that of a real one. */
static void check_trained(const json_t *run, size_t step_tokens)
{
    int32_t ids[IDS_MAX];
    const char *how = text_of(run, "how");
    const skv_engine_options options = exact_options(how, step_tokens, IDS_MAX);
    skv_engine *engine = open_with("../../models/mini/base", &options);
    skv_sequence *s = new_sequence(engine);
    const size_t n = read_ids(json_object_get(run, "ids"), ids);
    const size_t at =
        (size_t)json_integer_value(json_array_get(json_object_get(run, "lengths"), 0));
    assert_int_equal(skv_prompt(engine, s, ids, at, NULL, NULL), SKV_OK);
    expect_kept(how, s, json_object_get(run, "kept"));
    following f = {.ids = ids + at,
                   .V = skv_engine_vocab(engine),
                   .n = n - at,
                   .want = json_object_get(run, "logprobs")};
    const skv_span span = {s, ids + at, n - at, SKV_WANT_ALL};
    assert_int_equal(skv_step(engine, &span, 1, compare_next, &f, NULL), SKV_OK);
    if (!(f.worst < 1e-3)) fail_msg("%s: a log-probability is off by %g", how, f.worst);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_trained_model(void **state)
{
    (void)state;
    const json_t *runs = json_object_get(goldens, "trained");
    assert_int_equal(json_array_size(runs), 8);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        check_trained(json_array_get(runs, i), i % 2 == 0 ? 64 : IDS_MAX);
    }
}

/* ---- what must not change, and what must ---- */

static void make_ids(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i * i * 31 + i * 7 + 5) % 97);
}

/* Logits after a prompt and `n_more` tokens. */
static void run_whole(const char *model, const char *how, skv_kv kv, float *logits, size_t *bytes)
{
    int32_t ids[N_PROMPT + 4];
    make_ids(ids, N_PROMPT + 4);
    skv_engine *engine = open_engine(model, how, 16, kv, false);
    skv_sequence *s = new_sequence(engine);
    memset(logits, 0, VOCAB_MAX * sizeof *logits);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL), SKV_OK);
    *bytes = skv_sequence_kv_bytes(s);
    for (size_t i = 0; i < 4; i++) {
        skv_span span = {s, ids + N_PROMPT + i, 1, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, take_logits, &(taker){engine, logits}, NULL),
                         SKV_OK);
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_what_fits_loses_nothing(void **state)
{
    (void)state;
    static const char *const hows[] = {"snapkv:90,8,5", "snapkv:4000,100,7,avg",
                                       "h2o:90",        "pyramidkv:90,8",
                                       "adakv:90,8",    "streaming:4,90"};
    static const char *const models[] = {"llama3-v5", "llama-swiftkv-g2"};
    float full[VOCAB_MAX], got[VOCAB_MAX];
    size_t full_bytes, bytes;
    for (size_t m = 0; m < 2; m++) {
        run_whole(models[m], "none", SKV_KV_F32, full, &full_bytes);
        for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++) {
            run_whole(models[m], hows[i], SKV_KV_F32, got, &bytes);
            assert_memory_equal(full, got, sizeof full);
            assert_int_equal(bytes, full_bytes);
        }
    }
}

/* Two pages a track become one, in every form that rows have. */
static void test_memory_is_saved(void **state)
{
    (void)state;
    static const skv_kv forms[] = {SKV_KV_F32, SKV_KV_BF16, SKV_KV_FP8, SKV_KV_INT8};
    float logits[VOCAB_MAX];
    size_t full, saved;
    for (size_t i = 0; i < 4; i++) {
        run_whole("qwen3-v5", "none", forms[i], logits, &full);
        run_whole("qwen3-v5", "snapkv:40,8,5", forms[i], logits, &saved);
        assert_int_equal(2 * saved, full);
        for (size_t v = 0; v < VOCAB_MAX; v++) assert_true(isfinite(logits[v]));
    }
}

/* Row `row` of a track of 8 bits. */
static void load_row(const skv_sequence *s, size_t track, size_t row, float *k, float *v)
{
    skv_kv_store *store = s->cache.store;
    skv_kernels kernels;
    skv_kernels_init(&kernels, SKV_CPU_LEVEL_REF, 0);
    const void *page =
        skv_kv_page_map(store, skv_kv_cache_page(&s->cache, track, row / SKV_PAGE_ROWS));
    kernels.kv_load(page, SKV_KV_TYPE_INT8, row % SKV_PAGE_ROWS, k, v, s->engine->config->head_dim);
    skv_kv_page_unmap(store, page);
}

/* Rows of 8 bits are moved with their scales: keeping all but two rows changes little. */
static void test_moved_rows_are_the_same(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT];
    make_ids(ids, N_PROMPT);
    skv_engine *engine = open_engine("qwen3-v5", "streaming:3,80", 16, SKV_KV_INT8, false);
    skv_sequence *whole = new_sequence(engine), *less = new_sequence(engine);
    skv_eviction none = {.method = SKV_EVICT_NONE};
    assert_int_equal(skv_sequence_set_eviction(whole, &none, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, whole, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, less, ids, N_PROMPT, NULL, NULL), SKV_OK);
    size_t head_dim = engine->config->head_dim, n_compared = 0;
    for (size_t t = 0; t < skv_kv_layout_tracks(whole->cache.layout); t++) {
        for (size_t i = 0; i < skv_kv_cache_track_rows(&less->cache, t); i++) {
            size_t from = skv_kv_cache_position(&less->cache, t, i);
            float a[4][SKV_HEAD_DIM_MAX];
            load_row(less, t, i, a[0], a[1]);
            load_row(whole, t, from, a[2], a[3]);
            assert_memory_equal(a[0], a[2], head_dim * sizeof(float));
            assert_memory_equal(a[1], a[3], head_dim * sizeof(float));
            n_compared++;
        }
    }
    assert_true(n_compared > 100);
    skv_sequence_free(whole);
    skv_sequence_free(less);
    skv_engine_close(engine);
}

/* What layers with a sliding window cannot see may go: that changes nothing. */
static void test_windows_are_exact(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT + 4];
    make_ids(ids, N_PROMPT + 4);
    skv_engine *engine = open_engine("gemma3-v5", "none", 16, SKV_KV_F32, false);
    skv_sequence *whole = new_sequence(engine), *less = new_sequence(engine);
    size_t n_tracks = skv_kv_layout_tracks(less->cache.layout), n_short = 0, n[64];
    uint32_t rows[64 * N_PROMPT];
    float a[VOCAB_MAX] = {0}, b[VOCAB_MAX] = {0};
    assert_true(n_tracks <= 64);
    assert_int_equal(skv_prompt(engine, whole, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, less, ids, N_PROMPT, NULL, NULL), SKV_OK);
    for (size_t t = 0; t < n_tracks; t++) {
        size_t window = engine->config->layers[t / 2].window; /* a slot a layer, of two heads */
        n[t] = window > 0 ? window : N_PROMPT;
        n_short += window > 0;
        for (size_t i = 0; i < n[t]; i++) rows[t * N_PROMPT + i] = (uint32_t)(N_PROMPT - n[t] + i);
    }
    assert_int_equal(n_short, 6);
    skv_kv_choice choice = {.n = n, .rows = rows, .stride = N_PROMPT};
    assert_int_equal(skv_kv_cache_evict(&less->cache, &choice, NULL), SKV_OK);
    assert_true(skv_sequence_kv_bytes(less) < skv_sequence_kv_bytes(whole));
    for (size_t i = N_PROMPT; i < N_PROMPT + 4; i++) {
        skv_span span = {whole, ids + i, 1, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, take_logits, &(taker){engine, a}, NULL),
                         SKV_OK);
        span.sequence = less;
        assert_int_equal(skv_step(engine, &span, 1, take_logits, &(taker){engine, b}, NULL),
                         SKV_OK);
        for (size_t v = 0; v < VOCAB_MAX; v++) assert_true(fabsf(a[v] - b[v]) < 1e-4f);
    }
    skv_sequence_free(whole);
    skv_sequence_free(less);
    /* And by a method: those slots keep their window, the others C rows. */
    skv_sequence *s = new_sequence(engine);
    skv_eviction how = parse("snapkv:40,8,5");
    assert_int_equal(skv_sequence_set_eviction(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL), SKV_OK);
    for (size_t i = 0; i < engine->config->n_layers; i++) {
        size_t window = engine->config->layers[i].window;
        assert_int_equal(skv_sequence_kept(s, i, 0, NULL, 0), window > 0 ? window : 40);
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
}

/* A sequence that shares its beginning with another evicts copies: the other goes on as before, and
 * so does a branch of what was kept. */
static void test_shared_pages_stay(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT + 1];
    make_ids(ids, N_PROMPT + 1);
    float before[VOCAB_MAX] = {0}, after[VOCAB_MAX] = {0}, own[VOCAB_MAX] = {0};
    skv_engine *engine = open_engine("llama-swiftkv-g2", "snapkv:40,8,5", 16, SKV_KV_F32, false);
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine), *c = new_sequence(engine);
    skv_sequence *alone = new_sequence(engine);
    skv_eviction none = {.method = SKV_EVICT_NONE};
    assert_int_equal(skv_sequence_set_eviction(a, &none, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, a, ids, 80, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_share(b, a, 70, NULL), SKV_OK);
    assert_int_equal(
        skv_prompt(engine, b, ids + 70, 20, &(skv_prompt_options){.logits = own}, NULL), SKV_OK);
    /* As if it had read all of it itself. */
    assert_int_equal(
        skv_prompt(engine, alone, ids, N_PROMPT, &(skv_prompt_options){.logits = before}, NULL),
        SKV_OK);
    for (size_t v = 0; v < VOCAB_MAX; v++) assert_true(fabsf(own[v] - before[v]) < 1e-4f);
    size_t rows[2][128];
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(skv_sequence_kept(b, i, 1, rows[0], 128), 40);
        assert_int_equal(skv_sequence_kept(alone, i, 1, rows[1], 128), 40);
        assert_memory_equal(rows[0], rows[1], 40 * sizeof(size_t));
    }
    skv_span span = {a, ids + 80, 1, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, take_logits, &(taker){engine, after}, NULL),
                     SKV_OK);
    skv_sequence_free(a);
    assert_int_equal(skv_sequence_share(c, b, N_PROMPT, NULL), SKV_OK);
    skv_span branches[2] = {{b, ids + N_PROMPT, 1, SKV_WANT_LAST},
                            {c, ids + N_PROMPT, 1, SKV_WANT_LAST}};
    assert_int_equal(skv_step(engine, branches, 1, take_logits, &(taker){engine, before}, NULL),
                     SKV_OK);
    assert_int_equal(skv_step(engine, branches + 1, 1, take_logits, &(taker){engine, after}, NULL),
                     SKV_OK);
    assert_memory_equal(before, after, sizeof before);
    skv_sequence_free(b);
    skv_sequence_free(c);
    skv_sequence_free(alone);
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.kv_bytes, 0);
    skv_engine_close(engine);
}

/* What is cut off is gone; what was evicted before stays away. */
static void test_truncation(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT];
    make_ids(ids, N_PROMPT);
    skv_engine *engine = open_engine("llama3-v5", "snapkv:40,8,5", 16, SKV_KV_F32, false);
    skv_sequence *s = new_sequence(engine);
    size_t rows[128], fewer[128];
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_kept(s, 2, 0, rows, 128), 40);
    assert_int_equal(skv_prompt(engine, s, ids, 0 + 1, NULL, NULL), SKV_OK);
    skv_sequence_truncate(s, 60);
    size_t n = skv_sequence_kept(s, 2, 0, fewer, 128);
    assert_true(n < 40 && fewer[n - 1] < 60);
    skv_sequence_truncate(s, 0);
    assert_int_equal(skv_sequence_kv_bytes(s), 0);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_kept(s, 2, 0, fewer, 128), 40);
    assert_memory_equal(rows, fewer, 40 * sizeof *rows);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void cancel_step(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)i_span;
    (void)i_token;
    (void)logits;
    skv_cancel(user);
}

/* A step that is cancelled and run again in other pieces votes once. */
static void test_cancelled_votes_count_once(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT];
    make_ids(ids, N_PROMPT);
    skv_engine *engine = open_engine("llama-swiftkv-g1", "h2o:40", 64, SKV_KV_F32, false);
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine);
    size_t rows[2][128];
    assert_int_equal(skv_prompt(engine, a, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_expect(b, N_PROMPT, NULL), SKV_OK);
    skv_span span = {b, ids, 60, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, cancel_step, engine, NULL), SKV_OK);
    span = (skv_span){b, ids + 60, 30, SKV_WANT_NONE};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_CANCELLED);
    assert_int_equal(skv_sequence_evict(b, NULL), SKV_ARGUMENT);
    for (size_t i = 60; i < N_PROMPT; i += 10) {
        span = (skv_span){b, ids + i, 10, SKV_WANT_NONE};
        assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
    }
    assert_int_equal(skv_sequence_evict(b, NULL), SKV_OK);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(skv_sequence_kept(a, i, 0, rows[0], 128), 40);
        assert_int_equal(skv_sequence_kept(b, i, 0, rows[1], 128), 40);
        assert_memory_equal(rows[0], rows[1], 40 * sizeof(size_t));
    }
    skv_sequence_free(a);
    skv_sequence_free(b);
    skv_engine_close(engine);
}

typedef struct attempt {
    skv_engine *engine;
    const char *how;
} attempt;

static bool prompt_once(void *arg)
{
    const attempt *a = arg;
    int32_t ids[N_PROMPT];
    make_ids(ids, N_PROMPT);
    skv_sequence *s = NULL;
    skv_eviction how;
    bool ok = skv_eviction_parse(a->how, &how, NULL) == SKV_OK &&
              skv_sequence_create(a->engine, 0, &s, NULL) == SKV_OK &&
              skv_sequence_set_eviction(s, &how, NULL) == SKV_OK;
    if (ok && skv_prompt(a->engine, s, ids, N_PROMPT, NULL, NULL) != SKV_OK) {
        ok = false;
        assert_int_equal(skv_sequence_length(s), 0);
        assert_int_equal(skv_sequence_kv_bytes(s), 0);
    }
    skv_sequence_free(s);
    return ok;
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const hows[] = {"snapkv:40,8,5", "snapkv:40,8,5,query"};
    for (size_t i = 0; i < 2; i++) {
        attempt a = {open_engine("llama3-v5", "none", 64, SKV_KV_F32, false), hows[i]};
        size_t n = alloc_fail_each(prompt_once, &a, false);
        assert_true(n > 5 && n < SIZE_MAX);
        skv_engine_stats stats;
        skv_engine_get_stats(a.engine, &stats);
        assert_int_equal(stats.kv_bytes, 0);
        skv_engine_close(a.engine);
    }
}

/* Where own pages are too few and none is free, the copies of shared ones cannot be made: nothing
 * changes. */
static void test_full_pool_changes_nothing(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT];
    make_ids(ids, N_PROMPT);
    skv_engine *engine = open_engine("llama3-v5", "snapkv:70,8,5", 64, SKV_KV_F32, false);
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine), *c = new_sequence(engine);
    skv_eviction none = {.method = SKV_EVICT_NONE};
    assert_int_equal(skv_sequence_set_eviction(a, &none, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_eviction(c, &none, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, a, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_share(b, a, 64, NULL), SKV_OK);
    assert_int_equal(skv_sequence_expect(b, 26, NULL), SKV_OK);
    skv_span span = {b, ids + 64, 26, SKV_WANT_NONE};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, c, ids, N_PROMPT, NULL, NULL), SKV_OK);
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    size_t bytes = skv_sequence_kv_bytes(b), needs = skv_sequence_evict_needs(b);
    assert_int_equal(needs, 12);
    while (skv_kv_store_free_pages(engine->store) >= needs) {
        /* The store's last pages are taken by nobody in particular. */
        assert_non_null(skv_kv_page_take(engine->store, 0));
    }
    skv_error err;
    assert_int_equal(skv_sequence_evict(b, &err), SKV_FULL);
    assert_non_null(strstr(err.text, "12 pages"));
    assert_int_equal(skv_sequence_kv_bytes(b), bytes);
    assert_int_equal(skv_sequence_kept(b, 0, 0, NULL, 0), N_PROMPT);
    skv_sequence_free(a);
    assert_int_equal(skv_sequence_evict(b, &err), SKV_OK);
    assert_int_equal(skv_sequence_kept(b, 0, 0, NULL, 0), 70);
    skv_sequence_free(b);
    skv_sequence_free(c);
    skv_engine_close(engine);
}

/* ---- methods as text ---- */

static void test_text(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"none", "none"},
        {"snapkv:64", "snapkv:64,32,7,max,kv,exact"},
        {"snapkv:1024,16,5,avg", "snapkv:1024,16,5,avg,kv,exact"},
        {"snapkv:40,8,query,last", "snapkv:40,8,7,max,query,last"},
        {"pyramidkv:64,8,5,12.5", "pyramidkv:64,8,5,12.5,max,kv,exact"},
        {"adakv:64", "adakv:64,32,7,0.2,max,kv,exact"},
        {"h2o:64", "h2o:64,32,kv"},
        {"h2o:64,10,query", "h2o:64,10,query"},
        {"streaming:4,64", "streaming:4,64"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char text[SKV_EVICTION_TEXT];
        skv_eviction e = parse(same[i][0]);
        skv_eviction_print(&e, text);
        assert_string_equal(text, same[i][1]);
        e = parse(text);
        skv_eviction_print(&e, text);
        assert_string_equal(text, same[i][1]);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "METHOD"},
        {"snapkv", "METHOD"},
        {"lru:64", "lru:64"},
        {"snapkv:", "''"},
        {"snapkv:x", "'x'"},
        {"snapkv:-5", "'-5'"},
        {"snapkv:64,64", "w 64"},
        {"snapkv:64,0,5", "w"},
        {"snapkv:64,8,0", "k 0"},
        {"snapkv:64,8,2000", "k 2000"},
        {"snapkv:64,8,5,7", "'7'"},
        {"snapkv:64,max,avg", "'avg'"},
        {"snapkv:64,max,8", "'8'"},
        {"snapkv:64,8,5,", "''"},
        {"snapkv:64,8,5,maximal-and-more-than-that", "'maximal"},
        {"snapkv:99999999999999999999", "'99999999999999999999'"},
        {"snapkv:1", "C 1"},
        {"streaming:4", "lacks C"},
        {"streaming:64,64", "64 sinks"},
        {"streaming:4,64,avg", "'avg'"},
        {"h2o:64,8,5", "'5'"},
        {"h2o:64,last", "'last'"},
        {"adakv:64,8,5,1.5", "floor 1.5"},
        {"pyramidkv:64,8,5,0.5", "beta 0.5"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        skv_eviction e;
        skv_error err;
        assert_int_equal(skv_eviction_parse(bad[i][0], &e, &err), SKV_ARGUMENT);
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_every_method_has_cases),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_trained_model),
        cmocka_unit_test(test_what_fits_loses_nothing),
        cmocka_unit_test(test_memory_is_saved),
        cmocka_unit_test(test_moved_rows_are_the_same),
        cmocka_unit_test(test_windows_are_exact),
        cmocka_unit_test(test_shared_pages_stay),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_cancelled_votes_count_once),
        cmocka_unit_test(test_full_pool_changes_nothing),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
