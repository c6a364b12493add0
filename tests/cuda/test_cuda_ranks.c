/*
 * Several GPUs that compute one model, emulated ones by way of fake_driver.c: sums over ranks by
 * copies are those of the host to the bit, those of NCCL (fake_nccl.c) the same on all ranks,
 * results are near those of the processor, a rank that fails ends the others with an error, and a
 * GPU that is missing, or of another kind, is told. The driver refuses copies and kernels that do
 * not wait for another GPU as they must. An argument is a pattern of the tests that run: on GPUs
 * `two_are_near*`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_image.h"
#include "backend/devices.h"
#include "base/pool.h"
#include "base/team_work.h"
#include "device_driver.h"
#include "scored_prompt.h"
#include "skv/ranks.h"
#include "skv/tools.h"
#include "thread_team.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { RANKS = 3, ROWS = 70, K = 64, MOST = ROWS * K, CASES = 4, EMULATED = 4 };

static void *image;

/* The fake driver has the kernels itself: any image will do. */
const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return image;
}

/* ---- sums ---- */

static const struct {
    size_t n_rows, n;
} sums[CASES] = {{1, 32}, {ROWS, K}, {3, 37}, {ROWS, 1}};

/* A rank with a back end of its own, which adds up rows with the others. The device of rank 1 may
 * fail before sum `fails_at`. */
typedef struct summing {
    member member;
    skv_sums how;
    bool fails;
    size_t fails_at;
    const char *by; /* how it adds up */
    skv_team team;
    pthread_t thread;
    float x[MOST], here[CASES][MOST], by_host[CASES][MOST];
    float scratch[(2 * RANKS + 1) << 16];
    size_t n_meetings;
    skv_status status, failed; /* failed: the device's, at the end */
    skv_error err, failure;
} summing;

static bool meet_others(void *ctx, const void *mine, void *all, size_t n, size_t n_summed)
{
    summing *s = ctx;
    s->n_meetings += n_summed > 0;
    return s->team.gather(s->team.ctx, mine, all, n, &s->err) == SKV_OK;
}

static void sum_on_host(void *ctx, float *x, size_t n)
{
    summing *s = ctx;
    s->status = skv_team_sum(&s->team, x, n, s->scratch, &s->err);
}

static void sum_rows(skv_backend *be, skv_area *area, size_t i, const float *x, float *out)
{
    const size_t n_rows = sums[i].n_rows, n = sums[i].n;
    const skv_rows rows = {.area = area, .ld = n};
    skv_mapped m = be->map(be, rows, n_rows, n, SKV_MAP_WRITE);
    memcpy(m.at, x, n_rows * n * sizeof *x);
    be->unmap(be, m);
    be->sum(be, rows, n_rows, n);
    m = be->map(be, rows, n_rows, n, SKV_MAP_READ);
    memcpy(out, m.at, n_rows * n * sizeof *x);
    be->unmap(be, m);
}

static void fail_here(summing *s, skv_backend *be, size_t i)
{
    skv_cuda_device *device = &skv_cuda_of(be)->device;
    if (!s->fails || s->team.rank != 1 || i != s->fails_at) return;
    device->failed = skv_fail(&device->error, SKV_IO, "a fault of rank 1");
}

/* Here the working memory is that of one row, so many rows come in pieces. */
static void sum_all(summing *s, skv_backend *be, bool here)
{
    const skv_backend_limits limits = {.max_rows = 1,
                                       .max_K = K,
                                       .max_heads = 1,
                                       .head_dim = 16,
                                       .max_group = 1,
                                       .max_kv_rows = 64,
                                       .ranks = {.rank = s->team.rank,
                                                 .n = RANKS,
                                                 .ctx = s,
                                                 .sum = sum_on_host,
                                                 .meet = here ? meet_others : NULL}};
    const skv_area_spec spec = {SKV_AREA_F32, ROWS, K, false, true};
    skv_area *area = NULL;
    s->status = be->areas_create(be, &spec, 1, &area, &s->err);
    if (s->status != SKV_OK) return;
    s->status = be->reserve(be, &limits, &s->err);
    if (s->status == SKV_OK) s->status = be->join(be, &s->err);
    if (here) s->by = be->sums;
    for (size_t i = 0; i < CASES && s->status == SKV_OK; i++) {
        fail_here(s, be, i);
        sum_rows(be, area, i, s->x, here ? s->here[i] : s->by_host[i]);
    }
    be->areas_free(be, &area, 1);
}

