/*
 * Training of a head that predicts further tokens, against torch
 * (tools/oracle/make_mtp_goldens.py): every gradient within 1e-4 relative in f32, with both losses.
 * Runs that are stopped and go on bit for bit; the head's tensors in the published layout beside
 * the model's own, which stay as they are; a new head where a model has none; heads that transform
 * and distill keep; refusals. Labels: threads
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
#include <jansson.h>

#include "format/safetensors.h"
#include "skv/skv.h"
#include "skv/tools.h"
#include "skv/train.h"
#include "torch_case.h"
#include "train/trainer.h"
#include "train_run.h"

#define MODELS SKV_TEST_DATA "/models/"
#define MODEL MODELS "qwen3-5-wrapped" /* with a head */
#define TRAIN SKV_TEST_DATA "/train/mtp"

enum { STEPS = 6 };

/* ---- against torch ---- */

typedef struct mtp_case {
    json_t *root;
    doc_tokens tokens;
    skv_source *source, *head;
    skv_net *net;
} mtp_case;

static bool is_trained(void *user, const skv_param *p)
{
    (void)user;
    return p->role != SKV_ROLE_OUTSIDE || p->vector;
}

static mtp_case open_case(bool kl, size_t threads, bool bf16)
{
    mtp_case c = {.root = json_load_file(TRAIN ".json", 0, NULL)};
    skv_error err;
    assert_non_null(c.root);
    c.tokens = read_docs(c.root);
    if (skv_source_open(MODEL, &c.source, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_source_open_mtp(MODEL, &c.head, &err) != SKV_OK) fail_msg("%s", err.text);
    const skv_net_options options = {.threads = threads,
                                     .max_tokens = TOKENS_MAX,
                                     .bf16 = bf16,
                                     .loss = kl ? SKV_LOSS_KL : SKV_LOSS_LM,
                                     .tau = 2,
                                     .trainable = is_trained,
                                     .mtp = {skv_source_config(c.source), c.source, false}};
    if (skv_net_create(skv_source_config(c.head), c.head, &options, &c.net, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return c;
}

static void close_case(mtp_case *c)
{
    skv_net_free(c->net);
    skv_source_close(c->head);
    skv_source_close(c->source);
    json_decref(c->root);
}

static double run_case(const mtp_case *c)
{
    const skv_train_batch batch = batch_of(&c->tokens);
    const skv_net_scale scale = {(double)skv_net_count(c->net, &batch), 1, (double)c->tokens.n};
    skv_net_sums sums;
    skv_error err;
    skv_net_zero_gradients(c->net);
    if (skv_net_run(c->net, &batch, &scale, true, &sums, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true((double)sums.n_loss == scale.positions); /* counted alike */
    return sums.loss / scale.positions;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int kl = 0; kl < 2; kl++) {
        mtp_case c = open_case(kl, 2, false);
        const char *path = kl ? TRAIN "-kl.safetensors" : TRAIN "-lm.safetensors";
        const double want = json_number_value(json_object_get(c.root, kl ? "kl" : "lm"));
        const double loss = run_case(&c);
        if (!(fabs(loss - want) <= 1e-5 * want)) fail_msg("loss %.9g, expected %.9g", loss, want);
        skv_safetensors *file;
        size_t n_seen = 0;
        assert_int_equal(skv_safetensors_open(path, &file, NULL), SKV_OK);
        const skv_params *params = skv_net_params(c.net);
        for (size_t i = 0; i < params->n; i++) {
            const skv_tensor *g = skv_safetensors_find(file, params->at[i].name);
            assert_true(!g == !params->at[i].grad);
            if (!g) continue;
            assert_true(check_gradient(path, &params->at[i], g, 0) > 0);
            n_seen++;
        }
        assert_int_equal(n_seen, skv_safetensors_count(file));
        assert_int_equal(n_seen, 16); /* its layer's 12, with the gate apart, and 4 around it */
        skv_safetensors_close(file);
        close_case(&c);
    }
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        mtp_case one = open_case(true, 1, bf16), three = open_case(true, 3, bf16);
        const double want = json_number_value(json_object_get(one.root, "kl"));
        const double a = run_case(&one), b = run_case(&three);
        assert_true(a == b && fabs(a - want) <= 3e-2 * want);
        const skv_params *p = skv_net_params(one.net), *q = skv_net_params(three.net);
        assert_memory_equal(p->grads, q->grads, p->n_trainable * sizeof(float));
        close_case(&one);
        close_case(&three);
    }
}

/* ---- runs ---- */

static skv_train_options options_of(const char *model, const fixture *f, size_t i_out, record *r)
{
    skv_train_options o = short_run(SKV_TRAIN_MTP, f->ids, f->out[i_out], STEPS, r);
    o.model = model;
    return o;
}

static skv_source *open_model(const char *path, bool head)
{
    skv_source *source = NULL;
    skv_error err;
    if (!head) return open_source(path);
    if (skv_source_open_mtp(path, &source, &err) != SKV_OK) fail_msg("%s", err.text);
    return source;
}

/* The tensors of two models: how far those of one are from the other's, at most. */
static double apart(const char *a, const char *b, bool head)
{
    skv_source *x = open_model(a, head), *y = open_model(b, head);
    double most = 0;
    assert_int_equal(skv_source_count(x), skv_source_count(y));
    for (size_t i = 0; i < skv_source_count(x); i++) {
        const skv_tensor *t = skv_source_at(x, i), *other = skv_source_find(y, t->name);
        if (!other) fail_msg("%s: no tensor %s", b, t->name);
        assert_int_equal(t->type, other->type);
        const size_t n = skv_tensor_rows(t) * skv_tensor_columns(t);
        float *u = read_whole(t), *v = read_whole(other);
        assert_int_equal(skv_tensor_rows(other) * skv_tensor_columns(other), n);
        for (size_t j = 0; j < n; j++) most = fmax(most, fabs((double)u[j] - (double)v[j]));
        free(u);
        free(v);
    }
    skv_source_close(x);
    skv_source_close(y);
    return most;
}

/* A step that changes nothing writes the head that it read. */
static void test_layout(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0};
    skv_train_options o = options_of(MODEL, f, 0, &r);
    o.stages[0].steps = 1;
    o.stages[0].rate = 1e-12;
    run_ok(&o);
    assert_true(apart(MODEL, f->out[0], true) < 1e-6);
    assert_true(apart(MODEL, f->out[0], false) < 1e-6);
    char path[128];
    skv_safetensors *file;
    (void)snprintf(path, sizeof path, "%s/config.json", f->out[0]);
    json_t *config = json_load_file(path, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(config, "mtp_num_hidden_layers")), 1);
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "qwen3_5_text");
    json_decref(config);
    assert_int_equal(skv_safetensors_open_folder(f->out[0], &file, NULL), SKV_OK);
    const skv_tensor *q = skv_safetensors_find(file, "mtp.layers.0.self_attn.q_proj.weight");
    assert_true(q && q->dims[0] == 2 * 4 * 16 && q->dims[1] == 32);
    assert_non_null(skv_safetensors_find(file, "mtp.norm.weight"));
    assert_non_null(skv_safetensors_find(file, "model.layers.0.linear_attn.in_proj_qkv.weight"));
    skv_safetensors_close(file);
}

