/*
 * How the work of a step is shared by 16 and 64 threads, which no machine here has: the engine cuts
 * the steps of whole models, a pool that is simulated hands the tasks to its threads, and kernels
 * that compute nothing count their work. Every thread has work, and the largest share is close to
 * the mean.
 *
 * With an argument the program writes a table: of all shapes, or of the pages of keys and values
 * that threads of two memory nodes read from the other one: test_shares table | nodes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/forms.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/kernels.h"
#include "kernels/logits.h"
#include "kernels/matmul.h"
#include "skv/skv.h"

enum {
    THREADS_MAX = 64,
    LIST_THREADS = 8, /* as in pool.c */
    CONTEXT = 1024,   /* tokens in front of the decoded ones */
    SEQUENCES_MAX = 64,
    NODES = 2,
    FIRST_NODE = 4,     /* the system's number of the first; the second has the next one */
    PAGES_MAX = 1 << 20 /* a power of two: places of a hash table */
};

/* What a run of the pool is for, by the kernel that has most of its work. */
typedef enum purpose { PRODUCTS, ATTENTION, ROWS, N_PURPOSES } purpose;

static const char *const purpose_names[] = {"products", "attention", "rows"};

/* Of a step: everything that runs on all threads, and alone. */
typedef struct totals {
    double work[N_PURPOSES];    /* cycles, all threads together */
    double longest[N_PURPOSES]; /* of the thread that ends last, over all runs */
    double fewest;              /* the smallest share of any thread in a run of products */
    double serial;              /* by the caller alone */
    size_t n_runs, n_idle;      /* and threads without work, in runs of more than a few cycles */
    size_t n_split;             /* written ranges that end within a cache line */
} totals;

/* What the wrappers write to: they get no pointer of ours. */
static struct {
    bool skipping; /* what the pool runs: weights are not packed, contexts are not computed */
    size_t n_threads;
    skv_cpu_level level;
    double done[N_PURPOSES]; /* since the last look */
    totals totals;
    size_t i_thread;          /* that runs now */
    size_t n_nodes;           /* that the engine finds; else pages are the first writer's */
    size_t n_reads, n_remote; /* pages */
    size_t n_placed;          /* ranges, of: */
    struct {
        uintptr_t first, end;
        unsigned node;
    } placed[NODES];
} sim;

/* Pages that were written, by address. */
static struct {
    const void *page;
    uint8_t first_node;
} written[PAGES_MAX];

static size_t node_of_thread(size_t i_thread)
{
    return i_thread * NODES / skv_max_size(1, sim.n_threads);
}

/* Where a page is in `written`, or would be. */
static size_t place_of(const void *page)
{
    size_t i = (uintptr_t)page / SKV_ALIGN * 2654435761U % PAGES_MAX;
    while (written[i].page && written[i].page != page) i = (i + 1) % PAGES_MAX;
    return i;
}

static size_t node_of_page(const void *page)
{
    for (size_t i = 0; i < sim.n_placed; i++) {
        const bool within =
            sim.placed[i].first <= (uintptr_t)page && (uintptr_t)page < sim.placed[i].end;
        if (within) return sim.placed[i].node - FIRST_NODE;
    }
    return written[place_of(page)].first_node;
}

/* Rows [row0, row1) of a head's cache are read. */
static void read_pages(const skv_attention *a, size_t row0, size_t row1)
{
    for (size_t p = row0 / SKV_PAGE_ROWS; p * SKV_PAGE_ROWS < row1; p++) {
        sim.n_reads++;
        sim.n_remote += node_of_page(a->pages[p]) != node_of_thread(sim.i_thread);
    }
}

/* ---- kernels that count cycles, about, of one core */

static void count(purpose what, double cycles)
{
    sim.done[what] += cycles;
}

/* Two threads may meet in the line where a range begins or ends. */
static void wrote(const void *at, size_t n_bytes)
{
    sim.totals.n_split += ((uintptr_t)at | n_bytes) % SKV_ALIGN != 0;
}

