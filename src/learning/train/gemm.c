/*
 * Dense products for training: see gemm.h.
 *
 * K is cut into pieces of at most KC, and M into slabs whose packed rows fit the shared cache. A
 * slab is packed by all threads; then a task takes one panel of columns, packs it into its own
 * scratch, where it stays near, and runs it against all blocks of the slab. Few panels are shared
 * by several tasks, each with a part of the blocks.
 */
#include "train/gemm.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    KC = 2048,              /* longest piece of K; a multiple of SKV_I8_GROUP */
    SLAB_BYTES = 8 << 20,   /* packed rows of a slab */
    SERIAL_BYTES = 1 << 18, /* as above, for a product on one thread */
    STRIP_BLOCKS = 8,       /* blocks that one task packs */
    SMALL_WORK = 1 << 17,   /* multiply-adds below which threads are not worth waking */
    TASKS_A_THREAD = 4,     /* tasks that balance the threads */
    BLOCKS_A_PART = 16,     /* blocks of rows that share the packing of a panel, at least */
    TRANSPOSE = 16          /* rows read at a time while transposing: one line of the copy */
};

struct skv_gemm {
    skv_pool *pool;       /* borrowed */
    const skv_matmul *mm; /* borrowed */
    unsigned char *slab;  /* owned, [SLAB_BYTES] */
    unsigned char *local; /* owned, [n_threads][local_bytes] */
    size_t local_bytes;
    size_t panel_at, rows_at, tile_at, serial_at; /* offsets in a thread's scratch */
    size_t n_threads;
};

/* One slab of rows and one piece of K of a product. */
typedef struct slab {
    skv_gemm *gemm;
    const skv_gemm_args *args;
    size_t m0, m, k0, k;
    size_t n_blocks, block_bytes;
    size_t n_parts; /* tasks that share a panel */
    unsigned char *blocks;
} slab;

static size_t strip_rows(const skv_matmul *mm)
{
    return skv_max_size(mm->nr, STRIP_BLOCKS * mm->mr);
}

skv_status skv_gemm_create(skv_pool *pool, const skv_matmul *mm, skv_gemm **out, skv_error *err)
{
    skv_gemm *g = skv_alloc_zero(1, sizeof *g);
    SKV_REQUIRE(g, err, SKV_MEMORY, "products: no memory");
    g->pool = pool;
    g->mm = mm;
    g->n_threads = skv_pool_threads(pool);
    g->rows_at = skv_round_up(mm->w_bytes(KC), SKV_ALIGN);
    g->tile_at = g->rows_at + skv_round_up(strip_rows(mm) * KC * sizeof(float), SKV_ALIGN);
    g->serial_at = g->tile_at + skv_round_up(mm->mr * mm->nr * sizeof(float), SKV_ALIGN);
    g->local_bytes = g->serial_at + SERIAL_BYTES;
    g->slab = skv_map_zero(SLAB_BYTES);
    g->local = skv_map_zero(g->n_threads * g->local_bytes);
    if (!g->slab || !g->local) {
        skv_gemm_free(g);
        return skv_fail(err, SKV_MEMORY, "products: no memory for %zu threads",
                        skv_pool_threads(pool));
    }
    *out = g;
    return SKV_OK;
}

void skv_gemm_free(skv_gemm *gemm)
{
    if (!gemm) return;
    skv_unmap(gemm->slab, SLAB_BYTES);
    skv_unmap(gemm->local, gemm->n_threads * gemm->local_bytes);
    skv_free(gemm);
}

size_t skv_gemm_bytes(const skv_gemm *gemm)
{
    return SLAB_BYTES + gemm->n_threads * gemm->local_bytes;
}

static unsigned char *scratch(const skv_gemm *gemm, size_t i_thread)
{
    return gemm->local + i_thread * gemm->local_bytes;
}

/* ---- packing ---- */

