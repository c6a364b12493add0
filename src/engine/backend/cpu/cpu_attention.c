/*
 * Attention on the CPU: cutting the work of a step into tasks for the threads.
 *
 * A prompt chunk is cut into blocks of query tokens, one task for each block and KV head. A
 * single token's attention is cut along the cached rows when there are too few heads to keep
 * every thread busy; the portions are joined afterwards (flash-decoding). Rows of a prefix that
 * several sequences share are portions too, of all their tokens at once, so that they are read
 * once (Hydragen, arXiv:2402.05099). Tokens of a draft are cut as each would be alone; those whose
 * portions end at the same rows are one task, so that these rows are read once, too.
 */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_prefix.h"
#include "backend/nodes.h"
#include "base/size.h"

enum {
    PART_ROWS_MIN = 512, /* cached rows below which one token's attention is not cut */
    PART_ROWS = 256,     /* rows of a portion at least, but half of them where threads idle */
    PARTS_MAX = 16,      /* portions of one token's attention, at most */
    BLOCKS_A_THREAD = 2, /* tasks of prompts for each thread, at least */
    SHARED_MAX = 8,      /* portions of a shared prefix, at most */
    OWN_MAX = 6,         /* portions of the rows that follow it, at most */
    SHARED_TOKENS = 128, /* tokens of a step that share a prefix, about: partials are for them */
    SHARED_PORTIONS = 3  /* portions of each of them, about */
};

typedef struct skv_cpu_task {
    const skv_cpu_item *item;
    size_t i_head;        /* KV head */
    size_t q0, n_q;       /* query tokens of the item, counted from its first */
    const uint32_t *rows; /* [n_q] rows of q, for tokens of several items; else NULL */
    bool singly;          /* the tokens get the bits of tasks of their own */
    float *partial;       /* [G][Dh + 2] of the first token; NULL: the task does all rows */
    size_t ld_partial;    /* floats between tokens */
    size_t row0, row1;    /* of a portion */
    size_t n_parts;       /* > 0: as many portions, from `partial` on, are each whole token */
} skv_cpu_task;

/* Working memory of a step, one after the other in be->tasks. */
typedef struct attention_job {
    skv_cpu_backend *be;
    const skv_attention_args *args;
    const skv_cpu_set *set;
    skv_kv_type type;
    size_t track0, n_kv_heads; /* of the slot */
    size_t n_group;
    size_t part_floats; /* from one portion [G][Dh + 2] to the next: whole cache lines */
    size_t block;       /* tokens of a task of a prompt chunk */
    size_t n_expected;  /* tasks if no token is cut and nothing is drafted */
    skv_cpu_task *tasks;
    size_t n_tasks;
    float *partials; /* [..][G][Dh + 2] left for portions of tokens that share nothing, */
    float *shared;   /* [n_shared] floats left for those that share a prefix */
    size_t n_shared;
    uint32_t *order;    /* [n_tasks]: by memory nodes, where there are several */
    uint32_t *rows;     /* the other columns of the rows of q of such tokens */
    uint8_t *prefix_of; /* [n_items] of the head that is looked at */
    uint8_t *is_shared; /* [n_kv_heads][n_items] the item has tasks already */
} attention_job;

size_t skv_cpu_attention_task_bytes(void)
{
    return sizeof(skv_cpu_task);
}

static size_t most_tasks(const skv_backend_limits *limits)
{
    /* In the worst case every row is an item of its own and is cut into all its portions. */
    return limits->max_rows * limits->max_heads * PARTS_MAX;
}

/* Places of `order`; none with one memory node. */
static size_t order_length(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    return be->base.n_nodes > 1 ? most_tasks(limits) : 0;
}

/* After the tasks: order, rows [max_rows][max_heads], is_shared [max_rows][max_heads], prefix_of.
 */
size_t skv_cpu_attention_tasks(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    size_t n_bytes = limits->max_rows * (limits->max_heads * (sizeof(uint32_t) + 1) + 1) +
                     order_length(be, limits) * sizeof(uint32_t);
    return most_tasks(limits) + skv_ceil_div(n_bytes, sizeof(skv_cpu_task));
}

