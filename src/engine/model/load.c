/*
 * Bringing a model's weights into a back end: which matrices there are (one list for counting
 * their bytes and for loading them), and the small vectors.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "model/model.h"

enum { NAME_MAX_BYTES = 160 };

/* How a product is held where the codes of a file are not kept. */
typedef enum load_care {
    CARE_NONE,   /* as was asked for */
    CARE_8_BITS, /* at least: what a token's embedding of a layer adds bears no 4 bits */
    CARE_F32     /* a router */
} load_care;

/* One part of a product, by the published name of its tensor. */
typedef struct load_part {
    char name[NAME_MAX_BYTES];
    size_t n_rows;
    bool bias;
    size_t row0, n_all; /* its rows begin at row0 of the tensor's n_all; 0, 0: they are all */
} load_part;

typedef struct load_job {
    skv_linear **out;
    skv_weight_type *type_out; /* may be NULL */
    load_part *parts;          /* [n_parts] */
    size_t n_parts, K;
    bool paired;
    load_care care;
    size_t column0, n_columns; /* K of so many of the tensors' columns; 0, 0: they are all */
} load_job;

typedef struct loader {
    skv_model *model;
    const skv_config *config;
    const skv_source *source; /* NULL: random */
    skv_backend *be;
    const skv_load_options *options;
    skv_status (*visit)(struct loader *loader, const load_job *job, skv_error *err);
    bool loads; /* false: it only counts */
    size_t bytes_done;
    skv_bytes bytes_all;
} loader;

/* ---- the list of products ---- */

static void set_part(load_part *part, size_t i_layer, const char *what, size_t n_rows, bool bias)
{
    (void)snprintf(part->name, sizeof part->name, "model.layers.%zu.%s", i_layer, what);
    part->n_rows = n_rows;
    part->bias = bias;
    part->row0 = part->n_all = 0;
}

/* A rank's rows of a part, of which each has as many. */
static void divide_rows(const loader *ld, load_part *parts, size_t n)
{
    const skv_ranks *ranks = ld->options->ranks;
    for (size_t i = 0; ranks && i < n; i++) {
        parts[i].row0 = skv_ranks_rank(ranks) * parts[i].n_rows;
        parts[i].n_all = skv_ranks_size(ranks) * parts[i].n_rows;
    }
}

/* A rank's columns of a product whose results are added up over ranks, the bias once. */
static void divide_columns(const loader *ld, load_job *job)
{
    const skv_ranks *ranks = ld->options->ranks;
    job->column0 = ranks ? skv_ranks_rank(ranks) * job->K : 0;
    job->n_columns = ranks ? skv_ranks_size(ranks) * job->K : 0;
    if (!skv_ranks_lead(ranks)) job->parts[0].bias = false;
}

static bool is_swiftkv_layer(const loader *ld, size_t i)
{
    return ld->config->swiftkv && i >= ld->config->kv_layers;
}

/* Whether rows that nobody wants run it. */
static bool is_run(const loader *ld, size_t i)
{
    return !ld->options->prompt_only || i < ld->options->last_boundary;
}

static skv_status visit_attention(loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    size_t n_q = skv_config_q_columns(c, i);
    size_t n_kv = c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
    load_part parts[3];
    load_job job = {.parts = parts, .K = c->hidden};
    if (!is_swiftkv_layer(ld, i) || ld->options->teacher) {
        set_part(&parts[0], i, "self_attn.q_proj", n_q, c->qkv_bias);
        set_part(&parts[1], i, "self_attn.k_proj", n_kv, c->qkv_bias);
        set_part(&parts[2], i, "self_attn.v_proj", n_kv, c->qkv_bias);
        divide_rows(ld, parts, 3);
        job.out = &layer->own.w;
        job.n_parts = skv_config_donor(c, i) != i ? SKV_PART_K
                      : c->layers[i].k_is_v       ? SKV_PART_V
                                                  : SKV_PART_QKV_END;
        SKV_TRY(ld->visit(ld, &job, err));
    }
    if (!is_run(ld, i)) return SKV_OK;
    if (is_swiftkv_layer(ld, i) && ld->options->student) {
        set_part(&parts[0], i, "self_attn.q_proj_swiftkv", n_q, c->qkv_bias);
        divide_rows(ld, parts, 1);
        job.out = &layer->stacked.w;
        job.n_parts = 1;
        SKV_TRY(ld->visit(ld, &job, err));
    }
    set_part(&parts[0], i, "self_attn.o_proj", c->hidden, c->o_bias);
    job.out = &layer->o;
    job.n_parts = 1;
    job.K = n_q;
    divide_columns(ld, &job);
    return ld->visit(ld, &job, err);
}

