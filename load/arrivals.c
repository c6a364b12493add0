/* Arrivals: see arrivals.h. Each is worked out when it is wanted, so a run of any length takes no
 * memory for them. */
#include "arrivals.h"

#include <math.h>

/* Seconds of the run for a second of the trace. */
static double trace_scale(const load_options *o, const load_trace *trace, size_t n)
{
    const double span = trace->rows[n - 1].at_s;
    if (o->rate <= 0) return o->time_scale;
    return span > 0 ? (double)(n - 1) / o->rate / span : 0;
}

arrival_clock arrival_clock_begin(const load_options *options)
{
    arrival_clock clock = {.options = options, .n_total = options->n_requests};
    const load_trace *trace = options->trace;
    if (trace != NULL) {
        if (trace->n < clock.n_total) clock.n_total = trace->n;
        if (clock.n_total > 0) clock.scale = trace_scale(options, trace, clock.n_total);
    }
    uint64_t seed = options->seed;
    clock.random_gaps = load_draw(&seed);
    clock.random_lengths = load_draw(&seed);
    return clock;
}

static double gap(arrival_clock *clock)
{
    const load_options *o = clock->options;
    switch (o->arrivals) {
    case LOAD_POISSON: return -log1p(-load_draw_share(&clock->random_gaps)) / o->rate;
    case LOAD_FIXED: return 1 / o->rate;
    default: return 0;
    }
}

static size_t scaled(uint32_t n, double scale)
{
    const double value = round(n * scale);
    return value < 1 ? 1 : (size_t)value;
}

bool arrival_clock_next(arrival_clock *clock, load_arrival *out)
{
    const load_options *o = clock->options;
    if (clock->n_told == clock->n_total) return false;
    *out = (load_arrival){.index = clock->n_told++};
    if (out->index > 0) clock->at_s += gap(clock);
    if (o->trace == NULL) {
        const uint64_t which = load_draw(&clock->random_lengths) % o->n_prompt_lengths;
        out->n_prompt = o->prompt_lengths[which];
        out->n_output = o->output_tokens;
    } else {
        const load_trace_row *row = &o->trace->rows[out->index];
        if (o->arrivals == LOAD_TRACE) clock->at_s = row->at_s * clock->scale;
        out->n_prompt = scaled(row->n_prompt, o->length_scale);
        out->n_output = scaled(row->n_output, o->length_scale);
        out->n_blocks = row->n_blocks;
        out->blocks = row->n_blocks > 0 ? o->trace->blocks + row->first_block : NULL;
        out->block_tokens = scaled(TRACE_BLOCK_TOKENS, o->length_scale);
    }
    out->at_s = clock->at_s;
    return o->seconds <= 0 || out->at_s <= o->seconds;
}
