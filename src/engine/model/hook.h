/*
 * Hooks of a step that are not methods of their own: functions at fixed points of the walk, and the
 * state that they share. A step has a few hooks; functions that are NULL do nothing. Those that get
 * the pass may change which rows go on (model/pass.h); the others only watch. Tensors that they get
 * lie in areas of the back end: to read them, a hook maps them. Every point has several users; the
 * needs of a single method are data of the pass.
 */
#ifndef SKV_MODEL_HOOK_H
#define SKV_MODEL_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "skv/tools.h"

typedef struct skv_pass skv_pass;

typedef struct skv_hook {
    void *user;
    /* The rows of the step have their places, and nothing has run. */
    void (*start)(void *user, skv_pass *p);
    /* x [n_rows, D] as it enters layer i; i == L: as it leaves the last. All rows up to the plan's
     * last boundary, and beyond it where nothing is skipped. */
    void (*on_hidden)(void *user, size_t i, skv_rows x, size_t n_rows);
    /* A product of layer i that has just run: its input and the norm in front of it are unchanged,
     * and its result is as it leaves the product. Not those of experts. The stack's belongs to the
     * first layer that it makes keys and values for. */
    void (*on_product)(void *user, size_t i, skv_product product, const skv_linear_args *args);
    /* Layer i comes next. Where the stack is made from its input, that has been written. */
    void (*before_layer)(void *user, skv_pass *p, size_t i);
    /* The queries of layer i as they go into attention: q [n_rows, H Dh], of the rows that are
     * left. */
    void (*on_query)(void *user, size_t i, skv_rows q, size_t n_rows);
    void (*after_layer)(void *user, skv_pass *p, size_t i);
} skv_hook;

#endif
