/*
 * Back ends that are wrong on purpose. Each fault is planted in a table that is right otherwise,
 * the processor's or that of guarded_backend.h, and check_backend.h has to find it: by a result
 * that is wrong, or because the program ends. Faults of callers are in guarded_access.c.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/cpu_backend.h"
#include "check_backend_impl.h"
#include "guarded_backend.h"

/* The table as it was, and what a fault remembers. */
static struct planted {
    skv_backend was;
    const skv_backend_step_spec *spec;
} planted;

/* ---- faults ---- */

static skv_status keep_the_list(skv_backend *be, skv_backend_step *step,
                                const skv_backend_step_spec *spec, skv_error *err)
{
    planted.spec = spec;
    return planted.was.step_begin(be, step, spec, err);
}

static void gather_by_the_kept_list(skv_backend *be, const skv_backend_step *step, skv_rows x,
                                    size_t n, skv_row_set from, skv_row_set to)
{
    if (*(volatile const size_t *)&planted.spec->n_spans > 0) {
        planted.was.gather(be, step, x, n, from, to);
    }
}

static void keep_a_list_too_long(skv_backend *be)
{
    be->step_begin = keep_the_list;
    be->gather = gather_by_the_kept_list;
}

static skv_status return_at_once(skv_backend *be, skv_backend_step *step, skv_error *err)
{
    (void)be;
    (void)step;
    (void)err;
    return SKV_OK;
}

static void leave_a_wait_out(skv_backend *be)
{
    be->step_wait = return_at_once;
}

static void gather_another_set(skv_backend *be, const skv_backend_step *step, skv_rows x, size_t n,
                               skv_row_set from, skv_row_set to)
{
    planted.was.gather(be, step, x, n, from, to == SKV_SET_WANTED ? SKV_SET_KEPT : to);
}

static void take_a_wrong_set(skv_backend *be)
{
    be->gather = gather_another_set;
}

static void copy_to_the_page_behind(skv_backend *be, skv_page_pool *pool, const uint32_t *to,
                                    const uint32_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t page = to[i] + 1;
        planted.was.pages_copy(be, pool, &page, from + i, 1);
    }
}

static void copy_past_the_end_of_the_pool(skv_backend *be)
{
    be->pages_copy = copy_to_the_page_behind;
}

static void forget_the_count(skv_backend *be, skv_table *table, size_t track0,
                             const size_t *dropped, size_t n)
{
    (void)be;
    (void)table;
    (void)track0;
    (void)dropped;
    (void)n;
}

static void lose_a_dropped_count(skv_backend *be)
{
    be->table_dropped = forget_the_count;
}

static void write_entries_but_the_first(skv_backend *be, skv_table *table, size_t bundle,
                                        size_t first, const uint32_t *pages, size_t n)
{
    if (n > 1) {
        planted.was.table_write(be, table, bundle, first + 1, pages ? pages + 1 : NULL, n - 1);
    }
}

static void lose_an_entry_of_a_table(skv_backend *be)
{
    be->table_write = write_entries_but_the_first;
}

/* All spans are in the state of the first. */
static skv_status begin_in_one_state(skv_backend *be, skv_backend_step *step,
                                     const skv_backend_step_spec *spec, skv_error *err)
{
    skv_backend_step_spec one = *spec;
    skv_backend_span spans[CHECK_ROWS];
    for (size_t s = 0; s < spec->n_spans; s++) {
        spans[s] = spec->spans[s];
        spans[s].state = spans[0].state;
    }
    one.spans = spans;
    return planted.was.step_begin(be, step, &one, err);
}

static void write_a_state_twice(skv_backend *be)
{
    be->step_begin = begin_in_one_state;
}

