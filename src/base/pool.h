/*
 * A fixed team of threads that runs one loop at a time. The caller's thread works too.
 *
 * skv_pool_run(pool, n_tasks, fn, arg) calls fn(arg, i_task, i_thread) once for every i_task <
 * n_tasks and returns when all are done. Tasks are handed out one by one in order, from a list for
 * every eight threads, so uneven tasks balance if the long ones come first. Results must not depend
 * on which thread runs which task. One caller at a time. Idle threads spin for some microseconds
 * and then sleep. At most as many threads work at a time as the affinity has processors, and a run
 * does not wait for threads that have not begun to work on it.
 *
 * A team may be divided among memory nodes (skv_pool_use_nodes): then each thread but the caller's
 * stays on one, and tasks that read memory of a node go to its threads first.
 */
#ifndef SKV_BASE_POOL_H
#define SKV_BASE_POOL_H

#include <stddef.h>

#include "base/fail.h"
#include "base/system.h"

typedef struct skv_pool skv_pool;
typedef void skv_task_fn(void *arg, size_t i_task, size_t i_thread);

/** n_threads >= 1 includes the caller; 0: skv_processors_allowed(). */
SKV_MUST_CHECK skv_status skv_pool_create(size_t n_threads, skv_pool **pool, skv_error *err);
void skv_pool_free(skv_pool *pool);
size_t skv_pool_threads(const skv_pool *pool);
void skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg);
/** As skv_pool_run, for tasks with adjacent data in memory. Each thread begins with a contiguous
 * stretch of tasks, which suits hardware prefetching; threads that finish their stretch take tasks
 * from the others'. */
void skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg);
/** Binds the threads to nodes, in proportion to their processors, before the first run. With one
 * node nothing changes. */
void skv_pool_use_nodes(skv_pool *pool, const skv_nodes *nodes);
/** Those of skv_pool_use_nodes; n is 1 without it. */
const skv_nodes *skv_pool_nodes(const skv_pool *pool);
/** As skv_pool_run, for tasks in the order of the nodes that they read memory of: those of node i
 * are [first[i], first[i + 1]). Threads take the tasks of their own node before others. */
void skv_pool_run_nodes(skv_pool *pool, const size_t *first, skv_task_fn *fn, void *arg);

#endif
