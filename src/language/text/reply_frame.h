/*
 * Removes the marks that a template writes around the text of an answer: see skv_reply_frame.
 * Pieces of a reply pass through here before its reader gets them. Text that may begin such a mark
 * is held.
 */
#ifndef SKV_TEXT_REPLY_FRAME_H
#define SKV_TEXT_REPLY_FRAME_H

#include <stdbool.h>

#include "base/buf.h"
#include "skv/reply.h"
#include "text/reply_form.h"

typedef struct skv_frame_filter {
    skv_reply_frame frame;            /* borrowed texts */
    const char *lead;                 /* that may come now; NULL: none */
    const skv_reply_address *address; /* in front of messages, instead of a frame; NULL: none */
    bool first;                       /* no text came yet, so an address may be a recipient alone */
    skv_buf held;                     /* text that was not told */
    skv_reply_fn *tell;
    void *user; /* for tell */
} skv_frame_filter;

/** empty: a buffer to begin with. Of the options, `tell` and the frame count; the form tells
 * whether there is one. */
void skv_frame_init(skv_frame_filter *filter, const skv_reply_options *options,
                    const skv_reply_form *form, const skv_buf *empty);
void skv_frame_release(skv_frame_filter *filter);
void skv_frame_tell(skv_frame_filter *filter, const skv_reply_piece *piece);
/** Ends the text: tells the held pieces, except marks that were cut off. */
void skv_frame_end(skv_frame_filter *filter);

#endif
