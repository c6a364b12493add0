/* Pages and caches: references, sharing with copy on write, all-or-nothing growth, no leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/devices.h"
#include "base/rng.h"
#include "kv/kv_cache.h"
#include "skv/skv.h"

enum {
    HEAD_DIM = 8,
    PAGE_BYTES = 2 * SKV_PAGE_ROWS * HEAD_DIM * 4,
    N_PAGES = 60,
    MAX_ROWS = 10 * SKV_PAGE_ROWS,
    LOGITS = 512 /* of each row that are compared */
};

typedef struct fixture {
    skv_pool *pool;
    skv_backend *be;
    skv_kv_store *store;
    skv_kv_layout layout;
} fixture;

static void set_up_slots(void **state, const skv_kv_slot *slots, size_t n_slots)
{
    fixture *f = test_calloc(1, sizeof *f);
    assert_int_equal(skv_pool_create(1, &f->pool, NULL), SKV_OK);
    assert_int_equal(
        skv_backend_create(&(skv_backend_options){.threads = f->pool, .level = SKV_CPU_LEVEL_REF},
                           &f->be, NULL),
        SKV_OK);
    assert_int_equal(
        skv_kv_store_create(f->be, SKV_KV_TYPE_F32, PAGE_BYTES, N_PAGES, &f->store, NULL), SKV_OK);
    assert_int_equal(skv_kv_layout_init(&f->layout, slots, n_slots, NULL), SKV_OK);
    assert_int_equal(skv_kv_layout_bind(&f->layout, f->store, MAX_ROWS, NULL), SKV_OK);
    *state = f;
}

static int set_up(void **state)
{
    static const skv_kv_slot slots[] = {{2, HEAD_DIM, 0, 0},
                                        {1, HEAD_DIM, 0, 0}}; /* three tracks */
    set_up_slots(state, slots, 2);
    return 0;
}

/* Seven tracks in five bundles: one of the larger heads each, or up to two of the smaller. */
static int set_up_mixed(void **state)
{
    static const skv_kv_slot slots[] = {
        {1, HEAD_DIM, 0, 0}, {3, HEAD_DIM / 2, 0, 0}, {1, HEAD_DIM, 0, 0}, {2, HEAD_DIM / 2, 0, 0}};
    set_up_slots(state, slots, 4);
    return 0;
}

/* As before, and the smaller heads see 70 rows. */
static int set_up_windowed(void **state)
{
    static const skv_kv_slot slots[] = {{1, HEAD_DIM, 0, 0},
                                        {3, HEAD_DIM / 2, 70, 0},
                                        {1, HEAD_DIM, 0, 0},
                                        {2, HEAD_DIM / 2, 60, 0}};
    set_up_slots(state, slots, 4);
    ((fixture *)*state)->layout.step_rows = MAX_ROWS;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES);
    skv_kv_layout_release(&f->layout);
    skv_kv_store_free(f->store);
    f->be->free(f->be);
    skv_pool_free(f->pool);
    test_free(f);
    return 0;
}

static skv_kv_cache new_cache(const fixture *f)
{
    skv_kv_cache cache;
    assert_int_equal(skv_kv_cache_init(&cache, &f->layout, NULL), SKV_OK);
    return cache;
}

static uint32_t page_of(const skv_kv_cache *cache, size_t track, size_t row)
{
    return skv_kv_cache_page(cache, track, row / SKV_PAGE_ROWS);
}

/* The first number of a row's K, or the last one of its V, in a page of floats. */
static size_t place_of(const skv_kv_cache *cache, size_t track, size_t row, bool value)
{
    const size_t n = cache->layout->tracks[track].head_dim;
    const size_t first = skv_kv_layout_offset(cache->layout, track) / sizeof(float);
    return first + row % SKV_PAGE_ROWS * n + (value ? SKV_PAGE_ROWS * n + n - 1 : 0);
}

static float number_of(const skv_kv_cache *cache, size_t track, size_t row, bool value)
{
    const float *page = skv_kv_page_map(cache->store, page_of(cache, track, row));
    const float number = page[place_of(cache, track, row, value)];
    skv_kv_page_unmap(cache->store, page);
    return number;
}

