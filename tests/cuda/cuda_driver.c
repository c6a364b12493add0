/*
 * The kernels, and products by cuBLASLt, on the device that libcuda.so.1 drives, against plain C in
 * double precision: on a GPU, or in the suite on fake_driver.c and fake_blas.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "cuda_case.h"
#include "device_driver.h"

enum { CASES = 24 };

static double *product_in_double(cuda_case *c, const cuda_rows *x, const cuda_rows *w,
                                 const float *add)
{
    double *want = cuda_host(c, x->n_rows * w->n_rows * sizeof *want);
    for (size_t i = 0; i < x->n_rows * w->n_rows; i++) {
        const float *a = x->host + i / w->n_rows * x->n, *b = w->host + i % w->n_rows * w->n;
        want[i] = add ? (double)add[i] : 0;
        for (size_t k = 0; k < x->n; k++) want[i] += (double)a[k] * (double)b[k];
    }
    return want;
}

/* Rows of w follow each other; those of x and y are apart. */
static void check_product(cuda_case *c, skv_cuda_blas *blas)
{
    static const uint32_t rows[] = {1, 2, 17, 64};
    const bool f32 = cuda_one_in(c, 2), add = f32 && cuda_one_in(c, 2);
    skv_cuda_product_shape s = {.M = rows[cuda_below(c, 4)], .y_is_f32 = f32, .add = add};
    s.N = 8 * (1 + (uint32_t)cuda_below(c, 20));
    s.K = 8 * (1 + (uint32_t)cuda_below(c, 20));
    const cuda_rows x = cuda_random_rows(c, SKV_CUDA_BF16, true, s.M, s.K, 1);
    const cuda_rows y = cuda_random_rows(c, f32 ? SKV_CUDA_F32 : SKV_CUDA_BF16, true, s.M, s.N, 1);
    cuda_rows w = cuda_random_rows(c, SKV_CUDA_BF16, true, s.N, s.K, 1);
    while (w.at.ld != s.K) w = cuda_random_rows(c, SKV_CUDA_BF16, true, s.N, s.K, 1);
    const double *want = product_in_double(c, &x, &w, add ? y.host : NULL);
    s.ld_x = x.at.ld;
    s.ld_y = y.at.ld;
    skv_error err = {.text = ""};
    const skv_status status =
        skv_cuda_multiply(blas, s, y.at.at, x.at.at, w.at.at, device_stream(), &err);
    cuda_none(c, err.text, status != SKV_OK);
    cuda_near(c, cuda_fetch_rows(c, &y), want, s.M * s.N, f32 ? 1e-5 : 4e-3);
}

static void check_products(cuda_case *c)
{
    skv_cuda_blas blas;
    skv_error err;
    c->what = "product";
    if (skv_cuda_blas_open(&blas, device_api(), &err) != SKV_OK) {
        cuda_none(c, err.text, 1);
        return;
    }
    for (int i = 0; i < CASES; i++) {
        check_product(c, &blas);
        cuda_case_end(c);
    }
    skv_cuda_blas_close(&blas);
}

/* Rows of both kinds as the host has written them; activations are rounded to bf16. */
static void check_areas(cuda_case *c, skv_backend *be)
{
    enum { ROWS = 3, COLUMNS = 21, LD = 24 };
    const skv_area_spec specs[] = {{SKV_AREA_F32, ROWS, LD + 1, true, true},
                                   {SKV_AREA_ACTIVATIONS, ROWS, LD + 1, false, true}};
    skv_area *areas[2];
    skv_error err = {.text = ""};
    cuda_none(c, err.text, be->areas_create(be, specs, 2, areas, &err) != SKV_OK);
    for (size_t i = 0; i < 2; i++) {
        const skv_rows rows = {areas[i], 2, LD};
        const float *x = cuda_normals(c, ROWS * COLUMNS, 1);
        double *want = cuda_host(c, ROWS * COLUMNS * sizeof *want);
        for (size_t k = 0; k < ROWS * COLUMNS; k++) want[k] = (double)x[k];
        const skv_mapped to = be->map(be, rows, ROWS, COLUMNS, SKV_MAP_WRITE);
        memcpy(to.at, x, ROWS * COLUMNS * sizeof *x);
        be->unmap(be, to);
        const skv_mapped from = be->map(be, rows, ROWS, COLUMNS, SKV_MAP_READ);
        cuda_near(c, from.at, want, ROWS * COLUMNS, i ? 4e-3 : 0);
        be->unmap(be, from);
    }
    be->areas_free(be, areas, 2);
}

