/*
 * That the back end of guarded_backend.h catches what it is for: a step's tensors and the pages of
 * the cache can be read through the back end, and a program that reads them itself ends.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "guarded_backend.h"
#include "kv/kv_store.h"
#include "skv/skv.h"

enum { N_TOKENS = 6, N = 64 };

/* The signal that ends a process which does this; 0: it ended by itself, with status 0. */
static int signal_of(void (*fn)(void *arg), void *arg)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own handler */
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO); /* it tells why */
        fn(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return WTERMSIG(status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static skv_pool *pool; /* of all tests */

static int start(void **state)
{
    skv_backend *be;
    skv_error err;
    if (skv_pool_create(1, &pool, &err) != SKV_OK) return -1;
    if (skv_backend_create(&(skv_backend_options){.threads = pool, .level = SKV_CPU_LEVEL_REF}, &be,
                           &err) != SKV_OK)
        return -1;
    *state = be;
    return guarded_backend_is(be) ? 0 : -1;
}

static int stop(void **state)
{
    skv_backend *be = *state;
    be->free(be);
    skv_pool_free(pool);
    return 0;
}

/* ---- memory of its own ---- */

static void read_directly(void *at)
{
    (void)*(volatile const float *)at;
}

static void write_directly(void *at)
{
    *(volatile float *)at = 1;
}

static void memory_is_out_of_reach(void **state)
{
    skv_backend *be = *state;
    float host[N], back[N] = {0};
    for (size_t i = 0; i < N; i++) host[i] = (float)i;
    float *a = be->alloc(be, sizeof host), *b = be->alloc(be, sizeof host);
    assert_int_equal(signal_of(read_directly, a), SIGSEGV);
    assert_int_equal(signal_of(write_directly, a + N - 1), SIGSEGV);
    be->put(be, a, host, sizeof host);
    be->copy(be, b + N / 2, a, sizeof host / 2);
    be->get(be, back, b, sizeof back);
    for (size_t i = 0; i < N; i++) {
        assert_true(back[i] == (i < N / 2 ? 0.0f : (float)(i - N / 2)));
    }
    be->release(be, a, sizeof host);
    be->release(be, b, sizeof host);
}

static void maps_are_what_was_asked_for(void **state)
{
    skv_backend *be = *state;
    float *at = be->alloc(be, N * sizeof *at), back = 0;
    float *host = be->map(be, at, N * sizeof *at, SKV_MAP_WRITE);
    assert_true(host[3] != host[3]); /* nonsense: it has to be written */
    for (size_t i = 0; i < N; i++) host[i] = 7;
    be->unmap(be, host);
    host = be->map(be, at + 3, sizeof *at, SKV_MAP_READ);
    assert_true(*host == 7);
    *host = 8; /* not the back end's */
    be->unmap(be, host);
    be->get(be, &back, at + 3, sizeof back);
    assert_true(back == 7);
    host = be->map(be, at + 3, sizeof *at, SKV_MAP_BOTH);
    *host += 1;
    be->unmap(be, host);
    be->get(be, &back, at + 3, sizeof back);
    assert_true(back == 8);
    be->release(be, at, N * sizeof *at);
}

typedef struct two {
    skv_backend *be;
    float *at;
} two;

static void compute_on_host_memory(void *arg)
{
    const two *t = arg;
    float host[N] = {0};
    t->be->softcap(t->be, host, N, 1);
}

static void compute_while_mapped(void *arg)
{
    const two *t = arg;
    (void)t->be->map(t->be, t->at, sizeof *t->at, SKV_MAP_READ);
    t->be->softcap(t->be, t->at, N, 1);
}

static void compute_beyond_the_end(void *arg)
{
    const two *t = arg;
    t->be->softcap(t->be, t->at + 1, N, 1);
}

static void compute(void *arg)
{
    const two *t = arg;
    t->be->softcap(t->be, t->at, N, 1);
}

static void operations_take_their_own_memory(void **state)
{
    skv_backend *be = *state;
    two t = {be, be->alloc(be, N * sizeof(float))};
    assert_int_equal(signal_of(compute, &t), 0);
    assert_int_equal(signal_of(compute_on_host_memory, &t), SIGABRT);
    assert_int_equal(signal_of(compute_while_mapped, &t), SIGABRT);
    assert_int_equal(signal_of(compute_beyond_the_end, &t), SIGABRT);
    be->release(be, t.at, N * sizeof(float));
}

static void pages_are_out_of_reach(void **state)
{
    skv_backend *be = *state;
    skv_kv_store *store;
    assert_int_equal(skv_kv_store_create(be, SKV_KV_TYPE_F32, skv_kv_page_bytes(SKV_KV_TYPE_F32, 8),
                                         4, &store, NULL),
                     SKV_OK);
    const size_t n_bytes = skv_kv_store_page_bytes(store);
    unsigned char *host = malloc(n_bytes);
    assert_non_null(host);
    void *page = skv_kv_page_take(store);
    assert_int_equal(signal_of(read_directly, page), SIGSEGV);
    skv_kv_page_read(store, page, host);
    free(host);
    skv_kv_store_free(store);
}

/* ---- a step ---- */

typedef struct looker {
    skv_engine *engine;
    bool maps; /* as it should */
} looker;

static void look(void *user, size_t i, const float *x, size_t n_rows)
{
    const looker *l = user;
    (void)i;
    skv_backend *be = l->engine->be;
    const size_t n_bytes = n_rows * l->engine->config->hidden * sizeof *x;
    const float *host = l->maps ? be->map(be, x, n_bytes, SKV_MAP_READ) : x;
    (void)*(volatile const float *)host;
    if (l->maps) be->unmap(be, host);
}

static void run_step(void *arg)
{
    looker *l = arg;
    const int32_t ids[N_TOKENS] = {1, 2, 3, 4, 5, 6};
    skv_sequence *sequence;
    skv_error err;
    if (skv_sequence_create(l->engine, N_TOKENS, &sequence, &err) != SKV_OK) _exit(1);
    const skv_span span = {.sequence = sequence, .ids = ids, .n = N_TOKENS, .want = SKV_WANT_LAST};
    const skv_hook tap = {.user = l, .on_hidden = look};
    const skv_step_sink sink = {.tap = &tap};
    if (skv_engine_step(l->engine, &span, 1, &sink, &err) != SKV_OK) _exit(1);
    skv_sequence_free(sequence);
}

/* What a hook gets is the back end's, and one that forgets it is caught. */
static void tensors_of_a_step_are_out_of_reach(void **state)
{
    (void)state;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1; /* a child process has one */
    options.context = 64;
    options.cpu = "ref";
    looker l = {.engine = NULL};
    skv_error err;
    skv_status status =
        skv_engine_open(SKV_TEST_DATA "/models/llama-swiftkv-g1", &options, &l.engine, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    assert_true(guarded_backend_is(l.engine->be));
    assert_int_equal(signal_of(run_step, &l), SIGSEGV);
    l.maps = true;
    assert_int_equal(signal_of(run_step, &l), 0);
    skv_engine_close(l.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_is_out_of_reach, start, stop),
        cmocka_unit_test_setup_teardown(maps_are_what_was_asked_for, start, stop),
        cmocka_unit_test_setup_teardown(operations_take_their_own_memory, start, stop),
        cmocka_unit_test_setup_teardown(pages_are_out_of_reach, start, stop),
        cmocka_unit_test(tensors_of_a_step_are_out_of_reach),
    };
    return cmocka_run_group_tests_name("guarded access", tests, NULL, NULL);
}
