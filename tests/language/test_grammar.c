/*
 * Constrained decoding: rules, limits, what a matcher promises, masks against tokens tried alone.
 * The oracles for regular expressions and schemas are test_grammar_regex.py and
 * test_grammar_schema.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "attack.h"
#include "base/rng.h"
#include "grammar/parse_space.h"
#include "grammar/token_table.h"
#include "skv/grammar.h"

enum { N_TOKENS = 300, END = 299, SPECIAL = 298 };

/* Single bytes, and tokens that cross the borders of what grammars are made of. */
static bool token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    static const char *const more[] = {"\"}",  "\":",   "\",",      "{\"", "[[[",      "]]",
                                       "\n  ", "12",    "ab",       "abc", "\xc3\xa4", "\xa4\"",
                                       ", \"", "true}", "\xf0\x9f", "  ",  "[1,",      "1]",
                                       "ab",   "aaaa",  "((("};
    char *byte = user;
    if (id >= 256 + sizeof more / sizeof more[0]) return false;
    *byte = (char)id;
    *bytes = id < 256 ? byte : more[id - 256];
    *n = id < 256 ? 1 : strlen(*bytes);
    return true;
}

static skv_token_table *make_table(void)
{
    char byte;
    skv_token_table *table = NULL;
    assert_int_equal(skv_token_table_build(N_TOKENS, token, &byte, &table, NULL), SKV_OK);
    skv_token_table_add_end(table, END);
    return table;
}

/* Within the default limits but that on time, which others that run here would decide. */
static skv_status compile_in_time(skv_grammar_kind kind, const char *text, skv_grammar **out,
                                  skv_error *err)
{
    skv_limits limits = skv_limits_default();
    skv_budget budget;
    limits.max_ns = 0;
    skv_budget_init(&budget, &limits);
    const skv_status status = skv_grammar_compile(kind, text, strlen(text), &budget, out, err);
    skv_budget_release(&budget);
    return status;
}

static skv_grammar *compile(skv_grammar_kind kind, const char *text)
{
    skv_grammar *g = NULL;
    skv_error err = {0};
    if (compile_in_time(kind, text, &g, &err) != SKV_OK) fail_msg("%s", err.text);
    return g;
}

static skv_matcher *start(const skv_grammar *g, const skv_token_table *table)
{
    skv_matcher *m = NULL;
    assert_int_equal(skv_matcher_create(g, table, NULL, &m, NULL), SKV_OK);
    return m;
}

/* 'c': the text is complete, 'a': something must follow, 'n': it does not fit. */
static char match(skv_grammar_kind kind, const char *grammar, const char *text)
{
    skv_grammar *g = compile(kind, grammar);
    skv_matcher *m = start(g, NULL);
    bool fits = skv_matcher_accept_bytes(m, text, strlen(text), NULL) == SKV_OK;
    char out = 'n';
    if (fits) out = skv_matcher_is_complete(m) ? 'c' : 'a';
    skv_matcher_free(m);
    skv_grammar_free(g);
    return out;
}

static void check_refused(skv_grammar_kind kind, const char *text, skv_status status,
                          const char *words)
{
    skv_grammar *g = NULL;
    skv_error err = {0};
    assert_int_equal(compile_in_time(kind, text, &g, &err), status);
    assert_null(g);
    if (!strstr(err.text, words)) fail_msg("\"%s\" is not in: %s", words, err.text);
}

/* ---- rules ---- */

