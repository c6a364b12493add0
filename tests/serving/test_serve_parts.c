/* Parts of the scheduler by themselves: stop texts, the time of a step, the draft statistics of a
 * domain, why prompts were not cached. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "common/stop_text.h"
#include "kv/kv_cache.h"
#include "scheduler/draft_domains.h"
#include "scheduler/past_prompts.h"
#include "scheduler/step_clock.h"

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

/* A machine with 2 ms for each answer and, for each prompt token, 0.5 ms and 0.5 ms more for every
 * 1000 tokens before it. */
static double machine_ms(size_t n_answers, skv_step_work work)
{
    return 2.0 * (double)n_answers + 0.5 * (double)work.n + 0.0005 * work.n_before;
}

static size_t fit(const skv_step_clock *clock, size_t n_answers, size_t n_seen)
{
    return skv_step_clock_fit(clock, skv_step_clock_room(clock, n_answers, 0), n_seen);
}

static void test_step_clock_keeps_its_target(void **state)
{
    (void)state;
    skv_step_clock clock;
    skv_step_clock_init(&clock, 50);
    assert_int_equal(fit(&clock, 0, 0), 32);
    size_t n_seen = 0;
    for (int i = 0; i < 400; i++) {
        size_t n_answers = i % 3 == 0 ? 0 : 4;
        skv_step_work work = {0};
        if (i % 5 != 0) work = skv_step_work_of(fit(&clock, n_answers, n_seen), n_seen);
        double ms = machine_ms(n_answers, work);
        skv_step_clock_learn(&clock, n_answers, work, (uint64_t)(ms * 1e6));
        n_seen = n_seen > 3000 ? 0 : n_seen + work.n;
    }
    assert_in_range(fit(&clock, 4, 0), 64, 96);   /* (50 - 8) / 0.52 = 80 */
    assert_in_range(fit(&clock, 0, 0), 224, 288); /* 150 / 0.5625 = 266 */
    assert_int_equal(fit(&clock, 100, 0), 0);
    /* Whatever stands before it: a step of a long prompt is not longer. */
    for (size_t seen = 0; seen <= 16000; seen += 2000) {
        double ms = machine_ms(4, skv_step_work_of(fit(&clock, 4, seen), seen));
        assert_true(ms > 35 && ms < 55);
    }
    assert_true(fabs(skv_step_clock_seconds(&clock, 1000) - 1.3) < 0.5);
}

/* On a machine whose steps take a tenth more or less, few are late, and little of the time is lost.
 */
static void test_few_steps_are_late(void **state)
{
    (void)state;
    enum { N = 6000, N_FIRST = 1000 };
    skv_step_clock clock;
    skv_rng rng;
    skv_rng_init(&rng, 1);
    skv_step_clock_init(&clock, 50);
    size_t n_late = 0;
    double sum = 0;
    for (size_t i = 0; i < N; i++) {
        bool is_prompt = i % 5 != 0;
        skv_step_work work = {0};
        if (is_prompt) work = skv_step_work_of(fit(&clock, 4, 100), 100);
        double noise = 0;
        for (int k = 0; k < 12; k++) noise += (double)skv_rng_below(&rng, 1000) / 1000 - 0.5;
        double ms = machine_ms(4, work) * (1 + 0.1 * noise);
        skv_step_clock_learn(&clock, 4, work, (uint64_t)(ms * 1e6));
        if (i < N_FIRST || !is_prompt) continue;
        n_late += ms > 50;
        sum += ms;
    }
    double n = (N - N_FIRST) * 4.0 / 5;
    assert_true((double)n_late < 0.04 * n);
    assert_true(sum / n > 0.7 * 50);
}

/* What a domain was marked with; 0: it is new. */
static double mark_of(skv_draft_domains *all, uint64_t id)
{
    return skv_draft_domains_of(all, id)->learnt.spare_ns;
}

static void test_idle_domains_give_way(void **state)
{
    (void)state;
    skv_draft_domains *all = calloc(1, sizeof *all);
    assert_non_null(all);
    for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS; id++) {
        assert_true(mark_of(all, id) == 0);
        skv_draft_domains_of(all, id)->learnt.spare_ns = (double)id;
    }
    for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS; id++) {
        assert_true(mark_of(all, id) == (double)id);
    }
    assert_true(mark_of(all, 1) == 1);
    assert_true(mark_of(all, 1000) == 0); /* in the place of the second, which was idle longest */
    assert_true(mark_of(all, 1) == 1);
    assert_true(mark_of(all, 3) == 3);
    assert_true(mark_of(all, 2) == 0);
    skv_draft_domains_release(all);
    free(all);
}

