/*
 * A back end of two: the first layers of a model on a device, the others on the processor.
 *
 * It owns two back ends. What belongs to a layer (weights, pages, states) lies in that of the layer
 * alone; areas are in both. An operation runs where its weights, pages or operands are, and an area
 * that it reads is copied first where the other back end has changed it: so the code that walks the
 * layers knows nothing of devices, and x crosses once where the layers change.
 */
#ifndef SKV_SPLIT_H
#define SKV_SPLIT_H

#include "backend/backend.h"

/* Copies between the two since the back end was created. */
typedef struct skv_split_counts {
    size_t n_down, n_up;             /* copies to the second and to the first back end */
    size_t numbers_down, numbers_up; /* of areas, in these */
} skv_split_counts;

/** Layers before `n_layers` are the first's. Owns both back ends, also where it fails. */
SKV_MUST_CHECK skv_status skv_backend_split_create(skv_backend *first, skv_backend *second,
                                                   size_t n_layers, skv_backend **out,
                                                   skv_error *err);
/** For a back end that skv_backend_split_create made: another number of layers, before anything but
 * memory was asked of it. */
void skv_split_move(skv_backend *be, size_t n_layers);
skv_split_counts skv_split_counts_of(const skv_backend *be);

#endif
