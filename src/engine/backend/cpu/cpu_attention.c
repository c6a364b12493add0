/*
 * Attention on the CPU: cutting the work of a step into tasks for the threads.
 *
 * A prompt chunk is cut into blocks of query tokens, one task for each block and KV head. A
 * single token's attention is cut along the cached rows when there are too few heads to keep
 * every thread busy; the portions are joined afterwards (flash-decoding).
 */
#include "backend/cpu/cpu_backend.h"
#include "base/size.h"

enum {
    PART_ROWS_MIN = 512, /* cached rows below which one token's attention is not cut */
    PARTS_MAX = 16       /* portions of one token's attention, at most */
};

typedef struct skv_cpu_task {
    const skv_attention_item *item;
    size_t i_head;         /* KV head */
    size_t q0, n_q;        /* query tokens of the item, counted from its first */
    size_t part0, n_parts; /* portions: 0 when the task does all rows */
    size_t i_part;
} skv_cpu_task;

typedef struct attention_job {
    skv_cpu_backend *be;
    const skv_attention_args *args;
    size_t n_group;
    size_t part_floats; /* of one portion: [G][Dh + 2] */
} attention_job;

size_t skv_cpu_attention_task_bytes(void)
{
    return sizeof(skv_cpu_task);
}

size_t skv_cpu_attention_tasks(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    (void)be;
    /* In the worst case every row is an item of its own and is cut into all its portions. */
    return limits->max_rows * limits->max_heads * PARTS_MAX;
}

/* How many portions one token over n rows is cut into. */
static size_t count_parts(const skv_cpu_backend *be, size_t n_rows, size_t n_tasks)
{
    size_t n_threads = skv_pool_threads(be->pool);
    /* Portions are summed in another order than whole rows: they may not depend on the batch. */
    if (be->limits.batch_invariant) return 1;
    if (n_rows < PART_ROWS_MIN || n_tasks >= 4 * n_threads) return 1;
    size_t wanted = skv_ceil_div(4 * n_threads, n_tasks);
    size_t most = skv_min_size(PARTS_MAX, n_rows / (PART_ROWS_MIN / 2));
    return skv_max_size(1, skv_min_size(wanted, most));
}

size_t skv_cpu_attention_partials(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    /* Cutting happens while there are fewer than 4 tasks a thread. */
    size_t n_tasks = 4 * skv_pool_threads(be->pool);
    return n_tasks * PARTS_MAX * limits->max_group * (limits->head_dim + 2);
}

/* Rows that a KV head has before the item's first token. */
static size_t past_rows(const skv_attention_item *item, size_t i_head)
{
    return item->n_past - (item->dropped ? item->dropped[i_head] : 0);
}

static skv_attention kernel_args(const attention_job *job, const skv_cpu_task *t)
{
    const skv_attention_args *a = job->args;
    size_t row = t->item->row0 + t->q0, column = t->i_head * job->n_group * a->head_dim;
    return (skv_attention){
        .out = a->out + row * a->ld_out + column,
        .q = a->q + row * a->ld_q + column,
        .ld_out = a->ld_out,
        .ld_q = a->ld_q,
        .n_q = t->n_q,
        .n_group = job->n_group,
        .head_dim = a->head_dim,
        .pages = (const void *const *)t->item->table + t->i_head * a->table_stride,
        .type = a->type,
        .n_past = past_rows(t->item, t->i_head) + t->q0,
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
        .invariant = job->be->limits.batch_invariant,
    };
}

static void run_task(void *arg, size_t i_task, size_t i_thread)
{
    const attention_job *job = arg;
    const skv_cpu_task *t = &job->be->tasks[i_task];
    void *scratch = skv_cpu_scratch(job->be, i_thread);
    skv_attention a = kernel_args(job, t);
    if (t->n_parts == 0) {
        job->be->kernels.attention(&a, scratch);
        return;
    }
    size_t row1 = a.n_past + 1;
    size_t row0 = a.window && row1 > a.window ? row1 - a.window : 0;
    size_t n = row1 - row0;
    job->be->kernels.attention_part(
        &a, row0 + n * t->i_part / t->n_parts, row0 + n * (t->i_part + 1) / t->n_parts,
        job->be->partials + (t->part0 + t->i_part) * job->part_floats, scratch);
}

static void join_parts(const attention_job *job, size_t n_tasks)
{
    for (size_t i = 0; i < n_tasks; i++) {
        const skv_cpu_task *t = &job->be->tasks[i];
        if (t->n_parts == 0 || t->i_part != 0) continue;
        skv_attention a = kernel_args(job, t);
        job->be->kernels.attention_join(&a, job->be->partials + t->part0 * job->part_floats,
                                        t->n_parts);
    }
}

static size_t visible_rows(const skv_attention_args *a, const skv_attention_item *item,
                           size_t i_head)
{
    size_t n = past_rows(item, i_head) + 1;
    return a->window ? skv_min_size(n, a->window) : n;
}

/* Tasks of a prompt chunk, the last (longest) blocks first so that threads end together. */
static size_t add_chunk_tasks(const attention_job *job, const skv_attention_item *item, size_t n)
{
    const skv_attention_args *a = job->args;
    size_t block = job->be->kernels.attention_tokens(job->n_group, a->head_dim);
    for (size_t b = skv_ceil_div(item->n_q, block); b-- > 0;) {
        for (size_t h = 0; h < a->n_kv_heads; h++) {
            job->be->tasks[n++] = (skv_cpu_task){.item = item,
                                                 .i_head = h,
                                                 .q0 = b * block,
                                                 .n_q = skv_min_size(block, item->n_q - b * block)};
        }
    }
    return n;
}

static size_t add_token_tasks(const attention_job *job, const skv_attention_item *item, size_t n,
                              size_t n_expected, size_t *part0)
{
    const skv_attention_args *a = job->args;
    for (size_t h = 0; h < a->n_kv_heads; h++) {
        size_t n_parts = count_parts(job->be, visible_rows(a, item, h), n_expected);
        skv_cpu_task task = {.item = item, .i_head = h, .n_q = 1};
        if (n_parts == 1) {
            job->be->tasks[n++] = task;
            continue;
        }
        task.part0 = *part0;
        task.n_parts = n_parts;
        *part0 += n_parts;
        for (task.i_part = 0; task.i_part < n_parts; task.i_part++) job->be->tasks[n++] = task;
    }
    return n;
}

void skv_cpu_attention(skv_backend *base, const skv_attention_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    attention_job job = {.be = be, .args = args, .n_group = args->n_heads / args->n_kv_heads};
    job.part_floats = job.n_group * (args->head_dim + 2);
    size_t n_expected = args->n_items * args->n_kv_heads; /* tasks if no token is cut */
    size_t n = 0, part0 = 0;
    for (size_t i = 0; i < args->n_items; i++) {
        const skv_attention_item *item = &args->items[i];
        n = item->n_q > 1 ? add_chunk_tasks(&job, item, n)
                          : add_token_tasks(&job, item, n, n_expected, &part0);
    }
    skv_pool_run(be->pool, n, run_task, &job);
    if (part0 > 0) join_parts(&job, n);
}