/* Pages as they were written, copied and read. */
static void check_pages(cuda_case *c, skv_backend *be)
{
    enum { PAGE = 192, PAGES = 5 };
    static const uint32_t written[] = {3, 1}, copies[] = {0, 4}, all[] = {4, 0, 2};
    unsigned char bytes[2 * PAGE], got[3 * PAGE], zeros[PAGE] = {0};
    skv_page_pool *pool = NULL;
    skv_error err = {.text = ""};
    skv_status status;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)cuda_below(c, 256);
    cuda_none(c, err.text, be->pool_create(be, PAGE, PAGES, &pool, &err) != SKV_OK);
    be->pages_write(be, pool, written, 2, bytes);
    be->pages_copy(be, pool, copies, written, 2);
    const skv_ticket ticket = be->pages_read(be, pool, all, 3, got);
    while (!be->pages_done(be, ticket, true, &status)) {}
    cuda_none(c, "a page is another", memcmp(got, bytes + PAGE, PAGE) != 0);
    cuda_none(c, "a page is another", memcmp(got + PAGE, bytes, PAGE) != 0);
    cuda_none(c, "a new page is not zeros", memcmp(got + 2 * PAGE, zeros, PAGE) != 0);
    const void *mapped = be->page_map(be, pool, 1);
    cuda_none(c, "a page is another", memcmp(mapped, bytes + PAGE, PAGE) != 0);
    be->page_unmap(be, mapped);
    be->pool_free(be, pool);
}

/* A table as the device has it: what tracks have lost, then pages by bundle. */
static void check_tables(cuda_case *c, skv_backend *be)
{
    static const size_t track0[] = {0, 2, 3}, dropped[] = {7, 9};
    static const skv_track_spec tracks[] = {{0, 0, 32}, {1, 0, 32}, {1, 64, 64}};
    static const uint32_t pages[] = {11, 12}, want[] = {0, 7, 9, 0, 0, 0, 0, 11, 12};
    const skv_slots_spec spec = {.type = SKV_KV_TYPE_BF16,
                                 .n_slots = 2,
                                 .n_bundles = 2,
                                 .track0 = track0,
                                 .tracks = tracks,
                                 .max_pages = 3};
    skv_slots *slots = NULL;
    skv_table *table = NULL;
    skv_error err = {.text = ""};
    uint32_t got[9];
    cuda_none(c, err.text, be->slots_create(be, &spec, &slots, &err) != SKV_OK);
    cuda_none(c, err.text, be->table_create(be, slots, &table, &err) != SKV_OK);
    be->table_write(be, table, 1, 1, pages, 2);
    be->table_write(be, table, 1, 0, NULL, 1);
    be->table_dropped(be, table, 1, dropped, 2);
    skv_cuda_get(&skv_cuda_of(be)->device, got, table->at, sizeof got);
    cuda_none(c, "a table is another", memcmp(got, want, sizeof want) != 0);
    be->table_free(be, table);
    be->slots_free(be, slots);
}

/* A matrix of two parts with a bias, and the host's copy. */
typedef struct plain_matrix {
    const float *w, *bias; /* [N, K], [N]; bias NULL: none */
    size_t K;
} plain_matrix;

static void read_rows(const void *ctx, size_t row0, size_t n, float *out)
{
    const plain_matrix *m = ctx;
    memcpy(out, m->w + row0 * m->K, n * m->K * sizeof *out);
}

