/* Measured values: see samples.h. */
#include "samples.h"

#include <math.h>
#include <stdlib.h>

uint64_t load_draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double load_draw_share(uint64_t *state)
{
    return (double)(load_draw(state) >> 11) * 0x1p-53;
}

static bool grow(load_samples *samples)
{
    const size_t room = samples->room > 0 ? 2 * samples->room : 256;
    double *at = realloc(samples->at, room * sizeof *at);
    if (!at) return false;
    samples->at = at;
    samples->room = room;
    return true;
}

bool load_samples_add(load_samples *samples, double value)
{
    if (samples->n == samples->room && samples->n < SAMPLES_MAX && !grow(samples)) return false;
    samples->n_seen++;
    const double off = value - samples->mean;
    samples->mean += off / (double)samples->n_seen;
    samples->squares += off * (value - samples->mean);
    if (samples->n < SAMPLES_MAX) {
        samples->at[samples->n++] = value;
        return true;
    }
    const size_t i = (size_t)(load_draw(&samples->random) % samples->n_seen);
    if (i < samples->n) samples->at[i] = value;
    return true;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const load_samples *samples, double share)
{
    const double place = share * (double)(samples->n - 1);
    const size_t low = (size_t)place;
    const size_t high = low + 1 < samples->n ? low + 1 : low;
    return samples->at[low] + (samples->at[high] - samples->at[low]) * (place - (double)low);
}

void load_samples_summary(load_samples *samples, load_summary *out)
{
    *out = (load_summary){.n = samples->n_seen};
    if (samples->n == 0) return;
    qsort(samples->at, samples->n, sizeof *samples->at, compare);
    out->mean = samples->mean;
    out->std = sqrt(samples->squares / (double)samples->n_seen);
    out->median = percentile(samples, 0.5);
    out->p90 = percentile(samples, 0.9);
    out->p99 = percentile(samples, 0.99);
}

void load_samples_release(load_samples *samples)
{
    free(samples->at);
    *samples = (load_samples){0};
}
