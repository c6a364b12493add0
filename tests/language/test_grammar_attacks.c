/*
 * Hostile rules, regular expressions and choices: each is compiled, or refused by the limit that it
 * exceeds, within the limits of a request, on a quarter of a connection's stack. And the budget
 * itself: wherever it ends the work, nothing is left behind.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "attack.h"
#include "base/size.h"
#include "grammar/grammar_impl.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OTHER_HEAP 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OTHER_HEAP 1
#endif

static const char states[] = "states or", count[] = "100000", nested[] = "nested",
                  levels[] = "levels", work[] = "units of work";

/* head, `open` n times, middle, `close` m times, tail. Every '@' of what is repeated is its index.
 * words: what the error says; NULL: it compiles. */
typedef struct variant {
    const char *head, *open;
    size_t n;
    const char *middle, *close;
    size_t m;
    const char *tail, *words;
} variant;

static void check_one(skv_grammar_kind kind, const variant *v)
{
    char name[64];
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, v->head);
    attack_repeat(&text, v->open, "", v->n);
    (void)skv_buf_text(&text, v->middle);
    attack_repeat(&text, v->close, "", v->m);
    (void)skv_buf_text(&text, v->tail);
    (void)snprintf(name, sizeof name, "%.28s %zu %.10s %.6s", v->head[0] ? v->head : v->open, v->n,
                   v->middle, v->close);
    for (char *c = name; *c != '\0'; c++) {
        if (*c == '\n') *c = ' ';
    }
    if (!v->words) {
        attack_fits(name, kind, &text);
    } else {
        attack_refused(name, kind, &text, v->words);
    }
    skv_buf_release(&text);
}

#define CHECK_ALL(kind, variants)                                                                  \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < sizeof(variants) / sizeof((variants)[0]); i_++) {                 \
            check_one(kind, &(variants)[i_]);                                                      \
        }                                                                                          \
    } while (0)

/* ---- sizes that would wrap ---- */

/* The number of copies passes 2^31, 2^32 or 2^64, or comes out as a small number after it. */
static void test_sizes(void **state)
{
    (void)state;
    static const char loop[] = "root ::= a*\na ::= \"x\" ";
    static const variant rules[] = {
        {loop, "(", 6, "a", "{64})", 6, "?", states},
        {loop, "(", 7, "a", "{64})", 7, "?", states},
        {loop, "(", 11, "a", "{64})", 11, "?", states},
        {loop, "(", 4, "a", "{256})", 4, "?", states},
        {loop, "(", 8, "a", "{16})", 8, "?", states},
        {loop, "(", 16, "a", "{4})", 16, "?", states},
        {loop, "(", 31, "a", "{2})", 31, "?", states},
        {loop, "(", 32, "a", "{2})", 32, "?", states},
        {loop, "(", 64, "a", "{2})", 64, "?", states},
        {loop, "(", 128, "a", "{2})", 128, "?", states},
        {loop, "(", 21, "a", "{3})", 21, "?", states},
        {loop, "(", 2, "a", "{65536})", 2, "?", states},
        {loop, "(", 1, "(a{92682}){46341}", ")", 1, "?", states},
        {loop, "(", 6, "a", "{0,64})", 6, "", states},
        {loop, "((((((a{64}){64}){64}){64}){64}){64})? ", 50, "", "", 0, "", states},
        {"root ::= (b)*\nb ::= \"x\" ", "(", 6, "b \"y\"", "{64})", 6, "?", states},
        {"root ::= (b c)*\nb ::= \"x\" c?\nc ::= \"y\" ", "(", 6, "b", "{64})", 6, "?", states},
        {"root ::= b*\nb ::= c\nc ::= d\nd ::= ", "(", 6, "\"x\"", "{64})", 6, "", states},
        {"root ::= ", "(", 64, "\"a\"", "{2,})", 64, "", states},
        {"root ::= \"a\"", "{64}", 6, "", "", 0, "", states},
        {"root ::= \"a\"", "{2}", 900, "", "", 0, "", states},
        {"root ::= \"a\"", "{2}", 1100, "", "", 0, "", levels},
        {"root ::= \"a\"{4294967296}", "", 0, "", "", 0, "", count},
        {"root ::= \"a\"{4294967297}", "", 0, "", "", 0, "", count},
        {"root ::= \"a\"{0,18446744073709551617}", "", 0, "", "", 0, "", count},
        {"root ::= \"a\"{99999999999999999999999999,}", "", 0, "", "", 0, "", count},
        {"root ::= \"a\"{100001}", "", 0, "", "", 0, "", count},
        {"root ::= \"abcdef\"{100000}", "", 0, "", "", 0, "", states},
        {"root ::= \"a\"{100000}", "", 0, "", "", 0, "", NULL},
    };
    static const variant patterns[] = {
        {"", "(", 6, "x", "){64}", 6, "", states},
        {"", "(", 32, "x?", "){2}", 32, "", states},
        {"(", "(", 11, "x", "){0,64}", 11, ")*", states},
        {"x{4294967297}", "", 0, "", "", 0, "", count},
        {"x{1,99999999999999999999}", "", 0, "", "", 0, "", count},
    };
    CHECK_ALL(SKV_GRAMMAR_GBNF, rules);
    CHECK_ALL(SKV_GRAMMAR_REGEX, patterns);
}

