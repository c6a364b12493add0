/* A thread pool: see pool.h. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

enum {
    MAX_THREADS = 1024,
    LIST_THREADS = 8, /* that claim from one list: more would queue for its cache line */
    SPINS = 4000,     /* then a worker sleeps, and the caller yields */
    YIELDS = 1000,    /* then the caller sleeps */
    LOOK_EVERY = 4096 /* runs between two looks at the affinity */
};

/* Tasks that some threads begin with; others take from them when theirs are done: first, first +
 * step, ... */
typedef struct list {
    _Alignas(64) atomic_size_t next;
    size_t n, first, step;
} list;

/* The state that a worker publishes. Each has a cache line of its own: the caller reads them all,
 * and no line written by many threads is passed around. */
typedef struct worker {
    _Alignas(64) atomic_size_t inside; /* the run that it works on; 0: none */
    skv_pool *pool;
    size_t i_thread;
} worker;

/*
 * The caller opens a run, works, closes the run when no task is left, and waits until the workers
 * that entered it have left. A late worker finds the run closed and is not waited for, so a
 * preempted thread delays the others only if it is inside a task. Only workers that have entered an
 * open run read `fn` and `arg`.
 *
 * A worker enters by writing the run's number and reading `phase` once more; the caller closes by
 * writing `phase` and reading the workers' `inside`. All four operations are sequentially
 * consistent, so either the worker finds the run closed or the caller finds the worker inside.
 *
 * With more workers than processors, idle workers would take processors from busy ones: workers
 * from `n_active` on are parked.
 */
struct skv_pool {
    size_t n_threads;
    pthread_t *threads; /* owned, n_threads - 1 */
    worker *workers;    /* owned, [n_threads - 1] */
    size_t n_runs;      /* since the last look at the affinity */
    list *lists;        /* owned, [n_threads + SKV_NODES_MAX] */
    skv_nodes nodes;    /* n = 1: no thread is bound */
    uint8_t *node_of;   /* owned, [n_threads]: of each thread */
    /* The caller writes the following fields once or twice a run; all threads read them. */
    _Alignas(64) atomic_size_t phase; /* counts runs that began or ended: odd while one is open */
    size_t n_groups, n_lists;         /* of this run: groups, one for each node or one in all, and
                                       * lists of each */
    skv_task_fn *fn;
    void *arg;
    atomic_size_t n_active; /* threads that take part, the caller's among them */
    atomic_bool stop;
    atomic_bool has_sleepers;  /* workers sleep, or are about to */
    atomic_bool caller_sleeps; /* until all have left */
    pthread_mutex_t mutex;     /* guards sleeping and parking only */
    pthread_cond_t wake, unpark, all_left;
};

static bool is_open(size_t phase)
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

static void take_tasks(const skv_pool *pool, list *l, size_t i_thread)
{
    for (;;) {
        /* An empty list is only read: a line that all write goes round all threads. */
        if (atomic_load_explicit(&l->next, memory_order_relaxed) >= l->n) return;
        size_t i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
        if (i >= l->n) return;
        pool->fn(pool->arg, l->first + i * l->step, i_thread);
    }
}

/* From the thread's own list on, and from those of its node on where tasks belong to nodes. */
static void work(skv_pool *pool, size_t i_thread)
{
    const size_t n_active = atomic_load_explicit(&pool->n_active, memory_order_relaxed);
    const size_t n_groups = pool->n_groups, n = pool->n_lists;
    const size_t group = n_groups > 1 ? pool->node_of[i_thread] : 0;
    const size_t own = n_groups > 1 ? i_thread % n : i_thread * n / n_active;
    for (size_t g = 0; g < n_groups; g++) {
        list *lists = &pool->lists[(group + g) % n_groups * n];
        for (size_t k = 0; k < n; k++) take_tasks(pool, &lists[(own + k) % n], i_thread);
    }
}

/* Sleeps until a run begins after phase `now`. Sequentially consistent against open_run: either
 * this worker sees the new phase, or the caller sees that it sleeps. */
static void sleep_in_phase(skv_pool *pool, size_t now)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->has_sleepers, true);
    if (atomic_load(&pool->phase) == now) pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

