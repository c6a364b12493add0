/* Statuses and error lines: see fail.h. */
#define SKV_FAIL_HOME
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *skv_status_name(skv_status status)
{
    static const char *const names[] = {
#define SKV_STATUS_NAME(code, text) text,
        SKV_STATUS_LIST(SKV_STATUS_NAME)
#undef SKV_STATUS_NAME
    };
    if ((unsigned)status >= (unsigned)SKV_STATUS_COUNT) return "unknown status";
    return names[status];
}

/* An error is one line whatever bytes a file name or a JSON value brought into it. */
static void make_one_line(char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f) *text = '?';
    }
}

skv_status skv_fail(skv_error *err, skv_status status, const char *format, ...)
{
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    make_one_line(err->text);
    return status;
}

skv_status skv_fail_within(skv_error *err, skv_status status, const char *prefix)
{
    if (!err) return status;
    char inner[SKV_ERROR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    return skv_fail(err, status, "%s: %s", prefix, inner);
}
