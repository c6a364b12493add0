/*
 * Matrix products on the CPU: packing weights once, and the loops around the kernels' tiles.
 *
 * A panel is nr rows of W. Threads take strips of neighbouring panels one by one, each for all rows
 * or, where these are many, for the thread's own. Within a strip K is cut into pieces of kc
 * columns: the strip's piece stays in the second-level cache while every block of rows of X passes
 * by, and the block's piece in the first while it meets one panel after the other. Rows of X are
 * normed and packed beforehand, by all threads.
 *
 * Each part starts a new panel, so that any range of parts is a range of panels. Parts of a
 * quantised matrix may have forms of their own, and panels of other sizes. The panels of a paired
 * matrix are numbered in turns, one of gate and one of up.
 */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_cut.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/quant_panel.h"

enum {
    PARTS_MAX = 4 * 512,  /* a K and a V for every layer, and to spare */
    NR_MAX = 64,          /* widest panel of any kernel */
    PAIRS_MAX = 4,        /* pairs of panels that share a piece of a block */
    MR_MAX = 32,          /* tallest block of any kernel */
    SMALL_WORK = 1 << 17, /* multiply-adds below which threads are not worth waking */
    PACK_ROWS = 24,       /* rows of X that one task norms and packs, about: fewer where few of
                           * them would leave threads without work */
    PACKS_A_THREAD = 4,   /* tasks of packing for each thread, about */
    STRIP_MAX = SKV_CUT_STRIP_MAX
};

typedef struct linear_part {
    size_t n_rows;      /* N of this part */
    size_t panel0;      /* its first panel */
    size_t column0;     /* its first column in the whole product */
    size_t offset;      /* bytes before its first panel */
    size_t panel_bytes; /* from one to the next */
} linear_part;

struct skv_linear {
    skv_weight_type type;
    size_t K, N; /* N counts the columns of y: half the rows when paired */
    size_t n_panels;
    bool paired;
    size_t n_parts;
    linear_part *parts;    /* owned, [n_parts] */
    float *bias;           /* owned, [sum of n_rows] or NULL */
    unsigned char *panels; /* those of each part in a row, of the back end's weights */
};

static const skv_matmul *matmul_of(const skv_cpu_backend *be, skv_weight_type type, size_t K)
{
    switch (type) {
    case SKV_WEIGHT_F32: return &be->kernels.f32;
    case SKV_WEIGHT_BF16: return K <= SKV_NARROW_K ? &be->kernels.wide : &be->kernels.bf16;
    case SKV_WEIGHT_QUANT: return &be->kernels.q;
    case SKV_WEIGHT_QUANT_F32: return &be->kernels.q_wide;
    case SKV_WEIGHT_I8:
    case SKV_WEIGHT_FP8: break; /* cpu_fits refuses FP8 */
    }
    return &be->kernels.i8;
}

