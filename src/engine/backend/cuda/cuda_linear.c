/*
 * Products with weights as bf16: the rows of x, normed, become bf16 in scratch; cuBLASLt
 * multiplies; bias and epilogue follow where y cannot be the product's own target. Gate and up of a
 * paired matrix are stacked.
 */
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/float16.h"
#include "base/mem.h"

enum { UNIT = 8, READ_ROWS = 64 }; /* numbers that rows are whole groups of; rows read at once */

/* Rows of all parts and their columns as they are stored. */
static void sizes_of(const skv_linear_spec *spec, size_t *N, size_t *ld)
{
    *N = 0;
    for (size_t i = 0; i < spec->n_parts; i++) *N += spec->parts[i].n_rows;
    *ld = skv_round_up(spec->K, UNIT);
}

static skv_bytes linear_bytes(const skv_backend *be, const skv_linear_spec *spec)
{
    size_t N, ld, n;
    (void)be;
    sizes_of(spec, &N, &ld);
    const size_t size = spec->type == SKV_WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t);
    const bool good = skv_size_mul(N, ld, &n) && skv_size_mul(n, size, &n) && n < SIZE_MAX / 2;
    return (skv_bytes){.device = good ? n + N * sizeof(float) : SIZE_MAX};
}

static void linear_free(skv_backend *be, skv_linear *w)
{
    if (!w) return;
    skv_cuda_delete(&skv_cuda_of(be)->device, w->at);
    skv_cuda_delete(&skv_cuda_of(be)->device, w->floats);
    skv_cuda_delete(&skv_cuda_of(be)->device, w->bias);
    skv_free(w->first);
    skv_free(w);
}

/* A part's rows to rows [row0, ..) of w, by way of `floats` [READ_ROWS, K] and `rows`, whose ends
 * are zeros. */
static void put_part(skv_cuda_device *device, skv_linear *w, const skv_row_source *part,
                     size_t row0, float *floats, uint16_t *rows)
{
    for (size_t i = 0; i < part->n_rows; i += READ_ROWS) {
        const size_t n = skv_min_size(READ_ROWS, part->n_rows - i);
        part->read(part->ctx, i, n, floats);
        for (size_t j = 0; w->floats && j < n; j++) {
            skv_cuda_put(device, w->floats + (row0 + i + j) * w->ld, floats + j * w->K,
                         w->K * sizeof *floats);
        }
        if (w->floats) continue;
        for (size_t j = 0; j < n * w->K; j++) {
            rows[j / w->K * w->ld + j % w->K] = skv_bf16_of_float(floats[j]);
        }
        skv_cuda_put(device, w->at + (row0 + i) * w->ld, rows, n * w->ld * sizeof *rows);
    }
    if (part->bias) {
        w->has_bias = true;
        skv_cuda_put(device, w->bias + row0, part->bias, part->n_rows * sizeof *part->bias);
    }
}

static skv_status fill(skv_cuda_device *device, skv_linear *w, const skv_linear_spec *spec,
                       skv_error *err)
{
    void *at = NULL, *bias = NULL;
    const bool is_f32 = spec->type == SKV_WEIGHT_F32;
    const size_t size = is_f32 ? sizeof *w->floats : sizeof *w->at;
    SKV_TRY(skv_cuda_new(device, w->N * w->ld * size, &at, err));
    if (is_f32) {
        w->floats = at;
    } else {
        w->at = at;
    }
    SKV_TRY(skv_cuda_new(device, w->N * sizeof *w->bias, &bias, err));
    w->bias = bias;
    float *floats = skv_alloc(READ_ROWS * w->K, sizeof *floats);
    uint16_t *rows = skv_alloc_zero(READ_ROWS * w->ld, sizeof *rows);
    skv_status status = SKV_OK;
    if (!floats || !rows) status = skv_fail(err, SKV_MEMORY, "weights: out of memory");
    for (size_t i = 0; i < spec->n_parts && status == SKV_OK; i++) {
        put_part(device, w, &spec->parts[i], w->first[i], floats, rows);
        w->first[i + 1] = w->first[i] + spec->parts[i].n_rows;
    }
    skv_free(floats);
    skv_free(rows);
    return status;
}

