/* Linear attention by blocks, plainly, in f32 as at every level: the specification. */
#include <math.h>
#include <stddef.h>

#include "kernels/scan.h"

enum { B = SKV_SCAN_BLOCK };

/* sum_d x[d] S[d] for column c of a panel; x is a column of xt. */
static float product(const float *s, const float *xt, size_t key_dim, size_t c)
{
    float sum = 0;
    for (size_t d = 0; d < key_dim; d++) sum = fmaf(xt[d * B], s[d * B + c], sum);
    return sum;
}

static void rows_ref(const skv_scan_block *block, const float *s, float *u, float *out,
                     size_t n_panels)
{
    for (size_t p = 0; p < n_panels; p++, s += block->key_dim * B, u += B * B, out += B * B) {
        for (size_t i = block->n0; block->a && i < block->n; i++) {
            for (size_t c = 0; c < B; c++) {
                float past = product(s, block->kt + i, block->key_dim, c);
                float sum = block->beta[i] * fmaf(-block->decay[i], past, u[i * B + c]);
                for (size_t j = 0; j < i; j++) {
                    sum = fmaf(-block->a[i * B + j], u[j * B + c], sum);
                }
                u[i * B + c] = sum;
            }
        }
        for (size_t i = block->q0; i < block->q1; i++) {
            for (size_t c = 0; c < B; c++) {
                float sum = block->decay[i] * product(s, block->qt + i, block->key_dim, c);
                for (size_t j = 0; j <= i; j++) {
                    sum = fmaf(block->b[i * B + j], u[j * B + c], sum);
                }
                out[i * B + c] = sum;
            }
        }
    }
}

static void fold_ref(float *s, const float *kt, const float *u, const float *weight, float decay,
                     size_t key_dim, size_t n_panels)
{
    for (size_t p = 0; p < n_panels; p++, s += key_dim * B, u += B * B) {
        for (size_t d = 0; d < key_dim; d++) {
            for (size_t c = 0; c < B; c++) {
                float sum = decay * s[d * B + c];
                for (size_t j = 0; j < B; j++) {
                    sum = fmaf(kt[d * B + j], weight[j] * u[j * B + c], sum);
                }
                s[d * B + c] = sum;
            }
        }
    }
}

static void gram_ref(float *g, const float *xt, const float *kt, size_t i0, size_t i1,
                     size_t key_dim)
{
    for (size_t i = i0; i < i1; i++) {
        for (size_t j = 0; j < B; j++) {
            float sum = 0;
            for (size_t d = 0; d < key_dim; d++) sum = fmaf(xt[d * B + i], kt[d * B + j], sum);
            g[i * B + j] = sum;
        }
    }
}

static void conv_ref(float *y, const skv_conv_row *row)
{
    for (size_t c = 0; c < row->n; c++) {
        float sum = row->bias ? row->bias[c] : 0;
        for (size_t j = 0; j < row->n_taps; j++) {
            sum = fmaf(row->w[j * row->ldw + c], row->x[j][c], sum);
        }
        y[c] = row->silu ? sum / (1.0f + expf(-sum)) : sum;
    }
}

const skv_scan_kernels skv_scan_ref = {
    .rows = rows_ref, .fold = fold_ref, .gram = gram_ref, .conv = conv_ref};
