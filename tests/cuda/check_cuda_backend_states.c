/* States of hybrid models on the CUDA back end: a sequence that is cut into steps, shared, or comes
 * back from a prefix cache goes on as one that was read at once, but for rounding. */
#include "check_cuda_backend.h"

#include "../serving/bell.h"
#include "memory_store.h"
#include "scored_prompt.h"
#include "skv/serve.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { CONTEXT = 128, N_IDS = 72, SHARED = 34, N_ANSWER = 2 };

/* How far rows in other steps are, as a part of the deviation of logits: rows of many tokens and of
 * few take other kernels of attention. */
typedef struct hybrid {
    const char *name, *model;
    double most;
    bool cached; /* the prefix cache too */
} hybrid;

static const hybrid hybrids[] = {
    {"gated delta rule, SwiftKV", MODELS "qwen3-5-swiftkv", 0.01, true},
    {"Mamba-2", MODELS "granite-h-wide", 0.01, false},
    {"short convolution", MODELS "lfm2-wide", 0.01, false}};

enum { N_HYBRIDS = sizeof hybrids / sizeof *hybrids };

/* Two slots, so that each is used again. */
static skv_engine *open_hybrid(const hybrid *h)
{
    skv_engine_options o = skv_engine_options_default();
    o.device = "cuda";
    o.threads = 1;
    o.weights = SKV_WEIGHTS_BF16;
    o.kv = SKV_KV_BF16;
    o.context = CONTEXT;
    o.kv_tokens = (size_t)2 * CONTEXT;
    o.kv_sequences = 2;
    o.kv_checkpoints = 3;
    o.step_tokens = CONTEXT;
    return open_or_fail(h->model, &o);
}

/* ---- steps ---- */

/* The next n tokens, and one of `beside` where that is a sequence; logits of the last of them. */
static void read_ids(skv_engine *engine, skv_sequence *s, const int32_t *ids, size_t n,
                     skv_sequence *beside, logits_row *last)
{
    const skv_span spans[] = {{s, ids, n, SKV_WANT_LAST}, {beside, ids, 1, SKV_WANT_NONE}};
    skv_error err;
    if (skv_step(engine, spans, beside ? 2 : 1, copy_logits, last, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

/* Steps of 1, 2, 5, 26, .. tokens. */
static void read_cut(skv_engine *engine, skv_sequence *s, const int32_t *ids, logits_row *last)
{
    static const size_t sizes[] = {1, 2, 5, 26, 38};
    skv_sequence *beside = new_sequence(engine);
    size_t at = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        read_ids(engine, s, ids + at, sizes[i], i % 2 ? beside : NULL, last);
        at += sizes[i];
    }
    assert_int_equal(at, N_IDS);
    skv_sequence_free(beside);
}

static void read_shared(skv_engine *engine, const int32_t *ids, logits_row *last)
{
    skv_sequence *first = new_sequence(engine), *s = new_sequence(engine);
    read_ids(engine, first, ids, SHARED, NULL, last);
    assert_int_equal(skv_sequence_share(s, first, SHARED, NULL), SKV_OK);
    assert_int_equal(skv_sequence_length(s), SHARED);
    read_ids(engine, first, ids, 3, NULL, last); /* it goes on otherwise */
    read_ids(engine, s, ids + SHARED, N_IDS - SHARED, first, last);
    skv_sequence_free(first);
    skv_sequence_free(s);
}

static bool steps_are_near(const hybrid *h)
{
    static float logits[3][VOCAB_MAX];
    int32_t ids[N_IDS];
    skv_engine *engine = open_hybrid(h);
    const size_t V = skv_engine_vocab(engine);
    logits_row rows[] = {{logits[0], V}, {logits[1], V}, {logits[2], V}};
    make_repeating_ids(ids, N_IDS, V);
    skv_sequence *s = new_sequence(engine);
    read_ids(engine, s, ids, N_IDS, NULL, &rows[0]);
    skv_sequence_free(s);
    s = new_sequence(engine);
    read_cut(engine, s, ids, &rows[1]);
    skv_sequence_free(s);
    read_shared(engine, ids, &rows[2]);
    const double cut = logits_difference(logits[1], logits[0], V);
    const double shared = logits_difference(logits[2], logits[0], V);
    const bool near = cut < h->most && shared < h->most;
    print_message("%-28s cut %.4f, shared %.4f%s\n", h->name, cut, shared, near ? "" : " <-");
    skv_engine_close(engine);
    return near;
}

/* ---- the prefix cache ---- */

typedef struct answer {
    double logprobs[N_ANSWER];
    size_t n, n_cached;
} answer;

static answer ask(skv_scheduler *s, const int32_t *ids, size_t n)
{
    answer a = {.n = 0};
    skv_job_params params = skv_job_params_default();
    skv_job *job;
    skv_job_stats stats;
    skv_output o;
    skv_error err;
    bell b;
    bell_init(&b);
    params.ids = ids;
    params.n_ids = n;
    params.max_tokens = N_ANSWER;
    params.ignore_eos = params.logprobs = true;
    params.notify = ring;
    params.user = &b;
    if (skv_scheduler_submit(s, &params, &job, &err) != SKV_OK) fail_msg("%s", err.text);
    while (!skv_job_done(job)) {
        bell_wait(&b);
        while (skv_job_next(job, &o)) {
            if (o.kind == SKV_OUTPUT_TOKEN && a.n < N_ANSWER) a.logprobs[a.n++] = o.logprob;
        }
    }
    skv_job_get_stats(job, &stats);
    a.n_cached = stats.cached_tokens;
    skv_job_release(job);
    return a;
}

static bool is_near(const answer *got, const answer *want, double most)
{
    double sum = 0;
    assert_int_equal(got->n, N_ANSWER);
    for (size_t i = 0; i < N_ANSWER; i++) {
        const double off = got->logprobs[i] - want->logprobs[i];
        sum += off * off;
    }
    return sqrt(sum / N_ANSWER) < 4 * most; /* logits deviate by 2 to 4 */
}

/* A checkpoint in memory, and one that another engine has stored. */
static bool cached_answers_are_near(const hybrid *h)
{
    static memory_store kept;
    const skv_block_store store = memory_store_of(&kept);
    const uint8_t key[SKV_CACHE_KEY_BYTES_MIN] = {1, 2, 3};
    skv_scheduler_options options = skv_scheduler_options_default();
    int32_t ids[N_IDS];
    answer answers[3];
    options.store = &store;
    options.cache_key = key;
    options.n_cache_key = sizeof key;
    for (size_t i = 0; i < 3; i++) {
        skv_engine *engine = open_hybrid(h);
        skv_scheduler *s;
        skv_error err;
        make_repeating_ids(ids, N_IDS, skv_engine_vocab(engine));
        if (skv_scheduler_create(engine, NULL, &options, &s, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        answers[i] = ask(s, ids, N_IDS);
        if (i == 0) answers[++i] = ask(s, ids, N_IDS);
        skv_scheduler_free(s);
        skv_engine_close(engine);
    }
    memory_store_clear(&kept);
    assert_int_equal(answers[0].n_cached, 0);
    assert_int_equal(answers[1].n_cached, 64);
    assert_int_equal(answers[2].n_cached, 64);
    return is_near(&answers[1], &answers[0], h->most) && is_near(&answers[2], &answers[0], h->most);
}

void its_states_go_on(void **state)
{
    size_t n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < N_HYBRIDS; i++) {
        n_wrong += !steps_are_near(&hybrids[i]);
        if (hybrids[i].cached) n_wrong += !cached_answers_are_near(&hybrids[i]);
    }
    assert_int_equal(n_wrong, 0);
}
