/*
 * Evaluation: intervals and ratios against values worked out by hand, normal forms of answers,
 * records with their errors, batches against one sequence at a time, agreement, and the log.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "eval/eval_log.h"
#include "eval/format.h"
#include "eval/metric.h"
#include "eval/records.h"
#include "eval/runner.h"
#include "skv/eval.h"

#define PLAIN SKV_TEST_DATA "/models/llama3-v5"
#define SWIFTKV SKV_TEST_DATA "/models/qwen2-swiftkv-g2"

static void is_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%.12g, expected %.12g", value, expected);
}

/* ---- metrics ---- */

/* The only estimate of a task with these examples; n 0: none has a weight. */
static skv_eval_estimate estimate_of(skv_metric metric, const skv_metric_value *values, size_t n)
{
    skv_eval_point at[10] = {{.length = 0}};
    const skv_eval_points points = {.at = at, .n = n};
    skv_eval_report *report = skv_alloc_zero(1, sizeof *report);
    report->tasks = skv_alloc_zero(1, sizeof *report->tasks);
    report->n_tasks = 1;
    for (size_t i = 0; i < n; i++) at[i].values[metric] = values[i];
    assert_int_equal(skv_eval_report_fill(report->tasks, &points, 10, false, NULL), SKV_OK);
    assert_true(report->tasks->n_estimates <= 1);
    const skv_eval_estimate e = report->tasks->estimates[0];
    skv_eval_report_free(report);
    return e;
}

static void estimates(void **state)
{
    (void)state;
    skv_metric_value shares[10];
    for (int i = 0; i < 10; i++) shares[i] = (skv_metric_value){i < 8, 1};
    skv_eval_estimate e = estimate_of(SKV_METRIC_ACC, shares, 10);
    assert_true(e.is_share && e.n == 10);
    is_near(e.value, 0.8, 1e-12);
    is_near(e.low, 0.490162471536642, 1e-9); /* Wilson, 8 of 10 */
    is_near(e.high, 0.943317848545625, 1e-9);
    e = estimate_of(SKV_METRIC_ACC, shares + 8, 2);
    is_near(e.low, 0, 0);
    is_near(e.high, 0.657619772493347, 1e-9); /* none of 2 */

    /* nats 2 and 9 over 1 and 2 tokens: 11 / 3; off by -5/3 and 5/3. */
    const skv_metric_value nats[] = {{2, 1}, {0, 0}, {9, 2}};
    e = estimate_of(SKV_METRIC_PERPLEXITY, nats, 3);
    const double mean = 11.0 / 3, error = sqrt(2 * 25.0 / 9 * 2) / 3;
    assert_int_equal(e.n, 2);
    assert_false(e.is_share);
    is_near(e.value, exp(mean), 1e-9);
    is_near(e.low, exp(mean - 1.959963984540054 * error), 1e-9);
    is_near(e.high, exp(mean + 1.959963984540054 * error), 1e-6);
    /* A share does not leave 0 to 1, whatever two examples make of its spread; what is none may. */
    const skv_metric_value apart[] = {{0.9, 1}, {0.1, 1}};
    const skv_metric bounded[] = {SKV_METRIC_MC2, SKV_METRIC_AGREEMENT};
    for (size_t i = 0; i < 2; i++) {
        e = estimate_of(bounded[i], apart, 2);
        is_near(e.value, 0.5, 1e-12);
        is_near(e.low, 0, 0);
        is_near(e.high, 1, 0);
    }
    e = estimate_of(SKV_METRIC_BITS_PER_BYTE, apart, 2);
    assert_true(e.low < 0 && e.high > 1);
    e = estimate_of(SKV_METRIC_KL, nats, 1);
    is_near(e.value, 2, 0);
    assert_true(isnan(e.low)); /* one example tells nothing of the spread */
    e = estimate_of(SKV_METRIC_KL, nats + 1, 1);
    assert_int_equal(e.n, 0);
    for (size_t i = 0; i < SKV_METRIC_COUNT; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(skv_metric_name((skv_metric)i), skv_metric_name((skv_metric)k));
        }
    }
    assert_string_equal(skv_metric_name(SKV_METRIC_COUNT), "unknown");
}