static void put_number(const skv_kv_cache *cache, size_t track, size_t row, bool value,
                       float number)
{
    float copy[PAGE_BYTES / sizeof(float)];
    const uint32_t page = page_of(cache, track, row);
    const void *old = skv_kv_page_map(cache->store, page);
    memcpy(copy, old, sizeof copy);
    skv_kv_page_unmap(cache->store, old);
    copy[place_of(cache, track, row, value)] = number;
    skv_kv_pages_write(cache->store, &page, 1, copy);
}

static void test_grow_and_truncate(void **state)
{
    const fixture *f = *state;
    skv_kv_cache cache = new_cache(f);
    assert_int_equal(skv_kv_cache_needs(&cache, 1), 3);
    assert_int_equal(skv_kv_cache_grow(&cache, 1, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_needs(&cache, SKV_PAGE_ROWS), 0);
    assert_int_equal(skv_kv_cache_needs(&cache, SKV_PAGE_ROWS + 1), 3);
    assert_int_equal(skv_kv_cache_grow(&cache, 3 * SKV_PAGE_ROWS, NULL), SKV_OK);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - 9);
    assert_int_equal(skv_kv_cache_bytes(&cache), 9 * skv_kv_store_page_bytes(f->store));
    skv_kv_cache_truncate(&cache, SKV_PAGE_ROWS + 1);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - 6);
    skv_kv_cache_release(&cache);
}

static void test_full_changes_nothing(void **state)
{
    const fixture *f = *state;
    skv_error err;
    skv_kv_cache a = new_cache(f), b = new_cache(f), c = new_cache(f);
    assert_int_equal(skv_kv_cache_grow(&a, MAX_ROWS, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_grow(&a, MAX_ROWS + 1, &err), SKV_FULL);
    assert_int_equal(a.n_rows, MAX_ROWS);
    assert_int_equal(skv_kv_cache_grow(&b, 9 * SKV_PAGE_ROWS, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_grow(&c, SKV_PAGE_ROWS + 1, &err), SKV_FULL);
    assert_non_null(strstr(err.text, "6 pages are needed, 3 of 60 are free"));
    assert_int_equal(c.n_rows, 0);
    assert_int_equal(skv_kv_store_free_pages(f->store), 3);
    skv_kv_cache_release(&a);
    skv_kv_cache_release(&b);
    skv_kv_cache_release(&c);
}

/* A sequence that continues another's beginning leaves the shared half page as it was. */
static void test_share_copies_on_write(void **state)
{
    const fixture *f = *state;
    skv_kv_cache a = new_cache(f), b = new_cache(f);
    size_t n = SKV_PAGE_ROWS + 10;
    assert_int_equal(skv_kv_cache_grow(&a, n, NULL), SKV_OK);
    for (size_t t = 0; t < 3; t++) {
        put_number(&a, t, n - 1, false, (float)t + 0.5f);
    }
    assert_int_equal(skv_kv_cache_share(&b, &a, n, NULL), SKV_OK);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - 6);
    assert_int_equal(skv_kv_cache_needs(&b, n + 1), 3);
    assert_int_equal(skv_kv_cache_grow(&b, n + 1, NULL), SKV_OK);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - 9);
    for (size_t t = 0; t < 3; t++) {
        assert_int_equal(page_of(&a, t, 0), page_of(&b, t, 0));
        assert_int_not_equal(page_of(&a, t, n - 1), page_of(&b, t, n - 1));
        assert_true(number_of(&b, t, n - 1, false) == (float)t + 0.5f);
    }
    skv_kv_cache_release(&a);
    assert_true(number_of(&b, 2, n - 1, false) == 2.5f);
    skv_kv_cache_release(&b);
}

