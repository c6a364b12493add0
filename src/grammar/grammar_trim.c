/* What is done to the states of a grammar when all of them are there: see grammar_impl.h. */
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar_impl.h"

enum { WORK_MAX = 1 << 27 }; /* edges looked at until nothing changes any more */

/* Whether one of a state's edges leads on to a state that has the property. */
static bool leads_on(const skv_grammar *g, uint32_t s, const bool *has, bool by_bytes)
{
    const skv_state *state = &g->states[s];
    for (uint32_t i = 0; i < state->n; i++) {
        const skv_edge *e = &g->edges[state->first + i];
        if (e->kind == SKV_EDGE_BYTES && !by_bytes) continue;
        if (e->kind == SKV_EDGE_CALL && !has[e->rule]) continue;
        if (has[e->target]) return true;
    }
    return false;
}

/*
 * Finds the states from which the end of their rule can be reached: at all, or without reading a
 * byte. States are visited up and down until nothing changes; two or three rounds are usual.
 */
static skv_status find_ends(const skv_grammar *g, bool by_bytes, bool *has, skv_error *err)
{
    size_t work = 0;
    bool changed = true;
    memset(has, 0, g->n_states * sizeof *has);
    has[SKV_STATE_END] = true;
    for (bool up = true; changed; up = !up) {
        changed = false;
        for (size_t i = 2; i < g->n_states; i++) {
            uint32_t s = (uint32_t)(up ? i : g->n_states + 1 - i);
            if (!has[s] && leads_on(g, s, has, by_bytes)) has[s] = changed = true;
        }
        work += g->n_edges + g->n_states;
        SKV_REQUIRE(work <= WORK_MAX, err, SKV_RANGE, "grammar: its rules are too entangled");
    }
    return SKV_OK;
}

static void drop_dead_edges(skv_grammar *g, const bool *alive)
{
    for (size_t s = 2; s < g->n_states; s++) {
        skv_state *state = &g->states[s];
        skv_edge *edges = g->edges + state->first;
        uint32_t n = 0;
        for (uint32_t i = 0; i < state->n; i++) {
            bool call = edges[i].kind == SKV_EDGE_CALL;
            if (!alive[edges[i].target] || (call && !alive[edges[i].rule])) continue;
            edges[n++] = edges[i];
        }
        state->n = n;
    }
}

/* ---- left recursion ---- */

/* Rules called before anything is read: a list of (from, to), and what is left of it. */
typedef struct first_calls {
    uint32_t *next;  /* owned, [n_rules] a rule that it calls first and that is still there */
    bool *seen;      /* owned, [n_states] */
    uint32_t *stack; /* owned, [n_states] */
    uint32_t *owner; /* owned, [n_states] the rule that begins at this state, plus 1 */
} first_calls;

/*
 * Calls `rule` something first that is not known to be harmless yet? Walks its own states only,
 * over what reads nothing. harmless: [n_rules].
 */
static bool calls_first(const skv_grammar *g, first_calls *f, uint32_t start, const bool *empty,
                        const bool *harmless, uint32_t *callee)
{
    size_t n_stack = 0, n_seen = 0;
    bool found = false;
    f->stack[n_stack++] = start;
    f->seen[start] = true;
    while (n_seen < n_stack) {
        const skv_state *state = &g->states[f->stack[n_seen++]];
        for (uint32_t i = 0; i < state->n && !found; i++) {
            const skv_edge *e = &g->edges[state->first + i];
            if (e->kind == SKV_EDGE_BYTES) continue;
            if (e->kind == SKV_EDGE_CALL) {
                *callee = f->owner[e->rule] - 1;
                found = !harmless[*callee];
                if (!empty[e->rule]) continue;
            }
            if (f->seen[e->target]) continue;
            f->seen[e->target] = true;
            f->stack[n_stack++] = e->target;
        }
    }
    for (size_t i = 0; i < n_stack; i++) f->seen[f->stack[i]] = false;
    return found;
}

/*
 * Rules are harmless when all that they call first is. Whoever is left in the end calls one that
 * is left too, and so on in a circle. harmless, starts: [2 * pool->n_rules].
 */