/* A model without a head gets one, and is itself what it was. */
static void test_new_head(void **state)
{
    const fixture *f = *state;
    record whole = {.stop_at = 0}, parts = {.stop_at = 3};
    skv_error err;
    skv_train_options o = options_of(MODELS "qwen3-5", f, 1, &whole);
    o.stages[0].steps = 40;
    o.stages[0].rate = 1e-2;
    run_ok(&o);
    assert_true(whole.loss[39] < 0.7 * whole.loss[0]);
    skv_source *before = open_model(MODELS "qwen3-5", false), *after = open_model(f->out[1], false);
    assert_false(skv_source_has_mtp(before));
    assert_true(skv_source_has_mtp(after));
    assert_int_equal(skv_source_count(after), skv_source_count(before) + 15);
    skv_source_close(before);
    skv_source_close(after);
    o = options_of(MODELS "qwen3-5", f, 2, &parts);
    o.stages[0].steps = 40;
    o.stages[0].rate = 1e-2;
    o.threads = 1;
    assert_int_equal(skv_train_run(&o, &err), SKV_CANCELLED);
    parts.stop_at = 0;
    o.resume = true;
    run_ok(&o);
    assert_memory_equal(whole.loss, parts.loss, 40 * sizeof *whole.loss);
    check_same_file(f->out[1], f->out[2], "model.safetensors");
}

