/*
 * Bringing a model's weights into a back end: which matrices there are (one list for counting
 * their bytes and for loading them), and the small vectors.
 */
#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"
#include "model/load_impl.h"

/* ---- the list of products ---- */

static void set_part(skv_load_part *part, size_t i_layer, const char *what, size_t n_rows,
                     bool bias)
{
    (void)snprintf(part->name, sizeof part->name, "model.layers.%zu.%s", i_layer, what);
    part->n_rows = n_rows;
    part->bias = bias;
    part->row0 = part->n_all = 0;
    part->times = 0;
}

/* A rank's rows of a part, of which each has as many. */
static void divide_rows(const skv_loader *ld, skv_load_part *parts, size_t n)
{
    const skv_ranks *ranks = ld->options->ranks;
    for (size_t i = 0; ranks && i < n; i++) {
        parts[i].row0 = skv_ranks_rank(ranks) * parts[i].n_rows;
        parts[i].n_all = skv_ranks_size(ranks) * parts[i].n_rows;
    }
}

/* A rank's columns of a product whose results are added up over ranks, the bias once. */
static void divide_columns(const skv_loader *ld, skv_load_job *job)
{
    const skv_ranks *ranks = ld->options->ranks;
    job->column0 = ranks ? skv_ranks_rank(ranks) * job->K : 0;
    job->n_columns = ranks ? skv_ranks_size(ranks) * job->K : 0;
    if (!skv_ranks_lead(ranks)) job->parts[0].bias = false;
}

/* Whether unwanted rows run it. */
static bool is_run(const skv_loader *ld, size_t i)
{
    return !ld->options->prompt_only || i < ld->options->last_boundary;
}

