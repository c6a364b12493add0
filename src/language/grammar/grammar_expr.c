/* The expressions of a grammar: see grammar_expr.h. */
#include "grammar/grammar_expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/size.h"

enum {
    BYTES_MAX = 8 << 20,
    RANGES_MAX = 1 << 20,
    NODE_WORK = 4,   /* units of work that one node takes */
    KIDS_A_UNIT = 2, /* or ranges */
    BYTES_A_UNIT = 16
};

#define TOO_MANY_PARTS "more than 2097152 parts"

static void fail(skv_exprs *exprs, skv_status status, const char *why)
{
    if (exprs->status != SKV_OK) return;
    exprs->status = status;
    exprs->why = why;
}

void skv_exprs_init(skv_exprs *exprs, skv_budget *budget)
{
    *exprs = (skv_exprs){.budget = budget};
}

void skv_exprs_release(skv_exprs *exprs)
{
    skv_budget *budget = exprs->budget;
    skv_budget_free(budget, exprs->nodes, exprs->nodes_capacity, sizeof *exprs->nodes);
    skv_budget_free(budget, exprs->kids, exprs->kids_capacity, sizeof *exprs->kids);
    skv_budget_free(budget, exprs->ranges, exprs->ranges_capacity, sizeof *exprs->ranges);
    skv_budget_free(budget, exprs->rules, exprs->rules_capacity, sizeof *exprs->rules);
    skv_budget_free(budget, exprs->bytes, exprs->bytes_capacity, 1);
    *exprs = (skv_exprs){0};
}

skv_status skv_exprs_check(const skv_exprs *exprs, skv_error *err)
{
    SKV_TRY(skv_budget_check(exprs->budget, "grammar", err));
    SKV_REQUIRE(exprs->status == SKV_OK, err, exprs->status, "grammar: %s", exprs->why);
    return SKV_OK;
}

bool skv_expr_work(skv_exprs *exprs, uint64_t n)
{
    if (!skv_budget_work(exprs->budget, n)) fail(exprs, SKV_RANGE, "too much work");
    return exprs->status == SKV_OK;
}

bool skv_expr_reserve(skv_exprs *exprs, void *array, size_t *capacity, size_t need, size_t size,
                      size_t max, const char *why)
{
    if (need <= *capacity) return true;
    if (skv_budget_grow(exprs->budget, array, capacity, need, size, max)) return true;
    if (need > max) {
        fail(exprs, SKV_RANGE, why);
    } else {
        fail(exprs, SKV_MEMORY, "no memory");
    }
    return false;
}

/* NEVER and EMPTY are nodes 0 and 1, so that every expression has a node. */
static skv_expr add_node(skv_exprs *exprs, skv_expr_node node)
{
    if (exprs->status != SKV_OK || !skv_expr_work(exprs, NODE_WORK)) return SKV_EXPR_NEVER;
    if (node.depth > SKV_EXPR_DEPTH_MAX) {
        fail(exprs, SKV_RANGE, "nested deeper than 1000 levels");
        return SKV_EXPR_NEVER;
    }
    size_t first = exprs->n_nodes == 0 ? 2 : exprs->n_nodes;
    if (!skv_expr_reserve(exprs, &exprs->nodes, &exprs->nodes_capacity, first + 1,
                          sizeof *exprs->nodes, SKV_EXPRS_MAX, "more than 524288 parts")) {
        return SKV_EXPR_NEVER;
    }
    if (exprs->n_nodes == 0) {
        exprs->nodes[0] = (skv_expr_node){.kind = SKV_EXPR_KIND_NEVER};
        exprs->nodes[1] = (skv_expr_node){.kind = SKV_EXPR_KIND_EMPTY};
    }
    exprs->nodes[first] = node;
    exprs->n_nodes = first + 1;
    return (skv_expr)first;
}

static uint16_t depth_of(const skv_exprs *exprs, skv_expr e)
{
    return e < 2 ? 0 : exprs->nodes[e].depth;
}

