/* Time: one monotonic clock in nanoseconds. */
#ifndef SKV_BASE_CLOCK_H
#define SKV_BASE_CLOCK_H

#include <stdint.h>

/** Nanoseconds since some fixed moment; never runs backwards. */
uint64_t skv_clock_ns(void);

#endif
