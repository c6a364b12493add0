/* The last logits of each span of a step. */
#ifndef SKV_TESTS_SPAN_LOGITS_H
#define SKV_TESTS_SPAN_LOGITS_H

#include <stddef.h>
#include <string.h>

enum { SPAN_LOGITS_SPANS = 4, SPAN_LOGITS_VOCAB = 3072 };

typedef struct span_logits {
    float rows[SPAN_LOGITS_SPANS][SPAN_LOGITS_VOCAB];
    size_t vocab;
} span_logits;

/** For skv_step: `user` is a span_logits with its vocab set. */
static inline void span_logits_take(void *user, size_t i_span, size_t i_token, const float *logits)
{
    span_logits *to = user;
    (void)i_token;
    memcpy(to->rows[i_span], logits, to->vocab * sizeof *logits);
}

#endif