static bool has_call(const skv_exprs *exprs, skv_expr e)
{
    return e >= 2 && exprs->nodes[e].has_call;
}

void skv_expr_bytes_put(skv_exprs *exprs, const char *bytes, size_t n)
{
    if (n == 0 || !skv_expr_reserve(exprs, &exprs->bytes, &exprs->bytes_capacity,
                                    exprs->n_bytes + n, 1, BYTES_MAX, "more than 8 MiB of text")) {
        return;
    }
    memcpy(exprs->bytes + exprs->n_bytes, bytes, n);
    exprs->n_bytes += n;
}

skv_expr skv_expr_bytes_end(skv_exprs *exprs, size_t first)
{
    size_t n = exprs->n_bytes - first;
    if (n == 0) return SKV_EXPR_EMPTY;
    if (!skv_expr_work(exprs, n / BYTES_A_UNIT)) return SKV_EXPR_NEVER;
    return add_node(
        exprs,
        (skv_expr_node){.kind = SKV_EXPR_KIND_BYTES, .first = (uint32_t)first, .n = (uint32_t)n});
}

skv_expr skv_expr_bytes(skv_exprs *exprs, const char *bytes, size_t n)
{
    size_t first = exprs->n_bytes;
    skv_expr_bytes_put(exprs, bytes, n);
    return skv_expr_bytes_end(exprs, first);
}

skv_expr skv_expr_text(skv_exprs *exprs, const char *text)
{
    return skv_expr_bytes(exprs, text, strlen(text));
}

skv_expr skv_expr_set(skv_exprs *exprs, const skv_code_set *set)
{
    if (set->failed) fail(exprs, SKV_RANGE, "a class of more than 4096 ranges, or no memory");
    if (set->n == 0 || !skv_expr_work(exprs, set->n / KIDS_A_UNIT)) return SKV_EXPR_NEVER;
    size_t first = exprs->n_ranges;
    if (!skv_expr_reserve(exprs, &exprs->ranges, &exprs->ranges_capacity, first + set->n,
                          sizeof *exprs->ranges, RANGES_MAX,
                          "more than 1048576 ranges of characters")) {
        return SKV_EXPR_NEVER;
    }
    memcpy(exprs->ranges + first, set->at, set->n * sizeof *set->at);
    exprs->n_ranges += set->n;
    return add_node(exprs, (skv_expr_node){.kind = SKV_EXPR_KIND_SET,
                                           .first = (uint32_t)first,
                                           .n = (uint32_t)set->n});
}

skv_expr skv_expr_range(skv_exprs *exprs, uint32_t lo, uint32_t hi)
{
    skv_code_range range = {lo, hi};
    skv_code_set set = {.at = &range, .n = 1, .capacity = 1};
    return skv_expr_set(exprs, &set);
}

static bool reserve_kids(skv_exprs *exprs, size_t n)
{
    return skv_expr_reserve(exprs, &exprs->kids, &exprs->kids_capacity, exprs->n_kids + n,
                            sizeof *exprs->kids, SKV_EXPR_KIDS_MAX, TOO_MANY_PARTS);
}

/* A node over kids. Those that do nothing are left out by the callers. */
static skv_expr add_kids(skv_exprs *exprs, skv_expr_kind kind, const skv_expr *kids, size_t n)
{
    size_t first = exprs->n_kids;
    if (!skv_expr_work(exprs, n / KIDS_A_UNIT) || !reserve_kids(exprs, n)) return SKV_EXPR_NEVER;
    skv_expr_node node = {.kind = (uint8_t)kind, .first = (uint32_t)first};
    skv_expr idle = kind == SKV_EXPR_KIND_SEQ ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    for (size_t i = 0; i < n; i++) {
        if (kids[i] == idle) continue;
        exprs->kids[first + node.n++] = kids[i];
        if (depth_of(exprs, kids[i]) >= node.depth) {
            node.depth = (uint16_t)(depth_of(exprs, kids[i]) + 1);
        }
        node.has_call = node.has_call || has_call(exprs, kids[i]);
    }
    if (node.n == 0) return idle;
    if (node.n == 1) return exprs->kids[first];
    exprs->n_kids += node.n;
    return add_node(exprs, node);
}