static void count_tile(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                       size_t K, size_t k0, size_t k1, unsigned mode)
{
    const bool half = mode & (SKV_TILE_LEFT | SKV_TILE_RIGHT);
    const size_t nr = half ? 32 : 64;
    if (mode & SKV_TILE_RIGHT) c += nr;
    const double rate = sim.level == SKV_CPU_LEVEL_AMX ? 256 : 128; /* multiply-adds a cycle */
    const double read = (double)(nr * (k1 - k0)) / 8.0;             /* bytes a cycle */
    const double work = (double)(m * nr * (k1 - k0)) / rate;
    (void)block;
    (void)panel;
    (void)K;
    wrote(c, nr * sizeof *c);
    wrote(c, ldc * sizeof *c);
    count(PRODUCTS, mode & SKV_TILE_PREFETCH && read > work ? read : work);
}

static void count_pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    (void)x;
    (void)ldx;
    wrote(block, SKV_ALIGN);
    count(PRODUCTS, (double)(m * K) / 4.0);
}

/* Rows of the cache that all query rows see together, and the panels of the pages. */
static void count_attention(const skv_attention *a, void *scratch)
{
    const double n = (double)a->n_q, past = (double)a->n_past;
    const double pairs = (double)a->n_group * (n * past + n * (n + 1) / 2);
    const double panels = a->n_q > 1 ? (past + n) * (double)a->head_dim / 8.0 : 0;
    (void)scratch;
    read_pages(a, 0, a->n_past + a->n_q);
    wrote(a->out, a->n_group * a->head_dim * sizeof *a->out);
    count(ATTENTION, pairs * (2.0 * (double)a->head_dim / 64.0 + 1.0) + panels);
}

static void count_part(const skv_attention *a, size_t row0, size_t row1, float *partial,
                       void *scratch)
{
    (void)scratch;
    read_pages(a, row0, row1);
    wrote(partial, 0); /* the rest of its last line is unused */
    count(ATTENTION,
          (double)(a->n_q * a->n_group * (row1 - row0)) * (2.0 * (double)a->head_dim / 64.0 + 1.0));
}

static void count_join(const skv_attention *a, const float *partials, size_t ld, size_t n_parts)
{
    (void)partials;
    (void)ld;
    count(ATTENTION, (double)(n_parts * a->n_group * a->head_dim) / 16.0);
}

static void count_norm(float *y, const float *x, const float *w, float w_offset, float eps,
                       size_t n)
{
    (void)y;
    (void)x;
    (void)w;
    (void)w_offset;
    (void)eps;
    count(ROWS, (double)n / 6.0);
}

static void count_rope(float *x, const float *cosine, const float *sine, size_t n_rot)
{
    (void)x;
    (void)cosine;
    (void)sine;
    count(ROWS, (double)n_rot / 6.0);
}

static void count_glu(float *h, const float *gate, const float *up, size_t n)
{
    (void)h;
    (void)gate;
    (void)up;
    count(PRODUCTS, (double)n / 2.0);
}

static void count_axpy(float *y, float a, const float *x, size_t n)
{
    (void)y;
    (void)a;
    (void)x;
    count(PRODUCTS, (double)n / 16.0);
}

static void count_store(void *page, skv_kv_type type, size_t row, const float *k, const float *v,
                        size_t head_dim)
{
    const size_t i = place_of(page);
    (void)type;
    (void)row;
    (void)k;
    (void)v;
    if (!written[i].page) {
        written[i].page = page;
        written[i].first_node = (uint8_t)node_of_thread(sim.i_thread);
    }
    count(ROWS, (double)head_dim / 2.0);
}

static void count_from_bf16(float *y, const uint16_t *x, size_t n)
{
    (void)y;
    (void)x;
    count(ROWS, (double)n / 8.0);
}

static void replace_product(skv_matmul *mm)
{
    mm->tile = count_tile;
    mm->pack_x = count_pack_x;
    mm->finish = NULL;
}

void __real_skv_kernels_init(skv_kernels *k, skv_cpu_level level, unsigned features);
void __wrap_skv_kernels_init(skv_kernels *k, skv_cpu_level level, unsigned features);

/* The shapes of a level that this processor need not have, since none of its instructions runs. */
void __wrap_skv_kernels_init(skv_kernels *k, skv_cpu_level level, unsigned features)
{
    (void)level;
    (void)features;
    __real_skv_kernels_init(k, sim.level,
                            SKV_CPU_AVX2 | SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI |
                                SKV_CPU_AVX512_BF16 | SKV_CPU_AMX);
    k->logits = skv_logits_ref;
    replace_product(&k->i8);
    replace_product(&k->bf16);
    k->attention = count_attention;
    k->attention_part = count_part;
    k->attention_join = count_join;
    k->rmsnorm = count_norm;
    k->rope = count_rope;
    k->silu_glu = count_glu;
    k->axpy = count_axpy;
    k->kv_store = count_store;
    k->from_bf16 = count_from_bf16;
}

