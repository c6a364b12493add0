/*
 * Scales by activation: AWQ, arXiv:2306.00978, section 3.2.
 *
 * A product W x with a positive s for each column is (W diag(s)) (x / s). Columns that are scaled
 * up lose less in rounding. The division is free if it can be applied to the source of x: the
 * weights of the preceding norm, or the rows of the preceding product (up before down, v before o).
 * The resulting file has no special format. As in equation 5,
 *
 *     s = m^alpha,   m: the root of the mean square of each column's input,
 *
 * and alpha is the one in 0, 0.1 ... 1 with the least error of the outputs (equation 4) over all
 * matrices that read x. With GPTQ it is the error that remains after compensation.
 *
 * A divided norm or bias is rounded to the type it is written in. s is then set to the effective
 * divisor, so this rounding causes no error.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/dtype.h"
#include "train/quantize/quantizer.h"

enum { ROWS = 16 /* of a task */, SAMPLE_ROWS = 512, N_STEPS = 10 };

/* An input and the products around it. */
typedef struct scaled_input {
    skv_quantizer *q;
    skv_compensation *c;
    size_t layer;
    skv_product product;
    size_t K, n_made;       /* elements of x; of its source, each of which may be read twice */
    size_t head_dim, reads; /* O: Dh, and query heads to a head of v */
} scaled_input;

/* Returns the element of the source that x's element k is, or is a multiple of. */
static size_t made_by(const scaled_input *in, size_t k)
{
    if (in->product != SKV_PRODUCT_O) return k;
    return k / in->head_dim / in->reads * in->head_dim + k % in->head_dim;
}

/* ---- the source and the readers of x ---- */

/* Whether all readers of x read nothing else, and scaling passes through the operations in
 * between. */
static bool passes(const skv_config *c, size_t layer, skv_product product)
{
    const skv_layer_shape *l = &c->layers[layer];
    switch (product) {
    case SKV_PRODUCT_QKV: return !c->no_pre_norms;
    case SKV_PRODUCT_STACK: return true;
    case SKV_PRODUCT_O:
        return !c->v_norm && !l->k_is_v && c->n_shared == 0 &&
               (layer < c->kv_layers || c->kv_group == 1);
    case SKV_PRODUCT_GATE_UP: return !c->no_pre_norms;
    case SKV_PRODUCT_DOWN: return c->activation != SKV_ACT_SWIGLU_CLAMPED;
    default: return false;
    }
}

static bool reads_input(const scaled_input *in, const skv_quantize_item *item)
{
    size_t layer;
    skv_product product;
    if (in->product == SKV_PRODUCT_STACK && strstr(item->name, "lm_head_swiftkv.weight")) {
        return true;
    }
    return skv_quantize_find_input(item, &layer, &product) && product == in->product &&
           (layer == in->layer || product == SKV_PRODUCT_STACK);
}

static bool has_item(const scaled_input *in, const char *part)
{
    size_t layer;
    for (size_t i = 0; i < in->q->n; i++) {
        const char *rest = skv_quantize_name_in_layer(in->q->items[i].name, &layer);
        if (rest && layer == in->layer && strcmp(rest, part) == 0) return true;
    }
    return false;
}

/* Whether `rest` names the norm in front of the dense block. */
static bool is_ffn_norm(const scaled_input *in, const char *rest)
{
    const skv_config *c = skv_source_config(in->q->source);
    static const char *const first[] = {".pre_feedforward_layernorm.weight", ".ffn_norm.weight"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        if (has_item(in, first[i])) return strcmp(rest, first[i]) == 0;
    }
    return (!c->post_norms || skv_config_is(c, "glm4")) &&
           strcmp(rest, ".post_attention_layernorm.weight") == 0;
}

/* Whether `rest` contains a part's name, ".up_proj", before ".weight" or ".bias". */
static bool has_part(const char *rest, const char *part)
{
    const char *at = strstr(rest, part), *end = at ? at + strlen(part) : NULL;
    return end && (strcmp(end, ".weight") == 0 || strcmp(end, ".bias") == 0);
}

