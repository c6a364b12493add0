/* Values of options that are more than a number, a word or a text: see options.h. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "options.h"

/* Makes room for one more item of a list of n. */
static skv_status check_room(const skv_field *field, size_t n, skv_error *err)
{
    SKV_REQUIRE(n < CLI_LIST_MAX, err, SKV_FULL, "%s: more than %d values", field->name,
                CLI_LIST_MAX);
    return SKV_OK;
}

typedef skv_status add_item(const skv_field *field, const char *item, void *list, skv_error *err);

/* The items of a list between commas. */
static skv_status parse_list(const skv_field *field, const char *text, add_item *add, void *list,
                             skv_error *err)
{
    for (const char *at = text;;) {
        const size_t n = strcspn(at, ",");
        char item[24] = {0};
        SKV_REQUIRE(n > 0 && n < sizeof item, err, SKV_ARGUMENT,
                    "%s: '%s' is not a list of numbers", field->name, text);
        memcpy(item, at, n);
        SKV_TRY(add(field, item, list, err));
        if (at[n] == 0) return SKV_OK;
        at += n + 1;
    }
}

/* The field of one item of a list. */
static skv_field item_of(const skv_field *field, skv_field_kind kind)
{
    skv_field out = *field;
    out.kind = kind;
    out.offset = 0;
    return out;
}

static skv_status add_size(const skv_field *field, const char *item, void *list, skv_error *err)
{
    cli_sizes *out = list;
    const skv_field one = item_of(field, SKV_FIELD_SIZE);
    SKV_TRY(check_room(field, out->n, err));
    return skv_field_parse(&one, item, &out->at[out->n++], err);
}

static skv_status add_number(const skv_field *field, const char *item, void *list, skv_error *err)
{
    cli_numbers *out = list;
    const skv_field one = item_of(field, SKV_FIELD_NUMBER);
    SKV_TRY(check_room(field, out->n, err));
    return skv_field_parse(&one, item, &out->at[out->n++], err);
}

skv_status cli_parse_sizes(const skv_field *field, const char *text, void *out, skv_error *err)
{
    cli_sizes list = {0};
    SKV_TRY(parse_list(field, text, add_size, &list, err));
    *(cli_sizes *)out = list;
    return SKV_OK;
}

skv_status cli_parse_numbers(const skv_field *field, const char *text, void *out, skv_error *err)
{
    cli_numbers list = {0};
    SKV_TRY(parse_list(field, text, add_number, &list, err));
    *(cli_numbers *)out = list;
    return SKV_OK;
}

skv_status cli_parse_texts(const skv_field *field, const char *text, void *out, skv_error *err)
{
    cli_texts *list = out;
    SKV_REQUIRE(text[0] != 0, err, SKV_ARGUMENT, "%s: the text is empty", field->name);
    SKV_TRY(check_room(field, list->n, err));
    list->at[list->n++] = text;
    return SKV_OK;
}

/* One of the choices that the help shows, which `parse` of the library knows too. */
static skv_status one_of(const skv_field *field, const char *text, bool known, skv_error *err)
{
    skv_field word = *field;
    const char *found;
    word.kind = SKV_FIELD_WORD;
    word.offset = 0;
    SKV_TRY(skv_field_parse(&word, text, &found, err));
    SKV_REQUIRE(known, err, SKV_ARGUMENT, "%s: the library does not know '%s'", field->name, text);
    return SKV_OK;
}

/* Defines the parser of a kind of words. */
#define WORDS(parser, known)                                                                       \
    skv_status parser(const skv_field *field, const char *text, void *out, skv_error *err)         \
    {                                                                                              \
        return one_of(field, text, known(text, out), err);                                         \
    }
WORDS(cli_parse_weights, skv_weights_parse)
WORDS(cli_parse_kv, skv_kv_parse)
WORDS(cli_parse_state, skv_state_type_parse)
WORDS(cli_parse_sums, skv_sums_parse)
WORDS(cli_parse_prefill, skv_prefill_parse)

/* Fails for words with numbers in them. The help shows their form; `ranges` gives their ranges. */
static skv_status wrong_form(const skv_field *field, const char *text, const char *ranges,
                             skv_error *err)
{
    return skv_fail(err, SKV_ARGUMENT, "%s: '%s' is not %s, %s", field->name, text, field->argument,
                    ranges);
}

skv_status cli_parse_pruning(const skv_field *field, const char *text, void *out, skv_error *err)
{
    if (skv_pruning_parse(text, out)) return SKV_OK;
    return wrong_form(field, text, "P above 0 and at most 1, E above 0 and at most P", err);
}

skv_status cli_parse_ffn_skip(const skv_field *field, const char *text, void *out, skv_error *err)
{
    if (skv_ffn_skip_parse(text, out)) return SKV_OK;
    return wrong_form(field, text, "S above -1 and at most 1, 0 <= from < to <= 1, or none", err);
}

skv_status cli_parse_eviction(const skv_field *field, const char *text, void *out, skv_error *err)
{
    if (skv_eviction_parse(text, out, err) == SKV_OK) return SKV_OK;
    return skv_fail_within(err, SKV_ARGUMENT, field->name);
}

skv_status cli_parse_speculation(const skv_field *field, const char *text, void *out,
                                 skv_error *err)
{
    if (skv_speculation_parse(text, out, err) == SKV_OK) return SKV_OK;
    return skv_fail_within(err, SKV_ARGUMENT, field->name);
}

skv_status cli_parse_snapkv(const skv_field *field, const char *text, void *out, skv_error *err)
{
    char whole[2 * SKV_EVICTION_TEXT];
    const int n = snprintf(whole, sizeof whole, "snapkv:%s", text);
    SKV_REQUIRE(n > 0 && (size_t)n < sizeof whole, err, SKV_ARGUMENT, "%s: the text is too long",
                field->name);
    return cli_parse_eviction(field, whole, out, err);
}
