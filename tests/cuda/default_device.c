/*
 * Tests of other folders once more, on the emulated GPU: it is the device of every engine whose
 * options name none. Keys and values are f32 where a test does not say, so all between products is
 * f32, as on the processor, and heads may have any size. SKV_TEST_CASE, a pattern, chooses cases.
 *
 * Batch invariance is refused on a GPU, whose products depend on their size. Those of f32 on the
 * emulated one do not: each number is one sum in a fixed order, and so is attention over pages of
 * f32. So tests that ask for it to compare bits get an engine without it, and compare.
 */
#define _GNU_SOURCE /* program_invocation_short_name */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skv/skv.h"

skv_engine_options __wrap_skv_engine_options_default(void);
skv_status __wrap_skv_engine_open(const char *path, const skv_engine_options *options,
                                  skv_engine **out, skv_error *err);
skv_status __real_skv_engine_open(const char *path, const skv_engine_options *options,
                                  skv_engine **out, skv_error *err);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);

skv_engine_options __wrap_skv_engine_options_default(void)
{
    return (skv_engine_options){.device = "cuda", .kv = SKV_KV_F32};
}

/* What else is refused of such options is told first. */
skv_status __wrap_skv_engine_open(const char *path, const skv_engine_options *options,
                                  skv_engine **out, skv_error *err)
{
    static const char refused[] = "device that only repeats, batch invariance: ";
    skv_engine_options o = *options;
    skv_error own;
    if (o.kv == SKV_KV_AUTO) o.kv = SKV_KV_F32;
    skv_status status = __real_skv_engine_open(path, &o, out, &own);
    if (status == SKV_UNSUPPORTED && strncmp(own.text, refused, sizeof refused - 1) == 0) {
        o.batch_invariant = false;
        status = __real_skv_engine_open(path, &o, out, &own);
    }
    if (status != SKV_OK && err) *err = own;
    return status;
}

static const struct {
    const char *program, *test, *why;
} left_out[] = {
#define AGAIN(program)
#define NOT_AGAIN(program, why)
#define LEFT_OUT(program, test, why) {"cuda_" #program, #test, why},
#include "again.def"
#undef AGAIN
#undef NOT_AGAIN
#undef LEFT_OUT
};

static const char *why_left_out(const char *test)
{
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        const bool here = strcmp(left_out[i].program, program_invocation_short_name) == 0;
        if (here && strcmp(left_out[i].test, test) == 0) return left_out[i].why;
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
    if (getenv("SKV_TEST_CASE")) cmocka_set_test_filter(getenv("SKV_TEST_CASE"));
    const int n_failed = __real__cmocka_run_group_tests(name, kept, n_kept, set_up, tear_down);
    free(kept);
    return n_failed;
}
