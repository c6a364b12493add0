/*
 * One agent's long prompt does not hold ten short chats, counted in steps: their first tokens come
 * at most two steps later than without it, and an answer under way has a token in every step.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "held_worker.h"
#include "skv/serve.h"

#define MODEL SKV_TEST_DATA "/models/llama3-v5"

enum { CONTEXT = 640, VOCAB = 90, AGENT = 600, CHATS = 10, SHORT = 12, ANSWER = 6, STEP = 16 };

/* The steps in which an answer's tokens were chosen: a constraint that allows all of them. The
 * worker publishes its count behind a step, so within a step it stands still. */
typedef struct steps {
    skv_scheduler *s;
    size_t n;
    uint64_t at[ANSWER];
} steps;

static uint64_t steps_of(skv_scheduler *s)
{
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(s, &m);
    return m.steps;
}

static void *steps_begin(void *user)
{
    return user;
}

static bool steps_mask(void *state, float *logits, size_t vocab)
{
    steps *note = state;
    (void)logits, (void)vocab;
    if (note->n < ANSWER) note->at[note->n++] = steps_of(note->s);
    return true;
}

static void steps_release(void *user)
{
    (void)user;
}

typedef struct chat {
    int32_t ids[AGENT];
    skv_job *job;
    steps note;
    uint64_t come; /* the count when it was in the queue */
} chat;

static void submit(skv_scheduler *s, chat *c, size_t n, size_t which, uint64_t tenant)
{
    skv_job_params p = skv_job_params_default();
    for (size_t i = 0; i < n; i++) c->ids[i] = (int32_t)((i * 7 + which * 13) % VOCAB);
    c->note = (steps){.s = s};
    p.ids = c->ids;
    p.n_ids = n;
    p.max_tokens = ANSWER;
    p.ignore_eos = true;
    p.tenant = tenant;
    p.constraint = (skv_constraint){.user = &c->note,
                                    .begin = steps_begin,
                                    .mask = steps_mask,
                                    .accept = held_accept,
                                    .end = held_end,
                                    .release = steps_release};
    assert_int_equal(skv_scheduler_submit(s, &p, &c->job, NULL), SKV_OK);
    c->come = steps_of(s);
}

static void read_all(chat *c)
{
    skv_output o;
    while (!skv_job_done(c->job)) {
        if (!skv_job_next(c->job, &o)) pause_ms(1);
    }
    skv_job_release(c->job);
    assert_int_equal(c->note.n, ANSWER);
    for (size_t i = 1; i < ANSWER; i++) assert_int_equal(c->note.at[i] - c->note.at[i - 1], 1);
}

/* Steps that ended between its arrival and its first token: none, where the token came before this
 * thread could look. */
static uint64_t steps_to_first(const chat *c)
{
    return c->note.at[0] > c->come ? c->note.at[0] - c->come : 0;
}

static skv_scheduler *start(skv_engine **engine)
{
    skv_error err;
    skv_scheduler *s;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = 4 * CONTEXT;
    options.step_tokens = STEP;
    if (skv_engine_open(MODEL, &options, engine, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_scheduler_options how = skv_scheduler_options_default();
    how.no_prefix_cache = true;
    how.step_ms = 60000; /* steps are as large as step_tokens says, on any machine */
    assert_int_equal(skv_scheduler_create(*engine, NULL, &how, &s, &err), SKV_OK);
    return s;
}

/* Chats that come one after the other while an agent's prompt is read. */
static void test_each_short_chat_waits_for_two_steps_at_most(void **state)
{
    (void)state;
    skv_engine *engine;
    skv_scheduler *s = start(&engine);
    chat agent, one;
    for (uint64_t other_key = 0; other_key < 2; other_key++) {
        submit(s, &agent, AGENT, 1, 0);
        for (size_t i = 0; i < CHATS; i++) {
            submit(s, &one, SHORT, 2 + i, other_key);
            read_all(&one);
            assert_in_range(steps_to_first(&one), 0, 2);
        }
        read_all(&agent);
    }
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

/* Ten at once, held until all of them are there; returns the last one's steps to its first token.
 */
static uint64_t ask_together(skv_scheduler *s, bool with_agent, uint64_t tenant)
{
    gate held;
    skv_job *holder;
    chat agent, chats[CHATS];
    const int32_t id = 3;
    uint64_t last = 0;
    skv_job_params p = skv_job_params_default();
    p.ids = &id;
    p.n_ids = 1;
    p.max_tokens = 1;
    p.constraint = gate_constraint(&held);
    assert_int_equal(skv_scheduler_submit(s, &p, &holder, NULL), SKV_OK);
    gate_wait(&held);
    if (with_agent) submit(s, &agent, AGENT, 1, 0);
    for (size_t i = 0; i < CHATS; i++) submit(s, &chats[i], SHORT / 2, 2 + i, tenant);
    atomic_store(&held.open, true);
    for (size_t i = 0; i < CHATS; i++) {
        read_all(&chats[i]);
        const uint64_t n = steps_to_first(&chats[i]);
        last = n > last ? n : last;
    }
    if (with_agent) read_all(&agent);
    skv_job_release(holder);
    return last;
}

static void test_ten_at_once_wait_for_two_steps_more(void **state)
{
    (void)state;
    skv_engine *engine;
    skv_scheduler *s = start(&engine);
    const uint64_t alone = ask_together(s, false, 0);
    assert_in_range(ask_together(s, true, 0), 0, alone + 2);
    assert_in_range(ask_together(s, true, 1), 0, alone + 2);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_short_chat_waits_for_two_steps_at_most),
        cmocka_unit_test(test_ten_at_once_wait_for_two_steps_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
