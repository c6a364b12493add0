/*
 * Training of KV Prediction against torch (tools/oracle/make_kvpred_goldens.py): every gradient of
 * auxiliary and predictor within 1e-4 relative in f32, ten steps with equal losses; whole runs that
 * are stopped and go on bit for bit, whose folders run, with the base inside or beside.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "skv/recipe.h"
#include "skv/skv.h"
#include "skv/tools.h"
#include "torch_case.h"
#include "train/optim.h"
#include "train_run.h"

#define FOLDER SKV_TEST_DATA "/kvpred/"

enum { STEPS = 6 };

static const char *const names[] = {"qwen3-c", "openelm-lp", "llama-lp"};
enum { N_NAMES = sizeof names / sizeof *names };

/* ---- against torch ---- */

typedef struct kvpred_case {
    const char *name;
    json_t *root;
    doc_tokens tokens;
    skv_source *base, *own;
    skv_safetensors *file;
    skv_net *net;
} kvpred_case;

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bool all(void *user, const skv_param *p)
{
    (void)user;
    (void)p;
    return true;
}

static kvpred_case open_case_as(const char *name, size_t threads, bool bf16, bool own_answers)
{
    kvpred_case c = {.name = name};
    char path[3][512];
    skv_error err;
    (void)snprintf(path[0], sizeof path[0], FOLDER "%s", name);
    (void)snprintf(path[1], sizeof path[1], FOLDER "%s/auxiliary", name);
    (void)snprintf(path[2], sizeof path[2], FOLDER "%s/predictor.safetensors", name);
    if (skv_source_open(path[0], &c.base, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_source_open(path[1], &c.own, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_safetensors_open(path[2], &c.file, &err) != SKV_OK) fail_msg("%s", err.text);
    (void)snprintf(path[2], sizeof path[2], FOLDER "%s/train.json", name);
    c.root = json_load_file(path[2], 0, NULL);
    assert_non_null(c.root);
    c.tokens = read_docs(c.root);
    const skv_config *base = skv_source_config(c.base);
    const skv_net_prediction prediction = {.base = base,
                                           .source = c.base,
                                           .layers = base->kvp_layers,
                                           .file = c.file,
                                           .path = "predictor.safetensors",
                                           .base_loss = number_of(c.root, "base_loss"),
                                           .auxiliary_loss = number_of(c.root, "auxiliary_loss"),
                                           .consistency_loss =
                                               number_of(c.root, "consistency_loss"),
                                           .own_answers = own_answers};
    const skv_net_options options = {.threads = threads,
                                     .max_tokens = TOKENS_MAX,
                                     .bf16 = bf16,
                                     .trainable = all,
                                     .prediction = &prediction};
    if (skv_net_create(skv_source_config(c.own), c.own, &options, &c.net, &err) != SKV_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    return c;
}

static kvpred_case open_case(const char *name, size_t threads, bool bf16)
{
    return open_case_as(name, threads, bf16, false);
}

static void close_case(kvpred_case *c)
{
    skv_net_free(c->net);
    skv_safetensors_close(c->file);
    skv_source_close(c->own);
    skv_source_close(c->base);
    json_decref(c->root);
}

/* Sums as losses. */
static skv_net_sums run_case(const kvpred_case *c)
{
    const skv_train_batch batch = batch_of(&c->tokens);
    const skv_net_scale scale = {.positions = (double)skv_net_count(c->net, &batch),
                                 .hidden = 1,
                                 .tokens = (double)c->tokens.n};
    skv_net_sums sums;
    skv_error err;
    skv_net_zero_gradients(c->net);
    if (skv_net_run(c->net, &batch, &scale, true, &sums, &err) != SKV_OK) fail_msg("%s", err.text);
    sums.loss /= scale.positions;
    sums.auxiliary /= scale.positions;
    sums.consistency /= scale.tokens;
    return sums;
}

static void check_losses(const kvpred_case *c, const skv_net_sums *got, const json_t *want,
                         double tolerance)
{
    const char *const keys[] = {"loss", "auxiliary", "consistency"};
    const double values[] = {got->loss, got->auxiliary, got->consistency};
    for (size_t i = 0; i < 3; i++) {
        double x = number_of(want, keys[i]);
        if (fabs(values[i] - x) <= tolerance * fabs(x)) continue;
        fail_msg("%s: %s %.9g, expected %.9g", c->name, keys[i], values[i], x);
    }
}

static void check_gradients(bool own_answers)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        kvpred_case c = open_case_as(names[i], 2, false, own_answers);
        skv_net_sums sums = run_case(&c);
        check_losses(&c, &sums, own_answers ? json_object_get(c.root, "used") : c.root, 1e-5);
        char path[512];
        skv_safetensors *file;
        (void)snprintf(path, sizeof path, FOLDER "%s/%s.safetensors", names[i],
                       own_answers ? "train_used" : "train");
        assert_int_equal(skv_safetensors_open(path, &file, NULL), SKV_OK);
        const skv_params *params = skv_net_params(c.net);
        assert_int_equal(params->n, skv_safetensors_count(file));
        for (size_t j = 0; j < params->n; j++) {
            const skv_tensor *want = skv_safetensors_find(file, params->at[j].name);
            if (!want) fail_msg("%s: no gradient of %s", names[i], params->at[j].name);
            (void)check_gradient(names[i], &params->at[j], want, 1e-8);
        }
        skv_safetensors_close(file);
        close_case(&c);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    check_gradients(false);
}

static void test_gradients_of_own_answers(void **state)
{
    (void)state;
    check_gradients(true);
}

static void test_ten_steps(void **state)
{
    (void)state;
    const skv_adamw_options options = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 0.5};
    for (size_t i = 0; i < N_NAMES; i++) {
        kvpred_case c = open_case(names[i], 1, false);
        const json_t *steps = json_object_get(c.root, "steps");
        const skv_schedule schedule = {SKV_SCHEDULE_LINEAR, 3e-3, 0, 2, json_array_size(steps)};
        skv_adamw opt;
        skv_error err;
        assert_int_equal(
            skv_adamw_init(&opt, &options, skv_net_params(c.net), skv_net_pool(c.net), &err),
            SKV_OK);
        assert_int_equal(json_array_size(steps), 10);
        for (size_t s = 0; s < 10; s++) {
            const json_t *want = json_array_get(steps, s);
            skv_net_sums sums = run_case(&c);
            double norm = skv_adamw_norm(&opt);
            check_losses(&c, &sums, want, 1e-5);
            assert_true(fabs(norm - number_of(want, "norm")) <= 1e-4 * norm);
            skv_adamw_step(&opt, skv_schedule_rate(&schedule, s), norm);
        }
        skv_adamw_release(&opt);
        close_case(&c);
    }
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (size_t i = 0; i < N_NAMES; i++) {
            kvpred_case one = open_case(names[i], 1, bf16), three = open_case(names[i], 3, bf16);
            skv_net_sums a = run_case(&one), b = run_case(&three);
            assert_true(a.loss == b.loss && a.auxiliary == b.auxiliary);
            assert_true(a.consistency == b.consistency);
            const skv_params *p = skv_net_params(one.net), *q = skv_net_params(three.net);
            assert_memory_equal(p->grads, q->grads, p->n_trainable * sizeof(float));
            if (bf16) check_losses(&one, &a, one.root, 3e-2);
            close_case(&one);
            close_case(&three);
        }
    }
}

