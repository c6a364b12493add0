/* A model in training: its life, and one batch through it. See net.h. */
#include "train/net.h"

#include <string.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "train/net_impl.h"

static skv_status check_config(const skv_config *c, const skv_net_options *options, skv_error *err)
{
    const char *what = NULL;
    if (c->norm_offset_one || c->post_norms) what = "norms of Gemma";
    if (c->no_pre_norms || c->qk_norm_joined) what = "norms of OLMo";
    if (c->logit_divisor != 0.0) what = "divided logits";
    if (c->activation != SKV_ACT_SILU) what = "an activation other than SiLU";
    if (c->attention_softcap > 0 || c->final_softcap > 0) what = "soft capping";
    if (c->embedding_scale < 1 || c->embedding_scale > 1) what = "a scaled embedding";
    if (c->layers[0].i_rope_q > 0) what = "queries that grow with their position";
    if (c->n_shared > 0) what = "layers that share keys and values";
    if (c->v_norm || c->per_layer > 0) what = "blocks of Gemma 4";
    if (skv_config_is_hybrid(c)) what = "layers that keep a state";
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

static bool has_teacher(const skv_net *net)
{
    return net->options.loss == SKV_LOSS_KL || net->options.hidden_mult > 0;
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
        if (!strstr(p->name, "_swiftkv")) copies = has_teacher(net);
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
    for (size_t i = 0; i < net->config->n_layers; i++) { /* routers are not packed */
        if (net->layers[i].experts) net->layers[i].router.w->file = NULL;
    }
}

static skv_status start(skv_net *net, const skv_source *source, skv_error *err)
{
    unsigned features = skv_cpu_verified();
    skv_kernels_init(&net->kernels, net->options.cpu, features);
    skv_train_rows_init(&net->rows, net->options.cpu, features);
    net->pool = net->options.pool;
    if (!net->pool) SKV_TRY(skv_pool_create(net->options.threads, &net->pool, err));
    const skv_matmul *mm = net->options.bf16 ? &net->kernels.bf16 : &net->kernels.f32;
    SKV_TRY(skv_gemm_create(net->pool, mm, &net->gemm, err));
    if (net->options.bf16 && net->config->n_active > 0) {
        SKV_TRY(skv_gemm_create(net->pool, &net->kernels.f32, &net->exact, err));
    }
    for (size_t i = 0; i < 2; i++) {
        SKV_TRY(skv_rope_table_init(&net->ropes[i], &net->config->ropes[i], err));
    }
    SKV_TRY(skv_net_describe(net, err));
    if (net->options.prediction) SKV_TRY(skv_net_predict_create(net, err));
    net->kv_from = net->options.student ? net->config->kv_layers : net->config->n_layers;
    bool copies = plan_layers(net);
    leave_on_file(net, source);
    if (net->options.plan) {
        skv_params_count(&net->params, copies);
    } else {
        SKV_TRY(skv_params_allocate(&net->params, copies, err));
        SKV_TRY(skv_net_load(net, source, err));
        if (net->predict) SKV_TRY(skv_net_predict_load(net, err));
    }
    SKV_TRY(skv_net_pack(net, err));
    return skv_net_memory_take(net, err);
}

skv_status skv_net_create(const skv_config *config, const skv_source *source,
                          const skv_net_options *options, skv_net **out, skv_error *err)
{
    SKV_TRY(check_config(config, options, err));
    skv_net *net = skv_alloc_zero(1, sizeof *net);
    SKV_REQUIRE(net, err, SKV_MEMORY, "training: no memory");
    net->config = config;
    net->options = *options;
    skv_status status = start(net, source, err);
    if (status != SKV_OK) {
        skv_net_free(net);
        return status;
    }
    *out = net;
    return SKV_OK;
}

void skv_net_free(skv_net *net)
{
    if (!net) return;
    skv_net_predict_free(net->predict);
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

skv_params *skv_net_params(skv_net *net)
{
    return &net->params;
}

skv_pool *skv_net_pool(skv_net *net)
{
    return net->pool;
}

skv_net_bytes skv_net_count_bytes(const skv_net *net)
{
    size_t scratch = (net->n_memory - net->n_kept) * sizeof(float) + skv_net_predict_bytes(net);
    if (net->exact) scratch += skv_gemm_bytes(net->exact);
    return (skv_net_bytes){.kept = net->n_kept * sizeof(float),
                           .packed = net->packed_bytes,
                           .scratch = scratch + skv_gemm_bytes(net->gemm)};
}

size_t skv_net_count(const skv_net *net, const skv_train_batch *batch)
{
    size_t n = 0;
    for (size_t t = 0; t < batch->n_tokens; t++) n += batch->targets[t] >= 0;
    return net->options.all_positions ? batch->n_tokens : n;
}

void skv_net_sums_add(skv_net_sums *to, const skv_net_sums *from)
{
    to->loss += from->loss;
    to->hidden += from->hidden;
    to->exit += from->exit;
    to->auxiliary += from->auxiliary;
    to->consistency += from->consistency;
    to->balance += from->balance;
    to->n_loss += from->n_loss;
    for (size_t i = 0; i < SKV_TRAIN_EXIT_BINS; i++) {
        to->exit_seen[i] += from->exit_seen[i];
        to->exit_agreed[i] += from->exit_agreed[i];
    }
}

void skv_net_zero_gradients(skv_net *net)
{
    if (!net->params.grads) return;
    memset(net->params.grads, 0, net->params.n_trainable * sizeof(float));
}

/* ---- what a step costs ---- */

static double linear_flops(const skv_net_linear *l)
{
    return l->w ? 2.0 * (double)skv_param_size(l->w) : 0.0;
}

/* One token through layer i's feed-forward block, and the experts that it meets there. */
static double block_flops(const skv_net *net, const skv_net_layer *layer)
{
    if (!layer->experts) {
        return linear_flops(&layer->gate) + linear_flops(&layer->up) + linear_flops(&layer->down);
    }
    const skv_net_expert *one = &layer->experts[0];
    return linear_flops(&layer->router) +
           (double)net->config->n_active *
               (linear_flops(&one->gate) + linear_flops(&one->up) + linear_flops(&one->down));
}

/* One token through layer i; attention over half of n tokens. */
static double layer_flops(const skv_net *net, size_t i, bool deep, double n)
{
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_projections *from = deep ? &layer->swiftkv : &layer->own;
    double attention = 2.0 * n * (double)(net->config->layers[i].n_heads * net->config->head_dim);
    return linear_flops(&from->q) + linear_flops(&from->k) + linear_flops(&from->v) +
           linear_flops(&layer->o) + block_flops(net, layer) + attention;
}

/* Rows of a product with the gradient of a matrix, a token: an expert sees k of E tokens. */
static double met_by(const skv_net *net, const skv_param *p)
{
    if (!strstr(p->name, ".experts.")) return 1.0;
    return (double)net->config->n_active / (double)net->layers[p->layer].n_experts;
}

double skv_net_flops(const skv_net *net, size_t n_tokens, size_t n_loss)
{
    size_t L = net->config->n_layers;
    double n = (double)n_tokens, sum = 0.0, grads = 0.0;
    for (size_t i = 0; i < L; i++) {
        bool deep = i >= net->kv_from;
        bool twice = has_teacher(net) && (i >= net->teacher_from);
        double once = layer_flops(net, i, deep, n);
        sum += once + (twice ? layer_flops(net, i, false, n) : 0.0);
        sum += net->layers[i].keep ? once : 0.0;
    }
    for (size_t i = 0; i < net->params.n; i++) {
        const skv_param *p = &net->params.at[i];
        if (p->trainable && !p->vector && p != net->head.w && p != net->exit.w)
            grads += 2.0 * (double)skv_param_size(p) * met_by(net, p);
    }
    if (net->predict) sum += skv_net_predict_flops(net, n_tokens, n_loss) / n;
    double head = 2.0 * (double)skv_param_size(net->head.w);
    head *=
        2.0 + (net->options.loss == SKV_LOSS_KL ? 1.0 : 0.0) + (net->head.w->trainable ? 1.0 : 0.0);
    if (net->options.early_exit) head += 6.0 * (double)skv_param_size(net->exit.w);
    return n * (sum + grads) + (double)n_loss * head;
}

/* ---- a batch ---- */

static skv_status check_batch(const skv_net *net, const skv_train_batch *b, skv_error *err)
{
    size_t V = net->config->vocab;
    SKV_REQUIRE(b->n_tokens > 0 && b->n_tokens <= net->options.max_tokens, err, SKV_RANGE,
                "batch: %zu tokens, at most %zu", b->n_tokens, net->options.max_tokens);
    for (size_t t = 0; t < b->n_tokens; t++) {
        SKV_REQUIRE(b->ids[t] >= 0 && (size_t)b->ids[t] < V, err, SKV_RANGE,
                    "batch: ids[%zu] %d, the vocabulary has %zu", t, b->ids[t], V);
        SKV_REQUIRE(b->targets[t] >= -1 && (b->targets[t] < 0 || (size_t)b->targets[t] < V), err,
                    SKV_RANGE, "batch: targets[%zu] %d, the vocabulary has %zu", t, b->targets[t],
                    V);
        uint32_t before = t > 0 ? b->doc_start[t - 1] : 0;
        SKV_REQUIRE(b->doc_start[t] == t || (t > 0 && b->doc_start[t] == before), err, SKV_RANGE,
                    "batch: doc_start[%zu] %u", t, b->doc_start[t]);
    }
    return SKV_OK;
}

static void set_angles(skv_net *net, const skv_train_batch *b)
{
    for (size_t i = 0; i < 2; i++) {
        size_t n = net->ropes[i].n;
        for (size_t t = 0; t < b->n_tokens; t++) {
            skv_rope_angles(&net->ropes[i], b->positions[t], net->config->context,
                            net->cos[i] + t * n, net->sin[i] + t * n);
        }
    }
}

void skv_net_begin(skv_net *net, const skv_train_batch *batch)
{
    set_angles(net, batch);
    skv_net_segments(net, batch);
}

/* The teacher's pass: leaves x_l, x_{L-1} and norm(x_L) where the student's pass wants them. */
static skv_status run_teacher(skv_net *net, const skv_train_batch *batch, skv_error *err)
{
    skv_net_pass p = {.net = net, .batch = batch, .teacher = true};
    size_t L = net->config->n_layers, n = batch->n_tokens * net->config->hidden;
    SKV_TRY(skv_net_embed(&p, skv_net_boundary(&p, 0), err));
    skv_net_forward(&p, 0, net->teacher_from);
    skv_net_copy(net, net->x_shared, skv_net_boundary(&p, net->teacher_from), n);
    skv_net_forward(&p, net->teacher_from, L - 1);
    skv_net_copy(net, net->hidden_t, skv_net_boundary(&p, L - 1), n);
    skv_net_forward(&p, L - 1, L);
    if (net->options.loss != SKV_LOSS_KL) return SKV_OK;
    skv_net_norm(net, net->final_t, net->x_last, net->final_norm->teacher, batch->n_tokens,
                 net->config->hidden);
    return SKV_OK;
}

skv_status skv_net_run(skv_net *net, const skv_train_batch *batch, const skv_net_scale *scale,
                       bool backward, skv_net_sums *sums, skv_error *err)
{
    SKV_TRY(check_batch(net, batch, err));
    if (net->predict) return skv_net_predict_run(net, batch, scale, backward, sums, err);
    size_t D = net->config->hidden, first = 0;
    skv_net_begin(net, batch);
    skv_net_pass p = {
        .net = net, .batch = batch, .student = net->options.student, .keep = backward};
    if (net->options.hidden_mult > 0) p.keep = true;
    if (has_teacher(net)) {
        SKV_TRY(run_teacher(net, batch, err));
        first = net->teacher_from;
        skv_net_copy(net, skv_net_boundary(&p, first), net->x_shared, batch->n_tokens * D);
    }
    if (first == 0) SKV_TRY(skv_net_embed(&p, skv_net_boundary(&p, 0), err));
    skv_net_forward(&p, first, net->config->n_layers);
    skv_net_norm(net, net->final, net->x_last, net->final_norm->w, batch->n_tokens, D);
    skv_net_loss(&p, scale, backward, sums);
    skv_net_balance(&p, scale, sums);
    if (backward) skv_net_backward(&p, scale);
    return SKV_OK;
}
