/*
 * The first layers on an emulated GPU and the others on the processor (--gpu-layers), by way of
 * fake_driver.c: logits are those of the processor alone for every kind of model and every number
 * of layers, what crosses between the two is counted, and so is the memory of both. An argument is
 * a pattern of the tests that run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_image.h"
#include "backend/split/split.h"
#include "device_driver.h"
#include "engine/engine.h"
#include "scored_prompt.h"
#include "skv/tools.h"

#define MODELS SKV_TEST_DATA "/models/"

enum {
    N_IDS = 72,
    N_SHARED = 66,
    N_SINGLE = 2,
    N_BEHIND = 6,
    CHUNK = 40,
    ROWS = N_SINGLE + 3,
    CUTS = 5
};

static void *image;

/* The fake driver has the kernels itself: any image will do. */
const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return image;
}

typedef struct divided {
    const char *name, *model, *eviction;
    bool bf16;   /* in f32 otherwise */
    size_t cuts; /* of half of the layers, one, all but one, none, more than all */
    double most; /* root mean square of the difference of logits, of their deviation */
} divided;

/* In f32 sums in another order alone make a difference, which a state adds up; activations between
 * the products of a mixture are bf16 on the GPU (test_cuda_backend.c). */
#define EXACT 2e-5

static const divided cases[] = {
    {"dense", MODELS "llama3-v4", NULL, false, CUTS, EXACT},
    {"SwiftKV", MODELS "gptq-order-swiftkv", NULL, false, 3, EXACT},
    {"AcrossKV", MODELS "llama-swiftkv-g4", NULL, false, 3, EXACT},
    {"AcrossKV, two layers", MODELS "qwen3-swiftkv-g2", NULL, false, 1, EXACT},
    {"hybrid", MODELS "qwen3-5-swiftkv", NULL, false, 3, 2 * EXACT},
    {"mixture of experts", MODELS "gpt-oss", NULL, true, 3, 0.033},
    {"SnapKV", MODELS "gptq-order-swiftkv", "snapkv:40,8,5", false, 1, EXACT},
    {"SnapKV by query head", MODELS "llama3-v4", "snapkv:40,8,5,query", false, 1, EXACT},
    {"AdaKV", MODELS "qwen3-v4", "adakv:40,8,5", false, 1, EXACT},
    {"H2O", MODELS "llama-swiftkv-g4", "h2o:40", false, 1, EXACT},
};

