/*
 * Launches, and those that are held until the next one, which may take them along. Each ends a
 * block of a layer with a sum, or makes gated products, and the next product's operand is mostly a
 * norm of these rows. Whatever else is asked of the device puts the held launch into the stream
 * first, so the order of work is that of the calls.
 */
#include <string.h>

#include "backend/cuda/cuda_graphs.h"

void skv_cuda_hold(skv_cuda_device *d, skv_cuda_kernel kernel, skv_cuda_grid grid,
                   const skv_cuda_first_args *args)
{
    skv_cuda_release(d);
    d->held = (skv_cuda_held){.is_there = true, .kernel = kernel, .grid = grid, .args = *args};
    if (d->apart) skv_cuda_release(d);
}

void skv_cuda_release(skv_cuda_device *d)
{
    if (!d->held.is_there) return;
    d->held.is_there = false;
    skv_cuda_graphs_launch(d, d->held.kernel, d->held.grid, &d->held.args);
}

void skv_cuda_flush(skv_cuda_device *d)
{
    skv_cuda_release(d);
    skv_cuda_graphs_end(d);
}

void skv_cuda_launch(skv_cuda_device *d, skv_cuda_kernel kernel, skv_cuda_grid grid,
                     const void *args)
{
    skv_cuda_release(d);
    skv_cuda_graphs_launch(d, kernel, grid, args);
}

/* ---- both in one ---- */

/* Rows of n numbers that a launch leaves, and what kind of launch it is. */
typedef struct left {
    skv_cuda_rows rows;
    uint32_t n, kind; /* SKV_CUDA_FIRST_NORM, .. */
    size_t n_bytes;   /* of its arguments */
} left;

static left left_by(const skv_cuda_held *held)
{
    const skv_cuda_first_args *a = &held->args;
    switch (held->kernel) {
    case SKV_CUDA_skv_norm_rows:
        return (left){a->norm.y, a->norm.n, SKV_CUDA_FIRST_NORM, sizeof a->norm};
    case SKV_CUDA_skv_move_rows:
        return (left){a->move.y, a->move.n, SKV_CUDA_FIRST_MOVE, sizeof a->move};
    case SKV_CUDA_skv_glu_rows:
        return (left){a->glu.y, a->glu.n, SKV_CUDA_FIRST_GLU, sizeof a->glu};
    default: return (left){a->mix.x, a->mix.n, SKV_CUDA_FIRST_MIX, sizeof a->mix};
    }
}

static bool are_these(const skv_cuda_held *held, const left *l, size_t n_rows,
                      const skv_cuda_norm_args *args)
{
    return held->grid.x == n_rows && !args->rows && args->n == l->n && args->x.at == l->rows.at &&
           args->x.ld == l->rows.ld && args->x.type == l->rows.type;
}

void skv_cuda_launch_norm(skv_cuda_device *d, size_t n_rows, const skv_cuda_norm_args *args)
{
    const skv_cuda_grid grid = {.x = (uint32_t)n_rows, .shared = SKV_CUDA_ROWS_SHARED};
    skv_cuda_held *held = &d->held;
    const left l = left_by(held); /* anything, where none is held */
    if (n_rows == 0) return;
    if (!held->is_there || !are_these(held, &l, n_rows, args)) {
        skv_cuda_launch(d, SKV_CUDA_skv_norm_rows, grid, args);
        return;
    }
    skv_cuda_join_args both; /* all bytes of it are compared where launches are recorded */
    memset(&both, 0, sizeof both);
    memcpy(&both.first, &held->args, l.n_bytes);
    both.then = *args;
    both.kind = l.kind;
    held->is_there = false;
    skv_cuda_graphs_launch(d, SKV_CUDA_skv_join_rows, grid, &both);
}
