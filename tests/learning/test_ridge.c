/*
 * The closed-form initialisation: projections against least squares on explicit rows
 * (tools/oracle/make_ridge_goldens.py), what must be copies, the same bytes for any number of
 * threads, distillation from the result, and refusals.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
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

#include "base/file.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "format/source.h"
#include "group_folder.h"
#include "skv/tools.h"
#include "skv/train.h"
#include "trained.h"

#define MODELS SKV_TEST_DATA "/models/"

static const char *write_text(char buf[256], const char *name, const char *text, size_t n)
{
    skv_error err;
    assert_int_equal(skv_file_write(group_folder_path(buf, name), text, n, &err), SKV_OK);
    return buf;
}

/* A text of ids: every id follows from the last two. */
static const char *write_ids(char buf[256], const char *name, size_t n)
{
    char *text = malloc(n * 8 + 8);
    size_t at = 0;
    int a = 3, b = 7;
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, 8, "%c%d", i > 0 ? ',' : '[', a);
        int next = (5 * a + 3 * b + 11) % 97;
        a = b;
        b = next;
    }
    text[at++] = ']';
    write_text(buf, name, text, at);
    free(text);
    return buf;
}

static skv_transform_options ridge_options(size_t l, size_t g, const char *const *data)
{
    skv_transform_options o = skv_transform_options_default();
    o.kv_layers = l;
    o.group = g;
    o.init = SKV_TRANSFORM_RIDGE;
    o.data = data;
    o.n_data = 1;
    o.seq = 48;
    o.threads = 2;
    o.weights = SKV_WEIGHTS_F32;
    return o;
}

static float *read_tensor(const skv_tensor *t)
{
    float *x = malloc(skv_tensor_rows(t) * skv_tensor_columns(t) * sizeof *x);
    skv_tensor_read_rows(t, 0, skv_tensor_rows(t), x);
    return x;
}

