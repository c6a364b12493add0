/* KV Prediction's linear maps: loading them, and writing what they predict. See kvpred.h. */
#include "prefill/kvpred.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "model/model.h"
#include "model/pass.h"
#include "prefill/method.h"

enum { NAME_MAX_BYTES = 96 };
static const float RANDOM_SCALE = 0.05f; /* of presets' weights */

static size_t kv_width(const skv_config *c, size_t i)
{
    return c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
}

void skv_fill_predicted(const skv_config *config, skv_plan_layer *layers)
{
    for (size_t i = 0; i < config->n_layers; i++) {
        layers[i] =
            (skv_plan_layer){.kept = SKV_KEPT_PAGES, .source = SKV_KV_SOURCE_MODEL, .slot = i};
    }
}

/* ---- shapes ---- */

skv_status skv_kvpred_check(const skv_config *base, const skv_config *auxiliary, const char *path,
                            skv_error *err)
{
    SKV_REQUIRE(!auxiliary->swiftkv, err, SKV_UNSUPPORTED,
                "%s: kv_prediction.auxiliary: %s: an auxiliary model with SwiftKV layers", path,
                auxiliary->architecture);
    SKV_REQUIRE(!auxiliary->kv_prediction, err, SKV_UNSUPPORTED,
                "%s: kv_prediction.auxiliary: it has an auxiliary model itself", path);
    SKV_REQUIRE(auxiliary->n_shared == 0, err, SKV_UNSUPPORTED,
                "%s: kv_prediction.auxiliary: its last %zu layers have no keys and values", path,
                auxiliary->n_shared);
    SKV_REQUIRE(auxiliary->vocab == base->vocab, err, SKV_FORMAT,
                "%s: kv_prediction.auxiliary: vocab_size %zu, the base's is %zu", path,
                auxiliary->vocab, base->vocab);
    for (size_t i = 0; i < base->n_layers; i++) {
        SKV_REQUIRE(base->kvp_layers[i] < auxiliary->n_layers, err, SKV_FORMAT,
                    "%s: kv_prediction.layers[%zu]: %u, the auxiliary has %zu layers", path, i,
                    base->kvp_layers[i], auxiliary->n_layers);
    }
    return SKV_OK;
}

/* Base layers that layer j of the auxiliary serves, and the columns they take together. */
static size_t count_served(const skv_config *base, size_t j, size_t *n_columns)
{
    size_t n = 0;
    *n_columns = 0;
    for (size_t i = 0; i < base->n_layers; i++) {
        if (base->kvp_layers[i] != j) continue;
        *n_columns += kv_width(base, i);
        n++;
    }
    return n;
}

/* Columns of the buffer: keys and values of the widest stack. */
static size_t widest(const skv_config *base, const skv_config *auxiliary)
{
    size_t most = 0, n;
    for (size_t j = 0; j < auxiliary->n_layers; j++) {
        (void)count_served(base, j, &n);
        most = skv_max_size(most, 2 * n);
    }
    return most;
}

static skv_area_spec predicted_area(size_t max_rows, size_t n_columns)
{
    return (skv_area_spec){
        .kind = SKV_AREA_ACTIVATIONS, .n_rows = max_rows, .n_columns = n_columns};
}

skv_bytes skv_kvpred_row_bytes(const skv_config *base, const skv_config *auxiliary,
                               const skv_backend *be, size_t max_rows)
{
    const skv_area_spec spec = predicted_area(max_rows, widest(base, auxiliary));
    return be->areas_bytes(be, &spec, 1);
}

skv_bytes skv_kvpred_map_bytes(const skv_config *base, const skv_config *auxiliary, skv_backend *be,
                               skv_weight_type type)
{
    skv_bytes n_bytes = {0};
    size_t n;
    for (size_t j = 0; j < auxiliary->n_layers; j++) {
        if (count_served(base, j, &n) == 0) continue;
        size_t K = kv_width(auxiliary, j);
        skv_row_source all = {.n_rows = n};
        skv_linear_spec spec = {skv_weight_type_over(type, K), &all, 1, K, false};
        const skv_bytes one = be->linear_bytes(be, &spec); /* keys, and values */
        n_bytes = skv_bytes_add(n_bytes, skv_bytes_add(one, one));
    }
    return n_bytes;
}

