/*
 * Measured values and their summaries. Up to SAMPLES_MAX values are kept as they are; of more a
 * uniform sample (Vitter's algorithm R), so that memory stays bounded; mean and deviation are
 * always those of all values.
 */
#ifndef SKV_LOAD_SAMPLES_H
#define SKV_LOAD_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLES_MAX = 1 << 22 };

typedef struct load_samples {
    double *at; /* owned */
    size_t n, room;
    size_t n_seen;
    double mean, squares; /* of all, by Welford's recurrence */
    uint64_t random;
} load_samples;

/* n 0: there are no values, and nothing else says anything. */
typedef struct load_summary {
    size_t n;
    double mean, median, std, p90, p99;
} load_summary;

/** False: no memory. */
bool load_samples_add(load_samples *samples, double value);
/** Sorts the values. The deviation is that of the values themselves (numpy.std), percentiles lie
 * between neighbours in proportion (numpy.percentile). */
void load_samples_summary(load_samples *samples, load_summary *out);
void load_samples_release(load_samples *samples);

/** The next number of the sequence that `state` stands for (splitmix64). */
uint64_t load_draw(uint64_t *state);
/** The same, in [0, 1). */
double load_draw_share(uint64_t *state);

#endif
