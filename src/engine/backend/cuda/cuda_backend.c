/* The CUDA back end: the shapes that it computes, its life, its workspace. */
#include "backend/cuda/cuda_backend.h"

#include <stdio.h>

#include "backend/cpu/verify.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_image.h"
#include "backend/devices.h"
#include "base/mem.h"
#include "base/system.h"

/* UNPACKED: numbers of a matrix of codes that are bf16 at a time, 16 MiB. NCCL_BYTES: memory that
 * NCCL takes of a card, an estimate: 24 channels with buffers of up to 10 MiB to each of two
 * others. */
enum { ALIGNMENT = 256, UNPACKED = 8 * 1024 * 1024, NCCL_BYTES = 512 * 1024 * 1024 };

/* ---- shapes ---- */

/* docs/explanation/backend.md has this list too. */
static skv_status fits(const skv_backend *be, const skv_backend_shape *shape, skv_error *err)
{
    const skv_backend_limits *limits = shape->limits;
    const size_t least = shape->least_head_dim > 0 ? shape->least_head_dim : limits->head_dim;
    (void)be;
    SKV_REQUIRE(shape->weights != SKV_WEIGHT_QUANT_F32, err, SKV_UNSUPPORTED,
                "device cuda: codes meet rows of bf16 there, none of f32");
    for (size_t i = 0; i < 2; i++) {
        const size_t head_dim = i ? limits->head_dim : least;
        const bool any =
            shape->kv == SKV_KV_TYPE_F32 && head_dim % 4 == 0 && head_dim <= SKV_CUDA_HEAD_DIM_MAX;
        SKV_REQUIRE(any || skv_cuda_has_heads_of(head_dim), err, SKV_UNSUPPORTED,
                    "device cuda: attention heads of %zu, expected 16, 32, 64, 80, 96, 128 or 256",
                    head_dim);
    }
    return SKV_OK;
}

static skv_bytes available(const skv_backend *base)
{
    const skv_cuda_backend *be = (const skv_cuda_backend *)base;
    size_t all, left;
    skv_cuda_memory(&be->device, &all, &left);
    return (skv_bytes){.device = left, .host = skv_memory_available()};
}

/* ---- working memory ---- */

/* What there is of each. */
typedef struct space {
    size_t rows, operand, unpacked, product, blocks, part_o, part_ml, norms, moving, wishes,
        changed;
} space;

/* Of a product's results: all rows of a group of matrices, or a row of logits. Queries, keys and
 * values after a joined norm need two halves. */
static space space_for(const skv_backend_limits *l)
{
    const size_t heads = l->max_heads * l->head_dim, widest = skv_max_size(l->max_K, heads);
    space r = {.rows = skv_max_size(l->max_rows, 1)};
    r.operand = skv_max_size(r.rows, 2) * skv_round_up(widest, 32); /* a row of f32 is two */
    const size_t piece = l->max_experts > 0 ? 64 : 8;               /* rows of a matrix, at least */
    if (l->unpacks) r.unpacked = skv_max_size(UNPACKED, piece * skv_round_up(widest, 32));
    r.product = skv_max_size(r.rows * 4 * skv_round_up(widest, 8), skv_round_up(l->vocab, 8));
    if (l->ranks.meet) r.product = skv_max_size(r.product, l->ranks.n * skv_round_up(widest, 8));
    r.blocks = r.rows + skv_ceil_div(r.rows * l->max_group, 64);
    r.part_o = SKV_CUDA_PART_PAIRS * l->head_dim;
    r.part_ml = SKV_CUDA_PART_PAIRS * 2;
    r.norms = r.rows * l->max_heads;
    r.moving = skv_cuda_moving_bytes(l->max_kv_rows);
    r.wishes = skv_cuda_wishes_bytes(l->vocab);
    r.changed = SKV_CUDA_PICKS * l->vocab;
    return r;
}

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (base) be->field = (void *)(base + used);                                               \
        used += skv_round_up((count) * sizeof *be->field, ALIGNMENT);                              \
    } while (0)

