/*
 * Speculation: rows of a draft have the bits of single steps on every model of the suite, drafts
 * are taken back exactly, and answers are the same with and without.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "drafted_answer.h"
#include "engine/engine.h"
#include "open_engine.h"
#include "skv/skv.h"

#define MODELS SKV_TEST_DATA "/models"
#define SWIFTKV_MODEL MODELS "/qwen2-swiftkv-g2"
#define MIXTURE MODELS "/qwen3-moe-v5"
#define EXIT_MODEL SKV_TEST_DATA "/comparators/exit"
#define MINI SKV_TEST_DATA "/../../models/mini"
#define KVPRED_MODEL MINI "/kvpred"

enum { N_DRAFT = SKV_DRAFT_MAX, N_LONG = 1200, VOCAB_MAX = 4096 };

/* Mixes of options for each model, and of mixes that are counted through half, so chosen that every
 * option still comes. All of them come with SKV_TEST_ALL, but to AddressSanitizer, which sees the
 * same accesses in fewer. */
#if defined(__SANITIZE_ADDRESS__)
enum { N_MIXES_FEW = 2, N_MIXES_ALL = 2, MAY_TRY_ALL = 0 };
#else
enum { N_MIXES_FEW = 3, N_MIXES_ALL = 6, MAY_TRY_ALL = 1 };
#endif

static bool every_mix(void)
{
    return MAY_TRY_ALL && getenv("SKV_TEST_ALL");
}

static size_t count_mixes(void)
{
    return every_mix() ? N_MIXES_ALL : N_MIXES_FEW;
}

/* Whether mix i is tried: 0, 3, 5, 6, 8, 11, 13, 14 and so on, or all of them. */
static bool is_tried(size_t i)
{
    return every_mix() || (i ^ i / 2 ^ i / 4) % 2 == 0;
}

/* ---- the bits of rows ---- */

typedef struct rows {
    float *at; /* [n][V] */
    size_t vocab;
} rows;

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const rows *r = user;
    (void)i_span;
    memcpy(r->at + i_token * r->vocab, logits, r->vocab * sizeof *logits);
}

static void step_or_fail(skv_engine *engine, skv_span span, const rows *into)
{
    skv_error err;
    if (skv_step(engine, &span, 1, take_row, (void *)(uintptr_t)into, &err) != SKV_OK)
        fail_msg("%s", err.text);
}

/* A draft behind ids [n_past], of which the last tokens are wrong: its rows and what follows it are
 * those of single steps. */
static void expect_single_bits(skv_engine *engine, const int32_t *ids, size_t n_past, size_t n)
{
    const size_t V = skv_engine_vocab(engine), n_right = n / 3;
    assert_true(n <= N_DRAFT);
    rows one = {calloc(n + 1, V * sizeof(float)), V}, all = {calloc(n + 1, V * sizeof(float)), V};
    skv_sequence *a = new_sequence(engine), *b = new_sequence(engine);
    assert_non_null(one.at);
    assert_non_null(all.at);
    assert_int_equal(skv_prompt(engine, a, ids, n_past, NULL, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, b, ids, n_past, NULL, NULL), SKV_OK);
    for (size_t i = 0; i < n; i++) {
        const rows row = {one.at + i * V, V};
        step_or_fail(engine, (skv_span){a, ids + n_past + i, 1, SKV_WANT_LAST}, &row);
    }
    step_or_fail(engine, (skv_span){b, ids + n_past, n, SKV_WANT_DRAFTED}, &all);
    assert_memory_equal(one.at, all.at, n * V * sizeof(float));
    skv_sequence_truncate(b, n_past + n_right);
    step_or_fail(engine, (skv_span){b, ids + n_past + n_right, 1, SKV_WANT_LAST}, &all);
    assert_memory_equal(one.at + n_right * V, all.at, V * sizeof(float));
    skv_sequence_free(a);
    skv_sequence_free(b);
    free(one.at);
    free(all.at);
}