static skv_status visit_attention(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    size_t n_q = skv_config_q_columns(c, i);
    size_t n_kv = c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
    skv_load_part parts[3];
    skv_load_job job = {.parts = parts, .K = c->hidden};
    if (!skv_load_is_swiftkv(ld, i) || ld->options->teacher) {
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
    if (c->attention_gate) {
        set_part(&parts[0], i, "self_attn.gate_proj", n_q, c->qkv_bias);
        divide_rows(ld, parts, 1);
        job.out = &layer->gate;
        job.n_parts = 1;
        SKV_TRY(ld->visit(ld, &job, err));
    }
    if (skv_load_is_swiftkv(ld, i) && ld->options->student) {
        set_part(&parts[0], i, "self_attn.q_proj_swiftkv", n_q, c->qkv_bias);
        divide_rows(ld, parts, 1);
        job.out = &layer->stacked.w;
        job.n_parts = 1;
        SKV_TRY(ld->visit(ld, &job, err));
    }
    set_part(&parts[0], i, "self_attn.o_proj", c->hidden, c->o_bias);
    parts[0].times = c->part_scales[SKV_SCALE_ATTENTION_OUT];
    job.out = &layer->o;
    job.n_parts = 1;
    job.K = n_q;
    divide_columns(ld, &job);
    return ld->visit(ld, &job, err);
}

/* "linear_attn.{what}", or as SwiftKV has it. */
static void set_delta_part(skv_load_part *part, size_t i, const char *what, bool fed, size_t n_rows)
{
    char name[64];
    (void)snprintf(name, sizeof name, "linear_attn.%s%s", what, fed ? "_swiftkv" : "");
    set_part(part, i, name, n_rows, false);
}

/* A layer of the gated delta rule or of Mamba-2: all that reads its input is one product, but for
 * the numbers of a head that keep their precision. SwiftKV's has projections of its own, and z of
 * the model. */
static skv_status visit_delta_in(skv_loader *ld, size_t i, bool fed, skv_delta *delta,
                                 skv_error *err)
{
    const skv_mixer_shape *m = &ld->config->mixer;
    const size_t n_keys = skv_mixer_key_columns(m), n_values = skv_mixer_value_columns(m);
    const size_t D = ld->config->hidden;
    static const skv_part_scale scales[] = {[SKV_DELTA_Q] = SKV_SCALE_Q,
                                            [SKV_DELTA_K] = SKV_SCALE_K,
                                            [SKV_DELTA_V] = SKV_SCALE_V,
                                            [SKV_DELTA_Z] = SKV_SCALE_Z};
    const double *times = ld->config->part_scales;
    skv_load_part parts[SKV_DELTA_END];
    set_delta_part(&parts[SKV_DELTA_Q], i, "in_proj_q", fed, n_keys);
    set_delta_part(&parts[SKV_DELTA_K], i, "in_proj_k", fed, n_keys);
    set_delta_part(&parts[SKV_DELTA_V], i, "in_proj_v", fed, n_values);
    set_delta_part(&parts[SKV_DELTA_Z], i, "in_proj_z", false, n_values);
    for (size_t j = 0; j < SKV_DELTA_END; j++) parts[j].times = times[scales[j]];
    skv_load_job job = {.out = &delta->in, .parts = parts, .n_parts = SKV_DELTA_END, .K = D};
    SKV_TRY(ld->visit(ld, &job, err));
    const bool writes = ld->config->layers[i].mixer == SKV_MIXER_DELTA;
    set_delta_part(&parts[0], i, "in_proj_b", fed, m->n_value_heads);
    set_delta_part(&parts[writes], i, "in_proj_a", fed, m->n_value_heads);
    parts[writes].times = times[SKV_SCALE_DT];
    job = (skv_load_job){.out = &delta->gates,
                         .parts = parts,
                         .n_parts = writes ? 2 : 1,
                         .K = D,
                         .care = SKV_CARE_FLOATS};
    return ld->visit(ld, &job, err);
}

static skv_status visit_delta(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    const bool deep = skv_load_is_swiftkv(ld, i);
    if (!deep || ld->options->teacher) {
        SKV_TRY(visit_delta_in(ld, i, false, &layer->delta, err));
    }
    if (deep && ld->options->student) SKV_TRY(visit_delta_in(ld, i, true, &layer->fed, err));
    skv_load_part part;
    set_part(&part, i, "linear_attn.out_proj", c->hidden, false);
    part.times = c->part_scales[SKV_SCALE_STATE_OUT];
    const skv_load_job job = {.out = skv_config_attends(c, i) ? &layer->delta.out : &layer->o,
                              .parts = &part,
                              .n_parts = 1,
                              .K = skv_mixer_value_columns(&c->mixer)};
    return ld->visit(ld, &job, err);
}

/* A layer of a short convolution alone, whose file has B, C and x in this order. */
static skv_status visit_conv(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    static const size_t places[] = {[SKV_CONV_B] = 0, [SKV_CONV_X] = 2, [SKV_CONV_C] = 1};
    const size_t D = ld->config->hidden;
    skv_load_part parts[SKV_CONV_END];
    for (size_t part = 0; part < SKV_CONV_END; part++) {
        set_part(&parts[part], i, "conv.in_proj", D, false);
        parts[part].row0 = places[part] * D;
        parts[part].n_all = 3 * D;
    }
    skv_load_job job = {.out = &layer->conv.in, .parts = parts, .n_parts = SKV_CONV_END, .K = D};
    SKV_TRY(ld->visit(ld, &job, err));
    set_part(&parts[0], i, "conv.out_proj", D, false);
    job.out = &layer->o;
    job.n_parts = 1;
    return ld->visit(ld, &job, err);
}

/* gate|up and down of a layer's block, or of one of its experts: `prefix` is "mlp". They read and
 * write D columns. */
static skv_status visit_block(skv_loader *ld, size_t i, const char *prefix, size_t F, size_t D,
                              skv_expert *out, skv_error *err)
{
    const skv_config *c = ld->config;
    const bool gated = skv_config_block_matrices(c) == 3;
    const bool bias = c->layers[i].n_experts ? c->expert_bias : c->mlp_bias;
    skv_load_part parts[2];
    char name[64];
    (void)snprintf(name, sizeof name, "%s.gate_proj", prefix);
    set_part(&parts[0], i, name, F, bias);
    parts[0].times = c->part_scales[SKV_SCALE_GATE];
    (void)snprintf(name, sizeof name, "%s.up_proj", prefix);
    set_part(&parts[gated], i, name, F, bias);
    divide_rows(ld, parts, 2);
    skv_load_job job = {&out->gate_up, NULL, parts, gated ? 2 : 1, D, gated, SKV_CARE_NONE, 0, 0};
    SKV_TRY(ld->visit(ld, &job, err));
    (void)snprintf(name, sizeof name, "%s.down_proj", prefix);
    set_part(&parts[0], i, name, D, bias);
    parts[0].times = c->part_scales[SKV_SCALE_DOWN];
    job = (skv_load_job){&out->down, NULL, parts, 1, F, false, SKV_CARE_NONE, 0, 0};
    divide_columns(ld, &job);
    return ld->visit(ld, &job, err);
}

/* A layer's own part of its tokens' embeddings. */
static skv_status visit_embed(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    if (c->per_layer == 0) return SKV_OK;
    skv_load_part part;
    set_part(&part, i, "per_layer_input_gate", c->per_layer, false);
    skv_load_job job = {.out = &layer->embed_gate,
                        .parts = &part,
                        .n_parts = 1,
                        .K = c->hidden,
                        .care = SKV_CARE_8_BITS};
    SKV_TRY(ld->visit(ld, &job, err));
    set_part(&part, i, "per_layer_projection", c->hidden, false);
    job.out = &layer->embed_out;
    job.K = c->per_layer;
    return ld->visit(ld, &job, err);
}

/* The projection that all layers share: a part for each of them, of one tensor's rows. */
static skv_status visit_embed_parts(skv_loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    size_t n = 0;
    while (n < c->n_layers && is_run(ld, n)) n++;
    if (c->per_layer == 0 || n == 0) return SKV_OK;
    skv_load_part *parts = skv_alloc_zero(n, sizeof *parts);
    SKV_REQUIRE(parts, err, SKV_MEMORY, "weights: no memory for %zu layers", n);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(parts[i].name, sizeof parts[i].name, "model.per_layer_model_projection");
        parts[i].n_rows = c->per_layer;
        parts[i].row0 = i * c->per_layer;
        parts[i].n_all = c->n_layers * c->per_layer;
    }
    skv_load_job job = {&ld->model->embed_part, NULL, parts, n, c->hidden, false,
                        SKV_CARE_8_BITS,        0,    0};
    skv_status status = ld->visit(ld, &job, err);
    skv_free(parts);
    return status;
}

