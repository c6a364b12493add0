/*
 * Strings that several patterns and a length describe at once: the product of their automata over
 * characters. Each of its states becomes a rule: a character, and the rule of the next state.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "grammar/schema_impl.h"

enum {
    STATES_MAX = 4096, /* of the automaton of one pattern */
    EDGES_MAX = 1 << 18,
    RANGES_MAX = 1 << 20,
    PAIRS_MAX = 1 << 20 /* of states of two automata */
};

/* A character of ranges[first .. first + n) leads from one state to another; n 0: none is read. */
typedef struct edge {
    uint32_t from, to, first, n;
} edge;

/* State 0 is the first. */
typedef struct automaton {
    skv_budget *budget;     /* borrowed */
    edge *edges;            /* owned, [n_edges] */
    skv_code_range *ranges; /* owned, [n_ranges] */
    bool *ends;             /* owned, [n_states]: a string may end there */
    size_t n_states, n_edges, n_ranges;
    size_t edges_capacity, ranges_capacity, ends_capacity;
    bool failed; /* no memory, or a limit */
} automaton;

static void release(automaton *a)
{
    skv_budget_free(a->budget, a->edges, a->edges_capacity, sizeof *a->edges);
    skv_budget_free(a->budget, a->ranges, a->ranges_capacity, sizeof *a->ranges);
    skv_budget_free(a->budget, a->ends, a->ends_capacity, sizeof *a->ends);
    *a = (automaton){.budget = a->budget};
}

static uint32_t add_state(automaton *a, bool ends, size_t max)
{
    a->failed = a->failed || !skv_budget_work(a->budget, 1) ||
                !skv_budget_grow(a->budget, &a->ends, &a->ends_capacity, a->n_states + 1,
                                 sizeof *a->ends, max);
    if (a->failed) return 0;
    a->ends[a->n_states] = ends;
    return (uint32_t)a->n_states++;
}

static void add_edge(automaton *a, uint32_t from, uint32_t to, const skv_code_range *ranges,
                     size_t n)
{
    a->failed = a->failed || !skv_budget_work(a->budget, 1 + n / 4) ||
                !skv_budget_grow(a->budget, &a->edges, &a->edges_capacity, a->n_edges + 1,
                                 sizeof *a->edges, EDGES_MAX) ||
                !skv_budget_grow(a->budget, &a->ranges, &a->ranges_capacity, a->n_ranges + n + 1,
                                 sizeof *a->ranges, RANGES_MAX);
    if (a->failed) return;
    a->edges[a->n_edges++] = (edge){from, to, (uint32_t)a->n_ranges, (uint32_t)n};
    if (n > 0) memcpy(a->ranges + a->n_ranges, ranges, n * sizeof *ranges);
    a->n_ranges += n;
}

/* ---- an expression's automaton ---- */

/* An expression that leads from one state to another. */
typedef struct task {
    skv_expr expr;
    uint32_t from, to;
} task;

typedef struct tasks {
    automaton *a; /* borrowed */
    task *at;     /* owned, [n] */
    size_t n, capacity;
} tasks;

static void push(tasks *t, skv_expr expr, uint32_t from, uint32_t to)
{
    automaton *a = t->a;
    a->failed = a->failed || !skv_budget_grow(a->budget, &t->at, &t->capacity, t->n + 1,
                                              sizeof *t->at, EDGES_MAX);
    if (!a->failed) t->at[t->n++] = (task){expr, from, to};
}

static void push_repeat(tasks *t, const skv_expr_node *node, skv_expr kid, task now)
{
    automaton *a = t->a;
    const bool many = node->max == SKV_REPEAT_MANY;
    const uint32_t most = many ? node->n : node->max;
    uint32_t at = now.from;
    for (uint32_t i = 0; i < most && !a->failed; i++) {
        if (i >= node->n) add_edge(a, at, now.to, NULL, 0);
        const uint32_t next = add_state(a, false, STATES_MAX);
        push(t, kid, at, next);
        at = next;
    }
    if (many) { /* a state of its own: paths to `at` must not enter the loop */
        const uint32_t loop = add_state(a, false, STATES_MAX);
        add_edge(a, at, loop, NULL, 0);
        push(t, kid, loop, loop);
        at = loop;
    }
    add_edge(a, at, now.to, NULL, 0);
}

