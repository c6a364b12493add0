#include "backend/cuda/cuda_blas.h"

#include "backend/cuda/cuda_library.h"
#include "base/mem.h"

enum { WORKSPACE_BYTES = 32 * 1024 * 1024 };

struct skv_cuda_plan {
    skv_cuda_product_shape shape;
    skv_blas_desc desc;
    skv_blas_layout x, w, y;
    skv_blas_algorithm algorithm;
    skv_cuda_plan *next;
};

static skv_status open_library(skv_cuda_blas *blas, skv_error *err)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    blas->library = skv_cuda_library_open(names, sizeof names / sizeof *names);
    SKV_REQUIRE(blas->library, err, SKV_UNSUPPORTED,
                "libcublasLt.so.13: not found, nor libcublasLt.so.12: cuBLAS is not installed");
#define X(member, name, arguments)                                                                 \
    SKV_TRY(skv_cuda_library_find(blas->library, "libcublasLt", name, "version 12 or 13 has it",   \
                                  &blas->member, err));
    SKV_BLAS_FUNCTIONS(X)
#undef X
    SKV_REQUIRE(blas->create(&blas->handle) == 0, err, SKV_IO, "cublasLtCreate: failed");
    return skv_cuda_check(blas->driver, blas->driver->memory_new(&blas->workspace, WORKSPACE_BYTES),
                          "the workspace of products", err);
}

skv_status skv_cuda_blas_open(skv_cuda_blas *blas, const skv_cuda_api *driver, skv_error *err)
{
    *blas = (skv_cuda_blas){.driver = driver};
    const skv_status status = open_library(blas, err);
    if (status != SKV_OK) skv_cuda_blas_close(blas);
    return status;
}

static void free_plan(const skv_cuda_blas *blas, skv_cuda_plan *plan)
{
    if (plan->y) (void)blas->layout_destroy(plan->y);
    if (plan->w) (void)blas->layout_destroy(plan->w);
    if (plan->x) (void)blas->layout_destroy(plan->x);
    if (plan->desc) (void)blas->desc_destroy(plan->desc);
    skv_free(plan);
}

void skv_cuda_blas_close(skv_cuda_blas *blas)
{
    while (blas->plans) {
        skv_cuda_plan *plan = blas->plans;
        blas->plans = plan->next;
        free_plan(blas, plan);
    }
    if (blas->workspace) (void)blas->driver->memory_free(blas->workspace);
    if (blas->handle) (void)blas->destroy(blas->handle);
    skv_cuda_library_close(blas->library);
    *blas = (skv_cuda_blas){.driver = blas->driver};
}

/* ---- products ---- */

static bool same_shape(const skv_cuda_product_shape *a, const skv_cuda_product_shape *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->ld_x == b->ld_x &&
           a->ld_w == b->ld_w && a->ld_y == b->ld_y && a->type == b->type &&
           a->y_is_f32 == b->y_is_f32 && a->add == b->add;
}

/* cuBLASLt's matrices have columns where ours have rows: y^T [N, M] = w x^T, and w is transposed.
 */
static int describe(const skv_cuda_blas *blas, skv_cuda_plan *plan)
{
    const skv_cuda_product_shape *s = &plan->shape;
    const int transposed = SKV_BLAS_TRANSPOSED, y_type = s->y_is_f32 ? SKV_BLAS_F32 : SKV_BLAS_BF16;
    int bad = blas->desc_create(&plan->desc, SKV_BLAS_COMPUTE_F32, SKV_BLAS_F32);
    if (bad) return bad;
    bad = blas->desc_set(plan->desc, SKV_BLAS_DESC_TRANS_A, &transposed, sizeof transposed);
    for (int i = 0; i < 2 && !bad && s->type == SKV_BLAS_E4M3; i++) {
        const int32_t mode = SKV_BLAS_SCALE_EACH;
        bad = blas->desc_set(plan->desc, SKV_BLAS_DESC_SCALE_MODE + i, &mode, sizeof mode);
    }
    bad = bad ? bad : blas->layout_create(&plan->w, s->type, s->K, s->N, s->ld_w);
    bad = bad ? bad : blas->layout_create(&plan->x, s->type, s->K, s->M, s->ld_x);
    return bad ? bad : blas->layout_create(&plan->y, y_type, s->N, s->M, s->ld_y);
}

