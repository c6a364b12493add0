/*
 * Every architecture against an independent implementation (tools/oracle): log-probabilities
 * within 1e-3 in f32, the same most likely tokens, the same greedy text; SwiftKV files as student
 * and as teacher; and that skipping changes nothing, whatever the chunks and the batch.
 * Labels: threads
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"
#include "kernels/cpu.h"
#include "skv/skv.h"
#include "skv/tools.h"
#include "tested_level.h"

static golden *all;
static size_t n_all;

static int load(void **state)
{
    (void)state;
    all = golden_load_all(&n_all);
    return n_all == 0;
}

static int unload(void **state)
{
    (void)state;
    golden_free_all(all, n_all);
    return 0;
}

static skv_engine_options f32_options(skv_prefill prefill, size_t step_tokens)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.prefill = prefill;
    options.context = 96;
    options.kv_tokens = 3 * 96;
    options.step_tokens = step_tokens;
    return options;
}

static skv_engine *open_with(const golden *g, const skv_engine_options *options)
{
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(g->path, options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_engine *open_engine(const golden *g, skv_prefill prefill, size_t step_tokens)
{
    skv_engine_options options = f32_options(prefill, step_tokens);
    return open_with(g, &options);
}

static void check_scores(const golden *g, skv_engine *engine, const golden_case *c,
                         const golden_result *want)
{
    double logprobs[128];
    int32_t argmax[128];
    skv_error err;
    if (skv_score(engine, c->ids, c->n, logprobs, argmax, &err) != SKV_OK) fail_msg("%s", err.text);
    for (size_t t = 0; t < c->n; t++) {
        if (t > 0 && !(fabs(logprobs[t] - want->logprobs[t]) <= 1e-3)) {
            fail_msg("%s, %zu ids: logprobs[%zu] %.6f, expected %.6f", g->name, c->n, t,
                     logprobs[t], want->logprobs[t]);
        }
        if (argmax[t] != want->argmax[t]) {
            fail_msg("%s, %zu ids: argmax[%zu] %d, expected %d", g->name, c->n, t, argmax[t],
                     want->argmax[t]);
        }
    }
}

typedef struct collected {
    int32_t ids[64];
    size_t n;
} collected;

static bool collect(void *user, int32_t id)
{
    collected *c = user;
    c->ids[c->n++] = id;
    return true;
}

static void check_greedy(const golden *g, skv_engine *engine, const golden_case *c,
                         const golden_result *want)
{
    skv_error err;
    skv_sequence *sequence;
    skv_sampler *sampler;
    skv_sampling sampling = skv_sampling_default();
    collected got = {.n = 0};
    skv_generation generation = {
        .max_tokens = want->n_greedy, .ignore_eos = true, .on_token = collect, .user = &got};
    assert_int_equal(skv_sequence_create(engine, c->n + want->n_greedy, &sequence, &err), SKV_OK);
    assert_int_equal(skv_sampler_create(&sampling, skv_engine_vocab(engine), &sampler, &err),
                     SKV_OK);
    generation.sampler = sampler;
    skv_status status = skv_generate(engine, sequence, c->ids, c->n, &generation, &err);
    if (status != SKV_OK) fail_msg("%s: %s", g->name, err.text);
    assert_int_equal(got.n, want->n_greedy);
    for (size_t i = 0; i < got.n; i++) {
        if (got.ids[i] != want->greedy[i]) {
            fail_msg("%s, %zu ids: greedy[%zu] %d, expected %d", g->name, c->n, i, got.ids[i],
                     want->greedy[i]);
        }
    }
    skv_sampler_free(sampler);
    skv_sequence_free(sequence);
}

static void check_model(const golden *g, skv_prefill prefill, bool teacher)
{
    skv_engine *engine = open_engine(g, prefill, 0);
    for (size_t i = 0; i < g->n_cases; i++) {
        const golden_result *want = teacher ? &g->cases[i].teacher : &g->cases[i].own;
        if (!want->logprobs) continue;
        check_scores(g, engine, &g->cases[i], want);
        check_greedy(g, engine, &g->cases[i], want);
    }
    skv_engine_close(engine);
}

static void test_every_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_all; i++) check_model(&all[i], SKV_PREFILL_AUTO, false);
}

static void test_every_teacher(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < n_all; i++) {
        if (!all[i].cases[0].teacher.logprobs) continue;
        check_model(&all[i], SKV_PREFILL_TEACHER, true);
        n++;
    }
    assert_true(n > 0);
}

static const golden *find_golden(const char *name)
{
    for (size_t i = 0; i < n_all; i++) {
        if (strcmp(all[i].name, name) == 0) return &all[i];
    }
    fail_msg("%s is not there", name);
    return NULL;
}

/* ---- quantised files ---- */

