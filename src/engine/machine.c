/* The machine's limits: the kernels' peak loops on every thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/forms.h"
#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/system.h"
#include "kernels/cpu.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "skv/tools.h"

enum { READ_BYTES_A_THREAD = 128 << 20, READ_TIMES = 8, READ_TRIES = 4, LOOP_TRIES = 60 };

/* How far skv_peak_measure is: a part is a loop, or a try of reading. */
typedef struct peak_watch {
    void (*progress)(void *user, double share); /* may be NULL */
    void *user;
    int n_done;
} peak_watch;
enum { PEAK_LOOPS = 4, PEAK_PARTS = PEAK_LOOPS + READ_TRIES };

typedef struct peak_job {
    const skv_peak_loop *loop; /* NULL: read */
    skv_peak_read_fn *read;
    unsigned char *memory; /* [n_threads][READ_BYTES_A_THREAD] */
    double *results;       /* [n_threads]: operations a second, or bytes read */
    peak_watch watch;
} peak_job;

static void tell(peak_watch *watch)
{
    watch->n_done++;
    if (watch->progress) watch->progress(watch->user, (double)watch->n_done / PEAK_PARTS);
}

/* Time for which this thread had a processor. */
static double thread_seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Operations a second of this thread: the best of many tries of more than 2 ms. Its own time
 * counts, so that a limit is not halved where other work has a processor or two threads share one.
 */
static double thread_rate(const skv_peak_loop *loop)
{
    float operand[SKV_PEAK_BYTES / sizeof(float)];
    for (size_t i = 0; i < sizeof operand / sizeof *operand; i++) {
        operand[i] = 0.001f * (float)(i + 1);
    }
    double best = 0;
    size_t n_rounds = 1000;
    for (int i = 0; i < LOOP_TRIES;) {
        double start = thread_seconds();
        (void)loop->run(operand, operand, n_rounds);
        double seconds = thread_seconds() - start;
        if (seconds < 0.002) {
            n_rounds *= 2;
            continue;
        }
        best = fmax(best, (double)n_rounds * skv_peak_ops(loop) / seconds);
        i++;
    }
    return best;
}

static void run_peak(void *arg, size_t i_task, size_t i_thread)
{
    const peak_job *job = arg;
    (void)i_thread;
    if (job->loop) {
        job->results[i_task] = thread_rate(job->loop);
        return;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < READ_TIMES; i++) {
        sum += job->read(job->memory + i_task * READ_BYTES_A_THREAD, READ_BYTES_A_THREAD);
    }
    job->results[i_task] = (double)sum;
}

static double seconds_of(skv_pool *pool, peak_job *job)
{
    uint64_t start = skv_clock_ns();
    skv_pool_run(pool, skv_pool_threads(pool), run_peak, job);
    return (double)(skv_clock_ns() - start) * 1e-9;
}

/* Operations a second, in 10^9: the sum over all threads. */
static double measure_loop(skv_pool *pool, peak_job *job, const skv_peak_loop *loop)
{
    double sum = 0;
    job->loop = loop;
    skv_pool_run(pool, skv_pool_threads(pool), run_peak, job);
    for (size_t i = 0; i < skv_pool_threads(pool); i++) sum += job->results[i];
    tell(&job->watch);
    return sum * 1e-9;
}

static double measure_read(skv_pool *pool, peak_job *job)
{
    double best = 0;
    double n_bytes = (double)READ_BYTES_A_THREAD * READ_TIMES * (double)skv_pool_threads(pool);
    job->loop = NULL;
    for (int i = 0; i < READ_TRIES; i++) {
        best = fmax(best, n_bytes / seconds_of(pool, job) * 1e-9);
        tell(&job->watch);
    }
    return best;
}

/* Memory to read and operands for every thread. */
static skv_status take_memory(peak_job *job, size_t n_threads, skv_error *err)
{
    size_t n_bytes = n_threads * READ_BYTES_A_THREAD;
    job->memory = skv_map_zero(n_bytes);
    job->results = skv_alloc(n_threads, sizeof *job->results);
    SKV_REQUIRE(job->memory && job->results, err, SKV_MEMORY, "peak: no memory for %zu bytes",
                n_bytes);
    /* Untouched pages would all be the one page of zeros. */
    for (size_t i = 0; i < n_bytes; i += 4096) job->memory[i] = (unsigned char)i;
    return SKV_OK;
}

static void release_memory(peak_job *job, size_t n_threads)
{
    skv_unmap(job->memory, n_threads * READ_BYTES_A_THREAD);
    skv_free(job->results);
}