/* gate|up and down of a layer's block, or of one of its experts: `prefix` is "mlp". */
static skv_status visit_block(loader *ld, size_t i, const char *prefix, size_t F, skv_expert *out,
                              skv_error *err)
{
    const skv_config *c = ld->config;
    const bool bias = c->layers[i].n_experts ? c->expert_bias : c->mlp_bias;
    load_part parts[2];
    char name[64];
    (void)snprintf(name, sizeof name, "%s.gate_proj", prefix);
    set_part(&parts[0], i, name, F, bias);
    (void)snprintf(name, sizeof name, "%s.up_proj", prefix);
    set_part(&parts[1], i, name, F, bias);
    divide_rows(ld, parts, 2);
    load_job job = {&out->gate_up, NULL, parts, 2, c->hidden, true, CARE_NONE, 0, 0};
    SKV_TRY(ld->visit(ld, &job, err));
    (void)snprintf(name, sizeof name, "%s.down_proj", prefix);
    set_part(&parts[0], i, name, c->hidden, bias);
    job = (load_job){&out->down, NULL, parts, 1, F, false, CARE_NONE, 0, 0};
    divide_columns(ld, &job);
    return ld->visit(ld, &job, err);
}

/* A layer's own part of what its tokens' embeddings add. */
static skv_status visit_embed(loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    if (c->per_layer == 0) return SKV_OK;
    load_part part;
    set_part(&part, i, "per_layer_input_gate", c->per_layer, false);
    load_job job = {.out = &layer->embed_gate,
                    .parts = &part,
                    .n_parts = 1,
                    .K = c->hidden,
                    .care = CARE_8_BITS};
    SKV_TRY(ld->visit(ld, &job, err));
    set_part(&part, i, "per_layer_projection", c->hidden, false);
    job.out = &layer->embed_out;
    job.K = c->per_layer;
    return ld->visit(ld, &job, err);
}

/* The projection that all layers share: a part for each of them, of one tensor's rows. */
static skv_status visit_embed_parts(loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    size_t n = 0;
    while (n < c->n_layers && is_run(ld, n)) n++;
    if (c->per_layer == 0 || n == 0) return SKV_OK;
    load_part *parts = skv_alloc_zero(n, sizeof *parts);
    SKV_REQUIRE(parts, err, SKV_MEMORY, "weights: no memory for %zu layers", n);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(parts[i].name, sizeof parts[i].name, "model.per_layer_model_projection");
        parts[i].n_rows = c->per_layer;
        parts[i].row0 = i * c->per_layer;
        parts[i].n_all = c->n_layers * c->per_layer;
    }
    load_job job = {&ld->model->embed_part, NULL, parts, n, c->hidden, false, CARE_8_BITS, 0, 0};
    skv_status status = ld->visit(ld, &job, err);
    skv_free(parts);
    return status;
}

static skv_status visit_mlp(loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    const size_t n_experts = c->layers[i].n_experts;
    const size_t F = skv_config_dense_ffn(c, i);
    if (F > 0) {
        skv_expert block = {layer->gate_up, layer->down};
        skv_status status = visit_block(ld, i, "mlp", F, &block, err);
        layer->gate_up = block.gate_up;
        layer->down = block.down;
        SKV_TRY(status);
    }
    if (n_experts == 0) return SKV_OK;
    load_part part;
    set_part(&part, i, "mlp.gate", n_experts, c->router_bias);
    load_job job = {&layer->router, NULL, &part, 1, c->hidden, false, CARE_F32, 0, 0};
    SKV_TRY(ld->visit(ld, &job, err));
    if (ld->loads) layer->experts = skv_alloc_zero(n_experts, sizeof *layer->experts);
    SKV_REQUIRE(!ld->loads || layer->experts, err, SKV_MEMORY, "weights: no memory for %zu experts",
                n_experts);
    for (size_t e = 0; e < n_experts; e++) {
        char prefix[40];
        skv_expert counted;
        (void)snprintf(prefix, sizeof prefix, "mlp.experts.%zu", e);
        skv_expert *expert = layer->experts ? &layer->experts[e] : &counted;
        SKV_TRY(visit_block(ld, i, prefix, c->layers[i].ffn, expert, err));
    }
    return SKV_OK;
}