/* The mean distance of the log-probabilities from the oracle's. */
static double mean_distance(const golden *g, const skv_engine_options *options)
{
    skv_engine *engine = open_with(g, options);
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < g->n_cases; i++) {
        const golden_case *c = &g->cases[i];
        double logprobs[128];
        int32_t argmax[128];
        skv_error err;
        assert_int_equal(skv_score(engine, c->ids, c->n, logprobs, argmax, &err), SKV_OK);
        for (size_t t = 1; t < c->n; t++, n++) sum += fabs(logprobs[t] - c->own.logprobs[t]);
    }
    skv_engine_close(engine);
    return sum / (double)n;
}

/* Scores and greedy text with the file's codes and f32 activations. */
static void check_codes(const golden *g, const skv_engine_options *options)
{
    skv_engine *engine = open_with(g, options);
    for (size_t j = 0; j < g->n_cases; j++) {
        check_scores(g, engine, &g->cases[j], &g->cases[j].own);
        check_greedy(g, engine, &g->cases[j], &g->cases[j].own);
    }
    skv_engine_close(engine);
}

/* Codes with scales of their own: of 8 bits, and of 4 in groups of 32, 64, 128 and whole rows,
 * with zero points and without, with every level of kernels. */
static void test_codes_of_folders(void **state)
{
    (void)state;
    static const char *const names[] = {
        "int8-row", "int4-zeros", "int4-64",  "int4-128-zeros", "awq",
        "awq-128",  "gptq",       "gptq-128", "mixtral-int4",   "qwen3-moe-gptq"};
    for (int level = SKV_CPU_LEVEL_REF; level <= SKV_CPU_LEVEL_NEON; level++) {
        if (!tested_level((skv_cpu_level)level)) continue;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            skv_engine_options options = f32_options(SKV_PREFILL_AUTO, 0);
            options.cpu = skv_cpu_level_name((skv_cpu_level)level);
            options.weights = SKV_WEIGHTS_FILE;
            options.kv = SKV_KV_F32;
            options.f32_activations = true;
            check_codes(find_golden(names[i]), &options);
        }
    }
}

/* With activations of 8 bits, which is what runs by default, codes that are kept stay nearer to the
 * oracle than the same weights rounded to int8, with every level of kernels. */
static void test_wide_groups_with_int8_rows(void **state)
{
    (void)state;
    static const char *const names[] = {"int4-64", "int4-128-zeros", "awq-128", "gptq-128"};
    for (int level = SKV_CPU_LEVEL_REF; level <= SKV_CPU_LEVEL_NEON; level++) {
        if (!tested_level((skv_cpu_level)level)) continue;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const golden *g = find_golden(names[i]);
            skv_engine_options options = f32_options(SKV_PREFILL_AUTO, 0);
            options.cpu = skv_cpu_level_name((skv_cpu_level)level);
            options.kv = SKV_KV_F32;
            options.weights = SKV_WEIGHTS_FILE;
            const double kept = mean_distance(g, &options);
            options.weights = SKV_WEIGHTS_INT8;
            const double rounded = mean_distance(g, &options);
            print_message("%s, %s: codes %.4f nats, int8 %.4f\n", g->name, options.cpu, kept,
                          rounded);
            assert_true(kept < rounded);
        }
    }
}

/* What tokens' embeddings add in a layer (Gemma 4) has 8 bits in `int4` too: of this file those
 * products alone are no codes yet, and in 4 bits they would cost twice what int8 does. */
static void test_embeddings_of_layers_in_8_bits(void **state)
{
    (void)state;
    skv_engine_options options = f32_options(SKV_PREFILL_AUTO, 0);
    options.kv = SKV_KV_F32;
    options.weights = SKV_WEIGHTS_INT8;
    const double rounded = mean_distance(find_golden("gemma4-gguf"), &options);
    options.weights = SKV_WEIGHTS_INT4;
    const double kept = mean_distance(find_golden("gemma4-gguf"), &options);
    print_message("gemma4-gguf: int4 %.4f nats, int8 %.4f\n", kept, rounded);
    assert_true(kept < rounded);
}

