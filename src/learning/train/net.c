/* A model in training, and one batch through it: see net.h. */
#include "train/net.h"

#include <string.h>

#include "train/net_impl.h"

/* The model, and with a prediction its maps and the base. */
static skv_status fill(skv_net *net, const skv_source *source, skv_error *err)
{
    const bool predicts = net->options.prediction;
    if (predicts) SKV_TRY(skv_net_predict_create(net, err));
    SKV_TRY(skv_net_fill(net, source, err));
    if (predicts && !net->options.plan) SKV_TRY(skv_net_predict_load(net, err));
    return skv_net_finish(net, err);
}

skv_status skv_net_create(const skv_config *config, const skv_source *source,
                          const skv_net_options *options, skv_net **out, skv_error *err)
{
    skv_net *net;
    SKV_TRY(skv_net_open(config, options, &net, err));
    skv_status status = fill(net, source, err);
    if (status != SKV_OK) {
        skv_net_free(net);
        return status;
    }
    *out = net;
    return SKV_OK;
}

void skv_net_free(skv_net *net)
{
    if (net) skv_net_predict_free(net->predict);
    skv_net_close(net);
}

double skv_net_flops(const skv_net *net, size_t n_tokens, size_t n_loss)
{
    double sum = skv_net_own_flops(net, n_tokens, n_loss);
    return net->predict ? sum + skv_net_predict_flops(net, n_tokens, n_loss) : sum;
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
    if (skv_net_has_teacher(net)) {
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