/* How many portions one token over n rows is cut into. */
static size_t count_parts(const skv_cpu_backend *be, size_t n_rows, size_t n_tasks)
{
    size_t n_threads = skv_pool_threads(be->pool);
    /* Portions are summed in another order than whole rows: they may not depend on the batch. */
    if (be->limits.batch_invariant) return 1;
    if (n_rows < PART_ROWS_MIN || n_tasks >= 4 * n_threads) return 1;
    size_t wanted = skv_ceil_div(4 * n_threads, n_tasks);
    size_t n_least = n_tasks * (n_rows / PART_ROWS) < n_threads ? PART_ROWS / 2 : PART_ROWS;
    size_t most = skv_min_size(PARTS_MAX, n_rows / n_least);
    return skv_max_size(1, skv_min_size(wanted, most));
}

/* Two threads never write the same cache line. */
static size_t portion_floats(size_t n_group, size_t head_dim)
{
    return skv_round_up(n_group * (head_dim + 2), SKV_ALIGN / sizeof(float));
}

static size_t own_partials(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    /* Cutting happens while there are fewer than 4 tasks a thread. */
    size_t n_tasks = 4 * skv_pool_threads(be->pool);
    return n_tasks * PARTS_MAX * portion_floats(limits->max_group, limits->head_dim);
}

static size_t shared_partials(const skv_backend_limits *limits)
{
    if (limits->batch_invariant) return 0;
    /* A portion has some heads: the sum of their rounded floats is at least what they take. */
    return skv_min_size(limits->max_rows, SHARED_TOKENS) * SHARED_PORTIONS * limits->max_heads *
           portion_floats(1, limits->head_dim);
}

size_t skv_cpu_attention_partials(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    return own_partials(be, limits) + shared_partials(limits);
}

static skv_attention kernel_args(const attention_job *job, const skv_cpu_task *t)
{
    const skv_attention_args *a = job->args;
    size_t row = t->item->row0 + t->q0, column = t->i_head * job->n_group * a->head_dim;
    const float *sinks = skv_cpu_vec(a->sinks);
    return (skv_attention){
        .out = skv_cpu_at(skv_rows_from(a->out, row, column)),
        .q = skv_cpu_at(skv_rows_from(a->q, row, column)),
        .ld_out = a->out.ld,
        .ld_q = a->q.ld,
        .n_q = t->n_q,
        .n_group = job->n_group,
        .head_dim = a->head_dim,
        .pages = (const void *const *)skv_cpu_track(t->item->table, job->track0 + t->i_head),
        .type = job->type,
        .n_past = skv_cpu_end_row(t->item, job->track0 + t->i_head) - 1 + t->q0,
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
        .sinks = sinks ? sinks + t->i_head * job->n_group : NULL,
        .invariant = job->be->limits.batch_invariant,
        .singly = t->singly,
    };
}

static void run_task(void *arg, size_t i_task, size_t i_thread)
{
    const attention_job *job = arg;
    const skv_cpu_task *t = &job->tasks[i_task];
    void *scratch = skv_cpu_scratch(job->be, i_thread);
    skv_attention a = kernel_args(job, t);
    if (!t->partial) {
        job->be->kernels.attention(&a, scratch);
        return;
    }
    if (t->rows) { /* every token sees every row of the portion */
        a.q = skv_cpu_at(job->args->q) + t->i_head * job->n_group * a.head_dim;
        a.rows = t->rows;
        a.n_past = t->row1;
        a.window = 0;
    }
    a.ld_out = t->ld_partial;
    job->be->kernels.attention_part(&a, t->row0, t->row1, t->partial, scratch);
}

static void join_task(void *arg, size_t i_task, size_t i_thread)
{
    const attention_job *job = arg;
    const skv_cpu_task *t = &job->tasks[i_task];
    (void)i_thread;
    if (t->n_parts == 0) return;
    skv_attention a = kernel_args(job, t);
    for (size_t i = 0; i < t->n_q; i++, a.out += a.ld_out) {
        job->be->kernels.attention_join(&a, t->partial + i * t->ld_partial, job->part_floats,
                                        t->n_parts);
    }
}

static void add_task(attention_job *job, skv_cpu_task task)
{
    job->tasks[job->n_tasks++] = task;
}

/* Tasks of a prompt chunk, the last (longest) blocks first so that threads end together. */
static void add_chunk_tasks(attention_job *job, const skv_cpu_item *item)
{
    const size_t block = job->block;
    for (size_t b = skv_ceil_div(item->n_q, block); b-- > 0;) {
        for (size_t h = 0; h < job->n_kv_heads; h++) {
            add_task(job, (skv_cpu_task){.item = item,
                                         .i_head = h,
                                         .q0 = b * block,
                                         .n_q = skv_min_size(block, item->n_q - b * block)});
        }
    }
}