/* ---- whole runs ---- */

static void copy_file(const char *from, const char *to_folder, const char *name)
{
    char path[2][512], *data;
    size_t n;
    (void)snprintf(path[0], sizeof path[0], "%s/%s", from, name);
    (void)snprintf(path[1], sizeof path[1], "%s/%s", to_folder, name);
    assert_int_equal(skv_file_read(path[0], 1 << 30, &data, &n, NULL), SKV_OK);
    assert_int_equal(skv_file_write(path[1], data, n, NULL), SKV_OK);
    skv_free(data);
}

static int start_beside(void **state)
{
    if (start(state) != 0) return -1;
    const fixture *f = *state;
    if (mkdir(f->base, 0700) != 0) return -1;
    copy_file(SKV_TEST_DATA "/models/llama-bias", f->base, "config.json");
    copy_file(SKV_TEST_DATA "/models/llama-bias", f->base, "model.safetensors");
    return 0;
}

static skv_train_options options_of(const fixture *f, const char *auxiliary, const char *out,
                                    record *r)
{
    skv_train_options o = short_run(SKV_TRAIN_KVPRED, f->ids, out, STEPS, r);
    o.model = f->base;
    o.auxiliary = auxiliary;
    o.stages[0].accumulate = 2;
    o.stages[0].rate = 3e-3;
    o.checkpoint_every = 2;
    o.threads = 1;
    return o;
}