static skv_engine_options options_of(const divided *d)
{
    skv_engine_options o = skv_engine_options_default();
    skv_error err;
    o.threads = 1;
    o.weights = d->bf16 ? SKV_WEIGHTS_BF16 : SKV_WEIGHTS_F32;
    o.kv = d->bf16 ? SKV_KV_BF16 : SKV_KV_F32;
    o.context = 128;
    o.kv_tokens = 512;
    o.step_tokens = CHUNK;
    if (d->eviction && skv_eviction_parse(d->eviction, &o.eviction, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return o;
}

/* Logits [ROWS, V] of a prompt's last token, of N_SINGLE tokens behind it, and where nothing was
 * evicted of a prompt that begins like it, and of a token of each in one step. */
static size_t read_logits(skv_engine *engine, bool shares, float *logits)
{
    int32_t ids[N_IDS + N_SINGLE];
    const size_t V = skv_engine_vocab(engine);
    skv_sequence *s = new_sequence(engine), *other = new_sequence(engine);
    skv_prompt_options prompt = {.logits = logits};
    skv_error err;
    size_t n = 1;
    make_repeating_ids(ids, N_IDS + N_SINGLE, V);
    if (skv_prompt(engine, s, ids, N_IDS, &prompt, &err) != SKV_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < N_SINGLE; i++, n++) {
        const skv_span span = {s, ids + N_IDS + i, 1, SKV_WANT_LAST};
        logits_row to = {logits + n * V, V};
        assert_int_equal(skv_step(engine, &span, 1, copy_logits, &to, &err), SKV_OK);
    }
    if (shares) {
        prompt.logits = logits + n++ * V;
        assert_int_equal(skv_sequence_share(other, s, N_SHARED, &err), SKV_OK);
        const size_t n_there = skv_sequence_length(other); /* states are not shared in between */
        if (skv_prompt(engine, other, ids + n_there + 1, N_BEHIND, &prompt, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        const skv_span both[] = {{s, ids, 1, SKV_WANT_NONE}, {other, ids + 1, 1, SKV_WANT_LAST}};
        logits_row to = {logits + n++ * V, V};
        assert_int_equal(skv_step(engine, both, 2, copy_logits, &to, &err), SKV_OK);
    }
    skv_sequence_free(other);
    skv_sequence_free(s);
    assert_true(n <= ROWS);
    return n * V;
}

static bool is_near(const divided *d, size_t n_layers, const float *cpu, size_t n)
{
    static float logits[ROWS * VOCAB_MAX];
    skv_engine_options o = options_of(d);
    o.device = "cuda";
    o.by_layer = true;
    o.device_layers = n_layers;
    skv_engine *engine = open_or_fail(d->model, &o);
    assert_int_equal(read_logits(engine, !d->eviction, logits), n);
    skv_engine_close(engine);
    const double off = logits_difference(logits, cpu, n);
    const bool near = off < d->most && (n_layers > 0 ? off > 0 : off == 0);
    print_message("%-24s %2zu layers %.7f%s\n", d->name, n_layers, off, near ? "" : " <-");
    return near;
}

static void its_logits_are_near(void **state)
{
    static float cpu[ROWS * VOCAB_MAX];
    size_t n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const divided *d = &cases[i];
        const skv_engine_options o = options_of(d);
        skv_engine *engine = open_or_fail(d->model, &o);
        const size_t L = engine->config->n_layers, V = skv_engine_vocab(engine);
        const size_t cuts[CUTS] = {L / 2, 1, L - 1, 0, L + 1};
        assert_true(V <= VOCAB_MAX);
        const size_t n = read_logits(engine, !d->eviction, cpu);
        skv_engine_close(engine);
        for (size_t k = 0; k < d->cuts; k++) n_wrong += !is_near(d, cuts[k], cpu, n);
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- what crosses ---- */

static skv_split_counts counts_of_step(skv_engine *engine, skv_sequence *s, size_t n, skv_want want)
{
    int32_t ids[CHUNK];
    float logits[VOCAB_MAX];
    logits_row to = {logits, skv_engine_vocab(engine)};
    skv_error err;
    const skv_split_counts before = skv_split_counts_of(engine->be);
    make_repeating_ids(ids, CHUNK, skv_engine_vocab(engine));
    const skv_span span = {s, ids, n, want};
    if (skv_step(engine, &span, 1, copy_logits, &to, &err) != SKV_OK) fail_msg("%s", err.text);
    const skv_split_counts after = skv_split_counts_of(engine->be);
    return (skv_split_counts){after.n_down - before.n_down, after.n_up - before.n_up,
                              after.numbers_down - before.numbers_down,
                              after.numbers_up - before.numbers_up};
}

/* The embeddings go up once, n_down times something comes down. */
static void assert_crossed(skv_split_counts c, size_t n_down, size_t numbers_down,
                           size_t numbers_up)
{
    assert_int_equal(c.n_up, 1);
    assert_int_equal(c.numbers_up, numbers_up);
    assert_int_equal(c.n_down, n_down);
    assert_int_equal(c.numbers_down, numbers_down);
}

/* SwiftKV with two layers below the boundary and two groups of two layers above it. A chunk of a
 * prompt comes down once, as the input of the processor's layers. Behind the boundary that is the
 * input of the keys and values that they keep, and rows that go on come from a later layer by
 * themselves. Where layers of both sides read a slot its keys and values come down too. */
static void x_crosses_once_each_way(void **state)
{
    static const struct {
        size_t cut, n_own, n_kv; /* copies of rows that go on, of keys and values of a group */
    } crossings[] = {{1, 0, 0}, {2, 0, 0}, {4, 1, 0}, {3, 1, 1}};
    const divided d = {.model = MODELS "qwen3-swiftkv-g2"};
    (void)state;
    for (size_t i = 0; i < sizeof crossings / sizeof *crossings; i++) {
        const size_t n_own = crossings[i].n_own, n_kv = crossings[i].n_kv;
        skv_engine_options o = options_of(&d);
        o.device = "cuda";
        o.by_layer = true;
        o.device_layers = crossings[i].cut;
        skv_engine *engine = open_or_fail(d.model, &o);
        const size_t D = engine->config->hidden,
                     n = D + n_kv * skv_config_kv_columns(engine->config, 2);
        assert_int_equal(engine->plan.stack_boundary, 2);
        assert_int_equal(engine->config->n_layers, 6);
        skv_sequence *s = new_sequence(engine);
        assert_crossed(counts_of_step(engine, s, CHUNK, SKV_WANT_NONE), 1 + n_kv, CHUNK * n,
                       CHUNK * D);
        assert_crossed(counts_of_step(engine, s, CHUNK, SKV_WANT_LAST), 1 + n_kv + n_own,
                       CHUNK * n + n_own * D, CHUNK * D);
        assert_crossed(counts_of_step(engine, s, 1, SKV_WANT_LAST), 1 + n_kv + n_own, n + n_own * D,
                       D);
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
}

/* ---- memory ---- */

static skv_memory_plan plan_of(const divided *d, const skv_engine_options *o)
{
    skv_memory_plan plan;
    skv_error err;
    if (skv_memory_plan_make(d->model, o, 0, &plan, &err) != SKV_OK) fail_msg("%s", err.text);
    return plan;
}

static void memory_of_both_is_counted(void **state)
{
    const divided d = {.model = MODELS "gptq-order-swiftkv"};
    skv_engine_options o = options_of(&d);
    skv_engine *engine = NULL;
    skv_error err;
    (void)state;
    o.device = "cuda";
    const skv_memory_plan whole = plan_of(&d, &o);
    o.memory_max = whole.needed - 1;
    const skv_memory_plan full = plan_of(&d, &o);
    assert_int_equal(whole.device_layers_max, 0);
    assert_true(!full.fits && full.device_layers_max > 1);
    o.by_layer = true;
    o.device_layers = full.device_layers_max;
    const skv_memory_plan most = plan_of(&d, &o);
    assert_true(most.fits && most.needed < whole.needed && most.host_needed > whole.host_needed);
    engine = open_or_fail(d.model, &o);
    skv_engine_close(engine);
    o.device_layers = 1;
    const skv_memory_plan one = plan_of(&d, &o);
    assert_true(one.needed < most.needed && one.host_needed > most.host_needed);
    o.memory_max = one.needed - 1;
    assert_int_equal(skv_engine_open(d.model, &o, &engine, &err), SKV_MEMORY);
    assert_int_equal(strncmp(err.text, "memory of device cuda: ", 23), 0);
    assert_int_equal(plan_of(&d, &o).device_layers_max, 0);
}

/* ---- what does not go with it ---- */

static void refuses(const char *model, const skv_engine_options *o, skv_status status,
                    const char *why)
{
    skv_engine *engine = NULL;
    skv_error err;
    assert_int_equal(skv_engine_open(model, o, &engine, &err), status);
    if (strncmp(err.text, why, strlen(why)) != 0) fail_msg("%s", err.text);
}

static void what_does_not_go_with_it_is_refused(void **state)
{
    const divided d = {.model = MODELS "llama3-v4"};
    skv_engine_options o = options_of(&d);
    (void)state;
    o.by_layer = true;
    o.device_layers = 2;
    refuses(d.model, &o, SKV_ARGUMENT, "gpu layers: 2, and the device is the processor");
    o.device = "cuda";
    o.batch_invariant = true;
    refuses(d.model, &o, SKV_UNSUPPORTED, "device with --gpu-layers, batch invariance: ");
    o.batch_invariant = false;
    o.weights = SKV_WEIGHTS_FP8;
    o.kv = SKV_KV_BF16;
    refuses(d.model, &o, SKV_UNSUPPORTED, "device cpu: no weights of fp8");
    o.weights = SKV_WEIGHTS_BF16;
    o.prefill = SKV_PREFILL_KVPRED;
    o.device_layers = 1;
    refuses(SKV_TEST_DATA "/../../models/mini/kvpred", &o, SKV_UNSUPPORTED,
            "prefill kvpred, device with --gpu-layers: one product predicts");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_logits_are_near),
        cmocka_unit_test(x_crosses_once_each_way),
        cmocka_unit_test(memory_of_both_is_counted),
        cmocka_unit_test(what_does_not_go_with_it_is_refused),
    };
    void *loaded = image = device_image();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int n_failed = cmocka_run_group_tests_name("CUDA layers", tests, NULL, NULL);
    free(loaded);
    return n_failed;
}