/* Random growth, truncation and sharing: the store's count is always that of the distinct pages. */
static void test_random_use(void **state)
{
    const fixture *f = *state;
    enum { N = 4 };
    skv_kv_cache caches[N];
    skv_rng rng;
    skv_rng_init(&rng, 7);
    for (size_t i = 0; i < N; i++) caches[i] = new_cache(f);
    for (int step = 0; step < 3000; step++) {
        skv_kv_cache *cache = &caches[skv_rng_below(&rng, N)];
        const skv_kv_cache *other = &caches[skv_rng_below(&rng, N)];
        size_t n = (size_t)skv_rng_below(&rng, MAX_ROWS + 1);
        if (skv_rng_below(&rng, 2)) {
            (void)!skv_kv_cache_grow(cache, n, NULL);
        } else {
            skv_kv_cache_truncate(cache, n);
        }
        if (cache != other && cache->n_rows == 0) {
            n = skv_kv_cache_reach(other, (size_t)skv_rng_below(&rng, other->n_rows + 1));
            assert_int_equal(skv_kv_cache_share(cache, other, n, NULL), SKV_OK);
        }
        size_t n_references = 0, n_shared = 0;
        for (size_t i = 0; i < N; i++) {
            n_references += skv_kv_layout_pages(&f->layout, caches[i].n_rows);
        }
        n_shared = N_PAGES - skv_kv_store_free_pages(f->store);
        assert_true(n_shared <= n_references);
    }
    for (size_t i = 0; i < N; i++) skv_kv_cache_release(&caches[i]);
}

/* ---- heads of two sizes ---- */

/* K of a row as its first number, V as its last one. */
static void put_row(const skv_kv_cache *cache, size_t track, size_t row, size_t position)
{
    const float number = (float)(1000 * track + position);
    put_number(cache, track, row, false, number);
    put_number(cache, track, row, true, number);
}

static void check_row(const skv_kv_cache *cache, size_t track, size_t row, size_t position)
{
    const float number = (float)(1000 * track + position);
    assert_true(number_of(cache, track, row, false) == number);
    assert_true(number_of(cache, track, row, true) == number);
}

/* All tracks hold the rows that they should. */
static void check_rows(const fixture *f, const skv_kv_cache *cache)
{
    for (size_t t = 0; t < skv_kv_layout_tracks(&f->layout); t++) {
        for (size_t i = 0; i < skv_kv_cache_track_rows(cache, t); i++) {
            check_row(cache, t, i, skv_kv_cache_position(cache, t, i));
        }
    }
}

static void grow(const fixture *f, skv_kv_cache *cache, size_t n)
{
    const size_t before = cache->n_rows, needs = skv_kv_cache_needs(cache, n);
    const size_t n_free = skv_kv_store_free_pages(f->store);
    assert_int_equal(skv_kv_cache_grow(cache, n, NULL), SKV_OK);
    assert_int_equal(skv_kv_store_free_pages(f->store), n_free - needs);
    for (size_t t = 0; t < skv_kv_layout_tracks(&f->layout); t++) {
        const size_t n_rows = skv_kv_cache_track_rows(cache, t);
        for (size_t i = n - before; i > 0; i--) put_row(cache, t, n_rows - i, n - i);
    }
}

static void test_bundles(void **state)
{
    const fixture *f = *state;
    skv_kv_cache a = new_cache(f), b = new_cache(f);
    assert_int_equal(f->layout.n_bundles, 5);
    assert_false(skv_kv_layout_slots_apart(&f->layout));
    grow(f, &a, SKV_PAGE_ROWS + 10);
    assert_int_equal(skv_kv_cache_bytes(&a), 10 * skv_kv_store_page_bytes(f->store));
    assert_int_equal(skv_kv_cache_share(&b, &a, SKV_PAGE_ROWS + 5, NULL), SKV_OK);
    grow(f, &b, SKV_PAGE_ROWS + 20);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - 15);
    check_rows(f, &a);
    check_rows(f, &b);
    skv_kv_cache_truncate(&a, 7);
    assert_int_equal(skv_kv_cache_bytes(&a), 5 * skv_kv_store_page_bytes(f->store));
    check_rows(f, &a);
    check_rows(f, &b);
    skv_kv_cache_release(&a);
    skv_kv_cache_release(&b);
}

