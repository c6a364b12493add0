/* Hostile regular expressions: see hostile.h. */
#include "hostile_maker.h"

static void make_random(hostile_maker *m)
{
    hostile_rules none = {.n_rules = 0};
    size_t depth = hostile_size(m, 0, 210), n = hostile_size(m, 1, m->room / 8);
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        if (i > 0 && hostile_chance(m, 30)) hostile_put(m, "|");
        hostile_expr(m, &none, hostile_below(m, depth + 1), m->room / n);
    }
}

/* Repetitions inside repetitions. */
static void make_nest(hostile_maker *m)
{
    size_t depth = hostile_chance(m, 50) ? hostile_size(m, 1, 12) : hostile_limit(m, 200);
    bool product = hostile_chance(m, 50);
    unsigned long long n = hostile_times(m);
    hostile_fill(m, "(", depth);
    hostile_put(m, "%s", hostile_chance(m, 50) ? "x" : hostile_chance(m, 50) ? "x?" : ".*");
    for (size_t i = 0; i < depth; i++) {
        hostile_put(m, ")");
        if (product) {
            hostile_put(m, hostile_chance(m, 50) ? "{%llu}" : "{0,%llu}", n);
        } else {
            hostile_suffix(m);
        }
    }
}

/* Alternatives that keep many readings alive at once. */
static void make_readings(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 400);
    unsigned long long a = hostile_size(m, 1, 400);
    hostile_put(m, "%s", hostile_chance(m, 30) ? "(" : "");
    bool group = m->to->size > 0;
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s(.*%c.{%llu,%llu})", i > 0 ? "|" : "", (int)('a' + i % 26), a * (i % 3),
                    a * (i % 3) + a + i);
    }
    if (group) hostile_put(m, ")%s", hostile_chance(m, 50) ? "*" : "{1,100}");
}

/* Long repetitions, side by side. */
static void make_long(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 200);
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        if (i > 0) hostile_put(m, "%s", hostile_chance(m, 30) ? "|" : "");
        hostile_put(m, "%s{%llu,%llu}",
                    hostile_chance(m, 50) ? "." : "[^\\x00-\\x1f\\ud7ff-\\ufffd]", 0ull,
                    (unsigned long long)hostile_limit(m, 100000));
    }
}

/* (x?){n}x{n} and relatives. */
static void make_optional(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 2);
    switch (hostile_below(m, 4)) {
    case 0: hostile_put(m, "(x?){%zu}x{%zu}", n, n); break;
    case 1: hostile_put(m, "(x*){%zu}(x|xx|xxx){%zu}", n, n); break;
    case 2: hostile_put(m, "(x+x+)+y{%zu}", n); break;
    default:
        hostile_fill(m, "x?", n);
        hostile_fill(m, "x", n);
        break;
    }
}

static void make_classes(hostile_maker *m)
{
    static const char *const classes[] = {"[^a]",
                                          "\\W",
                                          "\\S",
                                          "\\D",
                                          "[\\u0100-\\uffff]",
                                          "[\\s\\S]",
                                          ".",
                                          "[a-zA-Z0-9_.+-]",
                                          "[^\\w\\u4e00]",
                                          "\\d"};
    while (!hostile_full(m)) {
        hostile_put(m, "%s", classes[hostile_below(m, 10)]);
        if (hostile_chance(m, 30)) hostile_suffix(m);
        if (hostile_chance(m, 10)) hostile_put(m, "|");
    }
    hostile_put(m, "x");
}

static void make_groups(hostile_maker *m)
{
    size_t depth = hostile_chance(m, 50) ? hostile_limit(m, 200) : hostile_size(m, 1, m->room / 4);
    const char *open = hostile_chance(m, 70) ? "(" : hostile_chance(m, 50) ? "(?:" : "(a|";
    hostile_fill(m, open, depth);
    hostile_put(m, "x");
    hostile_fill(m, hostile_chance(m, 50) ? ")" : ")?", depth);
}

static void make_ordinary(hostile_maker *m)
{
    static const char *const texts[] = {"[0-9]{4}-[0-9]{2}-[0-9]{2}",
                                        "(yes|no|maybe)",
                                        "[A-Z][a-z]+( [A-Z][a-z]+){0,3}",
                                        "\\d{1,3}(\\.\\d{1,3}){3}",
                                        "[\\w.+-]+@\\w+\\.\\w{2,4}",
                                        "^(?:\\+?\\d{1,3}[ -])?\\d{3,4}$",
                                        ".{0,200}",
                                        "(?P<key>[a-z]+)=(?P<value>[^;]*);"};
    hostile_put(m, "%s", texts[hostile_below(m, 8)]);
}

const hostile_shape hostile_regex_shapes[] = {
    {"ordinary", make_ordinary, 15}, {"random", make_random, 30}, {"nest", make_nest, 15},
    {"readings", make_readings, 10}, {"long", make_long, 10},     {"optional", make_optional, 10},
    {"classes", make_classes, 5},    {"groups", make_groups, 5},  {NULL, NULL, 0}};

void hostile_pattern(hostile_maker *m, size_t n_bytes)
{
    static hostile_make_fn *const makers[] = {make_ordinary, make_random, make_nest,
                                              make_readings, make_long,   make_optional,
                                              make_classes,  make_groups, make_ordinary};
    skv_buf pattern, *to = m->to;
    size_t room = m->room;
    skv_buf_init(&pattern, HOSTILE_TEXT_MAX);
    m->to = &pattern;
    m->room = n_bytes;
    makers[hostile_below(m, 9)](m);
    m->to = to;
    m->room = room;
    (void)skv_buf_json_text(to, pattern.data ? pattern.data : "", pattern.size);
    skv_buf_release(&pattern);
}
