/* The response to a request. */
#ifndef SKV_SERVER_EXCHANGE_H
#define SKV_SERVER_EXCHANGE_H

#include "state/exchange_state.h"

/** All of these wait until the client has taken the bytes, or is gone. This one takes the text
 * over. */
void exchange_reply(exchange *ex, int status, const char *content_type, skv_buf *text);
void exchange_reply_json(exchange *ex, int status, skv_buf *text);
void exchange_refuse(exchange *ex, const api_error *error);
/** For the log: why a response that has begun does not end as requested. */
void exchange_note(exchange *ex, const api_error *error);

/* A response's own headers, beside those of all. */
typedef struct exchange_response {
    int status;
    const char *content_type;
    const char *data; /* borrowed, [n]: the body */
    size_t n;
    bool in_pieces; /* exchange_write sends the body, up to exchange_end */
    skv_buf fields; /* owned: "Name: value\r\n" and so on */
} exchange_response;

/** Sends it and releases its fields; false: the client is gone. */
bool exchange_send(exchange *ex, exchange_response *response);
/** Sends the next bytes of a body in pieces; false: the client is gone. */
bool exchange_write(exchange *ex, const char *data, size_t n);
void exchange_end(exchange *ex);
/** "100 Continue": the client may send its body; false: it is gone. */
bool exchange_go_on(exchange *ex);

/* ---- a response that is written while it comes into being ---- */

/* Appends the next part and may wait for it; false: the end. */
typedef bool event_fill_fn(void *state, skv_buf *out);

/** A sign of life of a request whose stream has not begun: a comment, which begins it. From then
 * on a refusal is an event. False: the client is gone. */
bool event_stream_ping(exchange *ex, const char *comment);
/** Answers with the parts that `fill` writes, and waits until all is over; `release` frees the
 * state then. */
void event_stream_send(exchange *ex, const char *content_type, event_fill_fn *fill,
                       void (*release)(void *state), void *state);

#endif