skv_expr skv_expr_seq(skv_exprs *exprs, const skv_expr *kids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (kids[i] == SKV_EXPR_NEVER) return SKV_EXPR_NEVER;
    }
    return add_kids(exprs, SKV_EXPR_KIND_SEQ, kids, n);
}

skv_expr skv_expr_seq2(skv_exprs *exprs, skv_expr a, skv_expr b)
{
    return skv_expr_seq(exprs, (skv_expr[]){a, b}, 2);
}

skv_expr skv_expr_seq3(skv_exprs *exprs, skv_expr a, skv_expr b, skv_expr c)
{
    return skv_expr_seq(exprs, (skv_expr[]){a, b, c}, 3);
}

skv_expr skv_expr_alt(skv_exprs *exprs, const skv_expr *kids, size_t n)
{
    return add_kids(exprs, SKV_EXPR_KIND_ALT, kids, n);
}

skv_expr skv_expr_alt2(skv_exprs *exprs, skv_expr a, skv_expr b)
{
    return skv_expr_alt(exprs, (skv_expr[]){a, b}, 2);
}

/* Whether {min,max} of an expression is the expression itself: (x?)?, (x*){2,7}, (x+)+. Otherwise
 * the copies in copies would multiply. */
static bool repeats_itself(const skv_exprs *exprs, skv_expr kid, uint32_t min, uint32_t max)
{
    const skv_expr_node *node = &exprs->nodes[kid];
    if (min == 1 && max == 1) return true;
    if (node->kind != SKV_EXPR_KIND_REPEAT) return false;
    if (node->max == SKV_REPEAT_MANY) return node->n == 0 || (node->n == 1 && min == 1);
    return node->n == 0 && node->max == 1 && max == 1;
}

skv_expr skv_expr_repeat(skv_exprs *exprs, skv_expr kid, uint32_t min, uint32_t max)
{
    if (max == 0 || kid == SKV_EXPR_EMPTY) return SKV_EXPR_EMPTY;
    if (kid == SKV_EXPR_NEVER) return min == 0 ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    if (min > SKV_REPEAT_COUNT_MAX || (max != SKV_REPEAT_MANY && max > SKV_REPEAT_COUNT_MAX)) {
        fail(exprs, SKV_RANGE, "a repetition of more than 100000");
        return SKV_EXPR_NEVER;
    }
    if (repeats_itself(exprs, kid, min, max)) return kid;
    size_t first = exprs->n_kids;
    if (!reserve_kids(exprs, 1)) return SKV_EXPR_NEVER;
    exprs->kids[exprs->n_kids++] = kid;
    return add_node(exprs, (skv_expr_node){.kind = SKV_EXPR_KIND_REPEAT,
                                           .has_call = has_call(exprs, kid),
                                           .depth = (uint16_t)(depth_of(exprs, kid) + 1),
                                           .first = (uint32_t)first,
                                           .n = min,
                                           .max = max});
}

skv_expr skv_expr_optional(skv_exprs *exprs, skv_expr kid)
{
    return skv_expr_repeat(exprs, kid, 0, 1);
}

skv_expr skv_expr_call(skv_exprs *exprs, uint32_t rule)
{
    return add_node(exprs,
                    (skv_expr_node){.kind = SKV_EXPR_KIND_CALL, .has_call = true, .first = rule});
}

/* ---- rules ---- */