static void try_model(const char *path, const skv_engine_options *options, size_t n_past, size_t n)
{
    int32_t ids[N_LONG + N_DRAFT];
    skv_engine *engine = open_or_fail(path, options);
    make_repeating_ids(ids, n_past + n, skv_engine_vocab(engine));
    expect_single_bits(engine, ids, n_past, n);
    skv_engine_close(engine);
}

/* Drafts that are not right are taken back, which a layer's state does not allow. */
static bool keeps_states(const char *path)
{
    const skv_engine_options options = options_for_drafts();
    skv_engine *engine = open_or_fail(path, &options);
    const bool keeps = engine->plan.n_states > 0;
    skv_engine_close(engine);
    return keeps;
}

/* The i-th model of the suite, a folder or a GGUF file in one; false for other entries. */
static bool model_path(const char *name, char *out, size_t room)
{
    struct stat found;
    if (name[0] == '.') return false;
    (void)snprintf(out, room, "%s/%s/model.gguf", MODELS, name);
    if (stat(out, &found) == 0) return true;
    (void)snprintf(out, room, "%s/%s/config.json", MODELS, name);
    if (stat(out, &found) != 0) return false;
    (void)snprintf(out, room, "%s/%s", MODELS, name);
    return true;
}

static void test_rows_of_every_model(void **state)
{
    (void)state;
    static const skv_weights weights[] = {SKV_WEIGHTS_AUTO, SKV_WEIGHTS_BF16, SKV_WEIGHTS_INT8,
                                          SKV_WEIGHTS_F32, SKV_WEIGHTS_INT4};
    static const skv_kv kvs[] = {SKV_KV_AUTO, SKV_KV_INT8, SKV_KV_BF16, SKV_KV_FP8};
    static const char *const evicts[] = {
        "none",     "snapkv:40,8,5", "adakv:40,8,5,query", "pyramidkv:40,8,5",
        "h2o:40,8", "streaming:4,40"};
    DIR *folder = opendir(MODELS);
    assert_non_null(folder);
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[512];
        if (!model_path(entry->d_name, path, sizeof path) || keeps_states(path)) continue;
        for (size_t i = 0; i < count_mixes(); i++, n++) {
            skv_engine_options options = options_for_drafts();
            options.weights = weights[n % 5];
            options.kv = kvs[n % 4];
            options.batch_invariant = n % 7 == 0;
            options.context = 512; /* by query head a cache is there twice for a while */
            options.kv_tokens = 4 * 512;
            assert_int_equal(skv_eviction_parse(evicts[n % 6], &options.eviction, NULL), SKV_OK);
            try_model(path, &options, N_PROMPT, 2 + n % 12);
        }
    }
    (void)closedir(folder);
    assert_true(n > 50 * count_mixes());
}

/* Rows that are cut into portions, more of them than there is room for at once. */
static void test_rows_behind_long_prompts(void **state)
{
    (void)state;
    static const char *const models[] = {SWIFTKV_MODEL, MODELS "/gemma4-e2b", MODELS "/gpt-oss",
                                         MIXTURE};
    for (size_t i = 0; i < 4 * 3; i++) {
        skv_engine_options options = options_for_drafts();
        options.threads = 1 + i % 4;
        options.context = options.kv_tokens = 0;
        options.context = N_LONG + N_DRAFT;
        options.kv_tokens = 2 * (N_LONG + 64);
        options.kv = i % 3 == 0 ? SKV_KV_BF16 : i % 3 == 1 ? SKV_KV_INT8 : SKV_KV_F32;
        try_model(models[i / 3], &options, N_LONG, N_DRAFT);
    }
}

/* ---- answers ---- */

