/*
 * Speed of attention: prompts against the peak of the instruction they use, decoding against the
 * rate at which this machine reads memory, both measured in the same run.
 *
 *     bench_attention [threads]
 *
 * Work is counted as done: 4 Dh operations for each visible pair of query row and cached row.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/kernels.h"
#include "skv/tools.h"

enum { REPEATS = 15, HEADS_KV = 8 };

static const double CACHE_BYTES = 64 << 20; /* fewer may come from the caches */

typedef struct shape {
    const char *name;
    skv_kv_type type;
    size_t head_dim, n_group, n_heads_kv;
    size_t n_q, n_past, window;
} shape;

typedef struct job {
    const skv_kernels *kernels;
    shape shape;
    unsigned char *cache; /* [heads][pages][page_bytes] */
    const void **pages;   /* [heads][pages] */
    size_t n_pages;
    float *q, *out;         /* [n_q][heads][G][Dh] */
    float *partials;        /* [heads][portions][G][Dh + 2] */
    size_t n_blocks;        /* tasks of one KV head */
    size_t block;           /* tokens (prompt) or rows (decode) of a task */
    unsigned char *scratch; /* [threads] */
    size_t scratch_bytes;
} job;

static double seconds(uint64_t begin)
{
    return (double)(skv_clock_ns() - begin) * 1e-9;
}

static skv_attention call_of(const job *j, size_t head, size_t token0, size_t n_q)
{
    const shape *s = &j->shape;
    size_t ld = s->n_heads_kv * s->n_group * s->head_dim;
    size_t at = token0 * ld + head * s->n_group * s->head_dim;
    return (skv_attention){
        .out = j->out + at,
        .q = j->q + at,
        .ld_out = ld,
        .ld_q = ld,
        .n_q = n_q,
        .n_group = s->n_group,
        .head_dim = s->head_dim,
        .pages = j->pages + head * j->n_pages,
        .type = s->type,
        .n_past = s->n_past + token0,
        .window = s->window,
        .scale = 0.125f,
    };
}

/* The last blocks of a prompt are the longest, so they go first. */
static void prompt_task(void *arg, size_t i, size_t th)
{
    job *j = arg;
    size_t head = i % j->shape.n_heads_kv;
    size_t block = j->n_blocks - 1 - i / j->shape.n_heads_kv;
    size_t token0 = block * j->block;
    skv_attention a = call_of(j, head, token0, skv_min_size(j->block, j->shape.n_q - token0));
    j->kernels->attention(&a, j->scratch + th * j->scratch_bytes);
}

static void decode_task(void *arg, size_t i, size_t th)
{
    job *j = arg;
    const shape *s = &j->shape;
    size_t head = i / j->n_blocks;
    size_t row0 = i % j->n_blocks * j->block;
    skv_attention a = call_of(j, head, 0, 1);
    float *partial = j->partials + i * s->n_group * (s->head_dim + 2);
    j->kernels->attention_part(&a, row0, skv_min_size(row0 + j->block, s->n_past + 1), partial,
                               j->scratch + th * j->scratch_bytes);
}

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static bool job_init(job *j, size_t n_threads)
{
    const shape *s = &j->shape;
    size_t page_bytes = skv_kv_page_bytes(s->type, s->head_dim);
    size_t n_heads = s->n_heads_kv * s->n_group;
    uint64_t state = 1;
    j->n_pages = skv_ceil_div(s->n_past + s->n_q, SKV_PAGE_ROWS);
    j->cache = skv_alloc_aligned(s->n_heads_kv * j->n_pages, page_bytes);
    j->pages = skv_alloc(s->n_heads_kv * j->n_pages, sizeof *j->pages);
    j->q = skv_alloc(s->n_q * n_heads, s->head_dim * sizeof(float));
    j->out = skv_alloc(s->n_q * n_heads, s->head_dim * sizeof(float));
    j->scratch_bytes =
        skv_round_up(j->kernels->attention_scratch(s->n_group, s->head_dim), SKV_ALIGN);
    j->scratch = skv_alloc_aligned(n_threads, j->scratch_bytes);
    if (!j->cache || !j->pages || !j->q || !j->out || !j->scratch) return false;

    float k[SKV_HEAD_DIM_MAX];
    float v[SKV_HEAD_DIM_MAX];
    for (size_t i = 0; i < s->n_heads_kv * j->n_pages; i++) {
        unsigned char *page = j->cache + i * page_bytes;
        j->pages[i] = page;
        for (size_t r = 0; r < SKV_PAGE_ROWS; r++) {
            for (size_t d = 0; d < s->head_dim; d++) k[d] = 2.0f * noise(&state);
            for (size_t d = 0; d < s->head_dim; d++) v[d] = noise(&state);
            j->kernels->kv_store(page, s->type, r, k, v, s->head_dim);
        }
    }
    for (size_t i = 0; i < s->n_q * n_heads * s->head_dim; i++) j->q[i] = 2.0f * noise(&state);
    return true;
}