static skv_status linear_create(skv_backend *be, const skv_linear_spec *spec, skv_linear **out,
                                skv_error *err)
{
    SKV_REQUIRE(spec->type == SKV_WEIGHT_BF16 || (spec->type == SKV_WEIGHT_F32 && !spec->paired),
                err, SKV_UNSUPPORTED, "weights: on this device they are bf16");
    size_t N, ld;
    const skv_cuda_backend *of = skv_cuda_of(be);
    sizes_of(spec, &N, &ld);
    SKV_REQUIRE(skv_round_up(N, UNIT) <= of->n_product && ld <= of->n_operand, err, SKV_RANGE,
                "weights: %zu rows of %zu: a product has room for %zu of %zu", N, spec->K,
                of->n_product, of->n_operand);
    skv_linear *w = skv_alloc_zero(1, sizeof *w);
    SKV_REQUIRE(w, err, SKV_MEMORY, "weights: out of memory");
    w->N = N;
    w->ld = ld;
    w->K = spec->K;
    w->n_parts = spec->n_parts;
    w->paired = spec->paired;
    w->first = skv_alloc_zero(spec->n_parts + 1, sizeof *w->first);
    skv_status status = SKV_OK;
    if (!w->first) status = skv_fail(err, SKV_MEMORY, "weights: out of memory");
    if (status == SKV_OK) status = fill(&skv_cuda_of(be)->device, w, spec, err);
    if (status != SKV_OK) {
        linear_free(be, w);
        return status;
    }
    *out = w;
    return SKV_OK;
}

/* ---- a product ---- */

static void keep(skv_cuda_device *device, skv_status status)
{
    if (device->failed == SKV_OK) device->failed = status;
}

/* Whether the product itself can write, or add to, y. */
static bool is_direct(const skv_linear_args *a, const skv_cuda_rows *y)
{
    const bool plain = a->epilogue == SKV_EPILOGUE_STORE ||
                       (a->epilogue == SKV_EPILOGUE_ADD && y->type == SKV_CUDA_F32);
    return plain && !a->w->has_bias && y->aligned;
}

static void finish(skv_cuda_backend *be, const skv_linear_args *a, skv_cuda_rows c, size_t first,
                   size_t n)
{
    const skv_cuda_rows y = skv_cuda_rows_of(a->y);
    if (a->w->has_bias) { /* a list of zeros: each row gets the same one */
        const skv_cuda_rows bias = {.at = a->w->bias + first, .type = SKV_CUDA_F32};
        skv_cuda_move(be,
                      (skv_cuda_move_args){
                          .y = c, .x = bias, .rows = be->zeros, .op = SKV_CUDA_ADD, .factor = 1},
                      a->n_rows, n);
    }
    if (a->epilogue == SKV_EPILOGUE_STORE || a->epilogue == SKV_EPILOGUE_ADD) {
        const uint32_t op = a->epilogue == SKV_EPILOGUE_ADD ? SKV_CUDA_ADD : SKV_CUDA_COPY;
        skv_cuda_move(be, (skv_cuda_move_args){.y = y, .x = c, .op = op, .factor = 1}, a->n_rows,
                      n);
        return;
    }
    static const uint32_t acts[] = {[SKV_EPILOGUE_RELU2] = SKV_CUDA_RELU2,
                                    [SKV_EPILOGUE_SILU_GLU] = SKV_CUDA_SILU,
                                    [SKV_EPILOGUE_GELU_GLU] = SKV_CUDA_GELU,
                                    [SKV_EPILOGUE_CLAMPED] = SKV_CUDA_CLAMPED};
    const skv_cuda_glu_args args = {.y = y,
                                    .x = c,
                                    .n = (uint32_t)(a->epilogue == SKV_EPILOGUE_RELU2 ? n : n / 2),
                                    .act = acts[a->epilogue],
                                    .limit = a->limit,
                                    .alpha = a->alpha};
    const skv_cuda_grid grid = {.x = (uint32_t)a->n_rows,
                                .y = (uint32_t)skv_ceil_div(args.n, 256 * 8)};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_glu_rows, grid, &args);
}

