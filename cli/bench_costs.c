/*
 * bench --costs: measures the duration of a server's steps, for the simulator (tools/simulate.py).
 * The steps have prompt rows without answers, or rows of answers, each after almost no context and
 * after a long one.
 */
#include <stdlib.h>

#include "bench.h"
#include "common/json_out.h"
#include "report.h"

enum {
    ROWS_MAX = 512,   /* of a step */
    ANSWERS_MAX = 64, /* sequences that answer together */
    BEGINNING = 16,   /* tokens of a sequence that has nearly no context */
    FAR_ANSWERS = 4,  /* sequences that answer after the context, */
    SIZES_MAX = 16,
    REPEATS = 5
};

/* Milliseconds of steps by their number of rows. */
typedef struct curve {
    size_t n, rows[SIZES_MAX];
    double ms[SIZES_MAX];
} curve;

typedef struct costs {
    bench_variant *variant;
    size_t context;
    int32_t *ids; /* [context + BENCH_COSTS_CHUNK], owned */
    curve prompt, answer;
    double prompt_context_us, answer_context_us; /* of a row, for 1,000 rows that it reads */
    cli_progress progress;
    uint64_t n_done, n_all; /* tokens that are read, in warm-up and repeats too */
} costs;

/* ---- steps ---- */

static void ignore(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)user;
    (void)i_span;
    (void)i_token;
    (void)logits;
}

static void tell(costs *c, size_t n_tokens)
{
    c->n_done += n_tokens;
    cli_progress_share(&c->progress,
                       c->n_done < c->n_all ? (double)c->n_done / (double)c->n_all : 1);
}

/* n sequences with `length` tokens each; on failure none. */
static skv_status make_sequences(costs *c, size_t n, size_t length, skv_sequence **out,
                                 skv_error *err)
{
    skv_engine *engine = c->variant->model.engine;
    skv_status status = SKV_OK;
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        status = skv_sequence_create(engine, 0, &out[i], err);
        for (size_t done = 0, m; done < length && status == SKV_OK; done += m) {
            m = length - done < c->variant->limits.step_tokens ? length - done
                                                               : c->variant->limits.step_tokens;
            const skv_span span = {out[i], c->ids + done, m, SKV_WANT_NONE};
            status = skv_step(engine, &span, 1, ignore, NULL, err);
            tell(c, m);
        }
    }
    return status;
}

static void free_sequences(skv_sequence **all, size_t n)
{
    for (size_t i = 0; i < n; i++) skv_sequence_free(all[i]);
}

/* The median milliseconds of a step of n spans of m tokens, which are taken back every time. */
static skv_status time_step(costs *c, skv_sequence **all, size_t n, size_t m, skv_want want,
                            double *ms, skv_error *err)
{
    skv_span spans[ANSWERS_MAX];
    double times[REPEATS];
    skv_status status = SKV_OK;
    const size_t before = skv_sequence_length(all[0]);
    for (size_t i = 0; i < n; i++) spans[i] = (skv_span){all[i], c->ids, m, want};
    for (size_t r = 0; r <= REPEATS && status == SKV_OK; r++) { /* the first warms up */
        const uint64_t start = skv_now_ns();
        status = skv_step(c->variant->model.engine, spans, n, ignore, NULL, err);
        tell(c, n * m);
        if (r > 0) times[r - 1] = (double)(skv_now_ns() - start) * 1e-6;
        for (size_t i = 0; i < n; i++) (void)skv_sequence_truncate(all[i], before);
    }
    if (status == SKV_OK) *ms = bench_median(times, REPEATS);
    return status;
}

/* ---- the measurements ---- */

static skv_status measure_answers(costs *c, skv_error *err)
{
    skv_sequence *all[ANSWERS_MAX] = {0};
    skv_status status = make_sequences(c, ANSWERS_MAX, BEGINNING, all, err);
    for (size_t n = 1; n <= ANSWERS_MAX && status == SKV_OK; n *= 2, c->answer.n++) {
        c->answer.rows[c->answer.n] = n;
        status = time_step(c, all, n, 1, SKV_WANT_LAST, &c->answer.ms[c->answer.n], err);
    }
    free_sequences(all, ANSWERS_MAX);
    return status;
}

static skv_status measure_prompts(costs *c, skv_error *err)
{
    const skv_engine_stats *limits = &c->variant->limits;
    size_t most = limits->step_tokens < ROWS_MAX ? limits->step_tokens : ROWS_MAX;
    if (most > limits->context - BEGINNING) most = limits->context - BEGINNING;
    skv_sequence *one = NULL;
    skv_status status = make_sequences(c, 1, BEGINNING, &one, err);
    for (size_t n = 1; status == SKV_OK; n = 2 * n < most ? 2 * n : most, c->prompt.n++) {
        c->prompt.rows[c->prompt.n] = n;
        status = time_step(c, &one, 1, n, SKV_WANT_NONE, &c->prompt.ms[c->prompt.n], err);
        if (n == most) {
            c->prompt.n++;
            break;
        }
    }
    skv_sequence_free(one);
    return status;
}