/* SwiftKV equation 2: the keys and values of all layers >= l are one product with x_l. */
static skv_status visit_stack(loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    if (!c->swiftkv || !ld->options->student || c->kv_layers >= c->n_layers) return SKV_OK;
    size_t n_groups = (c->n_layers - c->kv_layers) / c->kv_group;
    load_part *parts = skv_alloc(2 * n_groups, sizeof *parts);
    SKV_REQUIRE(parts, err, SKV_MEMORY, "weights: no memory for %zu groups", n_groups);
    for (size_t j = 0; j < n_groups; j++) {
        size_t i = c->kv_layers + j * c->kv_group;
        size_t n_kv = c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
        set_part(&parts[2 * j], i, "self_attn.k_proj_swiftkv", n_kv, c->qkv_bias);
        set_part(&parts[2 * j + 1], i, "self_attn.v_proj_swiftkv", n_kv, c->qkv_bias);
    }
    divide_rows(ld, parts, 2 * n_groups);
    skv_kv_stack *stack = &ld->model->stack;
    load_job job = {&stack->w, &stack->type, parts, 2 * n_groups, c->hidden, false, CARE_NONE, 0,
                    0};
    skv_status status = ld->visit(ld, &job, err);
    skv_free(parts);
    return status;
}

/* The head of early exits, which may have the rows of some ids alone. */
static skv_status visit_exit(loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    load_part part = {.name = "lm_head_swiftkv",
                      .n_rows = c->exit_words > 0 ? c->exit_words : c->vocab};
    load_job job = {.out = &ld->model->exit_head, .parts = &part, .n_parts = 1, .K = c->hidden};
    return ld->visit(ld, &job, err);
}

static skv_status visit_products(loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    for (size_t i = 0; i < c->n_layers; i++) {
        skv_layer *layer = &ld->model->layers[i];
        const bool makes_kv = is_run(ld, i) || i == ld->options->last_boundary;
        if (makes_kv) SKV_TRY(visit_attention(ld, i, layer, err));
        if (!is_run(ld, i)) continue;
        SKV_TRY(visit_mlp(ld, i, layer, err));
        SKV_TRY(visit_embed(ld, i, layer, err));
    }
    SKV_TRY(visit_stack(ld, err));
    SKV_TRY(visit_embed_parts(ld, err));
    const skv_ranks *ranks = ld->options->ranks;
    const skv_ranks_ids ids =
        skv_ranks_vocab(c->vocab, skv_ranks_rank(ranks), skv_ranks_size(ranks));
    load_part part = {.n_rows = ids.n, .row0 = ids.first, .n_all = c->vocab};
    ld->model->ids = ids;
    if (ld->options->prompt_only) return SKV_OK;
    (void)snprintf(part.name, sizeof part.name, "%s", c->tied ? "model.embed_tokens" : "lm_head");
    load_job job = {&ld->model->head, NULL, &part, 1, c->hidden, false, CARE_NONE, 0, 0};
    SKV_TRY(ld->visit(ld, &job, err));
    return ld->options->exit_head ? visit_exit(ld, err) : SKV_OK;
}

/* ---- the types of products ---- */

/* The form of a part's codes, NULL where the file holds floats. */
static const skv_quant_form *part_form(const loader *ld, const load_job *job, const load_part *part)
{
    char name[NAME_MAX_BYTES + 16];
    if (!ld->source || !ld->options->keep_codes) return NULL;
    (void)snprintf(name, sizeof name, "%s.weight", part->name);
    const skv_tensor *t = skv_source_find(ld->source, name);
    return t ? skv_tensor_form_of(t, job->n_columns ? job->column0 : 0, job->K) : NULL;
}

/* Sets the forms of a product's parts. A product has one type: codes are kept where all its parts
 * have them, or the others are to become codes too. */
static skv_weight_type choose_type(const loader *ld, const load_job *job, skv_row_source *sources)
{
    skv_weight_type codes = ld->options->f32_rows ? SKV_WEIGHT_QUANT_F32 : SKV_WEIGHT_QUANT;
    skv_weight_type type = ld->options->type == SKV_WEIGHT_QUANT ? codes : ld->options->type;
    size_t n_forms = 0;
    for (size_t i = 0; i < job->n_parts; i++) {
        sources[i].form = part_form(ld, job, &job->parts[i]);
        if (sources[i].form) n_forms++;
    }
    if (n_forms == job->n_parts)
        type = codes;
    else if (job->care == CARE_8_BITS && skv_weight_is_quant(type))
        type = SKV_WEIGHT_I8;
    type = job->care == CARE_F32 ? SKV_WEIGHT_F32 : skv_weight_type_over(type, job->K);
    for (size_t i = 0; !skv_weight_is_quant(type) && i < job->n_parts; i++) sources[i].form = NULL;
    return type;
}

/* ---- counting ---- */

