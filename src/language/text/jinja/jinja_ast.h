/*
 * The syntax tree of a template. One node type serves statements and expressions; the kinds below
 * document their members. Nodes are made by the parser and never change afterwards, so threads can
 * share a tree.
 */
#ifndef SKV_TEXT_JINJA_AST_H
#define SKV_TEXT_JINJA_AST_H

#include "base/fail.h"
#include "text/jinja/jinja_value.h"

typedef enum skv_jnode_kind {
    /* Statements. A body is `items`. */
    SKV_JN_TEXT,         /* value */
    SKV_JN_PRINT,        /* items: expressions to print */
    SKV_JN_IF,           /* a: test; items; more: else body (an elif is an IF in there) */
    SKV_JN_FOR,          /* a: target; b: iterable; c: filter or NULL; items; more: else body */
    SKV_JN_SET,          /* a: target; b: value */
    SKV_JN_SET_BLOCK,    /* a: target; b: filter or NULL; items */
    SKV_JN_FILTER_BLOCK, /* b: filter; items */
    SKV_JN_MACRO,        /* sym; args; items */
    SKV_JN_CALL_BLOCK,   /* a: the call, NULL for `generation`; args; items */
    SKV_JN_WITH,         /* more: SETs whose values belong to the outer scope; items */
    SKV_JN_BREAK,
    SKV_JN_CONTINUE,
    /* Expressions. */
    SKV_JN_CONST,    /* value */
    SKV_JN_NAME,     /* sym, name */
    SKV_JN_NSREF,    /* sym, name; value: the attribute; a target of `set` only */
    SKV_JN_LIST,     /* items */
    SKV_JN_TUPLE,    /* items */
    SKV_JN_DICT,     /* items: key, value, key, value ... */
    SKV_JN_GETATTR,  /* a: object; value: name */
    SKV_JN_GETITEM,  /* a: object; b: key */
    SKV_JN_SLICE,    /* a: object; items: start, stop, step, each may be NULL */
    SKV_JN_CALL,     /* a: function; args */
    SKV_JN_FILTER,   /* a: value, NULL at the start of a block filter; name; args */
    SKV_JN_TEST,     /* a: value; name; args */
    SKV_JN_NOT,      /* a */
    SKV_JN_NEGATIVE, /* a */
    SKV_JN_POSITIVE, /* a */
    SKV_JN_BINARY,   /* a op b */
    SKV_JN_CONCAT,   /* items */
    SKV_JN_COMPARE,  /* a; items: operands, each with its op */
    SKV_JN_OPERAND,  /* a, op */
    SKV_JN_AND,      /* a, b */
    SKV_JN_OR,       /* a, b */
    SKV_JN_COND      /* a: test; b: then; c: else or NULL */
} skv_jnode_kind;

typedef struct skv_jnode skv_jnode;

/* Names that the interpreter itself sets have fixed numbers. */
enum { SKV_JSYM_LOOP, SKV_JSYM_CALLER, SKV_JSYM_KWARGS, SKV_JSYM_VARARGS };

typedef struct skv_jkeyword {
    const skv_jstr *name;
    uint32_t sym;
    const skv_jnode *value; /* NULL: a macro's parameter without a default */
} skv_jkeyword;

/* The arguments of a call, or the parameters of a macro (keywords only). */
typedef struct skv_jargs {
    const skv_jnode **items; /* positional */
    size_t n_items;
    skv_jkeyword *keywords;
    size_t n_keywords;
    const skv_jnode *star;        /* *expr or NULL */
    const skv_jnode *double_star; /* **expr or NULL */
} skv_jargs;

/* Properties of a scope that are needed when it is entered. */
typedef struct skv_jscope_info {
    uint32_t *unset; /* names that hide an outer variable before they are set, see jinja_parser.h */
    size_t n_unset;
    bool uses_caller, uses_kwargs, uses_varargs; /* of a macro */
} skv_jscope_info;

struct skv_jnode {
    uint8_t kind;   /* skv_jnode_kind */
    uint16_t op;    /* SKV_JOP of an operator; 'i' in, 'n' not in */
    uint16_t depth; /* of the tree below, bounded by the parser */
    uint32_t line;
    uint32_t sym; /* the number of a name */
    const skv_jstr *name;
    skv_jv value;
    const skv_jnode *a, *b, *c;
    const skv_jnode **items;
    size_t n_items;
    const skv_jnode **more;
    size_t n_more;
    const skv_jargs *args;
    const skv_jscope_info *scope; /* of the body in `items` */
    const skv_jscope_info *other; /* of a for loop's filter, then of its else */
    const skv_jscope_info *last;
};

typedef struct skv_jinja {
    skv_jarena memory;
    char *name; /* owned; the template's name in messages */
    const skv_jnode **body;
    size_t n_body;
    const skv_jscope_info *scope;
} skv_jinja;

/** Fills a zeroed template; it is to be released whatever the result. Its memory counts in the
 * budget while it is parsed. */
SKV_MUST_CHECK skv_status skv_jinja_parse(const char *source, size_t n, const char *name,
                                          skv_budget *budget, skv_jinja *out, skv_error *err);
void skv_jinja_release(skv_jinja *t);

#endif
