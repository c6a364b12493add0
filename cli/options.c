/* The table of options and the parser that it drives. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "option_table.h"
#include "skv/recipe.h"

static bool takes(const cli_option *row, cli_command command)
{
    return (row->commands >> command & 1U) != 0;
}

/* The row of `name` (its first n characters) for a command, NULL when it has none. */
static const cli_option *find_option(cli_command command, const char *name, size_t n)
{
    for (size_t i = 0; cli_option_at(i) != NULL; i++) {
        const cli_option *row = cli_option_at(i);
        if (takes(row, command) && strlen(row->name) == n && memcmp(row->name, name, n) == 0) {
            return row;
        }
    }
    return NULL;
}

/* ---- values ---- */

static bool parse_size(const char *text, size_t *out)
{
    if (*text < '0' || *text > '9') return false;
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != 0 || value > SIZE_MAX) return false;
    *out = (size_t)value;
    return true;
}

static int set_size(const cli_option *row, const char *text, size_t *out)
{
    size_t value = 0;
    if (!parse_size(text, &value) || (double)value < row->min || (double)value > row->max) {
        return cli_usage("%s: '%s' is not a whole number from %.0f to %.0f", row->name, text,
                         row->min, row->max);
    }
    *out = value;
    return CLI_DONE;
}

static int set_number(const cli_option *row, const char *text, double *out)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    const bool above = row->open_min ? value > row->min : value >= row->min;
    const bool below = row->open_max ? value < row->max : value <= row->max;
    if (end == text || *end != 0 || !isfinite(value) || !above || !below) {
        return cli_usage("%s: '%s' is not a number %s %g and %s %g", row->name, text,
                         row->open_min ? "above" : "of at least", row->min,
                         row->open_max ? "below" : "at most", row->max);
    }
    *out = value;
    return CLI_DONE;
}

static int set_seed(const cli_option *row, const char *text, uint64_t *out)
{
    size_t value = 0;
    if (!parse_size(text, &value)) {
        return cli_usage("%s: '%s' is not a whole number from 0 to 2^64 - 1", row->name, text);
    }
    *out = value;
    return CLI_DONE;
}

/* The items of a list between commas, each to be read by `set_item`. */
static int set_list(const cli_option *row, const char *text,
                    int (*set_item)(const cli_option *row, const char *item, void *list),
                    void *list)
{
    for (const char *at = text;;) {
        const size_t n = strcspn(at, ",");
        char item[24] = {0};
        if (n == 0 || n >= sizeof item)
            return cli_usage("%s: '%s' is not a list of numbers", row->name, text);
        memcpy(item, at, n);
        const int status = set_item(row, item, list);
        if (status != CLI_DONE || at[n] == 0) return status;
        at += n + 1;
    }
}

static int full_list(const cli_option *row)
{
    return cli_usage("%s: more than %d numbers", row->name, CLI_LIST_MAX);
}

static int add_size(const cli_option *row, const char *item, void *list)
{
    cli_sizes *out = list;
    size_t value = 0;
    if (!parse_size(item, &value) || (double)value < row->min || (double)value > row->max) {
        return cli_usage("%s: '%s' in a list of whole numbers from %.0f to %.0f, like 512,2048",
                         row->name, item, row->min, row->max);
    }
    if (out->n == CLI_LIST_MAX) return full_list(row);
    out->at[out->n++] = value;
    return CLI_DONE;
}

static int add_number(const cli_option *row, const char *item, void *list)
{
    cli_numbers *out = list;
    double value = 0;
    const int status = set_number(row, item, &value);
    if (status != CLI_DONE) return status;
    if (out->n == CLI_LIST_MAX) return full_list(row);
    out->at[out->n++] = value;
    return CLI_DONE;
}

static int set_sizes(const cli_option *row, const char *text, cli_sizes *out)
{
    cli_sizes list = {0};
    const int status = set_list(row, text, add_size, &list);
    if (status == CLI_DONE) *out = list;
    return status;
}