static void test_rules(void **state)
{
    static const char sums[] = "# sums\n"
                               "root ::= expr \"\\n\"\n"
                               "expr ::= term ([-+*/] term)*   # left to right\n"
                               "term ::= number |\n"
                               "         \"(\" expr \")\"\n"
                               "number ::= [0-9]{1,3}\n"
                               "unused ::= unused \"x\" | \"\"\n";
    static const struct {
        const char *grammar, *text;
        char expected;
    } cases[] = {
        {sums, "1+(22*3)\n", 'c'},
        {sums, "1+(22*3\n", 'n'},
        {sums, "((((1))))", 'a'},
        {sums, "1234\n", 'n'},
        {"root ::= \"a\" | \"b\"\n   | \"c\"", "c", 'c'},
        {"root ::= (\n \"a\"\n \"b\" # ab\n)+", "abab", 'c'},
        {"root ::= \"a\" root \"b\" | \"\"", "aaabbb", 'c'},
        {"root ::= \"a\" root \"b\" | \"\"", "aaabb", 'a'},
        {"root ::= \"a\" root \"b\" | \"\"", "aabbb", 'n'},
        {"root ::= [^a-c]+", "xyz\xc3\xa4\n", 'c'},
        {"root ::= [^a-c]+", "xbz", 'n'},
        {"root ::= [\\]\\\\\\x41\\u00e4-\\u00f6]+", "]\\A\xc3\xa4\xc3\xb6", 'c'},
        {"root ::= . .", "\xf0\x9f\x99\x82\n", 'c'},
        {"root ::= \"\\\"\\t\\n\\U0001F642\"", "\"\t\n\xf0\x9f\x99\x82", 'c'},
        {"root ::= \"x\"{2,3} \"y\"{2} \"z\"{1,}", "xxyyzzzz", 'c'},
        {"root ::= \"x\"{2,3} \"y\"{2} \"z\"{1,}", "xxxxyyz", 'n'},
        {"root ::= x-y_1\nx-y_1 ::= \"q\"?", "", 'c'},
        {"root ::= list\nlist ::= item | item \",\" list\nitem ::= [a-z]+", "a,bc,d", 'c'},
        {"root ::= (\"a\" | \"a\" \"b\" | \"a\" \"b\" \"c\")*", "aabcabca", 'c'},
        {"root ::= s s s\ns ::= \"a\" s | \"\"", "aaaaaaaaaa", 'c'},
        {"root ::= \"a\"*\r\n", "aa", 'c'},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char found = match(SKV_GRAMMAR_GBNF, cases[i].grammar, cases[i].text);
        if (found != cases[i].expected) fail_msg("case %zu: '%c'", i, found);
    }
}