/* Both lay out from `base` (NULL: only count) and return bytes. */
static size_t lay_out_device(skv_cuda_backend *be, const space *r, const skv_backend_limits *limits,
                             unsigned char *base)
{
    size_t used = skv_cuda_lay_out_routes(&be->routes, limits, base);
    TAKE(operand, r->operand);
    TAKE(operand_scales, r->rows);
    TAKE(unpacked, r->unpacked);
    TAKE(product, r->product);
    TAKE(list, r->rows);
    TAKE(blocks, r->blocks);
    TAKE(singles, r->rows);
    TAKE(part_o, r->part_o);
    TAKE(part_ml, r->part_ml);
    TAKE(vote_norms, r->norms);
    TAKE(moving, r->moving);
    TAKE(wishes, r->wishes);
    TAKE(changed, r->changed);
    return used;
}

static size_t lay_out_host(skv_cuda_backend *be, const space *r, unsigned char *base)
{
    size_t used = 0;
    TAKE(host_blocks, r->blocks);
    TAKE(host_moving, r->moving);
    TAKE(host_list, r->rows);
    return used;
}
#undef TAKE

static skv_bytes reserve_bytes(const skv_backend *base, const skv_backend_limits *limits)
{
    const space r = space_for(limits);
    skv_cuda_backend counted;
    const skv_cuda_backend *be = (const skv_cuda_backend *)base;
    skv_bytes sum = {.device = lay_out_device(&counted, &r, limits, NULL),
                     .host = lay_out_host(&counted, &r, NULL)};
    if (be->nccl.library) sum.device += NCCL_BYTES;
    sum.host += (size_t)SKV_CUDA_PIECES * SKV_CUDA_PIECE_BYTES + r.wishes;
    return skv_bytes_add(sum, skv_cuda_graphs_bytes());
}

static void release_workspace(skv_cuda_backend *be)
{
    skv_cuda_graphs_close(&be->device);
    skv_cuda_upload_close(&be->upload);
    skv_cuda_sums_close(be);
    skv_cuda_delete(&be->device, be->work);
    skv_unmap(be->host_work, be->host_work_bytes);
    be->work = be->host_work = NULL;
    skv_cuda_host_delete(&be->device, be->host_wishes);
    be->host_wishes = NULL;
}

/* host_blocks has room for more. */
static void list_singles(skv_cuda_backend *be, size_t n)
{
    be->n_singles = n;
    for (size_t i = 0; i < n; i++) be->host_blocks[i] = (skv_cuda_block){.item = (uint32_t)i};
    skv_cuda_put(&be->device, be->singles, be->host_blocks, n * sizeof *be->singles);
}

static skv_status take_workspace(skv_cuda_backend *be, skv_error *err)
{
    void *wishes = NULL;
    const space r = space_for(&be->limits);
    SKV_TRY(skv_cuda_new(&be->device, lay_out_device(be, &r, &be->limits, NULL), &be->work, err));
    be->host_work_bytes = lay_out_host(be, &r, NULL);
    be->host_work = skv_map_zero(be->host_work_bytes);
    SKV_REQUIRE(be->host_work, err, SKV_MEMORY, "workspace: no memory for %zu bytes",
                be->host_work_bytes);
    (void)lay_out_device(be, &r, &be->limits, be->work);
    (void)lay_out_host(be, &r, be->host_work);
    be->n_operand = r.operand;
    be->n_unpacked = r.unpacked;
    be->n_product = r.product;
    be->n_moving = r.moving;
    list_singles(be, r.rows);
    SKV_TRY(skv_cuda_graphs_open(&be->device, err));
    SKV_TRY(skv_cuda_upload_open(&be->upload, &be->device, err));
    SKV_TRY(skv_cuda_sums_open(be, err));
    SKV_TRY(skv_cuda_host_new(&be->device, r.wishes, &wishes, err));
    be->host_wishes = wishes;
    be->n_wishes = 0;
    return SKV_OK;
}

static skv_status reserve(skv_backend *base, const skv_backend_limits *limits, skv_error *err)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    release_workspace(be);
    be->limits = *limits;
    be->blocks_of = (skv_cuda_blocks){.step = NULL};
    return take_workspace(be, err);
}

