/* Compiling a grammar: a front end makes expressions, which become an automaton. */
#include "grammar/grammar_front.h"
#include "grammar/grammar_impl.h"

static skv_status read_text(skv_exprs *exprs, skv_grammar_kind kind, const char *text, size_t n,
                            skv_error *err)
{
    switch (kind) {
    case SKV_GRAMMAR_JSON_OBJECT: skv_json_object_read(exprs); return SKV_OK;
    case SKV_GRAMMAR_JSON_SCHEMA: return skv_schema_read(exprs, text, n, err);
    case SKV_GRAMMAR_REGEX: return skv_regex_read(exprs, text, n, err);
    case SKV_GRAMMAR_GBNF: return skv_gbnf_read(exprs, text, n, err);
    case SKV_GRAMMAR_CHOICE: return skv_choice_read(exprs, text, n, err);
    case SKV_GRAMMAR_PARTS: return skv_parts_read(exprs, text, n, err);
    }
    return skv_fail(err, SKV_ARGUMENT, "grammar: unknown kind %d", (int)kind);
}

/* A limit of the budget is what went wrong, whatever the code that met it has made of it. */
static skv_status compile(skv_exprs *exprs, skv_grammar_kind kind, const char *text, size_t n,
                          skv_grammar **out, skv_error *err)
{
    skv_grammar *g = NULL;
    skv_status status = read_text(exprs, kind, text, n, err);
    if (status == SKV_OK) status = skv_grammar_build(exprs, &g, err);
    if (exprs->budget->exceeded != SKV_EXCEEDED_NONE) {
        status = skv_budget_check(exprs->budget, "grammar", err);
        skv_grammar_free(g);
    } else if (status == SKV_OK) {
        *out = g;
    }
    return status;
}

skv_status skv_grammar_compile(skv_grammar_kind kind, const char *text, size_t n,
                               skv_budget *budget, skv_grammar **out, skv_error *err)
{
    skv_budget own;
    skv_exprs exprs;
    if (kind == SKV_GRAMMAR_JSON_OBJECT) n = 0;
    SKV_REQUIRE(n <= SKV_GRAMMAR_TEXT_MAX, err, SKV_RANGE, "grammar: %zu bytes, at most %zu", n,
                SKV_GRAMMAR_TEXT_MAX);
    skv_budget_init(&own, NULL);
    skv_exprs_init(&exprs, budget ? budget : &own);
    skv_status status = compile(&exprs, kind, text, n, out, err);
    skv_exprs_release(&exprs);
    return status;
}
