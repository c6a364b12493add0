/* Adapters: which products they add to, loading, and their part of a step. See adapter.h. */
#include "model/adapter.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "model/pass.h"

/* ---- which product a pair adds to ---- */

static const struct {
    const char *name; /* after "model.layers.I." */
    skv_adapted product;
    size_t part;
} modules[] = {
    {"self_attn.q_proj", SKV_ADAPTED_QKV, SKV_PART_Q},
    {"self_attn.k_proj", SKV_ADAPTED_QKV, SKV_PART_K},
    {"self_attn.v_proj", SKV_ADAPTED_QKV, SKV_PART_V},
    {"self_attn.q_proj_swiftkv", SKV_ADAPTED_STACKED_Q, 0},
    {"self_attn.k_proj_swiftkv", SKV_ADAPTED_STACK, 0},
    {"self_attn.v_proj_swiftkv", SKV_ADAPTED_STACK, 1},
    {"self_attn.o_proj", SKV_ADAPTED_O, 0},
    {"mlp.gate_proj", SKV_ADAPTED_GATE_UP, 0},
    {"mlp.up_proj", SKV_ADAPTED_GATE_UP, 1},
    {"mlp.down_proj", SKV_ADAPTED_DOWN, 0},
};

enum { N_MODULES = sizeof modules / sizeof *modules };

/* Where part `part` of a product of layer i begins. */
static size_t column_of(const skv_config *c, size_t i, skv_adapted product, size_t part)
{
    size_t sum = 0;
    switch (product) {
    case SKV_ADAPTED_QKV:
        if (part == SKV_PART_Q) return 0;
        return skv_config_q_columns(c, i) + (part - SKV_PART_K) * skv_config_kv_columns(c, i) / 2;
    case SKV_ADAPTED_STACK:
        for (size_t j = 0; j < part; j++) {
            sum += skv_config_kv_columns(c, c->kv_layers + j / 2 * c->kv_group) / 2;
        }
        return sum;
    case SKV_ADAPTED_GATE_UP: return part * skv_config_dense_ffn(c, i);
    default: return 0;
    }
}

/* W[N, K] that module m of layer i is; N is 0 where the layer has none. */
static void shape_of(const skv_config *c, size_t i, size_t m, size_t *N, size_t *K)
{
    const size_t F = skv_config_dense_ffn(c, i), n_q = skv_config_q_columns(c, i);
    const size_t n_kv = c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
    const bool own_kv = skv_config_donor(c, i) == i;
    const bool writes = i >= c->kv_layers && (i - c->kv_layers) % c->kv_group == 0;
    *K = c->hidden;
    switch (modules[m].product) {
    case SKV_ADAPTED_QKV:
        *N = modules[m].part == SKV_PART_Q                                       ? n_q
             : !own_kv || (modules[m].part == SKV_PART_V && c->layers[i].k_is_v) ? 0
                                                                                 : n_kv;
        break;
    case SKV_ADAPTED_STACKED_Q: *N = n_q; break;
    case SKV_ADAPTED_STACK: *N = writes ? n_kv : 0; break;
    case SKV_ADAPTED_O:
        *N = c->hidden;
        *K = n_q;
        break;
    case SKV_ADAPTED_GATE_UP: *N = F; break;
    default:
        *N = F > 0 ? c->hidden : 0;
        *K = F;
        break;
    }
}

/* Whether the model, as it is run, reads module m of layer i. */
static bool is_read(const skv_adapter_target *target, size_t i, size_t m)
{
    const bool deep = target->student && i >= target->config->kv_layers;
    switch (modules[m].product) {
    case SKV_ADAPTED_QKV: return !deep;
    case SKV_ADAPTED_STACKED_Q:
    case SKV_ADAPTED_STACK: return deep;
    default: return true;
    }
}

/* "model.layers.I.MODULE"; N_MODULES: no such module. */
static size_t find_module(const skv_config *c, const char *name, size_t *i_layer)
{
    static const char prefix[] = "model.layers.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return N_MODULES;
    const char *at = name + sizeof prefix - 1, *digits = at;
    size_t i = 0, m = 0;
    for (; *at >= '0' && *at <= '9' && i < c->n_layers; at++) i = 10 * i + (size_t)(*at - '0');
    if (at == digits || *at != '.' || i >= c->n_layers) return N_MODULES;
    while (m < N_MODULES && strcmp(modules[m].name, at + 1) != 0) m++;
    *i_layer = i;
    return m;
}

