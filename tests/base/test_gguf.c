/* GGUF: a valid file read back, malformed ones refused with a reason, every truncation of one;
 * files in parts. */
#define _XOPEN_SOURCE 700 /* temp_folder.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "bytes_script.h"
#include "format/gguf.h"
#include "temp_folder.h"

/* Value types by number: 0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 f32, 7 bool, 8 string,
 * 9 array, 10 u64, 11 i64, 12 f64. Element types: 0 F32, 8 Q8_0. */
#define VALID                                                                                      \
    "r:GGUF 4:3 8:2 8:13 "                                                                         \
    "s:u8 4:0 b:200 s:i8 4:1 b:0xfe s:u16 4:2 b:1 b:2 s:i16 4:3 b:0xff b:0xff "                    \
    "s:u32 4:4 4:4000000000 s:i32 4:5 4:0xffffffff s:f32 4:6 4:0x3fc00000 s:yes 4:7 b:1 "          \
    "s:text 4:8 s:hello s:u64 4:10 8:0xffffffffffffffff s:i64 4:11 8:0xfffffffffffffff0 "          \
    "s:words 4:9 4:8 8:3 s:one s: s:three s:ids 4:9 4:5 8:2 4:7 4:0xffffffff "                     \
    "s:a.weight 4:2 8:4 8:2 4:0 8:0 s:q 4:1 8:32 4:8 8:32 "                                        \
    "p:32 4:0x3f800000 4:0x40000000 z:24 z:34"

typedef struct gguf_case {
    const char *script;
    const char *expected; /* part of the error */
} gguf_case;

