/*
 * A model's own head for further tokens (MTP): what it says against a formula in float64
 * (tools/oracle/make_mtp_goldens.py), whatever the chunks of the prompt; answers are the same with
 * its drafts and without; and what is refused.
 */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drafted_answer.h"
#include "engine/engine.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/skv.h"
#include "skv/tools.h"

#define MODELS SKV_TEST_DATA "/models/"
#define MODEL MODELS "qwen3-5-wrapped"
#define GGUF_MODEL SKV_TEST_DATA "/mtp.gguf" /* the same */

enum { N_IDS = 80, N_DRAFTED = 3 };

static skv_engine_options options_for_mtp(void)
{
    skv_engine_options options = options_for_drafts();
    options.speculation = (skv_speculation){SKV_DRAFT_MTP, N_DRAFTED, 0};
    return options;
}

/* ---- what the head says ---- */

static double number_at(const json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

/* The log-probabilities of the head's last row are those of `want`, of each step-th id. */
static void expect_log_probs(skv_engine *engine, const json_t *want, size_t step, const char *what)
{
    const size_t V = skv_engine_vocab(engine);
    const skv_rows row = skv_rows_as(engine->draft.model.ws.logits, V);
    const skv_mapped host = engine->be->map(engine->be, row, 1, V, SKV_MAP_READ);
    double largest = -(double)INFINITY, sum = 0;
    for (size_t i = 0; i < V; i++) largest = fmax(largest, (double)host.at[i]);
    for (size_t i = 0; i < V; i++) sum += exp((double)host.at[i] - largest);
    for (size_t i = 0; i * step < V; i++) {
        const double got = (double)host.at[i * step] - largest - log(sum);
        if (!(fabs(got - number_at(want, i)) < 1e-3)) {
            fail_msg("%s: id %zu: %.6f, expected %.6f", what, i * step, got, number_at(want, i));
        }
    }
    engine->be->unmap(engine->be, host);
}

/* A draft of n tokens behind the first n_read of ids, of a sequence that has read these. */
static void expect_draft(skv_engine *engine, skv_sequence *s, int32_t next, const json_t *row,
                         size_t n, size_t step)
{
    int32_t out[N_DRAFTED];
    char what[64];
    (void)snprintf(what, sizeof what, "behind %zu tokens, draft of %zu", skv_sequence_length(s), n);
    const size_t n_out = skv_sequence_draft(s, next, out, n);
    for (size_t i = 0; i < n; i++) {
        const int32_t want = (int32_t)number_at(json_object_get(row, "drafted"), i);
        if (number_at(json_object_get(row, "margins"), i) < 2e-3) return;
        if (i + 1 == n || skv_engine_is_eos(engine, want)) { /* which is not drafted */
            const json_t *said = json_array_get(json_object_get(row, "log_probs"), i);
            expect_log_probs(engine, said, step, what);
            assert_int_equal(n_out, skv_engine_is_eos(engine, want) ? i : n);
        }
        if (i < n_out) assert_int_equal(out[i], want);
        if (i == n_out) return;
    }
}

/* Tokens ids [n], or the same as a draft behind the first of them that goes on with wrong ones. */
static void read(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n, bool drafted)
{
    int32_t draft[N_IDS + N_DRAFTED] = {0};
    memcpy(draft, ids, n * sizeof *ids);
    const skv_span span = {s, draft, drafted ? n + N_DRAFTED : n,
                           drafted ? SKV_WANT_DRAFTED : SKV_WANT_NONE};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
    if (drafted) skv_sequence_settle(s, n - 1 + N_DRAFTED, n - 1);
}

/* Prompts in chunks of these sizes; a draft of one, two or three tokens behind each chunk. */
static void test_head_says_what_the_formula_says(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 7, 40, 64};
    json_t *golden = json_load_file(MODEL "/mtp.json", 0, NULL);
    assert_non_null(golden);
    const json_t *list = json_object_get(golden, "ids"), *rows = json_object_get(golden, "rows");
    const size_t step = (size_t)json_integer_value(json_object_get(golden, "step"));
    int32_t ids[N_IDS];
    assert_int_equal(json_array_size(list), N_IDS);
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)number_at(list, i);
    skv_engine_options options = options_for_mtp();
    options.weights = SKV_WEIGHTS_F32;
    for (size_t c = 0; c < 2 * sizeof chunks / sizeof *chunks; c++) {
        skv_engine *engine = open_or_fail(c == 2 ? GGUF_MODEL : MODEL, &options);
        skv_sequence *s = new_sequence(engine);
        size_t n_turns = c % 2; /* so that each length of draft meets each position */
        for (size_t at = 0, n; at + 1 < N_IDS; at += n) {
            n = chunks[c / 2] < N_IDS - 1 - at ? chunks[c / 2] : N_IDS - 1 - at;
            read(engine, s, ids + at, n, n_turns % 2 == 1 && n < 20);
            expect_draft(engine, s, ids[at + n], json_array_get(rows, at + n - 1),
                         1 + n_turns++ % N_DRAFTED, step);
        }
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
    json_decref(golden);
}

