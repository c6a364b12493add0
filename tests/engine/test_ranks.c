/*
 * One model on several ranks (skv/ranks.h), which are threads here: log-probabilities are those of
 * one process, the same bits in every run; sequences, steps and evictions are followed; a rank
 * holds and reads its part and nothing else; what is sent is what the formula says; a rank that
 * fails ends the others with its number.
 *
 * Labels: threads
 */
#define _XOPEN_SOURCE 700 /* nftw, barriers */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/system.h"
#include "engine/engine.h"
#include "ranks/ranks_tell.h"
#include "skv/ranks.h"
#include "skv/skv.h"
#include "thread_team.h"

#define MODELS SKV_TEST_DATA "/models/"
#define ASSETS SKV_TEST_ASSETS "/models/"

enum { N_IDS = 60, LONG = 300, CONTEXT = 384, TOKENS_MAX = 24 };

/* ---- ranks ---- */

typedef struct follower {
    skv_team team;
    member member;
    pthread_t thread;
    skv_status status;
    skv_error err;
} follower;

typedef struct ranks {
    hub hub;
    skv_team team; /* of rank 0 */
    member member;
    follower others[MEMBERS_MAX];
    size_t n;
} ranks;

static void *run_follower(void *arg)
{
    follower *f = arg;
    f->status = skv_ranks_follow(&f->team, &f->err);
    return NULL;
}

static void start(ranks *r, size_t n)
{
    *r = (ranks){.n = n};
    open_hub(&r->hub, n);
    r->team = join_hub(&r->hub, &r->member, 0);
    for (size_t i = 1; i < n; i++) {
        follower *f = &r->others[i];
        f->team = join_hub(&r->hub, &f->member, i);
        assert_int_equal(pthread_create(&f->thread, NULL, run_follower, f), 0);
    }
}

static void end(ranks *r)
{
    skv_error err = {0};
    assert_int_equal(skv_ranks_end(&r->team, &err), SKV_OK);
    for (size_t i = 1; i < r->n; i++) {
        pthread_join(r->others[i].thread, NULL);
        if (r->others[i].status != SKV_OK) fail_msg("rank %zu: %s", i, r->others[i].err.text);
    }
    pthread_barrier_destroy(&r->hub.all_here);
}

static skv_engine_options exact(const ranks *r)
{
    skv_engine_options o = skv_engine_options_default();
    o.threads = 1;
    o.weights = SKV_WEIGHTS_F32;
    o.kv = SKV_KV_F32;
    o.context = CONTEXT;
    o.kv_tokens = 4 * CONTEXT;
    o.step_tokens = 16;
    o.team = r ? &r->team : NULL;
    return o;
}

static skv_engine *open_or_fail(const char *path, const skv_engine_options *options)
{
    skv_engine *engine = NULL;
    skv_error err = {0};
    const skv_status status = strncmp(path, "preset:", 7) == 0
                                  ? skv_engine_open_preset(path + 7, options, &engine, &err)
                                  : skv_engine_open(path, options, &engine, &err);
    if (status != SKV_OK) fail_msg("%s: %s", path, err.text);
    return engine;
}

static void make_ids(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) ids[i] = (i * 37 + 5) % 90;
}

/* ---- the same results ---- */

typedef struct result {
    double logprobs[N_IDS];
    int32_t tokens[TOKENS_MAX];
    size_t n_tokens;
    size_t weight_bytes, kv_bytes;
    skv_ranks_traffic traffic;
} result;

static bool take(void *user, int32_t id)
{
    result *to = user;
    to->tokens[to->n_tokens++] = id;
    return true;
}

static void generate(skv_engine *engine, const int32_t *ids, size_t n, const char *eviction,
                     result *out)
{
    skv_error err = {0};
    skv_sequence *s = NULL;
    skv_sampler *sampler = NULL;
    const skv_sampling greedy = skv_sampling_default();
    assert_int_equal(skv_sampler_create(&greedy, skv_engine_vocab(engine), &sampler, &err), SKV_OK);
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    if (eviction) {
        skv_eviction how;
        assert_int_equal(skv_eviction_parse(eviction, &how, &err), SKV_OK);
        if (skv_sequence_set_eviction(s, &how, &err) != SKV_OK) fail_msg("%s", err.text);
    }
    const skv_generation g = {.max_tokens = TOKENS_MAX,
                              .sampler = sampler,
                              .ignore_eos = true,
                              .on_token = take,
                              .user = out};
    if (skv_generate(engine, s, ids, n, &g, &err) != SKV_OK) fail_msg("%s", err.text);
    out->kv_bytes = skv_sequence_kv_bytes(s);
    skv_sequence_free(s);
    skv_sampler_free(sampler);
}

