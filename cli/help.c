/* The help texts, written from the tables of commands and options. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sampling_fields.h"
#include "options.h"
#include "skv/recipe.h"

enum { WIDTH = 90, HELP_COLUMN = 30 };

/* Prints words of `text` with `indent` spaces before each line but the first; the cursor stands
 * at `column`. */
static void print_wrapped(const char *text, size_t column, size_t indent)
{
    while (*text != 0) {
        const size_t n = strcspn(text, " ");
        if (column > indent && column + 1 + n > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        fwrite(text, 1, n, stdout);
        column += n;
        text += n;
        if (*text == ' ') text++;
    }
    putchar('\n');
}

static bool shown(const cli_option *option, size_t command)
{
    return (option->commands >> command & 1U) != 0 && option->field.help;
}

static void print_option(const char *dashes, const char *name, const char *argument,
                         const char *help)
{
    const int n = printf("  %s%s%s%s", dashes, name, argument ? " " : "", argument ? argument : "");
    size_t column = n > 0 ? (size_t)n : 0;
    if (column >= HELP_COLUMN) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", (int)(HELP_COLUMN - column), "");
    print_wrapped(help, HELP_COLUMN, HELP_COLUMN);
}

/* An option with its default, where the table has one. */
static void print_field(const skv_field *field)
{
    char help[512];
    (void)snprintf(help, sizeof help, "%s%s%s%s", field->help, field->initial ? " (" : "",
                   field->initial ? field->initial : "", field->initial ? ")" : "");
    print_option("", field->name, field->argument, help);
}

static void print_options(cli_command command, bool common, const char *title)
{
    bool any = false;
    cli_option option;
    for (size_t i = 0; cli_option_at(i, &option); i++) {
        if (!shown(&option, command) || cli_option_is_common(&option) != common) continue;
        if (!any) printf("\n%s\n", title);
        any = true;
        print_field(&option.field);
    }
}

static bool trains(size_t command)
{
    return command == CLI_DISTILL || command == CLI_TRAIN;
}

static void print_recipe_keys(void)
{
    skv_recipe_key key;
    printf("\nKeys of a recipe, which are options too:\n");
    for (size_t i = 0; skv_recipe_key_at(i, &key); i++) {
        print_option("--", key.name, key.flag ? NULL : key.argument, key.help);
    }
}

static void print_presets(void)
{
    if (!skv_preset_name(0)) return;
    printf("\nPresets:\n ");
    for (size_t i = 0; skv_preset_name(i); i++) printf(" %s", skv_preset_name(i));
    putchar('\n');
}

void cli_help_overview(FILE *stream)
{
    fprintf(stream, "Usage: swiftkv COMMAND ...\n\n");
    for (size_t i = 0; cli_command_at(i); i++) {
        fprintf(stream, "  %-12s %s\n", cli_command_at(i)->name, cli_command_at(i)->summary);
    }
    fprintf(stream, "\nswiftkv help COMMAND shows the options of a command. Exit status: 0 done,\n"
                    "1 the work failed, 2 the command line is wrong.\n");
}

/* The model of the source folder, else one of the Hugging Face cache; "": none. */
static void find_first(char out[CLI_HUB_PATH_MAX])
{
    static const char mini[] = "models/mini/kv6", inside[] = "/config.json";
    char path[sizeof mini + sizeof inside];
    (void)snprintf(path, sizeof path, "%s%s", mini, inside);
    if (access(path, R_OK) == 0) {
        (void)snprintf(out, CLI_HUB_PATH_MAX, "%s", mini);
    } else if (!cli_hub_first(out)) {
        out[0] = 0;
    }
}

void cli_help_first(FILE *stream)
{
    char model[CLI_HUB_PATH_MAX];
    find_first(model);
    if (strncmp(model, "models/", 7) == 0) {
        fprintf(stream,
                "\nTo begin with, a small SwiftKV model is here; it answers questions about "
                "documents:\n"
                "  swiftkv compare %s      the same questions with and without SwiftKV\n"
                "  swiftkv serve %s        then open http://127.0.0.1:8080 in a browser\n"
                "  swiftkv doctor                       what this machine allows\n",
                model, model);
    } else if (model[0]) {
        fprintf(stream,
                "\nTo begin with, the Hugging Face cache has %s:\n"
                "  swiftkv chat %s\n"
                "  swiftkv serve %s\n"
                "  swiftkv doctor\n",
                model, model, model);
    } else {
        fprintf(stream,
                "\nTo begin with:\n"
                "  swiftkv chat Qwen/Qwen2.5-0.5B-Instruct --download\n"
                "  swiftkv bench --preset llama-3.2-1b --prompt 512 --compare   no download\n"
                "  swiftkv doctor                                               what this "
                "machine allows\n");
    }
}

void cli_help_command(cli_command command)
{
    const cli_command_row *row = cli_command_at(command);
    printf("swiftkv %s: %s\n\nUsage: swiftkv %s %s [OPTION ...]\n", row->name, row->summary,
           row->name, row->operands);
    if (row->details) {
        putchar('\n');
        print_wrapped(row->details, 0, 0);
    }
    print_options(command, false, "Options:");
    print_options(command, true, "How the model runs:");
    if (trains(command)) print_recipe_keys();
    if (command == CLI_BENCH || command == CLI_INFO) print_presets();
}

/* Every command with its options, one a line, for scripts: "COMMAND OPTION [ARGUMENT]". */
static void print_list(void)
{
    for (size_t i = 0; cli_command_at(i); i++) {
        puts(cli_command_at(i)->name);
        cli_option option;
        for (size_t j = 0; cli_option_at(j, &option); j++) {
            if (!shown(&option, i)) continue;
            const char *argument = option.field.argument;
            printf("%s %s%s%s\n", cli_command_at(i)->name, option.field.name, argument ? " " : "",
                   argument ? argument : "");
        }
        skv_recipe_key key;
        for (size_t k = 0; trains(i) && skv_recipe_key_at(k, &key); k++) {
            printf("%s --%s%s%s\n", cli_command_at(i)->name, key.name, key.flag ? "" : " ",
                   key.flag ? "" : key.argument);
        }
    }
}

/* The fields of sampling as a table in Markdown. */
static void print_sampling(void)
{
    printf("| field | option | values | default | |\n|---|---|---|---|---|\n");
    for (size_t i = 0; skv_sampling_field(i); i++) {
        const skv_field *field = skv_sampling_field(i);
        char range[SKV_FIELD_RANGE_TEXT] = "a whole number";
        if (field->kind != SKV_FIELD_SEED) skv_field_range(field, range);
        printf("| `%s` | `%s %s` | %s | %s | %s |\n", field->name, field->option, field->argument,
               range, field->initial, field->help);
    }
}

int cli_run_help(const cli_options *options)
{
    if (options->list_options) {
        print_list();
    } else if (options->list_sampling) {
        print_sampling();
    } else if (options->list_methods) {
        cli_help_methods();
    } else if (options->list_combinations) {
        cli_help_combinations();
    } else if (options->n_operands == 0) {
        cli_help_overview(stdout);
    } else {
        const cli_command command = cli_command_find(options->operands[0]);
        if (command == CLI_COMMAND_COUNT) {
            return cli_usage("help: no command '%s'", options->operands[0]);
        }
        cli_help_command(command);
    }
    return CLI_DONE;
}

int cli_run_version(const cli_options *options)
{
    (void)options;
    printf("swiftkv %d.%d.%d\n", SKV_VERSION_MAJOR, SKV_VERSION_MINOR, SKV_VERSION_PATCH);
    return CLI_DONE;
}
