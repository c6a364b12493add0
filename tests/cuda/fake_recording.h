/* How fake_blas.c tells fake_driver.c of work for a stream, which may be recording. */
#ifndef SKV_TESTS_FAKE_RECORDING_H
#define SKV_TESTS_FAKE_RECORDING_H

#include <stdbool.h>
#include <stddef.h>

/** Does run(args) when the stream comes to it: now, or each time the recording is played. The
 * arguments are copied. False: there is no room for more, or no such stream. */
bool fake_do(void *stream, void (*run)(const void *args), const void *args, size_t n_bytes);

#endif
