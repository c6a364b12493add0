/*
 * Matrix products on the CPU: the loops around the kernels' tiles.
 *
 * A panel is nr rows of W. Threads take strips of neighbouring panels one by one, each for all rows
 * or, where these are many, for the thread's own. Within a strip K is cut into pieces of kc
 * columns: the strip's piece stays in the second-level cache while every block of rows of X passes
 * by, and the block's piece in the first while it meets one panel after the other. Where the
 * kernel can unpack weights ahead, a piece that meets several blocks is unpacked first, once for
 * all of them. Rows of X are normed and packed beforehand, by all threads.
 *
 * Each part starts a new panel, so that any range of parts is a range of panels. Parts of a
 * quantised matrix may have forms of their own, and panels of other sizes. The panels of a paired
 * matrix are numbered in turns, one of gate and one of up.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_cut.h"
#include "backend/cpu/cpu_weights.h"
#include "base/size.h"

enum {
    NR_MAX = 64,             /* widest panel of any kernel */
    PAIRS_MAX = 4,           /* pairs of panels that share a piece of a block */
    MR_MAX = 32,             /* tallest block of any kernel */
    TILES = 2 * PAIRS_MAX,   /* tiles of a thread's scratch */
    SMALL_WORK = 1 << 17,    /* multiply-adds below which threads are not worth waking */
    PACK_ROWS = 24,          /* rows of X that one task norms and packs, about: fewer where few of
                              * them would leave threads without work */
    PACKS_A_THREAD = 4,      /* tasks of packing for each thread, about */
    UNPACKED_MAX = 25 << 16, /* bytes of a thread's unpacked weights: they stay in the second-level
                              * cache of processors that gain by them */
    STRIP_MAX = SKV_CUT_STRIP_MAX
};

size_t skv_cpu_linear_scratch(const skv_cpu_backend *be, size_t max_K)
{
    size_t rows = skv_round_up(MR_MAX * max_K * sizeof(float), SKV_ALIGN);
    size_t tiles = TILES * MR_MAX * NR_MAX * sizeof(float);
    return tiles + skv_max_size(rows, be->kernels.q.unpack ? UNPACKED_MAX : 0);
}

size_t skv_cpu_packed_bytes(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    const skv_kernels *k = &be->kernels;
    const skv_matmul *kinds[] = {&k->f32, &k->wide, &k->bf16, &k->i8, &k->q, &k->q_wide};
    size_t most = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t mr = kinds[i]->mr, n_blocks = skv_ceil_div(limits->max_rows, mr);
        size_t block = skv_round_up(kinds[i]->x_bytes(mr, limits->max_K), SKV_ALIGN);
        /* The last block of each group may be a part of one. */
        size_t n_groups = limits->max_rows * limits->max_active / mr + limits->max_experts;
        most = skv_max_size(most, block * skv_max_size(n_blocks, n_groups));
    }
    return most;
}

/* One of those that run at once. */
typedef struct skv_cpu_product {
    skv_cpu_backend *be;
    const skv_matmul *mm;
    skv_linear_args args;
    const float *x, *norm; /* of args: [*, ld], and [K] or NULL */
    const uint32_t *rows;  /* [n_rows] of x that are read; NULL: the first */
    float *y;              /* [n_rows, ld] */
    unsigned char *packed; /* its rows, [n_blocks][block_bytes] */
    const skv_linear *w;
    size_t n_blocks, block_bytes;
    size_t blocks_per_task; /* of packing */
    size_t panel0;          /* first panel of the parts asked for */
    size_t column0;
    size_t n_columns;          /* panels, or pairs of them */
    skv_cut cut;               /* the tasks that they and the blocks make */
    bool paired;               /* gate and up meet in an activation */
    size_t pack_end, task_end; /* tasks of packing and of computing, up to its last */
} product;

typedef struct product_list {
    const product *items; /* [n] */
    size_t n;
} product_list;

