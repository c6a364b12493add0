/*
 * Products with weights. The rows of x, normed, become the operand in scratch: bf16, f32 beside
 * weights of f32, or e4m3. cuBLASLt multiplies; bias and epilogue follow where y cannot be the
 * product's own target. Gate and up of a paired matrix are stacked.
 *
 * Weights as codes become bf16 on their way. For few rows a kernel of ours reads the codes. For
 * many rows some rows of the matrix after others are written down as bf16 and multiplied by
 * cuBLASLt; those of e4m3 with a scale for each row are multiplied as they are where cuBLASLt can,
 * by rows of x that become e4m3 too.
 */
#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

enum { UNIT = 8 }; /* numbers that rows of results are whole groups of */

static skv_bytes linear_bytes(const skv_backend *be, const skv_linear_spec *spec)
{
    (void)be;
    return (skv_bytes){.device = skv_cuda_weights_bytes(spec)};
}

static void linear_free(skv_backend *base, skv_linear *w)
{
    skv_cuda_device *device = &skv_cuda_of(base)->device;
    if (!w) return;
    skv_cuda_delete(device, w->at);
    skv_cuda_delete(device, w->bias);
    for (size_t i = 0; i < w->n_runs; i++) skv_cuda_delete(device, w->runs[i].block);
    skv_free(w->runs);
    skv_free(w->first);
    skv_free(w);
}

/* Numbers of the operand that a row takes. */
static size_t operand_row(const skv_linear *w)
{
    return w->type == SKV_CUDA_F32 ? 2 * w->ld : w->ld;
}

static skv_status check_room(const skv_cuda_backend *be, const skv_linear *w, skv_error *err)
{
    SKV_REQUIRE(skv_round_up(w->N, UNIT) <= be->n_product && operand_row(w) <= be->n_operand, err,
                SKV_RANGE, "weights: %zu rows of %zu: a product has room for %zu of %zu", w->N,
                w->K, be->n_product, be->n_operand);
    SKV_REQUIRE(w->at || w->n_runs == 0 || w->ld * UNIT <= be->n_unpacked, err, SKV_RANGE,
                "weights: rows of %zu codes, there is room for %zu", w->K, be->n_unpacked / UNIT);
    return SKV_OK;
}

static skv_status linear_create(skv_backend *be, const skv_linear_spec *spec, skv_linear **out,
                                skv_error *err)
{
    SKV_REQUIRE(spec->type != SKV_WEIGHT_QUANT_F32, err, SKV_UNSUPPORTED,
                "weights: on this device codes meet rows of bf16");
    skv_linear *w = skv_alloc_zero(1, sizeof *w);
    SKV_REQUIRE(w, err, SKV_MEMORY, "weights: out of memory");
    w->K = spec->K;
    w->ld = skv_cuda_weights_ld(spec->type, spec->K);
    w->type = spec->type == SKV_WEIGHT_F32 ? SKV_CUDA_F32 : SKV_CUDA_BF16;
    w->n_parts = spec->n_parts;
    w->paired = spec->paired;
    w->first = skv_alloc_zero(spec->n_parts + 1, sizeof *w->first);
    skv_status status = SKV_OK;
    if (!w->first) status = skv_fail(err, SKV_MEMORY, "weights: out of memory");
    for (size_t i = 0; i < spec->n_parts && status == SKV_OK; i++) {
        w->N += spec->parts[i].n_rows;
        w->first[i + 1] = w->N;
    }
    if (status == SKV_OK) status = skv_cuda_weights_load(skv_cuda_of(be), w, spec, err);
    if (status == SKV_OK) status = check_room(skv_cuda_of(be), w, err);
    if (status != SKV_OK) {
        linear_free(be, w);
        return status;
    }
    *out = w;
    return SKV_OK;
}

/* ---- a product ---- */

/* Rows of x, and rows [first, first + n) of the matrix. */
typedef struct product {
    const skv_linear_args *args;
    const uint32_t *list; /* of x's rows; NULL: the first */
    size_t first, n;
    skv_cuda_rows to;    /* y, or c in scratch */
    const void *operand; /* rows of x as the product reads them */
    bool direct;         /* `to` is y */
    bool add;            /* y += */
    bool bias_is_there;  /* it has been added */
} product;

