/* Rows of boundary l as bytes, and back into deep slots: see boundary_rows.h. */
#include "engine/boundary_rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"

enum { NORM_ROWS = SKV_LOGIT_ROWS / 2 }; /* normed at a time, in the room of the logits */

typedef enum row_form { FORM_F32, FORM_BF16, FORM_I8 } row_form;

static row_form form_of(const skv_engine *e)
{
    switch (e->options.weights) {
    case SKV_WEIGHTS_INT8: return FORM_I8;
    case SKV_WEIGHTS_BF16: return e->config->hidden > SKV_NARROW_K ? FORM_BF16 : FORM_F32;
    case SKV_WEIGHTS_AUTO:
    case SKV_WEIGHTS_F32: break;
    }
    return FORM_F32;
}

static size_t count_groups(size_t D)
{
    return skv_ceil_div(D, skv_i8_group(D));
}

size_t skv_boundary_row_bytes(const skv_engine *e)
{
    size_t D = e->config->hidden;
    if (!e->runs_swiftkv || e->ws.max_rows < 2) return 0;
    switch (form_of(e)) {
    case FORM_F32: break;
    case FORM_BF16: return D * sizeof(uint16_t);
    case FORM_I8: return count_groups(D) * sizeof(float) + D;
    }
    return D * sizeof(float);
}

size_t skv_boundary_tracks(const skv_engine *e)
{
    return e->plan.layout.track0[e->plan.layers[e->config->kv_layers].slot];
}

size_t skv_boundary_layer(const skv_engine *e)
{
    return e->config->kv_layers;
}

/* ---- one row ---- */

static void write_bf16(unsigned char *out, const float *x, size_t D)
{
    for (size_t d = 0; d < D; d++) {
        uint16_t bits = skv_f32_to_bf16(x[d]);
        memcpy(out + d * sizeof bits, &bits, sizeof bits);
    }
}

static void read_bf16(float *x, const unsigned char *in, size_t D)
{
    for (size_t d = 0; d < D; d++) {
        uint16_t bits;
        memcpy(&bits, in + d * sizeof bits, sizeof bits);
        x[d] = skv_bf16_to_f32(bits);
    }
}

/* The largest magnitude of each group, then codes: the product finds the same scale and the same
 * codes in what is read back, since the largest value comes back as it was. */
static void write_i8(unsigned char *out, const float *x, size_t D)
{
    size_t group = skv_i8_group(D);
    int8_t *codes = (int8_t *)(out + count_groups(D) * sizeof(float));
    for (size_t d0 = 0; d0 < D; d0 += group, out += sizeof(float)) {
        size_t end = skv_min_size(d0 + group, D);
        float amax = 0.0f;
        for (size_t d = d0; d < end; d++) amax = fmaxf(amax, fabsf(x[d]));
        float inverse = skv_i8_inverse(skv_i8_scale(amax));
        for (size_t d = d0; d < end; d++) {
            codes[d] = (int8_t)lrintf(fmaxf(-127.0f, fminf(127.0f, x[d] * inverse)));
        }
        memcpy(out, &amax, sizeof amax);
    }
}

static void read_i8(float *x, const unsigned char *in, size_t D)
{
    size_t group = skv_i8_group(D);
    const int8_t *codes = (const int8_t *)(in + count_groups(D) * sizeof(float));
    for (size_t d0 = 0; d0 < D; d0 += group, in += sizeof(float)) {
        size_t end = skv_min_size(d0 + group, D);
        float amax;
        memcpy(&amax, in, sizeof amax);
        float scale = skv_i8_scale(amax);
        for (size_t d = d0; d < end; d++) {
            bool largest = codes[d] == 127 || codes[d] == -127;
            x[d] = largest ? copysignf(amax, codes[d]) : (float)codes[d] * scale;
        }
    }
}

/* ---- rows ---- */

typedef struct row_job {
    const skv_engine *engine;
    float *x; /* [n, D] */
    unsigned char *bytes;
} row_job;

static void write_row(void *arg, size_t i)
{
    const row_job *job = arg;
    size_t D = job->engine->config->hidden, n_bytes = skv_boundary_row_bytes(job->engine);
    const float *x = job->x + i * D;
    unsigned char *out = job->bytes + i * n_bytes;
    switch (form_of(job->engine)) {
    case FORM_F32: memcpy(out, x, n_bytes); break;
    case FORM_BF16: write_bf16(out, x, D); break;
    case FORM_I8: write_i8(out, x, D); break;
    }
}

static void read_row(void *arg, size_t i)
{
    const row_job *job = arg;
    size_t D = job->engine->config->hidden, n_bytes = skv_boundary_row_bytes(job->engine);
    float *x = job->x + i * D;
    const unsigned char *in = job->bytes + i * n_bytes;
    switch (form_of(job->engine)) {
    case FORM_F32: memcpy(x, in, n_bytes); break;
    case FORM_BF16: read_bf16(x, in, D); break;
    case FORM_I8: read_i8(x, in, D); break;
    }
}

void skv_boundary_take(skv_engine *e, const float *x, size_t n, unsigned char *rows)
{
    const skv_config *c = e->config;
    size_t D = c->hidden, n_bytes = skv_boundary_row_bytes(e);
    size_t most = skv_min_size(NORM_ROWS, e->ws.max_rows / 2);
    float *y = e->ws.logits, *sum = y + most * D; /* the sum is not looked at */
    for (size_t i = 0; i < n; i += most) {
        size_t m = skv_min_size(most, n - i);
        memcpy(y, x + i * D, m * D * sizeof *y);
        e->be->norm_add(e->be, &(skv_norm_add_args){.x = sum,
                                                    .y = y,
                                                    .n_rows = m,
                                                    .n = D,
                                                    .norm = {e->model.norm_swiftkv,
                                                             c->norm_offset_one ? 1.0f : 0.0f,
                                                             (float)c->norm_eps}});
        row_job job = {e, y, rows + i * n_bytes};
        e->be->parallel(e->be, m, write_row, &job);
    }
}

void skv_boundary_restore(skv_engine *e, const unsigned char *rows, size_t position, size_t context,
                          void **pages)
{
    assert(skv_boundary_row_bytes(e) > 0);
    size_t n_bytes = skv_boundary_row_bytes(e);
    skv_kv_cache cache = {.pool = e->pool,
                          .layout = &e->plan.layout,
                          .max_pages = 1,
                          .n_rows = SKV_PAGE_ROWS,
                          .pages = pages};
    size_t most = skv_min_size(SKV_PAGE_ROWS, e->ws.max_rows);
    for (size_t i = 0; i < SKV_PAGE_ROWS; i += most) {
        size_t m = skv_min_size(most, SKV_PAGE_ROWS - i);
        skv_forward_span span = {
            .n = m, .n_past = i, .position0 = position + i, .context = context, .cache = &cache};
        skv_forward f = {
            .model = &e->model, .plan = &e->plan, .ws = &e->ws, .spans = &span, .n_spans = 1};
        row_job job = {e, e->ws.x, (unsigned char *)(uintptr_t)(rows + i * n_bytes)};
        e->be->parallel(e->be, m, read_row, &job);
        skv_forward_deep_kv(&f);
    }
}
