/** The memory needed to run a model on this machine, by types of weights and of keys and values,
 * and a recommendation: for info and doctor, and for errors about too little memory. */
#ifndef SKV_CLI_MEMORY_PLAN_H
#define SKV_CLI_MEMORY_PLAN_H

#include "common/json_out.h"
#include "options.h"
#include "skv/tools.h"

enum { CLI_MEMORY_ROWS = 10 };

typedef struct cli_memory {
    skv_memory_plan rows[CLI_MEMORY_ROWS]; /* the most exact weights first */
    size_t n;
    size_t i_own;         /* the row of the types that are taken by themselves */
    size_t i_chosen;      /* the most exact one that fits, from i_own on; SIZE_MAX: none */
    size_t context;       /* of the model */
    size_t teacher_bytes; /* of weights that serve and compare hold beside the student's; 0: none */
    size_t states_bytes;  /* of the states that serve holds by itself; 0: none */
} cli_memory;

/** Plans one sequence of --context tokens (0: the default) in --available bytes. */
CLI_CHECKED skv_status cli_memory_plan(const char *path, const cli_options *options,
                                       const skv_model_info *info, cli_memory *out, skv_error *err);
/** Prints the table and the recommendation. */
void cli_memory_print(const cli_memory *memory);
/** "memory": {...} */
void cli_memory_put(skv_json_out *json, const cli_memory *memory);
/** Writes one line: the recommendation, and the contexts that fit with it. */
void cli_memory_line(const cli_memory *memory, char *out, size_t size);

/** Adds options that would fit to an error about too little memory: smaller weights, and `tokens`
 * ("--ctx", "--kv-tokens"; NULL: the command cannot do with fewer). */
void cli_memory_advise(const char *path, const skv_engine_options *options, const char *tokens,
                       skv_error *err);

#endif
