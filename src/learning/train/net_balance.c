/*
 * The loss that balances experts (Switch Transformers, arXiv:2101.03961, equation 4; for k experts
 * a token as Mixtral and Qwen 3 define router_aux_loss_coef). With the logits r of the N rows that
 * the E experts of all trained routers' layers see, p = softmax(r), and f_e = pairs of e / N:
 *
 *     loss = E sum_e f_e mean_n p_ne      k where all are used alike, at most E
 *     dr_e = E / N p_e (f_e - sum_j f_j p_j)
 *
 * f has no gradient, since the choice has none. Each batch of a step counts by its tokens.
 */
#include <math.h>
#include <string.h>

#include "train/net_impl.h"

static bool is_balanced(const skv_net_layer *layer)
{
    return layer->keep && layer->experts && skv_net_linear_trained(&layer->router);
}

/* net->balance: f, of n_experts. Returns N. */
static size_t count_pairs(skv_net *net, size_t n_experts, size_t n_tokens)
{
    size_t n_rows = 0;
    memset(net->balance, 0, n_experts * sizeof *net->balance);
    for (size_t i = 0; i < net->config->n_layers; i++) {
        const uint32_t *first = net->layers[i].kept.routes.first; /* [E + 1] */
        if (!is_balanced(&net->layers[i])) continue;
        for (size_t e = 0; e < n_experts; e++) net->balance[e] += (float)(first[e + 1] - first[e]);
        n_rows += n_tokens;
    }
    for (size_t e = 0; e < n_experts && n_rows > 0; e++) net->balance[e] /= (float)n_rows;
    return n_rows;
}

/* sum_e f_e p_e of a row of logits [E]. */
static double row_loss(const skv_net *net, const float *logits, size_t n_experts, float largest)
{
    double sum = 0, loss = 0;
    for (size_t e = 0; e < n_experts; e++) {
        const double p = (double)expf(logits[e] - largest);
        sum += p;
        loss += p * (double)net->balance[e];
    }
    return loss / sum;
}

void skv_net_balance(const skv_net_pass *p, const skv_net_scale *scale, skv_net_sums *sums)
{
    skv_net *net = p->net;
    const size_t T = p->batch->n_tokens, E = net->max_experts, k = net->config->n_active;
    net->balance_scale = 0;
    if (E == 0 || !p->keep || !(net->options.router_loss > 0)) return;
    const size_t n_rows = count_pairs(net, E, T);
    if (n_rows == 0) return;
    double sum = 0;
    for (size_t i = 0; i < net->config->n_layers; i++) {
        const skv_net_routes *r = &net->layers[i].kept.routes;
        for (size_t t = 0; t < T && is_balanced(&net->layers[i]); t++) {
            const float *logits = r->logits + t * E; /* [E] */
            sum += row_loss(net, logits, E, logits[r->chosen[t * k]]);
        }
    }
    const double share = (double)E / (double)n_rows * (double)T;
    sums->balance = share * sum;
    net->balance_scale = (float)(net->options.router_loss * share / scale->tokens);
}