static bool is_plain(const skv_linear_args *a)
{
    return a->epilogue == SKV_EPILOGUE_STORE || a->epilogue == SKV_EPILOGUE_ADD;
}

/* From `to` in scratch to y. */
static void finish(skv_cuda_backend *be, const product *p)
{
    const skv_linear_args *a = p->args;
    const bool biased = a->w->has_bias && !p->bias_is_there;
    const float *bias = biased ? a->w->bias + p->first : NULL;
    const skv_cuda_rows y = skv_cuda_rows_of(a->y);
    if (is_plain(a)) {
        const skv_cuda_move_args args = {.y = y, .x = p->to, .bias = bias, .factor = 1};
        const bool adds = a->epilogue == SKV_EPILOGUE_ADD;
        (adds ? skv_cuda_add : skv_cuda_move)(be, args, a->n_rows, p->n);
        return;
    }
    static const uint32_t acts[] = {[SKV_EPILOGUE_RELU2] = SKV_CUDA_RELU2,
                                    [SKV_EPILOGUE_SILU_GLU] = SKV_CUDA_SILU,
                                    [SKV_EPILOGUE_GELU_GLU] = SKV_CUDA_GELU,
                                    [SKV_EPILOGUE_CLAMPED] = SKV_CUDA_CLAMPED};
    const bool one = a->epilogue == SKV_EPILOGUE_RELU2;
    const skv_cuda_glu_args args = {.y = y,
                                    .x = p->to,
                                    .bias = bias,
                                    .act = acts[a->epilogue],
                                    .limit = a->limit,
                                    .alpha = a->alpha};
    skv_cuda_glu(be, args, a->n_rows, one ? p->n : p->n / 2);
}

/* Columns of rows from element `column` on. */
static skv_cuda_rows columns_of(skv_cuda_rows rows, size_t column)
{
    const size_t size = rows.type == SKV_CUDA_F32 ? 4 : 2;
    rows.at = (unsigned char *)rows.at + column * size;
    return rows;
}

/* Whether x is what a product by rows of this type reads, with as many columns as w's rows have. */
static bool is_operand(const product *p, uint32_t type)
{
    const skv_linear *w = p->args->w;
    const skv_cuda_rows x = skv_cuda_rows_of(p->args->x);
    const bool as_it_is = !p->args->norm.weight.area && !p->list && x.type == type;
    return as_it_is && x.aligned && x.ld == w->ld && w->K == w->ld;
}

/* The product's rows as the operand, of w's type or e4m3: in scratch, or where they are. */
static void put_operand(skv_cuda_backend *be, product *p, uint32_t type)
{
    const skv_linear *w = p->args->w;
    const skv_cuda_rows x = skv_cuda_scratch(be->operand, type, w->ld);
    p->operand = is_operand(p, type) ? skv_cuda_rows_of(p->args->x).at : be->operand;
    if (p->operand != be->operand) return;
    const size_t n_zeros = type == SKV_CUDA_E4M3 ? 0 : w->ld - w->K;
    skv_cuda_norm_to(be, x, p->args->x, p->args->n_rows, w->K, n_zeros, &p->args->norm, p->list);
}

static int blas_type(uint32_t type)
{
    return type == SKV_CUDA_F32    ? SKV_BLAS_F32
           : type == SKV_CUDA_E4M3 ? SKV_BLAS_E4M3
                                   : SKV_BLAS_BF16;
}

/* Columns [column, column + n) of `to` by n rows of weights at o.w, of this type and row length. */
static skv_status multiply(skv_cuda_backend *be, const product *p, uint32_t type, size_t column,
                           size_t n, skv_cuda_operands o, skv_error *err)
{
    const skv_linear *w = p->args->w;
    const skv_cuda_product_shape shape = {
        .M = (uint32_t)p->args->n_rows,
        .N = (uint32_t)n,
        .K = (uint32_t)(type == SKV_CUDA_E4M3 ? w->K : w->ld),
        .ld_x = (uint32_t)w->ld,
        .ld_w = (uint32_t)w->ld,
        .ld_y = p->to.ld,
        .type = blas_type(type),
        .y_is_f32 = p->to.type == SKV_CUDA_F32,
        .add = p->add,
    };
    o.y = columns_of(p->to, column).at;
    o.x = p->operand;
    return skv_cuda_product(&be->device, shape, &o, err);
}

