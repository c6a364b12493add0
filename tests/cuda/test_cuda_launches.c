/*
 * What a step asks of the emulated GPU, and in which order: operations on rows that join the norm
 * behind them have the same bits as apart, and are so many launches; a server tells the tokens of a
 * step while the device computes the next one, and its answers are the same as without that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_image.h"
#include "device_driver.h"
#include "engine/engine.h"
#include "open_engine.h"
#include "skv/serve.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { CONTEXT = 160, PROMPT = 60, TOKENS = 3, VOCAB_MAX = 512, EVENTS = 1024 };

static void *image;

/* The fake driver has the kernels itself: any image will do. */
const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return image;
}

static skv_cuda_device *device_of(const skv_engine *engine)
{
    return &skv_cuda_of(engine->be)->device;
}

static skv_engine *open_engine(const char *model, skv_weights weights)
{
    skv_engine_options options = skv_engine_options_default();
    options.device = "cuda";
    options.threads = 1;
    options.weights = weights;
    options.kv = SKV_KV_BF16;
    options.context = CONTEXT;
    options.kv_tokens = (size_t)8 * CONTEXT;
    skv_engine *engine = open_or_fail(model, &options);
    device_of(engine)->graphs->off = true; /* launches are counted one by one */
    return engine;
}

/* ---- what happens, in order ---- */

enum { LAUNCH = 'l', PICK = 'p', WAIT = 'w', TOLD = 't' };

static struct {
    skv_cuda_api api;
    skv_cu_function pick;
    size_t n_launches, n;
    char events[EVENTS]; /* [n]: PICK, WAIT and TOLD */
} seen;

static void note(char event)
{
    if (seen.n < EVENTS) seen.events[seen.n++] = event;
}

static skv_cu_result see_launch(const skv_cu_launch *how, skv_cu_function f, void **args,
                                void **extra)
{
    seen.n_launches++;
    if (f == seen.pick) note(PICK);
    return seen.api.launch(how, f, args, extra);
}

static skv_cu_result see_wait(skv_cu_stream stream)
{
    note(WAIT);
    return seen.api.stream_wait(stream);
}

static void see_told(void *user)
{
    (void)user;
    note(TOLD);
}

static void watch(skv_cuda_device *device)
{
    seen.api = device->api;
    seen.pick = device->functions[SKV_CUDA_skv_pick_rows];
    device->api.launch = see_launch;
    device->api.stream_wait = see_wait;
}

/* ---- launches that join ---- */

typedef struct join_case {
    const char *model;
    skv_weights weights;
    /* Launches of a prompt of PROMPT tokens, and of one more token; with each operation apart. */
    size_t prompt, token, prompt_apart, token_apart;
} join_case;

static const join_case cases[] = {
    {"llama3-v4", SKV_WEIGHTS_BF16, 26, 25, 26, 25},
    {"qwen3-v4", SKV_WEIGHTS_BF16, 21, 20, 21, 20},
    {"glm4", SKV_WEIGHTS_BF16, 31, 30, 39, 38},
    {"gpt-oss", SKV_WEIGHTS_BF16, 51, 50, 59, 58},
    {"qwen3-5-moe", SKV_WEIGHTS_BF16, 86, 79, 91, 84},
    {"llama3-v4", SKV_WEIGHTS_FP8, 33, 42, 37, 46},
    {"glm4", SKV_WEIGHTS_FP8, 37, 42, 49, 54},
};

typedef struct rows {
    float logits[1 + TOKENS][VOCAB_MAX];
    size_t n, vocab;
    size_t n_launches[1 + TOKENS];
} rows;

static void add_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    rows *r = user;
    (void)i_span, (void)i_token;
    memcpy(r->logits[r->n++], logits, r->vocab * sizeof *logits);
}

static void run_steps(skv_engine *engine, rows *out)
{
    int32_t ids[PROMPT + TOKENS];
    skv_error err;
    skv_sequence *s = new_sequence(engine);
    memset(out, 0, sizeof *out);
    out->vocab = skv_engine_vocab(engine);
    assert_true(out->vocab <= VOCAB_MAX);
    make_repeating_ids(ids, PROMPT + TOKENS, out->vocab);
    for (size_t i = 0; i <= TOKENS; i++) {
        const skv_span span = {s, i == 0 ? ids : &ids[PROMPT + i - 1], i == 0 ? PROMPT : 1,
                               SKV_WANT_LAST};
        seen.n_launches = 0;
        if (skv_step(engine, &span, 1, add_row, out, &err) != SKV_OK) fail_msg("%s", err.text);
        out->n_launches[i] = seen.n_launches;
    }
    skv_sequence_free(s);
}

