/* Frozen matrices held as the codes of a quantised file: see net_impl.h. */
#include "base/mem.h"
#include "base/size.h"
#include "train/net_impl.h"

enum { ROWS = 16 /* of a task */ };

/* Bytes of a row in memory, beside each other: codes, scales, mins, fine scales and fine mins. */
typedef struct code_sizes {
    size_t codes, scales, mins, fine, fine_min;
} code_sizes;

static code_sizes sizes_of(const skv_quant_form *form, size_t K)
{
    const size_t scales = skv_quant_spans(form, K) * sizeof(uint16_t), fine = K / form->group;
    return (code_sizes){form->bits == 4 ? K / 2 : K, scales, form->has_min ? scales : 0,
                        form->fine ? fine : 0, form->fine && form->has_min ? fine : 0};
}

static size_t row_bytes(const code_sizes *s)
{
    return skv_round_up(s->codes + s->scales + s->mins + s->fine + s->fine_min, sizeof(uint16_t));
}

size_t skv_net_codes_bytes(const skv_quant_form *form, size_t N, size_t K)
{
    const code_sizes s = sizes_of(form, K);
    return N * row_bytes(&s);
}

/* Lays out row i in memory: the arrays beside its codes, and *held, its stored codes. */
static skv_quant_rows lay_out_row(const skv_net_codes *c, size_t i, uint8_t *codes,
                                  const uint8_t **held)
{
    const code_sizes s = sizes_of(c->form, c->K);
    uint8_t *at = c->memory + i * row_bytes(&s);
    skv_quant_rows row = {.n = 1, .K = c->K, .codes = codes};
    row.scales = (uint16_t *)(void *)at; /* first, so that they are aligned */
    if (s.mins) row.mins = (uint16_t *)(void *)(at + s.scales);
    at += s.scales + s.mins;
    if (s.fine) row.fine = (int8_t *)at;
    if (s.fine_min) row.fine_min = at + s.fine;
    *held = at + s.fine + s.fine_min;
    return row;
}

typedef struct code_job {
    const skv_net_codes *c;
    const skv_tensor *t;
    float *out;     /* [N, K] */
    uint8_t *codes; /* [n_threads, K] */
} code_job;

static void read_rows(void *arg, size_t i_task, size_t i_thread)
{
    const code_job *j = arg;
    const size_t K = j->c->K, end = skv_min_size(j->c->N, (i_task + 1) * ROWS);
    uint8_t *codes = j->codes + i_thread * K;
    for (size_t i = i_task * ROWS; i < end; i++) {
        const uint8_t *held;
        skv_quant_rows row = lay_out_row(j->c, i, codes, &held);
        uint8_t *to = j->c->memory + (held - j->c->memory);
        skv_tensor_read_codes(j->t, i, 0, &row);
        for (size_t k = 0; k < K; k += 2) {
            if (j->c->form->bits == 4) {
                to[k / 2] = (uint8_t)(codes[k] | codes[k + 1] << 4);
            } else {
                to[k] = codes[k];
                to[k + 1] = codes[k + 1];
            }
        }
    }
}

/* Refuses scales that are not finite, with the same error as reading such a row. */
static skv_status check_scales(const skv_net_codes *c, const skv_tensor *t, uint8_t *codes,
                               skv_error *err)
{
    const uint8_t *held;
    for (size_t i = 0; i < c->N; i++) {
        const skv_quant_rows row = lay_out_row(c, i, codes, &held);
        const float fault = skv_quant_row_fault(&row, c->form, 0);
        SKV_REQUIRE(fault == 0.0F, err, SKV_FORMAT, "%s: %s: row %zu: %g, expected finite weights",
                    t->file ? t->file->path : "memory", t->name, i, (double)fault);
    }
    return SKV_OK;
}

skv_status skv_net_codes_read(skv_net_codes *c, skv_pool *pool, const skv_tensor *t, skv_error *err)
{
    *c = (skv_net_codes){
        .form = skv_tensor_form(t), .N = skv_tensor_rows(t), .K = skv_tensor_columns(t)};
    c->n_bytes = skv_net_codes_bytes(c->form, c->N, c->K);
    c->memory = skv_map_zero(c->n_bytes);
    uint8_t *codes = skv_alloc(skv_pool_threads(pool) * c->K, 1);
    skv_status status = SKV_OK;
    if (!c->memory || !codes) {
        status =
            skv_fail(err, SKV_MEMORY, "training: no memory for %zu bytes of codes", c->n_bytes);
    }
    if (status == SKV_OK) status = skv_tensor_check(t, err);
    if (status == SKV_OK) {
        skv_pool_run(pool, skv_ceil_div(c->N, ROWS), read_rows, &(code_job){c, t, NULL, codes});
        status = skv_tensor_check(t, err);
        skv_tensor_forget(t);
        if (status == SKV_OK) status = check_scales(c, t, codes, err);
    }
    skv_free(codes);
    if (status != SKV_OK) skv_net_codes_release(c);
    return status;
}

void skv_net_codes_release(skv_net_codes *c)
{
    if (c->memory) skv_unmap(c->memory, c->n_bytes);
    *c = (skv_net_codes){0};
}

static void widen_rows(void *arg, size_t i_task, size_t i_thread)
{
    const code_job *j = arg;
    const size_t K = j->c->K, end = skv_min_size(j->c->N, (i_task + 1) * ROWS);
    uint8_t *codes = j->codes + i_thread * K;
    for (size_t i = i_task * ROWS; i < end; i++) {
        const uint8_t *held;
        const skv_quant_rows row = lay_out_row(j->c, i, codes, &held);
        for (size_t k = 0; k < K; k += 2) {
            codes[k] = j->c->form->bits == 4 ? held[k / 2] & 15 : held[k];
            codes[k + 1] = j->c->form->bits == 4 ? held[k / 2] >> 4 : held[k + 1];
        }
        skv_quant_row_to_f32(&row, j->c->form, 0, j->out + i * K);
    }
}

void skv_net_codes_widen(const skv_net_codes *c, skv_pool *pool, float *out, uint8_t *codes)
{
    skv_pool_run(pool, skv_ceil_div(c->N, ROWS), widen_rows, &(code_job){c, NULL, out, codes});
}
