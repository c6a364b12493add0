/* Fields of options, recipes and requests: see field.h. */
#include "common/field.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT_MAX = 64, CHOICES_TEXT_MAX = 256 };

/* ---- numbers ---- */

static double unit_of(const char *text)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},    {"%", 0.01},    {"K", 1e3},     {"M", 1e6},
                 {"G", 1e9}, {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].name, text) == 0) return units[i].factor;
    }
    return 0;
}

static bool starts_number(const char *text)
{
    if (*text == '-' || *text == '+') text++;
    return (*text >= '0' && *text <= '9') || *text == '.';
}

bool skv_number_parse(const char *text, double *out)
{
    if (strlen(text) >= NUMBER_TEXT_MAX || !starts_number(text)) return false;
    char *end;
    double value = strtod(text, &end);
    if (end == text) return false;
    if (*end == '^' && starts_number(end + 1)) {
        value = pow(value, strtod(end + 1, &end));
        if (*end != 0) return false;
    } else {
        value *= unit_of(end);
        if (unit_of(end) == 0) return false;
    }
    if (!isfinite(value)) return false;
    *out = value;
    return true;
}

/* All 64 bits of a seed, which a double would round. */
static bool parse_seed(const char *text, uint64_t *out)
{
    if (*text < '0' || *text > '9') return false;
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}

void skv_field_range(const skv_field *field, char out[SKV_FIELD_RANGE_TEXT])
{
    const bool closed = !field->open_min && !field->open_max;
    const char *low = closed ? "between" : field->open_min ? "above" : "at least";
    const char *high = closed ? "" : field->open_max ? "below " : "at most ";
    (void)snprintf(out, SKV_FIELD_RANGE_TEXT, "%s %.15g and %s%.15g", low, field->min, high,
                   field->max);
}

/* given: the value as its user wrote it; NULL: as a number. */
static skv_status check_number(const skv_field *field, double value, const char *given,
                               skv_error *err)
{
    char range[SKV_FIELD_RANGE_TEXT], number[32];
    (void)snprintf(number, sizeof number, "%.15g", value);
    if (!given) given = number;
    const bool above = field->open_min ? value > field->min : value >= field->min;
    const bool below = field->open_max ? value < field->max : value <= field->max;
    if (!above || !below) { /* NaN is neither */
        skv_field_range(field, range);
        return skv_fail(err, SKV_RANGE, "%s: %.40s is not %s", field->name, given, range);
    }
    const bool whole = field->kind == SKV_FIELD_NUMBER || value == floor(value);
    SKV_REQUIRE(whole, err, SKV_ARGUMENT, "%s: %.40s is not a whole number", field->name, given);
    return SKV_OK;
}

static skv_status set_number(const skv_field *field, double value, const char *given, void *object,
                             skv_error *err)
{
    assert(field->kind >= SKV_FIELD_SIZE && field->kind <= SKV_FIELD_NUMBER);
    SKV_TRY(check_number(field, value, given, err));
    unsigned char *at = (unsigned char *)object + field->offset;
    if (field->kind == SKV_FIELD_NUMBER) {
        memcpy(at, &value, sizeof value);
    } else if (field->kind == SKV_FIELD_INTEGER) {
        memcpy(at, &(int64_t){(int64_t)value}, sizeof(int64_t));
    } else if (field->kind == SKV_FIELD_SIZE) {
        memcpy(at, &(size_t){value > 0 ? (size_t)value : 0}, sizeof(size_t));
    } else {
        memcpy(at, &(uint64_t){(uint64_t)value}, sizeof(uint64_t));
    }
    return SKV_OK;
}

skv_status skv_field_set(const skv_field *field, double value, void *object, skv_error *err)
{
    return set_number(field, value, NULL, object, err);
}

skv_status skv_field_check(const skv_field *field, const void *object, skv_error *err)
{
    const unsigned char *at = (const unsigned char *)object + field->offset;
    double number;
    size_t size;
    if (field->kind == SKV_FIELD_NUMBER) {
        memcpy(&number, at, sizeof number);
        return check_number(field, number, NULL, err);
    }
    if (field->kind != SKV_FIELD_SIZE) return SKV_OK;
    memcpy(&size, at, sizeof size);
    return check_number(field, (double)size, NULL, err);
}

