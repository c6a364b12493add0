/*
 * From expressions to states. An expression is built backwards: given the state that follows it,
 * it becomes the state that it begins with, so that most edges are complete when they are made.
 *
 * What is repeated is built without the empty text: X{m,n} of an X that may be empty is (X'){0,n},
 * X' being X without it. The copies of X would else all begin at the same place of the text, and
 * the readings of nested repetitions multiply. So an expression, and a rule, has two forms.
 */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "grammar/grammar_impl.h"

enum {
    INLINE_MAX = 64,   /* expressions of a rule that is copied into a loop */
    SUFFIXES_MAX = 64, /* looked at for a UTF-8 ending that is there already */
    UNROLLED_MIN = 8,  /* copies from which a repetition is remembered */
    UNROLLED_MAX = 1 << 16,
    EMPTY_WORK_MAX = 1 << 27 /* expressions looked at until all that may be empty are found */
};

/* Which texts of an expression: all, or those that are not empty. */
typedef enum form { FORM_ALL, FORM_SOME } form;

typedef struct suffix {
    uint32_t state, target;
    uint8_t lo, hi;
} suffix;

typedef struct builder {
    skv_expr_pool *pool; /* borrowed */
    skv_grammar *g;      /* borrowed */
    uint32_t *starts; /* owned, [2][n_rules] the first states by form; 0: none, or not built yet */
    bool *seen;       /* owned, [2][n_rules] in the queue, or built */
    uint32_t *queue;  /* owned, [2][n_rules] indices of `starts` to build */
    bool *empty;      /* owned, [n_nodes] expressions that may be the empty text */
    uint32_t *costs;  /* owned, [n_rules] expressions when copied; 0: not known */
    size_t n_queued, n_built;
    size_t states_capacity, edges_capacity, unrolled_capacity;
    skv_edge *pending; /* owned: edges of states that are being collected, a stack */
    size_t n_pending, pending_capacity;
    size_t n_loops; /* repetitions around the place being built */
    suffix suffixes[SUFFIXES_MAX];
    size_t n_suffixes;
    uint32_t suffix_next; /* the state that the suffixes lead to */
    skv_status status;
    const char *why;
} builder;

static void fail(builder *b, skv_status status, const char *why)
{
    if (b->status != SKV_OK) return;
    b->status = status;
    b->why = why;
}

static bool grow(builder *b, void *array, size_t *capacity, size_t need, size_t size, size_t max)
{
    if (need <= *capacity) return true;
    if (need > max) {
        fail(b, SKV_RANGE, "more than 524288 states or 2097152 edges");
        return false;
    }
    size_t grown = skv_min_size(max, skv_max_size(need, skv_max_size(256, 2 * *capacity)));
    void *old, *bigger;
    memcpy(&old, array, sizeof old);
    bigger = skv_realloc(old, grown, size);
    if (bigger == NULL) {
        fail(b, SKV_MEMORY, "no memory");
        return false;
    }
    memcpy(array, &bigger, sizeof bigger);
    *capacity = grown;
    return true;
}

static void push(builder *b, skv_edge edge)
{
    if (edge.target == SKV_STATE_DEAD || b->status != SKV_OK) return;
    if (!grow(b, &b->pending, &b->pending_capacity, b->n_pending + 1, sizeof edge, SKV_EDGES_MAX)) {
        return;
    }
    b->pending[b->n_pending++] = edge;
}

/* A state with the pending edges from `base` on; DEAD when there are none. */
static uint32_t take_state(builder *b, size_t base)
{
    skv_grammar *g = b->g;
    size_t n = b->n_pending - base;
    if (n == 0 || b->status != SKV_OK) return SKV_STATE_DEAD;
    if (!grow(b, &g->states, &b->states_capacity, g->n_states + 1, sizeof *g->states,
              SKV_STATES_MAX) ||
        !grow(b, &g->edges, &b->edges_capacity, g->n_edges + n, sizeof *g->edges, SKV_EDGES_MAX)) {
        return SKV_STATE_DEAD;
    }
    memcpy(g->edges + g->n_edges, b->pending + base, n * sizeof *g->edges);
    g->states[g->n_states] = (skv_state){(uint32_t)g->n_edges, (uint32_t)n};
    g->n_edges += n;
    b->n_pending = base;
    return (uint32_t)g->n_states++;
}

