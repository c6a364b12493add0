/*
 * A prompt finds the longest beginning that any earlier prompt of its key has, with that one's
 * answer, and nothing of another key's: compared with a list of all of them, for generated texts
 * that branch off each other, in memory, on disk and in a store, where they go when memory is short
 * and come back from. Answers are those of a scheduler without a cache, to the bit.
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
#include "held_worker.h"
#include "memory_store.h"
#include "property_seed.h"
#include "skv/serve.h"
#include "temp_folder.h"

#define MODEL SKV_TEST_DATA "/models/qwen2-swiftkv-g2"

enum {
    CONTEXT = 640,
    VOCAB = 90,
    ROUNDS_MOST = 60,
    ANSWER = 8,
    KEYS = 3,
    BLOCK = 64,
    KV_CONTEXTS = 64
};

#define ROUNDS cases_of(ROUNDS_MOST, 12)

/* What a cache without limits has of one prompt: all rows but that of the last token. */
typedef struct known_text {
    uint64_t key;
    size_t n;
    int32_t ids[CONTEXT];
} known_text;

typedef struct model {
    known_text at[ROUNDS_MOST];
    size_t n;
} model;

static size_t count_common(const known_text *a, const int32_t *ids, size_t n)
{
    size_t i = 0;
    while (i < n && i < a->n && a->ids[i] == ids[i]) i++;
    return i;
}

/* Whole blocks; the last token of a prompt is always computed. */
static size_t expected(const model *m, uint64_t key, const int32_t *ids, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < m->n; i++) {
        const size_t same = m->at[i].key == key ? count_common(&m->at[i], ids, n - 1) : 0;
        most = same > most ? same : most;
    }
    return most / BLOCK * BLOCK;
}

/* A text that leaves a known one anywhere, or begins anew. */
static size_t draw(const model *m, skv_rng *rng, int32_t *ids)
{
    size_t n = 1 + skv_rng_below(rng, CONTEXT - ANSWER - 1), n_same = 0;
    if (m->n > 0 && skv_rng_below(rng, 5) > 0) {
        const known_text *from = &m->at[skv_rng_below(rng, m->n)];
        n_same = skv_rng_below(rng, from->n + 1);
        if (skv_rng_below(rng, 4) == 0) n_same = n_same / BLOCK * BLOCK; /* at a border too */
        memcpy(ids, from->ids, n_same * sizeof *ids);
    }
    if (n < n_same) n = n_same;
    if (n > CONTEXT - ANSWER - 1) n = CONTEXT - ANSWER - 1;
    if (n < n_same) n_same = n;
    for (size_t i = n_same; i < n; i++) ids[i] = (int32_t)skv_rng_below(rng, VOCAB);
    return n;
}

/* Answers it, with the prompt in *said; returns what was found. */
static size_t ask(skv_scheduler *s, known_text *said, double *logprobs, uint64_t key,
                  const int32_t *ids, size_t n)
{
    skv_job *job;
    skv_output o;
    skv_job_stats stats;
    skv_job_params p = skv_job_params_default();
    p.ids = ids;
    p.n_ids = n;
    p.tenant = key;
    p.salt = key + 10;
    p.max_tokens = ANSWER;
    p.ignore_eos = p.logprobs = true;
    assert_int_equal(skv_scheduler_submit(s, &p, &job, NULL), SKV_OK);
    *said = (known_text){.key = key, .n = n};
    memcpy(said->ids, ids, n * sizeof *ids);
    while (!skv_job_done(job)) {
        if (!skv_job_next(job, &o)) {
            pause_ms(1);
        } else if (o.kind == SKV_OUTPUT_TOKEN) {
            logprobs[said->n - n] = o.logprob;
            said->ids[said->n++] = o.id;
        }
    }
    said->n--;
    skv_job_get_stats(job, &stats);
    skv_job_release(job);
    return stats.cached_tokens;
}

/* What the scheduler of a run keeps blocks in. */
typedef struct place {
    const char *name, *folder;    /* NULL: no disk */
    const skv_block_store *store; /* NULL: none */
    size_t kv_tokens;
    size_t restart; /* after so many rounds; 0: never */
} place;

