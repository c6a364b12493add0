/* The parser's shared functions: tokens, nodes, and the names of scopes. */
#include "text/jinja/jinja_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

skv_jscope_build *skv_jscope_open(skv_jarena *arena, skv_jscope_build *parent)
{
    skv_jscope_build *scope = skv_jarena_take(arena, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

/* Records a mention; false without memory. */
static bool mention_name(skv_jarena *arena, skv_jscope_build *scope, uint32_t sym,
                         skv_jmention mention)
{
    if (sym >= scope->n_first) {
        size_t n = skv_max_size(32, 2 * (size_t)sym);
        uint8_t *first = skv_jarena_take(arena, n, 1);
        if (!first) return false;
        if (scope->n_first) memcpy(first, scope->first, scope->n_first);
        scope->first = first;
        scope->n_first = n;
    }
    if (mention == SKV_JM_STORE && scope->n_branches) mention = SKV_JM_STORE_MAYBE;
    if (scope->first[sym] == SKV_JM_NONE) scope->first[sym] = (uint8_t)mention;
    return true;
}

static bool known_outside(const skv_jscope_build *scope, size_t sym)
{
    for (scope = scope->parent; scope; scope = scope->parent)
        if (sym < scope->n_first && scope->first[sym] != SKV_JM_NONE) return true;
    return false;
}

bool skv_jscope_finish(skv_jarena *arena, const skv_jscope_build *scope)
{
    size_t n = 0;
    for (size_t sym = 0; sym < scope->n_first; sym++) n += scope->first[sym] == SKV_JM_STORE;
    if (!n) return true;
    uint32_t *unset = skv_jarena_take(arena, n, sizeof *unset);
    if (!unset) return false;
    n = 0;
    for (size_t sym = 0; sym < scope->n_first; sym++)
        if (scope->first[sym] == SKV_JM_STORE && !known_outside(scope, sym))
            unset[n++] = (uint32_t)sym;
    scope->info->unset = unset;
    scope->info->n_unset = n;
    return true;
}

enum { TOKEN_UNITS = 8 };

void *skv_jparse_fail(skv_jparser *p, unsigned line, const char *format, ...)
{
    if (p->status != SKV_OK) return NULL;
    char text[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->status = skv_fail(p->err, SKV_FORMAT, "%s: line %u: %s", p->lex.name, line, text);
    return NULL;
}

void *skv_jparse_no_memory(skv_jparser *p)
{
    if (p->status == SKV_OK) p->status = skv_budget_check(p->memory->budget, p->lex.name, p->err);
    if (p->status == SKV_OK) {
        p->status =
            skv_fail(p->err, SKV_MEMORY, "%s: line %u: no memory", p->lex.name, p->token.line);
    }
    return NULL;
}

void *skv_jparse_unexpected(skv_jparser *p, const char *wanted)
{
    const skv_jtoken *t = &p->token;
    char got[64] = "end of template";
    if (t->kind == SKV_JT_NAME || t->kind == SKV_JT_STRING)
        (void)snprintf(got, sizeof got, "'%.*s'", (int)(t->text.size < 40 ? t->text.size : 40),
                       t->text.data);
    else if (t->kind == SKV_JT_OPERATOR)
        (void)snprintf(got, sizeof got, "'%c%c'", (char)(t->op & 255),
                       t->op >> 8 ? (char)(t->op >> 8) : ' ');
    else if (t->kind == SKV_JT_INT || t->kind == SKV_JT_FLOAT)
        (void)snprintf(got, sizeof got, "a number");
    else if (t->kind != SKV_JT_END)
        (void)snprintf(got, sizeof got, "end of tag");
    return skv_jparse_fail(p, t->line, "expected %s, got %s", wanted, got);
}

bool skv_jparse_spend(skv_jparser *p, size_t n)
{
    return skv_budget_work(p->memory->budget, n) || skv_jparse_no_memory(p);
}

bool skv_jparse_advance(skv_jparser *p)
{
    if (p->status != SKV_OK) return false;
    if (!skv_jparse_spend(p, TOKEN_UNITS)) return false;
    if (p->has_ahead) {
        p->token = p->ahead;
        p->has_ahead = false;
        return true;
    }
    p->status = skv_jlex_next(&p->lex, &p->token, p->err);
    return p->status == SKV_OK;
}

const skv_jtoken *skv_jparse_peek(skv_jparser *p)
{
    if (!p->has_ahead) {
        p->status = skv_jlex_next(&p->lex, &p->ahead, p->err);
        p->has_ahead = p->status == SKV_OK;
    }
    return p->has_ahead ? &p->ahead : NULL;
}

skv_jnode *skv_jparse_node(skv_jparser *p, skv_jnode_kind kind, unsigned line)
{
    skv_jnode *node = skv_jarena_take(p->memory, 1, sizeof *node);
    if (!node) return skv_jparse_no_memory(p);
    node->kind = (uint8_t)kind;
    node->line = line;
    return node;
}

static void deepen(skv_jnode *node, const skv_jnode *child)
{
    if (child && child->depth >= node->depth) node->depth = (uint16_t)(child->depth + 1);
}

const skv_jnode *skv_jparse_done(skv_jparser *p, skv_jnode *node)
{
    if (!node || p->status != SKV_OK) return NULL;
    node->depth = 1;
    deepen(node, node->a);
    deepen(node, node->b);
    deepen(node, node->c);
    for (size_t i = 0; i < node->n_items; i++) deepen(node, node->items[i]);
    for (size_t i = 0; i < node->n_more; i++) deepen(node, node->more[i]);
    if (node->args) {
        for (size_t i = 0; i < node->args->n_items; i++) deepen(node, node->args->items[i]);
        for (size_t i = 0; i < node->args->n_keywords; i++)
            deepen(node, node->args->keywords[i].value);
        deepen(node, node->args->star);
        deepen(node, node->args->double_star);
    }
    if (node->depth > SKV_JTREE_DEPTH_MAX)
        return skv_jparse_fail(p, node->line, "nested more than %d deep", SKV_JTREE_DEPTH_MAX);
    return node;
}

bool skv_jparse_push(skv_jparser *p, skv_jnodes *nodes, const skv_jnode *node)
{
    if (p->status != SKV_OK) return false;
    if (nodes->n == nodes->capacity) {
        size_t capacity = nodes->capacity ? 2 * nodes->capacity : 4;
        const skv_jnode **items = skv_jarena_take(p->memory, capacity, sizeof(skv_jnode *));
        if (!items) return skv_jparse_no_memory(p);
        for (size_t i = 0; i < nodes->n; i++) items[i] = nodes->items[i];
        nodes->items = items;
        nodes->capacity = capacity;
    }
    nodes->items[nodes->n++] = node;
    return true;
}

const skv_jstr *skv_jparse_keep(skv_jparser *p, const skv_jstr *text)
{
    skv_jstr *kept = skv_jarena_take(p->memory, 1, sizeof *kept);
    if (!kept) return skv_jparse_no_memory(p);
    *kept = *text;
    kept->n_chars = skv_j_count_chars(text->data, text->size);
    return kept;
}

bool skv_jparse_symbol(skv_jparser *p, const skv_jstr *name, skv_jmention mention, uint32_t *sym)
{
    if (!name) return false;
    skv_jv key = {.kind = SKV_J_STRING, .as.s = name};
    uint64_t hash = skv_jdict_hash_text(name);
    const skv_jv *found = skv_jdict_find(p->scratch.budget, &p->symbols, key, hash);
    *sym = found ? (uint32_t)found->as.i : (uint32_t)p->symbols.n;
    if (!found) {
        if (p->symbols.n >= UINT16_MAX)
            return skv_jparse_fail(p, p->token.line, "more than %d names", UINT16_MAX);
        if (!skv_jdict_put(&p->scratch, &p->symbols, hash, key, skv_j_int(*sym)))
            return skv_jparse_no_memory(p);
    }
    if (mention != SKV_JM_NONE && !mention_name(&p->scratch, p->scope, *sym, mention))
        return skv_jparse_no_memory(p);
    return true;
}

bool skv_jparse_enter(skv_jparser *p)
{
    if (p->status != SKV_OK) return false;
    if (++p->depth > SKV_JPARSE_DEPTH_MAX)
        skv_jparse_fail(p, p->token.line, "nested more than %d deep", SKV_JPARSE_DEPTH_MAX);
    return p->status == SKV_OK;
}

void skv_jparse_leave(skv_jparser *p)
{
    p->depth--;
}

bool skv_jparse_skip_op(skv_jparser *p, unsigned op)
{
    return p->status == SKV_OK && skv_jtoken_is_op(&p->token, op) && skv_jparse_advance(p);
}

bool skv_jparse_skip_name(skv_jparser *p, const char *name)
{
    return p->status == SKV_OK && skv_jtoken_is_name(&p->token, name) && skv_jparse_advance(p);
}

bool skv_jparse_expect_op(skv_jparser *p, unsigned op)
{
    if (skv_jparse_skip_op(p, op)) return true;
    char wanted[] = {'\'', (char)op, '\'', 0};
    return skv_jparse_unexpected(p, wanted);
}

bool skv_jparse_expect_any_name(skv_jparser *p, skv_jstr *name)
{
    if (p->status != SKV_OK) return false;
    if (p->token.kind != SKV_JT_NAME) return skv_jparse_unexpected(p, "a name");
    *name = p->token.text;
    return skv_jparse_advance(p);
}
