/* UTF-8 against a table of every valid character, built here by the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"

enum { LAST_CODE = 0x10ffff };

/* The bytes of a code by the definition: 6 bits a continuation byte, the fewest that hold it. */
static size_t define(uint32_t code, unsigned char out[4])
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    const unsigned char marks[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6) out[i] = (unsigned char)(0x80 | (code & 63));
    out[0] = (unsigned char)(marks[n] | code);
    return n;
}

static int is_scalar(uint32_t code)
{
    return code <= LAST_CODE && !(code >= 0xd800 && code <= 0xdfff);
}

static void every_character_goes_there_and_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= LAST_CODE; code++) {
        unsigned char bytes[4];
        size_t n = define(code, bytes);
        uint32_t got;
        size_t step = skv_utf8_decode((const char *)bytes, n, &got);
        if (!is_scalar(code)) {
            if (got != SKV_UTF8_BAD || step != 1) fail_msg("surrogate U+%04X", code);
            continue;
        }
        char again[4];
        if (step != n || got != code || skv_utf8_encode(code, again) != n ||
            memcmp(again, bytes, n) != 0) {
            fail_msg("U+%04X", code);
        }
    }
}

/*
 * All byte strings of up to three bytes, and four-byte ones with every lead and second byte, with
 * the sets of valid characters and of their proper beginnings as the oracle: decode takes a valid
 * character if the string starts with one, otherwise the longest beginning of one, at least a byte.
 */
typedef struct oracle {
    unsigned char *two;   /* [1 << 16] bit 0: a character, bit 1: the beginning of one */
    unsigned char *three; /* [1 << 24] likewise */
    unsigned char one[256];
} oracle;

static void build(oracle *o)
{
    o->two = skv_alloc_zero(1u << 16, 1);
    o->three = skv_alloc_zero(1u << 24, 1);
    assert_non_null(o->two);
    assert_non_null(o->three);
    memset(o->one, 0, sizeof o->one);
    for (uint32_t code = 0; code <= LAST_CODE; code++) {
        if (!is_scalar(code)) continue;
        unsigned char b[4];
        size_t n = define(code, b);
        o->one[b[0]] |= n == 1 ? 1 : 2;
        if (n >= 2) o->two[b[0] << 8 | b[1]] |= n == 2 ? 1 : 2;
        if (n >= 3) o->three[b[0] << 16 | b[1] << 8 | b[2]] |= n == 3 ? 1 : 2;
    }
}

static size_t expected_step(const oracle *o, const unsigned char *b, size_t n, bool *valid)
{
    unsigned one = o->one[b[0]];
    unsigned two = n > 1 ? o->two[b[0] << 8 | b[1]] : 0;
    unsigned three = n > 2 ? o->three[b[0] << 16 | b[1] << 8 | b[2]] : 0;
    *valid = one & 1 || two & 1 || three & 1;
    if (one & 1) return 1;
    if (two & 1) return 2;
    if (three & 1) return 3;
    if (three & 2) {
        *valid = n > 3 && (b[3] & 0xc0) == 0x80;
        return *valid ? 4 : 3;
    }
    return two & 2 ? 2 : 1;
}

static void compare(const oracle *o, const unsigned char *b, size_t n)
{
    bool valid;
    size_t want = expected_step(o, b, n, &valid);
    uint32_t code;
    size_t got = skv_utf8_decode((const char *)b, n, &code);
    if (got != want || (code != SKV_UTF8_BAD) != valid) {
        fail_msg("%02x %02x %02x %02x of %zu: step %zu, expected %zu", b[0], b[1], b[2], b[3], n,
                 got, want);
    }
}

static void every_string_of_bytes_is_judged(void **state)
{
    (void)state;
    oracle o;
    build(&o);
    unsigned char b[4] = {0};
    for (uint32_t i = 0; i < 1u << 24; i++) {
        b[0] = (unsigned char)(i >> 16);
        b[1] = (unsigned char)(i >> 8);
        b[2] = (unsigned char)i;
        if (b[2] == 0) {
            if (b[1] == 0) compare(&o, b, 1);
            compare(&o, b, 2);
        }
        compare(&o, b, 3);
        if (b[0] < 0xe0) continue;
        for (unsigned last = 0x7f; last <= 0xc0; last += last == 0x80 ? 0x3f : 1) {
            b[3] = (unsigned char)last;
            compare(&o, b, 4);
        }
    }
    skv_free(o.two);
    skv_free(o.three);
}

/* A cut anywhere leaves whole characters; bad bytes are somebody else's business. */
static void complete_is_the_longest_prefix(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 3);
    for (int round = 0; round < 20000; round++) {
        char text[64];
        size_t n = 0, starts[64], n_chars = 0;
        while (n < 48) {
            uint32_t code = (uint32_t)skv_rng_below(&rng, round % 2 ? 0x3000 : LAST_CODE + 1);
            if (!is_scalar(code)) continue;
            starts[n_chars++] = n;
            n += skv_utf8_encode(code, text + n);
        }
        size_t bad = 99;
        assert_true(skv_utf8_valid(text, n, &bad));
        assert_int_equal(bad, 99);
        size_t cut = skv_rng_below(&rng, n + 1), want = 0;
        for (size_t i = 0; i < n_chars; i++) {
            size_t end = i + 1 < n_chars ? starts[i + 1] : n;
            if (end <= cut) want = end;
        }
        assert_int_equal(skv_utf8_complete(text, cut), want);
        assert_int_equal(skv_utf8_valid(text, cut, &bad), want == cut);
        if (want != cut) assert_int_equal(bad, want);
    }
    assert_int_equal(skv_utf8_complete("", 0), 0);
    assert_int_equal(skv_utf8_complete("\x80\x80\x80\x80", 4), 4);
    assert_int_equal(skv_utf8_complete("a\xff", 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_goes_there_and_back),
        cmocka_unit_test(every_string_of_bytes_is_judged),
        cmocka_unit_test(complete_is_the_longest_prefix),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
