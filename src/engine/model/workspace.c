/* The buffers of a step: a block of the back end's and one of the host's. See forward.h. */
#include "base/mem.h"
#include "base/size.h"
#include "model/forward.h"

enum { SWIFTKV_COLUMNS = 8192 }; /* K,V columns of SwiftKV layers to make in one product */

typedef struct workspace_shape {
    size_t q_columns, qkv_columns, h_columns, rope_columns[2], heads;
    size_t experts; /* 0: no layer has any */
    bool beside;    /* a layer has a dense block beside them */
} workspace_shape;

static workspace_shape shape_of(const skv_config *c)
{
    workspace_shape s = {0};
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *layer = &c->layers[i];
        size_t n_q = skv_config_q_columns(c, i), n_kv = skv_config_kv_columns(c, i);
        s.heads = skv_max_size(s.heads, layer->n_heads);
        s.q_columns = skv_max_size(s.q_columns, n_q);
        s.qkv_columns = skv_max_size(s.qkv_columns, n_q + n_kv);
        s.h_columns = skv_max_size(s.h_columns, layer->ffn * (layer->n_experts ? c->n_active : 1));
        s.h_columns = skv_max_size(s.h_columns, layer->ffn_beside);
        s.experts = skv_max_size(s.experts, layer->n_experts);
        s.beside = s.beside || layer->ffn_beside > 0;
    }
    s.q_columns = skv_max_size(s.q_columns, c->hidden);
    s.qkv_columns = skv_max_size(s.qkv_columns, skv_max_size(c->per_layer, c->hidden));
    s.h_columns = skv_max_size(s.h_columns, c->per_layer);
    if (c->swiftkv) {
        size_t all = 2 * (c->n_layers - c->kv_layers) * c->layers[0].n_kv_heads * c->head_dim;
        s.qkv_columns = skv_max_size(s.qkv_columns, skv_min_size(all, SWIFTKV_COLUMNS));
    }
    for (size_t r = 0; r < 2; r++) s.rope_columns[r] = c->ropes[r].n_rot / 2;
    return s;
}

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (base) (field) = (void *)(base + used);                                                 \
        used += skv_round_up((count) * sizeof *(field), SKV_ALIGN) + SKV_ALIGN;                    \
    } while (0)

/* Lays the tensors out from `base` (NULL: only counts) and returns the bytes they take. */
static size_t lay_out_tensors(skv_workspace *ws, const skv_config *c, size_t T, unsigned char *base)
{
    workspace_shape s = shape_of(c);
    size_t used = 0;
    TAKE(ws->x, T * c->hidden);
    if (c->per_layer > 0) {
        TAKE(ws->x0, T * c->hidden);
        TAKE(ws->embeds, T * c->n_layers * c->per_layer);
    }
    TAKE(ws->qkv, T * s.qkv_columns);
    TAKE(ws->o, T * s.q_columns);
    TAKE(ws->h, T * s.h_columns);
    if (s.experts > 0) {
        TAKE(ws->router, T * s.experts);
        TAKE(ws->expert_out, T * c->n_active * c->hidden);
        if (s.beside) TAKE(ws->ffn_sum, T * c->hidden);
    }
    TAKE(ws->logits, skv_min_size(T, SKV_LOGIT_ROWS) * skv_max_size(c->vocab, c->hidden));
    for (size_t r = 0; r < 2; r++) {
        TAKE(ws->cos[r], T * s.rope_columns[r]);
        TAKE(ws->sin[r], T * s.rope_columns[r]);
    }
    TAKE(ws->vote_norms, T * s.heads);
    ws->qkv_columns = s.qkv_columns;
    ws->h_columns = s.h_columns;
    ws->max_rows = T;
    return used;
}

/* The same for the lists. */
static size_t lay_out_lists(skv_workspace *ws, const skv_config *c, size_t T, unsigned char *base)
{
    const size_t n_experts = shape_of(c).experts;
    size_t used = 0;
    TAKE(ws->alive, T);
    TAKE(ws->unread, T);
    TAKE(ws->gathered, T);
    TAKE(ws->kv_rows, T);
    TAKE(ws->tables, T);
    TAKE(ws->dropped, T);
    TAKE(ws->items, T);
    TAKE(ws->item_spans, T);
    if (n_experts == 0) return used;
    TAKE(ws->chosen, T * c->n_active);
    TAKE(ws->expert_weights, T * c->n_active);
    TAKE(ws->expert_rows, T * c->n_active);
    TAKE(ws->groups, n_experts);
    return used;
}
#undef TAKE

skv_bytes skv_workspace_bytes(const skv_config *config, size_t max_rows)
{
    skv_workspace counted = {0};
    return (skv_bytes){.host = lay_out_tensors(&counted, config, max_rows, NULL) +
                               lay_out_lists(&counted, config, max_rows, NULL)};
}

skv_status skv_workspace_init(skv_workspace *ws, const skv_config *config, skv_backend *be,
                              size_t max_rows, skv_error *err)
{
    *ws = (skv_workspace){0};
    const size_t tensor_bytes = lay_out_tensors(ws, config, max_rows, NULL);
    const size_t list_bytes = lay_out_lists(ws, config, max_rows, NULL);
    ws->tensors = be->alloc(be, tensor_bytes);
    ws->lists = skv_map_zero(list_bytes);
    ws->tensor_bytes = tensor_bytes;
    ws->list_bytes = list_bytes;
    if (!ws->tensors || !ws->lists) {
        skv_workspace_release(ws, be);
        return skv_fail(err, SKV_MEMORY, "workspace: no memory for %zu bytes",
                        tensor_bytes + list_bytes);
    }
    (void)lay_out_tensors(ws, config, max_rows, ws->tensors);
    (void)lay_out_lists(ws, config, max_rows, ws->lists);
    return SKV_OK;
}

void skv_workspace_release(skv_workspace *ws, skv_backend *be)
{
    if (ws->tensors) be->release(be, ws->tensors, ws->tensor_bytes);
    skv_unmap(ws->lists, ws->list_bytes);
    *ws = (skv_workspace){0};
}