/* Where the i-th of n portions of rows [row0, row1) begins: inside, at a page. */
static size_t cut_of(size_t row0, size_t row1, size_t i, size_t n)
{
    if (i == 0) return row0;
    if (i == n) return row1;
    return (row0 + (row1 - row0) * i / n) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
}

/* The rows [row0, row1) of a token in n portions from `partial` on; the first of them joins
 * n_parts. */
static void add_portions(attention_job *job, skv_cpu_task task, size_t n)
{
    size_t row0 = task.row0, row1 = task.row1;
    for (size_t i = 0; i < n; i++) {
        task.row0 = cut_of(row0, row1, i, n);
        task.row1 = cut_of(row0, row1, i + 1, n);
        add_task(job, task);
        task.partial += job->part_floats;
        task.n_parts = 0;
    }
}

static void run_ordered(void *arg, size_t i_task, size_t i_thread)
{
    attention_job *job = arg;
    run_task(job, job->order[i_task], i_thread);
}

/* Each node's tasks in their own order, so that the longest still come first. */
static void run_by_nodes(attention_job *job)
{
    const size_t n_nodes = job->be->base.n_nodes, n_heads = job->n_kv_heads / n_nodes;
    size_t first[SKV_NODES_MAX + 1] = {0}, n = 0;
    for (size_t node = 0; node < n_nodes; node++) {
        first[node] = n;
        for (size_t i = 0; i < job->n_tasks; i++) {
            /* As skv_node_of_head has it, without a division. */
            if (job->tasks[i].i_head - node * n_heads < n_heads) job->order[n++] = (uint32_t)i;
        }
    }
    first[n_nodes] = n;
    skv_pool_run_nodes(job->be->pool, first, run_ordered, job);
}

static void run_tasks(attention_job *job)
{
    skv_cpu_backend *be = job->be;
    if (be->base.n_nodes > 1 && skv_nodes_divide(job->n_kv_heads, be->base.n_nodes)) {
        run_by_nodes(job);
    } else {
        skv_pool_run(be->pool, job->n_tasks, run_task, job);
    }
    if (job->partials > be->partials || job->n_shared < shared_partials(&be->limits)) {
        skv_pool_run(be->pool, job->n_tasks, join_task, job);
    }
}

/* Runs the listed tasks now, so that their portions make room for others. */
static void make_room(attention_job *job, size_t n_floats)
{
    const skv_cpu_backend *be = job->be;
    if (job->partials + n_floats <= be->partials + own_partials(be, &be->limits)) return;
    run_tasks(job);
    job->n_tasks = 0;
    job->partials = be->partials;
}

/* How one token is cut. */
typedef struct cuts {
    size_t row0, row1, n;
} cuts;

static cuts cuts_of(const attention_job *job, const skv_cpu_item *item, size_t i_head)
{
    const size_t track = job->track0 + i_head;
    cuts c = {skv_cpu_first_row(item, job->args->window, track), skv_cpu_end_row(item, track), 0};
    c.n = count_parts(job->be, c.row1 - c.row0, job->n_expected);
    return c;
}

static bool cuts_agree(const cuts *x, const cuts *y)
{
    bool agree = x->n == y->n;
    for (size_t i = 1; agree && i < x->n; i++) {
        agree = cut_of(x->row0, x->row1, i, x->n) == cut_of(y->row0, y->row1, i, y->n);
    }
    return agree;
}

/* How many of n tokens one task takes, if they are cut alike: not so many that threads idle. */
static size_t most_of_group(const attention_job *job, size_t n, size_t n_parts)
{
    const skv_cpu_backend *be = job->be;
    size_t n_groups =
        skv_ceil_div(2 * skv_pool_threads(be->pool), skv_max_size(1, job->n_expected * n_parts));
    size_t room = own_partials(be, &be->limits) / (n_parts * job->part_floats);
    size_t most = be->kernels.attention_tokens(job->n_group, job->args->head_dim);
    return skv_max_size(1, skv_min_size(skv_ceil_div(n, n_groups), skv_min_size(room, most)));
}

