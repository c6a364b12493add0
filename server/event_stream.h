/* A response that is written while it comes into being: server-sent events. */
#ifndef SKV_SERVER_EVENT_STREAM_H
#define SKV_SERVER_EVENT_STREAM_H

#include "exchange.h"

/* Appends what comes next and may wait for it; false: the end. */
typedef bool event_fill_fn(void *state, out_text *out);

/** Answers with what `fill` writes; `release` frees the state when all is over. */
void event_stream_send(exchange *ex, event_fill_fn *fill, void (*release)(void *state),
                       void *state);

#endif