/* What `info` says of the weights in a file. */
static void test_codes_are_told(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"fp8-tensor", "fp8, one scale a matrix: held as bf16 or int8, which rounds them"},
        {"fp8-row-swiftkv", "fp8, one scale a row: held as bf16 or int8, which rounds them"},
        {"fp8-block", "fp8 in blocks of 16x16: held as bf16 or int8, which rounds them"},
        {"int8-row", "int8, one scale a row: held as published"},
        {"int4-zeros", "int4 in groups of 32 with zero points: held as published"},
        {"int4-64", "int4 in groups of 64: held as published"},
        {"awq", "AWQ int4 in groups of 32 with zero points: held as published"},
        {"awq-128", "AWQ int4 in groups of 128 with zero points: held as published; AWQ int4, one "
                    "scale a row with zero points: held as published"},
        {"gptq-64-order", "GPTQ int4 in groups of 64 with zero points, columns in another order: "
                          "held as bf16 or int8, which rounds them"},
        {"gptq-order-swiftkv", "GPTQ int4 in groups of 32 with zero points, columns in another "
                               "order: held as bf16 or int8, which rounds them"},
        {"gpt-oss-mxfp4", "MXFP4 in groups of 32: held as published"},
        {"llama-mha", ""},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        skv_model_info info;
        skv_error err;
        const golden *g = find_golden(expected[i][0]);
        assert_int_equal(skv_model_info_read(g->path, &info, &err), SKV_OK);
        assert_string_equal(info.codes, expected[i][1]);
    }
}

/* The oracle dequantises the file and runs in double precision. With f32 activations codes give
 * the same, so none was lost. With activations in int8, the default, the distance is below that of
 * weights rounded again. */
static void test_codes_of_files(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < n_all; i++) {
        const golden *g = &all[i];
        if (!strstr(g->name, "llama-gguf") && !strstr(g->name, "gemma2-gguf") &&
            !strstr(g->name, "gpt-oss-mxfp4")) {
            continue;
        }
        skv_engine_options options = f32_options(SKV_PREFILL_AUTO, 0);
        options.weights = SKV_WEIGHTS_FILE;
        options.kv = SKV_KV_F32;
        options.f32_activations = true;
        check_codes(g, &options);
        options.f32_activations = false;
        double kept = mean_distance(g, &options);
        options.weights = SKV_WEIGHTS_INT8;
        double rounded = mean_distance(g, &options);
        print_message("%s: codes %.4f nats, int8 %.4f\n", g->name, kept, rounded);
        assert_true(kept < rounded);
        n++;
    }
    assert_int_equal(n, 3);
}

/* What 8 and 4 bits cost a mixture, against the oracle's double precision on the weights of the
 * file (dequantised where it holds codes): a wrong expert, scale or row would cost far more than
 * twice what the dense model of its family loses. */
static void test_mixtures_in_codes(void **state)
{
    (void)state;
    static const struct {
        const char *mixture, *dense;
        skv_weights weights;
    } pairs[] = {
        {"qwen3-moe-gptq", "gptq", SKV_WEIGHTS_FILE},
        {"mixtral-int4", "int4-zeros", SKV_WEIGHTS_FILE},
        {"qwen3-moe-gptq", "gptq", SKV_WEIGHTS_INT8},
        {"mixtral-int4", "int4-zeros", SKV_WEIGHTS_INT8},
        {"qwen3-moe-v5", "qwen3-v5", SKV_WEIGHTS_INT8},
        {"qwen3-moe-v5", "qwen3-v5", SKV_WEIGHTS_INT4},
        {"mixtral-v5", "llama3-v5", SKV_WEIGHTS_INT8},
        {"mixtral-v5", "llama3-v5", SKV_WEIGHTS_INT4},
        {"gpt-oss", "llama3-v5", SKV_WEIGHTS_INT8},
        {"gpt-oss", "llama3-v5", SKV_WEIGHTS_INT4},
        {"gemma4-moe", "gemma4-e2b", SKV_WEIGHTS_INT8},
        {"gemma4-moe", "gemma4-e2b", SKV_WEIGHTS_INT4},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        skv_engine_options options = f32_options(SKV_PREFILL_AUTO, 0);
        options.weights = pairs[i].weights;
        options.kv = SKV_KV_F32;
        const double lost = mean_distance(find_golden(pairs[i].mixture), &options);
        const double dense = mean_distance(find_golden(pairs[i].dense), &options);
        print_message("%s in %s: %.4f nats, %s %.4f\n", pairs[i].mixture,
                      skv_weights_name(pairs[i].weights), lost, pairs[i].dense, dense);
        assert_true(lost > 0 && lost < 2 * dense);
    }
}

