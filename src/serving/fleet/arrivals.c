/* When requests come: see fleet.h. */
#include <math.h>
#include <stdlib.h>

#include "fleet.h"

enum { ARRIVALS_MAX = 1 << 26, COPIES_MAX = 1 << 20 };

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

/* The first copy begins where the trace does. Returns how many there are; out NULL: only that. */
static size_t add_copies(const load_trace *trace, uint32_t copies, double scale, double seconds,
                         uint64_t seed, fleet_arrival *out)
{
    const double span = trace->rows[trace->n - 1].at_s;
    size_t n = 0;
    for (uint32_t copy = 0; copy < copies; copy++) {
        const double begin_s = copy == 0 ? 0 : load_draw_share(&seed) * span;
        n += add_copy(trace, copy, begin_s, scale, seconds, out ? out + n : NULL);
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
    if (expected > ARRIVALS_MAX || copies > COPIES_MAX) return NULL;
    const size_t room = add_copies(trace, (uint32_t)copies, scale, seconds, seed, NULL);
    fleet_arrival *all = room <= ARRIVALS_MAX ? malloc((room + 1) * sizeof *all) : NULL;
    if (!all) return NULL;
    *n = add_copies(trace, (uint32_t)copies, scale, seconds, seed, all);
    qsort(all, *n, sizeof *all, by_time);
    return all;
}
