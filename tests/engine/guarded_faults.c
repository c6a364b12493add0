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
    const skv_linear *const *experts;
    const skv_pick_row *wishes;
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

static void clear_nothing(skv_backend *be, skv_states *states, size_t i)
{
    (void)be;
    (void)states;
    (void)i;
}

static void keep_a_state(skv_backend *be)
{
    be->state_clear = clear_nothing;
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

static void count_one_voter_less(skv_backend *be, const skv_votes_args *args)
{
    skv_votes_args less = *args;
    if (--less.n > 0) planted.was.votes(be, &less);
}

static void lose_a_vote(skv_backend *be)
{
    be->votes = count_one_voter_less;
}

static skv_status turn_experts(skv_backend *be, const skv_linear *const *w, size_t n,
                               skv_experts **out, skv_error *err)
{
    const skv_linear *turned[CHECK_EXPERTS];
    for (size_t e = 0; e < n; e++) turned[e] = w[(e + 1) % n];
    return planted.was.experts_create(be, turned, n, out, err);
}

static void take_a_wrong_group(skv_backend *be)
{
    be->experts_create = turn_experts;
}

static skv_status keep_the_experts(skv_backend *be, const skv_linear *const *w, size_t n,
                                   skv_experts **out, skv_error *err)
{
    planted.experts = w;
    return planted.was.experts_create(be, w, n, out, err);
}

static void compute_by_the_kept_experts(skv_backend *be, const skv_experts_args *args)
{
    if (*(const skv_linear *const volatile *)planted.experts) {
        planted.was.experts_linear(be, args);
    }
}

static void keep_experts_too_long(skv_backend *be)
{
    be->experts_create = keep_the_experts;
    be->experts_linear = compute_by_the_kept_experts;
}

static void choose_without_a_bias(skv_backend *be, const skv_route_args *args)
{
    skv_route_args plain = *args;
    plain.bias = (skv_vec){NULL, 0};
    planted.was.route(be, &plain);
}

static void lose_a_bias(skv_backend *be)
{
    be->route = choose_without_a_bias;
}

static void add_to_what_was_there(skv_backend *be, const skv_mix_args *args)
{
    skv_mix_args added = *args;
    added.store = false;
    planted.was.mix(be, &added);
}

static void add_where_it_stores(skv_backend *be)
{
    be->mix = add_to_what_was_there;
}

static void read_the_first_rows(skv_backend *be, const skv_linear_args *args)
{
    skv_linear_args first = *args;
    first.step = NULL;
    planted.was.linear(be, &first);
}

static void take_rows_of_a_wrong_set(skv_backend *be)
{
    be->linear = read_the_first_rows;
}

static void sum_one_row_less(skv_backend *be, skv_rows x, size_t n_rows, size_t n)
{
    if (n_rows > 1) planted.was.sum(be, x, n_rows - 1, n);
}

static void lose_a_row_of_a_sum(skv_backend *be)
{
    be->sum = sum_one_row_less;
}

static skv_status begin_with_other_ids(skv_backend *be, skv_backend_step *step,
                                       const skv_backend_step_spec *spec, skv_error *err)
{
    skv_backend_step_spec other = *spec;
    int32_t ids[CHECK_ROWS] = {0};
    other.ids = ids;
    return planted.was.step_begin(be, step, &other, err);
}

static void lose_ids(skv_backend *be)
{
    be->step_begin = begin_with_other_ids;
}

/* ---- faults of picks ---- */

static void keep_the_wishes(skv_backend *be, skv_backend_step *step, skv_rows logits, size_t V,
                            const skv_pick_row *rows, size_t n, size_t first)
{
    planted.wishes = rows;
    planted.was.pick(be, step, logits, V, rows, n, first);
}

static skv_picked read_by_the_kept_wishes(skv_backend *be, const skv_backend_step *step, size_t i)
{
    (void)*(volatile const size_t *)&planted.wishes->row;
    return planted.was.picked(be, step, i);
}

static void keep_wishes_too_long(skv_backend *be)
{
    be->pick = keep_the_wishes;
    be->picked = read_by_the_kept_wishes;
}

static void read_picks_without_a_wait(skv_backend *be)
{
    be->picked = guarded_backend_picked_at_once;
}

static void pick_in_place_of_the_first(skv_backend *be, skv_backend_step *step, skv_rows logits,
                                       size_t V, const skv_pick_row *rows, size_t n, size_t first)
{
    if (first > 0) planted.was.pick(be, step, logits, V, rows, n, first);
    planted.was.pick(be, step, logits, V, rows, n, 0);
}

static void overwrite_picks(skv_backend *be)
{
    be->pick = pick_in_place_of_the_first;
}

/* Picks by wishes of which something was lost. */
#define LOSES(name, field, value)                                                                  \
    static void pick_and_##name(skv_backend *be, skv_backend_step *step, skv_rows logits,          \
                                size_t V, const skv_pick_row *rows, size_t n, size_t first)        \
    {                                                                                              \
        skv_pick_row less[CHECK_ROWS];                                                             \
        for (size_t i = 0; i < n; i++) {                                                           \
            less[i] = rows[i];                                                                     \
            less[i].field = (value);                                                               \
        }                                                                                          \
        planted.was.pick(be, step, logits, V, less, n, first);                                     \
    }                                                                                              \
    static void name(skv_backend *be)                                                              \
    {                                                                                              \
        be->pick = pick_and_##name;                                                                \
    }
LOSES(take_the_first_row, row, 0)
LOSES(lose_a_mask, mask, NULL)
LOSES(lose_biases, n_biases, 0)
LOSES(lose_penalties, n_penalties, 0)
LOSES(let_held_ids_come, n_held[1], 0)
LOSES(draw_by_another_number, u, 0.5)
#undef LOSES

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
    {"a state that is not cleared", keep_a_state, false},
    {"angles of another step", take_angles_of_another_step, false},
    {"a row that is not copied", forget_the_last_row, false},
    {"a window that is not looked at", lose_a_window, false},
    {"a lost vote", lose_a_vote, false},
    {"a wrong group of rows for an expert", take_a_wrong_group, false},
    {"a list of experts that is kept", keep_experts_too_long, false},
    {"a choice without its bias", lose_a_bias, false},
    {"a sum of experts that is not stored", add_where_it_stores, false},
    {"rows of a product from a wrong set", take_rows_of_a_wrong_set, false},
    {"a row that is not summed over ranks", lose_a_row_of_a_sum, false},
    {"lost ids", lose_ids, true},
    {"wishes that are kept too long", keep_wishes_too_long, false},
    {"picks that are read before the wait", read_picks_without_a_wait, true},
    {"picks in place of earlier ones", overwrite_picks, false},
    {"a pick from another row", take_the_first_row, false},
    {"a pick without its mask", lose_a_mask, false},
    {"a pick without its biases", lose_biases, false},
    {"a pick without its penalties", lose_penalties, false},
    {"a pick of an id that is held back", let_held_ids_come, false},
    {"a draw by another number", draw_by_another_number, false},
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