size_t skv_cpu_product_bytes(void)
{
    return sizeof(product);
}

/* The product of a task, which becomes the number of the task there. */
static const product *find_product(const product_list *list, bool packing, size_t *i_task)
{
    size_t first = 0, end = list->n; /* it is one of [first, end) */
    while (end - first > 1) {
        const size_t middle = first + (end - first) / 2;
        const product *before = &list->items[middle - 1];
        if (*i_task < (packing ? before->pack_end : before->task_end)) {
            end = middle;
        } else {
            first = middle;
        }
    }
    if (first > 0) {
        const product *before = &list->items[first - 1];
        *i_task -= packing ? before->pack_end : before->task_end;
    }
    return &list->items[first];
}

/* Rows are dealt out evenly: 8 rows are blocks of 4 and 4, not of 6 and 2. */
static size_t block_row(const product *p, size_t b)
{
    return p->n_blocks > 0 ? b * p->args.n_rows / p->n_blocks : 0;
}

static size_t block_rows(const product *p, size_t b)
{
    return block_row(p, b + 1) - block_row(p, b);
}

/* Blocks [first, last) of the task's part of the rows. */
typedef struct block_range {
    size_t first, last;
} block_range;

static const float *normed_rows(const product *p, size_t row0, size_t m, float *scratch, size_t *ld)
{
    const skv_linear_args *a = &p->args;
    size_t K = p->w->K;
    if (!p->norm && !p->rows) {
        *ld = a->x.ld;
        return p->x + row0 * a->x.ld;
    }
    *ld = K;
    for (size_t i = 0; i < m; i++) {
        const float *x = p->x + (p->rows ? p->rows[row0 + i] : row0 + i) * a->x.ld;
        if (p->norm) {
            p->be->kernels.rmsnorm(scratch + i * K, x, p->norm, a->norm.offset, a->norm.eps, K);
        } else {
            memcpy(scratch + i * K, x, K * sizeof *x);
        }
    }
    return scratch;
}

static void pack_rows(void *arg, size_t i_task, size_t i_thread)
{
    const product *p = find_product(arg, true, &i_task);
    size_t end = skv_min_size((i_task + 1) * p->blocks_per_task, p->n_blocks);
    for (size_t b = i_task * p->blocks_per_task; b < end; b++) {
        size_t row0 = block_row(p, b), m = block_rows(p, b), ld;
        const float *x = normed_rows(p, row0, m, skv_cpu_scratch(p->be, i_thread), &ld);
        p->mm->pack_x(p->packed + b * p->block_bytes, x, ld, m, p->w->K);
    }
}

/* Adds the bias of columns [column, column + n) to a block of m rows. */
static void add_bias(const product *p, float *c, size_t ldc, size_t m, size_t column, size_t n)
{
    if (!p->w->bias) return;
    for (size_t i = 0; i < m; i++) {
        p->be->kernels.axpy(c + i * ldc, 1.0f, p->w->bias + column, n);
    }
}

/* A thread's first block of rows reads its panels from memory; later blocks find them in a cache.
 */
static unsigned tile_mode(bool first, bool add)
{
    return (first ? SKV_TILE_PREFETCH : 0U) | (add ? SKV_TILE_ADD : 0U);
}

/* Panels of which a task unpacks n elements along K at a time, for all of its blocks; 0: none,
 * since nothing is gained, or there is no room for `least`. */
static size_t count_unpacked(const product *p, block_range blocks, size_t n, size_t least)
{
    if (!p->mm->unpack || blocks.last - blocks.first < 2) return 0;
    const size_t most = UNPACKED_MAX / p->mm->unpacked_bytes(p->w->K, n);
    return most < least ? 0 : most;
}

