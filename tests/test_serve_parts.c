/* Parts of the scheduler by themselves: stop texts, the time of a step, the most likely tokens, and
 * the index of known prompts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kv/prefix_index.h"
#include "serve/step_clock.h"
#include "serve/stop_text.h"
#include "serve/token_probs.h"

static void test_top_tokens(void **state)
{
    (void)state;
    const float logits[] = {1, 3, 2, 3, -1};
    skv_token_prob top[4];
    double norm = skv_logits_norm(logits, 5);
    skv_logits_top(logits, 5, norm, 4, top);
    assert_int_equal(top[0].id, 1);
    assert_int_equal(top[1].id, 3);
    assert_int_equal(top[2].id, 2);
    assert_int_equal(top[3].id, 0);
    double sum = 0;
    for (size_t i = 0; i < 5; i++) sum += exp((double)logits[i] - norm);
    assert_true(fabs(sum - 1) < 1e-12);
}

static void push_text(skv_stop_text *stop, const char *text, bool last, const char *want)
{
    skv_text_piece in = {text, strlen(text)}, out;
    assert_true(skv_stop_text_push(stop, &in, last, &out));
    assert_int_equal(out.n, strlen(want));
    assert_memory_equal(out.text, want, out.n);
}

static void test_stop_texts(void **state)
{
    (void)state;
    const skv_text_piece stops[] = {{"END", 3}, {"\n\n", 2}, {"ENTER", 5}};
    skv_stop_text stop;
    skv_stop_text_init(&stop, stops, 3);
    push_text(&stop, "abc", false, "abc");
    push_text(&stop, "dE", false, "d");
    push_text(&stop, "N", false, "");
    push_text(&stop, "TRY\n", false, "ENTRY");
    push_text(&stop, "x", false, "\nx");
    push_text(&stop, "yEN", false, "y");
    push_text(&stop, "D more", false, "");
    assert_ptr_equal(stop.stopped, &stops[0]);
    push_text(&stop, "z", true, "");
    skv_stop_text_release(&stop);
    skv_stop_text_init(&stop, stops, 3);
    push_text(&stop, "aEN", false, "a");
    push_text(&stop, "", true, "EN");
    assert_null(stop.stopped);
    skv_stop_text_release(&stop);
}

static void test_step_clock_keeps_its_target(void **state)
{
    (void)state;
    skv_step_clock clock;
    skv_step_clock_init(&clock, 50, 512);
    /* A machine with 2 ms for each answer and 0.5 ms for each prompt token. */
    for (int i = 0; i < 40; i++) {
        size_t n_answers = i % 3 == 0 ? 0 : 4, n = i % 5 == 0 ? 0 : 1;
        if (n) n = skv_step_clock_budget(&clock, n_answers);
        double ms = 2.0 * (double)n_answers + 0.5 * (double)n;
        skv_step_clock_learn(&clock, n_answers, n, (uint64_t)(ms * 1e6));
    }
    size_t n = skv_step_clock_budget(&clock, 4);
    assert_true(n >= 64 && n <= 96); /* (50 - 8) / 0.5 = 84 */
    assert_true(skv_step_clock_budget(&clock, 0) > 200);
    assert_true(skv_step_clock_budget(&clock, 100) >= 1);
    assert_true(fabs(skv_step_clock_seconds(&clock, 1000) - 0.5) < 0.1);
}

/* ---- the prefix index ---- */

enum { HEAD_DIM = 8, N_PAGES = 40, MAX_BLOCKS = 8, N_TRACKS = 2 };

typedef struct fixture {
    skv_backend *be;
    skv_kv_pool *pool;
    skv_kv_layout layout;
    skv_prefix_index *index;
} fixture;

