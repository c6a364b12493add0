/*
 * Files that become shorter while they are mapped: an error that names the file, never a signal,
 * whether that happens while a model is loaded, before a step, or between two reads of a tensor.
 */
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
#include "data/data_file.h"
#include "format/source.h"
#include "skv/skv.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { VOCAB_MAX = 512, FILE_MAX = 1 << 20 };

typedef struct copy {
    char *folder, *path; /* owned: a folder of its own, and the model file in it */
    char *bytes;         /* owned, [n]: what the file holds */
    size_t n;
} copy;

static void put(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb"); /* the same file made shorter or longer, not another one */
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A copy of MODELS/model/file, and its config.json if it has one. */
static copy make_copy(const char *model, const char *file)
{
    copy c = {.folder = skv_strndup("/tmp/skv-cut-XXXXXX", 19)};
    assert_non_null(mkdtemp(c.folder));
    c.path = skv_path_join(c.folder, file);
    const char *names[] = {"config.json", file};
    for (size_t i = 0; i < 2; i++) {
        char from[512], *bytes = NULL, *to = skv_path_join(c.folder, names[i]);
        (void)snprintf(from, sizeof from, MODELS "%s/%s", model, names[i]);
        size_t n;
        if (skv_file_read(from, FILE_MAX, &bytes, &n, NULL) == SKV_OK) {
            put(to, bytes, n);
            skv_free(c.bytes);
            c.bytes = bytes;
            c.n = n;
        }
        skv_free(to);
    }
    return c;
}

static void remove_copy(copy *c)
{
    char *config = skv_path_join(c->folder, "config.json");
    (void)unlink(config);
    (void)unlink(c->path);
    assert_int_equal(rmdir(c->folder), 0);
    skv_free(config);
    skv_free(c->bytes);
    skv_free(c->path);
    skv_free(c->folder);
}

static void assert_says_so(const copy *c, skv_status status, const skv_error *err)
{
    assert_int_equal(status, SKV_IO);
    assert_non_null(strstr(err->text, c->path));
    assert_non_null(strstr(err->text, "became shorter while in use"));
    assert_null(strchr(err->text, '\n'));
}

static skv_engine_options small_options(void)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.context = 64;
    options.step_tokens = 16;
    return options;
}

/* The step fails and changes nothing; with the file whole again the sequence goes on. */
static void cut_between_steps(const char *model, const char *file, bool is_gguf)
{
    copy c = make_copy(model, file);
    skv_engine_options options = small_options();
    skv_engine *engine = NULL;
    skv_sequence *s = NULL;
    skv_error err;
    const int32_t ids[] = {1, 5, 9, 13, 17, 21, 25, 29};
    float whole[VOCAB_MAX], again[VOCAB_MAX];
    assert_int_equal(skv_engine_open(is_gguf ? c.path : c.folder, &options, &engine, &err), SKV_OK);
    assert_int_equal(skv_sequence_create(engine, 0, &s, &err), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, 8, &(skv_prompt_options){.logits = whole}, &err),
                     SKV_OK);
    skv_sequence_truncate(s, 4);
    for (size_t n = 0; n < 9; n += 8) {
        put(c.path, c.bytes, n);
        assert_says_so(
            &c, skv_prompt(engine, s, ids + 4, 4, &(skv_prompt_options){.logits = again}, &err),
            &err);
        assert_int_equal(skv_sequence_length(s), 4);
    }
    put(c.path, c.bytes, c.n);
    assert_int_equal(
        skv_prompt(engine, s, ids + 4, 4, &(skv_prompt_options){.logits = again}, &err), SKV_OK);
    for (size_t i = 0; i < skv_engine_vocab(engine); i++) {
        assert_true(whole[i] - again[i] < 1e-3f && again[i] - whole[i] < 1e-3f);
    }
    skv_sequence_free(s);
    skv_engine_close(engine);
    remove_copy(&c);
}

static void test_between_steps(void **state)
{
    (void)state;
    cut_between_steps("llama-mha", "model.safetensors", false);
    cut_between_steps("llama-gguf", "model.gguf", true);
}

typedef struct cutter {
    const copy *c;
    size_t calls, cut_at;
} cutter;

static void cut_file(void *user, double share)
{
    (void)share;
    cutter *cut = user;
    if (cut->calls++ == cut->cut_at) put(cut->c->path, cut->c->bytes, 8);
}

static void test_while_loading(void **state)
{
    (void)state;
    copy c = make_copy("llama-mha", "model.safetensors");
    for (size_t i = 0; i < 3; i++) {
        cutter cut = {&c, 0, i};
        skv_engine_options options = small_options();
        options.progress = cut_file;
        options.user = &cut;
        skv_engine *engine = NULL;
        skv_error err;
        assert_says_so(&c, skv_engine_open(c.folder, &options, &engine, &err), &err);
        assert_null(engine);
        put(c.path, c.bytes, c.n);
    }
    remove_copy(&c);
}

/* What the trainer and the transform read through. */
static void test_tensor(void **state)
{
    (void)state;
    copy c = make_copy("llama-mha", "model.safetensors");
    skv_source *source = NULL;
    skv_error err;
    assert_int_equal(skv_source_open(c.folder, &source, &err), SKV_OK);
    const skv_tensor *t = skv_source_find(source, "model.embed_tokens.weight");
    size_t n = skv_tensor_columns(t);
    float *row = skv_alloc(n, sizeof *row), *fetched = skv_alloc(n, sizeof *fetched);
    for (size_t i = 0; i < skv_tensor_rows(t); i++) {
        assert_int_equal(skv_tensor_read_checked(t, i, 1, row, &err), SKV_OK);
        assert_int_equal(skv_tensor_fetch_row(t, i, fetched, &err), SKV_OK);
        assert_memory_equal(row, fetched, n * sizeof *row);
    }
    put(c.path, c.bytes, 8);
    assert_says_so(&c, skv_tensor_read_checked(t, 0, 1, row, &err), &err);
    assert_says_so(&c, skv_tensor_fetch_row(t, 0, row, &err), &err);
    skv_free(row);
    skv_free(fetched);
    skv_source_close(source);
    remove_copy(&c);
}

static void test_data_file(void **state)
{
    (void)state;
    char path[] = "/tmp/skv-cut-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    put(path, "\1\0\2\0\3\0\4\0", 8);
    skv_data_file file;
    skv_error err;
    assert_int_equal(skv_data_file_open(path, 2, 1, &file, &err), SKV_OK);
    put(path, "\1\0", 2);
    skv_data_writer writer = {0};
    skv_data_tokens tokens = {0};
    uint64_t position = 0;
    bool taken;
    assert_int_equal(skv_data_file_take(&file, &writer, &position, 4, true, &taken, &tokens, &err),
                     SKV_IO);
    assert_non_null(strstr(err.text, "became shorter while in use: 2 bytes, it had 8"));
    skv_data_file_close(&file);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_between_steps),
        cmocka_unit_test(test_while_loading),
        cmocka_unit_test(test_tensor),
        cmocka_unit_test(test_data_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
