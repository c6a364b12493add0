/*
 * Weights on their way to the device, as floats or as codes. A row is made of up to five streams
 * (codes, their scales, mins, and the fine ones of both), each of which has an array of its own on
 * the device. All threads fill a piece of pinned memory with the streams of some rows, which is
 * sent while they fill the next one.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/float16.h"
#include "base/mem.h"
#include "kernels/matmul.h"

enum { STREAMS = 5, ALIGNMENT = 256, TASK_ROWS = 16, ROW_SHIFT = 31 };
enum { CODES, SCALES, MINS, FINE, FINE_MIN }; /* streams */

/* ---- layouts ---- */

size_t skv_cuda_weights_ld(skv_weight_type type, size_t K)
{
    const bool floats = type == SKV_WEIGHT_BF16 || type == SKV_WEIGHT_F32;
    return skv_round_up(K, floats ? 8 : 32);
}

static bool is_codes(skv_weight_type type)
{
    return type != SKV_WEIGHT_BF16 && type != SKV_WEIGHT_F32;
}

static const skv_quant_form *form_of(const skv_row_source *source)
{
    return source->form ? source->form : skv_quant_form_int4();
}

static uint32_t shift_of(size_t group)
{
    uint32_t shift = 0;
    while (((size_t)1 << shift) < group) shift++;
    assert((size_t)1 << shift == group);
    return shift;
}

/* Columns of e4m3 that share a scale. */
static size_t fp8_group(const skv_row_source *source, size_t K)
{
    return source->fp8_group ? source->fp8_group : K;
}

/* How the rows of a part are stored: the fields of `codes` but for addresses, and bytes of a row of
 * each stream, 0 where there is none. */
static void lay_out_row(const skv_linear_spec *spec, const skv_row_source *source,
                        skv_cuda_codes *codes, size_t row_bytes[STREAMS])
{
    const size_t K = spec->K, ld = skv_cuda_weights_ld(spec->type, K);
    const skv_quant_form *form = form_of(source);
    skv_cuda_codes c = {.kind = SKV_CUDA_CODES_8, .bf16 = 1, .row_bytes = (uint32_t)ld};
    if (spec->type == SKV_WEIGHT_I8) {
        c.scale_shift = shift_of(skv_i8_group(K));
        c.n_scales = (uint32_t)skv_ceil_div(K, skv_i8_group(K));
    } else if (spec->type == SKV_WEIGHT_FP8) {
        const size_t group = fp8_group(source, K);
        c.kind = SKV_CUDA_CODES_E4M3;
        c.scale_shift = group >= K ? ROW_SHIFT : shift_of(group);
        c.n_scales = (uint32_t)skv_ceil_div(K, group);
    } else {
        c.kind = form->bits == 4 ? SKV_CUDA_CODES_4 : SKV_CUDA_CODES_8;
        if (form->bits == 4) c.row_bytes /= 2;
        c.n_scales = (uint32_t)skv_quant_spans(form, K);
        c.fine_shift = shift_of(form->group);
        c.scale_shift = form->fine ? shift_of(SKV_QUANT_SPAN) : c.fine_shift;
        c.n_fine = form->fine ? (uint32_t)(K / form->group) : 0;
        c.bf16 = form->bf16;
        c.zeros = form->zeros;
        c.even = form->even;
        memcpy(c.levels, form->levels, sizeof c.levels);
    }
    const bool has_min = spec->type == SKV_WEIGHT_QUANT && form->has_min;
    *codes = c;
    row_bytes[CODES] = c.row_bytes;
    row_bytes[SCALES] = c.n_scales * (size_t)(c.kind == SKV_CUDA_CODES_E4M3 ? 4 : 2);
    row_bytes[MINS] = has_min ? row_bytes[SCALES] : 0;
    row_bytes[FINE] = c.n_fine;
    row_bytes[FINE_MIN] = has_min ? c.n_fine : 0;
}

/* Whether two parts can lie in one run. */
static bool alike(const skv_linear_spec *spec, size_t i, size_t j)
{
    const skv_row_source *a = &spec->parts[i], *b = &spec->parts[j];
    if (spec->type == SKV_WEIGHT_FP8) return fp8_group(a, spec->K) == fp8_group(b, spec->K);
    if (spec->type == SKV_WEIGHT_I8) return true;
    skv_cuda_codes one, other;
    size_t n_one[STREAMS], n_other[STREAMS];
    lay_out_row(spec, a, &one, n_one);
    lay_out_row(spec, b, &other, n_other);
    return memcmp(n_one, n_other, sizeof n_one) == 0 && one.kind == other.kind &&
           one.bf16 == other.bf16 && one.zeros == other.zeros && one.even == other.even &&
           one.fine_shift == other.fine_shift && one.scale_shift == other.scale_shift &&
           memcmp(one.levels, other.levels, sizeof one.levels) == 0;
}