static skv_status count_bytes(loader *ld, const load_job *job, skv_error *err)
{
    skv_row_source *sources = skv_alloc_zero(job->n_parts, sizeof *sources);
    SKV_REQUIRE(sources, err, SKV_MEMORY, "weights: no memory");
    for (size_t i = 0; i < job->n_parts; i++) sources[i].n_rows = job->parts[i].n_rows;
    skv_weight_type type = choose_type(ld, job, sources);
    skv_linear_spec spec = {type, sources, job->n_parts, job->K, job->paired};
    ld->bytes_all = skv_bytes_add(ld->bytes_all, ld->be->linear_bytes(ld->be, &spec));
    skv_free(sources);
    return SKV_OK;
}

skv_status skv_model_bytes(const skv_config *config, const skv_source *source, skv_backend *be,
                           const skv_load_options *options, skv_bytes *n_bytes, skv_error *err)
{
    skv_model shape = {.layers = skv_alloc_zero(config->n_layers, sizeof *shape.layers)};
    SKV_REQUIRE(shape.layers, err, SKV_MEMORY, "weights: no memory for %zu layers",
                config->n_layers);
    loader ld = {.model = &shape, .config = config, .source = source, .be = be, .options = options};
    ld.visit = count_bytes;
    skv_status status = visit_products(&ld, err);
    if (status == SKV_OK) *n_bytes = ld.bytes_all;
    skv_free(shape.layers);
    return status;
}

/* ---- loading ---- */

static uint64_t hash_name(const char *name, uint64_t seed)
{
    uint64_t hash = skv_mix64(seed);
    for (; *name; name++) hash = skv_mix64(hash ^ (unsigned char)*name);
    return hash;
}

/* The matrix behind "name.weight" or "name.bias" with the shape it must have. */
static skv_status find_matrix(const loader *ld, const char *name, size_t n_rows, size_t n_columns,
                              skv_matrix *out, skv_error *err)
{
    *out = (skv_matrix){.n_rows = n_rows, .n_columns = n_columns};
    if (!ld->source) {
        bool is_norm = strstr(name, "norm") || strstr(name, "scale");
        out->seed = hash_name(name, ld->options->seed);
        out->center = is_norm && !ld->config->norm_offset_one ? 1 : 0;
        out->scale = is_norm ? 0.1f : 0.035f;
        return SKV_OK;
    }
    const skv_tensor *t = skv_source_find(ld->source, name);
    const char *path = skv_source_path(ld->source);
    SKV_REQUIRE(t, err, SKV_FORMAT, "%s: tensor %s is missing", path, name);
    size_t rows = skv_tensor_rows(t), columns = skv_tensor_columns(t);
    bool vector = n_rows == 1 && t->n_dims == 1;
    SKV_REQUIRE(columns == n_columns && (vector || (t->n_dims == 2 && rows == n_rows)), err,
                SKV_FORMAT, "%s: %s: shape [%zu, %zu], expected [%zu, %zu]", path, name, rows,
                columns, n_rows, n_columns);
    out->tensor = t;
    return SKV_OK;
}

typedef struct part_data {
    skv_matrix matrix;
    float *bias; /* owned, [n_rows] or NULL */
} part_data;

/* A vector `name` of n_all numbers, whole: those from `first` on are moved to its beginning. */
static skv_status read_vector(const loader *ld, const char *name, size_t first, size_t n_all,
                              float **out, skv_error *err)
{
    skv_matrix vector;
    SKV_TRY(find_matrix(ld, name, 1, n_all, &vector, err));
    float *host = skv_alloc(n_all, sizeof *host);
    SKV_REQUIRE(host, err, SKV_MEMORY, "weights: no memory for %s", name);
    skv_status status = skv_matrix_fetch_row(&vector, 0, host, err);
    if (status != SKV_OK) {
        skv_free(host);
        return status;
    }
    memmove(host, host + first, (n_all - first) * sizeof *host);
    *out = host;
    return SKV_OK;
}

/* Of some columns: the file's blocks of codes stay whole. */
static skv_status take_columns(const loader *ld, const load_job *job, skv_matrix *matrix,
                               skv_error *err)
{
    const skv_tensor *t = matrix->tensor;
    if (job->n_columns == 0) return SKV_OK;
    matrix->column0 = job->column0;
    matrix->n_columns = job->K;
    SKV_REQUIRE(!t || skv_tensor_divides(t, job->K), err, SKV_UNSUPPORTED,
                "%s: %s: ranks cannot divide its codes into parts of %zu columns",
                skv_source_path(ld->source), t->name, job->K);
    return SKV_OK;
}

