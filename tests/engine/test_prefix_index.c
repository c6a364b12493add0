/* The index of known prompts: what it finds, what it gives up first, and what a keeper may do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/devices.h"
#include "base/rng.h"
#include "kv/prefix_index.h"
#include "property_seed.h"

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
    skv_state_pool states;
    skv_states *lanes;                          /* of two sequences */
    size_t checkpoint;                          /* of the last match */
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
    static const skv_kv_slot slots[] = {{N_TRACKS, HEAD_DIM, 0, 0}};
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
    skv_prefix_keeper keeper = {.user = f, .name = name_block, .give_up = note_end};
    skv_prefix_index_set_keeper(f->index, &keeper);
    return failed;
}

enum { N_STATES = 3, STATE_DIM = 16, STATE_BYTES_MAX = 8192 };

static int set_up_states(void **state)
{
    static const skv_state_layer layer = {.kind = SKV_SCAN_GATED_DELTA,
                                          .n_key_heads = 1,
                                          .n_value_heads = 1,
                                          .key_dim = STATE_DIM,
                                          .value_dim = STATE_DIM,
                                          .conv_columns = STATE_DIM,
                                          .conv_taps = 2};
    int failed = set_up(state);
    fixture *f = *state;
    const skv_states_spec spec = {.layers = &layer, .n_layers = 1, .n_states = 2};
    const skv_states_spec kept = {.layers = &layer, .n_layers = 1, .n_states = N_STATES};
    assert_int_equal(skv_state_pool_init(&f->states, f->be, &kept, NULL), SKV_OK);
    assert_int_equal(f->be->states_create(f->be, &spec, &f->lanes, NULL), SKV_OK);
    assert_int_equal(skv_prefix_index_set_states(f->index, &f->states, NULL), SKV_OK);
    return failed;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    skv_prefix_index_free(f->index);
    assert_int_equal(f->states.n_free, f->states.n);
    skv_state_pool_release(&f->states);
    f->be->states_free(f->be, f->lanes);
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
    size_t n_found = skv_prefix_index_match(f->index, domain, ids, n, &cache, &f->checkpoint);
    assert_int_equal(cache.n_rows, n_found);
    skv_kv_cache_release(&cache);
    return n_found;
}

/* Blocks that the index holds, where no sequence has pages of its own. */
static size_t n_held(const fixture *f)
{
    const size_t n_pages = N_PAGES - skv_kv_store_free_pages(f->store);
    assert_int_equal(n_pages % N_TRACKS, 0);
    return n_pages / N_TRACKS;
}

static void test_prefixes(void **state)
{
    fixture *f = *state;
    int32_t ids[4 * ROWS], other[4 * ROWS];
    for (int i = 0; i < 4 * ROWS; i++) ids[i] = other[i] = i * 7 % 50;
    other[ROWS + 3]++;
    learn(f, 1, ids, 3 * ROWS + 10);
    assert_int_equal(n_held(f), 3);
    assert_int_equal(match(f, 1, ids, 4 * ROWS), 3 * ROWS);
    assert_int_equal(match(f, 1, ids, 2 * ROWS + 63), 2 * ROWS);
    assert_int_equal(match(f, 1, ids, ROWS - 1), 0);
    assert_int_equal(match(f, 2, ids, 4 * ROWS), 0);
    assert_int_equal(match(f, 1, other, 4 * ROWS), ROWS);
    /* The second block's tokens alone are nobody's beginning. */
    assert_int_equal(match(f, 1, ids + ROWS, 2 * ROWS), 0);
    learn(f, 1, other, 2 * ROWS);
    assert_int_equal(n_held(f), 4);
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
    assert_int_equal(skv_prefix_index_match(f->index, 0, b, ROWS, &user, &f->checkpoint), ROWS);
    assert_true(f->checkpoint == SKV_NO_STATE);
    assert_int_equal(skv_prefix_index_in_use(f->index, 0, b, 2 * ROWS), N_TRACKS);
    assert_int_equal(skv_prefix_index_evictable(f->index), 3 * N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, SIZE_MAX), 3 * N_TRACKS);
    assert_int_equal(n_held(f), 1);
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
    assert_int_equal(n_held(f), 0);
}