static const gguf_case malformed[] = {
    {"", "magic"},
    {"r:GGU", "magic"},
    {"r:GGML 4:3 8:0 8:0", "not a GGUF file"},
    {"r:GGUF 4:1 8:0 8:0", "version 1"},
    {"r:GGUF 4:4 8:0 8:0", "version 4"},
    {"r:GGUF 4:0x03000000 8:0 8:0", "version 50331648"}, /* big endian */
    {"r:GGUF 4:3 8:0", "key count"},
    /* Counts that the bytes left cannot hold. */
    {"r:GGUF 4:3 8:0xffffffffffffffff 8:0", "tensor count"},
    {"r:GGUF 4:3 8:0x7fffffffffffffff 8:0", "tensor count"},
    {"r:GGUF 4:3 8:1 8:0", "tensor count"},
    {"r:GGUF 4:3 8:0 8:0xffffffffffffffff", "key count"},
    {"r:GGUF 4:3 8:0 8:2 s:k 4:0 b:1", "key count"},
    {"r:GGUF 4:3 8:0 8:2 s:k 4:0 b:1 z:20", "key: 0 bytes"},
    /* Keys. */
    {"r:GGUF 4:3 8:0 8:1 8:0xfffffffffffffff8 z:20", "key: 18446744073709551608 is too large"},
    {"r:GGUF 4:3 8:0 8:1 8:100 r:short z:20", "key: 100 bytes, the file has 25 more"},
    {"r:GGUF 4:3 8:0 8:1 8:2000 z:2100", "key: 2000 bytes long"},
    {"r:GGUF 4:3 8:0 8:1 8:2 r:a z:1 4:0 b:1", "a zero byte"},
    {"r:GGUF 4:3 8:0 8:2 s:same 4:0 b:1 s:same 4:0 b:2", "key same appears twice"},
    /* Values. */
    {"r:GGUF 4:3 8:0 8:1 s:key 4:13 z:20", "key: value type 13"},
    {"r:GGUF 4:3 8:0 8:1 s:key 4:0xffffffff z:20", "value type 4294967295"},
    {"r:GGUF 4:3 8:0 8:1 s:keys 4:10 4:1", "keys: 8 bytes, the file has 4 more"},
    {"r:GGUF 4:3 8:0 8:1 s:yes 4:7 b:2", "yes: 2, expected false or true"},
    {"r:GGUF 4:3 8:0 8:1 s:text 4:8 8:10 r:short", "text: 10 bytes, the file has 5 more"},
    {"r:GGUF 4:3 8:0 8:1 s:text 4:8 8:0xffffffffffffffff r:x", "too large"},
    /* Arrays. */
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:9 8:1 4:0 8:1 b:1", "arrays of arrays"},
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:99 8:1", "list: value type 99"},
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:4 8:0x4000000000000001 4:0", "list: 4611686018427387905"},
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:4 8:3 4:0 4:0", "list: 3, the file has 8 more"},
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:8 8:0xffffffff s:a", "list: 4294967295"},
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:8 8:2 s:ab 8:9 r:x", "list: 9 bytes"},
    {"r:GGUF 4:3 8:0 8:1 s:list 4:9 4:8 8:2 s:a 8:0xfffffffffffffff0 r:x", "too large"},
    /* Alignment. */
    {"r:GGUF 4:3 8:0 8:1 s:general.alignment 4:4 4:0", "general.alignment: 0"},
    {"r:GGUF 4:3 8:0 8:1 s:general.alignment 4:4 4:48", "general.alignment: 48"},
    {"r:GGUF 4:3 8:0 8:1 s:general.alignment 4:4 4:131072", "general.alignment: 131072"},
    {"r:GGUF 4:3 8:0 8:1 s:general.alignment 4:10 8:0x8000000000000000", "general.alignment"},
    {"r:GGUF 4:3 8:0 8:1 s:general.alignment 4:8 s:32", "type STRING, expected an integer"},
    {"r:GGUF 4:3 8:0 8:1 s:general.alignment 4:5 4:0xffffffe0", "is negative"},
    /* Tensors. */
    {"r:GGUF 4:3 8:1 8:0 s: 4:1 8:8 4:0 8:0 z:64", "tensor name: 0 bytes"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:0 4:0 8:0 z:64", "t: 0 dimensions"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:5 8:1 8:1 8:1 8:1 8:1 4:0 8:0 z:64", "t: 5 dimensions"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:0xffffffff 8:1 4:0 8:0 z:64", "t: 4294967295 dimensions"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:2 8:8 8:0 4:0 8:0 z:64", "t: a dimension is 0"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:2 8:0x100000000 8:0x100000000 4:0 8:0 z:64", "does not fit"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:2 8:0x4000000000000000 8:1 4:0 8:0 z:64", "does not fit"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:4 8:0x40000001 8:0x40000001 8:32 8:8 4:0 8:0 z:64", "not fit"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:0xffffffffffffffff 4:0 8:0 z:64", "too large"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:33 4:8 8:0 z:64", "rows of 33 elements are not a multiple"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:2 8:16 8:2 4:8 8:0 z:64", "rows of 16 elements"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:256 4:16 8:0 z:64", "IQ2_XXS) is not supported"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:4 4:26 8:0 z:64", "I32) is not supported"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:4 4:4 8:0 z:64", "element type 4 (unknown)"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:4 4:0xffffffff 8:0 z:64", "element type 4294967295"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:8 4:0 8:8 z:96", "offset 8 is not a multiple of 32"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:8 4:0 8:32 p:32 z:32", "lie outside the 32 bytes"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:9 4:0 8:0 p:32 z:32", "lie outside"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:8 4:0 8:0xffffffffffffffe0 p:32 z:32", "too large"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:8 4:0 8:0x7fffffffffffffe0 p:32 z:32", "lie outside"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:1 4:0 8:0", "lie outside the 0 bytes"},
    {"r:GGUF 4:3 8:2 8:0 s:t 4:1 8:8 4:0 8:0 s:t 4:1 8:8 4:0 8:32 p:32 z:64",
     "tensor t appears twice"},
    {"r:GGUF 4:3 8:2 8:0 s:t 4:1 8:9 4:0 8:0 s:u 4:1 8:8 4:0 8:32 p:32 z:64",
     "tensors t and u overlap"},
    {"r:GGUF 4:3 8:2 8:0 s:t 4:1 8:8 4:0 8:32 s:u 4:1 8:8 4:0 8:32 p:32 z:64", "overlap"},
    {"r:GGUF 4:3 8:1 8:0 s:t 4:1 8:8", "tensor count"},
};

static void refuses_malformed_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        skv_buf b;
        skv_buf_init(&b, 1 << 16);
        bytes_script(&b, malformed[i].script);
        void *exact = bytes_exact(b.data, b.size);
        skv_gguf *g = NULL;
        skv_error err;
        skv_status status = skv_gguf_parse(exact, b.size, "test.gguf", &g, &err);
        if (status == SKV_OK || g) fail_msg("accepted: %s", malformed[i].script);
        if (strncmp(err.text, "test.gguf: ", 11) != 0 || !strstr(err.text, malformed[i].expected)) {
            fail_msg("%s\n  says %s\n  expected %s", malformed[i].script, err.text,
                     malformed[i].expected);
        }
        free(exact);
        skv_buf_release(&b);
    }
}

