/* The parts of the load generator that need no network: statistics against numpy, traces, arrivals,
 * prompts, event streams in pieces of every size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load_requests.h"
#include "stream_answer.h"

/* ---- statistics ---- */

static double field(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fmax(1, fabs(want))) {
        fail_msg("%.17g, expected %.17g", got, want);
    }
}

static void test_statistics(void **state)
{
    (void)state;
    json_t *cases = json_load_file(SKV_TEST_DATA "/load/stats.json", 0, NULL);
    assert_true(json_array_size(cases) > 5);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *values = json_object_get(one, "values");
        load_samples samples = {0};
        load_summary got;
        for (size_t j = 0; j < json_array_size(values); j++) {
            assert_true(load_samples_add(&samples, json_number_value(json_array_get(values, j))));
        }
        load_samples_summary(&samples, &got);
        assert_int_equal(got.n, json_array_size(values));
        assert_near(got.mean, field(one, "mean"));
        assert_near(got.std, field(one, "std"));
        assert_near(got.median, field(one, "median"));
        assert_near(got.p90, field(one, "p90"));
        assert_near(got.p99, field(one, "p99"));
        load_samples_release(&samples);
    }
    json_decref(cases);
}

static void test_no_samples(void **state)
{
    (void)state;
    load_samples samples = {0};
    load_summary got;
    load_samples_summary(&samples, &got);
    assert_int_equal(got.n, 0);
    assert_true(got.mean == 0 && got.p99 == 0);
    load_samples_release(&samples);
}

/* Beyond the limit a sample is kept: percentiles of evenly spread values stay near. */
static void test_samples_are_bounded(void **state)
{
    (void)state;
    load_samples samples = {0};
    load_summary got;
    const size_t n = SAMPLES_MAX + SAMPLES_MAX / 2;
    for (size_t i = 0; i < n; i++) {
        assert_true(load_samples_add(&samples, (double)i / (double)(n - 1)));
    }
    load_samples_summary(&samples, &got);
    assert_int_equal(samples.room, SAMPLES_MAX);
    assert_int_equal(got.n, n);
    assert_near(got.mean, 0.5);
    assert_near(got.std, sqrt(1.0 / 12 * (double)(n + 1) / (double)(n - 1)));
    assert_true(fabs(got.median - 0.5) < 0.002 && fabs(got.p99 - 0.99) < 0.002);
    load_samples_release(&samples);
}

/* ---- traces ---- */

static void write_file(char *path, const char *text)
{
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static bool read_text(const char *text, size_t most, load_trace *trace, char *error)
{
    char path[] = "/tmp/skv-trace-XXXXXX";
    write_file(path, text);
    const bool ok = load_trace_read(path, most, trace, error);
    unlink(path);
    return ok;
}

static void test_azure(void **state)
{
    (void)state;
    load_trace t;
    char error[LOAD_ERROR_MAX] = "";
    assert_true(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                          "2024-02-28 23:59:59.5000000,374,44\r\n"
                          "2024-02-29 00:00:00.7500000,4,0\r\n"
                          "2024-03-01 00:00:00.0000000,12,9\r\n",
                          SIZE_MAX, &t, error));
    assert_int_equal(t.n, 3);
    assert_int_equal(t.rows[0].n_prompt, 374);
    assert_int_equal(t.rows[0].n_output, 44);
    assert_int_equal(t.rows[1].n_output, 1);
    assert_near(t.rows[1].at_s, 1.25);
    assert_near(t.rows[2].at_s, 86400.5);
    load_trace_release(&t);
}

static void test_mooncake(void **state)
{
    (void)state;
    load_trace t;
    char error[LOAD_ERROR_MAX] = "";
    const char *text =
        "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 7]}\n"
        "{\"timestamp\": 4000, \"input_length\": 20, \"output_length\": 6, \"hash_ids\": [0]}\n";
    assert_true(read_text(text, SIZE_MAX, &t, error));
    assert_int_equal(t.n, 2);
    assert_near(t.rows[1].at_s, 3);
    assert_int_equal(t.rows[0].n_blocks, 2);
    assert_int_equal(t.blocks[t.rows[0].first_block + 1], 7);
    assert_int_equal(t.blocks[t.rows[1].first_block], 0);
    load_trace_release(&t);
    assert_true(read_text(text, 1, &t, error));
    assert_int_equal(t.n, 1);
    load_trace_release(&t);
}