/* ---- chains and trees ---- */

/* Each of n rules calls the next one, or the next two of a tree, in one of three orders. */
typedef enum order { FORWARD, BACKWARD, SHUFFLED } order;

static size_t place_of(order o, size_t i, size_t n)
{
    /* 7919 is a prime, so for other n every place comes once. */
    return o == FORWARD ? i : o == BACKWARD ? n - 1 - i : i * 7919 % n;
}

static void check_chain(order o, size_t n, const char *before, const char *after, bool tree)
{
    static const char *const names[] = {"forward", "backward", "shuffled"};
    char name[64];
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, "root ::= (r0)*\n");
    for (size_t k = 0; k < n; k++) {
        size_t i = place_of(o, k, n), next = tree ? 2 * i + 1 : i + 1;
        if (next + tree < n) {
            (void)skv_buf_printf(&text, "r%zu ::= %sr%zu%s", i, before, next, after);
            if (tree) (void)skv_buf_printf(&text, " r%zu", next + 1);
            (void)skv_buf_text(&text, "\n");
        } else {
            (void)skv_buf_printf(&text, "r%zu ::= \"z\"\n", i);
        }
    }
    (void)snprintf(name, sizeof name, "%s %zu %s.%s%s", names[o], n, before, after,
                   tree ? " tree" : "");
    attack_fits(name, SKV_GRAMMAR_GBNF, &text);
    skv_buf_release(&text);
}

static void test_chains(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } links[] = {{"", ""},
                 {"\"x\" ", ""},
                 {"", " \"y\""},
                 {"\"x\" ", " \"y\""},
                 {"", "?"},
                 {"", "*"},
                 {"", "{2,3} \"y\""},
                 {"\"x\" | ", ""},
                 {"[]* ", " \"\"*"},
                 {"[a-z\\u0100-\\u0200] ", ""}};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        check_chain(FORWARD, 2700, links[i].before, links[i].after, false);
        check_chain(BACKWARD, 3001, links[i].before, links[i].after, false);
        check_chain(SHUFFLED, 5000, links[i].before, links[i].after, false);
    }
    for (order o = FORWARD; o <= SHUFFLED; o++) {
        check_chain(o, 11000, "", "", false);
        check_chain(o, 6000, "", "", true);
        check_chain(o, 6000, "\"x\" ", "", true);
    }
}

/* The next rule twice: the texts are as long as 2 to the power of n. */
static void test_doubling(void **state)
{
    (void)state;
    static const variant rules[] = {
        {"root ::= ", "r@ r@\nr@ ::= ", 5000, "\"z\"", "", 0, "", NULL},
        {"root ::= ", "r@ | r@\nr@ ::= ", 5000, "\"z\"", "", 0, "", NULL},
        {"root ::= (", "r@ r@)\nr@ ::= (", 30, "\"z\"", "", 0, ")", NULL},
        {"root ::= (", "r@ r@)*\nr@ ::= (", 3000, "\"z\"", "", 0, ")", NULL},
        {"root ::= (", "r@ r@){3}\nr@ ::= (", 3000, "\"z\"", "", 0, ")", NULL},
        {"root ::= (", "r@? r@?)?\nr@ ::= (", 3000, "\"z\"", "", 0, ")", NULL},
        {"root ::= (", "r@ | \"\") r@\nr@ ::= (", 3000, "\"z\"", "", 0, ")", NULL},
        {"root ::= ", "r@{2}\nr@ ::= ", 3000, "\"z\"", "", 0, "", NULL},
    };
    CHECK_ALL(SKV_GRAMMAR_GBNF, rules);
}

