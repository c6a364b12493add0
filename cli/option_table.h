/** The rows of the option table, for the parser and the help texts. */
#ifndef SKV_CLI_OPTION_TABLE_H
#define SKV_CLI_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a value is read, and the type of its field in cli_options. */
typedef enum cli_option_kind {
    CLI_OPTION_FLAG,    /* bool, without a value */
    CLI_OPTION_TEXT,    /* const char * */
    CLI_OPTION_SIZE,    /* size_t */
    CLI_OPTION_NUMBER,  /* double */
    CLI_OPTION_SEED,    /* uint64_t */
    CLI_OPTION_SIZES,   /* cli_sizes: "512,2048" */
    CLI_OPTION_NUMBERS, /* cli_numbers: "0.5,1,2" */
    CLI_OPTION_TEXTS,   /* cli_texts: the option may come again */
    CLI_OPTION_CHOICE,  /* const char *, one of `argument` */
    CLI_OPTION_WEIGHTS, /* skv_weights, one of `argument` */
    CLI_OPTION_KV,
    CLI_OPTION_PREFILL,
    CLI_OPTION_PRUNING,
    CLI_OPTION_FFN_SKIP,
    CLI_OPTION_EVICTION, /* skv_eviction: "METHOD:C,..." */
    CLI_OPTION_SNAPKV    /* the same with "snapkv:" before it */
} cli_option_kind;

typedef struct cli_option {
    const char *name;     /* with its dashes */
    const char *argument; /* as the help shows it; choices are parted by '|'; NULL: none */
    uint32_t commands;    /* a bit for each cli_command that takes it */
    cli_option_kind kind;
    size_t offset;   /* of its field in cli_options */
    double min, max; /* of a size or number */
    bool open_min, open_max;
    const char *help;
} cli_option;

/** The i-th option, NULL at the end. */
const cli_option *cli_option_at(size_t i);
/** Whether every command that runs a model takes it. */
bool cli_option_is_common(const cli_option *option);

#endif