static void test_rules_refused(void **state)
{
    static const struct {
        const char *grammar;
        skv_status status;
        const char *words;
    } cases[] = {
        {"", SKV_FORMAT, "\"root\" is not defined"},
        {"a ::= \"x\"", SKV_FORMAT, "\"root\" is not defined"},
        {"root ::= item", SKV_FORMAT, "byte 9: rule \"item\" is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", SKV_FORMAT, "\"root\" is defined twice"},
        {"root ::= \"a", SKV_FORMAT, "line 1, byte 9: a text without its end"},
        {"root ::= \"a\"\n\nb ::= [a", SKV_FORMAT, "line 3"},
        {"root ::= (\"a\"", SKV_FORMAT, "a group without its end"},
        {"root ::= \"a\")", SKV_FORMAT, "')' without"},
        {"root ::= \"a\"{3,2}", SKV_FORMAT, "minimum is above"},
        {"root ::= \"a\"{x}", SKV_FORMAT, "a repetition that is none"},
        {"root ::= [z-a]", SKV_FORMAT, "a range that is none"},
        {"root ::= \"\\q\"", SKV_FORMAT, "an unknown escape"},
        {"root ::= \"\\ud800\"", SKV_FORMAT, "no code point"},
        {"root ::= <think>", SKV_FORMAT, "tokens <...> are not supported"},
        {"root = \"a\"", SKV_FORMAT, "no rule"},
        {"root ::= * \"a\"", SKV_FORMAT, "no text, class, group or rule"},
        {"root ::= \"\xff\"", SKV_FORMAT, "not UTF-8"},
        {"root ::= root \"a\" | \"b\"", SKV_UNSUPPORTED, "\"root\" calls itself before"},
        {"root ::= \"x\" a\na ::= b? c\nb ::= \"y\"\nc ::= a \"z\" | \"w\"", SKV_UNSUPPORTED,
         "left recursion"},
        {"root ::= \"a\" root", SKV_FORMAT, "nothing can match it"},
        {"root ::= a\na ::= a", SKV_FORMAT, "nothing can match it"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_refused(SKV_GRAMMAR_GBNF, cases[i].grammar, cases[i].status, cases[i].words);
    }
}

static void test_choices(void **state)
{
    static const char choices[] = "[\"yes\", \"yes, but\", \"no\", \"\\u00e4\", \"no\"]";
    (void)state;
    assert_int_equal(match(SKV_GRAMMAR_CHOICE, choices, "yes"), 'c');
    assert_int_equal(match(SKV_GRAMMAR_CHOICE, choices, "yes, but"), 'c');
    assert_int_equal(match(SKV_GRAMMAR_CHOICE, choices, "yes,"), 'a');
    assert_int_equal(match(SKV_GRAMMAR_CHOICE, choices, "\xc3\xa4"), 'c');
    assert_int_equal(match(SKV_GRAMMAR_CHOICE, choices, "nope"), 'n');
    check_refused(SKV_GRAMMAR_CHOICE, "[]", SKV_FORMAT, "no array of texts");
    check_refused(SKV_GRAMMAR_CHOICE, "{\"a\":1}", SKV_FORMAT, "no array of texts");
    check_refused(SKV_GRAMMAR_CHOICE, "[\"a\", 1]", SKV_FORMAT, "element 1");
    check_refused((skv_grammar_kind)9, "a", SKV_ARGUMENT, "unknown kind 9");
}

/* ---- limits ---- */

/* Readings double with every letter; the grammar stays usable until the limit, and says it. */
static void test_ambiguity_is_bounded(void **state)
{
    static const char doubling[] =
        "root ::= a\na ::= \"x\" a \"1\" | \"x\" a \"2\" | \"x\" b\nb ::= \"y\"";
    char text[64];
    skv_error err = {0};
    skv_grammar *g = compile(SKV_GRAMMAR_GBNF, doubling);
    skv_matcher *m = start(g, NULL);
    (void)state;
    memset(text, 'x', sizeof text);
    skv_status status = SKV_OK;
    for (size_t i = 0; i < sizeof text && status == SKV_OK; i++) {
        status = skv_matcher_accept_bytes(m, text, 1, &err);
    }
    assert_true(status == SKV_OK || strstr(err.text, "1024 ways"));
    skv_matcher_free(m);
    skv_grammar_free(g);
}

static void test_depth_is_bounded(void **state)
{
    char text[1000];
    size_t n = 0;
    skv_error err = {0};
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_JSON_OBJECT, "");
    skv_matcher *m = start(g, table);
    uint32_t bits[N_TOKENS / 32 + 1];
    (void)state;
    assert_int_equal(skv_matcher_accept_bytes(m, "{\"a\":", 5, NULL), SKV_OK);
    while (skv_matcher_accept_bytes(m, "[", 1, &err) == SKV_OK) n++;
    assert_in_range(n, 60, 200);
    assert_non_null(strstr(err.text, "nesting"));
    /* At the limit the masks still lead out, by values that need no more depth. */
    assert_int_equal(skv_matcher_mask(m, bits, N_TOKENS, &err), SKV_OK);
    assert_true((bits['1' / 32] >> '1' % 32 & 1) != 0);
    assert_true((bits[']' / 32] >> ']' % 32 & 1) != 0);
    assert_true((bits['[' / 32] >> '[' % 32 & 1) == 0);
    memset(text, ']', sizeof text);
    assert_int_equal(skv_matcher_accept_bytes(m, text, n, NULL), SKV_OK);
    assert_int_equal(skv_matcher_accept_bytes(m, "}", 1, NULL), SKV_OK);
    assert_true(skv_matcher_is_finished(m));
    skv_matcher_free(m);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

static void test_size_is_bounded(void **state)
{
    (void)state;
    check_refused(SKV_GRAMMAR_GBNF, "root ::= ((\"a\"{1000}){1000}){1000}", SKV_RANGE, "states");
    check_refused(SKV_GRAMMAR_REGEX, "a{100001}", SKV_RANGE, "100000");
    check_refused(SKV_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":1000000}", SKV_RANGE,
                  "maxLength");
    skv_grammar *g = NULL;
    skv_error err;
    assert_int_equal(
        skv_grammar_compile(SKV_GRAMMAR_REGEX, "", SKV_GRAMMAR_TEXT_MAX + 1, NULL, &g, &err),
        SKV_RANGE);
}

/* Positions that nobody stands on are dropped, and matchers do not notice. */
static void test_memory_is_bounded(void **state)
{
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "[ab]*a[ab]{14}c");
    skv_parse_space space;
    skv_rng rng;
    (void)state;
    skv_rng_init(&rng, 1);
    assert_true(skv_parse_space_init(&space, g, NULL));
    uint32_t place = skv_parse_start(&space), other = place;
    for (size_t i = 0; i < 20000; i++) {
        place = skv_parse_next(&space, place, (uint8_t)('a' + skv_rng_below(&rng, 2)));
        if (i == 10) other = place;
        assert_int_not_equal(place, SKV_PLACE_DEAD);
    }
    size_t n_places = space.n_places;
    uint32_t *kept[] = {&place, &other};
    skv_config before = space.configs[space.places[place].first];
    assert_true(skv_parse_tidy(&space, kept, 2));
    assert_in_range(space.n_places, 3, 3);
    assert_true(n_places > 1000);
    assert_int_equal(space.configs[space.places[place].first].state, before.state);
    for (size_t i = 0; i < 15; i++) place = skv_parse_next(&space, place, 'a');
    assert_int_not_equal(skv_parse_next(&space, place, 'c'), SKV_PLACE_DEAD);
    skv_parse_space_release(&space);
    skv_grammar_free(g);
}

