/*
 * The gated delta rule in training against torch's autograd in float64
 * (tools/oracle/make_delta_goldens.py): results and gradients by every input, on shapes and lengths
 * around the runs of rows, with documents that follow one another; the same bits with any number of
 * threads; and that gradients are added.
 *
 * Labels: threads
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

#include "format/safetensors.h"
#include "format/tensor.h"
#include "train/delta_rule.h"

#define DELTA SKV_TEST_DATA "/delta/"

enum { N_TENSORS = 7 };

static const char *const names[N_TENSORS] = {"q", "k", "v", "a", "b", "a_log", "dt_bias"};

typedef struct delta_case {
    const char *name;
    skv_delta_rule rule;
    size_t sizes[N_TENSORS];
    uint32_t doc_start[256];
    float *in[N_TENSORS], *want[N_TENSORS]; /* want: the gradients */
    float *o, *d_o;
} delta_case;

static float *read_tensor(skv_safetensors *file, const char *name, const char *what, size_t *n)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s.%s", name, what);
    for (size_t i = 0; i < skv_safetensors_count(file); i++) {
        const skv_tensor *t = skv_safetensors_at(file, i);
        if (strcmp(t->name, full) != 0) continue;
        float *x = malloc(skv_tensor_columns(t) * sizeof *x);
        *n = skv_tensor_columns(t);
        skv_tensor_read_rows(t, 0, 1, x);
        return x;
    }
    fail_msg("%s is missing", full);
    return NULL;
}

static size_t size_of(const json_t *c, const char *key)
{
    return (size_t)json_integer_value(json_object_get(c, key));
}

static skv_delta_tensors tensors_of(float *const x[N_TENSORS])
{
    return (skv_delta_tensors){x[0], x[1], x[2], x[3], x[4], x[5], x[6]};
}

static void read_case(const json_t *json, skv_safetensors *file, delta_case *c)
{
    size_t n;
    *c = (delta_case){.name = json_string_value(json_object_get(json, "name"))};
    c->rule.shape = (skv_delta_shape){
        .n_key_heads = size_of(json, "key_heads"),
        .n_value_heads = size_of(json, "value_heads"),
        .key_dim = size_of(json, "key_dim"),
        .value_dim = size_of(json, "value_dim"),
        .tiled = json_is_true(json_object_get(json, "tiled")),
        .write_max = (float)json_number_value(json_object_get(json, "write_max"))};
    const json_t *lengths = json_object_get(json, "lengths");
    for (size_t i = 0; i < json_array_size(lengths); i++) {
        const size_t first = c->rule.n_rows;
        const size_t length = (size_t)json_integer_value(json_array_get(lengths, i));
        assert_true(first + length <= 256);
        while (c->rule.n_rows < first + length) {
            c->doc_start[c->rule.n_rows++] = (uint32_t)first;
        }
    }
    c->rule.doc_start = c->doc_start;
    for (size_t i = 0; i < N_TENSORS; i++) {
        char gradient[16];
        (void)snprintf(gradient, sizeof gradient, "d_%s", names[i]);
        c->in[i] = read_tensor(file, c->name, names[i], &c->sizes[i]);
        c->want[i] = read_tensor(file, c->name, gradient, &n);
        assert_int_equal(n, c->sizes[i]);
    }
    c->o = read_tensor(file, c->name, "o", &n);
    c->d_o = read_tensor(file, c->name, "d_o", &n);
    c->rule.in = tensors_of(c->in);
}

static void free_case(delta_case *c)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        free(c->in[i]);
        free(c->want[i]);
    }
    free(c->o);
    free(c->d_o);
}

/* Within a part of the tensor's length: rounding errors of a row go into all later ones. */
static void expect_near(const delta_case *c, const char *what, const float *got, const float *want,
                        size_t n)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        off += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    if (!(sqrt(off) <= 1e-5 * sqrt(size) + 1e-7)) {
        fail_msg("%s: %s is off by %.2g of %.2g", c->name, what, sqrt(off), sqrt(size));
    }
}

/* Runs a case; out [N_TENSORS] and o are the caller's, and gradients begin as they are. */
static void run(delta_case *c, size_t n_threads, float *o, float *const out[N_TENSORS])
{
    const skv_delta_shape *s = &c->rule.shape;
    const size_t n_kept = skv_delta_rule_kept(s, c->rule.n_rows);
    const skv_delta_tensors gradients = tensors_of(out);
    skv_pool *pool;
    assert_int_equal(skv_pool_create(n_threads, &pool, NULL), SKV_OK);
    c->rule.kept = malloc((n_kept + 1) * sizeof(float)); /* + 1: it may be none */
    c->rule.scratch = malloc(n_threads * skv_delta_rule_scratch(s) * sizeof(float));
    skv_delta_rule_forward(&c->rule, pool, o);
    skv_delta_rule_backward(&c->rule, pool, c->d_o, &gradients);
    free(c->rule.kept);
    free(c->rule.scratch);
    skv_pool_free(pool);
}

static void check_case(delta_case *c)
{
    const size_t n = c->rule.n_rows * c->rule.shape.n_value_heads * c->rule.shape.value_dim;
    float *o[2], *out[2][N_TENSORS];
    for (size_t k = 0; k < 2; k++) {
        o[k] = calloc(n, sizeof(float));
        for (size_t i = 0; i < N_TENSORS; i++) out[k][i] = calloc(c->sizes[i], sizeof(float));
        run(c, k == 0 ? 1 : 3, o[k], out[k]);
    }
    expect_near(c, "o", o[0], c->o, n);
    assert_memory_equal(o[0], o[1], n * sizeof(float));
    for (size_t i = 0; i < N_TENSORS; i++) {
        expect_near(c, names[i], out[0][i], c->want[i], c->sizes[i]);
        assert_memory_equal(out[0][i], out[1][i], c->sizes[i] * sizeof(float));
    }
    run(c, 2, o[1], out[1]); /* once more, onto what is there */
    for (size_t i = 0; i < N_TENSORS; i++) {
        for (size_t j = 0; j < c->sizes[i]; j++) out[1][i][j] /= 2;
        expect_near(c, names[i], out[1][i], c->want[i], c->sizes[i]);
    }
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < N_TENSORS; i++) free(out[k][i]);
        free(o[k]);
    }
}

static void test_against_torch(void **state)
{
    (void)state;
    skv_safetensors *file;
    skv_error err;
    json_t *cases = json_load_file(DELTA "cases.json", 0, NULL);
    assert_int_equal(json_array_size(cases), 6);
    if (skv_safetensors_open(DELTA "tensors.safetensors", &file, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < json_array_size(cases); i++) {
        static delta_case c;
        read_case(json_array_get(cases, i), file, &c);
        check_case(&c);
        free_case(&c);
    }
    skv_safetensors_close(file);
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_torch)};
    return cmocka_run_group_tests_name("delta_rule", tests, NULL, NULL);
}
