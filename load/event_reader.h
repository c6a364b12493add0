/* Server-sent events out of the pieces in which they arrive. */
#ifndef SKV_LOAD_EVENT_READER_H
#define SKV_LOAD_EVENT_READER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct event_reader {
    char *line; /* owned: the line that is not whole yet */
    size_t n, room;
} event_reader;

/* An event's data, one line of it; false: no more is wanted. */
typedef bool event_fn(void *user, const char *data, size_t n);

/** Takes the next bytes and tells of every line of data that is whole. False: `on_event` said so, a
 * line is longer than 1 MiB, or there is no memory. */
bool event_reader_feed(event_reader *reader, const char *bytes, size_t n, event_fn *on_event,
                       void *user);
void event_reader_clear(event_reader *reader);
void event_reader_release(event_reader *reader);

#endif
