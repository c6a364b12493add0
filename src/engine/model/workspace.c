/* The buffers of a step: areas, and lists in a block of the host's. See forward.h. */
#include <assert.h>

#include "base/mem.h"
#include "base/size.h"
#include "model/forward.h"

enum { SWIFTKV_COLUMNS = 8192 }; /* K,V columns of SwiftKV layers to make in one product */

typedef struct workspace_shape {
    size_t q_columns, qkv_columns, h_columns;
    size_t experts; /* 0: no layer has any */
    size_t shared;  /* 1: some of these layers have an expert that every row meets */
    size_t gates;   /* of layers that keep matrices; 0: there are none */
    bool beside;    /* a layer has a dense block beside them */
} workspace_shape;

/* Of a layer that keeps a state: q|k|v|z, the output, b|a, and of some rows q or z alone. */
static void add_delta(workspace_shape *s, const skv_mixer_shape *m, size_t n_gates)
{
    const size_t n_keys = skv_mixer_key_columns(m), n_values = skv_mixer_value_columns(m);
    s->qkv_columns = skv_max_size(s->qkv_columns, skv_mixer_conv_columns(m) + n_values);
    s->q_columns = skv_max_size(s->q_columns, n_values);
    s->h_columns = skv_max_size(s->h_columns, skv_max_size(n_keys, n_values));
    s->gates = skv_max_size(s->gates, n_gates);
}

/* Of a short convolution: B|x|C, the output, and of some rows C alone. */
static void add_conv(workspace_shape *s, size_t D)
{
    s->qkv_columns = skv_max_size(s->qkv_columns, 3 * D);
    s->h_columns = skv_max_size(s->h_columns, D);
}

static workspace_shape shape_of(const skv_config *c)
{
    workspace_shape s = {0};
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *layer = &c->layers[i];
        size_t n_q = skv_config_q_columns(c, i), n_kv = skv_config_kv_columns(c, i);
        s.q_columns = skv_max_size(s.q_columns, n_q);
        s.qkv_columns = skv_max_size(s.qkv_columns, n_q + n_kv);
        s.h_columns = skv_max_size(s.h_columns, layer->ffn * (layer->n_experts ? c->n_active : 1));
        s.h_columns = skv_max_size(s.h_columns, layer->ffn_beside);
        s.experts = skv_max_size(s.experts, layer->n_experts);
        s.beside = s.beside || layer->ffn_beside > 0;
        s.h_columns = skv_max_size(s.h_columns, layer->ffn_shared);
        if (layer->ffn_shared > 0) s.shared = 1;
        if (c->attention_gate) s.h_columns = skv_max_size(s.h_columns, n_q);
        const size_t n_gates = skv_config_gate_columns(c, i);
        if (layer->mixer == SKV_MIXER_CONV) add_conv(&s, c->hidden);
        if (skv_config_keeps_state(c, i) && n_gates > 0) add_delta(&s, &c->mixer, n_gates);
    }
    s.q_columns = skv_max_size(s.q_columns, c->hidden);
    s.qkv_columns = skv_max_size(s.qkv_columns, skv_max_size(c->per_layer, c->hidden));
    s.qkv_columns = skv_max_size(s.qkv_columns, 2 * c->moe_latent);
    s.h_columns = skv_max_size(s.h_columns, c->per_layer);
    if (c->swiftkv) {
        size_t all = 2 * (c->n_layers - c->kv_layers) * c->layers[0].n_kv_heads * c->head_dim;
        s.qkv_columns = skv_max_size(s.qkv_columns, skv_min_size(all, SWIFTKV_COLUMNS));
    }
    return s;
}

/* Areas, and the rows of a workspace that begin where they do. */
typedef struct area_list {
    skv_area_spec specs[SKV_WORKSPACE_AREAS];
    skv_rows *rows[SKV_WORKSPACE_AREAS];
    size_t n;
} area_list;

static void add_area(area_list *list, skv_rows *rows, skv_area_kind kind, size_t n_rows,
                     size_t n_columns)
{
    assert(list->n < SKV_WORKSPACE_AREAS);
    *rows = (skv_rows){.ld = n_columns};
    list->rows[list->n] = rows;
    list->specs[list->n++] =
        (skv_area_spec){.kind = kind, .n_rows = n_rows, .n_columns = n_columns};
}