static void test_answers(void **state)
{
    (void)state;
    static const char *const models[] = {SWIFTKV_MODEL,        MIXTURE,
                                         MODELS "/gemma4-e4b", MODELS "/qwen2-window",
                                         MODELS "/gpt-oss",    KVPRED_MODEL};
    static const char *const evicts[] = {"none",         "snapkv:40,8,5", "pyramidkv:40,8,5",
                                         "adakv:40,8,5", "h2o:40,8",      "streaming:4,40"};
    const skv_sampling samplings[] = {
        {.top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.3, .top_p = 1, .repetition_penalty = 1, .seed = 5},
        {.temperature = 0.9, .top_k = 20, .top_p = 0.9, .repetition_penalty = 1, .seed = 6},
        {.temperature = 0.7,
         .top_p = 1,
         .min_p = 0.05,
         .repetition_penalty = 1.1,
         .presence_penalty = 0.2,
         .frequency_penalty = 0.1,
         .seed = 7}};
    int32_t ids[N_PROMPT];
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < sizeof models / sizeof *models * 2; i++) {
        skv_engine_options options = options_for_drafts();
        options.kv = i % 3 == 0 ? SKV_KV_INT8 : SKV_KV_AUTO;
        assert_int_equal(skv_eviction_parse(evicts[(i + i / 6 * 2) % 6], &options.eviction, NULL),
                         SKV_OK);
        skv_engine *engine = open_or_fail(models[i / 2], &options);
        make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
        for (size_t j = 0; j < 4; j++) {
            if (!is_tried(4 * i + j)) continue;
            const answer plain = answer_of(engine, ids, &samplings[j], "none");
            static const char *const hows[] = {"text:1", "text", "text:31", "auto"};
            assert_int_equal(plain.drafts.drafted, 0);
            for (size_t k = 0; k < sizeof hows / sizeof *hows; k++) {
                const answer drafted = answer_of(engine, ids, &samplings[j], hows[k]);
                assert_memory_equal(plain.ids, drafted.ids, sizeof plain.ids);
                assert_true(drafted.drafts.accepted <= drafted.drafts.drafted);
                sum.drafted += drafted.drafts.drafted;
                sum.accepted += drafted.drafts.accepted;
            }
        }
        skv_engine_close(engine);
    }
    assert_true(sum.accepted > 100 && sum.drafted > sum.accepted);
}

/* ---- SwiftKV drafts for itself ---- */

static bool has_deep_layers(const skv_engine *engine)
{
    return engine->runs_swiftkv && engine->plan.stack_boundary < engine->plan.n_layers;
}

/* Every SwiftKV model has an exit head here: its own head, where its file has none. */
static skv_engine *open_with_exit(const char *path, const skv_engine_options *options)
{
    skv_engine *engine = open_or_fail(path, options);
    if (has_deep_layers(engine) && !engine->model.exit_head) {
        engine->model.exit_head = engine->model.head;
        engine->model.n_exit_ids = engine->config->vocab;
        ((skv_config *)(uintptr_t)engine->config)->early_exit = true;
    }
    return engine;
}

static void close_with_exit(skv_engine *engine)
{
    if (engine->model.exit_head == engine->model.head) engine->model.exit_head = NULL;
    skv_engine_close(engine);
}

/* Answers with and without drafts of its own. Where not every mix is tried, each source has one of
 * the two samplings, and the other one in the next turn. */
static void expect_same_answers(skv_engine *engine, size_t turn, skv_draft_counts *sum)
{
    static const char *const hows[] = {"self:1,0", "self:5,0", "self:12,0.02", "text+self:5,0",
                                       "auto:9,0"};
    static const skv_sampling samplings[] = {
        {.top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 6}};
    int32_t ids[N_PROMPT];
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    for (size_t i = 0; i < 2; i++) {
        const answer plain = answer_of(engine, ids, &samplings[i], "none");
        for (size_t k = 0; k < sizeof hows / sizeof *hows; k++) {
            if (!every_mix() && (turn + i + k) % 2 != 0) continue;
            const answer drafted = answer_of(engine, ids, &samplings[i], hows[k]);
            assert_memory_equal(plain.ids, drafted.ids, sizeof plain.ids);
            sum->drafted += drafted.drafts.drafted;
            sum->accepted += drafted.drafts.accepted;
        }
    }
}

