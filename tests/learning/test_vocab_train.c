/* Learning a vocabulary: known merges, and files that the tokenizer reads back. */
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
#include "skv/vocab_train.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/vocabulary/bpe_train.h"

static void assert_token(const skv_bpe_trainer *t, size_t i, const char *text)
{
    assert_true(256 + i < t->n_vocab);
    const skv_bpe_token *token = &t->vocab[256 + i];
    assert_int_equal(token->n, strlen(text));
    assert_memory_equal(t->spelling.data + token->at, text, token->n);
}

/* Words: "aaab" and " aaab" twice, " bb" once. a+a: 2 * 2 + 2 (the first word comes once), so it
 * is first; worked out by hand. */
static void merges_the_most_frequent(void **state)
{
    (void)state;
    skv_bpe_trainer t;
    assert_int_equal(skv_bpe_trainer_init(&t, 5, NULL), SKV_OK);
    const char text[] = "aaab aaab aaab bb12";
    assert_int_equal(skv_bpe_trainer_add(&t, text, sizeof text - 1, NULL), SKV_OK);
    assert_int_equal(t.n_words, 5); /* "aaab", " aaab", " bb", "1", "2" */
    assert_int_equal(skv_bpe_trainer_learn(&t, 300, NULL), SKV_OK);
    assert_token(&t, 0, "aa");
    assert_token(&t, 1, "ab"); /* aa|a|b: "ab" and "aaa" 3 times each; a has the lower id */
    assert_token(&t, 2, "aaab");
    assert_token(&t, 3, " aaab");
    assert_int_equal(t.n_vocab, 256 + 4); /* nothing else comes twice */
    assert_int_equal(skv_bpe_trainer_tokens(&t), 1 + 2 + 3 + 2);
    skv_bpe_trainer_release(&t);
}

static void make_folder(char folder[64])
{
    snprintf(folder, 64, "/tmp/skv-vocab-%ld", (long)getpid());
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < 2; i++) {
        char *path = skv_path_join(folder, names[i]);
        (void)unlink(path);
        skv_free(path);
    }
    (void)rmdir(folder);
}

static void train(const char *folder, skv_vocab_train_report *report)
{
    skv_documents_options documents = skv_documents_default();
    skv_vocab_train_options options = skv_vocab_train_default();
    options.size = 800;
    options.documents = &documents;
    options.n_documents = 60;
    skv_error err;
    assert_int_equal(skv_vocab_train(folder, &options, report, &err), SKV_OK);
}

static void check_text(const skv_tokenizer *t, const char *text)
{
    skv_ids ids = {0};
    skv_buf back;
    skv_buf_init(&back, 1 << 20);
    const skv_encode_options plain = {0};
    assert_int_equal(skv_tokenizer_encode(t, text, strlen(text), plain, &ids, NULL), SKV_OK);
    assert_int_equal(skv_tokenizer_decode(t, ids.data, ids.n, (skv_decode_options){0}, &back, NULL),
                     SKV_OK);
    assert_int_equal(back.size, strlen(text));
    assert_memory_equal(back.data, text, back.size);
    skv_buf_release(&back);
    skv_ids_release(&ids);
}

static void tokenizer_reads_the_files(void **state)
{
    (void)state;
    char folder[64];
    make_folder(folder);
    skv_vocab_train_report report;
    train(folder, &report);
    assert_int_equal(report.size, 800);
    skv_tokenizer *t = NULL;
    assert_int_equal(skv_tokenizer_open_folder(folder, &t, NULL), SKV_OK);
    assert_int_equal(skv_tokenizer_size(t), 800);
    assert_int_equal(skv_tokenizer_bos(t), 0);
    assert_int_equal(skv_tokenizer_eos(t), 1);
    assert_true(skv_tokenizer_is_special(t, 3));
    check_text(t, "line torpid-kid: REGISTER_CONTENT is <24169>\n");
    check_text(t, " \n\t\"Z\303\274rich\" 1/2 \345\244\251 \\");
    skv_ids ids = {0}; /* digits stand alone, and so do bytes that were never seen */
    const skv_encode_options both = {.add_special = true, .parse_special = true};
    assert_int_equal(skv_tokenizer_encode(t, "<|user|>24169<|end|>", 20, both, &ids, NULL), SKV_OK);
    assert_int_equal(ids.n, 8);
    assert_int_equal(ids.data[0], 0);
    assert_int_equal(ids.data[1], 2);
    assert_int_equal(ids.data[7], 1);
    skv_ids_release(&ids);
    skv_tokenizer_free(t);
    remove_folder(folder);
}

static void same_options_same_files(void **state)
{
    (void)state;
    char folder[64];
    make_folder(folder);
    char *text[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        train(folder, NULL);
        char *path = skv_path_join(folder, "tokenizer.json");
        assert_int_equal(skv_file_read(path, 1 << 24, &text[i], &n[i], NULL), SKV_OK);
        skv_free(path);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    skv_free(text[0]);
    skv_free(text[1]);
    remove_folder(folder);
}

static void refuses(void **state)
{
    (void)state;
    skv_error err;
    skv_vocab_train_options options = skv_vocab_train_default();
    assert_int_equal(skv_vocab_train("/nowhere", &options, NULL, &err), SKV_ARGUMENT); /* no text */
    options.size = 100;
    assert_int_equal(skv_vocab_train("/nowhere", &options, NULL, &err), SKV_RANGE);
    options = skv_vocab_train_default();
    const char *file = "/nowhere/text";
    options.files = &file;
    options.n_files = 1;
    assert_int_equal(skv_vocab_train("/nowhere", &options, NULL, &err), SKV_IO);
    assert_non_null(strstr(err.text, file));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_the_most_frequent),
        cmocka_unit_test(tokenizer_reads_the_files),
        cmocka_unit_test(same_options_same_files),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