static void says(skv_grammar_kind kind, const variant *v, skv_status status)
{
    skv_error err = {0};
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, v->head);
    attack_repeat(&text, v->open, "", v->n);
    (void)skv_buf_text(&text, v->middle);
    attack_repeat(&text, v->close, "", v->m);
    (void)skv_buf_text(&text, v->tail);
    assert_int_equal(attack_compile(v->words, kind, &text, &err), status);
    if (!strstr(err.text, v->words)) fail_msg("%s is not in: %s", v->words, err.text);
    skv_buf_release(&text);
}

/* Circles of up to thousands of rules that read nothing, that end nowhere, and good ones. */
static void test_circles(void **state)
{
    (void)state;
    static const variant left[] = {
        {"root ::= ", "r@\nr@ ::= ", 1, "r0 \"x\" | \"z\"", "", 0, "", "left recursion"},
        {"root ::= ", "r@\nr@ ::= ", 9000, "r0 \"x\" | \"z\"", "", 0, "", "left recursion"},
        {"root ::= ", "r@ \"y\"\nr@ ::= ", 9000, "r0 | \"z\"", "", 0, "", "left recursion"},
        {"root ::= ", "\"\"* r@ \"y\"\nr@ ::= ", 5000, "r0 | \"z\"", "", 0, "", "left recursion"},
        {"root ::= ", "e r@\nr@ ::= ", 5000, "r0 | \"z\"\ne ::= \"e\"?", "", 0, "",
         "left recursion"},
        {"root ::= ", "(r@ | \"q\") \"p\"\nr@ ::= ", 5000, "r0 | \"z\"", "", 0, "",
         "left recursion"},
        {"root ::= ", "r@? \"p\"\nr@ ::= ", 5000, "r0 | \"z\"", "", 0, "", "left recursion"},
        {"root ::= ", "(r@{2} \"p\")*\nr@ ::= ", 5000, "r0 | \"z\"", "", 0, "", "left recursion"},
        {"root ::= ", "\"c\" r@\nr@ ::= ", 5000, "r4999 \"x\" | \"z\"", "", 0, "",
         "left recursion"},
    };
    static const variant dead[] = {
        {"root ::= root", "", 0, "", "", 0, "", "nothing can match"},
        {"root ::= \"x\" root", "", 0, "", "", 0, "", "nothing can match"},
        {"root ::= r0\n", "r@ ::= r0 r@\n", 5000, "", "", 0, "", "nothing can match"},
        {"root ::= ", "\"x\" r@\nr@ ::= ", 5000, "r0", "", 0, "", "nothing can match"},
        {"root ::= ", "r@{2}\nr@ ::= ", 5000, "[]", "", 0, "", "nothing can match"},
        {"root ::= (a{64})+\na ::= \"x\" ", "(", 6, "a", "{64})", 6, "", "nothing can match"},
    };
    static const variant good[] = {
        {"root ::= ", "\"x\" r@\nr@ ::= ", 5000, "r0 | \"z\"", "", 0, "", NULL},
        {"root ::= ", "[a-f] r@?\nr@ ::= ", 5000, "r0", "", 0, "", NULL},
        {"root ::= (", "\"x\" r@)*\nr@ ::= (", 3000, "r0 | \"z\"", "", 0, ")", NULL},
    };
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        says(SKV_GRAMMAR_GBNF, &left[i], SKV_UNSUPPORTED);
    }
    for (size_t i = 0; i < sizeof dead / sizeof dead[0]; i++) {
        says(SKV_GRAMMAR_GBNF, &dead[i], SKV_FORMAT);
    }
    CHECK_ALL(SKV_GRAMMAR_GBNF, good);
}

/* ---- dead and empty bodies ---- */

static skv_status compile_within(skv_grammar_kind kind, const char *text, size_t n,
                                 const skv_limits *limits, skv_error *err)
{
    skv_grammar *g = NULL;
    skv_budget budget;
    skv_budget_init(&budget, limits);
    skv_status status = skv_grammar_compile(kind, text, n, &budget, &g, err);
    assert_int_equal(budget.bytes, 0);
    assert_int_equal(budget.depth, 0);
    assert_true((!!g) == (status == SKV_OK));
    skv_grammar_free(g);
    return status;
}