static void launches_that_join_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const join_case *c = &cases[i];
        static rows joined, apart;
        char path[256];
        (void)snprintf(path, sizeof path, MODELS "%s", c->model);
        skv_engine *engine = open_engine(path, c->weights);
        skv_cuda_device *device = device_of(engine);
        watch(device);
        run_steps(engine, &joined);
        device->apart = true;
        run_steps(engine, &apart);
        print_message("%-14s %s: launches of a prompt %zu (apart %zu), of a token %zu (%zu)\n",
                      c->model, c->weights == SKV_WEIGHTS_FP8 ? "fp8 " : "bf16",
                      joined.n_launches[0], apart.n_launches[0], joined.n_launches[TOKENS],
                      apart.n_launches[TOKENS]);
        assert_memory_equal(joined.logits, apart.logits, sizeof joined.logits);
        assert_int_equal(joined.n_launches[0], c->prompt);
        assert_int_equal(apart.n_launches[0], c->prompt_apart);
        assert_int_equal(joined.n_launches[TOKENS], c->token);
        assert_int_equal(apart.n_launches[TOKENS], c->token_apart);
        skv_engine_close(engine);
    }
}

/* ---- what is held ---- */

enum { N = 8, SIZE = 6 * N }; /* rows of N: 0 to 3 are added to, 4 and 5 are copies */

/* Rows [0, 3) become 6, when it comes; the others are 1. */
static void hold_sum(skv_cuda_device *device, float *room, const float *fives)
{
    float x[SIZE];
    skv_cuda_first_args args = {.move = {.y = skv_cuda_scratch(room, SKV_CUDA_F32, N),
                                         .x = skv_cuda_scratch(room, SKV_CUDA_F32, N),
                                         .bias = fives,
                                         .n = N,
                                         .op = SKV_CUDA_ADD}};
    for (size_t i = 0; i < SIZE; i++) x[i] = 1;
    skv_cuda_put(device, room, x, sizeof x);
    skv_cuda_hold(device, SKV_CUDA_skv_move_rows, (skv_cuda_grid){.x = 3}, &args);
}

static skv_cuda_norm_args copy_from(float *room, size_t first)
{
    return (skv_cuda_norm_args){.y = skv_cuda_scratch(room + 4 * N, SKV_CUDA_F32, N),
                                .x = skv_cuda_scratch(room + first * N, SKV_CUDA_F32, N),
                                .n = N};
}