/* The end of the run that begins with part i. */
static size_t run_end(const skv_linear_spec *spec, size_t i)
{
    size_t end = i + 1;
    while (end < spec->n_parts && alike(spec, i, end)) end++;
    return end;
}

static size_t rows_of(const skv_linear_spec *spec, size_t part0, size_t part1)
{
    size_t n = 0;
    for (size_t i = part0; i < part1; i++) n += spec->parts[i].n_rows;
    return n;
}

/* Of a run of n_rows; offsets of its streams. */
static size_t block_bytes(const size_t row_bytes[STREAMS], size_t n_rows, size_t offsets[STREAMS])
{
    size_t used = 0;
    for (size_t s = 0; s < STREAMS; s++) {
        offsets[s] = used;
        used += skv_round_up(n_rows * row_bytes[s], ALIGNMENT);
    }
    return used;
}

size_t skv_cuda_weights_bytes(const skv_linear_spec *spec)
{
    const size_t N = rows_of(spec, 0, spec->n_parts), ld = skv_cuda_weights_ld(spec->type, spec->K);
    size_t n, used = N * sizeof(float), offsets[STREAMS], row_bytes[STREAMS];
    if (!skv_size_mul(N, ld, &n) || n >= SIZE_MAX / 16) return SIZE_MAX;
    if (!is_codes(spec->type)) return used + n * (spec->type == SKV_WEIGHT_F32 ? 4 : 2);
    for (size_t i = 0, end; i < spec->n_parts; i = end) {
        skv_cuda_codes codes;
        end = run_end(spec, i);
        lay_out_row(spec, &spec->parts[i], &codes, row_bytes);
        used += block_bytes(row_bytes, rows_of(spec, i, end), offsets);
    }
    return used;
}

/* ---- packing ---- */

/* A scale, or a weight, that is no number: the first that a thread met. */
typedef struct fault {
    size_t row;
    float value; /* 0: none */
} fault;

/* Rows of a source on their way. */
typedef struct packing {
    const skv_cuda_backend *be;
    const skv_row_source *source;
    skv_weight_type type;
    size_t K, ld;
    skv_cuda_codes codes; /* sizes alone */
    size_t row_bytes[STREAMS];
    unsigned char *to[STREAMS]; /* of the device: where row 0 goes */
    unsigned char *scratch;     /* [n_threads][scratch_bytes] */
    size_t scratch_bytes, float_bytes;
    fault *faults; /* [n_threads] */
    /* The piece that is filled: rows [row0, row0 + n), streams from these bytes on. */
    unsigned char *piece;
    size_t row0, n, at[STREAMS];
} packing;

/* Row i of a stream in the piece. */
static void *stream_row(const packing *p, size_t stream, size_t i)
{
    return p->piece + p->at[stream] + i * p->row_bytes[stream];
}

static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t k = 0; k < n; k++) most = fmaxf(most, fabsf(x[k]));
    return most;
}

static void pack_floats(const packing *p, size_t i, const float *x)
{
    if (p->type == SKV_WEIGHT_F32) {
        memcpy(stream_row(p, CODES, i), x, p->K * sizeof *x);
        return;
    }
    uint16_t *out = stream_row(p, CODES, i);
    for (size_t k = 0; k < p->K; k++) out[k] = skv_bf16_of_float(x[k]);
}

/* The processor's groups, scales and codes: kernels.h. */
static void pack_i8(const packing *p, size_t i, const float *x)
{
    const size_t group = skv_i8_group(p->K);
    int8_t *codes = stream_row(p, CODES, i);
    uint16_t *scales = stream_row(p, SCALES, i);
    for (size_t k0 = 0; k0 < p->K; k0 += group) {
        const size_t end = skv_min_size(k0 + group, p->K);
        const uint16_t scale = skv_bf16_of_float(skv_i8_scale(largest(x + k0, end - k0)));
        const float inverse = skv_i8_inverse(skv_float_of_bf16(scale));
        for (size_t k = k0; k < end; k++) {
            codes[k] = (int8_t)lrintf(fmaxf(-127, fminf(127, x[k] * inverse)));
        }
        scales[k0 / group] = scale;
    }
}

