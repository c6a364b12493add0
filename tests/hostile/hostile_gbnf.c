/* Hostile grammars in the GBNF notation, and the expressions that regexes share: see hostile.h. */
#include "hostile_maker.h"

/* ---- expressions ---- */

/* GBNF has rules and blanks between what follows each other, a regular expression neither. */
static bool is_regex(const hostile_rules *rules)
{
    return rules->n_rules == 0;
}

static void put_class(hostile_maker *m)
{
    hostile_put(m, "[%s", hostile_chance(m, 30) ? "^" : "");
    for (size_t n = hostile_size(m, 1, 40); n > 0; n--) {
        unsigned a = (unsigned)hostile_below(m, 0x2000) + 'a';
        switch (hostile_below(m, 4)) {
        case 0: hostile_put(m, "a-z"); break;
        case 1: hostile_put(m, "\\u%04x", a); break;
        case 2: hostile_put(m, "\\u%04x-\\u%04x", a, a + (unsigned)hostile_below(m, 0x1000)); break;
        default: hostile_put(m, "%c", (int)('a' + hostile_below(m, 26))); break;
        }
    }
    hostile_put(m, "]");
}

static void put_literal(hostile_maker *m, const hostile_rules *rules, size_t n_bytes)
{
    size_t n = hostile_size(m, 1, n_bytes < 4000 ? n_bytes : 4000);
    if (!is_regex(rules)) hostile_put(m, "\"");
    for (size_t i = 0; i < n; i++) hostile_put(m, "%c", (int)('a' + hostile_below(m, 3)));
    if (!is_regex(rules)) hostile_put(m, "\"");
}

static void put_atom(hostile_maker *m, const hostile_rules *rules, size_t n_bytes)
{
    size_t target = rules->n_rules;
    if (hostile_chance(m, 60)) target = hostile_target(m, rules->net, rules->i, rules->n_rules);
    if (target < rules->n_rules) {
        hostile_name(m, target, rules->n_name);
        return;
    }
    switch (hostile_below(m, 6)) {
    case 0: put_class(m); break;
    case 1: hostile_put(m, "."); break;
    case 2: hostile_put(m, is_regex(rules) ? "\\w" : "\"\""); break;
    default: put_literal(m, rules, n_bytes); break;
    }
}

void hostile_expr(hostile_maker *m, const hostile_rules *rules, size_t depth, size_t n_bytes)
{
    size_t end = m->to->size + n_bytes, n = hostile_size(m, 1, 6);
    for (size_t i = 0; i < n && m->to->size < end && !hostile_full(m); i++) {
        bool group = depth > 0 && (i == 0 || hostile_chance(m, 30));
        if (i > 0 && hostile_chance(m, 30)) hostile_put(m, "|");
        if (i > 0 && !is_regex(rules)) hostile_put(m, " ");
        if (group) {
            hostile_put(m, is_regex(rules) && hostile_chance(m, 30) ? "(?:" : "(");
            hostile_expr(m, rules, depth - 1, hostile_left(m, end) / (n - i) + 8);
            hostile_put(m, ")");
        } else {
            put_atom(m, rules, hostile_left(m, end) / (n - i) + 1);
        }
        hostile_suffix(m);
    }
    if (n == 0) put_atom(m, rules, 8);
}

/* ---- whole grammars ---- */

static void put_root(hostile_maker *m, size_t n_name, size_t n_rules)
{
    hostile_put(m, "root ::= ");
    hostile_name(m, 0, n_name);
    hostile_suffix(m);
    if (n_rules > 1 && hostile_chance(m, 30)) {
        hostile_put(m, " | ");
        hostile_name(m, n_rules - 1, n_name);
    }
    hostile_put(m, "\n");
}

static void make_rules(hostile_maker *m)
{
    hostile_rules rules = {.net = (hostile_net)hostile_below(m, HOSTILE_NETS)};
    rules.n_rules = hostile_size(m, 1, m->room / 12 + 1);
    size_t share = m->room / rules.n_rules;
    rules.n_name = hostile_size(m, 1, share / 3 + 1);
    size_t depth = hostile_size(m, 0, 210);
    put_root(m, rules.n_name, rules.n_rules);
    for (rules.i = 0; rules.i < rules.n_rules; rules.i++) {
        hostile_name(m, rules.i, rules.n_name);
        hostile_put(m, " ::= ");
        if (hostile_chance(m, 70)) hostile_put(m, "\"x\" ");
        hostile_expr(m, &rules, hostile_chance(m, 50) ? hostile_below(m, depth + 1) : 0,
                     share > rules.n_name + 8 ? share - rules.n_name - 8 : 1);
        hostile_put(m, "\n");
    }
}

