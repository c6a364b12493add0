/* The table of options and the parser that it drives. */
#include "options.h"

#include <ctype.h>
#include <string.h>

#include "common/sampling_fields.h"
#include "skv/recipe.h"
#include "skv/tools.h"
#include "suggest.h"

static bool takes(const cli_option *row, cli_command command)
{
    return (row->commands >> command & 1U) != 0;
}

/* The row of `name` (its first n characters) for a command; false when it has none. */
static bool find_option(cli_command command, const char *name, size_t n, cli_option *out)
{
    for (size_t i = 0; cli_option_at(i, out); i++) {
        const char *found = out->field.name;
        if (takes(out, command) && strlen(found) == n && memcmp(found, name, n) == 0) return true;
    }
    return false;
}

static int set_option(const cli_option *row, const char *text, cli_options *out)
{
    skv_error err = {0};
    if (skv_field_parse(&row->field, text, out, &err) == SKV_OK) return CLI_DONE;
    return cli_usage("%s", err.text);
}

/* ---- the whole line ---- */

/* Inputs that exclude each other, and how many of them a command needs. */
static int check_inputs(const cli_options *o)
{
    const char *name = cli_command_at(o->command)->name;
    const int n = (!!o->prompt) + (!!o->file) + (!!o->ids_file);
    if (n > 1) {
        return cli_usage("%s: %s and %s exclude each other", name, o->prompt ? "-p" : "--file",
                         o->ids_file ? "--ids-file" : "--file");
    }
    const bool reads = o->command == CLI_GENERATE || o->command == CLI_SCORE;
    if (reads && n == 0) return cli_usage("%s: give one of -p, --file, --ids-file", name);
    if (o->command == CLI_TOKENIZE && o->decode && !o->ids_file) {
        return cli_usage("tokenize: --decode needs --ids-file");
    }
    if (o->command == CLI_TOKENIZE && !o->decode && (n == 0 || o->ids_file)) {
        return cli_usage("tokenize: give one of -p, --file, --decode --ids-file");
    }
    return CLI_DONE;
}

/* An answer follows one grammar. */
static int check_grammars(const cli_options *o)
{
    const char *given[] = {o->json_object ? "--json-object" : NULL,
                           o->schema_file ? "--json-schema" : NULL, o->regex ? "--regex" : NULL,
                           o->grammar_file ? "--grammar" : NULL};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (!given[i]) continue;
        if (first) return cli_usage("%s and %s exclude each other", first, given[i]);
        first = given[i];
    }
    return CLI_DONE;
}

static int check_bench(const cli_options *o)
{
    const bool has_model = o->n_operands > 0;
    if (has_model && o->preset) {
        return cli_usage("bench: MODEL '%s' and --preset exclude each other", o->operands[0]);
    }
    if (!has_model && !o->preset && !o->peak) {
        return cli_usage("bench: give one of MODEL, --preset, --peak");
    }
    if (!has_model && !o->preset && o->compare) {
        return cli_usage("bench: --compare needs MODEL or --preset");
    }
    return CLI_DONE;
}

static int check_cut(const cli_options *o)
{
    const bool more = o->keep_layers || o->kv_layers != 0 || o->group != 0 || o->init ||
                      o->adapters || o->text_tokens > 0 || o->ridge >= 0 || o->ridge_to;
    return more ? cli_usage("transform: --exit-words cuts the exit head of a SwiftKV model: of the "
                            "other changes none goes with it")
                : CLI_DONE;
}

/* Options of --init ridge mean nothing without it. */
static int check_transform(const cli_options *o)
{
    if (o->exit_words > 0) return check_cut(o);
    const bool ridge = o->init && strcmp(o->init, "ridge") == 0;
    if (o->keep_layers) {
        const bool more = o->kv_layers != 0 || o->group != 0 || o->init || o->data.n > 0;
        return more ? cli_usage("transform: --keep-layers makes an ordinary model: no other goes "
                                "with it")
                    : CLI_DONE;
    }
    if (ridge && o->data.n == 0) return cli_usage("transform: --init ridge needs --text FILE");
    if (ridge) return CLI_DONE;
    if (o->data.n > 0 || o->text_tokens > 0 || o->ridge >= 0 || o->ridge_to) {
        return cli_usage("transform: --text, --tokens, --ridge and --ridge-to need --init ridge");
    }
    return CLI_DONE;
}

static int check_doctor(const cli_options *o)
{
    if (o->report && o->n_operands > 0) {
        return cli_usage("doctor: --report is of the machine: '%s' does not go with it",
                         o->operands[0]);
    }
    if (o->quick && !o->report) return cli_usage("doctor: --quick needs --report");
    return CLI_DONE;
}

