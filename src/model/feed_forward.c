/* The feed-forward block of a layer, for all rows or for those that do not leave it out. */
#include <string.h>

#include "base/size.h"
#include "model/forward_impl.h"

void skv_pass_project(const skv_pass *p, const skv_pass_rows *rows, const skv_linear *w,
                      const float *y, size_t ldy, const float *post_norm)
{
    size_t D = p->c->hidden;
    skv_linear_args args = {.w = w,
                            .y = rows->x,
                            .ldy = D,
                            .x = y,
                            .ldx = ldy,
                            .n_rows = rows->n,
                            .epilogue = SKV_EPILOGUE_ADD};
    if (!post_norm) {
        p->be->linear(p->be, &args);
        return;
    }
    args.y = p->ws->qkv; /* free again: the queries have been used */
    args.epilogue = SKV_EPILOGUE_STORE;
    p->be->linear(p->be, &args);
    p->be->norm_add(p->be, &(skv_norm_add_args){.x = rows->x,
                                                .y = p->ws->qkv,
                                                .n_rows = rows->n,
                                                .n = D,
                                                .norm = skv_pass_norm(p, post_norm)});
}

static void run_block(const skv_pass *p, size_t i, const skv_pass_rows *rows)
{
    const skv_layer *layer = &p->m->layers[i];
    size_t F = p->c->layers[i].ffn;
    p->be->linear(p->be, &(skv_linear_args){
                             .w = layer->gate_up,
                             .y = p->ws->h,
                             .ldy = F,
                             .x = rows->x,
                             .ldx = p->c->hidden,
                             .n_rows = rows->n,
                             .norm = skv_pass_norm(p, layer->ffn_norm),
                             .epilogue = p->c->activation == SKV_ACT_SILU ? SKV_EPILOGUE_SILU_GLU
                                                                          : SKV_EPILOGUE_GELU_GLU,
                         });
    skv_pass_project(p, rows, layer->down, p->ws->h, F, layer->post_ffn_norm);
    p->work->mlp += skv_work_product(rows->n, p->c->hidden, 3 * F);
    p->work->mlp_blocks += rows->n;
}

/* ---- blocks that some rows leave out ---- */

typedef struct block_job {
    const skv_pass *p;
    float *y; /* [n, D]: rows ws->gathered of x */
} block_job;

static void fetch_row(void *arg, size_t i)
{
    const block_job *job = arg;
    const skv_pass *p = job->p;
    size_t D = p->c->hidden;
    memcpy(job->y + i * D, p->ws->x + p->ws->gathered[i] * D, D * sizeof *job->y);
}

/* Back to x, and what the block has done to the row decides what comes next. */
static void put_row(void *arg, size_t i)
{
    const block_job *job = arg;
    const skv_pass *p = job->p;
    const skv_mlp_gate *gate = p->f->gate;
    size_t D = p->c->hidden, row = p->ws->gathered[i];
    float *x = p->ws->x + row * D;
    const float *y = job->y + i * D;
    if (p->ws->mlp_left[row] == 0) {
        size_t n = gate->choose(gate->user, x, y, D);
        p->ws->mlp_left[row] = (uint16_t)skv_min_size(n, SKV_MLP_ALL - 1);
    }
    memcpy(x, y, D * sizeof *x);
}

/* Rows to run at ws->gathered, how many is returned. */
static size_t choose_rows(const skv_pass *p)
{
    size_t n = 0;
    for (size_t r = 0; r < p->n_alive; r++) {
        uint16_t *left = &p->ws->mlp_left[r];
        if (*left == 0 || *left == SKV_MLP_ALL) {
            p->ws->gathered[n++] = (uint32_t)r;
        } else {
            (*left)--;
        }
    }
    p->work->mlp_skipped += p->n_alive - n;
    return n;
}

void skv_pass_feed_forward(skv_pass *p, size_t i)
{
    const skv_mlp_gate *gate = p->f->gate;
    const skv_pass_rows all = {p->ws->x, p->n_alive};
    if (!gate || i < gate->first_layer || i >= gate->end_layer) {
        run_block(p, i, &all);
        return;
    }
    size_t n = choose_rows(p);
    if (n == 0) return;
    block_job job = {p, p->ws->o}; /* free again: attention's result has been used */
    p->be->parallel(p->be, n, fetch_row, &job);
    const skv_pass_rows rows = {job.y, n};
    run_block(p, i, &rows);
    p->be->parallel(p->be, n, put_row, &job);
}
