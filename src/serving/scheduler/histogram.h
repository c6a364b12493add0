/* Adding to the histograms of metrics (skv/serve.h). */
#ifndef SKV_SERVE_HISTOGRAM_H
#define SKV_SERVE_HISTOGRAM_H

#include <stdint.h>

#include "skv/serve.h"

void skv_histogram_add(skv_histogram *histogram, uint64_t ns);

#endif
