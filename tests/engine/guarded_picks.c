/*
 * That the lazy back end of guarded_backend.h catches callers who misuse picks: each fault ends the
 * program with its message. Back ends that pick wrongly are in guarded_faults.c.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "guarded_backend.h"

enum { V = 16, ROWS = 4, MAX_PICKS = 3, MAX_NUMBERS = 6 };

/* Logits [ROWS, V], row i of which is i at every id, and a step under way. */
typedef struct picking {
    skv_pool *pool;
    skv_backend *be;
    skv_area *floats, *activations;
    skv_rows logits;
    skv_backend_step *step;
} picking;

static void begin(const picking *p)
{
    const skv_backend_span span = {.n = 1};
    const skv_attention_item item = {.n_q = 1};
    const skv_set_spec all = {.n_rows = 1, .items = &item, .n_items = 1};
    const skv_backend_step_spec spec = {
        .spans = &span,
        .n_spans = 1,
        .sets = {[SKV_SET_ALL] = all, [SKV_SET_KEPT] = all, [SKV_SET_WANTED] = {.n_rows = 1}}};
    assert_int_equal(p->be->step_begin(p->be, p->step, &spec, NULL), SKV_OK);
}

static void end(const picking *p)
{
    assert_int_equal(p->be->step_wait(p->be, p->step, NULL), SKV_OK);
}

static int start(void **state)
{
    static picking p;
    skv_backend *be;
    assert_int_equal(skv_pool_create(1, &p.pool, NULL), SKV_OK);
    const skv_backend_options options = {.threads = p.pool, .level = SKV_CPU_LEVEL_REF};
    assert_int_equal(skv_backend_create(&options, &be, NULL), SKV_OK);
    const skv_backend_limits limits = {.max_rows = 1, .max_K = V, .vocab = V};
    assert_int_equal(be->reserve(be, &limits, NULL), SKV_OK);
    const skv_area_spec floats = {SKV_AREA_F32, ROWS, V, false, true};
    const skv_area_spec activations = {SKV_AREA_ACTIVATIONS, ROWS, V, false, true};
    assert_int_equal(be->areas_create(be, &floats, 1, &p.floats, NULL), SKV_OK);
    assert_int_equal(be->areas_create(be, &activations, 1, &p.activations, NULL), SKV_OK);
    const skv_backend_step_limits step = {
        .max_rows = 1, .max_picks = MAX_PICKS, .max_numbers = MAX_NUMBERS};
    assert_int_equal(be->step_create(be, &step, &p.step, NULL), SKV_OK);
    p.be = be;
    p.logits = (skv_rows){p.floats, 0, V};
    const skv_mapped host = be->map(be, p.logits, ROWS, V, SKV_MAP_WRITE);
    for (size_t i = 0; i < (size_t)ROWS * V; i++) host.at[i] = (float)(i / V);
    be->unmap(be, host);
    begin(&p);
    *state = &p;
    return guarded_backend_is(be) ? 0 : -1;
}

static int stop(void **state)
{
    picking *p = *state;
    end(p);
    p->be->step_free(p->be, p->step);
    p->be->areas_free(p->be, &p->floats, 1);
    p->be->areas_free(p->be, &p->activations, 1);
    p->be->free(p->be);
    skv_pool_free(p->pool);
    return 0;
}

static void pick(const picking *p, skv_pick_row row, size_t first)
{
    p->be->pick(p->be, p->step, p->logits, V, &row, 1, first);
}

static skv_picked picked(const picking *p, size_t i)
{
    return p->be->picked(p->be, p->step, i);
}

/* ---- faults ---- */

static void read_what_was_not_picked(const picking *p)
{
    pick(p, (skv_pick_row){.row = 0}, 0);
    (void)picked(p, 1);
}

static void read_a_pick_of_the_step_before(const picking *p)
{
    pick(p, (skv_pick_row){.row = 0}, 0);
    (void)picked(p, 0);
    end(p);
    begin(p);
    (void)picked(p, 0);
}

static void pick_when_the_step_has_ended(const picking *p)
{
    end(p);
    pick(p, (skv_pick_row){.row = 0}, 0);
}

static void pick_from_a_row_that_is_not_there(const picking *p)
{
    pick(p, (skv_pick_row){.row = ROWS}, 0);
}

static void pick_from_activations(const picking *p)
{
    const skv_pick_row row = {.row = 0};
    const skv_rows rows = {p->activations, 0, V};
    p->be->pick(p->be, p->step, rows, V, &row, 1, 0);
}

static void pick_from_logits_that_are_mapped(const picking *p)
{
    (void)p->be->map(p->be, p->logits, 1, V, SKV_MAP_READ);
    pick(p, (skv_pick_row){.row = 0}, 0);
}

static void leave_a_pick_out(const picking *p)
{
    pick(p, (skv_pick_row){.row = 0}, 1);
}

static void overwrite_all_picks(const picking *p)
{
    pick(p, (skv_pick_row){.row = 0}, 0);
    pick(p, (skv_pick_row){.row = 1}, 1);
    (void)picked(p, 0);
    pick(p, (skv_pick_row){.row = 2}, 0);
}