/* Elements [k0, k1) of a panel, unpacked in a thread's scratch: place i there. */
static const unsigned char *unpack(const product *p, const unsigned char *panel, size_t k0,
                                   size_t k1, float *tiles, size_t i)
{
    unsigned char *room = (unsigned char *)(tiles + (size_t)TILES * MR_MAX * NR_MAX);
    const size_t n_bytes = p->mm->unpacked_bytes(p->w->K, k1 - k0);
    unsigned char *to = room + i * n_bytes;
    assert((i + 1) * n_bytes <= UNPACKED_MAX);
    p->mm->unpack(to, panel, p->w->K, k0, k1, SKV_TILE_PREFETCH);
    return to;
}

/* What a tile reads from k on of a panel, all of which may be unpacked. */
static const unsigned char *panel_from(const product *p, const unsigned char *panel, size_t k,
                                       unsigned how)
{
    return how & SKV_TILE_UNPACKED ? panel + p->mm->unpacked_bytes(p->w->K, k) : panel;
}

static void tile_all_k(const product *p, float *c, size_t b, const unsigned char *panel,
                       unsigned how, bool first)
{
    size_t K = p->w->K;
    for (size_t k0 = 0; k0 < K; k0 += p->mm->kc) {
        p->mm->tile(c, p->mm->nr, p->packed + b * p->block_bytes, panel_from(p, panel, k0, how),
                    block_rows(p, b), K, k0, skv_min_size(K, k0 + p->mm->kc),
                    how | tile_mode(first, k0 > 0));
    }
}

/* A panel and its columns, which are nr but for the last of a part; of them [first, end) are
 * wanted: all, or those of a half. */
typedef struct panel_of_strip {
    const unsigned char *at;
    size_t column, n, first, end;
    unsigned how; /* modes of a tile: a half, or unpacked */
} panel_of_strip;

static panel_of_strip find_panel(const product *p, size_t i_panel, unsigned half)
{
    size_t nr = p->mm->nr, row0;
    const skv_linear_part *part = &p->w->parts[skv_cpu_panel_part(p->w, false, i_panel, nr, &row0)];
    const size_t n = skv_min_size(nr, part->n_rows - row0);
    return (panel_of_strip){.at = p->w->panels + part->offset + row0 / nr * part->panel_bytes,
                            .column = part->column0 + row0,
                            .n = n,
                            .first = half & SKV_TILE_RIGHT ? skv_min_size(n, nr / 2) : 0,
                            .end = half & SKV_TILE_LEFT ? skv_min_size(n, nr / 2) : n,
                            .how = half};
}

/* The end of the sums of m rows of n columns: biases, and the epilogue where it is one of them
 * alone. */
static void finish_tile(const product *p, float *c, size_t ld, size_t m, size_t column, size_t n)
{
    add_bias(p, c, ld, m, column, n);
    if (p->args.epilogue != SKV_EPILOGUE_RELU2) return;
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * ld;
        for (size_t j = 0; j < n; j++) {
            const float positive = row[j] > 0.0f ? row[j] : 0.0f;
            row[j] = positive * positive;
        }
    }
}

/* A panel with fewer than nr columns: by way of a tile in scratch. */
static void panel_partial(const product *p, block_range blocks, panel_of_strip panel, float *tile)
{
    const skv_linear_args *a = &p->args;
    const size_t column = panel.column + panel.first, n = panel.end - panel.first;
    if (n > 0 && count_unpacked(p, blocks, p->w->K, 1) > 0) {
        panel.at = unpack(p, panel.at, 0, p->w->K, tile, 0);
        panel.how |= SKV_TILE_UNPACKED;
    }
    for (size_t b = blocks.first; n > 0 && b < blocks.last; b++) {
        size_t m = block_rows(p, b);
        tile_all_k(p, tile, b, panel.at, panel.how, b == blocks.first);
        finish_tile(p, tile + panel.first, p->mm->nr, m, column, n);
        for (size_t i = 0; i < m; i++) {
            float *y = p->y + (block_row(p, b) + i) * a->y.ld + (column - p->column0);
            const float *c = tile + i * p->mm->nr + panel.first;
            if (a->epilogue == SKV_EPILOGUE_ADD) {
                p->be->kernels.axpy(y, 1.0f, c, n);
            } else {
                memcpy(y, c, n * sizeof *y);
            }
        }
    }
}