static uint32_t state_of(builder *b, skv_edge edge)
{
    size_t base = b->n_pending;
    push(b, edge);
    return take_state(b, base);
}

/* Two free edges; the second may lead to where the first one does. */
static uint32_t fork_state(builder *b, uint32_t one, uint32_t other)
{
    size_t base = b->n_pending;
    push(b, (skv_edge){.kind = SKV_EDGE_FREE, .target = one});
    push(b, (skv_edge){.kind = SKV_EDGE_FREE, .target = other});
    return take_state(b, base);
}

/* ---- code points ---- */

static uint32_t suffix_state(builder *b, uint8_t lo, uint8_t hi, uint32_t target)
{
    for (size_t i = 0; i < b->n_suffixes; i++) {
        const suffix *s = &b->suffixes[i];
        if (s->target == target && s->lo == lo && s->hi == hi) return s->state;
    }
    uint32_t state =
        state_of(b, (skv_edge){.kind = SKV_EDGE_BYTES, .target = target, .lo = lo, .hi = hi});
    if (b->n_suffixes < SUFFIXES_MAX) {
        b->suffixes[b->n_suffixes++] = (suffix){state, target, lo, hi};
    }
    return state;
}

static void put_spelling(void *user, const skv_utf8_spelling *s)
{
    builder *b = user;
    uint32_t target = b->suffix_next;
    for (size_t i = s->n; i-- > 1;) target = suffix_state(b, s->lo[i], s->hi[i], target);
    push(b, (skv_edge){.kind = SKV_EDGE_BYTES, .target = target, .lo = s->lo[0], .hi = s->hi[0]});
}

/* The states behind first bytes are made while the first bytes are still pending, which is why
 * pending edges are a stack. */
static uint32_t build_set(builder *b, const skv_expr_node *node, uint32_t next)
{
    size_t base = b->n_pending;
    b->n_suffixes = 0;
    b->suffix_next = next;
    for (uint32_t i = 0; i < node->n && b->status == SKV_OK; i++) {
        skv_utf8_spell(b->pool->ranges[node->first + i], put_spelling, b);
    }
    return take_state(b, base);
}

/* ---- calls ---- */

static uint32_t rule_cost(builder *b, uint32_t rule);

/* How many expressions e is, or more than INLINE_MAX: loops and what is large stay rules. */
static uint32_t cost_of(builder *b, skv_expr e)
{
    if (e < 2) return 1;
    const skv_expr_node *node = &b->pool->nodes[e];
    uint32_t sum = 1;
    switch ((skv_expr_kind)node->kind) {
    case SKV_EXPR_KIND_NEVER:
    case SKV_EXPR_KIND_EMPTY: return 1;
    case SKV_EXPR_KIND_BYTES: return node->n;
    case SKV_EXPR_KIND_SET: return 8;
    case SKV_EXPR_KIND_CALL: return rule_cost(b, node->first);
    case SKV_EXPR_KIND_REPEAT:
        if (node->max > INLINE_MAX) return INLINE_MAX + 1;
        sum = node->max * cost_of(b, b->pool->kids[node->first]);
        return sum;
    case SKV_EXPR_KIND_SEQ:
    case SKV_EXPR_KIND_ALT:
        for (uint32_t i = 0; i < node->n && sum <= INLINE_MAX; i++) {
            sum += cost_of(b, b->pool->kids[node->first + i]);
        }
        return sum;
    }
    return sum;
}