/* The products before and after experts that work in fewer columns. */
static skv_status visit_latent(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const size_t D = ld->config->hidden, columns = ld->config->moe_latent;
    skv_load_part part;
    set_part(&part, i, "mlp.latent_in", columns, false);
    skv_load_job job = {.out = &layer->latent_in, .parts = &part, .n_parts = 1, .K = D};
    SKV_TRY(ld->visit(ld, &job, err));
    set_part(&part, i, "mlp.latent_out", D, false);
    job = (skv_load_job){.out = &layer->latent_out, .parts = &part, .n_parts = 1, .K = columns};
    return ld->visit(ld, &job, err);
}

static skv_status visit_experts(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    skv_backend *be = ld->be;
    const size_t E = c->layers[i].n_experts;
    if (ld->loads) layer->expert_parts = skv_alloc_zero(2 * E, sizeof(skv_linear *));
    skv_linear **w = layer->expert_parts;
    SKV_REQUIRE(!ld->loads || w, err, SKV_MEMORY, "weights: no memory for %zu experts", E);
    for (size_t e = 0; e < E; e++) {
        char prefix[40];
        skv_expert expert = {0};
        (void)snprintf(prefix, sizeof prefix, "mlp.experts.%zu", e);
        const skv_status status = visit_block(ld, i, prefix, c->layers[i].ffn,
                                              skv_config_expert_columns(c), &expert, err);
        if (w) w[e] = expert.gate_up, w[E + e] = expert.down;
        SKV_TRY(status);
    }
    if (!w) return SKV_OK;
    const skv_linear *const *up = (const skv_linear *const *)w;
    SKV_TRY(be->experts_create(be, up, E, &layer->experts, err));
    return be->experts_create(be, up + E, E, &layer->experts_down, err);
}

