/*
 * Whole training runs on the tiny models: a run that is stopped and resumed takes the same steps
 * and writes the same bytes as one that is not; what it writes opens as a SwiftKV model whose
 * frozen weights are untouched; a loss that is not finite stops it; training from scratch learns.
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

#include "base/file.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "skv/skv.h"
#include "skv/train.h"
#include "train/trainer.h"
#include "train_run.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { STEPS = 9 };

static skv_train_options distill(const fixture *f, const char *out, record *r)
{
    skv_train_options o = short_run(SKV_TRAIN_DISTILL, f->ids, out, STEPS, r);
    o.model = MODELS "llama-mha";
    o.kv_layers = 2;
    o.group = 2;
    o.stages[0].accumulate = 2;
    o.hidden_mult = 0.5;
    return o;
}

/* Six steps, and the rest in longer sequences at another rate. */
static void split(skv_train_options *o)
{
    o->n_stages = 2;
    o->stages[1] = o->stages[0];
    o->stages[0].steps = 6;
    o->stages[1].steps = STEPS - 6;
    o->stages[1].seq = 48;
    o->stages[1].rate = 1e-3;
}

/* Stopped within a stage, at the end of one and in the next: the steps are those of a whole run. */
static void test_resume_is_exact(void **state)
{
    const fixture *f = *state;
    static const uint64_t stops[] = {4, 6, 8};
    record whole = {.stop_at = 0}, parts = {.stop_at = 0};
    skv_error err;
    skv_train_options o = distill(f, f->out[0], &whole);
    split(&o);
    run_ok(&o);
    assert_true(whole.loss[STEPS - 1] < whole.loss[0]);
    o = distill(f, f->out[1], &parts);
    split(&o);
    for (size_t i = 0; i < 3; i++) {
        parts.stop_at = stops[i];
        o.threads = 1 + i % 2;
        o.resume = i > 0;
        assert_int_equal(skv_train_run(&o, &err), SKV_CANCELLED);
    }
    parts.stop_at = 0;
    run_ok(&o);
    for (int i = 0; i < STEPS; i++) {
        assert_true(whole.loss[i] == parts.loss[i] && whole.norm[i] == parts.norm[i]);
    }
    check_same_file(f->out[0], f->out[1], "model.safetensors");
    check_same_file(f->out[0], f->out[1], "config.json");
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT); /* it holds a model now */
}

static void test_resume_wants_the_same_run(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 2};
    skv_error err;
    skv_train_options o = distill(f, f->out[2], &r);
    assert_int_equal(skv_train_run(&o, &err), SKV_CANCELLED);
    o.resume = true;
    o.stages[0].seq = 16;
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "seq 32, not 16"));
    o.stages[0].seq = 32;
    o.stages[0].rate *= 2;
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "lr 0.002, not 0.004"));
    o.stages[0].rate /= 2;
    o.stages[0].data[0].weight = 2;
    o.tau = 1;
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "tau"));
}

/* What cannot be done leaves no folder behind. */
static void test_nothing_to_do(void **state)
{
    const fixture *f = *state;
    char out[96];
    record r = {.stop_at = 0};
    skv_error err;
    (void)snprintf(out, sizeof out, "%s/nothing", f->root);
    skv_train_options o = distill(f, out, &r);
    o.resume = true;
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "no checkpoint to continue from"));
    o.resume = false;
    o.kv_layers = 4;
    assert_int_equal(skv_train_run(&o, &err), SKV_RANGE);
    assert_non_null(strstr(err.text, "kv-layers 4, expected 1 to 3"));
    o.kv_layers = 0;
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "no kv-layers"));
    assert_false(skv_file_is_folder(out));
}

