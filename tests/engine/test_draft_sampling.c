/*
 * Speculation with sampling: over many seeds the tokens of an answer with drafts come as often as
 * without, for every source and combination, with penalties, cuts and grammars.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "property_seed.h"
#include "skv/grammar.h"
#include "skv/skv.h"
#include "skv/text.h"
#include "skv/tools.h"
#include "temp_folder.h"

#define SWIFTKV_MODEL SKV_TEST_DATA "/models/qwen2-swiftkv-g2"
#define EXIT_MODEL SKV_TEST_DATA "/comparators/exit"
#define KVPRED_SMALL SKV_TEST_DATA "/kvpred/llama-lp"

/* Fewer answers than N_TELLS need have no right draft, nor words that come often enough to count.
 */
enum { N_PROMPT = 90, N_ANSWER = 4, N_TELLS = 500 };

/* Answers of a sample, and of each of two that are compared. AddressSanitizer is slow, and sees the
 * same accesses in fewer. */
#if defined(__SANITIZE_ADDRESS__)
enum { N_FEW = 1000, N_OF_TWO = 400 };
#else
enum { N_FEW = 2000, N_OF_TWO = 1500 };
#endif

static skv_engine *open_for(const char *model, const char *source)
{
    skv_engine *engine = NULL;
    skv_error err;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.context = 256;
    options.kv_tokens = 4 * 256;
    options.step_tokens = 128;
    if (strstr(source, "model")) options.draft_model = model;
    if (skv_engine_open(model, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_sequence *new_sequence(skv_engine *engine, const char *source)
{
    skv_speculation how;
    skv_sequence *s = NULL;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    assert_int_equal(skv_speculation_parse(source, &how, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_speculation(s, &how, NULL), SKV_OK);
    return s;
}

/* Most of what may come first has followed the last token before, and was followed by it. */
static void make_ids(int32_t ids[N_PROMPT])
{
    for (size_t i = 0; i < N_PROMPT; i++) ids[i] = i % 2 == 1 ? 7 : (int32_t)(i / 2 * 2 + 10);
}

typedef struct answer {
    int32_t ids[N_ANSWER];
    size_t n;
} answer;

static bool on_token(void *user, int32_t id)
{
    answer *a = user;
    a->ids[a->n++] = id;
    return true;
}

/* Behind the prompt ids [N_PROMPT]. */
static answer answer_of(skv_engine *engine, skv_sequence *s, const int32_t *ids,
                        const skv_sampling *sampling, skv_matcher *matcher)
{
    answer a = {.n = 0};
    skv_error err;
    skv_sampler *sampler = NULL;
    assert_int_equal(skv_sampler_create(sampling, skv_engine_vocab(engine), &sampler, NULL),
                     SKV_OK);
    const skv_generation g = {.max_tokens = N_ANSWER,
                              .sampler = sampler,
                              .ignore_eos = true,
                              .matcher = matcher,
                              .on_token = on_token,
                              .user = &a};
    skv_sequence_truncate(s, N_PROMPT - 1);
    const size_t at = skv_sequence_length(s);
    if (skv_generate(engine, s, ids + at, N_PROMPT - at, &g, &err) != SKV_OK)
        fail_msg("%s", err.text);
    skv_sampler_free(sampler);
    return a;
}

/* Every source that `source` names has drafted, and was right now and then. */
static void expect_drafts(const skv_sequence *s, const char *source, size_t n)
{
    size_t n_sources = 0;
    for (int i = SKV_DRAFT_TEXT; i < SKV_DRAFT_SOURCES; i++) {
        const skv_draft_counts counts = skv_sequence_drafts(s, (skv_drafting)i);
        if (!strstr(source, skv_drafting_name((skv_drafting)i))) continue;
        assert_true(counts.drafted > n / 20);
        assert_true(counts.accepted > 0 || n < N_TELLS);
        n_sources++;
    }
    assert_true(n_sources > 0);
}

/* x of chi-squared, of a sample of n_answers. */
static void expect_close(double x, size_t freedom, size_t n_answers)
{
    const double n = (double)freedom;
    if (freedom <= 2 && n_answers < N_TELLS) return;
    assert_true(freedom > 2);
    assert_true(x < n + 3.5 * sqrt(2 * n));
}

/* ---- against exact probabilities ---- */

typedef struct row_of_logits {
    float *at; /* [n] */
    size_t n;
} row_of_logits;

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const row_of_logits *row = user;
    (void)i_span;
    (void)i_token;
    memcpy(row->at, logits, row->n * sizeof *logits);
}

static void softmax(double *p, const float *logits, size_t n, double temperature)
{
    double sum = 0;
    float most = logits[0];
    for (size_t i = 1; i < n; i++) most = fmaxf(most, logits[i]);
    for (size_t i = 0; i < n; i++) {
        p[i] = exp(((double)logits[i] - (double)most) / temperature);
        sum += p[i];
    }
    for (size_t i = 0; i < n; i++) p[i] /= sum;
}

/* Probabilities of the second token of an answer, over all first ones: [V]. */
static void second_tokens(skv_engine *engine, const int32_t *ids, double temperature, double *out)
{
    const size_t V = skv_engine_vocab(engine);
    float *logits = calloc(V, sizeof *logits);
    double *first = calloc(V, sizeof *first), *second = calloc(V, sizeof *second);
    skv_sequence *s = new_sequence(engine, "none");
    row_of_logits row = {logits, V};
    assert_true(logits && first && second);
    assert_int_equal(
        skv_prompt(engine, s, ids, N_PROMPT, &(skv_prompt_options){.logits = logits}, NULL),
        SKV_OK);
    softmax(first, logits, V, temperature);
    for (size_t i = 0; i < V; i++) {
        const int32_t id = (int32_t)i;
        const skv_span span = {s, &id, 1, SKV_WANT_LAST};
        assert_int_equal(skv_step(engine, &span, 1, take_row, &row, NULL), SKV_OK);
        skv_sequence_truncate(s, N_PROMPT);
        softmax(second, logits, V, temperature);
        for (size_t j = 0; j < V; j++) out[j] += first[i] * second[j];
    }
    skv_sequence_free(s);
    free(logits);
    free(first);
    free(second);
}

/* Tokens that come fewer than five times in n are one bin. */
static double chi_squared(const double *p, const size_t *counts, size_t n_bins, size_t n,
                          size_t *freedom)
{
    double sum = 0, rare = 0, rare_found = 0;
    *freedom = 0;
    for (size_t i = 0; i < n_bins; i++) {
        const double expected = p[i] * (double)n, found = (double)counts[i];
        if (expected < 5) {
            rare += expected;
            rare_found += found;
            continue;
        }
        sum += (found - expected) * (found - expected) / expected;
        ++*freedom;
    }
    return rare >= 5 ? sum + (rare_found - rare) * (rare_found - rare) / rare : sum;
}

/* p [V]: probabilities of the model's second tokens. */
static void expect_distribution(const char *model, const char *source, double temperature,
                                const double *p)
{
    skv_engine *engine = open_for(model, source);
    const size_t V = skv_engine_vocab(engine);
    int32_t ids[N_PROMPT];
    make_ids(ids);
    const size_t n = every_case() ? 4000 : N_FEW;
    size_t *counts = calloc(V, sizeof *counts), freedom;
    assert_non_null(counts);
    skv_sequence *s = new_sequence(engine, source);
    for (size_t i = 0; i < n; i++) {
        const skv_sampling sampling = {
            .temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = i};
        counts[answer_of(engine, s, ids, &sampling, NULL).ids[1]]++;
    }
    const double x = chi_squared(p, counts, V, n, &freedom);
    expect_drafts(s, source, n);
    expect_close(x, freedom, n);
    skv_sequence_free(s);
    skv_engine_close(engine);
    free(counts);
}

static void expect_distributions(const char *model, double temperature, const char *const *sources,
                                 size_t n)
{
    skv_engine *engine = open_for(model, "none");
    double *p = calloc(skv_engine_vocab(engine), sizeof *p);
    int32_t ids[N_PROMPT];
    make_ids(ids);
    assert_non_null(p);
    second_tokens(engine, ids, temperature, p);
    skv_engine_close(engine);
    for (size_t i = 0; i < n; i++) expect_distribution(model, sources[i], temperature, p);
    free(p);
}

static void test_distribution(void **state)
{
    (void)state;
    static const char *const of_text[] = {"text:4"};
    static const char *const of_exit[] = {"self:4,0", "model:4,0", "text+self:4,0",
                                          "text+model:4,0"};
    static const char *const of_auxiliary[] = {"aux:4,0", "text+aux:4,0"};
    expect_distributions(SWIFTKV_MODEL, 4, of_text, 1);
    expect_distributions(EXIT_MODEL, 1, of_exit, 4);
    expect_distributions(KVPRED_SMALL, 1, of_auxiliary, 2);
}

/* ---- against the plain sampler, with other seeds ---- */

/* Two samples of n each; tokens that come fewer than ten times in both are one bin. */
static double chi_squared_of_two(const size_t *a, const size_t *b, size_t n_bins, size_t *freedom)
{
    double sum = 0, rare_a = 0, rare_b = 0;
    size_t n = 0;
    for (size_t i = 0; i < n_bins; i++) {
        const double x = (double)a[i], y = (double)b[i];
        if (x + y < 10) {
            rare_a += x;
            rare_b += y;
            continue;
        }
        sum += (x - y) * (x - y) / (x + y);
        n++;
    }
    if (rare_a + rare_b >= 10) {
        sum += (rare_a - rare_b) * (rare_a - rare_b) / (rare_a + rare_b);
        n++;
    }
    *freedom = n > 0 ? n - 1 : 0;
    return sum;
}

/* How often each token comes at each place of an answer: counts [N_ANSWER, V]. */
static void count_tokens(skv_engine *engine, skv_sequence *s, const int32_t *ids,
                         skv_sampling sampling, const skv_matcher *matcher, uint64_t seed, size_t n,
                         size_t *counts)
{
    const size_t V = skv_engine_vocab(engine);
    for (size_t i = 0; i < n; i++) {
        skv_matcher *own = NULL;
        if (matcher) assert_int_equal(skv_matcher_copy(matcher, &own, NULL), SKV_OK);
        sampling.seed = seed + i;
        const answer a = answer_of(engine, s, ids, &sampling, own);
        for (size_t j = 0; j < a.n; j++) counts[j * V + (size_t)a.ids[j]]++;
        skv_matcher_free(own);
    }
}

/* What is asked of a model, n times with seeds of its own. */
typedef struct question {
    const char *model;
    const int32_t *ids; /* [N_PROMPT], borrowed as all here */
    const skv_sampling *sampling;
    const skv_matcher *matcher;
    size_t n;
} question;

/* With drafts and without: plain [N_ANSWER, V], counted once for all sources. */
static void expect_same_frequencies(const question *q, const char *source, const size_t *plain)
{
    skv_engine *engine = open_for(q->model, source);
    const size_t V = skv_engine_vocab(engine);
    size_t *drafted = calloc(N_ANSWER * V, sizeof *drafted);
    skv_sequence *s = new_sequence(engine, source);
    assert_non_null(drafted);
    count_tokens(engine, s, q->ids, *q->sampling, q->matcher, 1000000, q->n, drafted);
    expect_drafts(s, source, q->n);
    for (size_t j = 1; j < N_ANSWER; j++) {
        size_t freedom;
        const double x = chi_squared_of_two(plain + j * V, drafted + j * V, V, &freedom);
        expect_close(x, freedom, q->n);
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
    free(drafted);
}

static void expect_same_of_sources(const question *q, const char *const *sources, size_t n)
{
    skv_engine *engine = open_for(q->model, "none");
    size_t *plain = calloc(N_ANSWER * skv_engine_vocab(engine), sizeof *plain);
    skv_sequence *s = new_sequence(engine, "none");
    assert_non_null(plain);
    count_tokens(engine, s, q->ids, *q->sampling, q->matcher, 0, q->n, plain);
    skv_sequence_free(s);
    skv_engine_close(engine);
    for (size_t i = 0; i < n; i++) expect_same_frequencies(q, sources[i], plain);
    free(plain);
}

static void test_penalties_and_cuts(void **state)
{
    (void)state;
    static const char *const of_exit[] = {"text:4", "self:4,0", "model:4,0", "text+self:4,0",
                                          "text+model:4,0"};
    static const char *const of_auxiliary[] = {"aux:4,0", "text+aux:4,0"};
    static const skv_sampling samplings[] = {
        {.temperature = 3, .top_k = 60, .top_p = 0.97, .repetition_penalty = 1},
        {.temperature = 3,
         .top_p = 1,
         .min_p = 0.02,
         .repetition_penalty = 1.3,
         .presence_penalty = 0.4,
         .frequency_penalty = 0.3,
         .penalty_window = -1}};
    int32_t ids[N_PROMPT];
    make_ids(ids);
    for (size_t j = 0; j < sizeof samplings / sizeof *samplings; j++) {
        question q = {EXIT_MODEL, ids, &samplings[j], NULL, N_OF_TWO};
        expect_same_of_sources(&q, of_exit, 5);
        q.model = KVPRED_SMALL;
        expect_same_of_sources(&q, of_auxiliary, 2);
    }
}

/* ---- with a grammar ---- */

static int32_t id_of(char c)
{
    return c == '\n' ? 0 : c - ' ' + 1;
}

/* A tokenizer of a token for each character: the small models have none. */
static skv_vocab *open_characters(const char *folder)
{
    char path[512];
    skv_vocab *vocab = NULL;
    skv_error err;
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                "\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":\"Fuse\"},"
                "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\\n\":0",
                f);
    for (char c = ' '; c <= '~'; c++) (void)fprintf(f, ",\"\\u%04x\":%d", c, (int)id_of(c));
    (void)fputs("}}}", f);
    assert_int_equal(fclose(f), 0);
    if (skv_vocab_open(folder, &vocab, &err) != SKV_OK) fail_msg("%s", err.text);
    return vocab;
}

/* Each of these characters between two spaces: what is drafted behind a letter is a space, and then
 * the next character, which may be a digit or a capital, that the grammar forbids. */
static void make_mixed_ids(int32_t ids[N_PROMPT])
{
    static const char mixed[] = "a0b1c2d3e4f5g6h7i8j9kAlBmCnDoEpFqrstuvwxyz.,\n";
    for (size_t i = 0; i < N_PROMPT; i++) ids[i] = id_of(i % 2 == 1 ? ' ' : mixed[i / 2]);
}

static void test_grammars(void **state)
{
    static const char *const of_exit[] = {"text:4", "self:4,0", "model:4,0", "text+self:4,0",
                                          "text+model:4,0"};
    static const char *const of_auxiliary[] = {"aux:4,0", "text+aux:4,0"};
    static const char regex[] = "[a-z .,\\n]{1,99}";
    const skv_sampling sampling = {.temperature = 2, .top_p = 1, .repetition_penalty = 1};
    skv_vocab *vocab = open_characters(*state);
    skv_token_table *table = NULL;
    skv_grammar *grammar = NULL;
    skv_matcher *matcher = NULL;
    assert_int_equal(skv_token_table_create(vocab, NULL, 0, &table, NULL), SKV_OK);
    assert_int_equal(
        skv_grammar_compile(SKV_GRAMMAR_REGEX, regex, sizeof regex - 1, NULL, &grammar, NULL),
        SKV_OK);
    assert_int_equal(skv_matcher_create(grammar, table, NULL, &matcher, NULL), SKV_OK);
    int32_t ids[N_PROMPT];
    make_mixed_ids(ids);
    question q = {EXIT_MODEL, ids, &sampling, matcher, cases_of(N_OF_TWO, 60)};
    expect_same_of_sources(&q, of_exit, cases_of(5, 2));
    q.model = KVPRED_SMALL;
    expect_same_of_sources(&q, of_auxiliary, cases_of(2, 1));
    skv_matcher_free(matcher);
    skv_grammar_free(grammar);
    skv_token_table_free(table);
    skv_vocab_close(vocab);
}

static int make_folder(void **state)
{
    return temp_folder_make(state, "draft-sampling");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_penalties_and_cuts),
        cmocka_unit_test_setup_teardown(test_grammars, make_folder, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
