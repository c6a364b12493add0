/* A quantised model as a GGUF file with Q4_0 or Q8_0: see quantizer.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/float16.h"
#include "base/mem.h"
#include "format/gguf_metadata.h"
#include "text/tokenizer.h"
#include "train/quantize/quantizer.h"

/* A block of Q4_0 or Q8_0: the scale, then its codes. */
enum { BLOCK = 32, BYTES_Q4_0 = 18, BYTES_Q8_0 = 34, NAME_BYTES = 256 };
/* llama.cpp's numbers for a file's predominant tensor type and for the blocks' layout. */
enum { FILE_TYPE_Q4_0 = 2, FILE_TYPE_Q8_0 = 7, QUANTIZATION_VERSION = 2 };

/* One tensor of the file. */
typedef struct gguf_part {
    const skv_quantizer *q;
    const skv_quantize_item *item; /* NULL: rope_freqs */
    skv_dtype type;
    bool in_pairs; /* rows of heads are written in pair order */
    char name[NAME_BYTES];
} gguf_part;

typedef struct gguf_parts {
    skv_tensor_out *outs; /* [n], owned */
    gguf_part *parts;     /* [n], owned */
    size_t n;
    float factors[SKV_ROPE_FACTORS_MAX]; /* rope_freqs */
} gguf_parts;

bool skv_quantize_is_gguf(const char *out)
{
    const size_t n = strlen(out);
    return n >= 5 && strcmp(out + n - 5, ".gguf") == 0;
}

/* ---- rows ---- */

/* Maps row r of a matrix, whose heads' rows are written in pair order, to rotate-half order. */
static size_t row_from(const gguf_part *p, size_t r)
{
    if (!p->in_pairs) return r;
    const size_t Dh = skv_source_config(p->q->source)->head_dim, at = r % Dh;
    return r - at + at / 2 + at % 2 * (Dh / 2);
}

/* codes [32], in two's complement from -2^(bits - 1) on, as a block. */
static void put_block(unsigned char *out, uint16_t scale, const int8_t *codes, unsigned bits)
{
    out[0] = (unsigned char)scale;
    out[1] = (unsigned char)(scale >> 8);
    if (bits == 8) {
        memcpy(out + 2, codes, BLOCK);
        return;
    }
    for (size_t k = 0; k < BLOCK / 2; k++) {
        out[2 + k] = (unsigned char)((codes[k] + 8) | (codes[k + BLOCK / 2] + 8) << 4);
    }
}

static void put_coded_row(const gguf_part *p, size_t row, unsigned char *out)
{
    const skv_rounding *r = &p->q->rounding;
    const size_t K = skv_tensor_columns(p->item->tensor),
                 bytes = r->bits == 4 ? BYTES_Q4_0 : BYTES_Q8_0;
    const uint8_t *packed = p->item->codes + row * (K * r->bits / 8);
    for (size_t b = 0; b < K / BLOCK; b++, out += bytes) {
        int8_t codes[BLOCK];
        for (size_t k = 0; k < BLOCK; k++) {
            const size_t at = b * BLOCK + k;
            codes[k] =
                (int8_t)(r->bits == 8 ? packed[at] - 128 : (packed[at / 2] >> at % 2 * 4 & 15) - 8);
        }
        put_block(out, p->item->scales[row * (K / BLOCK) + b], codes, r->bits);
    }
}

/* The nearest multiples of the largest / 127. */
static void put_q8_row(const float *x, size_t K, unsigned char *out)
{
    for (size_t b = 0; b < K / BLOCK; b++, x += BLOCK, out += BYTES_Q8_0) {
        float most = 0;
        for (size_t k = 0; k < BLOCK; k++) most = fmaxf(most, fabsf(x[k]));
        const float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
        int8_t codes[BLOCK];
        for (size_t k = 0; k < BLOCK; k++) {
            codes[k] = (int8_t)lrintf(fmaxf(-127, fminf(127, x[k] * inverse)));
        }
        put_block(out, skv_f16_of_float(scale), codes, 8);
    }
}

