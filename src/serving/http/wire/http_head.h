/*
 * The head of a request (RFC 9112): its first line and its fields, read in place and strictly. A
 * server that reads a head more leniently than a proxy in front of it sees another request than the
 * proxy does.
 */
#ifndef SKV_SERVER_HTTP_HEAD_H
#define SKV_SERVER_HTTP_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/api_error.h"
#include "wire/server_limits.h"

typedef struct http_field {
    const char *name, *value; /* borrowed from the head's text; without blanks around them */
} http_field;

typedef struct http_head {
    const char *method, *path; /* the path as it was sent, without its query */
    const char *query;         /* the part after the '?'; "": none */
    http_field fields[LIMIT_HEADER_FIELDS];
    size_t n_fields;
    bool is_old;     /* HTTP/1.0: no chunks, and one request for each connection */
    bool keeps;      /* the connection may be used again */
    bool expects;    /* "Expect: 100-continue" */
    bool chunked;    /* the body comes in chunks, */
    uint64_t n_body; /* or has this length; 0: there is none */
} http_head;

/** Where the head that begins at text[0..n) ends, after its empty line; 0: not there yet.
 * n_seen: how many of these bytes an earlier call has searched, so that a head that comes byte
 * by byte is read once. */
size_t http_head_end(const char *text, size_t n, size_t n_seen);
/** Reads the head text[0..n), which http_head_end has found, and writes zeros into it. */
bool http_head_read(char *text, size_t n, http_head *out, api_error *error);
/** The value of a field that is there once; NULL: it is not there, or more than once. */
const char *http_head_find(const http_head *head, const char *name);

/** Whether the query has this parameter with this value, as they are spelt. */
bool http_head_asks(const http_head *head, const char *name, const char *value);

/*
 * ---- the trace that a request belongs to ----
 *
 * The W3C's traceparent and tracestate (https://www.w3.org/TR/trace-context/), and X-Request-Id.
 * A header that is malformed, or there twice, counts as absent.
 */

enum { TRACE_STATE_MAX = 512, TRACE_REQUEST_MAX = 128, TRACE_STATE_MEMBERS_MAX = 32 };

typedef struct trace_context {
    char trace_id[33];  /* 32 digits; empty: no traceparent */
    char parent_id[17]; /* 16 digits */
    bool sampled;
    char state[TRACE_STATE_MAX + 1];
    char request_id[TRACE_REQUEST_MAX + 1]; /* empty: none */
} trace_context;

void trace_context_read(const http_head *head, trace_context *out);

#endif
