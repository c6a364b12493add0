/* Constrained decoding from the command line: see constraint.h. */
#include "constraint.h"

#include <string.h>

static int compile(cli_constraint *c, skv_grammar_kind kind, const char *text, size_t n)
{
    skv_error err = {0};
    return cli_check(skv_grammar_compile(kind, text, n, &c->grammar, &err), &err);
}

static int compile_file(cli_constraint *c, skv_grammar_kind kind, const char *path)
{
    cli_bytes text = {0};
    int status = cli_read_file(path, &text);
    if (status == CLI_DONE) status = compile(c, kind, text.data, text.n);
    cli_bytes_release(&text);
    return status;
}

int cli_constraint_compile(cli_constraint *c, const cli_options *o)
{
    if (o->json_object) return compile(c, SKV_GRAMMAR_JSON_OBJECT, "", 0);
    if (o->regex != NULL) return compile(c, SKV_GRAMMAR_REGEX, o->regex, strlen(o->regex));
    if (o->schema_file != NULL) return compile_file(c, SKV_GRAMMAR_JSON_SCHEMA, o->schema_file);
    if (o->grammar_file != NULL) return compile_file(c, SKV_GRAMMAR_GBNF, o->grammar_file);
    return CLI_DONE;
}

int cli_constraint_start(cli_constraint *c, const cli_model *model)
{
    if (c->grammar == NULL) return CLI_DONE;
    if (model->vocab == NULL) return cli_fail("%s: no tokenizer to follow a grammar", model->path);
    size_t n_ends;
    const int32_t *ends = skv_engine_eos(model->engine, &n_ends);
    skv_error err = {0};
    skv_status status = skv_token_table_create(model->vocab, ends, n_ends, &c->table, &err);
    if (status == SKV_OK) status = skv_matcher_create(c->grammar, c->table, &c->matcher, &err);
    return cli_check(status, &err);
}

void cli_constraint_release(cli_constraint *c)
{
    skv_matcher_free(c->matcher);
    skv_token_table_free(c->table);
    skv_grammar_free(c->grammar);
    *c = (cli_constraint){0};
}
