/* Fields of options: what each kind takes and refuses, and the texts of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/sampling_fields.h"

typedef struct box {
    bool flag, either;
    size_t size;
    uint64_t count, seed;
    int64_t integer;
    double number;
    int choice;
    const char *word, *text;
} box;

#define AT(member) offsetof(box, member)

static const skv_field fields[] = {
    {"flag", NULL, SKV_FIELD_FLAG, AT(flag), .help = ""},
    {"size", "N", SKV_FIELD_SIZE, AT(size), -1, 1 << 20, .help = ""},
    {"count", "N", SKV_FIELD_COUNT, AT(count), 0, 1e15, .help = ""},
    {"integer", "N", SKV_FIELD_INTEGER, AT(integer), -5, 5, .help = ""},
    {"number", "X", SKV_FIELD_NUMBER, AT(number), 0, 2, .help = ""},
    {"share", "P", SKV_FIELD_NUMBER, AT(number), 0, 1, .open_min = true},
    {"part", "P", SKV_FIELD_NUMBER, AT(number), 0, 1, .open_max = true},
    {"inside", "P", SKV_FIELD_NUMBER, AT(number), 0, 1, .open_min = true, .open_max = true},
    {"seed", "S", SKV_FIELD_SEED, AT(seed), .help = ""},
    {"choice", "red|green|blue", SKV_FIELD_CHOICE, AT(choice), .help = ""},
    {"either", "all|some", SKV_FIELD_EITHER, AT(either), .help = ""},
    {"word", "up|down", SKV_FIELD_WORD, AT(word), .help = ""},
    {"text", "T", SKV_FIELD_TEXT, AT(text), .help = ""},
};

static const skv_field *field_of(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    }
    fail_msg("no field %s", name);
    return NULL;
}

static void take(box *b, const char *name, const char *text)
{
    skv_error err = {0};
    if (skv_field_parse(field_of(name), text, b, &err) != SKV_OK) fail_msg("%s", err.text);
}

static void test_what_is_taken(void **state)
{
    (void)state;
    box b = {0};
    take(&b, "flag", "yes");
    assert_true(b.flag);
    take(&b, "size", "4Ki");
    assert_int_equal(b.size, 4096);
    take(&b, "size", "-1");
    assert_int_equal(b.size, 0);
    take(&b, "count", "1e15");
    assert_true(b.count == UINT64_C(1000000000000000));
    take(&b, "integer", "-5");
    assert_int_equal(b.integer, -5);
    take(&b, "number", "2");
    assert_true(b.number == 2);
    take(&b, "number", "5%");
    assert_true(b.number == 0.05);
    take(&b, "seed", "18446744073709551615");
    assert_true(b.seed == UINT64_MAX);
    take(&b, "choice", "blue");
    assert_int_equal(b.choice, 2);
    take(&b, "either", "some");
    assert_true(b.either);
    take(&b, "word", "down");
    assert_string_equal(b.word, "down");
    take(&b, "text", "");
    assert_string_equal(b.text, "");
}

/* What is refused leaves the field as it was. */
static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *said;
    } cases[] = {
        {"number", "3", "number: 3 is not between 0 and 2"},
        {"number", "-0.5", "number: -0.5 is not between 0 and 2"},
        {"number", "hot", "number: 'hot' is not a number"},
        {"number", "nan", "number: 'nan' is not a number"},
        {"number", "", "number: '' is not a number"},
        {"number", "1e999", "number: '1e999' is not a number"},
        {"share", "0", "share: 0 is not above 0 and at most 1"},
        {"part", "1", "part: 1 is not at least 0 and below 1"},
        {"inside", "1", "inside: 1 is not above 0 and below 1"},
        {"size", "-2", "size: -2 is not between -1 and 1048576"},
        {"size", "1.5", "size: 1.5 is not a whole number"},
        {"count", "x", "count: 'x' is not a whole number"},
        {"integer", "6", "integer: 6 is not between -5 and 5"},
        {"seed", "-1", "seed: '-1' is not a whole number"},
        {"seed", "1.5", "seed: '1.5' is not a whole number"},
        {"seed", "18446744073709551616", "seed: '18446744073709551616' is not a whole number"},
        {"choice", "pink", "choice: 'pink' is not one of red, green, blue"},
        {"choice", "re", "choice: 're' is not one of red, green, blue"},
        {"choice", "red|green", "choice: 'red|green' is not one of red, green, blue"},
        {"either", "", "either: '' is not one of all, some"},
        {"word", "left", "word: 'left' is not one of up, down"},
        {"flag", "maybe", "flag: 'maybe' is not one of no, yes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        box b = {.number = 0.5, .integer = 3, .seed = 7}, before = b;
        skv_error err = {0};
        assert_int_not_equal(skv_field_parse(field_of(cases[i].name), cases[i].text, &b, &err),
                             SKV_OK);
        assert_string_equal(err.text, cases[i].said);
        assert_memory_equal(&b, &before, sizeof b);
    }
}

/* Every number of the sampling table at its bounds and just outside, by both ways in. */
static void test_sampling(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; skv_sampling_field(i); i++) {
        const skv_field *f = skv_sampling_field(i);
        assert_non_null(f->help);
        if (f->kind == SKV_FIELD_SEED) continue;
        skv_sampling s = skv_sampling_default();
        skv_error err = {0};
        assert_int_equal(skv_field_set(f, f->min, &s, &err), f->open_min ? SKV_RANGE : SKV_OK);
        assert_int_equal(skv_field_set(f, f->max, &s, &err), f->open_max ? SKV_RANGE : SKV_OK);
        assert_int_equal(skv_field_set(f, f->max + 1, &s, &err), SKV_RANGE);
        assert_int_equal(skv_field_set(f, f->min - 1, &s, &err), SKV_RANGE);
        assert_int_equal(skv_sampling_check(&s, &err), SKV_OK);
        n++;
    }
    assert_true(n >= 7);
    skv_sampling s = skv_sampling_default();
    skv_error err = {0};
    s.presence_penalty = 3;
    assert_int_equal(skv_sampling_check(&s, &err), SKV_RANGE);
    assert_string_equal(err.text, "presence_penalty: 3 is not between -2 and 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_sampling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
