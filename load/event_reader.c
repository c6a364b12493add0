/* Events: see event_reader.h. OpenAI's streams have one line of data an event; comments, names and
 * ids of events mean nothing there. */
#include "event_reader.h"

#include <stdlib.h>
#include <string.h>

enum { EVENT_LINE_MAX = 1 << 20 };

static bool keep(event_reader *reader, const char *bytes, size_t n)
{
    if (n > EVENT_LINE_MAX - reader->n) return false;
    if (reader->n + n > reader->room) {
        size_t room = reader->room > 0 ? reader->room : 512;
        while (room < reader->n + n) room *= 2;
        char *line = realloc(reader->line, room);
        if (line == NULL) return false;
        reader->line = line;
        reader->room = room;
    }
    if (n > 0) memcpy(reader->line + reader->n, bytes, n);
    reader->n += n;
    return true;
}

static bool take_line(const char *line, size_t n, event_fn *on_event, void *user)
{
    static const char field[] = "data:";
    const size_t n_field = sizeof field - 1;
    if (n > 0 && line[n - 1] == '\r') n--;
    if (n < n_field || memcmp(line, field, n_field) != 0) return true;
    const size_t start = n > n_field && line[n_field] == ' ' ? n_field + 1 : n_field;
    return on_event(user, line + start, n - start);
}

bool event_reader_feed(event_reader *reader, const char *bytes, size_t n, event_fn *on_event,
                       void *user)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        const size_t piece = end != NULL ? (size_t)(end - bytes) : n;
        const bool whole_here = end != NULL && reader->n == 0;
        if (!whole_here && !keep(reader, bytes, piece)) return false;
        if (end == NULL) return true;
        const bool more = whole_here ? take_line(bytes, piece, on_event, user)
                                     : take_line(reader->line, reader->n, on_event, user);
        reader->n = 0;
        if (!more) return false;
        bytes += piece + 1;
        n -= piece + 1;
    }
    return true;
}

void event_reader_clear(event_reader *reader)
{
    reader->n = 0;
}

void event_reader_release(event_reader *reader)
{
    free(reader->line);
    *reader = (event_reader){0};
}
