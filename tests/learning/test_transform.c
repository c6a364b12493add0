/*
 * The SwiftKV transform: the published layout, tensor by tensor as the oracle initialises it
 * (tools/oracle), for every architecture a file that opens and runs, and refusals.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/safetensors.h"
#include "format/source.h"
#include "golden.h"
#include "skv/tools.h"
#include "temp_folder.h"

static golden *all;
static size_t n_all;
static char folder[] = "/tmp/skv-transform-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    all = golden_load_all(&n_all);
    return n_all == 0 || !mkdtemp(folder);
}

static int tear_down(void **state)
{
    (void)state;
    golden_free_all(all, n_all);
    return rmdir(folder);
}

static void expect_same(const skv_tensor *got, const skv_tensor *want)
{
    size_t n = skv_tensor_rows(want), columns = skv_tensor_columns(want);
    assert_int_equal(got->type, want->type);
    assert_int_equal(got->n_dims, want->n_dims);
    assert_memory_equal(got->dims, want->dims, got->n_dims * sizeof *got->dims);
    float *a = calloc(n * columns, sizeof *a), *b = calloc(n * columns, sizeof *b);
    skv_tensor_read_rows(got, 0, n, a);
    skv_tensor_read_rows(want, 0, n, b);
    for (size_t i = 0; i < n * columns; i++) {
        if (fabsf(a[i] - b[i]) > 1e-6f * fabsf(b[i])) {
            fail_msg("%s[%zu] %g, expected %g", want->name, i, (double)a[i], (double)b[i]);
        }
    }
    free(a);
    free(b);
}

/* Every key of the golden's "config" stands in the written config.json. */
static void expect_config(const char *out, const char *golden_path)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/config.json", out);
    json_t *got = json_load_file(path, 0, NULL),
           *golden_json = json_load_file(golden_path, 0, NULL);
    assert_non_null(got);
    assert_non_null(golden_json);
    json_t *want = json_object_get(golden_json, "config");
    assert_true(json_object_size(want) > 0);
    const char *key;
    json_t *value;
    json_object_foreach(want, key, value)
    {
        if (!json_equal(json_object_get(got, key), value)) fail_msg("config.json: %s", key);
    }
    json_decref(got);
    json_decref(golden_json);
}