/* Evicts while no more pages are free than it says that it needs; one fewer is too few. */
static void evict_exactly(const fixture *f, skv_kv_cache *cache, const skv_kv_choice *choice,
                          size_t needs)
{
    uint32_t taken[N_PAGES];
    size_t n = 0;
    while (skv_kv_store_free_pages(f->store) > needs) taken[n++] = skv_kv_page_take(f->store, 0);
    assert_int_equal(skv_kv_store_free_pages(f->store), needs);
    if (needs > 0) {
        const uint32_t last = skv_kv_page_take(f->store, 0);
        assert_int_equal(skv_kv_cache_evict(cache, choice, NULL), SKV_FULL);
        skv_kv_page_drop(f->store, last);
    }
    assert_int_equal(skv_kv_cache_evict(cache, choice, NULL), SKV_OK);
    while (n > 0) skv_kv_page_drop(f->store, taken[--n]);
}

/* Tracks of one bundle keep different rows; a page stays as long as one of them needs it. */
static void test_bundles_evict(void **state)
{
    const fixture *f = *state;
    enum { N_TRACKS = 7, N_ROWS = 3 * SKV_PAGE_ROWS + 5 };
    skv_kv_cache a = new_cache(f), b = new_cache(f);
    size_t n[N_TRACKS];
    uint32_t rows[N_TRACKS * N_ROWS];
    const skv_kv_choice choice = {.n = n, .rows = rows, .stride = N_ROWS};
    for (size_t t = 0; t < N_TRACKS; t++) {
        n[t] = 10 + 30 * t;
        for (size_t i = 0; i < n[t]; i++) rows[t * N_ROWS + i] = (uint32_t)(i * N_ROWS / n[t]);
    }
    for (int shared = 0; shared < 2; shared++) {
        grow(f, &a, N_ROWS);
        if (shared) assert_int_equal(skv_kv_cache_share(&b, &a, N_ROWS, NULL), SKV_OK);
        evict_exactly(f, &a, &choice, shared ? 1 + 2 + 3 + 3 + 3 : 0);
        /* Tracks 1 and 2 are a bundle, 3 and 5, and 0, 4, 6 have one each. */
        assert_int_equal(skv_kv_cache_bytes(&a),
                         (1 + 2 + 3 + 3 + 3) * skv_kv_store_page_bytes(f->store));
        check_rows(f, &a);
        if (shared) check_rows(f, &b);
        skv_kv_cache_truncate(&b, 0);
        grow(f, &a, N_ROWS + 9);
        assert_int_equal(skv_kv_cache_share(&b, &a, N_ROWS + 2, NULL), SKV_OK);
        grow(f, &b, N_ROWS + SKV_PAGE_ROWS);
        check_rows(f, &a);
        check_rows(f, &b);
        skv_kv_cache_truncate(&a, 0);
        check_rows(f, &b);
        skv_kv_cache_truncate(&b, 0);
    }
    skv_kv_cache_release(&a);
    skv_kv_cache_release(&b);
}

/* Of a bundle's pages the first are shared and the others its own: the new ones that take the
 * places of the first are made up for by those that go back, bundle by bundle. */
static void test_evict_partly_shared(void **state)
{
    const fixture *f = *state;
    enum { N_TRACKS = 3, N_ROWS = 5 * SKV_PAGE_ROWS, N_SHARED = 2 * SKV_PAGE_ROWS, N = 70 };
    skv_kv_cache a = new_cache(f), b = new_cache(f);
    size_t n[N_TRACKS];
    uint32_t rows[N_TRACKS * N];
    const skv_kv_choice choice = {.n = n, .rows = rows, .stride = N};
    grow(f, &a, N_SHARED);
    assert_int_equal(skv_kv_cache_share(&b, &a, N_SHARED, NULL), SKV_OK);
    grow(f, &b, N_ROWS);
    for (size_t t = 0; t < N_TRACKS; t++) {
        n[t] = N;
        for (size_t i = 0; i < N; i++) rows[t * N + i] = (uint32_t)(i * (4 + t) / 2);
    }
    assert_int_equal(skv_kv_cache_evict_needs(&b, N), 2);
    const size_t n_free = skv_kv_store_free_pages(f->store);
    evict_exactly(f, &b, &choice, 2);
    assert_int_equal(skv_kv_store_free_pages(f->store), n_free + N_TRACKS * (3 - 2));
    check_rows(f, &a);
    check_rows(f, &b);
    skv_kv_cache_release(&a);
    check_rows(f, &b);
    skv_kv_cache_release(&b);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES);
}