static void reports(void **state)
{
    (void)state;
    skv_eval_points points = {.n = 0};
    const struct {
        size_t length;
        double depth, right;
    } at[] = {{500, 0.05, 1}, {520, 0.99, 0}, {2000, 1.0, 1}, {2000, (double)NAN, 1}, {0, 0, 0}};
    for (size_t i = 0; i < 5; i++) {
        skv_eval_point point = {.length = at[i].length, .depth = at[i].depth};
        point.values[SKV_METRIC_EXACT_MATCH] = (skv_metric_value){at[i].right, 1};
        assert_int_equal(skv_eval_points_add(&points, &point, NULL), SKV_OK);
    }
    skv_eval_task *task = skv_alloc_zero(1, sizeof *task);
    assert_int_equal(skv_eval_report_fill(task, &points, 10, false, NULL), SKV_OK);
    assert_int_equal(task->n_estimates, 1);
    is_near(task->estimates[0].value, 0.6, 1e-12);
    assert_int_equal(task->n_rows, 2);
    assert_true(task->has_depths);
    assert_int_equal(task->rows[0].length, 512);
    assert_int_equal(task->rows[1].length, 2048);
    assert_int_equal(task->rows[0].cell_n[0], 1);
    assert_int_equal(task->rows[0].cell_n[9], 1);
    is_near(task->rows[0].cell_value[9], 0, 0);
    assert_true(isnan(task->rows[0].cell_value[5]));
    assert_int_equal(task->rows[1].cell_n[9], 1); /* depth 1 is in the last bin */
    is_near(task->rows[1].estimate.value, 1, 0);
    skv_eval_report *report = skv_alloc_zero(1, sizeof *report);
    *report = (skv_eval_report){.n_tasks = 1, .tasks = task};
    skv_eval_report_average(report);
    is_near(report->average, 0.6, 1e-12);
    skv_eval_report_free(report);
    skv_free(points.at);
}

/* ---- answers ---- */

static void check_answer(skv_answer_rule rule, const char *said, const char *answer, bool expected)
{
    char copy[256];
    char *answers[] = {copy};
    bool right;
    snprintf(copy, sizeof copy, "%s", answer);
    assert_int_equal(skv_answer_check(rule, said, answers, 1, &right, NULL), SKV_OK);
    if (right != expected) fail_msg("\"%s\" against \"%s\": %d", said, answer, right);
}

static void answers(void **state)
{
    (void)state;
    check_answer(SKV_ANSWER_EXACT, " 27146\n", "27146", true);
    check_answer(SKV_ANSWER_EXACT, "belt  orchid huge.", "belt orchid huge", true);
    check_answer(SKV_ANSWER_EXACT, "27146 and", "27146", false);
    check_answer(SKV_ANSWER_EXACT, "Bergen", "bergen", false);
    check_answer(SKV_ANSWER_EXACT, "", "27146", false);
    check_answer(SKV_ANSWER_WORDS, "The  David, Seville!", "david seville", true);
    check_answer(SKV_ANSWER_WORDS, "an apple a day", "Apple day.", true);
    check_answer(SKV_ANSWER_WORDS, "theory", "ory", false);
    check_answer(SKV_ANSWER_WORDS, "the", "a", false); /* nothing is left of both */
    check_answer(SKV_ANSWER_CONTAINS, "It is bb3b-12, I think", "bb3b-12", true);
    check_answer(SKV_ANSWER_CONTAINS, "It is bb3b", "bb3b-12", false);
    check_answer(SKV_ANSWER_LAST_NUMBER, "line 7: <2416>.", "2416", true);
    check_answer(SKV_ANSWER_LAST_NUMBER, "2416 or 2417", "2416", false);
    check_answer(SKV_ANSWER_LAST_NUMBER, "none", "none", false);
    check_answer(SKV_ANSWER_MARKED_NUMBER, "9 * 2 = 18, so\n#### 18\nQ 5", "a\n#### 18", true);
    check_answer(SKV_ANSWER_MARKED_NUMBER, "It makes $1,018.00.", "#### 1018", true);
    check_answer(SKV_ANSWER_MARKED_NUMBER, "-5", "#### 5", false);
    check_answer(SKV_ANSWER_MARKED_NUMBER, "1.50", "#### 1.5", true);
    check_answer(SKV_ANSWER_WORDS, "  The Cat, a Hat! ", "cat hat", true);
}

/* ---- records ---- */