static void multiply_or_fail(skv_cuda_backend *be, const product *p, size_t column, size_t n,
                             const void *weights)
{
    const skv_status status = multiply(be, p, p->args->w->type, column, n,
                                       (skv_cuda_operands){.w = weights}, &be->device.error);
    if (be->device.failed == SKV_OK) be->device.failed = status;
}

/* ---- codes ---- */

/* Rows of a run that a product needs: n from row `row` of it on, which are columns from `column`
 * on. */
typedef struct stretch {
    const skv_cuda_run *run;
    size_t row, n, column;
} stretch;

static stretch stretch_of(const product *p, size_t i_run)
{
    const skv_cuda_run *run = &p->args->w->runs[i_run];
    const size_t first = skv_max_size(p->first, run->row0);
    const size_t end = skv_min_size(p->first + p->n, run->row0 + run->n_rows);
    return (stretch){run, first - run->row0, end > first ? end - first : 0, first - p->first};
}

/* The codes from row `row` on. */
static skv_cuda_codes codes_from(const skv_cuda_codes *codes, size_t row)
{
    skv_cuda_codes c = *codes;
    const size_t size = c.kind == SKV_CUDA_CODES_E4M3 ? 4 : 2;
    c.codes += row * c.row_bytes;
    c.scales = (const unsigned char *)c.scales + row * c.n_scales * size;
    if (c.mins) c.mins += row * c.n_scales;
    if (c.fine) c.fine += row * c.n_fine;
    if (c.fine_min) c.fine_min += row * c.n_fine;
    return c;
}

static void multiply_few(skv_cuda_backend *be, const product *p, stretch s)
{
    const skv_linear *w = p->args->w;
    const skv_cuda_few_args args = {
        .y = columns_of(p->to, s.column),
        .x = p->operand,
        .bias = w->has_bias ? w->bias + s.run->row0 + s.row : NULL,
        .w = codes_from(&s.run->codes, s.row),
        .M = (uint32_t)p->args->n_rows,
        .N = (uint32_t)s.n,
        .K = (uint32_t)w->ld,
        .add = p->add,
    };
    const skv_cuda_grid grid = {.x = (uint32_t)skv_ceil_div(s.n, SKV_CUDA_FEW_COLUMNS),
                                .shared = SKV_CUDA_FEW_SHARED};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_multiply_few, grid, &args);
}

static void multiply_unpacked(skv_cuda_backend *be, const product *p, stretch s)
{
    const skv_linear *w = p->args->w;
    const size_t most = be->n_unpacked / w->ld / UNIT * UNIT;
    for (size_t i = 0; i < s.n; i += most) {
        const size_t n = skv_min_size(most, s.n - i);
        const skv_cuda_unpack_args args = {
            .y = be->unpacked, .w = codes_from(&s.run->codes, s.row + i), .K = (uint32_t)w->ld};
        const skv_cuda_grid grid = {.x = (uint32_t)n,
                                    .y = (uint32_t)skv_ceil_div(w->ld, 128 * 8),
                                    .shared = SKV_CUDA_UNPACK_SHARED};
        skv_cuda_launch(&be->device, SKV_CUDA_skv_unpack_rows, grid, &args);
        multiply_or_fail(be, p, s.column + i, n, be->unpacked);
    }
}

/* Whether cuBLASLt can be asked to multiply e4m3: it wants whole groups of 16. */
static bool may_be_e4m3(const skv_cuda_backend *be, const product *p)
{
    const skv_linear *w = p->args->w;
    for (size_t i = 0; i < w->n_runs; i++) {
        const stretch s = stretch_of(p, i);
        const skv_cuda_codes *c = &s.run->codes;
        if (c->kind != SKV_CUDA_CODES_E4M3 || c->n_scales != 1) return false;
        if (s.n % 16 != 0 || s.column % 16 != 0) return false;
    }
    return !be->no_fp8 && w->K % 16 == 0;
}

