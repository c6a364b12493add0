/* The JSON writer: the same to a stream and to a buffer, escapes, numbers that read back, bounds.
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/json_out.h"

static void write_all(skv_json_out *json)
{
    static const int32_t ids[] = {0, -7, INT32_MAX};
    skv_json_out_open(json, '{');
    skv_json_out_put_integer(json, "n", SIZE_MAX >> 1);
    skv_json_out_put_number(json, "x", 0.1);
    skv_json_out_put_text(json, "no\"ne", NULL);
    skv_json_out_put_ids(json, "ids", ids, 3);
    skv_json_out_key(json, "list");
    skv_json_out_open(json, '[');
    skv_json_out_bool(json, true);
    skv_json_out_bool(json, false);
    skv_json_out_null(json);
    skv_json_out_integer(json, INT64_MIN);
    skv_json_out_text(json, "a\0b\x7f\n\xc3\xa9", 7);
    skv_json_out_open(json, '{');
    skv_json_out_close(json, '}');
    skv_json_out_close(json, ']');
    skv_json_out_close(json, '}');
}

static void streams_and_buffers_agree(void **state)
{
    (void)state;
    char *text;
    size_t n;
    FILE *stream = open_memstream(&text, &n);
    assert_non_null(stream);
    write_all(&(skv_json_out){.stream = stream});
    assert_int_equal(fclose(stream), 0);
    skv_buf buf;
    skv_buf_init(&buf, 1 << 16);
    write_all(&(skv_json_out){.buf = &buf});
    assert_string_equal(text, "{\"n\":9223372036854775807,\"x\":0.1,\"no\\\"ne\":null,"
                              "\"ids\":[0,-7,2147483647],\"list\":[true,false,null,"
                              "-9223372036854775808,\"a\\u0000b\\u007f\\n\xc3\xa9\",{}]}");
    assert_string_equal(buf.data, text);
    free(text);
    skv_buf_release(&buf);
}

/* Every byte, alone and at the end of what could have become a character, makes valid JSON. */
static void all_bytes_make_valid_json(void **state)
{
    (void)state;
    static const char *const heads[] = {"", "\xe2\x82", "\xf0\x9f\x98", "\xed", "\xc3"};
    skv_buf buf;
    skv_buf_init(&buf, 1 << 10);
    for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++) {
        for (int byte = 0; byte < 256; byte++) {
            char text[8];
            const size_t n = strlen(heads[h]);
            memcpy(text, heads[h], n);
            text[n] = (char)byte;
            skv_buf_clear(&buf);
            skv_buf_json(&buf, text, n + 1);
            json_t *value = json_loadb(buf.data, buf.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            if (!value) fail_msg("head %zu, byte %d: %s", h, byte, buf.data);
            json_decref(value);
        }
    }
    skv_buf_clear(&buf);
    skv_buf_json(&buf, "\xe2\x82|\xff\xff", 5); /* one for a character cut short, one a byte */
    assert_string_equal(buf.data, "\"\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\"");
    skv_buf_clear(&buf);
    skv_buf_json_str(&buf, NULL);
    assert_string_equal(buf.data, "null");
    skv_buf_release(&buf);
}

static void numbers_read_back(void **state)
{
    (void)state;
    static const double numbers[] = {0,
                                     -0.0,
                                     1,
                                     0.1,
                                     1.0 / 3,
                                     (double)0.1f,
                                     DBL_MAX,
                                     DBL_MIN,
                                     5e-324,
                                     -1e21,
                                     123456789012345678.0,
                                     2.0 / 3,
                                     1e15,
                                     1e-5};
    skv_buf buf;
    skv_buf_init(&buf, 1 << 10);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        skv_buf_clear(&buf);
        skv_json_out_number(&(skv_json_out){.buf = &buf}, numbers[i]);
        const double back = strtod(buf.data, NULL);
        assert_memory_equal(&back, &numbers[i], sizeof back);
    }
    const double none[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    for (size_t i = 0; i < 3; i++) {
        skv_buf_clear(&buf);
        skv_json_out_number(&(skv_json_out){.buf = &buf}, none[i]);
        assert_string_equal(buf.data, "null");
    }
    skv_buf_release(&buf);
}

static void a_full_buffer_says_so(void **state)
{
    (void)state;
    skv_buf buf;
    for (size_t max = 0; max < 20; max++) {
        skv_buf_init(&buf, max);
        skv_buf_json_str(&buf, "0123456789");
        assert_int_equal(buf.failed, max < 12);
        assert_true(buf.size <= max);
        skv_buf_release(&buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_buffers_agree),
        cmocka_unit_test(all_bytes_make_valid_json),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(a_full_buffer_says_so),
    };
    return cmocka_run_group_tests_name("json_out", tests, NULL, NULL);
}
