/* Operations on rows: each is a kernel with its arguments. */
#include "backend/cuda/cuda_backend.h"

static void launch_rows(skv_backend *be, skv_cuda_kernel kernel, size_t n_rows, size_t portions,
                        uint32_t shared, const void *args)
{
    const skv_cuda_grid grid = {.x = (uint32_t)n_rows, .y = (uint32_t)portions, .shared = shared};
    if (n_rows > 0) skv_cuda_launch(&skv_cuda_of(be)->device, kernel, grid, args);
}

/* The same, but the norm of these rows may take it along. */
static void hold_rows(skv_cuda_backend *be, skv_cuda_kernel kernel, size_t n_rows, size_t portions,
                      const skv_cuda_first_args *args)
{
    const uint32_t shared = kernel == SKV_CUDA_skv_norm_rows ? SKV_CUDA_ROWS_SHARED : 0;
    const skv_cuda_grid grid = {.x = (uint32_t)n_rows, .y = (uint32_t)portions, .shared = shared};
    if (n_rows > 0) skv_cuda_hold(&be->device, kernel, grid, args);
}

static skv_cuda_norm_args norm_args(skv_cuda_rows y, skv_rows x, size_t n, const skv_norm *norm)
{
    skv_cuda_norm_args args = {.y = y,
                               .x = skv_cuda_rows_of(x),
                               .n = (uint32_t)n,
                               .normed = norm->weight.area ? 1 : 0,
                               .eps = norm->eps,
                               .offset = norm->offset,
                               .factor = 1};
    if (args.normed) args.weight = skv_cuda_vec_of(norm->weight);
    return args;
}

void skv_cuda_norm_to(skv_cuda_backend *be, skv_cuda_rows y, skv_rows x, size_t n_rows, size_t n,
                      size_t n_zeros, const skv_norm *norm, const uint32_t *list)
{
    skv_cuda_norm_args args = norm_args(y, x, n, norm);
    args.rows = list;
    args.n_zeros = (uint32_t)n_zeros;
    args.scales = be->operand_scales;
    if (y.at == be->operand) { /* which nothing that is held reads */
        skv_cuda_launch_norm(&be->device, n_rows, &args);
    } else {
        launch_rows(&be->base, SKV_CUDA_skv_norm_rows, n_rows, 1, SKV_CUDA_ROWS_SHARED, &args);
    }
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
    args.normed = 1; /* also without a weight */
    if (a->scale != 0) args.factor = a->scale;
    hold_rows(skv_cuda_of(be), SKV_CUDA_skv_norm_rows, a->n_rows, 1,
              &(skv_cuda_first_args){.norm = args});
}

void skv_cuda_glu(skv_cuda_backend *be, skv_cuda_glu_args args, size_t n_rows, size_t n)
{
    args.n = (uint32_t)n;
    hold_rows(be, SKV_CUDA_skv_glu_rows, n_rows, skv_ceil_div(n, 256 * 8),
              &(skv_cuda_first_args){.glu = args});
}

static void glu(skv_backend *be, const skv_glu_args *a)
{
    const bool gelu = a->epilogue == SKV_EPILOGUE_GELU_GLU;
    skv_cuda_glu(skv_cuda_of(be),
                 (skv_cuda_glu_args){.y = skv_cuda_rows_of(a->y),
                                     .x = skv_cuda_rows_of(a->x),
                                     .act = gelu ? SKV_CUDA_GELU : SKV_CUDA_SILU},
                 a->n_rows, a->n);
}

void skv_cuda_move(skv_cuda_backend *be, skv_cuda_move_args args, size_t n_rows, size_t n)
{
    args.n = (uint32_t)n;
    launch_rows(&be->base, SKV_CUDA_skv_move_rows, n_rows, skv_ceil_div(n, 128 * 8), 0, &args);
}

void skv_cuda_add(skv_cuda_backend *be, skv_cuda_move_args args, size_t n_rows, size_t n)
{
    args.n = (uint32_t)n;
    args.op = SKV_CUDA_ADD;
    hold_rows(be, SKV_CUDA_skv_move_rows, n_rows, skv_ceil_div(n, 128 * 8),
              &(skv_cuda_first_args){.move = args});
}