/* A task for the first of n tokens that follow each other, and those that are cut as it is. Returns
 * how many. */
static size_t add_group(attention_job *job, const skv_cpu_item *items, size_t n, size_t i_head)
{
    cuts first = cuts_of(job, items, i_head), last = first;
    size_t most = most_of_group(job, n, first.n), n_group = 1;
    for (; n_group < skv_min_size(n, most); n_group++) {
        cuts next = cuts_of(job, items + n_group, i_head);
        if (!cuts_agree(&first, &next)) break;
        last = next;
    }
    skv_cpu_task task = {.item = items, .i_head = i_head, .n_q = n_group, .singly = n_group > 1};
    if (first.n == 1) {
        add_task(job, task);
        return n_group;
    }
    make_room(job, n_group * first.n * job->part_floats);
    task.row0 = first.row0;
    task.row1 = last.row1;
    task.partial = job->partials;
    task.ld_partial = first.n * job->part_floats;
    task.n_parts = first.n;
    job->partials += n_group * task.ld_partial;
    add_portions(job, task, first.n);
    return n_group;
}

/* Tokens of one sequence, head by head. The first may have tasks already, as others may not. */
static void add_token_tasks(attention_job *job, const skv_cpu_item *items, size_t n)
{
    for (size_t h = 0; h < job->n_kv_heads; h++) {
        size_t i = job->is_shared[h * job->set->n_items + (size_t)(items - job->set->items)];
        while (i < n) i += add_group(job, items + i, n - i, h);
    }
}

/* How the tokens of one prefix are cut: portions of each token, its own first. */
typedef struct shares {
    size_t n_before; /* rows before the prefix, which only a window makes different: 0 or 1 */
    size_t n_after, n_prefix;
    size_t n_parts; /* all of them */
} shares;

static shares count_shares(const attention_job *job, const skv_cpu_prefix *p, size_t i_head,
                           size_t n_most)
{
    const skv_attention_args *a = job->args;
    size_t n_tasks = job->n_kv_heads * skv_ceil_div(p->n_items, n_most);
    shares s = {.n_before = a->window ? 1 : 0};
    s.n_prefix = skv_min_size(count_parts(job->be, p->row1 - p->row0, n_tasks), SHARED_MAX);
    size_t n_rows = skv_cpu_end_row(&job->set->items[p->leader], job->track0 + i_head) - p->row1;
    s.n_after = skv_min_size(count_parts(job->be, n_rows, job->n_expected), OWN_MAX);
    s.n_parts = s.n_before + s.n_after + s.n_prefix;
    return s;
}

/* Tasks of the prefix's own rows, for all of its tokens: rows is their rows of q, [n_items]. */
static void add_prefix_rows(attention_job *job, const skv_cpu_prefix *p, size_t i_head,
                            const shares *s, const uint32_t *rows)
{
    size_t n_most = job->be->kernels.attention_tokens(job->n_group, job->args->head_dim);
    size_t ld = s->n_parts * job->part_floats;
    for (size_t j = 0; j < p->n_items; j += n_most) {
        add_portions(
            job,
            (skv_cpu_task){
                .item = &job->set->items[p->leader],
                .i_head = i_head,
                .n_q = skv_min_size(n_most, p->n_items - j),
                .rows = rows + j,
                .partial = job->shared + j * ld + (s->n_before + s->n_after) * job->part_floats,
                .ld_partial = ld,
                .row0 = p->row0,
                .row1 = p->row1,
            },
            s->n_prefix);
    }
}

/* Tasks of prefix i of a head; none if there is no room for its portions. */
static void add_prefix(attention_job *job, const skv_cpu_prefix *p, size_t i, size_t i_head)
{
    const skv_attention_args *a = job->args;
    size_t n_most = job->be->kernels.attention_tokens(job->n_group, a->head_dim);
    shares s = count_shares(job, p, i_head, n_most);
    size_t n_floats = p->n_items * s.n_parts * job->part_floats;
    if (p->n_items < 2 || n_floats > job->n_shared) return;
    const size_t track = job->track0 + i_head;
    uint32_t *rows = job->rows;
    for (size_t j = p->leader; j < job->set->n_items; j++) {
        if (job->prefix_of[j] == i) *job->rows++ = (uint32_t)job->set->items[j].row0;
    }
    add_prefix_rows(job, p, i_head, &s, rows);
    float *partial = job->shared;
    for (size_t j = p->leader; j < job->set->n_items; j++) {
        if (job->prefix_of[j] != i) continue;
        skv_cpu_task task = {.item = &job->set->items[j], .i_head = i_head, .n_q = 1};
        task.partial = partial;
        task.n_parts = s.n_parts;
        task.row0 = p->row1;
        task.row1 = skv_cpu_end_row(task.item, track);
        add_portions(job, task, s.n_after);
        task.partial = partial + s.n_after * job->part_floats;
        task.n_parts = 0;
        task.row0 = skv_cpu_first_row(task.item, a->window, track);
        task.row1 = p->row0;
        add_portions(job, task, s.n_before);
        job->is_shared[i_head * job->set->n_items + j] = 1;
        partial += s.n_parts * job->part_floats;
    }
    job->shared += n_floats;
    job->n_shared -= n_floats;
}