/* False: cuBLASLt cannot do it, nor will it. */
static bool multiply_e4m3(skv_cuda_backend *be, product *p)
{
    put_operand(be, p, SKV_CUDA_E4M3);
    for (size_t i = 0; i < p->args->w->n_runs; i++) {
        const stretch s = stretch_of(p, i);
        if (s.n == 0) continue;
        const skv_cuda_codes c = codes_from(&s.run->codes, s.row);
        const skv_cuda_operands o = {
            .w = c.codes, .x_scales = be->operand_scales, .w_scales = c.scales};
        skv_error err;
        const skv_status status = multiply(be, p, SKV_CUDA_E4M3, s.column, s.n, o, &err);
        be->no_fp8 = be->no_fp8 || (status == SKV_UNSUPPORTED && i == 0);
        if (be->no_fp8) return false;
        if (be->device.failed == SKV_OK && status != SKV_OK) {
            be->device.failed = status;
            be->device.error = err;
        }
    }
    return true;
}

/* Whether the product itself can write, or add to, y: by cuBLASLt, or by multiply_few. */
static bool is_direct(const product *p, const skv_cuda_rows *y, bool few)
{
    const skv_linear_args *a = p->args;
    if (!is_plain(a) || few) return is_plain(a);
    const bool is_f32 = y->type == SKV_CUDA_F32;
    const bool fits = is_f32 || (a->epilogue == SKV_EPILOGUE_STORE && a->w->type != SKV_CUDA_F32);
    return fits && !a->w->has_bias && y->aligned;
}

/* Rows of x that scratch has room for. */
static void multiply_rows(skv_cuda_backend *be, product p)
{
    const skv_linear *w = p.args->w;
    const skv_cuda_rows y = skv_cuda_rows_of(p.args->y);
    const bool few = w->n_runs > 0 && p.args->n_rows <= SKV_CUDA_FEW;
    p.direct = is_direct(&p, &y, few);
    p.add = p.direct && p.args->epilogue == SKV_EPILOGUE_ADD;
    p.to = p.direct ? y : skv_cuda_scratch(be->product, SKV_CUDA_F32, skv_round_up(p.n, UNIT));
    p.bias_is_there = few;
    if (w->n_runs == 0 || few || !may_be_e4m3(be, &p) || !multiply_e4m3(be, &p)) {
        put_operand(be, &p, w->type);
        if (w->n_runs == 0) {
            const size_t size = w->type == SKV_CUDA_F32 ? 4 : 2;
            multiply_or_fail(be, &p, 0, p.n, (const unsigned char *)w->at + p.first * w->ld * size);
        }
        for (size_t i = 0; i < w->n_runs; i++) {
            const stretch s = stretch_of(&p, i);
            if (s.n == 0) continue;
            if (few) {
                multiply_few(be, &p, s);
            } else {
                multiply_unpacked(be, &p, s);
            }
        }
    }
    if (!p.direct) finish(be, &p);
}

static void linear(skv_backend *base, const skv_linear_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_linear *w = a->w;
    const size_t part1 = a->part1 > 0 ? a->part1 : w->n_parts;
    const size_t first = w->first[a->part0], n = w->first[part1] - first;
    const size_t operand = be->n_operand / operand_row(w);
    const size_t most = skv_min_size(be->limits.max_rows,
                                     skv_min_size(operand, be->n_product / skv_round_up(n, UNIT)));
    const uint32_t *list = a->step ? a->step->sets[a->set].rows : NULL;
    for (size_t i = 0; i < a->n_rows; i += most) {
        skv_linear_args rows = *a;
        rows.n_rows = skv_min_size(most, a->n_rows - i);
        rows.y = skv_rows_from(a->y, i, 0);
        if (!list) rows.x = skv_rows_from(a->x, i, 0);
        multiply_rows(
            be, (product){.args = &rows, .list = list ? list + i : NULL, .first = first, .n = n});
    }
}

void skv_cuda_fill_linear(skv_backend *table)
{
    table->linear_bytes = linear_bytes;
    table->linear_create = linear_create;
    table->linear_free = linear_free;
    table->linear = linear;
}
