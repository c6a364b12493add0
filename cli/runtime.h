/** A model as the commands hold it: its description, its tokenizer if it has one, its engine. */
#ifndef SKV_CLI_RUNTIME_H
#define SKV_CLI_RUNTIME_H

#include "common/json_out.h"
#include "input.h"
#include "options.h"
#include "skv/text.h"
#include "skv/tools.h"
#include "skv/work.h"

typedef struct cli_model {
    const char *path; /* as given, perhaps preset:NAME */
    skv_model_info info;
    skv_vocab *vocab; /* owned; NULL: this model has no tokenizer */
    skv_engine *engine;
} cli_model;

/** Whether the methods that the command line asks for go together, with this model and here. */
CLI_CHECKED int cli_check_methods(const char *path, const skv_model_info *info,
                                  const cli_options *options);
/** The description of a preset in the SwiftKV form that --kv-layers and --group ask for; other
 * paths have none. */
CLI_CHECKED int cli_shape_preset(const char *path, const cli_options *options,
                                 skv_model_info *info);
/** Prints a note if n tokens of "--ctx" or "a prompt of" (`what`) exceed the length that the model
 * was trained for. */
void cli_note_length(const cli_model *model, const char *what, size_t n);
/** Reads the configuration and the tokenizer of operands[0]: cheap, no weights; and checks the
 * methods. */
CLI_CHECKED int cli_model_describe(cli_model *model, const cli_options *options);
/** As cli_model_describe; fails if there is no tokenizer. */
CLI_CHECKED int cli_model_describe_text(cli_model *model, const cli_options *options);
/** Engine options as the command line gives them. */
skv_engine_options cli_engine_options(const cli_options *options);
/** Opens the engine of `model` with these options, showing progress; prints no error. */
CLI_CHECKED skv_status cli_model_try(cli_model *model, const skv_engine_options *options,
                                     skv_error *err);
/** As above, and prints the error. */
CLI_CHECKED int cli_model_start(cli_model *model, const skv_engine_options *options);
/** Releases the members of `model`. */
void cli_model_close(cli_model *model);

/** The name of "preset:NAME", NULL for a path. */
const char *cli_preset_of(const char *path);

/** Appends the ids of a text. */
CLI_CHECKED int cli_encode(const cli_model *model, const cli_bytes *text, bool add_special,
                           bool parse_special, cli_ids *out);
/** The text of -p or --file. */
CLI_CHECKED int cli_input_text(const cli_options *options, cli_bytes *out);

/** A chat template by its name ("chatml"), or of a file. */
CLI_CHECKED int cli_read_template(const char *name_or_file, cli_bytes *out);
/** NULL: there is none of that name. */
const char *cli_template_text(const char *name);

/** `template_text` with these variables; `vocab` (may be NULL) adds its special tokens. */
CLI_CHECKED int cli_render(const cli_bytes *template_text, const json_t *vars,
                           const skv_vocab *vocab, cli_bytes *out);
/** Appends the ids of that text. Special tokens are the template's own alone, unless special_text
 * allows them in the variables too. */
CLI_CHECKED int cli_encode_chat(const cli_model *model, const cli_bytes *template_text,
                                const json_t *vars, bool special_text, cli_ids *out);

/** Writes "ranks": {"n": N, "sums": N, "sum_bytes": N, ...}, the bytes that the ranks have sent;
 * writes nothing without ranks. */
void cli_json_put_traffic(skv_json_out *json, const skv_engine *engine);
/** "key": {"flops": N, "model_flops": N, ...} */
/** Returns the source of drafts: the model of --draft, if --speculate names none. */
skv_speculation cli_speculation_of(const cli_options *options);
/** "speculation":{"drafted":N,"accepted":N,"by":{...}}. */
void cli_json_put_drafts(skv_json_out *json, const skv_draft_counts drafts[SKV_DRAFT_SOURCES]);
void cli_json_put_work(skv_json_out *json, const char *key, const skv_work *work);

#endif