/* ---- answers ---- */

static const char *const hows[] = {"mtp:1,0", "mtp:4,0", "mtp:12,0", "mtp:31,0.02", "text+mtp:6,0"};
enum { N_HOWS = sizeof hows / sizeof hows[0] };

/* Rows of a draft have the bits of single steps, so that also sampled answers are the same. */
static void test_answers(void **state)
{
    (void)state;
    static const skv_sampling samplings[] = {
        {.top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 6}};
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < cases_of(4, 1); i++) {
        skv_engine_options options = options_for_mtp();
        options.speculation.most = SKV_DRAFT_MAX;
        options.kv = i == 3 ? SKV_KV_INT8 : SKV_KV_AUTO;
        options.step_tokens = i % 3 == 0 ? 33 : 128;
        options.batch_invariant = i == 1;
        const char *evict = i == 2 ? "snapkv:40,8,5" : "none";
        assert_int_equal(skv_eviction_parse(evict, &options.eviction, NULL), SKV_OK);
        skv_engine *engine = open_or_fail(MODEL, &options);
        int32_t ids[N_PROMPT];
        make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
        const answer plain = answer_of(engine, ids, &samplings[i % 2], "none");
        for (size_t k = 0; k < N_HOWS; k++) {
            const answer drafted = answer_of(engine, ids, &samplings[i % 2], hows[k]);
            assert_memory_equal(plain.ids, drafted.ids, sizeof plain.ids);
            sum.drafted += drafted.drafts.drafted;
            sum.accepted += drafted.drafts.accepted;
        }
        skv_engine_close(engine);
    }
    assert_true(sum.drafted > cases_of(1000, 50) && (few_cases() || sum.accepted > 0) &&
                sum.accepted < sum.drafted);
}

/* Several sequences at once are drafted for as each of them alone: prompts of several lengths in
 * one step, and drafts that are checked, right or wrong. */
static void test_together(void **state)
{
    (void)state;
    enum { N = 3, N_STEPS = 8 };
    skv_engine_options options = options_for_mtp();
    options.kv_tokens = 8 * 256;
    options.kv_sequences = 8;
    options.batch_invariant = true;
    skv_engine *engine = open_or_fail(MODEL, &options);
    int32_t ids[N_PROMPT], out[N][SKV_DRAFT_MAX], alone[SKV_DRAFT_MAX];
    skv_sequence *s[N], *one[N];
    skv_span spans[N];
    skv_draft_request requests[N];
    size_t lengths[N], n_drafted = 0;
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    for (size_t i = 0; i < N; i++) {
        s[i] = new_sequence(engine);
        one[i] = new_sequence(engine);
        spans[i] = (skv_span){s[i], ids, 20 * i + 1, SKV_WANT_NONE};
        const skv_span own = {one[i], ids, 20 * i + 1, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &own, 1, NULL, NULL, NULL), SKV_OK);
    }
    assert_int_equal(skv_step(engine, spans, N, NULL, NULL, NULL), SKV_OK);
    for (int32_t step = 0; step < N_STEPS; step++) {
        int32_t draft[N][1 + SKV_DRAFT_MAX];
        for (size_t i = 0; i < N; i++) {
            requests[i] = (skv_draft_request){s[i], step + (int32_t)i, out[i], N_DRAFTED, 99};
        }
        skv_sequences_draft(requests, N);
        for (size_t i = 0; i < N; i++) {
            const size_t n = skv_sequence_draft(one[i], step + (int32_t)i, alone, N_DRAFTED);
            assert_int_equal(requests[i].n, n);
            n_drafted += n;
            lengths[i] = n;
            assert_memory_equal(out[i], alone, n * sizeof *alone);
            draft[i][0] = step + (int32_t)i;
            memcpy(draft[i] + 1, alone, n * sizeof *alone);
            spans[i] = (skv_span){s[i], draft[i], 1 + n, SKV_WANT_DRAFTED};
            const skv_span own = {one[i], draft[i], 1 + n, SKV_WANT_DRAFTED};
            assert_int_equal(skv_step(engine, &own, 1, NULL, NULL, NULL), SKV_OK);
        }
        assert_int_equal(skv_step(engine, spans, N, NULL, NULL, NULL), SKV_OK);
        for (size_t i = 0; i < N; i++) {
            skv_sequence_settle(s[i], lengths[i], (size_t)step % (lengths[i] + 1));
            skv_sequence_settle(one[i], lengths[i], (size_t)step % (lengths[i] + 1));
        }
    }
    assert_true(n_drafted > N * N_STEPS);
    for (size_t i = 0; i < N; i++) {
        skv_sequence_free(s[i]);
        skv_sequence_free(one[i]);
    }
    skv_engine_close(engine);
}