/* The largest magnitude of a row becomes 448, the largest of e4m3. */
static void pack_fp8(const packing *p, size_t i, const float *x)
{
    uint8_t *codes = stream_row(p, CODES, i);
    const float most = largest(x, p->K), scale = most > 0 ? most / 448 : 1;
    for (size_t k = 0; k < p->K; k++) codes[k] = skv_fp8_encode(x[k] / scale);
    memcpy(stream_row(p, SCALES, i), &scale, sizeof scale);
}

/* Rows [row, row + n) of the source as floats. Returns the first that is no number, or 0. */
static float pack_from_floats(const packing *p, size_t row, size_t n, unsigned char *scratch,
                              size_t *bad_row)
{
    float *x = (float *)(void *)scratch;
    p->source->read(p->source->ctx, row, n, x);
    for (size_t i = 0; i < n; i++) {
        const size_t at = row - p->row0 + i;
        const float *floats = x + i * p->K;
        const float bad = p->source->quantised ? skv_quant_fault(floats, p->K) : 0;
        *bad_row = row + i;
        if (bad != 0) return bad;
        memset(stream_row(p, CODES, at), 0, p->row_bytes[CODES]);
        if (p->type == SKV_WEIGHT_I8) {
            pack_i8(p, at, floats);
        } else if (p->type == SKV_WEIGHT_FP8) {
            pack_fp8(p, at, floats);
        } else {
            pack_floats(p, at, floats);
        }
    }
    return 0;
}

/* e4m3 as the file has it. */
static float pack_fp8_codes(const packing *p, size_t row, size_t n, unsigned char *scratch,
                            size_t *bad_row)
{
    const size_t G = p->codes.n_scales;
    float *scales = (float *)(void *)scratch;
    uint8_t *codes = scratch + skv_round_up(TASK_ROWS * G * sizeof *scales, 64);
    p->source->read_fp8(p->source->ctx, row, n, codes, scales);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *from = codes + i * p->K;
        uint8_t *to = stream_row(p, CODES, row - p->row0 + i);
        const float bad = skv_quant_fault(scales + i * G, G);
        *bad_row = row + i;
        if (bad != 0) return bad;
        for (size_t k = 0; k < p->K; k++) {
            if ((from[k] & 0x7f) == 0x7f) return NAN;
        }
        memset(to, 0, p->row_bytes[CODES]);
        memcpy(to, from, p->K);
        memcpy(stream_row(p, SCALES, row - p->row0 + i), scales + i * G, p->row_bytes[SCALES]);
    }
    return 0;
}

static void pack_codes(const packing *p, size_t i, const skv_quant_row *row)
{
    uint8_t *codes = stream_row(p, CODES, i);
    memset(codes, 0, p->row_bytes[CODES]);
    if (p->codes.kind == SKV_CUDA_CODES_4) {
        for (size_t k = 0; k < p->K; k++) {
            codes[k / 2] |= (uint8_t)(row->codes[k] << (k % 2 ? 4 : 0));
        }
    } else {
        memcpy(codes, row->codes, p->K);
    }
    memcpy(stream_row(p, SCALES, i), row->scales, p->row_bytes[SCALES]);
    if (row->mins) memcpy(stream_row(p, MINS, i), row->mins, p->row_bytes[MINS]);
    if (row->fine) memcpy(stream_row(p, FINE, i), row->fine, p->row_bytes[FINE]);
    if (row->fine_min) memcpy(stream_row(p, FINE_MIN, i), row->fine_min, p->row_bytes[FINE_MIN]);
}

/* Codes of the file, or rounded here. */
static float pack_quant(const packing *p, size_t row, size_t n, unsigned char *scratch,
                        size_t *bad_row)
{
    const skv_quant_form *form = form_of(p->source);
    float *floats = (float *)(void *)scratch;
    skv_quant_rows rows;
    skv_quant_rows_init(&rows, form, n, p->K, scratch + p->float_bytes);
    if (p->source->form) {
        p->source->read_codes(p->source->ctx, row, n, &rows);
    } else {
        p->source->read(p->source->ctx, row, n, floats);
    }
    for (size_t i = 0; i < n; i++) {
        const skv_quant_row out = skv_quant_row_at(&rows, form, i);
        float bad = 0;
        *bad_row = row + i;
        if (p->source->form) {
            if (p->source->quantised) bad = skv_quant_row_fault(&rows, form, i);
        } else {
            if (p->source->quantised) bad = skv_quant_fault(floats + i * p->K, p->K);
            p->be->round_int4(out.codes, out.scales, floats + i * p->K, p->K);
        }
        if (bad != 0) return bad;
        pack_codes(p, row - p->row0 + i, &out);
    }
    return 0;
}

