/* One line on the terminal, written over and over, and cleared at the end. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "skv/tools.h"

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
