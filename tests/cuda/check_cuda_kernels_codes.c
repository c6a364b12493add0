/* Products with weights as codes, and their unpacking, against plain C in double precision. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/quant.h"
#include "base/size.h"
#include "cuda_case.h"

enum { CASES = 8, K_MAX = 320, FORMS = CUDA_CODED_FORMS };

/* What of the forms is different. */
static const struct form {
    uint32_t kind, group_shift;
    bool fine, has_min, zeros, even, bf16;
} forms[FORMS] = {
    {SKV_CUDA_CODES_4, 5, .even = true},
    {SKV_CUDA_CODES_4, 6, .has_min = true, .zeros = true, .even = true, .bf16 = true},
    {SKV_CUDA_CODES_4, 4, .fine = true, .has_min = true, .even = true},
    {SKV_CUDA_CODES_4, 5, .fine = true}, /* levels in a table */
    {SKV_CUDA_CODES_8, 5, .bf16 = true},
    {SKV_CUDA_CODES_8, 4, .fine = true},
    {SKV_CUDA_CODES_E4M3, 5, .fine = false},
};

static uint16_t bits_of(const struct form *f, float *x)
{
    const uint16_t bits = f->bf16 ? skv_bf16_of_float(*x) : skv_f16_of_float(*x);
    *x = f->bf16 ? skv_float_of_bf16(bits) : skv_float_of_f16(bits);
    return bits;
}

/* Random scales [n], of which each hundredth is too small for a normal f16. */
static float *random_scales(cuda_case *c, const struct form *f, size_t n, const void **device)
{
    float *x = cuda_host(c, n * sizeof *x);
    uint16_t *bits = cuda_host(c, n * sizeof *bits);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(0.01 + 0.02 * skv_rng_uniform(&c->rng)) * (cuda_one_in(c, 100) ? 1e-4F : 1);
        if (f->kind != SKV_CUDA_CODES_E4M3) bits[i] = bits_of(f, &x[i]);
    }
    const bool wide = f->kind == SKV_CUDA_CODES_E4M3;
    *device = cuda_upload(c, wide ? (void *)x : (void *)bits, n * (wide ? 4 : 2));
    return x;
}

static double value_of(const struct form *f, const int8_t *levels, unsigned code)
{
    if (f->kind == SKV_CUDA_CODES_E4M3) return (double)skv_fp8_decode((uint8_t)code);
    return f->kind == SKV_CUDA_CODES_4 ? levels[code] : (int8_t)code;
}

/* Codes [N, K], as many random bytes, and a code of which w is the value. */
static uint8_t *random_codes(cuda_case *c, const struct form *f, cuda_coded *m)
{
    const size_t row_bytes = f->kind == SKV_CUDA_CODES_4 ? m->K / 2 : m->K;
    uint8_t *codes = cuda_host(c, m->N * row_bytes);
    for (size_t i = 0; i < m->N * row_bytes; i++) {
        codes[i] = (uint8_t)cuda_below(c, 256);
        if (f->kind == SKV_CUDA_CODES_E4M3 && (codes[i] & 0x7f) == 0x7f) codes[i] = 1;
    }
    m->at.row_bytes = (uint32_t)row_bytes;
    m->at.codes = cuda_upload(c, codes, m->N * row_bytes);
    return codes;
}

static cuda_coded random_coded(cuda_case *c, const struct form *f, size_t N, size_t K)
{
    cuda_coded m = {.at = {.kind = f->kind, .bf16 = f->bf16, .zeros = f->zeros, .even = f->even},
                    .N = N,
                    .K = K};
    const uint32_t scale_shift = f->fine ? 8 : f->group_shift;
    const size_t S = skv_ceil_div(K, (size_t)1 << scale_shift), G = K >> f->group_shift;
    int8_t levels[16];
    for (int i = 0; i < 16; i++) levels[i] = (int8_t)(f->even ? i - 8 : i * i - 100);
    memcpy(m.at.levels, levels, sizeof levels);
    const uint8_t *codes = random_codes(c, f, &m);
    const void *d_scales, *d_mins = NULL;
    const float *scales = random_scales(c, f, N * S, &d_scales);
    const float *mins = f->has_min ? random_scales(c, f, N * S, &d_mins) : NULL;
    uint8_t *fine = cuda_host(c, N * G), *fine_min = cuda_host(c, N * G);
    for (size_t i = 0; i < N * G; i++) {
        fine[i] = (uint8_t)(cuda_below(c, 126) - 63);
        fine_min[i] = (uint8_t)cuda_below(c, 200);
    }
    m.at.scales = d_scales;
    m.at.mins = d_mins;
    m.at.n_scales = (uint32_t)S;
    m.at.scale_shift = scale_shift;
    m.at.fine_shift = f->group_shift;
    if (f->fine) m.at.fine = cuda_upload(c, fine, N * G), m.at.n_fine = (uint32_t)G;
    if (f->fine && f->has_min) m.at.fine_min = cuda_upload(c, fine_min, N * G);
    m.w = cuda_host(c, N * K * sizeof *m.w);
    for (size_t i = 0; i < N * K; i++) {
        const size_t k = i % K, s = i / K * S + (k >> scale_shift);
        const size_t g = i / K * G + (k >> f->group_shift);
        const bool nibble = f->kind == SKV_CUDA_CODES_4;
        const unsigned byte = codes[nibble ? i / 2 : i];
        const unsigned code = nibble ? byte >> i % 2 * 4 & 15 : byte;
        double scale = (double)scales[s], min = mins ? (double)mins[s] : 0;
        if (f->fine) scale *= (int8_t)fine[g], min *= -(double)fine_min[g];
        if (f->zeros) min *= scale;
        m.w[i] = scale * value_of(f, levels, code) + min;
    }
    return m;
}

