/*
 * Tests of models, methods and the scheduler once more, on the emulated GPU: it is the device of
 * every engine whose options name none. Keys and values are f32 where a test does not say, so all
 * between products is f32, as on the processor, and heads may have any size.
 *
 * Some tests name what only the processor has. They are left out, each with the reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"
#include "skv/skv.h"
#include "skv/tools.h"

golden *__wrap_golden_load_all(size_t *n);
golden *__real_golden_load_all(size_t *n);
skv_engine_options __wrap_skv_engine_options_default(void);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);

skv_engine_options __wrap_skv_engine_options_default(void)
{
    return (skv_engine_options){.device = "cuda", .kv = SKV_KV_F32};
}

/* Without the models that the device refuses by name. */
golden *__wrap_golden_load_all(size_t *n)
{
    golden *all = __real_golden_load_all(n), *refused = calloc(*n + 1, sizeof *refused);
    size_t n_kept = 0, n_refused = 0;
    if (!refused) abort();
    for (size_t i = 0; i < *n; i++) {
        skv_engine_options options = __wrap_skv_engine_options_default();
        skv_memory_plan plan;
        skv_error err;
        options.weights = SKV_WEIGHTS_F32;
        if (skv_memory_plan_make(all[i].path, &options, 0, &plan, &err) == SKV_OK) {
            all[n_kept++] = all[i];
        } else {
            print_message("left out: %s: %s\n", all[i].name, err.text);
            refused[n_refused++] = all[i];
        }
    }
    golden_free_all(refused, n_refused);
    *n = n_kept;
    return all;
}

static const struct {
    const char *test, *why;
} left_out[] = {
    {"test_batch_invariance", "a GPU makes no such promise"},
};

static const char *why_left_out(const char *test)
{
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        if (strcmp(left_out[i].test, test) == 0) return left_out[i].why;
    }
    return NULL;
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    struct CMUnitTest *kept = calloc(n + 1, sizeof *kept);
    size_t n_kept = 0;
    if (!kept) abort();
    for (size_t i = 0; i < n; i++) {
        const char *why = why_left_out(tests[i].name);
        if (why) print_message("left out: %s: %s\n", tests[i].name, why);
        if (!why) kept[n_kept++] = tests[i];
    }
    const int n_failed = __real__cmocka_run_group_tests(name, kept, n_kept, set_up, tear_down);
    free(kept);
    return n_failed;
}
