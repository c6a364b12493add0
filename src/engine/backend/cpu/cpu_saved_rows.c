/*
 * Rows of a product as bytes, and back: in the form in which products with weights of a type read
 * them, so that nothing is rounded that they would not round themselves.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/size.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"

/* How rows are kept: as floats, bfloat16, or int8 in groups. */
typedef struct row_form {
    enum { ROWS_F32, ROWS_BF16, ROWS_I8 } kind;
    size_t group; /* of int8, along K */
} row_form;

/* Narrow products read f32 rows beside bf16 weights. */
static row_form form_of(const skv_backend *base, skv_weight_type type, size_t K)
{
    const skv_cpu_backend *be = (const skv_cpu_backend *)base;
    switch (type) {
    case SKV_WEIGHT_BF16: return (row_form){K <= SKV_NARROW_K ? ROWS_F32 : ROWS_BF16, 0};
    case SKV_WEIGHT_I8: return (row_form){ROWS_I8, skv_matmul_group(&be->kernels.i8, K)};
    case SKV_WEIGHT_QUANT: return (row_form){ROWS_I8, SKV_QUANT_GROUP};
    case SKV_WEIGHT_F32:
    case SKV_WEIGHT_FP8:
    case SKV_WEIGHT_QUANT_F32: break;
    }
    return (row_form){ROWS_F32, 0};
}

size_t skv_cpu_row_bytes(const skv_backend *base, skv_weight_type type, size_t K)
{
    row_form form = form_of(base, type, K);
    switch (form.kind) {
    case ROWS_F32: break;
    case ROWS_BF16: return K * sizeof(uint16_t);
    case ROWS_I8: return skv_ceil_div(K, form.group) * sizeof(float) + K;
    }
    return K * sizeof(float);
}

/* ---- one row ---- */

static void write_bf16(unsigned char *out, const float *x, size_t K)
{
    for (size_t d = 0; d < K; d++) {
        uint16_t bits = skv_f32_to_bf16(x[d]);
        memcpy(out + d * sizeof bits, &bits, sizeof bits);
    }
}

static void read_bf16(float *x, const unsigned char *in, size_t K)
{
    for (size_t d = 0; d < K; d++) {
        uint16_t bits;
        memcpy(&bits, in + d * sizeof bits, sizeof bits);
        x[d] = skv_bf16_to_f32(bits);
    }
}

/* The largest magnitude of each group, then codes: the product finds the same scale and the same
 * codes in the rows that come back, since the largest value comes back unchanged. */
static void write_i8(unsigned char *out, const float *x, size_t K, size_t group)
{
    int8_t *codes = (int8_t *)(out + skv_ceil_div(K, group) * sizeof(float));
    for (size_t d0 = 0; d0 < K; d0 += group, out += sizeof(float)) {
        size_t end = skv_min_size(d0 + group, K);
        float amax = 0.0f;
        for (size_t d = d0; d < end; d++) amax = fmaxf(amax, fabsf(x[d]));
        float inverse = skv_i8_inverse(skv_i8_scale(amax));
        for (size_t d = d0; d < end; d++) {
            codes[d] = (int8_t)lrintf(fmaxf(-127.0f, fminf(127.0f, x[d] * inverse)));
        }
        memcpy(out, &amax, sizeof amax);
    }
}

static void read_i8(float *x, const unsigned char *in, size_t K, size_t group)
{
    const int8_t *codes = (const int8_t *)(in + skv_ceil_div(K, group) * sizeof(float));
    for (size_t d0 = 0; d0 < K; d0 += group, in += sizeof(float)) {
        size_t end = skv_min_size(d0 + group, K);
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
    const skv_cpu_backend *be;
    row_form form;
    skv_rows x; /* [n, K] */
    unsigned char *bytes;
    size_t K, row_bytes;
    skv_norm norm;
} row_job;

static void save_row(void *arg, size_t i, size_t i_thread)
{
    const row_job *job = arg;
    const skv_norm *norm = &job->norm;
    const float *x = skv_cpu_at(job->x) + i * job->x.ld;
    unsigned char *out = job->bytes + i * job->row_bytes;
    if (norm->weight.area) {
        float *normed = skv_cpu_scratch(job->be, i_thread);
        job->be->kernels.rmsnorm(normed, x, skv_cpu_vec(norm->weight), norm->offset, norm->eps,
                                 job->K);
        x = normed;
    }
    switch (job->form.kind) {
    case ROWS_F32: memcpy(out, x, job->row_bytes); break;
    case ROWS_BF16: write_bf16(out, x, job->K); break;
    case ROWS_I8: write_i8(out, x, job->K, job->form.group); break;
    }
}

static void load_row(void *arg, size_t i, size_t i_thread)
{
    const row_job *job = arg;
    float *x = skv_cpu_at(job->x) + i * job->x.ld;
    const unsigned char *in = job->bytes + i * job->row_bytes;
    (void)i_thread;
    switch (job->form.kind) {
    case ROWS_F32: memcpy(x, in, job->row_bytes); break;
    case ROWS_BF16: read_bf16(x, in, job->K); break;
    case ROWS_I8: read_i8(x, in, job->K, job->form.group); break;
    }
}

static void run_rows(skv_backend *base, skv_weight_type type, row_job job, size_t n,
                     skv_task_fn *fn)
{
    job.be = (const skv_cpu_backend *)base;
    job.form = form_of(base, type, job.K);
    job.row_bytes = skv_cpu_row_bytes(base, type, job.K);
    skv_pool_run(job.be->pool, n, fn, &job);
}

void skv_cpu_save_rows(skv_backend *base, skv_weight_type type, unsigned char *host, skv_rows x,
                       size_t n, size_t K, skv_norm norm)
{
    run_rows(base, type, (row_job){.x = x, .bytes = host, .K = K, .norm = norm}, n, save_row);
}

void skv_cpu_load_rows(skv_backend *base, skv_weight_type type, skv_rows x,
                       const unsigned char *host, size_t n, size_t K)
{
    unsigned char *bytes = (unsigned char *)(uintptr_t)host; /* which are only read */
    run_rows(base, type, (row_job){.x = x, .bytes = bytes, .K = K}, n, load_row);
}
