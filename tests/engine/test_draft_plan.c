/*
 * What `--speculate auto` drafts: costs and chances are learnt from steps, rows go to the text that
 * is most likely right, domains learn apart, and on machines that are made up here, with steps of
 * any price and drafts of any quality, it never takes much longer than plain decoding and gains
 * where there is a gain.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

enum { N_LANES = 6, N_MATCH_MAX = 32 };

/* An engine without a model, and sequences of it that have drafters: all that planning looks at. */
typedef struct stage {
    skv_engine engine;
    skv_sequence sequences[N_LANES];
    skv_drafter drafters[N_LANES];
    skv_draft_request requests[N_LANES];
    skv_span spans[N_LANES];
    size_t n;
    uint64_t draw;
} stage;

static stage *new_stage(size_t n, bool measures)
{
    stage *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->n = n;
    s->draw = 12345;
    for (size_t i = 0; i < n; i++) {
        s->sequences[i].engine = &s->engine;
        s->sequences[i].drafter = &s->drafters[i];
        s->drafters[i] = (skv_drafter){
            .text = &skv_draft_text, .last = SKV_DRAFT_TEXT, .most = 16, .measures = measures};
        skv_sequence_set_learnt(&s->sequences[i], &s->engine.draft_learnt);
        s->requests[i].sequence = &s->sequences[i];
        s->spans[i] = (skv_span){.sequence = &s->sequences[i], .n = 1, .want = SKV_WANT_DRAFTED};
    }
    return s;
}

/* From 0 to 1. */
static double draw(stage *s)
{
    s->draw = s->draw * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->draw >> 33) / 2147483648.0;
}

static void test_costs_are_learnt(void **state)
{
    (void)state;
    for (double row = 0.02; row < 1.2; row *= 2) {
        stage *s = new_stage(1, true);
        skv_draft_cost *cost = skv_draft_cost_of(&s->engine.draft_costs, 1);
        assert_false(skv_draft_cost_is_fresh(cost));
        for (size_t i = 0; i < 200; i++) {
            const size_t d = i % 5;
            const double noise = 0.9 + 0.2 * draw(s), spike = i % 50 == 49 ? 30 : 1;
            skv_draft_cost_learn(cost, d, false, 2e5 * (1 + row * (double)d) * noise * spike);
        }
        assert_true(skv_draft_cost_is_fresh(cost));
        assert_true(fabs(cost->step_ns / 2e5 - 1) < 0.15);
        assert_true(fabs(skv_draft_cost_row(cost) - row) < 0.05 + 0.3 * row);
        for (size_t i = 0; i < 64; i++) skv_draft_cost_learn(cost, 1, false, 2e5);
        assert_false(skv_draft_cost_is_fresh(cost));
        free(s);
    }
    skv_draft_costs costs = {0};
    assert_null(skv_draft_cost_of(&costs, 0));
    assert_non_null(skv_draft_cost_of(&costs, SKV_COST_SEQUENCES));
    assert_null(skv_draft_cost_of(&costs, SKV_COST_SEQUENCES + 1));
}

static void test_chances_are_learnt(void **state)
{
    (void)state;
    static const skv_draft_chances none;
    skv_draft_chances own = none, all = none;
    for (size_t n = 3; n < N_MATCH_MAX; n++) {
        assert_true(skv_draft_chance(&none, &none, n) >= skv_draft_chance(&none, &none, n - 1));
    }
    /* Ten drafts of four tokens behind a match of two: the first three are right. */
    for (size_t i = 0; i < 10; i++) skv_draft_chances_learn(&all, 2, 4, 3);
    assert_true(skv_draft_chance(&none, &all, 2) > 0.75);
    assert_true(skv_draft_chance(&none, &all, 4) > 0.85);
    assert_true(skv_draft_chance(&none, &all, 5) < 0.3);
    /* A sequence's own count more than the domain's, soon. */
    for (size_t i = 0; i < 20; i++) skv_draft_chances_learn(&own, 2, 1, 0);
    assert_true(skv_draft_chance(&own, &all, 2) < 0.2);
    /* A new habit is seen after some tokens, however long the old one was. */
    for (size_t i = 0; i < 100000; i++) skv_draft_chances_learn(&own, 2, 1, 0);
    for (size_t i = 0; i < 150; i++) skv_draft_chances_learn(&own, 2, 1, 1);
    assert_true(skv_draft_chance(&own, &all, 2) > 0.6);
}

