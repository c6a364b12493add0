/* A thread pool: see pool.h. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/size.h"

enum { MAX_THREADS = 1024, SPINS = 4000 };

/* Tasks that one thread begins with; others take from it when theirs are done. */
typedef struct stretch {
    _Alignas(64) atomic_size_t next;
    size_t end;
} stretch;

/*
 * A run is published by raising `generation`. Every worker takes part in every run: it takes
 * tasks until none is left and then counts itself in `n_done`. The caller returns when all
 * have, so `fn` and `arg` are never read after the run they belong to.
 */
struct skv_pool {
    size_t n_threads;
    pthread_t *threads; /* owned, n_threads - 1 */
    struct worker *workers;
    _Alignas(64) atomic_ulong generation;
    _Alignas(64) atomic_size_t n_done; /* workers that finished this generation */
    stretch *stretches;                /* owned, [n_threads] */
    size_t n_stretches;                /* of this run: one for all threads, or one for each */
    skv_task_fn *fn;
    void *arg;
    pthread_mutex_t mutex; /* guards the sleepers only */
    pthread_cond_t wake;
    atomic_size_t n_asleep;
    atomic_bool stop;
};

struct worker {
    skv_pool *pool;
    size_t i_thread;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(skv_pool *pool, size_t i_thread)
{
    for (size_t k = 0; k < pool->n_stretches; k++) {
        stretch *s = &pool->stretches[(i_thread + k) % pool->n_stretches];
        for (;;) {
            size_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (i >= s->end) break;
            pool->fn(pool->arg, i, i_thread);
        }
    }
}

/* Waits until generation differs from `seen`: some spins, then sleep. */
static unsigned long wait_for_run(skv_pool *pool, unsigned long seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned long now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen) return now;
        pause_cpu();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_asleep, 1);
    unsigned long now;
    while ((now = atomic_load(&pool->generation)) == seen) {
        pthread_cond_wait(&pool->wake, &pool->mutex);
    }
    atomic_fetch_sub(&pool->n_asleep, 1);
    pthread_mutex_unlock(&pool->mutex);
    return now;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    skv_pool *pool = worker->pool;
    unsigned long seen = 0;
    for (;;) {
        seen = wait_for_run(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        work(pool, worker->i_thread);
        atomic_fetch_add_explicit(&pool->n_done, 1, memory_order_release);
    }
}

/* Publishes a new generation. Sequentially consistent against n_asleep: either the worker sees
 * the new generation before it sleeps, or we see that it sleeps and wake it. */
static void publish(skv_pool *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->n_asleep) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

static void run(skv_pool *pool, size_t n_tasks, size_t n_stretches, skv_task_fn *fn, void *arg)
{
    if (pool->n_threads == 1 || n_tasks <= 1) {
        for (size_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->n_stretches = n_stretches;
    for (size_t i = 0; i < n_stretches; i++) {
        stretch *s = &pool->stretches[i];
        atomic_store_explicit(&s->next, n_tasks * i / n_stretches, memory_order_relaxed);
        s->end = n_tasks * (i + 1) / n_stretches;
    }
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    publish(pool);
    work(pool, 0);
    for (int i = 0; atomic_load_explicit(&pool->n_done, memory_order_acquire) < pool->n_threads - 1;
         i++) {
        if (i < SPINS) {
            pause_cpu();
        } else {
            (void)sched_yield();
        }
    }
}

void skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run(pool, n_tasks, 1, fn, arg);
}

void skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run(pool, n_tasks, pool->n_threads, fn, arg);
}

static size_t processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return skv_max_size(1, (size_t)CPU_COUNT(&set));
}

/* Starts the threads; on failure the ones already running are joined by skv_pool_free. */
static skv_status start_threads(skv_pool *pool, size_t n_threads, skv_error *err)
{
    pool->n_threads = 1;
    for (size_t i = 1; i < n_threads; i++) {
        pool->workers[i - 1] = (struct worker){pool, i};
        int rc = pthread_create(&pool->threads[i - 1], NULL, worker_main, &pool->workers[i - 1]);
        SKV_REQUIRE(rc == 0, err, SKV_MEMORY, "thread pool: cannot start thread %zu of %zu", i,
                    n_threads);
        pool->n_threads++;
    }
    return SKV_OK;
}

skv_status skv_pool_create(size_t n_threads, skv_pool **out, skv_error *err)
{
    if (n_threads == 0) n_threads = processors();
    SKV_REQUIRE(n_threads <= MAX_THREADS, err, SKV_RANGE, "threads: %zu, at most %d", n_threads,
                MAX_THREADS);
    skv_pool *pool = skv_alloc_aligned(1, sizeof *pool);
    SKV_REQUIRE(pool, err, SKV_MEMORY, "thread pool: no memory");
    *pool = (skv_pool){.n_threads = 1};
    pool->threads = skv_alloc(n_threads, sizeof *pool->threads);
    pool->workers = skv_alloc(n_threads, sizeof *pool->workers);
    pool->stretches = skv_alloc_aligned(n_threads, sizeof *pool->stretches);
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    skv_status status = SKV_OK;
    if (!pool->threads || !pool->workers || !pool->stretches) {
        status = skv_fail(err, SKV_MEMORY, "thread pool: no memory for %zu threads", n_threads);
    } else {
        status = start_threads(pool, n_threads, err);
    }
    if (status != SKV_OK) {
        skv_pool_free(pool);
        return status;
    }
    *out = pool;
    return SKV_OK;
}

void skv_pool_free(skv_pool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stop, true);
    publish(pool);
    for (size_t i = 1; i < pool->n_threads; i++) (void)pthread_join(pool->threads[i - 1], NULL);
    (void)pthread_mutex_destroy(&pool->mutex);
    (void)pthread_cond_destroy(&pool->wake);
    skv_free(pool->threads);
    skv_free(pool->workers);
    skv_free(pool->stretches);
    skv_free(pool);
}

size_t skv_pool_threads(const skv_pool *pool)
{
    return pool->n_threads;
}