static bool take_pages(const fixture *f, uint32_t *pages, float value)
{
    float page[2 * ROWS * HEAD_DIM];
    for (size_t i = 0; i < sizeof page / sizeof page[0]; i++) page[i] = value;
    for (size_t t = 0; t < N_TRACKS; t++) {
        pages[t] = skv_kv_page_take(f->store, 0);
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
    assert_int_equal(skv_prefix_index_match(f->index, 1, ids, 4 * ROWS, &cache, &f->checkpoint),
                     2 * ROWS);
    for (size_t p = 0; p < 2; p++) {
        const float *got = skv_kv_page_map(f->store, skv_kv_cache_page(&cache, 0, p));
        assert_true(got[0] == (float)p + 1 && got[2 * ROWS * HEAD_DIM - 1] == (float)p + 1);
        skv_kv_page_unmap(f->store, got);
    }
    skv_kv_cache_release(&cache);
    /* What was computed and what was restored are one chain. */
    insert(f, 1, ids, 4);
    assert_int_equal(match(f, 1, ids, 4 * ROWS), 4 * ROWS);
    assert_int_equal(n_held(f), 4);
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
        assert_int_equal(skv_prefix_index_evictable(f->index), n_held(f) * N_TRACKS);
    }
}

/* ---- checkpoints ---- */

/* What is kept, the least recently used first. */
typedef struct beginning {
    uint64_t domain;
    int32_t text;
    size_t n_blocks;
} beginning;

typedef struct plain_list {
    beginning at[N_STATES];
    size_t n;
} plain_list;

static void forget(plain_list *l, size_t i)
{
    memmove(l->at + i, l->at + i + 1, (--l->n - i) * sizeof *l->at);
}

static size_t find(const plain_list *l, beginning k)
{
    size_t i = 0;
    while (i < l->n && (l->at[i].domain != k.domain || l->at[i].text != k.text ||
                        l->at[i].n_blocks != k.n_blocks)) {
        i++;
    }
    return i;
}

/* As the newest; the oldest makes way. */
static void note(plain_list *l, beginning k)
{
    const size_t i = find(l, k);
    if (i < l->n) forget(l, i);
    if (l->n == N_STATES) forget(l, 0);
    l->at[l->n++] = k;
}

/* Those whose blocks were given up are gone. */
static void forget_lost(const fixture *f, plain_list *l)
{
    int32_t ids[4 * ROWS];
    for (size_t i = l->n; i-- > 0;) {
        const beginning k = l->at[i];
        make_ids(k.text, ids, 4);
        if (skv_prefix_index_rows(f->index, k.domain, ids, 4 * ROWS, NULL) < k.n_blocks * ROWS) {
            forget(l, i);
        }
    }
}

static float number_of(beginning k)
{
    return (float)(k.n_blocks + 10 * (size_t)k.text + 100 * k.domain);
}

/* The state of a sequence that has read this. */
static void write_state(const fixture *f, beginning k)
{
    unsigned char bytes[STATE_BYTES_MAX] = {0};
    const uint64_t settled = k.n_blocks * ROWS;
    const float value = number_of(k);
    assert_true(f->states.state_bytes <= sizeof bytes);
    memcpy(bytes, &settled, sizeof settled);
    memcpy(bytes + f->states.state_bytes - sizeof value, &value, sizeof value);
    assert_true(f->be->state_write(f->be, f->lanes, 1, bytes, k.n_blocks * ROWS));
}

static float read_state(const fixture *f, size_t i)
{
    unsigned char bytes[STATE_BYTES_MAX];
    float value;
    f->be->state_read(f->be, bytes, f->states.states, i);
    memcpy(&value, bytes + f->states.state_bytes - sizeof value, sizeof value);
    return value;
}

/* The longest of those that a text of n blocks begins with. */
static size_t longest(const plain_list *l, beginning k)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const beginning *a = &l->at[i];
        const bool is_begin = a->domain == k.domain && a->text == k.text;
        if (is_begin && a->n_blocks <= k.n_blocks && a->n_blocks > n) n = a->n_blocks;
    }
    return n;
}

