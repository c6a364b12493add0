/*
 * The comparison of a product with integers: see verify.h.
 *
 * Operands are integers times 1 or 2, the factor of their group, and each group holds one +-127
 * times that factor. So every int8 scale is 1 or 2, every code and every bfloat16 number is exact,
 * and all sums stay below 2^24: a right product has no rounding at all.
 */
#include "backend/cpu/verify.h"

#include <stdint.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    NARROW_K = 45, /* groups of SKV_I8_GROUP_NARROW and a tail of 13 */
    WIDE_K = 523,  /* groups of skv_matmul.group, and a tail of 11 */
    PEAKS = 11     /* the +-127 of a group is one of this many first elements */
};

typedef struct exact_check {
    const skv_matmul *mm;
    size_t K;
    int16_t *x_ints, *w_ints; /* [mr, K], [nr, K] */
    float *x, *w;             /* [mr, K], [nr, K]: the same numbers */
    float *c, *expected;      /* [mr, nr] */
    void *block, *panel;      /* packed */
} exact_check;

static int operand(uint32_t row, uint32_t k, uint32_t group)
{
    uint32_t h = row * 0x9e3779b1u + k * 0x85ebca6bu + 1;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h ^= h >> 13;
    int value = (int)(h % 15) - 7;
    if (k % group == row * 5 % PEAKS) value = h & 1u ? 127 : -127;
    return value * (int)(1 + (row + k / group) % 2);
}

/* ints and floats [n, K] */
static void fill(const exact_check *t, int16_t *ints, float *floats, size_t first, size_t n)
{
    const size_t K = t->K;
    const uint32_t group = (uint32_t)skv_matmul_group(t->mm, K);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < K; k++, ints++, floats++) {
            *ints = (int16_t)operand((uint32_t)(first + i), (uint32_t)k, group);
            *floats = (float)*ints;
        }
    }
}

/* The products of mr rows with nr - 1 columns; the last column of the panel is zero. */
static void multiply_ints(const exact_check *t)
{
    const size_t nr = t->mm->nr, K = t->K;
    for (size_t i = 0; i < t->mm->mr; i++) {
        for (size_t j = 0; j < nr; j++) {
            const int16_t *x = t->x_ints + i * K, *w = t->w_ints + j * K;
            int sum = 0;
            for (size_t k = 0; j + 1 < nr && k < K; k++) sum += x[k] * w[k];
            t->expected[i * nr + j] = (float)sum;
        }
    }
}

/* m rows of the product, in two pieces where K is wide. */
static bool rows_are_exact(const exact_check *t, size_t m)
{
    const skv_matmul *mm = t->mm;
    const size_t nr = mm->nr, K = t->K, split = skv_min_size(skv_matmul_group(mm, K), K);
    mm->pack_x(t->block, t->x, K, m, K);
    for (size_t i = 0; i < m * nr; i++) t->c[i] = 1e33f;
    mm->tile(t->c, nr, t->block, t->panel, m, K, 0, split, 0);
    if (split < K) mm->tile(t->c, nr, t->block, t->panel, m, K, split, K, SKV_TILE_ADD);
    for (size_t i = 0; i < m * nr; i++) {
        if (t->c[i] != t->expected[i]) return false;
    }
    return true;
}

static bool all_exact(exact_check *t)
{
    const size_t lengths[] = {NARROW_K, WIDE_K};
    const skv_matmul *mm = t->mm;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        t->K = lengths[i];
        fill(t, t->x_ints, t->x, 0, mm->mr);
        fill(t, t->w_ints, t->w, mm->mr, mm->nr);
        multiply_ints(t);
        mm->pack_w(t->panel, t->w, t->K, mm->nr - 1, t->K);
        for (size_t m = 1; m <= mm->mr; m++) {
            if (!rows_are_exact(t, m)) return false;
        }
    }
    return true;
}

bool skv_matmul_is_exact(const skv_matmul *mm)
{
    exact_check t = {
        .mm = mm,
        .x_ints = skv_alloc(mm->mr, WIDE_K * sizeof *t.x_ints),
        .w_ints = skv_alloc(mm->nr, WIDE_K * sizeof *t.w_ints),
        .x = skv_alloc(mm->mr, WIDE_K * sizeof *t.x),
        .w = skv_alloc(mm->nr, WIDE_K * sizeof *t.w),
        .c = skv_alloc(mm->mr, mm->nr * sizeof *t.c),
        .expected = skv_alloc(mm->mr, mm->nr * sizeof *t.expected),
        .block = skv_alloc_aligned(1, mm->x_bytes(mm->mr, WIDE_K)),
        .panel = skv_alloc_aligned(1, mm->w_bytes(WIDE_K)),
    };
    bool exact = t.x_ints && t.w_ints && t.x && t.w && t.c && t.expected && t.block && t.panel &&
                 all_exact(&t);
    skv_matmul_finish(mm);
    void *const blocks[] = {t.x_ints, t.w_ints, t.x, t.w, t.c, t.expected, t.block, t.panel};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) skv_free(blocks[i]);
    return exact;
}

unsigned skv_cpu_verified(void)
{
    unsigned features = skv_cpu_detect();
    const unsigned of_i8 = features & (SKV_CPU_AMX | SKV_CPU_NEON_I8MM);
    const unsigned of_bf16 = features & (SKV_CPU_AMX | SKV_CPU_NEON_BF16);
    if (!(of_i8 | of_bf16)) return features;
    skv_kernels k;
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, features);
    if (of_i8 && !skv_matmul_is_exact(&k.i8)) features &= ~of_i8;
    if (of_bf16 && !skv_matmul_is_exact(&k.bf16)) features &= ~of_bf16;
    return features;
}
