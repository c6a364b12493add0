/** What an answer has to follow: --json-object, --json-schema, --regex, --grammar. */
#ifndef SKV_CLI_CONSTRAINT_H
#define SKV_CLI_CONSTRAINT_H

#include "runtime.h"
#include "skv/grammar.h"

typedef struct cli_constraint {
    skv_grammar *grammar;
    skv_token_table *table;
    skv_matcher *matcher; /* NULL: the answer is free */
} cli_constraint;

/** Compiles what the options ask for, before a model is loaded. */
CLI_CHECKED int cli_constraint_compile(cli_constraint *constraint, const cli_options *options);
/** Makes the matcher for a model that runs. */
CLI_CHECKED int cli_constraint_start(cli_constraint *constraint, const cli_model *model);
void cli_constraint_release(cli_constraint *constraint);

#endif
