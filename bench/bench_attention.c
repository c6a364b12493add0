/*
 * Speed of attention: prompts against the peak of the instruction they use, decoding against the
 * rate at which this machine reads memory, both measured in the same run.
 *
 *     bench_attention [threads] [level] [prompt|decode|all] [f32|bf16|fp8|int8] [head_dim]
 *
 * Work is counted as done: 4 Dh operations for each visible pair of query row and cached row. A
 * step of decoding walks several caches, as a model walks its layers, so that none comes from the
 * processor's caches. Each layer is a run of the team, cut into portions as the engine cuts it.
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
#include "kernels/matmul.h"
#include "skv/tools.h"

enum {
    REPEATS = 7,
    GROUP = 4,          /* query heads of a KV head */
    LAYERS_MB = 256,    /* of all layers of a step of decoding, at least */
    PORTION_ROWS = 256, /* cached rows of a portion, at least; */
    PORTIONS_MAX = 16,  /* portions of one token, at most; */
    TASKS_A_THREAD = 4  /* with that many heads for each thread nothing is cut */
};

typedef struct shape {
    skv_kv_type type;
    size_t head_dim;
    size_t n_heads; /* KV heads of all sequences together */
    size_t n_q, n_past;
    size_t n_layers, n_parts; /* decoding: counted here */
} shape;

typedef struct bench {
    skv_pool *pool;
    skv_kernels kernels;
    const char *level; /* NULL: the best */
    skv_peak peak;
} bench;

typedef struct job {
    const skv_kernels *kernels;
    shape shape;
    unsigned char *cache; /* [layers][heads][pages][page_bytes] */
    const void **pages;   /* [layers][heads][pages] */
    size_t cache_bytes;
    size_t n_pages;
    float *q, *out;         /* [n_q][heads][G][Dh] */
    float *partials;        /* [heads][portions][G][Dh + 2] */
    size_t i_layer;         /* that decode_task works on */
    size_t n_blocks, block; /* tasks of one KV head, and their tokens */
    unsigned char *scratch; /* [threads] */
    size_t scratch_bytes;
} job;

static const char *const TYPE_NAMES[] = {"f32", "bf16", "fp8", "int8"};

static double seconds(uint64_t begin)
{
    return (double)(skv_clock_ns() - begin) * 1e-9;
}

static skv_attention call_of(const job *j, size_t head, size_t token0, size_t n_q)
{
    const shape *s = &j->shape;
    size_t ld = s->n_heads * GROUP * s->head_dim;
    size_t at = token0 * ld + head * GROUP * s->head_dim;
    return (skv_attention){
        .out = j->out + at,
        .q = j->q + at,
        .ld_out = ld,
        .ld_q = ld,
        .n_q = n_q,
        .n_group = GROUP,
        .head_dim = s->head_dim,
        .pages = j->pages + (j->i_layer * s->n_heads + head) * j->n_pages,
        .type = s->type,
        .n_past = s->n_past + token0,
        .scale = 0.125f,
    };
}

/* The last blocks of a prompt are the longest, so they go first. */
static void prompt_task(void *arg, size_t i, size_t th)
{
    job *j = arg;
    size_t head = i % j->shape.n_heads;
    size_t block = j->n_blocks - 1 - i / j->shape.n_heads;
    size_t token0 = block * j->block;
    skv_attention a = call_of(j, head, token0, skv_min_size(j->block, j->shape.n_q - token0));
    j->kernels->attention(&a, j->scratch + th * j->scratch_bytes);
}

static size_t partial_floats(const job *j)
{
    return skv_round_up(GROUP * (j->shape.head_dim + 2), 16);
}

static void decode_task(void *arg, size_t i, size_t th)
{
    job *j = arg;
    const shape *s = &j->shape;
    size_t n_rows = s->n_past + 1, part = i % s->n_parts;
    skv_attention a = call_of(j, i / s->n_parts, 0, 1);
    void *scratch = j->scratch + th * j->scratch_bytes;
    if (s->n_parts == 1) {
        j->kernels->attention(&a, scratch);
        return;
    }
    j->kernels->attention_part(&a, n_rows * part / s->n_parts, n_rows * (part + 1) / s->n_parts,
                               j->partials + i * partial_floats(j), scratch);
}

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* All pages hold the same noise. */
static void fill_pages(job *j, size_t n, size_t page_bytes)
{
    const shape *s = &j->shape;
    float k[SKV_HEAD_DIM_MAX], v[SKV_HEAD_DIM_MAX];
    uint64_t state = 1;
    for (size_t r = 0; r < SKV_PAGE_ROWS; r++) {
        for (size_t d = 0; d < s->head_dim; d++) k[d] = 2.0f * noise(&state);
        for (size_t d = 0; d < s->head_dim; d++) v[d] = noise(&state);
        j->kernels->kv_store(j->cache, s->type, r, k, v, s->head_dim);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char *page = j->cache + i * page_bytes;
        if (i > 0) memcpy(page, j->cache, page_bytes);
        j->pages[i] = page;
    }
}

