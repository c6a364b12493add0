/*
 * Sources of drafts as text, and what the text source proposes: the longest match in a sequence's
 * own tokens and in earlier answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "drafts/draft_history.h"
#include "engine/engine.h"

#define MODEL SKV_TEST_DATA "/models/qwen2-swiftkv-g2"

enum { N_DRAFT = SKV_DRAFT_MAX };

/* ---- the text source ---- */

/* Answers are found by their tokens, a match ends with its answer, and the oldest go. */
static void test_history(void **state)
{
    (void)state;
    enum { ROOM = 64 };
    static const int32_t first[] = {1, 2, 3, 4, 5}, second[] = {1, 2, 3, 6, 7},
                         ends[] = {9, 1, 2, 3};
    skv_draft_history *h = NULL;
    const int32_t *out;
    size_t n_out;
    assert_int_equal(skv_draft_history_create(ROOM, &h, NULL), SKV_OK);
    assert_int_equal(skv_draft_history_find(h, ends, 4, &out, &n_out), 0);
    skv_draft_history_add(h, first, 5);
    assert_int_equal(skv_draft_history_find(h, ends, 4, &out, &n_out), 3);
    assert_int_equal(n_out, 2);
    assert_memory_equal(out, first + 3, 2 * sizeof *out);
    skv_draft_history_add(h, second, 5);
    assert_int_equal(skv_draft_history_find(h, ends, 4, &out, &n_out), 3);
    assert_memory_equal(out, second + 3, 2 * sizeof *out);
    assert_int_equal(skv_draft_history_find(h, second, 5, &out, &n_out), 0); /* nothing follows */
    int32_t other[100];
    for (int32_t i = 0; i < 100; i++) other[i] = 100 + i;
    for (size_t i = 0; i < 40; i++) skv_draft_history_add(h, other, 1 + i * 13 % 100);
    assert_int_equal(skv_draft_history_find(h, ends, 4, &out, &n_out), 0);
    assert_true(skv_draft_history_find(h, other + 80, 5, &out, &n_out) >= 5);
    skv_draft_history_free(h);
}

/* A sequence drafts from a history where it matches longer than its own text. */
static void test_drafts_from_history(void **state)
{
    (void)state;
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    options.context = 256;
    assert_int_equal(skv_engine_open(MODEL, &options, &engine, NULL), SKV_OK);
    const skv_speculation how = {.source = SKV_DRAFT_TEXT, .most = 6};
    static const int32_t prompt[] = {1, 2, 3, 50, 1, 2}, earlier[] = {9, 1, 2, 3, 4, 5, 6, 7};
    skv_draft_history *h = NULL;
    skv_sequence *s = NULL;
    int32_t out[N_DRAFT];
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    assert_int_equal(skv_draft_history_create(64, &h, NULL), SKV_OK);
    skv_draft_history_add(h, earlier, 8);
    assert_int_equal(skv_sequence_set_speculation(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, prompt, 6, NULL, NULL), SKV_OK);
    skv_sequence_set_history(s, h);
    assert_true(skv_sequence_draft(s, 3, out, 6) > 0); /* a match of three in both: its own */
    assert_int_equal(out[0], 50);
    const int32_t ends[] = {9, 1, 2};
    assert_int_equal(skv_prompt(engine, s, ends, 3, NULL, NULL), SKV_OK);
    assert_true(skv_sequence_draft(s, 3, out, 6) > 0);
    assert_int_equal(out[0], 4);
    skv_sequence_set_history(s, NULL);
    assert_true(skv_sequence_draft(s, 3, out, 6) > 0);
    assert_int_equal(out[0], 50);
    skv_sequence_free(s);
    skv_draft_history_free(h);
    skv_engine_close(engine);
}

static void expect_longest_match(void *index, const int32_t *ids, size_t n)
{
    int32_t out[N_DRAFT];
    size_t best = 0, at = 0, n_match;
    const size_t n_out = skv_draft_text.propose(index, ids, n, out, N_DRAFT, &n_match);
    for (size_t i = 1; i < n; i++) {
        size_t m = 0;
        while (m < i && m < 32 && ids[i - 1 - m] == ids[n - 1 - m]) m++;
        if (m < best || m < 2) continue;
        best = m;
        at = i;
    }
    assert_int_equal(n_out > 0, best >= 2);
    assert_int_equal(n_match, best >= 2 ? best : 0);
    for (size_t i = 0; i < n_out; i++) {
        assert_int_equal(out[i], at + i < n ? ids[at + i] : out[at + i - n]);
    }
}

