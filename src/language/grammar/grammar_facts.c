/* Derives facts about expressions: see grammar_impl.h. */

#include "base/budget_mem.h"
#include "base/size.h"
#include "grammar/grammar_impl.h"

enum { STEPS_A_UNIT = 4 };

typedef struct finder {
    const skv_exprs *exprs;
    size_t n, n_links;
    uint32_t *first;   /* owned, [n + 1]: links[first[e] .. first[e + 1]) are the wholes that e is a
                        * part of */
    uint32_t *links;   /* owned, [n_links] */
    uint32_t *missing; /* owned, [n]: parts that the fact has not been found for */
    skv_expr *todo;    /* owned, [n]: stack of expressions whose wholes are still to be updated */
    size_t n_todo;
    skv_grammar_facts *out;
} finder;

/* The parts of an expression, the first of *n; a call has its rule's right side. */
static const uint32_t *parts_of(const skv_exprs *exprs, const skv_expr_node *node, uint32_t *n)
{
    *n = 1;
    switch ((skv_expr_kind)node->kind) {
    case SKV_EXPR_KIND_SEQ:
    case SKV_EXPR_KIND_ALT: *n = node->n; return exprs->kids + node->first;
    case SKV_EXPR_KIND_REPEAT: return exprs->kids + node->first;
    case SKV_EXPR_KIND_CALL: return &exprs->rules[node->first].expr;
    default: *n = 0; return NULL;
    }
}

static skv_expr_kind kind_of(const finder *f, skv_expr e)
{
    if (e < 2) return e == SKV_EXPR_EMPTY ? SKV_EXPR_KIND_EMPTY : SKV_EXPR_KIND_NEVER;
    return (skv_expr_kind)f->exprs->nodes[e].kind;
}

/* Counts the wholes of every part, then lists them. */
static void link_parts(finder *f)
{
    uint32_t n_parts;
    for (size_t e = 2; e < f->n; e++) {
        const uint32_t *parts = parts_of(f->exprs, &f->exprs->nodes[e], &n_parts);
        for (uint32_t i = 0; i < n_parts; i++) f->first[parts[i]]++;
    }
    for (size_t e = 1; e <= f->n; e++) f->first[e] += f->first[e - 1];
    for (size_t e = f->n; e-- > 2;) {
        const uint32_t *parts = parts_of(f->exprs, &f->exprs->nodes[e], &n_parts);
        for (uint32_t i = n_parts; i-- > 0;) f->links[--f->first[parts[i]]] = (uint32_t)e;
    }
}

static void find(finder *f, skv_expr e, skv_fact fact)
{
    if ((f->out->facts[e] & (unsigned)fact) != 0) return;
    f->out->facts[e] |= (uint8_t)fact;
    f->todo[f->n_todo++] = e;
}

/* Whether a fact holds without any part's: EMPTY and ALIVE, or SOME. */
static bool holds_alone(const finder *f, skv_expr e, skv_fact fact)
{
    switch (kind_of(f, e)) {
    case SKV_EXPR_KIND_EMPTY: return fact != SKV_FACT_SOME;
    case SKV_EXPR_KIND_REPEAT: return fact != SKV_FACT_SOME && f->exprs->nodes[e].n == 0;
    case SKV_EXPR_KIND_BYTES:
    case SKV_EXPR_KIND_SET: return fact != SKV_FACT_EMPTY;
    default: return false;
    }
}

/*
 * One part is enough, but for sequences: they are empty, or alive, when all parts are. Where a
 * whole is alive, one part that is not always empty makes it so too.
 */
static void spread(finder *f, skv_fact fact)
{
    for (size_t e = 0; e < f->n; e++) {
        f->missing[e] = kind_of(f, (skv_expr)e) == SKV_EXPR_KIND_SEQ ? f->exprs->nodes[e].n : 1;
        if (holds_alone(f, (skv_expr)e, fact)) find(f, (skv_expr)e, fact);
    }
    while (f->n_todo > 0) {
        skv_expr e = f->todo[--f->n_todo];
        for (uint32_t i = f->first[e]; i < f->first[e + 1]; i++) {
            skv_expr whole = f->links[i];
            if (fact == SKV_FACT_SOME) {
                if ((f->out->facts[whole] & SKV_FACT_ALIVE) != 0) find(f, whole, fact);
            } else if (f->missing[whole] > 0 && --f->missing[whole] == 0) {
                find(f, whole, fact);
            }
        }
    }
}

