/*
 * The kernels, and products by cuBLASLt, on the device that libcuda.so.1 drives, against plain C in
 * double precision: on a GPU, or in the suite on fake_driver.c and fake_blas.c. With arguments only
 * the checks that they name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_blas.h"
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
    s.ld_w = w.at.ld;
    s.type = SKV_BLAS_BF16;
    s.ld_y = y.at.ld;
    const skv_cuda_operands operands = {.y = y.at.at, .x = x.at.at, .w = w.at.at};
    skv_error err = {.text = ""};
    const skv_status status = skv_cuda_multiply(blas, s, &operands, device_stream(), &err);
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

typedef struct check {
    const char *name;
    void (*run)(cuda_case *c);
} check;

static bool is_named(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) return true;
    }
    return argc < 2;
}

int main(int argc, char **argv)
{
    static const check checks[] = {
        {"rows", check_cuda_rows},           {"place", check_cuda_place},
        {"attention", check_cuda_attention}, {"votes", check_cuda_votes},
        {"codes", check_cuda_codes},         {"pages", check_cuda_pages},
        {"experts", check_cuda_experts},     {"states", check_cuda_states},
        {"picks", check_cuda_picks},         {"products", check_products}};
    int n_failed = 0, n_run = 0;
    device_open();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (!is_named(checks[i].name, argc, argv)) continue;
        n_failed += cuda_run(checks[i].run, 500 + i);
        n_run++;
    }
    device_close();
    printf("%d results of %d checks are wrong\n", n_failed, n_run);
    return n_failed == 0 && n_run > 0 ? 0 : 1;
}
