/* The table of docs/methods.md: what evicts rows, and what it does to the rest of the program. */
#include <stdint.h>

#include "commands.h"
#include "options.h"
#include "skv/eviction.h"

/* A method as it is without further words. */
static skv_eviction plain(const char *name)
{
    skv_eviction out = {.method = SKV_EVICT_NONE};
    skv_error err = {0};
    char text[SKV_EVICTION_TEXT];
    int n = snprintf(text, sizeof text, "%s:128", name);
    if (n > 0 && skv_eviction_parse(text, &out, &err) == SKV_OK) return out;
    n = snprintf(text, sizeof text, "%s:4,128", name); /* its first number is another */
    if (n < 0 || skv_eviction_parse(text, &out, &err) != SKV_OK) out.method = SKV_EVICT_NONE;
    return out;
}

static void print_row(const char *name, const char *form, const char *about)
{
    const skv_eviction how = plain(name);
    const size_t n_voters = skv_eviction_voters(&how);
    const bool all = n_voters == SIZE_MAX, none = n_voters == 0;
    printf("| `%s:", name);
    /* A bar would end the cell. */
    for (const char *at = form; *at != 0; at++) {
        if (*at == '|') putchar('\\');
        putchar(*at);
    }
    printf("` | %s | %s | %s | %s |\n", about,
           none  ? "nobody"
           : all ? "every token of the prompt"
                 : "the last w tokens",
           none  ? "the last token"
           : all ? "every token of the prompt"
                 : "the last w tokens",
           none  ? "all but the last token"
           : all ? "nothing"
                 : "all but the last w tokens");
}

void cli_help_methods(void)
{
    const char *name, *form, *about;
    printf("| `--evict` | what stays | who votes | SwiftKV: the deep layers run for | a known "
           "prefix may give |\n|---|---|---|---|---|\n");
    for (size_t i = 0; skv_eviction_form(i, &name, &form, &about); i++) {
        print_row(name, form, about);
    }
}