static void put_float_row(const gguf_part *p, float *x, size_t K, float *pairs, unsigned char *out)
{
    if (p->in_pairs && p->item->tensor->n_dims == 1) {
        for (size_t k = 0; k < K; k++) pairs[k] = x[row_from(p, k)];
        x = pairs;
    }
    if (p->type == SKV_DTYPE_Q8_0) {
        put_q8_row(x, K, out);
    } else {
        skv_dtype_from_f32(p->type, out, x, K);
    }
}

static skv_status write_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const gguf_part *p = arg;
    const skv_tensor *t = p->item->tensor;
    const size_t K = skv_tensor_columns(t);
    size_t row_bytes = 0;
    float *x = skv_alloc(2 * K, sizeof *x);
    SKV_REQUIRE(x && skv_dtype_bytes(p->type, K, &row_bytes), err, SKV_MEMORY,
                "%s: no memory for a row", p->name);
    skv_status status = SKV_OK;
    for (size_t i = 0; i < n && status == SKV_OK; i++, out += row_bytes) {
        const size_t row = t->n_dims > 1 ? row_from(p, row0 + i) : 0;
        if (p->item->codes) {
            put_coded_row(p, row, out);
            continue;
        }
        status = skv_quantize_read(p->item, row, 1, x, err);
        if (status == SKV_OK) put_float_row(p, x, K, x + K, out);
    }
    skv_free(x);
    return status;
}

/* ---- the list of tensors ---- */

static skv_dtype type_of(const skv_quantizer *q, const skv_quantize_item *item)
{
    const skv_tensor *t = item->tensor;
    if (item->codes) return q->rounding.bits == 4 ? SKV_DTYPE_Q4_0 : SKV_DTYPE_Q8_0;
    if (t->n_dims == 1) return SKV_DTYPE_F32;
    const bool is_router = strstr(item->name, "_inp.");
    const bool whole = !item->is_projection && !is_router && skv_tensor_columns(t) % BLOCK == 0;
    return whole ? SKV_DTYPE_Q8_0 : skv_quantize_written_type(item);
}

static skv_status add_item(gguf_parts *list, const skv_quantizer *q, const skv_quantize_item *item,
                           skv_error *err)
{
    const skv_tensor *t = item->tensor;
    gguf_part *p = &list->parts[list->n];
    const bool copied = !item->codes && skv_dtype_block_elements(t->type) > 1;
    *p = (gguf_part){.q = q, .item = item, .type = copied ? t->type : type_of(q, item)};
    if (skv_source_gguf(q->source)) {
        const int n = snprintf(p->name, sizeof p->name, "%s", item->name);
        SKV_REQUIRE(n >= 0 && n < NAME_BYTES, err, SKV_RANGE, "tensor name %s is too long",
                    item->name);
    } else {
        SKV_REQUIRE(skv_gguf_name_of(skv_source_config(q->source), item->name, p->name,
                                     sizeof p->name, &p->in_pairs),
                    err, SKV_UNSUPPORTED, "GGUF output: there is no name for the tensor %s",
                    item->name);
    }
    skv_tensor_out out = {.name = p->name, .type = p->type, .n_dims = t->n_dims};
    memcpy(out.dims, t->dims, sizeof out.dims);
    if (copied) {
        out.data = t->data;
    } else {
        out.rows = write_rows;
        out.arg = p;
    }
    list->outs[list->n++] = out;
    return SKV_OK;
}

