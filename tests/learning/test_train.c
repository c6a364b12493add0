/*
 * The trainer against torch (tools/oracle/make_train_goldens.py): every gradient within 1e-4
 * relative in f32, losses, packed documents, masked positions, SwiftKV students with their teacher.
 * Results do not depend on the number of threads.
 * Labels: threads
 */
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
#include "torch_case.h"
#include "train/optim.h"

typedef struct train_case {
    json_t *json;
    const char *model, *train, *file;
    bool kl, all, exit;
    double hidden_mult, loss, hidden, exit_loss, balance, balance_loss;
    doc_tokens tokens;
} train_case;

static json_t *root;

static int load_cases(void **state)
{
    (void)state;
    root = json_load_file(SKV_TEST_DATA "/train/cases.json", 0, NULL);
    return root ? 0 : -1;
}

static int free_cases(void **state)
{
    (void)state;
    json_decref(root);
    return 0;
}

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static train_case read_case(size_t i)
{
    json_t *o = json_array_get(root, i);
    train_case c = {.json = o,
                    .model = text_of(o, "model"),
                    .train = text_of(o, "train"),
                    .file = text_of(o, "file"),
                    .kl = strcmp(text_of(o, "loss_kind"), "kl") == 0,
                    .all = json_is_true(json_object_get(o, "all")),
                    .exit = json_object_get(o, "exit"),
                    .exit_loss = json_number_value(json_object_get(o, "exit")),
                    .balance = json_number_value(json_object_get(o, "balance")),
                    .balance_loss = json_number_value(json_object_get(o, "balance_loss")),
                    .hidden_mult = json_number_value(json_object_get(o, "hidden_mult")),
                    .loss = json_number_value(json_object_get(o, "loss")),
                    .hidden = json_number_value(json_object_get(o, "hidden")),
                    .tokens = read_docs(o)};
    if (c.hidden_mult <= 0) c.hidden = 0; /* not computed then */
    return c;
}

static bool is_trained(void *user, const skv_param *p)
{
    const char *train = user, *name = p->name;
    if (strcmp(train, "all") == 0) return true;
    if (strcmp(train, "swiftkv") == 0) return strstr(name, "_swiftkv");
    if (strncmp(name, "model.layers.", 13) != 0) return false;
    return strtol(name + 13, NULL, 10) >= strtol(train + 5, NULL, 10);
}

typedef struct opened {
    skv_source *source;
    skv_config *config; /* the source's, perhaps with an exit head; layers are borrowed */
    skv_net *net;
} opened;

static opened open_case(const train_case *c, size_t threads, bool bf16)
{
    opened o = {0};
    skv_error err;
    char path[512];
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/models/%s", c->model);
    if (skv_source_open(path, &o.source, &err) != SKV_OK) fail_msg("%s", err.text);
    o.config = malloc(sizeof *o.config);
    *o.config = *skv_source_config(o.source);
    if (c->exit) o.config->early_exit = true;
    skv_net_options options = {.threads = threads,
                               .max_tokens = TOKENS_MAX,
                               .bf16 = bf16,
                               .student = o.config->swiftkv,
                               .early_exit = c->exit,
                               .loss = c->kl ? SKV_LOSS_KL : SKV_LOSS_LM,
                               .tau = 2,
                               .hidden_mult = c->hidden_mult,
                               .router_loss = c->balance,
                               .all_positions = c->all,
                               .trainable = is_trained,
                               .user = (void *)(uintptr_t)c->train};
    if (skv_net_create(o.config, o.source, &options, &o.net, &err) != SKV_OK) {
        fail_msg("%s: %s", c->file, err.text);
    }
    return o;
}

static void close_case(opened *o)
{
    skv_net_free(o->net);
    free(o->config);
    skv_source_close(o->source);
}

static skv_net_scale scale_of(const train_case *c, skv_net *net, const skv_train_batch *batch)
{
    /* The tiny models all have 32 columns. */
    const double n = (double)c->tokens.n;
    return (skv_net_scale){(double)skv_net_count(net, batch), 32.0 * n, n};
}

static skv_net_sums run_case(const train_case *c, skv_net *net)
{
    skv_train_batch batch = batch_of(&c->tokens);
    skv_net_scale scale = scale_of(c, net, &batch);
    skv_net_sums sums;
    skv_error err;
    if (skv_net_run(net, &batch, &scale, true, &sums, &err) != SKV_OK) fail_msg("%s", err.text);
    sums.loss /= scale.positions;
    sums.hidden /= scale.hidden;
    sums.exit /= scale.positions;
    sums.balance /= scale.tokens;
    return sums;
}

