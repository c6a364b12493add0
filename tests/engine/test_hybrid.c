/*
 * Models some of whose layers keep a state instead of keys and values: that a row's results do not
 * depend on how its sequence is cut into steps, to the bit; shared beginnings, truncation, states
 * that are used again; what is counted; and what is refused, with the reason. Log-probabilities of
 * every family are test_models'.
 * Labels: threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "open_engine.h"
#include "property_seed.h"
#include "skv/combine.h"
#include "skv/inspect.h"
#include "skv/skv.h"
#include "skv/tools.h"
#include "span_logits.h"

#define MODELS SKV_TEST_DATA "/models/"

static const char *const models[] = {MODELS "qwen3-5",
                                     MODELS "qwen3-5-moe",
                                     MODELS "qwen3-next",
                                     MODELS "lfm2-v5",
                                     MODELS "qwen3-5-gguf/model.gguf",
                                     MODELS "granite-h",
                                     MODELS "granite-h-moe",
                                     MODELS "lfm2-moe",
                                     MODELS "nemotron-h",
                                     MODELS "nemotron-h-latent",
                                     MODELS "falcon-h1",
                                     MODELS "olmo-hybrid",
                                     MODELS "qwen3-5-swiftkv",
                                     MODELS "qwen3-5-swiftkv-wide-keys",
                                     MODELS "granite-h-swiftkv"};

enum {
    N_IDS = 150,
    N_MODELS = sizeof models / sizeof models[0],
    N_SWIFTKV = 3 /* of them, the last: in SwiftKV form */
};

static skv_engine_options hybrid_options(void)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = 192;
    options.kv_tokens = 3 * 192;
    options.step_tokens = 160;
    options.batch_invariant = true;
    return options;
}

static void make_ids(int32_t ids[N_IDS])
{
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + i * i % 11 + 5) % 90;
}

/* Logits behind the next n tokens. */
static void read(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n,
                 span_logits *out)
{
    const skv_span span = {s, ids, n, SKV_WANT_LAST};
    skv_error err;
    out->vocab = skv_engine_vocab(engine);
    if (skv_step(engine, &span, 1, span_logits_take, out, &err) != SKV_OK) fail_msg("%s", err.text);
}

static void assert_same(const span_logits *a, size_t i, const span_logits *b, size_t j)
{
    assert_memory_equal(a->rows[i], b->rows[j], a->vocab * sizeof(float));
}

/* Steps of several sizes, repeated until all tokens are read, give what one step gives, whatever
 * runs beside them. `want` becomes its logits. */
static void check_cuts(const char *path, const skv_engine_options *options, span_logits *want)
{
    static const size_t sizes[][4] = {{1, 0},  {2, 0},  {3, 0},         {5, 0},       {63, 0},
                                      {64, 0}, {65, 0}, {7, 100, 1, 0}, {64, 1, 2, 0}};
    static span_logits got;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine *engine = open_or_fail(path, options);
    skv_sequence *whole = new_sequence(engine);
    read(engine, whole, ids, N_IDS, want);
    skv_sequence_free(whole);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k += one_case_of(4)) {
        skv_sequence *s = new_sequence(engine), *beside = new_sequence(engine);
        got.vocab = want->vocab;
        for (size_t done = 0, i = 0, n; done < N_IDS; done += n) {
            i = sizes[k][i] ? i : 0;
            n = N_IDS - done < sizes[k][i] ? N_IDS - done : sizes[k][i];
            i++;
            const skv_span spans[] = {{beside, ids, 1, SKV_WANT_NONE},
                                      {s, ids + done, n, SKV_WANT_LAST}};
            const bool alone = done % 2 == 0 || skv_sequence_length(beside) > 100;
            assert_int_equal(
                skv_step(engine, spans + alone, alone ? 1 : 2, span_logits_take, &got, NULL),
                SKV_OK);
            if (done + n == N_IDS) assert_same(&got, alone ? 0 : 1, want, 0);
        }
        skv_sequence_free(s);
        skv_sequence_free(beside);
    }
    skv_engine_close(engine);
}