/* Elements [k0, k1) of whole panels: all blocks of rows, and all panels for each block. */
static void strip_piece(const product *p, block_range blocks, const panel_of_strip *panels,
                        size_t n_panels, size_t k0)
{
    const skv_linear_args *a = &p->args;
    const size_t K = p->w->K, k1 = skv_min_size(K, k0 + p->mm->kc);
    const bool add = k0 > 0 || a->epilogue == SKV_EPILOGUE_ADD;
    for (size_t b = blocks.first; b < blocks.last; b++) {
        const unsigned char *block = p->packed + b * p->block_bytes;
        size_t m = block_rows(p, b);
        float *y = p->y + block_row(p, b) * a->y.ld;
        unsigned mode = tile_mode(b == blocks.first, add);
        for (size_t i = 0; i < n_panels; i++) {
            const panel_of_strip *s = &panels[i];
            float *c = y + (s->column - p->column0);
            p->mm->tile(c, a->y.ld, block, s->at, m, K, k0, k1, s->how | mode);
            if (k1 < K) continue;
            finish_tile(p, c + s->first, a->y.ld, m, s->column + s->first, s->end - s->first);
        }
    }
}

/* Whole panels straight into y: K in pieces, for each all panels, or as many as are unpacked at a
 * time. */
static void strip_direct(const product *p, block_range blocks, const panel_of_strip *panels,
                         size_t n_panels, float *tiles)
{
    const size_t K = p->w->K, kc = p->mm->kc;
    const size_t n_unpacked = count_unpacked(p, blocks, skv_min_size(K, kc), 1);
    const size_t width = n_unpacked > 0 ? skv_min_size(n_unpacked, STRIP_MAX) : STRIP_MAX;
    for (size_t k0 = 0; k0 < K; k0 += kc) {
        for (size_t first = 0; first < n_panels; first += width) {
            panel_of_strip some[STRIP_MAX];
            const size_t n = skv_min_size(width, n_panels - first);
            for (size_t i = 0; i < n; i++) {
                some[i] = panels[first + i];
                if (n_unpacked == 0) continue;
                some[i].at = unpack(p, some[i].at, k0, skv_min_size(K, k0 + kc), tiles, i);
                some[i].how |= SKV_TILE_UNPACKED;
            }
            strip_piece(p, blocks, some, n, k0);
        }
    }
}

/* Panels [first, last), of one part or several, or that half of them. */
static void run_strip(const product *p, block_range blocks, size_t first, size_t last,
                      unsigned half, float *tile)
{
    panel_of_strip whole[STRIP_MAX];
    size_t n_whole = 0;
    for (size_t i = first; i < last; i++) {
        panel_of_strip panel = find_panel(p, i, half);
        if (panel.n == p->mm->nr) {
            whole[n_whole++] = panel;
        } else {
            panel_partial(p, blocks, panel, tile);
        }
    }
    strip_direct(p, blocks, whole, n_whole, tile);
}

/* Gate and up become what silu(gate) * up makes gpt-oss's product of: alpha g and (u + 1) / alpha.
 */
static void clamp_pair(const skv_linear_args *a, float *gate, float *up, size_t n)
{
    const float limit = a->limit, alpha = a->alpha, inverse = 1.0f / alpha;
    for (size_t i = 0; i < n; i++) {
        float g = gate[i] > limit ? limit : gate[i];
        float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = alpha * g;
        up[i] = (u + 1.0f) * inverse;
    }
}

/* y of a block for one pair of panels, or half of it, from the products gate [m, nr] and up
 * [m, nr]. */
