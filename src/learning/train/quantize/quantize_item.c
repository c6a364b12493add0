/* One tensor of a model to be quantised: which input it reads, its values, its codes. */
#include "train/quantize/quantizer.h"

#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/mem.h"
#include "base/size.h"

enum { ROWS = 16 /* of a task */ };

/* ---- names ---- */

const char *skv_quantize_name_in_layer(const char *name, size_t *layer)
{
    const char *number = strstr(name, "layers."), *gguf = "blk.";
    if (!number && strncmp(name, gguf, strlen(gguf)) == 0) number = name;
    if (!number) return NULL;
    *layer = 0;
    for (number = strchr(number, '.') + 1; *number >= '0' && *number <= '9'; number++) {
        if (*layer > SKV_LAYERS_MAX) return NULL;
        *layer = 10 * *layer + (size_t)(*number - '0');
    }
    return number;
}

bool skv_quantize_find_input(const skv_quantize_item *item, size_t *layer, skv_product *product)
{
    static const struct {
        const char *name;
        skv_product product;
    } parts[] = {
        {".k_proj_swiftkv", SKV_PRODUCT_STACK}, {".v_proj_swiftkv", SKV_PRODUCT_STACK},
        {".q_proj_swiftkv", SKV_PRODUCT_QKV},   {".q_proj", SKV_PRODUCT_QKV},
        {".k_proj", SKV_PRODUCT_QKV},           {".v_proj", SKV_PRODUCT_QKV},
        {".qkv_proj", SKV_PRODUCT_QKV},         {".o_proj", SKV_PRODUCT_O},
        {".out_proj", SKV_PRODUCT_O},           {".gate_proj", SKV_PRODUCT_GATE_UP},
        {".up_proj", SKV_PRODUCT_GATE_UP},      {".gate_up_proj", SKV_PRODUCT_GATE_UP},
        {".proj_1", SKV_PRODUCT_GATE_UP},       {".down_proj", SKV_PRODUCT_DOWN},
        {".proj_2", SKV_PRODUCT_DOWN},          {".attn_q", SKV_PRODUCT_QKV},
        {".attn_k", SKV_PRODUCT_QKV},           {".attn_v", SKV_PRODUCT_QKV},
        {".attn_qkv", SKV_PRODUCT_QKV},         {".attn_output", SKV_PRODUCT_O},
        {".ffn_gate", SKV_PRODUCT_GATE_UP},     {".ffn_up", SKV_PRODUCT_GATE_UP},
        {".ffn_down", SKV_PRODUCT_DOWN},
    };
    const char *rest = skv_quantize_name_in_layer(item->name, layer);
    if (!rest || strstr(rest, ".experts.")) return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = strstr(rest, parts[i].name);
        if (!part || strcmp(part + strlen(parts[i].name), ".weight") != 0) continue;
        *product = parts[i].product;
        return true;
    }
    return false;
}

bool skv_quantize_is_quantized(const skv_quantizer *q, const skv_quantize_item *item)
{
    const skv_tensor *t = item->tensor;
    const bool stays = q->files && t->n_dims > 2; /* a packed matrix of a folder has two */
    return item->is_projection && !stays && skv_tensor_columns(t) % q->rounding.group == 0;
}

/* ---- reading ---- */

skv_dtype skv_quantize_written_type(const skv_quantize_item *item)
{
    const skv_dtype type = item->tensor->type;
    const bool stays = type == SKV_DTYPE_F32 || type == SKV_DTYPE_F16 || type == SKV_DTYPE_I32;
    return stays ? type : SKV_DTYPE_BF16;
}

skv_status skv_quantize_read(const skv_quantize_item *item, size_t row0, size_t n, float *out,
                             skv_error *err)
{
    SKV_TRY(skv_tensor_read_checked(item->tensor, row0, n, out, err));
    const size_t K = skv_tensor_columns(item->tensor), n_elements = n * K;
    for (size_t k = 0; item->offset != 0 && k < n_elements; k++) out[k] += item->offset;
    if (!item->columns && !item->rows) return SKV_OK;
    for (size_t i = 0; i < n; i++) {
        const float row = item->rows ? item->rows[row0 + i] : 1;
        for (size_t k = 0; k < K; k++) {
            const float factor = item->columns ? row * item->columns[k] : row;
            out[i * K + k] = (out[i * K + k] + item->centre) * factor - item->centre;
        }
    }
    return SKV_OK;
}

/* ---- rounding ---- */

typedef struct round_job {
    skv_quantizer *q;
    skv_quantize_item *item;
    const skv_compensation *compensation; /* NULL: to the nearest */
    float *rows;                          /* [n_threads][ROWS, K] */
    float *missed;                        /* [n_threads][ROWS, K] */
    float *scales;                        /* [n_threads][ROWS, K / group] */
    int8_t *codes;                        /* [n_threads][ROWS, K] */
    double *errors;                       /* [n_tasks][2] */
    bool *failed;                         /* [n_tasks]: a row could not be read, or is not finite */
} round_job;

static void pack_codes(const int8_t *codes, unsigned bits, size_t K, uint8_t *out)
{
    for (size_t k = 0; bits == 8 && k < K; k++) out[k] = (uint8_t)(codes[k] + 128);
    for (size_t k = 0; bits == 4 && k < K; k += 2) {
        out[k / 2] = (uint8_t)((codes[k] + 8) | (codes[k + 1] + 8) << 4);
    }
}

