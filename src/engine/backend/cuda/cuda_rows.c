/* Operations on rows: each is a kernel with its arguments. */
#include "backend/cuda/cuda_backend.h"

static void launch_rows(skv_backend *be, skv_cuda_kernel kernel, size_t n_rows, size_t portions,
                        uint32_t shared, const void *args)
{
    const skv_cuda_grid grid = {.x = (uint32_t)n_rows, .y = (uint32_t)portions, .shared = shared};
    if (n_rows > 0) skv_cuda_launch(&skv_cuda_of(be)->device, kernel, grid, args);
}

static skv_cuda_norm_args norm_args(skv_cuda_rows y, skv_rows x, size_t n, const skv_norm *norm)
{
    skv_cuda_norm_args args = {.y = y,
                               .x = skv_cuda_rows_of(x),
                               .n = (uint32_t)n,
                               .normed = norm->weight.area != NULL,
                               .eps = norm->eps,
                               .offset = norm->offset,
                               .factor = 1};
    if (args.normed) args.weight = skv_cuda_vec_of(norm->weight);
    return args;
}

void skv_cuda_norm_to(skv_cuda_backend *be, skv_cuda_rows y, skv_rows x, size_t n_rows, size_t n,
                      const skv_norm *norm, const uint32_t *list)
{
    skv_cuda_norm_args args = norm_args(y, x, n, norm);
    args.rows = list;
    launch_rows(&be->base, SKV_CUDA_skv_norm_rows, n_rows, 1, SKV_CUDA_ROWS_SHARED, &args);
}

static void norm_rows(skv_backend *be, const skv_norm_args *a)
{
    const skv_cuda_norm_args args = norm_args(skv_cuda_rows_of(a->y), a->x, a->n, &a->norm);
    launch_rows(be, SKV_CUDA_skv_norm_rows, a->n_rows, 1, SKV_CUDA_ROWS_SHARED, &args);
}

static void norm_add(skv_backend *be, const skv_norm_add_args *a)
{
    skv_cuda_norm_args args = norm_args(skv_cuda_rows_of(a->x), a->y, a->n, &a->norm);
    args.sum = args.y;
    if (a->scale != 0) args.factor = a->scale;
    launch_rows(be, SKV_CUDA_skv_norm_rows, a->n_rows, 1, SKV_CUDA_ROWS_SHARED, &args);
}

static void glu(skv_backend *be, const skv_glu_args *a)
{
    const bool gelu = a->epilogue == SKV_EPILOGUE_GELU_GLU;
    const skv_cuda_glu_args args = {.y = skv_cuda_rows_of(a->y),
                                    .x = skv_cuda_rows_of(a->x),
                                    .n = (uint32_t)a->n,
                                    .act = gelu ? SKV_CUDA_GELU : SKV_CUDA_SILU};
    launch_rows(be, SKV_CUDA_skv_glu_rows, a->n_rows, skv_ceil_div(a->n, 256 * 8), 0, &args);
}

void skv_cuda_move(skv_cuda_backend *be, skv_cuda_move_args args, size_t n_rows, size_t n)
{
    args.n = (uint32_t)n;
    launch_rows(&be->base, SKV_CUDA_skv_move_rows, n_rows, skv_ceil_div(n, 128 * 8), 0, &args);
}

static void copy_rows(skv_backend *be, skv_rows to, skv_rows from, size_t n_rows, size_t n)
{
    skv_cuda_move(
        skv_cuda_of(be),
        (skv_cuda_move_args){.y = skv_cuda_rows_of(to), .x = skv_cuda_rows_of(from), .factor = 1},
        n_rows, n);
}

static void scale(skv_backend *be, skv_rows x, size_t n_rows, size_t n, float factor)
{
    const skv_cuda_rows rows = skv_cuda_rows_of(x);
    skv_cuda_move(skv_cuda_of(be), (skv_cuda_move_args){.y = rows, .x = rows, .factor = factor},
                  n_rows, n);
}

static void softcap(skv_backend *be, skv_rows x, size_t n_rows, size_t n, float cap)
{
    const skv_cuda_rows rows = skv_cuda_rows_of(x);
    skv_cuda_move(skv_cuda_of(be),
                  (skv_cuda_move_args){.y = rows, .x = rows, .op = SKV_CUDA_CAP, .factor = cap},
                  n_rows, n);
}

void skv_cuda_fill_rows(skv_backend *table)
{
    table->norm = norm_rows;
    table->norm_add = norm_add;
    table->glu = glu;
    table->copy_rows = copy_rows;
    table->scale = scale;
    table->softcap = softcap;
}
