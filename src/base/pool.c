/* A thread pool: see pool.h. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

enum {
    MAX_THREADS = 1024,
    SPINS = 4000,     /* then a worker sleeps, and the caller yields */
    YIELDS = 1000,    /* then the caller sleeps */
    LOOK_EVERY = 4096 /* runs between two looks at the affinity */
};

/* The state of a pool is one number. Its lowest bits count the workers inside a run, one bit says
 * that the caller sleeps until they have left, and the rest counts runs that began or ended: it is
 * odd while a run is open. */
enum { INSIDE_BITS = 16 };
static const uint64_t INSIDE = (UINT64_C(1) << INSIDE_BITS) - 1;
static const uint64_t CALLER_SLEEPS = UINT64_C(1) << INSIDE_BITS;
static const uint64_t ONE_PHASE = UINT64_C(1) << (INSIDE_BITS + 1);

/* Tasks that one thread begins with; others take from it when theirs are done. */
typedef struct stretch {
    _Alignas(64) atomic_size_t next;
    size_t end;
} stretch;

/*
 * The caller opens a run, works, closes the run when no task is left, and waits until the workers
 * that entered it have left. A worker that comes too late finds the run closed and is not waited
 * for, so a thread that the system has put aside holds nobody up unless it is inside a task. `fn`
 * and `arg` are read by workers that have entered an open run only.
 *
 * More workers than processors would take the processors from those that have work: workers from
 * `n_active` on are parked.
 */
struct skv_pool {
    size_t n_threads;
    pthread_t *threads; /* owned, n_threads - 1 */
    struct worker *workers;
    size_t n_runs; /* since the last look at the affinity */
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) stretch *stretches; /* owned, [n_threads] */
    size_t n_stretches;              /* of this run: one for all threads, or one for each */
    skv_task_fn *fn;
    void *arg;
    atomic_size_t n_active; /* threads that take part, the caller's among them */
    atomic_bool stop;
    atomic_bool has_sleepers; /* workers sleep, or are about to */
    pthread_mutex_t mutex;    /* guards sleeping and parking only */
    pthread_cond_t wake, unpark, all_left;
};

struct worker {
    skv_pool *pool;
    size_t i_thread;
};

static uint64_t phase_of(uint64_t state)
{
    return state / ONE_PHASE;
}

static bool is_open(uint64_t phase)
{
    return phase & 1;
}

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
            /* An empty stretch is only read: a line that all write goes round all threads. */
            if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
            size_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (i >= s->end) break;
            pool->fn(pool->arg, i, i_thread);
        }
    }
}

/* Sleeps until a run begins after phase `now`. Sequentially consistent against open_run: either
 * this worker sees the new phase, or the caller sees that it sleeps. */
static void sleep_in_phase(skv_pool *pool, uint64_t now)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->has_sleepers, true);
    if (phase_of(atomic_load(&pool->state)) == now) pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

/* Waits until a run other than `seen` is open: some spins, then sleep. */
static void wait_for_run(skv_pool *pool, uint64_t seen)
{
    for (;;) {
        uint64_t now = seen;
        for (int i = 0; i < SPINS; i++) {
            now = phase_of(atomic_load_explicit(&pool->state, memory_order_acquire));
            if (now != seen && is_open(now)) return;
            pause_cpu();
        }
        sleep_in_phase(pool, now);
    }
}

/* Counts the worker in, and works if the run is still open; the run that it has seen. */
static uint64_t take_part(skv_pool *pool, size_t i_thread)
{
    uint64_t before = atomic_fetch_add_explicit(&pool->state, 1, memory_order_acquire);
    if (is_open(phase_of(before))) work(pool, i_thread);
    uint64_t after = atomic_fetch_sub_explicit(&pool->state, 1, memory_order_release);
    if ((after & CALLER_SLEEPS) && (after & INSIDE) == 1) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->all_left);
        pthread_mutex_unlock(&pool->mutex);
    }
    return phase_of(before);
}