size_t skv_cpu_linear_scratch(const skv_cpu_backend *be, size_t max_K)
{
    (void)be;
    size_t rows = skv_round_up(MR_MAX * max_K * sizeof(float), SKV_ALIGN);
    size_t tiles = 2 * PAIRS_MAX * MR_MAX * NR_MAX * sizeof(float);
    return rows + tiles;
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

/* ---- preparing weights ---- */

static const skv_quant_form *form_of(const skv_row_source *source)
{
    return source->form ? source->form : skv_quant_form_int4();
}

/* Bytes from one panel of a part to the next. */
static size_t panel_bytes(const skv_matmul *mm, const skv_linear_spec *spec, size_t i_part)
{
    size_t n_bytes = skv_weight_is_quant(spec->type)
                         ? skv_quant_panel_bytes(form_of(&spec->parts[i_part]), mm->nr, spec->K)
                         : mm->w_bytes(spec->K);
    return skv_round_up(n_bytes, SKV_ALIGN);
}

skv_bytes skv_cpu_linear_bytes(const skv_backend *base, const skv_linear_spec *spec)
{
    const skv_cpu_backend *be = (const skv_cpu_backend *)base;
    const skv_matmul *mm = matmul_of(be, spec->type, spec->K);
    size_t n_bytes = 0;
    for (size_t i = 0; i < spec->n_parts; i++) {
        n_bytes += skv_ceil_div(spec->parts[i].n_rows, mm->nr) * panel_bytes(mm, spec, i);
    }
    return (skv_bytes){.host = n_bytes};
}

/* A scale, or a weight, that is no number: the first that a thread met. */
typedef struct pack_fault {
    size_t i_part, row;
    float value; /* 0: none */
} pack_fault;

typedef struct pack_job {
    skv_cpu_backend *be;
    const skv_matmul *mm;
    const skv_linear_spec *spec;
    skv_linear *w;
    unsigned char *scratch;            /* [n_threads][scratch_bytes] */
    size_t scratch_bytes, float_bytes; /* rows as floats [nr, K], then as codes */
    pack_fault *faults;                /* [n_threads] */
} pack_job;

/* Which part and which rows of it stand in a panel; by_pairs: in turns, where W is paired. */
static size_t panel_part(const skv_linear *w, bool by_pairs, size_t i_panel, size_t nr,
                         size_t *row0)
{
    if (by_pairs) {
        *row0 = i_panel / 2 * nr;
        return i_panel % 2;
    }
    size_t i = 0;
    while (i + 1 < w->n_parts && w->parts[i + 1].panel0 <= i_panel) i++;
    *row0 = (i_panel - w->parts[i].panel0) * nr;
    return i;
}

static unsigned char *panel_at(const skv_linear *w, size_t i_panel, size_t nr)
{
    size_t row0;
    const linear_part *part = &w->parts[panel_part(w, w->paired, i_panel, nr, &row0)];
    return w->panels + part->offset + row0 / nr * part->panel_bytes;
}

/* out [n, K] = rows [row0, row0 + n) of a source. Returns the first weight of a quantised one that
 * is no number, in row *row, or 0. */
static float read_floats(const skv_row_source *source, size_t row0, size_t n, size_t K, float *out,
                         size_t *row)
{
    source->read(source->ctx, row0, n, out);
    for (size_t i = 0; source->quantised && i < n; i++) {
        const float fault = skv_quant_fault(out + i * K, K);
        *row = row0 + i;
        if (fault != 0.0F) return fault;
    }
    return 0.0F;
}

/* Rows [row0, row0 + n) of a source as codes: the file's, or rounded here. Returns the first scale
 * of the file that is no number, as *row says, or 0. */
static float pack_codes(const pack_job *job, void *panel, const skv_row_source *source, size_t row0,
                        size_t n, unsigned char *scratch, size_t *row)
{
    float fault = 0.0F;
    const skv_quant_form *form = form_of(source);
    size_t K = job->w->K;
    float *floats = (float *)(void *)scratch;
    skv_quant_rows rows;
    skv_quant_rows_init(&rows, form, n, K, scratch + job->float_bytes);
    if (source->form) {
        source->read_codes(source->ctx, row0, n, &rows);
        for (size_t i = 0; source->quantised && i < n && fault == 0.0F; i++) {
            fault = skv_quant_row_fault(&rows, form, i);
            *row = row0 + i;
        }
    } else {
        fault = read_floats(source, row0, n, K, floats, row);
        for (size_t i = 0; i < n; i++) {
            const skv_quant_row out = skv_quant_row_at(&rows, form, i);
            job->be->kernels.round_int4(out.codes, out.scales, floats + i * K, K);
        }
    }
    skv_quant_pack(panel, job->mm->nr, form, &rows);
    return fault;
}

static void pack_panel(void *arg, size_t i_panel, size_t i_thread)
{
    pack_job *job = arg;
    size_t nr = job->mm->nr, K = job->w->K, row0;
    size_t i_part = panel_part(job->w, job->w->paired, i_panel, nr, &row0);
    const skv_row_source *source = &job->spec->parts[i_part];
    size_t n = skv_min_size(nr, source->n_rows - row0);
    unsigned char *scratch = job->scratch + i_thread * job->scratch_bytes;
    unsigned char *panel = panel_at(job->w, i_panel, nr);
    pack_fault *known = &job->faults[i_thread], fault = {.i_part = i_part, .row = row0};
    if (skv_weight_is_quant(job->spec->type)) {
        fault.value = pack_codes(job, panel, source, row0, n, scratch, &fault.row);
    } else {
        float *rows = (float *)(void *)scratch;
        fault.value = read_floats(source, row0, n, K, rows, &fault.row);
        job->mm->pack_w(panel, rows, K, n, K);
    }
    if (fault.value != 0.0F && known->value == 0.0F) *known = fault;
}

/* Lays out parts and columns, copies biases. */
static skv_status describe_parts(skv_linear *w, const skv_linear_spec *spec, const skv_matmul *mm,
                                 skv_error *err)
{
    size_t n_rows = 0, panel = 0, offset = 0;
    bool biased = false;
    for (size_t i = 0; i < spec->n_parts; i++) {
        size_t n_panels = skv_ceil_div(spec->parts[i].n_rows, mm->nr);
        size_t n_bytes = panel_bytes(mm, spec, i);
        w->parts[i] = (linear_part){spec->parts[i].n_rows, panel, n_rows, offset, n_bytes};
        panel += n_panels;
        offset += n_panels * n_bytes;
        n_rows += spec->parts[i].n_rows;
        biased = biased || spec->parts[i].bias;
    }
    w->n_panels = panel;
    w->N = spec->paired ? n_rows / 2 : n_rows;
    if (!biased) return SKV_OK;
    w->bias = skv_alloc_zero(n_rows, sizeof *w->bias);
    SKV_REQUIRE(w->bias, err, SKV_MEMORY, "weights: no memory for a bias of %zu", n_rows);
    for (size_t i = 0; i < spec->n_parts; i++) {
        const float *bias = spec->parts[i].bias;
        if (bias) memcpy(w->bias + w->parts[i].column0, bias, w->parts[i].n_rows * sizeof *bias);
    }
    return SKV_OK;
}

/* Of one thread: rows of a panel as floats, and as codes in the largest of the forms. */
static void count_scratch(pack_job *job)
{
    size_t nr = job->mm->nr, K = job->w->K, codes = 0;
    job->float_bytes = skv_round_up(nr * K * sizeof(float), SKV_ALIGN);
    for (size_t i = 0; skv_weight_is_quant(job->spec->type) && i < job->spec->n_parts; i++) {
        codes = skv_max_size(codes, skv_quant_rows_bytes(form_of(&job->spec->parts[i]), nr, K));
    }
    job->scratch_bytes = job->float_bytes + codes;
}

static skv_status check_faults(const pack_job *job, skv_error *err)
{
    for (size_t i = 0; i < skv_pool_threads(job->be->pool); i++) {
        const pack_fault *f = &job->faults[i];
        SKV_REQUIRE(f->value == 0.0F, err, SKV_FORMAT, "%s: row %zu: %g, expected finite weights",
                    job->spec->parts[f->i_part].quantised, f->row, (double)f->value);
    }
    return SKV_OK;
}

static skv_status fill_panels(skv_cpu_backend *be, skv_linear *w, const skv_linear_spec *spec,
                              skv_error *err)
{
    pack_job job = {.be = be, .mm = matmul_of(be, spec->type, spec->K), .spec = spec, .w = w};
    const size_t n_bytes = skv_cpu_linear_bytes(&be->base, spec).host;
    w->panels = skv_cpu_take_weights(be, n_bytes);
    SKV_REQUIRE(w->panels, err, SKV_MEMORY, "weights: no memory for %zu panels, %zu bytes",
                w->n_panels, n_bytes);
    count_scratch(&job);
    job.scratch = skv_alloc_aligned(skv_pool_threads(be->pool), job.scratch_bytes);
    job.faults = skv_alloc_zero(skv_pool_threads(be->pool), sizeof *job.faults);
    skv_status status = SKV_OK;
    if (job.scratch && job.faults) {
        /* A thread packs the panels that it begins with in products, about: where memory has
         * several nodes, pages lie on that of the thread that writes them first. */
        skv_pool_run_stretches(be->pool, w->n_panels, pack_panel, &job);
        status = check_faults(&job, err);
    } else {
        status = skv_fail(err, SKV_MEMORY, "weights: no memory to pack rows of %zu", w->K);
    }
    skv_free(job.scratch);
    skv_free(job.faults);
    return status;
}

skv_status skv_cpu_linear_create(skv_backend *base, const skv_linear_spec *spec, skv_linear **out,
                                 skv_error *err)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    const skv_matmul *mm = matmul_of(be, spec->type, spec->K);
    SKV_REQUIRE(spec->n_parts >= 1 && spec->n_parts <= PARTS_MAX, err, SKV_ARGUMENT,
                "weights: %zu parts", spec->n_parts);
    skv_linear *w = skv_alloc_zero(1, sizeof *w);
    SKV_REQUIRE(w, err, SKV_MEMORY, "weights: no memory");
    w->type = spec->type;
    w->K = spec->K;
    w->paired = spec->paired;
    w->n_parts = spec->n_parts;
    w->parts = skv_alloc_zero(spec->n_parts, sizeof *w->parts);
    skv_status status = w->parts ? describe_parts(w, spec, mm, err)
                                 : skv_fail(err, SKV_MEMORY, "weights: no memory");
    if (status == SKV_OK) status = fill_panels(be, w, spec, err);
    if (status != SKV_OK) {
        skv_cpu_linear_free(base, w);
        return status;
    }
    *out = w;
    return SKV_OK;
}

