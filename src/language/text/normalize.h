/* Normalisation: transforms a text before it is split into words. */
#ifndef SKV_TEXT_NORMALIZE_H
#define SKV_TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "text/pretokenize_regex.h"

typedef enum skv_norm_kind {
    SKV_NORM_NFC,
    SKV_NORM_NFD,
    SKV_NORM_NFKC,
    SKV_NORM_NFKD,
    SKV_NORM_LOWERCASE,
    SKV_NORM_PREPEND,       /* `to` before a text that is not empty */
    SKV_NORM_REPLACE,       /* every `from` becomes `to` */
    SKV_NORM_REPLACE_REGEX, /* every match becomes `to` */
    SKV_NORM_STRIP,         /* white space at the ends */
    SKV_NORM_VALID,         /* each bad byte becomes U+FFFD */
    SKV_NORM_STRIP_ACCENTS  /* combining marks go */
} skv_norm_kind;

typedef struct skv_norm_step {
    skv_norm_kind kind;
    char *from, *to; /* owned; NULL where unused */
    size_t n_from, n_to;
    skv_regex *regex; /* owned */
    bool left, right; /* STRIP */
} skv_norm_step;

enum { SKV_NORM_STEPS_MAX = 16 };

typedef struct skv_normalizer {
    skv_norm_step steps[SKV_NORM_STEPS_MAX];
    size_t n_steps;
} skv_normalizer;

/* Two buffers that the steps write in turn. */
typedef struct skv_norm_work {
    skv_buf buffers[2];
    skv_budget *budget; /* borrowed; NULL: none */
    int32_t *codes;     /* owned; for the Unicode forms */
    size_t n_codes;
    skv_regex_work regex;
    /* Rising offsets into the text, [n_marks]; afterwards, offsets into the result. If these are
     * unknown, there are no marks, and marks_lost is set. */
    size_t *marks; /* owned */
    size_t n_marks, marks_room;
    bool marks_lost;
    skv_buf spare; /* a stretch between two of them */
} skv_norm_work;

/** Returns the largest size that a text of n bytes may reach on its way to the model. The Unicode
 * forms and published tokenizers stay far below it; chained replacements may exceed it. */
size_t skv_text_growth(size_t n);

void skv_normalizer_release(skv_normalizer *normalizer);
/** budget: NULL: no limit. */
void skv_norm_work_init(skv_norm_work *work, skv_budget *budget);
void skv_norm_work_release(skv_norm_work *work);
/** Makes room for n marks, and sets n_marks; false: out of memory or budget. */
bool skv_norm_work_mark(skv_norm_work *work, size_t n);

/**
 * Normalises text[0..n). The result lies in one of the work's buffers, or is the text itself if no
 * step changes it; it is valid until the next call. Fails with SKV_RANGE if a step makes more than
 * skv_text_growth(n) bytes.
 */
SKV_MUST_CHECK skv_status skv_normalize(const skv_normalizer *normalizer, skv_norm_work *work,
                                        const char *text, size_t n, const char **out, size_t *n_out,
                                        skv_error *err);

#endif
