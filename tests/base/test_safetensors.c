/*
 * safetensors: what the reference library wrote (tests/data/format, by
 * tools/fixtures/make_format_fixtures.py) read, and written again to the byte; malformed files
 * refused with a reason; shards and their index; failures while writing leave nothing behind.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "bytes_script.h"
#include "format/safetensors.h"
#include "temp_folder.h"

#define FIXTURE SKV_TEST_DATA "/format/written.safetensors"

static int make_folder(void **state)
{
    return temp_folder_make(state, "safetensors");
}

/* Header and n_data zero bytes, as a file. */
static void build(skv_buf *out, const char *header, size_t n_data)
{
    skv_buf_init(out, 1 << 16);
    bytes_number(out, strlen(header), 8);
    skv_buf_text(out, header);
    while (n_data--) skv_buf_byte(out, 0);
}

typedef struct header_case {
    const char *header;
    size_t n_data;
    const char *expected; /* part of the error */
} header_case;

#define T(dtype, shape, offsets)                                                                   \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const header_case malformed[] = {
    {"", 0, "byte 8: the header starts with byte 0x00"},
    {"[]", 0, "byte 8: the header starts with byte 0x5b"},
    {" {}", 0, "byte 8: the header starts with byte 0x20"},
    {"{", 0, "line 1"},
    {"{}x", 0, "line 1"},
    {"{\"t\":1}", 0, "t: header: entry: 1, expected an object"},
    {"{\"t\":{}}", 0, "dtype  is not known"},
    {"{\"t\":{\"dtype\":7}}", 0, "t: header: dtype: 7, expected text"},
    {"{\"t\":" T("\"F31\"", "[1]", "[0,4]") "}", 4, "t: dtype F31 is not known"},
    {"{\"t\":" T("\"F32\"", "1", "[0,4]") "}", 4, "shape: 1, expected an array"},
    {"{\"t\":" T("\"F32\"", "[1.0]", "[0,4]") "}", 4, "shape: 1.00000, expected an integer"},
    {"{\"t\":" T("\"F32\"", "[\"1\"]", "[0,4]") "}", 4, "shape: \"1\", expected an integer"},
    {"{\"t\":" T("\"F32\"", "[-1]", "[0,4]") "}", 4, "shape: -1, expected 0 to"},
    {"{\"t\":" T("\"F32\"", "[4294967296,4294967296]", "[0,0]") "}", 4, "does not fit"},
    {"{\"t\":" T("\"F32\"", "[4294967296,4294967296,0]", "[0,0]") "}", 4, "does not fit"},
    {"{\"t\":" T("\"F32\"", "[4611686018427387904]", "[0,0]") "}", 4, "does not fit"},
    {"{\"t\":" T("\"F32\"", "[9223372036854775808]", "[0,0]") "}", 4, "too big integer"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
     "data_offsets: missing, expected two integers"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0]") "}", 4, "data_offsets: an array of 1, expected two"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4,8]") "}", 8, "data_offsets: an array of 3, expected two"},
    {"{\"t\":" T("\"F32\"", "[1]", "[-4,0]") "}", 4, "data_offsets: -4"},
    {"{\"t\":" T("\"F32\"", "[1]", "[4,0]") "}", 4, "data_offsets: [4, 0] outside"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") "}", 3, "data_offsets: [0, 4] outside the 3 bytes"},
    {"{\"t\":" T("\"F32\"", "[1]", "[1000000,1000004]") "}", 4, "outside"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,8]") "}", 8, "8 bytes, its shape takes 4"},
    {"{\"t\":" T("\"BF16\"", "[2,3]", "[0,6]") "}", 6, "6 bytes, its shape takes 12"},
    {"{\"t\":" T("\"F32\"", "[0]", "[0,4]") "}", 4, "4 bytes, its shape takes 0"},
    {"{\"t\":" T("\"F4\"", "[3]", "[0,1]") "}", 4, "does not fit"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"t\":" T("\"F32\"", "[1]", "[4,8]") "}", 8,
     "duplicate object key"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") ",\"u\":" T("\"F32\"", "[1]", "[4,8]") "}", 8,
     "tensors t and u overlap"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"u\":" T("\"F32\"", "[1]", "[0,4]") "}", 8,
     "overlap"},
    {"{\"a\\u0000b\":{}}", 0, "line 1"},
    {"{\"t\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0,
     "nested deeper"},
    {"{\"\xff\":{}}", 0, "line 1"},
};

