/*
 * bench_matmul [--cpu LEVEL] [--threads N] [--kc K] [--kind f32|bf16|i8|q4_0|q4_k|...]
 *              [--decode-only] [--cpu-clock]
 *
 * The machine's limits and, as a share of them, the matrix products: prompts (M rows at once,
 * GOP/s) and decoding (few rows over weights larger than the caches, GB/s of packed weights).
 * Every line compares with a limit measured right before and after it, since machines are shared.
 * --kind may stand several times, and takes every type of dtype.h that has codes: its weights are
 * random. Without it, f32, bf16, i8, q4_0, q4_k and q6_k.
 * --cpu-clock counts the processor time of the process, divided by its threads, instead of the
 * time on the wall: on a machine with other work it tells more about arithmetic.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system.h"
#include "format/dtype.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/quant_panel.h"

enum { MAX_RUNS = 200, READ_TASKS = 64, PEAK_TASKS = 32, TASKS_PER_THREAD = 16, MAX_KINDS = 16 };

static const double RUN_SECONDS = 0.6; /* for one line of the table */

struct bench {
    skv_pool *pool;
    skv_kernels kernels;
    skv_peak_loops peak;
    size_t kc; /* 0: the kernel's own */
    bool cpu_clock;
};

static double now_ns(const struct bench *b)
{
    struct timespec t;
    if (!b->cpu_clock || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0) {
        return (double)skv_clock_ns();
    }
    double ns = (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
    return ns / (double)skv_pool_threads(b->pool);
}

/* Weights to measure: form is NULL unless they are quantised. */
struct kind {
    const char *name;
    const skv_matmul *mm;
    const skv_peak_loop *loop;
    const skv_quant_form *form;
};

/* One product over n_copies sets of weights, so that they do not stay in the caches. */
struct product {
    const skv_matmul *mm;
    const skv_quant_form *form;
    size_t M, N, K, kc;
    size_t n_panels, n_blocks, n_parts;
    size_t panel_bytes, block_bytes;
    size_t n_copies, i_copy;
    float *x, *w, *c;      /* [M, K], [nr, K], [M, n_panels * nr] */
    unsigned char *panels; /* [n_copies][n_panels] */
    unsigned char *blocks; /* [n_blocks] */
};

/* ------------------------------------------------------------------------------------------ */

struct peak_run {
    const skv_peak_loop *loop;
    size_t n_rounds;
    skv_peak_read_fn *read;
    const unsigned char *buffer;
    size_t n_bytes;
    double results[PEAK_TASKS];
    uint64_t read_sink[READ_TASKS];
};

static void run_loop(void *arg, size_t i_task, size_t i_thread)
{
    struct peak_run *run = arg;
    (void)i_thread;
    float operand[SKV_PEAK_BYTES / sizeof(float)];
    for (size_t i = 0; i < sizeof operand / sizeof *operand; i++) operand[i] = 0.5f;
    run->results[i_task] = run->loop->run(operand, operand, run->n_rounds);
}

static void run_read(void *arg, size_t i_task, size_t i_thread)
{
    struct peak_run *run = arg;
    size_t portion = run->n_bytes / READ_TASKS;
    (void)i_thread;
    run->read_sink[i_task] = run->read(run->buffer + i_task * portion, portion);
}

/* Operations in a nanosecond, all threads together, of the best of three short runs. */
static double measure_ops(struct bench *b, const skv_peak_loop *loop)
{
    struct peak_run run = {.loop = loop, .n_rounds = (size_t)(2.0e8 / skv_peak_ops(loop))};
    double best = 0.0;
    for (int i = 0; i < 3; i++) {
        double start = now_ns(b);
        skv_pool_run(b->pool, PEAK_TASKS, run_loop, &run);
        double ns = (now_ns(b) - start);
        best = fmax(best, skv_peak_ops(loop) * (double)run.n_rounds * PEAK_TASKS / ns);
    }
    return best;
}

/* Bytes in a nanosecond over a buffer. */
static double measure_read(struct bench *b, const unsigned char *buffer, size_t n_bytes)
{
    struct peak_run run = {.read = b->peak.read, .buffer = buffer, .n_bytes = n_bytes};
    double best = 0.0;
    for (int i = 0; i < 3; i++) {
        double start = now_ns(b);
        skv_pool_run(b->pool, READ_TASKS, run_read, &run);
        best = fmax(best, (double)n_bytes / (now_ns(b) - start));
    }
    return best;
}

/* ------------------------------------------------------------------------------------------ */

/* Rows are dealt out evenly: 8 rows in blocks of at most 6 are 4 and 4. */
static size_t first_row(const struct product *p, size_t i_block)
{
    return i_block * p->M / p->n_blocks;
}

static size_t block_rows(const struct product *p, size_t i_block)
{
    return first_row(p, i_block + 1) - first_row(p, i_block);
}

static void pack_block(void *arg, size_t i_task, size_t i_thread)
{
    struct product *p = arg;
    (void)i_thread;
    p->mm->pack_x(p->blocks + i_task * p->block_bytes, p->x + first_row(p, i_task) * p->K, p->K,
                  block_rows(p, i_task), p->K);
}

/* A task is one panel and a part of the row blocks: small N needs more tasks than panels. */
static void multiply_panel(void *arg, size_t i_task, size_t i_thread)
{
    struct product *p = arg;
    const skv_matmul *mm = p->mm;
    size_t i_panel = i_task % p->n_panels, i_part = i_task / p->n_panels;
    size_t begin = i_part * p->n_blocks / p->n_parts;
    size_t end = (i_part + 1) * p->n_blocks / p->n_parts;
    const unsigned char *panel = p->panels + (p->i_copy * p->n_panels + i_panel) * p->panel_bytes;
    size_t ldc = p->n_panels * mm->nr;
    (void)i_thread;
    for (size_t k0 = 0; k0 < p->K; k0 += p->kc) {
        size_t k1 = skv_min_size(k0 + p->kc, p->K);
        for (size_t i = begin; i < end; i++) {
            float *c = p->c + first_row(p, i) * ldc + i_panel * mm->nr;
            mm->tile(c, ldc, p->blocks + i * p->block_bytes, panel, block_rows(p, i), p->K, k0, k1,
                     (i == begin ? SKV_TILE_PREFETCH : 0U) | (k0 > 0 ? SKV_TILE_ADD : 0U));
        }
    }
    skv_matmul_finish(mm);
}

/* Bytes of a panel, without what aligns it. */
static size_t weight_bytes(const struct product *p)
{
    return p->form ? skv_quant_panel_bytes(p->form, p->mm->nr, p->K) : p->mm->w_bytes(p->K);
}

/* Random codes with scales of 0.01. */
static bool pack_quantised(struct product *p, skv_rng *rng)
{
    const skv_quant_form *form = p->form;
    size_t n = p->mm->nr, n_groups = n * (p->K / form->group);
    size_t n_spans = n * skv_quant_spans(form, p->K);
    void *memory = skv_alloc_aligned(skv_quant_rows_bytes(form, n, p->K), 1);
    skv_quant_rows rows;
    if (!memory) return false;
    skv_quant_rows_init(&rows, form, n, p->K, memory);
    for (size_t i = 0; i < n * p->K; i++) {
        rows.codes[i] = (uint8_t)skv_rng_below(rng, (uint64_t)1 << form->bits);
    }
    for (size_t i = 0; i < n_spans; i++) rows.scales[i] = form->bf16 ? 0x3c24 : 0x211f;
    for (size_t i = 0; rows.mins && i < n_spans; i++) rows.mins[i] = rows.scales[i];
    for (size_t i = 0; rows.fine && i < n_groups; i++) rows.fine[i] = (int8_t)(i % 32 + 1);
    for (size_t i = 0; rows.fine_min && i < n_groups; i++) rows.fine_min[i] = 1;
    skv_quant_pack(p->panels, n, form, &rows);
    skv_free(memory);
    return true;
}

static void copy_panel(void *arg, size_t i_task, size_t i_thread)
{
    struct product *p = arg;
    (void)i_thread;
    if (i_task > 0) memcpy(p->panels + i_task * p->panel_bytes, p->panels, p->panel_bytes);
}

static void multiply(struct bench *b, struct product *p)
{
    skv_pool_run(b->pool, p->n_blocks, pack_block, p);
    skv_pool_run_stretches(b->pool, p->n_panels * p->n_parts, multiply_panel, p);
    p->i_copy = (p->i_copy + 1) % p->n_copies;
}

static bool product_init(struct product *p, struct bench *b)
{
    p->kc = b->kc ? b->kc : p->mm->kc;
    p->n_panels = skv_ceil_div(p->N, p->mm->nr);
    p->n_blocks = skv_ceil_div(p->M, p->mm->mr);
    size_t n_tasks = TASKS_PER_THREAD * skv_pool_threads(b->pool);
    p->n_parts = skv_min_size(skv_ceil_div(n_tasks, p->n_panels), p->n_blocks);
    p->panel_bytes = skv_round_up(weight_bytes(p), SKV_ALIGN);
    p->block_bytes = skv_round_up(p->mm->x_bytes(skv_min_size(p->mm->mr, p->M), p->K), SKV_ALIGN);
    p->x = skv_alloc(p->M * p->K, sizeof *p->x);
    p->w = skv_alloc(p->mm->nr * p->K, sizeof *p->w);
    p->c = skv_map_zero(p->M * p->n_panels * p->mm->nr * sizeof *p->c);
    p->panels = skv_map_zero(p->n_copies * p->n_panels * p->panel_bytes);
    p->blocks = skv_map_zero(p->n_blocks * p->block_bytes);
    if (!p->x || !p->w || !p->c || !p->panels || !p->blocks) return false;
    skv_rng rng;
    skv_rng_init(&rng, 1);
    for (size_t i = 0; i < p->M * p->K; i++) p->x[i] = (float)skv_rng_uniform(&rng) - 0.5f;
    for (size_t i = 0; i < p->mm->nr * p->K; i++) p->w[i] = (float)skv_rng_uniform(&rng) - 0.5f;
    if (!p->form) {
        p->mm->pack_w(p->panels, p->w, p->K, p->mm->nr, p->K);
    } else if (!pack_quantised(p, &rng)) {
        return false;
    }
    skv_pool_run(b->pool, p->n_copies * p->n_panels, copy_panel, p);
    return true;
}

static void product_release(struct product *p)
{
    skv_free(p->x);
    skv_free(p->w);
    skv_unmap(p->c, p->M * p->n_panels * p->mm->nr * sizeof *p->c);
    skv_unmap(p->panels, p->n_copies * p->n_panels * p->panel_bytes);
    skv_unmap(p->blocks, p->n_blocks * p->block_bytes);
}

/* ------------------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Nanoseconds of one product: *best and the median. */
static double time_product(struct bench *b, struct product *p, double *best)
{
    double ns[MAX_RUNS], total = 0.0;
    size_t n = 0;
    multiply(b, p);
    while (n < MAX_RUNS && (n < 5 || total < RUN_SECONDS * 1e9)) {
        double start = now_ns(b);
        multiply(b, p);
        ns[n] = (now_ns(b) - start);
        total += ns[n++];
    }
    qsort(ns, n, sizeof *ns, compare_doubles);
    *best = ns[0];
    return ns[n / 2];
}

static void bench_prompt(struct bench *b, const struct kind *kind, const size_t shape[3])
{
    struct product p = {.mm = kind->mm,
                        .form = kind->form,
                        .M = shape[0],
                        .N = shape[1],
                        .K = shape[2],
                        .n_copies = 1};
    if (product_init(&p, b)) {
        double best, limit = measure_ops(b, kind->loop);
        double median = time_product(b, &p, &best);
        limit = fmax(limit, measure_ops(b, kind->loop));
        double ops = 2.0 * (double)p.M * (double)p.N * (double)p.K;
        printf("%-6s %5zu x %5zu x %5zu  %7.1f GOP/s  %5.1f %% (median)  %5.1f %% (best) of %.0f\n",
               kind->name, p.M, p.N, p.K, ops / median, 100.0 * ops / median / limit,
               100.0 * ops / best / limit, limit);
        (void)fflush(stdout);
    }
    product_release(&p);
}

static void bench_decode(struct bench *b, const struct kind *kind, size_t M)
{
    struct product p = {.mm = kind->mm, .form = kind->form, .M = M, .N = 8192, .K = 2048};
    size_t bytes = weight_bytes(&p) * skv_ceil_div(p.N, p.mm->nr);
    p.n_copies = skv_ceil_div((size_t)512 << 20, bytes);
    if (product_init(&p, b)) {
        size_t all = p.n_copies * p.n_panels * p.panel_bytes;
        double best, limit = measure_read(b, p.panels, all);
        double median = time_product(b, &p, &best);
        limit = fmax(limit, measure_read(b, p.panels, all));
        double n = (double)(p.n_panels * p.panel_bytes);
        printf("%-6s %5zu x %5zu x %5zu  %7.1f GB/s   %5.1f %% (median)  %5.1f %% (best) of %.1f, "
               "%.0f us\n",
               kind->name, p.M, p.N, p.K, n / median, 100.0 * n / median / limit,
               100.0 * n / best / limit, limit, median * 1e-3);
        (void)fflush(stdout);
    }
    product_release(&p);
}

static bool find_kind(const struct bench *b, const char *name, struct kind *out)
{
    const struct kind known[] = {{"f32", &b->kernels.f32, &b->peak.f32, NULL},
                                 {"bf16", &b->kernels.bf16, &b->peak.bf16, NULL},
                                 {"i8", &b->kernels.i8, &b->peak.i8, NULL}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        *out = known[i];
        if (strcmp(name, out->name) == 0) return true;
    }
    for (int t = 0; t < SKV_DTYPE_COUNT; t++) {
        const skv_quant_form *form = skv_quant_form_of((skv_dtype)t);
        *out = (struct kind){skv_dtype_name((skv_dtype)t), &b->kernels.q, &b->peak.i8, form};
        if (!form || strcasecmp(name, out->name) != 0) continue;
        if (form->bits == 4) out->loop = &b->peak.i4;
        return true;
    }
    fprintf(stderr, "--kind %s: not a type of weights\n", name);
    return false;
}

static void bench_kind(struct bench *b, const struct kind *kind, bool decode_only)
{
    static const size_t shapes[][3] = {{64, 8192, 2048},  {512, 2048, 2048},  {512, 8192, 2048},
                                       {512, 2048, 8192}, {2048, 8192, 2048}, {512, 576, 576}};
    static const size_t few[] = {1, 2, 4, 6, 8};
    for (size_t j = 0; !decode_only && j < sizeof shapes / sizeof shapes[0]; j++) {
        if (!kind->form || shapes[j][2] % SKV_QUANT_SPAN == 0) bench_prompt(b, kind, shapes[j]);
    }
    for (size_t j = 0; j < sizeof few / sizeof few[0]; j++) bench_decode(b, kind, few[j]);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    const char *names[MAX_KINDS] = {"f32", "bf16", "i8", "q4_0", "q4_k", "q6_k"};
    bool decode_only = false;
    size_t n_threads = 0, n_kinds = 6, n_named = 0;
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    const skv_matmul_form *form = NULL;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--decode-only") == 0) {
            decode_only = true;
            continue;
        }
        if (strcmp(argv[i], "--cpu-clock") == 0) {
            b.cpu_clock = true;
            continue;
        }
        if (strcmp(argv[i], "--cpu") == 0 && !skv_matmul_form_parse(value, &level, &form)) return 2;
        if (strcmp(argv[i], "--threads") == 0) n_threads = (size_t)strtoul(value, NULL, 10);
        if (strcmp(argv[i], "--kc") == 0) b.kc = (size_t)strtoul(value, NULL, 10);
        if (strcmp(argv[i], "--kind") == 0 && n_named < MAX_KINDS) {
            names[n_named++] = value;
            n_kinds = n_named;
        }
        i++;
    }
    skv_error err = {0};
    if (skv_pool_create(n_threads, &b.pool, &err) != SKV_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    unsigned features = skv_cpu_detect();
    char name[128];
    skv_cpu_name(name, sizeof name);
    skv_kernels_init(&b.kernels, level, features);
    skv_peak_init(&b.peak, level, features);
    if (form) {
        b.kernels.bf16 = *form->bf16;
        b.kernels.i8 = *form->i8;
        if (form->q) b.kernels.q = *form->q;
    }
    printf("%s, %zu threads, level %s\n", name, skv_pool_threads(b.pool),
           form ? form->name : skv_cpu_level_name(b.kernels.level));
    printf("limits: f32 %.0f, bf16 %.0f, int8 %.0f, int4 %.0f GOP/s\n",
           measure_ops(&b, &b.peak.f32), measure_ops(&b, &b.peak.bf16), measure_ops(&b, &b.peak.i8),
           measure_ops(&b, &b.peak.i4));
    bool known = true;
    for (size_t i = 0; i < n_kinds && known; i++) {
        struct kind kind;
        known = find_kind(&b, names[i], &kind);
        if (known) bench_kind(&b, &kind, decode_only);
    }
    skv_pool_free(b.pool);
    return known ? 0 : 2;
}
