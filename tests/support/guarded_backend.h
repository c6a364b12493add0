/*
 * A back end whose memory nobody else can touch.
 *
 * It computes as the CPU's does. Its areas are its own structs, and its pages are addresses in
 * memory that can be neither read nor written: each stands for one of the CPU's. So a program that
 * reads a page without asking the back end ends with SIGSEGV. One that names rows beyond their
 * area, activations where floats are due, an area that is mapped, or host memory where pages are
 * due, ends with a message. What is mapped is a copy: of the contents if they are asked for, else
 * of nonsense, and it is written back only if that is asked for. What an operation leaves undefined
 * becomes nonsense.
 *
 * Programs that link guarded_backend.c with --wrap=skv_backend_create get it in place of the
 * CPU's (tests/CMakeLists.txt).
 */
#ifndef SKV_TESTS_GUARDED_BACKEND_H
#define SKV_TESTS_GUARDED_BACKEND_H

#include <stdbool.h>

#include "backend/backend.h"

/** True if `be` is such a back end. */
bool guarded_backend_is(const skv_backend *be);
/** How often the host has read what operations have computed since it did so before: as often a
 * device would have made it wait. */
size_t guarded_backend_waits(const skv_backend *be);

#endif