/* Expressions of patterns have no bytes and no calls. */
static void expand(tasks *t, const skv_exprs *exprs, task now)
{
    automaton *a = t->a;
    const skv_expr_node *node = &exprs->nodes[now.expr];
    uint32_t at = now.from;
    switch ((skv_expr_kind)node->kind) {
    case SKV_EXPR_KIND_EMPTY: add_edge(a, now.from, now.to, NULL, 0); return;
    case SKV_EXPR_KIND_SET:
        add_edge(a, now.from, now.to, exprs->ranges + node->first, node->n);
        return;
    case SKV_EXPR_KIND_ALT:
        for (uint32_t i = 0; i < node->n; i++) {
            push(t, exprs->kids[node->first + i], now.from, now.to);
        }
        return;
    case SKV_EXPR_KIND_SEQ:
        for (uint32_t i = 0; i < node->n; i++) {
            const bool last = i + 1 == node->n;
            const uint32_t next = last ? now.to : add_state(a, false, STATES_MAX);
            push(t, exprs->kids[node->first + i], at, next);
            at = next;
        }
        return;
    case SKV_EXPR_KIND_REPEAT: push_repeat(t, node, exprs->kids[node->first], now); return;
    case SKV_EXPR_KIND_NEVER:
    case SKV_EXPR_KIND_BYTES:
    case SKV_EXPR_KIND_CALL: return;
    }
}

/* State 1 is the end. */
static void read_expr(automaton *a, const skv_exprs *exprs, skv_expr expr)
{
    tasks t = {.a = a};
    (void)add_state(a, false, STATES_MAX);
    push(&t, expr, 0, add_state(a, true, STATES_MAX));
    while (t.n > 0 && !a->failed) expand(&t, exprs, t.at[--t.n]);
    skv_budget_free(a->budget, t.at, t.capacity, sizeof *t.at);
}

/* ---- without edges that read nothing ---- */

/* The edges of each state: order[begin[state] .. begin[state + 1]). */
typedef struct leaving {
    uint32_t *begin, *order; /* owned */
    size_t n_states, n_edges;
} leaving;

static bool sort_edges(const automaton *a, leaving *out)
{
    *out = (leaving){.n_states = a->n_states, .n_edges = a->n_edges};
    out->begin = skv_budget_alloc_zero(a->budget, a->n_states + 2, sizeof *out->begin);
    out->order = skv_budget_alloc_zero(a->budget, a->n_edges + 1, sizeof *out->order);
    if (!out->begin || !out->order) return false;
    for (size_t i = 0; i < a->n_edges; i++) out->begin[a->edges[i].from + 2]++;
    for (size_t i = 2; i < a->n_states + 2; i++) out->begin[i] += out->begin[i - 1];
    for (size_t i = 0; i < a->n_edges; i++) {
        out->order[out->begin[a->edges[i].from + 1]++] = (uint32_t)i;
    }
    return true;
}

static void release_edges(skv_budget *budget, leaving *l)
{
    if (l->begin) skv_budget_free(budget, l->begin, l->n_states + 2, sizeof *l->begin);
    if (l->order) skv_budget_free(budget, l->order, l->n_edges + 1, sizeof *l->order);
}

/* Working state while states are taken over. */
typedef struct closing {
    const automaton *a;
    leaving edges;
    uint32_t *number; /* owned, [n_states] of a: number in the new automaton + 1; 0: none */
    uint32_t *of;     /* owned, [n_states]: which state of a each new one is */
    uint32_t *seen;   /* owned, [n_states]: the new state, + 1, that came here last */
    uint32_t *stack;  /* owned, [n_states] */
} closing;

static uint32_t number_of(closing *c, automaton *out, uint32_t state)
{
    if (c->number[state] == 0) {
        const uint32_t made = add_state(out, false, STATES_MAX);
        if (out->failed) return 0;
        c->of[made] = state;
        c->number[state] = made + 1;
    }
    return c->number[state] - 1;
}

/* All that can be read from a new state, whatever is passed without reading. */
static void close_state(closing *c, automaton *out, uint32_t made)
{
    size_t n = 0;
    c->stack[n++] = c->of[made];
    c->seen[c->of[made]] = made + 1;
    while (n > 0 && !out->failed) {
        const uint32_t state = c->stack[--n];
        out->ends[made] = out->ends[made] || c->a->ends[state];
        for (uint32_t i = c->edges.begin[state]; i < c->edges.begin[state + 1]; i++) {
            const edge *e = &c->a->edges[c->edges.order[i]];
            out->failed = out->failed || !skv_budget_work(out->budget, 1);
            if (e->n > 0) {
                const uint32_t to = number_of(c, out, e->to);
                add_edge(out, made, to, c->a->ranges + e->first, e->n);
            } else if (c->seen[e->to] != made + 1) {
                c->seen[e->to] = made + 1;
                c->stack[n++] = e->to;
            }
        }
    }
}

