/* The index of known prompts: what it finds, what it gives up first, and what a keeper may do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kv/prefix_index.h"

enum {
    HEAD_DIM = 8,
    PAGE_BYTES = 2 * SKV_PAGE_ROWS * HEAD_DIM * 4,
    N_TRACKS = 2,
    N_PAGES = 24,
    N_BLOCKS = 6,
    ROWS = SKV_PAGE_ROWS
};

typedef struct fixture {
    skv_pool *pool;
    skv_backend *be;
    skv_kv_store *store;
    skv_kv_layout layout;
    skv_prefix_index *index;
    uint8_t given_up[64][SKV_BLOCK_NAME_BYTES]; /* in order */
    size_t n_given_up;
} fixture;

/* A name that tells domain, first id and the parent's name. */
static void name_block(void *user, uint64_t domain, const uint8_t *parent, const int32_t *ids,
                       uint8_t *name)
{
    (void)user;
    memset(name, 0, SKV_BLOCK_NAME_BYTES);
    name[0] = (uint8_t)domain;
    name[1] = (uint8_t)ids[0];
    if (parent) memcpy(name + 2, parent + 1, SKV_BLOCK_NAME_BYTES - 3);
}

static void note_end(void *user, const skv_prefix_block *b)
{
    fixture *f = user;
    assert_int_equal(b->n_pages, N_TRACKS);
    memcpy(f->given_up[f->n_given_up++], b->name, SKV_BLOCK_NAME_BYTES);
}

static int set_up(void **state)
{
    static const skv_kv_slot slots[] = {{N_TRACKS, HEAD_DIM, 0}};
    fixture *f = test_calloc(1, sizeof *f);
    assert_int_equal(skv_pool_create(1, &f->pool, NULL), SKV_OK);
    assert_int_equal(
        skv_backend_create(&(skv_backend_options){.threads = f->pool, .level = SKV_CPU_LEVEL_REF},
                           &f->be, NULL),
        SKV_OK);
    assert_int_equal(
        skv_kv_store_create(f->be, SKV_KV_TYPE_F32, PAGE_BYTES, N_PAGES, &f->store, NULL), SKV_OK);
    assert_int_equal(skv_kv_layout_init(&f->layout, slots, 1, NULL), SKV_OK);
    assert_int_equal(skv_kv_layout_bind(&f->layout, f->store, (size_t)N_BLOCKS * ROWS, NULL),
                     SKV_OK);
    assert_int_equal(skv_prefix_index_create(f->store, N_PAGES, 5, &f->index, NULL), SKV_OK);
    *state = f;
    return 0;
}

static int set_up_keeper(void **state)
{
    int failed = set_up(state);
    fixture *f = *state;
    skv_prefix_keeper keeper = {f, name_block, note_end};
    skv_prefix_index_set_keeper(f->index, &keeper);
    return failed;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    skv_prefix_index_free(f->index);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES);
    skv_kv_layout_release(&f->layout);
    skv_kv_store_free(f->store);
    f->be->free(f->be);
    skv_pool_free(f->pool);
    test_free(f);
    return 0;
}

/* Block i of a text begins with 10 * text + i. */
static void make_ids(int32_t text, int32_t *ids, size_t n_blocks)
{
    for (size_t t = 0; t < n_blocks * ROWS; t++) {
        ids[t] = t % ROWS == 0 ? 10 * text + (int32_t)(t / ROWS) : (int32_t)(t % ROWS);
    }
}

static skv_kv_cache new_cache(const fixture *f, size_t n_rows)
{
    skv_kv_cache cache;
    assert_int_equal(skv_kv_cache_init(&cache, &f->layout, NULL), SKV_OK);
    assert_int_equal(skv_kv_cache_grow(&cache, n_rows, NULL), SKV_OK);
    return cache;
}

/* A text of n tokens is computed, remembered and forgotten by its sequence. */
static void learn(fixture *f, uint64_t domain, const int32_t *ids, size_t n)
{
    skv_kv_cache cache = new_cache(f, n);
    skv_prefix_index_insert(f->index, domain, ids, n, &cache);
    skv_kv_cache_release(&cache);
}

static void insert(fixture *f, uint64_t domain, const int32_t *ids, size_t n_blocks)
{
    learn(f, domain, ids, n_blocks * ROWS);
}

static size_t match(fixture *f, uint64_t domain, const int32_t *ids, size_t n)
{
    skv_kv_cache cache = new_cache(f, 0);
    size_t n_found = skv_prefix_index_match(f->index, domain, ids, n, &cache);
    assert_int_equal(cache.n_rows, n_found);
    skv_kv_cache_release(&cache);
    return n_found;
}

