/*
 * Scaled columns: a model whose inputs of products are divided, and whose columns are multiplied by
 * as much, computes what it computed before. Every family, all weights in f32, no codes: by powers
 * of two to the bit, by other numbers but for the rounding of f32.
 */
#define _XOPEN_SOURCE 700 /* nftw */
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
#include "base/rng.h"
#include "format/dtype.h"
#include "format/safetensors.h"
#include "group_folder.h"
#include "skv/tools.h"
#include "train/quantize/quantizer.h"

enum { N_IDS = 48 };

static void expect(skv_status status, const skv_error *err)
{
    if (status != SKV_OK) fail_msg("%s", err->text);
}

/* ---- a copy in f32 ---- */

static skv_status widen_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const skv_tensor *t = arg;
    const size_t n_elements = n * skv_tensor_columns(t);
    float *rows = calloc(n_elements, sizeof *rows);
    (void)err;
    skv_tensor_read_rows(t, row0, n, rows);
    memcpy(out, rows, n_elements * sizeof *rows);
    free(rows);
    return SKV_OK;
}

static void widen(const char *from, const char *to)
{
    skv_error err = {0};
    skv_safetensors *files;
    char path[1024], *text;
    size_t n_text;
    expect(skv_safetensors_open_folder(from, &files, &err), &err);
    const size_t n = skv_safetensors_count(files);
    skv_tensor_out *outs = calloc(n, sizeof *outs);
    for (size_t i = 0; i < n; i++) {
        const skv_tensor *t = skv_safetensors_at(files, i);
        outs[i] = (skv_tensor_out){.name = t->name,
                                   .type = SKV_DTYPE_F32,
                                   .n_dims = t->n_dims,
                                   .rows = widen_rows,
                                   .arg = (void *)(uintptr_t)t};
        memcpy(outs[i].dims, t->dims, sizeof t->dims);
    }
    expect(skv_folder_create(to, &err), &err);
    expect(skv_safetensors_write_folder(to, outs, n, SIZE_MAX / 2, &err), &err);
    (void)snprintf(path, sizeof path, "%s/config.json", from);
    expect(skv_file_read(path, 1 << 20, &text, &n_text, &err), &err);
    (void)snprintf(path, sizeof path, "%s/config.json", to);
    expect(skv_file_write(path, text, n_text, &err), &err);
    skv_free(text);
    free(outs);
    skv_safetensors_close(files);
}

/* ---- folding ---- */

/* Every input by numbers between 1/2 and 2, powers of two if they are to be; how many of each
 * product could be. */
static void fold_all(skv_quantizer *q, bool powers, size_t *counts)
{
    skv_error err = {0};
    skv_rng rng;
    skv_rng_init(&rng, 7);
    bool done[64][SKV_PRODUCT_EMBED + 1] = {{false}};
    for (size_t i = 0; i < q->n; i++) {
        size_t layer;
        skv_product product;
        if (!skv_quantize_find_input(&q->items[i], &layer, &product)) continue;
        if (product == SKV_PRODUCT_STACK) layer = skv_source_config(q->source)->kv_layers;
        if (done[layer][product]) continue;
        done[layer][product] = true;
        const size_t K = skv_tensor_columns(q->items[i].tensor);
        float *s = calloc(K, sizeof *s);
        for (size_t k = 0; k < K; k++) {
            const double power = 2 * skv_rng_uniform(&rng) - 1;
            s[k] = (float)pow(2, powers ? rint(power) : power);
        }
        bool folded;
        expect(skv_quantize_fold(q, layer, product, s, K, &folded, &err), &err);
        counts[product] += folded;
        free(s);
    }
}

static void score(const char *path, double *logprobs)
{
    skv_error err = {0};
    skv_engine *engine;
    int32_t ids[N_IDS];
    skv_engine_options options = skv_engine_options_default();
    options.weights = SKV_WEIGHTS_F32;
    options.kv = SKV_KV_F32;
    options.context = 64;
    options.threads = 1;
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)(i * i % 89);
    expect(skv_engine_open(path, &options, &engine, &err), &err);
    expect(skv_score(engine, ids, N_IDS, logprobs, NULL, &err), &err);
    skv_engine_close(engine);
}