/* ---- life ---- */

static void cuda_free(skv_backend *base)
{
    if (!base) return;
    skv_cuda_backend *be = skv_cuda_of(base);
    release_workspace(be);
    skv_cuda_device_close(&be->device);
    skv_cuda_nccl_close(&be->nccl);
    skv_free(be);
}

static skv_status open_sums(skv_cuda_backend *be, const skv_backend_options *options,
                            skv_error *err)
{
    if (!options->several || options->sums == SKV_SUMS_COPIES) return SKV_OK;
    const skv_status status = skv_cuda_nccl_open(&be->nccl, err);
    be->needs_nccl = options->sums == SKV_SUMS_NCCL;
    return be->needs_nccl ? status : SKV_OK;
}

static skv_status open_device(skv_cuda_backend *be, const skv_backend_options *options,
                              skv_error *err)
{
    const void *image = skv_cuda_image();
    SKV_REQUIRE(image, err, SKV_UNSUPPORTED, "%s", SKV_CUDA_NO_KERNELS);
    SKV_TRY(skv_cuda_device_open(&be->device, options->ordinal, image, err));
    skv_kernels kernels;
    skv_kernels_init(&kernels, options->level, skv_cpu_verified());
    be->round_int4 = kernels.round_int4;
    be->base.capability = be->device.capability;
    return open_sums(be, options, err);
}

skv_status skv_backend_cuda_create(const skv_backend_options *options, skv_backend **out,
                                   skv_error *err)
{
    skv_cuda_backend *be = skv_alloc_zero(1, sizeof *be);
    SKV_REQUIRE(be, err, SKV_MEMORY, "cuda: out of memory");
    be->pool = options->threads;
    be->activations = options->f32 ? SKV_CUDA_F32 : SKV_CUDA_BF16;
    be->base = (skv_backend){.name = "cuda",
                             .level = "cuda",
                             .activations = options->f32 ? "f32" : "bf16",
                             .promises = SKV_CUDA_PROMISES,
                             .keeps_embeddings = true,
                             .free = cuda_free,
                             .fits = fits,
                             .available = available,
                             .reserve = reserve,
                             .reserve_bytes = reserve_bytes};
    skv_cuda_fill_areas(&be->base);
    skv_cuda_fill_pages(&be->base);
    skv_cuda_fill_moves(&be->base);
    skv_cuda_fill_rows(&be->base);
    skv_cuda_fill_linear(&be->base);
    skv_cuda_fill_steps(&be->base);
    skv_cuda_fill_attention(&be->base);
    skv_cuda_fill_experts(&be->base);
    skv_cuda_fill_states(&be->base);
    skv_cuda_fill_picks(&be->base);
    skv_cuda_fill_sums(&be->base);
    const skv_status status = open_device(be, options, err);
    if (status != SKV_OK) {
        cuda_free(&be->base);
        return status;
    }
    *out = &be->base;
    return SKV_OK;
}

static void describe_several(char *found, size_t room, const char *name, int n)
{
    char sums[64];
    skv_cuda_nccl_describe(sums, sizeof sums);
    (void)snprintf(found, room, "%s, one of %d GPUs, which add up %s", name, n, sums);
}

bool skv_cuda_find(char *found, size_t room, skv_bytes *memory, skv_bytes *available)
{
    skv_cuda_device device;
    skv_error err = {.text = SKV_CUDA_NO_KERNELS};
    const void *image = skv_cuda_image();
    int n = 0;
    if (!image || skv_cuda_device_open(&device, 0, image, &err) != SKV_OK) {
        (void)snprintf(found, room, "%s", err.text);
        return false;
    }
    char name[96] = "GPU 0";
    (void)device.api.device_name(name, (int)sizeof name, 0);
    (void)snprintf(found, room, "%s", name);
    if (device.api.device_count(&n) == 0 && n > 1) describe_several(found, room, name, n);
    skv_cuda_memory(&device, &memory->device, &available->device);
    skv_cuda_device_close(&device);
    return true;
}
