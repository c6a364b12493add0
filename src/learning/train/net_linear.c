/* Products with weights, forward and backward. */
#include "base/mem.h"
#include "train/net_impl.h"

enum { LINEARS = 15 /* of a layer, without experts */ };

bool skv_net_linear_trained(const skv_net_linear *l)
{
    return l->w && (l->w->grad || (l->bias && l->bias->grad));
}

static skv_gemm *products_of(const skv_net *net, const skv_net_linear *l)
{
    return l->exact && net->exact ? net->exact : net->gemm;
}

typedef struct bias_job {
    const skv_net_pass *p;
    float *y;
    const float *bias;
    size_t n;
} bias_job;

enum { BIAS_ROWS = 32 };

static void add_bias(void *arg, size_t i_task, size_t i_thread)
{
    const bias_job *j = arg;
    size_t T = j->p->batch->n_tokens, end = (i_task + 1) * BIAS_ROWS;
    (void)i_thread;
    for (size_t t = i_task * BIAS_ROWS; t < T && t < end; t++) {
        j->p->net->kernels.axpy(j->y + t * j->n, 1.0f, j->bias, j->n);
    }
}

/* Returns the matrix in floats for a product; NULL if it is packed. */
static const float *floats(const skv_net_pass *p, const skv_net_linear *l)
{
    if (!l->codes.form) return skv_net_values(p, l->w);
    skv_net_codes_widen(&l->codes, p->net->pool, p->net->wide, p->net->wide_codes);
    return p->net->wide;
}

static skv_gemm_args product(const skv_net_pass *p, float *y, const float *x,
                             const skv_net_linear *l, bool add)
{
    size_t N = l->w->n_rows, K = l->w->n_columns;
    return (skv_gemm_args){.c = y,
                           .ldc = N,
                           .a = x,
                           .lda = K,
                           .b = floats(p, l),
                           .ldb = K,
                           .M = p->batch->n_tokens,
                           .N = N,
                           .K = K,
                           .b_t = true,
                           .add = add,
                           .packed = l->forward.panels ? &l->forward : NULL};
}

static void finish(const skv_net_pass *p, float *y, const skv_net_linear *l)
{
    if (!l->bias) return;
    bias_job j = {p, y, skv_net_values(p, l->bias), l->w->n_rows};
    skv_pool_run(p->net->pool, (p->batch->n_tokens + BIAS_ROWS - 1) / BIAS_ROWS, add_bias, &j);
}

void skv_net_mul(const skv_net_pass *p, float *y, const float *x, const skv_net_linear *l, bool add)
{
    const skv_gemm_args args = product(p, y, x, l, add);
    skv_gemm_run(products_of(p->net, l), &args);
    finish(p, y, l);
}

void skv_net_mul_all(const skv_net_pass *p, float *const y[3], const float *x,
                     const skv_net_linear *const l[3])
{
    skv_gemm_args args[3];
    size_t n = 1;
    bool coded = false;
    for (size_t i = 0; i < 3 && y[i]; i++) coded = coded || l[i]->codes.form;
    for (size_t i = 0; coded && i < 3 && y[i]; i++) skv_net_mul(p, y[i], x, l[i], false);
    if (coded) return;
    args[0] = product(p, y[0], x, l[0], false);
    for (; n < 3 && y[n]; n++) {
        args[n] = product(p, y[n], x, l[n], false);
        args[n - 1].also = &args[n];
    }
    skv_gemm_run(p->net->gemm, args);
    for (size_t i = 0; i < n; i++) finish(p, y[i], l[i]);
}

void skv_net_mul_back(const skv_net_pass *p, float *dx, const float *dy, const skv_net_linear *l,
                      bool add)
{
    size_t N = l->w->n_rows, K = l->w->n_columns;
    const skv_gemm_args args = {.c = dx,
                                .ldc = K,
                                .a = dy,
                                .lda = N,
                                .b = l->codes.form ? floats(p, l) : l->w->w,
                                .ldb = K,
                                .M = p->batch->n_tokens,
                                .N = K,
                                .K = N,
                                .add = add,
                                .packed = l->back.panels ? &l->back : NULL};
    skv_gemm_run(products_of(p->net, l), &args);
}

