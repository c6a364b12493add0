/* The final passes over the complete states of a grammar: see grammar_impl.h. */
#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"
#include "grammar/grammar_impl.h"

enum { STEPS_A_UNIT = 4 /* states and edges looked at for one unit of work */ };

/* ---- left recursion ---- */

/*
 * Which rules each rule calls before it reads anything: those of rule r are
 * calls[first[r] .. first[r + 1]), each as often as it is called. A rule counts once as it is and
 * once without the empty text, as in `starts`.
 */
typedef struct first_calls {
    const skv_grammar *g;   /* borrowed */
    const skv_exprs *exprs; /* borrowed */
    const uint8_t *facts;   /* borrowed, [n_nodes] of skv_fact */
    const uint32_t *starts; /* borrowed, [n_rules] */
    size_t n_rules, n_calls;
    uint32_t *first; /* owned, [n_rules + 1] */
    uint32_t *calls; /* owned, [n_calls] */
    uint32_t *stack; /* owned, [n_states]: states, then rules */
    bool *seen;      /* owned, [n_states] */
    uint32_t *next;  /* owned, [n_rules]: the call that is followed next */
    uint8_t *colour; /* owned, [n_rules]: see find_circle */
} first_calls;

static bool may_be_empty(const first_calls *f, uint32_t rule)
{
    size_t n = f->exprs->n_rules;
    return rule < n && (f->facts[f->exprs->rules[rule].expr] & SKV_FACT_EMPTY) != 0;
}

/* Walks the states of one rule that are reached without reading anything. */
static size_t list_calls(first_calls *f, uint32_t start)
{
    const skv_grammar *g = f->g;
    size_t n_stack = 0, n_steps = 0;
    f->stack[n_stack++] = start;
    f->seen[start] = true;
    for (size_t at = 0; at < n_stack; at++) {
        const skv_state *state = &g->states[f->stack[at]];
        n_steps += 1 + state->n;
        for (uint32_t i = 0; i < state->n; i++) {
            const skv_edge *e = &g->edges[state->first + i];
            if (e->kind == SKV_EDGE_CALL) f->calls[f->n_calls++] = e->rule;
            bool free =
                e->kind == SKV_EDGE_FREE || (e->kind == SKV_EDGE_CALL && may_be_empty(f, e->rule));
            if (!free || f->seen[e->target]) continue;
            f->seen[e->target] = true;
            f->stack[n_stack++] = e->target;
        }
    }
    for (size_t i = 0; i < n_stack; i++) f->seen[f->stack[i]] = false;
    return n_steps;
}

static bool list_all(first_calls *f)
{
    for (size_t r = 0; r < f->n_rules; r++) {
        f->first[r] = (uint32_t)f->n_calls;
        size_t n_steps = f->starts[r] != 0 ? list_calls(f, f->starts[r]) : 0;
        if (!skv_budget_work(f->exprs->budget, 1 + n_steps / STEPS_A_UNIT)) return false;
    }
    f->first[f->n_rules] = (uint32_t)f->n_calls;
    return true;
}

/* Depth-first search for left recursion: a rule is open while its first calls are visited, and a
 * call to an open rule closes a circle. Returns the rule where it closes; n_rules: none. */
static size_t find_circle(first_calls *f)
{
    enum { NEW, OPEN, DONE };
    for (size_t root = 0; root < f->n_rules; root++) {
        size_t n_open = 0;
        if (f->colour[root] == NEW) f->stack[n_open++] = (uint32_t)root;
        while (n_open > 0) {
            uint32_t r = f->stack[n_open - 1];
            if (f->colour[r] == NEW) f->next[r] = f->first[r];
            f->colour[r] = OPEN;
            if (f->next[r] == f->first[r + 1]) {
                f->colour[r] = DONE;
                n_open--;
                continue;
            }
            uint32_t callee = f->calls[f->next[r]++];
            if (f->colour[callee] == OPEN) return callee;
            if (f->colour[callee] == NEW) f->stack[n_open++] = callee;
        }
    }
    return f->n_rules;
}

static skv_status refuse_circles(first_calls *f, skv_error *err)
{
    bool listed =
        list_all(f) && skv_budget_work(f->exprs->budget, (f->n_calls + f->n_rules) / STEPS_A_UNIT);
    if (!listed) return skv_budget_check(f->exprs->budget, "grammar", err);
    size_t rule = find_circle(f);
    SKV_REQUIRE(rule == f->n_rules, err, SKV_UNSUPPORTED,
                "grammar: rule \"%s\" calls itself before it reads anything (left recursion)",
                f->exprs->rules[rule % f->exprs->n_rules].name);
    return SKV_OK;
}

