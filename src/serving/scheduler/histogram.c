/* Times by how often they occurred: see histogram.h. */
#include "scheduler/histogram.h"

#include <math.h>

static const double bounds[SKV_HISTOGRAM_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                     0.1,   0.25,   0.5,   1,    2.5,   5,
                                                     10,    25,     60,    120,  300,   HUGE_VAL};

const double *skv_histogram_bounds(void)
{
    return bounds;
}

void skv_histogram_add(skv_histogram *histogram, uint64_t ns)
{
    double seconds = (double)ns * 1e-9;
    size_t i = 0;
    while (i + 1 < SKV_HISTOGRAM_BUCKETS && seconds > bounds[i]) i++;
    histogram->counts[i]++;
    histogram->sum += seconds;
}