/* ---- matchers ---- */

static bool allows(skv_matcher *m, uint32_t id)
{
    uint32_t bits[N_TOKENS / 32 + 1];
    assert_int_equal(skv_matcher_mask(m, bits, N_TOKENS, NULL), SKV_OK);
    return (bits[id / 32] >> id % 32 & 1) != 0;
}

static void test_endings(void **state)
{
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "ab?");
    skv_matcher *m = start(g, table);
    skv_error err;
    (void)state;
    assert_false(allows(m, END));
    assert_int_equal(skv_matcher_accept(m, END, NULL, NULL, &err), SKV_ARGUMENT);
    assert_int_equal(skv_matcher_accept(m, 'a', NULL, NULL, &err), SKV_OK);
    assert_true(allows(m, END));
    assert_true(allows(m, 'b'));
    assert_false(allows(m, SPECIAL));
    assert_int_equal(skv_matcher_accept(m, SPECIAL, NULL, NULL, &err), SKV_ARGUMENT);
    assert_true(skv_matcher_is_complete(m));
    assert_false(skv_matcher_is_finished(m));
    assert_int_equal(skv_matcher_accept(m, 'b', NULL, NULL, &err), SKV_OK);
    assert_true(skv_matcher_is_finished(m));
    assert_false(allows(m, 'b'));
    assert_true(allows(m, END));
    assert_int_equal(skv_matcher_accept(m, END, NULL, NULL, &err), SKV_OK);
    assert_false(allows(m, END));
    assert_int_equal(skv_matcher_accept(m, END, NULL, NULL, &err), SKV_ARGUMENT);
    assert_int_equal(skv_matcher_accept(m, N_TOKENS, NULL, NULL, &err), SKV_ARGUMENT);
    assert_int_equal(skv_matcher_accept(m, -1, NULL, NULL, &err), SKV_ARGUMENT);
    skv_matcher_free(m);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

/* Nothing can follow, so that the position has no configurations. */
static void test_empty_regex(void **state)
{
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "");
    skv_matcher *m = start(g, table);
    (void)state;
    assert_true(skv_matcher_is_finished(m));
    for (uint32_t id = 0; id < N_TOKENS; id++) assert_int_equal(allows(m, id), id == END);
    assert_int_equal(skv_matcher_accept(m, 'a', NULL, NULL, NULL), SKV_ARGUMENT);
    assert_int_equal(skv_matcher_accept(m, END, NULL, NULL, NULL), SKV_OK);
    skv_matcher_free(m);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

