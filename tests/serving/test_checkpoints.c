/*
 * The prefix cache of hybrid models: conversations that go on, are edited and branch off give the
 * tokens and log-probabilities of a scheduler without a cache, to the bit, and are found as far as
 * an ideal cache would find them whose checkpoints stand in the same places.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bell.h"
#include "memory_store.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/serve.h"
#include "skv/text.h"
#include "temp_folder.h"

#define MODELS SKV_TEST_DATA "/models/"

static const char *const models[] = {MODELS "qwen3-5",         MODELS "lfm2-v5",
                                     MODELS "granite-h",       MODELS "qwen3-5-gguf/model.gguf",
                                     MODELS "qwen3-5-swiftkv", MODELS "granite-h-swiftkv"};

enum {
    CONTEXT = 512,
    BLOCK = 64,
    ANSWER_MAX = 70,
    MODELS_MOST = THREADS_ONLY ? 2 : sizeof models / sizeof models[0],
    TOGETHER = 4,
    TURNS_MOST = 26,
    DRAFT = 6
};

#define N_MODELS cases_of(MODELS_MOST, 1)
#define TURNS cases_of(TURNS_MOST, 8)

/* Rows that stay of some prompts. */
static const skv_eviction evictions[] = {
    {.method = SKV_EVICT_SNAPKV, .capacity = 80, .window = 8, .kernel = 5},
    {.method = SKV_EVICT_STREAMING, .capacity = 130, .window = 1, .kernel = 1, .sinks = 4},
    {.method = SKV_EVICT_ADAKV, .capacity = 100, .window = 8, .kernel = 5, .floor = 0.2},
};

enum { N_EVICTIONS = sizeof evictions / sizeof evictions[0] };

/* ---- engines and requests ---- */

static skv_engine *open_with_states(const char *path, size_t kv_tokens, size_t checkpoints,
                                    skv_state_type type)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = kv_tokens;
    options.kv_sequences = TOGETHER;
    options.kv_checkpoints = checkpoints;
    options.state = type;
    options.draft_tokens = DRAFT;
    options.step_tokens = 100;
    options.batch_invariant = true;
    return open_or_fail(path, &options);
}

static skv_engine *open_hybrid(const char *path, size_t kv_tokens, size_t checkpoints)
{
    return open_with_states(path, kv_tokens, checkpoints, SKV_STATE_F32);
}

typedef struct turn {
    int32_t ids[CONTEXT]; /* the prompt, then the answer */
    size_t n_prompt, n;
    double logprobs[ANSWER_MAX];
    size_t max_tokens, n_answers, n_cached;
    uint64_t tenant;
    const skv_eviction *eviction;
    skv_job *job;
    bool cancelled;
} turn;

static void submit(skv_scheduler *s, turn *t, bell *b)
{
    skv_job_params params = skv_job_params_default();
    skv_error err;
    params.ids = t->ids;
    params.n_ids = t->n_prompt;
    params.max_tokens = t->max_tokens;
    params.n_answers = t->n_answers;
    params.tenant = t->tenant;
    params.eviction = t->eviction;
    params.ignore_eos = params.logprobs = true;
    params.notify = ring;
    params.user = b;
    t->n = t->n_prompt;
    if (skv_scheduler_submit(s, &params, &t->job, &err) != SKV_OK) fail_msg("%s", err.text);
    if (t->cancelled) skv_job_cancel(t->job);
}

static void take(turn *t, const skv_output *o)
{
    if (o->kind != SKV_OUTPUT_TOKEN) return;
    if (o->i_answer > 0) { /* greedy: the others are the same */
        return;
    }
    t->logprobs[t->n - t->n_prompt] = o->logprob;
    t->ids[t->n++] = o->id;
}