uint32_t skv_rule_declare(skv_exprs *exprs, const char *name, size_t n)
{
    if (!skv_expr_reserve(exprs, &exprs->rules, &exprs->rules_capacity, exprs->n_rules + 1,
                          sizeof *exprs->rules, SKV_RULES_MAX, "more than 32768 rules")) {
        return 0;
    }
    skv_rule *rule = &exprs->rules[exprs->n_rules];
    *rule = (skv_rule){.expr = SKV_EXPR_NEVER};
    memcpy(rule->name, name, skv_min_size(n, SKV_RULE_NAME_MAX - 1));
    return (uint32_t)exprs->n_rules++;
}

void skv_rule_define(skv_exprs *exprs, uint32_t rule, skv_expr expr)
{
    if (exprs->status != SKV_OK || rule >= exprs->n_rules) return;
    exprs->rules[rule].expr = expr;
    exprs->rules[rule].defined = true;
}

/* ---- groups inside groups ---- */

void skv_expr_groups_release(skv_expr_groups *groups)
{
    skv_budget *budget = groups->exprs->budget;
    skv_budget_free(budget, groups->items, groups->items_capacity, sizeof *groups->items);
    skv_budget_free(budget, groups->open, groups->open_capacity, sizeof *groups->open);
    *groups = (skv_expr_groups){.exprs = groups->exprs};
}

void skv_expr_groups_open(skv_expr_groups *groups, size_t at)
{
    if (!skv_expr_reserve(groups->exprs, &groups->open, &groups->open_capacity, groups->n_open + 1,
                          sizeof *groups->open, SKV_EXPRS_MAX, TOO_MANY_PARTS)) {
        return;
    }
    groups->open[groups->n_open++] = (skv_expr_group){at, groups->n_items, groups->n_items};
}

void skv_expr_groups_add(skv_expr_groups *groups, skv_expr item)
{
    if (!skv_expr_reserve(groups->exprs, &groups->items, &groups->items_capacity,
                          groups->n_items + 1, sizeof *groups->items, SKV_EXPR_KIDS_MAX,
                          TOO_MANY_PARTS)) {
        return;
    }
    groups->items[groups->n_items++] = item;
}

/* NULL before the first item of all was added. */
static const skv_expr *items_from(const skv_expr_groups *groups, size_t i)
{
    return groups->items ? groups->items + i : NULL;
}

void skv_expr_groups_next(skv_expr_groups *groups)
{
    if (groups->exprs->status != SKV_OK || groups->n_open == 0) return;
    skv_expr_group *group = &groups->open[groups->n_open - 1];
    skv_expr sequence = skv_expr_seq(groups->exprs, items_from(groups, group->items),
                                     groups->n_items - group->items);
    groups->n_items = group->items;
    skv_expr_groups_add(groups, sequence);
    group->items = groups->n_items;
}

skv_expr skv_expr_groups_close(skv_expr_groups *groups, size_t *at)
{
    *at = 0;
    skv_expr_groups_next(groups);
    if (groups->exprs->status != SKV_OK || groups->n_open == 0) return SKV_EXPR_NEVER;
    const skv_expr_group *group = &groups->open[--groups->n_open];
    skv_expr all =
        skv_expr_alt(groups->exprs, items_from(groups, group->ways), groups->n_items - group->ways);
    groups->n_items = group->ways;
    *at = group->at;
    return all;
}

/* ---- texts ---- */

