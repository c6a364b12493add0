/* The parser's shared declarations: tokens, the names of scopes, and its state. */
#ifndef SKV_TEXT_JINJA_PARSER_H
#define SKV_TEXT_JINJA_PARSER_H

#include "base/fail.h"
#include "text/jinja/jinja_ast.h"

/*
 * Tokens of a Jinja template, with the whitespace rules of jinja2's trim_blocks and
 * lstrip_blocks. The source is valid UTF-8 with "\n" as its only line break (skv_jlex_init
 * makes it so).
 */

typedef enum skv_jtoken_kind {
    SKV_JT_END,
    SKV_JT_DATA,
    SKV_JT_BLOCK_BEGIN,
    SKV_JT_BLOCK_END,
    SKV_JT_PRINT_BEGIN,
    SKV_JT_PRINT_END,
    SKV_JT_NAME,
    SKV_JT_STRING,
    SKV_JT_INT,
    SKV_JT_FLOAT,
    SKV_JT_OPERATOR
} skv_jtoken_kind;

typedef struct skv_jtoken {
    skv_jtoken_kind kind;
    unsigned line; /* from 1 */
    unsigned op;   /* of an operator */
    skv_jstr text; /* data, a name, or a string with its escapes resolved */
    int64_t i;
    double f;
} skv_jtoken;

typedef struct skv_jlex {
    const char *text; /* normalised source, in the arena */
    size_t size, at;
    unsigned line;
    skv_jtoken_kind mode;    /* DATA outside of tags, else the tag's begin token */
    skv_jtoken_kind pending; /* a begin token that follows the data, or END */
    size_t pending_end;      /* where the text after it starts */
    unsigned n_open;         /* open brackets in this tag */
    char open[64];           /* their closing brackets */
    const char *name;        /* of the template, for messages */
    skv_jarena *arena;       /* borrowed: strings go there */
} skv_jlex;

SKV_MUST_CHECK skv_status skv_jlex_init(skv_jlex *lex, const char *source, size_t n,
                                        skv_error *err);
SKV_MUST_CHECK skv_status skv_jlex_next(skv_jlex *lex, skv_jtoken *token, skv_error *err);
/** The number at lex->at, which is a digit. */
SKV_MUST_CHECK skv_status skv_jlex_number(skv_jlex *lex, skv_jtoken *token, skv_error *err);
/** The string at lex->at, which is a quote; escapes are resolved as Python does. */
SKV_MUST_CHECK skv_status skv_jlex_string(skv_jlex *lex, skv_jtoken *token, skv_error *err);

/*
 * The names that a scope hides from the start.
 *
 * jinja2 decides while compiling where a name is read from. Nearly always that equals looking
 * through the scopes from the inside out while rendering, which is what the interpreter does. The
 * exception: a name whose first mention in a scope is an unconditional `set`, and that no outer
 * scope mentions, belongs to this scope from its very start; a loop or macro inside that reads it
 * before the `set` ran sees it undefined, even if the caller passed a variable of that name. The
 * parser reports every mention here, and skv_jscope_finish lists those names.
 */

typedef enum skv_jmention {
    SKV_JM_NONE,
    SKV_JM_LOAD,
    SKV_JM_STORE,       /* a `set` that always runs */
    SKV_JM_STORE_MAYBE, /* one inside of an `if` */
    SKV_JM_PARAM
} skv_jmention;

typedef struct skv_jscope_build {
    struct skv_jscope_build *parent;
    struct skv_jscope_build *next; /* all scopes of the template */
    uint8_t *first;                /* [n_first] skv_jmention of each name */
    size_t n_first;
    size_t n_branches;     /* `if`s around the place being parsed, within this scope */
    skv_jscope_info *info; /* borrowed from the template; the parser sets it */
} skv_jscope_build;

/** A new scope inside `parent` (or NULL); NULL without memory. */
skv_jscope_build *skv_jscope_open(skv_jarena *arena, skv_jscope_build *parent);
/** Fills `unset` of this scope's info, when the whole template is parsed. */
bool skv_jscope_finish(skv_jarena *arena, const skv_jscope_build *scope);

/* The state of the parser. */
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

/* An unknown filter or test; an error unless it is inside a conditional. */
typedef struct skv_junknown {
    const skv_jnode *node;
    struct skv_junknown *previous;
} skv_junknown;

typedef struct skv_jparser {
    skv_jlex lex;
    skv_jtoken token; /* the one to look at */
    skv_jtoken ahead; /* the next one, if `has_ahead` */
    bool has_ahead;
    skv_jarena *memory; /* the template's, borrowed */
    skv_jarena scratch; /* for data that the finished template does not need */
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
/** Returns the token after the current one, or NULL. */
const skv_jtoken *skv_jparse_peek(skv_jparser *p);

skv_jnode *skv_jparse_node(skv_jparser *p, skv_jnode_kind kind, unsigned line);
/** Called when the children of a node are in place; bounds the depth of the tree. */
const skv_jnode *skv_jparse_done(skv_jparser *p, skv_jnode *node);
bool skv_jparse_push(skv_jparser *p, skv_jnodes *nodes, const skv_jnode *node);
const skv_jstr *skv_jparse_keep(skv_jparser *p, const skv_jstr *text);
/** The number of a name; the mention is recorded unless it is SKV_JM_NONE. */
bool skv_jparse_symbol(skv_jparser *p, const skv_jstr *name, skv_jmention mention, uint32_t *sym);
/** Counts n units of work. */
bool skv_jparse_spend(skv_jparser *p, size_t n);
bool skv_jparse_enter(skv_jparser *p);
void skv_jparse_leave(skv_jparser *p);

static inline bool skv_jtoken_is_name(const skv_jtoken *token, const char *name)
{
    return token->kind == SKV_JT_NAME && skv_jstr_is(&token->text, name);
}

static inline bool skv_jtoken_is_op(const skv_jtoken *token, unsigned op)
{
    return token->kind == SKV_JT_OPERATOR && token->op == op;
}

/** Consumes the operator or name if it is next. */
bool skv_jparse_skip_op(skv_jparser *p, unsigned op);
bool skv_jparse_skip_name(skv_jparser *p, const char *name);
bool skv_jparse_expect_op(skv_jparser *p, unsigned op);
/** Takes a name; false with an error when there is none. */
bool skv_jparse_expect_any_name(skv_jparser *p, skv_jstr *name);

/* Expressions: jinja_parse_expr.c. */
const skv_jnode *skv_jparse_expression(skv_jparser *p, bool with_condition);
/** `a` or `a, b`; `end` is a name that ends the tuple, or NULL. */
const skv_jnode *skv_jparse_tuple(skv_jparser *p, bool with_condition, bool parentheses,
                                  const char *end);
const skv_jnode *skv_jparse_filters(skv_jparser *p, const skv_jnode *value, bool start_inline);
/** Fails with jinja2's description of the current token: "end of template", "'name'" ... */
void *skv_jparse_unexpected(skv_jparser *p, const char *wanted);

#endif
