/*
 * Tokenizer files that are wrong, configuration beside them, and memory that runs out: one line
 * of error, nothing leaked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "text/tokenizer.h"

#define DATA SKV_TEST_DATA "/tokenizer/"

#define MODEL(vocab, merges)                                                                       \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define ABC "\"a\":0,\"b\":1,\"ab\":2"

static void refuse(const char *json, skv_status expected, const char *says)
{
    skv_tokenizer *t = NULL;
    skv_error err = {0};
    skv_status status = skv_tokenizer_parse_json(json, strlen(json), NULL, 0, "file", &t, &err);
    if (status != expected || !strstr(err.text, says)) {
        fail_msg("%s: status %d, '%s', expected %d, '%s'", json, status, err.text, expected, says);
    }
    assert_null(t);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("", SKV_FORMAT, "file");
    refuse("[]", SKV_UNSUPPORTED, "model");
    refuse("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", SKV_UNSUPPORTED, "WordPiece");
    refuse(MODEL("\"a\":-1", "") "}", SKV_FORMAT, "entry 1");
    refuse(MODEL("\"a\":2147483648", "") "}", SKV_FORMAT, "entry 1");
    refuse(MODEL("\"a\":1.5", "") "}", SKV_FORMAT, "entry 1");
    refuse(MODEL("\"a\":99999999", "") "}", SKV_RANGE, "99999999");
    refuse(MODEL("\"a\":0,\"b\":0", "") "}", SKV_FORMAT, "twice");
    refuse(MODEL("\"a\":0,\"a\":1", "") "}", SKV_FORMAT, "twice");
    refuse(MODEL("\"\\ud800\":0", "") "}", SKV_FORMAT, "entry 1");
    refuse(MODEL(ABC, "\"a c\"") "}", SKV_FORMAT, "'c'");
    refuse(MODEL(ABC, "\"b a\"") "}", SKV_FORMAT, "'ba'");
    refuse(MODEL(ABC, "\"ab\"") "}", SKV_FORMAT, "no space");
    refuse(MODEL(ABC, "[\"a\"]") "}", SKV_FORMAT, "merges");
    refuse(MODEL(ABC, "\"a b\"") ",\"normalizer\":{\"type\":\"Bert\"}}", SKV_UNSUPPORTED, "Bert");
    refuse(MODEL(ABC, "") ",\"pre_tokenizer\":{\"type\":\"Odd\"}}", SKV_UNSUPPORTED, "Odd");
    refuse(MODEL(ABC, "") ",\"decoder\":{\"type\":\"CTC\"}}", SKV_UNSUPPORTED, "CTC");
    refuse(MODEL(ABC, "") ",\"post_processor\":{\"type\":\"Odd\"}}", SKV_UNSUPPORTED, "Odd");
    refuse(MODEL(ABC, "") ",\"added_tokens\":[{\"id\":7,\"content\":\"a\"}]}", SKV_FORMAT, "7");
    refuse(MODEL(ABC, "") ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
                          "\"invert\":false,\"pattern\":{\"Regex\":\"[a&&b]\"}}}",
           SKV_UNSUPPORTED, "class operations");
    refuse(MODEL(ABC, "") ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
                          "\"invert\":false,\"pattern\":{\"Regex\":\"(\"}}}",
           SKV_UNSUPPORTED, "regular expression");
}

static void test_refused_spm(void **state)
{
    static const char *const files[] = {"",
                                        "\x0a",
                                        "\x0a\x05\x0a\x07",
                                        "not a model",
                                        "\x0a\x03\x0a\x01x",
                                        "\x0a\x03\x0a\x01x\x0a\x03\x0a\x01x"};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        skv_tokenizer *t = NULL;
        skv_error err = {0};
        skv_status status = skv_tokenizer_parse_spm(files[i], strlen(files[i]), "file", &t, &err);
        assert_int_equal(status, SKV_FORMAT);
        assert_non_null(strstr(err.text, "file"));
        assert_null(t);
    }
}

static void test_config(void **state)
{
    static const char json[] = MODEL(ABC, "\"a b\"") "}";
    static const char config[] =
        "{\"bos_token\":\"a\",\"eos_token\":{\"content\":\"ab\"},\"model_max_length\":"
        "1000000000000000019884624838656,\"chat_template\":[{\"name\":\"tool_use\","
        "\"template\":\"x\"},{\"name\":\"default\",\"template\":\"y\"}]}";
    skv_tokenizer *t = NULL;
    skv_error err = {0};
    (void)state;
    skv_status status =
        skv_tokenizer_parse_json(json, strlen(json), config, strlen(config), "file", &t, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_tokenizer_bos(t), 0);
    assert_int_equal(skv_tokenizer_eos(t), 2);
    assert_string_equal(skv_tokenizer_chat_template(t), "y");
    assert_int_equal(skv_tokenizer_size(t), 3);
    assert_int_equal(skv_tokenizer_find(t, "ab", 2), 2);
    assert_int_equal(skv_tokenizer_find(t, "ba", 2), -1);
    size_t n;
    assert_memory_equal(skv_tokenizer_text(t, 1, &n), "b", 1);
    assert_null(skv_tokenizer_text(t, 3, &n));
    assert_null(skv_tokenizer_text(t, -1, &n));
    skv_tokenizer_free(t);
}

static void test_folder_without(void **state)
{
    skv_tokenizer *t = NULL;
    (void)state;
    assert_int_equal(skv_tokenizer_open_folder(SKV_TEST_DATA, &t, NULL), SKV_OK);
    assert_null(t);
}

/* A word of a megabyte, and a megabyte of marks, are no trouble. */
static void test_long_words(void **state)
{
    static const char *const names[] = {DATA "gpt2.json", DATA "qwen2.json", DATA "metaspace.json"};
    static const char *const units[] = {"a", "the", "\xcc\x81\xcc\xa7", "\xe4\xb8\x96"};
    enum { LONG = 1 << 18 };
    char *text = skv_alloc(LONG, 1), *json;
    size_t n;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        skv_tokenizer *t = NULL;
        assert_int_equal(skv_file_read(names[i], 1 << 24, &json, &n, NULL), SKV_OK);
        assert_int_equal(skv_tokenizer_parse_json(json, n, NULL, 0, "file", &t, NULL), SKV_OK);
        skv_free(json);
        for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
            skv_ids ids = {0};
            skv_encode_options options = {0};
            size_t unit = strlen(units[k]), used = LONG / unit * unit;
            for (size_t at = 0; at < used; at++) text[at] = units[k][at % unit];
            assert_int_equal(skv_tokenizer_encode(t, text, used, options, &ids, NULL), SKV_OK);
            assert_true(ids.n > 0);
            skv_ids_release(&ids);
        }
        skv_tokenizer_free(t);
    }
    skv_free(text);
}