static void test_rollback_and_copy(void **state)
{
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "(ab|cd)*");
    skv_matcher *m = start(g, table), *copy = NULL;
    (void)state;
    assert_false(skv_matcher_rollback(m, 1));
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(skv_matcher_accept(m, i % 2 ? 'b' : 'a', NULL, NULL, NULL), SKV_OK);
    }
    assert_false(skv_matcher_rollback(m, SKV_MATCHER_ROLLBACK_MAX + 1));
    assert_int_equal(skv_matcher_accept(m, 'c', NULL, NULL, NULL), SKV_OK);
    assert_int_equal(skv_matcher_copy(m, &copy, NULL), SKV_OK);
    assert_int_equal(skv_matcher_accept(m, 'a', NULL, NULL, NULL), SKV_ARGUMENT);
    assert_int_equal(skv_matcher_accept(m, 'd', NULL, NULL, NULL), SKV_OK);
    assert_true(skv_matcher_is_complete(m));
    assert_false(skv_matcher_is_complete(copy));
    assert_true(skv_matcher_rollback(copy, 1));
    assert_true(skv_matcher_is_complete(copy));
    assert_true(allows(copy, 'a'));
    assert_true(skv_matcher_rollback(m, 0));
    assert_true(skv_matcher_rollback(m, SKV_MATCHER_ROLLBACK_MAX));
    assert_false(skv_matcher_rollback(m, 1));
    skv_matcher_free(m);
    assert_int_equal(skv_matcher_accept(copy, 'c', NULL, NULL, NULL), SKV_OK);
    skv_matcher_free(copy);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

static void test_forced(void **state)
{
    char out[64];
    skv_grammar *g = compile(SKV_GRAMMAR_REGEX, "abc[xy]d\xc3\xa4(e|f)?");
    skv_matcher *m = start(g, NULL);
    (void)state;
    assert_int_equal(skv_matcher_forced(m, out, sizeof out), 3);
    assert_memory_equal(out, "abc", 3);
    assert_int_equal(skv_matcher_forced(m, out, 2), 2);
    assert_int_equal(skv_matcher_accept_bytes(m, "abcx", 4, NULL), SKV_OK);
    assert_int_equal(skv_matcher_forced(m, out, sizeof out), 3);
    assert_memory_equal(out, "d\xc3\xa4", 3);
    assert_int_equal(skv_matcher_accept_bytes(m, "d\xc3\xa4", 3, NULL), SKV_OK);
    assert_int_equal(skv_matcher_forced(m, out, sizeof out), 0);
    skv_matcher_free(m);
    skv_grammar_free(g);
}

static void test_logits(void **state)
{
    const uint32_t bits[] = {0x80000001u, 2};
    float logits[40];
    (void)state;
    for (size_t i = 0; i < 40; i++) logits[i] = (float)i;
    skv_mask_logits(bits, logits, 40);
    for (size_t i = 0; i < 40; i++) {
        bool kept = i == 0 || i == 31 || i == 33;
        assert_true(kept ? logits[i] == (float)i : logits[i] < -1e30F);
    }
}

/* ---- masks ---- */

/* The mask, compared with every token tried alone; returns an allowed one, -1: none. */
static int32_t check_mask(skv_matcher *m, const char *text, skv_rng *rng)
{
    uint32_t bits[N_TOKENS / 32 + 1];
    size_t n = 0;
    int32_t next = -1;
    assert_int_equal(skv_matcher_mask(m, bits, N_TOKENS, NULL), SKV_OK);
    for (uint32_t id = 0; id < N_TOKENS; id++) {
        bool said = (bits[id / 32] >> id % 32 & 1) != 0;
        bool fits = skv_matcher_accept(m, (int32_t)id, NULL, NULL, NULL) == SKV_OK;
        if (fits) assert_true(skv_matcher_rollback(m, 1));
        if (said != fits) fail_msg("%s: token %u: mask %d", text, (unsigned)id, said);
        bool likely = id >= 256 && id != END;
        if (said && skv_rng_below(rng, ++n) < (likely ? 3 : 1)) next = (int32_t)id;
    }
    return next;
}