static uint32_t rule_cost(builder *b, uint32_t rule)
{
    if (b->costs[rule] != 0) return b->costs[rule];
    b->costs[rule] = INLINE_MAX + 1; /* while it is looked at: a rule that calls itself */
    uint32_t cost = cost_of(b, b->pool->rules[rule].expr);
    b->costs[rule] = cost > INLINE_MAX ? INLINE_MAX + 1 : cost;
    return b->costs[rule];
}

static uint32_t build(builder *b, skv_expr e, form f, uint32_t next);

/*
 * A small rule inside a loop is copied. `char` in `char*` is the usual case: with a call every
 * character would leave the rule, and whatever follows would depend on the stack.
 */
static uint32_t build_call(builder *b, uint32_t rule, form f, uint32_t next)
{
    uint32_t index = rule + (f == FORM_SOME ? (uint32_t)b->pool->n_rules : 0);
    if (b->n_loops > 0 && !b->pool->rules[rule].nests && rule_cost(b, rule) <= INLINE_MAX) {
        return build(b, b->pool->rules[rule].expr, f, next);
    }
    if (!b->seen[index]) { /* a rule that nothing can match has no first state, but was built */
        b->seen[index] = true;
        b->queue[b->n_queued++] = index;
    }
    return state_of(b, (skv_edge){.kind = SKV_EDGE_CALL,
                                  .target = next,
                                  .rule = index,
                                  .nests = b->pool->rules[rule].nests});
}

/* ---- repetitions ---- */

static bool may_be_empty(const builder *b, skv_expr e)
{
    return e == SKV_EXPR_EMPTY || (e >= 2 && b->empty[e]);
}

/* By what is known of its parts. */
static bool node_may_be_empty(const builder *b, const skv_expr_node *node)
{
    const skv_expr_pool *pool = b->pool;
    bool all = node->kind == SKV_EXPR_KIND_SEQ;
    switch ((skv_expr_kind)node->kind) {
    case SKV_EXPR_KIND_CALL: return may_be_empty(b, pool->rules[node->first].expr);
    case SKV_EXPR_KIND_REPEAT: return node->n == 0 || may_be_empty(b, pool->kids[node->first]);
    case SKV_EXPR_KIND_SEQ:
    case SKV_EXPR_KIND_ALT:
        for (uint32_t i = 0; i < node->n; i++) {
            if (may_be_empty(b, pool->kids[node->first + i]) != all) return !all;
        }
        return all;
    default: return false;
    }
}

/* Parts stand before the whole in the pool, so that only calls take more than one round. */
static void find_empty(builder *b)
{
    size_t work = 0;
    for (bool changed = true; changed && b->status == SKV_OK;) {
        changed = false;
        for (size_t e = 2; e < b->pool->n_nodes; e++) {
            if (b->empty[e] || !node_may_be_empty(b, &b->pool->nodes[e])) continue;
            b->empty[e] = changed = true;
        }
        work += b->pool->n_nodes + b->pool->n_kids;
        if (work > EMPTY_WORK_MAX) fail(b, SKV_RANGE, "its rules are too entangled");
    }
}

/* Copies of a piece that reads something: the callers see to that. */
static void remember(builder *b, skv_expr kid, uint32_t base, uint32_t count, uint32_t nested)
{
    skv_grammar *g = b->g;
    uint32_t made = (uint32_t)g->n_states - base;
    if (count < UNROLLED_MIN || nested != g->n_unrolled || b->pool->nodes[kid].has_call) return;
    if (made == 0 || made % count != 0 || b->status != SKV_OK) return;
    if (g->n_unrolled == UNROLLED_MAX ||
        !grow(b, &g->unrolled, &b->unrolled_capacity, g->n_unrolled + 1, sizeof *g->unrolled,
              UNROLLED_MAX)) {
        return;
    }
    g->unrolled[g->n_unrolled++] = (skv_unrolled){base, made / count, count};
}