static skv_status parse(const char *path, const char *text, skv_records *out, skv_error *err)
{
    *out = (skv_records){.n = 0};
    return skv_records_parse(out, text, strlen(text), path, 0, err);
}

static void refused(const char *path, const char *text, const char *message)
{
    skv_records records;
    skv_error err = {0};
    assert_int_not_equal(parse(path, text, &records, &err), SKV_OK);
    if (!strstr(err.text, message)) fail_msg("\"%s\" lacks \"%s\"", err.text, message);
    skv_records_release(&records);
}

static void records(void **state)
{
    (void)state;
    skv_records r;
    assert_int_equal(parse("x.jsonl", "{\"a\": 1}\n\n  \n{\"a\": 2}", &r, NULL), SKV_OK);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.at[1].line, 4);
    skv_records_release(&r);
    assert_int_equal(parse("x.json", "[{}, {}, {}]", &r, NULL), SKV_OK);
    assert_int_equal(r.n, 3);
    skv_records_release(&r);
    const char *csv = "a,b\r\n1,\"two, \"\"three\"\"\nfour\"\n,x\n";
    assert_int_equal(parse("x.csv", csv, &r, NULL), SKV_OK);
    assert_int_equal(r.n, 2);
    assert_string_equal(json_string_value(json_object_get(r.at[0].object, "b")),
                        "two, \"three\"\nfour");
    assert_string_equal(json_string_value(json_object_get(r.at[1].object, "a")), "");
    assert_int_equal(r.at[1].line, 4);
    skv_records_release(&r);
    refused("x.jsonl", "{\"a\": 1}\n{\"a\": }\n", "x.jsonl:2");
    refused("x.jsonl", "{}\n[1]\n", "x.jsonl:2: not a JSON object");
    refused("x.json", "{\"a\": 1}", "not an array");
    refused("x.csv", "a,b\n1,2,3\n", "x.csv:2: more fields");
    refused("x.csv", "a,b,a\n1,2,3\n", "x.csv:1: two columns \"a\"");
    refused("x.csv", "a,b\n1\n", "x.csv:2: 1 fields");
    refused("x.csv", "a,b\n1,\"2\n", "x.csv:2: a quote");
    assert_false(skv_records_are("wiki.test.raw"));
}

/* Every format is found by its fields, and no other takes its records. */
static void formats(void **state)
{
    static const char *const names[] = {"lines",   "document", "pairs",    "sentences",
                                        "partial", "choices",  "letters",  "last-word",
                                        "aliases", "sums",     "truthful", "text"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const skv_eval_format *format = skv_eval_format_find(names[i]);
        if (!format) fail_msg("%s: no format", names[i]);
        json_t *record = json_object();
        for (size_t f = 0; f < SKV_EVAL_FIELDS_MAX && format->fields[f]; f++) {
            assert_int_equal(json_object_set_new(record, format->fields[f], json_null()), 0);
        }
        assert_ptr_equal(skv_eval_format_of(record), format);
        json_decref(record);
    }
    json_t *none = json_object();
    assert_null(skv_eval_format_of(none));
    json_decref(none);
}

/* ---- batches ---- */

enum { N_EXAMPLES = 9, N_REQUESTS = 3 };

static skv_engine *open_pruning(const char *path, size_t kv_tokens, skv_pruning pruning)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = 256;
    options.kv_tokens = kv_tokens;
    options.step_tokens = 40;
    options.pruning = pruning;
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

static skv_engine *open_engine(const char *path, size_t kv_tokens)
{
    return open_pruning(path, kv_tokens, (skv_pruning){.kind = SKV_PRUNE_NONE});
}

static void add_request(skv_eval_example *e, size_t n, size_t n_context, int seed, size_t max_new)
{
    skv_eval_request *q = skv_eval_request_new(e, NULL);
    assert_non_null(q);
    for (size_t i = 0; i < n; i++) {
        /* The first 40 tokens are those of all examples, 30 more those of the example. */
        const size_t s = i < 40 ? 1 : i < 70 ? e->index + 2 : (size_t)seed;
        assert_int_equal(skv_ids_push(&q->ids, (int32_t)((i * 37 + s * 11) % 97), NULL), SKV_OK);
    }
    q->n_context = n_context;
    q->max_new = max_new;
}