/* Copies of nothing are not made: what these take depends on their text alone, 20 units a byte. */
static void test_dead_bodies(void **state)
{
    (void)state;
    static const char *const bodies[] = {"[]",
                                         "\"\"",
                                         "a",
                                         "b",
                                         "\"\"*",
                                         "(\"\"{100000}){100000}",
                                         "[]{0,100000}",
                                         "\"x\" a",
                                         "a \"x\"",
                                         "b b",
                                         "\"\" | \"\"",
                                         "a | b",
                                         "(b{100000} | a) b?",
                                         "c",
                                         "d",
                                         "a{100000} [] \"x\"{100000}",
                                         "e"};
    static const char *const shapes[] = {"(%s){100000}",
                                         "((%s){100000}){0,100000}",
                                         "((%s){0,100000}){100000}",
                                         "(((%s){100000}){100000}){100000}",
                                         "((%s)*){100000}",
                                         "((%s){100000,})+ (%s){100000}",
                                         "((%s) (%s)){100000}"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
            skv_error err = {0};
            skv_buf text = attack_text();
            for (size_t twice = 0; twice < 50; twice++) {
                (void)skv_buf_text(&text, twice == 0 ? "root ::= " : " | ");
                for (const char *c = shapes[k]; *c != '\0'; c++) {
                    if (*c != '%') {
                        (void)skv_buf_byte(&text, *c);
                    } else {
                        (void)skv_buf_text(&text, bodies[i]);
                        c++;
                    }
                }
            }
            (void)skv_buf_text(&text, " | \"x\"\na ::= []\nb ::= \"\"\nc ::= \"x\" c\n"
                                      "d ::= b? c{0,100000}\ne ::= d a | d b");
            const skv_limits limits = {
                .work = 20 * text.size, .bytes = (size_t)1 << 20, .depth = 64};
            if (compile_within(SKV_GRAMMAR_GBNF, text.data, text.size, &limits, &err) != SKV_OK) {
                fail_msg("%s of %s: %s", shapes[k], bodies[i], err.text);
            }
            skv_buf_release(&text);
        }
    }
}

/* The two of the page, and what is like them without a rule. */
static void test_empty_repetitions(void **state)
{
    (void)state;
    static const variant rules[] = {
        {"root ::= (a{100000}){0,100000} | \"x\"\na ::= []", "", 0, "", "", 0, "", NULL},
        {"root ::= \"x\"", " | (a{100000}){0,100000}", 50, "\na ::= []", "", 0, "", NULL},
        {"root ::= \"x\"", " | (a{100000}){0,100000}", 9000, "\na ::= []", "", 0, "", NULL},
        {"root ::= \"x\" ", "\"\"{100000} ", 9000, "", "", 0, "", NULL},
        {"root ::= \"x\" ", "(", 200, "\"\"", "{0,100000})", 200, "", NULL},
        {"root ::= \"x\"", "?", 200000, "", "", 0, "", NULL},
        {"root ::= \"x\"", "*", 200000, "", "", 0, "", NULL},
        {"root ::= \"x\"", "+", 200000, "", "", 0, "", NULL},
        {"root ::= ", "(", 200, "\"x\"", "*)", 200, "", NULL},
        {"root ::= ", "(", 200, "\"x\"", "?)", 200, "{100000}", NULL},
        {"root ::= ", "(\"y\"? ", 15, "\"x\"?", ")?", 15, "{10000}", states},
        {"root ::= ", "(", 100, "\"x\"", "?){1,2}", 100, "", states},
        /* Long ways to one state each, a hundred thousand times. */
        {"root ::= (", "(e ", 199, "\"x\"", ")", 199, "){100000}\ne ::= \"\"", work},
        {"root ::= (", "(e e e e e e ", 199, "\"x\"", ")", 199, "){100000}\ne ::= \"\"", work},
        {"root ::= (q){100000}\nq ::= ", "r@\nr@ ::= ", 9000, "\"x\"", "", 0, "", work},
        {"root ::= (q){100000}\nq ::= ", "r@?\nr@ ::= ", 9000, "\"x\"", "", 0, "", work},
        {"root ::= (q){100000}\nq ::= ", "r@{1,2}\nr@ ::= ", 9000, "\"x\"", "", 0, "", NULL},
    };
    static const variant patterns[] = {
        {"x", "(){100000}", 9000, "", "", 0, "", NULL},
        {"x", "((|){100000}){0,99999}", 5000, "", "", 0, "", NULL},
        {"x", "(", 200, "[^\\x00-\\U0010ffff]", "){0,100000}", 200, "", NULL},
        {"", "(", 200, "x", ")*", 200, "", NULL},
        {"", "(", 200, "x", ")?", 200, "", NULL},
        {"x", "|", 200000, "", "", 0, "", NULL},
    };
    CHECK_ALL(SKV_GRAMMAR_GBNF, rules);
    CHECK_ALL(SKV_GRAMMAR_REGEX, patterns);
}

