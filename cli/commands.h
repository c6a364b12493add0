/** The commands of the program: their names, arguments and functions. */
#ifndef SKV_CLI_COMMANDS_H
#define SKV_CLI_COMMANDS_H

#include <stddef.h>

typedef struct cli_options cli_options;

/* X(ID, name): CLI_ID is the command that cli_run_name runs. */
#define CLI_COMMAND_LIST(X)                                                                        \
    X(INFO, info)                                                                                  \
    X(SIMILARITY, similarity)                                                                      \
    X(TRANSFORM, transform)                                                                        \
    X(QUANTIZE, quantize)                                                                          \
    X(GENERATE, generate)                                                                          \
    X(CHAT, chat)                                                                                  \
    X(SCORE, score)                                                                                \
    X(TOKENIZE, tokenize)                                                                          \
    X(RENDER, render)                                                                              \
    X(CACHE, cache)                                                                                \
    X(SERVE, serve)                                                                                \
    X(LOAD, load)                                                                                  \
    X(BENCH, bench)                                                                                \
    X(COMPARE, compare)                                                                            \
    X(EVAL, eval)                                                                                  \
    X(TUNE, tune)                                                                                  \
    X(DISTILL, distill)                                                                            \
    X(TRAIN, train)                                                                                \
    X(DOCUMENTS, documents)                                                                        \
    X(VOCAB, vocab)                                                                                \
    X(DEVICES, devices)                                                                            \
    X(DOCTOR, doctor)                                                                              \
    X(HELP, help)                                                                                  \
    X(VERSION, version)

typedef enum cli_command {
#define CLI_COMMAND_ID(id, name) CLI_##id,
    CLI_COMMAND_LIST(CLI_COMMAND_ID)
#undef CLI_COMMAND_ID
        CLI_COMMAND_COUNT
} cli_command;

typedef struct cli_command_row {
    const char *name;
    const char *operands; /* as the usage line shows them */
    size_t operands_min, operands_max;
    const char *summary; /* one line */
    const char *details; /* paragraphs of `help NAME`, may be NULL */
} cli_command_row;

/** The row of a command; NULL for CLI_COMMAND_COUNT and beyond. */
const cli_command_row *cli_command_at(size_t i);
/** The command of that name, CLI_COMMAND_COUNT when there is none. */
cli_command cli_command_find(const char *name);

#define CLI_COMMAND_RUN(id, name) int cli_run_##name(const cli_options *options);
CLI_COMMAND_LIST(CLI_COMMAND_RUN)
#undef CLI_COMMAND_RUN

#endif
