/* The byte buffer: its bound, its terminator, printing, JSON escapes, running out of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "alloc_fail.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"

static void holds_its_maximum_and_no_more(void **state)
{
    (void)state;
    for (size_t max = 0; max < 200; max++) {
        skv_buf buf;
        skv_buf_init(&buf, max);
        for (size_t i = 0; i < max; i++) {
            assert_true(skv_buf_byte(&buf, (char)('a' + i % 26)));
            assert_int_equal(strlen(buf.data), i + 1);
        }
        assert_false(skv_buf_byte(&buf, 'x'));
        assert_true(buf.failed);
        assert_int_equal(buf.size, max);
        for (size_t i = 0; i < max; i++) assert_int_equal(buf.data[i], 'a' + (int)(i % 26));
        assert_false(skv_buf_append(&buf, "", 0)); /* what follows a failure is dropped */
        skv_buf_clear(&buf);
        assert_int_equal(skv_buf_append(&buf, "y", 1), max > 0);
        skv_buf_release(&buf);
        assert_null(buf.data);
        assert_int_equal(buf.max, max);
    }
}

static void a_failed_append_changes_nothing(void **state)
{
    (void)state;
    skv_buf buf;
    skv_buf_init(&buf, 8);
    assert_true(skv_buf_text(&buf, "12345"));
    assert_false(skv_buf_text(&buf, "6789"));
    assert_string_equal(buf.data, "12345");
    assert_false(skv_buf_text(&buf, "6"));
    assert_string_equal(buf.data, "12345");
    skv_buf_release(&buf);

    skv_buf_init(&buf, SIZE_MAX);
    assert_true(skv_buf_text(&buf, "1"));
    assert_false(skv_buf_append(&buf, "", SIZE_MAX)); /* the size does not fit */
    assert_string_equal(buf.data, "1");
    skv_buf_release(&buf);
}

static void zero_bytes_are_bytes(void **state)
{
    (void)state;
    skv_buf buf;
    skv_buf_init(&buf, 100);
    assert_true(skv_buf_append(&buf, "a\0b", 3));
    assert_int_equal(buf.size, 3);
    assert_memory_equal(buf.data, "a\0b", 4);
    skv_buf_release(&buf);
}

static void prints_within_its_bound(void **state)
{
    (void)state;
    skv_buf buf;
    skv_buf_init(&buf, 10);
    assert_true(skv_buf_printf(&buf, "%d-%s", 12, "abc"));
    assert_string_equal(buf.data, "12-abc");
    assert_true(skv_buf_printf(&buf, "%04x", 0xbeef));
    assert_string_equal(buf.data, "12-abcbeef");
    assert_false(skv_buf_printf(&buf, "%c", '!'));
    assert_string_equal(buf.data, "12-abcbeef");
    skv_buf_release(&buf);
}

/* Escaped text read back by a JSON parser is the text; what is not UTF-8 has become U+FFFD. */
static void json_text_reads_back(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 7);
    for (int round = 0; round < 3000; round++) {
        char text[24];
        size_t n = skv_rng_below(&rng, sizeof text + 1);
        bool plain = round % 2;
        for (size_t i = 0; i < n; i++) text[i] = (char)skv_rng_below(&rng, plain ? 128 : 256);

        skv_buf escaped, expected;
        skv_buf_init(&escaped, 1000);
        skv_buf_init(&expected, 1000);
        assert_true(skv_buf_byte(&escaped, '"'));
        assert_true(skv_buf_json_text(&escaped, text, n));
        assert_true(skv_buf_byte(&escaped, '"'));
        for (size_t i = 0, step; i < n; i += step) {
            uint32_t code;
            step = skv_utf8_decode(text + i, n - i, &code);
            bool bad = code == SKV_UTF8_BAD;
            assert_true(skv_buf_append(&expected, bad ? "\xef\xbf\xbd" : text + i, bad ? 3 : step));
        }
        json_error_t error;
        json_t *value =
            json_loadb(escaped.data, escaped.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        assert_non_null(value);
        assert_int_equal(json_string_length(value), expected.size);
        if (expected.size) {
            assert_memory_equal(json_string_value(value), expected.data, expected.size);
        }
        json_decref(value);
        skv_buf_release(&escaped);
        skv_buf_release(&expected);
    }
}

static void json_text_is_escaped(void **state)
{
    (void)state;
    skv_buf buf;
    skv_buf_init(&buf, 1000);
    assert_true(skv_buf_json_text(&buf, "\"\\\n\r\t\0\x01\x1f\x7f/\xc3\xa9\xff", 13));
    assert_string_equal(buf.data,
                        "\\\"\\\\\\n\\r\\t\\u0000\\u0001\\u001f\\u007f/\xc3\xa9\xef\xbf\xbd");
    skv_buf_release(&buf);
    skv_buf_init(&buf, 5); /* an escape that does not fit is left out whole */
    assert_false(skv_buf_json_text(&buf, "\x01", 1));
    assert_int_equal(buf.size, 0);
    skv_buf_release(&buf);
}

static bool fill(void *arg)
{
    (void)arg;
    skv_buf buf;
    skv_buf_init(&buf, 100000);
    bool ok = true;
    for (int i = 0; i < 1000; i++) ok = skv_buf_printf(&buf, "%d,", i) && ok;
    ok = ok && buf.size == 3890;
    assert_int_equal(ok, !buf.failed);
    skv_buf_release(&buf);
    return ok;
}

static void survives_running_out_of_memory(void **state)
{
    (void)state;
    size_t n = alloc_fail_each(fill, NULL, false);
    assert_in_range(n, 5, 20); /* grows by half */
}

typedef struct purse {
    size_t held, max;
} purse;

static bool take(void *user, size_t n_bytes)
{
    purse *p = user;
    if (n_bytes > p->max - p->held) return false;
    p->held += n_bytes;
    return true;
}

static void give(void *user, size_t n_bytes)
{
    purse *p = user;
    assert_in_range(n_bytes, 0, p->held);
    p->held -= n_bytes;
}

/* What a buffer holds is taken before it is there, and given back once. */
static void asks_whom_its_owner_names(void **state)
{
    (void)state;
    purse p = {.max = 1000};
    skv_buf buf = {.max = SIZE_MAX, .memory = {take, give, &p}};
    while (skv_buf_byte(&buf, 'x')) assert_int_equal(p.held, buf.capacity);
    assert_true(buf.failed && !buf.full);
    assert_in_range(buf.size, 500, 999);
    assert_int_equal(p.held, buf.capacity);
    skv_buf_release(&buf);
    assert_int_equal(p.held, 0);
    assert_true(skv_buf_reserve(&buf, 999));
    assert_int_equal(p.held, 1000);
    assert_false(skv_buf_reserve(&buf, 1000));
    skv_buf_clear(&buf);
    assert_int_equal(p.held, 1000);
    skv_free(skv_buf_give_away(&buf));
    assert_int_equal(p.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_its_maximum_and_no_more),
        cmocka_unit_test(a_failed_append_changes_nothing),
        cmocka_unit_test(zero_bytes_are_bytes),
        cmocka_unit_test(prints_within_its_bound),
        cmocka_unit_test(json_text_reads_back),
        cmocka_unit_test(json_text_is_escaped),
        cmocka_unit_test(survives_running_out_of_memory),
        cmocka_unit_test(asks_whom_its_owner_names),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