static skv_status open_part(const loader *ld, const load_job *job, size_t i, part_data *data,
                            skv_error *err)
{
    const load_part *part = &job->parts[i];
    const size_t n_all = part->n_all ? part->n_all : part->n_rows;
    char name[NAME_MAX_BYTES + 16];
    (void)snprintf(name, sizeof name, "%s.weight", part->name);
    SKV_TRY(
        find_matrix(ld, name, n_all, job->n_columns ? job->n_columns : job->K, &data->matrix, err));
    data->matrix.row0 = part->row0;
    SKV_TRY(take_columns(ld, job, &data->matrix, err));
    if (!part->bias) return SKV_OK;
    (void)snprintf(name, sizeof name, "%s.bias", part->name);
    return read_vector(ld, name, part->row0, n_all, &data->bias, err);
}

static void report_progress(loader *ld, size_t n_bytes)
{
    const size_t all = skv_bytes_sum(ld->bytes_all);
    ld->bytes_done += n_bytes;
    if (!ld->options->progress || all == 0) return;
    ld->options->progress(ld->options->user, (double)ld->bytes_done / (double)all);
}

/* Before packing, so that a file that was cut is not touched; after it, so that what was packed is
 * known to have been there. */
static skv_status check_parts(const part_data *data, size_t n, skv_error *err)
{
    for (size_t i = 0; i < n; i++) SKV_TRY(skv_matrix_check(&data[i].matrix, err));
    return SKV_OK;
}

static skv_status load_product(loader *ld, const load_job *job, skv_error *err)
{
    SKV_REQUIRE(!ld->options->stopped || !ld->options->stopped(ld->options->user), err,
                SKV_CANCELLED, "weights: loading was stopped");
    part_data *data = skv_alloc_zero(job->n_parts, sizeof *data);
    skv_row_source *sources = skv_alloc_zero(job->n_parts, sizeof *sources);
    skv_status status = SKV_OK;
    if (!data || !sources) status = skv_fail(err, SKV_MEMORY, "weights: no memory");
    for (size_t i = 0; i < job->n_parts && status == SKV_OK; i++) {
        status = open_part(ld, job, i, &data[i], err);
        sources[i] = (skv_row_source){.read = skv_matrix_read,
                                      .ctx = &data[i].matrix,
                                      .n_rows = job->parts[i].n_rows,
                                      .bias = data[i].bias,
                                      .read_codes = skv_matrix_read_codes};
        const skv_tensor *t = data[i].matrix.tensor;
        if (t && skv_tensor_is_quantised(t)) sources[i].quantised = t->name;
    }
    if (status == SKV_OK) status = check_parts(data, job->n_parts, err);
    if (status == SKV_OK) {
        skv_weight_type type = choose_type(ld, job, sources);
        skv_linear_spec spec = {type, sources, job->n_parts, job->K, job->paired};
        if (job->type_out) *job->type_out = type;
        status = ld->be->linear_create(ld->be, &spec, job->out, err);
        if (status == SKV_FORMAT)
            status = skv_fail_within(err, status, skv_source_path(ld->source));
        if (status == SKV_OK) status = check_parts(data, job->n_parts, err);
        const size_t n_bytes = skv_bytes_sum(ld->be->linear_bytes(ld->be, &spec));
        ld->model->weight_bytes += n_bytes;
        report_progress(ld, n_bytes);
    }
    for (size_t i = 0; data && i < job->n_parts; i++) {
        if (status == SKV_OK) skv_matrix_forget(&data[i].matrix);
        skv_free(data[i].bias);
    }
    skv_free(data);
    skv_free(sources);
    return status;
}

/* ---- norms ---- */

typedef struct vector_cursor {
    skv_vec next;
    size_t n_left; /* floats */
} vector_cursor;

static skv_mapped map_vector(const loader *ld, skv_vec vec, size_t n, skv_map_access access)
{
    const skv_rows row = {ld->model->vectors, vec.at, n};
    return ld->be->map(ld->be, row, 1, n, access);
}

/* Numbers [first, first + n) of a vector of `part`. */
static skv_status load_part_of(const loader *ld, vector_cursor *cursor, const char *name,
                               const skv_ranks_ids *ids, skv_vec *out, skv_error *err)
{
    float *host = NULL;
    SKV_TRY(read_vector(ld, name, ids->first, ids->part, &host, err));
    assert(ids->n <= cursor->n_left);
    const skv_mapped to = map_vector(ld, cursor->next, ids->n, SKV_MAP_WRITE);
    memcpy(to.at, host, ids->n * sizeof *host);
    ld->be->unmap(ld->be, to);
    skv_free(host);
    *out = cursor->next;
    cursor->next.at += ids->n;
    cursor->n_left -= ids->n;
    return SKV_OK;
}

