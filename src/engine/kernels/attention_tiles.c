/* Attention in tiles: the loop over pages and tiles that every fast level shares. */
#include "kernels/attention_tiles.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "kernels/kv_page.h"

enum {
    TASK_ROWS = 192, /* query rows of a task, about: a multiple of all skv_attention_tiles.rows */
    FEW_HEADS = 8,   /* query heads of one token for which panels do not pay */
    FEW_ROWS = 16,   /* with so few the cache is read faster than panels are made: fetch ahead */
    FETCH_BYTES = 32768 /* bytes to fetch ahead of the page in use, about: whole pages */
};

static const float NOTHING = -1e30f; /* a maximum below every score, from which one may subtract */
static const float SLACK = 8.0f;     /* weights of a prompt are at most 2^8 */
static const float LOG2_E = 1.44269504f;
static const float LN_2 = 0.693147181f;

/* One task and its scratch. */
typedef struct task {
    const skv_attention *a;
    const skv_attention_tiles *tiles;
    size_t token0;     /* first token */
    size_t n_rows;     /* query rows M = tokens x G, row = token x G + head */
    size_t row0, row1; /* rows of the cache it may look at */
    size_t ld_v;       /* Dh rounded up */
    size_t q_bytes;    /* of a row of q */
    float slack;
    bool few;                 /* of single tokens, straight from the pages */
    unsigned char *q, *k, *v; /* packed: [M][Dh], panel, panel */
    float *s;                 /* [M][64] scores, then weights */
    float *o;                 /* [M][ld_v] */
    float *max;               /* [M] */
    float *q_steps, *p_steps; /* [M] between the whole numbers of a row of q, of weights */
    float *sums;              /* [M][SKV_TILE_SUMS] */
    float *scales;            /* [2][64] of K and V in an 8-bit page */
    int32_t *starts;          /* [64] the initial sums of scores */
} task;

/* The columns [lo, hi) of one page that a query row sees. */
typedef struct span {
    size_t lo, hi;
} span;

size_t skv_attention_tokens_tiles(size_t n_group, size_t head_dim)
{
    (void)head_dim;
    return skv_max_size(1, TASK_ROWS / n_group);
}

/* Bytes of a K panel's column: room for whole steps, and for eight elements at a time. */
static size_t column_bytes(size_t head_dim, size_t element)
{
    return skv_round_up(head_dim * element, SKV_ALIGN);
}

size_t skv_attention_scratch_tiles(size_t n_group, size_t head_dim)
{
    size_t M = skv_attention_tokens_tiles(n_group, head_dim) * n_group;
    size_t ld_v = skv_round_up(head_dim, SKV_TILE_V_ALIGN);
    size_t row = column_bytes(head_dim, sizeof(float)) / sizeof(float); /* the widest of Q or K */
    size_t floats = (M + SKV_PAGE_ROWS) * row + SKV_PAGE_ROWS * ld_v +
                    M * (SKV_PAGE_ROWS + ld_v + SKV_TILE_SUMS) + 3 * SKV_PAGE_ROWS +
                    3 * skv_round_up(M, 16);
    return floats * sizeof(float);
}

/* Which tiles serve the task, and whether their few_* do. */
static void choose_tiles(task *t, const skv_attention_ways *ways)
{
    const skv_attention *a = t->a;
    t->tiles = a->type == SKV_KV_TYPE_F32 ? ways->f32 : ways->narrow;
    t->few = t->tiles->few_scores && !a->invariant && a->n_group <= FEW_HEADS &&
             (t->n_rows == a->n_group || a->singly);
    if (!t->few && a->type == SKV_KV_TYPE_INT8 && ways->int8) t->tiles = ways->int8;
}

static void task_init(task *t, const skv_attention_ways *ways, size_t n_tokens, void *scratch)
{
    const skv_attention *a = t->a;
    size_t Dh = a->head_dim;
    t->n_rows = n_tokens * a->n_group;
    choose_tiles(t, ways);
    size_t element = t->tiles->element;
    t->ld_v = skv_round_up(Dh, SKV_TILE_V_ALIGN);
    t->q_bytes = skv_round_up(Dh * element, t->tiles->step);

    size_t M = t->n_rows;
    t->q = scratch;
    t->k = t->q + skv_round_up(M * t->q_bytes, SKV_ALIGN);
    t->v = t->k + SKV_PAGE_ROWS * column_bytes(Dh, element);
    t->s = (float *)(void *)(t->v + SKV_PAGE_ROWS * t->ld_v * element);
    t->o = t->s + M * SKV_PAGE_ROWS;
    t->sums = t->o + M * t->ld_v;
    t->scales = t->sums + M * SKV_TILE_SUMS;
    t->starts = (int32_t *)(void *)(t->scales + 2 * SKV_PAGE_ROWS);
    t->max = t->scales + 3 * SKV_PAGE_ROWS;
    t->q_steps = t->max + skv_round_up(M, 16);
    t->p_steps = t->q_steps + skv_round_up(M, 16);

    float scale = a->softcap > 0.0f ? a->scale / a->softcap : a->scale * LOG2_E;
    for (size_t i = 0; i < M; i++) {
        size_t token = t->token0 + i / a->n_group;
        if (a->rows) token = a->rows[token];
        const float *q = a->q + token * a->ld_q + i % a->n_group * Dh;
        t->q_steps[i] = t->tiles->pack_q(t->q + i * t->q_bytes, q, scale, Dh);
        t->max[i] = NOTHING;
        if (!t->few || !t->tiles->few_q) continue;
        t->q_steps[i] = t->tiles->few_q(t->q + i * t->q_bytes, Dh, a->type);
    }
    memset(t->o, 0, M * t->ld_v * sizeof *t->o);
    memset(t->sums, 0, M * SKV_TILE_SUMS * sizeof *t->sums);
}