static skv_status list_parts(gguf_parts *list, const skv_quantizer *q, skv_error *err)
{
    list->outs = skv_alloc(q->n + 1, sizeof *list->outs);
    list->parts = skv_alloc(q->n + 1, sizeof *list->parts);
    SKV_REQUIRE(list->outs && list->parts, err, SKV_MEMORY, "quantize: no memory for %zu tensors",
                q->n);
    const skv_config *c = skv_source_config(q->source);
    const bool from_gguf = skv_source_gguf(q->source);
    for (size_t i = 0; i < q->n; i++) {
        const char *name = q->items[i].name;
        /* Tensors that some folders hold and no model reads. */
        const bool unread =
            (c->tied && strcmp(name, "lm_head.weight") == 0) || strstr(name, "rotary_emb.inv_freq");
        if (from_gguf || !unread) SKV_TRY(add_item(list, q, &q->items[i], err));
    }
    if (from_gguf) return SKV_OK;
    const size_t n = skv_gguf_rope_factors(c, list->factors);
    if (n > 0) {
        list->outs[list->n++] = (skv_tensor_out){.name = "rope_freqs.weight",
                                                 .type = SKV_DTYPE_F32,
                                                 .n_dims = 1,
                                                 .dims = {n},
                                                 .data = list->factors};
    }
    return SKV_OK;
}

/* ---- metadata ---- */

static void copy_metadata(const skv_gguf *from, skv_gguf_out *out)
{
    static const char *const ours[] = {"general.file_type", "general.quantization_version",
                                       "general.alignment"};
    for (size_t i = 0; i < skv_gguf_count(from); i++) {
        const skv_gguf_value *v = skv_gguf_at(from, i);
        bool is_ours = strncmp(v->key, "split.", 6) == 0;
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++) {
            is_ours = is_ours || strcmp(v->key, ours[k]) == 0;
        }
        if (!is_ours) skv_gguf_put_copy(out, v);
    }
}

/* The ids beside the tokenizer's own that end an answer. */
static void put_more_ends(const skv_config *c, int32_t eos, skv_gguf_out *out)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    size_t n = 0;
    for (size_t i = 0; i < c->n_eos && n < 2; i++) {
        if (c->eos[i] != eos && c->eos[i] >= 0) {
            skv_gguf_put_u32(out, keys[n++], (size_t)c->eos[i]);
        }
    }
}

static skv_status put_metadata(skv_quantizer *q, skv_error *err)
{
    const skv_config *c = skv_source_config(q->source);
    skv_gguf_out *out = &q->metadata;
    if (skv_source_gguf(q->source)) {
        copy_metadata(skv_source_gguf(q->source), out);
    } else {
        skv_tokenizer *t = NULL;
        SKV_TRY(skv_gguf_put_config(c, out, err));
        SKV_TRY(skv_tokenizer_open_folder(skv_source_path(q->source), &t, err));
        const skv_status status = t ? skv_tokenizer_to_gguf(t, c->vocab, out, err) : SKV_OK;
        if (t && status == SKV_OK) put_more_ends(c, skv_tokenizer_eos(t), out);
        skv_tokenizer_free(t);
        SKV_TRY(status);
    }
    skv_gguf_put_u32(out, "general.quantization_version", QUANTIZATION_VERSION);
    skv_gguf_put_u32(out, "general.file_type",
                     q->rounding.bits == 4 ? FILE_TYPE_Q4_0 : FILE_TYPE_Q8_0);
    return SKV_OK;
}

skv_status skv_quantize_begin_gguf(skv_quantizer *q, const char *out, skv_error *err)
{
    SKV_REQUIRE(q->rounding.group == BLOCK, err, SKV_UNSUPPORTED,
                "group: %zu, but Q4_0 and Q8_0 of GGUF have groups of %d", q->rounding.group,
                (int)BLOCK);
    SKV_REQUIRE(!skv_file_exists(out), err, SKV_ARGUMENT, "%s: it exists already", out);
    return put_metadata(q, err);
}

skv_status skv_quantize_write_gguf(const skv_quantizer *q, const char *out, uint64_t *n_bytes,
                                   skv_error *err)
{
    gguf_parts list = {0};
    skv_status status = list_parts(&list, q, err);
    if (status == SKV_OK) status = skv_gguf_write(out, &q->metadata, list.outs, list.n, err);
    *n_bytes = 0;
    for (size_t i = 0; i < list.n && status == SKV_OK; i++) {
        skv_tensor_extent extent;
        status = skv_tensor_out_measure(&list.outs[i], out, &extent, err);
        *n_bytes += extent.n_bytes;
    }
    skv_free(list.outs);
    skv_free(list.parts);
    return status;
}
