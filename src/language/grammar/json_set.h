/*
 * JSON values of front ends, within a budget: reading them, comparing them, and sets of them. Their
 * memory, including jansson's, and the work on them count there.
 */
#ifndef SKV_GRAMMAR_JSON_SET_H
#define SKV_GRAMMAR_JSON_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "skv/budget.h"

typedef struct skv_grammar_json {
    json_t *json;   /* owned */
    size_t n_bytes; /* that the budget counts */
} skv_grammar_json;

/** Reads text[0..n); `name` is for errors. */
SKV_MUST_CHECK skv_status skv_grammar_json_load(skv_budget *budget, const char *text, size_t n,
                                                const char *name, skv_grammar_json *out,
                                                skv_error *err);
void skv_grammar_json_release(skv_budget *budget, skv_grammar_json *json);

/* A set, in the order in which values were added: by equality, or by identity. */

#define SKV_JSON_SET_NONE SIZE_MAX

typedef struct skv_json_entry {
    const json_t *value; /* borrowed */
    uint64_t hash;
    uint32_t work; /* units that looking at the whole value takes */
} skv_json_entry;

typedef struct skv_json_set {
    skv_budget *budget; /* borrowed */
    bool same;          /* only a value itself is equal to it */
    skv_json_entry *at; /* owned, [n] */
    uint32_t *slots;    /* owned, [n_slots] indices + 1 by hash; 0: free */
    size_t n, capacity, n_slots;
} skv_json_set;

void skv_json_set_release(skv_json_set *set);
/** Adds a value unless it is present, and sets its index; a new value gets the previous set->n.
 * False if out of budget or memory. */
SKV_CHECKED bool skv_json_set_add(skv_json_set *set, const json_t *value, size_t *index);
/** Where the value is; SKV_JSON_SET_NONE. */
size_t skv_json_set_find(const skv_json_set *set, const json_t *value);
/** As above, for a string. */
size_t skv_json_set_find_text(const skv_json_set *set, const char *text, size_t n);

/** Whether two values are equal, as json_equal; false too when the budget ends. */
bool skv_json_same(skv_budget *budget, const json_t *a, const json_t *b);

#endif