static void pack_task(void *arg, size_t i_task, size_t i_thread)
{
    packing *p = arg;
    const size_t i = i_task * TASK_ROWS, n = skv_min_size(TASK_ROWS, p->n - i);
    const size_t row = p->row0 + i;
    unsigned char *scratch = p->scratch + i_thread * p->scratch_bytes;
    fault found = {.row = row};
    if (skv_weight_is_quant(p->type)) {
        found.value = pack_quant(p, row, n, scratch, &found.row);
    } else if (p->type == SKV_WEIGHT_FP8 && p->source->fp8_group) {
        found.value = pack_fp8_codes(p, row, n, scratch, &found.row);
    } else {
        found.value = pack_from_floats(p, row, n, scratch, &found.row);
    }
    if (found.value != 0 && p->faults[i_thread].value == 0) p->faults[i_thread] = found;
}

/* Of one thread: floats of some rows, and the same as codes. */
static void count_scratch(packing *p)
{
    const size_t n = TASK_ROWS;
    size_t codes = 0;
    p->float_bytes = skv_round_up(n * p->K * sizeof(float), 64);
    if (skv_weight_is_quant(p->type)) codes = skv_quant_rows_bytes(form_of(p->source), n, p->K);
    if (p->type == SKV_WEIGHT_FP8) codes = n * p->codes.n_scales * sizeof(float);
    p->scratch_bytes = p->float_bytes + skv_round_up(codes, 64);
}

static skv_status check_faults(const packing *p, skv_error *err)
{
    for (size_t i = 0; i < skv_pool_threads(p->be->pool); i++) {
        const fault *f = &p->faults[i];
        SKV_REQUIRE(f->value == 0.0F, err, SKV_FORMAT, "%s: row %zu: %g, expected finite weights",
                    p->source->quantised ? p->source->quantised : "weights", f->row,
                    (double)f->value);
    }
    return SKV_OK;
}

/* Rows of a piece, which has room for whole tasks. */
static size_t rows_of_piece(const packing *p)
{
    size_t row = 0;
    for (size_t s = 0; s < STREAMS; s++) row += p->row_bytes[s];
    return (SKV_CUDA_PIECE_BYTES - STREAMS * ALIGNMENT) / row;
}

static void send_piece(skv_cuda_upload *upload, const packing *p)
{
    for (size_t s = 0; s < STREAMS; s++) {
        skv_cuda_upload_send(upload, p->to[s] + p->row0 * p->row_bytes[s], p->at[s],
                             p->n * p->row_bytes[s]);
    }
    skv_cuda_upload_turn(upload);
}

/* All rows of p->source. */
static skv_status send_rows(skv_cuda_backend *be, packing *p, skv_error *err)
{
    const size_t most = rows_of_piece(p), n_rows = p->source->n_rows;
    SKV_REQUIRE(most > 0, err, SKV_RANGE, "weights: rows of %zu are longer than a piece", p->K);
    count_scratch(p);
    p->be = be;
    p->scratch = skv_alloc_aligned(skv_pool_threads(be->pool), p->scratch_bytes);
    p->faults = skv_alloc_zero(skv_pool_threads(be->pool), sizeof *p->faults);
    skv_status status = SKV_OK;
    if (!p->scratch || !p->faults) status = skv_fail(err, SKV_MEMORY, "weights: out of memory");
    for (p->row0 = 0; p->row0 < n_rows && status == SKV_OK; p->row0 += p->n) {
        p->n = skv_min_size(most, n_rows - p->row0);
        (void)block_bytes(p->row_bytes, p->n, p->at);
        p->piece = skv_cuda_upload_piece(&be->upload);
        skv_pool_run(be->pool, skv_ceil_div(p->n, TASK_ROWS), pack_task, p);
        send_piece(&be->upload, p);
        status = check_faults(p, err);
    }
    skv_free(p->scratch);
    skv_free(p->faults);
    return status;
}