static skv_status refuse_circles(const skv_grammar *g, const skv_expr_pool *pool,
                                 const uint32_t *starts, const bool *empty, first_calls *f,
                                 bool *harmless, skv_error *err)
{
    size_t n_rules = 2 * pool->n_rules, work = 0;
    bool changed = true;
    for (bool up = true; changed; up = !up) {
        changed = false;
        for (size_t i = 0; i < n_rules; i++) {
            uint32_t r = (uint32_t)(up ? i : n_rules - 1 - i);
            if (harmless[r]) continue;
            harmless[r] =
                starts[r] == 0 || !calls_first(g, f, starts[r], empty, harmless, &f->next[r]);
            changed = changed || harmless[r];
        }
        work += g->n_edges + g->n_states;
        SKV_REQUIRE(work <= WORK_MAX, err, SKV_RANGE, "grammar: its rules are too entangled");
    }
    uint32_t r = 0;
    while (r < n_rules && harmless[r]) r++;
    if (r == n_rules) return SKV_OK;
    for (size_t i = 0; i < n_rules; i++) r = f->next[r];
    return skv_fail(err, SKV_UNSUPPORTED,
                    "grammar: rule \"%s\" calls itself before it reads anything (left recursion)",
                    pool->rules[r % pool->n_rules].name);
}

static skv_status check_left_recursion(const skv_grammar *g, const skv_expr_pool *pool,
                                       const uint32_t *starts, const bool *empty, skv_error *err)
{
    size_t n_rules = 2 * pool->n_rules;
    first_calls f = {.next = skv_alloc_zero(n_rules, sizeof *f.next),
                     .seen = skv_alloc_zero(g->n_states, sizeof *f.seen),
                     .stack = skv_alloc_zero(g->n_states, sizeof *f.stack),
                     .owner = skv_alloc_zero(g->n_states, sizeof *f.owner)};
    bool *harmless = skv_alloc_zero(n_rules, sizeof *harmless);
    skv_status status = SKV_OK;
    if (!f.next || !f.seen || !f.stack || !f.owner || !harmless) {
        status = skv_fail(err, SKV_MEMORY, "grammar: no memory");
    } else {
        for (uint32_t r = 0; r < n_rules; r++) f.owner[starts[r]] = r + 1;
        status = refuse_circles(g, pool, starts, empty, &f, harmless, err);
    }
    skv_free(f.next);
    skv_free(f.seen);
    skv_free(f.stack);
    skv_free(f.owner);
    skv_free(harmless);
    return status;
}

/* ---- classes of bytes ---- */

static void find_classes(skv_grammar *g)
{
    bool begins[257] = {true};
    for (size_t s = 2; s < g->n_states; s++) {
        for (uint32_t i = 0; i < g->states[s].n; i++) {
            const skv_edge *e = &g->edges[g->states[s].first + i];
            if (e->kind != SKV_EDGE_BYTES) continue;
            begins[e->lo] = true;
            begins[e->hi + 1] = true;
        }
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

static skv_status trim(skv_grammar *g, const skv_expr_pool *pool, const uint32_t *starts, bool *has,
                       skv_error *err)
{
    SKV_TRY(find_ends(g, true, has, err));
    SKV_REQUIRE(has[g->start], err, SKV_FORMAT, "grammar: nothing can match it");
    drop_dead_edges(g, has);
    SKV_TRY(find_ends(g, false, has, err));
    SKV_TRY(check_left_recursion(g, pool, starts, has, err));
    find_classes(g);
    return SKV_OK;
}

skv_status skv_grammar_trim(skv_grammar *g, const skv_expr_pool *pool, const uint32_t *starts,
                            skv_error *err)
{
    for (size_t i = 0; i < g->n_edges; i++) {
        if (g->edges[i].kind == SKV_EDGE_CALL) g->edges[i].rule = starts[g->edges[i].rule];
    }
    g->start = starts[0];
    bool *has = skv_alloc_zero(g->n_states, sizeof *has);
    SKV_REQUIRE(has != NULL, err, SKV_MEMORY, "grammar: no memory");
    skv_status status = trim(g, pool, starts, has, err);
    skv_free(has);
    return status;
}