static int choose(const skv_cuda_blas *blas, skv_cuda_plan *plan)
{
    const size_t workspace = WORKSPACE_BYTES;
    const uint32_t alignment = 16;
    skv_blas_preference preference = NULL;
    skv_blas_found found;
    int n_found = 0, bad = blas->preference_create(&preference);
    if (bad) return bad;
    bad = blas->preference_set(preference, SKV_BLAS_PREFERENCE_WORKSPACE, &workspace,
                               sizeof workspace);
    for (int i = 0; i < 4 && !bad; i++) {
        bad = blas->preference_set(preference, SKV_BLAS_PREFERENCE_ALIGNMENT + i, &alignment,
                                   sizeof alignment);
    }
    if (!bad) {
        bad = blas->heuristic(blas->handle, plan->desc, plan->w, plan->x, plan->y, plan->y,
                              preference, 1, &found, &n_found);
    }
    (void)blas->preference_destroy(preference);
    if (bad || n_found == 0) return bad ? bad : SKV_BLAS_NOT_SUPPORTED;
    plan->algorithm = found.algorithm;
    return 0;
}

static skv_status find_plan(skv_cuda_blas *blas, const skv_cuda_product_shape *shape,
                            const skv_cuda_plan **out, skv_error *err)
{
    for (skv_cuda_plan **at = &blas->plans; *at; at = &(*at)->next) {
        skv_cuda_plan *found = *at;
        if (!same_shape(&found->shape, shape)) continue;
        *at = found->next;
        found->next = blas->plans;
        *out = blas->plans = found;
        return SKV_OK;
    }
    skv_cuda_plan *plan = skv_alloc_zero(1, sizeof *plan);
    SKV_REQUIRE(plan, err, SKV_MEMORY, "a product: out of memory");
    plan->shape = *shape;
    int bad = describe(blas, plan);
    if (!bad) bad = choose(blas, plan);
    if (bad) {
        free_plan(blas, plan);
        return skv_fail(err, SKV_UNSUPPORTED, "a product of %u x %u x %u: cuBLASLt refuses it (%d)",
                        shape->M, shape->N, shape->K, bad);
    }
    plan->next = blas->plans;
    *out = blas->plans = plan;
    return SKV_OK;
}

skv_status skv_cuda_blas_prepare(skv_cuda_blas *blas, const skv_cuda_product_shape *shape,
                                 skv_error *err)
{
    const skv_cuda_plan *plan;
    return find_plan(blas, shape, &plan, err);
}

/* The scales of w, which is A, and of x. */
static int set_scales(const skv_cuda_blas *blas, const skv_cuda_plan *plan,
                      const skv_cuda_operands *o)
{
    const float *const scales[] = {o->w_scales, o->x_scales};
    int bad = 0;
    for (int i = 0; i < 2 && !bad && plan->shape.type == SKV_BLAS_E4M3; i++) {
        bad = blas->desc_set(plan->desc, SKV_BLAS_DESC_SCALE + i, &scales[i], sizeof scales[i]);
    }
    return bad;
}

skv_status skv_cuda_multiply(skv_cuda_blas *blas, skv_cuda_product_shape shape,
                             const skv_cuda_operands *operands, skv_cu_stream stream,
                             skv_error *err)
{
    const float one = 1, beta = shape.add ? 1 : 0;
    const skv_cuda_plan *p = NULL;
    void *y = operands->y;
    SKV_TRY(find_plan(blas, &shape, &p, err));
    int bad = set_scales(blas, p, operands);
    if (!bad) {
        bad = blas->multiply(blas->handle, p->desc, &one, operands->w, p->w, operands->x, p->x,
                             &beta, y, p->y, y, p->y, &p->algorithm,
                             (void *)(uintptr_t)blas->workspace, WORKSPACE_BYTES, stream);
    }
    SKV_REQUIRE(bad == 0, err, SKV_IO, "a product of %u x %u x %u: cuBLASLt failed (%d)", shape.M,
                shape.N, shape.K, bad);
    return SKV_OK;
}