static uint32_t build_star(builder *b, skv_expr kid, uint32_t next)
{
    /* The way back is filled in when the loop's body is there. */
    uint32_t loop = fork_state(b, next, next);
    if (loop == SKV_STATE_DEAD) return SKV_STATE_DEAD;
    uint32_t body = build(b, kid, FORM_SOME, loop);
    skv_state *state = &b->g->states[loop];
    b->g->edges[state->first + 1].target = body;
    if (body == SKV_STATE_DEAD) state->n = 1;
    return loop;
}

static uint32_t build_repeat(builder *b, const skv_expr_node *node, form f, uint32_t next)
{
    skv_expr kid = b->pool->kids[node->first];
    uint32_t min = may_be_empty(b, kid) ? 0 : node->n, max = node->max, tail = next;
    if (f == FORM_SOME && min == 0) min = 1;
    b->n_loops++;
    if (max == SKV_REPEAT_MANY) {
        tail = build_star(b, kid, next);
    } else {
        uint32_t base = (uint32_t)b->g->n_states, nested = (uint32_t)b->g->n_unrolled;
        for (uint32_t i = min; i < max && b->status == SKV_OK; i++) {
            tail = fork_state(b, next, build(b, kid, FORM_SOME, tail));
        }
        remember(b, kid, base, max - min, nested);
    }
    uint32_t base = (uint32_t)b->g->n_states, nested = (uint32_t)b->g->n_unrolled;
    for (uint32_t i = 0; i < min && b->status == SKV_OK; i++) {
        tail = build(b, kid, FORM_SOME, tail);
    }
    remember(b, kid, base, min, nested);
    b->n_loops--;
    return tail;
}

/* ---- all together ---- */

static uint32_t build_alt(builder *b, const skv_expr_node *node, form f, uint32_t next)
{
    size_t base = b->n_pending;
    for (uint32_t i = 0; i < node->n && b->status == SKV_OK; i++) {
        uint32_t first = build(b, b->pool->kids[node->first + i], f, next);
        push(b, (skv_edge){.kind = SKV_EDGE_FREE, .target = first});
    }
    return take_state(b, base);
}

/* Of parts that all may be empty, one is the first that is not. */
static uint32_t build_some_of(builder *b, const skv_expr_node *node, uint32_t next)
{
    size_t base = b->n_pending;
    for (uint32_t i = node->n; i-- > 0 && b->status == SKV_OK;) {
        skv_expr kid = b->pool->kids[node->first + i];
        uint32_t first = build(b, kid, FORM_SOME, next);
        push(b, (skv_edge){.kind = SKV_EDGE_FREE, .target = first});
        if (i > 0) next = build(b, kid, FORM_ALL, next);
    }
    return take_state(b, base);
}

static uint32_t build(builder *b, skv_expr e, form f, uint32_t next)
{
    if (e == SKV_EXPR_NEVER || next == SKV_STATE_DEAD || b->status != SKV_OK) return SKV_STATE_DEAD;
    if (e == SKV_EXPR_EMPTY) return f == FORM_ALL ? next : SKV_STATE_DEAD;
    if (!may_be_empty(b, e)) f = FORM_ALL;
    const skv_expr_node *node = &b->pool->nodes[e];
    switch ((skv_expr_kind)node->kind) {
    case SKV_EXPR_KIND_NEVER: return SKV_STATE_DEAD;
    case SKV_EXPR_KIND_EMPTY: return next;
    case SKV_EXPR_KIND_BYTES:
        for (uint32_t i = node->n; i-- > 0;) {
            uint8_t byte = (uint8_t)b->pool->bytes.data[node->first + i];
            next = state_of(
                b, (skv_edge){.kind = SKV_EDGE_BYTES, .target = next, .lo = byte, .hi = byte});
        }
        return next;
    case SKV_EXPR_KIND_SET: return build_set(b, node, next);
    case SKV_EXPR_KIND_SEQ:
        if (f == FORM_SOME) return build_some_of(b, node, next);
        for (uint32_t i = node->n; i-- > 0;) {
            next = build(b, b->pool->kids[node->first + i], FORM_ALL, next);
        }
        return next;
    case SKV_EXPR_KIND_ALT: return build_alt(b, node, f, next);
    case SKV_EXPR_KIND_REPEAT: return build_repeat(b, node, f, next);
    case SKV_EXPR_KIND_CALL: return build_call(b, node->first, f, next);
    }
    return SKV_STATE_DEAD;
}

