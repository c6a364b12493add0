/*
 * What every front end makes of a grammar: rules whose right sides are expressions over bytes.
 *
 * An expression is an index into a pool. A failure (out of memory, a limit) is kept in the pool,
 * and all expressions made after it are SKV_EXPR_NEVER; so a front end builds as if nothing could
 * fail, and who compiles the pool asks once.
 */
#ifndef SKV_GRAMMAR_EXPR_H
#define SKV_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "grammar/code_set.h"

typedef uint32_t skv_expr;

#define SKV_EXPR_NEVER ((skv_expr)0) /* matches nothing */
#define SKV_EXPR_EMPTY ((skv_expr)1) /* matches "" */
#define SKV_REPEAT_MANY UINT32_MAX   /* no upper bound */

enum {
    SKV_EXPRS_MAX = 1 << 19,
    SKV_RULES_MAX = 1 << 15,
    SKV_EXPR_DEPTH_MAX = 1000,     /* nesting of expressions */
    SKV_REPEAT_COUNT_MAX = 100000, /* of a bounded repetition */
    SKV_RULE_NAME_MAX = 64         /* bytes kept for messages */
};

typedef enum skv_expr_kind {
    SKV_EXPR_KIND_NEVER,
    SKV_EXPR_KIND_EMPTY,
    SKV_EXPR_KIND_BYTES,  /* bytes[first .. first + n) */
    SKV_EXPR_KIND_SET,    /* one code point of ranges[first .. first + n) */
    SKV_EXPR_KIND_SEQ,    /* kids[first .. first + n), one after the other */
    SKV_EXPR_KIND_ALT,    /* one of kids[first .. first + n) */
    SKV_EXPR_KIND_REPEAT, /* kids[first], n to max times */
    SKV_EXPR_KIND_CALL    /* the rule `first` */
} skv_expr_kind;

typedef struct skv_expr_node {
    uint8_t kind;
    bool has_call; /* it, or something inside it, is a call */
    uint16_t depth;
    uint32_t first, n, max;
} skv_expr_node;

typedef struct skv_rule {
    char name[SKV_RULE_NAME_MAX]; /* for messages; cut */
    skv_expr expr;
    bool defined;
    bool nests; /* a level of nesting that the depth limit counts */
} skv_rule;

typedef struct skv_expr_pool {
    skv_expr_node *nodes;   /* owned, [n_nodes] */
    uint32_t *kids;         /* owned, [n_kids] */
    skv_code_range *ranges; /* owned, [n_ranges] */
    skv_rule *rules;        /* owned, [n_rules] */
    skv_buf bytes;
    size_t n_nodes, n_kids, n_ranges, n_rules;
    size_t nodes_capacity, kids_capacity, ranges_capacity, rules_capacity;
    skv_status status; /* the first failure */
    const char *why;   /* a constant text for it */
} skv_expr_pool;

void skv_expr_pool_init(skv_expr_pool *pool);
void skv_expr_pool_release(skv_expr_pool *pool);
/** The failure, if there was one. */
SKV_MUST_CHECK skv_status skv_expr_pool_check(const skv_expr_pool *pool, skv_error *err);

skv_expr skv_expr_bytes(skv_expr_pool *pool, const char *bytes, size_t n);
/** A zero-terminated text. */
skv_expr skv_expr_text(skv_expr_pool *pool, const char *text);
/** One code point of a tidy set. */
skv_expr skv_expr_set(skv_expr_pool *pool, const skv_code_set *set);
/** One code point of lo..hi. */
skv_expr skv_expr_range(skv_expr_pool *pool, uint32_t lo, uint32_t hi);
skv_expr skv_expr_seq(skv_expr_pool *pool, const skv_expr *kids, size_t n);
skv_expr skv_expr_seq2(skv_expr_pool *pool, skv_expr a, skv_expr b);
skv_expr skv_expr_seq3(skv_expr_pool *pool, skv_expr a, skv_expr b, skv_expr c);
skv_expr skv_expr_alt(skv_expr_pool *pool, const skv_expr *kids, size_t n);
skv_expr skv_expr_alt2(skv_expr_pool *pool, skv_expr a, skv_expr b);
skv_expr skv_expr_repeat(skv_expr_pool *pool, skv_expr kid, uint32_t min, uint32_t max);
skv_expr skv_expr_optional(skv_expr_pool *pool, skv_expr kid);
skv_expr skv_expr_call(skv_expr_pool *pool, uint32_t rule);

/** A rule that is defined later; the first one is where the grammar begins. */
uint32_t skv_rule_declare(skv_expr_pool *pool, const char *name, size_t n);
void skv_rule_define(skv_expr_pool *pool, uint32_t rule, skv_expr expr);

typedef struct skv_text_ref {
    const char *text; /* borrowed */
    size_t n;
} skv_text_ref;

/** One of several texts; common beginnings are shared. Sorts `texts`. */
skv_expr skv_expr_texts(skv_expr_pool *pool, skv_text_ref *texts, size_t n);

/* A list of expressions on its way to become a sequence or a choice. */
typedef struct skv_expr_list {
    skv_expr_pool *pool; /* borrowed */
    skv_expr *at;        /* owned */
    size_t n, capacity;
} skv_expr_list;

void skv_expr_list_add(skv_expr_list *list, skv_expr expr);
/** Makes the expression and releases the list. */
skv_expr skv_expr_list_seq(skv_expr_list *list);
skv_expr skv_expr_list_alt(skv_expr_list *list);

#endif
