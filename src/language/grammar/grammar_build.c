/*
 * Builds states from expressions. An expression is built backwards: from the state that follows it
 * to its own first state, so that most edges are complete when they are made.
 *
 * Repeated expressions are built without the empty text: X{m,n} of an X that may be empty is
 * (X'){0,n}, where X' is X without the empty text. Otherwise all copies of X could begin at the
 * same place of the text, and the parses of nested repetitions would multiply. Expressions and
 * rules therefore have two forms.
 */
#include <assert.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "grammar/grammar_impl.h"

enum {
    SUFFIXES_MAX = 64, /* states searched for an existing UTF-8 ending */
    UNROLLED_MIN = 8,  /* copies from which a repetition is remembered */
    UNROLLED_MAX = 1 << 16,
    SUFFIXES_A_UNIT = 8,  /* looked at for one unit of work */
    FRAME_WORK = 2,       /* units for each expression of parts */
    FRAMES_MAX = 1 << 22, /* expressions inside each other, calls that are copied included */
    WORK_AT_ONCE = 1 << 10
};

/* Which texts of an expression: all, or those that are not empty. */
typedef enum form { FORM_ALL, FORM_SOME } form;

typedef struct suffix {
    uint32_t state, target;
    uint8_t lo, hi;
} suffix;

/* An expression that waits for one of its parts to be built: see `step`. */
typedef struct frame {
    skv_expr e;
    uint8_t form;
    bool again;          /* REPEAT: a copy has been built. SEQ without "": the part, with "", has */
    bool required;       /* REPEAT: the copies that must be there are being built */
    uint32_t next;       /* the state after it; SEQ: after the part that is built next */
    uint32_t i;          /* parts or copies that are left */
    uint32_t pending;    /* where its own pending edges begin */
    uint32_t tail;       /* REPEAT: the state that the copies so far begin with */
    uint32_t n_required; /* REPEAT: copies that must be there */
    uint32_t base, unrolled; /* REPEAT: states and repetitions when these copies were begun */
} frame;

typedef struct builder {
    skv_exprs *exprs; /* borrowed */
    skv_grammar *g;   /* borrowed */
    skv_grammar_facts facts;
    uint32_t *starts; /* owned, [2][n_rules] the first states by form; 0: none, or not built yet */
    bool *seen;       /* owned, [2][n_rules] in the queue, or built */
    uint32_t *queue;  /* owned, [2][n_rules] indices of `starts` to build */
    size_t n_queued, n_built;
    size_t states_capacity, edges_capacity, unrolled_capacity;
    skv_edge *pending; /* owned: edges of states that are being collected, a stack */
    size_t n_pending, pending_capacity;
    frame *frames; /* owned: expressions around the place being built */
    size_t n_frames, frames_capacity;
    uint32_t built; /* the state that the last part begins with */
    size_t n_loops; /* repetitions around the place being built */
    suffix suffixes[SUFFIXES_MAX];
    size_t n_suffixes;
    uint32_t suffix_next; /* the state that the suffixes lead to */
    uint32_t work;        /* units not yet counted in the budget */
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
    if (need <= *capacity) return true; /* nearly always, and a call costs more than this */
    if (skv_budget_grow(b->exprs->budget, array, capacity, need, size, max)) return true;
    if (need > max) {
        fail(b, SKV_RANGE, "more than 524288 states or 2097152 edges");
    } else {
        fail(b, SKV_MEMORY, "no memory");
    }
    return false;
}

static void spend(builder *b, uint32_t n)
{
    b->work += n;
    if (b->work < WORK_AT_ONCE) return;
    if (!skv_budget_work(b->exprs->budget, b->work)) fail(b, SKV_RANGE, "too much work");
    b->work = 0;
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
    spend(b, 1 + (uint32_t)((s->n - 1) * (1 + b->n_suffixes / SUFFIXES_A_UNIT)));
    for (size_t i = s->n; i-- > 1;) target = suffix_state(b, s->lo[i], s->hi[i], target);
    push(b, (skv_edge){.kind = SKV_EDGE_BYTES, .target = target, .lo = s->lo[0], .hi = s->hi[0]});
}

/* The states after first bytes are made while the first bytes are still pending; pending edges are
 * therefore a stack. */