/* Answers of the domains that were used last are kept, as many as the account has room for. */
static void test_answers_are_counted(void **state)
{
    (void)state;
    static const int32_t answer[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const size_t one = skv_draft_history_bytes(SKV_HISTORY_TOKENS);
    const struct {
        size_t max, used_by_others, n_kept;
    } cases[] = {{0, 0, SKV_HISTORIES},
                 {(size_t)1 << 30, 0, SKV_HISTORIES},
                 {3 * SKV_HISTORY_PART * one, 0, 3},
                 {3 * SKV_HISTORY_PART * one, (3 * SKV_HISTORY_PART - 2) * one, 2},
                 {3 * SKV_HISTORY_PART * one, 3 * SKV_HISTORY_PART * one, 0},
                 {one, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_draft_domains *all = calloc(1, sizeof *all);
        assert_non_null(all);
        if (cases[i].max > 0) {
            assert_int_equal(skv_account_create(cases[i].max, &all->account, NULL), SKV_OK);
            skv_account_take_anyway(all->account, cases[i].used_by_others);
        }
        skv_draft_domains_add(all, 99, answer, SKV_HISTORY_TOKENS_MIN - 1);
        assert_int_equal(all->n_histories, 0);
        for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS - 1; id++) {
            skv_draft_domains_add(all, id, answer, 8);
        }
        assert_int_equal(all->n_histories, cases[i].n_kept);
        const size_t counted = all->account ? cases[i].n_kept * one : 0;
        assert_int_equal(skv_account_used(all->account), cases[i].used_by_others + counted);
        for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS - 1; id++) {
            const bool kept = id >= SKV_DRAFT_DOMAINS - cases[i].n_kept;
            const bool found = skv_draft_domains_of(all, id)->history;
            assert_int_equal(found, kept);
        }
        skv_draft_domains_release(all);
        assert_int_equal(skv_account_used(all->account), cases[i].used_by_others);
        skv_account_free(all->account);
        free(all);
    }
}

/* ---- why prompts were not cached ---- */

enum { TALKS = 12, TALK_MAX = 1200, EDIT_MAX = 100 };

/* What a client has sent. */
typedef struct sent_prompt {
    uint64_t owner, domain;
    int32_t ids[TALK_MAX];
    size_t n;
} sent_prompt;

static void add_ids(skv_rng *rng, sent_prompt *p, size_t n)
{
    while (n-- > 0) p->ids[p->n++] = (int32_t)skv_rng_below(rng, 100000);
}

/* Replaces a random part of a prompt's first n_before tokens. */
static void edit(skv_rng *rng, sent_prompt *p, size_t n_before)
{
    const size_t at = skv_rng_below(rng, n_before), left = p->n - at;
    const size_t n_out = skv_rng_below(rng, (left < EDIT_MAX ? left : EDIT_MAX) + 1);
    int32_t tail[TALK_MAX];
    const size_t n_tail = left - n_out;
    memcpy(tail, p->ids + at + n_out, n_tail * sizeof *tail);
    p->n = at;
    add_ids(rng, p, skv_rng_below(rng, EDIT_MAX + 1));
    memcpy(p->ids + p->n, tail, n_tail * sizeof *tail);
    p->n += n_tail;
}

static size_t first_difference(const sent_prompt *a, const sent_prompt *b)
{
    size_t i = 0;
    while (i < a->n && i < b->n && a->ids[i] == b->ids[i]) i++;
    return i;
}

/* The longest beginning of a prompt that earlier ones of its owner have, with its domain or with
 * others. */
static size_t longest(const sent_prompt *all, size_t n, const sent_prompt *p, bool same)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        if (all[i].owner != p->owner || (all[i].domain == p->domain) != same) continue;
        const size_t one = first_difference(&all[i], p);
        if (one > most) most = one;
    }
    return most;
}

static bool continues_one(const sent_prompt *all, size_t n, const sent_prompt *p, size_t common)
{
    bool parts = false;
    for (size_t i = 0; i < n; i++) {
        if (all[i].owner != p->owner || all[i].domain != p->domain) continue;
        parts = parts || (first_difference(&all[i], p) == common && all[i].n > common);
    }
    return !parts || common == p->n;
}

static bool is_first(const sent_prompt *all, size_t n, const sent_prompt *p)
{
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        found = found || (all[i].owner == p->owner && all[i].domain == p->domain);
    }
    return !found;
}