static skv_status load_vector(const loader *ld, vector_cursor *cursor, const char *name, size_t n,
                              skv_vec *out, skv_error *err)
{
    return load_part_of(ld, cursor, name, &(skv_ranks_ids){0, n, n}, out, err);
}

/* A vector that was loaded. */
static void divide_vector(const loader *ld, skv_vec vector, size_t n, double divisor)
{
    const skv_mapped host = map_vector(ld, vector, n, SKV_MAP_BOTH);
    for (size_t i = 0; i < n; i++) host.at[i] = (float)((double)host.at[i] / divisor);
    ld->be->unmap(ld->be, host);
}

static skv_status load_layer_vector(const loader *ld, vector_cursor *cursor, size_t i,
                                    const char *what, size_t n, skv_vec *out, skv_error *err)
{
    char name[NAME_MAX_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i, what);
    return load_vector(ld, cursor, name, n, out, err);
}

static skv_status load_head_norms(const loader *ld, vector_cursor *cursor, size_t i,
                                  skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    if (!c->qk_norm) return SKV_OK;
    const size_t n_q = skv_config_head_dim(c, i) * (c->qk_norm_joined ? c->layers[i].n_heads : 1);
    const size_t n_k =
        skv_config_head_dim(c, i) * (c->qk_norm_joined ? c->layers[i].n_kv_heads : 1);
    if (!is_swiftkv_layer(ld, i) || ld->options->teacher) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "self_attn.q_norm", n_q, &layer->own.q_norm, err));
        if (skv_config_donor(c, i) == i) {
            SKV_TRY(
                load_layer_vector(ld, cursor, i, "self_attn.k_norm", n_k, &layer->own.k_norm, err));
        }
    }
    if (!is_swiftkv_layer(ld, i) || !ld->options->student) return SKV_OK;
    SKV_TRY(load_layer_vector(ld, cursor, i, "self_attn.q_norm_swiftkv", n_q,
                              &layer->stacked.q_norm, err));
    if ((i - c->kv_layers) % c->kv_group != 0) return SKV_OK;
    return load_layer_vector(ld, cursor, i, "self_attn.k_norm_swiftkv", n_k, &layer->stacked.k_norm,
                             err);
}

/* The number that a layer ends with; GGUF may leave it out. */
static skv_status load_scalar(const loader *ld, size_t i, float *out, skv_error *err)
{
    char name[NAME_MAX_BYTES];
    skv_matrix matrix;
    (void)snprintf(name, sizeof name, "model.layers.%zu.layer_scalar.weight", i);
    if (!ld->source || !skv_source_find(ld->source, name)) return SKV_OK;
    SKV_TRY(find_matrix(ld, name, 1, 1, &matrix, err));
    return skv_matrix_fetch_row(&matrix, 0, out, err);
}

/* What stands around the experts: nothing but in Gemma 4. Its router's input is normed without a
 * weight, then multiplied by a vector and by 1 / sqrt(D): one norm. */
static skv_status load_expert_norms(const loader *ld, vector_cursor *cursor, size_t i,
                                    skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    const size_t D = c->hidden, E = c->layers[i].n_experts;
    layer->router_norm = layer->expert_norm = layer->ffn_norm;
    if (c->layers[i].ffn_beside == 0) return SKV_OK;
    SKV_TRY(load_layer_vector(ld, cursor, i, "pre_feedforward_layernorm_2", D, &layer->expert_norm,
                              err));
    SKV_TRY(load_layer_vector(ld, cursor, i, "post_feedforward_layernorm_1", D,
                              &layer->post_dense_norm, err));
    SKV_TRY(load_layer_vector(ld, cursor, i, "post_feedforward_layernorm_2", D,
                              &layer->post_expert_norm, err));
    SKV_TRY(load_layer_vector(ld, cursor, i, "router.norm", D, &layer->router_norm, err));
    divide_vector(ld, layer->router_norm, D, sqrt((double)D));
    char name[NAME_MAX_BYTES];
    skv_matrix matrix;
    (void)snprintf(name, sizeof name, "model.layers.%zu.router.expert_scale.weight", i);
    SKV_TRY(find_matrix(ld, name, 1, E, &matrix, err));
    layer->expert_scale = skv_alloc(E, sizeof *layer->expert_scale);
    SKV_REQUIRE(layer->expert_scale, err, SKV_MEMORY, "weights: no memory for %s", name);
    SKV_TRY(skv_matrix_fetch_row(&matrix, 0, layer->expert_scale, err));
    for (size_t e = 0; e < E; e++) {
        SKV_REQUIRE(isfinite(layer->expert_scale[e]), err, SKV_FORMAT,
                    "%s: expert %zu: %g, expected finite weights", name, e,
                    (double)layer->expert_scale[e]);
    }
    return SKV_OK;
}

