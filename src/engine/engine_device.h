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

/** The value on SKV_AXIS_DEVICE of one with these promises. */
unsigned skv_device_value(unsigned promises);
/** The promises of a kind of back end of this build; all of them for NULL and unknown names. */
unsigned skv_device_promises(const char *name);

/** The ranks of an engine, for its back end; none without a team. */
skv_backend_ranks skv_engine_backend_ranks(const skv_engine *engine);

#endif