static int check_eval(const cli_options *o)
{
    if (!o->tasks) return cli_usage("eval: --task NAME|FILE,... is required");
    if (o->resume && !o->log_file) return cli_usage("eval: --resume needs --log F");
    return CLI_DONE;
}

static int check_tune(const cli_options *o)
{
    if (o->floor < 0) return cli_usage("tune: --floor X is missing, like --floor 0.99");
    if ((!!o->tasks) == (!!o->text_file)) {
        return cli_usage("tune: give either --text F or --task NAME|FILE,...");
    }
    if (o->resume && !o->log_file) return cli_usage("tune: --resume needs --log F");
    return CLI_DONE;
}

static int check_load(const cli_options *o)
{
    const bool trace_times = o->arrivals && strcmp(o->arrivals, "trace") == 0;
    const bool drawn_times = o->arrivals && !trace_times;
    if (trace_times && !o->trace_file) {
        return cli_usage("load: --arrivals trace needs --trace FILE");
    }
    if (drawn_times && o->rates.n == 0) {
        return cli_usage("load: --arrivals %s needs --rate R", o->arrivals);
    }
    if (o->svg_file && o->rates.n < 2) {
        return cli_usage("load: --svg needs two or more rates, like --rate 1,2,4");
    }
    return CLI_DONE;
}

static int check_gpus(const cli_options *o)
{
    static const char needs[] = "needs a device that is not the processor, like --device cuda";
    if (o->gpus < 2 && o->sums != SKV_SUMS_AUTO) {
        return cli_usage("--sums %s: of several GPUs, like --gpus 2", skv_sums_name(o->sums));
    }
    if (o->device && strcmp(o->device, "cpu") != 0) return CLI_DONE;
    if (o->gpus > 1) return cli_usage("--gpus %zu: %s", o->gpus, needs);
    if (o->gpu_layers == CLI_NOT_GIVEN) return CLI_DONE;
    return cli_usage("--gpu-layers %zu: %s", o->gpu_layers, needs);
}

static int check_command(const cli_options *o)
{
    skv_error err = {0};
    int status = check_inputs(o);
    if (status == CLI_DONE && o->device)
        status = cli_check(skv_device_check(o->device, &err), &err);
    if (status == CLI_DONE) status = check_gpus(o);
    if (status != CLI_DONE) return status;
    switch (o->command) {
    case CLI_GENERATE: return check_grammars(o);
    case CLI_BENCH: return check_bench(o);
    case CLI_DOCTOR: return check_doctor(o);
    case CLI_EVAL: return check_eval(o);
    case CLI_TUNE: return check_tune(o);
    case CLI_SIMILARITY:
        return o->text_file ? CLI_DONE : cli_usage("similarity: --text FILE is missing");
    case CLI_TRANSFORM: return check_transform(o);
    case CLI_LOAD: return check_load(o);
    case CLI_RENDER:
        return o->messages_file ? CLI_DONE : cli_usage("render: --messages F is missing");
    case CLI_CHAT:
        if (!o->raw || !o->template_file) return CLI_DONE;
        return cli_usage("chat: --raw and --template exclude each other");
    default: return CLI_DONE;
    }
}

/* The i-th operand of a usage line, and the length of its name: a word, or what stands in
 * parentheses. */
static const char *operand_name(const char *operands, size_t i, size_t *n)
{
    for (;; i--, operands += *n + 1) {
        *n = operands[0] == '(' ? strcspn(operands, ")") + 1 : strcspn(operands, " ");
        if (i == 0 || !operands[*n]) return operands;
    }
}

