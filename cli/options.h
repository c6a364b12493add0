/** The command line: one table of options makes the parser and every --help text. */
#ifndef SKV_CLI_OPTIONS_H
#define SKV_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "commands.h"
#include "common/field.h"
#include "hub.h"
#include "interrupt.h"
#include "report.h"
#include "skv/quantize.h"
#include "skv/skv.h"

enum { CLI_LIST_MAX = 32, CLI_SETTINGS_MAX = 64, CLI_OPERANDS_MAX = 64 };
#define CLI_NOT_GIVEN SIZE_MAX
#define CLI_SERVE_STATES 8      /* answers of a hybrid model at once, without --max-running */
#define CLI_SERVE_CHECKPOINTS 2 /* of its states, for each of them */
#define CLI_SERVE_KV_CONTEXTS 4 /* contexts that --kv-tokens of serve is by default */

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

enum { CLI_SAMPLING_FIELDS = 9 }; /* of skv_sampling */

/* All values of a command line. Texts are borrowed from argv; NULL: not given. */
struct cli_options {
    cli_command command;
    size_t n_operands;
    const char *operands[CLI_OPERANDS_MAX];
    const char
        *operand_names[CLI_OPERANDS_MAX]; /* serve: of NAME=MODEL, all of it; NULL: no name */
    const char *model_name;               /* the first operand as it was given */
    char model_path[CLI_HUB_PATH_MAX];    /* its path, if a name was given */
    char reference_path[CLI_HUB_PATH_MAX];
    bool help, json, download;
    cli_interrupt *interrupt;    /* borrowed from main */
    const struct skv_team *team; /* borrowed: ranks that run the command together; NULL: none */

    /* Input. */
    const char *prompt, *file, *ids_file;
    const char *text_file; /* --text of similarity */
    bool add_special, parse_special, allow_special_text, decode;
    const char *messages_file, *tools_file, *vars_file, *template_file, *system;
    bool add_generation_prompt, raw;

    /* How a model runs. */
    size_t threads, context, step_tokens;
    skv_weights weights;
    skv_kv kv;
    skv_state_type state;
    skv_prefill prefill;
    const char *cpu, *device; /* device: NULL is cpu */
    size_t gpus;              /* 0: one */
    size_t gpu_layers;        /* CLI_NOT_GIVEN: all */
    skv_sums sums;
    skv_pruning pruning;
    skv_ffn_skip ffn_skip;
    double early_exit;    /* 0: none */
    const char *adapters; /* --lora */
    skv_eviction eviction;
    skv_speculation speculation;
    bool speculation_given;  /* "none" as well */
    const char *draft;       /* --draft */
    const char *kept_file;   /* --dump-kept */
    size_t kv_layers, group; /* 0: not given */
    size_t exit_words;       /* 0: not given */
    skv_quantize_method quantize_method;

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
    bool peak, compare, costs, report, quick;
    const char *replay;
    size_t cost_context; /* --context of info and doctor; 0: the model's */
    size_t available;    /* bytes to plan for; 0: this machine's */
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
    /* NULL: not given */
    const char
        *sampling_texts[CLI_SAMPLING_FIELDS]; /* of request defaults, by skv_sampling_field */
    bool no_generation_config;
    const char *key_file, *served_name, *cors_origins, *request_log, *cache_dir;
    const char *cache_key_file, *cache_store, *cache_store_auth, *cache_store_ca, *cache_store_cert,
        *cache_store_key;
    double cache_store_seconds, prefill_seconds;
    const char *role, *prefill_from;
    size_t prefill_above;
    size_t max_loaded, models_mib; /* MiB 0: not given */
    const char *slot_save_path;
    const char *reranker, *prompt_strip, *prompt_sort, *prompt_keep;
    const char *host, *cache_disk_form, *tool_format, *reasoning_format, *template_vars;
    size_t kv_tokens, max_queued_tokens; /* 0: not given */
    size_t state_checkpoints;            /* CLI_NOT_GIVEN: by the number of answers */
    size_t port, max_running, max_queued, connections, connections_per_ip, body_mib, memory_mib,
        request_mib, stack_kib, cache_disk_bytes, slot_save_bytes;
    double step_ms, mask_seconds, queue_seconds, header_seconds, body_seconds, stall_seconds,
        ping_seconds, shutdown_seconds, watchdog_seconds, request_work, reading_seconds,
        requests_a_minute, tokens_a_minute, idle_read;
    bool insecure, metrics_compat, log_probes, log_prompt_text, no_prefix_cache, no_text_match,
        cache_shift, no_teacher;

    /* Load. */
    bool chat_api;
    cli_numbers rates;
    const char *arrivals, *trace_file, *methods, *extra_body, *goals, *out_file;
    size_t clients; /* 0: not given */
    size_t n_warmup;
    double seconds, request_seconds; /* 0: not given */
    double cancel_share, cancel_seconds, time_scale, length_scale;

    const char *svg_file;
    bool list_options, list_sampling, list_methods, list_combinations;
};

/**
 * Parses argv of main. On CLI_DONE `out` is filled; on CLI_USAGE the line has been printed.
 */
CLI_CHECKED int cli_options_parse(int argc, char *const *argv, cli_options *out);

/** `swiftkv help`: the list of commands. */
void cli_help_overview(FILE *stream);
/** Three commands to begin with, for the model that is here. */
void cli_help_first(FILE *stream);
/** `swiftkv help COMMAND`. */
void cli_help_command(cli_command command);
/** Prints the values of `--evict` as a table in Markdown. */
void cli_help_methods(void);
/** Prints the combinations that work and the reasons against others, in Markdown. */
void cli_help_combinations(void);

/* ---- the rows of the option table, for the parser and the help texts ---- */

typedef struct cli_option {
    uint32_t commands; /* a bit for each cli_command that takes it */
    skv_field field;   /* of cli_options; its name has the dashes */
} cli_option;

/** The i-th option; false at the end. */
bool cli_option_at(size_t i, cli_option *out);
/** Whether every command that runs a model takes it. */
bool cli_option_is_common(const cli_option *option);

/* Values of other forms, as skv_field_parser: lists between commas into cli_sizes and cli_numbers,
 * one more of cli_texts. */
skv_status cli_parse_sizes(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_numbers(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_texts(const skv_field *field, const char *text, void *out, skv_error *err);
/* The library's words, and its forms of words and numbers. */
skv_status cli_parse_weights(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_state(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_sums(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_kv(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_prefill(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_pruning(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_ffn_skip(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_eviction(const skv_field *field, const char *text, void *out, skv_error *err);
skv_status cli_parse_speculation(const skv_field *field, const char *text, void *out,
                                 skv_error *err);
/* An eviction with "snapkv:" before it. */
skv_status cli_parse_snapkv(const skv_field *field, const char *text, void *out, skv_error *err);

#endif
