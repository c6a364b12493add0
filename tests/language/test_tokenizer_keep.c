/*
 * A model from a GGUF file keeps its tokenizer when its weights are written in another form:
 * transformed and distilled folders give every text the ids of the file they came from, and the
 * chat template.
 */
#define _GNU_SOURCE /* memmem; nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/gguf.h"
#include "format/gguf_write.h"
#include "group_folder.h"
#include "skv/text.h"
#include "skv/tools.h"
#include "skv/train.h"
#include "text/tokenizer.h"

#define ASSETS SKV_TEST_ASSETS
#define STORIES ASSETS "/models/stories260k/stories260k-f32.gguf"

static skv_vocab *open_vocab(const char *path)
{
    skv_vocab *vocab = NULL;
    skv_error err;
    if (skv_vocab_open(path, &vocab, &err) != SKV_OK) fail_msg("%s", err.text);
    return vocab;
}

static void check_text(const skv_vocab *a, const skv_vocab *b, const char *text, size_t n)
{
    for (int special = 0; special < 2; special++) {
        int32_t *ids[2];
        size_t n_ids[2];
        skv_error err;
        assert_int_equal(
            skv_vocab_encode(a, (skv_text_piece){text, n},
                             (skv_encode_options){.add_special = special, .parse_special = special},
                             &ids[0], &n_ids[0], &err),
            SKV_OK);
        assert_int_equal(
            skv_vocab_encode(b, (skv_text_piece){text, n},
                             (skv_encode_options){.add_special = special, .parse_special = special},
                             &ids[1], &n_ids[1], &err),
            SKV_OK);
        assert_int_equal(n_ids[0], n_ids[1]);
        if (n_ids[0] > 0) assert_memory_equal(ids[0], ids[1], n_ids[0] * sizeof *ids[0]);
        skv_text_free(ids[0]);
        skv_text_free(ids[1]);
    }
}

static void check_same(const char *from, const char *kept)
{
    static const char text[] = "Once upon a time <s> \xc3\xa9t\xc3\xa9 \xff\xfe 12345  \n\n"
                               "\tint main(void) { return 0; } <|im_start|>user \xf0\x9f\x98\x80";
    skv_vocab *a = open_vocab(from), *b = open_vocab(kept);
    assert_int_equal(skv_vocab_size(a), skv_vocab_size(b));
    assert_int_equal(skv_vocab_bos(a), skv_vocab_bos(b));
    assert_int_equal(skv_vocab_eos(a), skv_vocab_eos(b));
    const char *template_a = skv_vocab_chat_template(a), *template_b = skv_vocab_chat_template(b);
    assert_int_equal(!template_a, !template_b);
    if (template_a) assert_string_equal(template_a, template_b);
    check_text(a, b, text, sizeof text - 1);
    skv_vocab_close(a);
    skv_vocab_close(b);
}

/* Transformed, and distilled from what was transformed. */
static void check_model(const char *name, const char *path)
{
    char transformed[256], distilled[256], ids[256];
    skv_error err;
    group_folder_path(transformed, name);
    (void)snprintf(distilled, sizeof distilled, "%.200s/%.40s-2", group_folder, name);
    assert_int_equal(skv_file_write(group_folder_path(ids, "ids.json"),
                                    "[3,4,5,6,7,8,9,8,7,6,3,4,5,6,7,8,9,8,7,6]", 41, &err),
                     0);
    if (skv_transform(path, transformed, 1, 1, &err) != SKV_OK) fail_msg("%s", err.text);
    check_same(path, transformed);
    skv_train_options o = skv_train_options_default(SKV_TRAIN_DISTILL);
    o.model = transformed;
    o.out = distilled;
    o.stages[0].data[0] = skv_train_data_default(ids);
    o.stages[0].n_data = 1;
    o.stages[0].seq = 16;
    o.stages[0].steps = 1;
    o.threads = 1;
    if (skv_train_run(&o, &err) != SKV_OK) fail_msg("%s", err.text);
    check_same(path, distilled);
    (void)snprintf(distilled, sizeof distilled, "%.200s/%.40s-3", group_folder, name);
    o.model = path; /* and straight from the file */
    o.kv_layers = 1;
    if (skv_train_run(&o, &err) != SKV_OK) fail_msg("%s", err.text);
    check_same(path, distilled);
}

static void test_models(void **state)
{
    (void)state;
    check_model("llama", SKV_TEST_DATA "/models/llama-gguf/model.gguf");
}