static int set_numbers(const cli_option *row, const char *text, cli_numbers *out)
{
    cli_numbers list = {0};
    const int status = set_list(row, text, add_number, &list);
    if (status == CLI_DONE) *out = list;
    return status;
}

static int add_text(const cli_option *row, const char *text, cli_texts *out)
{
    if (text[0] == 0) return cli_usage("%s: an empty text", row->name);
    if (out->n == CLI_LIST_MAX) {
        return cli_usage("%s: given more than %d times", row->name, CLI_LIST_MAX);
    }
    out->at[out->n++] = text;
    return CLI_DONE;
}

/* row->choices is "auto|bf16|...", as the help shows it. */
static int check_choice(const cli_option *row, const char *text)
{
    const size_t n = strlen(text);
    const char *at = row->argument != NULL ? row->argument : "";
    for (;;) {
        const size_t length = strcspn(at, "|");
        if (length == n && memcmp(at, text, n) == 0) return CLI_DONE;
        if (at[length] == 0) break;
        at += length + 1;
    }
    return cli_usage("%s: '%s' is none of %s", row->name, text, row->argument);
}

static int unknown_choice(const cli_option *row, const char *text)
{
    return cli_usage("%s: the library does not know '%s'", row->name, text);
}

/* Words with numbers in them, whose form is the row's and whose ranges are `ranges`. */
static int wrong_form(const cli_option *row, const char *text, const char *ranges)
{
    return cli_usage("%s: '%s' is not %s, %s", row->name, text, row->argument, ranges);
}

static int set_pruning(const cli_option *row, const char *text, skv_pruning *out)
{
    if (skv_pruning_parse(text, out)) return CLI_DONE;
    return wrong_form(row, text, "P above 0 and at most 1, E above 0 and at most P");
}

static int set_ffn_skip(const cli_option *row, const char *text, skv_ffn_skip *out)
{
    if (skv_ffn_skip_parse(text, out)) return CLI_DONE;
    return wrong_form(row, text, "S above -1 and at most 1, 0 <= from < to <= 1, or none");
}

static int set_choice(const cli_option *row, const char *text, void *field)
{
    const int status = check_choice(row, text);
    if (status != CLI_DONE) return status;
    switch (row->kind) {
    case CLI_OPTION_WEIGHTS:
        return skv_weights_parse(text, field) ? CLI_DONE : unknown_choice(row, text);
    case CLI_OPTION_KV: return skv_kv_parse(text, field) ? CLI_DONE : unknown_choice(row, text);
    case CLI_OPTION_PREFILL:
        return skv_prefill_parse(text, field) ? CLI_DONE : unknown_choice(row, text);
    default: *(const char **)field = text; return CLI_DONE;
    }
}

static int set_eviction(const cli_option *row, const char *method, const char *text,
                        skv_eviction *out)
{
    char whole[2 * SKV_EVICTION_TEXT];
    skv_error err = {0};
    const int n = snprintf(whole, sizeof whole, "%s%s", method, text);
    if (n < 0 || (size_t)n >= sizeof whole) return cli_usage("%s: too long", row->name);
    if (skv_eviction_parse(whole, out, &err) != SKV_OK) {
        return cli_usage("%s: %s", row->name, err.text);
    }
    return CLI_DONE;
}

