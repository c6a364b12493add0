/*
 * Generated text on its way out: held back as long as it may turn out to begin a stop text.
 */
#ifndef SKV_COMMON_STOP_TEXT_H
#define SKV_COMMON_STOP_TEXT_H

#include "base/buf.h"
#include "skv/serve.h"

typedef struct skv_stop_text {
    const skv_text_piece *stops; /* [n_stops], borrowed */
    size_t n_stops;
    skv_buf held;                  /* not released yet */
    size_t n_release;              /* bytes at its beginning that the last push released */
    const skv_text_piece *stopped; /* the stop text that came; NULL: none so far */
} skv_stop_text;

void skv_stop_text_init(skv_stop_text *stop, const skv_text_piece *stops, size_t n_stops);
void skv_stop_text_release(skv_stop_text *stop);
/**
 * Adds text and sets *out [*n_out] to the text that can be released, valid until the next call.
 * `last`: no more text follows. After a stop text nothing is released. False: no memory.
 */
SKV_MUST_CHECK bool skv_stop_text_push(skv_stop_text *stop, const skv_text_piece *text, bool last,
                                       skv_text_piece *out);

#endif