static void refuse(const skv_buf *b, const char *what, const char *expected)
{
    void *exact = bytes_exact(b->data, b->size);
    skv_safetensors *s = NULL;
    skv_error err = {0};
    skv_status status = skv_safetensors_parse(exact, b->size, "test.st", &s, &err);
    if (status == SKV_OK || s) fail_msg("accepted: %s", what);
    if (strncmp(err.text, "test.st: ", 9) != 0 || !strstr(err.text, expected)) {
        fail_msg("%s\n  says %s\n  expected %s", what, err.text, expected);
    }
    free(exact);
}

static void refuses_malformed_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        skv_buf b;
        build(&b, malformed[i].header, malformed[i].n_data);
        refuse(&b, malformed[i].header, malformed[i].expected);
        skv_buf_release(&b);
    }
}

static void refuses_malformed_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *script, *expected;
    } cases[] = {
        {"", "0 bytes, too short"},
        {"z:7", "7 bytes, too short"},
        {"8:3 r:{}", "header of 3 bytes, at most 2"},
        {"8:0xffffffffffffffff r:{}", "header of 18446744073709551615 bytes"},
        {"8:0x7ffffffffffffff8 r:{}", "header of"},
        {"8:100000001 r:{}", "header of 100000001 bytes"},
        {"8:0 r:{}", "the header starts with byte 0x00"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skv_buf b;
        skv_buf_init(&b, 1 << 10);
        bytes_script(&b, cases[i].script);
        refuse(&b, cases[i].script, cases[i].expected);
        skv_buf_release(&b);
    }
}

