/*
 * Training runs on hybrids of the gated delta rule and attention: a distillation that is stopped
 * and resumed writes the same bytes as one that is not, its frozen weights are untouched, and the
 * engine gives what it writes the probabilities that the trainer gives it; training from scratch
 * learns; a plan counts what a run takes; hybrids of other kinds are refused by name.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skv/skv.h"
#include "skv/train.h"
#include "train/trainer.h"
#include "train_run.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { STEPS = 6, TOKENS = 40 };

static skv_train_options distill(const char *ids, const char *out, record *r)
{
    skv_train_options o = short_run(SKV_TRAIN_DISTILL, ids, out, STEPS, r);
    o.model = MODELS "qwen3-5";
    o.kv_layers = 3;
    return o;
}

static void test_resume_is_exact(void **state)
{
    const fixture *f = *state;
    record whole = {.stop_at = 0}, parts = {.stop_at = 3};
    skv_error err;
    skv_train_options o = distill(f->ids, f->out[0], &whole);
    run_ok(&o);
    assert_true(whole.loss[STEPS - 1] < whole.loss[0]);
    o = distill(f->ids, f->out[1], &parts);
    o.threads = 1;
    assert_int_equal(skv_train_run(&o, &err), SKV_CANCELLED);
    parts.stop_at = 0;
    o.resume = true;
    run_ok(&o);
    for (int i = 0; i < STEPS; i++) assert_true(whole.loss[i] == parts.loss[i]);
    check_same_file(f->out[0], f->out[1], "model.safetensors");
    check_same_file(f->out[0], f->out[1], "config.json");
}

/* Layers 3 to 5 are state, attention, state: nine tensors of either state, six of attention's. */
static void test_frozen_weights_stay(void **state)
{
    const fixture *f = *state;
    skv_source *before = open_source(MODELS "qwen3-5"), *after = open_source(f->out[0]);
    size_t n_new = 0, n_old = 0;
    for (size_t i = 0; i < skv_source_count(after); i++) {
        const skv_tensor *t = skv_source_at(after, i), *old = skv_source_find(before, t->name);
        if (!old) {
            assert_non_null(strstr(t->name, "_swiftkv"));
            n_new++;
            continue;
        }
        float *a = read_whole(t), *b = read_whole(old);
        assert_memory_equal(a, b, skv_tensor_rows(t) * skv_tensor_columns(t) * sizeof *a);
        free(a);
        free(b);
        n_old++;
    }
    assert_int_equal(n_new, 1 + 2 * 8 + 5);
    assert_int_equal(n_old, skv_source_count(before));
    skv_source_close(before);
    skv_source_close(after);
}

