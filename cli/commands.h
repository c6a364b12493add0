/** The commands of the program: their names, arguments and functions. */
#ifndef SKV_CLI_COMMANDS_H
#define SKV_CLI_COMMANDS_H

#include <stddef.h>

typedef struct cli_options cli_options;

typedef enum cli_command {
    CLI_INFO,
    CLI_SIMILARITY,
    CLI_TRANSFORM,
    CLI_QUANTIZE,
    CLI_GENERATE,
    CLI_CHAT,
    CLI_SCORE,
    CLI_TOKENIZE,
    CLI_RENDER,
    CLI_CACHE,
    CLI_SERVE,
    CLI_LOAD,
    CLI_BENCH,
    CLI_COMPARE,
    CLI_EVAL,
    CLI_TUNE,
    CLI_DISTILL,
    CLI_TRAIN,
    CLI_DOCUMENTS,
    CLI_VOCAB,
    CLI_DEVICES,
    CLI_DOCTOR,
    CLI_HELP,
    CLI_VERSION,
    CLI_COMMAND_COUNT
} cli_command;

typedef struct cli_command_row {
    const char *name;
    const char *operands; /* as the usage line shows them */
    size_t operands_min, operands_max;
    int (*run)(const cli_options *options);
    const char *summary; /* one line */
    const char *details; /* paragraphs of `help NAME`, may be NULL */
} cli_command_row;

/** The row of a command; NULL for CLI_COMMAND_COUNT and beyond. */
const cli_command_row *cli_command_at(size_t i);
/** The command of that name, CLI_COMMAND_COUNT when there is none. */
cli_command cli_command_find(const char *name);

int cli_run_info(const cli_options *options);
int cli_run_similarity(const cli_options *options);
int cli_run_transform(const cli_options *options);
int cli_run_quantize(const cli_options *options);
int cli_run_generate(const cli_options *options);
int cli_run_chat(const cli_options *options);
int cli_run_score(const cli_options *options);
int cli_run_tokenize(const cli_options *options);
int cli_run_render(const cli_options *options);
int cli_run_cache(const cli_options *options);
int cli_run_serve(const cli_options *options);
int cli_run_load(const cli_options *options);
int cli_run_bench(const cli_options *options);
int cli_run_compare(const cli_options *options);
int cli_run_eval(const cli_options *options);
int cli_run_tune(const cli_options *options);
int cli_run_distill(const cli_options *options);
int cli_run_train(const cli_options *options);
int cli_run_documents(const cli_options *options);
int cli_run_vocab(const cli_options *options);
int cli_run_devices(const cli_options *options);
int cli_run_doctor(const cli_options *options);
int cli_run_help(const cli_options *options);
int cli_run_version(const cli_options *options);

#endif
