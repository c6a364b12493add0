/* What both halves of the parser use: see jinja_parser.h. */
#include "text/jinja/jinja_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_dict.h"
#include "text/jinja/jinja_text.h"

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
    if (p->status != SKV_OK) return NULL;
    p->status =
        skv_fail(p->err, SKV_MEMORY, "%s: line %u: the parsed template needs over %zu bytes",
                 p->lex.name, p->token.line, p->memory->max);
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

bool skv_jparse_advance(skv_jparser *p)
{
    if (p->status != SKV_OK) return false;
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
        if (!items) return skv_jparse_no_memory(p) != NULL;
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
    const skv_jv *found = skv_jdict_find(&p->symbols, key, hash);
    *sym = found ? (uint32_t)found->as.i : (uint32_t)p->symbols.n;
    if (!found) {
        if (p->symbols.n >= UINT16_MAX)
            return skv_jparse_fail(p, p->token.line, "more than %d names", UINT16_MAX) != NULL;
        if (!skv_jdict_put(&p->scratch, &p->symbols, hash, key, skv_j_int(*sym)))
            return skv_jparse_no_memory(p) != NULL;
    }
    if (mention != SKV_JM_NONE && !skv_jscope_mention(&p->scratch, p->scope, *sym, mention))
        return skv_jparse_no_memory(p) != NULL;
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

bool skv_jtoken_is_name(const skv_jtoken *token, const char *name)
{
    return token->kind == SKV_JT_NAME && token->text.size == strlen(name) &&
           memcmp(token->text.data, name, token->text.size) == 0;
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
    return skv_jparse_unexpected(p, wanted) != NULL;
}

bool skv_jparse_expect_any_name(skv_jparser *p, skv_jstr *name)
{
    if (p->status != SKV_OK) return false;
    if (p->token.kind != SKV_JT_NAME) return skv_jparse_unexpected(p, "a name") != NULL;
    *name = p->token.text;
    return skv_jparse_advance(p);
}