/* ---- large and deep texts ---- */

static void test_deep_and_wide(void **state)
{
    (void)state;
    static const char big[] = "\nb ::= [\\u0100-\\u0200\\u1000-\\u3000\\U00010000-\\U00020000]{50}";
    static const variant rules[] = {
        {"root ::= ", "(", 200, "\"a\"", ")", 200, "", NULL},
        {"root ::= ", "(", 201, "\"a\"", ")", 201, "", nested},
        {"root ::= ", "(", 250000, "\"a\"", "", 0, "", nested},
        {"root ::= ", "(\"b\" | ", 200, "\"a\"", ")", 200, "", NULL},
        {"root ::= ", "(\"b\"? ", 200, "\"a\"", ")", 200, "", NULL},
        {"root ::= \"a\"", " | \"a@\"", 20000, "", "", 0, "", NULL},
        {"root ::= \"a\"", " | \"\"", 40000, "", "", 0, "", NULL},
        {"root ::= \"a\"", " | ", 80000, "", "", 0, "", NULL},
        {"root ::= \"", "a", 250000, "\"", "", 0, "", NULL},
        {"root ::= ", "[a-z]", 50000, "", "", 0, "", NULL},
        {"root ::= ", ".", 100000, "", "", 0, "", states},
        {"root ::= ", "", 0, ".{100000}", "", 0, "", states},
        {"root ::= ", "b ", 100000, big, "", 0, "", NULL},
        {"root ::= (", "b ", 100000, ")*", big, 1, "", NULL},
        {"root ::= (", "b | ", 60000, "\"\"){100000}", big, 1, "", states},
        {"root ::= ", "b* ", 60000, big, "", 0, "", NULL},
        {"root ::= ", "b{9} ", 50000, big, "", 0, "", NULL},
        {"root ::= \"a\" ", "n@ ", 33000, "", "", 0, "", "rules"},
        {"root ::= \"a\" #", "x", 250000, "", "", 0, "", NULL},
        {"root ::= \"a\"", "\n", 250000, "", "", 0, "", NULL},
        {"root ::= ", "(\n", 200, "\"a\"", "\n)", 200, "", NULL},
    };
    static const variant patterns[] = {
        {"", "(?:", 200, "a", ")", 200, "", NULL},
        {"", "(?:", 201, "a", ")", 201, "", nested},
        {"", "(", 250000, "", "", 0, "", nested},
        {"", "(b|", 200, "a", ")", 200, "", NULL},
        {"", "(?P<n@>a)", 20000, "", "", 0, "", NULL},
        {"", "a|", 100000, "", "", 0, "", NULL},
        {"[", "\\W", 100000, "]", "", 0, "", "ranges"},
        {"[", "\\w\\s", 60000, "]", "", 0, "", "ranges"},
        {"", "\\W", 100000, "", "", 0, "", states},
        {"", ".{38000}", 1, "", "", 0, "", NULL},
        {"", ".{0,38000}", 9, "", "", 0, "", states},
        {"(", ".{0,9}|", 20000, ")*", "", 0, "", states},
    };
    CHECK_ALL(SKV_GRAMMAR_GBNF, rules);
    CHECK_ALL(SKV_GRAMMAR_REGEX, patterns);
}

/* A class of n ranges, none of which touch, in UTF-8, then what is done with it. */
static void check_class(size_t n, const char *head, const char *tail, const char *words)
{
    char name[64];
    skv_error err = {0};
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, head);
    for (size_t i = 0; i < n; i++) (void)skv_buf_printf(&text, "\\U%08zx", 0x10000 + 2 * i);
    (void)skv_buf_text(&text, tail);
    (void)snprintf(name, sizeof name, "%zu ranges %s%s", n, head, tail);
    skv_status status = attack_compile(name, SKV_GRAMMAR_REGEX, &text, &err);
    if (!words) {
        assert_int_equal(status, SKV_OK);
    } else {
        assert_int_equal(status, SKV_RANGE);
        if (!strstr(err.text, words)) fail_msg("%s is not in: %s", words, err.text);
    }
    skv_buf_release(&text);
}

