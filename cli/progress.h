/** What a terminal shows while something takes long. Nothing is shown elsewhere. */
#ifndef SKV_CLI_PROGRESS_H
#define SKV_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_progress {
    const char *what; /* "loading", "reading the prompt": a constant */
    bool enabled;     /* standard error is a terminal */
    bool visible;     /* a line stands there now */
    uint64_t start_ns, shown_ns;
} cli_progress;

void cli_progress_begin(cli_progress *progress, const char *what);
/** Callbacks of the library; `user` is a cli_progress. */
void cli_progress_share(void *user, double share);
void cli_progress_tokens(void *user, size_t done, size_t total);
/** Items of a list whose time differs: "what: name, 12 of 100". */
void cli_progress_items(void *user, const char *name, size_t done, size_t total);
/** Clears the line. */
void cli_progress_end(cli_progress *progress);

/** Whether notes for a person may go to standard error. */
bool cli_terminal(void);

#endif
