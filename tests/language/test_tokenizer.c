/*
 * The tokenizer against the original libraries: ids that `tokenizers`, `sentencepiece` and
 * llama.cpp gave (tools/fixtures/make_tokenizers.py, tools/checks/check_tokenizer.py, the GGUF
 * vocabularies' own suites), and what holds for every tokenizer: decoding gives the text back, in
 * pieces too.
 */
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
#include "base/utf8.h"
#include "format/gguf.h"
#include "open_tokenizer.h"

#define DATA SKV_TEST_DATA "/tokenizer/"

/* Unoptimised builds, the sanitizers' among them, look at every tenth text only. */
#ifdef NDEBUG
enum { TEXT_STEP = 1 };
#else
enum { TEXT_STEP = 10 };
#endif

static void encode(const skv_tokenizer *t, const char *text, size_t n, bool add, bool parse,
                   skv_ids *ids)
{
    skv_error err = {0};
    skv_encode_options options = {.add_special = add, .parse_special = parse};
    ids->n = 0;
    if (skv_tokenizer_encode(t, text, n, options, ids, &err) != SKV_OK) fail_msg("%s", err.text);
}

static void decode(const skv_tokenizer *t, const skv_ids *ids, skv_buf *out)
{
    skv_buf_clear(out);
    assert_int_equal(skv_tokenizer_decode(t, ids->data, ids->n,
                                          (skv_decode_options){.with_special = true}, out, NULL),
                     SKV_OK);
}

/* The stream's pieces are whole characters, and together what decoding at once gives. */
static void check_stream(const skv_tokenizer *t, const skv_ids *ids, const skv_buf *whole)
{
    skv_stream_decoder d;
    skv_buf out;
    skv_buf_init(&out, (size_t)1 << 28);
    skv_stream_decoder_init(&d, t, true);
    for (size_t i = 0; i < ids->n; i++) {
        size_t before = out.size;
        assert_int_equal(skv_stream_decoder_push(&d, ids->data[i], &out, NULL), SKV_OK);
        size_t n = out.size - before;
        assert_true(n == 0 || skv_utf8_valid(out.data + before, n, NULL));
    }
    assert_int_equal(skv_stream_decoder_finish(&d, &out, NULL), SKV_OK);
    assert_int_equal(out.size, whole->size);
    if (out.size > 0) assert_memory_equal(out.data, whole->data, out.size);
    skv_buf_release(&out);
}