static void use(fixture *f, plain_list *l, beginning k, uint64_t what)
{
    int32_t ids[4 * ROWS];
    const size_t n = k.n_blocks * ROWS;
    make_ids(k.text, ids, 4);
    if (what == 0 && skv_kv_store_free_pages(f->store) >= k.n_blocks * N_TRACKS) {
        insert(f, k.domain, ids, k.n_blocks);
    } else if (what == 1) {
        write_state(f, k);
        const bool known = skv_prefix_index_rows(f->index, k.domain, ids, n, NULL) == n;
        assert_int_equal(skv_prefix_index_keep_state(f->index, k.domain, ids, n, f->lanes, 1),
                         known);
        if (known) note(l, k);
    } else if (what == 2) {
        skv_prefix_index_drop_state(f->index, k.domain, ids, n);
        if (find(l, k) < l->n) forget(l, find(l, k));
    } else if (what == 3) {
        (void)skv_prefix_index_evict(f->index, N_TRACKS * k.n_blocks);
        forget_lost(f, l);
    } else {
        const size_t want = longest(l, k);
        assert_int_equal(match(f, k.domain, ids, n), want * ROWS);
        if (want == 0) return;
        k.n_blocks = want;
        assert_true(read_state(f, f->checkpoint) == number_of(k));
        note(l, k);
    }
}

/* Against a plain list: a beginning is found as far as a checkpoint was kept, which is that of its
 * own tokens, and the least recently used one makes way. */
static void test_checkpoints(void **state)
{
    fixture *f = *state;
    plain_list list = {.n = 0};
    skv_rng rng;
    size_t n_hits = 0;
    skv_rng_init(&rng, property_seed(11));
    for (int step = 0; step < 4000; step++) {
        const uint64_t what = skv_rng_below(&rng, 12);
        const beginning k = {skv_rng_below(&rng, 2), (int32_t)skv_rng_below(&rng, 3),
                             1 + (size_t)skv_rng_below(&rng, 4)};
        use(f, &list, k, what < 4 ? what : what < 6 ? 0 : what < 9 ? 1 : 4);
        assert_int_equal(f->states.n - f->states.n_free, list.n);
        n_hits += f->checkpoint != SKV_NO_STATE;
    }
    assert_true(n_hits > 400);
}

/* A checkpoint comes back as bytes, and bytes that cannot be a state leave none. */
static void test_checkpoints_from_bytes(void **state)
{
    fixture *f = *state;
    const beginning k = {.text = 1, .n_blocks = 2};
    unsigned char bytes[STATE_BYTES_MAX];
    int32_t ids[4 * ROWS];
    make_ids(k.text, ids, 4);
    insert(f, 0, ids, 3);
    write_state(f, k);
    f->be->state_read(f->be, bytes, f->lanes, 1);
    const uint64_t beyond = UINT64_C(1) << 40;
    uint64_t settled;
    memcpy(&settled, bytes, sizeof settled);
    memcpy(bytes, &beyond, sizeof beyond);
    assert_false(skv_prefix_index_restore_state(f->index, 0, ids, 2 * ROWS, bytes));
    assert_int_equal(f->states.n_free, N_STATES);
    assert_int_equal(match(f, 0, ids, 3 * ROWS), 0);
    settled = 2 * ROWS;
    memcpy(bytes, &settled, sizeof settled);
    assert_false(skv_prefix_index_restore_state(f->index, 0, ids, 4 * ROWS, bytes));
    assert_true(skv_prefix_index_restore_state(f->index, 0, ids, 2 * ROWS, bytes));
    assert_int_equal(match(f, 0, ids, 3 * ROWS), 2 * ROWS);
    assert_true(read_state(f, f->checkpoint) == number_of(k));
    assert_true(skv_prefix_index_has_state(f->index, 0, ids, 2 * ROWS));
    assert_false(skv_prefix_index_has_state(f->index, 0, ids, 3 * ROWS));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_KEEPER(name) cmocka_unit_test_setup_teardown(name, set_up_keeper, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_prefixes),
        TEST(test_giving_up),
        TEST_KEEPER(test_names_and_order),
        TEST_KEEPER(test_restore),
        TEST_KEEPER(test_show_idle),
        TEST_KEEPER(test_random_use),
        cmocka_unit_test_setup_teardown(test_checkpoints, set_up_states, tear_down),
        cmocka_unit_test_setup_teardown(test_checkpoints_from_bytes, set_up_states, tear_down)};
    return cmocka_run_group_tests_name("prefix_index", tests, NULL, NULL);
}