uint64_t skv_kvpred_parameters(const skv_config *base, const skv_config *auxiliary)
{
    uint64_t n = 0;
    for (size_t i = 0; i < base->n_layers; i++) {
        n += 2 * (uint64_t)kv_width(base, i) * (kv_width(auxiliary, base->kvp_layers[i]) + 1);
    }
    return n;
}

/* ---- loading ---- */

/* The maps of the base's layers that one layer of the auxiliary serves, on one another. They are
 * always computed together, so they are one part of a product: nothing is rounded up between. */
typedef struct map_stack {
    skv_matrix *maps;      /* owned, [n_maps] */
    size_t n_maps, n_rows; /* of all */
    float *bias;           /* owned, [n_rows] */
} map_stack;

static void read_stack(const void *ctx, size_t row0, size_t n, float *out)
{
    const map_stack *stack = ctx;
    for (size_t i = 0, at = 0; i < stack->n_maps && n > 0; i++) {
        const skv_matrix *map = &stack->maps[i];
        if (row0 < at + map->n_rows) {
            size_t some = skv_min_size(n, at + map->n_rows - row0);
            skv_matrix_read(map, row0 - at, some, out);
            out += some * map->n_columns;
            row0 += some;
            n -= some;
        }
        at += map->n_rows;
    }
}

typedef struct loader {
    skv_kvpred *p;
    const skv_kvpred_options *options;
    bool values; /* not keys */
} loader;

/* The tensor under our name or its authors'. */
static const skv_tensor *find(const loader *ld, size_t i, const char *kind,
                              char name[NAME_MAX_BYTES])
{
    const char *what = ld->values ? "value" : "key";
    (void)snprintf(name, NAME_MAX_BYTES, "predicter.auxkv_to_basekv.%s_transforms.%zu.%s", what, i,
                   kind);
    const skv_tensor *t = skv_safetensors_find(ld->options->file, name);
    if (t) return t;
    (void)snprintf(name, NAME_MAX_BYTES, "predictor.%s.%zu.%s", what, i, kind);
    return skv_safetensors_find(ld->options->file, name);
}

static skv_status find_matrix(const loader *ld, size_t i, const char *kind, size_t n_rows,
                              size_t n_columns, skv_matrix *out, skv_error *err)
{
    *out = (skv_matrix){.n_rows = n_rows, .n_columns = n_columns, .scale = RANDOM_SCALE};
    out->seed = skv_mix64(ld->options->seed ^ (2 * i + ld->values));
    if (!ld->options->file) return SKV_OK;
    char name[NAME_MAX_BYTES], have[96];
    const skv_tensor *t = find(ld, i, kind, name);
    const char *path = ld->options->path;
    if (!t) {
        const char *why = skv_safetensors_unusable(ld->options->file, name);
        return skv_fail(err, why ? SKV_UNSUPPORTED : SKV_FORMAT, "%s: %s: %s", path, name,
                        why ? why : "missing");
    }
    bool vector = n_rows == 1;
    bool fits = t->n_dims == (vector ? 1U : 2U) && skv_tensor_columns(t) == n_columns &&
                (vector || t->dims[0] == n_rows);
    if (!fits) {
        (void)skv_tensor_shape_text(t->dims, t->n_dims, have, sizeof have);
        if (vector) {
            return skv_fail(err, SKV_FORMAT, "%s: %s: shape %s, expected [%zu]", path, name, have,
                            n_columns);
        }
        return skv_fail(err, SKV_FORMAT,
                        "%s: %s: shape %s, expected [%zu,%zu]: keys of the base's layer %zu from "
                        "the auxiliary's %u",
                        path, name, have, n_rows, n_columns, i, ld->p->base->kvp_layers[i]);
    }
    out->tensor = t;
    return SKV_OK;
}