/* transform and distill keep the head; the head of what they write can follow it. */
static void test_swiftkv(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0};
    char copied[128], follows[128];
    skv_error err;
    (void)snprintf(copied, sizeof copied, "%s/copied", f->root);
    (void)snprintf(follows, sizeof follows, "%s/follows", f->root);
    if (skv_transform(MODEL, copied, 2, 1, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true(apart(MODEL, copied, true) <= 0);
    skv_train_options o = skv_train_options_default(SKV_TRAIN_DISTILL);
    const skv_train_options of_head = options_of(copied, f, 3, &r);
    o.model = MODEL;
    o.out = f->out[3];
    o.kv_layers = 2;
    o.stages[0] = of_head.stages[0];
    o.on_step = note;
    o.user = &r;
    run_ok(&o);
    assert_true(apart(MODEL, f->out[3], true) <= 0);
    o = options_of(f->out[3], f, 0, &r);
    o.out = follows;
    o.stages[0].steps = 30;
    o.stages[0].rate = 1e-2;
    run_ok(&o);
    assert_true(r.loss[29] < 0.8 * r.loss[0]);
    skv_source *source = open_model(follows, false);
    assert_true(skv_source_config(source)->swiftkv && skv_source_has_mtp(source));
    skv_source_close(source);
    skv_engine *engine;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.context = 64;
    options.speculation = (skv_speculation){SKV_DRAFT_MTP, 3, 0};
    if (skv_engine_open(follows, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine_close(engine);
}

static void test_plan_is_what_a_run_takes(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0};
    for (int i = 0; i < 2; i++) {
        skv_trainer t;
        skv_error err;
        skv_train_cost plan, real;
        skv_train_options o = options_of(i ? MODEL : MODELS "qwen3-5-swiftkv", f, 0, &r);
        o.f32 = i;
        if (skv_train_plan(&o, &plan, &err) != SKV_OK) fail_msg("%s", err.text);
        if (skv_trainer_open(&t, &o, &err) != SKV_OK) fail_msg("%s", err.text);
        skv_trainer_count(&t, &real);
        assert_memory_equal(&plan, &real, sizeof plan);
        assert_true(plan.parameters > 2 * plan.trainable && plan.step_flops > 0);
        skv_trainer_close(&t);
    }
}

static void test_refusals(void **state)
{
    const fixture *f = *state;
    static const struct {
        const char *model, *why;
    } cases[] = {{"llama3-v5", "no MTP head is read of such models"},
                 {"qwen3-5-moe", "experts beside layers that keep a state"},
                 {"qwen3-5-int4", "quantised weights"},
                 {"qwen3-5-gguf/model.gguf", "GGUF file"},
                 {"qwen3-5", "early-exit is not supported with this task"}};
    record r = {.stop_at = 0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[256];
        skv_error err;
        skv_train_cost cost;
        skv_train_options o = options_of(path, f, 0, &r);
        (void)snprintf(path, sizeof path, MODELS "%s", cases[i].model);
        o.early_exit = strncmp(cases[i].why, "early-exit", 10) == 0;
        assert_int_equal(skv_train_plan(&o, &cost, &err), SKV_UNSUPPORTED);
        if (!strstr(err.text, cases[i].why)) fail_msg("%s: %s", cases[i].model, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_layout),    cmocka_unit_test(test_new_head),
        cmocka_unit_test(test_swiftkv),   cmocka_unit_test(test_plan_is_what_a_run_takes),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, start, finish);
}