static size_t count_calls(const skv_grammar *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_edges; i++) n += g->edges[i].kind == SKV_EDGE_CALL;
    return n;
}

static skv_status check_left_recursion(const skv_grammar *g, const skv_exprs *exprs,
                                       const uint8_t *facts, const uint32_t *starts, skv_error *err)
{
    skv_budget *budget = exprs->budget;
    first_calls f = {
        .g = g, .exprs = exprs, .facts = facts, .starts = starts, .n_rules = 2 * exprs->n_rules};
    size_t n_stack = skv_max_size(g->n_states, f.n_rules), n_calls = count_calls(g);
    f.first = skv_budget_alloc_zero(budget, f.n_rules + 1, sizeof *f.first);
    f.calls = skv_budget_alloc_zero(budget, n_calls, sizeof *f.calls);
    f.stack = skv_budget_alloc_zero(budget, n_stack, sizeof *f.stack);
    f.seen = skv_budget_alloc_zero(budget, g->n_states, sizeof *f.seen);
    f.next = skv_budget_alloc_zero(budget, f.n_rules, sizeof *f.next);
    f.colour = skv_budget_alloc_zero(budget, f.n_rules, sizeof *f.colour);
    skv_status status = SKV_OK;
    if (!f.first || !f.calls || !f.stack || !f.seen || !f.next || !f.colour) {
        status = skv_fail(err, SKV_MEMORY, "grammar: no memory");
    } else {
        status = refuse_circles(&f, err);
    }
    skv_budget_free(budget, f.first, f.n_rules + 1, sizeof *f.first);
    skv_budget_free(budget, f.calls, n_calls, sizeof *f.calls);
    skv_budget_free(budget, f.stack, n_stack, sizeof *f.stack);
    skv_budget_free(budget, f.seen, g->n_states, sizeof *f.seen);
    skv_budget_free(budget, f.next, f.n_rules, sizeof *f.next);
    skv_budget_free(budget, f.colour, f.n_rules, sizeof *f.colour);
    return status;
}

/* ---- classes of bytes ---- */

static void find_classes(skv_grammar *g)
{
    bool begins[257] = {true};
    for (size_t i = 0; i < g->n_edges; i++) {
        if (g->edges[i].kind != SKV_EDGE_BYTES) continue;
        begins[g->edges[i].lo] = true;
        begins[g->edges[i].hi + 1] = true;
    }
    g->n_classes = 0;
    for (size_t byte = 0; byte < 256; byte++) {
        if (begins[byte]) {
            g->examples[g->n_classes] = (uint8_t)byte;
            g->sizes[g->n_classes++] = 0;
        }
        g->classes[byte] = (uint8_t)(g->n_classes - 1);
        g->sizes[g->n_classes - 1]++;
    }
}

skv_status skv_grammar_finish(skv_grammar *g, const skv_exprs *exprs,
                              const skv_grammar_facts *facts, const uint32_t *starts,
                              skv_error *err)
{
    g->start = starts[0];
    SKV_REQUIRE(g->start != SKV_STATE_DEAD, err, SKV_FORMAT, "grammar: nothing can match it");
    if (!skv_budget_work(exprs->budget, 2 * g->n_edges / STEPS_A_UNIT)) {
        return skv_budget_check(exprs->budget, "grammar", err);
    }
    SKV_TRY(check_left_recursion(g, exprs, facts->facts, starts, err));
    for (size_t i = 0; i < g->n_edges; i++) {
        if (g->edges[i].kind == SKV_EDGE_CALL) g->edges[i].rule = starts[g->edges[i].rule];
    }
    find_classes(g);
    return SKV_OK;
}

void skv_grammar_free(skv_grammar *grammar)
{
    if (!grammar) return;
    skv_free(grammar->states);
    skv_free(grammar->edges);
    skv_free(grammar->unrolled);
    skv_free(grammar);
}

size_t skv_grammar_bytes(const skv_grammar *grammar)
{
    return sizeof *grammar + grammar->n_states * sizeof *grammar->states +
           grammar->n_edges * sizeof *grammar->edges +
           grammar->n_unrolled * sizeof *grammar->unrolled;
}
