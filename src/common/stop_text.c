/* Stop texts: see stop_text.h. */
#include "common/stop_text.h"

#include <string.h>

enum { HELD_MAX = 1 << 20 }; /* bytes; far above any stop text and token */

void skv_stop_text_init(skv_stop_text *stop, const skv_text_piece *stops, size_t n_stops)
{
    *stop = (skv_stop_text){.stops = stops, .n_stops = n_stops};
    skv_buf_init(&stop->held, HELD_MAX);
}

void skv_stop_text_release(skv_stop_text *stop)
{
    skv_buf_release(&stop->held);
}

/* Where the first stop text begins; the size of `held`: there is none. */
static size_t find_stop(skv_stop_text *stop)
{
    for (size_t at = 0; at < stop->held.size; at++) {
        for (size_t i = 0; i < stop->n_stops; i++) {
            const skv_text_piece *s = &stop->stops[i];
            if (s->n <= stop->held.size - at && memcmp(stop->held.data + at, s->text, s->n) == 0) {
                stop->stopped = s;
                return at;
            }
        }
    }
    return stop->held.size;
}

/* Where the first beginning of a stop text stands at the end of `held`. */
static size_t find_beginning(const skv_stop_text *stop)
{
    for (size_t at = 0; at < stop->held.size; at++) {
        size_t n = stop->held.size - at;
        for (size_t i = 0; i < stop->n_stops; i++) {
            const skv_text_piece *s = &stop->stops[i];
            if (n < s->n && memcmp(stop->held.data + at, s->text, n) == 0) return at;
        }
    }
    return stop->held.size;
}

bool skv_stop_text_push(skv_stop_text *stop, const skv_text_piece *text, bool last,
                        skv_text_piece *out)
{
    skv_buf *held = &stop->held;
    *out = (skv_text_piece){"", 0};
    if (stop->stopped) return true;
    size_t n_left = held->size - stop->n_release;
    if (n_left > 0) memmove(held->data, held->data + stop->n_release, n_left);
    held->size = n_left;
    stop->n_release = 0;
    if (text->n > 0 && !skv_buf_append(held, text->text, text->n)) return false;
    if (held->size == 0) return true;
    size_t end = find_stop(stop);
    if (!stop->stopped && !last) end = find_beginning(stop);
    stop->n_release = end;
    *out = (skv_text_piece){held->data, end};
    return true;
}