static void test_prefixes(void **state)
{
    fixture *f = *state;
    int32_t ids[4 * ROWS], other[4 * ROWS];
    for (int i = 0; i < 4 * ROWS; i++) ids[i] = other[i] = i * 7 % 50;
    other[ROWS + 3]++;
    learn(f, 1, ids, 3 * ROWS + 10);
    assert_int_equal(skv_prefix_index_blocks(f->index), 3);
    assert_int_equal(match(f, 1, ids, 4 * ROWS), 3 * ROWS);
    assert_int_equal(match(f, 1, ids, 2 * ROWS + 63), 2 * ROWS);
    assert_int_equal(match(f, 1, ids, ROWS - 1), 0);
    assert_int_equal(match(f, 2, ids, 4 * ROWS), 0);
    assert_int_equal(match(f, 1, other, 4 * ROWS), ROWS);
    /* The second block's tokens alone are nobody's beginning. */
    assert_int_equal(match(f, 1, ids + ROWS, 2 * ROWS), 0);
    learn(f, 1, other, 2 * ROWS);
    assert_int_equal(skv_prefix_index_blocks(f->index), 4);
    learn(f, 1, ids, 3 * ROWS); /* known already: no new pages */
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - 4 * N_TRACKS);
}

/* Least recently used first, leaves first, and never what a sequence is using. */
static void test_giving_up(void **state)
{
    fixture *f = *state;
    int32_t a[3 * ROWS], b[2 * ROWS];
    for (int i = 0; i < 3 * ROWS; i++) a[i] = i % 50;
    for (int i = 0; i < 2 * ROWS; i++) b[i] = 60;
    learn(f, 0, a, 3 * ROWS);
    learn(f, 0, b, 2 * ROWS);
    assert_int_equal(skv_prefix_index_evictable(f->index), 5 * N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, 1), N_TRACKS);
    assert_int_equal(match(f, 0, a, 3 * ROWS), 2 * ROWS);
    /* Now b is older. Somebody uses its first block. */
    skv_kv_cache user = new_cache(f, 0);
    assert_int_equal(skv_prefix_index_match(f->index, 0, b, ROWS, &user), ROWS);
    assert_int_equal(skv_prefix_index_in_use(f->index, 0, b, 2 * ROWS), N_TRACKS);
    assert_int_equal(skv_prefix_index_evictable(f->index), 3 * N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, SIZE_MAX), 3 * N_TRACKS);
    assert_int_equal(skv_prefix_index_blocks(f->index), 1);
    skv_kv_cache_release(&user);
    assert_int_equal(skv_kv_store_free_pages(f->store), N_PAGES - N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, SIZE_MAX), N_TRACKS);
}

static void test_names_and_order(void **state)
{
    fixture *f = *state;
    int32_t a[4 * ROWS], b[4 * ROWS];
    uint8_t name[SKV_BLOCK_NAME_BYTES];
    make_ids(1, a, 4);
    make_ids(2, b, 4);
    insert(f, 1, a, 4);
    insert(f, 1, b, 3);
    assert_int_equal(skv_prefix_index_known(f->index, 1, a, 4 * ROWS, name), 4);
    assert_int_equal(name[1], 13);
    assert_int_equal(name[2], 12);
    assert_int_equal(skv_prefix_index_known(f->index, 2, a, 4 * ROWS, name), 0);
    assert_int_equal(match(f, 1, b, 3 * ROWS - 1), 2 * ROWS);
    /* Least recently used first, ends before what they stand on. */
    static const uint8_t order[] = {13, 12, 11, 10, 22, 21, 20};
    assert_int_equal(skv_prefix_index_evict(f->index, 3 * N_TRACKS), 3 * N_TRACKS);
    assert_int_equal(f->n_given_up, 3);
    assert_int_equal(skv_prefix_index_evict(f->index, N_PAGES), 4 * N_TRACKS);
    assert_int_equal(f->n_given_up, 7);
    for (size_t i = 0; i < 7; i++) assert_int_equal(f->given_up[i][1], order[i]);
    assert_int_equal(skv_prefix_index_blocks(f->index), 0);
}

static bool take_pages(const fixture *f, uint32_t *pages, float value)
{
    float page[2 * ROWS * HEAD_DIM];
    for (size_t i = 0; i < sizeof page / sizeof page[0]; i++) page[i] = value;
    for (size_t t = 0; t < N_TRACKS; t++) {
        pages[t] = skv_kv_page_take(f->store);
        if (pages[t] == SKV_KV_NO_PAGE) return false;
        skv_kv_pages_write(f->store, &pages[t], 1, page);
    }
    return true;
}

static void drop_pages(const fixture *f, const uint32_t *pages)
{
    for (size_t t = 0; t < N_TRACKS; t++) skv_kv_page_drop(f->store, pages[t]);
}