/* Windowed tracks lose the pages that neither the next row nor one up to SKV_KV_SLACK before it
 * sees; what is there can be continued from. */
static void test_windows(void **state)
{
    const fixture *f = *state;
    enum { STEP = 40, WINDOW = 70 };
    skv_kv_cache a = new_cache(f), b = new_cache(f);
    assert_int_equal(f->layout.n_full, 2);
    assert_int_equal(f->layout.n_bundles, 5);
    assert_int_equal(f->layout.window, WINDOW);
    for (size_t n = STEP; n <= MAX_ROWS; n += STEP) {
        const size_t most = n - STEP > SKV_KV_SLACK ? n - STEP - SKV_KV_SLACK : 0;
        const size_t first = most >= WINDOW ? (most - WINDOW + 1) / SKV_PAGE_ROWS : 0;
        const size_t n_free = skv_kv_store_free_pages(f->store), needs = skv_kv_cache_needs(&a, n);
        assert_int_equal(skv_kv_cache_grow(&a, n, NULL), SKV_OK);
        assert_true(skv_kv_store_free_pages(f->store) + needs >= n_free);
        assert_int_equal(a.front, first * SKV_PAGE_ROWS);
        assert_int_equal(skv_kv_store_free_pages(f->store),
                         N_PAGES - 5 * ((n + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS) + 3 * first);
        for (size_t t = 0; t < skv_kv_layout_tracks(&f->layout); t++) {
            const size_t n_rows = skv_kv_cache_track_rows(&a, t);
            for (size_t i = STEP; i > 0; i--) put_row(&a, t, n_rows - i, n - i);
        }
        check_rows(f, &a);
    }
    assert_int_equal(skv_kv_cache_reach(&a, MAX_ROWS - STEP - SKV_KV_SLACK),
                     MAX_ROWS - STEP - SKV_KV_SLACK);
    assert_int_equal(skv_kv_cache_reach(&a, a.front + WINDOW - 1), a.front + WINDOW - 1);
    assert_int_equal(skv_kv_cache_reach(&a, a.front + WINDOW - 2), 0);
    assert_int_equal(skv_kv_cache_share(&b, &a, MAX_ROWS - 50, NULL), SKV_OK);
    check_rows(f, &b);
    grow(f, &b, MAX_ROWS - 40);
    check_rows(f, &a);
    check_rows(f, &b);
    skv_kv_cache_truncate(&a, a.front);
    assert_int_equal(a.n_rows, 0);
    assert_int_equal(a.front, 0);
    skv_kv_cache_truncate(&b, 0);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES);
    grow(f, &a, 100);
    check_rows(f, &a);
    skv_kv_cache_release(&a);
    skv_kv_cache_release(&b);
}

static struct {
    uintptr_t first, end;
    unsigned node;
} placed[4];
static size_t n_placed;

bool __wrap_skv_pages_place(void *at, size_t n_bytes, unsigned node);

bool __wrap_skv_pages_place(void *at, size_t n_bytes, unsigned node)
{
    if (n_bytes == 0) return true;
    assert_true(n_placed < 4);
    placed[n_placed].first = (uintptr_t)at;
    placed[n_placed].end = (uintptr_t)at + n_bytes;
    placed[n_placed++].node = node;
    return true;
}

/* The node that a page of the store was placed on, whose first page was placed first. */
static unsigned node_of(uint32_t page)
{
    const uintptr_t at = placed[0].first + (uintptr_t)page * PAGE_BYTES;
    for (size_t i = 0; i < n_placed; i++) {
        if (placed[i].first <= at && at < placed[i].end) return placed[i].node;
    }
    fail_msg("page %u was not placed", page);
    return 0;
}

/* Every page that a cache has is on its head's node: fresh ones, used ones, copies of shared ones.
 */