static skv_status visit_mlp(skv_loader *ld, size_t i, skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    const size_t n_experts = c->layers[i].n_experts;
    const size_t F = skv_config_dense_ffn(c, i);
    if (F > 0) {
        skv_expert block = {layer->gate_up, layer->down};
        skv_status status = visit_block(ld, i, "mlp", F, c->hidden, &block, err);
        layer->gate_up = block.gate_up;
        layer->down = block.down;
        SKV_TRY(status);
    }
    if (n_experts == 0) return SKV_OK;
    const size_t n_shared = c->layers[i].ffn_shared;
    skv_load_part parts[2];
    set_part(&parts[0], i, "mlp.gate", n_experts, c->router_bias);
    set_part(&parts[1], i, "mlp.shared_expert_gate", 1, false);
    skv_load_job job = {.out = &layer->router,
                        .parts = parts,
                        .n_parts = n_shared > 0 && !c->shared_plain ? 2 : 1,
                        .K = c->hidden,
                        .care = SKV_CARE_F32};
    SKV_TRY(ld->visit(ld, &job, err));
    if (n_shared > 0) {
        SKV_TRY(visit_block(ld, i, "mlp.shared_expert", n_shared, c->hidden, &layer->shared, err));
    }
    if (c->moe_latent > 0) SKV_TRY(visit_latent(ld, i, layer, err));
    return visit_experts(ld, i, layer, err);
}

/* SwiftKV equation 2: the keys and values of all layers >= l are one product with x_l. */
static skv_status visit_stack(skv_loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    if (!c->swiftkv || !ld->options->student || c->kv_layers >= c->n_layers) return SKV_OK;
    const size_t n_deep = c->n_layers - c->kv_layers;
    size_t n_groups = 0;
    skv_load_part *parts = skv_alloc(2 * n_deep, sizeof *parts);
    SKV_REQUIRE(parts, err, SKV_MEMORY, "weights: no memory for %zu layers", n_deep);
    for (size_t i = c->kv_layers; i < c->n_layers; i += c->kv_group) {
        if (!skv_config_attends(c, i)) continue;
        const size_t n_kv = c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
        skv_load_part *pair = &parts[2 * n_groups++];
        set_part(&pair[0], i, "self_attn.k_proj_swiftkv", n_kv, c->qkv_bias);
        set_part(&pair[1], i, "self_attn.v_proj_swiftkv", n_kv, c->qkv_bias);
    }
    divide_rows(ld, parts, 2 * n_groups);
    skv_kv_stack *stack = &ld->model->stack;
    skv_load_job job = {
        &stack->w, &stack->type, parts, 2 * n_groups, c->hidden, false, SKV_CARE_NONE, 0, 0};
    skv_status status = n_groups > 0 ? ld->visit(ld, &job, err) : SKV_OK;
    skv_free(parts);
    return status;
}

/* The head of early exits, which may have the rows of some ids alone. */
static skv_status visit_exit(skv_loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    skv_load_part part = {.name = "lm_head_swiftkv",
                          .n_rows = c->exit_words > 0 ? c->exit_words : c->vocab};
    skv_load_job job = {.out = &ld->model->exit_head, .parts = &part, .n_parts = 1, .K = c->hidden};
    return ld->visit(ld, &job, err);
}

/* A head that predicts further tokens has a product before its layer. */
static skv_status visit_mtp(skv_loader *ld, skv_error *err)
{
    const size_t D = ld->config->hidden;
    skv_load_part part = {.name = "mtp.fc", .n_rows = D};
    skv_load_job job = {.out = &ld->model->mtp_in, .parts = &part, .n_parts = 1, .K = 2 * D};
    return ld->visit(ld, &job, err);
}

/* The ids whose rows of the head and of the embeddings this process has. */
static skv_ranks_ids own_ids(const skv_config *c, const skv_ranks *ranks)
{
    return skv_ranks_vocab(c->vocab, skv_ranks_rank(ranks), skv_ranks_size(ranks));
}