static void overwrite_the_last_pick(const picking *p)
{
    pick(p, (skv_pick_row){.row = 0}, 0);
    pick(p, (skv_pick_row){.row = 1}, 1);
    pick(p, (skv_pick_row){.row = 2}, 1);
}

static void pick_more_than_there_is_room_for(const picking *p)
{
    for (size_t i = 0; i <= MAX_PICKS; i++) pick(p, (skv_pick_row){.row = 0}, i);
}

static void want_more_numbers_than_there_is_room_for(const picking *p)
{
    for (size_t i = 0; i < 2; i++) pick(p, (skv_pick_row){.n_top = MAX_NUMBERS / 2 + 1}, i);
}

static void want_a_logit_that_there_is_not(const picking *p)
{
    const int32_t id = V;
    pick(p, (skv_pick_row){.ids = &id, .n_ids = 1}, 0);
}

static void bias_a_logit_that_there_is_not(const picking *p)
{
    const skv_logit_bias bias = {-1, 1};
    pick(p, (skv_pick_row){.biases = &bias, .n_biases = 1}, 0);
}

static void penalise_without_numbers(const picking *p)
{
    const skv_penalty seen = {3, 1, 1};
    pick(p, (skv_pick_row){.penalties = &seen, .n_penalties = 1}, 0);
}

static void penalise_twice(const picking *p)
{
    const skv_penalty seen[] = {{3, 1, 1}, {3, 2, 1}};
    const skv_sampling sampling = skv_sampling_default();
    pick(p, (skv_pick_row){.sampling = &sampling, .penalties = seen, .n_penalties = 2}, 0);
}

static void draw_by_one(const picking *p)
{
    const skv_sampling sampling = skv_sampling_default();
    pick(p, (skv_pick_row){.sampling = &sampling, .u = 1}, 0);
}

static const struct fault {
    void (*commit)(const picking *p);
    const char *said;
} faults[] = {
    {read_what_was_not_picked, "a row that was not picked"},
    {read_a_pick_of_the_step_before, "a row that was not picked"},
    {pick_when_the_step_has_ended, "a step that is not under way"},
    {pick_from_a_row_that_is_not_there, "rows beyond the end of their area"},
    {pick_from_activations, "activations where floats are due"},
    {pick_from_logits_that_are_mapped, "an operation while its area is mapped"},
    {leave_a_pick_out, "picks that do not follow those before"},
    {overwrite_all_picks, "a pick in place of one that was not read"},
    {overwrite_the_last_pick, "a pick in place of one that was not read"},
    {pick_more_than_there_is_room_for, "more picks than a step is for"},
    {want_more_numbers_than_there_is_room_for, "more picks than a step is for"},
    {want_a_logit_that_there_is_not, "a pick of an id beyond the vocabulary"},
    {bias_a_logit_that_there_is_not, "a pick of an id beyond the vocabulary"},
    {penalise_without_numbers, "penalties without their numbers"},
    {penalise_twice, "two penalties for a token"},
    {draw_by_one, "a number that is not in [0, 1)"},
};

/* In a process of its own: true if that aborts, and says so. */
static bool is_caught(const picking *p, const struct fault *fault)
{
    char said[256] = "";
    int status = 0, ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL); /* a sanitizer has its own handler */
        (void)dup2(ends[1], STDERR_FILENO);
        fault->commit(p);
        _exit(0);
    }
    (void)close(ends[1]);
    for (size_t n = 0; n + 1 < sizeof said;) {
        const ssize_t n_read = read(ends[0], said + n, sizeof said - 1 - n);
        if (n_read <= 0) break;
        n += (size_t)n_read;
    }
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    const bool caught = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!caught || !strstr(said, fault->said)) {
        print_message("status %d, expected \"%s\": %s\n", status, fault->said, said);
        return false;
    }
    return true;
}

static void each_fault_is_caught(void **state)
{
    size_t n_missed = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        n_missed += !is_caught(*state, &faults[i]);
    }
    assert_int_equal(n_missed, 0);
}

/* ---- what is right ---- */

static void picks_stay_until_row_0_is_picked(void **state)
{
    const picking *p = *state;
    const int32_t id = 5;
    skv_picked got[2];
    for (size_t i = 0; i < 2; i++) {
        pick(p, (skv_pick_row){.row = i + 1, .n_top = 2, .ids = &id, .n_ids = 1}, i);
        got[i] = picked(p, i);
        assert_int_equal(got[0].top[1].id, 1);
        assert_true(got[0].at[0] == 1 && got[i].at[0] == (float)i + 1);
    }
    pick(p, (skv_pick_row){.row = 3}, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(got[i].at[0] != got[i].at[0]);
        assert_true(got[i].top[1].id < 0 && got[i].top[1].logit != got[i].top[1].logit);
    }
    assert_true(picked(p, 0).best.logit == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_fault_is_caught, start, stop),
        cmocka_unit_test_setup_teardown(picks_stay_until_row_0_is_picked, start, stop),
    };
    return cmocka_run_group_tests_name("guarded picks", tests, NULL, NULL);
}
