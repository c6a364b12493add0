/* When requests come: see fleet.h. */
#include <math.h>
#include <stdlib.h>

#include "fleet.h"

enum { ARRIVALS_MAX = 1 << 26 };

static int by_time(const void *a, const void *b)
{
    const fleet_arrival *x = a, *y = b;
    if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
    if (x->copy != y->copy) return x->copy < y->copy ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* The trace goes round: after its last request comes the first. */
static size_t add_copy(const load_trace *trace, uint32_t copy, double begin_s, double scale,
                       double seconds, fleet_arrival *out)
{
    const double span = trace->rows[trace->n - 1].at_s;
    size_t n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        double at = trace->rows[i].at_s - begin_s;
        if (at < 0) at += span;
        if (at * scale >= seconds) continue;
        if (out) out[n] = (fleet_arrival){at * scale, (uint32_t)i, copy};
        n++;
    }
    return n;
}

fleet_arrival *fleet_arrivals(const load_trace *trace, double rate, double seconds, uint64_t seed,
                              size_t *n)
{
    const double span = trace->rows[trace->n - 1].at_s;
    const double own_rate = span > 0 ? (double)trace->n / span : rate;
    const double copies = rate > 0 ? fmax(1, round(rate / own_rate)) : 1;
    const double scale = rate > 0 ? copies * own_rate / rate : 1;
    const double expected = copies * (double)trace->n * fmin(1, seconds / (span * scale + 1e-9));
    *n = 0;
    if (expected > ARRIVALS_MAX || copies > ARRIVALS_MAX / 64) return NULL;
    fleet_arrival *all = NULL;
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills */
        uint64_t random = seed;
        size_t total = 0;
        for (uint32_t copy = 0; copy < (uint32_t)copies; copy++) {
            const double begin_s = copy == 0 ? 0 : load_draw_share(&random) * span;
            total += add_copy(trace, copy, begin_s, scale, seconds, all ? all + total : NULL);
        }
        if (total > ARRIVALS_MAX) break;
        *n = total;
        if (!all) all = malloc((total + 1) * sizeof *all);
        if (!all) return NULL;
    }
    qsort(all, *n, sizeof *all, by_time);
    return all;
}