/* ---- matrices ---- */

static skv_status send_bias(skv_cuda_backend *be, skv_linear *w, const skv_linear_spec *spec,
                            skv_error *err)
{
    void *bias = NULL;
    SKV_TRY(skv_cuda_new(&be->device, w->N * sizeof *w->bias, &bias, err));
    w->bias = bias;
    for (size_t i = 0; i < spec->n_parts; i++) {
        const skv_row_source *part = &spec->parts[i];
        if (!part->bias) continue;
        w->has_bias = true;
        skv_cuda_put(&be->device, w->bias + w->first[i], part->bias,
                     part->n_rows * sizeof *part->bias);
    }
    return SKV_OK;
}

/* Parts [part0, part1) as a run. */
static skv_status load_run(skv_cuda_backend *be, skv_linear *w, const skv_linear_spec *spec,
                           size_t part0, size_t part1, skv_error *err)
{
    skv_cuda_run *run = &w->runs[w->n_runs++];
    size_t offsets[STREAMS];
    packing p = {.type = spec->type, .K = w->K, .ld = w->ld};
    run->row0 = w->first[part0];
    run->n_rows = w->first[part1] - run->row0;
    lay_out_row(spec, &spec->parts[part0], &p.codes, p.row_bytes);
    SKV_TRY(skv_cuda_new(&be->device, block_bytes(p.row_bytes, run->n_rows, offsets), &run->block,
                         err));
    unsigned char *at[STREAMS];
    for (size_t s = 0; s < STREAMS; s++) at[s] = (unsigned char *)run->block + offsets[s];
    run->codes = p.codes;
    run->codes.codes = at[CODES];
    run->codes.scales = at[SCALES];
    if (p.row_bytes[MINS] > 0) run->codes.mins = (const uint16_t *)(const void *)at[MINS];
    if (p.row_bytes[FINE] > 0) run->codes.fine = (const int8_t *)at[FINE];
    if (p.row_bytes[FINE_MIN] > 0) run->codes.fine_min = at[FINE_MIN];
    for (size_t i = part0; i < part1; i++) {
        const size_t before = w->first[i] - run->row0;
        for (size_t s = 0; s < STREAMS; s++) p.to[s] = at[s] + before * p.row_bytes[s];
        p.source = &spec->parts[i];
        SKV_TRY(send_rows(be, &p, err));
    }
    return SKV_OK;
}

static skv_status load_floats(skv_cuda_backend *be, skv_linear *w, const skv_linear_spec *spec,
                              skv_error *err)
{
    const size_t row_bytes = w->ld * (w->type == SKV_CUDA_F32 ? 4 : 2);
    SKV_TRY(skv_cuda_new(&be->device, w->N * row_bytes, &w->at, err));
    for (size_t i = 0; i < spec->n_parts; i++) {
        packing p = {.source = &spec->parts[i],
                     .type = spec->type,
                     .K = w->K,
                     .ld = w->ld,
                     .row_bytes = {row_bytes},
                     .to = {(unsigned char *)w->at + w->first[i] * row_bytes}};
        SKV_TRY(send_rows(be, &p, err));
    }
    return SKV_OK;
}

skv_status skv_cuda_weights_load(skv_cuda_backend *be, skv_linear *w, const skv_linear_spec *spec,
                                 skv_error *err)
{
    SKV_TRY(send_bias(be, w, spec, err));
    if (!is_codes(spec->type)) return load_floats(be, w, spec, err);
    w->runs = skv_alloc_zero(spec->n_parts, sizeof *w->runs);
    SKV_REQUIRE(w->runs, err, SKV_MEMORY, "weights: out of memory");
    for (size_t i = 0, end; i < spec->n_parts; i = end) {
        end = run_end(spec, i);
        SKV_TRY(load_run(be, w, spec, i, end, err));
    }
    return SKV_OK;
}

skv_status skv_cuda_table_load(skv_cuda_backend *be, const skv_row_source *source, size_t K,
                               void *to, skv_error *err)
{
    const bool f32 = be->activations == SKV_CUDA_F32;
    packing p = {.source = source,
                 .type = f32 ? SKV_WEIGHT_F32 : SKV_WEIGHT_BF16,
                 .K = K,
                 .ld = K,
                 .row_bytes = {K * (f32 ? 4 : 2)},
                 .to = {to}};
    return send_rows(be, &p, err);
}
