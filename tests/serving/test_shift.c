/*
 * Text that earlier prompts have at another place (cache_shift): what is taken where, what usage
 * tells, that prompts without such rows are exact to the bit, and that neither another key nor the
 * disk ever sees them.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "held_worker.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/serve.h"
#include "temp_folder.h"

#define MODELS SKV_TEST_DATA "/models/"

enum {
    CONTEXT = 1024,
    VOCAB = 79,
    ANSWER = 6,
    ROUNDS_MOST = THREADS_ONLY ? 16 : 40,
    BLOCK = 64,
    TEXT = 640,
    LEAST = 256
};

static const char *const models[] = {MODELS "llama3-v5", MODELS "qwen2-swiftkv-g2",
                                     MODELS "llama-swiftkv-g1"};

#define N_MODELS cases_of(sizeof models / sizeof models[0], 1)
#define ROUNDS cases_of(ROUNDS_MOST, 8)

typedef struct asked {
    int32_t ids[CONTEXT]; /* the prompt, then its answer */
    double logprobs[ANSWER];
    size_t n, n_answers;
    uint64_t key;
    skv_job_stats stats;
} asked;

static skv_engine *open_model(const char *path, size_t kv_tokens)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = kv_tokens;
    options.step_tokens = 100;
    options.batch_invariant = true;
    return open_or_fail(path, &options);
}

