/*
 * First values of a model that is trained from scratch.
 *
 * Matrices are normal with deviation 1/sqrt(columns), which preserves the scale of their input for
 * any width; those that write into the residual stream are smaller by the root of their number. In
 * addition, attention starts out similar to trained attention:
 *
 *  - a token looks at tokens like itself and passes them on: W_q leans on W_k and W_o on W_v^T,
 * after "Mimetic Initialization of Self-Attention Layers" (arXiv:2305.09828; there the product of
 * W_v and W_o is negative, for images; a token that is found in a prompt is to be said again);
 *  - where q and k have biases, one group of heads in the first layers looks at the token before.
 *
 * Together they are the two halves of induction heads, which find an earlier occurrence and copy
 * its continuation. A model of 12 x 192 learns to repeat random segments within 0.5M tokens from
 * here; from plain normal values it had not begun to after 1M (docs/guides/train.md).
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/size.h"
#include "train/net_impl.h"

enum {
    POSITION_LAYERS = 4, /* one layer in this many, among the first, has heads that look back by
                          * one */
    POSITION_PAIRS = 8   /* they use Dh / this many pairs of dimensions, the fastest rotating
                          * ones */
};
static const float lean_q = 0.9f, lean_o = 0.4f; /* on W_k and W_v^T */
static const float position_bias = 5.0f;         /* each of q and k, before the scale */
static const float position_gain = 3.0f;         /* of the output of these heads */

/* ---- random values ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A state's decay, as Gated DeltaNet and Mamba-2 begin: A between 1 and 16, and a step between
 * 0.001 and 0.1 for a = 0, so that heads remember from a few tokens to a thousand. */
static bool is_rate(const skv_param *p)
{
    return strstr(p->name, ".A_log") || strstr(p->name, ".dt_bias");
}

static float draw_rate(const skv_param *p, skv_rng *rng)
{
    const double u = skv_rng_uniform(rng);
    if (strstr(p->name, ".A_log")) return (float)log(1.0 + 15.0 * u);
    const double step = exp(log(0.001) + u * (log(0.1) - log(0.001)));
    return (float)log(expm1(step)); /* softplus of it is the step */
}

void skv_net_draw(const skv_net *net, skv_param *p, size_t i_param)
{
    skv_rng rng;
    size_t n = skv_param_size(p);
    double deviation = 1.0 / sqrt((double)skv_max_size(p->n_columns, 1));
    if (strstr(p->name, "o_proj.weight") || strstr(p->name, "out_proj.weight") ||
        strstr(p->name, "down_proj.weight")) {
        deviation /= sqrt(2.0 * (double)net->config->n_layers);
    }
    skv_rng_init(&rng, skv_mix64(net->options.seed) + i_param);
    for (size_t j = 0; j < n; j++) {
        if (is_rate(p)) {
            p->w[j] = draw_rate(p, &rng);
        } else if (p->vector) {
            p->w[j] = ends_with(p->name, ".bias") ? 0.0f : 1.0f;
        } else {
            p->w[j] = (float)(deviation * skv_rng_normal(&rng));
        }
    }
}

/* ---- attention ---- */

/* One layer's attention and the query head in hand. */
typedef struct head {
    const skv_net_projections *own;
    float *o;                /* [D, H Dh] */
    size_t D, Dh, n_q;       /* n_q = H Dh */
    size_t first_q, first_k; /* rows of W_q and of W_k, W_v */
} head;

/* W_q = lean W_k + sqrt(1 - lean^2) W_q, so that its size stays. W_o += lean W_v^T. */
static void lean(const head *h)
{
    const float rest = sqrtf(1.0f - lean_q * lean_q);
    for (size_t j = 0; j < h->Dh; j++) {
        float *q = h->own->q.w->w + (h->first_q + j) * h->D;       /* [D] */
        const float *k = h->own->k.w->w + (h->first_k + j) * h->D; /* [D] */
        const float *v = h->own->v.w->w + (h->first_k + j) * h->D; /* [D] */
        for (size_t d = 0; d < h->D; d++) {
            q[d] = lean_q * k[d] + rest * q[d];
            h->o[d * h->n_q + h->first_q + j] += lean_o * v[d];
        }
    }
}

/* q and k are biases alone in the fastest pairs: k = (b, 0), q = R(-1) k, so that after RoPE the
 * score of the key n tokens back is the sum of b^2 cos((n - 1) angle) over these pairs. */
static void look_back(const head *h, double theta)
{
    const size_t half = h->Dh / 2, n_pairs = skv_max_size(h->Dh / POSITION_PAIRS, 1);
    float *q_bias = h->own->q.bias->w + h->first_q, *k_bias = h->own->k.bias->w + h->first_k;
    for (size_t j = 0; j < h->Dh; j++) {
        const size_t pair = j % half;
        const double angle = pow(theta, -2.0 * (double)pair / (double)h->Dh);
        memset(h->own->q.w->w + (h->first_q + j) * h->D, 0, h->D * sizeof(float));
        for (size_t d = 0; d < h->D; d++) h->o[d * h->n_q + h->first_q + j] *= position_gain;
        if (pair >= n_pairs) continue;
        memset(h->own->k.w->w + (h->first_k + j) * h->D, 0, h->D * sizeof(float));
        k_bias[j] = j < half ? position_bias : 0.0f;
        q_bias[j] = position_bias * (float)(j < half ? cos(angle) : -sin(angle));
    }
}

void skv_net_shape_attention(skv_net *net)
{
    const skv_config *c = net->config;
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *shape = &c->layers[i];
        if (skv_config_keeps_state(c, i)) continue;
        const skv_net_layer *layer = &net->layers[i];
        const size_t n_group = shape->n_heads / shape->n_kv_heads;
        const bool looks_back = i < skv_max_size(c->n_layers / POSITION_LAYERS, 1) &&
                                layer->own.q.bias && layer->own.k.bias;
        for (size_t j = 0; j < shape->n_heads; j++) {
            const head h = {.own = &layer->own,
                            .o = layer->o.w->w,
                            .D = c->hidden,
                            .Dh = c->head_dim,
                            .n_q = shape->n_heads * c->head_dim,
                            .first_q = j * c->head_dim,
                            .first_k = j / n_group * c->head_dim};
            if (looks_back && j < n_group) {
                look_back(&h, c->ropes[0].theta);
            } else {
                lean(&h);
            }
        }
    }
}
