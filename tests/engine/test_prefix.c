/*
 * Rows of a prefix that several sequences share are read once for all of their tokens: the result
 * is that of the same rows in pages of their own. With f32 pages both differ by rounding alone.
 * Labels: threads
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu_prefix.h"
#include "backend/devices.h"
#include "base/mem.h"
#include "base/size.h"

enum { HEADS = 6, KV_HEADS = 2, G = HEADS / KV_HEADS, DH = 48, PAGES = 24, ITEMS = 9 };

static const size_t WIDTH = (size_t)HEADS * DH;

/* Items in the order of the step: what each shares, and how many rows it has. */
typedef struct tree {
    size_t n_items;
    size_t parent[ITEMS];   /* an earlier item, or itself */
    size_t n_shared[ITEMS]; /* pages that it has in common with its parent */
    size_t n_past[ITEMS];
    size_t dropped[ITEMS][KV_HEADS];
    size_t window;
    float softcap;
    const float *sinks; /* [HEADS] or NULL */
    size_t n_q_last;    /* tokens of the last item */
} tree;

typedef struct fixture {
    skv_pool *pool; /* threads */
    skv_backend *be;
    skv_attention_item items[ITEMS];
    skv_backend_step *step;
    skv_page_pool *pages;
    skv_slots *slots;
    skv_table *shared[ITEMS], *own[ITEMS];
    skv_area *areas[3]; /* q [rows, WIDTH], out [2 rows, WIDTH], sinks [HEADS] */
} fixture;

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static size_t page_bytes(void)
{
    return skv_kv_page_bytes(SKV_KV_TYPE_F32, DH);
}

/* Page p of a head of item i. */
static uint32_t page_number(size_t i, size_t head, size_t p)
{
    return (uint32_t)((i * KV_HEADS + head) * PAGES + p);
}

/* Item i has pages of its own, and others that it shares, which hold the same. */
static void make_item(fixture *f, const tree *t, size_t i, uint32_t (*shared)[KV_HEADS][PAGES],
                      uint64_t *state)
{
    skv_backend *be = f->be;
    float *page = skv_alloc(1, page_bytes());
    assert_non_null(page);
    assert_int_equal(be->table_create(be, f->slots, &f->shared[i], NULL), SKV_OK);
    assert_int_equal(be->table_create(be, f->slots, &f->own[i], NULL), SKV_OK);
    for (size_t h = 0; h < KV_HEADS; h++) {
        uint32_t own[PAGES];
        for (size_t p = 0; p < PAGES; p++) {
            const bool is_shared = t->parent[i] != i && p < t->n_shared[i];
            own[p] = page_number(i, h, p);
            shared[i][h][p] = is_shared ? shared[t->parent[i]][h][p] : own[p];
            for (size_t x = 0; x < page_bytes() / sizeof(float); x++) page[x] = noise(state);
            be->pages_write(be, f->pages, &own[p], 1, page);
            if (is_shared) be->pages_copy(be, f->pages, &own[p], &shared[i][h][p], 1);
        }
        be->table_write(be, f->own[i], h, 0, own, PAGES);
        be->table_write(be, f->shared[i], h, 0, shared[i][h], PAGES);
    }
    be->table_dropped(be, f->own[i], 0, t->dropped[i], KV_HEADS);
    be->table_dropped(be, f->shared[i], 0, t->dropped[i], KV_HEADS);
    skv_free(page);
}

static void make_pages(fixture *f, const tree *t)
{
    static const size_t track0[] = {0, KV_HEADS};
    static const skv_track_spec tracks[KV_HEADS] = {{0, 0, DH}, {1, 0, DH}};
    const size_t n_pages = (size_t)ITEMS * KV_HEADS * PAGES;
    uint32_t shared[ITEMS][KV_HEADS][PAGES];
    uint64_t state = 7;
    assert_int_equal(f->be->pool_create(f->be, page_bytes(), n_pages, &f->pages, NULL), SKV_OK);
    const skv_slots_spec spec = {.pool = f->pages,
                                 .type = SKV_KV_TYPE_F32,
                                 .n_slots = 1,
                                 .n_bundles = KV_HEADS,
                                 .track0 = track0,
                                 .tracks = tracks,
                                 .max_pages = PAGES};
    assert_int_equal(f->be->slots_create(f->be, &spec, &f->slots, NULL), SKV_OK);
    for (size_t i = 0; i < t->n_items; i++) make_item(f, t, i, shared, &state);
}