static void check_nodes(const skv_kv_cache *cache)
{
    static const unsigned expected[] = {5, 5, 7, 7}; /* of the first slot's heads */
    for (size_t p = 0; p * SKV_PAGE_ROWS < cache->n_rows; p++) {
        for (size_t t = 0; t < 4; t++) {
            assert_int_equal(node_of(skv_kv_cache_page(cache, t, p)), expected[t]);
        }
        /* The one head of the second slot has pages on both in turns. */
        assert_int_equal(node_of(skv_kv_cache_page(cache, 4, p)), p % 2 == 0 ? 5 : 7);
    }
}

/* Two nodes, which the system numbers 5 and 7. */
static void test_pages_lie_on_nodes(void **state)
{
    (void)state;
    enum { N = 300, ON_FIRST = 128, ROWS = 11 * SKV_PAGE_ROWS - 20 };
    static const skv_kv_slot slots[] = {{4, HEAD_DIM, 0, 0}, {1, HEAD_DIM, 0, 0}};
    const skv_nodes nodes = {.n = 2, .number = {5, 7}, .n_processors = {1, 1}};
    fixture f;
    skv_kv_cache a, b;
    assert_int_equal(skv_pool_create(1, &f.pool, NULL), SKV_OK);
    skv_pool_use_nodes(f.pool, &nodes);
    n_placed = 0;
    assert_int_equal(
        skv_backend_create(&(skv_backend_options){.threads = f.pool, .level = SKV_CPU_LEVEL_REF},
                           &f.be, NULL),
        SKV_OK);
    assert_int_equal(skv_kv_store_create(f.be, SKV_KV_TYPE_F32, PAGE_BYTES, N, &f.store, NULL),
                     SKV_OK);
    assert_int_equal(n_placed, 2);
    assert_true(placed[0].end - placed[0].first == (uintptr_t)ON_FIRST * PAGE_BYTES);
    assert_true(placed[1].end - placed[1].first == (uintptr_t)(N - ON_FIRST) * PAGE_BYTES);
    assert_int_equal(skv_kv_layout_init(&f.layout, slots, 2, NULL), SKV_OK);
    assert_int_equal(skv_kv_layout_bind(&f.layout, f.store, 2 * ROWS, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_init(&a, &f.layout, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_init(&b, &f.layout, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_grow(&a, ROWS, NULL), SKV_OK);
    check_nodes(&a);
    assert_int_equal(skv_kv_cache_share(&b, &a, ROWS, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_grow(&b, ROWS + 50, NULL), SKV_OK);
    skv_kv_cache_truncate(&a, 2 * SKV_PAGE_ROWS + 1);
    assert_int_equal(skv_kv_cache_grow(&a, 2 * ROWS, NULL), SKV_OK);
    check_nodes(&a);
    check_nodes(&b);
    /* Where a node has none left, the other one's are taken, to the last. */
    size_t n = skv_kv_store_free_pages(f.store), n_first = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t page = skv_kv_page_take(f.store, 0);
        if (node_of(page) == 5) assert_int_equal(n_first++, i);
    }
    assert_true(n_first > 0 && n_first < n);
    assert_int_equal(skv_kv_page_take(f.store, 0), SKV_KV_NO_PAGE);
    skv_kv_cache_release(&a);
    skv_kv_cache_release(&b);
    skv_kv_layout_release(&f.layout);
    skv_kv_store_free(f.store);
    f.be->free(f.be);
    skv_pool_free(f.pool);
}

static size_t n_nodes_here = 1;

void __wrap_skv_nodes_find(const char *root, const skv_processor_set *allowed, skv_nodes *out);
bool __wrap_skv_thread_bind(pthread_t thread, const skv_processor_set *processors);
bool __wrap_skv_memory_has_policy(void);

void __wrap_skv_nodes_find(const char *root, const skv_processor_set *allowed, skv_nodes *out)
{
    (void)root;
    (void)allowed;
    *out = (skv_nodes){.n = n_nodes_here, .number = {5, 7, 8}, .n_processors = {2, 2, 2}};
}

bool __wrap_skv_thread_bind(pthread_t thread, const skv_processor_set *processors)
{
    (void)thread;
    (void)processors;
    return true;
}

bool __wrap_skv_memory_has_policy(void)
{
    return false;
}

static void keep_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)i_span;
    (void)i_token;
    memcpy(user, logits, LOGITS * sizeof *logits);
}

/* The logits after a prompt that is read in two steps, and after one token more. */
static void run_engine(size_t n_nodes, float out[3][LOGITS])
{
    enum { N = 700 };
    int32_t ids[N];
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine;
    skv_sequence *s;
    skv_error err;
    n_nodes_here = n_nodes;
    n_placed = 0;
    options.threads = 4;
    options.context = 1024;
    options.step_tokens = N;
    if (skv_engine_open_preset("mini", &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(n_placed, n_nodes > 1 ? n_nodes : 0);
    for (size_t i = 0; i < N; i++) ids[i] = (int32_t)(i * i % LOGITS);
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    const size_t ends[] = {0, N - 100, N, N + 1};
    for (size_t i = 0; i < 3; i++) {
        const size_t n = ends[i + 1] - ends[i];
        const skv_span span = {s, ids + (i < 2 ? ends[i] : 0), n, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, keep_logits, out[i], &err), SKV_OK);
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
}

/* Where pages lie, and the order of tasks, change no bit: with 3 KV heads on two nodes, in turns,
 * and on three. */
static void test_nodes_change_no_bit(void **state)
{
    (void)state;
    static float one[3][LOGITS], more[3][LOGITS];
    run_engine(1, one);
    for (size_t n = 2; n <= 3; n++) {
        run_engine(n, more);
        assert_memory_equal(one, more, sizeof one);
    }
    assert_true(one[0][0] != one[2][0]);
}

/* In whatever order pages become free, they are taken in the order of memory. */
static void test_first_free_page(void **state)
{
    const fixture *f = *state;
    enum { N = 200 };
    skv_kv_store *store;
    uint32_t pages[N];
    bool is_free[N] = {false};
    skv_rng rng;
    skv_rng_init(&rng, 11);
    assert_int_equal(skv_kv_store_create(f->be, SKV_KV_TYPE_F32, PAGE_BYTES, N, &store, NULL),
                     SKV_OK);
    for (size_t i = 0; i < N; i++) {
        pages[i] = skv_kv_page_take(store, 0);
        assert_int_equal(pages[i], i);
    }
    for (int round = 0; round < 50; round++) {
        size_t n_drops = 1 + (size_t)skv_rng_below(&rng, N);
        for (size_t n = 0; n < n_drops; n++) {
            size_t i = (size_t)skv_rng_below(&rng, N);
            if (!is_free[i]) skv_kv_page_drop(store, pages[i]);
            is_free[i] = true;
        }
        size_t n_takes = (size_t)skv_rng_below(&rng, skv_kv_store_free_pages(store) + 1);
        for (size_t i = 0; n_takes > 0; i++) {
            if (!is_free[i]) continue;
            assert_int_equal(skv_kv_page_take(store, 0), pages[i]);
            is_free[i] = false;
            n_takes--;
        }
    }
    for (size_t i = 0; i < N; i++) {
        if (is_free[i]) assert_int_equal(skv_kv_page_take(store, 0), pages[i]);
    }
    assert_int_equal(skv_kv_page_take(store, 0), SKV_KV_NO_PAGE);
    skv_kv_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grow_and_truncate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_share_copies_on_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_use, set_up_mixed, tear_down),
        cmocka_unit_test_setup_teardown(test_random_use, set_up_windowed, tear_down),
        cmocka_unit_test_setup_teardown(test_windows, set_up_windowed, tear_down),
        cmocka_unit_test_setup_teardown(test_bundles, set_up_mixed, tear_down),
        cmocka_unit_test_setup_teardown(test_bundles_evict, set_up_mixed, tear_down),
        cmocka_unit_test_setup_teardown(test_evict_partly_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_first_free_page, set_up, tear_down),
        cmocka_unit_test(test_pages_lie_on_nodes),
        cmocka_unit_test(test_nodes_change_no_bit),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
