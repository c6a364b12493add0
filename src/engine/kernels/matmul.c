/* Which matrix product each level uses: see matmul.h. */
#include "kernels/matmul.h"

#include <string.h>

#include "kernels/attention.h"

void skv_matmul_init_ref(skv_kernels *k)
{
    k->f32 = skv_matmul_f32_ref;
    k->wide = skv_matmul_wide_ref;
    k->bf16 = skv_matmul_bf16_ref;
    k->i8 = skv_matmul_i8_ref;
    k->q = skv_matmul_q_ref;
    k->q_wide = skv_matmul_q_wide_ref;
    k->round_int4 = skv_round_int4_ref;
}

#if defined(__x86_64__)

void skv_matmul_init_avx2(skv_kernels *k, unsigned features)
{
    (void)features;
    k->f32 = skv_matmul_f32_avx2;
    k->wide = skv_matmul_wide_avx2;
    k->bf16 = skv_matmul_bf16_avx2;
    k->i8 = skv_matmul_i8_avx2;
    k->q = skv_matmul_q_avx2;
    k->round_int4 = skv_round_int4_avx2;
}

void skv_matmul_init_avxvnni(skv_kernels *k)
{
    k->i8 = skv_matmul_i8_avxvnni;
    k->q = skv_matmul_q_avxvnni;
}

/* Without VNNI the product of quantised codes stays that of the level below. */
void skv_matmul_init_avx512(skv_kernels *k, unsigned features)
{
    k->f32 = skv_matmul_f32_avx512;
    k->wide = skv_matmul_wide_avx512;
    k->bf16 = skv_matmul_bf16_avx512;
    k->i8 = skv_matmul_i8_avx512;
    if (features & SKV_CPU_AVX512_BF16) k->bf16 = skv_matmul_bf16_avx512bf16;
    if (features & SKV_CPU_AVX512_VNNI) {
        k->i8 = skv_matmul_i8_avx512vnni;
        k->q = skv_matmul_q_avx512vnni;
    }
}

void skv_matmul_init_amx(skv_kernels *k)
{
    k->bf16 = skv_matmul_bf16_amx;
    k->i8 = skv_matmul_i8_amx;
}

static const skv_matmul_form amx_forms[] = {
    {"amx-strided", "amx", &skv_matmul_bf16_amx, &skv_matmul_i8_amx, NULL, NULL},
    {"amx-paired", "amx", &skv_matmul_bf16_amx_paired, &skv_matmul_i8_amx_paired, NULL, NULL},
    {"amx-few", "amx", &skv_matmul_bf16_amx_few, &skv_matmul_i8_amx_few, NULL, NULL},
    {"amx-whole", "amx-whole", &skv_matmul_bf16_amx_paired, &skv_matmul_i8_amx_whole, NULL, NULL},
    {"amx-attention", "amx-attention", &skv_matmul_bf16_amx_paired, &skv_matmul_i8_amx_paired,
     skv_attention_init_amx, NULL},
    {"amx-q", "amx", &skv_matmul_bf16_amx_paired, &skv_matmul_i8_amx_paired, NULL,
     &skv_matmul_q_amx},
    {"amx-q-once", "amx", &skv_matmul_bf16_amx_paired, &skv_matmul_i8_amx_paired, NULL,
     &skv_matmul_q_amx_once},
};

#elif defined(__aarch64__)

void skv_matmul_init_neon(skv_kernels *k, unsigned features)
{
    k->f32 = skv_matmul_f32_neon;
    k->wide = skv_matmul_wide_neon;
    k->bf16 = skv_matmul_bf16_neon;
    k->i8 = skv_matmul_i8_neon;
    if (features & SKV_CPU_NEON_DOT) {
        k->i8 = skv_matmul_i8_neondot;
        k->q = skv_matmul_q_neondot;
    }
    if (features & SKV_CPU_NEON_I8MM) k->i8 = skv_matmul_i8_neoni8mm;
    if (features & SKV_CPU_NEON_BF16) k->bf16 = skv_matmul_bf16_neonbf16;
}

#endif

const skv_matmul_form *skv_matmul_forms(skv_cpu_level level, size_t *n)
{
    *n = 0;
#if defined(__x86_64__)
    if (level == SKV_CPU_LEVEL_AMX) {
        *n = sizeof amx_forms / sizeof amx_forms[0];
        return amx_forms;
    }
#endif
    (void)level;
    return NULL;
}

bool skv_matmul_form_parse(const char *name, skv_cpu_level *level, const skv_matmul_form **form)
{
    size_t n;
    const skv_matmul_form *forms = skv_matmul_forms(SKV_CPU_LEVEL_AMX, &n);
    if (form) *form = NULL;
    if (skv_cpu_level_parse(name, level)) return true;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(forms[i].name, name) != 0) continue;
        *level = SKV_CPU_LEVEL_AMX;
        if (form) *form = &forms[i];
        return true;
    }
    return false;
}
