/*
 * Expressions by precedence, from `a if b else c` down to `**`. One function parses the operators
 * of all levels, so that brackets in brackets take few frames.
 */
#include "base/fail.h"
#include "text/jinja/jinja_parser.h"

/* How tight an operator binds. `not` stands before its operand, the others behind their first. */
enum { AT_NONE, AT_OR, AT_AND, AT_NOT, AT_COMPARISON, AT_SUM, AT_CONCAT, AT_PRODUCT, AT_POWER };

static const skv_jnode *parse_operation(skv_jparser *p, unsigned lowest);

static unsigned level_of(const skv_jtoken *t)
{
    if (t->kind == SKV_JT_NAME) {
        if (skv_jtoken_is_name(t, "or")) return AT_OR;
        return skv_jtoken_is_name(t, "and") ? AT_AND : AT_NONE;
    }
    if (t->kind != SKV_JT_OPERATOR) return AT_NONE;
    switch (t->op) {
    case '+':
    case '-': return AT_SUM;
    case '~': return AT_CONCAT;
    case '*':
    case '/':
    case '%':
    case SKV_JOP('/', '/'): return AT_PRODUCT;
    case SKV_JOP('*', '*'): return AT_POWER;
    default: return AT_NONE;
    }
}

/* a ~ b ~ c is one node. */
SKV_OWN_FRAME static const skv_jnode *parse_concat(skv_jparser *p, const skv_jnode *first)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CONCAT, first->line);
    skv_jnodes items = {0};
    if (!node || !skv_jparse_push(p, &items, first)) return NULL;
    while (skv_jparse_skip_op(p, '~'))
        if (!skv_jparse_push(p, &items, parse_operation(p, AT_CONCAT + 1))) return NULL;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
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

/* first `op` b < c ..., behind that operator, is one node. */
SKV_OWN_FRAME static const skv_jnode *parse_compare(skv_jparser *p, const skv_jnode *first,
                                                    unsigned op)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_COMPARE, first->line);
    skv_jnodes items = {0};
    for (; node && op && p->status == SKV_OK; op = comparison(p)) {
        skv_jnode *operand = skv_jparse_node(p, SKV_JN_OPERAND, p->token.line);
        if (!operand) return NULL;
        operand->op = (uint16_t)op;
        operand->a = parse_operation(p, AT_COMPARISON + 1);
        if (!skv_jparse_push(p, &items, skv_jparse_done(p, operand))) return NULL;
    }
    if (!node) return NULL;
    node->a = first;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

SKV_OWN_FRAME static const skv_jnode *parse_not(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_NOT, p->token.line);
    if (node && skv_jparse_advance(p)) node->a = parse_operation(p, AT_NOT);
    return skv_jparse_done(p, node);
}

/* left `op` right, at the operator. */
SKV_OWN_FRAME static const skv_jnode *parse_right(skv_jparser *p, const skv_jnode *left,
                                                  unsigned level)
{
    bool logical = level == AT_OR || level == AT_AND;
    unsigned op = logical ? 0 : p->token.op;
    skv_jnode_kind kind = SKV_JN_BINARY;
    if (logical) kind = level == AT_OR ? SKV_JN_OR : SKV_JN_AND;
    if (!skv_jparse_advance(p)) return NULL;
    const skv_jnode *right = parse_operation(p, level + 1);
    if (!right) return NULL;
    skv_jnode *node = skv_jparse_node(p, kind, left->line);
    if (!node) return NULL;
    node->op = (uint16_t)op;
    node->a = left;
    node->b = right;
    return skv_jparse_done(p, node);
}

/* Operations of this level and those that bind tighter. */
static const skv_jnode *parse_operation(skv_jparser *p, unsigned lowest)
{
    if (!skv_jparse_enter(p)) return NULL;
    bool negated = lowest <= AT_NOT && skv_jtoken_is_name(&p->token, "not");
    const skv_jnode *left = negated ? parse_not(p) : skv_jparse_unary(p, true);
    while (left && p->status == SKV_OK) {
        unsigned level = level_of(&p->token), op = 0;
        if (level == AT_NONE && lowest <= AT_COMPARISON && (op = comparison(p)) != 0)
            left = parse_compare(p, left, op);
        else if (level == AT_NONE || level < lowest)
            break;
        else
            left = level == AT_CONCAT ? parse_concat(p, left) : parse_right(p, left, level);
    }
    skv_jparse_leave(p);
    return p->status == SKV_OK ? left : NULL;
}

static const skv_jnode *parse_conditional(skv_jparser *p)
{
    skv_junknown *unknown = p->unknown;
    const skv_jnode *value = parse_operation(p, AT_OR);
    while (value && skv_jparse_skip_name(p, "if")) {
        skv_jnode *node = skv_jparse_node(p, SKV_JN_COND, value->line);
        if (!node) return NULL;
        node->b = value;
        node->a = parse_operation(p, AT_OR);
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
    return with_condition ? parse_conditional(p) : parse_operation(p, AT_OR);
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