static void test_cuts_change_no_bit(void **state)
{
    (void)state;
    static span_logits want;
    const skv_engine_options options = hybrid_options();
    for (size_t m = 0; m < N_MODELS; m += one_case_of(5)) check_cuts(models[m], &options, &want);
}

/* States in bf16 are smaller by half of their matrices, give nearly the same logits and, however
 * the sequence is cut, the same bits. */
static void test_states_in_bf16(void **state)
{
    (void)state;
    static const char *const paths[] = {MODELS "qwen3-5", MODELS "granite-h",
                                        MODELS "qwen3-5-swiftkv"};
    static span_logits want, got;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < sizeof paths / sizeof *paths; m++) {
        skv_engine_options options = hybrid_options();
        skv_engine_stats stats, small;
        skv_model_info info;
        assert_int_equal(skv_model_info_read(paths[m], &info, NULL), SKV_OK);
        skv_engine *engine = open_or_fail(paths[m], &options);
        skv_sequence *s = new_sequence(engine);
        skv_engine_get_stats(engine, &stats);
        read(engine, s, ids, N_IDS, &want);
        skv_sequence_free(s);
        skv_engine_close(engine);
        options.state = SKV_STATE_BF16;
        engine = open_or_fail(paths[m], &options);
        skv_engine_get_stats(engine, &small);
        skv_engine_close(engine);
        assert_int_equal(small.state, SKV_STATE_BF16);
        assert_true(stats.state_bytes - small.state_bytes >= info.matrix_bytes / 2);
        check_cuts(paths[m], &options, &got);
        double off = 0, size = 0;
        for (size_t i = 0; i < want.vocab; i++) {
            const double x = (double)want.rows[0][i], d = (double)got.rows[0][i] - x;
            off += d * d;
            size += x * x;
        }
        assert_true(off > 0 && off < size * 1e-4);
    }
}

/* Two sequences go on from one beginning, which goes on too; a copy ends where the state stands,
 * or is empty. */
static void test_shared_beginnings(void **state)
{
    (void)state;
    static span_logits want, got;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < N_MODELS; m += one_case_of(5)) {
        skv_engine_options options = hybrid_options();
        skv_engine *engine = open_or_fail(models[m], &options);
        skv_sequence *first = new_sequence(engine), *second = new_sequence(engine);
        read(engine, first, ids, 70, &want);
        assert_int_equal(skv_sequence_share(second, first, 69, NULL), SKV_OK);
        assert_int_equal(skv_sequence_length(second), 0);
        assert_int_equal(skv_sequence_share(second, first, 70, NULL), SKV_OK);
        assert_int_equal(skv_sequence_length(second), 70);
        read(engine, first, ids + 100, 20, &got); /* another text, which must not be seen */
        read(engine, second, ids + 70, N_IDS - 70, &got);
        skv_sequence_free(first);
        first = new_sequence(engine);
        read(engine, first, ids, N_IDS, &want);
        assert_same(&got, 0, &want, 0);
        skv_sequence_free(first);
        skv_sequence_free(second);
        skv_engine_close(engine);
    }
}

/* Tokens cannot be taken back out of a state: the sequence is empty, and can be read again. */
static void test_truncation(void **state)
{
    (void)state;
    static span_logits want, got;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine_options options = hybrid_options();
    skv_engine *engine = open_or_fail(models[0], &options);
    skv_sequence *s = new_sequence(engine);
    read(engine, s, ids, 70, &want);
    assert_int_equal(skv_sequence_truncate(s, 70), 70);
    assert_int_equal(skv_sequence_truncate(s, 64), 0);
    assert_int_equal(skv_sequence_length(s), 0);
    read(engine, s, ids, 70, &got);
    assert_same(&got, 0, &want, 0);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

/* A step that is refused or cancelled leaves the state as it was. */
static void test_failed_steps_change_nothing(void **state)
{
    (void)state;
    static span_logits want, got;
    int32_t ids[N_IDS], bad[] = {3, 9999};
    make_ids(ids);
    skv_engine_options options = hybrid_options();
    skv_engine *engine = open_or_fail(models[0], &options);
    skv_sequence *s = new_sequence(engine), *other = new_sequence(engine);
    read(engine, other, ids, 90, &want);
    read(engine, s, ids, 50, &got);
    skv_span span = {s, bad, 2, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_RANGE);
    span = (skv_span){s, ids + 50, 40, SKV_WANT_LAST};
    skv_cancel(engine);
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_CANCELLED);
    assert_int_equal(skv_sequence_length(s), 50);
    read(engine, s, ids + 50, 40, &got);
    assert_same(&got, 0, &want, 0);
    skv_sequence_free(s);
    skv_sequence_free(other);
    skv_engine_close(engine);
}

