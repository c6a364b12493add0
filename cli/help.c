/* The help texts, written from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "combinations.h"
#include "option_table.h"
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
    return (option->commands >> command & 1U) != 0 && option->help != NULL;
}

static void print_option(const char *dashes, const char *name, const char *argument,
                         const char *help)
{
    const int n = printf("  %s%s%s%s", dashes, name, argument != NULL ? " " : "",
                         argument != NULL ? argument : "");
    size_t column = n > 0 ? (size_t)n : 0;
    if (column >= HELP_COLUMN) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", (int)(HELP_COLUMN - column), "");
    print_wrapped(help, HELP_COLUMN, HELP_COLUMN);
}

static void print_options(cli_command command, bool common, const char *title)
{
    bool any = false;
    for (size_t i = 0; cli_option_at(i) != NULL; i++) {
        const cli_option *option = cli_option_at(i);
        if (!shown(option, command) || cli_option_is_common(option) != common) continue;
        if (!any) printf("\n%s\n", title);
        any = true;
        print_option("", option->name, option->argument, option->help);
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
    if (skv_preset_name(0) == NULL) return;
    printf("\nPresets:\n ");
    for (size_t i = 0; skv_preset_name(i) != NULL; i++) printf(" %s", skv_preset_name(i));
    putchar('\n');
}

void cli_help_overview(FILE *stream)
{
    fprintf(stream, "Usage: swiftkv COMMAND ...\n\n");
    for (size_t i = 0; cli_command_at(i) != NULL; i++) {
        fprintf(stream, "  %-12s %s\n", cli_command_at(i)->name, cli_command_at(i)->summary);
    }
    fprintf(stream, "\nswiftkv help COMMAND shows the options of a command. Exit status: 0 done,\n"
                    "1 the work failed, 2 the command line is wrong.\n");
}

void cli_help_command(cli_command command)
{
    const cli_command_row *row = cli_command_at(command);
    printf("swiftkv %s: %s\n\nUsage: swiftkv %s %s [OPTION ...]\n", row->name, row->summary,
           row->name, row->operands);
    if (row->details != NULL) {
        putchar('\n');
        print_wrapped(row->details, 0, 0);
    }
    print_options(command, false, "Options:");
    print_options(command, true, "How the model runs:");
    if (trains(command)) print_recipe_keys();
    if (command == CLI_BENCH || command == CLI_INFO) print_presets();
}

void cli_help_list(void)
{
    for (size_t i = 0; cli_command_at(i) != NULL; i++) {
        puts(cli_command_at(i)->name);
        for (size_t j = 0; cli_option_at(j) != NULL; j++) {
            const cli_option *option = cli_option_at(j);
            if (!shown(option, i)) continue;
            printf("%s %s%s%s\n", cli_command_at(i)->name, option->name,
                   option->argument != NULL ? " " : "",
                   option->argument != NULL ? option->argument : "");
        }
        skv_recipe_key key;
        for (size_t k = 0; trains(i) && skv_recipe_key_at(k, &key); k++) {
            printf("%s --%s%s%s\n", cli_command_at(i)->name, key.name, key.flag ? "" : " ",
                   key.flag ? "" : key.argument);
        }
    }
}

int cli_run_help(const cli_options *options)
{
    if (options->list_options) {
        cli_help_list();
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