static void check_integers(const skv_gguf *g)
{
    static const struct {
        const char *key;
        int64_t value;
    } cases[] = {{"u8", 200},         {"i8", -2},  {"u16", 513}, {"i16", -1},
                 {"u32", 4000000000}, {"i32", -1}, {"i64", -16}};
    skv_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const skv_gguf_value *v = skv_gguf_find(g, cases[i].key);
        assert_non_null(v);
        int64_t value = 0;
        uint64_t natural = 7;
        double real = 0;
        assert_int_equal(skv_gguf_i64(v, &value, &err), SKV_OK);
        assert_true(value == cases[i].value);
        assert_int_equal(skv_gguf_u64(v, &natural, &err), value < 0 ? SKV_FORMAT : SKV_OK);
        assert_true(natural == (value < 0 ? 7 : (uint64_t)value));
        assert_int_equal(skv_gguf_f64(v, &real, &err), SKV_OK);
        assert_true(real == (double)value);
        bool yes;
        assert_int_equal(skv_gguf_bool(v, &yes, &err), SKV_FORMAT);
        assert_non_null(strstr(err.text, "expected BOOL"));
    }
    const skv_gguf_value *v = skv_gguf_find(g, "u64");
    uint64_t natural = 0;
    int64_t value = 7;
    assert_int_equal(skv_gguf_u64(v, &natural, &err), SKV_OK);
    assert_true(natural == UINT64_MAX);
    assert_int_equal(skv_gguf_i64(v, &value, &err), SKV_FORMAT);
    assert_int_equal(value, 7);
}