/* Random walks. */
static void check_masks(skv_grammar_kind kind, const char *text, const skv_token_table *table)
{
    skv_grammar *g = compile(kind, text);
    skv_rng rng;
    skv_rng_init(&rng, 7);
    for (size_t walk = 0; walk < 4; walk++) {
        skv_matcher *m = start(g, table);
        for (size_t i = 0; i < 25 && !skv_matcher_is_finished(m); i++) {
            int32_t next = check_mask(m, text, &rng);
            assert_true(next >= 0);
            assert_int_equal(skv_matcher_accept(m, next, NULL, NULL, NULL), SKV_OK);
        }
        skv_matcher_free(m);
    }
    skv_grammar_free(g);
}

static void test_masks(void **state)
{
    skv_token_table *table = make_table();
    (void)state;
    check_masks(SKV_GRAMMAR_JSON_OBJECT, "", table);
    check_masks(SKV_GRAMMAR_REGEX, "(ab|a\xc3\xa4\")*[^\"]{0,300}", table);
    check_masks(SKV_GRAMMAR_REGEX, "([a-c]{3,400}\\n  ){2,40}x?", table);
    check_masks(SKV_GRAMMAR_REGEX, ".*a.{20}", table);
    check_masks(SKV_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | [a-c]* root2\nroot2 ::= [1-3]+",
                table);
    check_masks(SKV_GRAMMAR_GBNF,
                "root ::= a\na ::= \"a\" a \"b\" | \"a\" a \"1\" | [12] | a2\n"
                "a2 ::= \"aa\" a2? \"bb\" | \"[[\" a \"]\"",
                table);
    check_masks(
        SKV_GRAMMAR_JSON_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"string\",\"maxLength\":90},"
        "\"c\":{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"boolean\"]}}},"
        "\"additionalProperties\":{\"$ref\":\"#\"}}",
        table);
    skv_token_table_free(table);
}

/* Readings of p double with every letter until that of q, the last one, is dropped: inside a token
 * at one of the steps, while q alone would meet no limit there. */
static void test_masks_at_limits(void **state)
{
    static const char doubling[] = "root ::= p | q\np ::= \"a\" p \"1\" | \"a\" p \"2\" | \"b\"\n"
                                   "q ::= \"a\" q \"3\" | \"bc\"";
    skv_token_table *table = make_table();
    skv_grammar *g = compile(SKV_GRAMMAR_GBNF, doubling);
    skv_matcher *m = start(g, table);
    skv_rng rng;
    skv_error err = {0};
    (void)state;
    skv_rng_init(&rng, 7);
    assert_int_equal(skv_matcher_accept_bytes(m, "abc", 3, NULL), SKV_OK);
    assert_true(skv_matcher_rollback(m, 1));
    for (size_t i = 0; i < 14; i++) {
        check_mask(m, doubling, &rng);
        assert_int_equal(skv_matcher_accept_bytes(m, "a", 1, NULL), SKV_OK);
    }
    assert_int_equal(skv_matcher_accept_bytes(m, "bc", 2, &err), SKV_FULL);
    assert_non_null(strstr(err.text, "1024 ways"));
    skv_matcher_free(m);
    skv_grammar_free(g);
    skv_token_table_free(table);
}

/* Pieces that may be empty, repeated often: millions of ways to read nothing. */
static void test_masks_of_empty_pieces(void **state)
{
    skv_token_table *table = make_table();
    (void)state;
    check_masks(SKV_GRAMMAR_GBNF,
                "root ::= r1 r1{2,999}\nr1 ::= (r2 r2{0,999})?\n"
                "r2 ::= \"a\" | (r3 r3{0,8})?\nr3 ::= \"\"",
                table);
    check_masks(SKV_GRAMMAR_GBNF,
                "root ::= a{0,600} b{0,600} [1-3]\na ::= \"a\"{1,90} | \"ab\"\n"
                "b ::= (\"a\"? | \"aaa\" | \"b\"){0,90}",
                table);
    check_masks(SKV_GRAMMAR_REGEX, "([ab]{0,400}a?){0,300}12", table);
    assert_int_equal(
        match(SKV_GRAMMAR_GBNF, "root ::= a{3000} \"b\"\na ::= c{0,3000}\nc ::= \"c\"?", "ccb"),
        'c');
    skv_token_table_free(table);
}