/* The mean of -log p of a text, by the trainer. */
static double trainer_loss(const char *path, const int32_t *ids)
{
    skv_source *source = open_source(path);
    int32_t targets[TOKENS];
    uint32_t positions[TOKENS], doc_start[TOKENS] = {0};
    for (uint32_t t = 0; t < TOKENS; t++) {
        positions[t] = t;
        targets[t] = t + 1 < TOKENS ? ids[t + 1] : -1;
    }
    const skv_train_batch batch = {TOKENS, ids, targets, positions, doc_start};
    const skv_net_scale scale = {TOKENS - 1, TOKENS, TOKENS};
    const skv_net_options options = {
        .threads = 1, .max_tokens = TOKENS, .student = skv_source_config(source)->swiftkv};
    skv_net *net;
    skv_net_sums sums;
    skv_error err;
    if (skv_net_create(skv_source_config(source), source, &options, &net, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    if (skv_net_run(net, &batch, &scale, false, &sums, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_net_free(net);
    skv_source_close(source);
    return sums.loss / scale.positions;
}

static double engine_loss(const char *path, const int32_t *ids)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine;
    skv_error err;
    double logprobs[TOKENS], sum = 0;
    options.threads = 1;
    options.context = 64;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_score(engine, ids, TOKENS, logprobs, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
    for (size_t t = 1; t < TOKENS; t++) sum -= logprobs[t];
    skv_engine_close(engine);
    return sum / (TOKENS - 1);
}

static void check_engine(const char *path)
{
    int32_t ids[TOKENS];
    for (int32_t t = 0; t < TOKENS; t++) ids[t] = (t * 37 + t * t) % 101;
    const double trainer = trainer_loss(path, ids), engine = engine_loss(path, ids);
    if (!(fabs(trainer - engine) <= 1e-4)) {
        fail_msg("%s: the trainer's loss is %.7f, the engine's %.7f", path, trainer, engine);
    }
}

static void test_engine_agrees(void **state)
{
    const fixture *f = *state;
    check_engine(MODELS "qwen3-5");
    check_engine(MODELS "qwen3-5-swiftkv");
    check_engine(f->out[0]);
}

static void test_from_scratch(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0};
    skv_train_options o = distill(f->ids, f->out[2], &r);
    o.task = SKV_TRAIN_SCRATCH;
    o.loss = SKV_TRAIN_LM;
    o.part = SKV_TRAIN_ALL;
    o.kv_layers = 0;
    o.stages[0].steps = 60;
    o.stages[0].rate = 1e-2;
    run_ok(&o);
    assert_true(fabs(r.loss[0] - (log(103) + 0.5)) < 0.25);
    assert_true(r.loss[59] < 0.6 * r.loss[0]);
    check_engine(f->out[2]);
}

static void test_plan_is_what_a_run_takes(void **state)
{
    const fixture *f = *state;
    static const skv_train_part parts[] = {SKV_TRAIN_QKV, SKV_TRAIN_DEEP, SKV_TRAIN_ALL};
    record r = {.stop_at = 0};
    for (size_t i = 0; i < 6; i++) {
        skv_trainer t;
        skv_error err;
        skv_train_cost plan, real;
        skv_train_options o = distill(f->ids, f->out[0], &r);
        o.part = parts[i % 3];
        o.f32 = i / 3;
        if (skv_train_plan(&o, &plan, &err) != SKV_OK) fail_msg("%s", err.text);
        if (skv_trainer_open(&t, &o, &err) != SKV_OK) fail_msg("%s", err.text);
        skv_trainer_count(&t, &real);
        assert_memory_equal(&plan, &real, sizeof plan);
        skv_trainer_close(&t);
    }
}

static void test_refusals(void **state)
{
    const fixture *f = *state;
    static const struct {
        const char *model, *why;
    } cases[] = {{"qwen3-5-moe", "experts beside layers that keep a state"},
                 {"granite-h", "layers of Mamba-2"},
                 {"nemotron-h", "layers of Mamba-2"},
                 {"falcon-h1", "layers of Mamba-2"},
                 {"qwen3-5-gguf/model.gguf", "are not trained from a GGUF file"},
                 {"lfm2-v5", "layers that are a short convolution alone"},
                 {"olmo-hybrid", "a state's norm with an epsilon of its own"}};
    record r = {.stop_at = 0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[256];
        skv_error err;
        skv_train_options o = distill(f->ids, f->out[0], &r);
        (void)snprintf(path, sizeof path, MODELS "%s", cases[i].model);
        o.task = SKV_TRAIN_FINETUNE;
        o.part = SKV_TRAIN_ALL;
        o.loss = SKV_TRAIN_LM;
        o.kv_layers = 0;
        o.model = path;
        skv_train_cost cost;
        assert_int_equal(skv_train_plan(&o, &cost, &err), SKV_UNSUPPORTED);
        if (!strstr(err.text, cases[i].why)) fail_msg("%s: %s", cases[i].model, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume_is_exact),
                                       cmocka_unit_test(test_frozen_weights_stay),
                                       cmocka_unit_test(test_engine_agrees),
                                       cmocka_unit_test(test_from_scratch),
                                       cmocka_unit_test(test_plan_is_what_a_run_takes),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, start, finish);
}