/* Reads "12 34 56" up to `end`; compares with the ids. */
static void check_ids(const char *name, size_t line, const char *at, char end, const skv_ids *ids)
{
    size_t n = 0;
    while (*at != end && *at != '\0') {
        char *next;
        long id = strtol(at, &next, 10);
        if (next == at) break;
        if (n >= ids->n || ids->data[n] != id) {
            fail_msg("%s, case %zu: id %zu is %d, expected %ld", name, line, n,
                     n < ids->n ? (int)ids->data[n] : -1, id);
        }
        n++;
        at = next;
        while (*at == ' ') at++;
    }
    if (n != ids->n) fail_msg("%s, case %zu: %zu ids, expected %zu", name, line, ids->n, n);
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void check_gold_line(const skv_tokenizer *t, const char *name, size_t i, const char *line)
{
    const char *bar = strchr(line, '|'), *second = strchr(bar + 1, '|');
    size_t n = (size_t)(bar - line) / 2;
    char *text = skv_alloc(n + 1, 1);
    skv_ids ids = {0};
    skv_buf back;
    skv_buf_init(&back, 1 << 20);
    for (size_t k = 0; k < n; k++) text[k] = (char)(hex(line[2 * k]) * 16 + hex(line[2 * k + 1]));
    encode(t, text, n, false, true, &ids);
    check_ids(name, i, bar + 1, '|', &ids);
    decode(t, &ids, &back);
    check_stream(t, &ids, &back);
    encode(t, text, n, true, false, &ids);
    check_ids(name, i, second + 1, '\0', &ids);
    skv_buf_release(&back);
    skv_ids_release(&ids);
    skv_free(text);
}

static void check_gold(const char *name, const char *extension)
{
    char path[1024], *data;
    size_t n, i = 0;
    (void)snprintf(path, sizeof path, DATA "%s.%s", name, extension);
    skv_tokenizer *t = open_path(path);
    (void)snprintf(path, sizeof path, DATA "%s.gold", name);
    assert_int_equal(skv_file_read(path, (size_t)1 << 28, &data, &n, NULL), SKV_OK);
    for (char *line = data; *line != '\0'; i++) {
        char *end = strchr(line, '\n');
        *end = '\0';
        check_gold_line(t, name, i, line);
        line = end + 1;
    }
    assert_true(i > 150);
    skv_free(data);
    skv_tokenizer_free(t);
}

static void test_gold_json(void **state)
{
    static const char *const names[] = {"gpt2",   "llama3",    "qwen2",  "o200k", "deepseek",
                                        "falcon", "metaspace", "gemma4", "words"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_gold(names[i], "json");
}

static void test_gold_spm(void **state)
{
    static const char *const names[] = {"spm_bpe", "spm_nfkc", "spm_unigram", "spm_suffix"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_gold(names[i], "model");
}

/* A run of blanks that a user has defined is one piece wherever it stands, as other such pieces
 * are. "  " is no such run: its blanks are spelt otherwise in a normalised text. */
static void test_user_defined_unigrams(void **state)
{
    (void)state;
    static const char text[] = "a   b<code>the   x</code>\n\n   ";
    static const int32_t expected[] = {5, 6, 5, 7, 8, 5}; /* of the pieces that a user defined */
    skv_tokenizer *t = open_path(DATA "spm_user_defined.model");
    skv_ids ids = {0};
    skv_buf back;
    size_t n = 0;
    encode(t, text, sizeof text - 1, false, false, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.data[i] < 3 || ids.data[i] > 8) continue;
        assert_true(n < 6);
        assert_int_equal(ids.data[i], expected[n++]);
    }
    assert_int_equal(n, 6);
    skv_buf_init(&back, 1 << 10);
    decode(t, &ids, &back);
    assert_int_equal(back.size, sizeof text - 1);
    assert_memory_equal(back.data, text, sizeof text - 1);
    skv_buf_release(&back);
    skv_ids_release(&ids);
    skv_tokenizer_free(t);
}

/* What SentencePiece 0.2.3 makes of texts where a run competes with longer words, or where
 * spellings have one score but for its rounding. */
static void test_user_defined_unigrams_compete(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t ids[6];
        size_t n;
    } cases[] = {{"x   code", {390, 5, 314, 304, 532}, 5},
                 {"x  code", {390, 265, 357, 532}, 4},
                 {"       \xe6\xbc\xa2", {5, 5, 265, 239, 197, 171}, 6},
                 {"     ", {265, 265, 5}, 3},
                 {"</code></code>    ", {7, 7, 265, 5}, 4},
                 {"    </code>", {265, 5, 7}, 3}};
    skv_tokenizer *t = open_path(DATA "spm_user_defined.model");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_ids ids = {0};
        encode(t, cases[i].text, strlen(cases[i].text), false, false, &ids);
        assert_int_equal(ids.n, cases[i].n);
        assert_memory_equal(ids.data, cases[i].ids, ids.n * sizeof *ids.data);
        skv_ids_release(&ids);
    }
    skv_tokenizer_free(t);
}

static void test_gold_gguf(void **state)
{
    (void)state;
    check_gold("gemma4", "gguf");
}

/* A vocabulary of the folder gguf-vocabs with llama.cpp's own cases. */
static void check_gguf(const char *name)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[1024], *inputs, *outputs;
    size_t n, i = 0;
    skv_error err = {0};
    skv_gguf *gguf;
    skv_tokenizer *t = NULL;
    skv_ids ids = {0};
    (void)snprintf(path, sizeof path, SKV_TEST_ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-%s.gguf",
                   name);
    if (skv_gguf_open(path, &gguf, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_tokenizer_open_gguf(gguf, &t, &err) != SKV_OK) fail_msg("%s", err.text);
    (void)snprintf(path + strlen(path), sizeof path - strlen(path), ".inp");
    assert_int_equal(skv_file_read(path, 1 << 20, &inputs, &n, &err), SKV_OK);
    memcpy(path + strlen(path) - 4, ".out", 4);
    assert_int_equal(skv_file_read(path, 1 << 20, &outputs, &n, &err), SKV_OK);
    char *expected = outputs;
    for (char *text = inputs; text; i++) {
        char *end = strstr(text, separator), *line_end = strchr(expected, '\n');
        size_t n_text = end ? (size_t)(end - text) : strlen(text);
        if (line_end) *line_end = '\0';
        for (int parse = 0; parse < 2; parse++) {
            encode(t, text, n_text, false, parse != 0, &ids);
            check_ids(name, i, expected, '\0', &ids);
        }
        text = end ? end + strlen(separator) : NULL;
        expected = line_end ? line_end + 1 : expected + strlen(expected);
    }
    assert_true(i > 40);
    skv_ids_release(&ids);
    skv_free(inputs);
    skv_free(outputs);
    skv_tokenizer_free(t);
    skv_gguf_close(gguf);
}