/* Repetitions inside repetitions around a rule that may call itself. */
static void make_wrap(hostile_maker *m)
{
    size_t depth = hostile_size(m, 1, 190);
    bool recursive = hostile_chance(m, 70), product = hostile_chance(m, 70);
    unsigned long long n = hostile_times(m);
    hostile_put(m, "root ::= a%s\na ::= \"x\" ", hostile_chance(m, 50) ? "*" : "");
    hostile_fill(m, "(", depth);
    hostile_put(m, "%s", recursive ? "a" : "\"y\"");
    for (size_t i = 0; i < depth; i++) {
        if (product && n > 0) {
            hostile_put(m, "{%llu})", n);
        } else {
            hostile_suffix(m);
            hostile_put(m, ")");
        }
    }
    hostile_put(m, "?\n");
}

/* Each rule is the next one, somehow. */
static void make_chain(hostile_maker *m)
{
    static const char *const open[] = {"", "(", "((", "\"x\" ", "\"\" ", "\"x\"* "};
    static const char *const close[] = {"", ")*", "?)?", "", "{2}", " | \"y\""};
    size_t n_name = hostile_size(m, 1, 60), n = hostile_limit(m, 1 << 15);
    size_t form = hostile_below(m, 6), line = 2 * (n_name < 3 ? 3 : n_name) + 16;
    if (n > m->room / line) n = m->room / line + 1;
    bool back = hostile_chance(m, 20), alternate = hostile_chance(m, 20);
    hostile_put(m, "root ::= ");
    hostile_name(m, 0, n_name);
    hostile_put(m, "\n");
    for (size_t i = 0; i < n; i++) {
        if (alternate) form = hostile_below(m, 6);
        hostile_name(m, i, n_name);
        hostile_put(m, " ::= %s", open[form]);
        if (i + 1 < n || back) {
            hostile_name(m, (i + 1) % n, n_name);
        } else {
            hostile_put(m, "\"e\"");
        }
        hostile_put(m, "%s\n", close[form]);
    }
}

/* Large repetitions of what can never match. */
static void make_dead(hostile_maker *m)
{
    static const char *const dead[] = {"a ::= []\n", "a ::= \"x\" a\n", "a ::= [] \"x\"* []\n",
                                       "a ::= b b\nb ::= \"y\" a | []\n"};
    size_t n = hostile_size(m, 1, m->room / 40);
    hostile_put(m, "root ::= ");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        bool large = hostile_chance(m, 50);
        unsigned long long a = large ? hostile_size(m, 1000, 100000) : hostile_times(m);
        unsigned long long b = large ? hostile_size(m, 1000, 100000) : hostile_times(m);
        hostile_put(
            m, hostile_chance(m, 70) ? "(a{%llu}){0,%llu} | " : "(a{0,%llu} \"z\"){%llu} | ", a, b);
    }
    hostile_put(m, "\"x\"\n%s", dead[hostile_below(m, 4)]);
}

/* Rules that may be empty, referring to many others. */
static void make_nullable(hostile_maker *m)
{
    size_t n_name = hostile_size(m, 1, 12), n = hostile_size(m, 2, m->room / (4 * n_name + 12) + 2);
    size_t n_refs = hostile_size(m, 1, m->room / (n * (n_name + 5)) + 1);
    hostile_net net = hostile_chance(m, 80) ? HOSTILE_NET_DOWN : HOSTILE_NET_ANY;
    hostile_put(m, "root ::= ");
    hostile_name(m, 0, n_name);
    hostile_put(m, "\n");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_name(m, i, n_name);
        hostile_put(m, " ::= (");
        for (size_t k = 0; k < n_refs; k++) {
            size_t target = hostile_target(m, net, i, n);
            if (target == n) {
                hostile_put(m, "\"x\"? ");
                continue;
            }
            hostile_name(m, target, n_name);
            hostile_put(m, "%s ", hostile_chance(m, 30) ? "*" : "?");
        }
        hostile_put(m, ")%s\n", hostile_chance(m, 30) ? "*" : "");
    }
}