/* ---- memory ---- */

static bool attempt(void *arg)
{
    skv_token_table *table = arg;
    skv_grammar *g = NULL;
    skv_matcher *m = NULL, *copy = NULL;
    uint32_t bits[N_TOKENS / 32 + 1];
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}}"
        ","
        "\"additionalProperties\":{\"anyOf\":[{\"$ref\":\"#\"},{\"enum\":[1,\"x\"]}]}}";
    bool done = skv_grammar_compile(SKV_GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, NULL, &g,
                                    NULL) == SKV_OK &&
                skv_matcher_create(g, table, NULL, &m, NULL) == SKV_OK &&
                skv_matcher_copy(m, &copy, NULL) == SKV_OK &&
                skv_matcher_accept_bytes(m, "{\"a\":\"ab\", \"x\": ", 15, NULL) == SKV_OK &&
                skv_matcher_mask(m, bits, N_TOKENS, NULL) == SKV_OK;
    skv_matcher_free(copy);
    skv_matcher_free(m);
    skv_grammar_free(g);
    return done;
}

/* A mask may do without an entry of its cache, so that a failure there need not be one of all. */
static void test_out_of_memory(void **state)
{
    skv_token_table *table = make_table();
    (void)state;
    assert_int_not_equal(alloc_fail_each(attempt, table, true), SIZE_MAX);
    skv_token_table_free(table);
}

/* ---- work ---- */

enum { N_LETTERS = 26, N_WORDS = N_LETTERS * N_LETTERS * N_LETTERS };

static bool three_letters(void *user, uint32_t id, const char **bytes, size_t *n)
{
    char *word = user;
    for (int i = 0; i < 3; i++, id /= N_LETTERS) word[i] = (char)('a' + id % N_LETTERS);
    *bytes = word;
    *n = 3;
    return true;
}

typedef struct running {
    const skv_grammar *g;
    const skv_token_table *table;
    skv_error err;
} running;

static void make_a_mask(void *arg)
{
    static uint32_t bits[N_WORDS / 32 + 1];
    running *r = arg;
    skv_matcher *matcher = NULL;
    assert_int_equal(skv_matcher_create(r->g, r->table, NULL, &matcher, &r->err), SKV_OK);
    assert_int_equal(skv_matcher_mask(matcher, bits, N_WORDS, &r->err), SKV_RANGE);
    skv_matcher_free(matcher);
}

/* After a letter 200 rules are called that return to different places, and within each of them 200
 * more: a byte makes 200,000 frames, which have to be found among those that are there. */
static void test_frames_are_work(void **state)
{
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    char word[4];
    running r = {.g = NULL};
    skv_grammar *g = NULL;
    skv_token_table *table = NULL;
    attack_use use;
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, "root ::= s\ns ::= \".\"");
    for (const char *c = letters; *c; c++) (void)skv_buf_printf(&text, " | \"%c\" t%c", *c, *c);
    for (const char *c = letters; *c; c++) {
        (void)skv_buf_printf(&text, "\nt%c ::= \".\"", *c);
        attack_repeat(&text, " | s \"@\"", "", 200);
    }
    assert_int_equal(skv_grammar_compile(SKV_GRAMMAR_GBNF, text.data, text.size, NULL, &g, &r.err),
                     SKV_OK);
    assert_int_equal(skv_token_table_build(N_WORDS, three_letters, word, &table, &r.err), SKV_OK);
    r.g = g;
    r.table = table;
    attack_run(make_a_mask, &r, &use);
    assert_non_null(strstr(r.err.text, "units of work"));
    attack_check_use("frames", &use, SKV_PARSE_BYTES_MAX);
    skv_token_table_free(table);
    skv_grammar_free(g);
    skv_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_rules_refused),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_ambiguity_is_bounded),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_size_is_bounded),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_empty_regex),
        cmocka_unit_test(test_rollback_and_copy),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_at_limits),
        cmocka_unit_test(test_masks_of_empty_pieces),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_frames_are_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
