/* What tests of the net against torch share: the documents of a case, and gradients as an optimiser
 * sees them. */
#ifndef SKV_TESTS_TORCH_CASE_H
#define SKV_TESTS_TORCH_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "train/net.h"

enum { TOKENS_MAX = 64 };

typedef struct doc_tokens {
    int32_t ids[TOKENS_MAX], targets[TOKENS_MAX];
    uint32_t positions[TOKENS_MAX], doc_start[TOKENS_MAX];
    size_t n;
} doc_tokens;

/* The case's "docs" behind one another, and their "targets". */
static inline doc_tokens read_docs(const json_t *o)
{
    const json_t *docs = json_object_get(o, "docs"), *targets = json_object_get(o, "targets");
    doc_tokens c = {.n = 0};
    for (size_t d = 0; d < json_array_size(docs); d++) {
        const json_t *doc = json_array_get(docs, d), *target = json_array_get(targets, d);
        const uint32_t first = (uint32_t)c.n;
        assert_true(c.n + json_array_size(doc) <= TOKENS_MAX);
        for (size_t t = 0; t < json_array_size(doc); t++, c.n++) {
            c.ids[c.n] = (int32_t)json_integer_value(json_array_get(doc, t));
            c.targets[c.n] = (int32_t)json_integer_value(json_array_get(target, t));
            c.positions[c.n] = (uint32_t)t;
            c.doc_start[c.n] = first;
        }
    }
    return c;
}

static inline skv_train_batch batch_of(const doc_tokens *c)
{
    return (skv_train_batch){c->n, c->ids, c->targets, c->positions, c->doc_start};
}

/* Holds a gradient against torch's, relative to the tensor and with some slack; returns the size of
 * torch's. */
static inline double check_gradient(const char *name, const skv_param *p, const skv_tensor *want,
                                    double slack)
{
    const size_t n = skv_param_size(p);
    float *g = malloc(n * sizeof *g);
    double distance = 0.0, size = 0.0;
    assert_int_equal(skv_tensor_rows(want) * skv_tensor_columns(want), n);
    if (!p->grad) fail_msg("%s: %s has no gradient", name, p->name);
    skv_tensor_read_rows(want, 0, skv_tensor_rows(want), g);
    for (size_t i = 0; i < n; i++) {
        const double d = (double)p->grad[i] - (double)g[i];
        distance += d * d;
        size += (double)g[i] * (double)g[i];
    }
    if (!(sqrt(distance) <= 1e-4 * sqrt(size) + slack)) {
        fail_msg("%s: gradient of %s is off by %g of %g", name, p->name, sqrt(distance),
                 sqrt(size));
    }
    free(g);
    return size;
}

#endif