static skv_status visit_products(skv_loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    for (size_t i = 0; i < c->n_layers; i++) {
        skv_layer *layer = &ld->model->layers[i];
        const bool makes_kv = is_run(ld, i) || i == ld->options->last_boundary;
        if (c->layers[i].mixer == SKV_MIXER_CONV) {
            SKV_TRY(visit_conv(ld, i, layer, err));
        } else if (skv_config_keeps_state(c, i)) {
            SKV_TRY(visit_delta(ld, i, layer, err));
        }
        if (skv_config_attends(c, i) && makes_kv) SKV_TRY(visit_attention(ld, i, layer, err));
        if (!is_run(ld, i)) continue;
        SKV_TRY(visit_mlp(ld, i, layer, err));
        SKV_TRY(visit_embed(ld, i, layer, err));
    }
    SKV_TRY(visit_stack(ld, err));
    SKV_TRY(visit_embed_parts(ld, err));
    const skv_ranks_ids ids = own_ids(c, ld->options->ranks);
    skv_load_part part = {.n_rows = ids.n, .row0 = ids.first, .n_all = c->vocab};
    ld->model->ids = ids;
    if (c->mtp) SKV_TRY(visit_mtp(ld, err));
    if (ld->options->prompt_only || ld->options->borrows) return SKV_OK;
    (void)snprintf(part.name, sizeof part.name, "%s", c->tied ? "model.embed_tokens" : "lm_head");
    skv_load_job job = {&ld->model->head, NULL, &part, 1, c->hidden, false, SKV_CARE_NONE, 0, 0};
    SKV_TRY(ld->visit(ld, &job, err));
    return ld->options->exit_head ? visit_exit(ld, err) : SKV_OK;
}

/* ---- the types of products ---- */

/* The tensor of a part whose codes can be kept, or NULL. */
static const skv_tensor *part_tensor(const skv_loader *ld, const skv_load_part *part)
{
    char name[SKV_LOAD_NAME_BYTES + 16];
    if (!ld->source || part->times != 0) return NULL;
    (void)snprintf(name, sizeof name, "%s.weight", part->name);
    return skv_source_find(ld->source, name);
}

/* The form of a part's codes, NULL where the file holds floats. */
static const skv_quant_form *part_form(const skv_loader *ld, const skv_load_job *job,
                                       const skv_load_part *part)
{
    const skv_tensor *t = ld->options->keep_codes ? part_tensor(ld, part) : NULL;
    return t ? skv_tensor_form_of(t, job->n_columns ? job->column0 : 0, job->K) : NULL;
}

/* Where weights are FP8: the columns of a part that share a scale in the file, or 0. */
static size_t part_fp8_group(const skv_loader *ld, const skv_load_job *job,
                             const skv_load_part *part)
{
    const skv_tensor *t = part_tensor(ld, part);
    return t ? skv_tensor_fp8_group(t, job->n_columns ? job->column0 : 0, job->K) : 0;
}

/* Sets the forms of a product's parts. A product has one type: codes are kept where all its parts
 * have them, or the others are to become codes too. */
static skv_weight_type choose_type(const skv_loader *ld, const skv_load_job *job,
                                   skv_row_source *sources)
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
    else if (job->care == SKV_CARE_8_BITS && skv_weight_is_quant(type))
        type = SKV_WEIGHT_I8;
    if (job->care == SKV_CARE_FLOATS && type != SKV_WEIGHT_F32) type = SKV_WEIGHT_BF16;
    type = job->care == SKV_CARE_F32 ? SKV_WEIGHT_F32 : skv_weight_type_over(type, job->K);
    for (size_t i = 0; i < job->n_parts; i++) {
        if (!skv_weight_is_quant(type)) sources[i].form = NULL;
        if (type == SKV_WEIGHT_FP8) {
            sources[i].fp8_group = part_fp8_group(ld, job, &job->parts[i]);
        }
    }
    return type;
}

/* ---- counting ---- */

static skv_status count_bytes(skv_loader *ld, const skv_load_job *job, skv_error *err)
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

/* Bytes of its tables of embeddings in the back end. */
static skv_bytes count_tables(const skv_config *c, const skv_backend *be,
                              const skv_load_options *options)
{
    if (!be->keeps_embeddings || options->borrows) return (skv_bytes){0};
    const skv_bytes own = be->embedding_bytes(be, own_ids(c, options->ranks).n, c->hidden);
    if (c->per_layer == 0) return own;
    return skv_bytes_add(own, be->embedding_bytes(be, c->vocab, c->n_layers * c->per_layer));
}

