/*
 * Expressions. Operands first: literals, names, attributes, subscripts, calls, filters and tests;
 * then operators by precedence, from `a if b else c` down to `**`. One function parses the
 * operators of all levels, so that brackets in brackets take few frames.
 */
#include <string.h>

#include "base/fail.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_parser.h"

static const skv_jnode *parse_unary(skv_jparser *p, bool with_filters);

/* ---- operands ---- */

static skv_jnode *constant(skv_jparser *p, skv_jv value)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CONST, p->token.line);
    if (node) node->value = value;
    return node;
}

/* jinja2 gives `caller`, `kwargs` and `varargs` to the macros whose body mentions them. */
static void note_special_name(skv_jparser *p, const skv_jtoken *name)
{
    for (skv_jscope_build *s = p->scope; s; s = s->parent) {
        if (skv_jtoken_is_name(name, "caller")) s->info->uses_caller = true;
        if (skv_jtoken_is_name(name, "kwargs")) s->info->uses_kwargs = true;
        if (skv_jtoken_is_name(name, "varargs")) s->info->uses_varargs = true;
    }
}

SKV_OWN_FRAME static const skv_jnode *parse_name(skv_jparser *p)
{
    const skv_jtoken *t = &p->token;
    skv_jnode *node;
    if (skv_jtoken_is_name(t, "true") || skv_jtoken_is_name(t, "True")) {
        node = constant(p, skv_j_bool(true));
    } else if (skv_jtoken_is_name(t, "false") || skv_jtoken_is_name(t, "False")) {
        node = constant(p, skv_j_bool(false));
    } else if (skv_jtoken_is_name(t, "none") || skv_jtoken_is_name(t, "None")) {
        node = constant(p, skv_j_none());
    } else {
        node = skv_jparse_node(p, SKV_JN_NAME, t->line);
        if (!node) return NULL;
        note_special_name(p, t);
        node->name = skv_jparse_keep(p, &t->text);
        if (!skv_jparse_symbol(p, node->name, SKV_JM_LOAD, &node->sym)) return NULL;
    }
    return skv_jparse_advance(p) ? skv_jparse_done(p, node) : NULL;
}

/* Adjacent strings are one. */
SKV_OWN_FRAME static const skv_jnode *parse_string(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CONST, p->token.line);
    skv_jstr text = p->token.text;
    if (!node || !skv_jparse_advance(p)) return NULL;
    while (p->token.kind == SKV_JT_STRING) {
        const skv_jstr *next = &p->token.text;
        char *joined = skv_jarena_take(p->memory, text.size + next->size, 1);
        if (!joined) return skv_jparse_no_memory(p);
        if (text.size) memcpy(joined, text.data, text.size);
        if (next->size) memcpy(joined + text.size, next->data, next->size);
        text = (skv_jstr){.data = joined, .size = text.size + next->size};
        if (!skv_jparse_advance(p)) return NULL;
    }
    node->value = (skv_jv){.kind = SKV_J_STRING, .as.s = skv_jparse_keep(p, &text)};
    return skv_jparse_done(p, node);
}

SKV_OWN_FRAME static const skv_jnode *parse_list(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_LIST, p->token.line);
    skv_jnodes items = {0};
    if (!node || !skv_jparse_advance(p)) return NULL;
    while (!skv_jtoken_is_op(&p->token, ']')) {
        if (!skv_jparse_push(p, &items, skv_jparse_expression(p, true))) return NULL;
        if (!skv_jparse_skip_op(p, ',')) break;
    }
    if (!skv_jparse_expect_op(p, ']')) return NULL;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

SKV_OWN_FRAME static const skv_jnode *parse_dict(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_DICT, p->token.line);
    skv_jnodes items = {0};
    if (!node || !skv_jparse_advance(p)) return NULL;
    while (!skv_jtoken_is_op(&p->token, '}')) {
        if (!skv_jparse_push(p, &items, skv_jparse_expression(p, true))) return NULL;
        if (!skv_jparse_expect_op(p, ':')) return NULL;
        if (!skv_jparse_push(p, &items, skv_jparse_expression(p, true))) return NULL;
        if (!skv_jparse_skip_op(p, ',')) break;
    }
    if (!skv_jparse_expect_op(p, '}')) return NULL;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_primary(skv_jparser *p)
{
    const skv_jtoken *t = &p->token;
    skv_jnode *node;
    switch (t->kind) {
    case SKV_JT_NAME: return parse_name(p);
    case SKV_JT_STRING: return parse_string(p);
    case SKV_JT_INT:
    case SKV_JT_FLOAT:
        node = constant(p, t->kind == SKV_JT_INT ? skv_j_int(t->i) : skv_j_float(t->f));
        return skv_jparse_advance(p) ? skv_jparse_done(p, node) : NULL;
    default: break;
    }
    if (skv_jtoken_is_op(t, '[')) return parse_list(p);
    if (skv_jtoken_is_op(t, '{')) return parse_dict(p);
    if (!skv_jparse_skip_op(p, '(')) return skv_jparse_unexpected(p, "an expression");
    const skv_jnode *inner = skv_jparse_tuple(p, true, true, NULL);
    return inner && skv_jparse_expect_op(p, ')') ? inner : NULL;
}

