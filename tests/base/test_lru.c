/* Entries by hash and in order of use, against a plain list that is kept in order by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/lru.h"
#include "base/rng.h"

enum { N_ENTRIES = 200, N_HASHES = 70 };

typedef struct entry {
    skv_lru_node node;
    bool is_in;
    int added; /* the step it was added in */
} entry;

typedef struct fixture {
    skv_lru lru;
    entry entries[N_ENTRIES];
    int order[N_ENTRIES]; /* the numbers of those in the table, the oldest first */
    size_t n;
} fixture;

/* Few buckets are shared by many hashes, and a hash by a few entries. */
static uint64_t hash_of(int number)
{
    return (uint64_t)(number % N_HASHES) << 4;
}

static void take_out(fixture *f, int number)
{
    size_t i = 0;
    while (f->order[i] != number) i++;
    memmove(&f->order[i], &f->order[i + 1], (f->n - i - 1) * sizeof f->order[0]);
    f->n--;
}

static void check_order(const fixture *f)
{
    assert_int_equal(f->lru.n, f->n);
    const skv_lru_node *up = f->lru.oldest, *down = f->lru.newest;
    for (size_t i = 0; i < f->n; i++) {
        assert_ptr_equal(up, &f->entries[f->order[i]].node);
        assert_ptr_equal(down, &f->entries[f->order[f->n - 1 - i]].node);
        up = up->newer;
        down = down->older;
    }
    assert_null(up);
    assert_null(down);
}

/* All entries of a hash are found, those that were added later before the others. */
static void check_hash(const fixture *f, int number)
{
    size_t n_found = 0, n_there = 0;
    int before = INT32_MAX;
    for (skv_lru_node *node = skv_lru_first(&f->lru, hash_of(number)); node;
         node = skv_lru_next(node)) {
        const entry *e = (const entry *)node;
        assert_true(e->is_in && e->added < before);
        assert_true(node->hash == hash_of(number));
        before = e->added;
        n_found++;
    }
    for (int i = number % N_HASHES; i < N_ENTRIES; i += N_HASHES) n_there += f->entries[i].is_in;
    assert_int_equal(n_found, n_there);
}

static void test_random_use(void **state)
{
    (void)state;
    fixture f = {.n = 0};
    skv_rng rng;
    skv_rng_init(&rng, 11);
    assert_int_equal(skv_lru_init(&f.lru, 10, NULL), SKV_OK);
    for (int step = 0; step < 20000; step++) {
        int number = (int)skv_rng_below(&rng, N_ENTRIES);
        entry *e = &f.entries[number];
        if (!e->is_in) {
            skv_lru_add(&f.lru, &e->node, hash_of(number));
            e->added = step;
        } else if (skv_rng_below(&rng, 2) == 0) {
            skv_lru_touch(&f.lru, &e->node);
            take_out(&f, number);
        } else {
            skv_lru_remove(&f.lru, &e->node);
            take_out(&f, number);
            e->is_in = false;
            check_hash(&f, number);
            continue;
        }
        e->is_in = true;
        f.order[f.n++] = number;
        check_hash(&f, number);
        if (step % 16 == 0) check_order(&f);
    }
    check_order(&f);
    skv_lru_release(&f.lru);
}

/* The oldest goes first, until none is left; then the table is as new. */
static void test_oldest_first(void **state)
{
    (void)state;
    fixture f = {.n = 0};
    assert_int_equal(skv_lru_init(&f.lru, N_ENTRIES, NULL), SKV_OK);
    assert_true(f.lru.n_buckets >= N_ENTRIES);
    assert_null(skv_lru_first(&f.lru, 5));
    for (int i = 0; i < 3; i++) skv_lru_add(&f.lru, &f.entries[i].node, 5);
    skv_lru_touch(&f.lru, &f.entries[0].node);
    skv_lru_touch(&f.lru, &f.entries[0].node);
    static const int order[] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(f.lru.oldest, &f.entries[order[i]].node);
        skv_lru_remove(&f.lru, f.lru.oldest);
    }
    assert_null(f.lru.oldest);
    assert_null(f.lru.newest);
    assert_int_equal(f.lru.n, 0);
    assert_null(skv_lru_first(&f.lru, 5));
    skv_lru_release(&f.lru);
    skv_lru_release(&f.lru);
}

static void test_too_large(void **state)
{
    (void)state;
    skv_lru lru;
    skv_error err;
    assert_int_equal(skv_lru_init(&lru, SIZE_MAX, &err), SKV_MEMORY);
    assert_non_null(strstr(err.text, "no memory"));
    skv_lru_release(&lru);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_use),
                                       cmocka_unit_test(test_oldest_first),
                                       cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests_name("lru", tests, NULL, NULL);
}