/* Each sequence has a state, of which there are as many as was said; one that is given back is used
 * again without a trace, and its memory is counted. */
static void test_states_are_counted(void **state)
{
    (void)state;
    static span_logits want, got;
    int32_t ids[N_IDS];
    skv_engine_stats stats;
    skv_memory_plan plan;
    skv_model_info info;
    skv_error err;
    make_ids(ids);
    skv_engine_options options = hybrid_options();
    options.kv_sequences = 2;
    assert_int_equal(skv_memory_plan_make(models[0], &options, 0, &plan, &err), SKV_OK);
    assert_int_equal(skv_model_info_read(models[0], &info, &err), SKV_OK);
    skv_engine *engine = open_or_fail(models[0], &options);
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.states, 2);
    assert_int_equal(stats.states_free, 2);
    assert_int_equal(plan.kv_bytes, stats.kv_bytes_max);
    assert_true(plan.state_bytes >= 2 * info.state_bytes);
    assert_true(stats.state_bytes >= info.state_bytes && stats.kv_bytes == 0);
    assert_int_equal(info.state_layers, 4);
    assert_int_equal(info.kv_slots, 2);
    assert_int_equal(info.traits.kind, SKV_MODEL_HYBRID);
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine), *c = NULL;
    assert_int_equal(skv_sequence_create(engine, 0, &c, &err), SKV_FULL);
    assert_non_null(strstr(err.text, "states: all 2 are in use"));
    assert_int_equal(skv_sequence_kv_bytes(a), stats.state_bytes);
    read(engine, a, ids, 100, &want);
    read(engine, b, ids + 20, 100, &got);
    skv_sequence_free(b);
    b = new_sequence(engine);
    read(engine, b, ids, 100, &got);
    assert_same(&got, 0, &want, 0);
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.states_free, 0);
    skv_sequence_free(a);
    skv_sequence_free(b);
    skv_engine_close(engine);
}

/* What `info` says a token costs is what the steps count. */
static void test_work_is_what_info_says(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < N_MODELS - N_SWIFTKV; m++) {
        skv_engine_options options = hybrid_options();
        options.no_skip = true;
        skv_engine *engine = open_or_fail(models[m], &options);
        skv_sequence *s = new_sequence(engine);
        const skv_span span = {s, ids, N_IDS, SKV_WANT_ALL};
        skv_model_info info;
        skv_cost cost;
        assert_int_equal(skv_model_info_read(models[m], &info, NULL), SKV_OK);
        assert_int_equal(skv_model_cost(models[m], info.layers, 1, N_IDS, &cost, NULL), SKV_OK);
        assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
        const skv_work work = skv_engine_get_work(engine);
        assert_float_equal((float)(work.total / N_IDS / cost.total), 1, 1e-6);
        assert_float_equal((float)(work.model / work.total), 1, 1e-6);
        assert_float_equal((float)(work.kv / N_IDS / cost.kv), 1, 1e-6);
        assert_float_equal((float)(work.attention / N_IDS / cost.attention), 1, 1e-6);
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
}

/* ---- SwiftKV ---- */

/* Reads the text in chunks of `size`, the last of them wanted, beside a sequence that decodes.
 * Gives the logits, and those behind the next token, which reads the states. */
