/* See cosine.h. */
#include "base/cosine.h"

#include <math.h>

double skv_cosine(const float *x, const float *y, size_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}