void skv_net_mul_grad(const skv_net_pass *p, const float *dy, const float *x,
                      const skv_net_linear *l)
{
    size_t T = p->batch->n_tokens, N = l->w->n_rows, K = l->w->n_columns;
    if (l->w->grad) {
        const skv_gemm_args args = {.c = l->w->grad,
                                    .ldc = K,
                                    .a = dy,
                                    .lda = N,
                                    .b = x,
                                    .ldb = K,
                                    .M = N,
                                    .N = K,
                                    .K = T,
                                    .a_t = true,
                                    .add = true};
        skv_gemm_run(products_of(p->net, l), &args);
    }
    if (l->bias && l->bias->grad) skv_net_bias_back(p->net, l->bias, dy, T);
}

/* ---- packing once ---- */

static skv_status pack_values(skv_net *net, skv_net_linear *l, const float *w, bool back,
                              skv_error *err)
{
    size_t N = l->w->n_rows, K = l->w->n_columns;
    const skv_gemm_args forward = {.b = w, .ldb = K, .b_t = true, .N = N, .K = K};
    SKV_TRY(skv_gemm_pack(net->gemm, &forward, &l->forward, err));
    if (!back) return SKV_OK;
    const skv_gemm_args args = {.b = w, .ldb = K, .N = K, .K = N};
    return skv_gemm_pack(net->gemm, &args, &l->back, err);
}

/* Straight from the file: its f32 form is here only as long as it is packed. */
static skv_status pack_file(skv_net *net, skv_net_linear *l, bool back, skv_error *err)
{
    const skv_tensor *t = l->w->file;
    size_t n_bytes = skv_param_size(l->w) * sizeof(float);
    float *w = skv_map_zero(n_bytes);
    SKV_REQUIRE(w, err, SKV_MEMORY, "training: no memory for %s", l->w->name);
    skv_status status = skv_tensor_read_checked(t, 0, l->w->n_rows, w, err);
    if (status == SKV_OK) status = pack_values(net, l, w, back, err);
    skv_unmap(w, n_bytes);
    if (t->file) skv_file_map_forget(t->data, t->n_bytes);
    return status;
}

static bool is_packed(const skv_net_linear *l)
{
    return l->w && !l->w->trainable && !l->exact;
}

/* Of W, or as the backward pass reads it. */
static size_t packed_bytes(const skv_net *net, const skv_net_linear *l, bool back)
{
    const size_t N = l->w->n_rows, K = l->w->n_columns;
    return back ? skv_gemm_packed_bytes(net->gemm, K, N) : skv_gemm_packed_bytes(net->gemm, N, K);
}

/* A layer's matrix from a quantised file stays in its codes, which need a quarter to a half of the
 * packed size. */
static const skv_quant_form *form_of(const skv_net_linear *l)
{
    return is_packed(l) && l->w->file ? skv_tensor_form(l->w->file) : NULL;
}

static skv_status hold_codes(skv_net *net, skv_net_linear *l, skv_error *err)
{
    const size_t N = l->w->n_rows, K = l->w->n_columns;
    net->widest = skv_max_size(net->widest, N * K);
    net->widest_row = skv_max_size(net->widest_row, K);
    net->packed_bytes += skv_net_codes_bytes(form_of(l), N, K);
    if (net->options.plan) return SKV_OK;
    return skv_net_codes_read(&l->codes, net->pool, l->w->file, err);
}

static skv_status pack_linear(skv_net *net, skv_net_linear *l, bool back, skv_error *err)
{
    if (!is_packed(l)) return SKV_OK;
    if (net->options.plan) {
        net->packed_bytes += packed_bytes(net, l, false) + (back ? packed_bytes(net, l, true) : 0);
        return SKV_OK;
    }
    if (l->w->file) {
        SKV_TRY(pack_file(net, l, back, err));
    } else {
        SKV_TRY(pack_values(net, l, l->w->w, back, err));
    }
    net->packed_bytes += l->forward.n_bytes + l->back.n_bytes;
    return SKV_OK;
}

/* Every product of a layer; a student's backward pass does not touch its teacher's projections. */
static size_t list_linears(const skv_net *net, skv_net_layer *layer, skv_net_linear *out[LINEARS],
                           size_t *n_teacher)
{
    skv_net_projections *own = &layer->own, *swiftkv = &layer->swiftkv;
    skv_net_linear *const all[LINEARS] = {&own->q,      &own->k,     &own->v,     &own->a,
                                          &own->b,      &swiftkv->q, &swiftkv->k, &swiftkv->v,
                                          &swiftkv->a,  &swiftkv->b, &layer->o,   &layer->z,
                                          &layer->gate, &layer->up,  &layer->down};
    for (size_t i = 0; i < LINEARS; i++) out[i] = all[i];
    *n_teacher = net->options.student && swiftkv->q.w ? 5 : 0;
    return LINEARS;
}