static void run(const char *path, size_t n, const char *eviction, result *out)
{
    int32_t ids[N_IDS];
    ranks r;
    skv_error err = {0};
    skv_engine_stats stats;
    *out = (result){.n_tokens = 0};
    make_ids(ids, N_IDS);
    if (n > 1) start(&r, n);
    const skv_engine_options options = exact(n > 1 ? &r : NULL);
    skv_engine *engine = open_or_fail(path, &options);
    if (!eviction && skv_score(engine, ids, N_IDS, out->logprobs, NULL, &err) != SKV_OK) {
        fail_msg("%s: %s", path, err.text);
    }
    generate(engine, ids, N_IDS, eviction, out);
    skv_engine_get_stats(engine, &stats);
    out->weight_bytes = stats.weight_bytes;
    out->traffic = skv_engine_traffic(engine);
    skv_engine_close(engine);
    if (n > 1) end(&r);
}

static void expect_near(const char *path, const result *a, const result *b, double tolerance)
{
    for (size_t t = 1; t < N_IDS; t++) {
        const double difference = fabs(a->logprobs[t] - b->logprobs[t]);
        if (!(difference <= tolerance)) fail_msg("%s: token %zu: %g", path, t, difference);
    }
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
}

static void test_the_results_of_one_process(void **state)
{
    static const char *const paths[] = {"llama-mha",
                                        "llama-bias",
                                        "llama3-v5",
                                        "llama-gguf/model.gguf",
                                        "qwen2",
                                        "qwen2-window",
                                        "qwen3-v5",
                                        "llama-swiftkv-g1",
                                        "llama-swiftkv-g2",
                                        "qwen2-swiftkv-g2",
                                        "phi3",
                                        "gemma2",
                                        "gemma3-v5",
                                        "gemma4-e4b",
                                        "mixtral-v5",
                                        "qwen3-moe-v5",
                                        "gpt-oss",
                                        "llama-shared",
                                        "granite",
                                        "glm4",
                                        "awq",
                                        "int4-64",
                                        "fp8-row-swiftkv",
                                        "fp8-tensor",
                                        "gptq",
                                        "gptq-order-swiftkv",
                                        "int8-row",
                                        "gpt-oss-mxfp4"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[256];
        result one, two, again;
        (void)snprintf(path, sizeof path, "%s%s", MODELS, paths[i]);
        run(path, 1, NULL, &one);
        run(path, 2, NULL, &two);
        run(path, 2, NULL, &again);
        expect_near(path, &one, &two, 1e-4);
        assert_memory_equal(two.logprobs + 1, again.logprobs + 1,
                            (N_IDS - 1) * sizeof *two.logprobs);
        if (!strstr(path, "gemma4")) assert_int_equal(2 * two.kv_bytes, one.kv_bytes);
    }
}

static void test_four_ranks(void **state)
{
    static const char *const paths[] = {MODELS "llama-mha",
                                        ASSETS "stories260k/stories260k-f32.gguf"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        result one, four, again;
        run(paths[i], 1, NULL, &one);
        run(paths[i], 4, NULL, &four);
        run(paths[i], 4, NULL, &again);
        expect_near(paths[i], &one, &four, 1e-4);
        assert_memory_equal(four.logprobs + 1, again.logprobs + 1,
                            (N_IDS - 1) * sizeof *four.logprobs);
    }
}

static void test_evictions(void **state)
{
    static const char *const how[] = {"snapkv:24,8", "snapkv:24,8,query", "pyramidkv:24,8",
                                      "h2o:24,4",    "streaming:4,24",    "snapkv:24,8,3,avg"};
    static const char *const paths[] = {"llama-mha", "llama-swiftkv-g2", "qwen2-window"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        for (size_t e = 0; e < sizeof how / sizeof *how; e++) {
            char path[256];
            result one, two;
            (void)snprintf(path, sizeof path, "%s%s", MODELS, paths[i]);
            run(path, 1, how[e], &one);
            run(path, 2, how[e], &two);
            assert_int_equal(one.kv_bytes, 2 * two.kv_bytes);
            assert_memory_equal(one.tokens, two.tokens, sizeof one.tokens);
        }
    }
}

/* ---- ranks that are threads of this program ---- */