static void test_self_on_every_model(void **state)
{
    (void)state;
    static const skv_weights weights[] = {SKV_WEIGHTS_AUTO, SKV_WEIGHTS_BF16, SKV_WEIGHTS_INT8,
                                          SKV_WEIGHTS_F32, SKV_WEIGHTS_INT4};
    static const skv_kv kvs[] = {SKV_KV_AUTO, SKV_KV_INT8, SKV_KV_BF16, SKV_KV_FP8};
    static const char *const evicts[] = {
        "none",     "snapkv:40,8,5", "adakv:40,8,5,query", "pyramidkv:40,8,5",
        "h2o:40,8", "streaming:4,40"};
    DIR *folder = opendir(MODELS);
    assert_non_null(folder);
    size_t n = 0;
    skv_draft_counts sum = {0};
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[512];
        if (!model_path(entry->d_name, path, sizeof path) || keeps_states(path)) continue;
        for (size_t i = 0; i < count_mixes(); i++) {
            skv_engine_options options = options_for_drafts();
            options.weights = weights[n % 5];
            options.kv = kvs[n % 4];
            options.batch_invariant = n % 7 == 0;
            options.threads = 1 + n % 3;
            assert_int_equal(skv_eviction_parse(evicts[n % 6], &options.eviction, NULL), SKV_OK);
            skv_engine *engine = open_with_exit(path, &options);
            const bool drafts = has_deep_layers(engine);
            if (drafts) expect_same_answers(engine, n, &sum);
            n += drafts;
            close_with_exit(engine);
            if (!drafts) break;
        }
    }
    (void)closedir(folder);
    assert_true(n >= 10 * count_mixes());
    assert_true(sum.accepted > 100 && sum.drafted > sum.accepted);
}

/* ---- the auxiliary drafts ---- */

/* Two prompts and two answers of a conversation; ids [2 * N_ANSWER]. */
static void converse(skv_engine *engine, const char *how, const skv_sampling *sampling,
                     int32_t *out, skv_draft_counts *sum)
{
    answer a = {.n = 0};
    int32_t ids[N_PROMPT];
    skv_error err;
    skv_speculation speculation;
    skv_sampler *sampler = NULL;
    skv_sequence *s = new_sequence(engine);
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    assert_int_equal(skv_speculation_parse(how, &speculation, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_speculation(s, &speculation, NULL), SKV_OK);
    assert_int_equal(skv_sampler_create(sampling, skv_engine_vocab(engine), &sampler, NULL),
                     SKV_OK);
    for (size_t turn = 0; turn < 2; turn++) {
        skv_generation_stats stats;
        const skv_generation g = {.max_tokens = N_ANSWER / 2,
                                  .sampler = sampler,
                                  .ignore_eos = true,
                                  .on_token = on_token,
                                  .user = &a,
                                  .stats = &stats};
        const size_t n = turn == 0 ? N_PROMPT : N_PROMPT / 3;
        if (skv_generate(engine, s, ids, n, &g, &err) != SKV_OK) fail_msg("%s", err.text);
        for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
            sum->drafted += stats.drafts[i].drafted;
            sum->accepted += stats.drafts[i].accepted;
        }
    }
    memcpy(out, a.ids, sizeof a.ids);
    skv_sampler_free(sampler);
    skv_sequence_free(s);
}

/* Answers with each source and without any, with options that differ by i. */
static void expect_same_conversations(size_t i, const char *base, const char *draft,
                                      const char *const hows[5], skv_draft_counts *sum)
{
    static const char *const evicts[] = {"none", "snapkv:40,8,5"};
    static const skv_sampling samplings[] = {
        {.top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 6}};
    skv_draft_counts none = {0};
    skv_engine_options options = options_for_drafts();
    options.draft_model = draft;
    options.kv = i % 4 == 3 ? SKV_KV_INT8 : SKV_KV_AUTO;
    options.step_tokens = i % 3 == 0 ? 20 : 128;
    options.batch_invariant = i % 5 == 4;
    assert_int_equal(skv_eviction_parse(evicts[i / 2 % 2], &options.eviction, NULL), SKV_OK);
    skv_engine *engine = open_or_fail(base, &options);
    int32_t plain[N_ANSWER], drafted[N_ANSWER];
    converse(engine, "none", &samplings[i % 2], plain, &none);
    assert_int_equal(none.drafted, 0);
    for (size_t k = 0; k < 5; k++) {
        converse(engine, hows[k], &samplings[i % 2], drafted, sum);
        assert_memory_equal(plain, drafted, sizeof plain);
    }
    skv_engine_close(engine);
}