typedef struct file {
    char *data;
    size_t n;
    bool is_json;
} file;

/* Opens, encodes and decodes. */
static bool use_all(void *arg)
{
    static const char text[] = "The Quick  brown 123 <s> \xc3\xa9\xcc\x81 \xe4\xb8\x96";
    const file *f = arg;
    skv_tokenizer *t = NULL;
    skv_ids ids = {0};
    skv_buf back;
    skv_encode_options options = {.add_special = true, .parse_special = true};
    skv_buf_init(&back, 1 << 16);
    skv_status status = f->is_json
                            ? skv_tokenizer_parse_json(f->data, f->n, NULL, 0, "file", &t, NULL)
                            : skv_tokenizer_parse_spm(f->data, f->n, "file", &t, NULL);
    if (status == SKV_OK) {
        status = skv_tokenizer_encode(t, text, sizeof text - 1, options, &ids, NULL);
    }
    if (status == SKV_OK)
        status = skv_tokenizer_decode(t, ids.data, ids.n,
                                      (skv_decode_options){.with_special = true}, &back, NULL);
    skv_buf_release(&back);
    skv_ids_release(&ids);
    skv_tokenizer_free(t);
    return status == SKV_OK;
}

static void test_memory_runs_out(void **state)
{
    static const char *const names[] = {DATA "metaspace.json", DATA "deepseek.json",
                                        DATA "words.json", DATA "spm_bpe.model",
                                        DATA "spm_unigram.model"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        file f = {.is_json = strstr(names[i], ".json")};
        assert_int_equal(skv_file_read(names[i], 1 << 24, &f.data, &f.n, NULL), SKV_OK);
        size_t n = alloc_fail_each(use_all, &f, true);
        assert_true(n > 5 && n != SIZE_MAX);
        skv_free(f.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_refused_spm),
        cmocka_unit_test(test_config),     cmocka_unit_test(test_folder_without),
        cmocka_unit_test(test_long_words), cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