static void finish_pair(const product *p, size_t b, size_t i_pair, unsigned half, float *gate,
                        float *up)
{
    const skv_linear_args *a = &p->args;
    const size_t nr = p->mm->nr, first = half & SKV_TILE_RIGHT ? nr / 2 : 0;
    const size_t column = i_pair * nr + first, width = half ? nr / 2 : nr;
    const size_t n = column < p->w->N ? skv_min_size(width, p->w->N - column) : 0;
    skv_glu_fn *glu = a->epilogue == SKV_EPILOGUE_GELU_GLU ? p->be->kernels.gelu_tanh_glu
                                                           : p->be->kernels.silu_glu;
    bool clamped = a->epilogue == SKV_EPILOGUE_CLAMPED;
    size_t m = block_rows(p, b);
    float *y = p->y + block_row(p, b) * a->y.ld + column;
    gate += first;
    up += first;
    if (n == 0) return;
    add_bias(p, gate, nr, m, column, n);
    add_bias(p, up, nr, m, p->w->N + column, n);
    for (size_t i = 0; i < m; i++) {
        if (clamped) clamp_pair(a, gate + i * nr, up + i * nr, n);
        glu(y + i * a->y.ld, gate + i * nr, up + i * nr, n);
    }
}

/* The lines to write come from far away: they are asked for while the tiles are computed. */
static void prefetch_result(const product *p, size_t b, size_t i_pair)
{
    const size_t nr = p->mm->nr, n = skv_min_size(nr, p->w->N - i_pair * nr);
    const size_t ld = p->args.y.ld;
    float *y = p->y + block_row(p, b) * ld + i_pair * nr;
    for (size_t i = 0; i < block_rows(p, b); i++) {
        for (size_t j = 0; j < n; j += 16) __builtin_prefetch(y + i * ld + j, 1);
    }
}

/* Pairs of panels [first, last), or that half of them: gate and up in turns. */
typedef struct some_pairs {
    size_t first, last;
    unsigned how;                               /* modes of a tile: a half, or unpacked */
    const unsigned char *panels[2 * PAIRS_MAX]; /* of each */
} some_pairs;

/* A block times pairs: a piece of the block along K meets all of them while it is in the cache. */
static void block_pairs(const product *p, size_t b, const some_pairs *pairs, bool first_block,
                        float *tiles)
{
    const unsigned half = pairs->how & (SKV_TILE_LEFT | SKV_TILE_RIGHT);
    const size_t nr = p->mm->nr, K = p->w->K, tile = MR_MAX * NR_MAX, m = block_rows(p, b);
    const size_t n = pairs->last - pairs->first;
    const unsigned char *block = p->packed + b * p->block_bytes;
    for (size_t i = 0; i < n; i++) prefetch_result(p, b, pairs->first + i);
    for (size_t k0 = 0; k0 < K; k0 += p->mm->kc) {
        const size_t k1 = skv_min_size(K, k0 + p->mm->kc);
        const unsigned mode = pairs->how | tile_mode(first_block, k0 > 0);
        for (size_t i = 0; i < 2 * n; i++) {
            p->mm->tile(tiles + i * tile, nr, block,
                        panel_from(p, pairs->panels[i], k0, pairs->how), m, K, k0, k1, mode);
        }
    }
    for (size_t i = 0; i < n; i++) {
        float *gate = tiles + 2 * i * tile;
        finish_pair(p, b, pairs->first + i, half, gate, gate + tile);
    }
}

/* Pairs of panels [first, last), or that half of them, a few for each block. Where K is one piece,
 * they gain nothing from each other. */
static void run_pairs(const product *p, block_range blocks, size_t first, size_t last,
                      unsigned half, float *tiles)
{
    const size_t n_pairs = p->w->K > p->mm->kc ? PAIRS_MAX : 1;
    for (size_t b = blocks.first; b < blocks.last; b++) {
        for (size_t i = first; i < last; i += n_pairs) {
            some_pairs pairs = {i, skv_min_size(i + n_pairs, last), half, {NULL}};
            for (size_t j = 2 * i; j < 2 * pairs.last; j++) {
                pairs.panels[j - 2 * i] = skv_cpu_panel_at(p->w, j, p->mm->nr);
            }
            block_pairs(p, b, &pairs, b == blocks.first, tiles);
        }
    }
}