/* ---- choices ---- */

/* The place of `text` in "a|b|c", -1: none. */
static int place_in(const char *choices, const char *text)
{
    const size_t n = strlen(text);
    for (int i = 0;; i++) {
        const size_t length = strcspn(choices, "|");
        if (length == n && memcmp(choices, text, n) == 0) return i;
        if (choices[length] == 0) return -1;
        choices += length + 1;
    }
}

/* "a, b, c" of "a|b|c". */
static void list_choices(const char *choices, char out[CHOICES_TEXT_MAX])
{
    size_t n = 0;
    for (; *choices != 0 && n + 3 < CHOICES_TEXT_MAX; choices++) {
        out[n++] = *choices == '|' ? ',' : *choices;
        if (*choices == '|') out[n++] = ' ';
    }
    out[n] = 0;
}

static skv_status set_choice(const skv_field *field, const char *text, unsigned char *at,
                             skv_error *err)
{
    const char *choices = field->kind == SKV_FIELD_FLAG ? "no|yes" : field->argument;
    const int place = place_in(choices, text);
    if (place < 0) return skv_field_mismatch(field, text, err);
    static_assert(sizeof(skv_field_kind) == sizeof place, "an enum is as wide as an int");
    if (field->kind == SKV_FIELD_CHOICE) {
        memcpy(at, &place, sizeof place);
    } else if (field->kind == SKV_FIELD_WORD) {
        memcpy(at, &text, sizeof(const char *));
    } else {
        memcpy(at, &(bool){place == 1}, sizeof(bool));
    }
    return SKV_OK;
}

/* ---- any field ---- */

skv_status skv_field_mismatch(const skv_field *field, const char *given, skv_error *err)
{
    char choices[CHOICES_TEXT_MAX] = "no, yes";
    switch (field->kind) {
    case SKV_FIELD_NUMBER:
        return skv_fail(err, SKV_ARGUMENT, "%s: '%.40s' is not a number", field->name, given);
    case SKV_FIELD_SIZE:
    case SKV_FIELD_COUNT:
    case SKV_FIELD_INTEGER:
    case SKV_FIELD_SEED:
        return skv_fail(err, SKV_ARGUMENT, "%s: '%.40s' is not a whole number", field->name, given);
    case SKV_FIELD_CHOICE:
    case SKV_FIELD_EITHER:
    case SKV_FIELD_WORD: list_choices(field->argument, choices); break;
    case SKV_FIELD_FLAG:
    case SKV_FIELD_TEXT:
    case SKV_FIELD_PARSED: break;
    }
    return skv_fail(err, SKV_ARGUMENT, "%s: '%.40s' is not one of %s", field->name, given, choices);
}

skv_status skv_field_parse(const skv_field *field, const char *text, void *object, skv_error *err)
{
    unsigned char *at = (unsigned char *)object + field->offset;
    double value;
    uint64_t seed;
    switch (field->kind) {
    case SKV_FIELD_SIZE:
    case SKV_FIELD_COUNT:
    case SKV_FIELD_INTEGER:
    case SKV_FIELD_NUMBER:
        if (!skv_number_parse(text, &value)) return skv_field_mismatch(field, text, err);
        return set_number(field, value, text, object, err);
    case SKV_FIELD_SEED:
        if (!parse_seed(text, &seed)) return skv_field_mismatch(field, text, err);
        memcpy(at, &seed, sizeof seed);
        return SKV_OK;
    case SKV_FIELD_TEXT: memcpy(at, &text, sizeof(const char *)); return SKV_OK;
    case SKV_FIELD_PARSED: return field->parse(field, text, at, err);
    case SKV_FIELD_FLAG:
    case SKV_FIELD_CHOICE:
    case SKV_FIELD_EITHER:
    case SKV_FIELD_WORD: break;
    }
    return set_choice(field, text, at, err);
}