static void job_release(job *j)
{
    skv_free(j->cache);
    skv_free(j->pages);
    skv_free(j->q);
    skv_free(j->out);
    skv_free(j->scratch);
    skv_free(j->partials);
}

/* The peaks are the best of several runs too: others may use the machine. */
static double fastest(const double *x, size_t n)
{
    double best = x[0];
    for (size_t i = 1; i < n; i++) best = x[i] < best ? x[i] : best;
    return best;
}

static void bench_prompt(skv_pool *pool, const skv_kernels *k, const shape *s, double peak)
{
    job j = {.kernels = k, .shape = *s};
    if (job_init(&j, skv_pool_threads(pool))) {
        double t[REPEATS];
        j.block = k->attention_tokens(s->n_group, s->head_dim);
        j.n_blocks = skv_ceil_div(s->n_q, j.block);
        double pairs = 0.0;
        for (size_t i = 0; i < s->n_q; i++) {
            size_t end = s->n_past + i + 1;
            pairs += (double)(s->window && s->window < end ? s->window : end);
        }
        double work = pairs * 4.0 * (double)(s->head_dim * s->n_group * s->n_heads_kv);
        for (size_t i = 0; i < REPEATS; i++) {
            uint64_t begin = skv_clock_ns();
            skv_pool_run(pool, j.n_blocks * s->n_heads_kv, prompt_task, &j);
            t[i] = seconds(begin);
        }
        double rate = work / fastest(t, REPEATS) * 1e-9;
        printf("prompt %-5s Dh %3zu G %zu n %5zu past %5zu window %5zu: %7.1f GFLOP/s  %5.1f %%\n",
               s->name, s->head_dim, s->n_group, s->n_q, s->n_past, s->window, rate,
               100.0 * rate / peak);
    }
    job_release(&j);
}

/* What memory gives at this moment: it changes by the minute where machines are shared. */
static double read_gbs(skv_pool *pool)
{
    double gbs = 0.0;
    return skv_read_measure(skv_pool_threads(pool), &gbs, NULL) == SKV_OK ? gbs : 0.0;
}

static void bench_decode(skv_pool *pool, const skv_kernels *k, const shape *s)
{
    job j = {.kernels = k, .shape = *s};
    size_t n_rows = s->n_past + 1;
    j.block = 4096;
    j.n_blocks = skv_ceil_div(n_rows, j.block);
    size_t per_part = s->n_group * (s->head_dim + 2);
    j.partials = skv_alloc(s->n_heads_kv * j.n_blocks, per_part * sizeof(float));
    if (j.partials && job_init(&j, skv_pool_threads(pool))) {
        double t[REPEATS], gbs = read_gbs(pool);
        for (size_t i = 0; i < REPEATS; i++) {
            uint64_t begin = skv_clock_ns();
            skv_pool_run(pool, j.n_blocks * s->n_heads_kv, decode_task, &j);
            for (size_t h = 0; h < s->n_heads_kv; h++) {
                skv_attention a = call_of(&j, h, 0, 1);
                k->attention_join(&a, j.partials + h * j.n_blocks * per_part, j.n_blocks);
            }
            t[i] = seconds(begin);
        }
        double bytes = (double)(n_rows * s->n_heads_kv) / SKV_PAGE_ROWS *
                       (double)skv_kv_page_bytes(s->type, s->head_dim);
        double rate = bytes / fastest(t, REPEATS) * 1e-9;
        printf("decode %-5s Dh %3zu G %zu rows %6zu (%4.0f MB): %7.2f GB/s", s->name, s->head_dim,
               s->n_group, n_rows, bytes * 1e-6, rate);
        gbs = fmax(gbs, read_gbs(pool));
        if (bytes < CACHE_BYTES || rate > gbs) {
            printf("  (not from memory alone)\n");
        } else {
            printf("  %5.1f %% of %.1f\n", 100.0 * rate / gbs, gbs);
        }
    }
    job_release(&j);
}