static void test_rows_go_to_the_likeliest(void **state)
{
    (void)state;
    static const size_t matches[N_LANES] = {2, 20, 4, 0, 9, 2};
    for (size_t n_rows = 0; n_rows < 30; n_rows++) {
        stage *s = new_stage(N_LANES, false);
        for (size_t i = 0; i < N_LANES; i++) {
            s->requests[i].n = matches[i] > 0 ? 6 : 0;
            s->drafters[i].n_match = matches[i];
        }
        const skv_draft_step step = {.n_sequences = N_LANES, .n_rows = n_rows};
        const size_t n = skv_draft_plan_texts(s->requests, N_LANES, &step);
        size_t sum = 0;
        for (size_t i = 0; i < N_LANES; i++) sum += s->requests[i].n;
        assert_int_equal(sum, n);
        assert_true(n <= n_rows);
        assert_int_equal(s->requests[3].n, 0);
        /* The longest match is served first; with room each that matches has one token. */
        for (size_t i = 0; i < N_LANES; i++) assert_true(s->requests[i].n <= s->requests[1].n);
        for (size_t i = 0; i < N_LANES && n_rows >= 20; i++) {
            assert_int_equal(s->requests[i].n > 0, matches[i] > 0);
        }
        free(s);
    }
}

/* How many tokens of twelve are drafted for the first sequence. */
static size_t drafted_by_name(stage *s)
{
    const skv_draft_step step = {.n_sequences = 1, .n_rows = 40};
    s->requests[0].n = 12;
    s->drafters[0].n_match = 9;
    return skv_draft_plan_texts(s->requests, 1, &step);
}

/* What another domain learnt changes nothing: neither drafts that were chosen by name, nor what a
 * model is believed to gain, nor when AUTO tries. */
static void test_domains_learn_apart(void **state)
{
    (void)state;
    for (int right = 0; right <= 1; right++) {
        stage *s = new_stage(2, false);
        skv_draft_learnt other = {.spare_ns = 0};
        const size_t alone = drafted_by_name(s);
        skv_sequence_set_learnt(&s->sequences[1], &other);
        s->drafters[1].n_match = 9;
        for (size_t i = 0; i < 50; i++) skv_draft_plan_learn(&s->sequences[1], 6, right ? 6 : 0);
        s->drafters[1].model = &skv_draft_self;
        s->drafters[1].last = SKV_DRAFT_SELF;
        skv_draft_plan_learn(&s->sequences[1], 6, right ? 6 : 0);
        assert_true(other.gains[SKV_DRAFT_SELF].known);
        assert_int_equal(drafted_by_name(s), alone);
        s->drafters[0].model = &skv_draft_self;
        skv_sequence_set_learnt(&s->sequences[0], &s->engine.draft_learnt);
        assert_false(s->drafters[0].gain.known);
        /* In the same domain it does. */
        skv_sequence_set_learnt(&s->sequences[0], &other);
        assert_true(s->drafters[0].gain.known);
        assert_true(right ? drafted_by_name(s) > alone : drafted_by_name(s) < alone);
        free(s);
    }
}

/* Steps until AUTO tries to draft for the first sequence, where nothing pays; 0: not within 600. */
static size_t steps_to_try(stage *s, size_t n_sequences)
{
    const skv_draft_step step = {.n_sequences = n_sequences, .n_rows = 40};
    skv_draft_cost *cost = skv_draft_cost_of(&s->engine.draft_costs, n_sequences);
    for (size_t i = 1; i <= 600; i++) {
        cost->step_ns = 1e6;
        cost->added = 1e4; /* a row takes 100 steps */
        cost->squares = 1e2;
        for (size_t k = 0; k < n_sequences; k++) s->requests[k].n = 6;
        (void)skv_draft_plan_texts(s->requests, n_sequences, &step);
        if (s->requests[0].n > 0) return i;
    }
    return 0;
}