/* The same pairs, each unpacked once for all blocks. */
static void run_unpacked_pairs(const product *p, block_range blocks, size_t first, size_t last,
                               float *tiles)
{
    for (size_t i = first; i < last; i++) {
        some_pairs pair = {i, i + 1, SKV_TILE_UNPACKED, {NULL}};
        for (size_t j = 0; j < 2; j++) {
            const unsigned char *panel = skv_cpu_panel_at(p->w, 2 * i + j, p->mm->nr);
            pair.panels[j] = unpack(p, panel, 0, p->w->K, tiles, j);
        }
        for (size_t b = blocks.first; b < blocks.last; b++) {
            block_pairs(p, b, &pair, b == blocks.first, tiles);
        }
    }
}

static void run_task(void *arg, size_t i_task, size_t i_thread)
{
    const product *p = find_product(arg, false, &i_task);
    const skv_cut *cut = &p->cut;
    const size_t i_part = cut->by_rows ? i_task / cut->n_strips : i_task % cut->n_row_parts;
    const size_t i_strip = cut->by_rows ? i_task % cut->n_strips : i_task / cut->n_row_parts;
    const unsigned half = !cut->halved ? 0 : i_strip % 2 ? SKV_TILE_RIGHT : SKV_TILE_LEFT;
    const size_t first = p->n_columns * i_strip / cut->n_strips;
    const size_t last = half ? first + 1 : p->n_columns * (i_strip + 1) / cut->n_strips;
    const block_range blocks = {p->n_blocks * i_part / cut->n_row_parts,
                                p->n_blocks * (i_part + 1) / cut->n_row_parts};
    float *tiles = skv_cpu_scratch(p->be, i_thread);
    if (p->paired && count_unpacked(p, blocks, p->w->K, 2) > 0) {
        run_unpacked_pairs(p, blocks, first, last, tiles);
    } else if (p->paired) {
        run_pairs(p, blocks, first, last, half, tiles);
    } else {
        run_strip(p, blocks, p->panel0 + first, p->panel0 + last, half, tiles);
    }
    skv_matmul_finish(p->mm);
}

static void deal_out(product *p, bool alone)
{
    const skv_linear_part *part = &p->w->parts[p->args.part0];
    /* A pair passes by with all of K, or with others. */
    const size_t piece = p->paired ? 2 * part->panel_bytes
                                   : part->panel_bytes * skv_min_size(p->mm->kc, p->w->K) / p->w->K;
    p->cut = skv_cpu_cut_product(&(skv_cut_shape){.n_threads = skv_pool_threads(p->be->pool),
                                                  .n_rows = p->args.n_rows,
                                                  .n_blocks = p->n_blocks,
                                                  .mr = p->mm->mr,
                                                  .n_columns = p->n_columns,
                                                  .piece_bytes = piece,
                                                  .halves = p->mm->halves && p->be->halves,
                                                  .alone = alone});
}

