/* The state of the parser, shared by its two halves: statements and expressions. */
#ifndef SKV_TEXT_JINJA_PARSER_H
#define SKV_TEXT_JINJA_PARSER_H

#include "text/jinja/jinja_lex.h"
#include "text/jinja/jinja_scope.h"

enum {
    SKV_JPARSE_DEPTH_MAX = 150, /* nested tags and brackets: bounds the parser's own stack */
    SKV_JTREE_DEPTH_MAX = 1000, /* of the tree: bounds the stack of everything that walks it */
    SKV_JTEMPLATE_BYTES_MAX = 4 << 20
};

/* A list of nodes that is being collected. */
typedef struct skv_jnodes {
    const skv_jnode **items;
    size_t n, capacity;
} skv_jnodes;

/* An unknown filter or test; an error unless it turns out to stand in a conditional. */
typedef struct skv_junknown {
    const skv_jnode *node;
    struct skv_junknown *previous;
} skv_junknown;

typedef struct skv_jparser {
    skv_jlex lex;
    skv_jtoken token; /* the one to look at */
    skv_jtoken ahead; /* the one behind it, if `has_ahead` */
    bool has_ahead;
    skv_jarena *memory; /* the template's, borrowed */
    skv_jarena scratch; /* for what the finished template does not need */
    skv_jdict symbols;  /* name -> number */
    skv_jscope_build *scope, *scopes;
    skv_junknown *unknown;
    unsigned depth;
    unsigned n_loops; /* around this place, within the macro */
    skv_status status;
    skv_error *err;
} skv_jparser;

/* Every parse function returns NULL or false once p->status is not SKV_OK. */
void *skv_jparse_fail(skv_jparser *p, unsigned line, const char *format, ...) SKV_PRINTF(3, 4);
void *skv_jparse_no_memory(skv_jparser *p);
bool skv_jparse_advance(skv_jparser *p);
/** The token behind the current one, or NULL. */
const skv_jtoken *skv_jparse_peek(skv_jparser *p);

skv_jnode *skv_jparse_node(skv_jparser *p, skv_jnode_kind kind, unsigned line);
/** Called when the children of a node are in place; bounds the depth of the tree. */
const skv_jnode *skv_jparse_done(skv_jparser *p, skv_jnode *node);
bool skv_jparse_push(skv_jparser *p, skv_jnodes *nodes, const skv_jnode *node);
const skv_jstr *skv_jparse_keep(skv_jparser *p, const skv_jstr *text);
/** The number of a name; the mention is recorded unless it is SKV_JM_NONE. */
bool skv_jparse_symbol(skv_jparser *p, const skv_jstr *name, skv_jmention mention, uint32_t *sym);
bool skv_jparse_enter(skv_jparser *p);
void skv_jparse_leave(skv_jparser *p);

bool skv_jtoken_is_name(const skv_jtoken *token, const char *name);
static inline bool skv_jtoken_is_op(const skv_jtoken *token, unsigned op)
{
    return token->kind == SKV_JT_OPERATOR && token->op == op;
}
/** Takes the operator or name if it is there. */
bool skv_jparse_skip_op(skv_jparser *p, unsigned op);
bool skv_jparse_skip_name(skv_jparser *p, const char *name);
bool skv_jparse_expect_op(skv_jparser *p, unsigned op);
/** Takes a name; false with an error when there is none. */
bool skv_jparse_expect_any_name(skv_jparser *p, skv_jstr *name);

/* Expressions: jinja_parse_expr.c, jinja_parse_primary.c. */
const skv_jnode *skv_jparse_expression(skv_jparser *p, bool with_condition);
/** `a` or `a, b`; `end` is a name that ends the tuple, or NULL. */
const skv_jnode *skv_jparse_tuple(skv_jparser *p, bool with_condition, bool parentheses,
                                  const char *end);
const skv_jnode *skv_jparse_unary(skv_jparser *p, bool with_filters);
const skv_jnode *skv_jparse_filters(skv_jparser *p, const skv_jnode *value, bool start_inline);
/** jinja2's messages for what it meets: "end of template", "'name'" ... */
void *skv_jparse_unexpected(skv_jparser *p, const char *wanted);

#endif
