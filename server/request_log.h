/*
 * The request log: a line of JSON for every request that has ended. docs/serving.md tells its
 * fields. A prompt or an answer is never in it.
 */
#ifndef SKV_SERVER_REQUEST_LOG_H
#define SKV_SERVER_REQUEST_LOG_H

#include "exchange.h"

typedef struct request_log request_log;

/* path "-": standard error. On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. */
bool request_log_open(const char *path, request_log **out, char *error);
void request_log_close(request_log *log);
/** Opens the file again, as it is moved away by those who rotate it. */
bool request_log_reopen(request_log *log, char *error);
/** `whole`: the response was sent to its end. A line that cannot be written is lost. */
void request_log_add(request_log *log, const exchange *ex, bool whole);

#endif