static void what_is_held_comes_first(void **state)
{
    skv_cuda_device device;
    skv_error err;
    void *at = NULL;
    float x[SIZE], fives[N];
    (void)state;
    if (skv_cuda_device_open(&device, 0, image, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_cuda_new(&device, sizeof x + sizeof fives, &at, &err), SKV_OK);
    float *const room = at;
    for (size_t i = 0; i < N; i++) fives[i] = 5;
    skv_cuda_put(&device, room + SIZE, fives, sizeof fives);
    for (size_t i = 0; i < 4; i++) {
        const skv_cuda_grid grid = {.x = 2, .shared = SKV_CUDA_ROWS_SHARED};
        const skv_cuda_norm_args args = copy_from(room, i == 0 ? 1 : 0);
        hold_sum(&device, room, room + SIZE);
        assert_true(device.held.is_there);
        if (i < 2) skv_cuda_launch_norm(&device, 2, &args);
        if (i == 2) skv_cuda_launch(&device, SKV_CUDA_skv_norm_rows, grid, &args);
        skv_cuda_get(&device, x, room, sizeof x);
        assert_true(x[0] == 6 && x[N] == 6 && x[3 * N - 1] == 6 && x[3 * N] == 1);
        assert_true(x[4 * N] == (i < 3 ? 6 : 1) && x[6 * N - 1] == (i < 3 ? 6 : 1));
    }
    /* of as many rows that begin at another one */
    const skv_cuda_norm_args args = copy_from(room, 1);
    hold_sum(&device, room, room + SIZE);
    device.held.grid.x = 2;
    skv_cuda_launch_norm(&device, 2, &args);
    skv_cuda_get(&device, x, room, sizeof x);
    assert_true(x[N] == 6 && x[2 * N] == 1 && x[4 * N] == 6 && x[5 * N] == 1);
    assert_int_equal(skv_cuda_wait(&device, &err), SKV_OK);
    skv_cuda_delete(&device, at);
    skv_cuda_device_close(&device);
}

/* ---- a server ---- */

enum { ANSWERS = 4, LENGTH = 12, TOP = 2 };

typedef struct told {
    int32_t ids[LENGTH];
    double logprobs[LENGTH], top[LENGTH][TOP];
    size_t n;
    skv_finish finish;
} told;

static void rest(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void take(told *answer, const skv_output *o)
{
    if (o->kind == SKV_OUTPUT_END) answer->finish = o->finish;
    if (o->kind != SKV_OUTPUT_TOKEN) return;
    assert_true(answer->n < LENGTH && o->n_top == TOP);
    answer->ids[answer->n] = o->id;
    answer->logprobs[answer->n] = o->logprob;
    for (size_t t = 0; t < TOP; t++) answer->top[answer->n][t] = o->top[t].logprob;
    answer->n++;
}

/* The answers of one job, so that the same rows are in each step, however long it takes. `stop`
 * ends an answer before it; NULL: none does. The job is cancelled when answer 0 has n_most tokens.
 */
static void serve(skv_engine *engine, const int32_t *stop, size_t n_most, told out[ANSWERS])
{
    skv_job_params p = skv_job_params_default();
    skv_scheduler *s = NULL;
    skv_job *job = NULL;
    int32_t prompt[20];
    skv_output o;
    make_repeating_ids(prompt, 20, skv_engine_vocab(engine));
    p.ids = prompt;
    p.n_ids = 20;
    p.n_answers = ANSWERS;
    p.max_tokens = LENGTH;
    p.ignore_eos = p.logprobs = true;
    p.n_top = TOP;
    p.sampling.temperature = 0.9;
    p.sampling.seed = 3;
    p.stop_ids = stop;
    p.n_stop_ids = stop ? 1 : 0;
    p.notify = see_told;
    seen.n = 0;
    memset(out, 0, ANSWERS * sizeof *out);
    assert_int_equal(skv_scheduler_create(engine, NULL, NULL, &s, NULL), SKV_OK);
    assert_int_equal(skv_scheduler_submit(s, &p, &job, NULL), SKV_OK);
    while (!skv_job_done(job)) {
        if (!skv_job_next(job, &o)) {
            rest();
            continue;
        }
        take(&out[o.i_answer], &o);
        if (n_most > 0 && out[0].n == n_most) skv_job_cancel(job);
    }
    skv_job_release(job);
    skv_scheduler_free(s);
}

/* Outputs between a pick, which is the last launch of a step, and the wait for its result. */
static size_t count_meanwhile(void)
{
    size_t n = 0;
    bool computes = false;
    assert_true(seen.n < EVENTS);
    for (size_t i = 0; i < seen.n; i++) {
        if (seen.events[i] == PICK) computes = true;
        if (seen.events[i] == WAIT) computes = false;
        n += computes && seen.events[i] == TOLD;
    }
    return n;
}

/* The last token that did not come before. */
static size_t newest_of(const told *answer)
{
    size_t newest = 0;
    for (size_t i = 1; i < answer->n; i++) {
        bool is_new = true;
        for (size_t j = 0; j < i; j++) is_new = is_new && answer->ids[j] != answer->ids[i];
        if (is_new) newest = i;
    }
    return newest;
}

/* All tokens of an answer but the first, and the last where its number says that it is. */
static size_t count_owed(const told answers[ANSWERS])
{
    size_t n = 0;
    for (size_t i = 0; i < ANSWERS; i++) n += answers[i].n - 1 - (answers[i].n == LENGTH);
    return n;
}

static void a_server_tells_tokens_while_a_step_runs(void **state)
{
    static told with[ANSWERS], without[ANSWERS], again[ANSWERS];
    skv_engine *engine = open_engine(MODELS "llama3-v4", SKV_WEIGHTS_BF16);
    void (*const start)(skv_backend *) = engine->be->start;
    (void)state;
    watch(device_of(engine));
    serve(engine, NULL, 0, again);
    const int32_t stop = again[2].ids[newest_of(&again[2])];
    serve(engine, &stop, 0, with);
    const size_t n_with = count_meanwhile();
    engine->be->start = NULL;
    serve(engine, &stop, 0, without);
    const size_t n_without = count_meanwhile();
    engine->be->start = start;
    print_message("%zu, %zu, %zu and %zu tokens: %zu are told while a step runs, else %zu\n",
                  with[0].n, with[1].n, with[2].n, with[3].n, n_with, n_without);
    assert_memory_equal(with, without, sizeof with);
    assert_true(with[2].n < LENGTH && with[2].finish == SKV_FINISH_STOP);
    assert_true(n_with > LENGTH && n_with == count_owed(with));
    assert_int_equal(n_without, 0);
    serve(engine, &stop, 3, again);
    for (size_t i = 0; i < ANSWERS; i++) {
        assert_true(again[i].n <= with[i].n && again[i].n >= 2);
        assert_memory_equal(again[i].ids, with[i].ids, again[i].n * sizeof *with[i].ids);
        assert_memory_equal(again[i].top, with[i].top, again[i].n * sizeof *with[i].top);
    }
    assert_int_equal(again[0].finish, SKV_FINISH_CANCELLED);
    skv_engine_close(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_comes_first),
        cmocka_unit_test(launches_that_join_have_the_same_bits),
        cmocka_unit_test(a_server_tells_tokens_while_a_step_runs),
    };
    void *loaded = image = device_image();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int n_failed = cmocka_run_group_tests_name("CUDA launches", tests, NULL, NULL);
    free(loaded);
    return n_failed;
}
