/* Marks around the text of an answer: see reply_frame.h. */
#include "text/reply_frame.h"

#include <string.h>

enum { NAME_BYTES_MAX = 256, BLANKS_MAX = 8 };

void skv_frame_init(skv_frame_filter *filter, const skv_reply_options *options,
                    const skv_reply_form *form, const skv_buf *empty)
{
    const bool messages = form && form->spelling == SKV_SPELL_MESSAGE;
    const skv_reply_address *address = form ? form->address : NULL;
    const skv_reply_frame none = {.lead = NULL};
    *filter = (skv_frame_filter){.frame = messages || address ? none : options->frame,
                                 .address = address,
                                 .first = true,
                                 .held = *empty,
                                 .tell = options->tell,
                                 .user = options->user};
    filter->lead = filter->frame.lead;
}

void skv_frame_release(skv_frame_filter *filter)
{
    skv_buf_release(&filter->held);
}

static size_t blanks(const char *text, size_t n)
{
    size_t k = 0;
    while (k < n && strchr(" \n\r\t", text[k]) && text[k] != 0) k++;
    return k;
}

typedef enum match { MATCH_NO, MATCH_PART, MATCH_WHOLE } match;

static match match_mark(const char *text, size_t n, const char *mark)
{
    const size_t n_mark = strlen(mark);
    if (n >= n_mark) return memcmp(text, mark, n_mark) == 0 ? MATCH_WHOLE : MATCH_NO;
    return memcmp(text, mark, n) == 0 ? MATCH_PART : MATCH_NO;
}

static void tell_text(const skv_frame_filter *f, const char *text, size_t n)
{
    const skv_reply_piece piece = {.kind = SKV_REPLY_TEXT, .text = text, .n = n};
    if (n > 0) f->tell(f->user, &piece);
}

/* The first n bytes of what is held are done with. */
static void drop(skv_frame_filter *f, size_t n)
{
    f->held.size -= n;
    if (n > 0 && f->held.size > 0) memmove(f->held.data, f->held.data + n, f->held.size);
}

/* Reads the lead, as it is written or with other blanks in front; false: more has to come. */
static bool take_lead(skv_frame_filter *f)
{
    const char *text = f->held.data, *lead = f->lead;
    const size_t n = f->held.size;
    size_t k = 0;
    match found = match_mark(text, n, lead);
    if (found == MATCH_NO) {
        const size_t n_front = blanks(lead, strlen(lead));
        if (lead[n_front]) {
            k = blanks(text, n);
            lead += n_front;
            found = match_mark(text + k, n - k, lead);
        }
    }
    if (found == MATCH_PART) return false;
    if (found == MATCH_WHOLE) drop(f, k + strlen(lead));
    f->lead = NULL;
    return true;
}

/* Tells all but a possible beginning of the tail, and drops whole ones. */
static void take_tail(skv_frame_filter *f)
{
    const char *text = f->held.data, *tail = f->frame.tail;
    const size_t n = f->held.size;
    size_t from = 0, i = 0;
    while (i < n) {
        const char *at = memchr(text + i, tail[0], n - i);
        i = at ? (size_t)(at - text) : n;
        const match found = at ? match_mark(at, n - i, tail) : MATCH_NO;
        if (!at || found == MATCH_PART) break;
        if (found == MATCH_WHOLE) {
            tell_text(f, text + from, i - from);
            from = i = i + strlen(tail);
        } else {
            i++;
        }
    }
    tell_text(f, text + from, i - from);
    drop(f, i);
}

/* `to` NAME, if it stands here: PART: more has to come. */
static match take_recipient(const skv_reply_address *a, const char *text, size_t n, size_t *at)
{
    const size_t n_blank = blanks(text + *at, n - *at);
    size_t k = *at + n_blank;
    if (n_blank > BLANKS_MAX) return MATCH_NO;
    if (k == n) return MATCH_PART;
    const match found = match_mark(text + k, n - k, a->to);
    if (found != MATCH_WHOLE) return found;
    k += strlen(a->to);
    const size_t from = k;
    while (k < n && text[k] != a->end[0] && text[k] != '\n') k++;
    if (k - from > NAME_BYTES_MAX) return MATCH_NO;
    *at = k;
    return k < n ? MATCH_WHOLE : MATCH_PART;
}

/* The text in front of a message, at text[0..*n_read). At the beginning of an answer, whose turn
 * the prompt has begun, it is a recipient; later the marks of a turn are. */
static match match_address(const skv_frame_filter *f, const char *text, size_t n, size_t *n_read)
{
    const skv_reply_address *a = f->address;
    const char *const turn[] = {a->turn_end, a->turn_begin};
    size_t k = 0;
    for (size_t i = 0; i < 2; i++) {
        const match found = match_mark(text + k, n - k, turn[i]);
        if (found == MATCH_PART) return MATCH_PART;
        if (found == MATCH_WHOLE) k += strlen(turn[i]);
    }
    const bool in_turn = k > 0;
    if (!in_turn && !f->first) return MATCH_NO;
    const match to = take_recipient(a, text, n, &k);
    if (to == MATCH_PART || (to == MATCH_NO && !in_turn)) return to;
    const match found = match_mark(text + k, n - k, a->end);
    *n_read = k + strlen(a->end);
    return found;
}

/* Tells all but a possible beginning of an address, and drops whole ones. */
static void take_addresses(skv_frame_filter *f)
{
    const char *text = f->held.data;
    const size_t n = f->held.size;
    size_t from = 0, i = 0;
    while (i < n) {
        size_t n_read = 1;
        const char *at = f->first ? text : memchr(text + i, '<', n - i);
        i = at ? (size_t)(at - text) : n;
        const match found = at ? match_address(f, at, n - i, &n_read) : MATCH_NO;
        if (!at || found == MATCH_PART) break;
        if (found == MATCH_WHOLE) {
            tell_text(f, text + from, i - from);
            from = i = i + n_read;
        } else if (!f->first) {
            i++;
        }
        f->first = false;
    }
    tell_text(f, text + from, i - from);
    drop(f, i);
}

static void take_text(skv_frame_filter *f)
{
    if (f->held.size == 0 || (f->lead && !take_lead(f))) return;
    if (f->address) {
        take_addresses(f);
    } else if (f->frame.tail) {
        take_tail(f);
    } else {
        tell_text(f, f->held.data, f->held.size);
        skv_buf_clear(&f->held);
    }
}

/* What is held is the beginning of a lead or the tail. One mark of it or more is no text: the mark
 * that follows was the end of the answer, or that of a call. */
static void drop_part(skv_frame_filter *f)
{
    const size_t n = f->held.size;
    if (n == 0) return;
    const bool marked = memchr(f->held.data, '>', n) || memchr(f->held.data, ']', n);
    if (!marked) tell_text(f, f->held.data, n);
    skv_buf_clear(&f->held);
}

void skv_frame_tell(skv_frame_filter *f, const skv_reply_piece *piece)
{
    if (piece->kind != SKV_REPLY_TEXT) {
        drop_part(f);
        f->lead = piece->kind == SKV_REPLY_THOUGHT ? f->frame.behind : NULL;
        f->first = true;
        f->tell(f->user, piece);
    } else if (!f->lead && !f->frame.tail && !f->address) {
        f->tell(f->user, piece);
    } else {
        skv_buf_append(&f->held, piece->text, piece->n);
        take_text(f);
    }
}

void skv_frame_end(skv_frame_filter *f)
{
    drop_part(f);
}