/* Rows of a product that scratch has room for. */
static void multiply_rows(skv_cuda_backend *be, const skv_linear_args *a, const uint32_t *list,
                          size_t first, size_t n)
{
    const skv_linear *w = a->w;
    const skv_cuda_rows y = skv_cuda_rows_of(a->y);
    const skv_cuda_rows x = skv_cuda_scratch(be->operand, SKV_CUDA_BF16, w->ld);
    const skv_cuda_rows c = skv_cuda_scratch(be->product, SKV_CUDA_F32, skv_round_up(n, UNIT));
    const bool direct = is_direct(a, &y);
    const skv_cuda_product_shape shape = {
        .M = (uint32_t)a->n_rows,
        .N = (uint32_t)n,
        .K = (uint32_t)w->ld,
        .ld_x = (uint32_t)w->ld,
        .ld_y = direct ? y.ld : c.ld,
        .y_is_f32 = !direct || y.type == SKV_CUDA_F32,
        .add = direct && a->epilogue == SKV_EPILOGUE_ADD,
    };
    skv_cuda_norm_to(be, x, a->x, a->n_rows, w->K, w->ld - w->K, &a->norm, list);
    if (be->device.failed == SKV_OK) {
        keep(&be->device,
             skv_cuda_multiply(&be->device.blas, shape, direct ? y.at : c.at, x.at,
                               w->at + first * w->ld, be->device.stream, &be->device.error));
    }
    if (!direct) finish(be, a, c, first, n);
}

/* Rows of a product with a router's weights, in f32. */
static void multiply_f32(skv_cuda_backend *be, const skv_linear_args *a, const uint32_t *list,
                         size_t first, size_t n)
{
    const skv_linear *w = a->w;
    const skv_cuda_f32_args args = {.y = skv_cuda_rows_of(a->y),
                                    .x = be->product,
                                    .w = w->floats + first * w->ld,
                                    .bias = w->has_bias ? w->bias + first : NULL,
                                    .n_rows = (uint32_t)a->n_rows,
                                    .N = (uint32_t)n,
                                    .K = (uint32_t)w->K,
                                    .ld = (uint32_t)w->ld};
    const skv_cuda_grid grid = {.x = (uint32_t)skv_ceil_div(n, 4),
                                .y = (uint32_t)skv_ceil_div(a->n_rows, 8)};
    if (a->epilogue != SKV_EPILOGUE_STORE) keep(&be->device, SKV_UNSUPPORTED);
    skv_cuda_norm_to(be, skv_cuda_scratch(be->product, SKV_CUDA_F32, w->ld), a->x, a->n_rows, w->K,
                     0, &a->norm, list);
    if (a->n_rows > 0) skv_cuda_launch(&be->device, SKV_CUDA_skv_multiply_f32, grid, &args);
}

static void linear(skv_backend *base, const skv_linear_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_linear *w = a->w;
    const size_t part1 = a->part1 > 0 ? a->part1 : w->n_parts;
    const size_t first = w->first[a->part0], n = w->first[part1] - first;
    const size_t most =
        skv_min_size(be->limits.max_rows,
                     skv_min_size(be->n_operand / w->ld, be->n_product / skv_round_up(n, UNIT)));
    const uint32_t *list = a->step ? a->step->sets[a->set].rows : NULL;
    for (size_t i = 0; i < a->n_rows; i += most) {
        skv_linear_args rows = *a;
        rows.n_rows = skv_min_size(most, a->n_rows - i);
        rows.y = skv_rows_from(a->y, i, 0);
        if (!list) rows.x = skv_rows_from(a->x, i, 0);
        (w->floats ? multiply_f32 : multiply_rows)(be, &rows, list ? list + i : NULL, first, n);
    }
}

void skv_cuda_fill_linear(skv_backend *table)
{
    table->linear_bytes = linear_bytes;
    table->linear_create = linear_create;
    table->linear_free = linear_free;
    table->linear = linear;
}