static void park(skv_pool *pool, size_t i_thread)
{
    pthread_mutex_lock(&pool->mutex);
    while (i_thread >= atomic_load(&pool->n_active) && !atomic_load(&pool->stop)) {
        pthread_cond_wait(&pool->unpark, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    skv_pool *pool = worker->pool;
    uint64_t seen = 0;
    for (;;) {
        size_t n_active = atomic_load_explicit(&pool->n_active, memory_order_relaxed);
        if (worker->i_thread >= n_active) park(pool, worker->i_thread);
        if (atomic_load(&pool->stop)) return NULL;
        wait_for_run(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        seen = take_part(pool, worker->i_thread);
    }
}

static void open_run(skv_pool *pool)
{
    atomic_fetch_add(&pool->state, ONE_PHASE);
    if (!atomic_load(&pool->has_sleepers)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->has_sleepers, false);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

/* Sleeping lets the system move a worker that waits for a processor to this one. */
static void sleep_until_all_left(skv_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_or(&pool->state, CALLER_SLEEPS);
    while (atomic_load(&pool->state) & INSIDE) pthread_cond_wait(&pool->all_left, &pool->mutex);
    atomic_fetch_and(&pool->state, ~CALLER_SLEEPS);
    pthread_mutex_unlock(&pool->mutex);
}

static void close_run(skv_pool *pool)
{
    atomic_fetch_add_explicit(&pool->state, ONE_PHASE, memory_order_acq_rel);
    for (int i = 0; atomic_load_explicit(&pool->state, memory_order_acquire) & INSIDE; i++) {
        if (i < SPINS) {
            pause_cpu();
        } else if (i < SPINS + YIELDS) {
            (void)sched_yield();
        } else {
            sleep_until_all_left(pool);
        }
    }
}

/* The affinity of a process may change while it runs. */
static void look_at_affinity(skv_pool *pool)
{
    size_t n_processors = skv_processors_affinity(pool->threads[0]);
    size_t n_active = skv_min_size(pool->n_threads, n_processors);
    pool->n_runs = 0;
    if (n_active == atomic_load(&pool->n_active)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->n_active, n_active);
    pthread_cond_broadcast(&pool->unpark);
    pthread_mutex_unlock(&pool->mutex);
}

static void run(skv_pool *pool, size_t n_tasks, bool in_stretches, skv_task_fn *fn, void *arg)
{
    if (pool->n_threads > 1 && pool->n_runs++ == LOOK_EVERY) look_at_affinity(pool);
    const size_t n_active = atomic_load_explicit(&pool->n_active, memory_order_relaxed);
    if (n_active == 1 || n_tasks <= 1) {
        for (size_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
        return;
    }
    const size_t n_stretches = in_stretches ? n_active : 1;
    pool->fn = fn;
    pool->arg = arg;
    pool->n_stretches = n_stretches;
    for (size_t i = 0; i < n_stretches; i++) {
        stretch *s = &pool->stretches[i];
        atomic_store_explicit(&s->next, n_tasks * i / n_stretches, memory_order_relaxed);
        s->end = n_tasks * (i + 1) / n_stretches;
    }
    open_run(pool);
    work(pool, 0);
    close_run(pool);
}

void skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run(pool, n_tasks, false, fn, arg);
}

void skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run(pool, n_tasks, true, fn, arg);
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
    if (n_threads == 0) n_threads = skv_min_size(skv_processors_allowed(), MAX_THREADS);
    SKV_REQUIRE(n_threads <= MAX_THREADS, err, SKV_RANGE, "threads: %zu, at most %d", n_threads,
                MAX_THREADS);
    skv_pool *pool = skv_alloc_aligned(1, sizeof *pool);
    SKV_REQUIRE(pool, err, SKV_MEMORY, "thread pool: no memory");
    const size_t n_processors = skv_processors_affinity(pthread_self());
    *pool = (skv_pool){.n_threads = 1, .n_active = skv_min_size(n_threads, n_processors)};
    pool->threads = skv_alloc(n_threads, sizeof *pool->threads);
    pool->workers = skv_alloc(n_threads, sizeof *pool->workers);
    pool->stretches = skv_alloc_aligned(n_threads, sizeof *pool->stretches);
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    (void)pthread_cond_init(&pool->unpark, NULL);
    (void)pthread_cond_init(&pool->all_left, NULL);
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
    open_run(pool);
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->unpark);
    pthread_mutex_unlock(&pool->mutex);
    for (size_t i = 1; i < pool->n_threads; i++) (void)pthread_join(pool->threads[i - 1], NULL);
    (void)pthread_mutex_destroy(&pool->mutex);
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_cond_destroy(&pool->unpark);
    (void)pthread_cond_destroy(&pool->all_left);
    skv_free(pool->threads);
    skv_free(pool->workers);
    skv_free(pool->stretches);
    skv_free(pool);
}

size_t skv_pool_threads(const skv_pool *pool)
{
    return pool->n_threads;
}