static void check_linear(cuda_case *c, skv_cuda_backend *be)
{
    enum { ROWS = 5, N = 24 };
    const size_t K = 1 + cuda_below(c, 60);
    const skv_epilogue epilogue = (skv_epilogue)cuda_below(c, 3);
    const skv_area_kind kind = cuda_one_in(c, 2) ? SKV_AREA_F32 : SKV_AREA_ACTIVATIONS;
    const skv_area_spec specs[] = {{SKV_AREA_F32, ROWS, K, false, true},
                                   {kind, ROWS, N, false, true}};
    const plain_matrix m = {cuda_normals(c, N * K, 1 / sqrt((double)K)),
                            cuda_one_in(c, 2) ? cuda_normals(c, N, 1) : NULL, K};
    const skv_row_source part = {.read = read_rows, .ctx = &m, .n_rows = N, .bias = m.bias};
    const skv_linear_spec spec = {.type = SKV_WEIGHT_BF16, .parts = &part, .n_parts = 1, .K = K};
    const float *x = cuda_normals(c, ROWS * K, 1), *y = cuda_normals(c, ROWS * N, 1);
    double *want = cuda_host(c, ROWS * N * sizeof *want);
    skv_area *areas[2];
    skv_linear *w = NULL;
    skv_error err = {.text = ""};
    cuda_none(c, err.text, be->base.areas_create(&be->base, specs, 2, areas, &err) != SKV_OK);
    cuda_none(c, err.text, be->base.linear_create(&be->base, &spec, &w, &err) != SKV_OK);
    const skv_rows rows_x = {areas[0], 0, K}, rows_y = {areas[1], 0, N};
    skv_mapped to = be->base.map(&be->base, rows_x, ROWS, K, SKV_MAP_WRITE);
    memcpy(to.at, x, ROWS * K * sizeof *x);
    be->base.unmap(&be->base, to);
    to = be->base.map(&be->base, rows_y, ROWS, N, SKV_MAP_WRITE);
    memcpy(to.at, y, ROWS * N * sizeof *y);
    be->base.unmap(&be->base, to);
    for (size_t i = 0; i < ROWS * N; i++) {
        double sum = m.bias ? (double)m.bias[i % N] : 0;
        for (size_t k = 0; k < K; k++) sum += (double)x[i / N * K + k] * (double)m.w[i % N * K + k];
        if (epilogue == SKV_EPILOGUE_RELU2) sum = sum > 0 ? sum * sum : 0;
        want[i] = sum + (epilogue == SKV_EPILOGUE_ADD ? (double)y[i] : 0);
    }
    be->base.linear(
        &be->base,
        &(skv_linear_args){.w = w, .y = rows_y, .x = rows_x, .n_rows = ROWS, .epilogue = epilogue});
    to = be->base.map(&be->base, rows_y, ROWS, N, SKV_MAP_READ);
    cuda_near(c, to.at, want, ROWS * N, 1e-2);
    be->base.unmap(&be->base, to);
    be->base.linear_free(&be->base, w);
    be->base.areas_free(&be->base, areas, 2);
}

static void check_memory(cuda_case *c)
{
    skv_cuda_backend be = {.mappings = NULL};
    skv_error err = {.text = ""};
    void *image = device_image();
    c->what = "memory";
    const skv_status status = skv_cuda_device_open(&be.device, image, &err);
    free(image);
    cuda_none(c, err.text, status != SKV_OK);
    if (status != SKV_OK) return;
    skv_cuda_fill_areas(&be.base);
    skv_cuda_fill_pages(&be.base);
    skv_cuda_fill_rows(&be.base);
    skv_cuda_fill_linear(&be.base);
    check_areas(c, &be.base);
    check_pages(c, &be.base);
    check_tables(c, &be.base);
    be.operand = cuda_device(c, 1 << 16);
    be.product = cuda_device(c, 1 << 16);
    be.zeros = cuda_upload(c, (uint32_t[64]){0}, 64 * sizeof(uint32_t));
    device_put(be.operand, cuda_host(c, 1 << 16), 1 << 16);
    for (int i = 0; i < 6; i++) check_linear(c, &be);
    cuda_none(c, "the device failed", skv_cuda_wait(&be.device, &err) != SKV_OK);
    skv_cuda_device_close(&be.device);
    cuda_case_end(c);
}

int main(void)
{
    static void (*const checks[])(cuda_case *) = {check_cuda_rows,      check_cuda_place,
                                                  check_cuda_attention, check_cuda_votes,
                                                  check_products,       check_memory};
    int n_failed = 0;
    device_open();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        n_failed += cuda_run(checks[i], 500 + i);
    }
    device_close();
    printf("%d failed\n", n_failed);
    return n_failed == 0 ? 0 : 1;
}