static skv_net_linear *expert_linear(skv_net_expert *expert, size_t i)
{
    skv_net_linear *const all[] = {&expert->gate, &expert->up, &expert->down};
    return all[i];
}

/* The next part of the memory that a layer's experts share. */
static void lend_panels(skv_gemm_packed *to, unsigned char **at, size_t n_bytes)
{
    to->borrowed = true;
    to->panels = *at;
    *at += n_bytes;
}

/* One mapping for all experts of a layer: a process may have no more than some ten thousands. */
static skv_status map_experts(const skv_net *net, skv_net_layer *layer, skv_error *err)
{
    const bool back = layer->keep;
    size_t n = 0;
    for (size_t i = 0; i < 3 * layer->n_experts; i++) {
        const skv_net_linear *l = expert_linear(&layer->experts[i / 3], i % 3);
        if (is_packed(l))
            n += packed_bytes(net, l, false) + (back ? packed_bytes(net, l, true) : 0);
    }
    if (n == 0) return SKV_OK;
    unsigned char *at = layer->expert_panels = skv_map_zero(n);
    SKV_REQUIRE(at, err, SKV_MEMORY, "training: no memory for %zu bytes of packed experts", n);
    layer->expert_panels_bytes = n;
    for (size_t i = 0; i < 3 * layer->n_experts; i++) {
        skv_net_linear *l = expert_linear(&layer->experts[i / 3], i % 3);
        if (!is_packed(l)) continue;
        lend_panels(&l->forward, &at, packed_bytes(net, l, false));
        if (back) lend_panels(&l->back, &at, packed_bytes(net, l, true));
    }
    return SKV_OK;
}

static skv_status pack_experts(skv_net *net, skv_net_layer *layer, skv_error *err)
{
    if (!net->options.plan) SKV_TRY(map_experts(net, layer, err));
    for (size_t i = 0; i < 3 * layer->n_experts; i++) {
        skv_net_linear *l = expert_linear(&layer->experts[i / 3], i % 3);
        SKV_TRY(pack_linear(net, l, layer->keep, err));
    }
    return SKV_OK;
}

static void unpack_linear(skv_net_linear *l)
{
    skv_gemm_packed_release(&l->forward);
    skv_gemm_packed_release(&l->back);
    skv_net_codes_release(&l->codes);
}

skv_status skv_net_pack(skv_net *net, skv_error *err)
{
    skv_net_linear *all[LINEARS];
    if (!net->options.bf16) return SKV_OK; /* f32 panels would double the memory of the weights */
    for (size_t i = 0; i < net->config->n_layers; i++) {
        size_t n_teacher, n = list_linears(net, &net->layers[i], all, &n_teacher);
        for (size_t j = 0; j < n; j++) {
            const bool back = net->layers[i].keep && j >= n_teacher;
            SKV_TRY(form_of(all[j]) ? hold_codes(net, all[j], err)
                                    : pack_linear(net, all[j], back, err));
        }
        SKV_TRY(pack_experts(net, &net->layers[i], err));
    }
    if (net->options.early_exit) SKV_TRY(pack_linear(net, &net->exit, true, err));
    return pack_linear(net, &net->head, true, err);
}

void skv_net_unpack(skv_net *net)
{
    skv_net_linear *all[LINEARS];
    for (size_t i = 0; net->layers && i < net->config->n_layers; i++) {
        size_t n_teacher, n = list_linears(net, &net->layers[i], all, &n_teacher);
        for (size_t j = 0; j < n; j++) unpack_linear(all[j]);
        skv_net_layer *layer = &net->layers[i];
        for (size_t e = 0; e < 3 * layer->n_experts; e++) {
            unpack_linear(expert_linear(&layer->experts[e / 3], e % 3));
        }
        skv_unmap(layer->expert_panels, layer->expert_panels_bytes);
        layer->expert_panels = NULL;
    }
    unpack_linear(&net->exit);
    unpack_linear(&net->head);
}