static void test_classes(void **state)
{
    (void)state;
    check_class(4096, "[", "]", NULL);
    check_class(4096, "[^", "]", NULL);
    check_class(8193, "[", "]", "ranges");
    check_class(4096, "[", "]{100000}", states);
    check_class(4096, "[^", "]{100000}", states);
    check_class(4096, "(([", "]?){100}){100}", states);
    check_class(4000, "([", "]|[a-z])*", NULL);
    check_class(2000, "([^", "]{9}|x)+", NULL);
}

/* Names of one list of the table of names: each is compared with all before it. */
static void test_names(void **state)
{
    (void)state;
    skv_error err = {0};
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, "root ::= \"x\"");
    for (uint32_t i = 0, n = 0; n < 25000; i++) {
        char name[16];
        uint32_t hash = 2166136261u;
        (void)snprintf(name, sizeof name, "%x", i);
        for (const char *c = name; *c != '\0'; c++) {
            hash = (hash ^ (unsigned char)*c) * 16777619u;
        }
        if (hash % 512 != 0) continue;
        (void)skv_buf_printf(&text, " %s", name);
        n++;
    }
    assert_int_equal(attack_compile("names of one hash", SKV_GRAMMAR_GBNF, &text, &err), SKV_RANGE);
    assert_non_null(strstr(err.text, work));
    skv_buf_release(&text);
}

/* Choices share their beginnings, one level each. */
static void check_choices(const char *name, size_t n, const char *between, const char *words)
{
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, "[");
    for (size_t i = 0; i < n; i++) {
        (void)skv_buf_text(&text, i == 0 ? "\"" : ",\"");
        attack_repeat(&text, "a", "", !between ? i : 3);
        if (between) (void)skv_buf_printf(&text, "%zu%s", i * 7919 % n, between);
        (void)skv_buf_text(&text, "\"");
    }
    (void)skv_buf_text(&text, "]");
    if (!words) {
        attack_fits(name, SKV_GRAMMAR_CHOICE, &text);
    } else {
        attack_refused(name, SKV_GRAMMAR_CHOICE, &text, words);
    }
    skv_buf_release(&text);
}

static void test_choices(void **state)
{
    (void)state;
    check_choices("each the beginning of the next", 400, NULL, NULL);
    check_choices("each the beginning of the next, deeper", 600, NULL, levels);
    check_choices("many", 20000, "", NULL);
    check_choices("many, long", 1500, "the same end of each of them, which nobody shares", NULL);
}

/* ---- the budget ---- */

static const struct {
    skv_grammar_kind kind;
    const char *text;
} samples[] = {
    {SKV_GRAMMAR_GBNF, "root ::= (a | b{2,9} | \"x\"?)* c{0,20}\na ::= [^a-z\\u0100] b\n"
                       "b ::= (a | \"q\" | [])+ | \"\"\nc ::= \"c\" a?\n"},
    {SKV_GRAMMAR_REGEX, "([^a-f]{2,8}|\\w+(b|c?)*)\\.\\d{1,9}"},
    {SKV_GRAMMAR_CHOICE, "[\"abc\",\"ab\",\"\",\"abd\",\"x\"]"},
    {SKV_GRAMMAR_PARTS, "[\"a\",{\"any\":[{\"until\":\"<end>\"},{\"unlike\":\"no\"}]},"
                        "{\"repeat\":{\"schema\":{\"enum\":[1,\"a\"]}},\"min\":0,\"max\":9}]"},
    {SKV_GRAMMAR_JSON_OBJECT, ""},
};

