/*
 * What a request says of the trace that it belongs to: the W3C's traceparent and tracestate
 * (https://www.w3.org/TR/trace-context/), and X-Request-Id. What is malformed is as good as absent.
 */
#ifndef SKV_SERVER_TRACE_CONTEXT_H
#define SKV_SERVER_TRACE_CONTEXT_H

#include <stdbool.h>

enum { TRACE_STATE_MAX = 512, TRACE_REQUEST_MAX = 128, TRACE_STATE_MEMBERS_MAX = 32 };

typedef struct trace_context {
    char trace_id[33];  /* 32 digits; empty: no traceparent */
    char parent_id[17]; /* 16 digits */
    bool sampled;
    char state[TRACE_STATE_MAX + 1];
    char request_id[TRACE_REQUEST_MAX + 1]; /* empty: none */
} trace_context;

/* The values of the headers; NULL: absent. */
void trace_context_read(const char *parent, const char *state, const char *request_id,
                        trace_context *out);

#endif