static void check(const char *from, const size_t *wanted, bool powers)
{
    static const skv_product products[] = {SKV_PRODUCT_QKV, SKV_PRODUCT_STACK, SKV_PRODUCT_O,
                                           SKV_PRODUCT_GATE_UP, SKV_PRODUCT_DOWN};
    skv_error err = {0};
    skv_quantizer q;
    char out[1024];
    double before[N_IDS], after[N_IDS], most = 0, sum = 0;
    size_t counts[SKV_PRODUCT_EMBED + 1] = {0};
    uint64_t n_bytes;
    const skv_quantize_options options = {.weights = SKV_WEIGHTS_INT4, .group = 32, .threads = 1};
    expect(skv_quantizer_open(&q, from, &options, false, &err), &err);
    fold_all(&q, powers, counts);
    for (size_t i = 0; i < 5; i++) {
        if (counts[products[i]] == wanted[i]) continue;
        fail_msg("%s: %zu inputs of product %zu scaled, expected %zu", from, counts[products[i]], i,
                 wanted[i]);
    }
    (void)snprintf(out, sizeof out, "%s-scaled", from);
    expect(skv_quantize_write_folder(&q, out, &n_bytes, &err), &err);
    skv_quantizer_release(&q);
    score(from, before);
    score(out, after);
    for (size_t i = 1; i < N_IDS; i++) {
        const double far = fabs(before[i] - after[i]);
        most = fmax(most, far);
        sum += far / (N_IDS - 1);
    }
    if (powers ? most > 0 : !(sum < 1e-5 && most < 1e-4)) {
        fail_msg("%s: log-probabilities differ by %g, in the mean %g", from, most, sum);
    }
    temp_folder_remove(out);
}

static void test_same_function(void **state)
{
    static const struct {
        const char *model;
        size_t wanted[5]; /* inputs of q|k|v, the stack, o, gate|up, down */
    } cases[] = {
        {"llama3-v5", {6, 0, 6, 6, 6}},
        {"llama-bias", {4, 0, 4, 4, 4}},
        {"llama-swiftkv-g1", {6, 1, 6, 6, 6}},
        {"llama-swiftkv-g2", {6, 1, 2, 6, 6}}, /* layers that share v */
        {"phi3", {3, 0, 3, 3, 3}},
        {"openelm", {4, 0, 4, 4, 4}},
        {"gemma2", {4, 0, 4, 4, 4}},
        {"gemma3-v5", {5, 0, 5, 5, 5}},
        {"gemma4-e2b", {8, 0, 0, 8, 8}}, /* v is normed */
        {"gemma4-moe", {5, 0, 0, 5, 5}},
        {"gemma4-dense", {5, 0, 0, 5, 5}},
        {"glm4", {4, 0, 4, 4, 4}},
        {"olmo2", {0, 0, 4, 0, 4}}, /* no norms before products */
        {"qwen2", {4, 0, 4, 4, 4}},
        {"qwen2-swiftkv-g1", {6, 1, 6, 6, 6}},
        {"qwen3-v5", {4, 0, 4, 4, 4}},
        {"qwen3-moe-v5", {4, 0, 4, 2, 2}}, /* two layers have experts */
        {"gpt-oss", {4, 0, 4, 0, 0}},
        {"granite", {4, 0, 4, 4, 4}},
        {"smollm3", {6, 0, 6, 6, 6}},
        {"ministral3", {4, 0, 4, 4, 4}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[512], to[512];
        (void)snprintf(from, sizeof from, "%s/models/%s", SKV_TEST_DATA, cases[i].model);
        (void)snprintf(to, sizeof to, "%s/%s", group_folder, cases[i].model);
        widen(from, to);
        check(to, cases[i].wanted, true);
        check(to, cases[i].wanted, false);
        temp_folder_remove(to);
    }
}

/* What a norm of bf16 is divided by is changed so that nothing is lost when it is written. */
static void test_norms_stay_exact(void **state)
{
    skv_error err = {0};
    skv_quantizer q;
    size_t counts[SKV_PRODUCT_EMBED + 1] = {0}, n_checked = 0;
    const skv_quantize_options options = {.weights = SKV_WEIGHTS_INT4, .group = 32, .threads = 1};
    (void)state;
    expect(skv_quantizer_open(&q, SKV_TEST_DATA "/models/gemma3-v5", &options, false, &err), &err);
    fold_all(&q, false, counts);
    for (size_t i = 0; i < q.n; i++) {
        const skv_quantize_item *item = &q.items[i];
        float row[1024];
        uint16_t rounded[1024];
        if (item->tensor->n_dims > 1 || !item->columns) continue;
        const size_t n = skv_tensor_columns(item->tensor);
        assert_true(n <= 1024 && item->tensor->type == SKV_DTYPE_BF16);
        expect(skv_quantize_read(item, 0, 1, row, &err), &err);
        skv_dtype_from_f32(SKV_DTYPE_BF16, rounded, row, n);
        for (size_t k = 0; k < n; k++, n_checked++) {
            float back;
            skv_dtype_to_f32(SKV_DTYPE_BF16, &back, rounded + k, 1);
            assert_true(fabsf(back - row[k]) <= 1e-6F);
        }
    }
    assert_true(n_checked > 300);
    skv_quantizer_release(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_function),
                                       cmocka_unit_test(test_norms_stay_exact)};
    return cmocka_run_group_tests(tests, group_folder_make, group_folder_drop);
}
