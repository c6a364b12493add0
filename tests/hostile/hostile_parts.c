/* Hostile lists of choices, and grammars of parts: see hostile.h. */
#include "hostile_maker.h"

enum { MARK_MAX = 64, REPEAT_MAX = 1000 };

/* Up to the limit, and sometimes beyond. */
static size_t repeat_max(hostile_maker *m)
{
    return hostile_chance(m, 90) ? hostile_size(m, 1, REPEAT_MAX) : hostile_limit(m, REPEAT_MAX);
}

/* ---- choices ---- */

static void make_texts(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 4), share = m->room / n;
    size_t n_text = hostile_size(m, 1, share), n_common = hostile_below(m, n_text + 1);
    bool behind = hostile_chance(m, 50);
    hostile_put(m, "[");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s\"", i > 0 ? "," : "");
        if (!behind) hostile_fill(m, "a", n_common);
        hostile_name(m, i, n_text - n_common);
        if (behind) hostile_fill(m, "a", n_common);
        hostile_put(m, "\"");
    }
    hostile_put(m, "]");
}

/* Each text begins the next one. */
static void make_stairs(hostile_maker *m)
{
    size_t step = hostile_size(m, 1, 300), n = hostile_size(m, 1, 1000);
    hostile_put(m, "[\"\"");
    for (size_t i = 1; i < n && !hostile_full(m); i++) {
        hostile_put(m, ",\"");
        hostile_fill(m, "x", i * step);
        hostile_put(m, "\"");
    }
    hostile_put(m, "]");
}

static void make_escapes(hostile_maker *m)
{
    static const char *const texts[] = {
        "\"\\u0000\"", "\"\\ud83d\\ude42\"", "\"\\n\\\"\"", "\"\xc3\xa4\"",
        "\"\"",        "\"\\uffff\"",        "1",           "null"};
    hostile_put(m, "[\"a\"");
    while (!hostile_full(m)) {
        hostile_put(m, ",%s", texts[hostile_below(m, hostile_chance(m, 90) ? 6 : 8)]);
    }
    hostile_put(m, "]");
}

static void make_any_json(hostile_maker *m)
{
    hostile_put(m, "[");
    hostile_value(m, hostile_size(m, 0, 100), m->room);
    hostile_put(m, "]");
}

static void make_ordinary(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 50);
    hostile_put(m, "[\"yes\"");
    for (size_t i = 0; i < n; i++) hostile_put(m, ",\"choice number %zu\"", i);
    hostile_put(m, "]");
}

const hostile_shape hostile_choice_shapes[] = {
    {"ordinary", make_ordinary, 15}, {"texts", make_texts, 45},   {"stairs", make_stairs, 20},
    {"escapes", make_escapes, 10},   {"json", make_any_json, 10}, {NULL, NULL, 0}};

/* ---- parts ---- */

static void put_mark(hostile_maker *m, size_t n_bytes)
{
    static const char *const words[] = {"until", "without", "unlike"};
    size_t n =
        hostile_chance(m, 85) ? hostile_size(m, 1, MARK_MAX - 1) : hostile_size(m, 1, n_bytes + 1);
    /* Its first character comes once: the others are refused. */
    hostile_put(m, "{\"%s\":\"%s", words[hostile_below(m, 3)], hostile_chance(m, 95) ? "<" : "a");
    hostile_fill(m, hostile_chance(m, 50) ? "a" : "ab", n / 3);
    hostile_name(m, hostile_below(m, 1000), n / 3);
    hostile_put(m, "\"}");
}

static void put_part(hostile_maker *m, size_t depth, size_t n_bytes)
{
    size_t end = m->to->size + n_bytes, n = hostile_size(m, 1, n_bytes / 16 + 1);
    switch (depth > 0 ? hostile_below(m, 7) : 3 + hostile_below(m, 4)) {
    case 0:
    case 1: {
        bool any = hostile_chance(m, 50);
        hostile_put(m, any ? "{\"any\":[" : "[");
        for (size_t i = 0; i < n && m->to->size < end; i++) {
            hostile_put(m, "%s", i > 0 ? "," : "");
            put_part(m, depth - 1, hostile_left(m, end) / (n - i) + 1);
        }
        hostile_put(m, any ? "]}" : "]");
        break;
    }
    case 2:
        hostile_put(m, "{\"repeat\":");
        put_part(m, depth - 1, n_bytes / 2);
        hostile_put(m, ",\"min\":%zu,\"max\":%zu,\"between\":", hostile_below(m, 3), repeat_max(m));
        put_part(m, depth - 1, n_bytes / 4);
        hostile_put(m, "}");
        break;
    case 3:
        hostile_put(m, "{\"schema\":");
        hostile_schema(m, n_bytes);
        hostile_put(m, "}");
        break;
    case 4:
    case 5: put_mark(m, n_bytes); break;
    default:
        hostile_put(m, "\"");
        hostile_name(m, hostile_below(m, 1000), hostile_size(m, 1, n_bytes));
        hostile_put(m, "\"");
        break;
    }
}

static void make_parts(hostile_maker *m)
{
    put_part(m, hostile_size(m, 1, hostile_chance(m, 80) ? 20 : 60), m->room);
}

static void make_marks(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 20);
    hostile_put(m, "%s", hostile_chance(m, 50) ? "{\"any\":[" : "[");
    bool any = m->to->data[0] == '{';
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s", i > 0 ? "," : "");
        put_mark(m, m->room / n);
    }
    hostile_put(m, any ? "]}" : "]");
}

static void make_repeats(hostile_maker *m)
{
    size_t depth = hostile_size(m, 1, hostile_chance(m, 80) ? 30 : 70);
    for (size_t i = 0; i < depth; i++) {
        hostile_put(m, "{\"min\":%zu,\"max\":%zu,\"repeat\":", hostile_below(m, 4), repeat_max(m));
    }
    put_mark(m, 8);
    hostile_fill(m, "}", depth);
}

/* As skv_reply_grammar writes them. */
static void make_ordinary_calls(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 8);
    hostile_put(m, "[{\"without\":\"<tool_call>\"},{\"repeat\":[\"<tool_call>\\n\",{\"any\":[");
    for (size_t i = 0; i < n; i++) {
        hostile_put(m,
                    "%s[\"{\\\"name\\\": \\\"f%zu\\\", \\\"arguments\\\": "
                    "\",{\"schema\":{\"type\":\"object\","
                    "\"properties\":{\"a\":{\"type\":\"string\"}}}},\"}\"]",
                    i > 0 ? "," : "", i);
    }
    hostile_put(m, "]},\"\\n</tool_call>\"],\"min\":1,\"max\":4,\"between\":\"\\n\"}]");
}

const hostile_shape hostile_parts_shapes[] = {{"ordinary_calls", make_ordinary_calls, 15},
                                              {"parts", make_parts, 40},
                                              {"marks", make_marks, 20},
                                              {"repeats", make_repeats, 20},
                                              {"json", make_any_json, 5},
                                              {NULL, NULL, 0}};