/* Whether an item makes x, and from which row (of a vector: element) on. */
static bool makes_input(const scaled_input *in, const skv_quantize_item *item, size_t *row0)
{
    static const char *const values[] = {".v_proj", ".v_proj_swiftkv", ".attn_v"},
                             *const fused[] = {".qkv_proj", ".attn_qkv"},
                             *const ups[] = {".up_proj", ".gate_up_proj", ".proj_1", ".ffn_up"};
    const skv_config *c = skv_source_config(in->q->source);
    size_t layer;
    const char *rest = skv_quantize_name_in_layer(item->name, &layer);
    *row0 = 0;
    if (in->product == SKV_PRODUCT_STACK) return !rest && strstr(item->name, "norm_swiftkv.weight");
    if (!rest || layer != in->layer || strstr(rest, ".experts.")) return false;
    if (in->product == SKV_PRODUCT_GATE_UP) return is_ffn_norm(in, rest);
    if (in->product == SKV_PRODUCT_QKV) {
        return strcmp(rest, ".input_layernorm.weight") == 0 ||
               strcmp(rest, ".attn_norm.weight") == 0;
    }
    if (in->product == SKV_PRODUCT_DOWN) {
        const skv_tensor *t = item->tensor;
        const size_t n = t->n_dims == 1 ? skv_tensor_columns(t) : skv_tensor_rows(t);
        bool is_up = false;
        for (size_t i = 0; i < sizeof ups / sizeof *ups; i++) is_up |= has_part(rest, ups[i]);
        *row0 = n - in->n_made; /* after gate, if they are fused */
        return is_up;
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (has_part(rest, values[i])) return true;
    }
    *row0 = skv_config_q_columns(c, layer) + in->n_made;
    return has_part(rest, fused[0]) || has_part(rest, fused[1]);
}

/* A matrix that makes x and is not rounded would lose by the division. */
static bool can_scale(const scaled_input *in)
{
    size_t n_makers = 0, row0;
    if (!passes(skv_source_config(in->q->source), in->layer, in->product)) return false;
    for (size_t i = 0; i < in->q->n; i++) {
        const skv_quantize_item *item = &in->q->items[i];
        if (!makes_input(in, item, &row0)) continue;
        const bool is_matrix = item->tensor->n_dims > 1;
        const size_t n =
            is_matrix ? skv_tensor_rows(item->tensor) : skv_tensor_columns(item->tensor);
        if (row0 + in->n_made > n) return false;
        if (is_matrix && !skv_quantize_is_quantized(in->q, item)) return false;
        n_makers++;
    }
    return n_makers > 0;
}

/* ---- the search ---- */

typedef struct search {
    const scaled_input *in;
    float *sample;  /* [n, K], owned: rows of the matrices that read x */
    size_t n;       /* of the sample */
    float *m;       /* [n_made], owned */
    float *s, *now; /* [K], owned: a candidate; the divisors of the moments */
    float *rows;    /* [n_threads][ROWS, K], owned, and so are the next three */
    float *missed;  /* [n_threads][ROWS, K] */
    float *scales;  /* [n_threads][ROWS, K / group] */
    int8_t *codes;  /* [n_threads][ROWS, K] */
    double *losses; /* [n_tasks], owned */
} search;

static void release_search(search *s)
{
    skv_free(s->sample);
    skv_free(s->m);
    skv_free(s->s);
    skv_free(s->now);
    skv_free(s->rows);
    skv_free(s->missed);
    skv_free(s->scales);
    skv_free(s->codes);
    skv_free(s->losses);
}

/* The matrices' rows at even distances. */
static skv_status read_sample(search *s, skv_error *err)
{
    const scaled_input *in = s->in;
    const skv_quantizer *q = in->q;
    size_t total = 0, at = 0;
    for (size_t i = 0; i < q->n; i++) {
        const skv_quantize_item *item = &q->items[i];
        const bool counts = reads_input(in, item) && skv_quantize_is_quantized(q, item);
        if (counts) total += skv_tensor_rows(item->tensor);
    }
    const size_t step = skv_max_size(1, skv_ceil_div(total, SAMPLE_ROWS));
    s->sample = skv_alloc(skv_ceil_div(total, step) * in->K, sizeof *s->sample);
    SKV_REQUIRE(s->sample, err, SKV_MEMORY, "quantize: no memory for %d rows", SAMPLE_ROWS);
    for (size_t i = 0; i < q->n; i++) {
        const skv_quantize_item *item = &q->items[i];
        if (!reads_input(in, item) || !skv_quantize_is_quantized(q, item)) continue;
        const size_t N = skv_tensor_rows(item->tensor);
        for (size_t row = at % step ? step - at % step : 0; row < N; row += step) {
            SKV_TRY(skv_quantize_read(item, row, 1, s->sample + s->n * in->K, err));
            s->n++;
        }
        at += N;
    }
    return SKV_OK;
}