static skv_status load_layer_norms(const loader *ld, vector_cursor *cursor, size_t i,
                                   skv_error *err)
{
    const skv_config *c = ld->config;
    skv_layer *layer = &ld->model->layers[i];
    size_t D = c->hidden;
    if (!c->no_pre_norms) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "input_layernorm", D, &layer->attn_norm, err));
    }
    skv_vec *second = c->post_norms ? &layer->post_attn_norm : &layer->ffn_norm;
    SKV_TRY(load_layer_vector(ld, cursor, i, "post_attention_layernorm", D, second, err));
    if (c->post_norms) {
        if (!c->no_pre_norms) {
            SKV_TRY(load_layer_vector(ld, cursor, i, "pre_feedforward_layernorm", D,
                                      &layer->ffn_norm, err));
        }
        SKV_TRY(load_layer_vector(ld, cursor, i, "post_feedforward_layernorm", D,
                                  &layer->post_ffn_norm, err));
    }
    SKV_TRY(load_expert_norms(ld, cursor, i, layer, err));
    layer->scale = 1;
    if (c->layer_scalar) SKV_TRY(load_scalar(ld, i, &layer->scale, err));
    if (c->per_layer > 0) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "post_per_layer_input_norm", D,
                                  &layer->post_embed_norm, err));
    }
    if (c->sinks) {
        char name[NAME_MAX_BYTES];
        (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.sinks", i);
        const size_t n = c->layers[i].n_heads;
        const skv_ranks *ranks = ld->options->ranks;
        const skv_ranks_ids heads = {skv_ranks_rank(ranks) * n, n, skv_ranks_size(ranks) * n};
        SKV_TRY(load_part_of(ld, cursor, name, &heads, &layer->sinks, err));
    }
    return load_head_norms(ld, cursor, i, layer, err);
}

/* The final norm, divided by what logits are divided by. */
static skv_status make_head_norm(loader *ld, vector_cursor *cursor, skv_error *err)
{
    skv_model *model = ld->model;
    const size_t n = ld->config->hidden;
    skv_vec norm;
    SKV_TRY(load_vector(ld, cursor, "model.norm.weight", n, &norm, err));
    divide_vector(ld, norm, n, ld->config->logit_divisor);
    model->head_norm = norm;
    return SKV_OK;
}

static skv_status load_vectors(loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    skv_model *model = ld->model;
    size_t n = 3 * c->hidden + c->per_layer;
    for (size_t i = 0; i < c->n_layers; i++) {
        const size_t n_heads = c->qk_norm_joined ? c->layers[i].n_heads : 1;
        n += (c->layers[i].ffn_beside > 0 ? 9 : 5) * c->hidden + 4 * n_heads * c->head_dim;
        if (c->sinks) n += c->layers[i].n_heads;
    }
    const skv_area_spec spec = {SKV_AREA_F32, 1, n, false};
    SKV_TRY(ld->be->areas_create(ld->be, &spec, 1, &model->vectors, err));
    vector_cursor cursor = {{model->vectors, 0}, n};
    for (size_t i = 0; i < c->n_layers; i++) SKV_TRY(load_layer_norms(ld, &cursor, i, err));
    if (c->swiftkv && c->kv_layers < c->n_layers && ld->options->student) {
        SKV_TRY(load_vector(ld, &cursor, "model.norm_swiftkv.weight", c->hidden, &model->stack.norm,
                            err));
    }
    if (c->per_layer > 0) {
        SKV_TRY(load_vector(ld, &cursor, "model.per_layer_projection_norm.weight", c->per_layer,
                            &model->embed_norm, err));
    }
    SKV_TRY(load_vector(ld, &cursor, "model.norm.weight", c->hidden, &model->final_norm, err));
    model->head_norm = model->final_norm;
    return c->logit_divisor != 0.0 ? make_head_norm(ld, &cursor, err) : SKV_OK;
}

