/**
 * Statuses and error messages, shared by every layer of libskv.
 *
 * A function that can fail returns skv_status and takes `skv_error *err` last (NULL is allowed). On
 * failure `err->text` holds one line that names the file, the field and the value; output
 * parameters are not modified.
 */
#ifndef SKV_ERROR_H
#define SKV_ERROR_H

#include "skv/api.h"

SKV_BEGIN

/* One list makes the codes and their names. */
#define SKV_STATUS_LIST(X)                                                                         \
    X(OK, "ok")                                                                                    \
    X(IO, "input/output error")                                                                    \
    X(FORMAT, "malformed input")                                                                   \
    X(UNSUPPORTED, "not supported")                                                                \
    X(ARGUMENT, "invalid argument")                                                                \
    X(RANGE, "value out of range")                                                                 \
    X(MEMORY, "out of memory")                                                                     \
    X(FULL, "capacity reached")                                                                    \
    X(CANCELLED, "cancelled")

typedef enum skv_status {
#define SKV_STATUS_ENUM(code, text) SKV_##code,
    SKV_STATUS_LIST(SKV_STATUS_ENUM)
#undef SKV_STATUS_ENUM
        SKV_STATUS_COUNT
} skv_status;

enum { SKV_ERROR_TEXT_MAX = 512 };

typedef struct skv_error {
    skv_status status;
    char text[SKV_ERROR_TEXT_MAX]; /* one line, no newline, always terminated */
} skv_error;

/** The name of a status: a constant string, "unknown status" for anything else. */
SKV_API const char *skv_status_name(skv_status status);

SKV_END

#endif