static void fill_examples(skv_eval_example *examples)
{
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        skv_eval_example_init(&examples[i], i);
        const size_t n_requests = i % 4 == 3 ? 1 : N_REQUESTS;
        for (size_t j = 0; j < n_requests; j++) {
            /* Some share 70 tokens, some 40, some none that is worth it; one is a generation. */
            const size_t n_context = i % 4 == 0 ? 74 + j : i % 4 == 1 ? 45 : i % 4 == 2 ? 1 : 60;
            const size_t n = n_context + 3 + 5 * j;
            add_request(&examples[i], n, n_context, (int)(10 * i + j), i % 4 == 3 ? 6 : 0);
        }
    }
}

static void check_likelihood(skv_engine *engine, const skv_eval_request *q)
{
    double logprobs[256], sum = 0;
    int32_t argmax[256];
    bool greedy = true;
    assert_int_equal(skv_score(engine, q->ids.data, q->ids.n, logprobs, argmax, NULL), SKV_OK);
    for (size_t t = q->n_context; t < q->ids.n; t++) {
        sum += logprobs[t];
        greedy = greedy && argmax[t - 1] == q->ids.data[t];
    }
    is_near(q->logprob, sum, 1e-4);
    assert_int_equal(q->greedy, greedy);
}

typedef struct collected {
    int32_t ids[16];
    size_t n;
} collected;

static bool collect(void *user, int32_t id)
{
    collected *c = user;
    c->ids[c->n++] = id;
    return true;
}

static void check_generation(skv_engine *engine, const skv_eval_request *q)
{
    collected c = {.n = 0};
    const skv_sampling greedy = skv_sampling_default();
    skv_generation how = {.max_tokens = q->max_new, .on_token = collect, .user = &c};
    skv_sampler *sampler = NULL;
    skv_sequence *sequence = NULL;
    assert_int_equal(skv_sampler_create(&greedy, skv_engine_vocab(engine), &sampler, NULL), SKV_OK);
    assert_int_equal(skv_sequence_create(engine, 0, &sequence, NULL), SKV_OK);
    how.sampler = sampler;
    assert_int_equal(skv_generate(engine, sequence, q->ids.data, q->ids.n, &how, NULL), SKV_OK);
    assert_int_equal(q->answer.n, c.n);
    assert_memory_equal(q->answer.data, c.ids, c.n * sizeof c.ids[0]);
    skv_sequence_free(sequence);
    skv_sampler_free(sampler);
}

static void check_batches(const char *path, size_t kv_tokens)
{
    skv_engine *engine = open_engine(path, kv_tokens);
    skv_eval_example examples[N_EXAMPLES], *batch[N_EXAMPLES];
    skv_eval_runner runner;
    skv_engine_stats before, after;
    fill_examples(examples);
    for (size_t i = 0; i < N_EXAMPLES; i++) batch[i] = &examples[i];
    skv_engine_get_stats(engine, &before);
    assert_int_equal(skv_eval_runner_init(&runner, engine, NULL, NULL), SKV_OK);
    for (size_t at = 0; at < N_EXAMPLES; at += 3) { /* what is kept serves the next batch */
        skv_error err = {0};
        if (skv_eval_runner_run(&runner, batch + at, 3, &err) != SKV_OK) fail_msg("%s", err.text);
    }
    skv_eval_runner_release(&runner);
    skv_engine_get_stats(engine, &after);
    assert_int_equal(before.kv_pages_free, after.kv_pages_free);
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        for (size_t j = 0; j < examples[i].n_requests; j++) {
            const skv_eval_request *q = &examples[i].requests[j];
            if (q->max_new > 0) {
                check_generation(engine, q);
            } else {
                check_likelihood(engine, q);
            }
        }
        skv_eval_example_release(&examples[i]);
    }
    skv_engine_close(engine);
}

static void batches(void **state)
{
    (void)state;
    check_batches(PLAIN, 4096);
    check_batches(SWIFTKV, 4096);
    check_batches(SWIFTKV, 2 * 256); /* one request at a time, or two */
}

static void too_little_memory(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(PLAIN, 64);
    skv_eval_example example, *batch[] = {&example};
    skv_eval_runner runner;
    skv_error err = {0};
    skv_eval_example_init(&example, 0);
    add_request(&example, 250, 240, 1, 0);
    assert_int_equal(skv_eval_runner_init(&runner, engine, NULL, NULL), SKV_OK);
    assert_int_equal(skv_eval_runner_run(&runner, batch, 1, &err), SKV_FULL);
    skv_eval_runner_release(&runner);
    skv_eval_example_release(&example);
    skv_engine_close(engine);
}

