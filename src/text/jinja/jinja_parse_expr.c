/* Expressions by precedence, from `a if b else c` down to `**`. */
#include <string.h>

#include "text/jinja/jinja_parser.h"

static const skv_jnode *binary(skv_jparser *p, skv_jnode_kind kind, unsigned op,
                               const skv_jnode *left, const skv_jnode *right)
{
    if (!left || !right) return NULL;
    skv_jnode *node = skv_jparse_node(p, kind, left->line);
    if (!node) return NULL;
    node->op = (uint16_t)op;
    node->a = left;
    node->b = right;
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_power(skv_jparser *p)
{
    const skv_jnode *left = skv_jparse_unary(p, true);
    while (left && skv_jparse_skip_op(p, SKV_JOP('*', '*')))
        left = binary(p, SKV_JN_BINARY, SKV_JOP('*', '*'), left, skv_jparse_unary(p, true));
    return left;
}

static const skv_jnode *parse_product(skv_jparser *p)
{
    const skv_jnode *left = parse_power(p);
    while (left && p->token.kind == SKV_JT_OPERATOR) {
        unsigned op = p->token.op;
        if (op != '*' && op != '/' && op != '%' && op != SKV_JOP('/', '/')) break;
        if (!skv_jparse_advance(p)) return NULL;
        left = binary(p, SKV_JN_BINARY, op, left, parse_power(p));
    }
    return p->status == SKV_OK ? left : NULL;
}

static const skv_jnode *parse_concat(skv_jparser *p)
{
    const skv_jnode *first = parse_product(p);
    if (!first || !skv_jtoken_is_op(&p->token, '~')) return first;
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CONCAT, first->line);
    skv_jnodes items = {0};
    if (!node || !skv_jparse_push(p, &items, first)) return NULL;
    while (skv_jparse_skip_op(p, '~'))
        if (!skv_jparse_push(p, &items, parse_product(p))) return NULL;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_sum(skv_jparser *p)
{
    const skv_jnode *left = parse_concat(p);
    while (left && (skv_jtoken_is_op(&p->token, '+') || skv_jtoken_is_op(&p->token, '-'))) {
        unsigned op = p->token.op;
        if (!skv_jparse_advance(p)) return NULL;
        left = binary(p, SKV_JN_BINARY, op, left, parse_concat(p));
    }
    return p->status == SKV_OK ? left : NULL;
}

/* The comparison at the current token, taken; 0 when there is none. */
static unsigned comparison(skv_jparser *p)
{
    static const unsigned ops[] = {
        SKV_JOP('=', '='), SKV_JOP('!', '='), SKV_JOP('<', '='), SKV_JOP('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (skv_jparse_skip_op(p, ops[i])) return ops[i];
    if (skv_jparse_skip_name(p, "in")) return 'i';
    if (!skv_jtoken_is_name(&p->token, "not")) return 0;
    const skv_jtoken *next = skv_jparse_peek(p);
    if (!next || !skv_jtoken_is_name(next, "in")) return 0;
    return skv_jparse_advance(p) && skv_jparse_advance(p) ? 'n' : 0;
}

static const skv_jnode *parse_compare(skv_jparser *p)
{
    const skv_jnode *first = parse_sum(p);
    skv_jnodes items = {0};
    unsigned op;
    while (first && p->status == SKV_OK && (op = comparison(p)) != 0) {
        skv_jnode *operand = skv_jparse_node(p, SKV_JN_OPERAND, p->token.line);
        if (!operand) return NULL;
        operand->op = (uint16_t)op;
        operand->a = parse_sum(p);
        if (!skv_jparse_push(p, &items, skv_jparse_done(p, operand))) return NULL;
    }
    if (p->status != SKV_OK || !items.n) return p->status == SKV_OK ? first : NULL;
    skv_jnode *node = skv_jparse_node(p, SKV_JN_COMPARE, first->line);
    if (!node) return NULL;
    node->a = first;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_not(skv_jparser *p)
{
    if (!skv_jtoken_is_name(&p->token, "not")) return parse_compare(p);
    skv_jnode *node = skv_jparse_node(p, SKV_JN_NOT, p->token.line);
    if (!node || !skv_jparse_enter(p)) return NULL;
    if (skv_jparse_advance(p)) node->a = parse_not(p);
    skv_jparse_leave(p);
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_and(skv_jparser *p)
{
    const skv_jnode *left = parse_not(p);
    while (left && skv_jparse_skip_name(p, "and"))
        left = binary(p, SKV_JN_AND, 0, left, parse_not(p));
    return p->status == SKV_OK ? left : NULL;
}

static const skv_jnode *parse_or(skv_jparser *p)
{
    const skv_jnode *left = parse_and(p);
    while (left && skv_jparse_skip_name(p, "or"))
        left = binary(p, SKV_JN_OR, 0, left, parse_and(p));
    return p->status == SKV_OK ? left : NULL;
}

static const skv_jnode *parse_conditional(skv_jparser *p)
{
    skv_junknown *unknown = p->unknown;
    const skv_jnode *value = parse_or(p);
    while (value && skv_jparse_skip_name(p, "if")) {
        skv_jnode *node = skv_jparse_node(p, SKV_JN_COND, value->line);
        if (!node) return NULL;
        node->b = value;
        node->a = parse_or(p);
        if (node->a && skv_jparse_skip_name(p, "else")) {
            if (!skv_jparse_enter(p)) return NULL;
            node->c = parse_conditional(p);
            skv_jparse_leave(p);
        }
        value = skv_jparse_done(p, node);
        /* Inside of a conditional an unknown filter is an error only when it is reached. */
        p->unknown = unknown;
    }
    return p->status == SKV_OK ? value : NULL;
}

const skv_jnode *skv_jparse_expression(skv_jparser *p, bool with_condition)
{
    if (!skv_jparse_enter(p)) return NULL;
    const skv_jnode *node = with_condition ? parse_conditional(p) : parse_or(p);
    skv_jparse_leave(p);
    return p->status == SKV_OK ? node : NULL;
}

static bool tuple_ends(const skv_jparser *p, const char *end)
{
    const skv_jtoken *t = &p->token;
    return t->kind == SKV_JT_PRINT_END || t->kind == SKV_JT_BLOCK_END || skv_jtoken_is_op(t, ')') ||
           (end && skv_jtoken_is_name(t, end));
}

const skv_jnode *skv_jparse_tuple(skv_jparser *p, bool with_condition, bool parentheses,
                                  const char *end)
{
    unsigned line = p->token.line;
    skv_jnodes items = {0};
    bool is_tuple = false;
    for (;;) {
        if (tuple_ends(p, end)) break;
        if (!skv_jparse_push(p, &items, skv_jparse_expression(p, with_condition))) return NULL;
        if (!skv_jparse_skip_op(p, ',')) break;
        is_tuple = true;
    }
    if (p->status != SKV_OK) return NULL;
    if (!is_tuple && items.n) return items.items[0];
    if (!is_tuple && !parentheses) return skv_jparse_unexpected(p, "an expression");
    skv_jnode *node = skv_jparse_node(p, SKV_JN_TUPLE, line);
    if (!node) return NULL;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}