/* out [n, k] = the transpose of x [k, n], rows ld floats apart. */
static void transpose(float *out, const float *x, size_t ld, size_t n, size_t k)
{
    for (size_t k0 = 0; k0 < k; k0 += TRANSPOSE) {
        size_t k1 = skv_min_size(k, k0 + TRANSPOSE);
        for (size_t i = 0; i < n; i++) {
            for (size_t j = k0; j < k1; j++) out[i * k + j] = x[j * ld + i];
        }
    }
}

/* Rows are dealt out evenly: 8 rows are blocks of 4 and 4, not of 6 and 2. */
static size_t block_row(const slab *s, size_t b)
{
    return b * s->m / s->n_blocks;
}

static void pack_blocks(const slab *s, size_t b0, size_t b1, float *rows)
{
    const skv_gemm_args *a = s->args;
    size_t first = block_row(s, b0), end = block_row(s, b1), ld = a->lda;
    const float *x = a->a + (s->m0 + first) * a->lda + s->k0;
    if (a->a_t && s->gemm->mm->pack_x_t) {
        for (size_t b = b0; b < b1; b++) {
            size_t row = block_row(s, b);
            s->gemm->mm->pack_x_t(s->blocks + b * s->block_bytes,
                                  a->a + s->k0 * a->lda + s->m0 + row, a->lda,
                                  block_row(s, b + 1) - row, s->k);
        }
        return;
    }
    if (a->a_t) {
        transpose(rows, a->a + s->k0 * a->lda + s->m0 + first, a->lda, end - first, s->k);
        x = rows;
        ld = s->k;
    }
    for (size_t b = b0; b < b1; b++) {
        size_t row = block_row(s, b);
        s->gemm->mm->pack_x(s->blocks + b * s->block_bytes, x + (row - first) * ld, ld,
                            block_row(s, b + 1) - row, s->k);
    }
}

static void pack_strip(void *arg, size_t i_task, size_t i_thread)
{
    const slab *s = arg;
    size_t b0 = i_task * STRIP_BLOCKS;
    float *rows = (float *)(void *)(scratch(s->gemm, i_thread) + s->gemm->rows_at);
    pack_blocks(s, b0, skv_min_size(b0 + STRIP_BLOCKS, s->n_blocks), rows);
}

/* Packs columns [n0, n0 + n) of op(B), piece [k0, k0 + k), to `to`. */
static void pack_panel(skv_gemm *gemm, const skv_gemm_args *a, unsigned char *to, size_t n0,
                       size_t k0, size_t i_thread)
{
    size_t n = skv_min_size(gemm->mm->nr, a->N - n0), k = skv_min_size(KC, a->K - k0);
    if (a->b_t) {
        gemm->mm->pack_w(to, a->b + n0 * a->ldb + k0, a->ldb, n, k);
    } else if (gemm->mm->pack_w_t) {
        gemm->mm->pack_w_t(to, a->b + k0 * a->ldb + n0, a->ldb, n, k);
    } else {
        float *rows = (float *)(void *)(scratch(gemm, i_thread) + gemm->rows_at);
        transpose(rows, a->b + k0 * a->ldb + n0, a->ldb, n, k);
        gemm->mm->pack_w(to, rows, k, n, k);
    }
}

static unsigned char *packed_panel(const skv_gemm_packed *p, size_t i_panel, size_t i_piece)
{
    return p->panels + (i_panel * p->n_pieces + i_piece) * p->panel_bytes;
}

static const unsigned char *get_panel(const slab *s, size_t n0, size_t i_thread)
{
    const skv_gemm_args *a = s->args;
    if (a->packed) return packed_panel(a->packed, n0 / s->gemm->mm->nr, s->k0 / KC);
    unsigned char *local = scratch(s->gemm, i_thread);
    pack_panel(s->gemm, a, local, n0, s->k0, i_thread);
    return local;
}

typedef struct pack_job {
    skv_gemm *gemm;
    const skv_gemm_args *args;
    const skv_gemm_packed *packed;
} pack_job;

