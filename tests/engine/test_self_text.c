/*
 * Text that a model writes itself: greedy text is what the model scores highest, documents begin
 * and end where they should, the bytes are the same for any number of threads and after an
 * interruption, and a student is recovered from it.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "group_folder.h"
#include "skv/self_text.h"
#include "skv/train.h"

#define MODEL SKV_TEST_DATA "/models/llama-mha"

enum { LENGTH = 48, WAVE = SKV_SELF_LANES * LENGTH, WAVES = 3, BOS = 1 };

static skv_self_options options_of(double temperature)
{
    return (skv_self_options){
        .tokens = WAVE * WAVES - 5, .length = LENGTH, .temperature = temperature, .seed = 7};
}

static skv_engine *open_engine(const char *model, const skv_self_options *o, size_t threads)
{
    skv_engine_options engine = skv_self_engine_options(o, false);
    skv_engine *out = NULL;
    skv_error err;
    engine.threads = threads;
    engine.weights = SKV_WEIGHTS_F32;
    if (skv_engine_open(model, &engine, &out, &err) != SKV_OK) fail_msg("%s", err.text);
    return out;
}

/* Its path (skv_text_free); the tokens of the file in ids. */
static char *write_text(const skv_self_options *o, size_t threads, int32_t ids[WAVE * WAVES])
{
    skv_engine *engine = open_engine(MODEL, o, threads);
    char *path, *data;
    size_t n;
    skv_error err;
    if (skv_self_write(engine, NULL, group_folder, o, &path, &err) != SKV_OK)
        fail_msg("%s", err.text);
    assert_int_equal(skv_file_read(path, 1 << 24, &data, &n, &err), SKV_OK);
    assert_int_equal(n, 2 * WAVE * WAVES);
    for (size_t i = 0; i < WAVE * WAVES; i++) {
        ids[i] = (unsigned char)data[2 * i] | (unsigned char)data[2 * i + 1] << 8;
    }
    skv_free(data);
    skv_engine_close(engine);
    return path;
}

static void test_greedy_is_the_best(void **state)
{
    (void)state;
    const skv_self_options o = options_of(0);
    int32_t ids[WAVE * WAVES], best[LENGTH];
    skv_text_free(write_text(&o, 2, ids));
    skv_engine *engine = open_engine(MODEL, &o, 1);
    for (size_t i = 0; i < 4; i++) {
        const int32_t *stream = ids + i * LENGTH;
        size_t n = 1;
        while (n < LENGTH && stream[n] != BOS) n++;
        assert_int_equal(skv_score(engine, stream, n, NULL, best, NULL), SKV_OK);
        for (size_t t = 0; t + 1 < n; t++) assert_int_equal(best[t], stream[t + 1]);
    }
    skv_engine_close(engine);
}

static void test_documents(void **state)
{
    (void)state;
    const skv_self_options o = options_of(1);
    int32_t ids[WAVE * WAVES];
    size_t n_begun = 0;
    skv_text_free(write_text(&o, 2, ids));
    skv_engine *engine = open_engine(MODEL, &o, 1);
    for (size_t i = 0; i < WAVE * WAVES; i++) {
        assert_true(ids[i] >= 0 && (size_t)ids[i] < skv_engine_vocab(engine));
        if (i % LENGTH == 0) {
            assert_int_equal(ids[i], BOS);
        } else if (skv_engine_is_eos(engine, ids[i - 1])) {
            assert_int_equal(ids[i], BOS);
        }
        n_begun += ids[i] == BOS;
    }
    assert_true(n_begun > WAVE * WAVES / LENGTH); /* some ended before their stream */
    assert_true(memcmp(ids, ids + LENGTH, LENGTH * sizeof ids[0]) != 0);
    assert_true(memcmp(ids, ids + WAVE, LENGTH * sizeof ids[0]) != 0);
    skv_engine_close(engine);
}