/* The range of a page's rows, from row `first` of the cache on, that query row i sees. */
static span span_of(const task *t, size_t i, size_t first)
{
    size_t window = t->a->window;
    size_t end = t->a->n_past + t->token0 + i / t->a->n_group + 1;
    size_t begin = window != 0 && end > window ? end - window : 0;
    begin = skv_max_size(begin, t->row0);
    end = skv_min_size(end, t->row1);
    span s = {begin > first ? begin - first : 0, end > first ? end - first : 0};
    s.lo = skv_min_size(s.lo, SKV_PAGE_ROWS);
    s.hi = skv_min_size(s.hi, SKV_PAGE_ROWS);
    return s;
}

/* The columns that any of the m rows from row i sees; spans only move right with the row. */
static span span_of_rows(const task *t, size_t i, size_t m, size_t first)
{
    return (span){span_of(t, i, first).lo, span_of(t, i + m - 1, first).hi};
}

static uint64_t bits_below(size_t n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* Rows of one product, from row i on, and the range of a page that they see. */
typedef struct tile {
    size_t i, m;
    span seen; /* columns that any of them sees */
    bool all;  /* every row sees every column */
    float *s;  /* [m][64] */
} tile;

static void run_scores(const task *t, const tile *x)
{
    skv_tile_product p = {
        .c = x->s,
        .ldc = SKV_PAGE_ROWS,
        .a = t->q + x->i * t->q_bytes,
        .lda = t->q_bytes,
        .b = t->k,
        .ldb = SKV_PAGE_ROWS,
        .m = x->m,
        .n = skv_round_up(x->seen.hi, 16),
        .k = t->a->head_dim,
        .steps = t->q_steps + x->i,
        .starts = t->starts,
    };
    t->tiles->product(&p);
}

static void shrink_rows(const task *t, size_t i, size_t m, const float *shrink)
{
    for (size_t r = 0; r < m; r++) {
        float *o = t->o + (i + r) * t->ld_v;
        if (shrink[r] == 1.0f) continue;
        for (size_t d = 0; d < t->ld_v; d++) o[d] *= shrink[r];
    }
}

static void run_softmax(const task *t, const tile *x, size_t first)
{
    float cap = t->a->softcap > 0.0f ? t->a->softcap * LOG2_E : 0.0f;
    bool has_scales = skv_kv_has_scales(t->a->type);
    uint64_t visible[SKV_TILE_ROWS];
    float shrink[SKV_TILE_ROWS];
    for (size_t r = 0; !x->all && r < x->m; r++) {
        span s = span_of(t, x->i + r, first);
        visible[r] = bits_below(s.hi) & ~bits_below(s.lo);
    }
    skv_tile_softmax softmax = {
        .s = x->s,
        .m = x->m,
        .visible = x->all ? NULL : visible,
        .max = t->max + x->i,
        .sums = t->sums + x->i * SKV_TILE_SUMS,
        .shrink = shrink,
        .steps = t->p_steps + x->i,
        .k_scales = has_scales ? t->scales : NULL,
        .v_scales = has_scales ? t->scales + SKV_PAGE_ROWS : NULL,
        .slack = t->slack,
        .cap = cap,
    };
    if (t->tiles->softmax(&softmax)) shrink_rows(t, x->i, x->m, shrink);
}

static void run_values(const task *t, const tile *x)
{
    skv_tile_product p = {
        .c = t->o + x->i * t->ld_v,
        .ldc = t->ld_v,
        .a = (const unsigned char *)x->s,
        .lda = SKV_PAGE_ROWS * sizeof *x->s,
        .b = t->v,
        .ldb = t->ld_v,
        .m = x->m,
        .n = t->ld_v,
        .k = skv_round_up(x->seen.hi, t->tiles->unit),
        .add = true,
        .steps = t->p_steps + x->i,
    };
    t->tiles->product(&p);
}

/* The softmax of a tile's rows, a few at a time. */
static void run_tile_softmax(const task *t, const tile *x, size_t first)
{
    for (size_t r = 0; r < x->m; r += SKV_TILE_ROWS) {
        tile few = *x;
        few.i += r;
        few.m = skv_min_size(SKV_TILE_ROWS, x->m - r);
        few.s += r * SKV_PAGE_ROWS;
        run_softmax(t, &few, first);
    }
}

/* A page by way of panels, a tile of rows at a time. */
static void run_panels(const task *t, const skv_tile_page *page, size_t first)
{
    span most = span_of(t, 0, first), last = span_of(t, t->n_rows - 1, first);
    bool all = last.lo == 0 && most.hi == SKV_PAGE_ROWS;
    const size_t rows = t->tiles->rows;
    t->tiles->pack_k(t->k, page);
    t->tiles->pack_v(t->v, page);
    for (size_t i = 0; i < t->n_rows; i += rows) {
        tile x = {i, skv_min_size(rows, t->n_rows - i), {0, SKV_PAGE_ROWS}, all, t->s};
        if (!all) x.seen = span_of_rows(t, i, x.m, first);
        if (x.seen.lo >= x.seen.hi) continue;
        run_scores(t, &x);
        run_tile_softmax(t, &x, first);
        run_values(t, &x);
    }
}

/* The softmax of every row of the task, whose scores are all there. */
static void run_few_softmax(const task *t, size_t first)
{
    for (size_t i = 0; i < t->n_rows; i += SKV_TILE_ROWS) {
        size_t m = skv_min_size(SKV_TILE_ROWS, t->n_rows - i);
        tile x = {i, m, span_of_rows(t, i, m, first), false, t->s + i * SKV_PAGE_ROWS};
        if (x.seen.lo < x.seen.hi) run_softmax(t, &x, first);
    }
}

/* Scores (or, with `values`, sums) of n rows from row i on, straight from the page. It asks for
 * the rows at `ahead`, as many as it reads, on the way. */
static void run_few(const task *t, size_t i, size_t n, const skv_tile_page *page,
                    const unsigned char *ahead, bool values)
{
    for (size_t end = i + n; i < end; i += SKV_TILE_FEW, ahead = NULL) {
        skv_tile_few f = {
            .s = t->s + i * SKV_PAGE_ROWS,
            .o = t->o + i * t->ld_v,
            .q = t->q + i * t->q_bytes,
            .q_bytes = t->q_bytes,
            .q_steps = t->q_steps + i,
            .m = skv_min_size(SKV_TILE_FEW, end - i),
            .ahead = ahead,
        };
        if (values) {
            t->tiles->few_values(&f, page);
        } else {
            t->tiles->few_scores(&f, page);
        }
    }
}

/* The buffers for a page's K and, if there are any, the scales. */
static void fetch_k(const skv_attention *a, const unsigned char *page)
{
    size_t half = skv_page_rows_at(a->type, a->head_dim, 1);
    size_t end = skv_kv_page_bytes(a->type, a->head_dim);
    for (size_t at = 0; at < half; at += SKV_ALIGN) __builtin_prefetch(page + at, 0, 0);
    for (size_t at = 2 * half; at < end; at += SKV_ALIGN) __builtin_prefetch(page + at);
}

/* Half a page ahead: V while K is read, then K and the scales of the next page, if there is one. */
static void run_few_page(const task *t, const skv_tile_page *page, size_t first,
                         const unsigned char *next)
{
    size_t half = skv_page_rows_at(page->type, page->head_dim, 1);
    size_t n_bytes = skv_kv_page_bytes(page->type, page->head_dim);
    run_few(t, 0, t->n_rows, page, page->page + half, false);
    run_few_softmax(t, first);
    for (size_t at = 2 * half; next && at < n_bytes; at += SKV_ALIGN) __builtin_prefetch(next + at);
    run_few(t, 0, t->n_rows, page, next, true);
}

/* A page of which each token sees something else, or nothing. */
static void run_few_tokens(const task *t, skv_tile_page page, size_t first, bool values)
{
    for (size_t i = 0; i < t->n_rows; i += t->a->n_group) {
        span seen = span_of(t, i, first);
        if (seen.lo >= seen.hi) continue;
        page.row0 = seen.lo;
        page.row1 = seen.hi;
        run_few(t, i, t->a->n_group, &page, NULL, values);
    }
}

/* A page of a task whose tokens have the bits of calls of their own. */
static void run_single_page(const task *t, const skv_tile_page *page, size_t first,
                            const unsigned char *next)
{
    span seen = span_of(t, 0, first), last = span_of(t, t->n_rows - 1, first);
    if (seen.lo != last.lo || seen.hi != last.hi) {
        run_few_tokens(t, *page, first, false);
        run_few_softmax(t, first);
        run_few_tokens(t, *page, first, true);
    } else {
        run_few_page(t, page, first, next);
    }
}

static void decode_scales(const task *t, const unsigned char *page)
{
    const unsigned char *bytes = page + skv_page_scales_at(t->a->type, t->a->head_dim, 0);
    for (size_t i = 0; i < 2 * SKV_PAGE_ROWS; i++) t->scales[i] = skv_scale_decode(bytes[i]);
}

/*
 * Asks for the pages before row `last` up to some way ahead of page i; the first that were not
 * asked for yet is *next. Panels are made in bursts, so a page is asked for at once and in order.
 */
static void fetch_pages(const skv_attention *a, size_t i, size_t last, size_t *next)
{
    size_t n_bytes = skv_kv_page_bytes(a->type, a->head_dim);
    size_t end = skv_min_size(skv_ceil_div(last, SKV_PAGE_ROWS),
                              i + 1 + skv_max_size(1, FETCH_BYTES / n_bytes));
    for (; *next < end; ++*next) {
        const char *page = a->pages[*next];
        for (size_t at = 0; at < n_bytes; at += SKV_ALIGN) __builtin_prefetch(page + at);
    }
}

/* Every page that any row of the task sees. */
static void run_pages(const task *t)
{
    const skv_attention *a = t->a;
    size_t last = skv_min_size(t->row1, a->n_past + t->token0 + (t->n_rows - 1) / a->n_group + 1);
    size_t begin = a->n_past + t->token0 + 1;
    begin = a->window != 0 && begin > a->window ? begin - a->window : 0;
    begin = skv_max_size(begin, t->row0);

    size_t next = begin / SKV_PAGE_ROWS; /* page to be fetched */
    if (t->few && begin < last) fetch_k(a, a->pages[next]);
    for (size_t i = next; i * SKV_PAGE_ROWS < last; i++) {
        size_t first = i * SKV_PAGE_ROWS;
        span seen = span_of_rows(t, 0, t->n_rows, first);
        if (seen.lo >= seen.hi) continue;
        skv_tile_page page = {a->pages[i], a->type, a->head_dim, seen.lo,
                              seen.hi,     t->ld_v, t->starts};
        if (skv_kv_has_scales(a->type)) decode_scales(t, a->pages[i]);
        if (t->few) {
            run_single_page(t, &page, first, first + SKV_PAGE_ROWS < last ? a->pages[i + 1] : NULL);
            continue;
        }
        if (t->n_rows <= FEW_ROWS) fetch_pages(a, i, last, &next);
        run_panels(t, &page, first);
    }
}

static float sum_of_row(const task *t, size_t i)
{
    float sum = 0.0f;
    for (size_t c = 0; c < SKV_TILE_SUMS; c++) sum += t->sums[i * SKV_TILE_SUMS + c];
    return sum;
}

void skv_attention_run(const skv_attention *a, const skv_attention_ways *ways, void *scratch)
{
    size_t G = a->n_group;
    size_t n_most = skv_attention_tokens_tiles(G, a->head_dim);
    for (size_t j = 0; j < a->n_q; j += n_most) {
        task t = {.a = a, .token0 = j, .row1 = SIZE_MAX, .slack = SLACK};
        task_init(&t, ways, skv_min_size(n_most, a->n_q - j), scratch);
        run_pages(&t);
        for (size_t i = 0; i < t.n_rows; i++) {
            float *out = a->out + (j + i / G) * a->ld_out + i % G * a->head_dim;
            float sum = sum_of_row(&t, i);
            if (a->sinks) sum += exp2f(a->sinks[i % G] * LOG2_E - t.max[i]);
            float inverse = 1.0f / sum;
            const float *o = t.o + i * t.ld_v;
            for (size_t d = 0; d < a->head_dim; d++) out[d] = o[d] * inverse;
        }
    }
}

void skv_attention_run_part(const skv_attention *a, const skv_attention_ways *ways, size_t row0,
                            size_t row1, float *partial, void *scratch)
{
    size_t Dh = a->head_dim;
    task t = {.a = a, .row0 = row0, .row1 = row1};
    task_init(&t, ways, a->n_q, scratch);
    run_pages(&t);
    for (size_t i = 0; i < t.n_rows; i++) {
        float *part = partial + i / a->n_group * a->ld_out + i % a->n_group * (Dh + 2);
        float l = sum_of_row(&t, i);
        memcpy(part, t.o + i * t.ld_v, Dh * sizeof *part);
        part[Dh] = l > 0.0f ? t.max[i] * LN_2 : -HUGE_VALF;
        part[Dh + 1] = l;
    }
}
