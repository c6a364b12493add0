/*
 * Frozen matrices that the trainer holds as the codes of their files: the floats that they become
 * are those that the file is read as, and they take the bits that they have there.
 *
 * Labels: threads
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/source.h"
#include "train/net_impl.h"

static void check_tensor(skv_pool *pool, const skv_tensor *t)
{
    const size_t N = skv_tensor_rows(t), K = skv_tensor_columns(t);
    skv_error err = {0};
    skv_net_codes c;
    if (skv_net_codes_read(&c, pool, t, &err) != SKV_OK) fail_msg("%s", err.text);
    float *got = malloc(N * K * sizeof *got), *want = malloc(N * K * sizeof *want);
    uint8_t *codes = malloc(skv_pool_threads(pool) * K);
    skv_net_codes_widen(&c, pool, got, codes);
    skv_tensor_read_rows(t, 0, N, want);
    for (size_t i = 0; i < N * K; i++) {
        if (fabsf(got[i] - want[i]) <= 2e-7F * fabsf(want[i])) continue;
        fail_msg("%s[%zu]: %g, expected %g", t->name, i, (double)got[i], (double)want[i]);
    }
    assert_true(c.form->bits > 4 || 8 * c.n_bytes <= 6 * N * K); /* scales of groups of 16 */
    skv_net_codes_release(&c);
    free(got);
    free(want);
    free(codes);
}

static void test_values(void **state)
{
    static const char *const models[] = {"awq",
                                         "awq-128",
                                         "gptq-128",
                                         "int4-128-zeros",
                                         "int4-64",
                                         "gptq",
                                         "int4-zeros",
                                         "mixtral-int4",
                                         "int8-row",
                                         "gpt-oss-mxfp4",
                                         "qwen3-moe-gptq",
                                         "llama-gguf/model.gguf",
                                         "qwen3-moe-gguf/model.gguf"};
    skv_pool *pool;
    size_t n_checked = 0;
    (void)state;
    assert_int_equal(skv_pool_create(3, &pool, NULL), SKV_OK);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        skv_source *source;
        skv_error err = {0};
        size_t n = 0;
        (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_DATA, models[i]);
        if (skv_source_open(path, &source, &err) != SKV_OK) fail_msg("%s", err.text);
        for (size_t k = 0; k < skv_source_count(source); k++) {
            const skv_tensor *t = skv_source_at(source, k);
            if (t->n_dims != 2 || !skv_tensor_form(t)) continue;
            check_tensor(pool, t);
            n++;
        }
        n_checked += n;
        skv_source_close(source);
    }
    assert_true(n_checked > 100);
    skv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