static bool has_assets(void)
{
    if (skv_file_is_folder(SKV_TEST_ASSETS "/tokenizers")) return true;
    (void)printf("skipped: no " SKV_TEST_ASSETS "/tokenizers\n");
    return false;
}

static void test_gguf_vocabs(void **state)
{
    static const char *const names[] = {"llama-spm", "phi-3", "gpt-2", "deepseek-llm", "starcoder"};
    (void)state;
    if (!has_assets()) skip();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_gguf(names[i]);
}

static uint64_t fnv1a(const skv_ids *ids)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < ids->n; i++) {
        for (int k = 0; k < 4; k++) {
            value = (value ^ ((uint32_t)ids->data[i] >> 8 * k & 0xff)) * 0x100000001b3u;
        }
    }
    return value;
}

/* A vocabulary without tokens for all bytes cannot give every text back. */
static bool has_unknown(const skv_tokenizer *t, const skv_ids *ids)
{
    int32_t unk = skv_tokenizer_find(t, "<unk>", 5);
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->data[i] == unk) return true;
    }
    return false;
}

static void check_text(const skv_tokenizer *t, const char *name, const char *file, size_t n_ids,
                       uint64_t hash)
{
    char path[1024], *text;
    size_t n;
    skv_ids ids = {0};
    skv_buf back;
    skv_buf_init(&back, (size_t)1 << 28);
    (void)snprintf(path, sizeof path, SKV_TEST_ASSETS "/text/%s", file);
    if (skv_file_read(path, (size_t)1 << 28, &text, &n, NULL) != SKV_OK) fail_msg("%s", path);
    encode(t, text, n, false, true, &ids);
    if (ids.n != n_ids || fnv1a(&ids) != hash) fail_msg("%s on %s: other ids", name, file);
    decode(t, &ids, &back);
    check_stream(t, &ids, &back);
    /* OpenLLaMA's merges runs of spaces. */
    if (strcmp(name, "openllama") != 0 && !has_unknown(t, &ids)) {
        if (back.size != n) fail_msg("%s on %s: %zu bytes, not %zu", name, file, back.size, n);
        assert_memory_equal(back.data, text, n);
    }
    skv_buf_release(&back);
    skv_ids_release(&ids);
    skv_free(text);
}

static skv_tokenizer *open_asset(const char *name)
{
    static const char *const paths[][2] = {
        {"smollm2", "/tokenizers/smollm2/tokenizer.json"},
        {"minimind", "/tokenizers/minimind/tokenizer.json"},
        {"tinystories-656k", "/models/tinystories-656k/tokenizer.json"},
        {"openllama", "/tokenizers/openllama/tokenizer.model"},
    };
    char path[1024];
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (strcmp(paths[i][0], name) != 0) continue;
        (void)snprintf(path, sizeof path, SKV_TEST_ASSETS "%s", paths[i][1]);
        return open_path(path);
    }
    fail_msg("no tokenizer %s", name);
    return NULL;
}

/* hashes.txt: tokenizer, text, number of ids, hash of the ids; those of a tokenizer together. */
static void test_hashes(void **state)
{
    char *data, last[64] = "";
    size_t n, n_lines = 0;
    skv_tokenizer *t = NULL;
    (void)state;
    if (!has_assets()) skip();
    assert_int_equal(skv_file_read(DATA "hashes.txt", 1 << 20, &data, &n, NULL), SKV_OK);
    for (char *line = data; *line != '\0'; n_lines++) {
        char *file = strchr(line, ' '), *rest, *end = strchr(line, '\n');
        *file++ = '\0';
        *end = '\0';
        rest = strchr(file, ' ');
        *rest++ = '\0';
        if (n_lines % TEXT_STEP == 0) {
            if (strcmp(last, line) != 0) {
                skv_tokenizer_free(t);
                t = open_asset(line);
                (void)snprintf(last, sizeof last, "%s", line);
            }
            size_t n_ids = strtoul(rest, &rest, 10);
            check_text(t, line, file, n_ids, strtoull(rest, NULL, 16));
        }
        line = end + 1;
    }
    assert_true(n_lines > 20);
    skv_tokenizer_free(t);
    skv_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gold_json),
        cmocka_unit_test(test_gold_spm),
        cmocka_unit_test(test_gold_gguf),
        cmocka_unit_test(test_gguf_vocabs),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_user_defined_unigrams),
        cmocka_unit_test(test_user_defined_unigrams_compete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