static void test_without_vocabulary(void **state)
{
    (void)state;
    char folder[256], path[300];
    skv_error err;
    assert_int_equal(skv_transform(SKV_TEST_DATA "/models/qwen2-gguf/model.gguf",
                                   group_folder_path(folder, "none"), 1, 1, &err),
                     SKV_OK);
    (void)snprintf(path, sizeof path, "%s/" SKV_TOKENIZER_GGUF, folder);
    assert_false(skv_file_exists(path));
}

static void test_damaged(void **state)
{
    (void)state;
    char folder[256], path[300];
    skv_error err = {0};
    skv_vocab *vocab = NULL;
    assert_int_equal(skv_folder_create(group_folder_path(folder, "damaged"), &err), SKV_OK);
    (void)snprintf(path, sizeof path, "%s/" SKV_TOKENIZER_GGUF, folder);
    assert_int_equal(skv_file_write(path, "GGUF\3\0\0\0\0\0", 10, &err), SKV_OK);
    assert_int_equal(skv_vocab_open(folder, &vocab, &err), SKV_FORMAT);
    assert_non_null(strstr(err.text, SKV_TOKENIZER_GGUF));
}

/* Writes the tokenizer of a folder or file as the entries of a GGUF file into a folder. */
static void convert(const char *from, const char *to)
{
    skv_tokenizer *t = NULL;
    skv_gguf *gguf = NULL;
    skv_gguf_out out;
    skv_error err;
    char path[300];
    skv_gguf_out_init(&out);
    if (skv_file_is_folder(from)) {
        assert_int_equal(skv_tokenizer_open_folder(from, &t, &err), SKV_OK);
    } else {
        assert_int_equal(skv_gguf_open(from, &gguf, &err), SKV_OK);
        assert_int_equal(skv_tokenizer_open_gguf(gguf, &t, &err), SKV_OK);
    }
    if (skv_tokenizer_to_gguf(t, skv_tokenizer_size(t), &out, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(skv_folder_create(to, &err), SKV_OK);
    (void)snprintf(path, sizeof path, "%s/" SKV_TOKENIZER_GGUF, to);
    assert_int_equal(skv_gguf_write(path, &out, NULL, 0, &err), SKV_OK);
    skv_gguf_out_release(&out);
    skv_tokenizer_free(t);
    skv_gguf_close(gguf);
}

/* Bytes that are no UTF-8 are left out: GGUF's tokenizers replace them in their own way. */
static void test_as_gguf(void **state)
{
    static const char text[] =
        "Once upon a time <|begin|> \xc3\xa9t\xc3\xa9 12345  \n\n\tint main(void) "
        "{ return 0; } <|im_start|>user we'Ve 'S \xf0\x9f\x98\x80";
    static const char *const models[] = {SKV_TEST_DATA "/../../models/mini/base",
                                         SKV_TEST_DATA "/models/llama-gguf/model.gguf"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char folder[256];
        convert(models[i], group_folder_path(folder, i ? "as-b" : "as-a"));
        skv_vocab *a = open_vocab(models[i]), *b = open_vocab(folder);
        assert_int_equal(skv_vocab_size(a), skv_vocab_size(b));
        assert_int_equal(skv_vocab_bos(a), skv_vocab_bos(b));
        assert_int_equal(skv_vocab_eos(a), skv_vocab_eos(b));
        check_text(a, b, text, sizeof text - 1);
        skv_vocab_close(a);
        skv_vocab_close(b);
    }
}

/* Merges that scores cannot say: written as "gemma4", from tokenizer.json and from GGUF. */
static void test_as_gemma4(void **state)
{
    static const char text[] = "<|turn>user\nOnce upon  a time\n\n\n\n123 \xc3\xa9<turn|>\n"
                               "<|channel>The quick brown fox<channel|> \xf0\x9f\x98\x80 wasn't";
    static const char config[] = "{\"bos_token\":\"<bos>\",\"eos_token\":\"<turn|>\"}";
    char from[256], again[256], path[300], *data;
    size_t n;
    skv_error err;
    (void)state;
    assert_int_equal(skv_folder_create(group_folder_path(from, "gemma4"), &err), SKV_OK);
    assert_int_equal(
        skv_file_read(SKV_TEST_DATA "/tokenizer/gemma4.json", 1 << 20, &data, &n, &err), SKV_OK);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", from);
    assert_int_equal(skv_file_write(path, data, n, &err), SKV_OK);
    skv_free(data);
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", from);
    assert_int_equal(skv_file_write(path, config, sizeof config - 1, &err), SKV_OK);
    convert(from, group_folder_path(again, "gemma4-again"));
    (void)snprintf(path, sizeof path, "%s/" SKV_TOKENIZER_GGUF, again);
    assert_int_equal(skv_file_read(path, 1 << 20, &data, &n, &err), SKV_OK);
    assert_non_null(memmem(data, n, "gemma4", 6));
    skv_free(data);
    const char *const paths[] = {again, SKV_TEST_DATA "/tokenizer/gemma4.gguf"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        skv_vocab *a = open_vocab(from), *b = open_vocab(paths[i]);
        assert_int_equal(skv_vocab_size(a), skv_vocab_size(b));
        assert_int_equal(skv_vocab_bos(a), skv_vocab_bos(b));
        assert_int_equal(skv_vocab_eos(a), skv_vocab_eos(b));
        check_text(a, b, text, sizeof text - 1);
        skv_vocab_close(a);
        skv_vocab_close(b);
    }
}

/* ---- with the assets ---- */

static bool has_assets(void)
{
    if (skv_file_exists(STORIES)) return true;
    print_message("skipped: no " STORIES "\n");
    return false;
}

static void test_published_vocabularies(void **state)
{
    static const char *const names[] = {"llama-spm", "phi-3", "gpt-2", "deepseek-llm", "starcoder"};
    (void)state;
    if (!has_assets()) skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024], folder[256];
        skv_gguf *gguf;
        skv_error err;
        (void)snprintf(path, sizeof path, ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-%s.gguf",
                       names[i]);
        assert_int_equal(skv_folder_create(group_folder_path(folder, names[i]), &err), SKV_OK);
        if (skv_gguf_open(path, &gguf, &err) != SKV_OK) fail_msg("%s", err.text);
        assert_int_equal(skv_tokenizer_keep(gguf, folder, &err), SKV_OK);
        skv_gguf_close(gguf);
        check_same(path, folder);
    }
}

