/* Errors and notes on standard error; memory for the program's own small needs. */
#include "report.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024 };

/* One write a line, so that lines of different threads or processes stay whole. Names and values
 * come from outside: they may not break the line or drive the terminal. */
static void CLI_PRINTF(2, 0) print_line(const char *kind, const char *format, va_list args)
{
    char text[LINE_MAX_BYTES];
    vsnprintf(text, sizeof text, format, args);
    for (char *c = text; *c != 0; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    fflush(stdout);
    fprintf(stderr, "swiftkv: %s%s\n", kind, text);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
    return CLI_FAILED;
}

int cli_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
    return CLI_USAGE;
}

void cli_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("note: ", format, args);
    va_end(args);
}

int cli_check(skv_status status, const skv_error *err)
{
    if (status == SKV_OK) return CLI_DONE;
    return cli_fail("%s", err->text[0] != 0 ? err->text : skv_status_name(status));
}

void *cli_alloc(size_t n, size_t item_bytes)
{
    void *memory = calloc(n > 0 ? n : 1, item_bytes);
    if (memory == NULL) exit(cli_fail("out of memory: %zu items of %zu bytes", n, item_bytes));
    return memory;
}

void *cli_grow(void *old, size_t n, size_t item_bytes)
{
    void *memory = n <= SIZE_MAX / item_bytes ? realloc(old, n * item_bytes) : NULL;
    if (memory == NULL) exit(cli_fail("out of memory: %zu items of %zu bytes", n, item_bytes));
    return memory;
}