static skv_scheduler *open_scheduler(const place *at, bool cache, skv_engine **engine)
{
    static const uint8_t key[SKV_CACHE_KEY_BYTES_MIN] = {1, 2, 3};
    skv_scheduler *s = NULL;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = at->kv_tokens;
    options.batch_invariant = true;
    assert_int_equal(skv_engine_open(MODEL, &options, engine, NULL), SKV_OK);
    const skv_scheduler_options how = {.cache_dir = at->folder,
                                       .cache_disk_bytes = (size_t)1 << 30,
                                       .cache_flush_seconds = 60,
                                       .store = at->store,
                                       .cache_key = at->store ? key : NULL,
                                       .n_cache_key = sizeof key};
    const skv_scheduler_options off = {.no_prefix_cache = true};
    assert_int_equal(skv_scheduler_create(*engine, NULL, cache ? &how : &off, &s, NULL), SKV_OK);
    return s;
}

/* The answer of a scheduler without a cache, to the bit. */
static void check_answer(skv_scheduler *without, const known_text *got, const double *logprobs,
                         size_t n)
{
    static known_text want;
    double wanted[ANSWER];
    assert_int_equal(ask(without, &want, wanted, got->key, got->ids, n), 0);
    assert_int_equal(got->n, want.n);
    assert_memory_equal(got->ids, want.ids, (want.n + 1) * sizeof *want.ids);
    assert_memory_equal(logprobs, wanted, sizeof wanted);
}

static void count_outside(skv_scheduler *s, uint64_t *n_tokens)
{
    skv_scheduler_metrics metrics;
    skv_scheduler_get_metrics(s, &metrics);
    *n_tokens += metrics.prefix_disk_tokens + metrics.prefix_store_tokens;
}

static void run(const place *at, uint64_t seed)
{
    static model m;
    const place plain = {.kv_tokens = CONTEXT};
    skv_engine *engine, *other;
    skv_scheduler *s = open_scheduler(at, true, &engine);
    skv_scheduler *without = open_scheduler(&plain, false, &other);
    skv_rng rng;
    int32_t ids[CONTEXT];
    size_t n_found = 0;
    uint64_t n_outside = 0;
    skv_rng_init(&rng, seed);
    m.n = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        if (at->restart > 0 && round % at->restart == at->restart - 1) { /* memory is empty */
            count_outside(s, &n_outside);
            skv_scheduler_free(s);
            skv_engine_close(engine);
            s = open_scheduler(at, true, &engine);
        }
        double logprobs[ANSWER];
        const uint64_t key = skv_rng_below(&rng, cases_of(KEYS, 1));
        const size_t n = draw(&m, &rng, ids), want = expected(&m, key, ids, n);
        known_text *said = &m.at[m.n++];
        const size_t got = ask(s, said, logprobs, key, ids, n);
        if (got != want) {
            fail_msg("%s, seed %d, round %zu: %zu, not %zu", at->name, (int)seed, round, got, want);
        }
        check_answer(without, said, logprobs, n);
        n_found += want > 0;
    }
    assert_true(n_found >= ROUNDS / 12);
    count_outside(s, &n_outside);
    assert_int_equal(n_outside > 0, at->folder || at->store);
    skv_scheduler_free(s);
    skv_scheduler_free(without);
    skv_engine_close(engine);
    skv_engine_close(other);
}

static void test_in_memory(void **state)
{
    (void)state;
    const place memory = {.name = "memory", .kv_tokens = KV_CONTEXTS * CONTEXT};
    for (uint64_t seed = 1; seed <= cases_of(2, 1); seed++) run(&memory, property_seed(seed));
}

/* Behind a memory with room for everything, and for little more than one prompt: blocks leave it
 * and come back all the time. */
static void test_from_elsewhere(void **state)
{
    static memory_store kept;
    const skv_block_store store = memory_store_of(&kept);
    const size_t large = KV_CONTEXTS * CONTEXT, small = CONTEXT + CONTEXT / 2;
    const place places[] = {{"both, little memory", "", &store, small, cases_of(20, 4)},
                            {"disk", "", NULL, large, 20},
                            {"disk, little memory", "", NULL, small, 20},
                            {"store", NULL, &store, large, 20},
                            {"store, little memory", NULL, &store, small, 0}};
    for (size_t i = 0; i < cases_of(sizeof places / sizeof places[0], 1); i++) {
        place at = places[i];
        assert_int_equal(temp_folder_make(state, "common-prefix"), 0);
        if (at.folder) at.folder = *state;
        run(&at, property_seed(5 + i));
        memory_store_clear(&kept);
        assert_int_equal(temp_folder_drop(state), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_memory),
        cmocka_unit_test(test_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