/* ids [n] = those of the exit head's rows, as they stand in the file; of random weights any. */
static skv_status read_exit_ids(const loader *ld, int32_t *ids, size_t n, skv_error *err)
{
    static const char name[] = "lm_head_swiftkv.ids";
    const size_t V = ld->config->vocab;
    float *values = NULL;
    for (size_t i = 0; !ld->source && i < n; i++) ids[i] = (int32_t)(i * V / n);
    if (!ld->source) return SKV_OK;
    SKV_TRY(read_vector(ld, name, 0, n, &values, err));
    const skv_tensor *t = skv_source_find(ld->source, name);
    const char *path = t->file ? t->file->path : skv_source_path(ld->source);
    skv_status status = SKV_OK;
    double least = 0;
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        const double id = (double)values[i];
        if (id >= least && id < (double)V) {
            ids[i] = (int32_t)id;
            least = id + 1;
        } else {
            status = skv_fail(err, SKV_FORMAT, "%s: %s: element %zu: %.0f, expected %.0f to %zu",
                              path, name, i, id, least, V - 1);
        }
    }
    skv_free(values);
    return status;
}

static skv_status load_exit_ids(loader *ld, skv_error *err)
{
    skv_model *model = ld->model;
    const size_t W = ld->config->exit_words;
    if (!ld->options->exit_head || ld->options->prompt_only) return SKV_OK;
    model->n_exit_ids = W > 0 ? W : ld->config->vocab;
    if (W == 0) return SKV_OK;
    model->exit_ids = skv_alloc(W, sizeof *model->exit_ids);
    SKV_REQUIRE(model->exit_ids, err, SKV_MEMORY, "weights: no memory for %zu ids", W);
    return read_exit_ids(ld, model->exit_ids, W, err);
}

static skv_status load_all(loader *ld, skv_error *err)
{
    skv_model *model = ld->model;
    const skv_config *c = ld->config;
    model->layers = skv_alloc_zero(c->n_layers, sizeof *model->layers);
    SKV_REQUIRE(model->layers, err, SKV_MEMORY, "weights: no memory for %zu layers", c->n_layers);
    for (size_t i = 0; i < 2; i++) {
        SKV_TRY(skv_rope_table_init(&model->ropes[i], &c->ropes[i], err));
    }
    model->n_ropes = 1;
    for (size_t i = 0; i < c->n_layers; i++) {
        model->n_ropes =
            skv_max_size(model->n_ropes, c->layers[i].i_rope + c->layers[i].i_rope_q + 1);
    }
    SKV_TRY(
        find_matrix(ld, "model.embed_tokens.weight", c->vocab, c->hidden, &model->embedding, err));
    if (c->per_layer > 0) {
        SKV_TRY(find_matrix(ld, "model.embed_tokens_per_layer.weight", c->vocab,
                            c->n_layers * c->per_layer, &model->token_embeds, err));
    }
    SKV_TRY(load_exit_ids(ld, err));
    SKV_TRY(load_vectors(ld, err));
    SKV_TRY(skv_model_bytes(c, ld->source, ld->be, ld->options, &ld->bytes_all, err));
    ld->visit = load_product;
    ld->loads = true;
    return visit_products(ld, err);
}

skv_status skv_model_load(skv_model *model, const skv_config *config, const skv_source *source,
                          skv_backend *be, skv_pool *pool, const skv_load_options *options,
                          skv_error *err)
{
    *model = (skv_model){.config = config, .be = be, .pool = pool, .ranks = options->ranks};
    loader ld = {.model = model, .config = config, .source = source, .be = be, .options = options};
    skv_status status = load_all(&ld, err);
    if (status != SKV_OK) skv_model_release(model);
    return status;
}

static void release_layer(skv_backend *be, skv_layer *layer, size_t n_experts)
{
    be->linear_free(be, layer->own.w);
    be->linear_free(be, layer->stacked.w);
    be->linear_free(be, layer->o);
    be->linear_free(be, layer->gate_up);
    be->linear_free(be, layer->down);
    be->linear_free(be, layer->embed_gate);
    be->linear_free(be, layer->embed_out);
    be->linear_free(be, layer->router);
    for (size_t e = 0; layer->experts && e < n_experts; e++) {
        be->linear_free(be, layer->experts[e].gate_up);
        be->linear_free(be, layer->experts[e].down);
    }
    skv_free(layer->experts);
    skv_free(layer->expert_scale);
}

void skv_model_release(skv_model *model)
{
    skv_backend *be = model->be;
    if (!be) return;
    for (size_t i = 0; model->layers && i < model->config->n_layers; i++) {
        release_layer(be, &model->layers[i], model->config->layers[i].n_experts);
    }
    be->linear_free(be, model->stack.w);
    be->linear_free(be, model->head);
    be->linear_free(be, model->exit_head);
    be->linear_free(be, model->embed_part);
    be->areas_free(be, &model->vectors, 1);
    skv_rope_table_release(&model->ropes[0]);
    skv_rope_table_release(&model->ropes[1]);
    skv_free(model->exit_ids);
    skv_free(model->layers);
    *model = (skv_model){0};
}