static skv_status place_pair(const skv_adapter *a, const skv_lora_pair *from,
                             const skv_adapter_target *target, skv_adapter_pair *out,
                             skv_error *err)
{
    const skv_config *c = target->config;
    size_t i = 0, N = 0, K = 0;
    const size_t m = find_module(c, from->name, &i);
    if (m < N_MODULES) shape_of(c, i, m, &N, &K);
    SKV_REQUIRE(
        N > 0, err, SKV_UNSUPPORTED,
        "%s: %s: the model has no such matrix that an adapter can change (q, k, v, o, gate, "
        "up or down of a dense layer)",
        a->file.path, from->name);
    SKV_REQUIRE(is_read(target, i, m), err, SKV_UNSUPPORTED,
                "%s: %s: not read where the model runs like this: layers from %zu on %s the "
                "_swiftkv projections",
                a->file.path, from->name, c->kv_layers, target->student ? "read" : "do not read");
    const skv_tensor *ta = &from->a, *tb = &from->b;
    SKV_REQUIRE(ta->dims[1] == K && tb->dims[0] == N, err, SKV_FORMAT,
                "%s: %s: A and B make [%zu, %zu], the model's matrix is [%zu, %zu]", a->file.path,
                from->name, tb->dims[0], ta->dims[1], N, K);
    SKV_REQUIRE(ta->dims[0] <= c->hidden, err, SKV_RANGE, "%s: %s: rank %zu, at most %zu",
                a->file.path, from->name, ta->dims[0], c->hidden);
    const skv_adapted product = modules[m].product;
    const bool stack = product == SKV_ADAPTED_STACK;
    const size_t group = stack ? (i - c->kv_layers) / c->kv_group : 0;
    *out = (skv_adapter_pair){.place = (stack ? 0 : i) * SKV_ADAPTED_COUNT + product,
                              .part = modules[m].part + 2 * group,
                              .n = N,
                              .rank = ta->dims[0]};
    out->column = column_of(c, i, product, out->part);
    return SKV_OK;
}

/* ---- opening ---- */

static skv_status open_adapter(skv_adapters *set, skv_adapter *a, const char *path,
                               const skv_adapter_target *target, skv_error *err)
{
    const skv_config *c = target->config;
    SKV_TRY(skv_lora_open(path, c, &a->file, err));
    const size_t n_places = c->n_layers * SKV_ADAPTED_COUNT;
    a->pairs = skv_alloc_zero(a->file.n_pairs, sizeof *a->pairs);
    a->starts = skv_alloc_zero(n_places + 1, sizeof *a->starts);
    SKV_REQUIRE(a->pairs && a->starts, err, SKV_MEMORY, "%s: no memory", path);
    for (size_t i = 0; i < a->file.n_pairs; i++) {
        skv_adapter_pair *pair = &a->pairs[i];
        SKV_TRY(place_pair(a, &a->file.pairs[i], target, pair, err));
        a->starts[pair->place + 1]++;
        set->rank = skv_max_size(set->rank, pair->rank);
        if (pair->place % SKV_ADAPTED_COUNT == SKV_ADAPTED_GATE_UP) {
            set->ffn = skv_max_size(set->ffn, pair->n);
        }
    }
    for (size_t p = 0; p < n_places; p++) a->starts[p + 1] += a->starts[p];
    return SKV_OK;
}

/* The list's next entry; `n` is its length up to the comma. */
static skv_status open_entry(skv_adapters *set, const char *entry, size_t n,
                             const skv_adapter_target *target, skv_error *err)
{
    const char *equals = memchr(entry, '=', n);
    const size_t n_name = equals ? (size_t)(equals - entry) : 0;
    SKV_REQUIRE(n_name > 0 && n_name + 1 < n && set->n < SKV_ADAPTERS_MAX, err, SKV_ARGUMENT,
                "adapters: \"%.*s\", expected NAME=PATH, at most %d of them",
                (int)(n < 200 ? n : 200), entry, SKV_ADAPTERS_MAX);
    skv_adapter *a = &set->items[set->n++];
    a->name = skv_strndup(entry, n_name);
    char *path = skv_strndup(equals + 1, n - n_name - 1);
    skv_status status = a->name && path ? SKV_OK : skv_fail(err, SKV_MEMORY, "adapters: no memory");
    for (size_t i = 0; i + 1 < set->n && status == SKV_OK; i++) {
        if (strcmp(set->items[i].name, a->name) != 0) continue;
        status = skv_fail(err, SKV_ARGUMENT, "adapters: two are named %s", a->name);
    }
    if (status == SKV_OK) status = open_adapter(set, a, path, target, err);
    skv_free(path);
    return status;
}