/* Wherever a limit ends the work, its name is in the error, and nothing is held any more. */
static void test_every_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const char *text = samples[i].text;
        skv_limits limits = skv_limits_default();
        skv_error err = {0};
        limits.max_ns = 0;
        skv_status status = SKV_RANGE;
        for (limits.work = 0; status != SKV_OK; limits.work += 1 + limits.work / 50) {
            status = compile_within(samples[i].kind, text, strlen(text), &limits, &err);
            if (status != SKV_OK) assert_non_null(strstr(err.text, "units of work"));
            if (status != SKV_OK) assert_int_equal(status, SKV_RANGE);
        }
        limits = skv_limits_default();
        status = SKV_RANGE;
        for (limits.bytes = 0; status != SKV_OK; limits.bytes += 16 + limits.bytes / 100) {
            status = compile_within(samples[i].kind, text, strlen(text), &limits, &err);
            if (status != SKV_OK) assert_non_null(strstr(err.text, "bytes of memory"));
            if (status != SKV_OK) assert_int_equal(status, SKV_RANGE);
        }
        assert_in_range(limits.bytes, 1 << 10, 1 << 20);
    }
}

static bool always(void *user)
{
    (*(size_t *)user)++;
    return true;
}

static void test_time_and_stopping(void **state)
{
    (void)state;
    const char text[] = "root ::= (([a-z\\u0100-\\u0300]{9} | \"y\"){9}){400}";
    skv_limits limits = skv_limits_default();
    skv_error err = {0};
    skv_budget budget;
    skv_grammar *g = NULL;
    size_t n_asked = 0;
    limits.max_ns = 1;
    assert_int_equal(compile_within(SKV_GRAMMAR_GBNF, text, sizeof text - 1, &limits, &err),
                     SKV_RANGE);
    assert_non_null(strstr(err.text, "takes longer"));
    skv_budget_init(&budget, NULL);
    budget.stopped = always;
    budget.user = &n_asked;
    assert_int_equal(
        skv_grammar_compile(SKV_GRAMMAR_GBNF, text, sizeof text - 1, &budget, &g, &err),
        SKV_CANCELLED);
    assert_int_equal(n_asked, 1);
    assert_null(g);
    assert_int_equal(budget.bytes, 0);
    /* A budget that has been exceeded does nothing more. */
    assert_int_equal(skv_grammar_compile(SKV_GRAMMAR_REGEX, "a", 1, &budget, &g, &err),
                     SKV_CANCELLED);
}

static void test_account(void **state)
{
    (void)state;
    const char text[] = "[a-z]{1000}";
    skv_account *account = NULL;
    skv_grammar *g = NULL;
    skv_error err = {0};
    assert_int_equal(skv_account_create((size_t)1 << 20, &account, NULL), SKV_OK);
    for (size_t taken = 0; taken < 2; taken++) {
        skv_budget budget;
        skv_budget_init(&budget, NULL);
        budget.account = account;
        if (taken > 0) assert_true(skv_account_take(account, (1 << 20) - 5000));
        skv_status status =
            skv_grammar_compile(SKV_GRAMMAR_REGEX, text, sizeof text - 1, &budget, &g, &err);
        assert_int_equal(status, taken > 0 ? SKV_MEMORY : SKV_OK);
        if (status == SKV_OK) skv_grammar_free(g);
        assert_int_equal(skv_account_used(account), taken > 0 ? (1 << 20) - 5000 : 0);
    }
    assert_true(skv_account_peak(account) > 20000);
    skv_account_free(account);
}

#if !defined(OTHER_HEAP)

typedef struct heap {
    size_t before;
    const skv_budget *budget;
    size_t n_asked, most;
} heap;

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static bool compare_heap(void *user)
{
    heap *h = user;
    size_t used = heap_bytes(), held = used > h->before ? used - h->before : 0;
    h->n_asked++;
    h->most = skv_max_size(h->most, held);
    return held > h->budget->bytes + h->budget->bytes / 50 + (64 << 10);
}

/* What the allocator says is held is what the budget says, whenever it is asked. */
static void test_memory_is_counted(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "root ::= ([a-z\\u0100-\\u0300]{9} | \"y\"){2000}",
        "root ::= ((a | \"b\")? [x]? ){30000}\na ::= [a-c\\u0200-\\u0300]",
    };
    for (size_t i = 0; i < 3; i++) {
        skv_grammar *g = NULL;
        skv_error err = {0};
        skv_buf text = attack_text();
        skv_budget budget;
        if (i < 2) (void)skv_buf_text(&text, texts[i]);
        if (i == 2) (void)skv_buf_text(&text, "root ::= ");
        if (i == 2) attack_repeat(&text, "r@ \"x\"? [y-z]\nr@ ::= ", "", 6000);
        if (i == 2) (void)skv_buf_text(&text, "\"z\"");
        heap h = {.before = heap_bytes(), .budget = &budget};
        skv_budget_init(&budget, NULL);
        budget.stopped = compare_heap;
        budget.user = &h;
        if (skv_grammar_compile(SKV_GRAMMAR_GBNF, text.data, text.size, &budget, &g, &err) !=
            SKV_OK) {
            fail_msg("%zu: %s, of %zu bytes %zu are counted", i, err.text, h.most, budget.bytes);
        }
        size_t kept = heap_bytes() - h.before;
        assert_in_range(kept, skv_grammar_bytes(g), skv_grammar_bytes(g) + (16 << 10));
        assert_true(h.n_asked > 5 && h.most > (1 << 20));
        skv_grammar_free(g);
        skv_buf_release(&text);
    }
}