/* What the reason must be, by comparing the lists of tokens alone. */
static skv_cache_miss expected(const sent_prompt *all, size_t n, const skv_begun_prompt *b,
                               const sent_prompt *p)
{
    const size_t most = b->n_usable / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
    const size_t same = longest(all, n, p, true), other = longest(all, n, p, false);
    const size_t usable = (same < most ? same : most) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
    const size_t foreign = (other < most ? other : most) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
    skv_cache_miss out = {.reason = SKV_MISS_NONE, .token = b->n_found};
    if (!b->looked) {
        out.reason = SKV_MISS_OFF;
        out.lost_tokens = (same < p->n - 1 ? same : p->n - 1) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
    } else if (b->n_found >= most) {
        out.reason = most > 0 ? SKV_MISS_NONE : SKV_MISS_BLOCK;
    } else if (b->n_rows > b->n_found) {
        out.reason = SKV_MISS_STATE;
        out.lost_tokens = b->n_rows - b->n_found;
    } else if (usable > b->n_found) {
        out.reason = SKV_MISS_EVICTED;
        out.lost_tokens = usable - b->n_found;
    } else if (foreign > b->n_found) {
        out.reason = SKV_MISS_FORM;
        out.lost_tokens = foreign - b->n_found;
    } else if (is_first(all, n, p)) {
        out.reason = SKV_MISS_NEW;
    } else {
        out.reason = continues_one(all, n, p, same) ? SKV_MISS_NONE : SKV_MISS_TEXT;
        out.token = same;
    }
    return out;
}

/* One more turn of an earlier prompt, perhaps with another owner or domain, perhaps edited. */
static void make_turn(skv_rng *rng, const sent_prompt *all, size_t n, sent_prompt *out)
{
    *out = (sent_prompt){.n = 0};
    if (n > 0 && skv_rng_below(rng, 6) > 0) *out = all[skv_rng_below(rng, n)];
    const size_t n_before = out->n;
    out->owner = 1 + skv_rng_below(rng, 2);
    out->domain = out->owner * 10 + (skv_rng_below(rng, 4) == 0);
    if (skv_rng_below(rng, 3) > 0) add_ids(rng, out, 30 + skv_rng_below(rng, 250));
    if (out->n > TALK_MAX - 500) out->n = TALK_MAX - 500;
    if (n_before > 0 && n_before <= out->n && skv_rng_below(rng, 2) > 0) edit(rng, out, n_before);
    if (out->n == 0) add_ids(rng, out, 1);
}

/* Tells a prompt's miss and compares; blocks of earlier prompts are there, but for some, and some
 * have no state behind them. */
static skv_miss check_miss(skv_rng *rng, const skv_past_prompts *past, const sent_prompt *all,
                           size_t n, const sent_prompt *p)
{
    const bool looked = skv_rng_below(rng, 8) > 0;
    size_t n_found = longest(all, n, p, true);
    if (n_found > p->n - 1) n_found = p->n - 1;
    n_found = looked ? n_found / SKV_PAGE_ROWS * SKV_PAGE_ROWS : 0;
    size_t n_rows = 0;
    if (n_found > 0 && skv_rng_below(rng, 4) == 0) {
        n_rows = skv_rng_below(rng, 2) > 0 ? n_found : 0;
        n_found -= SKV_PAGE_ROWS;
    }
    const skv_begun_prompt begun = {.owner = p->owner,
                                    .domain = p->domain,
                                    .ids = p->ids,
                                    .n = p->n,
                                    .n_usable = p->n - 1,
                                    .n_found = n_found,
                                    .n_rows = n_rows,
                                    .looked = looked};
    const skv_past_prompt *with;
    const skv_cache_miss got = skv_past_prompts_explain(past, &begun, &with);
    const skv_cache_miss want = expected(all, n, &begun, p);
    assert_int_equal(got.reason, want.reason);
    if (want.reason != SKV_MISS_NONE) assert_int_equal(got.token, want.token);
    if (want.reason != SKV_MISS_TEXT) {
        assert_int_equal(got.lost_tokens, want.lost_tokens);
        assert_null(with);
        return got.reason;
    }
    assert_true(with->owner == p->owner && with->domain == p->domain);
    assert_true(with->ids[got.token] != p->ids[got.token]);
    return got.reason;
}

