/* The product with quantised weights with AVX-512 VNNI: see matmul_q_vnni.inc. */
#include <assert.h>

#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_vec_avx512.h"

enum { STRIP = 12, AHEAD_SINGLE = 0 };

INLINE ints dot4(ints dot, ints w, ints x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

#define WHOLE_BLOCKS 1
#define WIDE_SUMS true

#include "kernels/x86/matmul_q_vnni.inc"

/*
 * Whole blocks of six rows, in strips of 32 columns. The registers hold: integer sums of a
 * group (zmm0 to 11), sums of the groups that share a scale of X (zmm12 to 23), two vectors of
 * values (24, 25), of codes or of scales (26, 27), a mask (28), the table (30) and a code of X
 * (31); with minimums, whose levels are even, these (29, 30). gcc 12 would keep half of the sums in
 * memory. The starts of the integer sums and the scales are made before, since VPMULLD takes the
 * place of a VPDPBUSD. Scales that have minimums are made in the loop, beside the products: apart
 * from them they would take longer than they save.
 */
enum {
    SPAN_GROUPS = SKV_KC512 / SKV_QUANT_GROUP,
    SPAN_PIECES = 16, /* pieces that have one scale of X: of 4 groups, or of narrow products */
    PADDED = 8,
    STRIP_VECS = 2
};

/* The initial integer sums of groups, and their factors. */
typedef struct span_ends {
    int32_t starts[SPAN_GROUPS][PADDED]; /* [MR], -bias times the sums of X */
    float sums[SPAN_GROUPS][PADDED];     /* [MR], the sums of X */
    vec scales[SPAN_GROUPS][STRIP_VECS]; /* of a strip */
    vec ds[SPAN_PIECES][2 * STRIP_VECS]; /* d and dmin of a strip */
} span_ends;

/* The text of the assembly is longer than C99 demands of compilers. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* DO(row, its integer sums, its sums, more). */
#define ROWS(DO, more)                                                                             \
    DO(0, 0, 6, 12, 18, more)                                                                      \
    DO(1, 1, 7, 13, 19, more)                                                                      \
    DO(2, 2, 8, 14, 20, more)                                                                      \
    DO(3, 3, 9, 15, 21, more)                                                                      \
    DO(4, 4, 10, 16, 22, more)                                                                     \
    DO(5, 5, 11, 17, 23, more)
#define LINES(a, b) a "\n\t" b "\n\t"
#define ZERO(i, d0, d1, s0, s1, more)                                                              \
    LINES("vpxord %%zmm" #s0 ", %%zmm" #s0 ", %%zmm" #s0,                                          \
          "vpxord %%zmm" #s1 ", %%zmm" #s1 ", %%zmm" #s1)
#define START(i, d0, d1, s0, s1, more)                                                             \
    LINES("vpbroadcastd 4*" #i "(%[starts]), %%zmm" #d0, "vmovdqa64 %%zmm" #d0 ", %%zmm" #d1)
#define DOT(i, d0, d1, s0, s1, unit)                                                               \
    "vpbroadcastd 72+24*" #unit "+4*" #i "(%[x]), %%zmm31\n\t" LINES(                              \
        "vpdpbusd %%zmm31, %%zmm24, %%zmm" #d0, "vpdpbusd %%zmm31, %%zmm25, %%zmm" #d1)
#define END(i, d0, d1, s0, s1, more)                                                               \
    LINES("vcvtdq2ps %%zmm" #d0 ", %%zmm" #d0, "vcvtdq2ps %%zmm" #d1 ", %%zmm" #d1)                \
    LINES("vfmadd231ps %%zmm" #d0 ", %%zmm26, %%zmm" #s0,                                          \
          "vfmadd231ps %%zmm" #d1 ", %%zmm27, %%zmm" #s1)
#define SCALE(i, d0, d1, s0, s1, more)                                                             \
    "vbroadcastss 4*" #i                                                                           \
    "(%[x_scales]), %%zmm31\n\t" LINES("vfmadd213ps 128*" #i "(%[sum]), %%zmm31, %%zmm" #s0,       \
                                       "vfmadd213ps 128*" #i "+64(%[sum]), %%zmm31, %%zmm" #s1)    \
        LINES("vmovaps %%zmm" #s0 ", 128*" #i "(%[sum])",                                          \
              "vmovaps %%zmm" #s1 ", 128*" #i "+64(%[sum])")
/* Two units, those of the low and of the high nibbles. */
#define UNITS(pair, low, high, LOOK_UP)                                                            \
    LINES("vmovdqu64 256*" #pair "(%[w]), %%zmm26", "vmovdqu64 256*" #pair "+64(%[w]), %%zmm27")   \
    LINES("vpandd %%zmm26, %%zmm28, %%zmm24", "vpandd %%zmm27, %%zmm28, %%zmm25")                  \
    LOOK_UP ROWS(DOT, low) LINES("vpsrlw $4, %%zmm26, %%zmm24", "vpsrlw $4, %%zmm27, %%zmm25")     \
        LINES("vpandd %%zmm24, %%zmm28, %%zmm24", "vpandd %%zmm25, %%zmm28, %%zmm25") LOOK_UP      \
        ROWS(DOT, high)
#define LOOK_UP_TABLE                                                                              \
    LINES("vpshufb %%zmm24, %%zmm30, %%zmm24", "vpshufb %%zmm25, %%zmm30, %%zmm25")
#define SCALES_F32 LINES("vmovaps (%[scales]), %%zmm26", "vmovaps 64(%[scales]), %%zmm27")
#define SCALES_F16 LINES("vcvtph2ps (%[scales]), %%zmm26", "vcvtph2ps 32(%[scales]), %%zmm27")
/* Fine scales times d, and fine minimums times dmin, which are subtracted. */
#define SCALES_FINE                                                                                \
    LINES("vpmovsxbd (%[scales]), %%zmm26", "vpmovsxbd 16(%[scales]), %%zmm27")                    \
    LINES("vpmovzxbd 64(%[scales]), %%zmm29", "vpmovzxbd 80(%[scales]), %%zmm30")                  \
    LINES("vcvtdq2ps %%zmm26, %%zmm26", "vcvtdq2ps %%zmm27, %%zmm27")                              \
    LINES("vcvtdq2ps %%zmm29, %%zmm29", "vcvtdq2ps %%zmm30, %%zmm30")                              \
    LINES("vmulps (%[ds]), %%zmm26, %%zmm26", "vmulps 64(%[ds]), %%zmm27, %%zmm27")                \
    LINES("vmulps 128(%[ds]), %%zmm29, %%zmm29", "vmulps 192(%[ds]), %%zmm30, %%zmm30")
#define END_FINE(i, d0, d1, s0, s1, more)                                                          \
    END(i, d0, d1, s0, s1, more)                                                                   \
    "vbroadcastss 4*" #i "+%c[sums_at](%[starts]), %%zmm31\n\t" LINES(                             \
        "vfnmadd231ps %%zmm31, %%zmm29, %%zmm" #s0, "vfnmadd231ps %%zmm31, %%zmm30, %%zmm" #s1)
#define GROUP(LOOK_UP, SCALES, ENDING, BETWEEN)                                                    \
    ROWS(START, )                                                                                  \
    UNITS(0, 0, 1, LOOK_UP)                                                                        \
    BETWEEN UNITS(1, 2, 3, LOOK_UP) UNITS(2, 4, 5, LOOK_UP) UNITS(3, 6, 7, LOOK_UP) SCALES ROWS(   \
        ENDING, ) LINES("add $32, %[starts]", "add %[scales_step], %[scales]")                     \
        LINES("add $264, %[x]", "add %[step], %[w]")
/* A piece's sums are scaled within the next one's first group: multiplications that wait for
 * sums would keep those that need not wait out of the scheduler. */
#define STRIP_GROUPS(LOOK_UP, SCALES, ENDING)                                                      \
    LINES("vmovdqu64 %[table], %%zmm30", "vmovdqu64 %[mask], %%zmm28")                             \
    ROWS(ZERO, )                                                                                   \
    LINES("mov %[x], %[x_scales]", "1: mov %[n_piece], %[k]")                                      \
    LINES("cmp %[k], %[n]", "cmovb %[n], %[k]")                                                    \
    LINES("sub %[k], %[n]", "add $24, %[x]")                                                       \
    GROUP(LOOK_UP, SCALES, ENDING, ROWS(SCALE, ) ROWS(ZERO, ) "lea -24(%[x]), %[x_scales]\n\t")    \
    LINES("dec %[k]", "jz 3f")                                                                     \
    "2:\n\t" GROUP(LOOK_UP, SCALES, ENDING, "")                                                    \
        LINES("dec %[k]", "jnz 2b") "3: add $256, %[ds]\n\t" LINES("test %[n], %[n]", "jnz 1b")    \
            ROWS(SCALE, )

#define END_WIDE(i, d0, d1, s0, s1, more)                                                          \
    "vbroadcastss 4*" #i "(%[x_scales]), %%zmm31\n\t" LINES("vcvtdq2ps %%zmm" #d0 ", %%zmm" #d0,   \
                                                            "vcvtdq2ps %%zmm" #d1 ", %%zmm" #d1)   \
        LINES("vmulps %%zmm" #d0 ", %%zmm26, %%zmm" #d0,                                           \
              "vmulps %%zmm" #d1 ", %%zmm27, %%zmm" #d1)                                           \
            LINES("vfmadd231ps %%zmm" #d0 ", %%zmm31, %%zmm" #s0,                                  \
                  "vfmadd231ps %%zmm" #d1 ", %%zmm31, %%zmm" #s1)
#define STORE(i, d0, d1, s0, s1, more)                                                             \
    LINES("vmovaps %%zmm" #s0 ", 128*" #i "(%[sum])", "vmovaps %%zmm" #s1 ", 128*" #i "+64(%[sum]" \
                                                      ")")
/* Pieces that have one scale of W too: a start and an end for each of them. */
#define STRIP_PIECES(LOOK_UP, SCALES, ENDING)                                                      \
    LINES("vmovdqu64 %[table], %%zmm30", "vmovdqu64 %[mask], %%zmm28")                             \
    ROWS(ZERO, )                                                                                   \
    LINES("1: mov %[x], %[x_scales]", "mov %[n_piece], %[k]")                                      \
    LINES("cmp %[k], %[n]", "cmovb %[n], %[k]")                                                    \
    LINES("sub %[k], %[n]", "add $24, %[x]")                                                       \
    ROWS(START, )                                                                                  \
    "2:\n\t" UNITS(0, 0, 1, LOOK_UP) UNITS(1, 2, 3, LOOK_UP) UNITS(2, 4, 5, LOOK_UP)               \
        UNITS(3, 6, 7, LOOK_UP) LINES("add $264, %[x]", "add %[step], %[w]")                       \
            LINES("dec %[k]", "jnz 2b") SCALES                                                     \
            ROWS(ENDING, ) LINES("add $32, %[starts]", "add %[scales_step], %[scales]")            \
                LINES("test %[n], %[n]", "jnz 1b") ROWS(STORE, )

/* sum [MR][STRIP_VECS] += n groups, in pieces of n_piece that share the scales of X. */
#define RUN_GROUPS(STRIP_OF, LOOK_UP, SCALES, ENDING)                                              \
    __asm__ volatile(STRIP_OF(LOOK_UP, SCALES, ENDING)                                             \
                     : [starts] "+r"(starts), [scales] "+r"(scales), [x] "+r"(x), [w] "+r"(w),     \
                       [n] "+r"(n), [k] "=&r"(k), [x_scales] "=&r"(x_scales), [ds] "+r"(ds)        \
                     : [sum] "r"(sum), [step] "r"(step), [scales_step] "m"(scales_step),           \
                       [n_piece] "m"(n_piece), [table] "m"(table), [mask] "m"(mask),               \
                       [sums_at] "i"(offsetof(span_ends, sums))                                    \
                     : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",     \
                       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",        \
                       "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22",     \
                       "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30",     \
                       "xmm31")

/* Fills starts for n groups of X at x, which starts a piece, or with `wide` for its pieces. */
static void make_starts(span_ends *e, int32_t bias, const unsigned char *x, size_t n,
                        size_t n_piece, bool wide)
{
    int32_t *to = e->starts[0];
    float *sums_to = e->sums[0];
    for (size_t g = 0; g < n;) {
        size_t end = skv_min_size(g + n_piece, n);
        __m256i all = _mm256_setzero_si256();
        x += MR * sizeof(float);
        for (; g < end; g++, x += skv_quant_x_group(MR)) {
            /* Eight sums: the last two are not used. */
            __m256i sums = _mm256_loadu_si256((const __m256i *)(const void *)x);
            _mm256_storeu_ps(sums_to, _mm256_cvtepi32_ps(sums));
            sums_to += PADDED;
            all = wide ? _mm256_add_epi32(all, sums) : sums;
            if (wide && g + 1 < end) continue;
            __m256i starts = _mm256_mullo_epi32(all, _mm256_set1_epi32(-bias));
            _mm256_storeu_si256((__m256i *)(void *)to, starts);
            to += PADDED;
        }
    }
}

/* Fills scales for n groups of W at w, or with `wide` for its pieces. */
static void make_scales(span_ends *e, const tile_args *t, const unsigned char *w, size_t n,
                        bool wide)
{
    const skv_quant_header h = *t->h;
    const size_t column0 = t->column0 * (h.fine ? 1 : 2);
    const size_t n_step = wide ? h.span_groups : 1;
    vec *to = e->scales[0];
    for (size_t g = 0; g < n; g += n_step, w += n_step * skv_quant_group_bytes(&h, NR)) {
        const uint16_t *span = skv_quant_span(t->h, NR, t->group0 + g) + t->column0;
        vec scale[COLUMNS];
        load_scales(scale, &h, skv_quant_scales(t->h, NR, w, t->group0 + g) + column0, span,
                    STRIP_VECS);
        for (size_t j = 0; j < STRIP_VECS; j++) *to++ = scale[j];
    }
}

static void store_whole(const tile_args *t, vec sum[MR][STRIP_VECS])
{
    for (size_t i = 0; i < MR; i++) {
        for (size_t j = 0; j < STRIP_VECS; j++) {
            float *to = t->c + i * t->ldc + t->column0 + LANES * j;
            vec_store(to, t->add ? vec_add(sum[i][j], vec_load(to)) : sum[i][j]);
        }
    }
}

/* A strip of n groups from t->group0 on. */
static void strip_span(span_ends *e, const tile_args *t, size_t n, size_t n_piece,
                       const code_kind kind)
{
    vec sum[MR][STRIP_VECS];
    const ints table = ints_load_table(t->h->biased), mask = _mm512_set1_epi8(15);
    const size_t step = skv_quant_group_bytes(t->h, NR);
    const int32_t *starts = e->starts[0];
    const unsigned char *w = skv_quant_group(t->h, NR, t->K, t->group0), *x = t->x, *x_scales;
    const bool f16 = !t->h->fine && !t->h->bf16 && !t->h->wide, wide = has_wide_sums(t);
    const void *scales = f16 ? (const void *)(w + 2 * t->column0) : (const void *)e->scales[0];
    const size_t scales_step = f16 ? step : sizeof e->scales[0];
    size_t k;
    const vec *ds = e->ds[0];
    static_assert((int)MR == 6 && (int)NR == 64, "registers and steps");
    for (size_t i = 0; i < MR; i++) sum[i][0] = sum[i][1] = vec_zero();
    if (!f16) make_scales(e, t, w, n, wide);
    w += skv_quant_scale_bytes(t->h, NR) + 4 * t->column0;
    if (kind == CODES_TABLE && wide) {
        RUN_GROUPS(STRIP_PIECES, LOOK_UP_TABLE, SCALES_F32, END_WIDE);
    } else if (kind == CODES_TABLE && f16) {
        RUN_GROUPS(STRIP_GROUPS, LOOK_UP_TABLE, SCALES_F16, END);
    } else if (kind == CODES_TABLE) {
        RUN_GROUPS(STRIP_GROUPS, LOOK_UP_TABLE, SCALES_F32, END);
    } else if (wide) {
        RUN_GROUPS(STRIP_PIECES, "", SCALES_F32, END_WIDE);
    } else if (f16) {
        RUN_GROUPS(STRIP_GROUPS, "", SCALES_F16, END);
    } else {
        RUN_GROUPS(STRIP_GROUPS, "", SCALES_F32, END);
    }
    store_whole(t, sum);
}

/* Fills d and dmin for n groups, for each piece of them. */
static void make_ds(span_ends *e, const tile_args *t, size_t n, size_t n_piece)
{
    vec *to = e->ds[0];
    static_assert((int)SPAN_PIECES * SKV_I8_GROUP == SKV_KC512, "pieces of a span");
    static_assert((int)SPAN_PIECES * SKV_I8_GROUP_NARROW == SKV_NARROW_K, "or of all of K");
    for (size_t g = 0; g < n; g += n_piece, to += 2 * STRIP_VECS) {
        const uint16_t *span = skv_quant_span(t->h, NR, t->group0 + g) + t->column0;
        for (size_t j = 0; j < STRIP_VECS; j++) {
            to[j] = load_16(span + LANES * j, t->h->bf16);
            to[STRIP_VECS + j] = load_16(span + NR + LANES * j, t->h->bf16);
        }
    }
}

/* A strip of n groups with fine scales and minimums. */
static void strip_fine(span_ends *e, const tile_args *t, size_t n, size_t n_piece)
{
    vec sum[MR][STRIP_VECS];
    const ints table = _mm512_setzero_si512(), mask = _mm512_set1_epi8(15);
    const size_t step = skv_quant_group_bytes(t->h, NR), scales_step = step;
    const unsigned char *w = skv_quant_group(t->h, NR, t->K, t->group0), *x = t->x, *x_scales;
    const unsigned char *scales = w + t->column0;
    const int32_t *starts = e->starts[0];
    const vec *ds = e->ds[0];
    size_t k;
    make_ds(e, t, n, n_piece);
    for (size_t i = 0; i < MR; i++) sum[i][0] = sum[i][1] = vec_zero();
    w += skv_quant_scale_bytes(t->h, NR) + 4 * t->column0;
    RUN_GROUPS(STRIP_GROUPS, "", SCALES_FINE, END_FINE);
    store_whole(t, sum);
}

/* 4 bits, one scale for a group, minimums only with fine scales, and a panel that is in a cache. */
INLINE bool has_whole(const tile_args *t, const size_t m, const code_kind kind)
{
    const bool takes_mins = (kind == CODES_EVEN && t->h->fine) || !t->h->has_min;
    return m == MR && has_nibbles(kind) && !t->prefetch && t->h->n_parts == 1 && takes_mins;
}

INLINE void tile_whole(tile_args t, const size_t m, const code_kind kind)
{
    (void)m;
    span_ends e;
    const size_t n_piece = skv_i8_group(t.K) / SKV_QUANT_GROUP;
    do {
        size_t n = skv_min_size(SPAN_GROUPS, t.group1 - t.group0);
        make_starts(&e, t.h->bias, t.x, n, n_piece, has_wide_sums(&t));
        for (t.column0 = 0; t.column0 < NR; t.column0 += STRIP_VECS * LANES) {
            if (kind == CODES_EVEN && t.h->has_min) { /* fine */
                strip_fine(&e, &t, n, n_piece);
            } else {
                strip_span(&e, &t, n, n_piece, kind);
            }
        }
        t.group0 += n;
        t.x += skv_ceil_div(n, n_piece) * MR * sizeof(float) + n * skv_quant_x_group(MR);
        t.add = true;
    } while (t.group0 < t.group1);
}

const skv_matmul skv_matmul_q_avx512vnni = MATMUL_Q;