skv_status skv_adapters_open(skv_adapters *set, const char *list, const skv_adapter_target *target,
                             skv_error *err)
{
    set->items = skv_alloc_zero(SKV_ADAPTERS_MAX, sizeof *set->items);
    SKV_REQUIRE(set->items, err, SKV_MEMORY, "adapters: no memory");
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        SKV_TRY(open_entry(set, at, n, target, err));
        at += n;
        if (!*at) return SKV_OK;
    }
}

/* ---- of a sequence ---- */

static const skv_adapter *find_adapter(const skv_adapters *set, const char *name)
{
    for (size_t i = 0; i < set->n; i++) {
        if (strcmp(set->items[i].name, name) == 0) return &set->items[i];
    }
    return NULL;
}

skv_status skv_adapters_mix(const skv_adapters *set, const skv_adapter_use *uses, size_t n,
                            skv_adapter_mix *out, skv_error *err)
{
    *out = (skv_adapter_mix){0};
    SKV_REQUIRE(n <= SKV_ADAPTERS_TOGETHER, err, SKV_ARGUMENT,
                "adapters: %zu in one sequence, at most %d", n, SKV_ADAPTERS_TOGETHER);
    for (size_t i = 0; i < n; i++) {
        const skv_adapter *adapter = find_adapter(set, uses[i].name);
        SKV_REQUIRE(adapter, err, SKV_ARGUMENT, "adapters: \"%s\", there is none of that name",
                    uses[i].name);
        SKV_REQUIRE(isfinite(uses[i].scale), err, SKV_ARGUMENT,
                    "adapters: %s: scale %g, expected a finite one", uses[i].name,
                    (double)uses[i].scale);
        for (size_t j = 0; j < i; j++) {
            SKV_REQUIRE(strcmp(uses[j].name, uses[i].name) != 0, err, SKV_ARGUMENT,
                        "adapters: %s comes twice", uses[i].name);
        }
        if (uses[i].scale == 0.0F) continue;
        out->at[out->n].adapter = adapter;
        out->at[out->n++].scale = uses[i].scale;
    }
    return SKV_OK;
}

bool skv_adapter_mix_equal(const skv_adapter_mix *one, const skv_adapter_mix *other)
{
    bool equal = one->n == other->n;
    for (size_t i = 0; i < one->n && equal; i++) {
        equal =
            one->at[i].adapter == other->at[i].adapter && one->at[i].scale == other->at[i].scale;
    }
    return equal;
}

/* ---- loading ---- */

typedef struct scaled_rows {
    const skv_tensor *tensor;
    float scale;
} scaled_rows;

static void read_scaled(const void *ctx, size_t row0, size_t n, float *out)
{
    const scaled_rows *from = ctx;
    const size_t n_all = n * from->tensor->dims[1];
    skv_tensor_read_rows(from->tensor, row0, n, out);
    for (size_t i = 0; from->scale != 1.0F && i < n_all; i++) out[i] *= from->scale;
}

static skv_linear_spec spec_of(const skv_tensor *t, skv_weight_type type, skv_row_source *part)
{
    *part = (skv_row_source){.n_rows = t->dims[0], .quantised = t->name};
    return (skv_linear_spec){.type = type, .parts = part, .n_parts = 1, .K = t->dims[1]};
}

static skv_status load_matrix(skv_adapters *set, const skv_tensor *t, float scale, skv_linear **out,
                              skv_error *err)
{
    const scaled_rows rows = {t, scale};
    skv_row_source part;
    const skv_linear_spec spec = spec_of(t, set->type, &part);
    part.read = read_scaled;
    part.ctx = &rows;
    SKV_TRY(skv_tensor_check(t, err));
    SKV_TRY(set->be->linear_create(set->be, &spec, out, err));
    skv_tensor_forget(t);
    return skv_tensor_check(t, err);
}

static int by_place(const void *a, const void *b)
{
    const skv_adapter_pair *one = a, *other = b;
    return one->place < other->place ? -1 : one->place > other->place;
}

/* Of low and wide; returns how many there are. */
static size_t list_areas(const skv_adapters *set, size_t max_rows, skv_area_spec specs[2])
{
    if (set->n == 0) return 0;
    specs[0] =
        (skv_area_spec){.kind = SKV_AREA_ACTIVATIONS, .n_rows = max_rows, .n_columns = set->rank};
    specs[1] = (skv_area_spec){
        .kind = SKV_AREA_ACTIVATIONS, .n_rows = SKV_ADAPTER_ROWS, .n_columns = 2 * set->ffn};
    return set->ffn > 0 ? 2 : 1;
}