static void check_gradients(const train_case *c, skv_net *net)
{
    char path[512];
    skv_safetensors *file;
    skv_error err;
    size_t n_seen = 0;
    (void)snprintf(path, sizeof path, SKV_TEST_DATA "/train/%s", c->file);
    if (skv_safetensors_open(path, &file, &err) != SKV_OK) fail_msg("%s", err.text);
    const skv_params *params = skv_net_params(net);
    for (size_t i = 0; i < params->n; i++) {
        const skv_param *p = &params->at[i];
        const skv_tensor *want = skv_safetensors_find(file, p->name);
        if (!p->grad) assert_null(want);
        if (!want) continue;
        (void)check_gradient(c->file, p, want, 1e-9);
        n_seen++;
    }
    assert_int_equal(n_seen, skv_safetensors_count(file));
    skv_safetensors_close(file);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(root); i++) {
        train_case c = read_case(i);
        opened o = open_case(&c, 2, false);
        skv_net_sums sums = run_case(&c, o.net);
        if (!(fabs(sums.loss - c.loss) <= 1e-5 * fabs(c.loss)) ||
            !(fabs(sums.hidden - c.hidden) <= 1e-5 * (1e-3 + fabs(c.hidden))) ||
            !(fabs(sums.exit - c.exit_loss) <= 1e-5 * fabs(c.exit_loss))) {
            fail_msg("%s: loss %.9g hidden %.9g exit %.9g, expected %.9g %.9g %.9g", c.file,
                     sums.loss, sums.hidden, sums.exit, c.loss, c.hidden, c.exit_loss);
        }
        if (!(fabs(sums.balance - c.balance_loss) <= 1e-5 * c.balance_loss)) {
            fail_msg("%s: balance %.9g, expected %.9g", c.file, sums.balance, c.balance_loss);
        }
        check_gradients(&c, o.net);
        close_case(&o);
    }
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (size_t i = 0; i < json_array_size(root); i++) {
            train_case c = read_case(i);
            opened one = open_case(&c, 1, bf16), three = open_case(&c, 3, bf16);
            skv_net_sums a = run_case(&c, one.net), b = run_case(&c, three.net);
            assert_true(a.loss == b.loss && a.hidden == b.hidden && a.exit == b.exit &&
                        a.balance == b.balance);
            assert_memory_equal(a.exit_agreed, b.exit_agreed, sizeof a.exit_agreed);
            const skv_params *p = skv_net_params(one.net), *q = skv_net_params(three.net);
            assert_memory_equal(p->grads, q->grads, p->n_trainable * sizeof(float));
            close_case(&one);
            close_case(&three);
        }
    }
}

static void test_bf16_is_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(root); i++) {
        train_case c = read_case(i);
        opened o = open_case(&c, 2, true);
        skv_net_sums sums = run_case(&c, o.net);
        if (!(fabs(sums.loss - c.loss) <= 3e-2 * fabs(c.loss))) {
            fail_msg("%s: loss %g in bf16, %g in f32", c.file, sums.loss, c.loss);
        }
        close_case(&o);
    }
}

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* torch's own AdamW, clipping and schedule: the same ten losses and norms. */
static void check_steps(const train_case *c, const json_t *steps)
{
    const skv_adamw_options options = {.beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .decay_vectors = true,
                                       .max_norm = 0.5};
    const skv_schedule schedule = {SKV_SCHEDULE_LINEAR, 3e-3, 0, 2, json_array_size(steps)};
    opened o = open_case(c, 2, false);
    skv_adamw opt;
    skv_error err;
    assert_int_equal(
        skv_adamw_init(&opt, &options, skv_net_params(o.net), skv_net_pool(o.net), &err), SKV_OK);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *want = json_array_get(steps, i);
        skv_net_zero_gradients(o.net);
        skv_net_sums sums = run_case(c, o.net);
        double norm = skv_adamw_norm(&opt), loss = number_of(want, "loss");
        double hidden = c->hidden_mult > 0 ? number_of(want, "hidden") : 0.0;
        double exits = number_of(want, "exit"); /* 0 without one */
        if (!(fabs(sums.loss - loss) <= 1e-5 * loss) ||
            !(fabs(sums.exit - exits) <= 1e-5 * exits) ||
            !(fabs(sums.hidden - hidden) <= 1e-5 * hidden) ||
            !(fabs(norm - number_of(want, "norm")) <= 1e-4 * norm)) {
            fail_msg("%s, step %zu: loss %.9g hidden %.9g norm %.9g, expected %.9g %.9g %.9g",
                     c->file, i, sums.loss, sums.hidden, norm, loss, hidden,
                     number_of(want, "norm"));
        }
        skv_adamw_step(&opt, skv_schedule_rate(&schedule, i), norm);
    }
    skv_adamw_release(&opt);
    close_case(&o);
}

static void test_ten_steps(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(root); i++) {
        train_case c = read_case(i);
        const json_t *steps = json_object_get(c.json, "steps");
        if (!steps) continue;
        check_steps(&c, steps);
        n++;
    }
    assert_int_equal(n, 8);
}

static void test_schedules(void **state)
{
    (void)state;
    skv_schedule s = {SKV_SCHEDULE_COSINE, 2.0, 0.1, 4, 104};
    assert_true(fabs(skv_schedule_rate(&s, 0) - 0.5) < 1e-12);
    assert_true(fabs(skv_schedule_rate(&s, 3) - 2.0) < 1e-12);
    assert_true(fabs(skv_schedule_rate(&s, 54) - 1.1) < 1e-12);
    assert_true(fabs(skv_schedule_rate(&s, 104) - 0.2) < 1e-12);
    s.kind = SKV_SCHEDULE_LINEAR;
    assert_true(fabs(skv_schedule_rate(&s, 29) - (0.2 + 1.8 * 0.75)) < 1e-12);
    s.kind = SKV_SCHEDULE_CONSTANT;
    assert_true(fabs(skv_schedule_rate(&s, 1000) - 2.0) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_bf16_is_near), cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, load_cases, free_cases);
}
