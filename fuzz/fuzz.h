/* The function that every fuzz_*.c defines and libFuzzer (or replay.c) calls. */
#ifndef SKV_FUZZ_H
#define SKV_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** Parses data[0..size); returns 0, and aborts where an invariant does not hold. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