static void test_threads(void **state)
{
    int32_t ids[N_IDS];
    skv_error err = {0};
    (void)state;
    make_ids(ids, N_IDS);
    for (size_t n = 1; n <= 4; n += n) {
        skv_ranks_threads *threads = NULL;
        result one, out = {.n_tokens = 0};
        run(MODELS "llama-mha", n, NULL, &one);
        assert_int_equal(skv_ranks_threads_start(n, &threads, &err), SKV_OK);
        skv_engine_options options = exact(NULL);
        options.team = skv_ranks_threads_team(threads);
        const size_t n_each = options.team->threads; /* all together as many as processors */
        assert_true(n_each == 1 || n_each * n <= skv_processors_allowed());
        skv_engine *engine = open_or_fail(MODELS "llama-mha", &options);
        assert_int_equal(skv_score(engine, ids, N_IDS, out.logprobs, NULL, &err), SKV_OK);
        generate(engine, ids, N_IDS, NULL, &out);
        assert_int_equal(skv_engine_traffic(engine).sum_bytes, one.traffic.sum_bytes);
        skv_engine_close(engine);
        assert_int_equal(skv_ranks_threads_end(threads, &err), SKV_OK);
        expect_near("threads", &one, &out, 0);
    }
    skv_ranks_threads *none = NULL;
    assert_int_equal(skv_ranks_threads_start(SKV_RANKS_THREADS_MAX + 1, &none, &err), SKV_RANGE);
    assert_int_equal(skv_ranks_threads_end(NULL, &err), SKV_OK);
}

/* A follower that ends does so for all: nobody waits for it. */
static void test_a_thread_that_fails(void **state)
{
    unsigned char block[SKV_TOLD_BLOCK] = {0}, all[3 * SKV_TOLD_BLOCK];
    const skv_told nonsense = {.what = SKV_TOLD_FORGET + 1};
    skv_ranks_threads *threads = NULL;
    skv_error err = {0};
    (void)state;
    assert_int_equal(skv_ranks_threads_start(3, &threads, &err), SKV_OK);
    const skv_team *team = skv_ranks_threads_team(threads);
    memcpy(block, &nonsense, sizeof nonsense);
    assert_int_equal(team->share(team->ctx, block, sizeof block, &err), SKV_OK);
    assert_int_equal(team->gather(team->ctx, block, all, sizeof block, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, " of 3: ranks: an engine that is not here"));
    assert_int_equal(skv_ranks_threads_end(threads, &err), SKV_ARGUMENT);
    assert_int_equal(strncmp(err.text, "process ", 8), 0);
}

/* ---- what is sent ---- */

/* Bytes of the sums of n floats: few of them go whole to every other rank, of more each rank gets
 * its part from all and sends its sum to all. */
static uint64_t sum_bytes(size_t n_ranks, size_t n)
{
    const size_t n_pairs = n_ranks * (n_ranks - 1), whole = n_ranks << 16;
    if (n <= 1 << 13) return 4 * n_pairs * n;
    return 4 * n_pairs * 2 * (n / whole * (whole / n_ranks) + skv_ceil_div(n % whole, n_ranks));
}

/* A step of T rows, of which `wanted` run the layers from `from` on that make no keys and values.
 */
static uint64_t step_bytes(size_t n_ranks, const skv_config *c, size_t T, size_t from,
                           size_t wanted)
{
    return sum_bytes(n_ranks, T * c->hidden) + 2 * from * sum_bytes(n_ranks, T * c->hidden) +
           2 * (c->n_layers - from) * (wanted ? sum_bytes(n_ranks, wanted * c->hidden) : 0);
}