static void test_bad_traces(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "2024-02-28 23:59:59.5,374\n",
        "yesterday,374,44\n",
        "2024-02-28 23:59:59.5,-1,44\n",
        "2024-02-28 23:59:59.5,1e300,44\n",
        "2024-02-28 23:59:59.5,nan,44\n",
        "2024-02-28 23:59:59,1,4\n2024-02-28 23:59:58,1,4\n",
        "{\"timestamp\": 0}\n",
        "{\"timestamp\": 0, \"input_length\": 6, \"output_length\": 5, \"hash_ids\": [\"a\"]}\n",
        "{\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        load_trace t;
        char error[LOAD_ERROR_MAX] = "";
        assert_false(read_text(bad[i], SIZE_MAX, &t, error));
        assert_non_null(strstr(error, "line "));
    }
    load_trace t;
    char error[LOAD_ERROR_MAX] = "";
    assert_false(load_trace_read("/nowhere/trace", SIZE_MAX, &t, error));
    assert_non_null(strstr(error, "/nowhere/trace"));
}

static void test_real_traces(void **state)
{
    (void)state;
    load_trace t;
    char error[LOAD_ERROR_MAX] = "";
    if (access(SKV_TEST_ASSETS "/traces", R_OK) != 0) {
        print_message("[  SKIPPED ] no traces in %s\n", SKV_TEST_ASSETS);
        skip();
    }
    assert_true(load_trace_read(
        SKV_TEST_ASSETS "/traces/azure-2023/AzureLLMInferenceTrace_conv.csv", SIZE_MAX, &t, error));
    assert_int_equal(t.n, 19366);
    assert_true(fabs(t.rows[1].at_s - 4.314579) < 1e-6); /* a double of seconds since 1970 */
    load_trace_release(&t);
    assert_true(load_trace_read(SKV_TEST_ASSETS "/traces/mooncake/conversation_trace.jsonl",
                                SIZE_MAX, &t, error));
    assert_int_equal(t.n, 12031);
    assert_int_equal(t.rows[0].n_blocks, 14);
    load_trace_release(&t);
}

/* ---- arrivals ---- */

static const size_t LENGTHS[] = {10, 30};

static load_options timed(load_arrivals arrivals, double rate, size_t n)
{
    load_options o = load_options_default();
    o.arrivals = arrivals;
    o.rate = rate;
    o.n_requests = n;
    o.prompt_lengths = LENGTHS;
    o.n_prompt_lengths = 2;
    return o;
}

static void test_arrivals(void **state)
{
    (void)state;
    enum { N = 20000 };
    const load_options o = timed(LOAD_POISSON, 50, N);
    arrival_clock clock = arrival_clock_begin(&o);
    load_arrival a;
    double last = 0, sum = 0, squares = 0;
    size_t n = 0, n_short = 0;
    while (arrival_clock_next(&clock, &a)) {
        const double gap = a.at_s - last;
        assert_true(gap >= 0 && a.index == n);
        sum += gap;
        squares += gap * gap;
        n_short += a.n_prompt == 10;
        last = a.at_s;
        n++;
    }
    /* Gaps of a Poisson process: mean and deviation are both one over the rate. */
    const double mean = sum / N, deviation = sqrt(squares / N - mean * mean);
    assert_int_equal(n, N);
    assert_true(fabs(mean * 50 - 1) < 5 / sqrt(N));
    assert_true(fabs(deviation * 50 - 1) < 10 / sqrt(N));
    assert_true(fabs((double)n_short / N - 0.5) < 3 / sqrt(N));
}

static void test_fixed_rate_and_duration(void **state)
{
    (void)state;
    load_options o = timed(LOAD_FIXED, 4, 100);
    o.seconds = 2;
    arrival_clock clock = arrival_clock_begin(&o);
    load_arrival a;
    size_t n = 0;
    while (arrival_clock_next(&clock, &a)) assert_near(a.at_s, 0.25 * (double)n++);
    assert_int_equal(n, 9);
}

