/*
 * The emulated device of emulated_device.c: activations are bfloat16, memory is its own, and it
 * promises only that it repeats. Its operations are held against plain C, its models against the
 * processor by tolerance, and what it does not promise is refused by name.
 */
#include "guarded_backend.h"

#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/split/split.h"
#include "check_backend.h"
#include "engine/engine.h"
#include "scored_prompt.h"
#include "skv/tools.h"

#define MODELS SKV_TEST_DATA "/models/"

static void its_operations_are_right(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_backend *be;
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    const skv_backend_options options = {
        .device = "emulated", .threads = pool, .level = SKV_CPU_LEVEL_BEST};
    assert_int_equal(skv_backend_create(&options, &be, NULL), SKV_OK);
    assert_string_equal(be->name, "emulated");
    assert_int_equal(skv_check_backend(be, 5, stdout), 0);
    be->free(be);
    skv_pool_free(pool);
}

/* ---- beside the processor ---- */

static skv_status (*create_linear)(skv_backend *be, const skv_linear_spec *spec, skv_linear **out,
                                   skv_error *err);

/* Matrices of every other shape are those of a layer of the processor. */
static skv_status create_by_turns(skv_backend *be, const skv_linear_spec *spec, skv_linear **out,
                                  skv_error *err)
{
    skv_row_source parts[8];
    skv_linear_spec here = *spec;
    assert_true(spec->n_parts <= sizeof parts / sizeof *parts);
    for (size_t i = 0; i < spec->n_parts; i++) {
        parts[i] = spec->parts[i];
        parts[i].layer = (spec->K / 8 + spec->parts[0].n_rows) % 2;
    }
    here.parts = parts;
    return create_linear(be, &here, out, err);
}

static void its_operations_are_right_beside_the_processor(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_backend *first, *second, *be;
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    skv_backend_options options = {.device = NULL, .threads = pool, .level = SKV_CPU_LEVEL_BEST};
    assert_int_equal(skv_backend_create(&options, &first, NULL), SKV_OK);
    options.device = "cpu";
    assert_int_equal(skv_backend_cpu_create(&options, &second, NULL), SKV_OK);
    assert_int_equal(skv_backend_split_create(first, second, 1, &be, NULL), SKV_OK);
    create_linear = be->linear_create;
    be->linear_create = create_by_turns;
    assert_int_equal(skv_check_backend(be, 5, stdout), 0);
    assert_true(skv_split_counts_of(be).n_down > 0 && skv_split_counts_of(be).n_up > 0);
    be->free(be);
    skv_pool_free(pool);
}

/* ---- models ---- */

typedef struct method {
    const char *name, *model;
    const char *eviction, *pruning, *adapters;
    double most; /* root mean square of the difference of logits, of their deviation; 0: NEAR */
} method;

/* About thirty numbers in a row of operations are rounded to 2^-9 of themselves, which adds up to
 * 2^-9 sqrt(30); layers make three times as much of it. */
#define NEAR 0.033

/* The adapter is so large that weights of bfloat16 alone change logits by 0.15 on the processor;
 * and H2O keeps other rows where two have nearly as many votes. */
static const method methods[] = {
    {.name = "dense", .model = MODELS "llama3-v5"},
    {.name = "SwiftKV", .model = MODELS "llama-swiftkv-g1"},
    {.name = "AcrossKV", .model = MODELS "llama-swiftkv-g2"},
    {.name = "sliding windows", .model = MODELS "gemma3-v5"},
    {.name = "per-layer embeddings", .model = MODELS "gemma4-e2b"},
    {.name = "mixture of experts", .model = MODELS "mixtral-v5"},
    {.name = "mixture beside a dense block", .model = MODELS "gemma4-moe"},
    {.name = "hybrid", .model = MODELS "qwen3-5"},
    {.name = "LoRA",
     .model = MODELS "llama3-v5",
     .adapters = "wide=" SKV_TEST_DATA "/lora/wide",
     .most = 0.3},
    {.name = "SnapKV", .model = MODELS "llama3-v5", .eviction = "snapkv:40,8,5"},
    {.name = "H2O", .model = MODELS "llama-swiftkv-g1", .eviction = "h2o:40", .most = 0.1},
    {.name = "KV Prediction", .model = SKV_TEST_DATA "/kvpred/qwen3-c"},
    {.name = "random pruning", .model = MODELS "qwen3-v5", .pruning = "random:0.5"},
};