/* Where tokens have no h, the head begins anew: a beginning that is shared, a draft that was made
 * for another token, one that is thrown away, a step that was cancelled. */
static void test_gaps(void **state)
{
    (void)state;
    skv_engine_options options = options_for_mtp();
    skv_engine *engine = open_or_fail(MODEL, &options);
    int32_t ids[N_PROMPT], out[SKV_DRAFT_MAX], other[SKV_DRAFT_MAX];
    skv_sequence *s = new_sequence(engine), *copy = new_sequence(engine);
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    const skv_span first = {s, ids, 50, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &first, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_share(copy, s, 50, NULL), SKV_OK);
    assert_int_equal(skv_sequence_draft(copy, ids[50], out, 3), 0);
    skv_cancel(engine);
    const skv_span next = {s, ids + 50, 1, SKV_WANT_LAST}, its = {copy, ids + 50, 1, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &next, 1, NULL, NULL, NULL), SKV_CANCELLED);
    assert_int_equal(skv_sequence_draft(s, ids[50], out, 3), 3);
    assert_int_equal(skv_sequence_draft(s, ids[51], other, 3), 0);
    assert_int_equal(skv_step(engine, &next, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_step(engine, &its, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(s->drafter->mtp.first, 0);
    assert_int_equal(copy->drafter->mtp.first, 50);
    assert_int_equal(skv_sequence_draft(s, ids[51], out, 3), 3);
    assert_int_equal(skv_sequence_draft(copy, ids[51], other, 3), 3);
    const skv_span wrong = {s, ids + 60, 2, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &wrong, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(s->drafter->mtp.first, 51); /* its last row was made with another token */
    assert_int_equal(skv_sequence_draft(s, ids[62], out, 3), 3);
    skv_sequence_truncate(s, 0);
    assert_int_equal(s->drafter->mtp.n, 0);
    assert_int_equal(skv_step(engine, &first, 1, NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_draft(s, ids[50], out, 3), 3);
    skv_sequence_free(s);
    skv_sequence_free(copy);
    skv_engine_close(engine);
}

static void expect_refusal(const char *path, const skv_engine_options *options, const char *why)
{
    skv_engine *engine = NULL;
    skv_error err;
    assert_int_equal(skv_engine_open(path, options, &engine, &err), SKV_UNSUPPORTED);
    if (!strstr(err.text, why)) fail_msg("%s: expected %s", err.text, why);
}

static void test_refusals(void **state)
{
    (void)state;
    skv_error err;
    skv_engine_options options = options_for_mtp();
    expect_refusal(MODELS "qwen3-5", &options, "the model has no MTP head");
    expect_refusal(MODELS "llama3-v5", &options, "MTP");
    options.draft_model = MODEL;
    expect_refusal(MODEL, &options, "not beside a draft model");
    options.speculation.source = SKV_DRAFT_NONE;
    options.mtp = true;
    expect_refusal(MODEL, &options, "not beside a draft model");
    options = options_for_drafts();
    options.draft_tokens = 8;
    skv_engine *engine = open_or_fail(MODEL, &options);
    skv_sequence *s = new_sequence(engine);
    const skv_speculation how = {SKV_DRAFT_MTP, 3, 0};
    assert_int_equal(skv_sequence_set_speculation(s, &how, &err), SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "was not loaded"));
    skv_sequence_free(s);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_says_what_the_formula_says),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
