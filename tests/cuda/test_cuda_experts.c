/*
 * Mixtures of experts with weights of all types on the CUDA back end, on the emulated GPU by way of
 * fake_driver.c: models against the oracle, as near as the processor is, and products in pieces
 * with the bits of whole ones.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/devices.h"
#include "base/pool.h"
#include "cuda_backend_models.h"
#include "device_driver.h"
#include "engine/engine.h"
#include "golden.h"
#include "scored_prompt.h"
#include "skv/tools.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { LONGEST = 512, N_IDS = 60 };

/* ---- the oracle ---- */

/* How far a model with weights of a type may be from the oracle, as a part of the distance that
 * another device has with weights of another type or the same. As in test_cuda_backend.c, a number
 * of e4m3 that is made on opening is five times as far off as one of int8; codes of a file are
 * exact. In hybrid models rows whose choice of experts is a near tie change the state, so 1 token
 * of 20 does not count. */
typedef struct mixture {
    const char *model;
    skv_weights weights;
    const char *device; /* the other one's */
    skv_weights other;
    double most;
} mixture;

static const mixture mixtures[] = {
    {"gpt-oss-mxfp4", SKV_WEIGHTS_FILE, "cpu", SKV_WEIGHTS_FILE, 2.5},
    {"qwen3-moe-gptq", SKV_WEIGHTS_FILE, "cpu", SKV_WEIGHTS_FILE, 2.5},
    {"mixtral-int4", SKV_WEIGHTS_FILE, "cpu", SKV_WEIGHTS_FILE, 2.5},
    {"gpt-oss", SKV_WEIGHTS_FP8, "cpu", SKV_WEIGHTS_INT8, 6},
    {"gpt-oss", SKV_WEIGHTS_INT8, "cpu", SKV_WEIGHTS_INT8, 2.5},
    {"qwen3-5-moe-gguf", SKV_WEIGHTS_FILE, "emulated", SKV_WEIGHTS_FILE, 2.5},
};

/* The root mean square of differences of log-probabilities from the oracle's; without the largest
 * of 20 where the model keeps states. */
static double distance_of(const golden *g, const skv_engine_options *options)
{
    static double squares[LONGEST];
    double logprobs[LONGEST], sum = 0;
    int32_t argmax[LONGEST];
    skv_engine_stats stats;
    skv_error err;
    size_t n = 0;
    skv_engine *engine = open_or_fail(g->path, options);
    const golden_case *c = &g->cases[g->n_cases - 1]; /* the longest */
    if (skv_score(engine, c->ids, c->n, logprobs, argmax, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    for (size_t t = 1; t < c->n; t++, n++) squares[n] = pow(logprobs[t] - c->own.logprobs[t], 2);
    skv_engine_get_stats(engine, &stats);
    skv_engine_close(engine);
    if (stats.states > 0) return usual_distance(squares, n);
    for (size_t i = 0; i < n; i++) sum += squares[i];
    return sqrt(sum / (double)n);
}

static void their_weights_are_near(void **state)
{
    size_t n, n_wrong = 0;
    golden *all = golden_load_all(&n);
    (void)state;
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        const mixture *m = &mixtures[i];
        const golden *g = golden_find(all, n, m->model);
        const skv_engine_options here = cuda_options("cuda", m->weights);
        const skv_engine_options there = cuda_options(m->device, m->other);
        const double far = distance_of(g, &here), near = distance_of(g, &there);
        const bool wrong = !(far > 0 && far < m->most * near);
        print_message("%-20s %-5s %.4f, %s %s %.4f%s\n", m->model, skv_weights_name(m->weights),
                      far, m->device, skv_weights_name(m->other), near, wrong ? " <-" : "");
        n_wrong += wrong;
    }
    assert_int_equal(n_wrong, 0);
    golden_free_all(all, n);
}

/* With weights, rows, keys and values of f32 they are as near as floats are. */
static void they_are_exact_in_f32(void **state)
{
    skv_engine_options o = cuda_options("cuda", SKV_WEIGHTS_F32);
    size_t n;
    golden *all = golden_load_all(&n);
    (void)state;
    o.kv = SKV_KV_F32;
    const double far = distance_of(golden_find(all, n, "gpt-oss"), &o);
    print_message("gpt-oss f32 %.6f\n", far);
    assert_true(far < 1e-4);
    golden_free_all(all, n);
}

/* ---- pieces ---- */

/* Log-probabilities of a step of many rows; n_unpacked 0: with the usual room. */
static void score_in(size_t n_unpacked, double logprobs[N_IDS])
{
    const skv_engine_options o = cuda_options("cuda", SKV_WEIGHTS_INT4);
    int32_t ids[N_IDS], argmax[N_IDS];
    skv_error err;
    skv_engine *engine = open_or_fail(MODELS "gpt-oss", &o);
    skv_cuda_backend *be = skv_cuda_of(engine->be);
    assert_true(n_unpacked <= be->n_unpacked);
    if (n_unpacked > 0) be->n_unpacked = n_unpacked;
    make_repeating_ids(ids, N_IDS, skv_engine_vocab(engine));
    if (skv_score(engine, ids, N_IDS, logprobs, argmax, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_engine_close(engine);
}

/* Room for one tile of 64 rows, and for three. On a GPU products of dense weights depend on their
 * size, and these come in pieces too. */
static void pieces_are_those_of_the_whole(void **state)
{
    double whole[N_IDS], pieces[N_IDS];
    skv_device device;
    (void)state;
    assert_true(skv_device_describe(1, &device));
    if (!strstr(device.found, "emulated")) skip();
    score_in(0, whole);
    for (size_t n = 1; n <= 3; n += 2) {
        score_in(n * 64 * 64, pieces);
        assert_memory_equal(whole + 1, pieces + 1, (N_IDS - 1) * sizeof *whole);
    }
}

/* ---- what is missing ---- */

static void nccl_may_be_missing(void **state)
{
    skv_backend *be = NULL;
    skv_pool *pool;
    skv_error err;
    (void)state;
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    skv_backend_options options = {.device = "cuda",
                                   .several = true,
                                   .sums = SKV_SUMS_NCCL,
                                   .threads = pool,
                                   .level = SKV_CPU_LEVEL_BEST};
    if (skv_backend_create(&options, &be, &err) == SKV_OK) { /* this machine has it */
        be->free(be);
    } else {
        assert_string_equal(err.text, "libnccl.so.2: not found");
    }
    options.sums = SKV_SUMS_AUTO;
    assert_int_equal(skv_backend_create(&options, &be, &err), SKV_OK);
    be->free(be);
    skv_pool_free(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_weights_are_near),
        cmocka_unit_test(they_are_exact_in_f32),
        cmocka_unit_test(pieces_are_those_of_the_whole),
        cmocka_unit_test(nccl_may_be_missing),
    };
    void *image = device_image();
    cuda_image_set(image);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int n_failed = cmocka_run_group_tests_name("experts on CUDA", tests, NULL, NULL);
    free(image);
    return n_failed;
}
