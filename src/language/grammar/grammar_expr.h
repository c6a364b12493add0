/*
 * The output of every front end: rules with right-hand sides that are expressions over bytes.
 *
 * skv_exprs holds all expressions of a grammar, and an expression is an index into it. It remembers
 * a failure (out of memory, a limit); all later expressions are SKV_EXPR_NEVER. A front end can
 * therefore build as if nothing could fail, and the compiler checks once. Work and memory count in
 * its budget.
 */
#ifndef SKV_GRAMMAR_EXPR_H
#define SKV_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "grammar/code_set.h"
#include "skv/budget.h"

typedef uint32_t skv_expr;

#define SKV_EXPR_NEVER ((skv_expr)0) /* matches nothing */
#define SKV_EXPR_EMPTY ((skv_expr)1) /* matches "" */
#define SKV_REPEAT_MANY UINT32_MAX   /* no upper bound */

enum {
    SKV_EXPRS_MAX = 1 << 19,
    SKV_EXPR_KIDS_MAX = 1 << 21,
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

typedef struct skv_exprs {
    skv_budget *budget;     /* borrowed: counts work and memory */
    skv_expr_node *nodes;   /* owned, [n_nodes] */
    uint32_t *kids;         /* owned, [n_kids] */
    skv_code_range *ranges; /* owned, [n_ranges] */
    skv_rule *rules;        /* owned, [n_rules] */
    char *bytes;            /* owned, [n_bytes] */
    size_t n_nodes, n_kids, n_ranges, n_rules, n_bytes;
    size_t nodes_capacity, kids_capacity, ranges_capacity, rules_capacity, bytes_capacity;
    skv_status status; /* the first failure */
    const char *why;   /* a constant text for it */
} skv_exprs;

void skv_exprs_init(skv_exprs *exprs, skv_budget *budget);
void skv_exprs_release(skv_exprs *exprs);
/** The failure, if there was one, of the expressions or of their budget. */
SKV_MUST_CHECK skv_status skv_exprs_check(const skv_exprs *exprs, skv_error *err);
/** Counts n units of work in the budget; false when `exprs` has failed, now or before. */
bool skv_expr_work(skv_exprs *exprs, uint64_t n);
/** Room for `need` items in an array that grows, to at most `max`, which `why` names: array is the
 * address of its pointer. */
bool skv_expr_reserve(skv_exprs *exprs, void *array, size_t *capacity, size_t need, size_t size,
                      size_t max, const char *why);

skv_expr skv_expr_bytes(skv_exprs *exprs, const char *bytes, size_t n);
/** Builds a text in pieces: each call appends one, then skv_expr_bytes_end makes the text of all
 * bytes from exprs->bytes[first] on. No other expression may be made in between. */
void skv_expr_bytes_put(skv_exprs *exprs, const char *bytes, size_t n);
skv_expr skv_expr_bytes_end(skv_exprs *exprs, size_t first);
/** A zero-terminated text. */
skv_expr skv_expr_text(skv_exprs *exprs, const char *text);
/** One code point of a tidy set. */
skv_expr skv_expr_set(skv_exprs *exprs, const skv_code_set *set);
/** One code point of lo..hi. */
skv_expr skv_expr_range(skv_exprs *exprs, uint32_t lo, uint32_t hi);
skv_expr skv_expr_seq(skv_exprs *exprs, const skv_expr *kids, size_t n);
skv_expr skv_expr_seq2(skv_exprs *exprs, skv_expr a, skv_expr b);
skv_expr skv_expr_seq3(skv_exprs *exprs, skv_expr a, skv_expr b, skv_expr c);
skv_expr skv_expr_alt(skv_exprs *exprs, const skv_expr *kids, size_t n);
skv_expr skv_expr_alt2(skv_exprs *exprs, skv_expr a, skv_expr b);
skv_expr skv_expr_repeat(skv_exprs *exprs, skv_expr kid, uint32_t min, uint32_t max);
skv_expr skv_expr_optional(skv_exprs *exprs, skv_expr kid);
skv_expr skv_expr_call(skv_exprs *exprs, uint32_t rule);

/** A rule that is defined later; the first one is where the grammar begins. */
uint32_t skv_rule_declare(skv_exprs *exprs, const char *name, size_t n);
void skv_rule_define(skv_exprs *exprs, uint32_t rule, skv_expr expr);

typedef struct skv_text_ref {
    const char *text; /* borrowed */
    size_t n;
} skv_text_ref;

/** One of several texts; common beginnings are shared. Sorts `texts`. */
skv_expr skv_expr_texts(skv_exprs *exprs, skv_text_ref *texts, size_t n);

/* A list of expressions on its way to become a sequence or a choice. */
typedef struct skv_expr_list {
    skv_exprs *exprs; /* borrowed */
    skv_expr *at;     /* owned */
    size_t n, capacity;
} skv_expr_list;

void skv_expr_list_add(skv_expr_list *list, skv_expr expr);
/** Makes the expression and releases the list. */
skv_expr skv_expr_list_seq(skv_expr_list *list);
skv_expr skv_expr_list_alt(skv_expr_list *list);

/*
 * Nested groups under construction: the explicit stack of a parser that must not recurse. A group
 * is a choice of sequences of items.
 *
 *     items  [ways of group 1 | its sequence][ways of group 2 | its sequence] ...
 */
typedef struct skv_expr_group {
    size_t at;          /* where it begins in the text */
    size_t ways, items; /* in `items`: its alternatives so far, and its last sequence */
} skv_expr_group;

typedef struct skv_expr_groups {
    skv_exprs *exprs;     /* borrowed; keeps failures, so that callers ask there */
    skv_expr *items;      /* owned, [n_items] */
    skv_expr_group *open; /* owned, [n_open] the innermost one last */
    size_t n_items, n_open, items_capacity, open_capacity;
} skv_expr_groups;

void skv_expr_groups_release(skv_expr_groups *groups);
/** Begins a group, inside the one that is open. */
void skv_expr_groups_open(skv_expr_groups *groups, size_t at);
/** The next item of the sequence. */
void skv_expr_groups_add(skv_expr_groups *groups, skv_expr item);
/** Ends a sequence; the next item begins another one. */
void skv_expr_groups_next(skv_expr_groups *groups);
/** Ends the group. Returns its expression, and its starting offset in *at. */
skv_expr skv_expr_groups_close(skv_expr_groups *groups, size_t *at);

#endif