static void pack_pieces(void *arg, size_t i_panel, size_t i_thread)
{
    const pack_job *j = arg;
    for (size_t i = 0; i < j->packed->n_pieces; i++) {
        pack_panel(j->gemm, j->args, packed_panel(j->packed, i_panel, i), i_panel * j->gemm->mm->nr,
                   i * KC, i_thread);
    }
}

static skv_gemm_packed packed_layout(const skv_gemm *gemm, size_t N, size_t K)
{
    skv_gemm_packed p = {.n_pieces = skv_ceil_div(K, KC)};
    p.panel_bytes = skv_round_up(gemm->mm->w_bytes(skv_min_size(KC, K)), SKV_ALIGN);
    p.n_bytes = skv_ceil_div(N, gemm->mm->nr) * p.n_pieces * p.panel_bytes;
    return p;
}

size_t skv_gemm_packed_bytes(const skv_gemm *gemm, size_t n_columns, size_t depth)
{
    return packed_layout(gemm, n_columns, depth).n_bytes;
}

skv_status skv_gemm_pack(skv_gemm *gemm, const skv_gemm_args *args, skv_gemm_packed *out,
                         skv_error *err)
{
    size_t n_panels = skv_ceil_div(args->N, gemm->mm->nr);
    skv_gemm_packed p = packed_layout(gemm, args->N, args->K);
    p.borrowed = out->borrowed;
    p.panels = p.borrowed ? out->panels : skv_map_zero(p.n_bytes);
    SKV_REQUIRE(p.panels, err, SKV_MEMORY, "products: no memory for %zu packed bytes", p.n_bytes);
    pack_job j = {gemm, args, &p};
    skv_pool_run(gemm->pool, n_panels, pack_pieces, &j);
    *out = p;
    return SKV_OK;
}

void skv_gemm_packed_release(skv_gemm_packed *packed)
{
    if (packed->panels && !packed->borrowed) skv_unmap(packed->panels, packed->n_bytes);
    *packed = (skv_gemm_packed){0};
}

/* ---- computing ---- */

/* A panel with fewer than nr columns goes by way of a tile in scratch. */
static void store_tile(float *c, size_t ldc, const float *tile, size_t nr, size_t n, size_t m,
                       bool add);

static void run_blocks(const slab *s, size_t b0, size_t b1, size_t n0, size_t i_thread)
{
    const skv_gemm_args *a = s->args;
    const skv_matmul *mm = s->gemm->mm;
    size_t n = skv_min_size(mm->nr, a->N - n0);
    const unsigned char *panel = get_panel(s, n0, i_thread);
    float *tile = (float *)(void *)(scratch(s->gemm, i_thread) + s->gemm->tile_at);
    bool add = a->add || s->k0 > 0;
    for (size_t b = b0; b < b1; b++) {
        size_t row = block_row(s, b), m = block_row(s, b + 1) - row;
        float *c = a->c + (s->m0 + row) * a->ldc + n0;
        const unsigned char *block = s->blocks + b * s->block_bytes;
        if (n == mm->nr) {
            mm->tile(c, a->ldc, block, panel, m, s->k, 0, s->k, add);
        } else {
            mm->tile(tile, mm->nr, block, panel, m, s->k, 0, s->k, 0);
            store_tile(c, a->ldc, tile, mm->nr, n, m, add);
        }
    }
    skv_matmul_finish(mm);
}

static void store_tile(float *c, size_t ldc, const float *tile, size_t nr, size_t n, size_t m,
                       bool add)
{
    for (size_t i = 0; i < m; i++) {
        if (add) {
            for (size_t j = 0; j < n; j++) c[i * ldc + j] += tile[i * nr + j];
        } else {
            memcpy(c + i * ldc, tile + i * nr, n * sizeof *c);
        }
    }
}