static int set_option(const cli_option *row, const char *text, cli_options *out)
{
    void *field = (char *)out + row->offset;
    switch (row->kind) {
    case CLI_OPTION_FLAG: *(bool *)field = true; return CLI_DONE;
    case CLI_OPTION_TEXT: *(const char **)field = text; return CLI_DONE;
    case CLI_OPTION_SIZE: return set_size(row, text, field);
    case CLI_OPTION_NUMBER: return set_number(row, text, field);
    case CLI_OPTION_SEED: return set_seed(row, text, field);
    case CLI_OPTION_SIZES: return set_sizes(row, text, field);
    case CLI_OPTION_NUMBERS: return set_numbers(row, text, field);
    case CLI_OPTION_TEXTS: return add_text(row, text, field);
    case CLI_OPTION_CHOICE:
    case CLI_OPTION_WEIGHTS:
    case CLI_OPTION_KV:
    case CLI_OPTION_PREFILL: return set_choice(row, text, field);
    case CLI_OPTION_PRUNING: return set_pruning(row, text, field);
    case CLI_OPTION_FFN_SKIP: return set_ffn_skip(row, text, field);
    case CLI_OPTION_EVICTION: return set_eviction(row, "", text, field);
    case CLI_OPTION_SNAPKV: return set_eviction(row, "snapkv:", text, field);
    }
    return CLI_USAGE;
}

/* ---- the whole line ---- */

/* Inputs that exclude each other, and how many of them a command needs. */
static int check_inputs(const cli_options *o)
{
    const char *name = cli_command_at(o->command)->name;
    const int n = (o->prompt != NULL) + (o->file != NULL) + (o->ids_file != NULL);
    if (n > 1) {
        return cli_usage("%s: %s and %s exclude each other", name,
                         o->prompt != NULL ? "-p" : "--file",
                         o->ids_file != NULL ? "--ids-file" : "--file");
    }
    const bool reads = o->command == CLI_GENERATE || o->command == CLI_SCORE;
    if (reads && n == 0) return cli_usage("%s: give one of -p, --file, --ids-file", name);
    if (o->command == CLI_TOKENIZE && o->decode && o->ids_file == NULL) {
        return cli_usage("tokenize: --decode needs --ids-file");
    }
    if (o->command == CLI_TOKENIZE && !o->decode && (n == 0 || o->ids_file != NULL)) {
        return cli_usage("tokenize: give one of -p, --file, --decode --ids-file");
    }
    return CLI_DONE;
}

/* An answer follows one grammar. */
static int check_grammars(const cli_options *o)
{
    const char *given[] = {
        o->json_object ? "--json-object" : NULL, o->schema_file != NULL ? "--json-schema" : NULL,
        o->regex != NULL ? "--regex" : NULL, o->grammar_file != NULL ? "--grammar" : NULL};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (given[i] == NULL) continue;
        if (first != NULL) return cli_usage("%s and %s exclude each other", first, given[i]);
        first = given[i];
    }
    return CLI_DONE;
}

static int check_bench(const cli_options *o)
{
    const bool has_model = o->n_operands > 0;
    if (has_model && o->preset != NULL) {
        return cli_usage("bench: MODEL '%s' and --preset exclude each other", o->operands[0]);
    }
    if (!has_model && o->preset == NULL && !o->peak) {
        return cli_usage("bench: give one of MODEL, --preset, --peak");
    }
    if (!has_model && o->preset == NULL && o->compare) {
        return cli_usage("bench: --compare needs MODEL or --preset");
    }
    return CLI_DONE;
}

/* What belongs to --init ridge says nothing without it. */
static int check_transform(const cli_options *o)
{
    const bool ridge = o->init != NULL && strcmp(o->init, "ridge") == 0;
    if (o->keep_layers != NULL) {
        const bool more = o->kv_layers != 0 || o->group != 0 || o->init != NULL || o->data.n > 0;
        return more ? cli_usage("transform: --keep-layers makes an ordinary model: no other goes "
                                "with it")
                    : CLI_DONE;
    }
    if (o->kv_layers == 0) return cli_usage("transform: --kv-layers L is missing");
    if (ridge && o->data.n == 0) return cli_usage("transform: --init ridge needs --text FILE");
    if (ridge) return CLI_DONE;
    if (o->data.n > 0 || o->text_tokens > 0 || o->ridge >= 0 || o->ridge_to != NULL) {
        return cli_usage("transform: --text, --tokens, --ridge and --ridge-to need --init ridge");
    }
    return CLI_DONE;
}