static int set_up(void **state)
{
    static const size_t heads[] = {N_TRACKS};
    fixture *f = test_calloc(1, sizeof *f);
    assert_int_equal(skv_backend_cpu_create(1, SKV_CPU_LEVEL_REF, &f->be, NULL), SKV_OK);
    assert_int_equal(skv_kv_pool_create(f->be, SKV_KV_TYPE_F32, HEAD_DIM, N_PAGES, &f->pool, NULL),
                     SKV_OK);
    assert_int_equal(skv_kv_layout_init(&f->layout, heads, 1, NULL), SKV_OK);
    assert_int_equal(skv_prefix_index_create(f->pool, N_PAGES, 5, &f->index, NULL), SKV_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    skv_prefix_index_free(f->index);
    assert_int_equal(skv_kv_pool_free_pages(f->pool), N_PAGES);
    skv_kv_pool_free(f->pool);
    skv_kv_layout_release(&f->layout);
    f->be->free(f->be);
    test_free(f);
    return 0;
}

static skv_kv_cache new_cache(const fixture *f, size_t n_rows)
{
    skv_kv_cache cache;
    assert_int_equal(
        skv_kv_cache_init(&cache, f->pool, &f->layout, MAX_BLOCKS * SKV_PAGE_ROWS, NULL), SKV_OK);
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

static size_t find(fixture *f, uint64_t domain, const int32_t *ids, size_t n)
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
    int32_t ids[4 * SKV_PAGE_ROWS], other[4 * SKV_PAGE_ROWS];
    for (int i = 0; i < 4 * SKV_PAGE_ROWS; i++) ids[i] = other[i] = i * 7 % 50;
    other[SKV_PAGE_ROWS + 3]++;
    learn(f, 1, ids, 3 * SKV_PAGE_ROWS + 10);
    assert_int_equal(skv_prefix_index_blocks(f->index), 3);
    assert_int_equal(find(f, 1, ids, 4 * SKV_PAGE_ROWS), 3 * SKV_PAGE_ROWS);
    assert_int_equal(find(f, 1, ids, 2 * SKV_PAGE_ROWS + 63), 2 * SKV_PAGE_ROWS);
    assert_int_equal(find(f, 1, ids, SKV_PAGE_ROWS - 1), 0);
    assert_int_equal(find(f, 2, ids, 4 * SKV_PAGE_ROWS), 0);
    assert_int_equal(find(f, 1, other, 4 * SKV_PAGE_ROWS), SKV_PAGE_ROWS);
    /* The second block's tokens alone are nobody's beginning. */
    assert_int_equal(find(f, 1, ids + SKV_PAGE_ROWS, 2 * SKV_PAGE_ROWS), 0);
    learn(f, 1, other, 2 * SKV_PAGE_ROWS);
    assert_int_equal(skv_prefix_index_blocks(f->index), 4);
    learn(f, 1, ids, 3 * SKV_PAGE_ROWS); /* known already: no new pages */
    assert_int_equal(skv_kv_pool_free_pages(f->pool), N_PAGES - 4 * N_TRACKS);
}

/* Least recently used first, leaves first, and never what a sequence is using. */
static void test_giving_up(void **state)
{
    fixture *f = *state;
    int32_t a[3 * SKV_PAGE_ROWS], b[2 * SKV_PAGE_ROWS];
    for (int i = 0; i < 3 * SKV_PAGE_ROWS; i++) a[i] = i % 50;
    for (int i = 0; i < 2 * SKV_PAGE_ROWS; i++) b[i] = 60;
    learn(f, 0, a, 3 * SKV_PAGE_ROWS);
    learn(f, 0, b, 2 * SKV_PAGE_ROWS);
    assert_int_equal(skv_prefix_index_evictable(f->index), 5 * N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, 1), N_TRACKS);
    assert_int_equal(find(f, 0, a, 3 * SKV_PAGE_ROWS), 2 * SKV_PAGE_ROWS);
    /* Now b is older. Somebody uses its first block. */
    skv_kv_cache user = new_cache(f, 0);
    assert_int_equal(skv_prefix_index_match(f->index, 0, b, SKV_PAGE_ROWS, &user), SKV_PAGE_ROWS);
    assert_int_equal(skv_prefix_index_in_use(f->index, 0, b, 2 * SKV_PAGE_ROWS), N_TRACKS);
    assert_int_equal(skv_prefix_index_evictable(f->index), 3 * N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, SIZE_MAX), 3 * N_TRACKS);
    assert_int_equal(skv_prefix_index_blocks(f->index), 1);
    skv_kv_cache_release(&user);
    assert_int_equal(skv_kv_pool_free_pages(f->pool), N_PAGES - N_TRACKS);
    assert_int_equal(skv_prefix_index_evict(f->index, SIZE_MAX), N_TRACKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_tokens),
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_step_clock_keeps_its_target),
        cmocka_unit_test_setup_teardown(test_prefixes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_giving_up, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("serve parts", tests, NULL, NULL);
}