static void run_panel(void *arg, size_t i_task, size_t i_thread)
{
    const slab *s = arg;
    size_t i_part = i_task % s->n_parts;
    run_blocks(s, s->n_blocks * i_part / s->n_parts, s->n_blocks * (i_part + 1) / s->n_parts,
               i_task / s->n_parts * s->gemm->mm->nr, i_thread);
}

/* The panels of one product against the packed slab. */
static void run_panels(slab *s, const skv_gemm_args *args)
{
    skv_pool *pool = s->gemm->pool;
    size_t n_panels = skv_ceil_div(args->N, s->gemm->mm->nr);
    s->args = args;
    if (s->m * args->N * s->k < SMALL_WORK) {
        s->n_parts = 1;
        for (size_t i = 0; i < n_panels; i++) run_panel(s, i, 0);
        return;
    }
    size_t wanted = skv_ceil_div(TASKS_A_THREAD * skv_pool_threads(pool), n_panels);
    s->n_parts = skv_max_size(1, skv_min_size(wanted, s->n_blocks / BLOCKS_A_PART));
    skv_pool_run(pool, n_panels * s->n_parts, run_panel, s);
}

static void run_slab(slab *s)
{
    size_t n_strips = skv_ceil_div(s->n_blocks, STRIP_BLOCKS);
    if (s->m * s->k < SMALL_WORK / 16) {
        for (size_t i = 0; i < n_strips; i++) pack_strip(s, i, 0);
    } else {
        skv_pool_run(s->gemm->pool, n_strips, pack_strip, s);
    }
    for (const skv_gemm_args *a = s->args; a; a = a->also) run_panels(s, a);
}

static void clear(const skv_gemm_args *a)
{
    for (size_t i = 0; i < a->M; i++) memset(a->c + i * a->ldc, 0, a->N * sizeof *a->c);
}

/* Describes the slab that begins at row m0 and piece k0; its packed rows fit into n_bytes. */
static slab cut_slab(skv_gemm *gemm, const skv_gemm_args *args, size_t m0, size_t k0,
                     size_t n_bytes)
{
    const skv_matmul *mm = gemm->mm;
    slab s = {.gemm = gemm, .args = args, .m0 = m0, .k0 = k0};
    s.k = skv_min_size(KC, args->K - k0);
    s.block_bytes = skv_round_up(mm->x_bytes(mm->mr, s.k), SKV_ALIGN);
    s.m = skv_min_size(args->M - m0, n_bytes / s.block_bytes * mm->mr);
    s.n_blocks = skv_ceil_div(s.m, mm->mr);
    return s;
}

void skv_gemm_run(skv_gemm *gemm, const skv_gemm_args *args)
{
    if (args->K == 0 && !args->add) clear(args);
    for (size_t k0 = 0; k0 < args->K; k0 += KC) {
        for (size_t m0 = 0; m0 < args->M;) {
            slab s = cut_slab(gemm, args, m0, k0, SLAB_BYTES);
            s.blocks = gemm->slab;
            run_slab(&s);
            m0 += s.m;
        }
    }
}

void skv_gemm_serial(skv_gemm *gemm, const skv_gemm_args *args, size_t i_thread)
{
    unsigned char *local = scratch(gemm, i_thread);
    float *rows = (float *)(void *)(local + gemm->rows_at);
    if (args->K == 0 && !args->add) clear(args);
    for (size_t k0 = 0; k0 < args->K; k0 += KC) {
        for (size_t m0 = 0; m0 < args->M;) {
            slab s = cut_slab(gemm, args, m0, k0, SERIAL_BYTES);
            s.blocks = local + gemm->serial_at;
            for (size_t b = 0; b < s.n_blocks; b += STRIP_BLOCKS) {
                pack_blocks(&s, b, skv_min_size(b + STRIP_BLOCKS, s.n_blocks), rows);
            }
            for (size_t n0 = 0; n0 < args->N; n0 += gemm->mm->nr) {
                run_blocks(&s, 0, s.n_blocks, n0, i_thread);
            }
            m0 += s.m;
        }
    }
}
