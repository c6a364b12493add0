/* How alike two vectors point. */
#ifndef SKV_BASE_COSINE_H
#define SKV_BASE_COSINE_H

#include <stddef.h>

/** x.y / (|x| |y|) of x[n] and y[n], summed in double; 0 where one of them is zero. */
double skv_cosine(const float *x, const float *y, size_t n);

#endif
