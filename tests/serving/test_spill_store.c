/*
 * The prefix cache in a store that several servers share, here in memory: what one has sent another
 * reads, whatever the store makes of a value is found out, and nobody waits for one that hangs.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/system.h"
#include "scheduler/spill.h"

enum { PAGE_BYTES = 512, N_PAGES = 3, N_IDS = 64, N = 5, VALUES_MAX = 32, VALUE_BYTES = 4096 };

typedef struct value {
    uint8_t name[SKV_CACHE_NAME_BYTES];
    unsigned char data[VALUE_BYTES];
    size_t n, used;
} value;

typedef struct memory {
    pthread_mutex_t lock; /* guards all of it */
    value at[VALUES_MAX];
    size_t n, n_puts;
    size_t room, clock; /* room > 0: so many values, the least recently used go; uses, counted */
    bool away, full, hangs, lost;
} memory;

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static skv_status open_link(void *user, void **link, skv_error *err)
{
    (void)err;
    *link = user;
    return SKV_OK;
}

static void close_link(void *link)
{
    (void)link;
}

static value *find(memory *m, const uint8_t *name)
{
    size_t i = 0;
    while (i < m->n && memcmp(m->at[i].name, name, SKV_CACHE_NAME_BYTES) != 0) i++;
    return i < m->n ? &m->at[i] : NULL;
}

static bool hangs(memory *m)
{
    pthread_mutex_lock(&m->lock);
    bool so = m->hangs;
    pthread_mutex_unlock(&m->lock);
    return so;
}

static skv_status get(void *link, const uint8_t *name, size_t n_max, const unsigned char **data,
                      size_t *n_bytes, skv_error *err)
{
    memory *m = link;
    (void)err;
    while (hangs(m)) rest();
    pthread_mutex_lock(&m->lock);
    const value *v = find(m, name);
    *data = v ? v->data : NULL;
    *n_bytes = v ? v->n : 0;
    bool fits = *n_bytes <= n_max;
    pthread_mutex_unlock(&m->lock);
    return fits ? SKV_OK : SKV_IO;
}

static value *place_for(memory *m)
{
    value *oldest = &m->at[0];
    if (m->room == 0 || m->n < m->room) return &m->at[m->n++];
    for (size_t i = 1; i < m->n; i++) {
        if (m->at[i].used < oldest->used) oldest = &m->at[i];
    }
    return oldest;
}

static void touch(void *link, const uint8_t *names, size_t n)
{
    memory *m = link;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < n; i++, names += SKV_CACHE_NAME_BYTES) {
        value *v = find(m, names);
        if (v) v->used = ++m->clock;
    }
    pthread_mutex_unlock(&m->lock);
}

static skv_status put(void *link, const uint8_t *name, const skv_block_value *given, skv_error *err)
{
    memory *m = link;
    pthread_mutex_lock(&m->lock);
    skv_status status = m->away ? SKV_CANCELLED : m->full ? SKV_FULL : SKV_OK;
    value *v = find(m, name);
    if (!v && status == SKV_OK) v = place_for(m);
    if (status == SKV_OK) {
        m->n_puts++;
        v->used = ++m->clock;
        memcpy(v->name, name, sizeof v->name);
        memcpy(v->data, given->head, given->n_head);
        memcpy(v->data + given->n_head, given->body, given->n_body);
        v->n = given->n_head + given->n_body;
    }
    pthread_mutex_unlock(&m->lock);
    return status == SKV_OK ? SKV_OK : skv_fail(err, status, "it does not take it");
}

static void tend(void *link, skv_block_store_state *state)
{
    memory *m = link;
    pthread_mutex_lock(&m->lock);
    *state = (skv_block_store_state){.n_up = !m->away, .lost = m->lost, .wait_ms = 1};
    m->lost = false;
    pthread_mutex_unlock(&m->lock);
}