/* One more keyword argument; the array doubles when the count is a power of two. */
static bool push_keyword(skv_jparser *p, skv_jargs *args, skv_jkeyword keyword)
{
    size_t n = args->n_keywords;
    if ((n & (n - 1)) == 0) {
        skv_jkeyword *grown = skv_jarena_take(p->memory, n ? 2 * n : 1, sizeof *grown);
        if (!grown) return skv_jparse_no_memory(p);
        if (n) memcpy(grown, args->keywords, n * sizeof *grown);
        args->keywords = grown;
    }
    args->keywords[args->n_keywords++] = keyword;
    return true;
}

SKV_OWN_FRAME static bool parse_keyword(skv_jparser *p, skv_jargs *args)
{
    skv_jkeyword keyword = {.name = skv_jparse_keep(p, &p->token.text)};
    if (!keyword.name || !skv_jparse_advance(p) || !skv_jparse_advance(p)) return false;
    if (!skv_jparse_spend(p, args->n_keywords)) return false;
    for (size_t i = 0; i < args->n_keywords; i++) {
        const skv_jstr *other = args->keywords[i].name;
        if (other->size == keyword.name->size &&
            memcmp(other->data, keyword.name->data, other->size) == 0)
            return skv_jparse_fail(p, p->token.line, "keyword argument '%.*s' is repeated",
                                   (int)(other->size < 40 ? other->size : 40), other->data);
    }
    keyword.value = skv_jparse_expression(p, true);
    return keyword.value && push_keyword(p, args, keyword);
}

static bool parse_argument(skv_jparser *p, skv_jargs *args, skv_jnodes *items)
{
    const char *order = "arguments of a call in an invalid order";
    if (skv_jtoken_is_op(&p->token, '*') || skv_jtoken_is_op(&p->token, SKV_JOP('*', '*'))) {
        bool twice = p->token.op != '*';
        if (args->double_star || (!twice && args->star))
            return skv_jparse_fail(p, p->token.line, "%s", order);
        if (!skv_jparse_advance(p)) return false;
        const skv_jnode *value = skv_jparse_expression(p, true);
        if (twice) args->double_star = value;
        if (!twice) args->star = value;
        return value;
    }
    if (p->token.kind == SKV_JT_NAME) {
        const skv_jtoken *next = skv_jparse_peek(p);
        if (!next) return false;
        if (skv_jtoken_is_op(next, '=') && args->double_star)
            return skv_jparse_fail(p, p->token.line, "%s", order);
        if (skv_jtoken_is_op(next, '=')) return parse_keyword(p, args);
    }
    if (args->star || args->double_star || args->n_keywords)
        return skv_jparse_fail(p, p->token.line, "%s", order);
    return skv_jparse_push(p, items, skv_jparse_expression(p, true));
}

/* "(" ... ")" at the current token. */
SKV_OWN_FRAME static const skv_jargs *parse_arguments(skv_jparser *p)
{
    skv_jargs *args = skv_jarena_take(p->memory, 1, sizeof *args);
    if (!args) return skv_jparse_no_memory(p);
    skv_jnodes items = {0};
    if (!skv_jparse_expect_op(p, '(')) return NULL;
    while (!skv_jtoken_is_op(&p->token, ')')) {
        if (!parse_argument(p, args, &items)) return NULL;
        if (!skv_jparse_skip_op(p, ',')) break;
    }
    if (!skv_jparse_expect_op(p, ')')) return NULL;
    args->items = items.items;
    args->n_items = items.n;
    return args;
}

SKV_OWN_FRAME static const skv_jnode *parse_call(skv_jparser *p, const skv_jnode *function)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CALL, p->token.line);
    if (!node) return NULL;
    node->a = function;
    node->args = parse_arguments(p);
    return skv_jparse_done(p, node);
}

