/* The life of one model in training: see net_impl.h. */
#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "train/net_impl.h"

/* Layers that keep a state: those of the gated delta rule are trained. */
static skv_status check_hybrid(const skv_config *c, const skv_net_options *options, skv_error *err)
{
    const char *what = NULL;
    if (c->single_blocks || c->state_pre_norms) what = "norms after the mixer, or one norm a layer";
    if (c->mixer.no_norm || c->mixer.gate_first) what = "a gate before the state's norm";
    if (c->mixer.norm_eps < c->norm_eps || c->mixer.norm_eps > c->norm_eps) {
        what = "a state's norm with an epsilon of its own";
    }
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_mixer mixer = c->layers[i].mixer;
        if (mixer == SKV_MIXER_MAMBA || mixer == SKV_MIXER_BOTH) what = "layers of Mamba-2";
        if (mixer == SKV_MIXER_CONV) what = "layers that are a short convolution alone";
        if (c->layers[i].n_experts > 0) what = "experts beside layers that keep a state";
    }
    if (options->prediction || options->foreign_kv) what = "KV Prediction of a hybrid";
    SKV_REQUIRE(!what, err, SKV_UNSUPPORTED, "training: %s: %s", c->architecture, what);
    return SKV_OK;
}

static skv_status check_config(const skv_config *c, const skv_net_options *options, skv_error *err)
{
    const char *what = NULL;
    if (c->post_norms) what = "norms of Gemma";
    if (c->no_pre_norms || c->qk_norm_joined) what = "norms of OLMo";
    if (c->logit_divisor != 0.0) what = "divided logits";
    if (c->activation != SKV_ACT_SILU) what = "an activation other than SiLU";
    if (c->attention_softcap > 0 || c->final_softcap > 0) what = "soft capping";
    if (c->embedding_scale < 1 || c->embedding_scale > 1) what = "a scaled embedding";
    if (c->layers[0].i_rope_q > 0) what = "queries that grow with their position";
    if (c->n_shared > 0) what = "layers that share keys and values";
    if (c->v_norm || c->per_layer > 0) what = "blocks of Gemma 4";
    if (skv_config_is_hybrid(c)) SKV_TRY(check_hybrid(c, options, err));
    SKV_REQUIRE(!what, err, SKV_UNSUPPORTED, "training: %s: %s", c->architecture, what);
    SKV_REQUIRE(c->head_dim <= SKV_HEAD_DIM_MAX, err, SKV_RANGE, "training: head_dim %zu",
                c->head_dim);
    SKV_REQUIRE(options->max_tokens > 0 && options->max_tokens < UINT32_MAX, err, SKV_ARGUMENT,
                "training: %zu tokens a batch, expected 1 to %u", options->max_tokens,
                UINT32_MAX - 1);
    SKV_REQUIRE(!options->student || (c->swiftkv && c->kv_layers < c->n_layers), err, SKV_ARGUMENT,
                "training: %s has no SwiftKV layers to train", c->architecture);
    SKV_REQUIRE(!options->early_exit || (options->student && c->early_exit), err, SKV_ARGUMENT,
                "training: %s has no early exit", c->architecture);
    SKV_REQUIRE(options->loss == SKV_LOSS_LM || options->student, err, SKV_ARGUMENT,
                "training: the KL loss needs a SwiftKV student");
    SKV_REQUIRE(options->loss == SKV_LOSS_LM || options->tau > 0, err, SKV_ARGUMENT,
                "training: temperature %g", options->tau);
    return SKV_OK;
}

/* Which layers have a backward pass, and where teacher and student part. */
static bool plan_layers(skv_net *net)
{
    size_t L = net->config->n_layers, first = L;
    bool copies = false;
    for (size_t i = 0; i < net->params.n; i++) {
        const skv_param *p = &net->params.at[i];
        if (!p->trainable) continue;
        if (p->layer < first) first = p->layer;
        if (p->role != SKV_ROLE_SWIFTKV && p->role != SKV_ROLE_EXIT_HEAD)
            copies = skv_net_has_teacher(net);
    }
    if (first >= net->kv_from && first < L) {
        first -= (first - net->kv_from) % net->config->kv_group;
    }
    if (net->options.foreign_kv) first = 0;
    for (size_t i = 0; i < L; i++) net->layers[i].keep = i >= first;
    net->teacher_from = first < net->kv_from ? 0 : net->kv_from;
    return copies;
}