const skv_matmul_form *__wrap_skv_matmul_forms(skv_cpu_level level, size_t *n);

/* None, as an engine would time them by running them. */
const skv_matmul_form *__wrap_skv_matmul_forms(skv_cpu_level level, size_t *n)
{
    (void)level;
    *n = 0;
    return NULL;
}

size_t __wrap_skv_memory_available(void);

size_t __wrap_skv_memory_available(void)
{
    return (size_t)1 << 42; /* what nobody writes takes none */
}

void __wrap_skv_nodes_find(const char *root, const skv_processor_set *allowed, skv_nodes *out);
bool __wrap_skv_pages_place(void *at, size_t n_bytes, unsigned node);
bool __wrap_skv_memory_has_policy(void);
double __wrap_skv_form_halves_ratio(const skv_matmul *mm, skv_pool *pool,
                                    const skv_form_clock *clock);

/* Two nodes of as many processors. */
void __wrap_skv_nodes_find(const char *root, const skv_processor_set *allowed, skv_nodes *out)
{
    (void)root;
    (void)allowed;
    *out = (skv_nodes){.n = sim.n_nodes,
                       .number = {FIRST_NODE, FIRST_NODE + 1},
                       .n_processors = {THREADS_MAX / 2, THREADS_MAX / 2}};
}

bool __wrap_skv_pages_place(void *at, size_t n_bytes, unsigned node)
{
    if (n_bytes == 0) return true;
    assert_true(sim.n_placed < NODES);
    sim.placed[sim.n_placed].first = (uintptr_t)at;
    sim.placed[sim.n_placed].end = (uintptr_t)at + n_bytes;
    sim.placed[sim.n_placed++].node = node;
    return true;
}

bool __wrap_skv_memory_has_policy(void)
{
    return false;
}

/* Halves are taken. */
double __wrap_skv_form_halves_ratio(const skv_matmul *mm, skv_pool *pool,
                                    const skv_form_clock *clock)
{
    (void)mm;
    (void)pool;
    (void)clock;
    return 0.5;
}

/* ---- the pool: threads claim from lists as those of pool.c do, the one with least work first */

size_t __wrap_skv_pool_threads(const skv_pool *pool);

size_t __wrap_skv_pool_threads(const skv_pool *pool)
{
    (void)pool;
    return sim.n_threads;
}

/* Tasks of each group of threads: one for each node, or one in all. */
typedef struct lists {
    size_t n_groups, n, step; /* n lists of each */
    size_t next[THREADS_MAX + NODES], end[THREADS_MAX + NODES];
} lists;

static lists deal(const size_t *first, size_t n_groups, bool in_stretches)
{
    const size_t n_near = skv_ceil_div(sim.n_threads, n_groups);
    lists l = {.n_groups = n_groups,
               .n = in_stretches ? sim.n_threads : skv_ceil_div(n_near, LIST_THREADS)};
    l.step = in_stretches ? 1 : l.n;
    for (size_t i = 0; i < l.n * n_groups; i++) {
        const size_t at = first[i / l.n], n = first[i / l.n + 1] - at, j = i % l.n;
        l.next[i] = at + (in_stretches ? n * j / l.n : j);
        l.end[i] = at + (in_stretches ? n * (j + 1) / l.n : n);
    }
    return l;
}

/* The next task of a thread; false: there is none. */
static bool claim(lists *l, size_t i_thread, size_t *i_task)
{
    const size_t n_threads = skv_max_size(1, sim.n_threads);
    const size_t group = l->n_groups > 1 ? node_of_thread(i_thread) : 0;
    const size_t own = l->n_groups > 1 ? i_thread % l->n : i_thread * l->n / n_threads;
    for (size_t k = 0; k < l->n * l->n_groups; k++) {
        const size_t i = (group + k / l->n) % l->n_groups * l->n + (own + k) % l->n;
        if (l->next[i] >= l->end[i]) continue;
        *i_task = l->next[i];
        l->next[i] += l->step;
        return true;
    }
    return false;
}

static double take_done(double by_purpose[N_PURPOSES])
{
    double sum = 0;
    for (size_t p = 0; p < N_PURPOSES; p++) {
        by_purpose[p] += sim.done[p];
        sum += sim.done[p];
        sim.done[p] = 0;
    }
    return sum;
}