SKV_OWN_FRAME static const skv_jnode *parse_attribute(skv_jparser *p, const skv_jnode *object)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_GETATTR, p->token.line);
    if (!node || !skv_jparse_advance(p)) return NULL;
    node->a = object;
    if (p->token.kind == SKV_JT_NAME) {
        const skv_jstr *name = skv_jparse_keep(p, &p->token.text);
        node->value = (skv_jv){.kind = SKV_J_STRING, .as.s = name};
    } else if (p->token.kind == SKV_JT_INT) {
        node->kind = SKV_JN_GETITEM;
        node->b = skv_jparse_done(p, constant(p, skv_j_int(p->token.i)));
    } else {
        return skv_jparse_unexpected(p, "a name or number");
    }
    return skv_jparse_advance(p) ? skv_jparse_done(p, node) : NULL;
}

static bool slice_part_ends(const skv_jparser *p)
{
    const skv_jtoken *t = &p->token;
    return skv_jtoken_is_op(t, ':') || skv_jtoken_is_op(t, ']') || skv_jtoken_is_op(t, ',');
}

/* The parts between one pair of commas: a key alone, or up to three parts of a slice. */
static bool parse_subscript_parts(skv_jparser *p, skv_jnodes *parts, size_t *n_colons)
{
    do {
        const skv_jnode *part = NULL;
        if (!slice_part_ends(p) && !(part = skv_jparse_expression(p, true))) return false;
        if (!skv_jparse_push(p, parts, part)) return false;
    } while (*n_colons < 2 && skv_jparse_skip_op(p, ':') && ++*n_colons);
    return p->status == SKV_OK;
}

/* Parses the keys after the first of several: together they make one tuple, as does no key at
 * all. */
SKV_OWN_FRAME static const skv_jnode *parse_tuple_key(skv_jparser *p, const skv_jnode *first)
{
    skv_jnode *key = skv_jparse_node(p, SKV_JN_TUPLE, p->token.line);
    skv_jnodes items = {0};
    if (!key || (first && !skv_jparse_push(p, &items, first))) return NULL;
    while (first && skv_jparse_skip_op(p, ','))
        if (!skv_jparse_push(p, &items, skv_jparse_expression(p, true))) return NULL;
    if (skv_jtoken_is_op(&p->token, ':'))
        return skv_jparse_fail(p, p->token.line, "slices among several keys are not supported");
    key->items = items.items;
    key->n_items = items.n;
    return skv_jparse_done(p, key);
}