/* What is left of an interrupted file, with half a wave at its end, is gone on with. */
static void test_goes_on(void **state)
{
    (void)state;
    const skv_self_options o = options_of(1);
    int32_t whole[WAVE * WAVES], again[WAVE * WAVES];
    char *path = write_text(&o, 1, whole), part[256], *data;
    size_t n;
    assert_int_equal(skv_file_read(path, 1 << 24, &data, &n, NULL), SKV_OK);
    (void)snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(skv_file_write(part, data, 2 * WAVE + 100, NULL), SKV_OK);
    skv_free(data);
    assert_int_equal(unlink(path), 0);
    skv_text_free(write_text(&o, 3, again));
    assert_memory_equal(whole, again, sizeof whole);
    assert_false(skv_file_exists(part));
    /* A file that is there is not written again. */
    assert_int_equal(truncate(path, 10), 0);
    skv_engine *engine = open_engine(MODEL, &o, 1);
    char *kept;
    assert_int_equal(skv_self_write(engine, NULL, group_folder, &o, &kept, NULL), SKV_OK);
    assert_string_equal(kept, path);
    assert_int_equal(skv_file_read(path, 1 << 24, &data, &n, NULL), SKV_OK);
    assert_int_equal(n, 10);
    assert_int_equal(unlink(path), 0);
    skv_self_options other = o;
    other.seed++;
    skv_text_free(kept);
    assert_int_equal(skv_self_write(engine, NULL, group_folder, &other, &kept, NULL), SKV_OK);
    assert_string_not_equal(kept, path);
    skv_engine_close(engine);
    skv_free(data);
    skv_text_free(kept);
    skv_text_free(path);
}

static bool note(void *user, const skv_train_progress *p)
{
    double *loss = user;
    loss[p->step - 1] = p->loss;
    return true;
}