/* The n floats of an area, which the processor's back end maps as they are. */
static float *host_of(fixture *f, size_t i, size_t n)
{
    const skv_mapped mapped = f->be->map(f->be, (skv_rows){f->areas[i], 0, n}, 1, n, SKV_MAP_BOTH);
    f->be->unmap(f->be, mapped);
    return mapped.at;
}

static void fixture_init(fixture *f, const tree *t, size_t n_threads, bool invariant)
{
    const skv_backend_limits limits = {.max_rows = 64,
                                       .max_K = 64,
                                       .max_heads = HEADS,
                                       .head_dim = DH,
                                       .max_group = G,
                                       .max_kv_rows = PAGES * SKV_PAGE_ROWS,
                                       .batch_invariant = invariant};
    memset(f, 0, sizeof *f);
    assert_int_equal(skv_pool_create(n_threads, &f->pool, NULL), SKV_OK);
    assert_int_equal(
        skv_backend_create(&(skv_backend_options){.threads = f->pool, .level = SKV_CPU_LEVEL_BEST},
                           &f->be, NULL),
        SKV_OK);
    assert_int_equal(f->be->reserve(f->be, &limits, NULL), SKV_OK);
    make_pages(f, t);
    size_t row = 0;
    for (size_t i = 0; i < t->n_items; i++) {
        size_t n_q = i + 1 == t->n_items ? t->n_q_last : 1;
        f->items[i] =
            (skv_attention_item){.row0 = row, .n_q = n_q, .n_past = t->n_past[i], .span = i};
        row += n_q;
    }
    const skv_backend_step_limits rows = {.max_rows = row};
    assert_int_equal(f->be->step_create(f->be, &rows, &f->step, NULL), SKV_OK);
    const skv_area_spec specs[] = {{SKV_AREA_F32, row, WIDTH, false, true},
                                   {SKV_AREA_F32, 2 * row, WIDTH, false, true},
                                   {SKV_AREA_F32, 1, HEADS, false, true}};
    assert_int_equal(f->be->areas_create(f->be, specs, 3, f->areas, NULL), SKV_OK);
    uint64_t state = 3;
    float *q = host_of(f, 0, row * WIDTH);
    for (size_t x = 0; x < row * WIDTH; x++) q[x] = 3.0f * noise(&state);
    if (t->sinks) memcpy(host_of(f, 2, HEADS), t->sinks, HEADS * sizeof *t->sinks);
}

static size_t n_rows_of(const fixture *f, const tree *t)
{
    return f->items[t->n_items - 1].row0 + t->n_q_last;
}

static void fixture_release(fixture *f, const tree *t)
{
    for (size_t i = 0; i < t->n_items; i++) {
        f->be->table_free(f->be, f->shared[i]);
        f->be->table_free(f->be, f->own[i]);
    }
    f->be->slots_free(f->be, f->slots);
    f->be->pool_free(f->be, f->pages);
    f->be->areas_free(f->be, f->areas, 3);
    f->be->step_free(f->be, f->step);
    f->be->free(f->be);
    skv_pool_free(f->pool);
}

/* Attention in a step that begins here. */
static skv_attention_args args_of(fixture *f, const tree *t, bool shared)
{
    skv_backend_span spans[ITEMS];
    const size_t n_rows = n_rows_of(f, t);
    skv_backend_step_spec spec = {.spans = spans, .n_spans = t->n_items};
    spec.sets[SKV_SET_ALL] = (skv_set_spec){NULL, n_rows, f->items, t->n_items};
    for (size_t i = 0; i < t->n_items; i++) {
        spans[i] = (skv_backend_span){.n = f->items[i].n_q,
                                      .n_past = f->items[i].n_past,
                                      .table = shared ? f->shared[i] : f->own[i]};
    }
    assert_int_equal(f->be->step_begin(f->be, f->step, &spec, NULL), SKV_OK);
    return (skv_attention_args){
        .out = {f->areas[1], shared ? n_rows * WIDTH : 0, WIDTH},
        .q = {f->areas[0], 0, WIDTH},
        .step = f->step,
        .n_heads = HEADS,
        .head_dim = DH,
        .window = t->window,
        .scale = 0.2f,
        .softcap = t->softcap,
        .sinks = {t->sinks ? f->areas[2] : NULL, 0},
    };
}