/* A folder that was written is a model that runs. */
static void check_runs(const char *path, skv_prefill want)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.context = 64;
    skv_engine *engine;
    skv_engine_stats stats;
    skv_error err;
    double logprobs[20];
    int32_t ids[20];
    for (int i = 0; i < 20; i++) ids[i] = i * i % 97;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.prefill, want);
    if (skv_score(engine, ids, 20, logprobs, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
    for (int i = 1; i < 20; i++) assert_true(isfinite(logprobs[i]));
    skv_engine_close(engine);
}

/* A pruned copy, the base inside: stopped and resumed, the run is the same to the bit. */
static void test_resume_is_exact(void **state)
{
    const fixture *f = *state;
    record whole = {.stop_at = 0}, parts = {.stop_at = 3};
    skv_error err;
    skv_train_options o = options_of(f, "lp-0.5", f->out[0], &whole);
    run_ok(&o);
    assert_true(whole.consistency[STEPS - 1] < whole.consistency[0]);
    assert_true(whole.auxiliary[STEPS - 1] < whole.auxiliary[0]);
    o = options_of(f, "lp-0.5", f->out[1], &parts);
    assert_int_equal(skv_train_run(&o, &err), SKV_CANCELLED);
    parts.stop_at = 0;
    o.resume = true;
    o.consistency_loss = 1;
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "consistency-loss"));
    o.consistency_loss = -1;
    o.threads = 2;
    run_ok(&o);
    for (int i = 0; i < STEPS; i++) {
        assert_true(whole.loss[i] == parts.loss[i] && whole.auxiliary[i] == parts.auxiliary[i]);
        assert_true(whole.consistency[i] == parts.consistency[i]);
    }
    check_same_file(f->out[0], f->out[1], "predictor.safetensors");
    check_same_file(f->out[0], f->out[1], "model.safetensors");
    check_same_file(f->out[0], f->out[1], "auxiliary/model.safetensors");
    check_same_file(f->out[0], f->out[1], "config.json");
    check_runs(f->out[0], SKV_PREFILL_KVPRED);
    char auxiliary[128];
    (void)snprintf(auxiliary, sizeof auxiliary, "%s/auxiliary", f->out[0]);
    check_runs(auxiliary, SKV_PREFILL_FULL);
}

/* The base beside the folder, a new auxiliary from a configuration; trained on from there. */
static void test_base_beside_and_going_on(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0}, more = {.stop_at = 0};
    skv_train_options o = options_of(f, FOLDER "qwen3-c/auxiliary/config.json", f->out[2], &r);
    skv_error err;
    assert_int_equal(skv_train_run(&o, &err), SKV_FORMAT); /* of another vocabulary */
    assert_non_null(strstr(err.text, "vocab_size"));
    char config[128], text[] = "{\"model_type\": \"llama\", \"hidden_size\": 16, "
                               "\"intermediate_size\": 32, \"num_hidden_layers\": 2, "
                               "\"num_attention_heads\": 2, \"head_dim\": 8, \"vocab_size\": 101, "
                               "\"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}";
    (void)snprintf(config, sizeof config, "%s/small.json", f->root);
    assert_int_equal(skv_file_write(config, text, strlen(text), &err), SKV_OK);
    o = options_of(f, config, f->out[3], &r);
    o.delta = true;
    o.kvp_layers = "0,0,1,1";
    run_ok(&o);
    assert_true(r.loss[STEPS - 1] > 0 && isfinite(r.loss[STEPS - 1]));
    check_runs(f->out[3], SKV_PREFILL_KVPRED);
    char *weights = skv_path_join(f->out[3], "model.safetensors");
    assert_false(skv_file_exists(weights));
    skv_free(weights);
    o = options_of(f, NULL, f->out[4], &more);
    o.model = f->out[3];
    o.f32 = true;
    run_ok(&o);
    assert_true(more.auxiliary[0] < r.auxiliary[0]);
    check_runs(f->out[4], SKV_PREFILL_KVPRED);
}

