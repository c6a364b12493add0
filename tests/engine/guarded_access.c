/*
 * That the back end of guarded_backend.h catches what it is for: a step's tensors and the pages of
 * the cache can be read through the back end, and a program that breaks a contract ends.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "guarded_backend.h"
#include "kv/kv_cache.h"
#include "skv/skv.h"

enum { N_TOKENS = 6, N = 64 };

/* The signal that ends a process which does this; 0: it ended by itself, with status 0. */
static int signal_of(void (*fn)(void *arg), void *arg)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own handler */
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO); /* it tells why */
        fn(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return WTERMSIG(status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static skv_pool *pool; /* of all tests */

static int start(void **state)
{
    skv_backend *be;
    skv_error err;
    if (skv_pool_create(1, &pool, &err) != SKV_OK) return -1;
    if (skv_backend_create(&(skv_backend_options){.threads = pool, .level = SKV_CPU_LEVEL_REF}, &be,
                           &err) != SKV_OK)
        return -1;
    *state = be;
    return guarded_backend_is(be) ? 0 : -1;
}

static int stop(void **state)
{
    skv_backend *be = *state;
    be->free(be);
    skv_pool_free(pool);
    return 0;
}

/* ---- areas ---- */

static skv_area *make_area_like(skv_backend *be, skv_area_spec spec)
{
    skv_area *area = NULL;
    assert_int_equal(be->areas_create(be, &spec, 1, &area, NULL), SKV_OK);
    return area;
}

static skv_area *make_area(skv_backend *be, skv_area_kind kind, bool moves)
{
    return make_area_like(be, (skv_area_spec){kind, 4, N / 4, moves, true});
}

static void maps_are_what_was_asked_for(void **state)
{
    skv_backend *be = *state;
    skv_area *area = make_area(be, SKV_AREA_F32, false);
    const skv_rows all = {area, 0, N};
    skv_mapped host = be->map(be, all, 1, N, SKV_MAP_WRITE);
    assert_true(host.at[3] != host.at[3]); /* nonsense: it has to be written */
    for (size_t i = 0; i < N; i++) host.at[i] = (float)i;
    be->unmap(be, host);
    host = be->map(be, skv_rows_from(all, 0, 3), 1, 1, SKV_MAP_READ);
    assert_true(*host.at == 3);
    *host.at = 8; /* not the back end's */
    be->unmap(be, host);
    host = be->map(be, skv_rows_as(all, N / 4), 4, 2, SKV_MAP_BOTH); /* apart from each other */
    assert_true(host.ld > 2 && host.at[3 * host.ld + 1] == 3 * N / 4 + 1);
    host.at[3 * host.ld + 1] += 1;
    be->unmap(be, host);
    host = be->map(be, all, 1, N, SKV_MAP_READ);
    for (size_t i = 0; i < N; i++) {
        assert_true(host.at[i] == (float)i + (i == 3 * N / 4 + 1 ? 1.0f : 0.0f));
    }
    be->unmap(be, host);
    be->areas_free(be, &area, 1);
}

typedef struct fault {
    skv_backend *be;
    skv_rows x;     /* [4, N / 4] */
    skv_area *kept; /* of activations */
} fault;

static void compute(void *arg)
{
    const fault *t = arg;
    t->be->softcap(t->be, t->x, 4, N / 4, 1);
}

static void compute_while_mapped(void *arg)
{
    const fault *t = arg;
    (void)t->be->map(t->be, skv_rows_from(t->x, 2, 0), 1, 1, SKV_MAP_READ);
    t->be->softcap(t->be, t->x, 1, 1, 1);
}

static void compute_beyond_the_end(void *arg)
{
    const fault *t = arg;
    t->be->softcap(t->be, skv_rows_from(t->x, 0, 1), 4, N / 4, 1);
}

static void compute_on_rows_that_overlap(void *arg)
{
    const fault *t = arg;
    t->be->softcap(t->be, skv_rows_as(t->x, 1), 2, 2, 1);
}

static void compute_on_activations(void *arg)
{
    const fault *t = arg;
    t->be->softcap(t->be, skv_rows_as((skv_rows){.area = t->kept}, N / 4), 4, N / 4, 1);
}

static void copy_onto_itself(void *arg)
{
    const fault *t = arg;
    t->be->copy_rows(t->be, skv_rows_from(t->x, 1, 0), t->x, 2, N / 4);
}

static void map_beyond_the_end(void *arg)
{
    const fault *t = arg;
    (void)t->be->map(t->be, t->x, 5, N / 4, SKV_MAP_READ);
}

static void compute_when_it_is_freed(void *arg)
{
    fault *t = arg;
    skv_area *area = t->kept;
    t->be->areas_free(t->be, &area, 1);
    t->be->scale(t->be, (skv_rows){.area = t->kept, .ld = 1}, 1, 1, 2);
}

static void mix_what_was_not_chosen(void *arg)
{
    const fault *t = arg;
    const skv_rows y = skv_rows_as((skv_rows){.area = t->kept}, N / 4);
    t->be->mix(t->be, &(skv_mix_args){.x = t->x, .y = y, .n = N / 4});
}

static void choose_more_experts_than_there_are(void *arg)
{
    const fault *t = arg;
    t->be->route(t->be, &(skv_route_args){
                            .logits = t->x, .n_rows = 1, .how = {.n_experts = 2, .n_active = 3}});
}

static void operations_take_rows_of_areas(void **state)
{
    void (*const faults[])(void *) = {compute_while_mapped,
                                      compute_beyond_the_end,
                                      compute_on_rows_that_overlap,
                                      compute_on_activations,
                                      copy_onto_itself,
                                      map_beyond_the_end,
                                      mix_what_was_not_chosen,
                                      choose_more_experts_than_there_are,
                                      compute_when_it_is_freed};
    skv_backend *be = *state;
    skv_area *area = make_area(be, SKV_AREA_F32, false);
    fault t = {be, {area, 0, N / 4}, make_area(be, SKV_AREA_ACTIVATIONS, false)};
    assert_int_equal(signal_of(compute, &t), 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_int_equal(signal_of(faults[i], &t), SIGABRT);
    }
    be->areas_free(be, &area, 1);
    be->areas_free(be, &t.kept, 1);
}

/* ---- pages ---- */

/* A store of four pages, and two sequences of one head. */
typedef struct paged {
    skv_kv_store *store;
    skv_kv_layout layout;
    skv_kv_cache caches[2];
    skv_backend *be;
    skv_area *area, *moving;
} paged;

enum { HEAD_DIM = 8, N_PAGES = 4 };

static void make_paged(skv_backend *be, paged *p)
{
    static const skv_kv_slot slot = {.n_heads = 1, .head_dim = HEAD_DIM};
    const size_t n_bytes = skv_kv_page_bytes(SKV_KV_TYPE_F32, HEAD_DIM);
    const skv_backend_limits limits = {.max_rows = 8,
                                       .max_K = HEAD_DIM,
                                       .max_heads = 1,
                                       .head_dim = HEAD_DIM,
                                       .max_group = 1,
                                       .max_kv_rows = 2 * SKV_PAGE_ROWS};
    p->be = be;
    assert_int_equal(be->reserve(be, &limits, NULL), SKV_OK);
    assert_int_equal(skv_kv_store_create(be, SKV_KV_TYPE_F32, n_bytes, N_PAGES, &p->store, NULL),
                     SKV_OK);
    assert_int_equal(skv_kv_layout_init(&p->layout, &slot, 1, NULL), SKV_OK);
    assert_int_equal(skv_kv_layout_bind(&p->layout, p->store, 2 * SKV_PAGE_ROWS, NULL), SKV_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(skv_kv_cache_init(&p->caches[i], &p->layout, NULL), SKV_OK);
    }
    assert_int_equal(skv_kv_cache_grow(&p->caches[0], 10, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_share(&p->caches[1], &p->caches[0], 10, NULL), SKV_OK);
    p->area = make_area(be, SKV_AREA_F32, false);
    p->moving = make_area(be, SKV_AREA_F32, true);
}

static void free_paged(paged *p)
{
    p->be->areas_free(p->be, &p->area, 1);
    p->be->areas_free(p->be, &p->moving, 1);
    for (size_t i = 0; i < 2; i++) skv_kv_cache_release(&p->caches[i]);
    skv_kv_layout_release(&p->layout);
    skv_kv_store_free(p->store);
}

/* A step of n rows of the second sequence, behind n_past others; the last of them are kept. */
typedef struct stepped {
    skv_backend_step *step;
    skv_backend_span span;
    skv_attention_item items[2];
    uint32_t rows[2];
    skv_angles *angles;
    skv_backend_step_spec spec;
} stepped;

static void angles_of(const void *ctx, size_t position, size_t context, float *cosine, float *sine)
{
    (void)ctx;
    (void)context;
    cosine[0] = 1;
    sine[0] = (float)position;
}

static void describe(const paged *p, size_t n_past, size_t n, stepped *s)
{
    const skv_backend_step_limits limits = {.max_rows = 4, .angle_columns = 1};
    const skv_angles_spec angles = {angles_of, NULL, 1};
    *s = (stepped){.span = {.n = n, .n_past = n_past, .table = p->caches[1].table},
                   .items = {{0, n, n_past, 0, false}, {0, 1, n_past + n - 1, 0, false}},
                   .rows = {(uint32_t)n - 1, 0},
                   .spec = {.spans = &s->span, .n_spans = 1}};
    s->spec.sets[SKV_SET_ALL] = (skv_set_spec){NULL, n, &s->items[0], 1};
    s->spec.sets[SKV_SET_KEPT] = (skv_set_spec){s->rows, 1, &s->items[1], 1};
    s->spec.sets[SKV_SET_WANTED] = (skv_set_spec){s->rows, 1, NULL, 0};
    if (p->be->step_create(p->be, &limits, &s->step, NULL) != SKV_OK) _exit(1);
    if (p->be->angles_create(p->be, &angles, &s->angles, NULL) != SKV_OK) _exit(1);
    s->spec.angles[0] = s->angles;
    s->spec.n_angles = 1;
}

static void begin(const paged *p, const stepped *s)
{
    if (p->be->step_begin(p->be, s->step, &s->spec, NULL) != SKV_OK) _exit(1);
}

/* The same, under way. */
static stepped *begin_step(const paged *p, size_t n_past, size_t n)
{
    stepped *s = calloc(1, sizeof *s);
    if (!s) _exit(1);
    describe(p, n_past, n, s);
    begin(p, s);
    return s;
}

/* Keys and values of a step go to the cache. */
static void place_row(const paged *p, const stepped *s, bool same)
{
    const skv_rows k = {p->area, 0, HEAD_DIM};
    p->be->place(p->be, &(skv_place_args){.step = s->step,
                                          .head_dim = HEAD_DIM,
                                          .k = k,
                                          .v = same ? k : skv_rows_from(k, 4, 0),
                                          .n_kv_heads = 1,
                                          .n_copies = 1});
}

static void store_in_a_page_of_its_own(void *arg)
{
    paged *p = arg;
    if (skv_kv_cache_grow(&p->caches[1], 11, NULL) != SKV_OK) _exit(1);
    place_row(p, begin_step(p, 10, 1), false);
}

static void store_in_a_shared_page(void *arg)
{
    place_row(arg, begin_step(arg, 10, 1), false);
}

static void store_where_there_is_no_page(void *arg)
{
    place_row(arg, begin_step(arg, SKV_PAGE_ROWS, 1), false);
}

static void read_beyond_the_pool(void *arg)
{
    const paged *p = arg;
    const uint32_t page = N_PAGES;
    (void)skv_kv_page_map(p->store, page);
}

static void grow_within_a_step(void *arg)
{
    paged *p = arg;
    (void)begin_step(p, 9, 1);
    (void)!skv_kv_cache_grow(&p->caches[1], 11, NULL);
}

static void attend(const paged *p, const stepped *s, skv_row_set set)
{
    p->be->attention(p->be, &(skv_attention_args){.step = s->step,
                                                  .set = set,
                                                  .out = {p->area, 0, HEAD_DIM},
                                                  .q = {p->area, 3 * HEAD_DIM, HEAD_DIM},
                                                  .n_heads = 1,
                                                  .head_dim = HEAD_DIM,
                                                  .scale = 1});
}

static void look_at_rows_that_are_gone(void *arg)
{
    paged *p = arg;
    skv_kv_cache_truncate(&p->caches[1], 0);
    attend(p, begin_step(p, 9, 1), SKV_SET_ALL);
}

static void copy_onto_a_shared_page(void *arg)
{
    const paged *p = arg;
    const uint32_t to = skv_kv_cache_page(&p->caches[0], 0, 0), from = N_PAGES - 1;
    skv_kv_pages_copy(p->store, &to, &from, 1);
}

static void keep_a_table(void *arg)
{
    const paged *p = arg;
    p->be->slots_free(p->be, p->layout.slots);
}

static void pages_are_those_of_tables(void **state)
{
    void (*const faults[])(void *) = {store_in_a_shared_page,
                                      store_where_there_is_no_page,
                                      read_beyond_the_pool,
                                      grow_within_a_step,
                                      look_at_rows_that_are_gone,
                                      copy_onto_a_shared_page,
                                      keep_a_table};
    paged p = {.be = NULL};
    make_paged(*state, &p);
    assert_int_equal(signal_of(store_in_a_page_of_its_own, &p), 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_int_equal(signal_of(faults[i], &p), SIGABRT);
    }
    free_paged(&p);
}

/* ---- steps ---- */

static void take_angles_of_other_positions(void *arg)
{
    const paged *p = arg;
    stepped s;
    describe(p, 8, 2, &s);
    s.span.position0 = 1;
    s.spec.angles_of = begin_step(p, 8, 2)->step;
    begin(p, &s);
}

static void take_angles_of_a_step_that_has_ended(void *arg)
{
    const paged *p = arg;
    stepped s;
    describe(p, 8, 2, &s);
    const stepped *other = begin_step(p, 8, 2);
    if (p->be->step_wait(p->be, other->step, NULL) != SKV_OK) _exit(1);
    s.spec.angles_of = other->step;
    begin(p, &s);
}

static void place_with_angles_that_a_step_does_not_have(void *arg)
{
    const paged *p = arg;
    p->be->place(p->be, &(skv_place_args){.step = begin_step(p, 8, 2)->step,
                                          .head_dim = HEAD_DIM,
                                          .q = {p->area, 0, HEAD_DIM},
                                          .n_heads = 1,
                                          .q_angles = 1});
}

static void place_keys_as_values(void *arg)
{
    const paged *p = arg;
    place_row(p, begin_step(p, 8, 2), true);
}

static void make_an_area_within_a_step(void *arg)
{
    const paged *p = arg;
    (void)begin_step(p, 8, 2);
    (void)make_area(p->be, SKV_AREA_F32, false);
}

/* Angles are asked for while the back end runs a step's description. */
static void ask_the_back_end(const void *ctx, size_t position, size_t context, float *cosine,
                             float *sine)
{
    const paged *p = ctx;
    angles_of(NULL, position, context, cosine, sine);
    p->be->scale(p->be, (skv_rows){.area = p->area, .ld = 1}, 1, 1, 2);
}

static void call_it_from_within(void *arg)
{
    const paged *p = arg;
    const skv_angles_spec angles = {ask_the_back_end, p, 1};
    stepped s;
    describe(p, 8, 2, &s);
    if (p->be->angles_create(p->be, &angles, &s.angles, NULL) != SKV_OK) _exit(1);
    s.spec.angles[0] = s.angles;
    begin(p, &s);
    (void)!p->be->step_wait(p->be, s.step, NULL);
}

/* Decoding steps of one shape, whose operations are the same or are not. */
static void decode(const paged *p, bool the_same)
{
    stepped s;
    describe(p, 9, 1, &s);
    s.spec.repeats = true;
    for (size_t i = 0; i < 8; i++) {
        s.span.position0 = i;
        begin(p, &s);
        p->be->scale(p->be, (skv_rows){p->area, 0, N}, 1, N, the_same ? 2 : (float)i);
        if (p->be->step_wait(p->be, s.step, NULL) != SKV_OK) _exit(1);
    }
}

static void decode_the_same(void *arg)
{
    decode(arg, true);
}

static void decode_something_else_each_time(void *arg)
{
    decode(arg, false);
}

static void attend_in_a_step(void *arg)
{
    const paged *p = arg;
    const stepped *s = begin_step(p, 8, 2);
    attend(p, s, SKV_SET_ALL);
    p->be->gather(p->be, s->step, (skv_rows){p->moving, 0, N / 4}, N / 4, SKV_SET_ALL,
                  SKV_SET_KEPT);
    attend(p, s, SKV_SET_KEPT);
    if (p->be->step_wait(p->be, s->step, NULL) != SKV_OK) _exit(1);
    begin(p, s);
}

static void attend_when_a_step_has_ended(void *arg)
{
    const paged *p = arg;
    const stepped *s = begin_step(p, 8, 2);
    if (p->be->step_wait(p->be, s->step, NULL) != SKV_OK) _exit(1);
    attend(p, s, SKV_SET_ALL);
}

static void attend_with_rows_that_nothing_has_chosen(void *arg)
{
    attend(arg, begin_step(arg, 8, 2), SKV_SET_CHOSEN);
}

static void attend_with_more_rows_than_there_are(void *arg)
{
    const paged *p = arg; /* q begins at row 3 of an area of 8 */
    skv_kv_cache *cache = &((paged *)arg)->caches[1];
    const skv_backend_step_limits limits = {
        .max_rows = 6, .angle_columns = 1, .max_picks = 4, .max_numbers = 8};
    stepped s;
    if (skv_kv_cache_grow(cache, 16, NULL) != SKV_OK) _exit(1);
    describe(p, 10, 6, &s);
    if (p->be->step_create(p->be, &limits, &s.step, NULL) != SKV_OK) _exit(1);
    begin(p, &s);
    attend(p, &s, SKV_SET_ALL);
}

static void begin_twice(void *arg)
{
    begin(arg, begin_step(arg, 8, 2));
}

static void begin_with_an_item_at_a_wrong_place(void *arg)
{
    stepped s;
    describe(arg, 8, 2, &s);
    s.items[1].n_past--;
    begin(arg, &s);
}

static void begin_with_a_row_that_has_no_item(void *arg)
{
    stepped s;
    describe(arg, 8, 2, &s);
    s.items[0].n_q--;
    begin(arg, &s);
}

static void begin_with_wanted_rows_that_are_not_kept(void *arg)
{
    stepped s;
    describe(arg, 8, 2, &s);
    s.spec.sets[SKV_SET_WANTED] = (skv_set_spec){&s.rows[1], 1, NULL, 0};
    begin(arg, &s);
}

static void begin_with_rows_beyond_the_step(void *arg)
{
    stepped s;
    describe(arg, 8, 2, &s);
    s.rows[0] = 2;
    begin(arg, &s);
}

static void gather_rows_that_stay(void *arg)
{
    const paged *p = arg;
    p->be->gather(p->be, begin_step(p, 8, 2)->step, (skv_rows){p->area, 0, N / 4}, N / 4,
                  SKV_SET_ALL, SKV_SET_KEPT);
}

static void gather_rows_that_have_gone(void *arg)
{
    const paged *p = arg;
    p->be->gather(p->be, begin_step(p, 8, 2)->step, (skv_rows){p->moving, 0, N / 4}, N / 4,
                  SKV_SET_KEPT, SKV_SET_ALL);
}

static void choose_rows_that_have_gone(void *arg)
{
    const paged *p = arg;
    const stepped *s = begin_step(p, 8, 2);
    p->be->step_choose(p->be, s->step, SKV_SET_KEPT, &s->spec.sets[SKV_SET_ALL],
                       (skv_rows){p->moving, 0, N / 4}, N / 4);
}

static void sets_are_those_of_steps(void **state)
{
    void (*const faults[])(void *) = {take_angles_of_other_positions,
                                      take_angles_of_a_step_that_has_ended,
                                      place_with_angles_that_a_step_does_not_have,
                                      place_keys_as_values,
                                      attend_when_a_step_has_ended,
                                      attend_with_rows_that_nothing_has_chosen,
                                      attend_with_more_rows_than_there_are,
                                      begin_twice,
                                      begin_with_an_item_at_a_wrong_place,
                                      begin_with_a_row_that_has_no_item,
                                      begin_with_wanted_rows_that_are_not_kept,
                                      begin_with_rows_beyond_the_step,
                                      gather_rows_that_stay,
                                      gather_rows_that_have_gone,
                                      choose_rows_that_have_gone,
                                      make_an_area_within_a_step,
                                      call_it_from_within};
    paged p = {.be = NULL};
    make_paged(*state, &p);
    assert_int_equal(signal_of(attend_in_a_step, &p), 0);
    assert_int_equal(signal_of(decode_the_same, &p), 0);
    if (guarded_backend_compares()) {
        assert_int_equal(signal_of(decode_something_else_each_time, &p), SIGABRT);
    }
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_int_equal(signal_of(faults[i], &p), SIGABRT);
    }
    free_paged(&p);
}

/* What a contract calls undefined is nonsense, and not what the CPU happens to leave there. */
static void what_is_undefined_is_nonsense(void **state)
{
    paged p = {.be = NULL};
    make_paged(*state, &p);
    const skv_rows x = {p.moving, 0, N / 4};
    stepped s;
    describe(&p, 8, 2, &s);
    begin(&p, &s);
    p.be->gather(p.be, s.step, x, N / 4, SKV_SET_ALL, SKV_SET_KEPT);
    skv_mapped host = p.be->map(p.be, skv_rows_as(x, N), 1, N, SKV_MAP_READ);
    for (size_t i = 0; i < N; i++) assert_true((host.at[i] == 0) == (i < N / 4));
    p.be->unmap(p.be, host);
    assert_int_equal(p.be->step_wait(p.be, s.step, NULL), SKV_OK);
    p.be->step_free(p.be, s.step);
    p.be->angles_free(p.be, s.angles);
    free_paged(&p);
}

static float first_of(skv_backend *be, skv_rows rows)
{
    const skv_mapped host = be->map(be, rows, 1, 1, SKV_MAP_READ);
    const float value = *host.at;
    be->unmap(be, host);
    return value;
}

/* A step begins without what areas had that do not last. */
static void what_does_not_last_is_nonsense(void **state)
{
    skv_backend *be = *state;
    paged p = {.be = NULL};
    make_paged(be, &p);
    skv_area *passing = make_area_like(be, (skv_area_spec){SKV_AREA_F32, 4, N / 4, false, false});
    stepped s;
    describe(&p, 8, 2, &s);
    be->scale(be, (skv_rows){p.area, 0, N}, 1, N, 2);
    be->scale(be, (skv_rows){passing, 0, N}, 1, N, 2);
    assert_true(first_of(be, (skv_rows){passing, 0, N}) == 0);
    begin(&p, &s);
    assert_true(first_of(be, (skv_rows){p.area, 0, N}) == 0);
    const float gone = first_of(be, (skv_rows){passing, 0, N});
    assert_true(gone != gone);
    assert_int_equal(be->step_wait(be, s.step, NULL), SKV_OK);
    be->step_free(be, s.step);
    be->angles_free(be, s.angles);
    be->areas_free(be, &passing, 1);
    free_paged(&p);
}

/* Saved rows have arrived when a step has been waited for, as they were when they were saved. */
static void rows_are_saved_late(void **state)
{
    skv_backend *be = *state;
    paged p = {.be = NULL};
    make_paged(be, &p);
    const skv_rows x = {p.area, 0, HEAD_DIM};
    float saved[HEAD_DIM];
    stepped s;
    describe(&p, 8, 2, &s);
    begin(&p, &s);
    be->save_rows(be, SKV_WEIGHT_F32, (unsigned char *)saved, x, 1, HEAD_DIM, (skv_norm){0});
    skv_mapped host = be->map(be, x, 1, HEAD_DIM, SKV_MAP_WRITE);
    for (size_t i = 0; i < HEAD_DIM; i++) host.at[i] = 1;
    be->unmap(be, host);
    assert_true(saved[0] != saved[0]);
    assert_true(first_of(be, x) == 1); /* a wait, but not of the step */
    assert_true(saved[HEAD_DIM - 1] != saved[HEAD_DIM - 1]);
    assert_int_equal(be->step_wait(be, s.step, NULL), SKV_OK);
    for (size_t i = 0; i < HEAD_DIM; i++) assert_true(saved[i] == 0);
    be->step_free(be, s.step);
    be->angles_free(be, s.angles);
    free_paged(&p);
}

static void read_directly(void *at)
{
    (void)*(volatile const float *)at;
}

static void pages_are_out_of_reach(void **state)
{
    paged p = {.be = NULL};
    make_paged(*state, &p);
    void *page = (void *)(uintptr_t)skv_kv_page_map(p.store, 0);
    assert_int_equal(signal_of(read_directly, page), 0);
    skv_kv_page_unmap(p.store, page);
    assert_int_equal(signal_of(read_directly, page), SIGSEGV);
    free_paged(&p);
}

/* What is read has arrived when pages_done says so, and is as it was. */
static void pages_arrive_late(void **state)
{
    skv_backend *be = *state;
    paged p = {.be = NULL};
    make_paged(be, &p);
    const size_t n = skv_kv_store_page_bytes(p.store) / sizeof(float);
    float *host = calloc(n, sizeof *host), *other = calloc(n, sizeof *other);
    assert_true(host && other);
    const uint32_t page = N_PAGES - 1;
    skv_status status;
    for (size_t i = 0; i < n; i++) other[i] = 1;
    const skv_ticket ticket = skv_kv_pages_read(p.store, &page, 1, host);
    skv_kv_pages_write(p.store, &page, 1, other);
    assert_true(host[0] != host[0]);
    assert_false(be->pages_done(be, ticket, false, &status));
    assert_true(host[n - 1] != host[n - 1]);
    assert_true(be->pages_done(be, ticket, true, &status));
    for (size_t i = 0; i < n; i++) assert_true(host[i] == 0);
    free(host);
    free(other);
    free_paged(&p);
}

/* ---- a step ---- */

typedef struct looker {
    skv_engine *engine;
    bool unmaps; /* as it should */
} looker;

static void look(void *user, size_t i, skv_rows x, size_t n_rows)
{
    const looker *l = user;
    (void)i;
    skv_backend *be = l->engine->be;
    const skv_mapped host = be->map(be, x, n_rows, l->engine->config->hidden, SKV_MAP_READ);
    (void)*(volatile const float *)host.at;
    if (l->unmaps) be->unmap(be, host);
}

static void run_step(void *arg)
{
    looker *l = arg;
    const int32_t ids[N_TOKENS] = {1, 2, 3, 4, 5, 6};
    skv_sequence *sequence;
    skv_error err;
    if (skv_sequence_create(l->engine, N_TOKENS, &sequence, &err) != SKV_OK) _exit(1);
    const skv_span span = {.sequence = sequence, .ids = ids, .n = N_TOKENS, .want = SKV_WANT_LAST};
    const skv_hook tap = {.user = l, .on_hidden = look};
    const skv_step_sink sink = {.tap = &tap};
    if (skv_engine_step(l->engine, &span, 1, &sink, &err) != SKV_OK) _exit(1);
    skv_sequence_free(sequence);
}

/* What a hook gets is the back end's, and one that keeps it is caught. */
static void tensors_of_a_step_are_lent(void **state)
{
    (void)state;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1; /* a child process has one */
    options.context = 64;
    options.cpu = "ref";
    looker l = {.engine = NULL};
    skv_error err;
    skv_status status =
        skv_engine_open(SKV_TEST_DATA "/models/llama-swiftkv-g1", &options, &l.engine, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    assert_true(guarded_backend_is(l.engine->be));
    assert_int_equal(signal_of(run_step, &l), SIGABRT);
    l.unmaps = true;
    assert_int_equal(signal_of(run_step, &l), 0);
    skv_engine_close(l.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(maps_are_what_was_asked_for, start, stop),
        cmocka_unit_test_setup_teardown(operations_take_rows_of_areas, start, stop),
        cmocka_unit_test_setup_teardown(pages_are_those_of_tables, start, stop),
        cmocka_unit_test_setup_teardown(sets_are_those_of_steps, start, stop),
        cmocka_unit_test_setup_teardown(what_is_undefined_is_nonsense, start, stop),
        cmocka_unit_test_setup_teardown(what_does_not_last_is_nonsense, start, stop),
        cmocka_unit_test_setup_teardown(rows_are_saved_late, start, stop),
        cmocka_unit_test_setup_teardown(pages_are_out_of_reach, start, stop),
        cmocka_unit_test_setup_teardown(pages_arrive_late, start, stop),
        cmocka_unit_test(tensors_of_a_step_are_lent),
    };
    return cmocka_run_group_tests_name("guarded access", tests, NULL, NULL);
}