void skv_cpu_linear_free(skv_backend *base, skv_linear *w)
{
    (void)base;
    if (!w) return;
    skv_free(w->parts);
    skv_free(w->bias);
    skv_free(w);
}

/* ---- computing ---- */

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

static void tile_all_k(const product *p, float *c, size_t b, const unsigned char *panel,
                       unsigned half, bool first)
{
    size_t K = p->w->K;
    for (size_t k0 = 0; k0 < K; k0 += p->mm->kc) {
        p->mm->tile(c, p->mm->nr, p->packed + b * p->block_bytes, panel, block_rows(p, b), K, k0,
                    skv_min_size(K, k0 + p->mm->kc), half | tile_mode(first, k0 > 0));
    }
}

/* A panel and its columns, which are nr but for the last of a part; of them [first, end) are
 * wanted: all, or those of a half. */
typedef struct panel_of_strip {
    const unsigned char *at;
    size_t column, n, first, end;
    unsigned half; /* a mode of a tile */
} panel_of_strip;

static panel_of_strip find_panel(const product *p, size_t i_panel, unsigned half)
{
    size_t nr = p->mm->nr, row0;
    const linear_part *part = &p->w->parts[panel_part(p->w, false, i_panel, nr, &row0)];
    const size_t n = skv_min_size(nr, part->n_rows - row0);
    return (panel_of_strip){.at = p->w->panels + part->offset + row0 / nr * part->panel_bytes,
                            .column = part->column0 + row0,
                            .n = n,
                            .first = half & SKV_TILE_RIGHT ? skv_min_size(n, nr / 2) : 0,
                            .end = half & SKV_TILE_LEFT ? skv_min_size(n, nr / 2) : n,
                            .half = half};
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
    for (size_t b = blocks.first; n > 0 && b < blocks.last; b++) {
        size_t m = block_rows(p, b);
        tile_all_k(p, tile, b, panel.at, panel.half, b == blocks.first);
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

/* Whole panels straight into y: K in pieces, all blocks of rows for each piece, and all panels for
 * each block. */
static void strip_direct(const product *p, block_range blocks, const panel_of_strip *panels,
                         size_t n_panels)
{
    const skv_linear_args *a = &p->args;
    size_t K = p->w->K;
    for (size_t k0 = 0; k0 < K; k0 += p->mm->kc) {
        size_t k1 = skv_min_size(K, k0 + p->mm->kc);
        bool add = k0 > 0 || a->epilogue == SKV_EPILOGUE_ADD;
        for (size_t b = blocks.first; b < blocks.last; b++) {
            const unsigned char *block = p->packed + b * p->block_bytes;
            size_t m = block_rows(p, b);
            float *y = p->y + block_row(p, b) * a->y.ld;
            unsigned mode = tile_mode(b == blocks.first, add);
            for (size_t i = 0; i < n_panels; i++) {
                const panel_of_strip *s = &panels[i];
                float *c = y + (s->column - p->column0);
                p->mm->tile(c, a->y.ld, block, s->at, m, K, k0, k1, s->half | mode);
                if (k1 < K) continue;
                finish_tile(p, c + s->first, a->y.ld, m, s->column + s->first, s->end - s->first);
            }
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
    strip_direct(p, blocks, whole, n_whole);
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

/* A block times panels of gate and the panels of up beside them, pairs [first, last): a piece of
 * the block along K meets all of them while it is in the cache. */
static void block_pairs(const product *p, size_t b, size_t first, size_t last, unsigned how,
                        float *tiles)
{
    const unsigned half = how & (SKV_TILE_LEFT | SKV_TILE_RIGHT);
    const size_t nr = p->mm->nr, K = p->w->K, tile = MR_MAX * NR_MAX, m = block_rows(p, b);
    const unsigned char *block = p->packed + b * p->block_bytes;
    for (size_t i = first; i < last; i++) prefetch_result(p, b, i);
    for (size_t k0 = 0; k0 < K; k0 += p->mm->kc) {
        const size_t k1 = skv_min_size(K, k0 + p->mm->kc);
        const unsigned mode = how | tile_mode(false, k0 > 0);
        for (size_t i = 2 * first; i < 2 * last; i++) {
            float *c = tiles + (i - 2 * first) * tile;
            p->mm->tile(c, nr, block, panel_at(p->w, i, nr), m, K, k0, k1, mode);
        }
    }
    for (size_t i = first; i < last; i++) {
        float *gate = tiles + 2 * (i - first) * tile;
        finish_pair(p, b, i, half, gate, gate + tile);
    }
}

/* Pairs of panels [first, last), or that half of them. Where K is one piece, they gain nothing from
 * each other. */
static void run_pairs(const product *p, block_range blocks, size_t first, size_t last,
                      unsigned half, float *tiles)
{
    const size_t n_pairs = p->w->K > p->mm->kc ? PAIRS_MAX : 1;
    for (size_t b = blocks.first; b < blocks.last; b++) {
        for (size_t i = first; i < last; i += n_pairs) {
            block_pairs(p, b, i, skv_min_size(i + n_pairs, last),
                        half | tile_mode(b == blocks.first, false), tiles);
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
    if (p->paired) {
        run_pairs(p, blocks, first, last, half, tiles);
    } else {
        run_strip(p, blocks, p->panel0 + first, p->panel0 + last, half, tiles);
    }
    skv_matmul_finish(p->mm);
}

static void deal_out(product *p, bool alone)
{
    const linear_part *part = &p->w->parts[p->args.part0];
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
    const skv_matmul *mm = matmul_of(be, w->type, w->K);
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
