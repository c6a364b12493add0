/* The pool of expressions: see grammar_expr.h. */
#include "grammar/grammar_expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { BYTES_MAX = 8 << 20, KIDS_MAX = 1 << 21, RANGES_MAX = 1 << 20 };

static void fail(skv_expr_pool *pool, skv_status status, const char *why)
{
    if (pool->status != SKV_OK) return;
    pool->status = status;
    pool->why = why;
}

void skv_expr_pool_init(skv_expr_pool *pool)
{
    *pool = (skv_expr_pool){0};
    skv_buf_init(&pool->bytes, BYTES_MAX);
}

void skv_expr_pool_release(skv_expr_pool *pool)
{
    skv_free(pool->nodes);
    skv_free(pool->kids);
    skv_free(pool->ranges);
    skv_free(pool->rules);
    skv_buf_release(&pool->bytes);
    *pool = (skv_expr_pool){0};
}

skv_status skv_expr_pool_check(const skv_expr_pool *pool, skv_error *err)
{
    SKV_REQUIRE(pool->status == SKV_OK, err, pool->status, "grammar: %s", pool->why);
    return SKV_OK;
}

/* Room for n more of an array; false when the limit or the memory ends. */
static bool reserve(skv_expr_pool *pool, void *array, size_t *capacity, size_t need, size_t size,
                    size_t max, const char *why)
{
    if (need <= *capacity) return true;
    if (need > max) {
        fail(pool, SKV_RANGE, why);
        return false;
    }
    size_t grown = skv_min_size(max, skv_max_size(need, skv_max_size(64, 2 * *capacity)));
    void *old, *bigger;
    memcpy(&old, array, sizeof old);
    bigger = skv_realloc(old, grown, size);
    if (bigger == NULL) {
        fail(pool, SKV_MEMORY, "no memory");
        return false;
    }
    memcpy(array, &bigger, sizeof bigger);
    *capacity = grown;
    return true;
}

/* NEVER and EMPTY are nodes 0 and 1, so that every expression has a node. */
static skv_expr add_node(skv_expr_pool *pool, skv_expr_node node)
{
    if (pool->status != SKV_OK) return SKV_EXPR_NEVER;
    if (node.depth > SKV_EXPR_DEPTH_MAX) {
        fail(pool, SKV_RANGE, "nested deeper than 1000 levels");
        return SKV_EXPR_NEVER;
    }
    size_t first = pool->n_nodes == 0 ? 2 : pool->n_nodes;
    if (!reserve(pool, &pool->nodes, &pool->nodes_capacity, first + 1, sizeof *pool->nodes,
                 SKV_EXPRS_MAX, "more than 524288 parts")) {
        return SKV_EXPR_NEVER;
    }
    if (pool->n_nodes == 0) {
        pool->nodes[0] = (skv_expr_node){.kind = SKV_EXPR_KIND_NEVER};
        pool->nodes[1] = (skv_expr_node){.kind = SKV_EXPR_KIND_EMPTY};
    }
    pool->nodes[first] = node;
    pool->n_nodes = first + 1;
    return (skv_expr)first;
}

static uint16_t depth_of(const skv_expr_pool *pool, skv_expr e)
{
    return e < 2 ? 0 : pool->nodes[e].depth;
}

static bool has_call(const skv_expr_pool *pool, skv_expr e)
{
    return e >= 2 && pool->nodes[e].has_call;
}

skv_expr skv_expr_bytes(skv_expr_pool *pool, const char *bytes, size_t n)
{
    if (n == 0) return SKV_EXPR_EMPTY;
    size_t first = pool->bytes.size;
    if (!skv_buf_append(&pool->bytes, bytes, n)) {
        fail(pool, SKV_RANGE, "more than 8 MiB of text, or no memory");
    }
    return add_node(
        pool,
        (skv_expr_node){.kind = SKV_EXPR_KIND_BYTES, .first = (uint32_t)first, .n = (uint32_t)n});
}

skv_expr skv_expr_text(skv_expr_pool *pool, const char *text)
{
    return skv_expr_bytes(pool, text, strlen(text));
}

