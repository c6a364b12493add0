/* Lines of `swiftkv doctor`: see machine_report.h. */
#include <stdio.h>

#include "machine_report.h"

void machine_say_args(const char *what, const char *format, va_list args)
{
    printf("%-15s", what);
    (void)vprintf(format, args);
    putchar('\n');
}

void machine_say(const char *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    machine_say_args(what, format, args);
    va_end(args);
}