/* check_same has what GGUF cannot say of these two: bytes that are no UTF-8 reach them as they are.
 */
static void test_published_as_gguf(void **state)
{
    static const char *const names[] = {"smollm2", "minimind", "gguf-vocabs/ggml-vocab-gpt-2.gguf",
                                        "gguf-vocabs/ggml-vocab-llama-spm.gguf",
                                        "gguf-vocabs/ggml-vocab-starcoder.gguf"};
    static const char *const texts[] = {"wiki.test.raw", "moby-dick.txt"};
    (void)state;
    if (!has_assets()) skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024], folder[256], name[32];
        (void)snprintf(path, sizeof path, ASSETS "/tokenizers/%s", names[i]);
        (void)snprintf(name, sizeof name, "as-gguf-%zu", i);
        convert(path, group_folder_path(folder, name));
        skv_vocab *a = open_vocab(path), *b = open_vocab(folder);
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            char *text;
            size_t n;
            skv_error err;
            (void)snprintf(path, sizeof path, ASSETS "/text/%s", texts[k]);
            assert_int_equal(skv_file_read(path, 1 << 28, &text, &n, &err), SKV_OK);
            check_text(a, b, text, n < 200000 ? n : 200000);
            skv_free(text);
        }
        skv_vocab_close(a);
        skv_vocab_close(b);
    }
}

static void test_stories(void **state)
{
    static const char *const texts[] = {"tinystories-b.txt", "wiki.test.raw", "moby-dick.txt"};
    (void)state;
    if (!has_assets()) skip();
    char folder[256];
    skv_error err;
    if (skv_transform(STORIES, group_folder_path(folder, "stories"), 3, 1, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    check_same(STORIES, folder);
    skv_vocab *a = open_vocab(STORIES), *b = open_vocab(folder);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char path[1024], *text;
        size_t n;
        (void)snprintf(path, sizeof path, ASSETS "/text/%s", texts[i]);
        assert_int_equal(skv_file_read(path, 1 << 28, &text, &n, &err), SKV_OK);
        check_text(a, b, text, n < 200000 ? n : 200000);
        skv_free(text);
    }
    skv_vocab_close(a);
    skv_vocab_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),    cmocka_unit_test(test_without_vocabulary),
        cmocka_unit_test(test_damaged),   cmocka_unit_test(test_published_vocabularies),
        cmocka_unit_test(test_stories),   cmocka_unit_test(test_as_gguf),
        cmocka_unit_test(test_as_gemma4), cmocka_unit_test(test_published_as_gguf),
    };
    return cmocka_run_group_tests_name("tokenizer keep", tests, group_folder_make,
                                       group_folder_drop);
}