/* ---- costs ---- */

static uint8_t capped(uint64_t cost)
{
    return (uint8_t)(cost > SKV_COST_MAX ? SKV_COST_MAX + 1 : cost);
}

/* Returns the cost of an expression without its parts. */
static uint64_t own_cost(const finder *f, skv_expr e)
{
    switch (kind_of(f, e)) {
    case SKV_EXPR_KIND_BYTES: return f->exprs->nodes[e].n;
    case SKV_EXPR_KIND_SET: return 8;
    case SKV_EXPR_KIND_REPEAT:
    case SKV_EXPR_KIND_CALL: return 0;
    default: return 1;
    }
}

/* Returns the amount that a part of this cost adds to the whole. */
static uint64_t added_cost(const finder *f, skv_expr whole, uint8_t cost)
{
    const skv_expr_node *node = &f->exprs->nodes[whole];
    return node->kind == SKV_EXPR_KIND_REPEAT ? (uint64_t)node->max * cost : cost;
}

/* A whole is known once all its parts are; recursive expressions never become known. */
static void find_costs(finder *f)
{
    uint8_t *costs = f->out->costs;
    uint32_t n_parts;
    for (size_t e = 0; e < f->n; e++) {
        costs[e] = capped(own_cost(f, (skv_expr)e));
        n_parts = 0;
        if (e >= 2) (void)parts_of(f->exprs, &f->exprs->nodes[e], &n_parts);
        f->missing[e] = n_parts;
        if (n_parts == 0) f->todo[f->n_todo++] = (skv_expr)e;
    }
    while (f->n_todo > 0) {
        skv_expr e = f->todo[--f->n_todo];
        for (uint32_t i = f->first[e]; i < f->first[e + 1]; i++) {
            skv_expr whole = f->links[i];
            costs[whole] = capped(costs[whole] + added_cost(f, whole, costs[e]));
            if (--f->missing[whole] == 0) f->todo[f->n_todo++] = whole;
        }
    }
    for (size_t e = 0; e < f->n; e++) {
        if (f->missing[e] > 0) costs[e] = SKV_COST_MAX + 1;
    }
}

/* ---- all together ---- */

static void find_all(finder *f)
{
    link_parts(f);
    spread(f, SKV_FACT_EMPTY);
    spread(f, SKV_FACT_ALIVE);
    spread(f, SKV_FACT_SOME);
    find_costs(f);
}

bool skv_grammar_facts_find(skv_grammar_facts *facts, const skv_exprs *exprs)
{
    skv_budget *budget = exprs->budget;
    finder f = {.exprs = exprs, .n = skv_max_size(exprs->n_nodes, 2), .out = facts};
    uint32_t n_parts;
    for (size_t e = 2; e < f.n; e++) {
        (void)parts_of(exprs, &exprs->nodes[e], &n_parts);
        f.n_links += n_parts;
    }
    *facts = (skv_grammar_facts){.n = f.n};
    facts->facts = skv_budget_alloc_zero(budget, f.n, sizeof *facts->facts);
    facts->costs = skv_budget_alloc_zero(budget, f.n, sizeof *facts->costs);
    f.first = skv_budget_alloc_zero(budget, f.n + 1, sizeof *f.first);
    f.links = skv_budget_alloc_zero(budget, f.n_links, sizeof *f.links);
    f.missing = skv_budget_alloc_zero(budget, f.n, sizeof *f.missing);
    f.todo = skv_budget_alloc_zero(budget, f.n, sizeof *f.todo);
    bool done = facts->facts && facts->costs && f.first && f.links && f.missing && f.todo &&
                skv_budget_work(budget, 6 * (f.n + f.n_links) / STEPS_A_UNIT);
    if (done) find_all(&f);
    skv_budget_free(budget, f.first, f.n + 1, sizeof *f.first);
    skv_budget_free(budget, f.links, f.n_links, sizeof *f.links);
    skv_budget_free(budget, f.missing, f.n, sizeof *f.missing);
    skv_budget_free(budget, f.todo, f.n, sizeof *f.todo);
    return done;
}

void skv_grammar_facts_release(skv_grammar_facts *facts, skv_budget *budget)
{
    skv_budget_free(budget, facts->facts, facts->n, sizeof *facts->facts);
    skv_budget_free(budget, facts->costs, facts->n, sizeof *facts->costs);
    *facts = (skv_grammar_facts){0};
}
