/* Compiling a grammar: a front end fills a pool of expressions, which becomes an automaton. */
#include "base/mem.h"
#include "grammar/grammar_impl.h"

static skv_status read_text(skv_expr_pool *pool, skv_grammar_kind kind, const char *text, size_t n,
                            skv_error *err)
{
    switch (kind) {
    case SKV_GRAMMAR_JSON_OBJECT: skv_json_object_read(pool); return SKV_OK;
    case SKV_GRAMMAR_JSON_SCHEMA: return skv_schema_read(pool, text, n, err);
    case SKV_GRAMMAR_REGEX: return skv_regex_read(pool, text, n, err);
    case SKV_GRAMMAR_GBNF: return skv_gbnf_read(pool, text, n, err);
    case SKV_GRAMMAR_CHOICE: return skv_choice_read(pool, text, n, err);
    case SKV_GRAMMAR_PARTS: return skv_parts_read(pool, text, n, err);
    }
    return skv_fail(err, SKV_ARGUMENT, "grammar: unknown kind %d", (int)kind);
}

skv_status skv_grammar_compile(skv_grammar_kind kind, const char *text, size_t n, skv_grammar **out,
                               skv_error *err)
{
    if (kind == SKV_GRAMMAR_JSON_OBJECT) n = 0;
    SKV_REQUIRE(n <= SKV_GRAMMAR_TEXT_MAX, err, SKV_RANGE, "grammar: %zu bytes, at most %zu", n,
                SKV_GRAMMAR_TEXT_MAX);
    skv_expr_pool pool;
    skv_expr_pool_init(&pool);
    skv_status status = read_text(&pool, kind, text, n, err);
    if (status == SKV_OK) status = skv_grammar_build(&pool, out, err);
    skv_expr_pool_release(&pool);
    return status;
}

void skv_grammar_free(skv_grammar *grammar)
{
    if (grammar == NULL) return;
    skv_free(grammar->states);
    skv_free(grammar->edges);
    skv_free(grammar->unrolled);
    skv_free(grammar);
}

size_t skv_grammar_bytes(const skv_grammar *grammar)
{
    return sizeof *grammar + grammar->n_states * sizeof *grammar->states +
           grammar->n_edges * sizeof *grammar->edges +
           grammar->n_unrolled * sizeof *grammar->unrolled;
}
