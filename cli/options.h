/** The command line: one table of options makes the parser and every --help text. */
#ifndef SKV_CLI_OPTIONS_H
#define SKV_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "commands.h"
#include "interrupt.h"
#include "report.h"
#include "skv/skv.h"

enum { CLI_LIST_MAX = 32, CLI_SETTINGS_MAX = 64, CLI_OPERANDS_MAX = 2 };
#define CLI_NOT_GIVEN SIZE_MAX

typedef struct cli_sizes {
    size_t n;
    size_t at[CLI_LIST_MAX];
} cli_sizes;

typedef struct cli_numbers {
    size_t n;
    double at[CLI_LIST_MAX];
} cli_numbers;

typedef struct cli_texts {
    size_t n;
    const char *at[CLI_LIST_MAX]; /* borrowed from argv */
} cli_texts;

/* Keys of training recipes that are given as options; see skv/recipe.h. */
typedef struct cli_settings {
    size_t n;
    const char *key[CLI_SETTINGS_MAX], *value[CLI_SETTINGS_MAX]; /* keys are the library's */
} cli_settings;

/* Everything a command line can say. Texts are borrowed from argv; NULL: not given. */
struct cli_options {
    cli_command command;
    size_t n_operands;
    const char *operands[CLI_OPERANDS_MAX];
    bool help, json;
    cli_interrupt *interrupt; /* borrowed from main */

    /* Input. */
    const char *prompt, *file, *ids_file;
    const char *text_file; /* --text of similarity */
    bool add_special, parse_special, decode;
    const char *messages_file, *tools_file, *vars_file, *template_file, *system;
    bool add_generation_prompt, raw;

    /* How a model runs. */
    size_t threads, context, step_tokens;
    skv_weights weights;
    skv_kv kv;
    skv_prefill prefill;
    const char *cpu;
    skv_pruning pruning;
    skv_ffn_skip ffn_skip;
    double early_exit; /* 0: none */
    skv_eviction eviction;
    const char *kept_file;   /* --dump-kept */
    size_t kv_layers, group; /* 0: not given */

    /* Closed-form initialisation; the text is in `data`. */
    const char *init, *ridge_to, *keep_layers;
    size_t text_tokens, text_seq; /* 0: not given */
    double ridge;                 /* below 0: not given */

    /* Generation. */
    size_t n_tokens; /* CLI_NOT_GIVEN: the command's own default */
    skv_sampling sampling;
    bool ignore_eos;
    cli_texts stops;
    bool json_object;
    const char *schema_file, *regex, *grammar_file;

    /* Measuring. */
    const char *preset;
    cli_sizes prompt_lengths;
    size_t gen_tokens, batch, repeat;
    bool peak, compare;
    size_t cost_context; /* --context of info; 0: the model's */
    bool as_papers;

    /* Training. */
    cli_texts data;
    const char *recipe, *stages, *log_file;
    bool from_scratch, resume, dry_run;
    cli_settings settings; /* keys of recipes, in their order */

    /* Generated documents and vocabularies. */
    const char *tasks, *vocab, *prose;
    size_t tokens_min, tokens_max, questions_max; /* 0: the library's default */
    size_t count, vocab_size;
    uint64_t first;
    bool held_out, evaluation;

    /* Evaluation. */
    cli_sizes lengths;
    size_t depths; /* 0: not given */
    size_t scored; /* 0: not given */

    /* Tuning. */
    double floor; /* below 0: not given */
    const char *cost;
    const char *work;
    cli_texts also;
    size_t timed_prompt; /* 0: not given */
    const char *primer, *reference;
    bool no_template;

    /* Serving. */
    const char *host, *key_file, *served_name, *request_log, *cache_dir, *cache_disk_form,
        *tool_format, *reasoning_format; /* NULL: not given */
    size_t port, kv_tokens, max_running, max_queued, max_queued_tokens, connections,
        connections_per_ip, body_mib, cache_disk_bytes; /* CLI_NOT_GIVEN: the server's default */
    double step_ms, queue_seconds, header_seconds, body_seconds, stall_seconds, ping_seconds,
        shutdown_seconds, watchdog_seconds, requests_a_minute,
        tokens_a_minute; /* below 0: the server's default */
    bool insecure, no_prefix_cache, no_text_match, no_teacher;

    /* Load. */
    bool chat_api;
    cli_numbers rates;
    const char *arrivals, *trace_file, *methods, *extra_body, *goals, *out_file;
    size_t clients; /* 0: not given */
    size_t n_warmup;
    double seconds, request_seconds; /* 0: not given */
    double cancel_share, cancel_seconds, time_scale, length_scale;

    const char *svg_file;
    bool list_options, list_methods, list_combinations;
};

/**
 * Parses argv of main. On CLI_DONE `out` is filled; on CLI_USAGE the line has been printed.
 */
CLI_CHECKED int cli_options_parse(int argc, char *const *argv, cli_options *out);

/** `swiftkv help`: the list of commands. */
void cli_help_overview(FILE *stream);
/** `swiftkv help COMMAND`. */
void cli_help_command(cli_command command);
/** Every command with its options, one a line, for scripts: "COMMAND OPTION [ARGUMENT]". */
void cli_help_list(void);
/** What `--evict` takes, as a table in Markdown. */
void cli_help_methods(void);

#endif