static void take_serial(void)
{
    double unused[N_PURPOSES] = {0};
    sim.totals.serial += take_done(unused);
}

static void add_run(const double *clocks, const double *work)
{
    totals *t = &sim.totals;
    double longest = 0, all = 0, least = clocks[0];
    size_t what = 0, idle = 0;
    for (size_t p = 1; p < N_PURPOSES; p++) {
        if (work[p] > work[what]) what = p;
    }
    for (size_t i = 0; i < sim.n_threads; i++) {
        all += clocks[i];
        longest = clocks[i] > longest ? clocks[i] : longest;
        least = clocks[i] < least ? clocks[i] : least;
        idle += clocks[i] == 0;
    }
    t->n_runs++;
    t->work[what] += all;
    t->longest[what] += longest;
    if (all > 1e5) t->n_idle += idle;
}

static void simulate(lists l, skv_task_fn *fn, void *arg)
{
    double clocks[THREADS_MAX] = {0}, work[N_PURPOSES] = {0};
    bool done[THREADS_MAX] = {false};
    for (size_t left = sim.n_threads; left > 0;) {
        size_t i_thread = THREADS_MAX, i_task = 0;
        for (size_t i = 0; i < sim.n_threads; i++) {
            if (done[i] || (i_thread < THREADS_MAX && clocks[i_thread] <= clocks[i])) continue;
            i_thread = i;
        }
        if (!claim(&l, i_thread, &i_task)) {
            done[i_thread] = true;
            left--;
            continue;
        }
        sim.i_thread = i_thread;
        fn(arg, i_task, i_thread);
        clocks[i_thread] += take_done(work);
    }
    sim.i_thread = 0;
    add_run(clocks, work);
}

static void run(const size_t *first, size_t n_groups, skv_task_fn *fn, void *arg, bool in_stretches)
{
    const size_t n_tasks = first[n_groups];
    if (sim.skipping) return;
    take_serial();
    if (n_tasks > 1) {
        simulate(deal(first, n_groups, in_stretches), fn, arg);
        return;
    }
    if (n_tasks == 1) fn(arg, 0, 0);
    take_serial();
}

void __wrap_skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg);
void __wrap_skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg);
void __wrap_skv_pool_run_nodes(skv_pool *pool, const size_t *first, skv_task_fn *fn, void *arg);

void __wrap_skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    (void)pool;
    run((const size_t[]){0, n_tasks}, 1, fn, arg, false);
}

void __wrap_skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    (void)pool;
    run((const size_t[]){0, n_tasks}, 1, fn, arg, true);
}

void __wrap_skv_pool_run_nodes(skv_pool *pool, const size_t *first, skv_task_fn *fn, void *arg)
{
    run(first, skv_pool_nodes(pool)->n, fn, arg, false);
}

/* ---- steps */

static void ignore(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)user;
    (void)i_span;
    (void)i_token;
    (void)logits;
}

static skv_engine *open_engine(const char *preset, skv_cpu_level level, size_t n_threads)
{
    skv_engine_options options = skv_engine_options_default();
    sim.n_threads = n_threads;
    sim.level = level;
    sim.skipping = true;
    sim.n_nodes = skv_max_size(1, sim.n_nodes);
    sim.n_placed = 0;
    options.threads = 1; /* of the pool that is not used */
    options.weights = SKV_WEIGHTS_INT8;
    options.step_tokens = 2048;
    options.context = 4096;
    options.kv_tokens = SEQUENCES_MAX * (CONTEXT + 64);
    skv_engine *engine = NULL;
    skv_error err;
    const skv_status status = skv_engine_open_preset(preset, &options, &engine, &err);
    if (status == SKV_MEMORY) skip(); /* a system that counts pages which nobody writes */
    if (status != SKV_OK) fail_msg("%s", err.text);
    sim.skipping = false;
    return engine;
}