static int set_up(void **state)
{
    memory *m = test_calloc(1, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    memory *m = *state;
    pthread_mutex_destroy(&m->lock);
    test_free(m);
    return 0;
}

static skv_spill *open_spill(memory *m, uint8_t key, uint8_t model)
{
    uint8_t secret[SKV_SPILL_SECRET_BYTES];
    memset(secret, key, sizeof secret);
    const skv_block_store store = {.user = m,
                                   .seconds = 0.02,
                                   .open = open_link,
                                   .close = close_link,
                                   .get = get,
                                   .put = put,
                                   .tend = tend,
                                   .touch = touch};
    skv_spill_options options = {.store = &store,
                                 .secret = secret,
                                 .queue_bytes = 1 << 20,
                                 .page_bytes = PAGE_BYTES,
                                 .pages_max = N_PAGES};
    memset(options.model, model, sizeof options.model);
    skv_spill *spill = NULL;
    skv_error err;
    if (skv_spill_open(&options, &spill, &err) != SKV_OK) fail_msg("%s", err.text);
    return spill;
}

static void make_names(const skv_spill *spill, skv_spill_name *names)
{
    for (size_t i = 0; i < N; i++) {
        int32_t ids[N_IDS];
        for (size_t t = 0; t < N_IDS; t++) ids[t] = (int32_t)(i * 100 + t);
        skv_spill_block_name(spill, 7, i > 0 ? &names[i - 1] : NULL, ids, N_IDS, &names[i]);
    }
}

static void put_blocks(skv_spill *spill, const skv_spill_name *names)
{
    for (size_t i = 0; i < N; i++) {
        skv_spill_item *item = skv_spill_item_create(N_IDS, N_PAGES, PAGE_BYTES);
        assert_non_null(item);
        item->kind = SKV_SPILL_BLOCK;
        item->name = names[i];
        for (size_t t = 0; t < N_IDS; t++) item->ids[t] = (int32_t)(i * 100 + t);
        memset(item->pages, (int)i + 1, (size_t)N_PAGES * PAGE_BYTES);
        skv_spill_put(spill, item);
    }
}

static skv_spill_stats stats_of(skv_spill *spill)
{
    skv_spill_stats stats;
    skv_spill_get_stats(spill, &stats);
    return stats;
}

static void wait_sent(skv_spill *spill)
{
    while (stats_of(spill).queue_items > 0) rest();
}

/* How many blocks of a chain come, which are the first ones and as they were sent. */
static size_t fetch(skv_spill *spill, const skv_spill_name *names)
{
    skv_spill_fetch *f = skv_spill_fetch_begin(spill, names, N);
    assert_non_null(f);
    size_t n = 0;
    while (!skv_spill_fetch_done(f)) {
        skv_spill_item *item = skv_spill_fetch_next(f);
        if (!item) {
            rest();
            continue;
        }
        assert_memory_equal(&item->name, &names[n], sizeof *names);
        for (size_t b = 0; b < (size_t)N_PAGES * PAGE_BYTES; b++) {
            assert_int_equal(item->pages[b], n + 1);
        }
        n++;
        skv_free(item);
    }
    skv_spill_fetch_end(f);
    return n;
}

static void test_another_reads(void **state)
{
    memory *m = *state;
    skv_spill_name names[N], others[N];
    skv_spill *first = open_spill(m, 1, 1), *second = open_spill(m, 1, 1);
    make_names(first, names);
    assert_int_equal(fetch(second, names), 0);
    assert_int_equal(stats_of(second).n_missed, 1);
    put_blocks(first, names);
    put_blocks(first, names); /* they are on their way */
    wait_sent(first);
    assert_int_equal(m->n_puts, N);
    assert_int_equal(fetch(second, names), N);
    put_blocks(second, names); /* it knows that they are there */
    wait_sent(second);
    assert_int_equal(m->n_puts, N);
    skv_spill_close(first, 60);
    skv_spill_close(second, 60);
    /* Another key, and another model: other names, and nobody takes what stands under ours. */
    for (uint8_t who = 0; who < 2; who++) {
        skv_spill *stranger = open_spill(m, who ? 1 : 2, who ? 2 : 1);
        make_names(stranger, others);
        assert_int_equal(fetch(stranger, others), 0);
        assert_int_equal(fetch(stranger, names), 0);
        assert_int_equal(stats_of(stranger).n_removed, 1);
        skv_spill_close(stranger, 60);
    }
}

static size_t read_changed(memory *m, const skv_spill_name *names, size_t *n_bad)
{
    skv_spill *spill = open_spill(m, 1, 1);
    size_t n = fetch(spill, names);
    *n_bad = stats_of(spill).n_removed;
    skv_spill_close(spill, 60);
    return n;
}

/* Checksums without a key are made anew by whoever knows the form: only the seal tells. */
static void forge(value *v)
{
    skv_spill_header h;
    memcpy(&h, v->data, sizeof h);
    h.body_check = skv_spill_checksum(v->data + sizeof h, v->n - sizeof h);
    h.check = skv_spill_checksum(&h, offsetof(skv_spill_header, check));
    memcpy(v->data, &h, sizeof h);
}

static void test_what_the_store_changes(void **state)
{
    memory *m = *state;
    skv_spill_name names[N];
    skv_spill *spill = open_spill(m, 1, 1);
    make_names(spill, names);
    put_blocks(spill, names);
    wait_sent(spill);
    skv_spill_close(spill, 60);
    value *v = find(m, names[2].bytes);
    const value kept = *v;
    size_t n_bad;
    for (size_t at = 0; at < kept.n; at += at < sizeof(skv_spill_header) ? 1 : 97) {
        for (int forged = 0; forged < 2; forged++) {
            v->data[at] ^= 4;
            if (forged) forge(v);
            bool undone = memcmp(v->data, kept.data, kept.n) == 0; /* it was a checksum */
            assert_int_equal(read_changed(m, names, &n_bad), undone ? N : 2);
            assert_int_equal(n_bad, !undone);
            *v = kept;
        }
    }
    for (size_t n = 0; n < kept.n; n += 61) {
        v->n = n;
        assert_int_equal(read_changed(m, names, &n_bad), 2);
        assert_int_equal(n_bad, 1);
    }
    /* Another block, as it was sent. */
    const value *other = find(m, names[3].bytes);
    memcpy(v->data, other->data, other->n);
    v->n = other->n;
    assert_int_equal(read_changed(m, names, &n_bad), 2);
    assert_int_equal(n_bad, 1);
}

static void set(memory *m, bool *flag, bool to)
{
    pthread_mutex_lock(&m->lock);
    *flag = to;
    pthread_mutex_unlock(&m->lock);
}

static void test_away_full_and_lost(void **state)
{
    memory *m = *state;
    skv_spill_name names[N];
    skv_spill *spill = open_spill(m, 1, 1);
    make_names(spill, names);
    assert_true(skv_spill_responds(spill));
    set(m, &m->away, true);
    while (skv_spill_responds(spill)) rest();
    put_blocks(spill, names);
    wait_sent(spill);
    assert_int_equal(stats_of(spill).n_dropped, N);
    set(m, &m->away, false);
    set(m, &m->full, true);
    while (!skv_spill_responds(spill)) rest();
    put_blocks(spill, names);
    wait_sent(spill);
    assert_int_equal(stats_of(spill).n_failed, N);
    /* What was not taken is not believed to be there. */
    set(m, &m->full, false);
    put_blocks(spill, names);
    wait_sent(spill);
    assert_int_equal(stats_of(spill).n_written, N);
    assert_true(skv_spill_has(spill, &names[0]));
    set(m, &m->lost, true);
    while (skv_spill_has(spill, &names[0])) rest();
    put_blocks(spill, names);
    wait_sent(spill);
    assert_int_equal(stats_of(spill).n_written, 2 * N);
    skv_spill_close(spill, 60);
}

static void test_one_that_hangs(void **state)
{
    memory *m = *state;
    skv_spill_name names[N];
    skv_spill *spill = open_spill(m, 1, 1);
    make_names(spill, names);
    put_blocks(spill, names);
    wait_sent(spill);
    set(m, &m->hangs, true);
    skv_spill_fetch *f = skv_spill_fetch_begin(spill, names, N);
    while (skv_spill_responds(spill)) rest();
    assert_null(skv_spill_fetch_next(f));
    skv_spill_fetch_end(f); /* the thread is at it */
    set(m, &m->hangs, false);
    while (!skv_spill_responds(spill)) rest();
    assert_int_equal(fetch(spill, names), N);
    skv_spill_close(spill, 60);
}

static void put_number(skv_spill *spill, uint8_t i)
{
    skv_spill_item *item = skv_spill_item_create(N_IDS, N_PAGES, PAGE_BYTES);
    assert_non_null(item);
    item->kind = SKV_SPILL_BLOCK;
    item->name = (skv_spill_name){{i, 1}};
    memset(item->ids, 0, N_IDS * sizeof *item->ids);
    memset(item->pages, i, (size_t)N_PAGES * PAGE_BYTES);
    skv_spill_put(spill, item);
    wait_sent(spill);
}

static bool stands(memory *m, uint8_t i)
{
    pthread_mutex_lock(&m->lock);
    const bool so = find(m, (skv_spill_name){{i, 1}}.bytes);
    pthread_mutex_unlock(&m->lock);
    return so;
}

/* A store that gives up what was not used for longest keeps pinned blocks, while their pins last.
 */
static void test_pins(void **state)
{
    memory *m = *state;
    const skv_spill_pin pins[] = {{{{0, 1}}, 1}, {{{1, 1}}, 1}, {{{2, 1}}, 1}};
    skv_spill *spill = open_spill(m, 1, 1);
    m->room = 8;
    const uint64_t now = skv_clock_ns();
    skv_spill_pin_text(spill, &(skv_pinned_text){1, now + 3600000000000u, pins, 2});
    skv_spill_pin_text(spill, &(skv_pinned_text){1, now + 1, pins + 2, 1});
    for (uint8_t i = 0; i < 24; i++) put_number(spill, i);
    assert_true(stands(m, 0) && stands(m, 1));
    for (uint8_t i = 2; i < 18; i++) assert_false(stands(m, i));
    for (uint8_t i = 18; i < 24; i++) assert_true(stands(m, i));
    skv_spill_close(spill, 60);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_another_reads),
        TEST(test_what_the_store_changes),
        TEST(test_away_full_and_lost),
        TEST(test_one_that_hangs),
        TEST(test_pins),
    };
    return cmocka_run_group_tests_name("spill_store", tests, NULL, NULL);
}
