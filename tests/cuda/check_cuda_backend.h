/* Tests of the CUDA back end that test_cuda_backend.c runs besides its own. */
#ifndef SKV_TESTS_CHECK_CUDA_BACKEND_H
#define SKV_TESTS_CHECK_CUDA_BACKEND_H

#include <stddef.h>

/** Of a list of cases every `step`th from `first` on: "2/5" as an argument is each fifth from the
 * second on. */
typedef struct case_part {
    size_t first, step;
} case_part;

case_part cases_chosen(void);

/** Sequences of hybrid models in steps of any size beside one another, in slots that are used
 * again, shared, and kept by a prefix cache. */
void its_states_go_on(void **state);

/** Answers with drafts of every source have the tokens that single steps choose, but for rounding.
 */
void its_drafts_change_no_choice(void **state);

#endif
