/*
 * The table of docs/methods.md that says what goes with what: every combination of the axes in
 * skv/combine.h, asked one by one, and rows that say the same joined.
 */
#include "combinations.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "skv/combine.h"

enum { WORKS = 255, AXES = SKV_AXIS_WHERE, PLACES_MAX = 32 };

/* Values of every axis but where, and what each place says to all of their combinations. */
typedef struct joined {
    uint32_t values[AXES];
    uint8_t said[PLACES_MAX]; /* the number of a rule, or WORKS */
} joined;

typedef struct table {
    joined *at; /* owned */
    size_t n;
    bool limited[AXES]; /* some rule limits it */
} table;

static unsigned n_places(void)
{
    return skv_axis_values(SKV_AXIS_WHERE) - 1; /* what one request asks for is no column */
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

/* The next combination in order, false behind the last. Axes that no rule limits stand still. */
static bool advance(const table *t, skv_combination *c)
{
    for (unsigned axis = AXES; axis-- > 0;) {
        unsigned next = c->at[axis] + 1;
        while (next < skv_axis_values(axis) && skv_axis_value(axis, next) == NULL) next++;
        if (t->limited[axis] && next < skv_axis_values(axis)) {
            c->at[axis] = next;
            return true;
        }
        c->at[axis] = 0;
        while (skv_axis_value(axis, c->at[axis]) == NULL) c->at[axis]++;
    }
    return false;
}

static void ask_all(table *t)
{
    size_t room = 1;
    skv_combination c = {{0}};
    for (unsigned axis = 0; axis < AXES; axis++) {
        for (size_t i = 0; skv_refusal_at(i) != NULL; i++) {
            t->limited[axis] = t->limited[axis] || skv_refusal_at(i)->values[axis] != 0;
        }
        while (skv_axis_value(axis, c.at[axis]) == NULL) c.at[axis]++;
        room *= t->limited[axis] ? skv_axis_values(axis) : 1;
    }
    t->at = cli_alloc(room, sizeof *t->at);
    do {
        ask(&c, &t->at[t->n++]);
    } while (advance(t, &c));
}

static bool differ_only_in(const joined *a, const joined *b, unsigned axis)
{
    for (unsigned i = 0; i < AXES; i++) {
        if (i != axis && a->values[i] != b->values[i]) return false;
    }
    return memcmp(a->said, b->said, sizeof a->said) == 0;
}

/* Joins rows that differ in the values of one axis alone and say the same. */
static void join(table *t, unsigned axis)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        size_t k = 0;
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
        if (name != NULL && (strchr(name, ',') != NULL) == query_head) out |= UINT32_C(1) << i;
    }
    return out;
}

/* Prints a group if all of it is there, and takes it away. */
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
    uint32_t all = 0;
    for (unsigned i = 0; i < skv_axis_values(axis); i++) {
        if (skv_axis_value(axis, i) != NULL) all |= UINT32_C(1) << i;
    }
    values &= all;
    if (axis != SKV_AXIS_WHERE && print_group(&values, all, "any", "")) return;
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

static void print_line(const table *t, const joined *row)
{
    for (unsigned axis = 0; axis < AXES; axis++) {
        if (!t->limited[axis]) continue;
        printf("| ");
        print_values(axis, row->values[axis]);
        putchar(' ');
    }
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
    for (unsigned axis = 0; axis < AXES; axis++) {
        if (t->limited[axis]) printf("| %s ", skv_axis_name(axis));
    }
    for (unsigned i = 0; i < n_places(); i++) printf("| %s ", skv_axis_value(SKV_AXIS_WHERE, i));
    printf("|\n");
    for (unsigned axis = 0; axis < AXES; axis++) {
        if (t->limited[axis]) printf("|---");
    }
    for (unsigned i = 0; i < n_places(); i++) printf("|:-:");
    printf("|\n");
    for (size_t i = 0; i < t->n; i++) print_line(t, &t->at[i]);
}

static void print_rules(void)
{
    for (size_t i = 0; skv_refusal_at(i) != NULL; i++) {
        const skv_refusal *rule = skv_refusal_at(i);
        const char *between = "";
        printf("%zu. ", i + 1);
        for (unsigned axis = 0; axis < SKV_AXIS_COUNT; axis++) {
            if (rule->values[axis] == 0) continue;
            const bool says_itself = axis == SKV_AXIS_MODEL || axis == SKV_AXIS_WHERE;
            fputs(between, stdout);
            if (!says_itself) printf("%s ", skv_axis_name(axis));
            print_values(axis, rule->values[axis]);
            between = "; ";
        }
        printf(": %s.\n", rule->why);
    }
}

void cli_help_combinations(void)
{
    table t = {.n = 0};
    ask_all(&t);
    for (unsigned axis = AXES; axis-- > 0;) join(&t, axis);
    print_table(&t);
    for (unsigned axis = 0; axis < AXES; axis++) {
        if (t.limited[axis]) continue;
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
