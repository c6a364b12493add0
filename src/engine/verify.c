/*
 * The comparison of a product with integers: see verify.h.
 *
 * Operands are integers times 1 or 2, the factor of their group, and each group holds one +-127
 * times that factor. So every int8 scale is 1 or 2, every code and every bfloat16 number is exact,
 * and all sums stay below 2^24: a right product has no rounding at all.
 */
#include "verify.h"

#include <stdint.h>

#include "base/mem.h"

enum {
    NARROW_K = 45, /* groups of SKV_I8_GROUP_NARROW and a tail of 13 */
    WIDE_K = 523,  /* groups of SKV_I8_GROUP and a tail of 11 */
    PEAKS = 11     /* the +-127 of a group is one of this many first elements */
};

typedef struct exact_check {
    const skv_matmul *mm;
    float *x, *w;         /* [mr][WIDE_K], [nr][WIDE_K], rows K apart */
    float *c;             /* [mr][nr] */
    void *block, *panels; /* packed */
} exact_check;

static float operand(uint32_t row, uint32_t k, uint32_t group)
{
    uint32_t h = row * 0x9e3779b1u + k * 0x85ebca6bu + 1;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h ^= h >> 13;
    int value = (int)(h % 15) - 7;
    if (k % group == row * 5 % PEAKS) value = h & 1u ? 127 : -127;
    return (float)(value * (int)(1 + (row + k / group) % 2));
}

/* rows [n, K] */
static void fill(float *rows, size_t first, size_t n, size_t K)
{
    for (size_t i = 0; i < n * K; i++) {
        rows[i] = operand((uint32_t)(first + i / K), (uint32_t)(i % K), (uint32_t)skv_i8_group(K));
    }
}

static int dot(const float *x, const float *w, size_t K)
{
    int sum = 0;
    for (size_t k = 0; k < K; k++) sum += (int)x[k] * (int)w[k];
    return sum;
}

/* m rows by nr - 1 columns; the last column of the panel is zero. */
static bool is_exact(const exact_check *t, size_t m, size_t K)
{
    const skv_matmul *mm = t->mm;
    const size_t nr = mm->nr, split = K > SKV_I8_GROUP ? SKV_I8_GROUP : K;
    mm->pack_x(t->block, t->x, K, m, K);
    for (size_t i = 0; i < m * nr; i++) t->c[i] = 1e33f;
    mm->tile(t->c, nr, t->block, t->panels, m, K, 0, split, false);
    if (split < K) mm->tile(t->c, nr, t->block, t->panels, m, K, split, K, true);
    for (size_t i = 0; i < m * nr; i++) {
        const size_t row = i / nr, column = i % nr;
        int sum = column + 1 < nr ? dot(t->x + row * K, t->w + column * K, K) : 0;
        if (t->c[i] != (float)sum) return false;
    }
    return true;
}

static bool all_exact(const exact_check *t)
{
    const size_t lengths[] = {NARROW_K, WIDE_K};
    const skv_matmul *mm = t->mm;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const size_t K = lengths[i];
        fill(t->x, 0, mm->mr, K);
        fill(t->w, mm->mr, mm->nr, K);
        mm->pack_w(t->panels, t->w, K, mm->nr - 1, K);
        for (size_t m = 1; m <= mm->mr; m++) {
            if (!is_exact(t, m, K)) return false;
        }
    }
    return true;
}

bool skv_matmul_is_exact(const skv_matmul *mm)
{
    exact_check t = {
        .mm = mm,
        .x = skv_alloc(mm->mr, WIDE_K * sizeof *t.x),
        .w = skv_alloc(mm->nr, WIDE_K * sizeof *t.w),
        .c = skv_alloc(mm->mr, mm->nr * sizeof *t.c),
        .block = skv_alloc_aligned(1, mm->x_bytes(mm->mr, WIDE_K)),
        .panels = skv_alloc_aligned(1, mm->w_bytes(WIDE_K)),
    };
    bool exact = t.x && t.w && t.c && t.block && t.panels && all_exact(&t);
    skv_free(t.x);
    skv_free(t.w);
    skv_free(t.c);
    skv_free(t.block);
    skv_free(t.panels);
    return exact;
}

unsigned skv_kernels_verify(unsigned features)
{
    const unsigned unseen = features & (SKV_CPU_NEON_I8MM | SKV_CPU_NEON_BF16);
    if (!unseen) return features;
    skv_kernels k;
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, features);
    if ((unseen & SKV_CPU_NEON_I8MM) && !skv_matmul_is_exact(&k.i8))
        features &= ~(unsigned)SKV_CPU_NEON_I8MM;
    if ((unseen & SKV_CPU_NEON_BF16) && !skv_matmul_is_exact(&k.bf16)) {
        features &= ~(unsigned)SKV_CPU_NEON_BF16;
    }
    return features;
}