static skv_status begin_a_row_later(skv_backend *be, skv_backend_step *step,
                                    const skv_backend_step_spec *spec, skv_error *err)
{
    skv_backend_step_spec later = *spec;
    uint32_t positions[CHECK_ROWS];
    size_t row = 0;
    for (size_t s = 0; s < spec->n_spans; s++) {
        for (size_t i = 0; i < spec->spans[s].n; i++, row++) {
            const size_t at = spec->positions ? spec->positions[row] : spec->spans[s].position0 + i;
            positions[row] = (uint32_t)at + 1;
        }
    }
    later.positions = positions;
    later.angles_of = NULL;
    return planted.was.step_begin(be, step, &later, err);
}

static void take_angles_of_another_step(skv_backend *be)
{
    be->step_begin = begin_a_row_later;
}

static void copy_one_row_less(skv_backend *be, skv_rows to, skv_rows from, size_t n_rows, size_t n)
{
    if (n_rows > 1) planted.was.copy_rows(be, to, from, n_rows - 1, n);
}

static void forget_the_last_row(skv_backend *be)
{
    be->copy_rows = copy_one_row_less;
}

static void attend_to_everything(skv_backend *be, const skv_attention_args *args)
{
    skv_attention_args all = *args;
    all.window = 0;
    planted.was.attention(be, &all);
}

static void lose_a_window(skv_backend *be)
{
    be->attention = attend_to_everything;
}

/* ---- what finds them ---- */

typedef struct fault {
    const char *name;
    void (*plant)(skv_backend *be);
    bool is_lazy; /* in the table of the guarded back end; else in the processor's */
} fault;

static const fault faults[] = {
    {"a list kept too long", keep_a_list_too_long, false},
    {"a missing wait", leave_a_wait_out, true},
    {"a wrong set", take_a_wrong_set, false},
    {"a page past the end of its pool", copy_past_the_end_of_the_pool, true},
    {"a copy to another page", copy_past_the_end_of_the_pool, false},
    {"a lost count of dropped rows", lose_a_dropped_count, false},
    {"a lost entry of a table", lose_an_entry_of_a_table, false},
    {"a state written twice", write_a_state_twice, false},
    {"angles of another step", take_angles_of_another_step, false},
    {"a row that is not copied", forget_the_last_row, false},
    {"a window that is not looked at", lose_a_window, false},
};

/* In a process of its own: check_backend with this fault, or none. Wrong results go to `out`. */
_Noreturn static void check(skv_pool *pool, void (*plant)(skv_backend *), bool is_lazy, int out)
{
    const skv_backend_options options = {.threads = pool, .level = SKV_CPU_LEVEL_REF};
    FILE *lines = fdopen(out, "w");
    skv_backend *be;
    skv_error err;
    (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own handler */
    (void)signal(SIGABRT, SIG_DFL);
    (void)close(STDERR_FILENO); /* it tells why */
    const skv_status made = is_lazy ? skv_backend_create(&options, &be, &err)
                                    : skv_backend_cpu_create(&options, &be, &err);
    if (!lines || made != SKV_OK || guarded_backend_is(be) != is_lazy) _exit(0);
    (void)setvbuf(lines, NULL, _IONBF, 0);
    planted.was = *be;
    if (plant) plant(be);
    _exit(skv_check_backend(be, 7, lines) == 0 ? 0 : 1);
}

/* Whether check_backend is content with it. One wrong result is enough. */
static bool passes(skv_pool *pool, void (*plant)(skv_backend *), bool is_lazy)
{
    int status = 0, ends[2];
    char line;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) check(pool, plant, is_lazy, ends[1]);
    (void)close(ends[1]);
    const bool wrong = read(ends[0], &line, 1) > 0;
    (void)close(ends[0]);
    if (wrong) (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    return !wrong && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void each_fault_is_found(void **state)
{
    (void)state;
    skv_pool *pool;
    size_t n_missed = 0;
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    assert_true(passes(pool, NULL, false));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const bool missed = passes(pool, faults[i].plant, faults[i].is_lazy);
        if (missed) print_message("not found: %s\n", faults[i].name);
        n_missed += missed;
    }
    skv_pool_free(pool);
    assert_int_equal(n_missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_fault_is_found)};
    return cmocka_run_group_tests_name("guarded faults", tests, NULL, NULL);
}