void skv_cuda_mix(skv_cuda_backend *be, skv_cuda_mix_args args, size_t n_rows, size_t n)
{
    args.n = (uint32_t)n;
    hold_rows(be, SKV_CUDA_skv_mix_rows, n_rows, skv_ceil_div(n, 128 * 8),
              &(skv_cuda_first_args){.mix = args});
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

/* gate | norm(part) + token in scratch, the second half over the square root of 2.
 */
static void embed_gate(skv_backend *base, const skv_embed_gate_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_cuda_set *set = &a->step->sets[a->set];
    const skv_cuda_rows both = skv_cuda_scratch(be->product, SKV_CUDA_F32, 2 * a->n);
    const skv_cuda_rows gate = skv_cuda_rows_of(a->gate);
    skv_cuda_rows ups = both;
    ups.at = be->product + a->n;
    ups.aligned = both.aligned && a->n % 8 == 0;
    skv_cuda_move(be, (skv_cuda_move_args){.y = both, .x = gate, .factor = 1}, set->n_rows, a->n);
    skv_cuda_norm_to(be, ups, a->part, set->n_rows, a->n, 0, &a->norm, NULL);
    skv_cuda_move(be,
                  (skv_cuda_move_args){.y = ups,
                                       .x = skv_cuda_rows_of(a->token),
                                       .rows = set->rows,
                                       .op = SKV_CUDA_ADD,
                                       .factor = 1},
                  set->n_rows, a->n);
    skv_cuda_move(be, (skv_cuda_move_args){.y = ups, .x = ups, .factor = 0.70710678F}, set->n_rows,
                  a->n);
    skv_cuda_glu(be, (skv_cuda_glu_args){.y = gate, .x = both, .act = SKV_CUDA_GELU}, set->n_rows,
                 a->n);
}

/* ---- rows as bytes: as products read them ---- */

/* How many rows of K scratch has room for, and their type. */
static size_t saved_rows(const skv_cuda_backend *be, skv_weight_type weights, size_t K,
                         uint32_t *type)
{
    *type = weights == SKV_WEIGHT_F32 ? SKV_CUDA_F32 : SKV_CUDA_BF16;
    return be->n_operand / (*type == SKV_CUDA_F32 ? 2 * K : K);
}

static size_t row_bytes(const skv_backend *be, skv_weight_type type, size_t K)
{
    (void)be;
    return K * (type == SKV_WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t));
}

static void save_rows(skv_backend *base, skv_weight_type weights, unsigned char *host, skv_rows x,
                      size_t n, size_t K, skv_norm norm)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const size_t n_bytes = row_bytes(base, weights, K);
    uint32_t type;
    const size_t n_most = saved_rows(be, weights, K, &type);
    for (size_t i = 0; i < n; i += n_most) {
        const size_t n_rows = skv_min_size(n_most, n - i);
        const skv_cuda_rows y = skv_cuda_scratch(be->operand, type, K);
        skv_cuda_norm_to(be, y, skv_rows_from(x, i, 0), n_rows, K, 0, &norm, NULL);
        skv_cuda_get(&be->device, host + i * n_bytes, be->operand, n_rows * n_bytes);
    }
}

static void load_rows(skv_backend *base, skv_weight_type weights, skv_rows x,
                      const unsigned char *host, size_t n, size_t K)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const size_t n_bytes = row_bytes(base, weights, K);
    uint32_t type;
    const size_t n_most = saved_rows(be, weights, K, &type);
    for (size_t i = 0; i < n; i += n_most) {
        const size_t n_rows = skv_min_size(n_most, n - i);
        const skv_cuda_rows from = skv_cuda_scratch(be->operand, type, K);
        const skv_cuda_rows to = skv_cuda_rows_of(skv_rows_from(x, i, 0));
        skv_cuda_put(&be->device, be->operand, host + i * n_bytes, n_rows * n_bytes);
        skv_cuda_move(be, (skv_cuda_move_args){.y = to, .x = from, .factor = 1}, n_rows, K);
    }
}

void skv_cuda_fill_rows(skv_backend *table)
{
    table->norm = norm_rows;
    table->norm_add = norm_add;
    table->glu = glu;
    table->copy_rows = copy_rows;
    table->scale = scale;
    table->softcap = softcap;
    table->embed_gate = embed_gate;
    table->row_bytes = row_bytes;
    table->save_rows = save_rows;
    table->load_rows = load_rows;
}
