/*
 * FFN-SkipLLM (arXiv:2404.03865), as SwiftKV's paper compares with it (arXiv:2410.03960, Table 2):
 * feed-forward blocks of the middle layers change a token less and less, so once one of them has
 * left the direction of its residual stream as it was, the next ones are left out. Attention runs
 * in every layer, so that keys and values are complete. The first layers and the last ones are
 * "cold": they run whole, and so do the first tokens of a sequence, which others attend to most.
 *
 *     sim = cos(x, x + FFN(x));    sim >= similarity: the token leaves out the next n_skip blocks
 */
#include "model/ffn_skip.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/pass.h"

enum { WARM_UP = 32, N_NUMBERS = 5, WARM_UP_MAX = 1 << 24, SKIP_MAX = 1 << 10 };
static const double default_from = 0.35, default_to = 0.85;

double skv_cosine(const float *x, const float *y, size_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

bool skv_ffn_skip_parse(const char *text, skv_ffn_skip *out)
{
    double numbers[N_NUMBERS] = {0, WARM_UP, 0, default_from, default_to};
    *out = (skv_ffn_skip){.on = false};
    if (strcmp(text, "none") == 0) return true;
    for (size_t i = 0;; i++) {
        char *end;
        if (i == N_NUMBERS) return false;
        numbers[i] = strtod(text, &end);
        if (end == text || (*end != 0 && *end != ',')) return false;
        if (*end == 0) break;
        text = end + 1;
    }
    const double warm = numbers[1], n = numbers[2];
    if (!(numbers[0] > -1 && numbers[0] <= 1)) return false;
    if (!(warm >= 0 && warm <= WARM_UP_MAX && n >= 0 && n <= SKIP_MAX)) return false;
    if (warm != floor(warm) || n != floor(n)) return false;
    if (!(numbers[3] >= 0 && numbers[3] < numbers[4] && numbers[4] <= 1)) return false;
    *out = (skv_ffn_skip){true, numbers[0], (size_t)warm, (size_t)n, numbers[3], numbers[4]};
    return true;
}

void skv_ffn_skip_print(const skv_ffn_skip *how, char out[SKV_FFN_SKIP_TEXT])
{
    if (!how->on) {
        (void)snprintf(out, SKV_FFN_SKIP_TEXT, "none");
        return;
    }
    (void)snprintf(out, SKV_FFN_SKIP_TEXT, "%g,%zu,%zu,%g,%g", how->similarity, how->warm_up,
                   how->n_skip, how->from, how->to);
}

/* ---- in a pass ---- */

/* A row's state: how many blocks it still leaves out, or that it runs all. */
#define RUNS_ALL UINT16_MAX

void skv_ffn_skip_start(const skv_pass *p)
{
    const skv_ffn_skipper *s = p->ffn_skipper;
    size_t row = 0;
    for (size_t k = 0; k < p->n_spans; k++) {
        const skv_pass_span *span = &p->spans[k];
        for (size_t i = 0; i < span->at.n; i++) {
            s->left[row++] = span->at.position0 + i < s->how->warm_up ? RUNS_ALL : 0;
        }
    }
}

/* Rows to run at ws->gathered, how many is returned. */
static size_t choose_rows(const skv_pass *p)
{
    const skv_ffn_skipper *s = p->ffn_skipper;
    size_t n = 0;
    for (size_t r = 0; r < p->n_alive; r++) {
        if (s->left[r] == 0 || s->left[r] == RUNS_ALL) {
            p->ws->gathered[n++] = (uint32_t)r;
        } else {
            s->left[r]--;
        }
    }
    p->work->mlp_skipped += p->n_alive - n;
    return n;
}

typedef struct block_job {
    const skv_pass *p;
    skv_mapped x; /* [n_alive, D] */
    skv_mapped y; /* [n, D]: rows ws->gathered of x */
} block_job;

static void fetch_row(void *arg, size_t i, size_t i_thread)
{
    const block_job *job = arg;
    (void)i_thread;
    const skv_pass *p = job->p;
    memcpy(job->y.at + i * job->y.ld, job->x.at + p->ws->gathered[i] * job->x.ld,
           p->c->hidden * sizeof *job->y.at);
}

/* Back to x; the block's effect on the row decides whether the next is skipped. */
static void put_row(void *arg, size_t i, size_t i_thread)
{
    const block_job *job = arg;
    (void)i_thread;
    const skv_pass *p = job->p;
    const skv_ffn_skipper *s = p->ffn_skipper;
    size_t D = p->c->hidden, row = p->ws->gathered[i];
    float *x = job->x.at + row * job->x.ld;
    const float *y = job->y.at + i * job->y.ld;
    uint16_t *left = &s->left[row];
    if (*left == 0 && skv_cosine(x, y, D) >= s->how->similarity) {
        *left = s->how->n_skip == 0 ? RUNS_ALL - 1 : (uint16_t)s->how->n_skip;
    }
    memcpy(x, y, D * sizeof *x);
}

/* [max_rows, D]: those that run the block. */
static skv_rows rows_of(const skv_ffn_skipper *s)
{
    return (skv_rows){.area = s->rows, .ld = s->hidden};
}

/* fetch_row or put_row for n rows. */
static void move_rows(const skv_pass *p, size_t n, bool back)
{
    skv_backend *be = p->be;
    const size_t D = p->c->hidden;
    block_job job = {.p = p};
    job.x = be->map(be, p->ws->x, p->n_alive, D, back ? SKV_MAP_BOTH : SKV_MAP_READ);
    job.y = be->map(be, rows_of(p->ffn_skipper), n, D, back ? SKV_MAP_READ : SKV_MAP_WRITE);
    skv_pool_run(p->pool, n, back ? put_row : fetch_row, &job);
    be->unmap(be, job.y);
    be->unmap(be, job.x);
}

size_t skv_ffn_skip_take(const skv_pass *p, skv_rows *rows)
{
    const size_t n = choose_rows(p);
    if (n > 0) move_rows(p, n, false);
    *rows = rows_of(p->ffn_skipper);
    return n;
}

void skv_ffn_skip_put(const skv_pass *p, size_t n)
{
    move_rows(p, n, true);
}

static skv_area_spec area_of(size_t hidden, size_t max_rows)
{
    return (skv_area_spec){.kind = SKV_AREA_F32, .n_rows = max_rows, .n_columns = hidden};
}

skv_bytes skv_ffn_skipper_bytes(const skv_config *config, const skv_backend *be, size_t max_rows)
{
    const skv_area_spec spec = area_of(config->hidden, max_rows);
    return be->areas_bytes(be, &spec, 1);
}

skv_status skv_ffn_skipper_init(skv_ffn_skipper *s, const skv_ffn_skip *how,
                                const skv_config *config, skv_backend *be, size_t max_rows,
                                skv_error *err)
{
    const skv_area_spec spec = area_of(config->hidden, max_rows);
    assert(how->on);
    *s = (skv_ffn_skipper){.how = how, .be = be, .hidden = config->hidden};
    s->left = skv_alloc_zero(max_rows, sizeof *s->left);
    SKV_REQUIRE(s->left, err, SKV_MEMORY, "ffn skip: no memory for %zu rows", max_rows);
    SKV_TRY(be->areas_create(be, &spec, 1, &s->rows, err));
    s->first_layer = (size_t)(how->from * (double)config->n_layers + 0.5);
    s->end_layer = (size_t)(how->to * (double)config->n_layers + 0.5);
    return SKV_OK;
}

void skv_ffn_skipper_release(skv_ffn_skipper *s)
{
    skv_free(s->left);
    if (s->be) s->be->areas_free(s->be, &s->rows, 1);
    *s = (skv_ffn_skipper){0};
}