static void expect_traffic(const char *path, size_t n_ranks, size_t step_tokens)
{
    int32_t ids[LONG];
    ranks r;
    result unused = {.n_tokens = 0};
    make_ids(ids, LONG);
    start(&r, n_ranks);
    skv_engine_options options = exact(&r);
    options.step_tokens = step_tokens;
    skv_engine *engine = open_or_fail(path, &options);
    const skv_config *c = engine->config;
    const size_t from = engine->plan.last_boundary, V = c->vocab;
    const skv_ranks_traffic before = skv_engine_traffic(engine);
    generate(engine, ids, LONG, NULL, &unused);
    const skv_ranks_traffic after = skv_engine_traffic(engine);
    uint64_t sums = 0;
    size_t n_steps = 0;
    for (size_t at = 0, n; at < LONG; at += n, n_steps++) {
        n = skv_min_size(LONG - at, step_tokens);
        sums += step_bytes(n_ranks, c, n, from, at + n == LONG);
    }
    sums += (TOKENS_MAX - 1) * step_bytes(n_ranks, c, 1, from, 1);
    assert_int_equal(after.sum_bytes - before.sum_bytes, sums);
    const size_t part = skv_ranks_vocab(V, 0, n_ranks).part;
    assert_int_equal(after.head_bytes - before.head_bytes, TOKENS_MAX * 4 * part * (n_ranks - 1));
    /* Steps, and the sequence's beginning and end: a block each, and what has no room in one. */
    const size_t n_told = n_steps + TOKENS_MAX - 1 + 2;
    const size_t step = sizeof(skv_told) + sizeof(skv_told_span) + 4 * step_tokens;
    const size_t rest = step > 512 ? step - 512 : 0;
    assert_int_equal(after.told_bytes - before.told_bytes,
                     (n_told * 512 + LONG / step_tokens * rest) * (n_ranks - 1));
    skv_engine_close(engine);
    end(&r);
}

static void test_traffic(void **state)
{
    (void)state;
    expect_traffic(MODELS "llama-mha", 2, 16);
    expect_traffic(MODELS "llama-mha", 4, 16);
    expect_traffic(MODELS "qwen2-swiftkv-g2", 2, 16);
    expect_traffic(MODELS "llama-mha", 2, LONG);
    expect_traffic(MODELS "llama-mha", 4, LONG);
}

/* ---- memory ---- */

/* Bytes that an engine of a preset would take on one rank, which is more than it may. */
static size_t bytes_needed(const char *preset, size_t n)
{
    ranks r;
    size_t needed = 0;
    skv_engine *engine = NULL;
    skv_error err = {0};
    if (n > 1) start(&r, n);
    skv_engine_options options = exact(n > 1 ? &r : NULL);
    options.weights = SKV_WEIGHTS_BF16;
    options.kv = SKV_KV_BF16;
    options.context = options.kv_tokens = 8192;
    options.step_tokens = 512;
    options.memory_max = 1;
    options.memory_needed = &needed;
    assert_int_equal(skv_engine_open_preset(preset, &options, &engine, &err), SKV_MEMORY);
    assert_null(engine);
    if (n > 1) end(&r);
    return needed;
}

/* x and the logits are whole on every rank, and so is what sums take. */
static void test_memory(void **state)
{
    const size_t T = 512, D = 4096, V = 128256, one = bytes_needed("llama-3.1-8b", 1);
    (void)state;
    for (size_t n = 2; n <= 4; n += 2) {
        const size_t shared = 4 * (T * D + SKV_LOGIT_ROWS * V + (2 * n + 1) * (1 << 16));
        const double expected = (double)(one - shared) / (double)n + (double)shared;
        const double needed = (double)bytes_needed("llama-3.1-8b", n);
        print_message("llama-3.1-8b on %zu ranks: %.0f MiB, expected %.0f\n", n, needed / 1048576,
                      expected / 1048576);
        assert_true(fabs(needed - expected) < 0.1 * expected);
    }
}

/* ---- messages whose sizes are wrong ---- */

/* What a message says, and what of it is wrong. */
typedef struct bad_message {
    skv_told head;
    skv_told_span span;
    skv_status status;
} bad_message;

static void send_block(ranks *r, const skv_told *head, const skv_told_span *span)
{
    skv_error err = {0};
    unsigned char block[SKV_TOLD_BLOCK] = {0};
    memcpy(block, head, sizeof *head);
    memcpy(block + sizeof *head, span, sizeof *span);
    assert_int_equal(r->team.share(r->team.ctx, block, sizeof block, &err), SKV_OK);
}

/* An engine and a sequence on two ranks, with an index or without one, and then this: the follower
 * refuses it and ends. */
static void expect_refused(const bad_message *bad, bool indexed)
{
    ranks r;
    skv_error err = {0};
    skv_sequence *s = NULL;
    start(&r, 2);
    const skv_engine_options options = exact(&r);
    skv_engine *engine = open_or_fail(MODELS "llama3-v5", &options);
    assert_int_equal(skv_sequence_create(engine, 32, &s, &err), SKV_OK);
    bad_message message = *bad;
    message.head.engine = (uint64_t)(uintptr_t)engine;
    message.head.sequence = message.span.sequence = (uint64_t)(uintptr_t)s;
    const skv_told index = {.what = SKV_TOLD_INDEX, .n = 4, .engine = message.head.engine};
    if (indexed) send_block(&r, &index, &message.span);
    send_block(&r, &message.head, &message.span);
    pthread_join(r.others[1].thread, NULL);
    assert_int_equal(r.others[1].status, bad->status);
    assert_true(strlen(r.others[1].err.text) > 0);
    skv_ranks_fail(engine->ranks, SKV_IO, &err); /* nobody is there to be told of the end */
    skv_sequence_free(s);
    skv_engine_close(engine);
    pthread_barrier_destroy(&r.hub.all_here);
}