static void make_parens(hostile_maker *m)
{
    size_t depth = hostile_chance(m, 50) ? hostile_limit(m, 200) : hostile_size(m, 1, m->room / 3);
    const char *close = hostile_chance(m, 50) ? ")" : hostile_chance(m, 50) ? ")*" : ")?";
    hostile_put(m, "root ::= ");
    hostile_fill(m, hostile_chance(m, 80) ? "(" : "(\"a\" ", depth);
    hostile_put(m, "\"x\"");
    hostile_fill(m, close, hostile_chance(m, 90) ? depth : depth / 2);
    hostile_put(m, "\n");
}

static void make_classes(hostile_maker *m)
{
    hostile_put(m, "root ::= ");
    while (!hostile_full(m)) {
        size_t n = hostile_size(m, 1, m->room / 8);
        unsigned step = (unsigned)hostile_size(m, 2, 200);
        hostile_put(m, "[%s", hostile_chance(m, 30) ? "^" : "");
        for (size_t i = 0; i < n && !hostile_full(m); i++) {
            hostile_put(m, "\\U%08x", (unsigned)(0x61 + i * step) % 0x10ffff);
        }
        hostile_put(m, "]");
        hostile_suffix(m);
        hostile_put(m, hostile_chance(m, 40) ? " | " : " ");
    }
    hostile_put(m, "\"x\"\n");
}

/* Many texts with a common beginning, repeated. */
static void make_alternatives(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 8), share = m->room / n;
    size_t n_text = hostile_size(m, 1, share), n_common = hostile_below(m, n_text + 1);
    hostile_put(m, "root ::= (");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s\"", i > 0 ? " | " : "");
        hostile_fill(m, "a", n_common);
        hostile_name(m, i, n_text - n_common);
        hostile_put(m, "\"");
    }
    hostile_put(m, ")");
    hostile_suffix(m);
    hostile_put(m, "\n");
}

/* Many ways to read the same text. */
static void make_ambiguous(hostile_maker *m)
{
    static const char *const pieces[] = {
        "\"x\"* ", "[a-x]{0,40} ", "(\"x\" | \"xx\")* ", "a ", ".* ", ".{0,300} ", "(a a)? "};
    hostile_put(m, "root ::= (");
    for (size_t n = hostile_size(m, 1, 400); n > 0 && !hostile_full(m); n--) {
        hostile_put(m, "%s%s", pieces[hostile_below(m, 7)], hostile_chance(m, 20) ? "| " : "");
    }
    hostile_put(m, "\"x\")%s\na ::= \"x\" a \"x\"? | \"x\" (a | \"xx\") | \"x\"\n",
                hostile_chance(m, 50) ? "+" : "");
}

static void make_ordinary(hostile_maker *m)
{
    static const char json[] =
        "root ::= object\nvalue ::= object | array | string | number | \"true\" | \"null\"\n"
        "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
        "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
        "string ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [\"\\\\/bfnrt])* \"\\\"\" ws\n"
        "number ::= \"-\"? [0-9]{1,15} (\".\" [0-9]{1,9})? ws\nws ::= \" \"?\n";
    unsigned n = (unsigned)hostile_size(m, 1, 200);
    switch (hostile_below(m, 4)) {
    case 0: hostile_put(m, "%s", json); break;
    case 1: hostile_put(m, "root ::= item{1,%u}\nitem ::= \"- \" [^\\n]{1,80} \"\\n\"\n", n); break;
    case 2:
        hostile_put(m, "root ::= sum\nsum ::= term ((\"+\" | \"-\") term)*\n"
                       "term ::= [0-9]+ | \"(\" sum \")\"\n");
        break;
    default:
        hostile_put(m, "root ::= w0");
        for (unsigned i = 1; i < n; i++) hostile_put(m, " | w%u", i);
        hostile_put(m, "\n");
        for (unsigned i = 0; i < n; i++) hostile_put(m, "w%u ::= \"word%u\" [a-z]*\n", i, i);
        break;
    }
}

const hostile_shape hostile_gbnf_shapes[] = {{"ordinary", make_ordinary, 15},
                                             {"rules", make_rules, 30},
                                             {"wrap", make_wrap, 10},
                                             {"chain", make_chain, 10},
                                             {"dead", make_dead, 10},
                                             {"nullable", make_nullable, 10},
                                             {"parens", make_parens, 5},
                                             {"classes", make_classes, 5},
                                             {"alternatives", make_alternatives, 5},
                                             {"ambiguous", make_ambiguous, 5},
                                             {NULL, NULL, 0}};