static uint32_t build_set(builder *b, const skv_expr_node *node, uint32_t next)
{
    size_t base = b->n_pending;
    b->n_suffixes = 0;
    b->suffix_next = next;
    for (uint32_t i = 0; i < node->n && b->status == SKV_OK; i++) {
        skv_utf8_spell(b->exprs->ranges[node->first + i], put_spelling, b);
    }
    return take_state(b, base);
}

/* ---- repetitions ---- */

/* Copies of a piece that reads something: the callers see to that. */
static void remember(builder *b, const frame *top, skv_expr kid, uint32_t count)
{
    skv_grammar *g = b->g;
    uint32_t made = (uint32_t)g->n_states - top->base;
    if (count < UNROLLED_MIN || top->unrolled != g->n_unrolled || b->exprs->nodes[kid].has_call) {
        return;
    }
    if (made == 0 || made % count != 0 || b->status != SKV_OK) return;
    if (g->n_unrolled == UNROLLED_MAX ||
        !grow(b, &g->unrolled, &b->unrolled_capacity, g->n_unrolled + 1, sizeof *g->unrolled,
              UNROLLED_MAX)) {
        return;
    }
    g->unrolled[g->n_unrolled++] = (skv_unrolled){top->base, made / count, count};
}

static void begin_copies(const builder *b, frame *top, uint32_t count)
{
    top->i = count;
    top->base = (uint32_t)b->g->n_states;
    top->unrolled = (uint32_t)b->g->n_unrolled;
}

/* Optional copies follow the required ones, and are built first. A loop counts as an optional copy;
 * its back edge is filled in once its body exists. */
static void open_repeat(builder *b, frame *top, const skv_expr_node *node)
{
    bool is_loop = node->max == SKV_REPEAT_MANY;
    bool empty = (b->facts.facts[b->exprs->kids[node->first]] & SKV_FACT_EMPTY) != 0;
    top->n_required = empty ? 0 : node->n;
    if (top->form == FORM_SOME && top->n_required == 0) top->n_required = 1;
    b->n_loops++;
    top->tail = is_loop ? fork_state(b, top->next, top->next) : top->next;
    begin_copies(b, top, is_loop ? 1 : node->max - top->n_required);
}

/* Puts a copy that has been built before the others. */
static void take_copy(builder *b, frame *top, const skv_expr_node *node)
{
    if (top->required) {
        top->tail = b->built;
    } else if (node->max == SKV_REPEAT_MANY) {
        b->g->edges[b->g->states[top->tail].first + 1].target = b->built;
    } else {
        top->tail = fork_state(b, top->next, b->built);
    }
}

/* ---- calls ---- */

/*
 * A small rule inside a loop is copied. `char` in `char*` is the usual case: with a call every
 * character would leave the rule, and whatever follows would depend on the stack.
 */
static bool is_copied(const builder *b, uint32_t rule)
{
    const skv_rule *r = &b->exprs->rules[rule];
    return b->n_loops > 0 && !r->nests && b->facts.costs[r->expr] <= SKV_COST_MAX;
}

static uint32_t build_call(builder *b, uint32_t rule, form f, uint32_t next)
{
    uint32_t index = rule + (f == FORM_SOME ? (uint32_t)b->exprs->n_rules : 0);
    if (!b->seen[index]) {
        b->seen[index] = true;
        b->queue[b->n_queued++] = index;
    }
    return state_of(b, (skv_edge){.kind = SKV_EDGE_CALL,
                                  .target = next,
                                  .rule = index,
                                  .nests = b->exprs->rules[rule].nests});
}

/* ---- expressions ---- */

static uint32_t build_bytes(builder *b, const skv_expr_node *node, uint32_t next)
{
    spend(b, node->n);
    for (uint32_t i = node->n; i-- > 0;) {
        uint8_t byte = (uint8_t)b->exprs->bytes[node->first + i];
        next =
            state_of(b, (skv_edge){.kind = SKV_EDGE_BYTES, .target = next, .lo = byte, .hi = byte});
    }
    return next;
}