static void drop_empty(const automaton *a, automaton *out)
{
    skv_budget *budget = a->budget;
    const size_t n = a->n_states;
    uint32_t *words = skv_budget_alloc_zero(budget, 4 * n, sizeof *words);
    closing c = {.a = a};
    out->failed = a->failed || !words || !sort_edges(a, &c.edges);
    if (!out->failed) {
        c.number = words;
        c.of = words + n;
        c.seen = words + 2 * n;
        c.stack = words + 3 * n;
        (void)number_of(&c, out, 0);
    }
    for (uint32_t i = 0; i < out->n_states && !out->failed; i++) close_state(&c, out, i);
    release_edges(budget, &c.edges);
    skv_budget_free(budget, words, 4 * n, sizeof *words);
}

static void automaton_of(const skv_exprs *exprs, skv_expr expr, automaton *out)
{
    automaton raw = {.budget = exprs->budget};
    *out = (automaton){.budget = exprs->budget};
    read_expr(&raw, exprs, expr);
    drop_empty(&raw, out);
    release(&raw);
}

/* ---- two at once ---- */

/* The characters of both edges, for a tidy set. */
static void cut_edges(const automaton *a, const edge *x, const automaton *b, const edge *y,
                      skv_code_set *out)
{
    const skv_code_set set = {.at = a->ranges + x->first, .n = x->n};
    for (uint32_t i = 0; i < y->n; i++) {
        const skv_code_range *range = &b->ranges[y->first + i];
        skv_code_set_cut(&set, range->lo, range->hi, out);
    }
    skv_code_set_tidy(out);
}

typedef struct crossing {
    const automaton *a, *b;
    leaving of_a, of_b;
    uint32_t *number; /* owned, [states of a * states of b]: number of the pair + 1 */
    uint32_t *pairs;  /* owned, [the same]: the pair of each number */
} crossing;

static uint32_t pair_number(crossing *c, automaton *out, uint32_t x, uint32_t y)
{
    const size_t at = x * c->b->n_states + y;
    if (c->number[at] == 0) {
        const uint32_t made = add_state(out, c->a->ends[x] && c->b->ends[y], PAIRS_MAX);
        if (out->failed) return 0;
        c->pairs[made] = (uint32_t)at;
        c->number[at] = made + 1;
    }
    return c->number[at] - 1;
}

static void cross_state(crossing *c, automaton *out, uint32_t made)
{
    const uint32_t x = c->pairs[made] / (uint32_t)c->b->n_states;
    const uint32_t y = c->pairs[made] % (uint32_t)c->b->n_states;
    for (uint32_t i = c->of_a.begin[x]; i < c->of_a.begin[x + 1]; i++) {
        for (uint32_t k = c->of_b.begin[y]; k < c->of_b.begin[y + 1] && !out->failed; k++) {
            const edge *e = &c->a->edges[c->of_a.order[i]], *f = &c->b->edges[c->of_b.order[k]];
            skv_code_set both = {.budget = out->budget};
            cut_edges(c->a, e, c->b, f, &both);
            out->failed = out->failed || both.failed || !skv_budget_work(out->budget, e->n + f->n);
            if (both.n > 0) {
                add_edge(out, made, pair_number(c, out, e->to, f->to), both.at, both.n);
            }
            skv_code_set_release(&both);
        }
    }
}

static void cross(const automaton *a, const automaton *b, automaton *out)
{
    const size_t n = a->n_states * b->n_states;
    skv_budget *budget = a->budget;
    *out = (automaton){.budget = budget, .failed = a->failed || b->failed || n > PAIRS_MAX};
    out->failed = out->failed || !a->ends || !b->ends; /* one without a state has failed */
    if (out->failed) return;
    crossing c = {.a = a, .b = b};
    c.number = skv_budget_alloc_zero(budget, n, sizeof *c.number);
    c.pairs = skv_budget_alloc_zero(budget, n, sizeof *c.pairs);
    out->failed = !c.number || !c.pairs || !sort_edges(a, &c.of_a) || !sort_edges(b, &c.of_b);
    if (!out->failed) (void)pair_number(&c, out, 0, 0);
    for (uint32_t i = 0; i < out->n_states && !out->failed; i++) cross_state(&c, out, i);
    release_edges(budget, &c.of_a);
    release_edges(budget, &c.of_b);
    skv_budget_free(budget, c.number, n, sizeof *c.number);
    skv_budget_free(budget, c.pairs, n, sizeof *c.pairs);
}