static void read_in_chunks(skv_engine *engine, const int32_t *ids, size_t size, span_logits *last,
                           span_logits *next)
{
    static span_logits got;
    skv_sequence *s = new_sequence(engine), *beside = new_sequence(engine);
    got.vocab = skv_engine_vocab(engine);
    for (size_t at = 0, n; at + 1 < N_IDS; at += n) {
        n = N_IDS - 1 - at < size ? N_IDS - 1 - at : size;
        const skv_span spans[] = {
            {s, ids + at, n, at + n + 1 < N_IDS ? SKV_WANT_NONE : SKV_WANT_LAST},
            {beside, ids + at / size % 7, 1, SKV_WANT_LAST}};
        assert_int_equal(skv_step(engine, spans, 2, span_logits_take, &got, NULL), SKV_OK);
    }
    *last = got;
    read(engine, s, ids + N_IDS - 1, 1, next);
    skv_sequence_free(s);
    skv_sequence_free(beside);
}

/* To the bit: rows that stopped at the boundary have left the states that rows leave which run
 * every layer, whatever the chunks. */
static void test_skip_equals_no_skip(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 63, 64, 65, N_IDS};
    static span_logits want, want_next, got, got_next;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = N_MODELS - N_SWIFTKV; m < N_MODELS; m += one_case_of(2)) {
        skv_engine_options options = hybrid_options();
        options.prefill = SKV_PREFILL_SWIFTKV_FULL;
        skv_engine *engine = open_or_fail(models[m], &options);
        read_in_chunks(engine, ids, N_IDS, &want, &want_next);
        skv_engine_close(engine);
        options.prefill = SKV_PREFILL_SWIFTKV;
        engine = open_or_fail(models[m], &options);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k += one_case_of(4)) {
            read_in_chunks(engine, ids, sizes[k], &got, &got_next);
            assert_same(&got, 0, &want, 0);
            assert_same(&got_next, 0, &want_next, 0);
        }
        skv_engine_close(engine);
    }
}

/* With bf16 and int8 weights, where rows of a product are rounded together, and with states in
 * bf16, too. */
static void test_skip_with_rounded_weights(void **state)
{
    (void)state;
    static const skv_weights types[] = {SKV_WEIGHTS_BF16, SKV_WEIGHTS_INT8};
    static span_logits want, want_next, got, got_next;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t k = 0; k < 3; k++) {
        skv_engine_options options = hybrid_options();
        options.weights = types[k / 2];
        options.state = k == 1 ? SKV_STATE_BF16 : SKV_STATE_F32;
        options.prefill = SKV_PREFILL_SWIFTKV_FULL;
        skv_engine *engine = open_or_fail(models[N_MODELS - N_SWIFTKV], &options);
        read_in_chunks(engine, ids, N_IDS, &want, &want_next);
        skv_engine_close(engine);
        options.prefill = SKV_PREFILL_SWIFTKV;
        engine = open_or_fail(models[N_MODELS - N_SWIFTKV], &options);
        read_in_chunks(engine, ids, 7, &got, &got_next);
        assert_same(&got, 0, &want, 0);
        assert_same(&got_next, 0, &want_next, 0);
        skv_engine_close(engine);
    }
}

/* A prompt whose rows stop costs what `info` says, and the last rows' part of q's convolutions: K
 * - 1 rows of q in each layer above the boundary that keeps a state. No block above it runs. */