static void check_arrays(const skv_gguf *g)
{
    skv_error err;
    size_t count = 0, n = 0;
    const skv_gguf_value *words = skv_gguf_find(g, "words"), *ids = skv_gguf_find(g, "ids");
    assert_int_equal(skv_gguf_array(words, SKV_GGUF_STRING, &count, &err), SKV_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(skv_gguf_string_at(words, 0, &n), "one", 3);
    assert_int_equal(n, 3);
    skv_gguf_string_at(words, 1, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(skv_gguf_string_at(words, 2, &n), "three", 5);
    assert_int_equal(n, 5);
    assert_int_equal(skv_gguf_array(ids, SKV_GGUF_I32, &count, &err), SKV_OK);
    assert_int_equal(count, 2);
    assert_int_equal(skv_gguf_i32_at(ids, 0), 7);
    assert_int_equal(skv_gguf_i32_at(ids, 1), -1);
    assert_true(skv_gguf_integer_at(ids, 1) == -1);
    assert_int_equal(skv_gguf_array(ids, SKV_GGUF_F32, &count, &err), SKV_FORMAT);
    assert_non_null(strstr(err.text, "array of I32, expected an array of F32"));
    assert_int_equal(skv_gguf_array(skv_gguf_find(g, "u8"), SKV_GGUF_U8, &count, &err), SKV_FORMAT);
}

static void reads_a_valid_file(void **state)
{
    (void)state;
    skv_buf b;
    skv_buf_init(&b, 1 << 16);
    bytes_script(&b, VALID);
    for (unsigned version = 2; version <= 3; version++) {
        b.data[4] = (char)version;
        skv_gguf *g = NULL;
        skv_error err = {0};
        if (skv_gguf_parse(b.data, b.size, "test.gguf", &g, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        assert_string_equal(skv_gguf_name(g), "test.gguf");
        assert_int_equal(skv_gguf_count(g), 13);
        assert_string_equal(skv_gguf_at(g, 0)->key, "u8");
        assert_null(skv_gguf_find(g, "u"));
        check_integers(g);
        check_arrays(g);
        const char *text;
        size_t n;
        bool yes = false;
        double real = 0;
        assert_int_equal(skv_gguf_string(skv_gguf_find(g, "text"), &text, &n, &err), SKV_OK);
        assert_int_equal(n, 5);
        assert_memory_equal(text, "hello", 5);
        assert_int_equal(skv_gguf_string(skv_gguf_find(g, "f32"), &text, &n, &err), SKV_FORMAT);
        assert_int_equal(skv_gguf_bool(skv_gguf_find(g, "yes"), &yes, &err), SKV_OK);
        assert_true(yes);
        assert_int_equal(skv_gguf_f64(skv_gguf_find(g, "f32"), &real, &err), SKV_OK);
        assert_true(real == 1.5);

        assert_int_equal(skv_gguf_tensor_count(g), 2);
        const skv_tensor *t = skv_gguf_tensor_find(g, "a.weight");
        assert_non_null(t);
        assert_int_equal(t->dims[0], 2); /* the file lists the innermost first */
        assert_int_equal(t->dims[1], 4);
        float row[4];
        skv_tensor_read_rows(t, 0, 1, row);
        assert_true(row[0] == 1.0F && row[1] == 2.0F && row[2] == 0.0F);
        assert_ptr_equal(skv_gguf_tensor_at(g, 1), skv_gguf_tensor_find(g, "q"));
        assert_null(skv_gguf_tensor_find(g, "b"));
        skv_gguf_close(g);
    }
    skv_buf_release(&b);
}

/* Everything that a file offers lies inside it. */
static void touch(const skv_gguf *g, const unsigned char *data, size_t n)
{
    for (size_t i = 0; i < skv_gguf_count(g); i++) {
        const skv_gguf_value *v = skv_gguf_at(g, i);
        for (size_t j = 0; v->type == SKV_GGUF_ARRAY && j < v->count; j++) {
            size_t length = 0;
            if (v->element == SKV_GGUF_STRING) {
                const char *text = skv_gguf_string_at(v, j, &length);
                assert_true((const unsigned char *)text + length <= data + n);
            } else if (v->element != SKV_GGUF_F32 && v->element != SKV_GGUF_F64) {
                (void)skv_gguf_integer_at(v, j);
            }
        }
    }
    for (size_t i = 0; i < skv_gguf_tensor_count(g); i++) {
        const skv_tensor *t = skv_gguf_tensor_at(g, i);
        assert_true(t->data >= data && t->n_bytes <= n &&
                    (size_t)(t->data - data) <= n - t->n_bytes);
    }
}

static void every_truncation_and_bit_is_safe(void **state)
{
    (void)state;
    skv_buf b;
    skv_buf_init(&b, 1 << 16);
    bytes_script(&b, VALID);
    for (size_t n = 0; n < b.size; n++) { /* the last tensor ends with the file */
        unsigned char *exact = bytes_exact(b.data, n);
        skv_gguf *g = NULL;
        skv_error err = {0};
        assert_int_not_equal(skv_gguf_parse(exact, n, "t", &g, &err), SKV_OK);
        assert_true(err.text[0]);
        free(exact);
    }
    unsigned char *exact = bytes_exact(b.data, b.size);
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        exact[bit / 8] ^= (unsigned char)(1u << bit % 8);
        skv_gguf *g = NULL;
        if (skv_gguf_parse(exact, b.size, "t", &g, NULL) == SKV_OK) touch(g, exact, b.size);
        skv_gguf_close(g);
        exact[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(exact);
    skv_buf_release(&b);
}

static bool parse_once(void *arg)
{
    const skv_buf *b = arg;
    skv_gguf *g = NULL;
    bool ok = skv_gguf_parse(b->data, b->size, "t", &g, NULL) == SKV_OK;
    skv_gguf_close(g);
    return ok;
}

static void survives_every_failed_allocation(void **state)
{
    (void)state;
    skv_buf b;
    skv_buf_init(&b, 1 << 16);
    bytes_script(&b, VALID);
    size_t n = alloc_fail_each(parse_once, &b, false);
    assert_true(n > 10 && n != SIZE_MAX);
    skv_buf_release(&b);
}

static void an_empty_file_is_fine(void **state)
{
    (void)state;
    skv_buf b;
    skv_buf_init(&b, 1 << 10);
    bytes_script(&b, "r:GGUF 4:3 8:0 8:0");
    skv_gguf *g = NULL;
    assert_int_equal(skv_gguf_parse(b.data, b.size, "t", &g, NULL), SKV_OK);
    assert_int_equal(skv_gguf_count(g) + skv_gguf_tensor_count(g), 0);
    assert_null(skv_gguf_find(g, "general.architecture"));
    assert_null(skv_gguf_tensor_find(g, "x"));
    skv_gguf_close(g);
    skv_buf_release(&b);
    skv_error err;
    assert_int_equal(skv_gguf_open("/nonexistent/x.gguf", &g, &err), SKV_IO);
}

/* ---- files in parts ---- */

enum { PATH_BYTES = 4200 };

/* Part i of n in the folder, with one tensor "t<i>" but in the first. */
static void write_part(const char *folder, unsigned i, unsigned n, unsigned said_no,
                       unsigned n_tensors)
{
    char path[PATH_BYTES], script[400];
    skv_buf b;
    skv_buf_init(&b, 1 << 12);
    int at = snprintf(script, sizeof script,
                      "r:GGUF 4:3 8:%d 8:3 s:split.no 4:4 4:%u s:split.count 4:4 4:%u "
                      "s:split.tensors.count 4:5 4:%u",
                      i > 1, said_no, n, n_tensors);
    if (i > 1) {
        (void)snprintf(script + at, sizeof script - (size_t)at,
                       " s:t%u 4:1 8:2 4:0 8:0 p:32 4:%u 4:0x40000000", i, i);
    }
    bytes_script(&b, script);
    (void)snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", folder, i, n);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b.data, 1, b.size, file), b.size);
    assert_int_equal(fclose(file), 0);
    skv_buf_release(&b);
}

static void refuses(const char *folder, const char *name, skv_status status, const char *said)
{
    char path[PATH_BYTES];
    skv_gguf *g = NULL;
    skv_error err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(skv_gguf_open(path, &g, &err), status);
    if (!strstr(err.text, said)) fail_msg("%s: %s", said, err.text);
}

static bool open_once(void *arg)
{
    skv_gguf *g = NULL;
    const bool ok = skv_gguf_open(arg, &g, NULL) == SKV_OK;
    skv_gguf_close(g);
    return ok;
}

static void opens_a_file_in_parts(void **state)
{
    void *folder = NULL;
    (void)state;
    assert_int_equal(temp_folder_make(&folder, "gguf"), 0);
    char path[PATH_BYTES];
    for (unsigned i = 1; i <= 3; i++) write_part(folder, i, 3, i - 1, 2);
    (void)snprintf(path, sizeof path, "%s/m-00001-of-00003.gguf", (char *)folder);
    skv_gguf *g = NULL;
    assert_int_equal(skv_gguf_open(path, &g, NULL), SKV_OK);
    assert_int_equal(skv_gguf_tensor_count(g), 2);
    for (uint32_t i = 2; i <= 3; i++) {
        const char name[] = {'t', (char)('0' + i), '\0'};
        const skv_tensor *t = skv_gguf_tensor_find(g, name);
        uint32_t first;
        assert_non_null(t);
        memcpy(&first, t->data, sizeof first);
        assert_int_equal(first, i);
        assert_non_null(strstr(t->file->path, i == 2 ? "00002-of" : "00003-of"));
    }
    skv_gguf_close(g);
    const size_t n = alloc_fail_each(open_once, path, false);
    assert_true(n > 20 && n != SIZE_MAX);
    assert_int_equal(temp_folder_drop(&folder), 0);
}

static void refuses_parts_that_do_not_fit(void **state)
{
    void *folder = NULL;
    char path[PATH_BYTES], other[PATH_BYTES];
    (void)state;
    assert_int_equal(temp_folder_make(&folder, "gguf"), 0);
    for (unsigned i = 1; i <= 3; i++) write_part(folder, i, 3, i - 1, 2);
    refuses(folder, "m-00002-of-00003.gguf", SKV_FORMAT, "part 2 of 3: open the first part, ");
    refuses(folder, "m-00003-of-00003.gguf", SKV_FORMAT, "m-00001-of-00003.gguf");
    write_part(folder, 3, 3, 1, 2);
    refuses(folder, "m-00001-of-00003.gguf", SKV_FORMAT, "do not make it part 3 of 3");
    write_part(folder, 3, 3, 2, 2);
    write_part(folder, 1, 3, 0, 5);
    refuses(folder, "m-00001-of-00003.gguf", SKV_FORMAT, "split.tensors.count 5, the parts have 2");
    write_part(folder, 1, 3, 7, 2);
    refuses(folder, "m-00001-of-00003.gguf", SKV_FORMAT, "split.no 7, split.count 3");
    write_part(folder, 1, 3, 0, 2);
    (void)snprintf(path, sizeof path, "%s/m-00002-of-00003.gguf", (char *)folder);
    assert_int_equal(remove(path), 0);
    refuses(folder, "m-00001-of-00003.gguf", SKV_IO,
            "m-00002-of-00003.gguf: missing: part 2 of the 3");
    (void)snprintf(path, sizeof path, "%s/m-00001-of-00003.gguf", (char *)folder);
    (void)snprintf(other, sizeof other, "%s/other.gguf", (char *)folder);
    assert_int_equal(rename(path, other), 0);
    refuses(folder, "other.gguf", SKV_FORMAT, "whose name has to end with -00001-of-00003.gguf");
    assert_int_equal(temp_folder_drop(&folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_valid_file),
        cmocka_unit_test(refuses_malformed_files),
        cmocka_unit_test(every_truncation_and_bit_is_safe),
        cmocka_unit_test(survives_every_failed_allocation),
        cmocka_unit_test(an_empty_file_is_fine),
        cmocka_unit_test(opens_a_file_in_parts),
        cmocka_unit_test(refuses_parts_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