static void test_restore(void **state)
{
    fixture *f = *state;
    int32_t ids[4 * ROWS];
    uint32_t pages[N_TRACKS];
    make_ids(3, ids, 4);
    assert_true(take_pages(f, pages, 1));
    /* Nothing stands in the air. */
    assert_false(skv_prefix_index_restore(f->index, 1, ids, 2 * ROWS, pages, &f->layout));
    assert_true(skv_prefix_index_restore(f->index, 1, ids, ROWS, pages, &f->layout));
    assert_true(take_pages(f, pages, 2));
    assert_false(skv_prefix_index_restore(f->index, 1, ids, ROWS, pages, &f->layout));
    assert_false(skv_prefix_index_restore(f->index, 2, ids, 2 * ROWS, pages, &f->layout));
    assert_true(skv_prefix_index_restore(f->index, 1, ids, 2 * ROWS, pages, &f->layout));
    skv_kv_cache cache = new_cache(f, 0);
    assert_int_equal(skv_prefix_index_match(f->index, 1, ids, 4 * ROWS, &cache), 2 * ROWS);
    for (size_t p = 0; p < 2; p++) {
        const float *got = skv_kv_page_map(f->store, skv_kv_cache_page(&cache, 0, p));
        assert_true(got[0] == (float)p + 1 && got[2 * ROWS * HEAD_DIM - 1] == (float)p + 1);
        skv_kv_page_unmap(f->store, got);
    }
    skv_kv_cache_release(&cache);
    /* What was computed and what was restored are one chain. */
    insert(f, 1, ids, 4);
    assert_int_equal(match(f, 1, ids, 4 * ROWS), 4 * ROWS);
    assert_int_equal(skv_prefix_index_blocks(f->index), 4);
    assert_true(take_pages(f, pages, 3));
    drop_pages(f, pages);
}

static bool mark(void *user, const skv_prefix_block *b)
{
    size_t *n_new = user;
    *n_new += !*b->kept;
    *b->kept = true;
    return *n_new < 3;
}

static void test_show_idle(void **state)
{
    fixture *f = *state;
    int32_t a[4 * ROWS], b[3 * ROWS];
    make_ids(1, a, 4);
    make_ids(2, b, 3);
    insert(f, 1, a, 4);
    skv_kv_cache used = new_cache(f, sizeof b / sizeof b[0]);
    skv_prefix_index_insert(f->index, 1, b, 3 * ROWS, &used);
    size_t n_new = 0;
    skv_prefix_index_show_idle(f->index, 2, mark, &n_new);
    assert_int_equal(n_new, 2);
    skv_prefix_index_show_idle(f->index, 100, mark, &n_new);
    assert_int_equal(n_new, 3); /* it asked for no more */
    n_new = 0;
    skv_prefix_index_show_idle(f->index, 100, mark, &n_new);
    assert_int_equal(n_new, 1); /* those in use are not shown */
    assert_int_equal(skv_prefix_index_evict(f->index, N_PAGES), 4 * N_TRACKS);
    skv_kv_cache_release(&used);
}

/* Random use against a plain list of texts: never more than was put in, never a foreign one. */
static void test_random_use(void **state)
{
    fixture *f = *state;
    skv_rng rng;
    skv_rng_init(&rng, 3);
    for (int step = 0; step < 2000; step++) {
        int32_t ids[4 * ROWS];
        uint32_t pages[N_TRACKS];
        int32_t text = (int32_t)skv_rng_below(&rng, 5);
        size_t n_blocks = 1 + (size_t)skv_rng_below(&rng, 4);
        uint64_t domain = skv_rng_below(&rng, 2);
        make_ids(text, ids, 4);
        switch (skv_rng_below(&rng, 4)) {
        case 0:
            if (skv_kv_store_free_pages(f->store) >= n_blocks * N_TRACKS) {
                insert(f, domain, ids, n_blocks);
            }
            break;
        case 1:
            if (skv_kv_store_free_pages(f->store) < N_TRACKS) break;
            assert_true(take_pages(f, pages, 1));
            if (!skv_prefix_index_restore(f->index, domain, ids, n_blocks * ROWS, pages,
                                          &f->layout)) {
                drop_pages(f, pages);
            }
            break;
        case 2:
            f->n_given_up = 0;
            (void)skv_prefix_index_evict(f->index, (size_t)skv_rng_below(&rng, 9));
            break;
        default: assert_true(match(f, domain, ids, n_blocks * ROWS) <= n_blocks * ROWS);
        }
        size_t n_pages = skv_prefix_index_blocks(f->index) * N_TRACKS;
        assert_int_equal(n_pages + skv_kv_store_free_pages(f->store), N_PAGES);
        assert_int_equal(skv_prefix_index_evictable(f->index), n_pages);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_KEEPER(name) cmocka_unit_test_setup_teardown(name, set_up_keeper, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_prefixes),       TEST(test_giving_up),        TEST_KEEPER(test_names_and_order),
        TEST_KEEPER(test_restore), TEST_KEEPER(test_show_idle), TEST_KEEPER(test_random_use)};
    return cmocka_run_group_tests_name("prefix_index", tests, NULL, NULL);
}
