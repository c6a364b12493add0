/*
 * Attention with AMX: see attention_amx.inc. Packing, softmax and single tokens are those of
 * AVX-512 with BF16 and VNNI, of the tiles of int8 the same sums bit for bit.
 */
#include <assert.h>
#include <immintrin.h>

#include "kernels/attention.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/attention_avx512bf16.h"

/* n is 16 or 32, and constant where this is inlined. */
static inline __attribute__((always_inline)) void whole(const skv_tile_product *p, float *c,
                                                        const int32_t *sums, size_t n)
{
    for (size_t i = 0; i < p->m; i++, c += p->ldc, sums += 32) {
        const vec step = vec_set1(p->steps[i]);
        for (size_t j = 0; j < n; j += LANES) {
            const vec x = vec_mul(_mm512_cvtepi32_ps(_mm512_load_si512(sums + j)), step);
            vec_store(c + j, p->add ? vec_add(x, vec_load(c + j)) : x);
        }
    }
}

#define AMX_WHOLE whole
#define AMX_BELOW_BF16 skv_attention_tiles_avx512bf16
#define AMX_BELOW_I8 skv_attention_tiles_avx512vnni

#include "kernels/x86/attention_amx.inc"

static const skv_attention_tiles narrow = {
    ATTEND_TILES(bf16, 2),
    .few_q = skv_few_q_avx512bf16,
    .few_scores = skv_few_scores_avx512bf16,
    .few_values = skv_few_values_avx512bf16,
};
static const skv_attention_tiles codes = {ATTEND_TILES(i8, 1)};
static const skv_attention_ways ways = {
    .f32 = &skv_attention_tiles_avx512,
    .narrow = &narrow,
    .int8 = &codes,
};

/* A thread keeps the shapes of its tiles from page to page, and gives them up at a task's end. */
static void run(const skv_attention *a, void *scratch)
{
    skv_attention_run(a, &ways, scratch);
    AMX_RELEASE();
}

static void run_part(const skv_attention *a, size_t row0, size_t row1, float *partial,
                     void *scratch)
{
    skv_attention_run_part(a, &ways, row0, row1, partial, scratch);
    AMX_RELEASE();
}

const skv_attention_kernels skv_attention_kernels_amx = {
    .kv_store = skv_kv_store_avx512,
    .kv_load = skv_kv_load_avx512,
    .tokens = skv_attention_tokens_tiles,
    .scratch = skv_attention_scratch_tiles,
    .attention = run,
    .part = run_part,
};