static void test_recovers(void **state)
{
    (void)state;
    const skv_self_options o = options_of(1);
    int32_t ids[WAVE * WAVES];
    char *path = write_text(&o, 2, ids), out[96];
    double loss[40];
    skv_error err;
    (void)snprintf(out, sizeof out, "%.60s/out", group_folder);
    skv_train_options train = skv_train_options_default(SKV_TRAIN_DISTILL);
    train.model = MODEL;
    train.out = out;
    train.kv_layers = 2;
    train.on_step = note;
    train.user = loss;
    skv_train_stage *stage = &train.stages[0];
    stage->data[0] = skv_train_data_default(NULL);
    stage->data[0].self_tokens = o.tokens;
    stage->n_data = 1;
    stage->seq = LENGTH;
    stage->rows = 8;
    stage->steps = 40;
    stage->rate = 5e-3;
    assert_int_equal(skv_train_run(&train, &err), SKV_ARGUMENT); /* nobody has written it */
    assert_non_null(strstr(err.text, "has not been written"));
    stage->data[0].file = path;
    if (skv_train_run(&train, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true(loss[39] < 0.8 * loss[0]);
    skv_text_free(path);
}

/* Writes the text for beginnings, in a file of this name, and returns all of its ids: [*n]. */
static int32_t *write_begun(const char *model, const char *name, const char *lines, uint64_t tokens,
                            skv_vocab **vocab, size_t *n)
{
    char begin[96], *path, *data;
    size_t n_bytes;
    skv_error err;
    (void)snprintf(begin, sizeof begin, "%.60s/%s", group_folder, name);
    assert_int_equal(skv_file_write(begin, lines, strlen(lines), NULL), SKV_OK);
    skv_self_options o = options_of(0.8);
    o.begin = begin;
    o.tokens = tokens;
    skv_engine *engine = open_engine(model, &o, 2);
    assert_int_equal(skv_vocab_open(model, vocab, NULL), SKV_OK);
    if (skv_self_write(engine, *vocab, group_folder, &o, &path, &err) != SKV_OK)
        fail_msg("%s", err.text);
    assert_int_equal(skv_file_read(path, 1 << 24, &data, &n_bytes, NULL), SKV_OK);
    *n = n_bytes / 2;
    int32_t *ids = calloc(*n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (unsigned char)data[2 * i] | (unsigned char)data[2 * i + 1] << 8;
    }
    skv_free(data);
    skv_text_free(path);
    skv_engine_close(engine);
    return ids;
}

#define STORIES SKV_TEST_ASSETS "/models/stories260k/stories260k-f32.gguf"

/* Documents begin with lines of a file, whose letters spell no special token. */
static void test_beginnings(void **state)
{
    (void)state;
    if (!skv_file_exists(STORIES)) {
        print_message("skipped: no %s\n", STORIES);
        return;
    }
    static const char *const begins[] = {"Once upon a time", "Tim</s> and <s>Sue"};
    size_t n, n_begun[2] = {0};
    skv_vocab *vocab;
    int32_t *ids = write_begun(STORIES, "begin.txt", "Once upon a time\nTim</s> and <s>Sue\n",
                               WAVE * WAVES, &vocab, &n);
    for (size_t i = 0; i < n; i += LENGTH) {
        char *text;
        size_t n_text;
        assert_int_equal(skv_vocab_decode(vocab, (skv_id_piece){ids + i, LENGTH},
                                          (skv_decode_options){0}, &text, &n_text, NULL),
                         SKV_OK);
        const char *at = text + strspn(text, " ");
        for (size_t k = 0; k < 2; k++) {
            n_begun[k] += strncmp(at, begins[k], strlen(begins[k])) == 0;
        }
        skv_text_free(text);
    }
    assert_int_equal(n_begun[0] + n_begun[1], n / LENGTH);
    assert_true(n_begun[0] > 0 && n_begun[1] > 0);
    free(ids);
    skv_vocab_close(vocab);
}

#define MINI SKV_TEST_DATA "/../../models/mini/base"

/* A conversation is written by the template, which alone spells special tokens; it is as long as it
 * is, and more than a stream has in one step. */
static void test_conversations(void **state)
{
    (void)state;
    /* <|endoftext|>, <|end|>, <|user|>, <|assistant|> of the model's tokenizer */
    enum { BOS_ID, END_ID, USER_ID, ANSWER_ID };
    static const char said[] =
        "a<|end|>b <|user|><|assistant|> c d e f g h i j k l m n o p q r s t";
    char line[256];
    size_t n, n_letters;
    skv_vocab *vocab;
    int32_t *letters;
    (void)snprintf(line, sizeof line, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}",
                   said);
    int32_t *ids = write_begun(MINI, "begin.jsonl", line, WAVE, &vocab, &n);
    assert_int_equal(skv_vocab_encode(vocab, (skv_text_piece){said, sizeof said - 1},
                                      (skv_encode_options){0}, &letters, &n_letters, NULL),
                     SKV_OK);
    assert_in_range(n_letters, 33, LENGTH - 5);
    for (size_t i = 0; i < n; i += LENGTH) {
        assert_int_equal(ids[i], BOS_ID);
        assert_int_equal(ids[i + 1], USER_ID);
        assert_memory_equal(ids + i + 2, letters, n_letters * sizeof *letters);
        assert_int_equal(ids[i + 2 + n_letters], END_ID);
        assert_int_equal(ids[i + 3 + n_letters], ANSWER_ID);
    }
    skv_text_free(letters);
    free(ids);
    skv_vocab_close(vocab);
}

static void test_bad_beginnings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        skv_status status;
    } rows[] = {{"", "empty", SKV_FORMAT},
                {"{\"text\": \"a\"}\n\n{\"prompt\": 1}\n",
                 "the line at byte 15 has neither text nor messages", SKV_FORMAT},
                {"{\"text\": \"a\"", "begin.jsonl: ", SKV_FORMAT},
                {"{\"messages\": []}", "the model has no chat template", SKV_UNSUPPORTED}};
    if (!skv_file_exists(STORIES)) return;
    skv_vocab *vocab;
    skv_self_options o = options_of(1);
    char begin[96], *path;
    (void)snprintf(begin, sizeof begin, "%.60s/begin.jsonl", group_folder);
    o.begin = begin;
    skv_engine *engine = open_engine(STORIES, &o, 1);
    assert_int_equal(skv_vocab_open(STORIES, &vocab, NULL), SKV_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        skv_error err;
        assert_int_equal(skv_file_write(begin, rows[i].text, strlen(rows[i].text), NULL), SKV_OK);
        assert_int_equal(skv_self_write(engine, vocab, group_folder, &o, &path, &err),
                         rows[i].status);
        if (!strstr(err.text, rows[i].why)) fail_msg("%s", err.text);
    }
    skv_vocab_close(vocab);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy_is_the_best),
                                       cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_goes_on),
                                       cmocka_unit_test(test_recovers),
                                       cmocka_unit_test(test_beginnings),
                                       cmocka_unit_test(test_conversations),
                                       cmocka_unit_test(test_bad_beginnings)};
    return cmocka_run_group_tests(tests, group_folder_make, group_folder_drop);
}