/* Both ways; n_sharing: how many items share a prefix in head 0. */
static void check(const tree *t, size_t n_threads, bool invariant, size_t n_sharing)
{
    fixture f;
    fixture_init(&f, t, n_threads, invariant);
    skv_attention_args own = args_of(&f, t, false);
    f.be->attention(f.be, &own);
    skv_attention_args shared = args_of(&f, t, true);
    f.be->attention(f.be, &shared);
    double worst = 0.0;
    const size_t n_out = n_rows_of(&f, t) * WIDTH;
    const float *out = host_of(&f, 1, 2 * n_out);
    for (size_t x = 0; x < n_out; x++) {
        double apart = fabs((double)out[x] - (double)out[n_out + x]);
        if (!(apart <= worst)) worst = apart;
    }
    if (invariant) assert_true(worst == 0.0);
    assert_true(worst <= 1e-5);

    skv_cpu_prefix prefixes[SKV_PREFIXES_MAX];
    uint8_t of[ITEMS];
    size_t n = skv_cpu_find_prefixes(&f.step->sets[SKV_SET_ALL], t->window, 0, prefixes, of),
           found = 0;
    for (size_t i = 0; i < n; i++) found += prefixes[i].n_items > 1 ? prefixes[i].n_items : 0;
    assert_int_equal(found, n_sharing);
    fixture_release(&f, t);
}

static void check_all(const tree *t, size_t n_sharing)
{
    check(t, 1, false, n_sharing);
    check(t, 3, false, n_sharing);
    check(t, 2, true, n_sharing);
}

/* Lengths next to the ends of pages; a half-full page is nobody's but its owner's. */
static void test_one_prefix(void **state)
{
    (void)state;
    check_all(&(tree){.n_items = 5,
                      .parent = {0, 0, 0, 0, 0},
                      .n_shared = {0, 8, 8, 8, 8},
                      .n_past = {512, 575, 576, 513, 1400},
                      .n_q_last = 1},
              5);
}

/* Two prefixes in turns, one of them within the other, one alone, and a chunk that shares. */
static void test_several_prefixes(void **state)
{
    (void)state;
    check_all(&(tree){.n_items = 9,
                      .parent = {0, 1, 0, 1, 4, 0, 3, 0, 0},
                      .n_shared = {0, 0, 12, 5, 0, 12, 5, 4, 12},
                      .n_past = {800, 400, 790, 321, 700, 1300, 330, 500, 801},
                      .n_q_last = 3},
              6);
}

static void test_few_pages_are_not_shared(void **state)
{
    (void)state;
    check_all(&(tree){.n_items = 3,
                      .parent = {0, 0, 0},
                      .n_shared = {0, 3, 3},
                      .n_past = {300, 300, 191},
                      .n_q_last = 1},
              0);
}

/* Windows begin at different rows, some within a page, one behind the prefix. */
static void test_windows(void **state)
{
    (void)state;
    for (size_t window = 449; window <= 1379; window += 93) {
        tree t = {.n_items = 4,
                  .parent = {0, 0, 0, 0},
                  .n_shared = {0, 10, 10, 10},
                  .n_past = {650, 690, 777, 1500},
                  .window = window,
                  .n_q_last = 1};
        /* The last token sees 256 rows of the prefix and more with windows from 1117 on. */
        check_all(&t, window < 1117 ? 3 : 4);
    }
}

/* Heads lack different rows, as after an eviction. */
static void test_evicted_rows(void **state)
{
    (void)state;
    check_all(&(tree){.n_items = 4,
                      .parent = {0, 0, 0, 0},
                      .n_shared = {0, 6, 6, 6},
                      .n_past = {900, 1000, 1200, 1300},
                      .dropped = {{490, 10}, {500, 77}, {517, 300}, {800, 1}},
                      .n_q_last = 1},
              4);
}

/* What changes scores, and what the weights are divided by, is the same in every portion. */
static void test_sinks_and_caps(void **state)
{
    (void)state;
    static const float sinks[HEADS] = {0.5f, -2.0f, 4.0f, 0.0f, -HUGE_VALF, 9.0f};
    tree t = {.n_items = 4,
              .parent = {0, 0, 0, 0},
              .n_shared = {0, 8, 8, 8},
              .n_past = {530, 640, 777, 1400},
              .n_q_last = 1};
    t.sinks = sinks;
    check_all(&t, 4);
    t.softcap = 1.5f;
    check_all(&t, 4);
    t.sinks = NULL;
    check_all(&t, 4);
    t.window = 600;
    check_all(&t, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_prefix),
        cmocka_unit_test(test_several_prefixes),
        cmocka_unit_test(test_few_pages_are_not_shared),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_evicted_rows),
        cmocka_unit_test(test_sinks_and_caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