static skv_engine *open_on(const method *m, const char *device)
{
    skv_engine_options o = skv_engine_options_default();
    skv_error err;
    o.threads = 1;
    o.device = device;
    o.weights = SKV_WEIGHTS_F32;
    o.context = 256;
    o.step_tokens = m->pruning ? N_PROMPT : 64;
    o.adapters = m->adapters;
    if (m->pruning) assert_true(skv_pruning_parse(m->pruning, &o.pruning));
    if (m->eviction) {
        assert_int_equal(skv_eviction_parse(m->eviction, &o.eviction, &err), SKV_OK);
    }
    return open_or_fail(m->model, &o);
}

static void its_models_are_near(void **state)
{
    (void)state;
    static float logits[3][(N_SCORED + 1) * VOCAB_MAX];
    size_t n_wrong = 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const method *m = &methods[i];
        skv_engine *own = open_on(m, "emulated"), *cpu = open_on(m, NULL);
        const size_t n = (N_SCORED + 1) * skv_engine_vocab(cpu);
        assert_true(n <= sizeof logits[0] / sizeof *logits[0]);
        assert_string_equal(own->be->name, "emulated");
        score_prompt(own, logits[0]);
        score_prompt(own, logits[1]);
        score_prompt(cpu, logits[2]);
        const double off = logits_difference(logits[0], logits[2], n);
        const bool near = off > 0 && off < (m->most > 0 ? m->most : NEAR); /* 0: none is rounded */
        print_message("%-32s %.4f%s\n", m->name, off, near ? "" : " <-");
        assert_memory_equal(logits[0], logits[1], n * sizeof(float)); /* it repeats */
        n_wrong += !near;
        skv_engine_close(own);
        skv_engine_close(cpu);
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- what it refuses ---- */

static void refuses(const char *model, const skv_engine_options *options, skv_status want,
                    const char *why)
{
    skv_engine *engine = NULL;
    skv_error err = {0};
    assert_int_equal(skv_engine_open(model, options, &engine, &err), want);
    if (strncmp(err.text, why, strlen(why)) != 0) fail_msg("%s", err.text);
}

static void what_it_does_not_promise_is_refused(void **state)
{
    (void)state;
    const char *model = MODELS "llama-swiftkv-g1";
    skv_engine_options plain = skv_engine_options_default(), o;
    plain.device = "emulated";
    plain.context = 64;
    o = plain;
    o.batch_invariant = true;
    refuses(model, &o, SKV_UNSUPPORTED,
            "device that only repeats, batch invariance: the device's results of a row depend");
    o = plain;
    o.prompt_only = true;
    refuses(model, &o, SKV_UNSUPPORTED, "device that only repeats, serve --role read: keys and");
    o = plain;
    o.weights = SKV_WEIGHTS_INT4;
    o.f32_activations = true;
    refuses(model, &o, SKV_UNSUPPORTED, "device emulated: codes of weights beside rows of f32");
    skv_engine *engine = open_or_fail(model, &plain);
    assert_int_equal(skv_boundary_row_bytes(engine), 0); /* deep rows are stored as they are */
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    assert_string_equal(stats.device, "emulated");
    skv_engine_close(engine);
}

/* ---- memory ---- */

static void it_has_memory_of_its_own(void **state)
{
    (void)state;
    const char *model = MODELS "llama3-v5";
    skv_engine_options o = skv_engine_options_default();
    skv_memory_plan own, cpu;
    skv_error err;
    o.context = 128;
    o.threads = 1;
    assert_int_equal(skv_memory_plan_make(model, &o, 0, &cpu, &err), SKV_OK);
    assert_int_equal(cpu.host_needed + cpu.host_available, 0);
    o.device = "emulated";
    assert_int_equal(skv_memory_plan_make(model, &o, 0, &own, &err), SKV_OK);
    assert_true(own.host_needed > 0 && own.needed > own.host_needed);
    assert_int_equal(own.needed + own.host_needed, cpu.needed); /* each byte is in one of them */
    emulated_device_has(own.needed);
    assert_int_equal(skv_memory_plan_make(model, &o, 0, &own, &err), SKV_OK);
    assert_true(own.fits && own.available == own.needed);
    skv_engine_close(open_or_fail(model, &o));
    emulated_device_has(own.needed - 1);
    refuses(model, &o, SKV_MEMORY, "memory of device emulated: weights ");
    assert_int_equal(skv_memory_plan_make(model, &o, 0, &own, &err), SKV_OK);
    assert_true(!own.fits && own.context_max < 128);
    emulated_device_has((size_t)1 << 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_operations_are_right),
        cmocka_unit_test(its_operations_are_right_beside_the_processor),
        cmocka_unit_test(its_models_are_near),
        cmocka_unit_test(what_it_does_not_promise_is_refused),
        cmocka_unit_test(it_has_memory_of_its_own),
    };
    return cmocka_run_group_tests_name("guarded emulated", tests, NULL, NULL);
}