/* Its probability is asked for, and no step reads it. */
static void a_last_id_beyond_the_vocabulary(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(PLAIN, 512);
    skv_eval_example example, *batch[] = {&example};
    skv_eval_runner runner;
    skv_error err = {0};
    skv_eval_example_init(&example, 0);
    add_request(&example, 20, 10, 1, 0);
    example.requests[0].ids.data[19] = (int32_t)skv_engine_vocab(engine);
    assert_int_equal(skv_eval_runner_init(&runner, engine, NULL, NULL), SKV_OK);
    assert_int_equal(skv_eval_runner_run(&runner, batch, 1, &err), SKV_RANGE);
    assert_non_null(strstr(err.text, "ids[19]"));
    skv_eval_runner_release(&runner);
    skv_eval_example_release(&example);
    skv_engine_close(engine);
}

/* Prompts that wait for what is wanted take no memory yet, and as much as others later. */
static void memory_of_pruned_prompts(void **state)
{
    (void)state;
    const skv_pruning pruned = {.kind = SKV_PRUNE_LAZY, .keep = 0.75, .end = 0.5};
    skv_engine *engines[] = {open_engine(PLAIN, 512), open_pruning(PLAIN, 512, pruned)};
    size_t n_blocks[2];
    for (size_t i = 0; i < 2; i++) {
        skv_eval_runner runner;
        assert_int_equal(skv_eval_runner_init(&runner, engines[i], NULL, NULL), SKV_OK);
        n_blocks[i] = skv_eval_runner_blocks(&runner);
        skv_eval_runner_release(&runner);
        skv_engine_close(engines[i]);
    }
    assert_int_equal(n_blocks[0], n_blocks[1]);
}

/* ---- agreement ---- */

static void divergence(void **state)
{
    (void)state;
    /* (1/2, 1/4, 1/4) against (1/4, 1/4, 1/2): 1/2 ln 2 - 1/4 ln 2. */
    const float p[] = {logf(2), 0, 0}, q[] = {1, 1, 1 + logf(2)};
    bool same;
    is_near(skv_metric_kl(p, q, 3, &same), 0.25 * log(2), 1e-7);
    assert_false(same);
    is_near(skv_metric_kl(p, p, 3, &same), 0, 1e-12);
    assert_true(same);
}

typedef struct rows {
    float *at; /* [n, vocab] */
    size_t vocab;
} rows;

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const rows *r = user;
    (void)i_span;
    memcpy(r->at + i_token * r->vocab, logits, r->vocab * sizeof *logits);
}

static void all_logits(skv_engine *engine, const skv_ids *ids, rows *r)
{
    skv_sequence *sequence = NULL;
    r->vocab = skv_engine_vocab(engine);
    r->at = skv_alloc(ids->n * r->vocab, sizeof *r->at);
    assert_int_equal(skv_sequence_create(engine, 0, &sequence, NULL), SKV_OK);
    const skv_span span = {sequence, ids->data, ids->n, SKV_WANT_ALL};
    assert_int_equal(skv_step(engine, &span, 1, take_row, r, NULL), SKV_OK);
    skv_sequence_free(sequence);
}

static size_t largest(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[best]) best = i;
    }
    return best;
}

