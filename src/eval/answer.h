/* When a generated answer counts as right. */
#ifndef SKV_EVAL_ANSWER_H
#define SKV_EVAL_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

typedef enum skv_answer_rule {
    SKV_ANSWER_EXACT,        /* but for white space around and between words and a last full stop */
    SKV_ANSWER_WORDS,        /* lower case, without punctuation and articles, as SQuAD compares */
    SKV_ANSWER_CONTAINS,     /* the right one stands anywhere in it */
    SKV_ANSWER_LAST_NUMBER,  /* the last number in it is the right one */
    SKV_ANSWER_MARKED_NUMBER /* the number after "####" if there is one, else the last; of the
                              right answer too */
} skv_answer_rule;

/** *right tells whether `said` is one of the answers by that rule. */
SKV_MUST_CHECK skv_status skv_answer_check(skv_answer_rule rule, const char *said,
                                           char *const *answers, size_t n_answers, bool *right,
                                           skv_error *err);

#endif