static void test_skipped_work(void **state)
{
    (void)state;
    static const struct {
        size_t n_fed, taps, hidden, keys;
    } shapes[N_SWIFTKV] = {{3, 4, 32, 16}, {2, 2, 32, 40}, {3, 3, 32, 12}};
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t k = 0; k < N_SWIFTKV; k++) {
        const char *path = models[N_MODELS - N_SWIFTKV + k];
        skv_engine_options options = hybrid_options();
        skv_engine *engine = open_or_fail(path, &options);
        skv_sequence *s = new_sequence(engine);
        skv_model_info info, model;
        skv_cost cost, whole;
        skv_error err;
        assert_int_equal(skv_model_info_read(path, &info, &err), SKV_OK);
        assert_int_equal(info.traits.kind, SKV_MODEL_HYBRID_SWIFTKV);
        const size_t l = info.swiftkv_layers;
        if (skv_model_info_swiftkv(path, l, 1, &model, &err) != SKV_OK) fail_msg("%s", err.text);
        assert_int_equal(model.parameters, info.parameters);
        assert_int_equal(model.state_bytes, info.state_bytes);
        assert_int_equal(skv_model_cost(path, l, 1, N_IDS, &cost, &err), SKV_OK);
        assert_int_equal(skv_model_cost(path, info.layers, 1, N_IDS, &whole, &err), SKV_OK);
        const skv_span span = {s, ids, N_IDS, SKV_WANT_NONE};
        assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, NULL), SKV_OK);
        const skv_work work = skv_engine_get_work(engine);
        const double taps = 2.0 * (double)(shapes[k].n_fed * (shapes[k].taps - 1) *
                                           shapes[k].hidden * shapes[k].keys);
        assert_float_equal((float)(work.kv / N_IDS / cost.kv), 1, 1e-6);
        assert_float_equal((float)((work.q - taps) / N_IDS / cost.q), 1, 1e-6);
        assert_float_equal((float)(work.attention / N_IDS / cost.attention), 1, 1e-6);
        assert_float_equal((float)(work.o / N_IDS / cost.o), 1, 1e-6);
        assert_float_equal((float)(work.mlp / N_IDS / cost.mlp), 1, 1e-6);
        assert_int_equal(work.mlp_blocks, N_IDS * l);
        assert_true(cost.total < 0.8 * whole.total);
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
}

/* A step has sequences of the model and of its teacher, whose states are apart. */
static void test_teacher_beside(void **state)
{
    (void)state;
    static span_logits alone[2], both;
    int32_t ids[N_IDS];
    make_ids(ids);
    skv_engine_options options = hybrid_options();
    options.with_teacher = true;
    options.kv_tokens = 5 * 192;
    options.kv_sequences = 4;
    skv_engine *engine = open_or_fail(models[N_MODELS - N_SWIFTKV], &options);
    skv_sequence *s[4];
    for (size_t i = 0; i < 4; i++) {
        const skv_prefill prefill = i % 2 == 1 ? SKV_PREFILL_TEACHER : SKV_PREFILL_AUTO;
        assert_int_equal(skv_sequence_create_as(engine, prefill, 0, &s[i], NULL), SKV_OK);
    }
    read(engine, s[0], ids, N_IDS, &alone[0]);
    read(engine, s[1], ids, N_IDS, &alone[1]);
    assert_memory_not_equal(alone[0].rows[0], alone[1].rows[0], alone[0].vocab * sizeof(float));
    const skv_span spans[] = {{s[2], ids, N_IDS / 2, SKV_WANT_NONE},
                              {s[3], ids, N_IDS / 2, SKV_WANT_NONE}};
    const skv_span rest[] = {{s[2], ids + N_IDS / 2, N_IDS - N_IDS / 2, SKV_WANT_LAST},
                             {s[3], ids + N_IDS / 2, N_IDS - N_IDS / 2, SKV_WANT_LAST}};
    both.vocab = alone[0].vocab;
    assert_int_equal(skv_step(engine, spans, 2, span_logits_take, &both, NULL), SKV_OK);
    assert_int_equal(skv_step(engine, rest, 2, span_logits_take, &both, NULL), SKV_OK);
    assert_same(&both, 0, &alone[0], 0);
    assert_same(&both, 1, &alone[1], 0);
    for (size_t i = 0; i < 4; i++) skv_sequence_free(s[i]);
    skv_engine_close(engine);
}

static void expect_refusal(const skv_engine_options *options, const char *why)
{
    skv_engine *engine = NULL;
    skv_error err = {0};
    assert_int_equal(skv_engine_open(models[0], options, &engine, &err), SKV_UNSUPPORTED);
    if (!strstr(err.text, why)) fail_msg("%s, expected %s", err.text, why);
}