static int by_text(const void *a, const void *b)
{
    const skv_text_ref *x = a, *y = b;
    size_t n = skv_min_size(x->n, y->n);
    int order = n > 0 ? memcmp(x->text, y->text, n) : 0;
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* Sorted texts that agree in their first `at` bytes: those from i to end are still to be added. */
typedef struct branch {
    size_t i, end, at;
} branch;

typedef struct text_trie {
    skv_expr_groups groups; /* one for each branch */
    const skv_text_ref *texts;
    branch *branches; /* owned */
    size_t n, capacity;
} text_trie;

/* Begins with the text that ends here, if there is one: an EMPTY must stay a choice of its own. */
static void open_branch(text_trie *t, size_t i, size_t end, size_t at)
{
    skv_exprs *exprs = t->groups.exprs;
    if (!skv_expr_reserve(exprs, &t->branches, &t->capacity, t->n + 1, sizeof *t->branches,
                          SKV_EXPRS_MAX, TOO_MANY_PARTS)) {
        return;
    }
    skv_expr_groups_open(&t->groups, 0);
    if (t->texts[i].n == at) {
        skv_expr_groups_add(&t->groups, SKV_EXPR_EMPTY);
        while (i < end && t->texts[i].n == at) i++;
        if (i < end) skv_expr_groups_next(&t->groups);
    }
    t->branches[t->n++] = (branch){i, end, at};
}

/* Collects the next texts of a branch that share their next byte: their common part, then a
 * branch. */
static void grow_branch(text_trie *t, branch *b)
{
    skv_exprs *exprs = t->groups.exprs;
    const skv_text_ref *first = &t->texts[b->i], *last;
    size_t end = b->i + 1, same = b->at + 1, at = b->at, i = b->i;
    while (end < b->end && t->texts[end].text[at] == first->text[at]) end++;
    last = &t->texts[end - 1];
    while (same < first->n && same < last->n && first->text[same] == last->text[same]) same++;
    if (!skv_expr_work(exprs, (end - i) / KIDS_A_UNIT)) return;
    skv_expr_groups_add(&t->groups, skv_expr_bytes(exprs, first->text + at, same - at));
    b->i = end;
    open_branch(t, i, end, same);
}

static skv_expr join_texts(text_trie *t)
{
    size_t unused;
    skv_exprs *exprs = t->groups.exprs;
    while (exprs->status == SKV_OK) {
        branch *b = &t->branches[t->n - 1];
        if (b->i < b->end) {
            grow_branch(t, b);
            continue;
        }
        skv_expr all = skv_expr_groups_close(&t->groups, &unused);
        if (--t->n == 0) return all;
        skv_expr_groups_add(&t->groups, all);
        b = &t->branches[t->n - 1];
        if (b->i < b->end) skv_expr_groups_next(&t->groups);
    }
    return SKV_EXPR_NEVER;
}

skv_expr skv_expr_texts(skv_exprs *exprs, skv_text_ref *texts, size_t n)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) n_bytes += texts[i].n;
    /* Sorting takes n_bytes * log2(n) / 16 at most, some 16 n otherwise. */
    if (n == 0 || !skv_expr_work(exprs, n_bytes + 16 * (uint64_t)n)) return SKV_EXPR_NEVER;
    text_trie t = {.groups = {.exprs = exprs}, .texts = texts};
    if (n > 1) qsort(texts, n, sizeof *texts, by_text);
    open_branch(&t, 0, n, 0);
    skv_expr out = join_texts(&t);
    skv_budget_free(exprs->budget, t.branches, t.capacity, sizeof *t.branches);
    skv_expr_groups_release(&t.groups);
    return out;
}

/* ---- lists ---- */

void skv_expr_list_add(skv_expr_list *list, skv_expr expr)
{
    if (list->n == list->capacity &&
        !skv_expr_reserve(list->exprs, &list->at, &list->capacity, list->n + 1, sizeof *list->at,
                          SKV_EXPR_KIDS_MAX, TOO_MANY_PARTS)) {
        return;
    }
    list->at[list->n++] = expr;
}

static void release_list(skv_expr_list *list)
{
    skv_budget_free(list->exprs->budget, list->at, list->capacity, sizeof *list->at);
    *list = (skv_expr_list){.exprs = list->exprs};
}

skv_expr skv_expr_list_seq(skv_expr_list *list)
{
    skv_expr out = skv_expr_seq(list->exprs, list->at, list->n);
    release_list(list);
    return out;
}

skv_expr skv_expr_list_alt(skv_expr_list *list)
{
    skv_expr out = skv_expr_alt(list->exprs, list->at, list->n);
    release_list(list);
    return out;
}