static bool job_init(job *j, const bench *b, const shape *s)
{
    size_t page_bytes = skv_kv_page_bytes(s->type, s->head_dim);
    size_t n_heads = s->n_heads * GROUP, n_threads = skv_pool_threads(b->pool);
    uint64_t state = 2;
    *j = (job){.kernels = &b->kernels, .shape = *s};
    j->n_pages = skv_ceil_div(s->n_past + s->n_q, SKV_PAGE_ROWS);
    size_t n = s->n_layers * s->n_heads * j->n_pages;
    j->cache_bytes = n * page_bytes;
    j->cache = skv_map_zero(j->cache_bytes); /* in huge pages, as the engine's */
    j->pages = skv_alloc(n, sizeof *j->pages);
    j->q = skv_alloc(s->n_q * n_heads, s->head_dim * sizeof(float));
    j->out = skv_alloc(s->n_q * n_heads, s->head_dim * sizeof(float));
    j->partials = skv_alloc(s->n_heads * s->n_parts, partial_floats(j) * sizeof(float));
    j->scratch_bytes = skv_round_up(b->kernels.attention_scratch(GROUP, s->head_dim), SKV_ALIGN);
    j->scratch = skv_alloc_aligned(n_threads, j->scratch_bytes);
    if (!j->cache || !j->pages || !j->q || !j->out || !j->partials || !j->scratch) return false;
    fill_pages(j, n, page_bytes);
    for (size_t i = 0; i < s->n_q * n_heads * s->head_dim; i++) j->q[i] = 2.0f * noise(&state);
    return true;
}

