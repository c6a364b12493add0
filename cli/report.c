/* Errors, notes and progress on standard error; memory for the program's own small needs. */
#include "report.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "skv/tools.h"

enum { LINE_MAX_BYTES = 1024 };

/* Names and values come from outside: they may not break a line or drive the terminal. */
static void clean(char *text)
{
    for (char *c = text; *c != 0; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
}

/* One write a line, so that lines of different threads or processes stay whole. */
static void CLI_PRINTF(2, 0) print_line(const char *kind, const char *format, va_list args)
{
    char text[LINE_MAX_BYTES];
    vsnprintf(text, sizeof text, format, args);
    clean(text);
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

void cli_tell(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
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

/* Short work needs no line. A terminal gets at most ten updates a second, other outputs one a
 * minute. */
#define PATIENCE_NS UINT64_C(300000000)
#define INTERVAL_NS UINT64_C(100000000)
#define MINUTE_NS UINT64_C(60000000000)

bool cli_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

void cli_progress_begin(cli_progress *progress, const char *what)
{
    const uint64_t now = skv_now_ns();
    *progress =
        (cli_progress){.what = what, .terminal = cli_terminal(), .start_ns = now, .shown_ns = now};
}

/* Seconds since the beginning; negative when this is no time to show anything. */
static double time_to_show(cli_progress *progress)
{
    const uint64_t now = skv_now_ns(), since = now - progress->shown_ns;
    if (!progress->terminal && since < MINUTE_NS) return -1;
    if (progress->terminal && since < (progress->visible ? INTERVAL_NS : PATIENCE_NS)) return -1;
    progress->shown_ns = now;
    progress->visible = progress->terminal;
    return (double)(now - progress->start_ns) * 1e-9;
}

static void CLI_PRINTF(2, 3) show(const cli_progress *progress, const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clean(text);
    if (progress->terminal) {
        (void)fprintf(stderr, "\r\x1b[K%s: %s", progress->what, text);
    } else {
        (void)fprintf(stderr, "swiftkv: %s: %s\n", progress->what, text);
    }
}

const char *cli_time_text(double seconds, char out[CLI_TIME_TEXT])
{
    if (!(seconds < 100)) {
        const bool hours = seconds >= 100 * 60;
        (void)snprintf(out, CLI_TIME_TEXT, hours ? "%.1f h" : "%.0f min",
                       seconds / (hours ? 3600 : 60));
    } else {
        (void)snprintf(out, CLI_TIME_TEXT, "%.0f s", seconds);
    }
    return out;
}

enum { BAR = 24 };

static const char *bar(double share, char out[BAR + 1])
{
    for (int i = 0; i < BAR; i++) out[i] = i < (int)(BAR * share) ? '#' : '.';
    out[BAR] = 0;
    return out;
}

void cli_progress_share(void *user, double share)
{
    char left[CLI_TIME_TEXT];
    cli_progress *progress = user;
    const double seconds = time_to_show(progress);
    if (seconds < 0) return;
    if (share <= 0.01) {
        show(progress, "%.0f %%", 100 * share);
    } else {
        show(progress, "%.0f %%, %s left", 100 * share,
             cli_time_text(seconds / share * (1 - share), left));
    }
}

void cli_progress_tokens(void *user, size_t done, size_t total)
{
    char left[CLI_TIME_TEXT];
    cli_progress *progress = user;
    const double seconds = done > 0 ? time_to_show(progress) : -1;
    if (seconds < 0) return;
    const double rate = (double)(done - progress->first) / seconds;
    if (rate <= 0) return;
    show(progress, "%zu of %zu tokens, %.0f tokens/s, %s left", done, total, rate,
         cli_time_text((double)(total - done) / rate, left));
}

void cli_progress_bytes(cli_progress *progress, uint64_t done, uint64_t total)
{
    char left[CLI_TIME_TEXT], line[BAR + 1];
    if (!progress->counts) progress->first = done;
    progress->counts = true;
    const double seconds = total > 0 ? time_to_show(progress) : -1;
    if (seconds < 0) return;
    const double rate = (double)(done - progress->first) / seconds;
    show(progress, "[%s] %.2f of %.2f GB, %.1f MB/s, %s left",
         bar((double)done / (double)total, line), (double)done * 1e-9, (double)total * 1e-9,
         rate * 1e-6, rate > 0 ? cli_time_text((double)(total - done) / rate, left) : "?");
}

void cli_progress_items(void *user, const char *name, size_t done, size_t total)
{
    char left[CLI_TIME_TEXT], line[BAR + 1];
    cli_progress *progress = user;
    if (done == 0) progress->start_ns = skv_now_ns();   /* of this list */
    if (done == 0 && progress->terminal && total > 0) { /* the first item may take long */
        progress->visible = true;
        show(progress, "%.40s [%s] 0 of %zu", name, bar(0, line), total);
    }
    const double seconds = done > 0 && total > 0 ? time_to_show(progress) : -1;
    if (seconds < 0) return;
    show(progress, "%.40s [%s] %zu of %zu, %s left", name, bar((double)done / (double)total, line),
         done, total, cli_time_text(seconds / (double)done * (double)(total - done), left));
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->visible) (void)fputs("\r\x1b[K", stderr);
    progress->visible = false;
}
