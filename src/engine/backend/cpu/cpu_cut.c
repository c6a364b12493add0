/* Cutting a matrix product into tasks: see cpu_cut.h. */
#include "backend/cpu/cpu_cut.h"

#include "base/size.h"

enum {
    TASKS_A_THREAD = 16,   /* tasks that balance the threads */
    STRIP_BYTES = 1 << 18, /* of the weights that a strip reads at a time, about */
    ROWS_A_PART = 48,      /* rows that a task has at least when it shares a panel, */
    ROWS_LEAST = 16,       /* and where there are fewer panels than threads */
    TASKS_LEFT = 4,        /* tasks that wide strips leave to a thread at least */
    ROWS_A_THREAD = 64,    /* rows from which a thread is better off with rows of its own */
    HALVES_MAX = 4         /* panels are halved where fewer than this are for each thread */
};

/* Blocks of rows that a task has at least when it shares a panel. */
static size_t blocks_a_part(const skv_cut_shape *s)
{
    return skv_ceil_div(ROWS_A_PART, s->mr);
}

/* Strips that the columns make. With few blocks of rows a strip is a panel: they gain nothing from
 * a wider one, and many strips balance the threads. */
static size_t count_strips(const skv_cut_shape *s)
{
    const size_t n_parts = s->n_blocks / blocks_a_part(s);
    const size_t fitting = STRIP_BYTES / skv_max_size(s->piece_bytes, 1);
    size_t width = skv_max_size(1, skv_min_size(fitting, SKV_CUT_STRIP_MAX));
    const size_t widest = s->n_columns * n_parts / (TASKS_LEFT * (s->alone ? 1 : s->n_threads));
    width = skv_max_size(1, skv_min_size(width, widest));
    if (n_parts == 0) width = 1;
    return skv_ceil_div(s->n_columns, width);
}

/* Whether panels, each a strip for all rows, become halves, so that the thread with most of them
 * has less. Not with so few threads as the cut into whole panels was timed with. */
static bool pays_halving(const skv_cut_shape *s, const skv_cut *cut)
{
    const size_t n = cut->n_strips, n_threads = s->n_threads;
    if (!s->halves || n_threads < SKV_CUT_HALVES_FROM) return false;
    if (n != s->n_columns || cut->n_row_parts > 1 || n >= HALVES_MAX * n_threads) return false;
    return skv_ceil_div(2 * n, n_threads) < 2 * skv_ceil_div(n, n_threads);
}

/*
 * Few panels cannot balance the threads: then several tasks share one. With many rows for each
 * thread the tasks go by rows, so that a thread's stretch of them is a range of rows, the same in
 * every product and row operation of a layer: what it reads is what it wrote, and not in the cache
 * of another core. With few, each panel is read by one thread only, which counts for more, or by
 * two that read other columns of it.
 */
skv_cut skv_cpu_cut_product(const skv_cut_shape *s)
{
    skv_cut cut = {.n_strips = count_strips(s), .n_row_parts = 1};
    if (s->alone) return cut;
    const size_t wanted = skv_ceil_div(TASKS_A_THREAD * s->n_threads, cut.n_strips);
    cut.n_row_parts = skv_max_size(1, skv_min_size(wanted, s->n_blocks / blocks_a_part(s)));
    if (cut.n_strips * cut.n_row_parts < s->n_threads) {
        const size_t most = s->n_blocks / skv_ceil_div(ROWS_LEAST, s->mr);
        const size_t enough = skv_ceil_div(s->n_threads, cut.n_strips);
        cut.n_row_parts = skv_max_size(cut.n_row_parts, skv_min_size(enough, most));
    }
    cut.by_rows = s->n_rows >= ROWS_A_THREAD * s->n_threads;
    if (cut.by_rows) cut.n_row_parts = skv_round_up(cut.n_row_parts, s->n_threads);
    cut.halved = pays_halving(s, &cut);
    if (cut.halved) cut.n_strips *= 2;
    return cut;
}