static void test_domains_try_apart(void **state)
{
    (void)state;
    stage *s = new_stage(2, true);
    skv_draft_learnt one = {.spare_ns = 0}, other = {.spare_ns = 0};
    skv_sequence_set_learnt(&s->sequences[0], &one);
    assert_int_equal(steps_to_try(s, 1), 32);
    assert_int_equal(steps_to_try(s, 1), 64);
    assert_int_equal(steps_to_try(s, 1), 128);
    skv_sequence_set_learnt(&s->sequences[0], &other);
    assert_int_equal(steps_to_try(s, 1), 32);
    /* Both in one step: each has its turn, and no step tries for two. */
    one = other = (skv_draft_learnt){.spare_ns = 0};
    skv_sequence_set_learnt(&s->sequences[0], &one);
    skv_sequence_set_learnt(&s->sequences[1], &other);
    assert_int_equal(steps_to_try(s, 2), 32);
    assert_int_equal(s->requests[1].n, 0);
    assert_int_equal(other.waits[1].n_idle, 31);
    /* Sequences of one domain wait together. */
    one = (skv_draft_learnt){.spare_ns = 0};
    skv_sequence_set_learnt(&s->sequences[1], &one);
    assert_int_equal(steps_to_try(s, 2), 32);
    free(s);
}

/* A machine and a text. */
typedef struct world {
    size_t n_sequences;
    double row;      /* what a drafted row adds, as a part of a step */
    double right[2]; /* the probability that a drafted token is, behind short and long matches */
    double matches;  /* the part of all tokens behind which there is a match */
} world;

/* Times plain decoding, for n_tokens of each sequence. */
static double gain_of(const world *w, size_t n_tokens)
{
    stage *s = new_stage(w->n_sequences, true);
    double spent = 0, tokens = 0;
    while (tokens < (double)(n_tokens * w->n_sequences)) {
        const skv_draft_step step = {.n_sequences = w->n_sequences, .n_rows = 40};
        size_t n_rows = 0;
        for (size_t i = 0; i < w->n_sequences; i++) {
            s->requests[i].n = draw(s) < w->matches ? 1 + (size_t)(15 * draw(s)) : 0;
            s->drafters[i].n_match = draw(s) < 0.5 ? 2 : 9;
        }
        n_rows = skv_draft_plan_texts(s->requests, w->n_sequences, &step);
        const double noise = draw(s) < 0.02 ? 4 : 0.9 + 0.2 * draw(s);
        const double ns = 1e6 * (1 + w->row * (double)n_rows);
        spent += ns;
        for (size_t i = 0; i < w->n_sequences; i++) s->spans[i].n = 1 + s->requests[i].n;
        skv_draft_plan_learn_step(&s->engine, s->spans, w->n_sequences, ns * noise);
        for (size_t i = 0; i < w->n_sequences; i++) {
            const size_t n = s->requests[i].n;
            const double right = w->right[s->drafters[i].n_match > 2];
            size_t n_right = 0;
            while (n_right < n && draw(s) < right) n_right++;
            tokens += 1 + (double)n_right;
            if (n > 0) skv_draft_plan_learn(&s->sequences[i], n, n_right);
        }
    }
    free(s);
    return tokens / (double)w->n_sequences * 1e6 / spent;
}

static void test_it_never_loses_much(void **state)
{
    (void)state;
    static const double rows[] = {0.03, 0.1, 0.3, 0.6, 1.1};
    static const double rights[][2] = {{0, 0}, {0.1, 0.3}, {0.3, 0.7}, {0.6, 0.95}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < 4; k++) {
            for (size_t n = 1; n <= N_LANES; n += 5) {
                const world w = {n, rows[i], {rights[k][0], rights[k][1]}, 0.8};
                const double gain = gain_of(&w, 2000);
                if (gain < 0.98) fail_msg("row %g, right %g: %g", w.row, w.right[1], gain);
            }
        }
    }
}