static void store_row(const round_job *job, size_t row, const int8_t *codes, const float *scales)
{
    const skv_rounding *r = &job->q->rounding;
    const size_t K = skv_tensor_columns(job->item->tensor), n_groups = K / r->group;
    pack_codes(codes, r->bits, K, job->item->codes + row * (K * r->bits / 8));
    for (size_t g = 0; g < n_groups; g++) {
        job->item->scales[row * n_groups + g] = r->scale_type == SKV_DTYPE_BF16
                                                    ? skv_bf16_of_float(scales[g])
                                                    : skv_f16_of_float(scales[g]);
    }
}

static void add_error(const round_job *job, size_t i_task, const float *x, const int8_t *codes,
                      const float *scales)
{
    const size_t K = skv_tensor_columns(job->item->tensor), group = job->q->rounding.group;
    double error = 0, whole = 0;
    for (size_t k = 0; k < K; k++) {
        const double miss = (double)codes[k] * (double)scales[k / group] - (double)x[k];
        error += miss * miss;
        whole += (double)x[k] * (double)x[k];
    }
    job->errors[2 * i_task] += error;
    job->errors[2 * i_task + 1] += whole;
    if (!isfinite(error)) job->failed[i_task] = true;
}

static void round_rows(void *arg, size_t i_task, size_t i_thread)
{
    const round_job *job = arg;
    const skv_rounding *r = &job->q->rounding;
    const size_t K = skv_tensor_columns(job->item->tensor), row0 = i_task * ROWS;
    const size_t n = skv_min_size(ROWS, skv_tensor_rows(job->item->tensor) - row0);
    const size_t n_groups = K / r->group;
    const skv_compensation *c = job->compensation;
    float *rows = job->rows + i_thread * ROWS * K;
    float *scales = job->scales + i_thread * ROWS * n_groups;
    int8_t *codes = job->codes + i_thread * ROWS * K;
    if (skv_quantize_read(job->item, row0, n, rows, NULL) != SKV_OK) {
        job->failed[i_task] = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        skv_round_scales(r, rows + i * K, c ? c->moments : NULL, K, scales + i * n_groups);
        if (!c) skv_round_row(r, rows + i * K, scales + i * n_groups, K, codes + i * K);
    }
    if (c) {
        float *missed = job->missed + i_thread * ROWS * K;
        (void)skv_round_compensated(r, c, rows, scales, n, missed, codes);
    }
    for (size_t i = 0; i < n; i++) {
        store_row(job, row0 + i, codes + i * K, scales + i * n_groups);
        add_error(job, i_task, rows + i * K, codes + i * K, scales + i * n_groups);
    }
}

static void release_job(round_job *job)
{
    skv_free(job->rows);
    skv_free(job->missed);
    skv_free(job->scales);
    skv_free(job->codes);
    skv_free(job->errors);
    skv_free(job->failed);
}

static bool take_memory(round_job *job, size_t N, size_t K)
{
    const size_t n_threads = skv_pool_threads(job->q->pool), n_tasks = skv_ceil_div(N, ROWS);
    const skv_rounding *r = &job->q->rounding;
    job->rows = skv_alloc(n_threads * ROWS * K, sizeof *job->rows);
    job->missed = skv_alloc(n_threads * ROWS * K, sizeof *job->missed);
    job->scales = skv_alloc(n_threads * ROWS * (K / r->group), sizeof *job->scales);
    job->codes = skv_alloc(n_threads * ROWS * K, 1);
    job->errors = skv_alloc_zero(2 * n_tasks, sizeof *job->errors);
    job->failed = skv_alloc_zero(n_tasks, sizeof *job->failed);
    job->item->codes = skv_alloc(N * (K * r->bits / 8), 1);
    job->item->scales = skv_alloc(N * (K / r->group), sizeof *job->item->scales);
    return job->rows && job->missed && job->scales && job->codes && job->errors && job->failed &&
           job->item->codes && job->item->scales;
}

/* Adds up the results of the tasks, in their order. */
static skv_status sum_tasks(const round_job *job, size_t n_tasks, skv_error *err)
{
    for (size_t i = 0; i < n_tasks; i++) {
        if (job->failed[i]) {
            SKV_TRY(skv_tensor_check(job->item->tensor, err));
            return skv_fail(err, SKV_RANGE,
                            "%s: a weight is not finite, or too large for a scale of f16",
                            job->item->name);
        }
        job->q->error += job->errors[2 * i];
        job->q->whole += job->errors[2 * i + 1];
    }
    return SKV_OK;
}

skv_status skv_quantize_round_item(skv_quantizer *q, skv_quantize_item *item,
                                   const skv_compensation *c, skv_error *err)
{
    round_job job = {.q = q, .item = item, .compensation = c};
    const size_t N = skv_tensor_rows(item->tensor), K = skv_tensor_columns(item->tensor);
    const size_t n_tasks = skv_ceil_div(N, ROWS);
    skv_status status = SKV_OK;
    if (take_memory(&job, N, K)) {
        skv_pool_run(q->pool, n_tasks, round_rows, &job);
        status = sum_tasks(&job, n_tasks, err);
    } else {
        status =
            skv_fail(err, SKV_MEMORY, "%s: no memory to quantise [%zu, %zu]", item->name, N, K);
    }
    release_job(&job);
    skv_tensor_forget(item->tensor);
    return status;
}

/* Those of an expert lie among others' in the file. */