static void test_auxiliary(void **state)
{
    (void)state;
    static const char *const models[] = {KVPRED_MODEL, SKV_TEST_DATA "/kvpred/openelm-lp",
                                         SKV_TEST_DATA "/kvpred/qwen3-c",
                                         SKV_TEST_DATA "/kvpred/llama-lp"};
    static const char *const hows[] = {"aux:1,0", "aux:5,0", "aux:12,0.1", "text+aux:5,0",
                                       "auto:9,0"};
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < 16; i++) {
        if (is_tried(i)) expect_same_conversations(i, models[i / 4], NULL, hows, &sum);
    }
    assert_true(sum.accepted > 100 && sum.drafted > sum.accepted);
}

/* ---- another model drafts ---- */

static void test_draft_model(void **state)
{
    (void)state;
    static const struct {
        const char *base, *draft;
    } pairs[] = {{MINI "/kv6", MINI "/base"},
                 {MINI "/base", MINI "/kv6"},
                 {MINI "/base", MINI "/kvpred/auxiliary"},
                 {MODELS "/gemma4-e4b", MODELS "/gemma4-e4b"},
                 {MODELS "/gpt-oss", MODELS "/gpt-oss"}};
    static const char *const hows[] = {"model:1,0", "model:5,0", "model:12,0.1", "text+model:5,0",
                                       "auto:9,0"};
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs * 4; i++) {
        if (!is_tried(i)) continue;
        expect_same_conversations(i, pairs[i / 4].base, pairs[i / 4].draft, hows, &sum);
    }
    assert_true(sum.accepted > 100 && sum.drafted > sum.accepted);
}

/* Beside others a prompt is read in parts, a step for each, and nothing is drafted meanwhile. */
static void test_draft_model_reads_in_parts(void **state)
{
    (void)state;
    skv_engine_options options = options_for_drafts();
    options.draft_model = MINI "/base";
    options.context = 2048;
    options.kv_tokens = 2 * 2048;
    skv_engine *engine = open_or_fail(MINI "/base", &options);
    const skv_speculation how = {.source = SKV_DRAFT_MODEL, .most = 4};
    int32_t ids[N_LONG], out[N_DRAFT];
    skv_sequence *s = new_sequence(engine);
    make_repeating_ids(ids, N_LONG, skv_engine_vocab(engine));
    assert_int_equal(skv_sequence_set_speculation(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_LONG, NULL, NULL), SKV_OK);
    const skv_draft_step step = {.n_sequences = 2, .n_rows = 30};
    size_t n_steps = 0;
    for (size_t before = 0;; n_steps++) {
        skv_draft_request r = {.sequence = s, .next = ids[0], .out = out, .most = 4};
        skv_sequences_draft_for(&r, 1, &step);
        const size_t n_read = s->drafter->cache.n_rows;
        if (r.n > 0) break;
        assert_true(n_read > before && n_read <= before + 128);
        before = n_read;
        assert_true(n_steps < 100);
    }
    assert_in_range(n_steps, N_LONG / 128 - 1, N_LONG / 128 + 1);
    skv_sequence_free(s);
    skv_engine_close(engine);
}