/* ---- rules ---- */

/* The states for each distinguished number of characters: from `min` on, or up to `max`. */
typedef struct unrolled {
    skv_exprs *exprs; /* borrowed */
    const automaton *a;
    leaving edges;
    uint32_t min, max;
    skv_expr *spelled; /* owned, [n_edges]: the characters of each edge */
    uint32_t *rule;    /* owned, [n_states * n_counts]: the rule + 1 */
    uint32_t *states;  /* owned, [the same]: the state of each rule, in the order they were made */
    size_t n_counts, n_made;
} unrolled;

static uint32_t count_behind(const unrolled *u, uint32_t count)
{
    const bool last = count + 1 == u->n_counts;
    return last && u->max == SKV_REPEAT_MANY ? count : count + 1;
}

static skv_expr rule_of(unrolled *u, uint32_t state, uint32_t count)
{
    const size_t at = state * u->n_counts + count;
    if (u->rule[at] == 0) {
        u->rule[at] = skv_rule_declare(u->exprs, "pattern", 7) + 1;
        u->states[u->n_made++] = (uint32_t)at;
    }
    return skv_expr_call(u->exprs, u->rule[at] - 1);
}

static void define_state(unrolled *u, size_t at)
{
    const uint32_t state = (uint32_t)(at / u->n_counts), count = (uint32_t)(at % u->n_counts);
    const uint32_t behind = count_behind(u, count);
    skv_expr_list ways = {.exprs = u->exprs};
    if (u->a->ends[state] && count >= u->min) skv_expr_list_add(&ways, SKV_EXPR_EMPTY);
    for (uint32_t i = u->edges.begin[state]; i < u->edges.begin[state + 1]; i++) {
        const uint32_t k = u->edges.order[i];
        if (behind >= u->n_counts || !skv_expr_work(u->exprs, 1)) break;
        skv_expr_list_add(
            &ways, skv_expr_seq2(u->exprs, u->spelled[k], rule_of(u, u->a->edges[k].to, behind)));
    }
    skv_rule_define(u->exprs, u->rule[at] - 1, skv_expr_list_alt(&ways));
}

static void spell_edges(unrolled *u)
{
    for (size_t i = 0; i < u->a->n_edges; i++) {
        const edge *e = &u->a->edges[i];
        const skv_code_set set = {.at = u->a->ranges + e->first, .n = e->n};
        u->spelled[i] = skv_json_char(u->exprs, &set);
    }
}

static bool make_rules(skv_exprs *exprs, const automaton *a, skv_product *p, skv_expr *out)
{
    skv_budget *budget = exprs->budget;
    unrolled u = {.exprs = exprs, .a = a, .min = p->min, .max = p->max};
    u.n_counts = (size_t)(p->max == SKV_REPEAT_MANY ? p->min : p->max) + 1;
    const size_t most = a->n_edges > a->n_states ? a->n_edges : a->n_states;
    if (!a->ends || most > p->n_states / u.n_counts) return false;
    const size_t n = a->n_states * u.n_counts;
    p->n_states = most * u.n_counts;
    u.spelled = skv_budget_alloc_zero(budget, a->n_edges + 1, sizeof *u.spelled);
    u.rule = skv_budget_alloc_zero(budget, n, sizeof *u.rule);
    u.states = skv_budget_alloc_zero(budget, n, sizeof *u.states);
    const bool ok = u.spelled && u.rule && u.states && sort_edges(a, &u.edges);
    if (ok) {
        spell_edges(&u);
        *out = rule_of(&u, 0, 0);
    }
    for (size_t i = 0; ok && i < u.n_made && exprs->status == SKV_OK; i++) {
        define_state(&u, u.states[i]);
    }
    release_edges(budget, &u.edges);
    skv_budget_free(budget, u.spelled, a->n_edges + 1, sizeof *u.spelled);
    skv_budget_free(budget, u.rule, n, sizeof *u.rule);
    skv_budget_free(budget, u.states, n, sizeof *u.states);
    return ok;
}

bool skv_schema_product(skv_exprs *exprs, skv_product *p, skv_expr *out)
{
    automaton all;
    automaton_of(exprs, p->of[0], &all);
    for (size_t i = 1; i < p->n; i++) {
        automaton one, joined;
        automaton_of(exprs, p->of[i], &one);
        cross(&all, &one, &joined);
        release(&all);
        release(&one);
        all = joined;
    }
    const bool ok = !all.failed && make_rules(exprs, &all, p, out);
    release(&all);
    return ok;
}