skv_status skv_peak_measure(size_t threads, const char *cpu,
                            void (*progress)(void *user, double share), void *user, skv_peak *out,
                            skv_error *err)
{
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    SKV_REQUIRE(!cpu || skv_matmul_form_parse(cpu, &level, NULL), err, SKV_ARGUMENT,
                "cpu: unknown level \"%s\"", cpu);
    unsigned features = skv_cpu_verified();
    SKV_REQUIRE(skv_cpu_level_runs(level, features), err, SKV_UNSUPPORTED,
                "cpu: this processor does not run %s", cpu);
    skv_pool *pool;
    SKV_TRY(skv_pool_create(threads, &pool, err));
    skv_peak_loops loops;
    skv_peak_init(&loops, level, features);
    peak_job job = {.read = loops.read, .watch = {.progress = progress, .user = user}};
    skv_status status = take_memory(&job, skv_pool_threads(pool), err);
    if (status == SKV_OK) {
        *out = (skv_peak){.threads = skv_pool_threads(pool),
                          .f32_with = loops.f32.instructions,
                          .bf16_with = loops.bf16.instructions,
                          .int8_with = loops.i8.instructions,
                          .int4_with = loops.i4.instructions};
        out->f32_gflops = measure_loop(pool, &job, &loops.f32);
        out->bf16_gflops = measure_loop(pool, &job, &loops.bf16);
        out->int8_gops = measure_loop(pool, &job, &loops.i8);
        out->int4_gops = measure_loop(pool, &job, &loops.i4);
        out->read_gbs = measure_read(pool, &job);
        skv_cpu_name(out->cpu, sizeof out->cpu);
    }
    release_memory(&job, skv_pool_threads(pool));
    skv_pool_free(pool);
    return status;
}

skv_status skv_read_measure(size_t threads, double *gbs, skv_error *err)
{
    skv_pool *pool;
    SKV_TRY(skv_pool_create(threads, &pool, err));
    skv_peak_loops loops;
    skv_peak_init(&loops, SKV_CPU_LEVEL_BEST, skv_cpu_verified());
    peak_job job = {.read = loops.read};
    skv_status status = take_memory(&job, skv_pool_threads(pool), err);
    if (status == SKV_OK) *gbs = measure_read(pool, &job);
    release_memory(&job, skv_pool_threads(pool));
    skv_pool_free(pool);
    return status;
}

size_t skv_peak_rss(void)
{
    return skv_memory_peak();
}

void skv_machine_describe(skv_machine *out)
{
    static const skv_cpu_level levels[] = {SKV_CPU_LEVEL_REF,     SKV_CPU_LEVEL_AVX2,
                                           SKV_CPU_LEVEL_AVXVNNI, SKV_CPU_LEVEL_AVX512,
                                           SKV_CPU_LEVEL_AMX,     SKV_CPU_LEVEL_NEON};
    const unsigned features = skv_cpu_detect();
    *out = (skv_machine){.threads = skv_processors_allowed(),
                         .processors = skv_processors_affinity(pthread_self()),
                         .quota = skv_processors_quota(),
                         .memory_available = skv_memory_available()};
    out->level = skv_cpu_level_name(skv_cpu_level_clamp(SKV_CPU_LEVEL_BEST, features));
    skv_cpu_name(out->cpu, sizeof out->cpu);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        /* Those that no processor of this kind has are of another build. */
        if (skv_cpu_level_clamp(levels[i], ~0U) != levels[i]) continue;
        out->levels[out->n_levels] = skv_cpu_level_name(levels[i]);
        out->runs[out->n_levels++] = skv_cpu_level_runs(levels[i], features);
    }
}

/* The forms of a level's products that an engine would choose from, and the one that it would take
 * now. */
static void check_forms(skv_cpu_level level, unsigned features, skv_product_check *out)
{
    size_t n, n_plain = 0, used = 0;
    double q_ratios[SKV_FORMS_MAX];
    skv_kernels k;
    const skv_matmul_form *forms = skv_matmul_forms(level, &n);
    skv_form_times times;
    if (n == 0) return;
    skv_kernels_init(&k, level, features);
    const skv_form_clock clock = skv_form_clock_start();
    /* Those behind them have the products of one of these. */
    while (n_plain < n && !forms[n_plain].attention && !forms[n_plain].q) n_plain++;
    skv_forms_time(forms, n_plain, &clock, &times);
    const size_t i_form = skv_forms_choose(forms, skv_forms_timed(forms, n), &times);
    const size_t i_q = skv_forms_choose_q(forms, n, &k.q, &clock, q_ratios);
    (void)snprintf(out->form, sizeof out->form, "%s, %s", forms[i_form].name,
                   i_q < n ? forms[i_q].name : "without amx-q");
    for (size_t i = 0; i < n && used < sizeof out->forms; i++) {
        if (forms[i].attention) continue; /* which is not timed */
        const double ratio = forms[i].q ? q_ratios[i] : skv_form_ratio(&times, i);
        used += (size_t)snprintf(out->forms + used, sizeof out->forms - used, "%s%s %.2f",
                                 i > 0 ? ", " : "", forms[i].name, ratio);
    }
}

void skv_machine_check(const skv_machine *machine, skv_product_check *out)
{
    const unsigned features = skv_cpu_detect(), verified = skv_cpu_verified();
    *out = (skv_product_check){0};
    skv_cpu_features_text(features, out->features, sizeof out->features);
    skv_cpu_features_text(features & ~verified, out->refused, sizeof out->refused);
    for (size_t i = 0; i < machine->n_levels; i++) {
        skv_cpu_level level;
        skv_kernels k;
        if (!machine->runs[i] || !skv_cpu_level_parse(machine->levels[i], &level)) continue;
        skv_kernels_init(&k, level, features);
        out->f32[i] = skv_matmul_is_exact(&k.f32);
        out->bf16[i] = skv_matmul_is_exact(&k.bf16);
        out->int8[i] = skv_matmul_is_exact(&k.i8);
    }
    check_forms(skv_cpu_level_clamp(SKV_CPU_LEVEL_BEST, verified), verified, out);
}

size_t skv_processors_quota(void)
{
    return skv_processors_of_groups("");
}