/* `name` in SwiftKV form, against what the oracle has made of it. */
static void check_oracle(const char *name, size_t l, size_t g)
{
    char out[600], model[512], added[600], wanted[600];
    skv_error err;
    (void)snprintf(model, sizeof model, SKV_TEST_DATA "/models/%s", name);
    (void)snprintf(added, sizeof added, "%s/transform-l%zu-g%zu/added.safetensors", model, l, g);
    (void)snprintf(wanted, sizeof wanted, "%s/transform-l%zu-g%zu/golden.json", model, l, g);
    (void)snprintf(out, sizeof out, "%s/oracle", folder);
    if (skv_transform(model, out, l, g, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_source *before, *after;
    skv_safetensors *want;
    assert_int_equal(skv_source_open(model, &before, &err), SKV_OK);
    if (skv_source_open(out, &after, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_safetensors_open(added, &want, &err), SKV_OK);
    for (size_t i = 0; i < skv_safetensors_count(want); i++) {
        const skv_tensor *tensor = skv_safetensors_at(want, i);
        const skv_tensor *got = skv_source_find(after, tensor->name);
        if (!got) fail_msg("%s is missing", tensor->name);
        expect_same(got, tensor);
    }
    for (size_t i = 0; i < skv_source_count(before); i++) {
        const skv_tensor *tensor = skv_source_at(before, i);
        expect_same(skv_source_find(after, tensor->name), tensor);
    }
    assert_int_equal(skv_source_count(after),
                     skv_source_count(before) + skv_safetensors_count(want));
    expect_config(out, wanted);
    skv_safetensors_close(want);
    skv_source_close(before);
    skv_source_close(after);
    (void)temp_folder_remove(out);
}

static void test_against_the_oracle(void **state)
{
    (void)state;
    check_oracle("llama3-v5", 2, 2);
    check_oracle("qwen3-moe-v5", 2, 2);
    check_oracle("smollm3", 2, 1);
    check_oracle("ministral3", 2, 1);
    check_oracle("granite", 2, 2);
    check_oracle("qwen3-5", 3, 1);
    check_oracle("granite-h", 1, 1);
}

/* Log-probability of the case's last token, through the given form of the model. */
static double last_logprob(const char *path, skv_prefill prefill, skv_weights weights,
                           const golden_case *c)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = weights;
    options.prefill = prefill;
    options.context = 64;
    skv_engine *engine;
    skv_error err;
    double logprobs[128];
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_score(engine, c->ids, c->n, logprobs, NULL, &err), SKV_OK);
    skv_engine_close(engine);
    return logprobs[c->n - 1];
}

/* A model that keeps its own keys and values in l layers, as student and as teacher. */
static void expect_unchanged(const golden *model, size_t l)
{
    const golden_case *c = &model->cases[1];
    char out[800];
    skv_error err;
    (void)snprintf(out, sizeof out, "%s/%s", folder, model->name);
    if (skv_transform(model->path, out, l, 1, &err) != SKV_OK) {
        fail_msg("%s: %s", model->name, err.text);
    }
    skv_model_info info;
    assert_int_equal(skv_model_info_read(model->path, &info, &err), SKV_OK);
    /* Quantised matrices are written as bf16, so these models are compared as such. */
    const bool coded = strstr(model->name, "gguf") || info.codes[0];
    const skv_weights weights = coded ? SKV_WEIGHTS_BF16 : SKV_WEIGHTS_F32;
    const double tolerance = coded ? 3e-2 : 1e-3; /* F32 of GGUF files becomes bf16 too */
    const double want =
        coded ? last_logprob(model->path, SKV_PREFILL_FULL, weights, c) : c->own.logprobs[c->n - 1];
    const double student = last_logprob(out, SKV_PREFILL_SWIFTKV, weights, c);
    const double teacher = last_logprob(out, SKV_PREFILL_TEACHER, weights, c);
    if (fabs(student - want) > tolerance || fabs(teacher - want) > tolerance) {
        fail_msg("%s, l = %zu: student %.6f, teacher %.6f, expected %.6f", model->name, l, student,
                 teacher, want);
    }
    (void)temp_folder_remove(out);
}

/* Of hybrid models: those whose layers with a state are written. */
static int is_written(const char *name)
{
    const int coded = strstr(name, "gguf") || strstr(name, "lfm2") || strstr(name, "falcon");
    return !coded;
}

/* With l = L - 1 and g = 1 the one SwiftKV layer keeps its own input and its own projections, so
 * nothing is lost (a model of one layer has no such l); with l = L there is none. The teacher in
 * the file is the model it was made from. */
static void test_every_architecture(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_all; i++) {
        if (all[i].is_swiftkv || strstr(all[i].name, "-shared")) continue;
        if (strstr(all[i].name, "olmo") || strstr(all[i].name, "gemma4")) continue; /* refused */
        skv_error err;
        skv_model_info info;
        assert_int_equal(skv_model_info_read(all[i].path, &info, &err), SKV_OK);
        if (info.state_layers > 0 && !is_written(all[i].name)) continue; /* refused */
        size_t l = info.layers - 1; /* the last layer may be a block alone, which keeps nothing */
        while (l > 0 && skv_model_info_swiftkv(all[i].path, l, 1, &info, &err) != SKV_OK) l--;
        if (l > 0) expect_unchanged(&all[i], l);
        expect_unchanged(&all[i], info.layers);
    }
}

static void expect_refusal(const char *model, size_t l, size_t g, const char *text)
{
    char out[600], path[600];
    skv_error err = {0};
    (void)snprintf(out, sizeof out, "%s/refused", folder);
    (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_DATA, model);
    assert_int_not_equal(skv_transform(path, out, l, g, &err), SKV_OK);
    if (!strstr(err.text, text)) fail_msg("%s", err.text);
    assert_int_equal(access(out, F_OK), -1);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal("qwen3-shared", 2, 1, "num_kv_shared_layers 4: layers that share keys and");
    expect_refusal("gemma4-dense", 2, 1, "gemma4_text cannot take keys and values from SwiftKV");
    expect_refusal("llama3-v5", 0, 1, "num_key_value_layers 0");
    expect_refusal("llama3-v5", 99, 1, "num_key_value_layers 99");
    expect_refusal("llama3-v5", 2, 0, "key_value_group_size 0");
    expect_refusal("llama3-v5", 2, 3, "key_value_group_size 3");
    expect_refusal("llama-swiftkv-g1", 2, 1, "it is a SwiftKV model already");
    expect_refusal("no-such-model", 2, 1, "no-such-model");
    expect_refusal("openelm", 1, 3, "cannot share the keys and values");
    expect_refusal("smollm3", 2, 4, "cannot share the keys and values");
    expect_refusal("qwen3-5", 2, 2, "key_value_group_size 2: only 1 fits layers that keep a state");
    expect_refusal("qwen3-5-swiftkv", 3, 1, "it is a SwiftKV model already");
    expect_refusal("nemotron-h", 6, 1, "num_key_value_layers 6: no layer above it keeps anything");
    expect_refusal("olmo-hybrid", 3, 1, "model_type olmo_hybrid: SwiftKV needs a norm before");
    expect_refusal("olmo2", 2, 1, "model_type olmo2: SwiftKV needs a norm before attention");
    expect_refusal("olmo3", 2, 1, "model_type olmo3: SwiftKV needs a norm before attention");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_oracle),
        cmocka_unit_test(test_every_architecture),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("transform", tests, set_up, tear_down);
}