/* Waits until a run other than `seen` is open, some spins, then asleep; its number. */
static size_t wait_for_run(skv_pool *pool, size_t seen)
{
    for (;;) {
        size_t now = seen;
        for (int i = 0; i < SPINS; i++) {
            now = atomic_load_explicit(&pool->phase, memory_order_acquire);
            if (now != seen && is_open(now)) return now;
            pause_cpu();
        }
        sleep_in_phase(pool, now);
    }
}

/* Works on the run if it is still open. */
static void take_part(skv_pool *pool, worker *me, size_t run)
{
    atomic_store(&me->inside, run);
    if (atomic_load(&pool->phase) == run) work(pool, me->i_thread);
    atomic_store(&me->inside, 0);
    if (atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->all_left);
        pthread_mutex_unlock(&pool->mutex);
    }
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
    worker *me = arg;
    skv_pool *pool = me->pool;
    size_t seen = 0;
    skv_thread_computes();
    for (;;) {
        size_t n_active = atomic_load_explicit(&pool->n_active, memory_order_relaxed);
        if (me->i_thread >= n_active) park(pool, me->i_thread);
        if (atomic_load(&pool->stop)) return NULL;
        seen = wait_for_run(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        take_part(pool, me, seen);
    }
}

static void open_run(skv_pool *pool)
{
    atomic_fetch_add(&pool->phase, 1);
    if (!atomic_load(&pool->has_sleepers)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->has_sleepers, false);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

/* Sleeping lets the system move a worker that waits for a processor to this one. */
static void sleep_until_left(skv_pool *pool, const worker *w, size_t run)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&w->inside) == run) pthread_cond_wait(&pool->all_left, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* Also of workers beyond n_active: one may have entered before it was parked. */
static void close_run(skv_pool *pool)
{
    const size_t run = atomic_fetch_add(&pool->phase, 1);
    int n_looks = 0;
    for (size_t i = 1; i < pool->n_threads; i++) {
        const worker *w = &pool->workers[i - 1];
        for (; atomic_load(&w->inside) == run; n_looks++) {
            if (n_looks < SPINS) {
                pause_cpu();
            } else if (n_looks < SPINS + YIELDS) {
                (void)sched_yield();
            } else {
                sleep_until_left(pool, w, run);
            }
        }
    }
}

static void add_processors(skv_processor_set *to, pthread_t thread)
{
    skv_processor_set its;
    if (!skv_thread_processors(thread, &its)) return;
    for (size_t i = 0; i < SKV_PROCESSORS_MAX / 64; i++) to->bits[i] |= its.bits[i];
}

/* Processors of all threads, where they are bound to nodes. */
static size_t bound_processors(const skv_pool *pool)
{
    skv_processor_set all = {0};
    size_t n = 0;
    add_processors(&all, pthread_self());
    for (size_t i = 1; i < pool->n_threads; i++) {
        const bool first = i == 1 || pool->node_of[i] != pool->node_of[i - 1];
        if (first) add_processors(&all, pool->threads[i - 1]);
    }
    for (size_t i = 0; i < SKV_PROCESSORS_MAX / 64; i++) {
        n += (size_t)__builtin_popcountll(all.bits[i]);
    }
    return skv_max_size(1, n);
}

/* The affinity of a process may change while it runs. */
static void look_at_affinity(skv_pool *pool)
{
    size_t n_processors =
        pool->nodes.n > 1 ? bound_processors(pool) : skv_processors_affinity(pool->threads[0]);
    size_t n_active = skv_min_size(pool->n_threads, n_processors);
    pool->n_runs = 0;
    if (n_active == atomic_load(&pool->n_active)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->n_active, n_active);
    pthread_cond_broadcast(&pool->unpark);
    pthread_mutex_unlock(&pool->mutex);
}

/* How the tasks of a run are dealt out. */
typedef struct deal {
    const size_t *first; /* [n_groups + 1]: a group has the tasks [first[i], first[i + 1]) */
    size_t n_groups;
    bool in_stretches;
} deal;

/* A stretch of neighbours for each thread; or one list for some threads, dealt out in turns, so
 * that each list has the order of the tasks. */
static void deal_out(skv_pool *pool, const deal *d, size_t n_active)
{
    const size_t n_near = skv_ceil_div(n_active, d->n_groups);
    const size_t n = d->in_stretches ? n_active : skv_ceil_div(n_near, LIST_THREADS);
    pool->n_groups = d->n_groups;
    pool->n_lists = n;
    for (size_t i = 0; i < n * d->n_groups; i++) {
        const size_t first = d->first[i / n], n_tasks = d->first[i / n + 1] - first, j = i % n;
        list *l = &pool->lists[i];
        atomic_store_explicit(&l->next, 0, memory_order_relaxed);
        l->step = d->in_stretches ? 1 : n;
        l->first = first + (d->in_stretches ? n_tasks * j / n : j);
        l->n =
            d->in_stretches ? n_tasks * (j + 1) / n - n_tasks * j / n : (n_tasks + n - 1 - j) / n;
    }
}

static void run(skv_pool *pool, const deal *d, skv_task_fn *fn, void *arg)
{
    const size_t n_tasks = d->first[d->n_groups];
    if (pool->n_threads > 1 && pool->n_runs++ == LOOK_EVERY) look_at_affinity(pool);
    const size_t n_active = atomic_load_explicit(&pool->n_active, memory_order_relaxed);
    if (n_active == 1 || n_tasks <= 1) {
        for (size_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    deal_out(pool, d, n_active);
    open_run(pool);
    work(pool, 0);
    close_run(pool);
}

void skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run(pool, &(deal){(const size_t[]){0, n_tasks}, 1, false}, fn, arg);
}

void skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run(pool, &(deal){(const size_t[]){0, n_tasks}, 1, true}, fn, arg);
}

void skv_pool_run_nodes(skv_pool *pool, const size_t *first, skv_task_fn *fn, void *arg)
{
    run(pool, &(deal){first, pool->nodes.n, false}, fn, arg);
}

/* Neighbours share a node, as the stretches of tasks that they begin with lie side by side. */
void skv_pool_use_nodes(skv_pool *pool, const skv_nodes *nodes)
{
    size_t n_all = 0, n_before = 0, node = 0;
    if (nodes->n < 2) return;
    pool->nodes = *nodes;
    for (size_t i = 0; i < nodes->n; i++) n_all += nodes->n_processors[i];
    for (size_t i = 0; i < pool->n_threads; i++) {
        while (i * n_all >= (n_before + nodes->n_processors[node]) * pool->n_threads) {
            n_before += nodes->n_processors[node++];
        }
        pool->node_of[i] = (uint8_t)node;
        /* The caller may be any thread. One that cannot be bound runs where it likes. */
        if (i > 0) (void)skv_thread_bind(pool->threads[i - 1], &nodes->processors[node]);
    }
}

const skv_nodes *skv_pool_nodes(const skv_pool *pool)
{
    return &pool->nodes;
}

/* Starts the threads; on failure the ones already running are joined by skv_pool_free. */
static skv_status start_threads(skv_pool *pool, size_t n_threads, skv_error *err)
{
    pool->n_threads = 1;
    for (size_t i = 1; i < n_threads; i++) {
        pool->workers[i - 1] = (worker){.pool = pool, .i_thread = i};
        int rc = pthread_create(&pool->threads[i - 1], NULL, worker_main, &pool->workers[i - 1]);
        SKV_REQUIRE(rc == 0, err, SKV_MEMORY, "thread pool: cannot start thread %zu of %zu%s", i,
                    n_threads, skv_memory_limit(SKV_STACK_BYTES));
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
    pool->nodes.n = 1;
    pool->threads = skv_alloc(n_threads, sizeof *pool->threads);
    pool->workers = skv_alloc_aligned(n_threads, sizeof *pool->workers);
    pool->lists = skv_alloc_aligned(n_threads + SKV_NODES_MAX, sizeof *pool->lists);
    pool->node_of = skv_alloc_zero(n_threads, sizeof *pool->node_of);
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    (void)pthread_cond_init(&pool->unpark, NULL);
    (void)pthread_cond_init(&pool->all_left, NULL);
    skv_status status = SKV_OK;
    if (!pool->threads || !pool->workers || !pool->lists || !pool->node_of) {
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
    skv_free(pool->lists);
    skv_free(pool->node_of);
    skv_free(pool);
}

size_t skv_pool_threads(const skv_pool *pool)
{
    return pool->n_threads;
}
