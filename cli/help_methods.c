/*
 * The tables of docs/reference/methods.md. Methods: the eviction methods and their effect on the
 * rest of the program. Combinations: checks every combination of the axes in skv/combine.h, lists
 * those that work somewhere, and joins equal rows.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "options.h"
#include "report.h"
#include "skv/combine.h"
#include "skv/eviction.h"

/* A method as it is without further words. */
static skv_eviction plain(const char *name)
{
    skv_eviction out = {.method = SKV_EVICT_NONE};
    skv_error err = {0};
    char text[SKV_EVICTION_TEXT];
    int n = snprintf(text, sizeof text, "%s:128", name);
    if (n > 0 && skv_eviction_parse(text, &out, &err) == SKV_OK) return out;
    n = snprintf(text, sizeof text, "%s:4,128", name); /* its first number is another */
    if (n < 0 || skv_eviction_parse(text, &out, &err) != SKV_OK) out.method = SKV_EVICT_NONE;
    return out;
}

static void print_row(const char *name, const char *form, const char *about)
{
    const skv_eviction how = plain(name);
    const size_t n_voters = skv_eviction_voters(&how);
    const bool all = n_voters == SIZE_MAX, none = n_voters == 0;
    printf("| `%s:", name);
    /* A bar would end the cell. */
    for (const char *at = form; *at != 0; at++) {
        if (*at == '|') putchar('\\');
        putchar(*at);
    }
    printf("` | %s | %s | %s | %s |\n", about,
           none  ? "none"
           : all ? "every token of the prompt"
                 : "the last w tokens",
           none  ? "the last token"
           : all ? "every token of the prompt"
                 : "the last w tokens",
           none  ? "all but the last token"
           : all ? "nothing"
                 : "all but the last w tokens");
}

void cli_help_methods(void)
{
    const char *name, *form, *about;
    printf("| `--evict` | kept rows | voters | SwiftKV: the deep layers run for | a known "
           "prefix may give |\n|---|---|---|---|---|\n");
    for (size_t i = 0; skv_eviction_form(i, &name, &form, &about); i++) {
        print_row(name, form, about);
    }
}

enum { WORKS = 255, AXES = SKV_AXIS_WHERE, PLACES_MAX = 32 };

/* Values of every axis except WHERE, and the result of each place for all of their combinations. */
typedef struct joined {
    uint32_t values[AXES];
    uint8_t said[PLACES_MAX]; /* the number of a rule, or WORKS */
} joined;

typedef struct table {
    joined *at; /* owned */
    size_t n;
    bool limited[AXES]; /* some rule limits it */
} table;

/* The number of columns. Places from SEQUENCE on are choices of a request or a program. */
static unsigned n_places(void)
{
    return SKV_WHERE_SEQUENCE;
}

static void ask(const skv_combination *c, joined *out)
{
    for (unsigned axis = 0; axis < AXES; axis++) out->values[axis] = UINT32_C(1) << c->at[axis];
    for (unsigned place = 0; place < n_places(); place++) {
        skv_combination here = *c;
        here.at[SKV_AXIS_WHERE] = place;
        const size_t i = skv_combination_refused(&here);
        out->said[place] = i == SIZE_MAX ? WORKS : (uint8_t)i;
    }
}

/* The name of a value, or NULL. The table is that of the processor: docs/guides/gpu.md has the
 * rules of other devices. */
static const char *value_of(unsigned axis, unsigned i)
{
    return axis == SKV_AXIS_DEVICE && i > 0 ? NULL : skv_axis_value(axis, i);
}

/* The values that an axis has. */
static uint32_t all_of(unsigned axis)
{
    uint32_t all = 0;
    for (unsigned i = 0; i < skv_axis_values(axis); i++) {
        if (value_of(axis, i)) all |= UINT32_C(1) << i;
    }
    return all;
}

/* Whether a rule is about the processor. */
static bool can_match(const skv_refusal *rule)
{
    for (unsigned axis = 0; axis < SKV_AXIS_COUNT; axis++) {
        if (rule->values[axis] != 0 && (rule->values[axis] & all_of(axis)) == 0) return false;
    }
    return true;
}

/* Combinations that work nowhere are refused by a rule that names no place; the list of rules
 * covers them. */
static bool works_somewhere(const joined *row)
{
    bool works = false;
    for (unsigned place = 0; place < n_places(); place++) works |= row->said[place] == WORKS;
    return works;
}

/* Advances to the next combination in order; false after the last. Axes without a rule stay
 * fixed. */
static bool advance(const table *t, skv_combination *c)
{
    for (unsigned axis = AXES; axis-- > 0;) {
        unsigned next = c->at[axis] + 1;
        while (next < skv_axis_values(axis) && !value_of(axis, next)) next++;
        if (t->limited[axis] && next < skv_axis_values(axis)) {
            c->at[axis] = next;
            return true;
        }
        c->at[axis] = 0;
        while (!value_of(axis, c->at[axis])) c->at[axis]++;
    }
    return false;
}

static void ask_all(table *t)
{
    size_t room = 1;
    skv_combination c = {{0}};
    for (unsigned axis = 0; axis < AXES; axis++) {
        for (size_t i = 0; skv_refusal_at(i); i++) {
            const skv_refusal *rule = skv_refusal_at(i);
            t->limited[axis] = t->limited[axis] || (rule->values[axis] != 0 && can_match(rule));
        }
        while (!value_of(axis, c.at[axis])) c.at[axis]++;
        room *= t->limited[axis] ? skv_axis_values(axis) : 1;
    }
    t->at = cli_alloc(room, sizeof *t->at);
    do {
        ask(&c, &t->at[t->n]);
        t->n += works_somewhere(&t->at[t->n]);
    } while (advance(t, &c));
}