static void run_tasks(skv_cpu_backend *be, const product_list *list, size_t n_tasks,
                      skv_task_fn *fn, bool alone)
{
    /* The pool only reads the products; its argument type has to be void *. */
    void *arg = (void *)(uintptr_t)list;
    if (alone) {
        for (size_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
    } else {
        skv_pool_run_stretches(be->pool, n_tasks, fn, arg);
    }
}

/* Blocks of rows that one task packs. */
static size_t pack_blocks(const skv_cpu_backend *be, size_t n_rows, size_t n_blocks, size_t mr)
{
    const size_t most = skv_ceil_div(PACK_ROWS, mr);
    if (n_rows <= 2 * PACK_ROWS) return most;
    return skv_max_size(
        1, skv_min_size(most, n_blocks / (PACKS_A_THREAD * skv_pool_threads(be->pool))));
}

/* What args ask for, of these rows of x, with packed rows from `packed` on; multiply-adds are added
 * to *work. */
static product plan_product(skv_cpu_backend *be, const skv_linear_args *args, const uint32_t *rows,
                            unsigned char *packed, size_t *work)
{
    const skv_linear *w = args->w;
    const skv_matmul *mm = skv_cpu_matmul_of(be, w->type, w->K);
    size_t part1 = args->part1 ? args->part1 : w->n_parts;
    product p = {.be = be,
                 .mm = mm,
                 .args = *args,
                 .x = skv_cpu_at(args->x),
                 .norm = skv_cpu_vec(args->norm.weight),
                 .rows = rows,
                 .y = skv_cpu_at(args->y),
                 .w = w,
                 .packed = packed};
    p.n_blocks = skv_ceil_div(args->n_rows, mm->mr);
    p.block_bytes = skv_round_up(mm->x_bytes(mm->mr, w->K), SKV_ALIGN);
    p.blocks_per_task = pack_blocks(be, args->n_rows, p.n_blocks, mm->mr);
    p.panel0 = w->parts[args->part0].panel0;
    p.column0 = w->parts[args->part0].column0;
    size_t panel1 = part1 < w->n_parts ? w->parts[part1].panel0 : w->n_panels;
    p.paired = w->paired && args->epilogue != SKV_EPILOGUE_STORE;
    p.n_columns = p.paired ? w->n_panels / 2 : panel1 - p.panel0;
    *work += args->n_rows * p.n_columns * mm->nr * w->K;
    return p;
}

/* Numbers the tasks of all products and runs them: first those that pack rows. */
static void run_products(skv_cpu_backend *be, product *items, size_t n, bool alone)
{
    const product_list list = {items, n};
    size_t n_pack = 0, n_tasks = 0;
    for (size_t i = 0; i < n; i++) {
        deal_out(&items[i], alone);
        n_pack += skv_ceil_div(items[i].n_blocks, items[i].blocks_per_task);
        n_tasks += items[i].cut.n_strips * items[i].cut.n_row_parts;
        items[i].pack_end = n_pack;
        items[i].task_end = n_tasks;
    }
    run_tasks(be, &list, n_pack, pack_rows, alone);
    run_tasks(be, &list, n_tasks, run_task, alone);
}

void skv_cpu_linear(skv_backend *base, const skv_linear_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    size_t work = 0;
    if (args->n_rows == 0) return;
    const uint32_t *rows = args->step ? args->step->sets[args->set].rows : NULL;
    product p = plan_product(be, args, rows, be->packed, &work);
    run_products(be, &p, 1, work < SMALL_WORK);
}

void skv_cpu_experts_linear(skv_backend *base, const skv_experts_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    const skv_cpu_routes *routes = &be->routes;
    unsigned char *packed = be->packed;
    size_t work = 0, n = 0;
    for (size_t e = 0; e < args->w->n; e++) {
        const size_t row0 = routes->first[e], n_rows = routes->first[e + 1] - row0;
        if (n_rows == 0) continue;
        const skv_linear_args one = {.w = args->w->w[e],
                                     .y = skv_rows_from(args->y, row0, 0),
                                     .x = args->by_row ? args->x : skv_rows_from(args->x, row0, 0),
                                     .n_rows = n_rows,
                                     .norm = args->norm,
                                     .epilogue = args->epilogue,
                                     .limit = args->limit,
                                     .alpha = args->alpha};
        product *p = &be->products[n++];
        *p = plan_product(be, &one, args->by_row ? routes->rows + row0 : NULL, packed, &work);
        packed += p->n_blocks * p->block_bytes;
    }
    run_products(be, be->products, n, work < SMALL_WORK);
}