static void test_output(void **state)
{
    const fixture *f = *state;
    skv_source *before, *after;
    skv_error err;
    size_t n_new = 0;
    assert_int_equal(skv_source_open(MODELS "llama-mha", &before, &err), SKV_OK);
    if (skv_source_open(f->out[0], &after, &err) != SKV_OK) fail_msg("%s", err.text);
    const skv_config *c = skv_source_config(after);
    assert_true(c->swiftkv && c->kv_layers == 2 && c->kv_group == 2);
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
    }
    assert_int_equal(n_new, 1 + 2 + 2); /* the norm, two q, one k and one v */
    skv_source_close(before);
    skv_source_close(after);
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine;
    options.threads = 1;
    options.context = 64;
    if (skv_engine_open(f->out[0], &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine_close(engine);
}

static void test_drop_teacher(void **state)
{
    const fixture *f = *state;
    char out[96];
    record r = {.stop_at = 0};
    skv_error err;
    (void)snprintf(out, sizeof out, "%s/dropped", f->root);
    skv_train_options o = distill(f, out, &r);
    o.stages[0].steps = 1;
    o.drop_teacher = true;
    run_ok(&o);
    skv_source *s;
    if (skv_source_open(out, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_null(skv_source_find(s, "model.layers.2.self_attn.q_proj.weight"));
    assert_non_null(skv_source_find(s, "model.layers.1.self_attn.q_proj.weight"));
    skv_source_close(s);
    /* Without its teacher it cannot be distilled further, but it can be tuned. */
    char tuned[96];
    (void)snprintf(tuned, sizeof tuned, "%s/tuned", f->root);
    o.model = out;
    o.out = tuned;
    assert_int_equal(skv_train_run(&o, &err), SKV_FORMAT);
    o.task = SKV_TRAIN_FINETUNE;
    o.loss = SKV_TRAIN_LM;
    run_ok(&o);
}

static size_t count_own(const char *folder)
{
    char *own = skv_path_join(folder, "model.safetensors");
    skv_safetensors *file;
    skv_error err;
    assert_int_equal(skv_safetensors_open(own, &file, &err), SKV_OK);
    const size_t n = skv_safetensors_count(file);
    skv_safetensors_close(file);
    skv_free(own);
    return n;
}

/* A difference that gets an exit head is one from the same base, and nothing else of it changes. */
static void expect_exit_of_delta(const fixture *f, const char *from)
{
    char out[96];
    record r = {.stop_at = 0};
    skv_source *before, *after;
    (void)snprintf(out, sizeof out, "%s/delta-exit", f->root);
    skv_train_options o = distill(f, out, &r);
    o.model = from;
    o.stages[0].steps = 2;
    o.delta = o.early_exit = true;
    o.part = SKV_TRAIN_EXIT;
    run_ok(&o);
    assert_int_equal(count_own(out), count_own(from) + 1);
    assert_int_equal(skv_source_open(from, &before, NULL), SKV_OK);
    assert_int_equal(skv_source_open(out, &after, NULL), SKV_OK);
    assert_true(skv_source_config(after)->early_exit);
    for (size_t i = 0; i < skv_source_count(before); i++) {
        const skv_tensor *t = skv_source_at(before, i), *other = skv_source_find(after, t->name);
        assert_non_null(other);
        float *a = read_whole(t), *b = read_whole(other);
        assert_memory_equal(a, b, skv_tensor_rows(t) * skv_tensor_columns(t) * sizeof *a);
        free(a);
        free(b);
    }
    skv_source_close(before);
    skv_source_close(after);
}

/* The same run written whole and as a difference gives models with the same weights. */
static void test_delta(void **state)
{
    const fixture *f = *state;
    char base[96], out[2][96];
    record r = {.stop_at = 0};
    skv_error err;
    skv_source *whole, *part;
    (void)snprintf(base, sizeof base, "%s/base", f->root);
    skv_train_options o = distill(f, base, &r);
    o.task = SKV_TRAIN_FINETUNE; /* makes a model in a folder of its own */
    o.loss = SKV_TRAIN_LM;
    o.part = SKV_TRAIN_ALL;
    o.kv_layers = o.group = 0;
    o.stages[0].steps = 1;
    run_ok(&o);
    static const char vocabulary[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    char *tokenizer = skv_path_join(base, "tokenizer.json");
    assert_int_equal(skv_file_write(tokenizer, vocabulary, sizeof vocabulary - 1, &err), SKV_OK);
    skv_free(tokenizer);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(out[i], sizeof out[i], "%s/delta-%d", f->root, i);
        o = distill(f, out[i], &r);
        o.model = base;
        o.stages[0].steps = 2;
        o.delta = i == 1;
        run_ok(&o);
        tokenizer = skv_path_join(out[i], "tokenizer.json");
        assert_int_equal(skv_file_exists(tokenizer),
                         i == 0); /* a difference leaves it with the base */
        skv_free(tokenizer);
    }
    assert_int_equal(count_own(out[1]), 1 + 2 + 2); /* the norm, two q, one k and v */
    expect_exit_of_delta(f, out[1]);
    assert_int_equal(skv_source_open(out[0], &whole, &err), SKV_OK);
    if (skv_source_open(out[1], &part, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_source_count(whole), skv_source_count(part));
    for (size_t i = 0; i < skv_source_count(whole); i++) {
        const skv_tensor *t = skv_source_at(whole, i), *other = skv_source_find(part, t->name);
        assert_non_null(other);
        float *a = read_whole(t), *b = read_whole(other);
        assert_memory_equal(a, b, skv_tensor_rows(t) * skv_tensor_columns(t) * sizeof *a);
        free(a);
        free(b);
    }
    skv_source_close(whole);
    skv_source_close(part);
    o.model = MODELS "llama-mha"; /* not beside */
    (void)snprintf(out[0], sizeof out[0], "%s/delta-2", f->root);
    o.out = out[0];
    assert_int_equal(skv_train_run(&o, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "must be in the same folder"));
}

static skv_source *open_model(const char *path)
{
    skv_engine *engine;
    skv_error err;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.context = 64;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine_close(engine);
    return open_source(path);
}

/* Elements that two models' tensors of one name differ in; a tensor that one has not: SIZE_MAX. */
static size_t differences(const skv_source *a, const skv_source *b, const char *name)
{
    const skv_tensor *ta = skv_source_find(a, name), *tb = skv_source_find(b, name);
    if (!ta || !tb) return SIZE_MAX;
    float *x = read_whole(ta), *y = read_whole(tb);
    size_t n = 0;
    for (size_t i = 0; i < skv_tensor_rows(ta) * skv_tensor_columns(ta); i++) n += x[i] != y[i];
    free(x);
    free(y);
    return n;
}

/* The exit head is in checkpoints and in the result; who does not want it need not mind it. */
static void test_early_exit(void **state)
{
    const fixture *f = *state;
    const char *head = "lm_head_swiftkv.weight";
    char out[3][96];
    record whole = {.stop_at = 0}, parts = {.stop_at = 4};
    skv_error err;
    for (int i = 0; i < 3; i++) (void)snprintf(out[i], sizeof out[i], "%s/exit-%d", f->root, i);
    skv_train_options o = distill(f, out[0], &whole);
    o.early_exit = true;
    run_ok(&o);
    o.out = out[1];
    o.user = &parts;
    assert_int_equal(skv_train_run(&o, &err), SKV_CANCELLED);
    parts.stop_at = 0;
    o.resume = true;
    run_ok(&o);
    check_same_file(out[0], out[1], "model.safetensors");
    o = distill(f, out[2], &parts);
    o.model = out[0];
    o.kv_layers = o.group = 0;
    o.part = SKV_TRAIN_DEEP;
    o.loss = SKV_TRAIN_LM;
    run_ok(&o);
    skv_source *first = open_model(out[0]), *second = open_model(out[2]);
    assert_true(skv_source_config(first)->early_exit && skv_source_config(second)->early_exit);
    assert_true(differences(first, first, head) == 0);
    assert_true(differences(first, second, head) == 0);
    assert_in_range(differences(first, second, "model.layers.2.mlp.up_proj.weight"), 1, 1 << 20);
    assert_in_range(differences(first, second, "model.norm_swiftkv.weight"), 1, 1 << 20);
    assert_true(differences(first, second, "model.layers.1.mlp.up_proj.weight") == 0);
    assert_true(differences(first, second, "model.layers.2.self_attn.q_proj.weight") == 0);
    skv_source_close(first);
    skv_source_close(second);
}

static bool note_exit(void *user, const skv_train_progress *p)
{
    record *r = user;
    r->loss[p->step - 1] = p->exit;
    r->norm[p->step - 1] = 0;
    for (size_t i = 0; i < SKV_TRAIN_EXIT_BINS; i++) {
        assert_true(p->exit_agreed[i] <= p->exit_seen[i]);
        r->norm[p->step - 1] += p->exit_seen[i];
    }
    return true;
}

/* Each loss and each set of trained weights runs to its end and gets better, the exit too. */
static void test_ablations(void **state)
{
    const fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        char out[96];
        record r = {.stop_at = 0};
        (void)snprintf(out, sizeof out, "%s/ablation-%d", f->root, i);
        skv_train_options o = distill(f, out, &r);
        o.loss = i % 2 ? SKV_TRAIN_LM : SKV_TRAIN_KL;
        o.part = i / 2 % 2 ? SKV_TRAIN_DEEP : SKV_TRAIN_QKV;
        o.early_exit = i >= 4;
        if (o.early_exit) o.on_step = note_exit;
        o.stages[0].steps = 40;
        o.stages[0].rate = 5e-3;
        o.stages[0].fuse = 0.5;
        o.held_out = 0;
        run_ok(&o);
        assert_true(r.loss[39] < 0.9 * r.loss[0]);
        if (o.early_exit) assert_in_range((size_t)r.norm[0], 6, 10); /* of 124, one in 16 */
        skv_source_close(open_model(out));
    }
}

static void test_not_finite(void **state)
{
    const fixture *f = *state;
    char out[96];
    record r = {.stop_at = 0};
    skv_error err;
    (void)snprintf(out, sizeof out, "%s/broken", f->root);
    skv_train_options o = distill(f, out, &r);
    o.stages[0].rate = 1e38;
    o.max_norm = 0;
    o.f32 = true;
    o.stages[0].steps = 60;
    o.stages[0].warmup_share = 0;
    assert_int_equal(skv_train_run(&o, &err), SKV_RANGE);
    assert_non_null(strstr(err.text, "step "));
    assert_non_null(strstr(err.text, "batch "));
    assert_non_null(strstr(err.text, "last good checkpoint"));
}

static void test_from_scratch(void **state)
{
    const fixture *f = *state;
    char out[96];
    record r = {.stop_at = 0};
    (void)snprintf(out, sizeof out, "%s/scratch", f->root);
    skv_train_options o = distill(f, out, &r);
    o.task = SKV_TRAIN_SCRATCH;
    o.loss = SKV_TRAIN_LM;
    o.part = SKV_TRAIN_ALL;
    o.kv_layers = o.group = 0;
    o.stages[0].steps = 60;
    o.stages[0].rate = 1e-2;
    run_ok(&o);
    /* A guess among 101, with scores of deviation 1: half a nat above the even one. */
    assert_true(fabs(r.loss[0] - (log(101) + 0.5)) < 0.2);
    assert_true(r.loss[59] < 0.6 * r.loss[0]);
}

static void test_plan(void **state)
{
    const fixture *f = *state;
    record r = {.stop_at = 0};
    skv_error err;
    skv_train_cost cost;
    skv_train_options o = distill(f, f->out[0], &r);
    assert_int_equal(skv_train_plan(&o, &cost, &err), SKV_OK);
    assert_int_equal(cost.trainable, 32 + 4 * 32 * 32);
    assert_int_equal(cost.tokens, 128);
    assert_true(cost.step_flops > 1e6);
}

/* A plan says what a run then takes, and is made without it. */
static void check_plan(const skv_train_options *o)
{
    skv_trainer t;
    skv_error err;
    skv_train_cost plan, real;
    if (skv_train_plan(o, &plan, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_trainer_open(&t, o, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_trainer_count(&t, &real);
    assert_memory_equal(&plan, &real, sizeof plan);
    assert_non_null(t.opt.m);
    skv_trainer_close(&t);
    if (skv_trainer_plan(&t, o, &err) != SKV_OK) fail_msg("%s", err.text);
    const skv_params *params = skv_net_params(t.net);
    assert_true(!params->weights && !params->grads && !params->copies && !t.opt.m);
    skv_trainer_close(&t);
}

static void test_plan_is_what_a_run_takes(void **state)
{
    const fixture *f = *state;
    static const skv_train_part parts[] = {SKV_TRAIN_QKV, SKV_TRAIN_DEEP, SKV_TRAIN_ALL};
    record r = {.stop_at = 0};
    for (size_t i = 0; i < 12; i++) {
        skv_train_options o = distill(f, f->out[0], &r);
        o.part = parts[i % 3];
        o.f32 = i / 3 % 2;
        o.loss = i / 6 ? SKV_TRAIN_LM : SKV_TRAIN_KL;
        if (i % 2) o.model = MODELS "qwen3-swiftkv-g1";
        if (i % 2) o.kv_layers = o.group = 0;
        split(&o);
        check_plan(&o);
        o.task = SKV_TRAIN_SCRATCH;
        if (i % 2 == 0 && o.part == SKV_TRAIN_ALL && o.loss == SKV_TRAIN_LM) check_plan(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume_is_exact),
                                       cmocka_unit_test(test_resume_wants_the_same_run),
                                       cmocka_unit_test(test_nothing_to_do),
                                       cmocka_unit_test(test_output),
                                       cmocka_unit_test(test_drop_teacher),
                                       cmocka_unit_test(test_delta),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_early_exit),
                                       cmocka_unit_test(test_ablations),
                                       cmocka_unit_test(test_from_scratch),
                                       cmocka_unit_test(test_plan),
                                       cmocka_unit_test(test_plan_is_what_a_run_takes)};
    return cmocka_run_group_tests(tests, start, finish);
}
