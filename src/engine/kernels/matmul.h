/*
 * The matrix products of skv_kernels.f32, .wide, .bf16, .i8 and .q: one constant table for each
 * kind and instruction set, and the functions that put those of a level into the kernel table.
 */
#ifndef SKV_KERNELS_MATMUL_H
#define SKV_KERNELS_MATMUL_H

#include "kernels/kernels.h"

/* The specification, in every build. */
extern const skv_matmul skv_matmul_f32_ref, skv_matmul_wide_ref;
extern const skv_matmul skv_matmul_bf16_ref, skv_matmul_i8_ref;
extern const skv_matmul skv_matmul_q_ref, skv_matmul_q_wide_ref;
skv_round_int4_fn skv_round_int4_ref;

/* x86-64 builds only. */
extern const skv_matmul skv_matmul_f32_avx2, skv_matmul_wide_avx2;
extern const skv_matmul skv_matmul_bf16_avx2, skv_matmul_i8_avx2, skv_matmul_q_avx2;
extern const skv_matmul skv_matmul_i8_avxvnni, skv_matmul_q_avxvnni;
extern const skv_matmul skv_matmul_f32_avx512, skv_matmul_wide_avx512, skv_matmul_bf16_avx512;
extern const skv_matmul skv_matmul_i8_avx512;
extern const skv_matmul skv_matmul_bf16_avx512bf16, skv_matmul_i8_avx512vnni;
extern const skv_matmul skv_matmul_q_avx512vnni;
extern const skv_matmul skv_matmul_bf16_amx, skv_matmul_i8_amx;
extern const skv_matmul skv_matmul_bf16_amx_paired, skv_matmul_i8_amx_paired;
extern const skv_matmul skv_matmul_bf16_amx_few, skv_matmul_i8_amx_few;
extern const skv_matmul skv_matmul_i8_amx_whole;
extern const skv_matmul skv_matmul_q_amx, skv_matmul_q_amx_once;
skv_round_int4_fn skv_round_int4_avx2;

/* AArch64 builds only. */
extern const skv_matmul skv_matmul_f32_neon, skv_matmul_wide_neon, skv_matmul_bf16_neon;
extern const skv_matmul skv_matmul_i8_neon, skv_matmul_i8_neondot, skv_matmul_q_neondot;
extern const skv_matmul skv_matmul_i8_neoni8mm, skv_matmul_bf16_neonbf16;

void skv_matmul_init_ref(skv_kernels *k);
/* The caller has checked the level's own feature; `features` chooses among the extensions beyond
 * it. */
void skv_matmul_init_avx2(skv_kernels *k, unsigned features);
void skv_matmul_init_avxvnni(skv_kernels *k);
void skv_matmul_init_avx512(skv_kernels *k, unsigned features);
void skv_matmul_init_amx(skv_kernels *k);
void skv_matmul_init_neon(skv_kernels *k, unsigned features);

/* A form of a level's products: the same operations with other layouts and loops. A back end takes
 * one when it is created. */
typedef struct skv_matmul_form {
    const char *name;  /* the level's, and the form's: "amx-paired" */
    const char *level; /* told to users: forms of one name have the same bits */
    const skv_matmul *bf16, *i8;
    void (*attention)(skv_kernels *k); /* puts another one into a table; NULL: the level's stays */
    const skv_matmul *q;               /* of quantised weights; NULL: the level's stays */
} skv_matmul_form;

/** The forms of a level, of which skv_kernels_init takes the first; *n is 0 where it has but one.
 */
const skv_matmul_form *skv_matmul_forms(skv_cpu_level level, size_t *n);
/** The name of a level or of a form; *form is NULL for a level. `form` may be NULL. */
bool skv_matmul_form_parse(const char *name, skv_cpu_level *level, const skv_matmul_form **form);

/* A group along K whose largest magnitude is below this counts as zero: its scale would be
 * denormal and the scale's inverse would overflow. */
#define SKV_I8_TINY (127.0f * 1.17549435e-38f)

/** scale = amax / 127 of a group, 0 when it counts as zero. */
static inline float skv_i8_scale(float amax)
{
    return amax < SKV_I8_TINY ? 0.0f : amax / 127.0f;
}

/** The factor that turns values into codes: 1 / scale, 0 for a scale of 0. */
static inline float skv_i8_inverse(float scale)
{
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

#endif