static void job_release(job *j)
{
    skv_unmap(j->cache, j->cache_bytes);
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

static void bench_prompt(const bench *b, shape s)
{
    job j;
    s.n_layers = s.n_parts = 1;
    if (job_init(&j, b, &s)) {
        double t[REPEATS];
        j.block = b->kernels.attention_tokens(GROUP, s.head_dim);
        j.n_blocks = skv_ceil_div(s.n_q, j.block);
        double n = (double)s.n_q, pairs = n * (double)s.n_past + n * (n + 1.0) / 2.0;
        double work = pairs * 4.0 * (double)(s.head_dim * GROUP * s.n_heads);
        for (size_t i = 0; i < REPEATS; i++) {
            uint64_t begin = skv_clock_ns();
            skv_pool_run(b->pool, j.n_blocks * s.n_heads, prompt_task, &j);
            t[i] = seconds(begin);
        }
        double peak = s.type == SKV_KV_TYPE_F32 ? b->peak.f32_gflops : b->peak.bf16_gflops;
        double rate = work / fastest(t, REPEATS) * 1e-9;
        printf("prompt %-4s Dh %3zu heads %zu n %5zu past %5zu: %7.1f GFLOP/s %5.1f %%\n",
               TYPE_NAMES[s.type], s.head_dim, s.n_heads, s.n_q, s.n_past, rate,
               100.0 * rate / peak);
    }
    job_release(&j);
}

/* One token through all layers. */
static void decode_step(const bench *b, job *j)
{
    const shape *s = &j->shape;
    for (j->i_layer = 0; j->i_layer < s->n_layers; j->i_layer++) {
        skv_pool_run(b->pool, s->n_heads * s->n_parts, decode_task, j);
        for (size_t h = 0; s->n_parts > 1 && h < s->n_heads; h++) {
            skv_attention a = call_of(j, h, 0, 1);
            b->kernels.attention_join(&a, j->partials + h * s->n_parts * partial_floats(j),
                                      partial_floats(j), s->n_parts);
        }
    }
}

/* As count_parts of cpu_attention.c. */
static size_t count_parts(const bench *b, const shape *s)
{
    size_t n_wanted = TASKS_A_THREAD * skv_pool_threads(b->pool);
    if (s->n_past + 1 < 2 * PORTION_ROWS || s->n_heads >= n_wanted) return 1;
    size_t most = skv_min_size(PORTIONS_MAX, (s->n_past + 1) / PORTION_ROWS);
    return skv_max_size(1, skv_min_size(skv_ceil_div(n_wanted, s->n_heads), most));
}

/* What memory gives at this moment: it changes by the minute where machines are shared. */
static double read_gbs(const bench *b)
{
    double gbs = 0.0;
    return skv_read_measure(skv_pool_threads(b->pool), &gbs, NULL) == SKV_OK ? gbs : 0.0;
}

static void bench_decode(const bench *b, shape s)
{
    job j;
    double bytes = (double)((s.n_past + 1) * s.n_heads) / SKV_PAGE_ROWS *
                   (double)skv_kv_page_bytes(s.type, s.head_dim);
    s.n_layers = (size_t)ceil(LAYERS_MB * 1e6 / bytes);
    s.n_parts = count_parts(b, &s);
    if (job_init(&j, b, &s)) {
        double t[REPEATS], gbs = read_gbs(b);
        for (size_t i = 0; i < REPEATS; i++) {
            uint64_t begin = skv_clock_ns();
            decode_step(b, &j);
            t[i] = seconds(begin);
        }
        double rate = bytes * (double)s.n_layers / fastest(t, REPEATS) * 1e-9;
        gbs = fmax(gbs, read_gbs(b));
        printf("decode %-4s Dh %3zu heads %2zu rows %6zu: %6.2f GB/s %5.1f %% of %.1f\n",
               TYPE_NAMES[s.type], s.head_dim, s.n_heads, s.n_past + 1, rate, 100.0 * rate / gbs,
               gbs);
    }
    job_release(&j);
}

static void bench_type(const bench *b, const char *what, skv_kv_type type, size_t head_dim)
{
    const shape prompts[] = {{.n_heads = 2, .n_q = 512, .n_past = 0},
                             {.n_heads = 2, .n_q = 512, .n_past = 7680},
                             {.n_heads = 1, .n_q = 8192, .n_past = 0}};
    /* 64 heads: 8 sequences of a model with 8; 2 heads: few, which must be cut. */
    const shape tokens[] = {{.n_heads = 8, .n_past = 511},   {.n_heads = 64, .n_past = 511},
                            {.n_heads = 8, .n_past = 8191},  {.n_heads = 2, .n_past = 8191},
                            {.n_heads = 8, .n_past = 32767}, {.n_heads = 64, .n_past = 8191}};
    for (size_t i = 0; strcmp(what, "decode") != 0 && i < sizeof prompts / sizeof prompts[0]; i++) {
        shape s = prompts[i];
        s.type = type;
        s.head_dim = head_dim;
        bench_prompt(b, s);
    }
    for (size_t i = 0; strcmp(what, "prompt") != 0 && i < sizeof tokens / sizeof tokens[0]; i++) {
        shape s = tokens[i];
        s.type = type;
        s.head_dim = head_dim;
        s.n_q = 1;
        bench_decode(b, s);
    }
}

static bool bench_init(bench *b, size_t n_threads, const char *level)
{
    skv_cpu_level which = SKV_CPU_LEVEL_BEST;
    const skv_matmul_form *form = NULL;
    *b = (bench){.level = level && strcmp(level, "best") != 0 ? level : NULL};
    if (b->level && !skv_matmul_form_parse(b->level, &which, &form)) return false;
    skv_kernels_init(&b->kernels, which, skv_cpu_detect());
    if (form && form->attention) form->attention(&b->kernels);
    return skv_pool_create(n_threads, &b->pool, NULL) == SKV_OK &&
           skv_peak_measure(n_threads, b->level, NULL, NULL, &b->peak, NULL) == SKV_OK;
}

int main(int argc, char **argv)
{
    bench b;
    const char *what = argc > 3 ? argv[3] : "all", *type = argc > 4 ? argv[4] : NULL;
    size_t only = argc > 5 ? strtoul(argv[5], NULL, 10) : 0;
    if (!bench_init(&b, argc > 1 ? strtoul(argv[1], NULL, 10) : 2, argc > 2 ? argv[2] : NULL)) {
        fprintf(stderr, "bench_attention: no such level, or no threads\n");
        return 1;
    }
    printf("%zu threads, %s: bf16 %.0f GFLOP/s, f32 %.0f GFLOP/s, read %.1f GB/s\n",
           skv_pool_threads(b.pool), b.level ? b.level : skv_cpu_level_name(b.kernels.level),
           b.peak.bf16_gflops, b.peak.f32_gflops, b.peak.read_gbs);
    const size_t head_dims[] = {64, 128, 256};
    for (size_t t = 0; t < sizeof TYPE_NAMES / sizeof TYPE_NAMES[0]; t++) {
        if (type && strcmp(type, TYPE_NAMES[t]) != 0) continue;
        for (size_t d = 0; d < sizeof head_dims / sizeof head_dims[0]; d++) {
            if (only && only != head_dims[d]) continue;
            bench_type(&b, what, (skv_kv_type)t, head_dims[d]);
        }
    }
    skv_pool_free(b.pool);
    return 0;
}