static totals step(skv_engine *engine, const skv_span *spans, size_t n)
{
    sim.totals = (totals){0};
    memset(sim.done, 0, sizeof sim.done);
    skv_error err;
    if (skv_step(engine, spans, n, ignore, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
    take_serial();
    return sim.totals;
}

static totals prompt(skv_engine *engine, size_t n_tokens)
{
    static const int32_t ids[2048];
    skv_sequence *s;
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    const totals t = step(engine, &(skv_span){s, ids, n_tokens, SKV_WANT_LAST}, 1);
    skv_sequence_free(s);
    return t;
}

static totals decoding(skv_engine *engine, size_t n_sequences)
{
    static const int32_t ids[CONTEXT];
    skv_sequence *s[SEQUENCES_MAX];
    skv_span spans[SEQUENCES_MAX] = {0};
    for (size_t i = 0; i < n_sequences; i++) {
        assert_int_equal(skv_sequence_create(engine, 0, &s[i], NULL), SKV_OK);
        sim.skipping = true;
        (void)step(engine, &(skv_span){s[i], ids, CONTEXT, SKV_WANT_NONE}, 1);
        sim.skipping = false;
        spans[i] = (skv_span){s[i], ids, 1, SKV_WANT_LAST};
    }
    const totals t = step(engine, spans, n_sequences);
    for (size_t i = 0; i < n_sequences; i++) skv_sequence_free(s[i]);
    return t;
}

/* The largest share of a purpose, in times of the mean. */
static double uneven(const totals *t, purpose p)
{
    return t->work[p] > 0 ? t->longest[p] * (double)sim.n_threads / t->work[p] : 1;
}

/* The time that is not shared, of all that one thread takes: Amdahl's share. */
static double serial_share(const totals *t)
{
    double all = t->serial;
    for (size_t p = 0; p < N_PURPOSES; p++) all += t->work[p];
    return t->serial / all;
}

/* How many times as fast as one thread. */
static double speedup(const totals *t)
{
    double all = t->serial, time = t->serial;
    for (size_t p = 0; p < N_PURPOSES; p++) {
        all += t->work[p];
        time += t->longest[p];
    }
    return all / time;
}

static void tell(const char *what, const totals *t)
{
    printf("| %s |", what);
    for (size_t p = 0; p < N_PURPOSES; p++) printf(" %.2f |", uneven(t, (purpose)p));
    printf(" %.3f %% | %.1f | %zu | %zu |\n", 100 * serial_share(t), speedup(t), t->n_idle,
           t->n_split);
}

static void write_table(void)
{
    const char *const models[] = {"llama-3.2-1b", "llama-3.1-8b"};
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_AMX};
    printf("| step | %s | %s | %s | alone | times one | idle | split |\n", purpose_names[0],
           purpose_names[1], purpose_names[2]);
    for (size_t i = 0; i < 2 * 2 * 2; i++) {
        const size_t n_threads = i & 1 ? 64 : 16;
        skv_engine *engine = open_engine(models[i / 4], levels[i / 2 % 2], n_threads);
        char what[128];
        for (size_t j = 0; j < 5; j++) {
            const size_t n = ((size_t[]){512, 2048, 1, 8, 64})[j];
            const totals t = j < 2 ? prompt(engine, n) : decoding(engine, n);
            (void)snprintf(what, sizeof what, "%s, %s, %zu threads, %s %zu", models[i / 4],
                           skv_cpu_level_name(sim.level), n_threads, j < 2 ? "prompt" : "decoding",
                           n);
            tell(what, &t);
        }
        skv_engine_close(engine);
    }
}

static void check(const totals *t, double most_of_products)
{
    assert_true(uneven(t, PRODUCTS) <= most_of_products);
    assert_true(uneven(t, ATTENTION) <= 1.1);
    assert_true(uneven(t, ROWS) <= 1.1);
    assert_int_equal(t->n_split, 0);
}

static void check_model(const char *preset, skv_cpu_level level, size_t n_threads,
                        double most_of_few)
{
    skv_engine *engine = open_engine(preset, level, n_threads);
    const size_t lengths[] = {512, 2048}, batches[] = {1, 8, 64};
    for (size_t i = 0; i < 2; i++) {
        const totals t = prompt(engine, lengths[i]);
        check(&t, 1.1);
        assert_true(serial_share(&t) < 1e-4);
        assert_true(speedup(&t) >= 13.0 / 16 * (double)n_threads);
    }
    for (size_t i = 0; i < 3; i++) {
        const totals t = decoding(engine, batches[i]);
        check(&t, most_of_few);
        assert_true(serial_share(&t) < 5e-3);
    }
    skv_engine_close(engine);
}

/* Pages read from the other node, of all, by a step behind a prompt of CONTEXT tokens and n_steps
 * answered ones, whose pages were written in the simulation, too. */
static double remote_share(skv_engine *engine, size_t n_sequences, size_t n_tokens, size_t n_steps,
                           totals *t)
{
    static const int32_t ids[CONTEXT];
    skv_sequence *s[SEQUENCES_MAX];
    skv_span spans[SEQUENCES_MAX] = {0};
    memset(written, 0, sizeof written);
    for (size_t i = 0; i < n_sequences; i++) {
        assert_int_equal(skv_sequence_create(engine, 0, &s[i], NULL), SKV_OK);
        (void)step(engine, &(skv_span){s[i], ids, CONTEXT, SKV_WANT_NONE}, 1);
        spans[i] = (skv_span){s[i], ids, n_tokens, SKV_WANT_LAST};
    }
    for (size_t i = 0; i < n_steps; i++) (void)step(engine, spans, n_sequences);
    sim.n_reads = sim.n_remote = 0;
    *t = step(engine, spans, n_sequences);
    for (size_t i = 0; i < n_sequences; i++) skv_sequence_free(s[i]);
    return (double)sim.n_remote / (double)sim.n_reads;
}

static void tell_nodes(skv_engine *engine, const char *what, size_t n_sequences, size_t n_tokens)
{
    totals t;
    const double remote =
        remote_share(engine, n_sequences, n_tokens, n_tokens == 1 ? CONTEXT / 2 : 0, &t);
    printf("| %s | %s | %zu | %.1f %% | %.2f |\n", what,
           sim.n_nodes > 1 ? "by node" : "as first written", sim.n_reads, 100 * remote,
           uneven(&t, ATTENTION));
}

/* 64 threads on two nodes. */
static void write_nodes(void)
{
    printf("| step | tasks and pages | pages read | from the other node | attention |\n");
    for (sim.n_nodes = 1; sim.n_nodes <= NODES; sim.n_nodes++) {
        skv_engine *engine = open_engine("llama-3.2-1b", SKV_CPU_LEVEL_AVX512, 64);
        tell_nodes(engine, "512 tokens behind 1024", 1, 512);
        tell_nodes(engine, "decoding 1 behind 1536", 1, 1);
        tell_nodes(engine, "decoding 8 behind 1536", 8, 1);
        skv_engine_close(engine);
    }
}

/* The shapes are those of levels for x86-64. */
static void need_levels(void)
{
#if !defined(__x86_64__)
    skip();
#endif
}

/* With two nodes each has half of the pages, and threads read those of their own. */
static void test_two_nodes(void **state)
{
    (void)state;
    need_levels();
    totals t;
    sim.n_nodes = NODES;
    skv_engine *engine = open_engine("llama-3.2-1b", SKV_CPU_LEVEL_AVX512, 64);
    assert_int_equal(sim.n_placed, NODES);
    assert_int_equal(sim.placed[0].node, FIRST_NODE);
    assert_int_equal(sim.placed[1].node, FIRST_NODE + 1);
    assert_true(sim.placed[0].end == sim.placed[1].first);
    assert_true(remote_share(engine, 1, 512, 0, &t) < 0.05);
    assert_true(uneven(&t, ATTENTION) <= 1.15);
    assert_true(remote_share(engine, 1, 1, 4, &t) < 0.16);
    assert_true(remote_share(engine, 8, 1, 4, &t) < 0.01);
    assert_true(uneven(&t, ATTENTION) <= 1.05);
    skv_engine_close(engine);
    sim.n_nodes = 1;
}

static void test_16_threads(void **state)
{
    (void)state;
    need_levels();
    check_model("llama-3.2-1b", SKV_CPU_LEVEL_AVX512, 16, 1.1);
    check_model("llama-3.2-1b", SKV_CPU_LEVEL_AMX, 16, 1.1);
    check_model("llama-3.1-8b", SKV_CPU_LEVEL_AMX, 16, 1.1);
}

static void test_64_threads(void **state)
{
    (void)state;
    need_levels();
    check_model("llama-3.2-1b", SKV_CPU_LEVEL_AVX512, 64, 1.1);
    check_model("llama-3.2-1b", SKV_CPU_LEVEL_AMX, 64, 1.5); /* 64 rows are two blocks */
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        (strcmp(argv[1], "nodes") == 0 ? write_nodes : write_table)();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_16_threads),
        cmocka_unit_test(test_64_threads),
        cmocka_unit_test(test_two_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
