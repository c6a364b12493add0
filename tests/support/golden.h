/* The golden files of tests/data/models: docs/explanation/testing.md says what they hold. */
#ifndef SKV_TESTS_GOLDEN_H
#define SKV_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

typedef struct golden_result {
    double *logprobs; /* [n]; NaN first */
    int32_t *argmax;  /* [n] */
    int32_t *greedy;  /* [n_greedy] */
    size_t n_greedy;
} golden_result;

typedef struct golden_case {
    int32_t *ids; /* [n] */
    size_t n;
    golden_result own, teacher; /* teacher.logprobs NULL: none */
} golden_case;

typedef struct golden {
    char path[512]; /* of the model: a folder or a .gguf file */
    char name[128];
    golden_case *cases;
    size_t n_cases;
    int is_swiftkv;
} golden;

/* All models, in the order of their names; fails the test when there are none. */
golden *golden_load_all(size_t *n);
void golden_free_all(golden *all, size_t n);

#endif
