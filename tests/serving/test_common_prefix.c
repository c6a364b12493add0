/*
 * A prompt finds the longest beginning that any earlier prompt of its key has, with that one's
 * answer, and nothing of another key's: compared with a list of all of them, for generated texts
 * that branch off each other, in memory and after a restart from the disk.
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
#include "skv/serve.h"
#include "temp_folder.h"

#define MODEL SKV_TEST_DATA "/models/qwen2-swiftkv-g2"

enum { CONTEXT = 640, VOCAB = 90, ROUNDS = 60, ANSWER = 8, KEYS = 3, BLOCK = 64, KV_CONTEXTS = 64 };

/* What a cache without limits has of one prompt: all rows but that of the last token. */
typedef struct known_text {
    uint64_t key;
    size_t n;
    int32_t ids[CONTEXT];
} known_text;

typedef struct model {
    known_text at[ROUNDS];
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

/* Answers it, and adds it with its answer to the model; returns what was found. */
static size_t ask(skv_scheduler *s, model *m, uint64_t key, const int32_t *ids, size_t n)
{
    skv_job *job;
    skv_output o;
    skv_job_stats stats;
    known_text *added = &m->at[m->n++];
    skv_job_params p = skv_job_params_default();
    p.ids = ids;
    p.n_ids = n;
    p.tenant = key;
    p.salt = key + 10;
    p.max_tokens = ANSWER;
    p.ignore_eos = true;
    assert_int_equal(skv_scheduler_submit(s, &p, &job, NULL), SKV_OK);
    *added = (known_text){.key = key, .n = n};
    memcpy(added->ids, ids, n * sizeof *ids);
    while (!skv_job_done(job)) {
        if (!skv_job_next(job, &o)) {
            pause_ms(1);
        } else if (o.kind == SKV_OUTPUT_TOKEN) {
            added->ids[added->n++] = o.id;
        }
    }
    added->n--;
    skv_job_get_stats(job, &stats);
    skv_job_release(job);
    return stats.cached_tokens;
}

static void open_both(const char *folder, skv_engine **engine, skv_scheduler **s)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = KV_CONTEXTS * CONTEXT;
    assert_int_equal(skv_engine_open(MODEL, &options, engine, NULL), SKV_OK);
    const skv_scheduler_options how = {
        .cache_dir = folder, .cache_disk_bytes = (size_t)1 << 30, .cache_flush_seconds = 60};
    assert_int_equal(skv_scheduler_create(*engine, NULL, &how, s, NULL), SKV_OK);
}

static void run(const char *folder, uint64_t seed)
{
    skv_engine *engine;
    skv_scheduler *s;
    skv_rng rng;
    model *m = test_calloc(1, sizeof *m);
    int32_t ids[CONTEXT];
    size_t n_found = 0;
    skv_rng_init(&rng, seed);
    open_both(folder, &engine, &s);
    for (size_t round = 0; round < ROUNDS; round++) {
        if (folder && round % 20 == 19) { /* only the disk is left */
            skv_scheduler_free(s);
            skv_engine_close(engine);
            open_both(folder, &engine, &s);
        }
        const uint64_t key = skv_rng_below(&rng, KEYS);
        const size_t n = draw(m, &rng, ids);
        const size_t want = expected(m, key, ids, n), got = ask(s, m, key, ids, n);
        if (got != want) fail_msg("seed %d, round %zu: %zu, not %zu", (int)seed, round, got, want);
        n_found += want > 0;
    }
    assert_true(n_found >= 5);
    skv_scheduler_free(s);
    skv_engine_close(engine);
    test_free(m);
}

static void test_in_memory(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) run(NULL, seed);
}

static void test_from_the_disk(void **state)
{
    assert_int_equal(temp_folder_make(state, "common-prefix"), 0);
    run(*state, 5);
    assert_int_equal(temp_folder_drop(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_memory),
        cmocka_unit_test(test_from_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
