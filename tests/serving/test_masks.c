/*
 * Masks in pieces, and the scheduler that works on them between its steps: a mask in pieces is the
 * same mask, one that is not ready holds up nobody else, one that takes too much ends its own
 * answer, time is shared between tenants, and memory stays within its account.
 * Labels: threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/token_table.h"
#include "held_worker.h"
#include "skv/serve.h"

#define MODEL SKV_TEST_DATA "/models/llama3-v5"

enum { N_TOKENS = 4000, END = 3999, WORDS = (N_TOKENS + 31) / 32, MIB = 1 << 20 };

/* ---- matchers ---- */

/* The bytes, and words of two to six letters. */
static bool token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    static const char letters[] = "abcdex12";
    char *text = user;
    if (id >= N_TOKENS - 2) return false;
    *bytes = text;
    *n = id < 256 ? 1 : 2 + id % 5;
    text[0] = (char)id;
    for (size_t i = 0; id >= 256 && i < *n; i++) text[i] = letters[(id * 5 >> 2 * i) % 8];
    return true;
}

static skv_token_table *make_table(void)
{
    char text[8];
    skv_token_table *table = NULL;
    assert_int_equal(skv_token_table_build(N_TOKENS, token, text, &table, NULL), SKV_OK);
    skv_token_table_add_end(table, END);
    return table;
}