/* The map of the base's layer i behind those that the stack has. */
static skv_status add_map(const loader *ld, size_t i, map_stack *stack, skv_error *err)
{
    const skv_config *base = ld->p->base;
    size_t n = kv_width(base, i), K = kv_width(ld->p->auxiliary, base->kvp_layers[i]);
    skv_matrix bias;
    SKV_TRY(find_matrix(ld, i, "weight", n, K, &stack->maps[stack->n_maps], err));
    SKV_TRY(find_matrix(ld, i, "bias", 1, n, &bias, err));
    SKV_TRY(skv_matrix_fetch_row(&bias, 0, stack->bias + stack->n_rows, err));
    stack->n_maps++;
    stack->n_rows += n;
    return SKV_OK;
}

static skv_status check_maps(const map_stack *stack, skv_error *err)
{
    for (size_t i = 0; i < stack->n_maps; i++) SKV_TRY(skv_matrix_check(&stack->maps[i], err));
    return SKV_OK;
}

static skv_status pack(const loader *ld, size_t j, map_stack *stack, skv_linear **out,
                       skv_error *err)
{
    skv_kvpred *p = ld->p;
    for (size_t i = 0; i < p->base->n_layers; i++) {
        if (p->base->kvp_layers[i] == j) SKV_TRY(add_map(ld, i, stack, err));
    }
    SKV_TRY(check_maps(stack, err));
    size_t K = kv_width(p->auxiliary, j);
    skv_row_source all = {
        .read = read_stack, .ctx = stack, .n_rows = stack->n_rows, .bias = stack->bias};
    skv_linear_spec spec = {skv_weight_type_over(ld->options->type, K), &all, 1, K, false};
    SKV_TRY(p->be->linear_create(p->be, &spec, out, err));
    p->weight_bytes += skv_bytes_sum(p->be->linear_bytes(p->be, &spec));
    SKV_TRY(check_maps(stack, err));
    for (size_t i = 0; i < stack->n_maps; i++) skv_matrix_forget(&stack->maps[i]);
    return SKV_OK;
}

/* The stack of maps that layer j of the auxiliary is the input of. */
static skv_status load_stack(const loader *ld, size_t j, skv_linear **out, skv_error *err)
{
    size_t n_columns, n = count_served(ld->p->base, j, &n_columns);
    if (n == 0) return SKV_OK;
    map_stack stack = {.maps = skv_alloc_zero(n, sizeof *stack.maps),
                       .bias = skv_alloc(n_columns, sizeof *stack.bias)};
    skv_status status = stack.maps && stack.bias
                            ? pack(ld, j, &stack, out, err)
                            : skv_fail(err, SKV_MEMORY, "predictor: no memory");
    skv_free(stack.maps);
    skv_free(stack.bias);
    return status;
}

static skv_status load_all(skv_kvpred *p, const skv_kvpred_options *options, skv_error *err)
{
    size_t n = p->auxiliary->n_layers;
    loader ld = {.p = p, .options = options};
    p->keys = skv_alloc_zero(n, sizeof(skv_linear *));
    p->values = skv_alloc_zero(n, sizeof(skv_linear *));
    const skv_area_spec spec = predicted_area(p->max_rows, p->n_columns);
    SKV_REQUIRE(p->keys && p->values, err, SKV_MEMORY, "predictor: no memory for %zu layers", n);
    SKV_TRY(p->be->areas_create(p->be, &spec, 1, &p->predicted, err));
    for (size_t j = 0; j < n; j++) {
        ld.values = false;
        SKV_TRY(load_stack(&ld, j, &p->keys[j], err));
        ld.values = true;
        SKV_TRY(load_stack(&ld, j, &p->values[j], err));
    }
    return SKV_OK;
}

skv_status skv_kvpred_load(skv_kvpred *p, const skv_config *base, const skv_config *auxiliary,
                           skv_backend *be, const skv_kvpred_options *options, skv_error *err)
{
    *p = (skv_kvpred){.base = base, .auxiliary = auxiliary, .be = be};
    p->n_columns = widest(base, auxiliary);
    p->max_rows = options->max_rows;
    skv_status status = load_all(p, options, err);
    if (status != SKV_OK) skv_kvpred_release(p);
    return status;
}