static void test_it_gains(void **state)
{
    (void)state;
    const world cheap = {1, 0.1, {0.6, 0.95}, 0.8}, dear = {1, 0.5, {0.6, 0.95}, 0.8};
    const world many = {6, 0.02, {0.6, 0.95}, 0.8};
    assert_true(gain_of(&cheap, 2000) > 2.3);
    assert_true(gain_of(&dear, 2000) > 1.2);
    assert_true(gain_of(&many, 2000) > 2.2);
}

/* A model apart and its price: a token of a prompt that it reads, and one that it drafts, as parts
 * of a step; how often a drafted token is right. */
typedef struct helper {
    size_t n_prompt;
    double read, draft, right;
} helper;

/* Times plain decoding of n_answers, one after the other, of 200 tokens each. */
static double gain_with(const helper *h, size_t n_answers)
{
    stage *s = new_stage(1, true);
    skv_drafter *d = &s->drafters[0];
    double spent = 0, tokens = 0;
    for (size_t a = 0; a < n_answers; a++) {
        *d = (skv_drafter){
            .model = &skv_draft_model, .last = SKV_DRAFT_MODEL, .most = 4, .measures = true};
        skv_sequence_set_learnt(&s->sequences[0], &s->engine.draft_learnt);
        s->sequences[0].n_seen = h->n_prompt;
        for (double end = tokens + 200; tokens < end;) {
            const skv_draft_step step = {.n_sequences = 1, .n_rows = 4};
            s->requests[0].n = 0;
            const bool asks = skv_draft_plan_asks(&s->requests[0], &step);
            const size_t unread = s->sequences[0].n_seen - d->cache.n_rows;
            const size_t n = asks ? 4 : 0;
            size_t n_right = 0;
            while (n_right < n && draw(s) < h->right) n_right++;
            double ns = 1e6 * (1 + 0.1 * (double)n);
            spent += ns;
            s->spans[0].n = 1 + n;
            skv_draft_plan_learn_step(&s->engine, s->spans, 1, ns);
            if (asks && unread > SKV_DRAFT_MAX) {
                skv_draft_cost_learn_read(&s->engine.draft_costs, unread,
                                          1e6 * h->read * (double)unread);
                spent += 1e6 * h->read * (double)unread;
            } else if (asks) {
                skv_draft_cost_learn_model(skv_draft_cost_of(&s->engine.draft_costs, 1),
                                           SKV_DRAFT_MODEL, 5, 5e6 * h->draft);
            }
            if (asks) spent += 5e6 * h->draft;
            tokens += 1 + (double)n_right;
            s->sequences[0].n_seen += 1 + n_right;
            if (asks) d->cache.n_rows = s->sequences[0].n_seen;
            if (asks) skv_draft_plan_learn(&s->sequences[0], n, n_right);
        }
    }
    free(s);
    return tokens * 1e6 / spent;
}

/* A model has to read a prompt before it drafts, which takes as long as many steps. */
static void test_prompts_are_read_where_that_pays(void **state)
{
    (void)state;
    static const size_t prompts[] = {20, 200, 2000, 20000};
    for (size_t i = 0; i < 4; i++) {
        for (double right = 0; right < 1; right += 0.3) {
            for (size_t n_answers = 1; n_answers <= 100; n_answers *= 10) {
                const helper h = {prompts[i], 0.05, 0.2, right};
                const double gain = gain_with(&h, n_answers);
                if (gain < 0.98)
                    fail_msg("%zu tokens, right %g, %zu: %g", h.n_prompt, right, n_answers, gain);
            }
        }
    }
    const helper fast = {200, 0.01, 0.05, 0.9}, slow = {20000, 0.05, 0.05, 0.9};
    assert_true(gain_with(&fast, 100) > 1.5);
    assert_true(gain_with(&slow, 100) < 1.0001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs_are_learnt),
        cmocka_unit_test(test_chances_are_learnt),
        cmocka_unit_test(test_rows_go_to_the_likeliest),
        cmocka_unit_test(test_domains_learn_apart),
        cmocka_unit_test(test_domains_try_apart),
        cmocka_unit_test(test_it_never_loses_much),
        cmocka_unit_test(test_it_gains),
        cmocka_unit_test(test_prompts_are_read_where_that_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