static void *add_up(void *arg)
{
    summing *s = arg;
    skv_pool *pool = NULL;
    skv_backend *be = NULL;
    s->status = skv_pool_create(1, &pool, &s->err);
    const skv_backend_options options = {.device = "cuda",
                                         .ordinal = s->team.rank,
                                         .several = true,
                                         .sums = s->how,
                                         .threads = pool,
                                         .level = SKV_CPU_LEVEL_BEST};
    if (s->status == SKV_OK) s->status = skv_backend_create(&options, &be, &s->err);
    if (s->status == SKV_OK) sum_all(s, be, true);
    if (s->status == SKV_OK && !s->fails) sum_all(s, be, false);
    if (s->status == SKV_OK) s->failed = skv_cuda_wait(&skv_cuda_of(be)->device, &s->failure);
    if (be) be->free(be);
    skv_pool_free(pool);
    return NULL;
}

/* Copies are added up in f32, in the order of ranks; NCCL has another order. */
static void compare_sums(const summing *ranks, size_t i)
{
    const bool exact = strcmp(ranks[0].by, "copies") == 0;
    for (size_t k = 0; k < sums[i].n_rows * sums[i].n; k++) {
        const float got = ranks[0].here[i][k];
        float sum = ranks[0].x[k], size = fabsf(sum);
        for (size_t r = 1; r < RANKS; r++) sum += ranks[r].x[k], size += fabsf(ranks[r].x[k]);
        assert_true(exact ? got == sum : fabsf(got - sum) <= size * RANKS * 0x1p-24F);
        for (size_t r = 0; r < RANKS; r++) {
            assert_true(ranks[r].here[i][k] == got);
            assert_true(ranks[r].fails || ranks[r].by_host[i][k] == sum);
        }
    }
}

/* Ranks that have added up, on the heap. */
static summing *run_ranks(skv_sums how, bool fails, size_t fails_at)
{
    summing *ranks = calloc(RANKS, sizeof *ranks);
    hub h;
    assert_non_null(ranks);
    open_hub(&h, RANKS);
    for (size_t r = 0; r < RANKS; r++) {
        ranks[r].how = how;
        ranks[r].fails = fails;
        ranks[r].fails_at = fails_at;
        ranks[r].team = join_hub(&h, &ranks[r].member, r);
        for (size_t k = 0; k < MOST; k++) {
            ranks[r].x[k] = sinf((float)(k * RANKS + r + 1)) * (float)(1 + k % 7);
        }
    }
    for (size_t r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, add_up, &ranks[r]), 0);
    }
    for (size_t r = 0; r < RANKS; r++) (void)pthread_join(ranks[r].thread, NULL);
    for (size_t r = 0; r < RANKS; r++) {
        if (ranks[r].status != SKV_OK) fail_msg("rank %zu: %s", r, ranks[r].err.text);
    }
    (void)pthread_barrier_destroy(&h.all_here);
    return ranks;
}

static void check_sums(skv_sums how, const char *by)
{
    summing *ranks = run_ranks(how, false, 0);
    for (size_t r = 0; r < RANKS; r++) {
        assert_string_equal(ranks[r].by, by);
        assert_int_equal(ranks[r].failed, SKV_OK);
        /* of copies, ROWS rows come in pieces */
        assert_true(ranks[r].n_meetings > CASES - (how != SKV_SUMS_COPIES));
    }
    for (size_t i = 0; i < CASES; i++) compare_sums(ranks, i);
    free(ranks);
}

static void their_sums_are_right(void **state)
{
    (void)state;
    check_sums(SKV_SUMS_COPIES, "copies");
    check_sums(SKV_SUMS_AUTO, "nccl");
    check_sums(SKV_SUMS_NCCL, "nccl");
    assert_int_equal(setenv("SKV_FAKE_NCCL_FAILS", "1:0", 1), 0);
    check_sums(SKV_SUMS_AUTO, "copies"); /* communicators cannot be made */
    assert_int_equal(unsetenv("SKV_FAKE_NCCL_FAILS"), 0);
}