static void test_draft_models_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *base, *draft, *says;
    } wrong[] = {{MINI "/base", MODELS "/no-such-model", "no-such-model"},
                 {MINI "/base", MINI "/kvpred", "cannot draft for another"},
                 {MINI "/base", SKV_TEST_ASSETS "/models/stories260k/stories260k-f32.gguf",
                  "the draft model's tokenizer"},
                 {MINI "/base", "preset:llama-3.2-1b", "the draft model's vocabulary has 128256"},
                 {MINI "/base", "preset:none-such", "unknown name"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        skv_engine_options options = options_for_drafts();
        skv_engine *engine = NULL;
        skv_error err;
        struct stat found;
        if (wrong[i].draft == wrong[2].draft && stat(wrong[i].draft, &found) != 0) continue;
        options.draft_model = wrong[i].draft;
        assert_int_not_equal(skv_engine_open(wrong[i].base, &options, &engine, &err), SKV_OK);
        if (!strstr(err.text, wrong[i].says)) fail_msg("%s", err.text);
    }
    skv_engine_options options = options_for_drafts();
    skv_error err;
    skv_engine *engine = NULL;
    options.speculation = (skv_speculation){.source = SKV_DRAFT_TEXT_MODEL, .most = 4};
    assert_int_equal(skv_engine_open(MINI "/base", &options, &engine, &err), SKV_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no draft model was given"));
}

/* The rows of a draft are forgotten when anything but their own tokens comes. */
static void test_ready_rows(void **state)
{
    (void)state;
    const skv_engine_options options = options_for_drafts();
    skv_engine *engine = open_or_fail(EXIT_MODEL, &options);
    const size_t V = skv_engine_vocab(engine);
    const skv_speculation how = {.source = SKV_DRAFT_SELF, .most = 6};
    const rows all = {calloc(N_DRAFT, V * sizeof(float)), V};
    const rows one = {calloc(1, V * sizeof(float)), V};
    skv_sequence *plain = new_sequence(engine), *s = new_sequence(engine);
    int32_t ids[N_PROMPT + 1], span[N_DRAFT];
    make_repeating_ids(ids, N_PROMPT + 1, V);
    assert_true(all.at && one.at);
    assert_int_equal(skv_sequence_set_speculation(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, plain, ids, N_PROMPT, NULL, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL), SKV_OK);
    for (size_t i = 0; i < 6; i++) {
        span[0] = ids[N_PROMPT];
        const size_t n = skv_sequence_draft(s, span[0], span + 1, 6);
        assert_int_equal(n, 6);
        assert_int_equal(skv_sequence_length(s), N_PROMPT);
        assert_int_equal(s->cache.n_rows, N_PROMPT + 7);
        if (i == 1) span[3] = (span[3] + 1) % (int32_t)V;
        if (i == 2) span[0] = (span[0] + 1) % (int32_t)V;
        if (i == 3) skv_sequence_truncate(s, N_PROMPT);
        if (i == 4) (void)skv_sequence_draft(s, ids[0], span + 8, 6);
        const size_t n_span = i == 5 ? 3 : 7;
        step_or_fail(engine, (skv_span){s, span, n_span, SKV_WANT_DRAFTED}, &all);
        assert_int_equal(s->cache.n_rows, N_PROMPT + n_span);
        for (size_t j = 0; j < n_span; j++) {
            step_or_fail(engine, (skv_span){plain, span + j, 1, SKV_WANT_LAST}, &one);
            assert_memory_equal(one.at, all.at + j * V, V * sizeof(float));
        }
        skv_sequence_truncate(plain, N_PROMPT);
        skv_sequence_settle(s, n_span - 1, 0);
        skv_sequence_truncate(s, N_PROMPT);
    }
    skv_sequence_free(plain);
    skv_sequence_free(s);
    skv_engine_close(engine);
    free(all.at);
    free(one.at);
}

/* A draft that is cancelled or for which pages are short is a shorter one, and the step says why.
 */
static void test_drafts_that_stop(void **state)
{
    (void)state;
    enum { N_SEEN = 60, N_ROWS = 64 };
    skv_engine_options options = options_for_drafts();
    options.context = options.kv_tokens = 2 * N_ROWS;
    skv_engine *engine = open_or_fail(EXIT_MODEL, &options);
    const skv_speculation how = {.source = SKV_DRAFT_SELF, .most = 12};
    const size_t V = skv_engine_vocab(engine);
    const rows all = {calloc(N_DRAFT, V * sizeof(float)), V};
    skv_sequence *s = new_sequence(engine), *other = new_sequence(engine);
    int32_t ids[N_SEEN], span[N_DRAFT] = {3};
    make_repeating_ids(ids, N_SEEN, V);
    assert_non_null(all.at);
    assert_int_equal(skv_sequence_set_speculation(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_SEEN, NULL, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, other, ids, N_SEEN, NULL, NULL), SKV_OK);
    assert_int_equal(skv_sequence_draft(s, span[0], span + 1, 12), N_ROWS - N_SEEN - 1);
    assert_int_equal(s->cache.n_rows, N_ROWS);
    step_or_fail(engine, (skv_span){s, span, N_ROWS - N_SEEN, SKV_WANT_DRAFTED}, &all);
    skv_sequence_settle(s, N_ROWS - N_SEEN - 1, 0);
    skv_cancel(engine);
    assert_int_equal(skv_sequence_draft(s, span[0], span + 1, 12), 0);
    const skv_span one = {s, span, 1, SKV_WANT_DRAFTED};
    assert_int_equal(skv_step(engine, &one, 1, take_row, (void *)(uintptr_t)&all, NULL),
                     SKV_CANCELLED);
    assert_int_equal(s->cache.n_rows, N_SEEN + 1);
    step_or_fail(engine, one, &all);
    skv_sequence_free(s);
    skv_sequence_free(other);
    skv_engine_close(engine);
    free(all.at);
}

/* Sequences that draft together have the bits of those that draft alone. */
static void test_drafting_together(void **state)
{
    (void)state;
    enum { N = 5, N_STEPS = 12 };
    skv_engine_options options = options_for_drafts();
    options.kv_tokens = 8 * 256;
    options.batch_invariant = true; /* what steps are shared with others changes no bit */
    skv_engine *engine = open_or_fail(EXIT_MODEL, &options);
    const size_t V = skv_engine_vocab(engine);
    const rows all = {calloc(N_DRAFT, V * sizeof(float)), V};
    int32_t ids[N_PROMPT], out[N][N_DRAFT], alone[N_DRAFT];
    skv_sequence *s[N], *one[N];
    skv_draft_request requests[N];
    assert_non_null(all.at);
    make_repeating_ids(ids, N_PROMPT, V);
    for (size_t i = 0; i < N; i++) {
        const skv_speculation how = {
            .source = i == 2 ? SKV_DRAFT_TEXT : SKV_DRAFT_SELF, .most = 2 + i, .sure = 0.02};
        s[i] = new_sequence(engine);
        one[i] = new_sequence(engine);
        assert_int_equal(skv_sequence_set_speculation(s[i], &how, NULL), SKV_OK);
        assert_int_equal(skv_sequence_set_speculation(one[i], &how, NULL), SKV_OK);
        assert_int_equal(skv_prompt(engine, s[i], ids, N_PROMPT - i, NULL, NULL), SKV_OK);
        assert_int_equal(skv_prompt(engine, one[i], ids, N_PROMPT - i, NULL, NULL), SKV_OK);
    }
    size_t n_drafted = 0;
    for (int32_t step = 0; step < N_STEPS; step++) {
        for (size_t i = 0; i < N; i++) {
            requests[i] = (skv_draft_request){s[i], step + (int32_t)i, out[i], 6, 99};
        }
        skv_sequences_draft(requests, N);
        for (size_t i = 0; i < N; i++) {
            const int32_t next = step + (int32_t)i;
            const size_t n = skv_sequence_draft(one[i], next, alone, 6);
            assert_int_equal(requests[i].n, n);
            assert_memory_equal(out[i], alone, n * sizeof *alone);
            step_or_fail(engine, (skv_span){one[i], &next, 1, SKV_WANT_DRAFTED}, &all);
            step_or_fail(engine, (skv_span){s[i], &next, 1, SKV_WANT_DRAFTED}, &all);
            n_drafted += n;
        }
    }
    assert_true(n_drafted > N_STEPS);
    for (size_t i = 0; i < N; i++) {
        skv_sequence_free(s[i]);
        skv_sequence_free(one[i]);
    }
    skv_engine_close(engine);
    free(all.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_every_model),
        cmocka_unit_test(test_rows_behind_long_prompts),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_self_on_every_model),
        cmocka_unit_test(test_auxiliary),
        cmocka_unit_test(test_draft_model),
        cmocka_unit_test(test_draft_model_reads_in_parts),
        cmocka_unit_test(test_draft_models_that_are_refused),
        cmocka_unit_test(test_ready_rows),
        cmocka_unit_test(test_drafts_that_stop),
        cmocka_unit_test(test_drafting_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