void skv_kvpred_release(skv_kvpred *p)
{
    for (size_t j = 0; p->auxiliary && j < p->auxiliary->n_layers; j++) {
        if (p->keys && p->keys[j]) p->be->linear_free(p->be, p->keys[j]);
        if (p->values && p->values[j]) p->be->linear_free(p->be, p->values[j]);
    }
    skv_free(p->keys);
    skv_free(p->values);
    if (p->be) p->be->areas_free(p->be, &p->predicted, 1);
    *p = (skv_kvpred){0};
}

/* ---- a step ---- */

/* The base's rows stand where the auxiliary's do: angles that are the same are taken from there. */
static void begin(void *user, skv_pass *pass)
{
    skv_kvpred_step *step = user;
    const skv_model *m = step->base->m;
    const skv_workspace *ws = step->base->ws;
    skv_backend_step_spec spec = {.spans = ws->step_spans,
                                  .n_spans = step->n_spans,
                                  .n_angles = m->n_ropes,
                                  .angles_of = pass->ws->step};
    size_t n_rows = 0;
    for (size_t s = 0; s < step->n_spans; s++) {
        const skv_backend_span *span = &spec.spans[s];
        ws->items[SKV_SET_ALL][s] =
            (skv_attention_item){.row0 = n_rows, .n_q = span->n, .n_past = span->n_past, .span = s};
        n_rows += span->n;
    }
    spec.sets[SKV_SET_ALL] = (skv_set_spec){NULL, n_rows, ws->items[SKV_SET_ALL], step->n_spans};
    for (size_t r = 0; r < m->n_ropes; r++) {
        const bool same =
            r < pass->m->n_ropes && skv_rope_table_same(&m->ropes[r], &pass->m->ropes[r]);
        spec.angles[r] = same ? pass->m->angles[r] : m->angles[r];
    }
    step->begun = m->be->step_begin(m->be, ws->step, &spec, NULL) == SKV_OK;
}

skv_status skv_kvpred_end(skv_kvpred_step *step, skv_error *err)
{
    skv_backend *be = step->base->m->be;
    const bool begun = step->begun;
    step->begun = false;
    return begun ? be->step_wait(be, step->base->ws->step, err) : SKV_OK;
}

/* Predicted keys and values of layer i of the base, as its own projections would leave them. */
static void store(const skv_kvpred_step *step, size_t i, skv_rows k, skv_rows v)
{
    skv_place_layer(step->base->m, step->base->plan, i, &step->base->m->layers[i].own,
                    (skv_place_args){.step = step->base->ws->step, .k = k, .v = v});
}

static void predict(void *user, size_t j, skv_product product, const skv_linear_args *made)
{
    const skv_kvpred_step *step = user;
    const skv_kvpred *p = step->predictor;
    const bool kv = product == SKV_PRODUCT_KV || product == SKV_PRODUCT_QKV;
    const size_t n_q = made->part0 == SKV_PART_Q ? skv_config_q_columns(p->auxiliary, j) : 0;
    const size_t n_rows = made->n_rows, width = kv_width(p->auxiliary, j);
    size_t n, at = 0;
    if (!kv || made->part1 <= SKV_PART_K) return; /* queries alone, or another product */
    if (!step->begun || count_served(p->base, j, &n) == 0) return;
    const skv_rows k = skv_rows_from(made->y, 0, n_q);
    const skv_rows keys = {.area = p->predicted, .ld = 2 * n};
    skv_linear_args args = {.w = p->keys[j], .y = keys, .x = k, .n_rows = n_rows};
    p->be->linear(p->be, &args);
    args.w = p->values[j];
    args.y = skv_rows_from(keys, 0, n);
    args.x = p->auxiliary->layers[j].k_is_v ? k : skv_rows_from(k, 0, width);
    p->be->linear(p->be, &args);
    step->base->work->prediction += skv_work_product(n_rows, width, 2 * n);
    for (size_t i = 0; i < p->base->n_layers; i++) {
        if (p->base->kvp_layers[i] != j) continue;
        store(step, i, skv_rows_from(keys, 0, at), skv_rows_from(keys, 0, n + at));
        at += kv_width(p->base, i);
    }
}

skv_hook skv_kvpred_hook(skv_kvpred_step *step)
{
    return (skv_hook){.user = step, .start = begin, .on_product = predict};
}