static void test_trace_times(void **state)
{
    (void)state;
    uint64_t blocks[] = {3, 4};
    load_trace_row rows[] = {{0, 1024, 100, 2, 0}, {2, 3, 1, 0, 2}, {10, 700, 50, 0, 2}};
    const load_trace trace = {.rows = rows, .n = 3, .blocks = blocks, .n_blocks = 2};
    load_options o = timed(LOAD_TRACE, 0, SIZE_MAX);
    load_arrival a;
    o.trace = &trace;
    o.time_scale = 0.5;
    o.length_scale = 0.1;
    arrival_clock clock = arrival_clock_begin(&o);
    assert_true(arrival_clock_next(&clock, &a));
    assert_int_equal(a.n_prompt, 102);
    assert_int_equal(a.n_output, 10);
    assert_int_equal(a.block_tokens, 51);
    assert_int_equal(a.n_blocks, 2);
    assert_true(arrival_clock_next(&clock, &a));
    assert_int_equal(a.n_prompt, 1);
    assert_near(a.at_s, 1);
    o.rate = 4; /* three requests, two gaps, half a second in all */
    clock = arrival_clock_begin(&o);
    while (arrival_clock_next(&clock, &a)) continue;
    assert_near(a.at_s, 0.5);
}

/* ---- prompts ---- */

static json_t *body_of(const load_options *o, const load_arrival *a)
{
    skv_buf body;
    skv_buf_init(&body, LOAD_BODY_MAX);
    assert_true(load_request_body(o, a, &body));
    json_error_t error;
    json_t *object = json_loadb(body.data, body.size, JSON_REJECT_DUPLICATES, &error);
    if (!object) fail_msg("%s", error.text);
    skv_buf_release(&body);
    return object;
}

static void test_prompts_of_ids(void **state)
{
    (void)state;
    const uint64_t blocks[] = {9, 11}, others[] = {9, 12};
    load_options o = timed(LOAD_AT_ONCE, 0, 1);
    o.model = "a \"model\"";
    o.vocab = 90;
    o.ignore_eos = true;
    o.method = "teacher";
    const load_arrival a = {
        .n_prompt = 25, .n_output = 7, .blocks = blocks, .n_blocks = 2, .block_tokens = 10};
    load_arrival b = a;
    b.index = 1;
    b.blocks = others;
    json_t *x = body_of(&o, &a), *again = body_of(&o, &a), *y = body_of(&o, &b);
    const json_t *ids = json_object_get(x, "prompt"), *ids_y = json_object_get(y, "prompt");
    assert_true(json_equal(x, again));
    assert_int_equal(json_array_size(ids), 25);
    for (size_t i = 0; i < 25; i++) {
        const json_t *id = json_array_get(ids, i);
        assert_in_range(json_integer_value(id), 0, 89);
        if (i < 10) assert_true(json_equal(id, json_array_get(ids_y, i)));
    }
    assert_false(json_equal(ids, ids_y));
    assert_string_equal(json_string_value(json_object_get(x, "model")), o.model);
    assert_string_equal(json_string_value(json_object_get(x, "swiftkv")), "teacher");
    assert_int_equal(json_integer_value(json_object_get(x, "max_tokens")), 7);
    assert_true(json_is_true(json_object_get(x, "ignore_eos")));
    json_decref(x);
    json_decref(again);
    json_decref(y);
}

static void test_prompts_of_text(void **state)
{
    (void)state;
    load_options o = timed(LOAD_AT_ONCE, 0, 1);
    json_t *extra = json_pack("{s:f, s:{s:s}}", "temperature", 0.5, "a", "b", "c");
    o.model = "m";
    o.chat = true;
    o.text = "\xc3\xa4\xc3\xb6\xc3\xbc \"quoted\" \n line";
    o.n_text = strlen(o.text);
    o.bytes_per_token = 4;
    o.extra = extra;
    for (size_t n = 1; n < 40; n++) {
        const load_arrival a = {.index = n, .n_prompt = n, .n_output = 7};
        json_t *x = body_of(&o, &a);
        const json_t *message = json_array_get(json_object_get(x, "messages"), 0);
        const char *text = json_string_value(json_object_get(message, "content"));
        assert_non_null(text);
        assert_null(strstr(text, "\xef\xbf\xbd")); /* no character is cut */
        assert_true(strlen(text) >= 4 * n && strlen(text) <= 4 * n + 1);
        assert_near(json_number_value(json_object_get(x, "temperature")), 0.5);
        assert_non_null(json_object_get(x, "a"));
        json_decref(x);
    }
    json_decref(extra);
}

/* ---- streams ---- */

static const char STREAM[] =
    ": waiting\n\n"
    "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"text\":\"b\",\"finish_reason\":null}]}\r\n\r\n"
    "event: "
    "x\ndata:{\"choices\":[{\"delta\":{\"content\":\"c\"},\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,"
    "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n"
    "data: [DONE]\n\n";