/* Begins an expression of parts. */
static void open_frame(builder *b, skv_expr e, form f, uint32_t next)
{
    const skv_expr_node *node = &b->exprs->nodes[e];
    if (!grow(b, &b->frames, &b->frames_capacity, b->n_frames + 1, sizeof *b->frames, FRAMES_MAX)) {
        return;
    }
    frame *top = &b->frames[b->n_frames++];
    *top = (frame){.e = e, .form = (uint8_t)f, .next = next, .pending = (uint32_t)b->n_pending};
    if (node->kind == SKV_EXPR_KIND_REPEAT) {
        open_repeat(b, top, node);
    } else {
        top->i = node->n;
    }
    spend(b, FRAME_WORK + (node->kind == SKV_EXPR_KIND_REPEAT ? 0 : node->n));
}

/*
 * Builds e before the state `next`: either at once, setting `built` to the first state of e, or as
 * a new frame. An expression without a text of the form yields DEAD, whatever its parts are; so
 * every state that is built on the way to `next` belongs to a text that ends.
 */
static void build(builder *b, skv_expr e, form f, uint32_t next)
{
    b->built = SKV_STATE_DEAD;
    while (b->status == SKV_OK && next != SKV_STATE_DEAD) {
        unsigned facts = b->facts.facts[e];
        spend(b, 1);
        if ((facts & SKV_FACT_SOME) == 0) {
            if (f == FORM_ALL && (facts & SKV_FACT_EMPTY) != 0) b->built = next;
            return;
        }
        if ((facts & SKV_FACT_EMPTY) == 0) f = FORM_ALL;
        const skv_expr_node *node = &b->exprs->nodes[e];
        if (node->kind == SKV_EXPR_KIND_BYTES) {
            b->built = build_bytes(b, node, next);
        } else if (node->kind == SKV_EXPR_KIND_SET) {
            b->built = build_set(b, node, next);
        } else if (node->kind != SKV_EXPR_KIND_CALL) {
            open_frame(b, e, f, next);
        } else if (is_copied(b, node->first)) {
            e = b->exprs->rules[node->first].expr;
            continue;
        } else {
            b->built = build_call(b, node->first, f, next);
        }
        return;
    }
}

static void close_frame(builder *b, uint32_t built)
{
    b->n_frames--;
    b->built = built;
}

static void step_repeat(builder *b, frame *top, const skv_expr_node *node)
{
    skv_expr kid = b->exprs->kids[node->first];
    if (top->again) take_copy(b, top, node);
    if (top->i == 0 && !top->required) {
        if (node->max != SKV_REPEAT_MANY) remember(b, top, kid, node->max - top->n_required);
        top->required = true;
        begin_copies(b, top, top->n_required);
    }
    if (top->i == 0) {
        remember(b, top, kid, top->n_required);
        b->n_loops--;
        close_frame(b, top->tail);
        return;
    }
    top->i--;
    top->again = true;
    build(b, kid, FORM_SOME, top->tail);
}

/* The parts of a sequence, from the last one on: each is followed by the one built before. */
static void step_seq(builder *b, frame *top, const skv_expr_node *node)
{
    if (top->i < node->n) top->next = b->built;
    if (top->i == 0) {
        close_frame(b, top->next);
    } else {
        build(b, b->exprs->kids[node->first + --top->i], FORM_ALL, top->next);
    }
}

/* Of parts that all may be empty, one is the first that is not: each is built without the empty
 * text, and, for those before it, with it. */
static void step_some_of(builder *b, frame *top, const skv_expr_node *node)
{
    if (top->again) {
        top->next = b->built;
        top->again = false;
    } else if (top->i < node->n) {
        push(b, (skv_edge){.kind = SKV_EDGE_FREE, .target = b->built});
        if (top->i > 0) {
            top->again = true;
            build(b, b->exprs->kids[node->first + top->i], FORM_ALL, top->next);
            return;
        }
    }
    if (top->i == 0) {
        close_frame(b, take_state(b, top->pending));
    } else {
        build(b, b->exprs->kids[node->first + --top->i], FORM_SOME, top->next);
    }
}

static void step_alt(builder *b, frame *top, const skv_expr_node *node)
{
    if (top->i < node->n) push(b, (skv_edge){.kind = SKV_EDGE_FREE, .target = b->built});
    if (top->i == 0) {
        close_frame(b, take_state(b, top->pending));
    } else {
        skv_expr kid = b->exprs->kids[node->first + node->n - top->i--];
        build(b, kid, (form)top->form, top->next);
    }
}

