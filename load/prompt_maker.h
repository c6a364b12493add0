/*
 * Bodies of requests. A prompt is a row of pieces, each a function of a number: one piece of its
 * own, or the blocks that a trace names, so that prompts have in common what the trace's had.
 */
#ifndef SKV_LOAD_PROMPT_MAKER_H
#define SKV_LOAD_PROMPT_MAKER_H

#include "arrivals.h"
#include "out_text.h"

typedef struct prompt_maker {
    const load_options *options; /* borrowed; model, vocab and bytes_per_token are set */
    out_text scratch;            /* owned */
} prompt_maker;

/** The body of a request, in place of what `out` held. False: no memory. */
bool prompt_maker_body(prompt_maker *maker, const load_arrival *arrival, out_text *out);
void prompt_maker_release(prompt_maker *maker);

/** Words at random, about n bytes, for prompts without a text; malloc's, NULL: no memory. */
char *prompt_maker_words(size_t n, uint64_t seed);

#endif