static void add_prefixes(attention_job *job)
{
    const skv_attention_args *a = job->args;
    memset(job->is_shared, 0, job->n_kv_heads * job->set->n_items);
    /* Sums of a token would depend on the tokens that share its rows. */
    if (job->be->limits.batch_invariant || job->set->n_items < 2) return;
    for (size_t h = 0; h < job->n_kv_heads; h++) {
        skv_cpu_prefix prefixes[SKV_PREFIXES_MAX];
        size_t n =
            skv_cpu_find_prefixes(job->set, a->window, job->track0 + h, prefixes, job->prefix_of);
        for (size_t i = 0; i < n; i++) add_prefix(job, &prefixes[i], i, h);
    }
}

/* Tokens of a task of prompts: half of what is best where so many would leave threads without work.
 * Each task packs the pages that it sees, so a quarter would cost more than it brings. */
static size_t block_of(const attention_job *job)
{
    const size_t best = job->be->kernels.attention_tokens(job->n_group, job->args->head_dim);
    size_t n_tasks = 0;
    for (size_t i = 0; i < job->set->n_items; i++) {
        n_tasks += job->n_kv_heads * skv_ceil_div(job->set->items[i].n_q, best);
    }
    const bool few = n_tasks < BLOCKS_A_THREAD * skv_pool_threads(job->be->pool);
    return few ? skv_ceil_div(best, 2) : best;
}

static attention_job job_of(skv_cpu_backend *be, const skv_attention_args *args)
{
    const skv_backend_limits *limits = &be->limits;
    const skv_cpu_set *set = &args->step->sets[args->set];
    const skv_slots_spec *spec = &args->step->slots->spec;
    const size_t n_kv_heads = spec->track0[args->slot + 1] - spec->track0[args->slot];
    size_t n_rows = limits->max_rows * limits->max_heads;
    attention_job job = {
        .be = be,
        .args = args,
        .set = set,
        .type = spec->type,
        .track0 = spec->track0[args->slot],
        .n_kv_heads = n_kv_heads,
        .n_group = args->n_heads / n_kv_heads,
        .tasks = be->tasks,
        .partials = be->partials,
        .shared = be->partials + own_partials(be, limits),
        .n_shared = shared_partials(limits),
        .order = (uint32_t *)(void *)(be->tasks + most_tasks(limits)),
    };
    job.rows = job.order + order_length(be, limits);
    job.part_floats = portion_floats(job.n_group, args->head_dim);
    job.block = block_of(&job);
    /* Tokens that follow in a draft do not count: plain steps do not have them. */
    for (size_t i = 0; i < set->n_items; i++) {
        if (!set->items[i].follows) job.n_expected += job.n_kv_heads;
    }
    job.n_expected = skv_max_size(1, job.n_expected);
    job.is_shared = (uint8_t *)(job.rows + n_rows);
    job.prefix_of = job.is_shared + n_rows;
    return job;
}

void skv_cpu_attention(skv_backend *base, const skv_attention_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    attention_job job = job_of(be, args);
    const skv_cpu_set *set = job.set;
    add_prefixes(&job);
    for (size_t i = 0, n; i < set->n_items; i += n) {
        const skv_cpu_item *item = &set->items[i];
        for (n = 1; i + n < set->n_items && item[n].follows; n++) {}
        if (item->n_q > 1) {
            add_chunk_tasks(&job, item);
        } else {
            add_token_tasks(&job, item, n);
        }
    }
    run_tasks(&job);
}
