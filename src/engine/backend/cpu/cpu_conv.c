/*
 * The short convolution in front of linear attention.
 *
 * A task has some channels of a span. It goes down the rows with the newest inputs beside it, so a
 * row's result may take the place of its input.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_states.h"
#include "base/size.h"

enum { CHANNELS = 512 /* of a task */ };

typedef struct conv_job {
    const skv_cpu_backend *be;
    const skv_conv_args *a;
    const skv_cpu_set *set;
    size_t n_parts; /* of a span */
} conv_job;

/* The channels of a task, as its span goes by. */
typedef struct conv_part {
    const conv_job *job;
    const skv_state_place *place;
    float *ring;      /* the state's [conv_rows, conv_ld], from its first channel on */
    size_t column, n; /* of x and y */
    float inputs[SKV_CONV_TAPS_MAX][CHANNELS]; /* of row r at r modulo the number of taps */
} conv_part;

size_t skv_cpu_first_wanted(const uint32_t *rows, size_t n_rows, size_t row)
{
    if (!rows) return skv_min_size(row, n_rows);
    size_t low = 0, high = n_rows;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rows[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Inputs of the rows before the span. */
static void load_past(conv_part *p, size_t n_past)
{
    const size_t n_taps = p->place->layer.conv_taps;
    for (size_t back = 1; back < n_taps; back++) {
        float *input = p->inputs[(n_past + n_taps - back) % n_taps];
        if (back > n_past) {
            memset(input, 0, p->n * sizeof *input);
        } else {
            const size_t row = (n_past - back) % p->place->conv_rows;
            memcpy(input, p->ring + row * p->place->conv_ld, p->n * sizeof *input);
        }
    }
}

/* Row `i` of x is the input of row number `at` of its sequence. */
static void load_row(conv_part *p, size_t i, size_t at)
{
    const skv_conv_args *a = p->job->a;
    float *input = p->inputs[at % p->place->layer.conv_taps];
    memcpy(input, skv_cpu_row_at(a->x, i, p->column), p->n * sizeof *input);
    if (!a->gate_in.area) return;
    const float *gate = skv_cpu_row_at(a->gate_in, i, p->column);
    for (size_t c = 0; c < p->n; c++) input[c] *= gate[c];
}

/* Result i, of row number `at` of its sequence. */
static void convolve(const conv_part *p, size_t i, size_t at)
{
    const skv_conv_args *a = p->job->a;
    const size_t n_taps = p->place->layer.conv_taps;
    const float *inputs[SKV_CONV_TAPS_MAX];
    for (size_t j = 0; j < n_taps; j++) inputs[j] = p->inputs[(at + 1 + j) % n_taps];
    if (a->newest.area) inputs[n_taps - 1] = skv_cpu_row_at(a->newest, i, p->column);
    const float *bias = skv_cpu_vec(a->bias);
    float *y = skv_cpu_at(a->y) + i * a->y.ld + p->column;
    p->job->be->kernels.scan.conv(y, &(skv_conv_row){.x = inputs,
                                                     .w = skv_cpu_vec(a->weight) + p->column,
                                                     .bias = bias ? bias + p->column : NULL,
                                                     .ldw = a->n,
                                                     .n_taps = n_taps,
                                                     .n = p->n,
                                                     .silu = a->silu});
    if (!a->gate_out.area) return;
    const float *gate = skv_cpu_row_at(a->gate_out, i, p->column);
    for (size_t c = 0; c < p->n; c++) y[c] *= gate[c];
}

/* Whether row i of a set is step row `row`. */
static bool is_row(const skv_cpu_set *set, size_t i, size_t row)
{
    return i < set->n_rows && (set->rows ? set->rows[i] : i) == row;
}

static void run_conv(void *arg, size_t i_task, size_t i_thread)
{
    const conv_job *job = arg;
    const skv_conv_args *a = job->a;
    const skv_cpu_set *set = job->set, *given = &a->step->sets[a->given];
    const skv_state_span *span = &a->step->spans[i_task / job->n_parts];
    const skv_state_place *place = &a->states->places[a->layer];
    const size_t column = i_task % job->n_parts * CHANNELS;
    (void)i_thread;
    conv_part p; /* inputs of rows that are not given are not read */
    p.job = job;
    p.place = place;
    p.column = column;
    p.n = skv_min_size(CHANNELS, a->n - column);
    p.ring = skv_state_at(a->states, span->state) + place->conv + a->column0 + column;
    load_past(&p, span->n_past);
    size_t wanted = skv_cpu_first_wanted(set->rows, set->n_rows, span->row0);
    size_t next = skv_cpu_first_wanted(given->rows, given->n_rows, span->row0);
    for (size_t i = 0; i < span->n; i++) {
        const size_t row = span->row0 + i, at = span->n_past + i;
        if (is_row(given, next, row)) {
            load_row(&p, next++, at);
            if (span->n - i <= place->conv_rows) {
                memcpy(p.ring + at % place->conv_rows * place->conv_ld,
                       p.inputs[at % place->layer.conv_taps], p.n * sizeof(float));
            }
        }
        if (is_row(set, wanted, row)) convolve(&p, wanted++, at);
    }
}

void skv_cpu_conv(skv_backend *base, const skv_conv_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    const skv_state_layer *layer = &args->states->places[args->layer].layer;
    assert(layer->conv_taps > 0 && args->column0 + args->n <= layer->conv_columns);
    conv_job job = {be, args, &args->step->sets[args->set], skv_ceil_div(args->n, CHANNELS)};
    (void)layer;
    skv_pool_run(be->pool, args->step->n_spans * job.n_parts, run_conv, &job);
}