/* Sums before the failure are right, and every rank has its error. */
static void check_failure(skv_sums how, size_t fails_at, const char *of_rank_1)
{
    summing *ranks = run_ranks(how, true, fails_at);
    char of_others[160];
    (void)snprintf(of_others, sizeof of_others, "device cuda: that of rank 1 has failed: %s",
                   of_rank_1);
    for (size_t r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].failed, SKV_IO);
        assert_string_equal(ranks[r].failure.text, r == 1 ? of_rank_1 : of_others);
    }
    for (size_t i = 0; i < fails_at && i + 1 < CASES; i++) compare_sums(ranks, i);
    free(ranks);
}

static void a_rank_that_fails_ends_the_others(void **state)
{
    (void)state;
    for (skv_sums how = SKV_SUMS_NCCL; how <= SKV_SUMS_COPIES; how++) {
        check_failure(how, 2, "a fault of rank 1");
        check_failure(how, CASES - 1, "a fault of rank 1");
    }
    assert_int_equal(setenv("SKV_FAKE_NCCL_FAILS", "1:4", 1), 0); /* in its last sum */
    check_failure(SKV_SUMS_NCCL, CASES, "ncclAllReduce of 70 floats: failed (3)");
    assert_int_equal(unsetenv("SKV_FAKE_NCCL_FAILS"), 0);
}

/* ---- models ---- */

typedef struct divided {
    const char *name, *model, *eviction;
    double most; /* root mean square of the difference of logits, of their deviation */
    skv_sums sums;
} divided;

/* Two GPUs are as near to the processor as one is (test_cuda_backend.c). */
static const divided cases[] = {
    {"AcrossKV", MODELS "llama-swiftkv-g4", NULL, 0.033, SKV_SUMS_COPIES},
    {"SnapKV", MODELS "llama3-v4", "snapkv:40,8,5", 0.1, SKV_SUMS_NCCL},
    {"mixture of experts", MODELS "gpt-oss", NULL, 0.033, SKV_SUMS_AUTO},
};

static skv_engine *open_on(const divided *d, const char *device, const skv_team *team)
{
    skv_engine_options o = skv_engine_options_default();
    skv_error err;
    o.device = device;
    o.threads = 1;
    o.weights = SKV_WEIGHTS_BF16;
    o.kv = SKV_KV_BF16;
    o.context = 256;
    o.step_tokens = 64;
    o.team = team;
    o.sums = d->sums;
    if (d->eviction) {
        assert_int_equal(skv_eviction_parse(d->eviction, &o.eviction, &err), SKV_OK);
    }
    return open_or_fail(d->model, &o);
}