/* The states DEAD and END, then the root and every rule that is called from it. */
static void build_rules(builder *b)
{
    skv_grammar *g = b->g;
    if (!grow(b, &g->states, &b->states_capacity, 2, sizeof *g->states, SKV_STATES_MAX)) return;
    g->states[0] = g->states[1] = (skv_state){0};
    g->n_states = 2;
    b->seen[0] = true;
    b->queue[b->n_queued++] = 0;
    while (b->n_built < b->n_queued && b->status == SKV_OK) {
        uint32_t index = b->queue[b->n_built++];
        size_t n_rules = b->pool->n_rules;
        b->n_loops = 0;
        b->starts[index] = build(b, b->pool->rules[index % n_rules].expr,
                                 index < n_rules ? FORM_ALL : FORM_SOME, SKV_STATE_END);
    }
}

static skv_status finish(builder *b, skv_error *err)
{
    SKV_REQUIRE(b->status == SKV_OK, err, b->status, "grammar: %s", b->why);
    return skv_grammar_trim(b->g, b->pool, b->starts, err);
}

skv_status skv_grammar_build(skv_expr_pool *pool, skv_grammar **out, skv_error *err)
{
    SKV_TRY(skv_expr_pool_check(pool, err));
    builder b = {.pool = pool};
    b.g = skv_alloc_zero(1, sizeof *b.g);
    b.starts = skv_alloc_zero(2 * pool->n_rules, sizeof *b.starts);
    b.seen = skv_alloc_zero(2 * pool->n_rules, sizeof *b.seen);
    b.queue = skv_alloc_zero(2 * pool->n_rules, sizeof *b.queue);
    b.empty = skv_alloc_zero(pool->n_nodes + 1, sizeof *b.empty);
    b.costs = skv_alloc_zero(pool->n_rules, sizeof *b.costs);
    skv_status status = SKV_OK;
    if (!b.g || !b.starts || !b.seen || !b.queue || !b.empty || !b.costs) {
        status = skv_fail(err, SKV_MEMORY, "grammar: no memory");
    } else {
        find_empty(&b);
        build_rules(&b);
        status = finish(&b, err);
    }
    skv_free(b.starts);
    skv_free(b.seen);
    skv_free(b.queue);
    skv_free(b.empty);
    skv_free(b.costs);
    skv_free(b.pending);
    if (status == SKV_OK) {
        *out = b.g;
    } else {
        skv_grammar_free(b.g);
    }
    return status;
}

const skv_unrolled *skv_grammar_far(const skv_grammar *g, uint32_t state, size_t n_bytes,
                                    uint32_t *copy)
{
    size_t lo = 0, hi = g->n_unrolled;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (g->unrolled[middle].base <= state) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    if (lo == 0) return NULL;
    const skv_unrolled *u = &g->unrolled[lo - 1];
    *copy = (state - u->base) / u->stride;
    return *copy<u->count && * copy> n_bytes + 1 ? u : NULL;
}

uint32_t skv_grammar_alias(const skv_grammar *g, uint32_t state, size_t n_bytes)
{
    uint32_t copy = 0;
    const skv_unrolled *u = skv_grammar_far(g, state, n_bytes, &copy);
    return u != NULL ? state - (copy - (uint32_t)n_bytes - 1) * u->stride : state;
}