skv_bytes skv_adapters_bytes(const skv_adapters *set, skv_backend *be, skv_weight_type type,
                             size_t max_rows)
{
    skv_area_spec specs[2];
    skv_bytes sum = be->areas_bytes(be, specs, list_areas(set, max_rows, specs));
    for (size_t i = 0; i < set->n; i++) {
        for (size_t j = 0; j < set->items[i].file.n_pairs; j++) {
            const skv_lora_pair *pair = &set->items[i].file.pairs[j];
            skv_row_source part;
            skv_linear_spec spec = spec_of(&pair->a, type, &part);
            sum = skv_bytes_add(sum, be->linear_bytes(be, &spec));
            spec = spec_of(&pair->b, type, &part);
            sum = skv_bytes_add(sum, be->linear_bytes(be, &spec));
        }
    }
    return sum;
}

skv_status skv_adapters_load(skv_adapters *set, skv_backend *be, skv_weight_type type,
                             size_t max_rows, skv_error *err)
{
    set->be = be;
    set->type = type;
    set->max_rows = max_rows;
    for (size_t i = 0; i < set->n; i++) {
        skv_adapter *a = &set->items[i];
        for (size_t j = 0; j < a->file.n_pairs; j++) {
            const skv_lora_pair *from = &a->file.pairs[j];
            SKV_TRY(load_matrix(set, &from->a, 1.0F, &a->pairs[j].a, err));
            SKV_TRY(load_matrix(set, &from->b, from->scale, &a->pairs[j].b, err));
        }
        qsort(a->pairs, a->file.n_pairs, sizeof *a->pairs, by_place);
    }
    skv_area_spec specs[2];
    set->n_areas = list_areas(set, max_rows, specs);
    return be->areas_create(be, specs, set->n_areas, set->areas, err);
}

void skv_adapters_release(skv_adapters *set)
{
    skv_backend *be = set->be;
    for (size_t i = 0; i < set->n; i++) {
        skv_adapter *a = &set->items[i];
        for (size_t j = 0; be && a->pairs && j < a->file.n_pairs; j++) {
            be->linear_free(be, a->pairs[j].a);
            be->linear_free(be, a->pairs[j].b);
        }
        skv_free(a->pairs);
        skv_free(a->starts);
        skv_free(a->name);
        skv_lora_close(&a->file);
    }
    if (be) be->areas_free(be, set->areas, set->n_areas);
    skv_free(set->items);
    *set = (skv_adapters){0};
}

/* ---- in a step ---- */

/* A product on its way, and the names of its adapters' pairs. */
typedef struct adapted_product {
    const skv_pass *p;
    const skv_linear_args *args;
    size_t place;   /* of the pairs */
    size_t column0; /* of y's first column in the whole product */
    size_t n_parts; /* parts [args->part0, part0 + n_parts) */
} adapted_product;

static skv_adapted adapted_by(const skv_pass *p, size_t i, skv_product product)
{
    switch (product) {
    case SKV_PRODUCT_QKV:
    case SKV_PRODUCT_KV:
        return p->plan->layers[i].source == SKV_KV_SOURCE_STACK ? SKV_ADAPTED_STACKED_Q
                                                                : SKV_ADAPTED_QKV;
    case SKV_PRODUCT_STACK: return SKV_ADAPTED_STACK;
    case SKV_PRODUCT_O: return SKV_ADAPTED_O;
    case SKV_PRODUCT_GATE_UP: return SKV_ADAPTED_GATE_UP;
    case SKV_PRODUCT_DOWN: return SKV_ADAPTED_DOWN;
    case SKV_PRODUCT_EMBED: break;
    }
    return SKV_ADAPTED_COUNT;
}

static bool has_pairs(const adapted_product *a, const skv_adapter *adapter)
{
    return adapter->starts[a->place] < adapter->starts[a->place + 1];
}

/* The adapters of row `row`, if one of them has pairs of the product. */
static const skv_adapter_mix *adapters_at(const adapted_product *a, skv_span_place *at, size_t row)
{
    *at = skv_pass_find_span(a->p, *at, row);
    const skv_adapter_mix *mix = a->p->spans[at->i_span].adapters;
    for (size_t i = 0; mix && i < mix->n; i++) {
        if (has_pairs(a, mix->at[i].adapter)) return mix;
    }
    return NULL;
}