/* Returns the difference. */
static double score_on_two(const divided *d)
{
    static float logits[2][(N_SCORED + 1) * VOCAB_MAX];
    skv_ranks_threads *threads = NULL;
    skv_error err;
    if (skv_ranks_threads_start(2, &threads, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine *two = open_on(d, "cuda", skv_ranks_threads_team(threads));
    skv_engine *cpu = open_on(d, "cpu", NULL);
    const size_t n = (N_SCORED + 1) * skv_engine_vocab(cpu);
    assert_true(n <= sizeof logits[0] / sizeof *logits[0]);
    score_prompt(cpu, logits[0]);
    score_prompt(two, logits[1]);
    const skv_ranks_traffic traffic = skv_engine_traffic(two);
    assert_true(traffic.ranks == 2 && traffic.n_sums > 0 && traffic.sum_bytes > 0);
    assert_string_equal(traffic.sums_by, d->sums == SKV_SUMS_COPIES ? "copies" : "nccl");
    skv_engine_close(cpu);
    skv_engine_close(two);
    if (skv_ranks_threads_end(threads, &err) != SKV_OK) fail_msg("%s", err.text);
    return logits_difference(logits[1], logits[0], n);
}

static void two_are_near_the_processor(void **state)
{
    size_t n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double off = score_on_two(&cases[i]);
        const bool near = off > 0 && off < cases[i].most;
        print_message("%-20s %.4f%s\n", cases[i].name, off, near ? "" : " <-");
        n_wrong += !near;
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- failures ---- */

static void a_sum_that_fails_ends_a_step(void **state)
{
    double logprobs[N_PROMPT];
    int32_t ids[N_PROMPT];
    skv_ranks_threads *threads = NULL;
    skv_error err;
    (void)state;
    assert_int_equal(setenv("SKV_FAKE_NCCL_FAILS", "1:5", 1), 0);
    if (skv_ranks_threads_start(2, &threads, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine *two = open_on(&cases[1], "cuda", skv_ranks_threads_team(threads));
    for (size_t i = 0; i < N_PROMPT; i++) ids[i] = (int32_t)i;
    assert_int_equal(skv_score(two, ids, N_PROMPT, logprobs, NULL, &err), SKV_IO);
    assert_non_null(strstr(err.text, "that of rank 1 has failed: ncclAllReduce of "));
    skv_engine_close(two);
    assert_int_equal(skv_ranks_threads_end(threads, &err), SKV_OK); /* it ends with the others */
    assert_int_equal(unsetenv("SKV_FAKE_NCCL_FAILS"), 0);
}

/* Opens on two; returns the error. */
static skv_error open_two(const char *model, skv_sums how)
{
    skv_ranks_threads *threads = NULL;
    skv_engine *engine = NULL;
    skv_engine_options o = skv_engine_options_default();
    skv_error err = {.text = ""}, ended;
    if (skv_ranks_threads_start(2, &threads, &err) != SKV_OK) fail_msg("%s", err.text);
    o.device = "cuda";
    o.threads = 1;
    o.context = 64;
    o.weights = SKV_WEIGHTS_BF16;
    o.kv = SKV_KV_BF16;
    o.sums = how;
    o.team = skv_ranks_threads_team(threads);
    err.status = skv_engine_open(model, &o, &engine, &err);
    skv_engine_close(engine);
    ended.status = skv_ranks_threads_end(threads, &ended);
    assert_true(ended.status == SKV_OK || ended.status == err.status);
    return err;
}

static void ranks_that_differ_are_told(void **state)
{
    (void)state;
    assert_int_equal(setenv("SKV_FAKE_CAPABILITY", "1:89", 1), 0);
    skv_error err = open_two(MODELS "llama3-v4", SKV_SUMS_AUTO);
    assert_int_equal(unsetenv("SKV_FAKE_CAPABILITY"), 0);
    assert_int_equal(err.status, SKV_UNSUPPORTED);
    assert_string_equal(err.text, "process 1 of 2 has compute capability 8.9, process 0 has 9.0");
    assert_int_equal(setenv("SKV_FAKE_NCCL_FAILS", "1:0", 1), 0);
    err = open_two(MODELS "llama3-v4", SKV_SUMS_NCCL);
    assert_int_equal(unsetenv("SKV_FAKE_NCCL_FAILS"), 0);
    assert_int_equal(err.status, SKV_IO);
    assert_string_equal(err.text, "ncclCommInitAll of 2 GPUs: failed (3)");
}

/* ---- what is missing ---- */

static void the_way_of_sums_is_told(void **state)
{
    skv_device device;
    (void)state;
    assert_true(skv_device_describe(1, &device));
    assert_string_equal(device.found, "emulated GPU, one of 4 GPUs, which add up by NCCL 2.27.3");
}

static void a_missing_gpu_is_told(void **state)
{
    skv_backend *be = NULL;
    skv_pool *pool;
    skv_error err;
    (void)state;
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    const skv_backend_options options = {
        .device = "cuda", .ordinal = EMULATED, .threads = pool, .level = SKV_CPU_LEVEL_BEST};
    assert_int_equal(skv_backend_create(&options, &be, &err), SKV_UNSUPPORTED);
    assert_string_equal(err.text, "GPU 4: this machine has 4");
    skv_pool_free(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_sums_are_right),
        cmocka_unit_test(a_rank_that_fails_ends_the_others),
        cmocka_unit_test(two_are_near_the_processor),
        cmocka_unit_test(a_sum_that_fails_ends_a_step),
        cmocka_unit_test(ranks_that_differ_are_told),
        cmocka_unit_test(the_way_of_sums_is_told),
        cmocka_unit_test(a_missing_gpu_is_told),
    };
    void *loaded = image = device_image();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int n_failed = cmocka_run_group_tests_name("several GPUs", tests, NULL, NULL);
    free(loaded);
    return n_failed;
}