static int check_eval(const cli_options *o)
{
    if (o->tasks == NULL) return cli_usage("eval: --task NAME|FILE,... is missing");
    if (o->resume && o->log_file == NULL) return cli_usage("eval: --resume needs --log F");
    return CLI_DONE;
}

static int check_tune(const cli_options *o)
{
    if (o->floor < 0) return cli_usage("tune: --floor X is missing, like --floor 0.99");
    if ((o->tasks != NULL) == (o->text_file != NULL)) {
        return cli_usage("tune: give one of --text F, --task NAME|FILE,...");
    }
    if (o->resume && o->log_file == NULL) return cli_usage("tune: --resume needs --log F");
    return CLI_DONE;
}

static int check_load(const cli_options *o)
{
    const bool trace_times = o->arrivals != NULL && strcmp(o->arrivals, "trace") == 0;
    const bool drawn_times = o->arrivals != NULL && !trace_times;
    if (trace_times && o->trace_file == NULL) {
        return cli_usage("load: --arrivals trace needs --trace FILE");
    }
    if (drawn_times && o->rates.n == 0) {
        return cli_usage("load: --arrivals %s needs --rate R", o->arrivals);
    }
    if (o->svg_file != NULL && o->rates.n < 2) {
        return cli_usage("load: --svg needs two or more rates, like --rate 1,2,4");
    }
    return CLI_DONE;
}

static int check_command(const cli_options *o)
{
    const int status = check_inputs(o);
    if (status != CLI_DONE) return status;
    switch (o->command) {
    case CLI_GENERATE: return check_grammars(o);
    case CLI_BENCH: return check_bench(o);
    case CLI_EVAL: return check_eval(o);
    case CLI_TUNE: return check_tune(o);
    case CLI_SIMILARITY:
        return o->text_file != NULL ? CLI_DONE : cli_usage("similarity: --text FILE is missing");
    case CLI_TRANSFORM: return check_transform(o);
    case CLI_LOAD: return check_load(o);
    case CLI_RENDER:
        return o->messages_file != NULL ? CLI_DONE : cli_usage("render: --messages F is missing");
    case CLI_CHAT:
        if (!o->raw || o->template_file == NULL) return CLI_DONE;
        return cli_usage("chat: --raw and --template exclude each other");
    default: return CLI_DONE;
    }
}

static int check_operands(const cli_options *o)
{
    const cli_command_row *row = cli_command_at(o->command);
    if (o->n_operands >= row->operands_min) return CLI_DONE;
    const bool second = o->n_operands > 0 || o->command == CLI_VOCAB;
    const char *missing = o->command == CLI_LOAD ? "URL" : second ? "OUT" : "MODEL";
    return cli_usage("%s: %s is missing: swiftkv %s %s", row->name, missing, row->name,
                     row->operands);
}

static int add_operand(const char *text, cli_options *out)
{
    const cli_command_row *row = cli_command_at(out->command);
    if (out->n_operands == row->operands_max) {
        return cli_usage("%s: '%s' is one argument too many", row->name, text);
    }
    out->operands[out->n_operands++] = text;
    return CLI_DONE;
}

/* The key of training recipes that an option "--key" names; false when there is none. */
static bool find_setting(cli_command command, const char *name, size_t n, skv_recipe_key *out)
{
    if ((command != CLI_DISTILL && command != CLI_TRAIN) || n < 3 || memcmp(name, "--", 2) != 0) {
        return false;
    }
    for (size_t i = 0; skv_recipe_key_at(i, out); i++) {
        if (strlen(out->name) == n - 2 && memcmp(out->name, name + 2, n - 2) == 0) return true;
    }
    return false;
}