int main(int argc, char **argv)
{
    skv_error err;
    skv_pool *pool = NULL;
    size_t n_threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 2;
    if (skv_pool_create(n_threads, &pool, &err) != SKV_OK) return 1;
    skv_kernels k;
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, skv_cpu_detect());

    skv_peak peak;
    if (skv_peak_measure(n_threads, NULL, &peak, &err) != SKV_OK) return 1;
    printf("%zu threads: bf16 %.0f GFLOP/s, f32 %.0f GFLOP/s, read %.1f GB/s\n",
           skv_pool_threads(pool), peak.bf16_gflops, peak.f32_gflops, peak.read_gbs);

    const shape prompts[] = {
        {"bf16", SKV_KV_TYPE_BF16, 64, 4, HEADS_KV, 2048, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 128, 4, HEADS_KV, 2048, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 64, 3, 3, 2048, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 64, 1, HEADS_KV, 2048, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 256, 2, HEADS_KV, 2048, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 96, 1, HEADS_KV, 2048, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 64, 4, HEADS_KV, 512, 0, 0},
        {"bf16", SKV_KV_TYPE_BF16, 64, 4, HEADS_KV, 512, 8192, 0},
        {"bf16", SKV_KV_TYPE_BF16, 128, 4, HEADS_KV, 2048, 0, 512},
        {"int8", SKV_KV_TYPE_INT8, 64, 4, HEADS_KV, 2048, 0, 0},
        {"fp8", SKV_KV_TYPE_FP8, 64, 4, HEADS_KV, 2048, 0, 0},
        {"f32", SKV_KV_TYPE_F32, 64, 4, HEADS_KV, 2048, 0, 0},
        {"f32", SKV_KV_TYPE_F32, 128, 4, HEADS_KV, 2048, 0, 0},
    };
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        const bool f32 = prompts[i].type == SKV_KV_TYPE_F32;
        bench_prompt(pool, &k, &prompts[i], f32 ? peak.f32_gflops : peak.bf16_gflops);
    }
    const shape few[] = {
        {"bf16", SKV_KV_TYPE_BF16, 64, 4, HEADS_KV, 1, 65535, 0},
        {"bf16", SKV_KV_TYPE_BF16, 64, 4, HEADS_KV, 1, 511, 0},
        {"int8", SKV_KV_TYPE_INT8, 64, 4, HEADS_KV, 1, 511, 0},
        {"bf16", SKV_KV_TYPE_BF16, 64, 1, HEADS_KV, 1, 65535, 0},
        {"bf16", SKV_KV_TYPE_BF16, 128, 4, HEADS_KV, 1, 65535, 0},
        {"bf16", SKV_KV_TYPE_BF16, 128, 8, HEADS_KV, 1, 65535, 0},
        {"int8", SKV_KV_TYPE_INT8, 64, 4, HEADS_KV, 1, 131071, 0},
        {"fp8", SKV_KV_TYPE_FP8, 64, 4, HEADS_KV, 1, 131071, 0},
        {"f32", SKV_KV_TYPE_F32, 64, 4, HEADS_KV, 1, 65535, 0},
    };
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        bench_decode(pool, &k, &few[i]);
    }
    skv_pool_free(pool);
    return 0;
}
