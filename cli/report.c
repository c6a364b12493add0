/* Errors, notes and progress on standard error; memory for the program's own small needs. */
#include "report.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "skv/tools.h"

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
    if (!memory) exit(cli_fail("out of memory: %zu items of %zu bytes", n, item_bytes));
    return memory;
}

void *cli_grow(void *old, size_t n, size_t item_bytes)
{
    void *memory = n <= SIZE_MAX / item_bytes ? realloc(old, n * item_bytes) : NULL;
    if (!memory) exit(cli_fail("out of memory: %zu items of %zu bytes", n, item_bytes));
    return memory;
}

/* ---- one line on the terminal, written over and over, and cleared at the end ---- */

/* What is over soon needs no line, and ten lines a second are enough. */
#define PATIENCE_NS UINT64_C(300000000)
#define INTERVAL_NS UINT64_C(100000000)

bool cli_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

void cli_progress_begin(cli_progress *progress, const char *what)
{
    *progress = (cli_progress){.what = what, .enabled = cli_terminal(), .start_ns = skv_now_ns()};
}

/* Seconds since the beginning; negative when this is no time to show anything. */
static double time_to_show(cli_progress *progress)
{
    if (!progress->enabled) return -1;
    const uint64_t now = skv_now_ns();
    if (now - progress->start_ns < PATIENCE_NS || now - progress->shown_ns < INTERVAL_NS) return -1;
    progress->shown_ns = now;
    progress->visible = true;
    return (double)(now - progress->start_ns) * 1e-9;
}

void cli_progress_share(void *user, double share)
{
    cli_progress *progress = user;
    const double seconds = time_to_show(progress);
    if (seconds < 0) return;
    fprintf(stderr, "\r\x1b[K%s: %.0f %%", progress->what, 100 * share);
    if (share > 0.01) fprintf(stderr, ", %.0f s left", seconds / share * (1 - share));
}

void cli_progress_tokens(void *user, size_t done, size_t total)
{
    cli_progress *progress = user;
    const double seconds = time_to_show(progress);
    if (seconds < 0 || done == 0) return;
    const double rate = (double)done / seconds;
    fprintf(stderr, "\r\x1b[K%s: %zu of %zu tokens, %.0f tokens/s, %.0f s left", progress->what,
            done, total, rate, (double)(total - done) / rate);
}

void cli_progress_items(void *user, const char *name, size_t done, size_t total)
{
    enum { BAR = 24 };
    static const char full[] = "########################", none[] = "........................";
    cli_progress *progress = user;
    if (done == 0) progress->start_ns = skv_now_ns(); /* of this list */
    const double seconds = time_to_show(progress);
    if (seconds < 0 || done == 0 || total == 0) return;
    const int n = (int)((double)BAR * (double)done / (double)total);
    fprintf(stderr, "\r\x1b[K%s: %.40s [%.*s%.*s] %zu of %zu, %.0f s left", progress->what, name, n,
            full, BAR - n, none, done, total, seconds / (double)done * (double)(total - done));
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->visible) fputs("\r\x1b[K", stderr);
    progress->visible = false;
}
