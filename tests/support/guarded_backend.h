/*
 * A back end that computes nothing before it has to, and whose memory nobody else can touch.
 *
 * It records each operation, with copies of all lists of the host, and runs the list on the CPU's
 * back end when the host waits: at `map` for reading, page_map and step_wait. Lists are overwritten
 * when they have been used. Its areas, pools and tables are its own structs. A program ends with a
 * message when two threads are inside at once, when an area is used that was freed, or made within
 * a step, when decoding steps of one shape have other operations each time, when it names rows
 * beyond their area, activations where floats are due, an area that is mapped, a page beyond its
 * pool or one that a table does not have, when it writes to a page that two tables hold, changes a
 * table within a step, or describes one by sets and items that are not its rows'. The lists that
 * describe a step become nonsense when the CPU has had them. What is mapped is a copy: of the
 * contents if they are asked for, else of nonsense, and it is written back only if that is asked
 * for. A page that was mapped is out of reach after page_unmap, and pages that are read are
 * nonsense until pages_done, saved rows until step_wait. What the host got of picks becomes
 * nonsense where they begin anew, and none may be replaced before it was read. What an operation
 * leaves undefined becomes nonsense, and so does what does not last where a step begins.
 *
 * Programs that link guarded_always.c too, with --wrap=skv_backend_create, get it in place of the
 * CPU's (tests/CMakeLists.txt).
 */
#ifndef SKV_TESTS_GUARDED_BACKEND_H
#define SKV_TESTS_GUARDED_BACKEND_H

#include <stdbool.h>

#include "backend/devices.h"

/** As skv_backend_create, which the program has to wrap; "emulated": the emulated device. */
skv_status guarded_create(const skv_backend_options *options, skv_backend **out, skv_error *err);
/** True if `be` is such a back end. */
bool guarded_backend_is(const skv_backend *be);
/** How often the host has read what operations have computed since it did so before: as often a
 * device would have made it wait. */
size_t guarded_backend_waits(const skv_backend *be);
/** Numbers that the host has mapped for reading. */
size_t guarded_backend_mapped(const skv_backend *be);
/** `picked` without the wait: a fault for tests of checks. */
skv_picked guarded_backend_picked_at_once(skv_backend *be, const skv_backend_step *step, size_t i);
/** Whether it compares the operations of decoding steps: the compiler has to know padding. */
bool guarded_backend_compares(void);
/** The emulated device has this much memory, where one is made afterwards. */
void emulated_device_has(size_t n_bytes);

#endif
