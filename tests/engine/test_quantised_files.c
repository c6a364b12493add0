/*
 * What `quantize` writes opens as it was written: with f32 activations its codes give the
 * log-probabilities of the floats that they stand for, with every level of kernels. (That these
 * floats are right is tests/program/test_quantize.py's subject.)
 */
#define _XOPEN_SOURCE 700

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu.h"
#include "skv/quantize.h"
#include "skv/tools.h"
#include "temp_folder.h"
#include "tested_level.h"

enum { N_IDS = 40 };

static int make_folder(void **state)
{
    return temp_folder_make(state, "quantised");
}

static skv_engine_options options_of(skv_weights weights, skv_cpu_level level)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.context = options.kv_tokens = N_IDS;
    options.kv = SKV_KV_F32;
    options.weights = weights;
    options.f32_activations = true;
    options.cpu = skv_cpu_level_name(level);
    return options;
}

static void score(const char *path, const skv_engine_options *options, double out[N_IDS])
{
    skv_engine *engine;
    skv_error err;
    int32_t ids[N_IDS];
    if (skv_engine_open(path, options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < N_IDS; i++) {
        ids[i] = (int32_t)(3 + i * 7919 % (skv_engine_vocab(engine) - 3));
    }
    assert_int_equal(skv_score(engine, ids, N_IDS, out, NULL, &err), SKV_OK);
    skv_engine_close(engine);
}

static void check_file(const char *path)
{
    double want[N_IDS], got[N_IDS];
    skv_engine_options options = options_of(SKV_WEIGHTS_F32, SKV_CPU_LEVEL_REF);
    score(path, &options, want);
    for (int level = SKV_CPU_LEVEL_REF; level <= SKV_CPU_LEVEL_NEON; level++) {
        if (!tested_level((skv_cpu_level)level)) continue;
        options = options_of(SKV_WEIGHTS_FILE, (skv_cpu_level)level);
        score(path, &options, got);
        for (size_t i = 1; i < N_IDS; i++) {
            if (!(fabs(got[i] - want[i]) <= 1e-3)) {
                fail_msg("%s, %s: logprobs[%zu] %.6f, expected %.6f", path, options.cpu, i, got[i],
                         want[i]);
            }
        }
    }
}

/* Rows of this model have 256 columns, and some 320, which groups of 128 do not divide. */
static void files_open_with_their_codes(void **state)
{
    static const struct {
        skv_weights weights;
        size_t group;
        const char *name, *codes; /* the file, and what `info` says of it */
    } cases[] = {
        {SKV_WEIGHTS_INT4, 32, "int4-32", "int4 in groups of 32: held as published"},
        {SKV_WEIGHTS_INT4, 128, "int4-128", "int4 in groups of 128: held as published"},
        {SKV_WEIGHTS_INT8, 32, "int8-32", "int8 in groups of 32: held as published"},
        {SKV_WEIGHTS_INT8, 128, "int8-128", "int8 in groups of 128: held as published"},
        {SKV_WEIGHTS_INT4, 32, "int4.gguf", ""},
        {SKV_WEIGHTS_INT8, 32, "int8.gguf", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4200];
        skv_quantize_options options = skv_quantize_options_default();
        skv_quantize_report report;
        skv_model_info info;
        skv_error err;
        (void)snprintf(path, sizeof path, "%s/%s", (const char *)*state, cases[i].name);
        options.weights = cases[i].weights;
        options.group = cases[i].group;
        options.threads = 2;
        if (skv_quantize(SKV_TEST_DATA "/models/llama-gguf/model.gguf", path, &options, &report,
                         &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        assert_true(report.n_quantized > 8);
        assert_int_equal(report.n_left > 0, cases[i].group == 128);
        assert_int_equal(skv_model_info_read(path, &info, &err), SKV_OK);
        assert_string_equal(info.codes, cases[i].codes);
        check_file(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_open_with_their_codes, make_folder, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