static skv_status begin_search(search *s, skv_error *err)
{
    const scaled_input *in = s->in;
    const size_t K = in->K, n_threads = skv_pool_threads(in->q->pool);
    SKV_TRY(read_sample(s, err));
    s->m = skv_alloc_zero(in->n_made, sizeof *s->m);
    s->s = skv_alloc(K, sizeof *s->s);
    s->now = skv_alloc(K, sizeof *s->now);
    s->rows = skv_alloc(n_threads * ROWS * K, sizeof *s->rows);
    s->missed = skv_alloc(n_threads * ROWS * K, sizeof *s->missed);
    s->scales = skv_alloc(n_threads * ROWS * (K / in->q->rounding.group), sizeof *s->scales);
    s->codes = skv_alloc(n_threads * ROWS * K, 1);
    s->losses = skv_alloc(skv_ceil_div(s->n, ROWS), sizeof *s->losses);
    SKV_REQUIRE(s->m && s->s && s->now && s->rows && s->missed && s->scales && s->codes &&
                    s->losses,
                err, SKV_MEMORY, "quantize: no memory to scale %zu columns", K);
    for (size_t k = 0; k < K; k++) {
        s->now[k] = 1;
        s->m[made_by(in, k)] += in->c->moments[k];
    }
    for (size_t k = 0; k < in->n_made; k++) s->m[k] = sqrtf(s->m[k]);
    return SKV_OK;
}

static void measure_rows(void *arg, size_t i_task, size_t i_thread)
{
    const search *s = arg;
    const skv_rounding *r = &s->in->q->rounding;
    const skv_compensation *c = s->in->c;
    const size_t K = s->in->K, n_groups = K / r->group, row0 = i_task * ROWS;
    const size_t n = skv_min_size(ROWS, s->n - row0);
    float *rows = s->rows + i_thread * ROWS * K, *missed = s->missed + i_thread * ROWS * K;
    float *scales = s->scales + i_thread * ROWS * n_groups;
    int8_t *codes = s->codes + i_thread * ROWS * K;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < K; k++) {
            rows[i * K + k] = s->sample[(row0 + i) * K + k] * s->now[k];
        }
        skv_round_scales(r, rows + i * K, c->moments, K, scales + i * n_groups);
    }
    s->losses[i_task] = skv_round_compensated(r, c, rows, scales, n, missed, codes);
}

/* Moments and factors for columns multiplied by s->s instead of s->now. */
static void set_scales(search *s)
{
    for (size_t k = 0; k < s->in->K; k++) {
        const float ratio = s->s[k] / s->now[k];
        s->now[k] = s->s[k];
        s->s[k] = ratio;
    }
    skv_compensation_scale(s->in->c, s->in->q->pool, s->s);
}

/* m^alpha, as far from 1 above as below; a column without input follows the least. */
static void make_candidate(search *s, double alpha)
{
    const float *m = s->m;
    float most = 0, least = INFINITY;
    for (size_t k = 0; k < s->in->n_made; k++) most = fmaxf(most, m[k]);
    for (size_t k = 0; k < s->in->n_made; k++) {
        if (m[k] > most * 1e-4F) least = fminf(least, m[k]);
    }
    const double middle = sqrt((double)most * (double)least);
    for (size_t k = 0; k < s->in->K; k++) {
        const float own = fmaxf(m[made_by(s->in, k)], least);
        s->s[k] = most > 0 ? (float)pow((double)own / middle, alpha) : 1;
    }
}

static double measure(search *s, double alpha)
{
    const size_t n_tasks = skv_ceil_div(s->n, ROWS);
    double loss = 0;
    make_candidate(s, alpha);
    set_scales(s);
    skv_pool_run(s->in->q->pool, n_tasks, measure_rows, s);
    for (size_t i = 0; i < n_tasks; i++) loss += s->losses[i];
    return loss;
}

/* The alpha of the least loss; the first of equal ones. */
static double find_alpha(search *s)
{
    double best = measure(s, 0), chosen = 0;
    for (int i = 1; i <= N_STEPS; i++) {
        const double alpha = (double)i / N_STEPS, loss = measure(s, alpha);
        if (!(loss < best)) continue;
        best = loss;
        chosen = alpha;
    }
    return chosen;
}

/* ---- applying the scales to the items ---- */

/* *factors [n], all 1 if there are none yet. */
static skv_status need_factors(float **factors, size_t n, skv_error *err)
{
    if (*factors) return SKV_OK;
    *factors = skv_alloc(n, sizeof **factors);
    SKV_REQUIRE(*factors, err, SKV_MEMORY, "quantize: no memory for %zu factors", n);
    for (size_t k = 0; k < n; k++) (*factors)[k] = 1;
    return SKV_OK;
}