/* Frozen matrices that skv_net_pack packs need no f32 form beside it. */
static void leave_on_file(skv_net *net, const skv_source *source)
{
    for (size_t i = 0; source && net->options.bf16 && i < net->params.n; i++) {
        skv_param *p = &net->params.at[i];
        if (!p->trainable && !p->vector) p->file = skv_source_find(source, p->name);
    }
    for (size_t i = 0; i < net->config->n_layers; i++) { /* these are not packed */
        const skv_net_layer *layer = &net->layers[i];
        const skv_net_projections *own = &layer->own, *swiftkv = &layer->swiftkv;
        skv_param *const plain[] = {layer->router.w, own->a.w,     own->b.w,     own->conv,
                                    swiftkv->a.w,    swiftkv->b.w, swiftkv->conv};
        for (size_t j = 0; j < sizeof plain / sizeof plain[0]; j++) {
            if (plain[j]) plain[j]->file = NULL;
        }
    }
}

static skv_status start(skv_net *net, skv_error *err)
{
    unsigned features = skv_cpu_verified();
    skv_kernels_init(&net->kernels, net->options.cpu, features);
    skv_train_rows_init(&net->rows, net->options.cpu, features);
    net->pool = net->options.pool;
    if (!net->pool) SKV_TRY(skv_pool_create(net->options.threads, &net->pool, err));
    const skv_matmul *mm = net->options.bf16 ? &net->kernels.bf16 : &net->kernels.f32;
    SKV_TRY(skv_gemm_create(net->pool, mm, &net->gemm, err));
    const bool exact = net->config->n_active > 0 || skv_config_is_hybrid(net->config);
    if (net->options.bf16 && exact) {
        SKV_TRY(skv_gemm_create(net->pool, &net->kernels.f32, &net->exact, err));
    }
    for (size_t i = 0; i < 2; i++) {
        SKV_TRY(skv_rope_table_init(&net->ropes[i], &net->config->ropes[i], err));
    }
    return skv_net_describe(net, err);
}

skv_status skv_net_open(const skv_config *config, const skv_net_options *options, skv_net **out,
                        skv_error *err)
{
    SKV_TRY(check_config(config, options, err));
    skv_net *net = skv_alloc_zero(1, sizeof *net);
    SKV_REQUIRE(net, err, SKV_MEMORY, "training: no memory");
    net->config = config;
    net->options = *options;
    skv_status status = start(net, err);
    if (status != SKV_OK) {
        skv_net_close(net);
        return status;
    }
    *out = net;
    return SKV_OK;
}

skv_status skv_net_fill(skv_net *net, const skv_source *source, skv_error *err)
{
    net->kv_from = net->options.student ? net->config->kv_layers : net->config->n_layers;
    bool copies = plan_layers(net);
    leave_on_file(net, source);
    if (net->options.plan) {
        skv_params_count(&net->params, copies);
        return SKV_OK;
    }
    SKV_TRY(skv_params_allocate(&net->params, copies, err));
    return skv_net_load(net, source, err);
}

skv_status skv_net_finish(skv_net *net, skv_error *err)
{
    SKV_TRY(skv_net_pack(net, err));
    return skv_net_memory_take(net, err);
}

void skv_net_close(skv_net *net)
{
    if (!net) return;
    if (net->memory) skv_unmap(net->memory, net->n_memory * sizeof(float));
    skv_net_unpack(net);
    skv_params_release(&net->params);
    skv_free(net->layers);
    skv_free(net->experts);
    skv_rope_table_release(&net->ropes[0]);
    skv_rope_table_release(&net->ropes[1]);
    skv_gemm_free(net->gemm);
    skv_gemm_free(net->exact);
    if (!net->options.pool) skv_pool_free(net->pool);
    skv_free(net);
}
