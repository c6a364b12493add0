/*
 * An automaton over the names of undeclared members, which may branch off at every character of a
 * declared name. A declared name that is still allowed ends with its own continuation, so that
 * every name that has begun can be completed.
 *
 * Names are a tree of characters. It is built from the last name back and from the leaves to the
 * root, over a stack of the places on the way to the current name, so the depth of calls does not
 * grow with the length of a name. At every RULE_EVERY-th character the continuation becomes a rule
 * of its own, which keeps expressions flat.
 */
#include <stdlib.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/utf8.h"
#include "grammar/schema_impl.h"

enum {
    RULE_EVERY = 32, /* characters */
    CHAR_WORK = 8,   /* units for one character of a name */
    ASCII = 128,     /* characters of which each has one rule for leaving a name there */
    NAMES_BYTES_MAX = 1 << 22
};

/* A place after some characters of a name. */
typedef struct place {
    uint32_t code;  /* the character before it */
    bool ends;      /* a declared name ends here */
    skv_expr after; /* then: its continuation; NEVER: it is not allowed here */
    size_t first;   /* of its branches */
} place;

/* A branch of a place: a character, and the rest of the names that continue with it. */
typedef struct branch {
    uint32_t code;
    skv_expr rest;
} branch;

typedef struct names {
    skv_schema *s;
    skv_expr end;     /* the end of an undeclared name, with its continuation */
    skv_expr rest;    /* any rest of such a name, and the same */
    place *places;    /* owned, [n_places] on the way to the current name */
    branch *branches; /* owned, [n_branches] those of the last place last */
    size_t n_places, n_branches, places_capacity, branches_capacity;
    skv_expr escaped;           /* a character that is escaped, and the rest; NEVER: not made */
    skv_expr chars[ASCII];      /* each character; NEVER: not made */
    skv_expr leaves[ASCII + 1]; /* the exits from a name before each character; the last: the exit
                                 * at its end */
} names;

/* ---- leaving a name ---- */

static bool is_escaped(uint32_t code)
{
    return code <= SKV_JSON_CONTROL_MAX || code == '"' || code == '\\';
}

static skv_expr as_rule(names *t, skv_expr expr)
{
    uint32_t rule = skv_rule_declare(t->s->exprs, "other name", 10);
    skv_rule_define(t->s->exprs, rule, expr);
    return skv_expr_call(t->s->exprs, rule);
}

static skv_expr and_rest(const names *t, skv_expr character)
{
    return skv_expr_seq2(t->s->exprs, character, t->rest);
}

static skv_expr end_name(const names *t, skv_expr after)
{
    return skv_expr_seq2(t->s->exprs, skv_expr_text(t->s->exprs, "\""), after);
}

/* Any character that is escaped but those of the branches, and the rest of the string. */
static skv_expr leave_escaped(names *t, const branch *branches, size_t n)
{
    skv_exprs *exprs = t->s->exprs;
    skv_code_set set = {.budget = exprs->budget}, out = {.budget = exprs->budget};
    bool usual = true;
    for (size_t i = 0; i < n; i++) {
        skv_code_set_add(&set, branches[i].code, branches[i].code);
        usual = usual && !is_escaped(branches[i].code);
    }
    skv_expr expr = t->escaped;
    if (!usual || expr == SKV_EXPR_NEVER) {
        skv_code_set_tidy(&set);
        skv_code_set_invert(&set);
        skv_json_cut_escaped(&set, &out);
        skv_code_set_tidy(&out);
        expr = and_rest(t, skv_json_char(exprs, &out));
        if (usual) expr = t->escaped = as_rule(t, expr);
    }
    skv_code_set_release(&set);
    skv_code_set_release(&out);
    return expr;
}

/* Any character but those of the branches, and the rest of the string. */
static skv_expr leave_any(names *t, const branch *branches, size_t n)
{
    skv_exprs *exprs = t->s->exprs;
    skv_code_set set = {.budget = exprs->budget};
    for (size_t i = 0; i < n; i++) skv_code_set_add(&set, branches[i].code, branches[i].code);
    skv_json_add_escaped(&set);
    skv_code_set_tidy(&set);
    skv_code_set_invert(&set);
    skv_expr plain = and_rest(t, skv_expr_set(exprs, &set));
    skv_code_set_release(&set);
    return skv_expr_alt2(exprs, plain, leave_escaped(t, branches, n));
}

/* Returns the exits from a place, besides its branches. At most places a single ASCII character
 * continues a name, or none: these places share a rule for each character. */
static skv_expr leave(names *t, const branch *branches, size_t n, bool ends)
{
    skv_exprs *exprs = t->s->exprs;
    bool shared = ends ? n == 0 : n == 1 && branches[0].code < ASCII;
    skv_expr *leaf = shared ? &t->leaves[ends ? ASCII : branches[0].code] : NULL;
    if (shared && *leaf != SKV_EXPR_NEVER) return *leaf;
    skv_expr expr = leave_any(t, branches, n);
    if (!ends) expr = skv_expr_alt2(exprs, t->end, expr);
    if (shared) expr = *leaf = as_rule(t, expr);
    return expr;
}

