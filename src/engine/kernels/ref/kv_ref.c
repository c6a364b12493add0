/* Storing and loading one row of a KV page: the specification. */
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "kernels/kv_page.h"

static void store_8bit(unsigned char *codes, unsigned char *scale, skv_kv_type type, const float *x,
                       size_t n)
{
    float amax = 0.0f;
    for (size_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (magnitude > amax) amax = magnitude;
    }
    *scale = skv_row_scale(type, amax);
    float inverse = *scale == 0 ? 0.0f : 1.0f / skv_scale_decode(*scale);
    for (size_t i = 0; i < n; i++) {
        float y = x[i] * inverse;
        if (type == SKV_KV_TYPE_FP8) {
            codes[i] = skv_fp8_encode(y);
        } else {
            /* A NaN has no int8 code and becomes 0. */
            float limit = (float)SKV_INT8_MAX;
            float clamped = y > limit ? limit : y < -limit ? -limit : y;
            codes[i] = (unsigned char)(clamped == clamped ? (int)rintf(clamped) : 0);
        }
    }
}

/* Stores x [n] as row `row` of the K rows (which = 0) or V rows (which = 1). */
static void store_half(unsigned char *page, skv_kv_type type, size_t row, size_t which,
                       const float *x, size_t n)
{
    unsigned char *at = page + skv_page_rows_at(type, n, which) + row * n * skv_kv_size(type);
    if (type == SKV_KV_TYPE_F32) {
        memcpy(at, x, n * sizeof *x);
    } else if (type == SKV_KV_TYPE_BF16) {
        for (size_t i = 0; i < n; i++) {
            uint16_t y = skv_f32_to_bf16(x[i]);
            memcpy(at + 2 * i, &y, sizeof y);
        }
    } else {
        store_8bit(at, page + skv_page_scales_at(type, n, which) + row, type, x, n);
    }
}

static void load_half(const unsigned char *page, skv_kv_type type, size_t row, size_t which,
                      float *y, size_t n)
{
    const unsigned char *at = page + skv_page_rows_at(type, n, which) + row * n * skv_kv_size(type);
    if (type == SKV_KV_TYPE_F32) {
        memcpy(y, at, n * sizeof *y);
        return;
    }
    if (type == SKV_KV_TYPE_BF16) {
        for (size_t i = 0; i < n; i++) {
            uint16_t x;
            memcpy(&x, at + 2 * i, sizeof x);
            y[i] = skv_bf16_to_f32(x);
        }
        return;
    }
    float scale = skv_scale_decode(page[skv_page_scales_at(type, n, which) + row]);
    for (size_t i = 0; i < n; i++) {
        float code = type == SKV_KV_TYPE_FP8 ? skv_fp8_decode(at[i]) : (float)(int8_t)at[i];
        y[i] = code * scale;
    }
}

void skv_kv_store_ref(void *page, skv_kv_type type, size_t row, const float *k, const float *v,
                      size_t head_dim)
{
    store_half(page, type, row, 0, k, head_dim);
    store_half(page, type, row, 1, v, head_dim);
}

void skv_kv_load_ref(const void *page, skv_kv_type type, size_t row, float *k, float *v,
                     size_t head_dim)
{
    if (k) load_half(page, type, row, 0, k, head_dim);
    if (v) load_half(page, type, row, 1, v, head_dim);
}