skv_status skv_model_bytes(const skv_config *config, const skv_source *source, skv_backend *be,
                           const skv_load_options *options, skv_bytes *n_bytes, skv_error *err)
{
    skv_model shape = {.layers = skv_alloc_zero(config->n_layers, sizeof *shape.layers)};
    SKV_REQUIRE(shape.layers, err, SKV_MEMORY, "weights: no memory for %zu layers",
                config->n_layers);
    skv_loader ld = {
        .model = &shape, .config = config, .source = source, .be = be, .options = options};
    ld.visit = count_bytes;
    skv_status status = visit_products(&ld, err);
    if (status == SKV_OK) {
        *n_bytes = skv_bytes_add(ld.bytes_all, count_tables(config, be, options));
    }
    skv_free(shape.layers);
    return status;
}

/* ---- loading ---- */

typedef struct part_data {
    skv_matrix matrix;
    float *bias; /* owned, [n_rows] or NULL */
} part_data;

/* Of some columns: the file's blocks of codes stay whole. */
static skv_status take_columns(const skv_loader *ld, const skv_load_job *job, skv_matrix *matrix,
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

static skv_status open_part(const skv_loader *ld, const skv_load_job *job, size_t i,
                            part_data *data, skv_error *err)
{
    const skv_load_part *part = &job->parts[i];
    const size_t n_all = part->n_all ? part->n_all : part->n_rows;
    char name[SKV_LOAD_NAME_BYTES + 16];
    (void)snprintf(name, sizeof name, "%s.weight", part->name);
    SKV_TRY(skv_load_find_matrix(ld, name, n_all, job->n_columns ? job->n_columns : job->K,
                                 &data->matrix, err));
    data->matrix.row0 = part->row0;
    data->matrix.times = (float)part->times;
    SKV_TRY(take_columns(ld, job, &data->matrix, err));
    if (!part->bias) return SKV_OK;
    (void)snprintf(name, sizeof name, "%s.bias", part->name);
    return skv_load_read_vector(ld, name, part->row0, n_all, &data->bias, err);
}

static void report_progress(skv_loader *ld, size_t n_bytes)
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

static skv_status load_product(skv_loader *ld, const skv_load_job *job, skv_error *err)
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
                                      .read_codes = skv_matrix_read_codes,
                                      .read_fp8 = skv_matrix_read_fp8};
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