/* "[key]", "[key, key]" or "[start:stop:step]". */
SKV_OWN_FRAME static const skv_jnode *parse_subscript(skv_jparser *p, const skv_jnode *object)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_GETITEM, p->token.line);
    if (!node || !skv_jparse_advance(p)) return NULL;
    node->a = object;
    skv_jnodes parts = {0};
    size_t n_colons = 0;
    if (!parse_subscript_parts(p, &parts, &n_colons)) return NULL;
    if (!n_colons) {
        node->b = parts.items[0];
        bool many = !node->b || skv_jtoken_is_op(&p->token, ',');
        if (many && !(node->b = parse_tuple_key(p, node->b))) return NULL;
    } else if (skv_jtoken_is_op(&p->token, ',')) {
        return skv_jparse_fail(p, p->token.line, "slices among several keys are not supported");
    }
    while (n_colons && parts.n < 3)
        if (!skv_jparse_push(p, &parts, NULL)) return NULL;
    if (!skv_jparse_expect_op(p, ']')) return NULL;
    if (!n_colons) return skv_jparse_done(p, node);
    node->kind = SKV_JN_SLICE;
    node->items = parts.items;
    node->n_items = 3;
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_postfix(skv_jparser *p, const skv_jnode *node)
{
    while (node && p->status == SKV_OK) {
        if (skv_jtoken_is_op(&p->token, '.')) {
            node = parse_attribute(p, node);
        } else if (skv_jtoken_is_op(&p->token, '[')) {
            node = parse_subscript(p, node);
        } else if (skv_jtoken_is_op(&p->token, '(')) {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    return p->status == SKV_OK ? node : NULL;
}

/* Filter and test names may have dots, which none of the built-in ones has. */
static bool parse_dotted(skv_jparser *p, skv_jnode *node)
{
    skv_jstr name;
    if (!skv_jparse_expect_any_name(p, &name)) return false;
    if (skv_jtoken_is_op(&p->token, '.'))
        return skv_jparse_fail(p, p->token.line, "names with dots are not supported");
    node->name = skv_jparse_keep(p, &name);
    return node->name;
}

static bool note_unknown(skv_jparser *p, const skv_jnode *node)
{
    if (p->scope->n_branches) return true;
    skv_junknown *unknown = skv_jarena_take(&p->scratch, 1, sizeof *unknown);
    if (!unknown) return skv_jparse_no_memory(p);
    *unknown = (skv_junknown){.node = node, .previous = p->unknown};
    p->unknown = unknown;
    return true;
}

const skv_jnode *skv_jparse_filters(skv_jparser *p, const skv_jnode *value, bool start_inline)
{
    while (p->status == SKV_OK && (start_inline || skv_jtoken_is_op(&p->token, '|'))) {
        if (!start_inline && !skv_jparse_advance(p)) return NULL;
        skv_jnode *node = skv_jparse_node(p, SKV_JN_FILTER, p->token.line);
        if (!node || !parse_dotted(p, node)) return NULL;
        node->a = value;
        if (!skv_jfilter_find(node->name) && !note_unknown(p, node)) return NULL;
        if (skv_jtoken_is_op(&p->token, '(') && !(node->args = parse_arguments(p))) return NULL;
        value = skv_jparse_done(p, node);
        start_inline = false;
    }
    return p->status == SKV_OK ? value : NULL;
}

/* A test may take one operand without parentheses: `x is divisibleby 3`. */
static bool bare_operand_follows(skv_jparser *p)
{
    const skv_jtoken *t = &p->token;
    if (t->kind == SKV_JT_STRING || t->kind == SKV_JT_INT || t->kind == SKV_JT_FLOAT) return true;
    if (skv_jtoken_is_op(t, '[') || skv_jtoken_is_op(t, '{')) return true;
    return t->kind == SKV_JT_NAME && !skv_jtoken_is_name(t, "else") &&
           !skv_jtoken_is_name(t, "or") && !skv_jtoken_is_name(t, "and");
}

SKV_OWN_FRAME static const skv_jargs *bare_operand(skv_jparser *p)
{
    if (skv_jtoken_is_name(&p->token, "is"))
        return skv_jparse_fail(p, p->token.line, "You cannot chain multiple tests with is");
    skv_jargs *args = skv_jarena_take(p->memory, 1, sizeof *args);
    if (!args) return skv_jparse_no_memory(p);
    skv_jnodes items = {0};
    if (!skv_jparse_push(p, &items, parse_postfix(p, parse_primary(p)))) return NULL;
    args->items = items.items;
    args->n_items = 1;
    return args;
}

SKV_OWN_FRAME static const skv_jnode *parse_test(skv_jparser *p, const skv_jnode *value)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_TEST, p->token.line);
    if (!node || !skv_jparse_advance(p)) return NULL;
    bool negated = skv_jparse_skip_name(p, "not");
    node->a = value;
    if (!parse_dotted(p, node)) return NULL;
    if (!skv_jtest_find(node->name) && !note_unknown(p, node)) return NULL;
    if (skv_jtoken_is_op(&p->token, '(')) {
        node->args = parse_arguments(p);
    } else if (bare_operand_follows(p)) {
        node->args = bare_operand(p);
    }
    const skv_jnode *test = skv_jparse_done(p, node);
    if (!negated || !test) return test;
    skv_jnode *not_node = skv_jparse_node(p, SKV_JN_NOT, node->line);
    if (not_node) not_node->a = test;
    return skv_jparse_done(p, not_node);
}

static const skv_jnode *parse_filter_chain(skv_jparser *p, const skv_jnode *node)
{
    while (node && p->status == SKV_OK) {
        if (skv_jtoken_is_op(&p->token, '|')) {
            node = skv_jparse_filters(p, node, false);
        } else if (skv_jtoken_is_name(&p->token, "is")) {
            node = parse_test(p, node);
        } else if (skv_jtoken_is_op(&p->token, '(')) {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    return p->status == SKV_OK ? node : NULL;
}

SKV_OWN_FRAME static const skv_jnode *parse_sign(skv_jparser *p)
{
    skv_jnode_kind kind = p->token.op == '-' ? SKV_JN_NEGATIVE : SKV_JN_POSITIVE;
    skv_jnode *node = skv_jparse_node(p, kind, p->token.line);
    if (!node || !skv_jparse_enter(p)) return NULL;
    if (skv_jparse_advance(p)) node->a = parse_unary(p, false);
    skv_jparse_leave(p);
    return skv_jparse_done(p, node);
}

/* jinja2 applies subscripts and filters after a sign to the negated value: -x|abs. */
static const skv_jnode *parse_unary(skv_jparser *p, bool with_filters)
{
    bool sign = skv_jtoken_is_op(&p->token, '-') || skv_jtoken_is_op(&p->token, '+');
    const skv_jnode *node = parse_postfix(p, sign ? parse_sign(p) : parse_primary(p));
    if (with_filters) node = parse_filter_chain(p, node);
    return p->status == SKV_OK ? node : NULL;
}

/* ---- operators ---- */

/* Binding strength of operators. `not` precedes its operand; the others follow their first. */
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

/* Parses a chain of comparisons, first `op` b < c ..., after that operator, into one node. */
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
    const skv_jnode *left = negated ? parse_not(p) : parse_unary(p, true);
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
