/** Messages of a command on standard error: one line and an exit status on failure, notes, and
 * progress. */
#ifndef SKV_CLI_REPORT_H
#define SKV_CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/error.h"

/* Exit statuses. Every function of the program that can fail returns one of them, and has printed
 * the line when it is not CLI_DONE. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#define CLI_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define CLI_CHECKED __attribute__((warn_unused_result))

/** "swiftkv: ..." on standard error; returns CLI_FAILED. Control characters become '?'. */
int cli_fail(const char *format, ...) CLI_PRINTF(1, 2);
/** As cli_fail, for a wrong command line; returns CLI_USAGE. */
int cli_usage(const char *format, ...) CLI_PRINTF(1, 2);
/** As above, for notes. */
void cli_tell(const char *format, ...) CLI_PRINTF(1, 2);
/** A note that does not end the command. */
void cli_warn(const char *format, ...) CLI_PRINTF(1, 2);
/** CLI_DONE for SKV_OK; otherwise prints the library's line. */
CLI_CHECKED int cli_check(skv_status status, const skv_error *err);

/** Zeroed memory for n items; ends the program with CLI_FAILED when there is none. */
void *cli_alloc(size_t n, size_t item_bytes);
/** Room for n items, the old ones kept; ends the program when there is none. */
void *cli_grow(void *old, size_t n, size_t item_bytes);

/* ---- while something takes long: a line on a terminal, elsewhere a line a minute ---- */

typedef struct cli_progress {
    const char *what; /* "loading", "reading the prompt"; borrowed */
    bool terminal;    /* standard error is one */
    bool visible;     /* a line is shown now */
    bool counts;      /* `first` is set */
    uint64_t first;   /* bytes or tokens that were there before */
    uint64_t start_ns, shown_ns;
} cli_progress;

void cli_progress_begin(cli_progress *progress, const char *what);
/** Callbacks of the library; `user` is a cli_progress. */
void cli_progress_share(void *user, double share);
void cli_progress_tokens(void *user, size_t done, size_t total);
/** Shows the progress over items of unequal duration: "what: name, 12 of 100". */
void cli_progress_items(void *user, const char *name, size_t done, size_t total);
/** Bytes, of which those of the first call took no time. */
void cli_progress_bytes(cli_progress *progress, uint64_t done, uint64_t total);
/** Clears the line. */
void cli_progress_end(cli_progress *progress);

enum { CLI_TIME_TEXT = 24 };
/** "12 s", "3 min", "2.5 h"; returns `out`. */
const char *cli_time_text(double seconds, char out[CLI_TIME_TEXT]);

/** Whether notes for a person may go to standard error. */
bool cli_terminal(void);

#endif