static area_list list_areas(skv_workspace *ws, const skv_config *c, size_t T)
{
    const workspace_shape s = shape_of(c);
    const skv_area_kind numbers = SKV_AREA_F32, activations = SKV_AREA_ACTIVATIONS;
    const size_t D = c->hidden, n_logits = skv_min_size(T, SKV_LOGIT_ROWS);
    area_list list = {.n = 0};
    add_area(&list, &ws->x, numbers, T, D);
    list.specs[0].moves = true;
    if (c->per_layer > 0) {
        add_area(&list, &ws->x0, numbers, T, D);
        add_area(&list, &ws->embeds, numbers, T, c->n_layers * c->per_layer);
    }
    add_area(&list, &ws->qkv, activations, T, s.qkv_columns);
    add_area(&list, &ws->o, activations, T, s.q_columns);
    add_area(&list, &ws->h, activations, T, s.h_columns);
    if (s.experts > 0) {
        add_area(&list, &ws->router, numbers, T, s.experts + s.shared);
        add_area(&list, &ws->expert_out, activations, T * (c->n_active + s.shared), D);
    }
    if (s.gates > 0) add_area(&list, &ws->gates, numbers, T, s.gates);
    if (skv_config_feeds_states(c)) add_area(&list, &ws->boundary, numbers, T, D);
    if (s.beside) add_area(&list, &ws->ffn_sum, numbers, T, D);
    add_area(&list, &ws->logits, numbers, n_logits, skv_max_size(c->vocab, D));
    ws->qkv_columns = s.qkv_columns;
    ws->max_rows = T;
    return list;
}

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (base) (field) = (void *)(base + used);                                                 \
        used += skv_round_up((count) * sizeof *(field), SKV_ALIGN) + SKV_ALIGN;                    \
    } while (0)

/* Lays the lists out from `base` (NULL: only counts) and returns the bytes they take. */
static size_t lay_out_lists(skv_workspace *ws, size_t T, unsigned char *base)
{
    size_t used = 0;
    TAKE(ws->step_spans, T);
    for (size_t i = 0; i < SKV_SET_COUNT; i++) {
        if (i != SKV_SET_ALL) TAKE(ws->set_rows[i], T);
        if (i != SKV_SET_WANTED && i != SKV_SET_TAPS) TAKE(ws->items[i], T);
    }
    TAKE(ws->unread, T);
    TAKE(ws->gathered, T);
    TAKE(ws->ids, T);
    TAKE(ws->positions, T);
    TAKE(ws->picks, SKV_PICKS_MAX);
    TAKE(ws->owners, SKV_PICKS_MAX);
    return used;
}
#undef TAKE

static skv_backend_step_limits step_limits(const skv_config *c, size_t max_rows)
{
    return (skv_backend_step_limits){.max_rows = max_rows,
                                     .angle_columns = (c->ropes[0].n_rot + c->ropes[1].n_rot) / 2,
                                     .max_picks = SKV_PICKS_MAX,
                                     .max_numbers = SKV_PICK_NUMBERS};
}

skv_bytes skv_workspace_bytes(const skv_config *config, const skv_backend *be, size_t max_rows)
{
    skv_workspace counted = {0};
    const area_list list = list_areas(&counted, config, max_rows);
    const skv_backend_step_limits limits = step_limits(config, max_rows);
    const skv_bytes lists = {.host = lay_out_lists(&counted, max_rows, NULL)};
    return skv_bytes_add(be->areas_bytes(be, list.specs, list.n),
                         skv_bytes_add(be->step_bytes(be, &limits), lists));
}

skv_status skv_workspace_init(skv_workspace *ws, const skv_config *config, skv_backend *be,
                              size_t max_rows, skv_error *err)
{
    *ws = (skv_workspace){0};
    const area_list list = list_areas(ws, config, max_rows);
    const skv_backend_step_limits limits = step_limits(config, max_rows);
    skv_status status = be->areas_create(be, list.specs, list.n, ws->areas, err);
    if (status != SKV_OK) {
        *ws = (skv_workspace){0};
        return status;
    }
    ws->n_areas = list.n;
    for (size_t i = 0; i < list.n; i++) list.rows[i]->area = ws->areas[i];
    status = be->step_create(be, &limits, &ws->step, err);
    if (status != SKV_OK) {
        skv_workspace_release(ws, be);
        return status;
    }
    ws->list_bytes = lay_out_lists(ws, max_rows, NULL);
    ws->lists = skv_map_zero(ws->list_bytes);
    if (!ws->lists) {
        const size_t n_bytes = ws->list_bytes;
        skv_workspace_release(ws, be);
        return skv_fail(err, SKV_MEMORY, "workspace: no memory for %zu bytes", n_bytes);
    }
    (void)lay_out_lists(ws, max_rows, ws->lists);
    return SKV_OK;
}

void skv_workspace_release(skv_workspace *ws, skv_backend *be)
{
    be->step_free(be, ws->step);
    be->areas_free(be, ws->areas, ws->n_areas);
    skv_unmap(ws->lists, ws->list_bytes);
    *ws = (skv_workspace){0};
}