/* A student and its teacher, against all logits at once and sums worked out in the plain way. */
static void agreement(void **state)
{
    (void)state;
    enum { N = 38, FROM = 5 };
    skv_engine *student = open_engine(SWIFTKV, 512);
    skv_engine_options options = skv_engine_options_default();
    options.weights = SKV_WEIGHTS_F32;
    options.context = 256;
    options.prefill = SKV_PREFILL_TEACHER;
    skv_engine *teacher = NULL;
    assert_int_equal(skv_engine_open(SWIFTKV, &options, &teacher, NULL), SKV_OK);
    skv_eval_example e;
    skv_eval_example_init(&e, 0);
    e.n_right_context = FROM;
    for (int i = 0; i < N; i++) {
        assert_int_equal(skv_ids_push(&e.right, (i * 29 + 3) % 97, NULL), SKV_OK);
    }
    assert_int_equal(skv_eval_agree(student, teacher, &e, NULL), SKV_OK);
    rows mine, theirs;
    all_logits(student, &e.right, &mine);
    all_logits(teacher, &e.right, &theirs);
    double kl = 0, same = 0;
    for (size_t t = FROM - 1; t < N - 1; t++) {
        const float *p = theirs.at + t * theirs.vocab, *q = mine.at + t * mine.vocab;
        bool same_token;
        kl += skv_metric_kl(p, q, mine.vocab, &same_token);
        same += largest(p, mine.vocab) == largest(q, mine.vocab);
    }
    is_near(e.values[SKV_METRIC_KL].sum, kl, 1e-4 * kl);
    is_near(e.values[SKV_METRIC_KL].weight, N - FROM, 0);
    is_near(e.values[SKV_METRIC_AGREEMENT].sum, same, 0);
    assert_true(kl > 1e-3);
    assert_int_equal(skv_eval_agree(student, student, &e, NULL), SKV_OK);
    is_near(e.values[SKV_METRIC_KL].sum, 0, 1e-6);
    is_near(e.values[SKV_METRIC_AGREEMENT].sum, N - FROM, 0);
    skv_free(mine.at);
    skv_free(theirs.at);
    skv_eval_example_release(&e);
    skv_engine_close(student);
    skv_engine_close(teacher);
}

/* ---- the log ---- */

static void log_comes_back(void **state)
{
    (void)state;
    char path[] = "/tmp/skv_eval_log_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    skv_eval_log log;
    skv_eval_example e;
    skv_eval_example_init(&e, 7);
    e.format = skv_eval_format_find("document");
    e.length = 512;
    e.depth = 0.25;
    e.said = skv_strndup("a \"quote\"\n", 10);
    skv_eval_set(&e, SKV_METRIC_EXACT_MATCH, 1, 1);
    skv_eval_set(&e, SKV_METRIC_KL, 0.1, 3);
    assert_int_equal(skv_eval_log_open(&log, path, false, NULL), SKV_OK);
    assert_int_equal(skv_eval_log_add(&log, 42, "lines", &e, NULL), SKV_OK);
    e.skipped = true;
    assert_int_equal(skv_eval_log_add(&log, UINT64_MAX, "lines", &e, NULL), SKV_OK);
    skv_eval_set(&e, SKV_METRIC_EXACT_MATCH, 0, 1);
    e.skipped = false;
    assert_int_equal(skv_eval_log_add(&log, 42, "lines", &e, NULL), SKV_OK); /* goes before */
    skv_eval_log_close(&log);
    const char torn[] = "{\"key\": \"00000000000000";
    assert_true(lseek(file, 0, SEEK_END) > 0);
    assert_int_equal(write(file, torn, sizeof torn - 1), sizeof torn - 1);
    assert_int_equal(skv_eval_log_open(&log, path, true, NULL), SKV_OK);
    assert_int_equal(log.n, 3);
    const skv_eval_entry *entry = skv_eval_log_find(&log, 42);
    assert_non_null(entry);
    assert_int_equal(entry->length, 512);
    is_near(entry->depth, 0.25, 0);
    is_near(entry->values[SKV_METRIC_EXACT_MATCH].sum, 0, 0);
    is_near(entry->values[SKV_METRIC_KL].sum, 0.1, 0);
    is_near(entry->values[SKV_METRIC_KL].weight, 3, 0);
    assert_true(skv_eval_log_find(&log, UINT64_MAX)->skipped);
    assert_null(skv_eval_log_find(&log, 41));
    assert_int_equal(skv_eval_log_add(&log, 43, "lines", &e, NULL), SKV_OK);
    skv_eval_log_close(&log);
    assert_int_equal(skv_eval_log_open(&log, path, true, NULL), SKV_OK); /* every line is whole */
    assert_int_equal(log.n, 4);
    skv_eval_log_close(&log);
    skv_eval_example_release(&e);
    (void)close(file);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimates),
        cmocka_unit_test(reports),
        cmocka_unit_test(answers),
        cmocka_unit_test(records),
        cmocka_unit_test(formats),
        cmocka_unit_test(batches),
        cmocka_unit_test(divergence),
        cmocka_unit_test(too_little_memory),
        cmocka_unit_test(a_last_id_beyond_the_vocabulary),
        cmocka_unit_test(memory_of_pruned_prompts),
        cmocka_unit_test(agreement),
        cmocka_unit_test(log_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
