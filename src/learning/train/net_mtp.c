/*
 * Training of a head that predicts further tokens (MTP: DeepSeek-V3, arXiv:2412.19437, 2.2; the
 * head of Qwen 3.5). The head is the net in training, a model of one layer; the model that it
 * belongs to is a second, frozen net, and lends it the embedding and the vocabulary's head.
 *
 *     h   = NORM(x_L)                                        of the model, on all tokens
 *     x_i = Wfc [NORM_e(embed(t_{i+1})), NORM_h(h_i)]        the head's input
 *     y   = NORM_mtp(block(x))
 *     loss of head(y_i): CE with the token t_{i+2}, or KL(head(h_{i+1}) || head(y_i))
 *
 * A draft is right if the model says the same, whatever the text goes on with. So the model's own
 * distribution of that token, which the next row's h has anyway, is the better target. A row whose
 * next token belongs to another document has no loss, and no row sees it.
 *
 * Only the first of several drafted tokens is trained; later ones have the head's own output as h.
 */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "train/net_impl.h"

struct skv_net_mtp {
    skv_net *base;              /* owned: the model */
    skv_param *norm_e, *norm_h; /* [D] */
    skv_net_linear fc;          /* [D, 2 D] */
    skv_train_batch batch;      /* of the head, in the next two arrays */
    int32_t *ids, *targets;     /* owned, [T] */
    float *in, *d_in;           /* [T, 2 D] in `memory`: input of fc, and its gradient */
    float *memory;              /* owned, mapped */
    size_t n_memory;            /* floats */
};

skv_net *skv_net_mtp_base(const skv_net *net)
{
    return net->mtp ? net->mtp->base : NULL;
}

size_t skv_net_mtp_bytes(const skv_net *net)
{
    return net->mtp ? net->mtp->n_memory * sizeof(float) : 0;
}

/* ---- opening ---- */

static skv_status open_base(const skv_net *net, skv_net **out, skv_error *err)
{
    const skv_net_options *own = &net->options;
    const skv_config *c = own->mtp.model;
    const skv_net_options options = {.pool = net->pool,
                                     .cpu = own->cpu,
                                     .max_tokens = own->max_tokens,
                                     .bf16 = own->bf16,
                                     .student = c->swiftkv && c->kv_layers < c->n_layers,
                                     .loss = SKV_LOSS_LM,
                                     .plan = own->plan};
    SKV_TRY(skv_net_open(own->mtp.model, &options, out, err));
    SKV_TRY(skv_net_fill(*out, own->mtp.source, err));
    return skv_net_finish(*out, err);
}

static skv_param *add_norm(skv_net *net, const char *name)
{
    skv_param *p = skv_net_add(net, 0, SKV_ROLE_LAYER, name, 0, net->config->hidden);
    p->offset = net->config->norm_offset_one ? 1.0f : 0.0f;
    return p;
}

skv_status skv_net_mtp_create(skv_net *net, skv_error *err)
{
    const size_t T = net->options.max_tokens, D = net->config->hidden;
    skv_net_mtp *m = net->mtp = skv_alloc_zero(1, sizeof *m);
    SKV_REQUIRE(m, err, SKV_MEMORY, "training: no memory");
    m->fc.w = skv_net_add(net, 0, SKV_ROLE_LAYER, "mtp.fc.weight", D, 2 * D);
    m->norm_e = add_norm(net, "mtp.pre_fc_norm_embedding.weight");
    m->norm_h = add_norm(net, "mtp.pre_fc_norm_hidden.weight");
    const size_t n_wide = skv_round_up(2 * T * D, SKV_ALIGN / sizeof(float));
    m->n_memory = 2 * n_wide;
    if (!net->options.plan) {
        m->ids = skv_alloc(T, sizeof *m->ids);
        m->targets = skv_alloc(T, sizeof *m->targets);
        m->memory = skv_map_zero(m->n_memory * sizeof(float));
        SKV_REQUIRE(m->ids && m->targets && m->memory, err, SKV_MEMORY,
                    "training: no memory for %zu tokens of an MTP head", T);
        m->in = m->memory;
        m->d_in = m->memory + n_wide;
    }
    return open_base(net, &m->base, err);
}

void skv_net_mtp_free(skv_net_mtp *m)
{
    if (!m) return;
    skv_net_close(m->base);
    if (m->memory) skv_unmap(m->memory, m->n_memory * sizeof(float));
    skv_free(m->ids);
    skv_free(m->targets);
    skv_free(m);
}

/* ---- a batch ---- */

/* Whether row t has the row after it in its document. */
static bool goes_on(const skv_train_batch *b, size_t t)
{
    return t + 1 < b->n_tokens && b->doc_start[t + 1] == b->doc_start[t];
}

/* The target two tokens ahead of row t, -1: none. */
static int32_t target_of(const skv_train_batch *b, size_t t)
{
    return goes_on(b, t) ? b->targets[t + 1] : -1;
}