/* Measures the same steps after the context: the additional time is attention's. */
static skv_status measure_context(costs *c, skv_error *err)
{
    skv_sequence *far[FAR_ANSWERS] = {0}, *near[FAR_ANSWERS] = {0};
    double answer[2], prompt[2];
    const double rows = (double)(c->context - BEGINNING) * 1e-3;
    skv_status status = make_sequences(c, FAR_ANSWERS, c->context, far, err);
    if (status == SKV_OK) status = make_sequences(c, FAR_ANSWERS, BEGINNING, near, err);
    for (size_t i = 0; i < 2 && status == SKV_OK; i++) {
        skv_sequence **all = i == 0 ? near : far;
        status = time_step(c, all, FAR_ANSWERS, 1, SKV_WANT_LAST, &answer[i], err);
        if (status == SKV_OK)
            status = time_step(c, all, 1, BENCH_COSTS_CHUNK, SKV_WANT_NONE, &prompt[i], err);
    }
    if (status == SKV_OK) {
        c->answer_context_us = (answer[1] - answer[0]) * 1e3 / (FAR_ANSWERS * rows);
        c->prompt_context_us = (prompt[1] - prompt[0]) * 1e3 / (BENCH_COSTS_CHUNK * rows);
    }
    free_sequences(far, FAR_ANSWERS);
    free_sequences(near, FAR_ANSWERS);
    return status;
}

/* ---- printing ---- */

static void put_curve(skv_json_out *json, const char *key, const curve *of)
{
    skv_json_out_put_open(json, key, '[');
    for (size_t i = 0; i < of->n; i++) {
        skv_json_out_open(json, '[');
        skv_json_out_integer(json, (int64_t)of->rows[i]);
        skv_json_out_number(json, of->ms[i]);
        skv_json_out_close(json, ']');
    }
    skv_json_out_close(json, ']');
}

static double not_negative(double x)
{
    return x > 0 ? x : 0;
}

static void print_costs(const costs *c)
{
    skv_json_out json = {.stream = stdout};
    const bench_variant *v = c->variant;
    skv_json_out_open(&json, '{');
    skv_json_out_put_text(&json, "model", v->name[0] ? v->name : v->path);
    skv_json_out_put_integer(&json, "threads", v->limits.threads);
    skv_json_out_put_text(&json, "cpu", v->limits.cpu);
    skv_json_out_put_text(&json, "weights", skv_weights_name(v->limits.weights));
    skv_json_out_put_integer(&json, "step_tokens", v->limits.step_tokens);
    skv_json_out_put_integer(&json, "context", v->limits.context);
    skv_json_out_put_integer(&json, "weight_bytes", v->limits.weight_bytes);
    skv_json_out_put_integer(&json, "kv_bytes_per_token",
                             skv_model_kv_bytes_per_token(&v->model.info, v->limits.kv));
    skv_json_out_put_number(&json, "prompt_context_us", not_negative(c->prompt_context_us));
    skv_json_out_put_number(&json, "answer_context_us", not_negative(c->answer_context_us));
    put_curve(&json, "prompt_ms", &c->prompt);
    put_curve(&json, "answer_ms", &c->answer);
    skv_json_out_close(&json, '}');
    putchar('\n');
}

size_t bench_costs_tokens(size_t context)
{
    return (ANSWERS_MAX + FAR_ANSWERS) * (BEGINNING + BENCH_COSTS_CHUNK) +
           FAR_ANSWERS * (context + BENCH_COSTS_CHUNK) + ROWS_MAX + BEGINNING;
}

size_t bench_costs_sequences(void)
{
    return ANSWERS_MAX + 2 * FAR_ANSWERS + 1;
}

/* Steps of 1, 2, 4 ... answers, then of as many prompt rows, then after the context. */
static uint64_t count_tokens(size_t context)
{
    const uint64_t repeats = REPEATS + 1;
    return ANSWERS_MAX * BEGINNING + 2 * ANSWERS_MAX * repeats + 2 * ROWS_MAX * repeats +
           FAR_ANSWERS * (context + BEGINNING) + 2 * (FAR_ANSWERS + BENCH_COSTS_CHUNK) * repeats;
}

int bench_costs(bench_variant *variant, size_t context)
{
    costs c = {.variant = variant, .context = context, .n_all = count_tokens(context)};
    skv_error err = {0};
    const size_t vocab = skv_engine_vocab(variant->model.engine), n = context + ROWS_MAX;
    c.ids = cli_alloc(n, sizeof *c.ids);
    for (size_t i = 0; i < n; i++) c.ids[i] = (int32_t)((i * 7919 + 13) % vocab);
    cli_progress_begin(&c.progress, "measuring steps");
    skv_status status = measure_answers(&c, &err);
    if (status == SKV_OK) status = measure_prompts(&c, &err);
    if (status == SKV_OK) status = measure_context(&c, &err);
    cli_progress_end(&c.progress);
    free(c.ids);
    if (status == SKV_OK) print_costs(&c);
    return cli_check(status, &err);
}