/* y [n, columns] += scale s B (A x) of rows [row0, row0 + n), which are y's first. */
static void add_adapter(const adapted_product *a, const skv_adapter *adapter, float scale,
                        size_t row0, size_t n, skv_rows y)
{
    const skv_adapters *set = a->p->adapters;
    const skv_linear_args *args = a->args;
    skv_backend *be = a->p->be;
    for (size_t j = adapter->starts[a->place]; j < adapter->starts[a->place + 1]; j++) {
        const skv_adapter_pair *pair = &adapter->pairs[j];
        if (pair->part < args->part0 || pair->part >= args->part0 + a->n_parts) continue;
        const skv_rows low = {.area = set->areas[0], .ld = pair->rank};
        be->linear(be, &(skv_linear_args){.w = pair->a,
                                          .y = low,
                                          .x = skv_rows_from(args->x, row0, 0),
                                          .n_rows = n,
                                          .norm = args->norm});
        if (scale != 1.0F) be->scale(be, low, n, pair->rank, scale);
        be->linear(be, &(skv_linear_args){.w = pair->b,
                                          .y = skv_rows_from(y, 0, pair->column - a->column0),
                                          .x = low,
                                          .n_rows = n,
                                          .epilogue = SKV_EPILOGUE_ADD});
    }
}

static bool alike(const skv_adapter_mix *one, const skv_adapter_mix *other)
{
    return one && other ? skv_adapter_mix_equal(one, other) : one == other;
}

/* Rows [first, end) of the product, which are y's first, with the sums of their adapters. */
static void add_adapters(const adapted_product *a, size_t first, size_t end, skv_rows y)
{
    skv_span_place at = {0, 0};
    for (size_t row = first, next; row < end; row = next) {
        const skv_adapter_mix *mix = adapters_at(a, &at, row);
        for (next = row + 1; next < end && alike(adapters_at(a, &at, next), mix);) next++;
        for (size_t i = 0; mix && i < mix->n; i++) {
            add_adapter(a, mix->at[i].adapter, mix->at[i].scale, row, next - row,
                        skv_rows_from(y, row - first, 0));
        }
    }
}

static bool any_adapter(const adapted_product *a, size_t first, size_t end)
{
    skv_span_place at = {0, 0};
    for (size_t row = first; row < end; row++) {
        if (adapters_at(a, &at, row)) return true;
    }
    return false;
}

/* gate|up followed by an activation: without it into `wide` for rows whose adapters add
 * something. */
static void run_activated(const adapted_product *a)
{
    const skv_adapters *set = a->p->adapters;
    skv_backend *be = a->p->be;
    for (size_t row = 0; row < a->args->n_rows; row += SKV_ADAPTER_ROWS) {
        skv_linear_args part = *a->args;
        part.n_rows = skv_min_size(SKV_ADAPTER_ROWS, a->args->n_rows - row);
        part.x = skv_rows_from(part.x, row, 0);
        part.y = skv_rows_from(part.y, row, 0);
        if (!any_adapter(a, row, row + part.n_rows)) {
            be->linear(be, &part);
            continue;
        }
        const size_t F = part.y.ld;
        const skv_rows wide = {.area = set->areas[1], .ld = 2 * F};
        const skv_glu_args glu = {
            .y = part.y, .x = wide, .n_rows = part.n_rows, .n = F, .epilogue = part.epilogue};
        part.y = wide;
        part.epilogue = SKV_EPILOGUE_STORE;
        be->linear(be, &part);
        add_adapters(a, row, row + part.n_rows, wide);
        be->glu(be, &glu);
    }
}

void skv_adapters_linear(const skv_pass *p, size_t i, skv_product product,
                         const skv_linear_args *args)
{
    const skv_adapted kind = adapted_by(p, i, product);
    if (kind == SKV_ADAPTED_COUNT) {
        p->be->linear(p->be, args);
        return;
    }
    const bool stack = kind == SKV_ADAPTED_STACK;
    const adapted_product a = {.p = p,
                               .args = args,
                               .place = (stack ? 0 : i) * SKV_ADAPTED_COUNT + kind,
                               .column0 = column_of(p->c, i, kind, args->part0),
                               .n_parts = args->part1 ? args->part1 - args->part0 : SIZE_MAX / 2};
    assert(!args->step && args->n_rows <= p->adapters->max_rows);
    if (args->epilogue != SKV_EPILOGUE_STORE && args->epilogue != SKV_EPILOGUE_ADD) {
        if (any_adapter(&a, 0, args->n_rows)) {
            run_activated(&a);
        } else {
            p->be->linear(p->be, args);
        }
        return;
    }
    p->be->linear(p->be, args);
    add_adapters(&a, 0, args->n_rows, args->y);
}