/* Continues with the innermost frame, after one of its parts has been built. */
static void step(builder *b)
{
    frame *top = &b->frames[b->n_frames - 1];
    const skv_expr_node *node = &b->exprs->nodes[top->e];
    switch ((skv_expr_kind)node->kind) {
    case SKV_EXPR_KIND_SEQ:
        if (top->form == FORM_ALL) {
            step_seq(b, top, node);
        } else {
            step_some_of(b, top, node);
        }
        return;
    case SKV_EXPR_KIND_ALT: step_alt(b, top, node); return;
    case SKV_EXPR_KIND_REPEAT: step_repeat(b, top, node); return;
    default: assert(false); return;
    }
}

static uint32_t build_rule(builder *b, skv_expr e, form f)
{
    b->n_loops = b->n_frames = 0;
    build(b, e, f, SKV_STATE_END);
    while (b->n_frames > 0 && b->status == SKV_OK) step(b);
    return b->status == SKV_OK ? b->built : SKV_STATE_DEAD;
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
        uint32_t index = b->queue[b->n_built++]; /* a failure names the last one */
        size_t n_rules = b->exprs->n_rules;
        spend(b, 1);
        b->starts[index] = build_rule(b, b->exprs->rules[index % n_rules].expr,
                                      index < n_rules ? FORM_ALL : FORM_SOME);
    }
}

/* The arrays of the grammar get the sizes that they need. */
static void shrink(builder *b)
{
    skv_grammar *g = b->g;
    skv_budget *budget = b->exprs->budget;
    skv_budget_shrink(budget, &g->states, &b->states_capacity, g->n_states, sizeof *g->states);
    skv_budget_shrink(budget, &g->edges, &b->edges_capacity, g->n_edges, sizeof *g->edges);
    skv_budget_shrink(budget, &g->unrolled, &b->unrolled_capacity, g->n_unrolled,
                      sizeof *g->unrolled);
}

static skv_status build_all(builder *b, skv_error *err)
{
    skv_exprs *exprs = b->exprs;
    skv_budget *budget = exprs->budget;
    b->starts = skv_budget_alloc_zero(budget, 2 * exprs->n_rules, sizeof *b->starts);
    b->seen = skv_budget_alloc_zero(budget, 2 * exprs->n_rules, sizeof *b->seen);
    b->queue = skv_budget_alloc_zero(budget, 2 * exprs->n_rules, sizeof *b->queue);
    if (!b->starts || !b->seen || !b->queue || !skv_grammar_facts_find(&b->facts, exprs)) {
        return skv_fail(err, SKV_MEMORY, "grammar: no memory");
    }
    build_rules(b);
    SKV_REQUIRE(b->status == SKV_OK, err, b->status, "grammar: %s, at the rule \"%s\"", b->why,
                b->n_built > 0 ? exprs->rules[b->queue[b->n_built - 1] % exprs->n_rules].name : "");
    shrink(b);
    return skv_grammar_finish(b->g, exprs, &b->facts, b->starts, err);
}

/* Frees everything except the grammar, which now belongs to the caller. */
static void release(builder *b)
{
    skv_budget *budget = b->exprs->budget;
    skv_budget_free(budget, b->starts, 2 * b->exprs->n_rules, sizeof *b->starts);
    skv_budget_free(budget, b->seen, 2 * b->exprs->n_rules, sizeof *b->seen);
    skv_budget_free(budget, b->queue, 2 * b->exprs->n_rules, sizeof *b->queue);
    skv_budget_free(budget, b->pending, b->pending_capacity, sizeof *b->pending);
    skv_budget_free(budget, b->frames, b->frames_capacity, sizeof *b->frames);
    skv_grammar_facts_release(&b->facts, budget);
    skv_budget_give(budget, b->states_capacity * sizeof *b->g->states);
    skv_budget_give(budget, b->edges_capacity * sizeof *b->g->edges);
    skv_budget_give(budget, b->unrolled_capacity * sizeof *b->g->unrolled);
}

skv_status skv_grammar_build(skv_exprs *exprs, skv_grammar **out, skv_error *err)
{
    SKV_TRY(skv_exprs_check(exprs, err));
    builder b = {.exprs = exprs, .g = skv_alloc_zero(1, sizeof *b.g)};
    SKV_REQUIRE(b.g, err, SKV_MEMORY, "grammar: no memory");
    skv_status status = build_all(&b, err);
    release(&b);
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
    return u ? state - (copy - (uint32_t)n_bytes - 1) * u->stride : state;
}
