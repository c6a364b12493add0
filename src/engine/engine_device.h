/*
 * The memory that an engine may take, and the devices of this build. A device may have memory of
 * its own: then weights, pages and tensors are counted in it, and lists and staging in the host's.
 */
#ifndef SKV_ENGINE_DEVICE_H
#define SKV_ENGINE_DEVICE_H

#include "backend/devices.h"
#include "second_model/second_model.h"

typedef struct skv_engine_room {
    skv_bytes available;
    bool is_own; /* the device has memory of its own */
} skv_engine_room;

/** With `available` bytes where the model lies, if that is not 0; memory_max is a limit there too.
 */
skv_engine_room skv_engine_room_of(const skv_engine *engine, size_t available);
/** The part of bytes that lies where the model does. */
size_t skv_room_main(const skv_engine_room *room, skv_bytes bytes);
bool skv_room_has(const skv_engine_room *room, skv_bytes bytes);
/** SKV_MEMORY names the memory that is too small, and its purpose. */
SKV_MUST_CHECK skv_status skv_engine_check_room(const skv_engine *engine,
                                                const skv_engine_room *room,
                                                const skv_engine_bytes *bytes, skv_bytes total,
                                                skv_error *err);

/** Counts the memory of a prepared engine. *total has SIZE_MAX where that is more than can be
 * counted. */
typedef skv_status skv_engine_count_fn(const skv_engine *engine, skv_engine_bytes *bytes,
                                       skv_bytes *total, skv_error *err);

/* ---- devices that have the first layers alone ---- */

/** The back end of a model's options. */
SKV_MUST_CHECK skv_status skv_engine_create_backend(skv_engine *engine, skv_error *err);
/** Slots of all plans as the back end divides layers. */
SKV_MUST_CHECK skv_status skv_engine_divide_plans(skv_engine *engine, skv_error *err);
/** The most of the first layers that would fit; 0: none, or the device has to have all. The engine
 * is then of no use but to be closed. */
size_t skv_engine_most_layers(skv_engine *engine, const skv_engine_room *room,
                              skv_engine_count_fn *count);

/** The value on SKV_AXIS_DEVICE of one with these promises. */
unsigned skv_device_value(unsigned promises);
/** The same of options, for a model of n_layers layers, and of a back end. */
unsigned skv_device_value_of(const skv_engine_options *options, size_t n_layers);
unsigned skv_backend_value(const skv_backend *be);

/** The ranks of an engine, for its back end; none without a team. */
skv_backend_ranks skv_engine_backend_ranks(const skv_engine *engine);

#endif