skv_expr skv_expr_set(skv_expr_pool *pool, const skv_code_set *set)
{
    if (set->failed) fail(pool, SKV_RANGE, "a class of more than 4096 ranges, or no memory");
    if (set->n == 0) return SKV_EXPR_NEVER;
    size_t first = pool->n_ranges;
    if (!reserve(pool, &pool->ranges, &pool->ranges_capacity, first + set->n, sizeof *pool->ranges,
                 RANGES_MAX, "more than 1048576 ranges of characters")) {
        return SKV_EXPR_NEVER;
    }
    memcpy(pool->ranges + first, set->at, set->n * sizeof *set->at);
    pool->n_ranges += set->n;
    return add_node(pool, (skv_expr_node){.kind = SKV_EXPR_KIND_SET,
                                          .first = (uint32_t)first,
                                          .n = (uint32_t)set->n});
}

skv_expr skv_expr_range(skv_expr_pool *pool, uint32_t lo, uint32_t hi)
{
    skv_code_range range = {lo, hi};
    skv_code_set set = {.at = &range, .n = 1, .capacity = 1};
    return skv_expr_set(pool, &set);
}

/* A node over kids. Those that do nothing are left out by the callers. */
static skv_expr add_kids(skv_expr_pool *pool, skv_expr_kind kind, const skv_expr *kids, size_t n)
{
    size_t first = pool->n_kids;
    if (!reserve(pool, &pool->kids, &pool->kids_capacity, first + n, sizeof *pool->kids, KIDS_MAX,
                 "more than 2097152 parts")) {
        return SKV_EXPR_NEVER;
    }
    skv_expr_node node = {.kind = (uint8_t)kind, .first = (uint32_t)first};
    skv_expr idle = kind == SKV_EXPR_KIND_SEQ ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    for (size_t i = 0; i < n; i++) {
        if (kids[i] == idle) continue;
        pool->kids[first + node.n++] = kids[i];
        if (depth_of(pool, kids[i]) >= node.depth) {
            node.depth = (uint16_t)(depth_of(pool, kids[i]) + 1);
        }
        node.has_call = node.has_call || has_call(pool, kids[i]);
    }
    if (node.n == 0) return idle;
    if (node.n == 1) return pool->kids[first];
    pool->n_kids += node.n;
    return add_node(pool, node);
}

skv_expr skv_expr_seq(skv_expr_pool *pool, const skv_expr *kids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (kids[i] == SKV_EXPR_NEVER) return SKV_EXPR_NEVER;
    }
    return add_kids(pool, SKV_EXPR_KIND_SEQ, kids, n);
}

skv_expr skv_expr_seq2(skv_expr_pool *pool, skv_expr a, skv_expr b)
{
    return skv_expr_seq(pool, (skv_expr[]){a, b}, 2);
}

skv_expr skv_expr_seq3(skv_expr_pool *pool, skv_expr a, skv_expr b, skv_expr c)
{
    return skv_expr_seq(pool, (skv_expr[]){a, b, c}, 3);
}

skv_expr skv_expr_alt(skv_expr_pool *pool, const skv_expr *kids, size_t n)
{
    return add_kids(pool, SKV_EXPR_KIND_ALT, kids, n);
}

skv_expr skv_expr_alt2(skv_expr_pool *pool, skv_expr a, skv_expr b)
{
    return skv_expr_alt(pool, (skv_expr[]){a, b}, 2);
}

skv_expr skv_expr_repeat(skv_expr_pool *pool, skv_expr kid, uint32_t min, uint32_t max)
{
    if (max == 0 || kid == SKV_EXPR_EMPTY) return SKV_EXPR_EMPTY;
    if (kid == SKV_EXPR_NEVER) return min == 0 ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    if (min == 1 && max == 1) return kid;
    if (min > SKV_REPEAT_COUNT_MAX || (max != SKV_REPEAT_MANY && max > SKV_REPEAT_COUNT_MAX)) {
        fail(pool, SKV_RANGE, "a repetition of more than 100000");
        return SKV_EXPR_NEVER;
    }
    size_t first = pool->n_kids;
    if (!reserve(pool, &pool->kids, &pool->kids_capacity, first + 1, sizeof *pool->kids, KIDS_MAX,
                 "more than 2097152 parts")) {
        return SKV_EXPR_NEVER;
    }
    pool->kids[pool->n_kids++] = kid;
    return add_node(pool, (skv_expr_node){.kind = SKV_EXPR_KIND_REPEAT,
                                          .has_call = has_call(pool, kid),
                                          .depth = (uint16_t)(depth_of(pool, kid) + 1),
                                          .first = (uint32_t)first,
                                          .n = min,
                                          .max = max});
}