static bool differ_only_in(const joined *a, const joined *b, unsigned axis)
{
    for (unsigned i = 0; i < AXES; i++) {
        if (i != axis && a->values[i] != b->values[i]) return false;
    }
    return memcmp(a->said, b->said, sizeof a->said) == 0;
}

static bool same_before(const joined *a, const joined *b, unsigned axis)
{
    return memcmp(a->values, b->values, axis * sizeof a->values[0]) == 0;
}

/* Joins equal rows that differ only in the values of one axis. Rows follow the order of the axes,
 * and earlier axes are not joined yet, so only rows with equal values there are compared. */
static void join(table *t, unsigned axis)
{
    size_t n = 0, first = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (n > 0 && !same_before(&t->at[n - 1], &t->at[i], axis)) first = n;
        size_t k = first;
        while (k < n && !differ_only_in(&t->at[k], &t->at[i], axis)) k++;
        if (k < n) {
            t->at[k].values[axis] |= t->at[i].values[axis];
        } else {
            t->at[n++] = t->at[i];
        }
    }
    t->n = n;
}

/* ---- printing ---- */

/* Names have commas of their own where a table parts names with them. */
static void print_name(const char *name)
{
    for (const char *c = name; *c != 0; c++) putchar(*c == ',' ? ':' : *c);
}

/* Values of an axis that are named together: ways to evict are many. */
static uint32_t evicts_by(bool query_head)
{
    uint32_t out = 0;
    for (unsigned i = 1; i < skv_axis_values(SKV_AXIS_EVICT); i++) {
        const char *name = skv_axis_value(SKV_AXIS_EVICT, i);
        if (name && (!!strchr(name, ',')) == query_head) out |= UINT32_C(1) << i;
    }
    return out;
}

/* Prints a group if it is complete, and removes it from the values. */
static bool print_group(uint32_t *values, uint32_t group, const char *name, const char *between)
{
    if ((*values & group) != group || group == 0) return false;
    printf("%s%s", between, name);
    *values &= ~group;
    return true;
}

static void print_values(unsigned axis, uint32_t values)
{
    const char *between = "";
    const uint32_t all = all_of(axis);
    values &= all;
    if (axis == SKV_AXIS_EVICT || axis == SKV_AXIS_PRUNE) {
        if (print_group(&values, all & ~UINT32_C(1), "any but none", "")) between = ", ";
    }
    if (axis == SKV_AXIS_EVICT) {
        if (print_group(&values, evicts_by(false), "by KV head", between)) between = ", ";
        if (print_group(&values, evicts_by(true), "by query head", between)) between = ", ";
    }
    for (unsigned i = 0; i < skv_axis_values(axis); i++) {
        if (!(values >> i & 1U)) continue;
        fputs(between, stdout);
        print_name(skv_axis_value(axis, i));
        between = ", ";
    }
}

/* Prints "SwiftKV model; --prefill full, swiftkv": leaves out axes with all their values, and
 * prints the values of axes that are not options without a name. */
static void print_limits(const uint32_t *values, unsigned n_axes)
{
    const char *between = "";
    for (unsigned axis = 0; axis < n_axes; axis++) {
        if (values[axis] == 0 || (values[axis] & all_of(axis)) == all_of(axis)) continue;
        const char *name = skv_axis_name(axis);
        fputs(between, stdout);
        if (strncmp(name, "--", 2) == 0) printf("%s ", name);
        print_values(axis, values[axis]);
        between = "; ";
    }
}

static void print_line(const table *t, const joined *row)
{
    uint32_t values[AXES];
    for (unsigned axis = 0; axis < AXES; axis++) {
        values[axis] = t->limited[axis] ? row->values[axis] : 0;
    }
    printf("| ");
    print_limits(values, AXES);
    putchar(' ');
    for (unsigned place = 0; place < n_places(); place++) {
        if (row->said[place] == WORKS) {
            printf("| yes ");
        } else {
            printf("| %u ", row->said[place] + 1U);
        }
    }
    printf("|\n");
}

static void print_table(const table *t)
{
    printf("| combination ");
    for (unsigned i = 0; i < n_places(); i++) printf("| %s ", skv_axis_value(SKV_AXIS_WHERE, i));
    printf("|\n|---");
    for (unsigned i = 0; i < n_places(); i++) printf("|:-:");
    printf("|\n");
    for (size_t i = 0; i < t->n; i++) print_line(t, &t->at[i]);
}

static void print_rules(void)
{
    for (size_t i = 0; skv_refusal_at(i); i++) {
        if (!can_match(skv_refusal_at(i))) continue;
        printf("%zu. ", i + 1);
        print_limits(skv_refusal_at(i)->values, SKV_AXIS_COUNT);
        printf(": %s.\n", skv_refusal_at(i)->why);
    }
}

void cli_help_combinations(void)
{
    table t = {.n = 0};
    ask_all(&t);
    for (unsigned axis = AXES; axis-- > 0;) join(&t, axis);
    print_table(&t);
    for (unsigned axis = 0; axis < AXES; axis++) {
        const uint32_t values = all_of(axis);
        if (t.limited[axis] || (values & (values - 1)) == 0) continue;
        printf("\nEach of them with every `%s`: ", skv_axis_name(axis));
        for (unsigned i = 1; i < skv_axis_values(axis); i++) {
            printf("%s%s", i > 1 ? ", " : "", skv_axis_value(axis, i));
        }
        printf(".\n");
    }
    printf("\n");
    print_rules();
    free(t.at);
}