static void test_sizes_of_messages(void **state)
{
    const uint64_t huge = UINT64_MAX, one = sizeof(skv_told_span), step = SKV_TOLD_STEP;
    const uint64_t wraps = (uint64_t)1 << 59; /* times 32, the size of a span, is 0 */
    const bad_message cases[] = {
        {{.what = SKV_TOLD_FREE, .n_bytes = huge}, {0}, SKV_FORMAT},
        {{.what = SKV_TOLD_FREE, .n_bytes = (uint64_t)SKV_TOLD_BYTES_MAX + 1}, {0}, SKV_FORMAT},
        {{.what = (uint32_t)step, .n = wraps}, {0}, SKV_FORMAT},
        {{.what = (uint32_t)step, .n = 1, .m = 2, .n_bytes = one + 4}, {0}, SKV_FORMAT},
        {{.what = (uint32_t)step, .n = 1, .m = 1, .n_bytes = one + 4}, {.n = 2}, SKV_FORMAT},
        {{.what = (uint32_t)step, .n = 1, .m = 1, .n_bytes = one + 4}, {.n = huge}, SKV_FORMAT},
        {{.what = (uint32_t)step, .n = 1, .m = 1, .n_bytes = one + 4},
         {.n = 1, .want = huge},
         SKV_FORMAT},
        {{.what = SKV_TOLD_INDEX, .n = huge}, {0}, SKV_RANGE},
        {{.what = SKV_TOLD_CREATE, .n = huge}, {0}, SKV_RANGE},
        {{.what = SKV_TOLD_OPEN, .n_bytes = 8}, {0}, SKV_FORMAT},
        {{.what = SKV_TOLD_EVICTION, .n_bytes = 1}, {0}, SKV_FORMAT},
        {{.what = SKV_TOLD_SHARE, .other = 1}, {0}, SKV_ARGUMENT},
        {{.what = SKV_TOLD_MATCH}, {0}, SKV_ARGUMENT},
        {{.what = SKV_TOLD_FORGET + 1}, {0}, SKV_ARGUMENT},
    };
    const bad_message of_index[] = {
        {{.what = SKV_TOLD_MATCH, .n = huge / 2}, {0}, SKV_FORMAT},
        {{.what = SKV_TOLD_MATCH, .n = 33, .n_bytes = 132}, {0}, SKV_FORMAT},
        {{.what = SKV_TOLD_MATCH, .other = 64}, {0}, SKV_ARGUMENT},
        {{.what = SKV_TOLD_REMEMBER, .n = 64}, {0}, SKV_ARGUMENT},
        {{.what = SKV_TOLD_TOUCH, .n = (uint64_t)1 << 62}, {0}, SKV_FORMAT},
        {{.what = SKV_TOLD_FORGET + 1}, {0}, SKV_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) expect_refused(&cases[i], false);
    for (size_t i = 0; i < sizeof of_index / sizeof of_index[0]; i++) {
        expect_refused(&of_index[i], true);
    }
}

/* Layers that keep a state have no division; every rank is told that the engine was not opened. */
static void test_hybrids_are_refused(void **state)
{
    static const char *const paths[] = {"qwen3-5", "qwen3-5-swiftkv", "granite-h", "lfm2-v5"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[256];
        ranks r;
        skv_engine *engine = NULL;
        skv_error err = {0};
        (void)snprintf(path, sizeof path, "%s%s", MODELS, paths[i]);
        start(&r, 2);
        const skv_engine_options options = exact(&r);
        assert_int_equal(skv_engine_open(path, &options, &engine, &err), SKV_UNSUPPORTED);
        assert_null(engine);
        if (!strstr(err.text, "layers with states are not divided between ranks")) {
            fail_msg("%s: %s", path, err.text);
        }
        end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_results_of_one_process),
        cmocka_unit_test(test_four_ranks),
        cmocka_unit_test(test_evictions),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_a_thread_that_fails),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_sizes_of_messages),
        cmocka_unit_test(test_hybrids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