static skv_scheduler *open_scheduler(skv_engine *engine, const skv_scheduler_options *options)
{
    skv_scheduler *s = NULL;
    skv_error err;
    if (skv_scheduler_create(engine, NULL, options, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

/* Answers a prompt; of several answers the first one counts. */
static void ask(skv_scheduler *s, asked *a)
{
    skv_job *job;
    skv_output o;
    skv_job_params p = skv_job_params_default();
    size_t n = a->n;
    p.ids = a->ids;
    p.n_ids = a->n;
    p.tenant = a->key;
    p.salt = a->key + 10;
    p.max_tokens = ANSWER;
    p.n_answers = a->n_answers > 0 ? a->n_answers : 1;
    p.ignore_eos = p.logprobs = true;
    assert_int_equal(skv_scheduler_submit(s, &p, &job, NULL), SKV_OK);
    while (!skv_job_done(job)) {
        if (!skv_job_next(job, &o)) {
            pause_ms(1);
        } else if (o.kind == SKV_OUTPUT_TOKEN && o.i_answer == 0) {
            a->logprobs[n - a->n] = o.logprob;
            a->ids[n++] = o.id;
        }
    }
    assert_int_equal(n, a->n + ANSWER);
    skv_job_get_stats(job, &a->stats);
    skv_job_release(job);
}

static void add(asked *a, const int32_t *ids, size_t n)
{
    memcpy(a->ids + a->n, ids, n * sizeof *ids);
    a->n += n;
}

static void add_random(asked *a, skv_rng *rng, size_t n)
{
    for (size_t i = 0; i < n; i++) a->ids[a->n++] = (int32_t)skv_rng_below(rng, VOCAB);
}

static void check_kinds(skv_scheduler *s)
{
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(s, &m);
    assert_int_equal(m.prefix_hits_tokens, m.prefix_memory_tokens + m.prefix_text_tokens +
                                               m.prefix_disk_tokens + m.prefix_store_tokens +
                                               m.prefix_reader_tokens + m.prefix_shift_tokens);
}

/* A line before the text, a part of it gone, and the prompt again: what is taken, in tokens. */
static void test_what_is_taken(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        skv_engine *engine = open_model(models[m], 32 * (size_t)CONTEXT);
        skv_scheduler *s = open_scheduler(engine, &(skv_scheduler_options){.cache_shift = true});
        skv_rng rng;
        int32_t text[TEXT];
        skv_rng_init(&rng, 11);
        for (size_t i = 0; i < TEXT; i++) text[i] = (int32_t)skv_rng_below(&rng, VOCAB);
        asked first = {.n = 0}, moved = {.n = 0}, cut = {.n = 0}, little = {.n = 0};
        asked other = {.key = 1};
        add(&first, text, TEXT);
        ask(s, &first);
        assert_int_equal(first.stats.cached_tokens, 0);
        add_random(&moved, &rng, 7);
        add(&moved, text, 600);
        add_random(&moved, &rng, 5);
        for (size_t i = 0; i < 2; i++) { /* the second time in its own blocks */
            ask(s, &moved);
            assert_int_equal(moved.stats.shifted_tokens, 576);
            assert_int_equal(moved.stats.cached_tokens, 576);
        }
        add(&cut, text, 200);
        add(&cut, text + 210, 600 - 210);
        ask(s, &cut);
        assert_int_equal(cut.stats.shifted_tokens, 320); /* from 256 on */
        assert_int_equal(cut.stats.cached_tokens, 192 + 320);
        add_random(&little, &rng, 30);
        add(&little, text + 64, LEAST - 1);
        add_random(&little, &rng, 300);
        ask(s, &little);
        assert_int_equal(little.stats.cached_tokens, 0);
        add_random(&other, &rng, 3);
        add(&other, text, TEXT);
        ask(s, &other);
        assert_int_equal(other.stats.cached_tokens, 0);
        check_kinds(s);
        skv_scheduler_free(s);
        skv_engine_close(engine);
    }
}

static size_t room_in(const asked *a, size_t n)
{
    const size_t most = CONTEXT - ANSWER - 1;
    return n < most - a->n ? n : most - a->n;
}

/* A prompt of pieces of earlier ones, with their answers, and new text between them. */
static void draw(asked *out, const asked *past, size_t n_past, skv_rng *rng)
{
    *out = (asked){.key = skv_rng_below(rng, 2), .n_answers = 1 + skv_rng_below(rng, 2)};
    const size_t n_pieces = 1 + skv_rng_below(rng, 4);
    const size_t n_from = n_pieces == 1 && n_past > 6 ? 6 : n_past; /* the first are exact */
    add_random(out, rng, 1);
    for (size_t k = 0; k < n_pieces; k++) {
        const asked *from = n_from > 0 ? &past[skv_rng_below(rng, n_from)] : NULL;
        const bool fresh = !from || skv_rng_below(rng, 4) == 0;
        if (k == 0 && from && skv_rng_below(rng, 2) > 0) out->n = 0; /* it begins like that one */
        if (k > 0 || fresh) {
            add_random(out, rng, room_in(out, 1 + skv_rng_below(rng, fresh ? 150 : 40)));
        }
        if (fresh) continue;
        const size_t n = from->n + ANSWER;
        const size_t at = n_pieces > 1 ? skv_rng_below(rng, 2) * skv_rng_below(rng, n) : 0;
        if (n_pieces == 1) out->key = from->key;
        add(out, from->ids + at, room_in(out, n - at));
    }
}

/* Prompts that took nothing have the answers of a scheduler without a cache; with memory for
 * everything and for little more than a prompt. */
static void check_exact(const char *path, size_t kv_tokens, const char *folder, uint64_t seed,
                        size_t *n_shifted, size_t *n_exact)
{
    static asked all[ROUNDS_MOST];
    skv_engine *engine = open_model(path, kv_tokens), *plain = open_model(path, CONTEXT);
    const skv_scheduler_options shifts = {.cache_shift = true, .cache_dir = folder};
    const skv_scheduler_options exact = {.cache_dir = folder}, off = {.no_prefix_cache = true};
    skv_scheduler *s = open_scheduler(engine, &shifts), *without = open_scheduler(plain, &off);
    skv_rng rng;
    skv_rng_init(&rng, seed);
    for (size_t i = 0; i < ROUNDS; i++) {
        draw(&all[i], all, i, &rng);
        asked want = all[i];
        ask(without, &want);
        ask(s, &all[i]);
        const skv_job_stats *stats = &all[i].stats;
        assert_true(stats->shifted_tokens <= stats->cached_tokens);
        assert_true(stats->cached_tokens < all[i].n);
        *n_shifted += stats->shifted_tokens > 0;
        if (stats->shifted_tokens > 0) continue;
        *n_exact += stats->cached_tokens > 0;
        assert_memory_equal(all[i].logprobs, want.logprobs, sizeof want.logprobs);
    }
    check_kinds(s);
    skv_scheduler_free(s);
    assert_int_equal(skv_kv_store_free_pages(engine->store), skv_kv_store_pages(engine->store));
    s = folder ? open_scheduler(engine, &exact) : NULL;
    for (size_t i = 0; folder && i < ROUNDS; i++) {
        asked got = all[i], want = all[i];
        ask(without, &want);
        ask(s, &got);
        assert_int_equal(got.stats.shifted_tokens, 0);
        assert_memory_equal(got.logprobs, want.logprobs, sizeof want.logprobs);
    }
    skv_scheduler_free(s);
    skv_scheduler_free(without);
    skv_engine_close(engine);
    skv_engine_close(plain);
}

static void test_the_others_are_exact(void **state)
{
    const size_t large = 64 * (size_t)CONTEXT, small = CONTEXT + CONTEXT / 2;
    size_t n_shifted = 0, n_exact = 0;
    for (size_t m = 0; m < N_MODELS; m++) {
        check_exact(models[m], large, NULL, property_seed(31 + m), &n_shifted, &n_exact);
        assert_int_equal(temp_folder_make(state, "shift"), 0);
        check_exact(models[m], small, *state, property_seed(41 + m), &n_shifted, &n_exact);
        assert_int_equal(temp_folder_drop(state), 0);
    }
    assert_true(n_shifted * 3 > ROUNDS * N_MODELS && n_exact * 12 > ROUNDS * N_MODELS);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *model, *why;
    } cases[] = {{MODELS "qwen3-5", "hybrid model, serve --cache-shift"},
                 {MODELS "gemma3-v5", "sliding windows"}};
    const skv_scheduler_options options = {.cache_shift = true};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_engine *engine = open_model(cases[i].model, 4 * (size_t)CONTEXT);
        skv_scheduler *s;
        skv_error err;
        assert_int_equal(skv_scheduler_create(engine, NULL, &options, &s, &err), SKV_UNSUPPORTED);
        assert_non_null(strstr(err.text, cases[i].why));
        skv_engine_close(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_the_others_are_exact),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