static skv_grammar *compile(skv_grammar_kind kind, const char *text)
{
    skv_grammar *g = NULL;
    skv_error err = {0};
    if (skv_grammar_compile(kind, text, strlen(text), NULL, &g, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return g;
}

static const struct {
    skv_grammar_kind kind;
    const char *text;
} grammars[] = {
    {SKV_GRAMMAR_JSON_OBJECT, ""},
    {SKV_GRAMMAR_REGEX, "(.*a.{0,40})|(.*b.{1,41})|(.*c.{2,42})"},
    {SKV_GRAMMAR_REGEX, "([ab]{0,40}a?){0,30}12"},
    {SKV_GRAMMAR_REGEX, ".*a.{60}"},
    {SKV_GRAMMAR_GBNF, "root ::= s\ns ::= [a-d] s [a-d] | [a-d] s [a-c1] | [a-d]\n"},
    {SKV_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | [a-c]* r\nr ::= [1-3]+"},
};

enum { N_GRAMMARS = sizeof grammars / sizeof grammars[0] };

static skv_budget small_budget(uint64_t work)
{
    skv_budget budget;
    skv_budget_init(&budget, &(skv_limits){.work = work});
    return budget;
}

/* How many pieces it took. */
static size_t prepare_in_pieces(skv_matcher *m, uint64_t work)
{
    bool ready = false;
    size_t n = 0;
    for (; !ready; n++) {
        skv_budget budget = small_budget(work);
        assert_int_equal(skv_matcher_prepare(m, &budget, &ready, NULL), SKV_OK);
        assert_true(ready || budget.exceeded == SKV_EXCEEDED_WORK);
    }
    return n;
}

static void accept_in_pieces(skv_matcher *m, int32_t id)
{
    for (bool done = false; !done;) {
        skv_budget budget = small_budget(1);
        assert_int_equal(skv_matcher_accept(m, id, &budget, &done, NULL), SKV_OK);
    }
}

static void bits_of(skv_matcher *m, uint32_t *bits)
{
    float logits[N_TOKENS] = {0};
    memset(bits, 0, WORDS * sizeof *bits);
    (void)skv_matcher_mask_logits(m, logits, N_TOKENS);
    for (size_t i = 0; i < N_TOKENS; i++) {
        if (logits[i] == 0) bits[i / 32] |= UINT32_C(1) << i % 32;
    }
}

static int32_t some_token(const uint32_t *bits, size_t choice)
{
    for (size_t i = 0; i < N_TOKENS; i++) {
        size_t id = (i + choice * 97) % N_TOKENS;
        if ((bits[id / 32] >> id % 32 & 1) != 0) return (int32_t)id;
    }
    return END;
}

/* Three matchers of one space, under way at the same time, and one on its own that makes its masks
 * at once: all masks are the same. Returns how often a mask was interrupted. */
static size_t check_pieces(size_t i_grammar, const skv_token_table *table)
{
    skv_grammar *g = compile(grammars[i_grammar].kind, grammars[i_grammar].text);
    skv_matcher *whole = NULL, *parts[3] = {NULL};
    size_t n_more = 0; /* pieces beyond one a mask */
    assert_int_equal(skv_matcher_create(g, table, NULL, &whole, NULL), SKV_OK);
    assert_int_equal(skv_matcher_create(g, table, NULL, &parts[0], NULL), SKV_OK);
    assert_int_equal(skv_matcher_copy(parts[0], &parts[1], NULL), SKV_OK);
    assert_int_equal(skv_matcher_copy(parts[0], &parts[2], NULL), SKV_OK);
    for (size_t step = 0; step < 20 && !skv_matcher_is_finished(whole); step++) {
        uint32_t want[WORDS], got[WORDS];
        assert_int_equal(skv_matcher_mask(whole, want, N_TOKENS, NULL), SKV_OK);
        bool ready;
        skv_budget budget = small_budget(1);
        assert_int_equal(skv_matcher_prepare(parts[0], &budget, &ready, NULL), SKV_OK);
        if (step % 5 == 4) skv_matcher_shrink(parts[1]);
        for (size_t k = 1; k < 4; k++) {
            n_more += prepare_in_pieces(parts[k % 3], k == 1 ? 1 : 500) - 1;
            bits_of(parts[k % 3], got);
            assert_memory_equal(got, want, sizeof got);
        }
        int32_t id = some_token(want, step);
        assert_int_equal(skv_matcher_accept(whole, id, NULL, NULL, NULL), SKV_OK);
        for (size_t k = 0; k < 3; k++) accept_in_pieces(parts[k], id);
    }
    skv_matcher_free(whole);
    for (size_t k = 0; k < 3; k++) skv_matcher_free(parts[k]);
    skv_grammar_free(g);
    return n_more;
}

static void test_pieces_make_the_same_mask(void **state)
{
    skv_token_table *table = make_table();
    (void)state;
    size_t n_more = 0;
    for (size_t i = 0; i < N_GRAMMARS; i++) n_more += check_pieces(i, table);
    assert_true(n_more > 1000);
    skv_token_table_free(table);
}

static void test_copy_takes_a_ready_mask_along(void **state)
{
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "[a-f]{3}");
    skv_matcher *m = NULL, *copy = NULL;
    uint32_t want[WORDS], got[WORDS];
    (void)state;
    assert_int_equal(skv_matcher_create(g, table, NULL, &m, NULL), SKV_OK);
    (void)prepare_in_pieces(m, 100000);
    bits_of(m, want);
    assert_int_equal(skv_matcher_copy(m, &copy, NULL), SKV_OK);
    skv_matcher_free(m);
    bits_of(copy, got);
    assert_memory_equal(got, want, sizeof got);
    skv_matcher_free(copy);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

/* What a matcher says that it holds is what the account has, never beyond its maximum, and all of
 * it comes back; with less room it says that there is none, or goes on with the same masks. */
static void check_account(const skv_token_table *table, size_t max, bool *fitted)
{
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "(.*a.{0,60})|(.*b.{1,61})|([a-z]{0,9}x?){0,99}");
    skv_account *account = NULL;
    skv_matcher *m = NULL, *plain = NULL;
    assert_int_equal(skv_account_create(max, &account, NULL), SKV_OK);
    assert_int_equal(skv_matcher_create(g, table, NULL, &plain, NULL), SKV_OK);
    skv_status status = skv_matcher_create(g, table, account, &m, NULL);
    for (size_t i = 0; status == SKV_OK && i < 60; i++) {
        uint32_t bits[WORDS], want[WORDS];
        assert_int_equal(skv_matcher_mask(plain, want, N_TOKENS, NULL), SKV_OK);
        status = skv_matcher_mask(m, bits, N_TOKENS, NULL);
        if (status == SKV_OK) assert_memory_equal(bits, want, sizeof bits);
        int32_t id = some_token(want, i);
        assert_int_equal(skv_matcher_accept(plain, id, NULL, NULL, NULL), SKV_OK);
        if (status == SKV_OK) status = skv_matcher_accept(m, id, NULL, NULL, NULL);
        size_t said = skv_matcher_bytes(m), used = skv_account_used(account);
        assert_true(used <= max && said <= used + 64 * 1024 && used <= said + 64 * 1024);
    }
    assert_true(status == SKV_OK || status == SKV_MEMORY);
    *fitted = status == SKV_OK;
    skv_matcher_free(m);
    skv_matcher_free(plain);
    assert_int_equal(skv_account_used(account), 0);
    skv_account_free(account);
    skv_grammar_free(g);
}

static void test_memory_is_counted(void **state)
{
    skv_token_table *table = make_table();
    bool fitted = false, refused = false;
    (void)state;
    for (size_t kib = 64; kib <= 16 * 1024; kib *= 2) {
        bool fits;
        check_account(table, kib << 10, &fits);
        fitted = fitted || fits;
        refused = refused || !fits;
    }
    assert_true(fitted && refused);
    skv_token_table_free(table);
}

static void test_shrinking_gives_memory_back(void **state)
{
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "(.*a.{0,90})|(.*b.{1,91})|([a-z]{0,9}x?){0,99}");
    skv_account *account = NULL;
    skv_matcher *m = NULL;
    uint32_t before[WORDS], after[WORDS];
    (void)state;
    assert_int_equal(skv_account_create((size_t)64 * MIB, &account, NULL), SKV_OK);
    assert_int_equal(skv_matcher_create(g, table, account, &m, NULL), SKV_OK);
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(skv_matcher_mask(m, before, N_TOKENS, NULL), SKV_OK);
        assert_int_equal(skv_matcher_accept(m, i % 3 ? 'a' : 'b', NULL, NULL, NULL), SKV_OK);
    }
    assert_int_equal(skv_matcher_mask(m, before, N_TOKENS, NULL), SKV_OK);
    size_t used = skv_account_used(account);
    skv_matcher_shrink(m);
    assert_true(skv_account_used(account) < used / 2);
    assert_true(skv_matcher_rollback(m, 1));
    assert_int_equal(skv_matcher_accept(m, 'b', NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_matcher_mask(m, after, N_TOKENS, NULL), SKV_OK);
    assert_memory_equal(before, after, sizeof before);
    skv_matcher_free(m);
    skv_account_free(account);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

/* ---- a scheduler ---- */

/* A constraint that allows every token. Its masks take what a test says. */
typedef struct slow {
    atomic_bool open;      /* masks become ready, once it is */
    atomic_bool poor;      /* they need memory that is not there */
    atomic_size_t n_calls; /* of prepare, */
    atomic_size_t n_masks; /* and masks used */
    atomic_int n_states;
} slow;

static void *slow_begin(void *user)
{
    slow *w = user;
    atomic_fetch_add(&w->n_states, 1);
    return w;
}

static void *slow_copy(const void *state)
{
    return slow_begin((void *)(uintptr_t)state);
}

/* Uses the budget up, as a walk would. */
static skv_status slow_prepare(void *state, skv_budget *budget, bool *ready, skv_error *err)
{
    slow *w = state;
    atomic_fetch_add(&w->n_calls, 1);
    if (atomic_load(&w->poor)) {
        *err = (skv_error){.status = SKV_MEMORY, .text = "full"};
        return SKV_MEMORY;
    }
    *ready = atomic_load(&w->open);
    while (!*ready && skv_budget_work(budget, 1000)) *ready = atomic_load(&w->open);
    return SKV_OK;
}

static bool slow_mask(void *state, float *logits, size_t vocab)
{
    slow *w = state;
    (void)logits, (void)vocab;
    atomic_fetch_add(&w->n_masks, 1);
    return true;
}

static void slow_end(void *state)
{
    slow *w = state;
    atomic_fetch_sub(&w->n_states, 1);
}

static skv_constraint slow_constraint(slow *w)
{
    atomic_init(&w->open, false);
    atomic_init(&w->poor, false);
    atomic_init(&w->n_calls, 0);
    atomic_init(&w->n_masks, 0);
    atomic_init(&w->n_states, 0);
    return (skv_constraint){.name = "guided_test",
                            .user = w,
                            .begin = slow_begin,
                            .copy = slow_copy,
                            .prepare = slow_prepare,
                            .mask = slow_mask,
                            .accept = held_accept,
                            .end = slow_end};
}

typedef struct answer {
    int32_t ids[64];
    size_t n;
    bool ended;
    skv_finish finish;
    skv_status status;
    char text[200];
} answer;

static void read_answers(skv_job *job, answer *answers)
{
    skv_output o;
    while (skv_job_next(job, &o)) {
        answer *a = &answers[o.i_answer];
        if (o.kind == SKV_OUTPUT_TOKEN) a->ids[a->n++] = o.id;
        if (o.kind != SKV_OUTPUT_END) continue;
        a->ended = true;
        a->finish = o.finish;
        a->status = o.status;
        assert_true(o.n_text < sizeof a->text);
        memcpy(a->text, o.text, o.n_text);
    }
}

static void finish_job(skv_job *job, answer *answers)
{
    while (read_answers(job, answers), !skv_job_done(job)) pause_ms(1);
    skv_job_release(job);
}

static skv_engine *open_engine(void)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.context = 256;
    options.kv_tokens = 4096;
    options.step_tokens = 48;
    options.batch_invariant = true;
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(MODEL, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_scheduler *start(skv_engine *engine, const skv_scheduler_options *options)
{
    skv_scheduler *s = NULL;
    skv_error err;
    if (skv_scheduler_create(engine, NULL, options, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

/* For masks that take as long as a test wants. */
static skv_scheduler_options without_limits(void)
{
    skv_scheduler_options options = skv_scheduler_options_default();
    options.mask_seconds_max = 1e6;
    options.mask_work_max = UINT64_MAX;
    return options;
}

static skv_job_params params_of(const int32_t *ids, size_t n_ids, size_t n_answers)
{
    skv_job_params p = skv_job_params_default();
    p.ids = ids;
    p.n_ids = n_ids;
    p.n_answers = n_answers;
    p.max_tokens = 12;
    p.ignore_eos = true;
    p.sampling.temperature = 1;
    return p;
}

static skv_job *submit(skv_scheduler *s, const skv_job_params *p)
{
    skv_job *job = NULL;
    skv_error err;
    if (skv_scheduler_submit(s, p, &job, &err) != SKV_OK) fail_msg("%s", err.text);
    return job;
}

/* A job is done before its scheduler has let go of it. */
static void wait_given_back(const skv_account *account)
{
    while (skv_account_used(account) > 0) pause_ms(1);
}

static void wait_calls(slow *w, size_t n)
{
    while (atomic_load(&w->n_calls) < n) pause_ms(1);
}

static const int32_t prompt[] = {5, 9, 2, 7, 7, 1, 30, 31};

enum { N_PROMPT = sizeof prompt / sizeof prompt[0] };

static void assert_same(const answer *a, const answer *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a[i].n, b[i].n);
        assert_memory_equal(a[i].ids, b[i].ids, a[i].n * sizeof a[i].ids[0]);
        assert_int_equal(a[i].finish, b[i].finish);
    }
}

/* While a mask is being made, another answer runs from its first token to its last one; then the
 * constrained ones say what they say without having waited. */
static void test_neighbours_go_on(void **state)
{
    skv_engine *engine = open_engine();
    skv_scheduler_options options = without_limits();
    skv_scheduler *s = start(engine, &options);
    skv_job_params plain = params_of(prompt, N_PROMPT, 1), p = params_of(prompt, N_PROMPT, 3);
    answer alone[3] = {0}, beside[1] = {0}, want[3] = {0}, got[3] = {0};
    slow w;
    (void)state;
    finish_job(submit(s, &plain), alone);
    finish_job(submit(s, &p), want);
    p.constraint = slow_constraint(&w);
    skv_job *job = submit(s, &p);
    wait_calls(&w, 3);
    finish_job(submit(s, &plain), beside);
    read_answers(job, got);
    for (size_t i = 0; i < 3; i++) assert_true(got[i].n == 0 && !got[i].ended);
    atomic_store(&w.open, true);
    finish_job(job, got);
    assert_same(alone, beside, 1);
    assert_same(want, got, 3);
    assert_int_equal(atomic_load(&w.n_masks), 3 * p.max_tokens);
    skv_scheduler_free(s);
    assert_int_equal(atomic_load(&w.n_states), 0);
    skv_engine_close(engine);
}

/* Allows three tokens, and then none. */
static bool three_mask(void *state, float *logits, size_t vocab)
{
    atomic_size_t *n = state;
    (void)logits, (void)vocab;
    return atomic_fetch_add(n, 1) < 3;
}

static void *three_begin(void *user)
{
    return user;
}

static bool three_are_complete(const void *state)
{
    (void)state;
    return true;
}

/* Where no token is left, not even one that ends it, an answer ends if it is complete. */
static void test_nothing_is_left(void **state)
{
    skv_engine *engine = open_engine();
    skv_scheduler_options options = without_limits();
    skv_scheduler *s = start(engine, &options);
    (void)state;
    for (int complete = 0; complete < 2; complete++) {
        skv_job_params p = params_of(prompt, N_PROMPT, 1);
        answer got[1] = {0};
        atomic_size_t n;
        atomic_init(&n, 0);
        p.constraint = (skv_constraint){.user = &n,
                                        .begin = three_begin,
                                        .mask = three_mask,
                                        .complete = complete ? three_are_complete : NULL,
                                        .accept = held_accept,
                                        .end = held_end};
        finish_job(submit(s, &p), got);
        assert_int_equal(got[0].n, 3);
        assert_int_equal(got[0].finish, complete ? SKV_FINISH_STOP : SKV_FINISH_FAILED);
        if (!complete) assert_non_null(strstr(got[0].text, "allows no further token"));
    }
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

static void check_limit(const skv_scheduler_options *options, const char *words)
{
    skv_engine *engine = open_engine();
    skv_scheduler *s = start(engine, options);
    skv_job_params plain = params_of(prompt, N_PROMPT, 1), p = params_of(prompt, N_PROMPT, 4);
    answer alone[1] = {0}, beside[1] = {0}, got[4] = {0};
    slow w;
    plain.max_tokens = 40;
    finish_job(submit(s, &plain), alone);
    p.constraint = slow_constraint(&w);
    skv_job *job = submit(s, &p), *neighbour = submit(s, &plain);
    finish_job(job, got);
    finish_job(neighbour, beside);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(got[i].finish, SKV_FINISH_FAILED);
        assert_int_equal(got[i].status, SKV_RANGE);
        assert_non_null(strstr(got[i].text, words));
        assert_non_null(strstr(got[i].text, "guided_test"));
    }
    assert_same(alone, beside, 1);
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(s, &m);
    assert_int_equal(m.masks_refused, 1);
    skv_scheduler_free(s);
    assert_int_equal(atomic_load(&w.n_states), 0);
    skv_engine_close(engine);
}

static void test_too_much_work_ends_the_request(void **state)
{
    (void)state;
    skv_scheduler_options options = skv_scheduler_options_default();
    options.mask_work_max = 5000000;
    check_limit(&options, "5000000 units of work");
    options.mask_work_max = UINT64_MAX;
    options.mask_seconds_max = 0.05;
    check_limit(&options, "0.05 s");
}

/* One tenant's many answers get no more of the time than another one's single answer. */
static void test_tenants_share_the_time(void **state)
{
    enum { N_CALLS = 60 };
    skv_engine *engine = open_engine();
    skv_scheduler_options options = without_limits();
    options.step_ms = 8;
    skv_scheduler *s = start(engine, &options);
    skv_job *jobs[9];
    slow many, one;
    answer got[9] = {0};
    skv_job_params p = params_of(prompt, N_PROMPT, 1);
    (void)state;
    p.constraint = slow_constraint(&many);
    for (size_t i = 0; i < 8; i++) jobs[i] = submit(s, &p);
    p.tenant = 1;
    p.constraint = slow_constraint(&one);
    wait_calls(&many, 16);
    jobs[8] = submit(s, &p);
    wait_calls(&one, 2);
    size_t before = atomic_load(&many.n_calls), own_before = atomic_load(&one.n_calls);
    wait_calls(&one, own_before + N_CALLS);
    size_t calls = atomic_load(&many.n_calls) - before;
    size_t own = atomic_load(&one.n_calls) - own_before;
    assert_true(calls <= 2 * own);
    assert_true(own <= 2 * calls + N_CALLS);
    atomic_store(&many.open, true);
    atomic_store(&one.open, true);
    for (size_t i = 0; i < 9; i++) finish_job(jobs[i], &got[i]);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

/* ---- memory ---- */

/* Answers that wait for each other's memory do not wait for ever: the youngest gives up. */
static void test_the_youngest_gives_up(void **state)
{
    skv_engine *engine = open_engine();
    skv_scheduler_options options = skv_scheduler_options_default();
    assert_int_equal(skv_account_create((size_t)64 * MIB, &options.account, NULL), SKV_OK);
    skv_scheduler *s = start(engine, &options);
    skv_job_params p = params_of(prompt, N_PROMPT, 1);
    answer got[2] = {0};
    slow w[2];
    skv_job *jobs[2];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        p.constraint = slow_constraint(&w[i]);
        atomic_store(&w[i].poor, true);
        atomic_store(&w[i].open, true);
        /* Memory that becomes free when the second one has given up. */
        if (i == 0) skv_account_take_anyway(options.account, (size_t)8 * MIB);
        jobs[i] = submit(s, &p);
        wait_calls(&w[i], 1);
    }
    finish_job(jobs[1], &got[1]);
    assert_int_equal(got[1].finish, SKV_FINISH_FAILED);
    assert_int_equal(got[1].status, SKV_MEMORY);
    read_answers(jobs[0], &got[0]);
    assert_false(got[0].ended);
    atomic_store(&w[0].poor, false);
    skv_account_give(options.account, (size_t)8 * MIB);
    finish_job(jobs[0], &got[0]);
    assert_int_equal(got[0].finish, SKV_FINISH_LENGTH);
    skv_scheduler_free(s);
    assert_int_equal(skv_account_used(options.account), 0);
    skv_account_free(options.account);
    skv_engine_close(engine);
}

/* Jobs count from their submission to their release. There is room for one job with its short queue
 * of outputs and one lane, not for sixteen lanes. */
static void test_jobs_are_counted(void **state)
{
    const size_t room = (size_t)48 << 10;
    skv_engine *engine = open_engine();
    skv_scheduler_options options = without_limits();
    assert_int_equal(skv_account_create(room, &options.account, NULL), SKV_OK);
    skv_scheduler *s = start(engine, &options);
    skv_job_params p = params_of(prompt, N_PROMPT, 1);
    skv_job *first, *second = NULL;
    answer got[2] = {0};
    slow w;
    (void)state;
    p.n_answers = 16;
    assert_int_equal(skv_scheduler_submit(s, &p, &second, NULL), SKV_RANGE);
    assert_int_equal(skv_account_used(options.account), 0);
    p.n_answers = 1;
    p.constraint = slow_constraint(&w);
    first = submit(s, &p);
    size_t used = skv_account_used(options.account);
    assert_true(used > N_PROMPT * sizeof(int32_t) && used < room);
    skv_account_take_anyway(options.account, room - used - 100);
    p.constraint = (skv_constraint){0};
    assert_int_equal(skv_scheduler_submit(s, &p, &second, NULL), SKV_MEMORY);
    skv_account_give(options.account, room - used - 100);
    atomic_store(&w.open, true);
    finish_job(first, &got[0]);
    wait_given_back(options.account);
    finish_job(submit(s, &p), &got[1]);
    assert_int_equal(got[0].n, p.max_tokens);
    assert_int_equal(got[1].n, p.max_tokens);
    skv_scheduler_free(s);
    assert_int_equal(skv_account_used(options.account), 0);
    skv_account_free(options.account);
    skv_engine_close(engine);
}

/* A job whose other answers find no room in their part of the account holds up none but its own
 * key's, whose jobs stay in order. */
static void test_a_full_part_holds_up_its_own(void **state)
{
    enum { OWN, OWN_NEXT, OTHER };
    skv_engine *engine = open_engine();
    skv_scheduler_options options = without_limits();
    skv_account *parts[2] = {NULL};
    assert_int_equal(skv_account_create((size_t)64 * MIB, &options.account, NULL), SKV_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(skv_account_create_part(options.account, &parts[i], NULL), SKV_OK);
    }
    skv_scheduler *s = start(engine, &options);
    skv_job_params p = params_of(prompt, N_PROMPT, 1);
    answer ends[SKV_JOB_ANSWERS_MAX] = {0}, got[3][SKV_JOB_ANSWERS_MAX] = {0};
    skv_job *jobs[3];
    slow w;
    (void)state;
    p.account = parts[1];
    p.constraint = slow_constraint(&w); /* as long as something runs nothing is let in anyway */
    skv_job *running = submit(s, &p);
    wait_calls(&w, 1);
    p.constraint = (skv_constraint){0};
    p.account = parts[0];
    p.n_answers = SKV_JOB_ANSWERS_MAX;
    const size_t taken = skv_account_left(parts[0]) - ((size_t)48 << 10);
    skv_account_take_anyway(parts[0], taken); /* one lane fits into what is left */
    jobs[OWN] = submit(s, &p);
    p.n_answers = 1;
    p.account = NULL;
    jobs[OTHER] = submit(s, &p);
    finish_job(jobs[OTHER], got[OTHER]);
    assert_int_equal(got[OTHER][0].n, p.max_tokens);
    skv_job_stats stats;
    skv_job_get_stats(jobs[OWN], &stats);
    assert_int_equal(stats.prefilled_tokens, 0);
    skv_account_give(parts[0], taken);
    p.account = parts[0];
    jobs[OWN_NEXT] = submit(s, &p);
    finish_job(jobs[OWN], got[OWN]);
    finish_job(jobs[OWN_NEXT], got[OWN_NEXT]);
    for (size_t i = 0; i < SKV_JOB_ANSWERS_MAX; i++) {
        assert_int_equal(got[OWN][i].n, p.max_tokens);
    }
    atomic_store(&w.open, true);
    finish_job(running, ends);
    skv_scheduler_free(s);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(skv_account_used(parts[i]), 0);
        skv_account_free(parts[i]);
    }
    skv_account_free(options.account);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_make_the_same_mask),
        cmocka_unit_test(test_copy_takes_a_ready_mask_along),
        cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_shrinking_gives_memory_back),
        cmocka_unit_test(test_neighbours_go_on),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_too_much_work_ends_the_request),
        cmocka_unit_test(test_tenants_share_the_time),
        cmocka_unit_test(test_the_youngest_gives_up),
        cmocka_unit_test(test_jobs_are_counted),
        cmocka_unit_test(test_a_full_part_holds_up_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