/* made [n_made]: the factors of a vector's elements, changed so that their rounding is exact. */
static skv_status fit_to_vector(const scaled_input *in, const skv_quantize_item *item, size_t row0,
                                float *made, skv_error *err)
{
    const size_t n = skv_tensor_columns(item->tensor);
    const skv_dtype type = in->q->to_gguf ? SKV_DTYPE_F32 : skv_quantize_written_type(item);
    float *values = skv_alloc(n, sizeof *values);
    SKV_REQUIRE(values, err, SKV_MEMORY, "%s: no memory", item->name);
    const skv_status status = skv_quantize_read(item, 0, 1, values, err);
    for (size_t k = 0; status == SKV_OK && k < in->n_made; k++) {
        const float whole = values[row0 + k] + item->centre;
        float written = whole / made[k] - item->centre;
        unsigned char bytes[4];
        skv_dtype_from_f32(type, bytes, &written, 1);
        skv_dtype_to_f32(type, &written, bytes, 1);
        const float exact = whole / (written + item->centre), share = exact / made[k];
        if (share > 0.9F && share < 1.1F) made[k] = exact; /* else 0, or out of the type's range */
    }
    skv_free(values);
    return status;
}

static skv_status divide_item(const scaled_input *in, skv_quantize_item *item, size_t row0,
                              const float *made, skv_error *err)
{
    const bool is_matrix = item->tensor->n_dims > 1;
    float **factors = is_matrix ? &item->rows : &item->columns;
    const size_t n = is_matrix ? skv_tensor_rows(item->tensor) : skv_tensor_columns(item->tensor);
    SKV_TRY(need_factors(factors, n, err));
    for (size_t k = 0; k < in->n_made; k++) (*factors)[row0 + k] /= made[k];
    return SKV_OK;
}

/* made [n_made] is scratch. */
static skv_status fold(const scaled_input *in, float *made, float *s, skv_error *err)
{
    size_t row0;
    for (size_t k = 0; k < in->K; k++) made[made_by(in, k)] = s[k];
    for (size_t i = 0; i < in->q->n; i++) {
        const skv_quantize_item *item = &in->q->items[i];
        if (!makes_input(in, item, &row0) || item->tensor->n_dims > 1) continue;
        SKV_TRY(fit_to_vector(in, item, row0, made, err));
    }
    for (size_t k = 0; k < in->K; k++) s[k] = made[made_by(in, k)];
    for (size_t i = 0; i < in->q->n; i++) {
        skv_quantize_item *item = &in->q->items[i];
        if (makes_input(in, item, &row0)) SKV_TRY(divide_item(in, item, row0, made, err));
        if (!reads_input(in, item)) continue;
        SKV_TRY(need_factors(&item->columns, in->K, err));
        for (size_t k = 0; k < in->K; k++) item->columns[k] *= s[k];
    }
    return SKV_OK;
}

/* ---- the whole ---- */

/* Returns false if the source of the input cannot be divided. */
static bool begin_input(scaled_input *in, skv_quantizer *q, size_t layer, skv_product product,
                        size_t K)
{
    const skv_config *config = skv_source_config(q->source);
    *in = (scaled_input){.q = q, .layer = layer, .product = product, .K = K, .n_made = K};
    if (product == SKV_PRODUCT_O) {
        in->head_dim = skv_config_head_dim(config, layer);
        in->reads = config->layers[layer].n_heads / config->layers[layer].n_kv_heads;
        in->n_made = K / in->reads;
    }
    return can_scale(in);
}

skv_status skv_quantize_fold(skv_quantizer *q, size_t layer, skv_product product, float *s,
                             size_t K, bool *done, skv_error *err)
{
    scaled_input in;
    *done = begin_input(&in, q, layer, product, K);
    if (!*done) return SKV_OK;
    float *made = skv_alloc(in.n_made, sizeof *made);
    SKV_REQUIRE(made, err, SKV_MEMORY, "quantize: no memory for %zu factors", in.n_made);
    const skv_status status = fold(&in, made, s, err);
    skv_free(made);
    return status;
}

skv_status skv_quantize_scale_input(skv_quantizer *q, skv_compensation *c, size_t layer,
                                    skv_product product, skv_error *err)
{
    scaled_input in;
    if (!begin_input(&in, q, layer, product, c->K)) return SKV_OK;
    in.c = c;
    search s = {.in = &in};
    skv_status status = begin_search(&s, err);
    if (status == SKV_OK) {
        const double alpha = find_alpha(&s);
        bool done;
        make_candidate(&s, alpha);
        if (alpha > 0) {
            status = skv_quantize_fold(q, layer, product, s.s, c->K, &done, err);
            q->n_scaled++;
        }
        set_scales(&s);
    }
    release_search(&s);
    return status;
}