static skv_expr one_char(names *t, uint32_t code)
{
    skv_code_set one = {.at = &(skv_code_range){code, code}, .n = 1, .capacity = 1};
    if (code >= ASCII) return skv_json_char(t->s->exprs, &one);
    if (t->chars[code] == SKV_EXPR_NEVER) t->chars[code] = skv_json_char(t->s->exprs, &one);
    return t->chars[code];
}

/* ---- the tree ---- */

/* Returns the continuation of the last place and removes it: its branches are complete. */
static skv_expr close_place(names *t)
{
    skv_exprs *exprs = t->s->exprs;
    const place *p = &t->places[--t->n_places];
    size_t n = t->n_branches - p->first;
    const branch *branches = n > 0 ? t->branches + p->first : NULL;
    skv_expr_list list = {.exprs = exprs};
    for (size_t i = 0; i < n; i++) {
        skv_expr_list_add(&list,
                          skv_expr_seq2(exprs, one_char(t, branches[i].code), branches[i].rest));
    }
    if (p->ends) skv_expr_list_add(&list, end_name(t, p->after));
    skv_expr_list_add(&list, leave(t, branches, n, p->ends));
    t->n_branches = p->first;
    skv_expr all = skv_expr_list_alt(&list);
    if (t->n_places % RULE_EVERY != 0) return all;
    uint32_t rule = skv_rule_declare(exprs, "other names", 11);
    skv_rule_define(exprs, rule, all);
    return skv_expr_call(exprs, rule);
}

/* Closes the places after the first n; each becomes a branch of the previous one. */
static bool close_to(names *t, size_t n)
{
    while (t->n_places > n) {
        uint32_t code = t->places[t->n_places - 1].code;
        skv_expr rest = close_place(t);
        if (!skv_expr_work(t->s->exprs, CHAR_WORK) ||
            !skv_expr_reserve(t->s->exprs, &t->branches, &t->branches_capacity, t->n_branches + 1,
                              sizeof *t->branches, NAMES_BYTES_MAX, "names that are too long")) {
            return false;
        }
        t->branches[t->n_branches++] = (branch){code, rest};
    }
    return true;
}

static bool open_place(names *t, uint32_t code)
{
    if (!skv_expr_reserve(t->s->exprs, &t->places, &t->places_capacity, t->n_places + 1,
                          sizeof *t->places, NAMES_BYTES_MAX, "names that are too long")) {
        return false;
    }
    t->places[t->n_places++] = (place){.code = code, .first = t->n_branches};
    return true;
}

/* Place 0 is the beginning; place i follows i characters. */
static bool add_name(names *t, const skv_schema_name *name)
{
    size_t at = 0, depth = 1;
    uint32_t code = 0;
    for (; at < name->n && depth < t->n_places; depth++) {
        size_t n = skv_utf8_decode(name->text + at, name->n - at, &code);
        if (t->places[depth].code != code) break;
        at += n;
    }
    if (!skv_expr_work(t->s->exprs, CHAR_WORK + depth) || !close_to(t, depth)) return false;
    while (at < name->n) {
        at += skv_utf8_decode(name->text + at, name->n - at, &code);
        if (!skv_expr_work(t->s->exprs, CHAR_WORK) || !open_place(t, code)) return false;
    }
    place *last = &t->places[t->n_places - 1];
    last->ends = true;
    last->after = name->after;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const skv_schema_name *)a)->text, ((const skv_schema_name *)b)->text);
}

skv_expr skv_schema_other_member(skv_schema *s, skv_schema_name *texts, size_t n, skv_expr after)
{
    skv_budget *budget = s->exprs->budget;
    names t = {.s = s};
    skv_expr out = SKV_EXPR_NEVER;
    uint64_t work = 16 * (uint64_t)n; /* to sort them */
    for (size_t i = 0; i < n; i++) work += texts[i].n;
    t.end = as_rule(&t, end_name(&t, after));
    t.rest = as_rule(&t, skv_expr_seq2(s->exprs, skv_json_string_rest(&s->rules), after));
    bool done = skv_expr_work(s->exprs, work) && open_place(&t, 0);
    if (done && n > 1) qsort(texts, n, sizeof *texts, by_name);
    for (size_t i = 0; done && i < n; i++) done = add_name(&t, &texts[i]);
    if (done && close_to(&t, 1)) out = close_place(&t);
    skv_budget_free(budget, t.places, t.places_capacity, sizeof *t.places);
    skv_budget_free(budget, t.branches, t.branches_capacity, sizeof *t.branches);
    return out;
}