/* ---- skip equals no skip ---- */

typedef struct rows {
    float *logits; /* [n, vocab] */
    size_t vocab;
} rows;

static void keep_rows(void *user, size_t i_span, size_t i_token, const float *logits)
{
    rows *r = user;
    (void)i_span;
    memcpy(r->logits + i_token * r->vocab, logits, r->vocab * sizeof *logits);
}

static void keep_one(void *user, size_t i_span, size_t i_token, const float *logits)
{
    rows *r = user;
    (void)i_token;
    memcpy(r->logits + i_span * r->vocab, logits, r->vocab * sizeof *logits);
}

/* Logits after every token of the longest case, nothing skipped. */
static rows full_rows(skv_engine *engine, const golden_case *c)
{
    rows r = {.vocab = skv_engine_vocab(engine)};
    r.logits = calloc(c->n * r.vocab, sizeof *r.logits);
    skv_sequence *sequence;
    skv_error err;
    assert_int_equal(skv_sequence_create(engine, 0, &sequence, &err), SKV_OK);
    skv_span span = {sequence, c->ids, c->n, SKV_WANT_ALL};
    assert_int_equal(skv_step(engine, &span, 1, keep_rows, &r, &err), SKV_OK);
    skv_sequence_free(sequence);
    return r;
}

static void assert_close(const golden *g, const float *got, const float *want, size_t n,
                         const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])))) {
            fail_msg("%s, %s: logits[%zu] %g, unskipped %g", g->name, what, i, (double)got[i],
                     (double)want[i]);
        }
    }
}

static const golden_case *longest(const golden *g)
{
    const golden_case *best = &g->cases[0];
    for (size_t i = 1; i < g->n_cases; i++) {
        if (g->cases[i].n > best->n) best = &g->cases[i];
    }
    return best;
}

static void check_chunks(const golden *g, skv_engine *engine, size_t chunk, const rows *full)
{
    const golden_case *c = longest(g);
    skv_sequence *sequence;
    skv_error err;
    rows last = {.vocab = full->vocab};
    last.logits = calloc(full->vocab, sizeof(float));
    assert_int_equal(skv_sequence_create(engine, 0, &sequence, &err), SKV_OK);
    for (size_t done = 0; done < c->n; done += chunk) {
        size_t n = c->n - done < chunk ? c->n - done : chunk;
        skv_span span = {sequence, c->ids + done, n,
                         done + n == c->n ? SKV_WANT_LAST : SKV_WANT_NONE};
        assert_int_equal(skv_step(engine, &span, 1, keep_one, &last, &err), SKV_OK);
    }
    char what[32];
    (void)snprintf(what, sizeof what, "chunks of %zu", chunk);
    assert_close(g, last.logits, full->logits + (c->n - 1) * full->vocab, full->vocab, what);
    skv_sequence_free(sequence);
    free(last.logits);
}

/* Three sequences of the same text at different places in one batch: one decodes token by token,
 * one takes chunks of 5 of which only the last row is wanted, one chunks that want nothing. */
static void check_mixed(const golden *g, skv_engine *engine, const rows *full)
{
    const golden_case *c = longest(g);
    skv_sequence *s[3];
    skv_error err;
    rows got = {.vocab = full->vocab};
    got.logits = calloc(3 * full->vocab, sizeof(float));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(skv_sequence_create(engine, 0, &s[i], &err), SKV_OK);
    }
    size_t at[3] = {0, 0, 0}, step[3] = {1, 5, 3};
    const skv_want want[3] = {SKV_WANT_LAST, SKV_WANT_LAST, SKV_WANT_NONE};
    for (size_t round = 0; round < 11; round++) {
        skv_span spans[3];
        for (size_t i = 0; i < 3; i++) {
            spans[i] = (skv_span){s[i], c->ids + at[i], step[i], want[i]};
            at[i] += step[i];
        }
        assert_int_equal(skv_step(engine, spans, 3, keep_one, &got, &err), SKV_OK);
        for (size_t i = 0; i < 2; i++) {
            assert_close(g, got.logits + i * full->vocab, full->logits + (at[i] - 1) * full->vocab,
                         full->vocab, "mixed batch");
        }
    }
    skv_span last = {s[2], c->ids + at[2], 1, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &last, 1, keep_one, &got, &err), SKV_OK);
    assert_close(g, got.logits, full->logits + at[2] * full->vocab, full->vocab, "after chunks");
    for (size_t i = 0; i < 3; i++) skv_sequence_free(s[i]);
    free(got.logits);
}

