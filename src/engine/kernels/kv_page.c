/* Sizes of a KV page and its 8-bit numbers, for every level of kernels. */
#include "kernels/kv_page.h"

size_t skv_kv_page_bytes(skv_kv_type type, size_t head_dim)
{
    size_t scales = skv_kv_has_scales(type) ? 2 * SKV_PAGE_ROWS : 0;
    return 2 * SKV_PAGE_ROWS * head_dim * skv_kv_size(type) + scales;
}

uint8_t skv_scale_encode(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    if (!(x > 0.0f)) return 0;
    /* Rounding up: any bit below the three that stay carries into them. */
    uint32_t up = (v.u + 0xfffffu) >> 20;
    uint32_t zero = (127u - SKV_SCALE_BIAS) << 3;
    if (up <= zero) return 1;
    return up - zero > 255 ? 255 : (uint8_t)(up - zero);
}

uint8_t skv_fp8_encode(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    uint32_t sign = v.u >> 24 & 0x80u;
    v.u &= 0x7fffffffu;
    if (v.u > 0x7f800000u) return 0x7f;
    if (v.f >= (float)SKV_FP8_MAX) return (uint8_t)(sign | 0x7eu);
    if (v.f < 0x1p-6f) {
        /* Denormals are multiples of 2^-9: the sum with 2^14 rounds to just that. */
        v.f += 0x1p14f;
        return (uint8_t)(sign | (v.u - 0x46800000u));
    }
    uint32_t nearest = (v.u + 0x7ffffu + (v.u >> 20 & 1u)) >> 20;
    return (uint8_t)(sign | (nearest - (120u << 3)));
}

float skv_fp8_decode(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu;
    union {
        uint32_t u;
        float f;
    } v = {.u = (magnitude << 20) + (120u << 23)};
    if (magnitude == 0x7fu) v.u = 0x7fc00000u;
    if (magnitude < 8) v.f = (float)magnitude * 0x1p-9f;
    return code & 0x80u ? -v.f : v.f;
}