static void test_stream_in_pieces(void **state)
{
    (void)state;
    const size_t n = sizeof STREAM - 1;
    stream_answer a = {0};
    for (size_t piece = 1; piece <= n; piece++) {
        stream_answer_begin(&a, 10);
        for (size_t at = 0; at < n; at += piece) {
            const size_t length = at + piece < n ? piece : n - at;
            assert_true(stream_answer_feed(&a, STREAM + at, length, 10 + (double)at / 100));
        }
        assert_int_equal(stream_answer_finish(&a), LOAD_DONE);
        assert_int_equal(a.n_tokens, 3);
        assert_int_equal(a.n_gaps, 2); /* the event with the end alone is no token */
        assert_int_equal(a.input_tokens, 12);
        assert_int_equal(a.output_tokens, 5);
        assert_int_equal(a.cached_tokens, 8);
        assert_near(stream_answer_tpot_ms(&a), (a.last_s - a.first_s) * 1e3 / 4);
        assert_near(stream_answer_e2el_ms(&a), (a.last_s - 10) * 1e3);
    }
    stream_answer_release(&a);
}

static load_outcome outcome_of(const char *text)
{
    stream_answer a = {0};
    stream_answer_begin(&a, 0);
    (void)stream_answer_feed(&a, text, strlen(text), 1);
    const load_outcome outcome = stream_answer_finish(&a);
    stream_answer_release(&a);
    return outcome;
}

static void test_bad_streams(void **state)
{
    (void)state;
    assert_int_equal(outcome_of("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"), LOAD_CUT);
    assert_int_equal(outcome_of("data: [DONE]\n\n"), LOAD_EMPTY);
    assert_int_equal(outcome_of("data: {\"choices\n\n"), LOAD_MALFORMED);
    assert_int_equal(outcome_of("data: 7\n\n"), LOAD_MALFORMED);
    assert_int_equal(outcome_of("data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n"),
                     LOAD_REFUSED);
    assert_int_equal(outcome_of(""), LOAD_CUT);
    char *endless = malloc((2 << 20) + 1);
    assert_non_null(endless);
    memset(endless, 'a', 2 << 20);
    endless[2 << 20] = 0;
    assert_int_equal(outcome_of(endless), LOAD_MALFORMED);
    free(endless);
}

/* ---- sums ---- */

static void test_tally(void **state)
{
    (void)state;
    const load_goals goals = {.ttft_ms = 150, .tpot_ms = 60, .e2el_ms = -1};
    load_tally tally = {0};
    load_result r = {0};
    float gaps[] = {50, 50};
    const stream_answer good = {.first_s = 0.1,
                                .last_s = 0.2,
                                .gaps_ms = gaps,
                                .n_gaps = 2,
                                .input_tokens = 10,
                                .output_tokens = 3};
    stream_answer late = good;
    late.first_s = 0.16;
    late.last_s = 0.26;
    tally_add(&tally, &goals, &good, LOAD_DONE, 200, &r);
    tally_add(&tally, &goals, &late, LOAD_DONE, 200, &r);
    tally_add(&tally, &goals, &late, LOAD_HTTP, 429, &r);
    tally_add(&tally, &goals, &late, LOAD_CANCELLED, 200, &r);
    tally_add(&tally, &goals, &late, LOAD_TIMEOUT, 0, &r);
    tally_finish(&tally, &r);
    assert_int_equal(r.n_completed, 2);
    assert_int_equal(r.n_good, 1);
    assert_int_equal(r.n_failed, 2);
    assert_int_equal(r.statuses[429 - LOAD_STATUS_FIRST], 1);
    assert_int_equal(r.output_tokens, 6);
    assert_int_equal(r.itl.n, 4);
    assert_near(r.ttft.mean, 130);
    assert_near(r.tpot.mean, 50);
    tally_release(&tally);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_no_samples),
        cmocka_unit_test(test_samples_are_bounded),
        cmocka_unit_test(test_azure),
        cmocka_unit_test(test_mooncake),
        cmocka_unit_test(test_bad_traces),
        cmocka_unit_test(test_real_traces),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_fixed_rate_and_duration),
        cmocka_unit_test(test_trace_times),
        cmocka_unit_test(test_prompts_of_ids),
        cmocka_unit_test(test_prompts_of_text),
        cmocka_unit_test(test_stream_in_pieces),
        cmocka_unit_test(test_bad_streams),
        cmocka_unit_test(test_tally),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