static void test_refusals(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0};
    skv_error err;
    static const struct {
        const char *model, *auxiliary, *layers, *part;
    } bad[] = {{NULL, NULL, NULL, "no auxiliary model"},
               {NULL, "lp-0.5", "0,0,1", "layers: '0,0,1', expected 4 numbers below 2"},
               {NULL, "lp-0.5", "0,0,1,2", "layers"},
               {NULL, "lp-0.5", "0,0,1,-1", "layers"},
               {NULL, "/nowhere", NULL, "/nowhere"},
               {SKV_TEST_DATA "/models/llama-swiftkv-g2", "lp-0.5", NULL, "SwiftKV base"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        skv_train_options o = options_of(f, bad[i].auxiliary, f->out[5], &r);
        if (bad[i].model) o.model = bad[i].model;
        o.kvp_layers = bad[i].layers;
        assert_int_not_equal(skv_train_run(&o, &err), SKV_OK);
        if (!strstr(err.text, bad[i].part)) fail_msg("%s", err.text);
    }
}

/* A recipe says it all, and the plan counts both models. */
static void test_recipe_and_plan(void **state)
{
    const fixture *f = *state;
    static const char text[] = "task: kvpred\nauxiliary: lp-0.25\nconsistency-loss: 0.5\n"
                               "base-loss: 2\nauxiliary-loss: 0\nlayers: \"0,0,0,0\"\n"
                               "stages:\n  - {steps: 5, seq: 32}\n";
    skv_recipe recipe;
    skv_error err;
    skv_recipe_init(&recipe, SKV_TRAIN_SCRATCH);
    if (skv_recipe_parse(text, sizeof text - 1, "r", &recipe, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    skv_train_options *o = &recipe.options;
    assert_int_equal(o->task, SKV_TRAIN_KVPRED);
    assert_true(o->consistency_loss == 0.5 && o->base_loss == 2 && o->auxiliary_loss == 0);
    o->model = f->base;
    o->out = f->out[5];
    skv_train_cost cost;
    if (skv_train_plan(o, &cost, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true(cost.parameters > cost.trainable && cost.trainable > 0);
    assert_true(cost.step_flops > 0 && cost.activation_bytes > 0);
    skv_recipe_release(&recipe);
}

static bool make_net(void *arg)
{
    (void)arg;
    skv_source *base = NULL, *own = NULL;
    skv_net *net = NULL;
    bool ok = skv_source_open(FOLDER "qwen3-c", &base, NULL) == SKV_OK &&
              skv_source_open(FOLDER "qwen3-c/auxiliary", &own, NULL) == SKV_OK;
    if (ok) {
        const skv_config *c = skv_source_config(base);
        const skv_net_prediction prediction = {.base = c,
                                               .source = base,
                                               .layers = c->kvp_layers,
                                               .base_loss = 1,
                                               .auxiliary_loss = 1,
                                               .consistency_loss = 1};
        const skv_net_options options = {
            .threads = 1, .max_tokens = 16, .trainable = all, .prediction = &prediction};
        ok = skv_net_create(skv_source_config(own), own, &options, &net, NULL) == SKV_OK;
    }
    skv_net_free(net);
    skv_source_close(own);
    skv_source_close(base);
    return ok;
}

static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    size_t n = alloc_fail_each(make_net, NULL, false);
    assert_true(n > 20 && n < SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_gradients_of_own_answers),
        cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_resume_is_exact),
        cmocka_unit_test(test_base_beside_and_going_on),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_recipe_and_plan),
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
    };
    return cmocka_run_group_tests_name("train_kvpred", tests, start_beside, finish);
}