static void test_misses_are_told_by_token(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 40);
    size_t seen[SKV_MISS_COUNT] = {0};
    sent_prompt *sent = calloc(TALKS, sizeof *sent);
    skv_past_prompts *past = calloc(1, sizeof *past);
    assert_true(sent && past);
    past->max_ids = (size_t)TALKS * TALK_MAX;
    for (size_t round = 0; round < 500; round++) {
        size_t n = 0;
        for (size_t i = 0; i < TALKS; i++) {
            sent_prompt *p = &sent[n];
            make_turn(&rng, sent, n, p);
            seen[check_miss(&rng, past, sent, n, p)]++;
            if (p->n < SKV_PAGE_ROWS) continue; /* no block of it is kept */
            skv_past_prompts_add(past, p->owner, p->domain, p->ids, p->n);
            n++;
        }
        skv_past_prompts_release(past);
        assert_int_equal(past->n_ids, 0);
    }
    for (size_t i = 0; i < SKV_MISS_COUNT; i++) assert_true(seen[i] > 20);
    free(past);
    free(sent);
}

/* A part near the beginning that changes with each request loses all that follows it. */
static void test_what_an_edit_loses(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 41);
    skv_past_prompts *past = calloc(1, sizeof *past);
    sent_prompt *p = calloc(2, sizeof *p);
    assert_true(past && p);
    for (size_t round = 0; round < 300; round++) {
        past->max_ids = (size_t)4 * TALK_MAX;
        p[0] = (sent_prompt){.owner = 1, .domain = 1};
        add_ids(&rng, &p[0], 300 + skv_rng_below(&rng, 400));
        p[1] = p[0];
        edit(&rng, &p[1], p[0].n - 250);
        size_t n_tail = 0;
        while (n_tail < p[0].n && n_tail < p[1].n &&
               p[0].ids[p[0].n - 1 - n_tail] == p[1].ids[p[1].n - 1 - n_tail]) {
            n_tail++;
        }
        add_ids(&rng, &p[1], 70);
        if (first_difference(&p[0], &p[1]) >= p[0].n) continue; /* nothing was edited */
        const size_t at = first_difference(&p[0], &p[1]);
        skv_past_prompts_add(past, 1, 1, p[0].ids, p[0].n);
        const skv_begun_prompt begun = {1, 1, p[1].ids, p[1].n, p[1].n - 1, at / 64 * 64, 0, true};
        const skv_past_prompt *with;
        const skv_cache_miss miss = skv_past_prompts_explain(past, &begun, &with);
        assert_int_equal(miss.reason, SKV_MISS_TEXT);
        assert_int_equal(miss.token, at);
        assert_int_equal(miss.lost_tokens, n_tail);
        skv_past_prompts_release(past);
    }
    free(past);
    free(p);
}

/* The oldest go: of a key that has too many, or of all where the account has no room. */
static void test_past_prompts_are_bounded(void **state)
{
    (void)state;
    enum { ONE = 100 * sizeof(int32_t) };
    int32_t ids[100] = {0};
    for (size_t n_fit = 0; n_fit <= 40; n_fit += 10) {
        skv_past_prompts *past = calloc(1, sizeof *past);
        assert_non_null(past);
        past->max_ids = SIZE_MAX / 2;
        assert_int_equal(skv_account_create(n_fit * ONE * SKV_PAST_PART + 1, &past->account, NULL),
                         SKV_OK);
        for (int32_t i = 0; i < 100; i++) {
            ids[0] = i;
            skv_past_prompts_add(past, (uint64_t)i % 2, 5, ids, 100);
        }
        const size_t most = (size_t)2 * SKV_PAST_PROMPTS_OWN, n_kept = n_fit < most ? n_fit : most;
        assert_int_equal(past->n_ids, n_kept * 100);
        assert_int_equal(skv_account_used(past->account), n_kept * ONE);
        for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
            const skv_past_prompt *p = &past->at[i];
            if (p->used > 0) assert_true(p->ids[0] >= 100 - (int32_t)n_kept);
        }
        skv_account_take_anyway(past->account, SIZE_MAX / 2);
        ids[0] = 100;
        skv_past_prompts_add(past, 1, 5, ids, 100);
        assert_int_equal(past->n_ids, 0); /* others need the memory */
        skv_account_give(past->account, SIZE_MAX / 2);
        skv_past_prompts_release(past);
        assert_int_equal(skv_account_used(past->account), 0);
        skv_account_free(past->account);
        free(past);
    }
}

static size_t count_pinned(const skv_past_prompts *past, uint64_t owner, uint64_t now)
{
    size_t n = 0;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        size_t n_pinned;
        const skv_past_prompt *p = skv_past_prompts_pinned(past, i, now, &n_pinned);
        n += p && p->owner == owner;
    }
    return n;
}