/* |a - b| / |b| over the whole tensor. */
static double relative_error(const skv_tensor *got, const skv_tensor *want)
{
    double off = 0, size = 0;
    size_t n = skv_tensor_rows(want) * skv_tensor_columns(want);
    assert_int_equal(skv_tensor_rows(got) * skv_tensor_columns(got), n);
    float *a = read_tensor(got), *b = read_tensor(want);
    for (size_t i = 0; i < n; i++) {
        off += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    free(a);
    free(b);
    return sqrt(off / size);
}

/* ---- against the oracle ---- */

static void check_case(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    char model[256], golden[256], ids[256], out[256];
    (void)snprintf(model, sizeof model, MODELS "%s",
                   json_string_value(json_object_get(c, "model")));
    (void)snprintf(golden, sizeof golden, SKV_TEST_DATA "/ridge/%s.safetensors", name);
    char *text = json_dumps(json_object_get(c, "ids"), JSON_COMPACT);
    write_text(ids, "ids.json", text, strlen(text));
    free(text);
    const char *const data = ids;
    skv_transform_options o =
        ridge_options((size_t)json_integer_value(json_object_get(c, "kv_layers")),
                      (size_t)json_integer_value(json_object_get(c, "group")), &data);
    o.seq = (size_t)json_integer_value(json_object_get(c, "seq"));
    o.ridge = json_number_value(json_object_get(c, "ridge"));
    o.toward_zero = json_is_true(json_object_get(c, "to_zero"));
    skv_error err;
    skv_transform_report report;
    if (skv_transform_run(model, group_folder_path(out, name), &o, &report, &err) != SKV_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    assert_int_equal(report.tokens, json_integer_value(json_object_get(c, "rows")));
    assert_int_equal(report.width, 32);
    if (!o.toward_zero) assert_true(report.ridge_error < report.copied_error);
    skv_source *source;
    skv_safetensors *want;
    if (skv_source_open(out, &source, &err) != SKV_OK) fail_msg("%s: %s", name, err.text);
    assert_int_equal(skv_safetensors_open(golden, &want, &err), SKV_OK);
    assert_true(skv_safetensors_count(want) >= 2);
    for (size_t i = 0; i < skv_safetensors_count(want); i++) {
        const skv_tensor *t = skv_safetensors_at(want, i), *got = skv_source_find(source, t->name);
        if (!got) {
            fail_msg("%s: %s is missing", name, t->name);
            return;
        }
        double limit = got->type == SKV_DTYPE_F32 ? 1e-4 : 4e-3; /* a bf16 model's are bf16 */
        double error = relative_error(got, t);
        if (!(error < limit)) fail_msg("%s: %s is off by %.2g", name, t->name, error);
    }
    skv_safetensors_close(want);
    skv_source_close(source);
}

static void test_against_the_oracle(void **state)
{
    (void)state;
    json_t *root = json_load_file(SKV_TEST_DATA "/ridge/cases.json", 0, NULL);
    assert_non_null(root);
    const json_t *cases = json_object_get(root, "cases");
    assert_int_equal(json_array_size(cases), 10);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    json_decref(root);
}

/* ---- what must be a copy, and what must not depend on threads ---- */

/* The last layer alone keeps its own input: the fit is the copy, bit for bit. */
static void test_own_input_is_copied(void **state)
{
    (void)state;
    char ids[256], fitted[256], copied[256];
    const char *const data = write_ids(ids, "own.json", 500);
    skv_transform_options o = ridge_options(3, 1, &data);
    skv_error err;
    assert_int_equal(
        skv_transform_run(MODELS "llama-bias", group_folder_path(fitted, "own"), &o, NULL, &err),
        SKV_OK);
    assert_int_equal(
        skv_transform(MODELS "llama-bias", group_folder_path(copied, "copied"), 3, 1, &err),
        SKV_OK);
    check_same_file(fitted, copied, "model.safetensors");
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    char ids[256], one[256], three[256];
    const char *const data = write_ids(ids, "threads.json", 2000);
    skv_transform_options o = ridge_options(1, 1, &data);
    skv_error err;
    o.threads = 1;
    assert_int_equal(
        skv_transform_run(MODELS "qwen2", group_folder_path(one, "one"), &o, NULL, &err), SKV_OK);
    o.threads = 3;
    assert_int_equal(
        skv_transform_run(MODELS "qwen2", group_folder_path(three, "three"), &o, NULL, &err),
        SKV_OK);
    check_same_file(one, three, "model.safetensors");
}

static void test_tokens_are_limited(void **state)
{
    (void)state;
    char ids[256], out[256];
    const char *const data = write_ids(ids, "limited.json", 2000);
    skv_transform_options o = ridge_options(1, 1, &data);
    skv_transform_report report;
    skv_error err;
    o.tokens = 100;
    assert_int_equal(
        skv_transform_run(MODELS "llama-mha", group_folder_path(out, "limited"), &o, &report, &err),
        SKV_OK);
    assert_int_equal(report.tokens, 100);
    assert_true(fabs(report.ridge - (0.1 + 4.0 * 32 / 100)) < 1e-12);
}

/* ---- distillation begins with either ---- */

static bool note_loss(void *user, const skv_train_progress *p)
{
    if (p->step == 1) *(double *)user = p->loss;
    return true;
}

static double first_loss(const char *model, const char *out, const char *const *data)
{
    double loss = 0;
    skv_error err;
    skv_train_options o = skv_train_options_default(SKV_TRAIN_DISTILL);
    o.model = model;
    o.out = out;
    o.stages[0].data[0] = skv_train_data_default(data[0]);
    o.stages[0].n_data = 1;
    o.stages[0].seq = 32;
    o.stages[0].rows = 4;
    o.stages[0].steps = 2;
    o.threads = 1;
    o.f32 = true;
    o.on_step = note_loss;
    o.user = &loss;
    if (skv_train_run(&o, &err) != SKV_OK) fail_msg("%s", err.text);
    return loss;
}

static void test_distill_begins_with_it(void **state)
{
    (void)state;
    char ids[256], fitted[256], copied[256], out[256];
    const char *const data = write_ids(ids, "distill.json", 3000);
    skv_transform_options o = ridge_options(1, 1, &data);
    skv_error err;
    assert_int_equal(
        skv_transform_run(MODELS "llama-mha", group_folder_path(fitted, "fitted"), &o, NULL, &err),
        SKV_OK);
    assert_int_equal(
        skv_transform(MODELS "llama-mha", group_folder_path(copied, "start"), 1, 1, &err), SKV_OK);
    double from_fitted = first_loss(fitted, group_folder_path(out, "from-fitted"), &data);
    double from_copied = first_loss(copied, group_folder_path(out, "from-copied"), &data);
    assert_true(from_fitted > 0 && from_fitted < from_copied);
}

/* ---- refusals ---- */

static void expect_refusal(const char *model, const skv_transform_options *o, const char *text)
{
    char out[256];
    skv_error err = {0};
    assert_int_not_equal(skv_transform_run(model, group_folder_path(out, "refused"), o, NULL, &err),
                         SKV_OK);
    if (!strstr(err.text, text)) fail_msg("%s", err.text);
    assert_int_equal(access(out, F_OK), -1);
}

static void test_refusals(void **state)
{
    (void)state;
    char ids[256], one_id[256], empty[256];
    const char *const data[3] = {write_ids(ids, "bad.json", 500), write_ids(one_id, "one.json", 1),
                                 write_text(empty, "empty.txt", "", 0)};
    skv_transform_options o = ridge_options(2, 2, &data[0]);
    o.ridge = (double)INFINITY;
    expect_refusal(MODELS "llama-mha", &o, "ridge: inf");
    o.ridge = (double)NAN;
    expect_refusal(MODELS "llama-mha", &o, "nan, expected a number");
    o = ridge_options(2, 2, &data[0]);
    o.n_data = 0;
    expect_refusal(MODELS "llama-mha", &o, "no text given");
    o = ridge_options(2, 2, &data[1]);
    expect_refusal(MODELS "llama-mha", &o, "no text to calibrate with");
    o.seq = 1 << 24;
    expect_refusal(MODELS "llama-mha", &o, "rows of 16777216 tokens");
    o = ridge_options(2, 2, &data[2]);
    expect_refusal(MODELS "llama-mha", &o, "has no tokenizer");
    o = ridge_options(2, 2, &data[0]);
    o.cpu = "abacus";
    expect_refusal(MODELS "llama-mha", &o, "abacus");
    o = ridge_options(1, 1, &data[0]); /* 20 rows for 32 columns, and nothing that ties them */
    o.tokens = 20;
    o.ridge = 0;
    expect_refusal(MODELS "llama-mha", &o, "singular");
    o = ridge_options(2, 2, &data[0]);
    expect_refusal(MODELS "llama-swiftkv-g1", &o, "it is a SwiftKV model already");
}

/* The model with NaN for every weight. */
static void test_not_finite(void **state)
{
    (void)state;
    char ids[256], model[256], path[300];
    char *bytes;
    size_t n;
    uint64_t header;
    skv_error err;
    const char *const data = write_ids(ids, "nan.json", 500);
    assert_int_equal(skv_folder_create(group_folder_path(model, "nan"), &err), SKV_OK);
    assert_int_equal(skv_file_read(MODELS "llama-mha/config.json", 1 << 20, &bytes, &n, &err), 0);
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    assert_int_equal(skv_file_write(path, bytes, n, &err), SKV_OK);
    skv_free(bytes);
    assert_int_equal(skv_file_read(MODELS "llama-mha/model.safetensors", 1 << 28, &bytes, &n, &err),
                     SKV_OK);
    memcpy(&header, bytes, sizeof header);
    memset(bytes + 8 + header, 0xff, n - 8 - (size_t)header);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", model);
    assert_int_equal(skv_file_write(path, bytes, n, &err), SKV_OK);
    skv_free(bytes);
    skv_transform_options o = ridge_options(2, 1, &data);
    expect_refusal(model, &o, "is not finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_oracle),
        cmocka_unit_test(test_own_input_is_copied),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_tokens_are_limited),
        cmocka_unit_test(test_distill_begins_with_it),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("ridge", tests, group_folder_make, group_folder_drop);
}