/* A layer without keys and values has no rows to tell of; one that has them beside a state has. */
static void test_layers_without_rows(void **state)
{
    (void)state;
    static const struct {
        const char *path, *has_rows; /* by layer */
    } cases[] = {{MODELS "qwen3-5", "001010"},
                 {MODELS "nemotron-h", "0001000"},
                 {MODELS "falcon-h1", "111"},
                 {MODELS "lfm2-moe", "00101"}};
    static span_logits out;
    int32_t ids[N_IDS];
    make_ids(ids);
    for (size_t m = 0; m < sizeof cases / sizeof *cases; m++) {
        skv_engine_options options = hybrid_options();
        skv_engine *engine = open_or_fail(cases[m].path, &options);
        skv_sequence *s = new_sequence(engine);
        skv_kv_shape shape;
        size_t positions[4];
        read(engine, s, ids, 9, &out);
        for (size_t i = 0; cases[m].has_rows[i]; i++) {
            const bool has = cases[m].has_rows[i] == '1';
            assert_int_equal(skv_sequence_kv_shape(s, i, &shape), has);
            assert_int_equal(skv_sequence_kept(s, i, 0, positions, 4), has ? 9 : 0);
        }
        assert_false(skv_sequence_kv_shape(s, strlen(cases[m].has_rows), &shape));
        skv_sequence_free(s);
        skv_engine_close(engine);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    skv_engine_options options = hybrid_options();
    options.pruning = (skv_pruning){.kind = SKV_PRUNE_RANDOM, .keep = 0.5};
    expect_refusal(&options, "a state cannot take tokens back");
    options = hybrid_options();
    options.prefill = SKV_PREFILL_MERGED;
    expect_refusal(&options, "layers with states have none");
    options = hybrid_options();
    options.prefill = SKV_PREFILL_SWIFTKV;
    expect_refusal(&options, "no SwiftKV weights");
    options = hybrid_options();
    options.state = (skv_state_type)9;
    skv_engine *none;
    skv_error bad;
    assert_int_equal(skv_engine_open(models[0], &options, &none, &bad), SKV_RANGE);
    options.state = SKV_STATE_BF16;
    assert_int_equal(skv_engine_open(MODELS "lfm2-v5", &options, &none, &bad), SKV_UNSUPPORTED);
    assert_non_null(strstr(bad.text, "state bf16: no layer of this model keeps a matrix"));
    options = hybrid_options();
    options.prompt_only = true;
    expect_refusal(&options, "an answer needs the states too");
    skv_model_info info;
    skv_error err;
    static const struct {
        const char *model, *why;
        size_t l, g;
    } forms[] = {{MODELS "qwen3-5", "only 1 fits layers that keep a state", 2, 2},
                 {MODELS "lfm2-v5", "a short convolution alone", 3, 1},
                 {MODELS "falcon-h1", "attention beside a state", 1, 1},
                 {MODELS "olmo-hybrid", "SwiftKV needs a norm before attention", 3, 1},
                 {MODELS "qwen3-5-gguf/model.gguf", "not written from a GGUF file", 2, 1}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *path = forms[i].model;
        const bool gguf = strstr(path, "gguf"); /* which could have the form */
        assert_int_equal(skv_transform(path, "/nonexistent", forms[i].l, forms[i].g, &err),
                         SKV_UNSUPPORTED);
        if (!strstr(err.text, forms[i].why)) fail_msg("%s, expected %s", err.text, forms[i].why);
        assert_int_equal(skv_model_info_swiftkv(path, forms[i].l, forms[i].g, &info, &err),
                         gguf ? SKV_OK : SKV_UNSUPPORTED);
    }
    options = hybrid_options();
    options.early_exit = 0.9;
    skv_engine *engine;
    assert_int_equal(skv_engine_open(models[N_MODELS - 1], &options, &engine, &err),
                     SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no exit head"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts_change_no_bit),
        cmocka_unit_test(test_states_in_bf16),
        cmocka_unit_test(test_shared_beginnings),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_failed_steps_change_nothing),
        cmocka_unit_test(test_states_are_counted),
        cmocka_unit_test(test_work_is_what_info_says),
        cmocka_unit_test(test_layers_without_rows),
        cmocka_unit_test(test_skip_equals_no_skip),
        cmocka_unit_test(test_skip_with_rounded_weights),
        cmocka_unit_test(test_skipped_work),
        cmocka_unit_test(test_teacher_beside),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("hybrid", tests, NULL, NULL);
}