static void pin(skv_past_prompts *past, uint64_t owner, int32_t id, uint64_t key, uint64_t end)
{
    int32_t ids[100] = {id};
    assert_true(skv_past_prompts_add(past, owner, 1, ids, 100));
    skv_past_prompts_pin(past, owner, &(skv_past_pin){.n = 100, .end = end, .key = key});
}

/* Pins end with their time, with a newer one of their key, and beyond their owner's part. */
static void test_pins_end(void **state)
{
    (void)state;
    skv_past_prompts *past = calloc(1, sizeof *past);
    assert_non_null(past);
    past->max_ids = 10000;
    past->max_pinned = SKV_PIN_PART * 1000;
    pin(past, 2, 0, 0, 50);
    for (int32_t i = 1; i <= 15; i++) {
        pin(past, 1, i, 0, i > 12 ? 60 : 50);
        assert_int_equal(count_pinned(past, 1, 49), i < 10 ? i : 10);
    }
    assert_int_equal(count_pinned(past, 1, 50), 3);
    assert_int_equal(count_pinned(past, 1, 60), 0);
    assert_int_equal(count_pinned(past, 2, 49), 1);
    for (int32_t i = 20; i < 24; i++) pin(past, 1, i, 7, 100);
    assert_int_equal(count_pinned(past, 1, 99), 1);
    pin(past, 1, 30, 8, 100);
    assert_int_equal(count_pinned(past, 1, 99), 2);
    pin(past, 2, 23, 7, 100); /* another owner's key */
    assert_int_equal(count_pinned(past, 1, 99), 2);
    skv_past_prompts_release(past);
    assert_int_equal(count_pinned(past, 1, 0), 0);
    free(past);
}

static size_t most_pinned(const skv_past_prompts *past, uint64_t now)
{
    size_t most = 0, n = 0;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        if (skv_past_prompts_pinned(past, i, now, &n) && n > most) most = n;
    }
    return most;
}

/* Beginnings of one prompt have lifetimes of their own, go on with a prompt that continues it, and
 * the longest ends first where they are too many. */
static void test_beginnings_are_pinned(void **state)
{
    (void)state;
    int32_t ids[2000] = {0};
    skv_past_prompts *past = calloc(1, sizeof *past);
    assert_non_null(past);
    past->max_ids = 10000;
    past->max_pinned = SKV_PIN_PART * 1000;
    assert_true(skv_past_prompts_add(past, 1, 1, ids, 600));
    skv_past_prompts_pin(past, 1, &(skv_past_pin){.n = 200, .end = 100});
    skv_past_prompts_pin(past, 1, &(skv_past_pin){.n = 600, .end = 50});
    assert_int_equal(most_pinned(past, 49), 600);
    assert_int_equal(most_pinned(past, 50), 200);
    assert_true(skv_past_prompts_add(past, 1, 1, ids, 900));
    assert_int_equal(most_pinned(past, 49), 600);
    for (size_t n = 700; n <= 900; n += 20) { /* more than there are places: the last to end stay */
        skv_past_prompts_pin(past, 1, &(skv_past_pin){.n = n, .end = n / 10});
    }
    assert_int_equal(most_pinned(past, 89), 900);
    assert_int_equal(most_pinned(past, 90), 200);
    assert_true(skv_past_prompts_add(past, 1, 1, ids, 1500));
    skv_past_prompts_pin(past, 1, &(skv_past_pin){.n = 1500, .end = 90}); /* beyond the part */
    assert_int_equal(most_pinned(past, 89), 900);
    assert_true(skv_past_prompts_add(past, 1, 1, ids, 300)); /* a beginning of it again */
    skv_past_prompts_pin(past, 1, &(skv_past_pin){.n = 300, .end = 200});
    assert_int_equal(most_pinned(past, 150), 300);
    skv_past_prompts_release(past);
    free(past);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_step_clock_keeps_its_target),
        cmocka_unit_test(test_few_steps_are_late),
        cmocka_unit_test(test_idle_domains_give_way),
        cmocka_unit_test(test_answers_are_counted),
        cmocka_unit_test(test_misses_are_told_by_token),
        cmocka_unit_test(test_what_an_edit_loses),
        cmocka_unit_test(test_past_prompts_are_bounded),
        cmocka_unit_test(test_pins_end),
        cmocka_unit_test(test_beginnings_are_pinned),
    };
    return cmocka_run_group_tests_name("serve parts", tests, NULL, NULL);
}
