/* Compiling a grammar: a front end makes expressions, which become an automaton. */
#include "grammar/grammar_front.h"
#include "grammar/grammar_impl.h"

static skv_status read_text(skv_exprs *exprs, const skv_grammar_source *source, skv_error *err)
{
    const char *text = source->text.text;
    const size_t n = source->text.n;
    switch (source->kind) {
    case SKV_GRAMMAR_JSON_OBJECT: skv_json_object_read(exprs); return SKV_OK;
    case SKV_GRAMMAR_JSON_SCHEMA: return skv_schema_read(exprs, text, n, err);
    case SKV_GRAMMAR_REGEX: return skv_regex_read(exprs, text, n, err);
    case SKV_GRAMMAR_GBNF: return skv_gbnf_read(exprs, text, n, err);
    case SKV_GRAMMAR_CHOICE: return skv_choice_read(exprs, text, n, err);
    case SKV_GRAMMAR_PARTS: return skv_parts_read(exprs, text, n, err);
    }
    return skv_fail(err, SKV_ARGUMENT, "grammar: unknown kind %d", (int)source->kind);
}

/* Each text is represented by its first rule. */
static skv_status read_both(skv_exprs *exprs, const skv_grammar_source *source, skv_error *err)
{
    if (!source->lead.text) return read_text(exprs, source, err);
    const uint32_t root = skv_rule_declare(exprs, "answer", 6);
    const size_t lead = exprs->n_rules;
    SKV_TRY(skv_parts_read(exprs, source->lead.text, source->lead.n, err));
    const size_t rest = exprs->n_rules;
    SKV_TRY(read_text(exprs, source, err));
    skv_rule_define(exprs, root,
                    skv_expr_seq2(exprs, skv_expr_call(exprs, (uint32_t)lead),
                                  skv_expr_call(exprs, (uint32_t)rest)));
    return SKV_OK;
}

/* If a limit of the budget was exceeded, that is the error, whatever status the caller made of
 * it. */
static skv_status compile(skv_exprs *exprs, const skv_grammar_source *source, skv_grammar **out,
                          skv_error *err)
{
    skv_grammar *g = NULL;
    skv_status status = read_both(exprs, source, err);
    if (status == SKV_OK) status = skv_grammar_build(exprs, &g, err);
    if (exprs->budget->exceeded != SKV_EXCEEDED_NONE) {
        status = skv_budget_check(exprs->budget, "grammar", err);
        skv_grammar_free(g);
    } else if (status == SKV_OK) {
        *out = g;
    }
    return status;
}

skv_status skv_grammar_compile_behind(const skv_grammar_source *source, skv_budget *budget,
                                      skv_grammar **out, skv_error *err)
{
    skv_budget own;
    skv_exprs exprs;
    const bool is_read = source->kind != SKV_GRAMMAR_JSON_OBJECT;
    SKV_REQUIRE(!is_read || source->text.n <= SKV_GRAMMAR_TEXT_MAX, err, SKV_RANGE,
                "grammar: %zu bytes, at most %zu", source->text.n, SKV_GRAMMAR_TEXT_MAX);
    SKV_REQUIRE(source->lead.n <= SKV_GRAMMAR_TEXT_MAX, err, SKV_RANGE,
                "grammar: lead of %zu bytes, at most %zu", source->lead.n, SKV_GRAMMAR_TEXT_MAX);
    skv_budget_init(&own, NULL);
    skv_exprs_init(&exprs, budget ? budget : &own);
    skv_status status = compile(&exprs, source, out, err);
    skv_exprs_release(&exprs);
    return status;
}

skv_status skv_grammar_compile(skv_grammar_kind kind, const char *text, size_t n,
                               skv_budget *budget, skv_grammar **out, skv_error *err)
{
    const skv_grammar_source source = {.kind = kind, .text = {text, n}};
    return skv_grammar_compile_behind(&source, budget, out, err);
}