cuda_coded cuda_random_coded(cuda_case *c, size_t N, size_t K)
{
    return random_coded(c, &forms[cuda_below(c, FORMS)], N, K);
}

/* Rounded to bf16, as the kernels multiply it. */
double cuda_coded_value(const cuda_coded *m, size_t i)
{
    return (double)skv_float_of_bf16(skv_bf16_of_float((float)m->w[i]));
}

static void check_unpack(cuda_case *c, const struct form *f)
{
    const size_t K = skv_round_up(1 + cuda_below(c, K_MAX), f->group_shift == 6 ? 64 : 32);
    const cuda_coded m = random_coded(c, f, 1 + cuda_below(c, 5), K);
    uint16_t *y = cuda_device(c, m.N * K * sizeof *y);
    const skv_cuda_unpack_args a = {.y = y, .w = m.at, .K = (uint32_t)K};
    device_launch(SKV_CUDA_skv_unpack_rows,
                  (device_grid){(uint32_t)m.N, 1, 1, SKV_CUDA_UNPACK_SHARED}, &a);
    const uint16_t *got = cuda_download(c, y, m.N * K * sizeof *y);
    size_t n_wrong = 0; /* by more than a rounding of f32 can do at the middle of two */
    for (size_t i = 0; i < m.N * K; i++) {
        const double x = (double)skv_float_of_bf16(got[i]);
        n_wrong +=
            !(fabs(x - m.w[i]) <= fabs(m.w[i]) * 0x1.01p-8 + 1e-12) && !(fabs(x - m.w[i]) <= 1e-6);
    }
    cuda_none(c, "numbers are not those of the codes", n_wrong);
}

static void check_few(cuda_case *c, const struct form *f)
{
    const size_t K = skv_round_up(1 + cuda_below(c, K_MAX), f->group_shift == 6 ? 64 : 32);
    const size_t M = 1 + cuda_below(c, SKV_CUDA_FEW), N = 1 + cuda_below(c, 40);
    const cuda_coded m = random_coded(c, f, N, K);
    const bool add = cuda_one_in(c, 2), biased = cuda_one_in(c, 2);
    const uint32_t type = cuda_one_in(c, 2) ? SKV_CUDA_F32 : SKV_CUDA_BF16;
    const cuda_rows y = cuda_random_rows(c, type, cuda_one_in(c, 2), M, N, 1);
    const float *bias = cuda_normals(c, N, 1), *x = cuda_normals(c, M * K, 1);
    uint16_t *rows = cuda_host(c, M * K * sizeof *rows);
    for (size_t i = 0; i < M * K; i++) rows[i] = skv_bf16_of_float(x[i]);
    const skv_cuda_few_args a = {.y = y.at,
                                 .x = cuda_upload(c, rows, M * K * sizeof *rows),
                                 .bias = biased ? cuda_upload(c, bias, N * sizeof *bias) : NULL,
                                 .w = m.at,
                                 .M = (uint32_t)M,
                                 .N = (uint32_t)N,
                                 .K = (uint32_t)K,
                                 .add = add};
    double *want = cuda_host(c, M * N * sizeof *want);
    for (size_t i = 0; i < M * N; i++) {
        const uint16_t *row = rows + i / N * K;
        double sum = (biased ? (double)bias[i % N] : 0) + (add ? (double)y.host[i] : 0);
        for (size_t k = 0; k < K; k++) {
            sum += (double)skv_float_of_bf16(row[k]) * cuda_coded_value(&m, i % N * K + k);
        }
        want[i] = sum;
    }
    const uint32_t n_blocks = (uint32_t)skv_ceil_div(N, SKV_CUDA_FEW_COLUMNS);
    device_launch(SKV_CUDA_skv_multiply_few, (device_grid){n_blocks, 1, 1, SKV_CUDA_FEW_SHARED},
                  &a);
    cuda_near(c, cuda_fetch_rows(c, &y), want, M * N, type == SKV_CUDA_F32 ? 2e-4 : 4e-3);
}

void check_cuda_codes(cuda_case *c)
{
    for (int i = 0; i < FORMS; i++) {
        c->what = "unpack";
        check_unpack(c, &forms[i]);
        cuda_case_end(c);
        for (int j = 0; j < CASES / 4; j++) {
            c->what = "multiply few";
            check_few(c, &forms[i]);
            cuda_case_end(c);
        }
    }
}
