/* What the machine can do: the kernels' peak loops on every thread. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "kernels/cpu.h"
#include "kernels/peak.h"
#include "skv/tools.h"

enum { READ_BYTES_A_THREAD = 128 << 20, READ_TIMES = 8, TRIES = 4 };

typedef struct peak_job {
    const skv_peak_loop *loop; /* NULL: read */
    skv_peak_read_fn *read;
    size_t n_rounds;
    unsigned char *memory;          /* [n_threads][READ_BYTES_A_THREAD] */
    float (*data)[SKV_PEAK_FLOATS]; /* [n_threads] */
} peak_job;

static void run_peak(void *arg, size_t i_task, size_t i_thread)
{
    const peak_job *job = arg;
    (void)i_thread;
    float *data = job->data[i_task];
    if (job->loop) {
        for (size_t i = 0; i < SKV_PEAK_FLOATS; i++) data[i] = 0.001f * (float)(i + 1);
        job->loop->run(data, job->n_rounds);
        return;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < READ_TIMES; i++) {
        sum += job->read(job->memory + i_task * READ_BYTES_A_THREAD, READ_BYTES_A_THREAD);
    }
    data[0] = (float)sum;
}

static double seconds_of(skv_pool *pool, peak_job *job)
{
    uint64_t start = skv_clock_ns();
    skv_pool_run(pool, skv_pool_threads(pool), run_peak, job);
    return (double)(skv_clock_ns() - start) * 1e-9;
}

/* Operations a second, in 10^9: the best of some tries of about 50 ms. */
static double measure_loop(skv_pool *pool, peak_job *job, const skv_peak_loop *loop)
{
    job->loop = loop;
    job->n_rounds = 1000;
    double seconds = seconds_of(pool, job), best = 0;
    while (seconds < 0.02) {
        job->n_rounds *= 4;
        seconds = seconds_of(pool, job);
    }
    job->n_rounds = (size_t)((double)job->n_rounds * 0.05 / seconds) + 1;
    for (int i = 0; i < TRIES; i++) {
        double ops = (double)job->n_rounds * loop->ops * (double)skv_pool_threads(pool);
        best = fmax(best, ops / seconds_of(pool, job) * 1e-9);
    }
    return best;
}

static double measure_read(skv_pool *pool, peak_job *job)
{
    double best = 0;
    double n_bytes = (double)READ_BYTES_A_THREAD * READ_TIMES * (double)skv_pool_threads(pool);
    job->loop = NULL;
    for (int i = 0; i < TRIES; i++) best = fmax(best, n_bytes / seconds_of(pool, job) * 1e-9);
    return best;
}

/* Memory to read and operands for every thread. */
static skv_status take_memory(peak_job *job, size_t n_threads, skv_error *err)
{
    size_t n_bytes = n_threads * READ_BYTES_A_THREAD;
    job->memory = skv_map_zero(n_bytes);
    job->data = skv_alloc_aligned(n_threads, sizeof *job->data);
    SKV_REQUIRE(job->memory && job->data, err, SKV_MEMORY, "peak: no memory for %zu bytes",
                n_bytes);
    /* Untouched pages would all be the one page of zeros. */
    for (size_t i = 0; i < n_bytes; i += 4096) job->memory[i] = (unsigned char)i;
    return SKV_OK;
}

static void release_memory(peak_job *job, size_t n_threads)
{
    skv_unmap(job->memory, n_threads * READ_BYTES_A_THREAD);
    skv_free(job->data);
}

skv_status skv_peak_measure(size_t threads, const char *cpu, skv_peak *out, skv_error *err)
{
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    SKV_REQUIRE(!cpu || skv_cpu_level_parse(cpu, &level), err, SKV_ARGUMENT,
                "cpu: unknown level \"%s\"", cpu);
    unsigned features = skv_cpu_detect();
    SKV_REQUIRE(skv_cpu_level_runs(level, features), err, SKV_UNSUPPORTED,
                "cpu: this processor does not run %s", cpu);
    if (level == SKV_CPU_LEVEL_REF) features = 0;
    if (level == SKV_CPU_LEVEL_AVX2) features &= SKV_CPU_AVX2;
    skv_pool *pool;
    SKV_TRY(skv_pool_create(threads, &pool, err));
    skv_peak_loops loops;
    skv_peak_init(&loops, features);
    peak_job job = {.read = loops.read};
    skv_status status = take_memory(&job, skv_pool_threads(pool), err);
    if (status == SKV_OK) {
        *out = (skv_peak){.threads = skv_pool_threads(pool)};
        out->f32_gflops = measure_loop(pool, &job, &loops.f32);
        out->bf16_gflops = measure_loop(pool, &job, &loops.bf16);
        out->int8_gops = measure_loop(pool, &job, &loops.i8);
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
    skv_peak_init(&loops, skv_cpu_detect());
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

uint64_t skv_now_ns(void)
{
    return skv_clock_ns();
}