/* ids [n] = those of the exit head's rows, as they stand in the file; of random weights any. */
static skv_status read_exit_ids(const skv_loader *ld, int32_t *ids, size_t n, skv_error *err)
{
    static const char name[] = "lm_head_swiftkv.ids";
    const size_t V = ld->config->vocab;
    float *values = NULL;
    for (size_t i = 0; !ld->source && i < n; i++) ids[i] = (int32_t)(i * V / n);
    if (!ld->source) return SKV_OK;
    SKV_TRY(skv_load_read_vector(ld, name, 0, n, &values, err));
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

static skv_status load_exit_ids(skv_loader *ld, skv_error *err)
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

/* Tables of the ropes that layers use, and their angles in the back end. */
static skv_status load_ropes(skv_model *model, const skv_config *c, skv_error *err)
{
    for (size_t i = 0; i < 2; i++) {
        SKV_TRY(skv_rope_table_init(&model->ropes[i], &c->ropes[i], err));
    }
    model->n_ropes = 1;
    for (size_t i = 0; i < c->n_layers; i++) {
        model->n_ropes =
            skv_max_size(model->n_ropes, c->layers[i].i_rope + c->layers[i].i_rope_q + 1);
    }
    for (size_t i = 0; i < model->n_ropes; i++) {
        const skv_angles_spec spec = {skv_rope_read_angles, &model->ropes[i], model->ropes[i].n};
        SKV_TRY(model->be->angles_create(model->be, &spec, &model->angles[i], err));
    }
    return SKV_OK;
}

/* Rows [first_id, first_id + n) of a table of embeddings. */
static skv_status load_table(skv_loader *ld, const skv_matrix *matrix, size_t first_id, size_t n,
                             skv_embedding **out, skv_error *err)
{
    skv_matrix rows = *matrix;
    rows.row0 += first_id;
    const skv_row_source source = {.read = skv_matrix_read, .ctx = &rows, .n_rows = n};
    SKV_TRY(skv_matrix_check(matrix, err));
    SKV_TRY(ld->be->embedding_create(ld->be, &source, rows.n_columns, first_id, out, err));
    const size_t n_bytes = skv_bytes_sum(ld->be->embedding_bytes(ld->be, n, rows.n_columns));
    ld->model->weight_bytes += n_bytes;
    ld->bytes_done += n_bytes;
    return skv_matrix_check(matrix, err);
}

static skv_status load_tables(skv_loader *ld, skv_error *err)
{
    skv_model *model = ld->model;
    const skv_config *c = ld->config;
    if (!ld->be->keeps_embeddings || ld->options->borrows) return SKV_OK;
    const skv_ranks_ids ids = own_ids(c, ld->options->ranks);
    SKV_TRY(load_table(ld, &model->embedding, ids.first, ids.n, &model->embedding_table, err));
    if (c->per_layer == 0) return SKV_OK;
    return load_table(ld, &model->token_embeds, 0, c->vocab, &model->token_table, err);
}

static skv_status load_all(skv_loader *ld, skv_error *err)
{
    skv_model *model = ld->model;
    const skv_config *c = ld->config;
    model->layers = skv_alloc_zero(c->n_layers, sizeof *model->layers);
    SKV_REQUIRE(model->layers, err, SKV_MEMORY, "weights: no memory for %zu layers", c->n_layers);
    SKV_TRY(load_ropes(model, c, err));
    SKV_TRY(skv_load_find_matrix(ld, "model.embed_tokens.weight", c->vocab, c->hidden,
                                 &model->embedding, err));
    if (c->per_layer > 0) {
        SKV_TRY(skv_load_find_matrix(ld, "model.embed_tokens_per_layer.weight", c->vocab,
                                     c->n_layers * c->per_layer, &model->token_embeds, err));
    }
    SKV_TRY(load_exit_ids(ld, err));
    SKV_TRY(skv_load_vectors(ld, err));
    SKV_TRY(load_tables(ld, err));
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
    skv_loader ld = {
        .model = model, .config = config, .source = source, .be = be, .options = options};
    skv_status status = load_all(&ld, err);
    if (status != SKV_OK) skv_model_release(model);
    return status;
}

static void release_layer(skv_backend *be, skv_layer *layer, size_t n_experts)
{
    be->linear_free(be, layer->own.w);
    be->linear_free(be, layer->stacked.w);
    be->linear_free(be, layer->gate);
    be->linear_free(be, layer->delta.in);
    be->linear_free(be, layer->delta.gates);
    be->linear_free(be, layer->delta.out);
    be->linear_free(be, layer->fed.in);
    be->linear_free(be, layer->fed.gates);
    be->linear_free(be, layer->conv.in);
    be->linear_free(be, layer->o);
    be->linear_free(be, layer->gate_up);
    be->linear_free(be, layer->down);
    be->linear_free(be, layer->embed_gate);
    be->linear_free(be, layer->embed_out);
    be->linear_free(be, layer->router);
    be->linear_free(be, layer->shared.gate_up);
    be->linear_free(be, layer->shared.down);
    if (layer->experts) be->experts_free(be, layer->experts);
    if (layer->experts_down) be->experts_free(be, layer->experts_down);
    for (size_t e = 0; layer->expert_parts && e < 2 * n_experts; e++) {
        be->linear_free(be, layer->expert_parts[e]);
    }
    skv_free(layer->expert_parts);
    be->linear_free(be, layer->latent_in);
    be->linear_free(be, layer->latent_out);
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
    be->linear_free(be, model->mtp_in);
    be->linear_free(be, model->embed_part);
    be->areas_free(be, &model->vectors, 1);
    if (be->keeps_embeddings) {
        be->embedding_free(be, model->embedding_table);
        be->embedding_free(be, model->token_table);
    }
    for (size_t i = 0; i < 2; i++) {
        be->angles_free(be, model->angles[i]);
        skv_rope_table_release(&model->ropes[i]);
    }
    skv_free(model->exit_ids);
    skv_free(model->layers);
    *model = (skv_model){0};
}