/* An operand in small letters is a word that is to be given as it is. */
static int check_operands(const cli_options *o)
{
    const cli_command_row *row = cli_command_at(o->command);
    size_t n;
    for (size_t i = 0; i < row->operands_min; i++) {
        const char *name = operand_name(row->operands, i, &n);
        if (i == o->n_operands) {
            return cli_usage("%s: %.*s is missing: swiftkv %s %s", row->name, (int)n, name,
                             row->name, row->operands);
        }
        const bool is_word = islower((unsigned char)name[0]);
        if (is_word && (strlen(o->operands[i]) != n || memcmp(o->operands[i], name, n) != 0)) {
            return cli_usage("%s: '%s': expected %.*s", row->name, o->operands[i], (int)n, name);
        }
    }
    return CLI_DONE;
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

/* Remembers that an option was given if its value does not tell: fields of sampling, for a command
 * with the model's defaults, and "--speculate none" beside --draft. */
static void keep_given(const cli_option *row, const char *value, cli_options *out)
{
    if (strcmp(row->field.name, "--speculate") == 0) out->speculation_given = true;
    for (size_t i = 0; skv_sampling_field(i) && i < CLI_SAMPLING_FIELDS; i++) {
        if (strcmp(row->field.name, skv_sampling_field(i)->option) != 0) continue;
        out->sampling_texts[i] = value;
    }
}

/* Words that other programs have. */
static const char *const other_names[][2] = {{"--max-tokens", "-n"},
                                             {"--n-predict", "-n"},
                                             {"--context", "--ctx"},
                                             {"--ctx-size", "--ctx"},
                                             {"--max-model-len", "--ctx"},
                                             {"--prompt", "-p"},
                                             {"--served-model-name", "--name"},
                                             {"--alias", "--name"},
                                             {"--chat-template", "--template"}};

static int fail_option(cli_command command, const char *given, size_t n)
{
    cli_option row;
    cli_suggestion s = cli_suggest(given, n);
    const char *name = cli_command_at(command)->name, *other = "";
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        const bool same =
            strlen(other_names[i][0]) == n && memcmp(other_names[i][0], given, n) == 0;
        if (same) other = other_names[i][1];
    }
    for (size_t i = 0; cli_option_at(i, &row); i++) {
        if (!takes(&row, command) || !row.field.help) continue;
        if (strcmp(row.field.name, other) == 0) {
            s.best = row.field.name;
            break;
        }
        cli_suggest_try(&s, row.field.name);
    }
    if (!s.best) {
        return cli_usage("%s: no option '%.*s' (swiftkv help %s)", name, (int)n, given, name);
    }
    return cli_usage("%s: no option '%.*s': did you mean %s? (swiftkv help %s)", name, (int)n,
                     given, s.best, name);
}

/* The option at argv[*i] with its value: "--name value", "--name=value", "-n value". */
static int parse_option(int argc, char *const *argv, int *i, cli_options *out)
{
    const char *arg = argv[*i];
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    const size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    cli_option row;
    skv_recipe_key key = {.flag = false};
    const bool is_option = find_option(out->command, arg, n, &row);
    if (!is_option && !find_setting(out->command, arg, n, &key)) {
        return fail_option(out->command, arg, n);
    }
    const char *argument = is_option ? row.field.argument : key.argument;
    const bool is_flag = is_option ? !argument : key.flag;
    if (is_option && is_flag && equals) {
        return cli_usage("%s: takes no value, given '%s'", row.field.name, equals + 1);
    }
    const char *value = equals ? equals + 1 : "yes";
    if (!is_flag && !equals) {
        if (*i + 1 >= argc) {
            return cli_usage("%.*s: %s is missing", (int)n, arg, argument);
        }
        value = argv[++*i];
    }
    if (!is_option) return add_setting(&key, value, &out->settings);
    const int status = set_option(&row, value, out);
    if (status == CLI_DONE) keep_given(&row, value, out);
    return status;
}

/* Sets the values that are not in the table, and those that mean "not given" in options.h. */
static void clear_options(cli_options *out)
{
    *out = (cli_options){.n_tokens = CLI_NOT_GIVEN,
                         .count = CLI_NOT_GIVEN,
                         .state_checkpoints = CLI_NOT_GIVEN,
                         .gpu_layers = CLI_NOT_GIVEN,
                         .cpu = "best",
                         .ridge = -1,
                         .floor = -1};
    out->sampling = skv_sampling_default();
}

/* The defaults that the table has for the command. */
static int set_initial(cli_options *out)
{
    cli_option row;
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && cli_option_at(i, &row); i++) {
        if (!takes(&row, out->command) || !row.field.initial) continue;
        status = set_option(&row, row.field.initial, out);
    }
    return status;
}

static int find_command(const char *name, cli_command *out)
{
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    *out = cli_command_find(name);
    if (*out != CLI_COMMAND_COUNT) return CLI_DONE;
    cli_suggestion s = cli_suggest(name, strlen(name));
    char list[256] = "";
    size_t n = 0;
    for (size_t i = 0; cli_command_at(i) && n < sizeof list; i++) {
        cli_suggest_try(&s, cli_command_at(i)->name);
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "",
                              cli_command_at(i)->name);
    }
    if (s.best) return cli_usage("no command '%s': did you mean %s?", name, s.best);
    return cli_usage("no command '%s': it is one of %s", name, list);
}

int cli_options_parse(int argc, char *const *argv, cli_options *out)
{
    clear_options(out);
    if (argc < 2) {
        cli_help_overview(stderr);
        cli_help_first(stderr);
        return CLI_USAGE;
    }
    int status = find_command(argv[1], &out->command);
    if (status == CLI_DONE) status = set_initial(out);
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