size_t skv_net_mtp_count(const skv_train_batch *batch)
{
    size_t n = 0;
    for (size_t t = 0; t < batch->n_tokens; t++) n += target_of(batch, t) >= 0;
    return n;
}

/* The batch of the head: each row has the token after it. */
static void shift(skv_net_mtp *m, const skv_train_batch *b)
{
    m->batch = *b;
    for (size_t t = 0; t < b->n_tokens; t++) {
        m->ids[t] = b->ids[goes_on(b, t) ? t + 1 : t];
        m->targets[t] = target_of(b, t);
    }
    m->batch.ids = m->ids;
    m->batch.targets = m->targets;
}

/* base->final = h. */
static skv_status run_base(skv_net *base, const skv_train_batch *batch, skv_error *err)
{
    const skv_net_pass p = {.net = base, .batch = batch, .student = base->options.student};
    skv_net_begin(base, batch);
    SKV_TRY(skv_net_embed(&p, skv_net_boundary(&p, 0), err));
    skv_net_forward(&p, 0, base->config->n_layers);
    skv_net_norm(base, base->final, base->x_last, base->final_norm->w, batch->n_tokens,
                 base->config->hidden);
    return SKV_OK;
}

/* Rows of one width to or from half of rows of twice that. */
typedef struct halves {
    float *wide; /* [T, 2 D] */
    float *half; /* [T, D] */
    size_t column, D;
    bool out; /* from `wide` */
} halves;

static void move_row(void *arg, size_t t, size_t i_thread)
{
    const halves *j = arg;
    float *wide = j->wide + 2 * t * j->D + j->column, *half = j->half + t * j->D;
    (void)i_thread;
    memcpy(j->out ? half : wide, j->out ? wide : half, j->D * sizeof(float));
}

static void move(const skv_net_pass *p, halves j)
{
    skv_pool_run(p->net->pool, p->batch->n_tokens, move_row, &j);
}

/* The head's input, from embeddings in net->x_shared and h; net->normed is scratch. */
static void make_input(const skv_net_pass *p, const float *h)
{
    skv_net *net = p->net;
    skv_net_mtp *m = net->mtp;
    const size_t T = p->batch->n_tokens, D = net->config->hidden;
    skv_net_norm(net, net->normed, net->x_shared, m->norm_e->w, T, D);
    move(p, (halves){m->in, net->normed, 0, D, false});
    skv_net_norm(net, net->normed, h, m->norm_h->w, T, D);
    move(p, (halves){m->in, net->normed, D, D, false});
    skv_net_mul(p, skv_net_boundary(p, 0), m->in, &m->fc, false);
}

/* From net->dx, the gradient of the head's input. Nothing below the norms is trained: dswift takes
 * the gradients that would go there. */
static void back_input(const skv_net_pass *p, const float *h)
{
    skv_net *net = p->net;
    skv_net_mtp *m = net->mtp;
    const size_t T = p->batch->n_tokens, D = net->config->hidden;
    skv_net_mul_grad(p, net->dx, m->in, &m->fc);
    skv_net_mul_back(p, m->d_in, net->dx, &m->fc, false);
    move(p, (halves){m->d_in, net->da, 0, D, true});
    skv_net_norm_back(net, net->dswift, net->da, net->x_shared, m->norm_e, T, D);
    move(p, (halves){m->d_in, net->da, D, D, true});
    skv_net_norm_back(net, net->dswift, net->da, h, m->norm_h, T, D);
}

skv_status skv_net_mtp_run(skv_net *net, const skv_train_batch *batch, const skv_net_scale *scale,
                           bool backward, skv_net_sums *sums, skv_error *err)
{
    skv_net_mtp *m = net->mtp;
    const size_t T = batch->n_tokens, D = net->config->hidden;
    const float *h = m->base->final;
    SKV_TRY(run_base(m->base, batch, err));
    shift(m, batch);
    const skv_net_pass p = {.net = net, .batch = &m->batch, .keep = true};
    skv_net_begin(net, p.batch);
    SKV_TRY(skv_net_embed(&p, net->x_shared, err));
    make_input(&p, h);
    skv_net_forward(&p, 0, net->config->n_layers);
    skv_net_norm(net, net->final, net->x_last, net->final_norm->w, T, D);
    /* The next row has the model's token two ahead; the last row has no loss. */
    if (net->options.loss == SKV_LOSS_KL) skv_net_copy(net, net->final_t, h + D, (T - 1) * D);
    skv_net_loss(&p, scale, backward, sums);
    if (!backward) return SKV_OK;
    skv_net_backward(&p, scale);
    back_input(&p, h);
    return SKV_OK;
}

/* The model runs all rows forward and has no loss; fc is a product, and one for its input's
 * gradient. */
double skv_net_mtp_flops(const skv_net *net, size_t n_tokens)
{
    const skv_net_mtp *m = net->mtp;
    return skv_net_own_flops(m->base, n_tokens, 0) +
           4.0 * (double)n_tokens * (double)skv_param_size(m->fc.w);
}