/* Parts of matrices of 8 and 4 bits that do not go together. A row of 8 zero bytes each. */
static void refuses_parts_that_do_not_fit(void **state)
{
    (void)state;
    static const header_case cases[] = {
        {"{\"m.qweight\":" T("\"I32\"", "[1,8]", "[0,32]") "}", 32, "m.scales is missing"},
        {"{\"m.qweight\":" T("\"I32\"", "[1,8]", "[0,32]") ",\"m.scales\":" T("\"F16\"", "[1,8]",
                                                                              "[32,48]") "}",
         48, "m.qweight: the qzeros beside it are missing"},
        {"{\"m.qweight\":" T("\"I32\"", "[1,8]", "[0,32]") ",\"m.scales\":" T("\"F16\"", "[1,9]",
                                                                              "[32,50]") "}",
         50, "m.qweight: shape [1,8] of I32, expected as many columns as its scales"},
        {"{\"m.qweight\":" T("\"I32\"", "[1,8]", "[0,32]") ",\"m.scales\":" T("\"F16\"", "[3,8]",
                                                                              "[32,80]") "}",
         80, "m.scales: shape [3,8] of F16, expected groups that divide the columns"},
        {"{\"m.qweight\":" T("\"I32\"", "[0,8]", "[0,0]") ",\"m.scales\":" T("\"F16\"", "[1,8]",
                                                                             "[0,16]") "}",
         16, "m.qweight: shape [0,8] of I32, expected two dimensions"},
        {"{\"m.weight\":" T("\"F8_E4M3\"", "[4,8]",
                            "[0,32]") ",\"m.weight_scale\":" T("\"F32\"", "[3,3]", "[32,68]") "}",
         68, "m.weight_scale: shape [3,3] of F32, expected one a block of the weight"},
        {"{\"m.weight\":" T("\"F8_E4M3\"", "[4,8]",
                            "[0,32]") ",\"m.weight_scale\":" T("\"I32\"", "[1]", "[32,36]") "}",
         36, "m.weight_scale: shape [1] of I32, expected F32, F16 or BF16"},
        {"{\"m.weight\":" T("\"F8_E4M3\"", "[4,8]", "[0,32]") ",\"m.weight_scale\":" T(
             "\"F32\"", "[1]", "[32,36]") ",\"m.weight_scale_inv\":" T("\"F32\"", "[1]",
                                                                       "[36,40]") "}",
         40, "both _scale and _scale_inv"},
        {"{\"m.weight\":" T("\"I8\"", "[4,8]", "[0,32]") ",\"m.weight_scale\":" T(
             "\"F32\"", "[1]", "[32,36]") ",\"m.weight_zero_point\":" T("\"I8\"", "[4]",
                                                                        "[36,40]") "}",
         40, "m.weight_zero_point: not supported beside codes of 8 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skv_buf b;
        build(&b, cases[i].header, cases[i].n_data);
        refuse(&b, cases[i].header, cases[i].expected);
        skv_buf_release(&b);
    }
}

static void lists_what_it_cannot_use(void **state)
{
    (void)state;
    skv_buf b;
    build(&b,
          "{\"a\":" T("\"I64\"", "[1]", "[0,8]") ",\"b\":" T("\"F32\"", "[]", "[8,12]") ",\"c\":" T(
              "\"F8_E4M3\"", "[2,2]",
              "[12,16]") ",\"d\":" T("\"F32\"", "[1,1,1,1,1]",
                                     "[16,20]") ",\"e\":" T("\"F16\"", "[0,3]",
                                                            "[20,20]") ",\"__metadata__\":{"
                                                                       "\"format\":\"pt\"}}  ",
          20);
    skv_safetensors *s = NULL;
    skv_error err = {0};
    if (skv_safetensors_parse(b.data, b.size, "t", &s, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_safetensors_count(s), 2);
    assert_null(skv_safetensors_find(s, "a"));
    assert_string_equal(skv_safetensors_unusable(s, "a"), "element type I64");
    assert_string_equal(skv_safetensors_unusable(s, "c"), "element type F8_E4M3 without scales");
    assert_string_equal(skv_safetensors_unusable(s, "d"), "more than four dimensions");
    assert_null(skv_safetensors_unusable(s, "b"));
    assert_int_equal(skv_safetensors_find(s, "b")->n_dims, 0);
    assert_int_equal(skv_tensor_rows(skv_safetensors_find(s, "b")), 1);
    assert_int_equal(skv_safetensors_find(s, "e")->n_bytes, 0);
    skv_safetensors_close(s);
    skv_buf_release(&b);
}

static void every_truncation_and_bit_is_safe(void **state)
{
    (void)state;
    char *data;
    size_t size;
    assert_int_equal(skv_file_read(FIXTURE, 1 << 16, &data, &size, NULL), SKV_OK);
    for (size_t n = 0; n < size; n++) {
        unsigned char *exact = bytes_exact(data, n);
        skv_safetensors *s = NULL;
        assert_int_not_equal(skv_safetensors_parse(exact, n, "t", &s, NULL), SKV_OK);
        free(exact);
    }
    unsigned char *exact = bytes_exact(data, size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        exact[bit / 8] ^= (unsigned char)(1u << bit % 8);
        skv_safetensors *s = NULL;
        if (skv_safetensors_parse(exact, size, "t", &s, NULL) == SKV_OK) {
            for (size_t i = 0; i < skv_safetensors_count(s); i++) {
                const skv_tensor *t = skv_safetensors_at(s, i);
                assert_true(t->data >= exact && t->data + t->n_bytes <= exact + size);
            }
        }
        skv_safetensors_close(s);
        exact[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(exact);
    skv_free(data);
}

/* The tensors of the fixture: tensor i has the elements (i + 1) (k - 4) / 8. */
static const skv_tensor_out fixture[] = {
    {.name = "model.norm.weight", .type = SKV_DTYPE_F32, .n_dims = 1, .dims = {6}},
    {.name = "lm_head.weight", .type = SKV_DTYPE_BF16, .n_dims = 2, .dims = {3, 5}},
    {.name = "b", .type = SKV_DTYPE_F16, .n_dims = 2, .dims = {2, 3}},
    {.name = "model.embed_tokens.weight", .type = SKV_DTYPE_BF16, .n_dims = 2, .dims = {4, 3}},
    {.name = "a \"quoted\" \xc3\xa9 name", .type = SKV_DTYPE_F32, .n_dims = 3, .dims = {1, 2, 3}},
};
enum { N_FIXTURE = sizeof fixture / sizeof *fixture };

static float element(size_t i_tensor, size_t k)
{
    return (float)(i_tensor + 1) * ((float)k - 4.0F) / 8.0F;
}

/* A skv_tensor_rows_fn; arg points at the tensor. */
static skv_status make_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    (void)err;
    const skv_tensor_out *t = arg;
    size_t columns = t->dims[t->n_dims - 1], i_tensor = 0;
    while (strcmp(fixture[i_tensor].name, t->name) != 0) i_tensor++;
    float values[64];
    for (size_t k = 0; k < n * columns; k++) values[k] = element(i_tensor, row0 * columns + k);
    skv_dtype_from_f32(t->type, out, values, n * columns);
    return SKV_OK;
}

/* The fixture's tensors, the odd ones made row by row and the even ones from memory. */
static void fill(skv_tensor_out out[N_FIXTURE], unsigned char data[N_FIXTURE][256])
{
    for (size_t i = 0; i < N_FIXTURE; i++) {
        out[i] = fixture[i];
        size_t rows = 1;
        for (size_t j = 0; j + 1 < out[i].n_dims; j++) rows *= out[i].dims[j];
        (void)make_rows(&out[i], 0, rows, data[i], NULL);
        out[i].rows = make_rows;
        out[i].arg = &out[i];
        if (i % 2 == 0) out[i].data = data[i];
    }
}

static void check_tensors(const skv_safetensors *s)
{
    assert_int_equal(skv_safetensors_count(s), N_FIXTURE);
    for (size_t i = 0; i < N_FIXTURE; i++) {
        const skv_tensor *t = skv_safetensors_find(s, fixture[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, fixture[i].type);
        assert_int_equal(t->n_dims, fixture[i].n_dims);
        float values[64];
        skv_tensor_read_rows(t, 0, skv_tensor_rows(t), values);
        size_t n = skv_tensor_rows(t) * skv_tensor_columns(t);
        for (size_t k = 0; k < n; k++) assert_true(values[k] == element(i, k));
    }
}

static void reads_the_library(void **state)
{
    (void)state;
    skv_safetensors *s = NULL;
    skv_error err = {0};
    if (skv_safetensors_open(FIXTURE, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    check_tensors(s);
    skv_safetensors_close(s);
}

static void writes_the_library_s_bytes(void **state)
{
    skv_tensor_out tensors[N_FIXTURE];
    unsigned char data[N_FIXTURE][256];
    fill(tensors, data);
    skv_error err = {0};
    skv_status status =
        skv_safetensors_write_folder(*state, tensors, N_FIXTURE, SKV_SHARD_BYTES_MAX, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    char *path = skv_path_join(*state, "model.safetensors"), *have, *want;
    size_t n_have, n_want;
    assert_int_equal(skv_file_read(path, 1 << 16, &have, &n_have, NULL), SKV_OK);
    assert_int_equal(skv_file_read(FIXTURE, 1 << 16, &want, &n_want, NULL), SKV_OK);
    assert_int_equal(n_have, n_want);
    assert_memory_equal(have, want, n_want);
    skv_free(have);
    skv_free(want);
    skv_free(path);
    /* Shards beside it would contradict it. */
    status = skv_safetensors_write_folder(*state, tensors, N_FIXTURE, 40, &err);
    assert_int_equal(status, SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "model.safetensors is already there"));
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char *path = skv_path_join(folder, name);
    assert_int_equal(skv_file_write(path, text, strlen(text), NULL), SKV_OK);
    skv_free(path);
}

static bool has_file(const char *folder, const char *name)
{
    char *path = skv_path_join(folder, name);
    bool exists = skv_file_exists(path);
    skv_free(path);
    return exists;
}

static void refuse_folder(const char *folder, const char *expected)
{
    skv_safetensors *s = NULL;
    skv_error err = {0};
    assert_int_not_equal(skv_safetensors_open_folder(folder, &s, &err), SKV_OK);
    if (!strstr(err.text, expected)) fail_msg("%s\n  expected %s", err.text, expected);
}

static void shards_and_their_index(void **state)
{
    skv_tensor_out tensors[N_FIXTURE];
    unsigned char data[N_FIXTURE][256];
    fill(tensors, data);
    skv_error err = {0};
    /* 24 + 30 | 12 + 24 | 24 bytes: the second does not take the fifth tensor */
    skv_status status = skv_safetensors_write_folder(*state, tensors, N_FIXTURE, 54, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    assert_true(has_file(*state, "model-00001-of-00003.safetensors"));
    assert_true(has_file(*state, "model-00003-of-00003.safetensors"));
    assert_false(has_file(*state, "model.safetensors"));
    skv_safetensors *s = NULL;
    if (skv_safetensors_open_folder(*state, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    check_tensors(s);
    skv_safetensors_close(s);
    status = skv_safetensors_write_folder(*state, tensors, N_FIXTURE, SKV_SHARD_BYTES_MAX, &err);
    assert_int_equal(status, SKV_ARGUMENT);

    static const struct {
        const char *index, *expected;
    } cases[] = {
        {"[]", "weight_map: missing, expected an object"},
        {"{\"weight_map\":[]}", "weight_map: an array of 0, expected an object"},
        {"{\"weight_map\":{}}", "weight_map: 0 files"},
        {"{\"weight_map\":{\"b\":7}}", "weight_map: b: 7, expected a file name"},
        {"{\"weight_map\":{\"b\":\"../x\"}}", "weight_map: b: \"../x\", expected a file name"},
        {"{\"weight_map\":{\"b\":\"/etc/passwd\"}}", "expected a file name"},
        {"{\"weight_map\":{\"b\":\".hidden\"}}", "expected a file name"},
        {"{\"weight_map\":{\"b\":\"absent.safetensors\"}}", "absent.safetensors: cannot open"},
        {"{\"weight_map\":{\"lm_head.weight\":\"model-00002-of-00003.safetensors\"}}",
         "lists 1 tensors, the files hold 0"},
        {"{\"weight_map\":{\"b\":\"x\",\"b\":\"y\"}}", "duplicate"},
        {"{", "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(*state, "model.safetensors.index.json", cases[i].index);
        refuse_folder(*state, cases[i].expected);
    }
}

static void a_folder_without_weights(void **state)
{
    refuse_folder(*state, "neither model.safetensors nor");
    refuse_folder("/nonexistent", "neither");
}

static skv_status fail_at_row(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    (void)arg;
    memset(out, 0, n * 8);
    return row0 + n > 1 ? skv_fail(err, SKV_CANCELLED, "stopped") : SKV_OK;
}

static void a_failed_write_leaves_nothing(void **state)
{
    skv_tensor_out t = {
        .name = "t", .type = SKV_DTYPE_F32, .n_dims = 2, .dims = {3, 2}, .rows = fail_at_row};
    skv_error err = {0};
    assert_int_equal(skv_safetensors_write_folder(*state, &t, 1, SKV_SHARD_BYTES_MAX, &err),
                     SKV_CANCELLED);
    assert_string_equal(err.text, "stopped");
    skv_tensor_out bad[2] = {t, t};
    assert_int_equal(skv_safetensors_write_folder(*state, bad, 2, SKV_SHARD_BYTES_MAX, &err),
                     SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "t appears twice"));
    bad[1].type = SKV_DTYPE_Q4_0;
    assert_int_equal(skv_safetensors_write_folder(*state, bad, 2, SKV_SHARD_BYTES_MAX, &err),
                     SKV_ARGUMENT);
    bad[1] = t;
    bad[1].rows = NULL;
    assert_int_equal(skv_safetensors_write_folder(*state, bad, 2, SKV_SHARD_BYTES_MAX, &err),
                     SKV_ARGUMENT);
    /* Nothing is left in it. */
    assert_int_equal(rmdir(*state), 0);
    assert_int_equal(skv_folder_create(*state, NULL), SKV_OK);
}

static bool open_once(void *arg)
{
    skv_safetensors *s = NULL;
    bool ok = skv_safetensors_open_folder(arg, &s, NULL) == SKV_OK;
    skv_safetensors_close(s);
    return ok;
}

static bool write_once(void *arg)
{
    skv_tensor_out tensors[N_FIXTURE];
    unsigned char data[N_FIXTURE][256];
    fill(tensors, data);
    return skv_safetensors_write_folder(arg, tensors, N_FIXTURE, 54, NULL) == SKV_OK;
}

static void survives_every_failed_allocation(void **state)
{
    size_t n = alloc_fail_each(write_once, *state, true);
    assert_true(n > 5 && n != SIZE_MAX);
    n = alloc_fail_each(open_once, *state, false);
    assert_true(n > 5 && n != SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_library),
        cmocka_unit_test(refuses_malformed_headers),
        cmocka_unit_test(refuses_malformed_lengths),
        cmocka_unit_test(refuses_parts_that_do_not_fit),
        cmocka_unit_test(lists_what_it_cannot_use),
        cmocka_unit_test(every_truncation_and_bit_is_safe),
        cmocka_unit_test_setup_teardown(writes_the_library_s_bytes, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(shards_and_their_index, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_folder_without_weights, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_nothing, make_folder,
                                        temp_folder_drop),
        cmocka_unit_test_setup_teardown(survives_every_failed_allocation, make_folder,
                                        temp_folder_drop),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