static void test_text_is_the_longest_match(void **state)
{
    (void)state;
    enum { N = 400 };
    int32_t ids[N];
    uint32_t draw = 1;
    for (int32_t alphabet = 8; alphabet < 60; alphabet += 17) {
        void *index = NULL;
        assert_int_equal(skv_draft_text.create(N, &index, NULL), SKV_OK);
        for (size_t n = 0; n < N; n++) {
            draw = draw * 1664525 + 1013904223;
            ids[n] = (int32_t)(draw >> 16) % alphabet;
            expect_longest_match(index, ids, n + 1);
            if (n % 97 != 96) continue;
            ids[n - 40] = alphabet; /* as when a conversation goes on from an earlier point */
            expect_longest_match(index, ids, n - 20);
        }
        skv_draft_text.free(index);
    }
}

static void test_forms(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",        "text:",     "text:0",     "text:32",   "text:-1",     "text:x",   "text:1,",
        "txt",     "none:1",    "text:1,0.5", "self:",     "self:0",      "self:3,",  "aux:3,2",
        "text+:3", "text+text", "self+text",  "self:3,-1", "self:3,0.5,", "self:,0.5"};
    char text[SKV_SPECULATION_TEXT];
    skv_speculation how;
    skv_error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(skv_speculation_parse(wrong[i], &how, &err), SKV_ARGUMENT);
    }
    assert_int_equal(skv_speculation_parse("text:7", &how, &err), SKV_OK);
    skv_speculation_print(&how, text);
    assert_string_equal(text, "text:7");
    assert_int_equal(skv_speculation_parse("self:7,0.25", &how, &err), SKV_OK);
    skv_speculation_print(&how, text);
    assert_string_equal(text, "self:7,0.25");
    assert_int_equal(skv_speculation_parse("none", &how, &err), SKV_OK);
    skv_speculation_print(&how, text);
    assert_string_equal(text, "none");
}

/* ---- out of memory ---- */

/* An engine with a model that drafts, a sequence that is drafted for, and a history that is full.
 */
static bool open_and_draft(void *arg)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    skv_sequence *s = NULL;
    skv_draft_history *h = NULL;
    int32_t out[N_DRAFT];
    static const int32_t ids[] = {3, 4, 5, 6, 3, 4};
    (void)arg;
    options.threads = 1;
    options.context = 64;
    options.draft_model = MODEL;
    options.speculation = (skv_speculation){.source = SKV_DRAFT_TEXT_MODEL, .most = 4};
    if (skv_engine_open(MODEL, &options, &engine, NULL) != SKV_OK) return false;
    bool ok = skv_sequence_create(engine, 0, &s, NULL) == SKV_OK &&
              skv_draft_history_create(32, &h, NULL) == SKV_OK &&
              skv_prompt(engine, s, ids, 6, NULL, NULL) == SKV_OK;
    for (size_t i = 0; ok && i < 12; i++) skv_draft_history_add(h, ids, 6);
    if (ok) {
        skv_sequence_set_history(s, h);
        ok = skv_sequence_draft(s, 5, out, 4) > 0; /* by the text */
        (void)skv_sequence_draft(s, 60, out, 4);   /* by the model, which may say nothing */
    }
    skv_sequence_free(s);
    skv_draft_history_free(h);
    skv_engine_close(engine);
    return ok;
}

static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    const size_t n = alloc_fail_each(open_and_draft, NULL, true);
    assert_true(n > 50 && n < SIZE_MAX);
}

/* A sequence of another method than the engine's, which drafts too: where memory runs out the
 * caller is told so, whatever failed. */
static bool create_teacher(void *arg)
{
    skv_sequence *s = NULL;
    skv_error err;
    memset(&err, 'x', sizeof err);
    const skv_status status = skv_sequence_create_as(arg, SKV_PREFILL_TEACHER, 0, &s, &err);
    skv_sequence_free(s);
    if (status == SKV_OK) return true;
    assert_int_equal(status, SKV_MEMORY);
    assert_non_null(memchr(err.text, 0, sizeof err.text));
    assert_non_null(strstr(err.text, "memory"));
    return false;
}

static void test_another_method_out_of_memory(void **state)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    (void)state;
    options.threads = 1;
    options.context = 64;
    options.with_teacher = true;
    options.speculation = (skv_speculation){.source = SKV_DRAFT_TEXT, .most = 4};
    assert_int_equal(skv_engine_open(MODEL, &options, &engine, NULL), SKV_OK);
    const size_t n = alloc_fail_each(create_teacher, engine, false);
    assert_true(n > 2 && n < SIZE_MAX);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_text_is_the_longest_match),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_drafts_from_history),
        cmocka_unit_test(test_out_of_memory_at_every_allocation),
        cmocka_unit_test(test_another_method_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
