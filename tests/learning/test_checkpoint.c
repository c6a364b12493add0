/*
 * A training run is killed at each call that changes the disk, in its turn, in the middle of each
 * write, and its disk is full from each such call on: whatever is left, the run goes on from it to
 * the bytes of a run that nothing happened to.
 *
 * The linker sends the calls of the library through this file (--wrap).
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "skv/train.h"
#include "temp_folder.h"
#include "text_ids.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { STEPS = 3, PATH_BYTES = 96, CALLS_MAX = 2000 };

/* ---- the disk ---- */

typedef enum trouble { NONE, KILLED, FULL } trouble;

static trouble kind;
static size_t n_calls, strikes_at;

static void arm(trouble what, size_t at)
{
    kind = what;
    n_calls = 0;
    strikes_at = at;
}

/* Whether this call fails; the process may also end here. */
static bool strikes(void)
{
    n_calls++;
    if (kind == KILLED && n_calls == strikes_at) (void)raise(SIGKILL);
    if (kind != FULL || n_calls < strikes_at) return false;
    errno = ENOSPC;
    return true;
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
size_t __real_fwrite(const void *data, size_t size, size_t n, FILE *stream);
size_t __wrap_fwrite(const void *data, size_t size, size_t n, FILE *stream);
int __real_fflush(FILE *stream);
int __wrap_fflush(FILE *stream);
int __wrap_fsync(int fd);
int __real_fclose(FILE *stream);
int __wrap_fclose(FILE *stream);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    return mode[0] != 'r' && strikes() ? NULL : __real_fopen(path, mode);
}

/* A write that is cut leaves half of its bytes on the disk. */
size_t __wrap_fwrite(const void *data, size_t size, size_t n, FILE *stream)
{
    if (kind == KILLED && n_calls + 1 == strikes_at) {
        (void)__real_fwrite(data, 1, size * n / 2, stream);
        (void)__real_fflush(stream);
    }
    return strikes() ? 0 : __real_fwrite(data, size, n, stream);
}

int __wrap_fflush(FILE *stream)
{
    return strikes() ? EOF : __real_fflush(stream);
}

int __wrap_fsync(int fd)
{
    (void)fd; /* the test does not wait for the disk */
    return strikes() ? -1 : 0;
}

int __wrap_fclose(FILE *stream)
{
    const bool failed = strikes();
    const int code = __real_fclose(stream);
    return failed ? EOF : code;
}

int __wrap_rename(const char *from, const char *to)
{
    return strikes() ? -1 : __real_rename(from, to);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return strikes() ? -1 : __real_mkdir(path, mode);
}

/* ---- runs ---- */

typedef struct fixture {
    char root[32], ids[PATH_BYTES], good[PATH_BYTES], out[PATH_BYTES];
} fixture;

static void remove_tree(const char *path)
{
    (void)temp_folder_remove(path);
}

static skv_train_options options_of(const fixture *f, const char *out)
{
    skv_train_options o = skv_train_options_default(SKV_TRAIN_DISTILL);
    skv_train_stage *stage = &o.stages[0];
    o.model = MODELS "llama-mha";
    o.out = out;
    o.kv_layers = 2;
    o.group = 2;
    o.checkpoint_every = 1;
    o.threads = 1;
    stage->data[0] = skv_train_data_default(f->ids);
    stage->n_data = 1;
    stage->seq = 16;
    stage->rows = 2;
    stage->steps = STEPS;
    stage->rate = 2e-3;
    return o;
}

static int start(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    skv_error err;
    if (!f) return -1;
    memcpy(f->root, "/tmp/skv-save-XXXXXX", 21);
    if (!mkdtemp(f->root)) return -1;
    char root[sizeof f->root]; /* a copy, so that the compiler sees no overlap */
    memcpy(root, f->root, sizeof root);
    (void)snprintf(f->ids, sizeof f->ids, "%s/ids.json", root);
    (void)snprintf(f->good, sizeof f->good, "%s/good", root);
    (void)snprintf(f->out, sizeof f->out, "%s/out", root);
    if (text_ids_write(f->ids, 600, 1) != 0) return -1;
    *state = f;
    const skv_train_options o = options_of(f, f->good);
    if (skv_train_run(&o, &err) == SKV_OK) return 0;
    print_error("%s\n", err.text);
    return -1;
}

static int finish(void **state)
{
    fixture *f = *state;
    remove_tree(f->root);
    free(f);
    return 0;
}

static bool has(const char *folder, const char *name)
{
    char *path = skv_path_join(folder, name);
    const bool there = skv_file_exists(path);
    skv_free(path);
    return there;
}

static void expect_same(const fixture *f, const char *name)
{
    char *here = skv_path_join(f->out, name), *there = skv_path_join(f->good, name), *a, *b;
    size_t na, nb;
    skv_error err;
    assert_int_equal(skv_file_read(here, 1 << 30, &a, &na, &err), SKV_OK);
    assert_int_equal(skv_file_read(there, 1 << 30, &b, &nb, &err), SKV_OK);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    skv_free(a);
    skv_free(b);
    skv_free(here);
    skv_free(there);
}

/* What a person would do now: a folder with a model is done, one with a checkpoint goes on. */
static void go_on(const fixture *f, size_t at)
{
    skv_train_options o = options_of(f, f->out);
    skv_error err;
    arm(NONE, 0);
    o.resume = has(f->out, "checkpoint/latest.json");
    if (!has(f->out, "config.json") && skv_train_run(&o, &err) != SKV_OK) {
        fail_msg("after call %zu: %s", at, err.text);
    }
    expect_same(f, "config.json");
    expect_same(f, "model.safetensors");
    remove_tree(f->out);
}

static void test_killed_at_each_call(void **state)
{
    const fixture *f = *state;
    size_t at = 0;
    for (;;) {
        assert_true(++at < CALLS_MAX);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            const skv_train_options o = options_of(f, f->out);
            arm(KILLED, at);
            _exit(skv_train_run(&o, NULL) == SKV_OK ? 0 : 1);
        }
        int code = 0;
        assert_int_equal(waitpid(child, &code, 0), child);
        if (WIFEXITED(code) && WEXITSTATUS(code) == 0) break; /* it was over before */
        assert_true(WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL);
        go_on(f, at);
    }
    assert_true(at > 30);
    print_message("killed at each of %zu calls\n", at - 1);
    go_on(f, at);
}

static void test_full_from_each_call_on(void **state)
{
    const fixture *f = *state;
    size_t at = 0;
    for (;;) {
        const skv_train_options o = options_of(f, f->out);
        skv_error err;
        assert_true(++at < CALLS_MAX);
        arm(FULL, at);
        const skv_status status = skv_train_run(&o, &err);
        const size_t n = n_calls;
        arm(NONE, 0);
        if (n < at) {
            assert_int_equal(status, SKV_OK);
            break;
        }
        /* A folder that cannot be synced is no failure: what went before is on the disk. */
        if (status != SKV_OK) {
            assert_int_equal(status, SKV_IO);
            assert_non_null(strstr(err.text, f->out));
        }
        go_on(f, at);
    }
    assert_true(at > 30);
    go_on(f, at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_at_each_call),
                                       cmocka_unit_test(test_full_from_each_call_on)};
    return cmocka_run_group_tests(tests, start, finish);
}