/* Runs some turns beside one another. */
static void run(skv_scheduler *s, turn *turns, size_t n)
{
    bell b;
    bell_init(&b);
    for (size_t i = 0; i < n; i++) submit(s, &turns[i], &b);
    for (size_t n_done = 0; n_done < n;) {
        skv_output o;
        bell_wait(&b);
        n_done = 0;
        for (size_t i = 0; i < n; i++) {
            while (skv_job_next(turns[i].job, &o)) take(&turns[i], &o);
            n_done += skv_job_done(turns[i].job);
        }
    }
    for (size_t i = 0; i < n; i++) {
        skv_job_stats stats;
        skv_job_get_stats(turns[i].job, &stats);
        turns[i].n_cached = stats.cached_tokens;
        skv_job_release(turns[i].job);
    }
}

static skv_scheduler *start_with(skv_engine *engine, const skv_vocab *vocab,
                                 const skv_scheduler_options *options)
{
    skv_scheduler *s = NULL;
    skv_error err;
    if (skv_scheduler_create(engine, vocab, options, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

static skv_scheduler *start(skv_engine *engine, const skv_scheduler_options *options)
{
    return start_with(engine, NULL, options);
}

static void assert_same(const turn *got, const turn *want)
{
    if (got->cancelled) return;
    const size_t n = want->n - want->n_prompt;
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, want->n * sizeof *want->ids);
    assert_memory_equal(got->logprobs, want->logprobs, n * sizeof *want->logprobs);
}

/* ---- conversations ---- */

/* A new text, or one that goes on behind an earlier one, an edit of it, or the same again. */
static void make_turn(turn *t, const turn *past, size_t n_past, skv_rng *rng)
{
    *t = (turn){.max_tokens = 1 + (size_t)skv_rng_below(rng, ANSWER_MAX), .n_answers = 1};
    const turn *from = n_past > 0 ? &past[skv_rng_below(rng, n_past)] : NULL;
    size_t n_same = 0;
    switch (from ? skv_rng_below(rng, 7) : 6) {
    case 0: n_same = from->n_prompt; break;
    case 1: n_same = (size_t)skv_rng_below(rng, from->n); break;
    case 2: n_same = (size_t)skv_rng_below(rng, from->n_prompt); break;
    case 3:
    case 4:
    case 5: n_same = from->n; break;
    default: break;
    }
    const size_t most = CONTEXT - ANSWER_MAX - 1;
    if (n_same > most) n_same = most;
    if (n_same > 0) memcpy(t->ids, from->ids, n_same * sizeof *t->ids);
    if (from) t->tenant = from->tenant;
    t->n_prompt =
        n_same + (n_same > 0 ? 1 : 70) + (size_t)skv_rng_below(rng, n_same > 0 ? 60 : 180);
    if (t->n_prompt > most) t->n_prompt = most;
    for (size_t i = n_same; i < t->n_prompt; i++) t->ids[i] = (int32_t)skv_rng_below(rng, 90);
}

/* ---- an ideal cache ---- */

/* Where a state was kept: behind the first n ids of a turn. */
typedef struct mark {
    const turn *of;
    size_t n;
} mark;

typedef struct ideal {
    mark at[4 * TURNS_MOST];
    size_t n;
} ideal;

static size_t blocks(size_t n)
{
    return n / BLOCK * BLOCK;
}

static size_t common(const turn *a, size_t n_a, const turn *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a->ids[n] == b->ids[n]) n++;
    return n;
}

static size_t ideal_hit(const ideal *cache, const turn *t)
{
    size_t most = 0;
    for (size_t i = 0; i < cache->n; i++) {
        const mark *m = &cache->at[i];
        const bool fits = m->n < t->n_prompt && common(m->of, m->n, t, m->n) == m->n;
        if (fits && m->n > most) most = m->n;
    }
    return most;
}

/* Rows of a turn: its last token was never read. */
static size_t rows_of(const turn *t)
{
    return t->n - 1;
}

/* Of a prompt's tokens those whose rows earlier turns have, with a state behind them or without. */
static size_t known_rows(const turn *past, size_t n_past, const turn *t)
{
    size_t most = 0;
    for (size_t i = 0; i < n_past; i++) {
        const size_t n = common(&past[i], rows_of(&past[i]), t, t->n_prompt - 1);
        if (blocks(n) > most) most = blocks(n);
    }
    return most;
}

/* The end of the prompt, where it parted from what was known, and the end of the answer. */
static void note_turn(ideal *cache, const turn *past, size_t n_past, const turn *t)
{
    cache->at[cache->n++] = (mark){t, blocks(t->n_prompt - 1)};
    cache->at[cache->n++] = (mark){t, known_rows(past, n_past, t)};
    if (blocks(rows_of(t)) >= t->n_prompt) cache->at[cache->n++] = (mark){t, blocks(rows_of(t))};
}

/* ---- the properties ---- */

/* Tokens are drafted from the text, which changes nothing. */
static skv_scheduler_options drafting(void)
{
    skv_scheduler_options options = skv_scheduler_options_default();
    options.speculation = (skv_speculation){.source = SKV_DRAFT_TEXT, .most = DRAFT};
    return options;
}

static uint64_t tokens_drafted(skv_scheduler *s)
{
    skv_scheduler_metrics metrics;
    skv_scheduler_get_metrics(s, &metrics);
    return metrics.drafts[SKV_DRAFT_TEXT].drafted;
}

/* One turn after the other, with room for everything. */
static void test_hits_are_those_of_an_ideal_cache(void **state)
{
    (void)state;
    static turn got[TURNS_MOST], want[TURNS_MOST];
    skv_rng rng;
    skv_rng_init(&rng, property_seed(21));
    const skv_scheduler_options off = {.no_prefix_cache = true};
    for (size_t m = 0; m < N_MODELS; m++) {
        skv_engine *engine = open_hybrid(models[m], 32 * CONTEXT, 4 * TURNS);
        skv_engine *plain = open_hybrid(models[m], TOGETHER * CONTEXT, 0);
        const skv_scheduler_options drafts = drafting();
        skv_scheduler *s = start(engine, &drafts), *without = start(plain, &off);
        ideal cache = {.n = 0};
        size_t n_hits = 0, n_sum = 0, n_stateless = 0;
        for (size_t i = 0; i < TURNS; i++) {
            make_turn(&got[i], got, i, &rng);
            want[i] = got[i];
            run(without, &want[i], 1);
            run(s, &got[i], 1);
            assert_same(&got[i], &want[i]);
            assert_int_equal(got[i].n_cached, ideal_hit(&cache, &got[i]));
            n_hits += got[i].n_cached > 0;
            n_sum += got[i].n_cached;
            n_stateless += known_rows(got, i, &got[i]) - got[i].n_cached;
            note_turn(&cache, got, i, &got[i]);
        }
        skv_scheduler_metrics metrics;
        skv_scheduler_get_metrics(s, &metrics);
        assert_int_equal(metrics.prefix_hits_tokens, n_sum);
        assert_int_equal(metrics.missed_tokens[SKV_MISS_STATE], n_stateless);
        assert_true(tokens_drafted(s) > 0);
        if (n_hits <= TURNS / 3) fail_msg("%zu hits in %zu turns", n_hits, TURNS);
        skv_scheduler_free(s);
        skv_scheduler_free(without);
        skv_engine_close(engine);
        skv_engine_close(plain);
    }
}

/* Several at a time, of two tenants, some of them cancelled, some losing rows, with drafts and
 * little memory: lanes are put back, pages and checkpoints given up, and the answers are the
 * same. */
static void test_small_budgets(void **state)
{
    (void)state;
    static turn got[TURNS_MOST], want[TURNS_MOST];
    static const size_t checkpoints[] = {5, 3, 4, 8, 5, 3};
    skv_rng rng;
    skv_rng_init(&rng, property_seed(22));
    const skv_scheduler_options off = {.no_prefix_cache = true};
    for (size_t m = 0; m < N_MODELS; m++) {
        skv_engine *engine = open_hybrid(models[m], CONTEXT + CONTEXT / 2, checkpoints[m]);
        skv_engine *plain = open_hybrid(models[m], TOGETHER * CONTEXT, 0);
        const skv_scheduler_options drafts = drafting();
        skv_scheduler *s = start(engine, &drafts), *without = start(plain, &off);
        for (size_t i = 0, n; i < TURNS; i += n) {
            n = 1 + (size_t)skv_rng_below(&rng, TOGETHER);
            if (n > TURNS - i) n = TURNS - i;
            for (size_t k = i; k < i + n; k++) {
                make_turn(&got[k], got, i, &rng);
                got[k].tenant = i == 0 ? k % 2 : got[k].tenant;
                got[k].n_answers = 1 + (size_t)skv_rng_below(&rng, 2);
                const size_t e = (size_t)skv_rng_below(&rng, 2 * N_EVICTIONS);
                got[k].eviction = e < N_EVICTIONS ? &evictions[e] : NULL;
                want[k] = got[k];
                got[k].cancelled = skv_rng_below(&rng, 6) == 0;
            }
            run(without, want + i, n);
            run(s, got + i, n);
            for (size_t k = i; k < i + n; k++) {
                assert_same(&got[k], &want[k]);
                got[k] = want[k];
            }
        }
        skv_scheduler_metrics metrics;
        skv_engine_stats stats;
        skv_scheduler_get_metrics(s, &metrics);
        assert_true(metrics.prefix_hits_tokens > 0);
        skv_scheduler_free(s);
        skv_scheduler_free(without);
        skv_engine_get_stats(engine, &stats);
        assert_int_equal(stats.states_free, stats.states);
        assert_int_equal(stats.checkpoints, checkpoints[m]);
        assert_int_equal(stats.checkpoints_free, stats.checkpoints);
        skv_engine_close(engine);
        skv_engine_close(plain);
    }
}

/* ---- disk and store ---- */

/* What one scheduler has written another finds, with few checkpoints in memory: as much as an ideal
 * cache, and the answers are the same. */
static void check_kept(const char *path, skv_state_type type, const skv_scheduler_options *options,
                       skv_rng *rng)
{
    static turn first[TURNS_MOST], again[TURNS_MOST];
    ideal cache = {.n = 0};
    skv_engine *engine = open_with_states(path, 32 * CONTEXT, 4 * TURNS, type);
    skv_scheduler *s = start(engine, options);
    for (size_t i = 0; i < TURNS; i++) {
        make_turn(&first[i], first, i, rng);
        run(s, &first[i], 1);
        note_turn(&cache, first, i, &first[i]);
    }
    skv_scheduler_free(s);
    skv_engine_close(engine);
    engine = open_with_states(path, 4 * CONTEXT, 3, type);
    s = start(engine, options);
    size_t n_hits = 0;
    for (size_t i = 0; i < TURNS; i++) {
        const size_t k = (size_t)skv_rng_below(rng, TURNS);
        again[i] = first[k];
        run(s, &again[i], 1);
        assert_same(&again[i], &first[k]);
        assert_int_equal(again[i].n_cached, ideal_hit(&cache, &again[i]));
        n_hits += again[i].n_cached > 0;
    }
    skv_scheduler_metrics metrics;
    skv_scheduler_get_metrics(s, &metrics);
    assert_true(n_hits > TURNS / 2);
    assert_true(metrics.prefix_disk_tokens + metrics.prefix_store_tokens > 0);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

static void test_checkpoints_come_back(void **state)
{
    static memory_store kept;
    const skv_block_store store = memory_store_of(&kept);
    const uint8_t key[SKV_CACHE_KEY_BYTES_MIN] = {1, 2, 3};
    skv_rng rng;
    skv_rng_init(&rng, property_seed(23));
    const skv_scheduler_options stored = {
        .store = &store, .cache_key = key, .n_cache_key = sizeof key};
    for (size_t m = 0; m < N_MODELS; m++) {
        /* States in bf16, once of each kind: those of the delta rule and of Mamba-2. */
        const bool small = m == 0 || m == 2;
        for (int bf16 = 0; bf16 <= small; bf16++) {
            const skv_state_type type = bf16 ? SKV_STATE_BF16 : SKV_STATE_F32;
            assert_int_equal(temp_folder_make(state, "checkpoints"), 0);
            const skv_scheduler_options spilled = {.cache_dir = *state};
            if (!bf16 || m == 0) check_kept(models[m], type, &spilled, &rng);
            assert_int_equal(temp_folder_drop(state), 0);
            if (!bf16 || m == 2) check_kept(models[m], type, &stored, &rng);
            memory_store_clear(&kept);
        }
    }
}

/* ---- messages ---- */

enum { VOCAB = 90, BORDER = VOCAB - 1, PROMPT = 320, FIRST = 100, SECOND = 230 };

/* A letter for each id, and one control token. */
static skv_vocab *open_letters(const char *folder)
{
    char path[512];
    skv_vocab *vocab = NULL;
    skv_error err;
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"added_tokens\":[{\"id\":%d,\"content\":\"<|m|>\",\"special\":true,"
            "\"normalized\":false,\"single_word\":false,\"lstrip\":false,\"rstrip\":false}],"
            "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
            BORDER);
    for (int i = 0; i < BORDER; i++)
        fprintf(file, "%s\"\\u%04x\":%d", i > 0 ? "," : "", 0x400 + i, i);
    fprintf(file, "}}}");
    assert_int_equal(fclose(file), 0);
    if (skv_vocab_open(folder, &vocab, &err) != SKV_OK) fail_msg("%s", err.text);
    return vocab;
}

/* Three messages; the text differs from token `at` on by `other`. */
static turn three_messages(size_t at, int32_t other)
{
    turn t = {.n_prompt = PROMPT, .max_tokens = 2, .n_answers = 1};
    for (size_t i = 0; i < PROMPT; i++) t.ids[i] = (int32_t)(i * i % 37) + (i >= at ? other : 0);
    t.ids[0] = t.ids[FIRST] = t.ids[SECOND] = BORDER;
    return t;
}

/* A prompt that was read once is continued behind its first message and its last ones, not only
 * where it ended: another question finds what stands before it at once. */
static void test_messages_are_kept(void **state)
{
    static const struct {
        size_t parts_at, n_cached, n_stateless; /* of rows that are there */
    } cases[] = {
        {PROMPT - 1, 256, 0}, {SECOND + 20, 192, 0}, {FIRST + 40, 64, 64}, {FIRST - 50, 0, 0}};
    assert_int_equal(temp_folder_make(state, "checkpoints"), 0);
    skv_vocab *vocab = open_letters(*state);
    skv_engine *engine = open_hybrid(models[0], 16 * CONTEXT, 40);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_scheduler *s = start_with(engine, vocab, NULL);
        turn first = three_messages(PROMPT, 0), again = three_messages(cases[i].parts_at, 7);
        run(s, &first, 1);
        assert_int_equal(first.n_cached, 0);
        run(s, &again, 1);
        assert_int_equal(again.n_cached, cases[i].n_cached);
        skv_scheduler_metrics metrics;
        skv_scheduler_get_metrics(s, &metrics);
        assert_int_equal(metrics.missed_tokens[SKV_MISS_STATE], cases[i].n_stateless);
        assert_int_equal(metrics.misses[SKV_MISS_STATE], cases[i].n_stateless > 0);
        skv_scheduler_free(s);
    }
    skv_engine_close(engine);
    skv_vocab_close(vocab);
    assert_int_equal(temp_folder_drop(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_are_those_of_an_ideal_cache),
        cmocka_unit_test(test_small_budgets),
        cmocka_unit_test(test_checkpoints_come_back),
        cmocka_unit_test(test_messages_are_kept),
    };
    return cmocka_run_group_tests_name("checkpoints", tests, NULL, NULL);
}