static void test_skip_equals_no_skip(void **state)
{
    (void)state;
    const size_t chunks[] = {1, 7, 64, 96};
    for (size_t i = 0; i < n_all; i++) {
        skv_prefill unskipped = all[i].is_swiftkv ? SKV_PREFILL_SWIFTKV_FULL : SKV_PREFILL_FULL;
        skv_engine *engine = open_engine(&all[i], unskipped, 96);
        rows full = full_rows(engine, longest(&all[i]));
        skv_engine_close(engine);
        engine = open_engine(&all[i], SKV_PREFILL_AUTO, 96);
        for (size_t j = 0; j < 4; j++) check_chunks(&all[i], engine, chunks[j], &full);
        check_mixed(&all[i], engine, &full);
        skv_engine_close(engine);
        free(full.logits);
    }
}

/* ---- layers that read a donor's keys and values ---- */

/* Prompt rows whose logits nobody wants run the layers before the last one that owns keys and
 * values, and there leave only these; the others take no memory and no product for them. */
static void check_donors(const char *name, size_t n_layers, size_t n_own)
{
    const golden *g = find_golden(name);
    const golden_case *c = longest(g);
    skv_engine *engine = open_engine(g, SKV_PREFILL_AUTO, 96);
    skv_sequence *s;
    skv_model_info info;
    skv_engine_stats stats;
    skv_error err;
    assert_int_equal(skv_model_info_read(g->path, &info, &err), SKV_OK);
    assert_int_equal(info.kv_slots, n_own);
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    skv_work before = skv_engine_get_work(engine);
    skv_span span = {s, c->ids, c->n - 1, SKV_WANT_NONE};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, &err), SKV_OK);
    skv_work after = skv_engine_get_work(engine), prompt = skv_work_since(&after, &before);
    assert_int_equal(prompt.mlp_blocks, (c->n - 1) * (n_own - 1));
    const size_t n_kv = info.kv_elements / n_own;
    const double kv = 2.0 * (double)info.hidden * (double)n_kv;
    assert_true(prompt.kv == (double)((c->n - 1) * n_own) * kv);
    span = (skv_span){s, c->ids + c->n - 1, 1, SKV_WANT_LAST};
    assert_int_equal(skv_step(engine, &span, 1, NULL, NULL, &err), SKV_OK);
    before = after;
    after = skv_engine_get_work(engine);
    prompt = skv_work_since(&after, &before);
    assert_int_equal(prompt.mlp_blocks, n_layers);
    assert_true(prompt.kv == (double)n_own * kv);
    skv_engine_get_stats(engine, &stats);
    const size_t n_pages = (c->n + 63) / 64 * n_own * info.kv_heads;
    assert_int_equal(stats.kv_pages - stats.kv_pages_free, n_pages);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_rows_stop_at_the_last_donor(void **state)
{
    (void)state;
    check_donors("qwen3-shared", 7, 3);
    check_donors("llama-shared", 5, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_model),
        cmocka_unit_test(test_every_teacher),
        cmocka_unit_test(test_codes_of_files),
        cmocka_unit_test(test_mixtures_in_codes),
        cmocka_unit_test(test_codes_of_folders),
        cmocka_unit_test(test_wide_groups_with_int8_rows),
        cmocka_unit_test(test_embeddings_of_layers_in_8_bits),
        cmocka_unit_test(test_codes_are_told),
        cmocka_unit_test(test_skip_equals_no_skip),
        cmocka_unit_test(test_rows_stop_at_the_last_donor),
    };
    return cmocka_run_group_tests_name("models", tests, load, unload);
}
