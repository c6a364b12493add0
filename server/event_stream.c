/* Event streams: see event_stream.h. Every connection has its own thread, so `fill` may wait. */
#include "event_stream.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 << 10 };

typedef struct event_stream {
    exchange *ex;
    event_fill_fn *fill;
    void (*release)(void *state);
    void *state;
    out_text text;
    size_t n_sent; /* of text */
    bool ended;
} event_stream;

static ssize_t read_events(void *arg, uint64_t position, char *out, size_t max)
{
    event_stream *stream = arg;
    (void)position;
    while (stream->n_sent == stream->text.n) {
        if (stream->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        out_clear(&stream->text);
        stream->n_sent = 0;
        peers_set_phase(stream->ex->server, stream->ex->peer, PEER_WORKING);
        stream->ended = !stream->fill(stream->state, &stream->text);
        peers_set_phase(stream->ex->server, stream->ex->peer, PEER_WRITING);
        if (stream->text.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    peers_set_phase(stream->ex->server, stream->ex->peer, PEER_WRITING);
    const size_t left = stream->text.n - stream->n_sent, n = left < max ? left : max;
    memcpy(out, stream->text.data + stream->n_sent, n);
    stream->n_sent += n;
    return (ssize_t)n;
}

static void free_stream(void *arg)
{
    event_stream *stream = arg;
    stream->release(stream->state);
    out_release(&stream->text);
    free(stream);
}

void event_stream_send(exchange *ex, event_fill_fn *fill, void (*release)(void *state), void *state)
{
    event_stream *stream = calloc(1, sizeof *stream);
    struct MHD_Response *response = NULL;
    if (stream != NULL) {
        *stream = (event_stream){.ex = ex, .fill = fill, .release = release, .state = state};
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_events,
                                                     stream, free_stream);
    }
    if (response == NULL) {
        free(stream);
        release(state);
        api_error error;
        (void)api_fail(&error, 503, NULL, "no memory for the response");
        exchange_refuse(ex, &error);
        return;
    }
    (void)MHD_add_response_header(response, "X-Accel-Buffering", "no");
    exchange_send(ex, 200, response, "text/event-stream");
}