#else

static void test_memory_is_counted(void **state)
{
    (void)state;
    skip();
}

#endif

static bool compile_sample(void *arg)
{
    const size_t *i = arg;
    const skv_limits limits = skv_limits_default();
    const char *text = samples[*i].text;
    return compile_within(samples[*i].kind, text, strlen(text), &limits, NULL) == SKV_OK;
}

/* A grammar may keep arrays that could not be cut down. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        assert_int_not_equal(alloc_fail_each(compile_sample, &i, true), SIZE_MAX);
    }
}

/* ---- what is built ---- */

/* Whether a state's edges lead on to one from which the rule can end. */
static bool leads_on(const skv_grammar *g, const skv_state *s, const bool *ends, bool all)
{
    bool any = false, every = s->n > 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const skv_edge *e = &g->edges[s->first + i];
        bool good = ends[e->target] && (e->kind != SKV_EDGE_CALL || ends[e->rule]);
        any = any || good;
        every = every && good;
    }
    return all ? every : any;
}

/* From every state of every grammar the end can be reached, by each of its edges. */
static void check_no_dead_ends(skv_grammar_kind kind, const char *text)
{
    static bool ends[1 << 14];
    skv_grammar *g = NULL;
    skv_error err = {0};
    if (skv_grammar_compile(kind, text, strlen(text), NULL, &g, &err) != SKV_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    assert_in_range(g->n_states, 2, sizeof ends);
    memset(ends, 0, sizeof ends);
    ends[SKV_STATE_END] = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t s = 2; s < g->n_states; s++) {
            if (ends[s] || !leads_on(g, &g->states[s], ends, false)) continue;
            ends[s] = changed = true;
        }
    }
    assert_true(ends[g->start]);
    for (size_t s = 2; s < g->n_states; s++) {
        if (!leads_on(g, &g->states[s], ends, true)) fail_msg("%s: state %zu", text, s);
    }
    skv_grammar_free(g);
}

static void test_no_dead_ends(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "root ::= a | b\na ::= \"x\" a\nb ::= \"y\" b | \"z\" a | \"w\"",
        "root ::= (a | b)* \"x\"\na ::= [] | \"q\" b\nb ::= \"\" | a a",
        ("root ::= (a? b{0,9} c*){2,5} [] | d\na ::= \"a\"\nb ::= a b | \"b\"\nc ::= c2\n"
         "c2 ::= \"c\" c\nd ::= a b c | b? c? a"),
        "root ::= (e e? (e | \"x\")){3}\ne ::= \"\" | f\nf ::= (e2 \"y\")? \ne2 ::= e2 \"z\"",
        "root ::= ((a{0,3} | \"\"){0,3} (b | a)?)* \"!\"\na ::= \"\"? b?\nb ::= \"k\" | [] b",
        "root ::= \"\"",
        "root ::= \"\"{5} (\"\"? | [])",
        /* a can only be empty */
        "root ::= a \"x\"\na ::= (a | \"\")? a* b{9}\nb ::= a | b b | \"\"",
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        check_no_dead_ends(SKV_GRAMMAR_GBNF, rules[i]);
    }
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        check_no_dead_ends(samples[i].kind, samples[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_chains),
        cmocka_unit_test(test_doubling),      cmocka_unit_test(test_circles),
        cmocka_unit_test(test_dead_bodies),   cmocka_unit_test(test_empty_repetitions),
        cmocka_unit_test(test_deep_and_wide), cmocka_unit_test(test_classes),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_choices),
        cmocka_unit_test(test_every_limit),   cmocka_unit_test(test_time_and_stopping),
        cmocka_unit_test(test_account),       cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_no_dead_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
