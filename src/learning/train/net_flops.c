/* The floating-point operations of a step: see net.h. */
#include "train/net_impl.h"

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

/* One token through layer i; attention over half of n tokens, a state as its recurrence is written
 * down. */
static double layer_flops(const skv_net *net, size_t i, bool deep, double n)
{
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_projections *from = deep ? &layer->swiftkv : &layer->own;
    double mixing = 2.0 * n * (double)(net->config->layers[i].n_heads * net->config->head_dim);
    if (skv_config_keeps_state(net->config, i)) {
        mixing = skv_config_state_work(net->config, i, true);
        if (deep) mixing += linear_flops(&from->q); /* q's older inputs */
    }
    return linear_flops(&from->q) + linear_flops(&from->k) + linear_flops(&from->v) +
           linear_flops(&from->a) + linear_flops(&from->b) + linear_flops(&layer->z) +
           linear_flops(&layer->o) + block_flops(net, layer) + mixing;
}

/* Rows of a product with the gradient of a matrix, a token: an expert sees k of E tokens. */
static double met_by(const skv_net *net, const skv_param *p)
{
    if (p->role != SKV_ROLE_EXPERT) return 1.0;
    return (double)net->config->n_active / (double)net->layers[p->layer].n_experts;
}

double skv_net_own_flops(const skv_net *net, size_t n_tokens, size_t n_loss)
{
    size_t L = net->config->n_layers;
    double n = (double)n_tokens, sum = 0.0, grads = 0.0;
    for (size_t i = 0; i < L; i++) {
        bool deep = i >= net->kv_from;
        bool twice = skv_net_has_teacher(net) && (i >= net->teacher_from);
        double once = layer_flops(net, i, deep, n);
        sum += once + (twice ? layer_flops(net, i, false, n) : 0.0);
        sum += net->layers[i].keep ? once : 0.0;
    }
    for (size_t i = 0; i < net->params.n; i++) {
        const skv_param *p = &net->params.at[i];
        if (p->trainable && !p->vector && p != net->head.w && p != net->exit.w)
            grads += 2.0 * (double)skv_param_size(p) * met_by(net, p);
    }
    double head = 2.0 * (double)skv_param_size(net->head.w);
    head *=
        2.0 + (net->options.loss == SKV_LOSS_KL ? 1.0 : 0.0) + (net->head.w->trainable ? 1.0 : 0.0);
    if (net->options.early_exit) head += 6.0 * (double)skv_param_size(net->exit.w);
    return n * (sum + grads) + (double)n_loss * head;
}
