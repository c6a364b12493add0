/* Packing weights for products, once: see cpu_weights.h. */
#include "backend/cpu/cpu_weights.h"

#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/quant_panel.h"

enum { PARTS_MAX = 4 * 512 }; /* a K and a V for every layer, and to spare */

const skv_matmul *skv_cpu_matmul_of(const skv_cpu_backend *be, skv_weight_type type, size_t K)
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
    const skv_matmul *mm = skv_cpu_matmul_of(be, spec->type, spec->K);
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

size_t skv_cpu_panel_part(const skv_linear *w, bool by_pairs, size_t i_panel, size_t nr,
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

unsigned char *skv_cpu_panel_at(const skv_linear *w, size_t i_panel, size_t nr)
{
    size_t row0;
    const skv_linear_part *part = &w->parts[skv_cpu_panel_part(w, w->paired, i_panel, nr, &row0)];
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
    size_t i_part = skv_cpu_panel_part(job->w, job->w->paired, i_panel, nr, &row0);
    const skv_row_source *source = &job->spec->parts[i_part];
    size_t n = skv_min_size(nr, source->n_rows - row0);
    unsigned char *scratch = job->scratch + i_thread * job->scratch_bytes;
    unsigned char *panel = skv_cpu_panel_at(job->w, i_panel, nr);
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
        w->parts[i] = (skv_linear_part){spec->parts[i].n_rows, panel, n_rows, offset, n_bytes};
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
    pack_job job = {
        .be = be, .mm = skv_cpu_matmul_of(be, spec->type, spec->K), .spec = spec, .w = w};
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
    const skv_matmul *mm = skv_cpu_matmul_of(be, spec->type, spec->K);
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
