/** What `swiftkv doctor` prints of a machine, and `--report`: what the developers need of one that
 * they do not have. */
#ifndef SKV_CLI_MACHINE_REPORT_H
#define SKV_CLI_MACHINE_REPORT_H

#include <stdarg.h>

#include "options.h"
#include "skv/tools.h"

/** A line: a name of up to 14 letters, and a value. */
void machine_say(const char *what, const char *format, ...) CLI_PRINTF(2, 3);
void machine_say_args(const char *what, const char *format, va_list args) CLI_PRINTF(2, 0);

/** The report: no name of a user, a host or a file is in it. */
CLI_CHECKED int machine_report(const cli_options *options);

/* ---- its parts ---- */

/** Tries what base/system.h does in another way on every system. */
void machine_try_ways(void);
/** Runs a small model with random weights at each level of kernels, and compares it with `ref`. */
CLI_CHECKED int machine_compare_levels(const skv_machine *machine);

#endif