static int add_setting(const skv_recipe_key *key, const char *value, cli_settings *out)
{
    if (out->n == CLI_SETTINGS_MAX) {
        return cli_usage("--%s: more than %d settings", key->name, CLI_SETTINGS_MAX);
    }
    out->key[out->n] = key->name;
    out->value[out->n++] = value;
    return CLI_DONE;
}

/* The option at argv[*i] with its value: "--name value", "--name=value", "-n value". */
static int parse_option(int argc, char *const *argv, int *i, cli_options *out)
{
    const char *arg = argv[*i];
    const char *name = cli_command_at(out->command)->name;
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    const size_t n = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    const cli_option *row = find_option(out->command, arg, n);
    skv_recipe_key key = {.flag = false};
    if (row == NULL && !find_setting(out->command, arg, n, &key)) {
        return cli_usage("%s: no option '%.*s' (swiftkv help %s)", name, (int)n, arg, name);
    }
    const bool is_flag = row != NULL ? row->argument == NULL : key.flag;
    if (row != NULL && is_flag && equals != NULL) {
        return cli_usage("%s: takes no value, given '%s'", row->name, equals + 1);
    }
    const char *value = equals != NULL ? equals + 1 : row != NULL ? "" : "yes";
    if (!is_flag && equals == NULL) {
        if (*i + 1 >= argc) {
            return cli_usage("%.*s: %s is missing", (int)n, arg,
                             row != NULL ? row->argument : key.argument);
        }
        value = argv[++*i];
    }
    return row != NULL ? set_option(row, value, out) : add_setting(&key, value, &out->settings);
}

static void set_defaults(cli_options *out)
{
    *out = (cli_options){.n_tokens = CLI_NOT_GIVEN,
                         .count = CLI_NOT_GIVEN,
                         .gen_tokens = 64,
                         .batch = 1,
                         .repeat = 3,
                         .cpu = "best"};
    out->sampling = skv_sampling_default();
    out->ridge = out->floor = -1;
    out->port = out->kv_tokens = out->max_running = out->max_queued = CLI_NOT_GIVEN;
    out->max_queued_tokens = out->connections = out->connections_per_ip = CLI_NOT_GIVEN;
    out->body_mib = out->cache_disk_bytes = CLI_NOT_GIVEN;
    out->step_ms = out->queue_seconds = out->header_seconds = out->body_seconds = -1;
    out->stall_seconds = out->ping_seconds = out->shutdown_seconds = -1;
    out->watchdog_seconds = out->requests_a_minute = out->tokens_a_minute = -1;
    out->cancel_seconds = out->time_scale = out->length_scale = 1;
    out->prompt_lengths = (cli_sizes){.n = 1, .at = {512}};
}

static int find_command(const char *name, cli_command *out)
{
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    *out = cli_command_find(name);
    if (*out != CLI_COMMAND_COUNT) return CLI_DONE;
    char list[256] = "";
    size_t n = 0;
    for (size_t i = 0; cli_command_at(i) != NULL && n < sizeof list; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "",
                              cli_command_at(i)->name);
    }
    return cli_usage("no command '%s': it is one of %s", name, list);
}

int cli_options_parse(int argc, char *const *argv, cli_options *out)
{
    set_defaults(out);
    if (argc < 2) {
        cli_help_overview(stderr);
        return CLI_USAGE;
    }
    int status = find_command(argv[1], &out->command);
    bool only_operands = false;
    for (int i = 2; status == CLI_DONE && i < argc; i++) {
        const char *arg = argv[i];
        if (!only_operands && strcmp(arg, "--") == 0) {
            only_operands = true;
        } else if (!only_operands && arg[0] == '-' && arg[1] != 0) {
            status = parse_option(argc, argv, &i, out);
        } else {
            status = add_operand(arg, out);
        }
    }
    if (status != CLI_DONE || out->help) return status;
    status = check_operands(out);
    return status == CLI_DONE ? check_command(out) : status;
}