skv_expr skv_expr_optional(skv_expr_pool *pool, skv_expr kid)
{
    return skv_expr_repeat(pool, kid, 0, 1);
}

skv_expr skv_expr_call(skv_expr_pool *pool, uint32_t rule)
{
    return add_node(pool,
                    (skv_expr_node){.kind = SKV_EXPR_KIND_CALL, .has_call = true, .first = rule});
}

/* ---- rules ---- */

uint32_t skv_rule_declare(skv_expr_pool *pool, const char *name, size_t n)
{
    if (!reserve(pool, &pool->rules, &pool->rules_capacity, pool->n_rules + 1, sizeof *pool->rules,
                 SKV_RULES_MAX, "more than 32768 rules")) {
        return 0;
    }
    skv_rule *rule = &pool->rules[pool->n_rules];
    *rule = (skv_rule){.expr = SKV_EXPR_NEVER};
    memcpy(rule->name, name, skv_min_size(n, SKV_RULE_NAME_MAX - 1));
    return (uint32_t)pool->n_rules++;
}

void skv_rule_define(skv_expr_pool *pool, uint32_t rule, skv_expr expr)
{
    if (pool->status != SKV_OK || rule >= pool->n_rules) return;
    pool->rules[rule].expr = expr;
    pool->rules[rule].defined = true;
}

/* ---- texts ---- */

static int by_text(const void *a, const void *b)
{
    const skv_text_ref *x = a, *y = b;
    size_t n = skv_min_size(x->n, y->n);
    int order = n > 0 ? memcmp(x->text, y->text, n) : 0;
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* Sorted texts that agree in their first `at` bytes: what they go on with. */
static skv_expr join_texts(skv_expr_pool *pool, const skv_text_ref *texts, size_t n, size_t at)
{
    skv_expr_list list = {.pool = pool};
    size_t i = 0;
    if (n > 0 && texts[0].n == at) {
        skv_expr_list_add(&list, SKV_EXPR_EMPTY);
        while (i < n && texts[i].n == at) i++;
    }
    while (i < n && pool->status == SKV_OK) {
        size_t end = i + 1, same = at + 1;
        while (end < n && texts[end].text[at] == texts[i].text[at]) end++;
        const skv_text_ref *first = &texts[i], *last = &texts[end - 1];
        while (same < first->n && same < last->n && first->text[same] == last->text[same]) same++;
        skv_expr head = skv_expr_bytes(pool, first->text + at, same - at);
        skv_expr_list_add(&list, skv_expr_seq2(pool, head, join_texts(pool, first, end - i, same)));
        i = end;
    }
    /* An EMPTY among others must stay a choice of its own. */
    return skv_expr_list_alt(&list);
}

skv_expr skv_expr_texts(skv_expr_pool *pool, skv_text_ref *texts, size_t n)
{
    if (n > 1) qsort(texts, n, sizeof *texts, by_text);
    return join_texts(pool, texts, n, 0);
}

/* ---- lists ---- */

void skv_expr_list_add(skv_expr_list *list, skv_expr expr)
{
    if (list->n == list->capacity &&
        !reserve(list->pool, &list->at, &list->capacity, list->n + 1, sizeof *list->at, KIDS_MAX,
                 "more than 2097152 parts")) {
        return;
    }
    list->at[list->n++] = expr;
}

skv_expr skv_expr_list_seq(skv_expr_list *list)
{
    skv_expr out = skv_expr_seq(list->pool, list->at, list->n);
    skv_free(list->at);
    *list = (skv_expr_list){.pool = list->pool};
    return out;
}

skv_expr skv_expr_list_alt(skv_expr_list *list)
{
    skv_expr out = skv_expr_alt(list->pool, list->at, list->n);
    skv_free(list->at);
    *list = (skv_expr_list){.pool = list->pool};
    return out;
}
