/* Engines and sequences of tests, which fail where they cannot be made. */
#ifndef SKV_TESTS_OPEN_ENGINE_H
#define SKV_TESTS_OPEN_ENGINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "skv/skv.h"

static inline skv_engine *open_or_fail(const char *path, const skv_engine_options *options)
{
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(path, options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static inline skv_sequence *new_sequence(skv_engine *engine)
{
    skv_sequence *sequence = NULL;
    assert_int_equal(skv_sequence_create(engine, 0, &sequence, NULL), SKV_OK);
    return sequence;
}

/** One thread, and contexts of 256 tokens for four sequences. */
static inline skv_engine_options options_for_drafts(void)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.context = 256;
    options.kv_tokens = 4 * 256;
    options.step_tokens = 128;
    return options;
}

/** ids [n] that repeat themselves, with a change here and there, so that there is something to
 * draft. */
static inline void make_repeating_ids(int32_t *ids, size_t n, size_t vocab)
{
    const size_t m = vocab < 90 ? vocab : 90;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i % 23 * 37 + (i % 41 == 0) + 5) % m);
}

#endif
