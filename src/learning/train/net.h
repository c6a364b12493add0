/*
 * A model in training: the Llama-family block of skv_config, forward with kept activations and
 * backward, and the losses.
 *
 *     x_0 = embedding[ids]
 *     x_{i+1} = block_i(x_i)               layers of a SwiftKV student from l on: K, V from
 *                                          norm_swiftkv(x_l), one pair for a group of g layers
 *     loss(head(norm(x_L)), targets or teacher)
 *     + loss(exit head(norm_swiftkv(x_l)), the same)     with early_exit
 *
 * There is one copy of the weights: the teacher is the same model with its original projections,
 * run without keeping anything. Layers below all trained parameters keep no activations and have no
 * backward pass; if teacher and student agree on them, they run once.
 *
 * Notation: T tokens of a batch, D width, H query heads, Hk KV heads, Dh head width, F feed-forward
 * width, V vocabulary. Results do not depend on the number of threads.
 */
#ifndef SKV_TRAIN_NET_H
#define SKV_TRAIN_NET_H

#include "base/pool.h"
#include "data/data.h"
#include "format/source.h"
#include "kernels/cpu.h"
#include "skv/train.h"
#include "train/param.h"

typedef struct skv_net skv_net;

typedef enum skv_loss_kind {
    SKV_LOSS_LM, /* cross-entropy with the targets */
    SKV_LOSS_KL  /* tau^2 KL(teacher || student) */
} skv_loss_kind;

/* KV Prediction (arXiv:2410.08391): the model in training is the auxiliary of a frozen base. */
typedef struct skv_net_prediction {
    const skv_config *base;   /* borrowed, as everything here */
    const skv_source *source; /* of the base */
    const uint16_t *layers;   /* [n_layers of the base]: which of the auxiliary predicts it */
    const struct skv_safetensors *file; /* where the predictor begins; NULL: a random draw */
    const char *path;                   /* of it, for errors */
    bool identity;                      /* square maps begin as the identity instead */
    double base_loss, auxiliary_loss, consistency_loss; /* weights of the three */
    bool own_answers; /* rows of an answer see their own keys and values, as in use */
} skv_net_prediction;

typedef struct skv_net_options {
    size_t threads;    /* 0: one for each processor allowed */
    skv_cpu_level cpu; /* best: 0 */
    size_t max_tokens; /* of a batch */
    bool bf16;         /* products of operands rounded to bf16; else all f32 */
    bool student;      /* a SwiftKV model runs with its *_swiftkv projections */
    skv_loss_kind loss;
    double tau;         /* temperature of the KL loss */
    double hidden_mult; /* of the MSE on the input of the last layer; 0: none */
    double router_loss; /* weight of the loss that balances experts; 0: none */
    bool all_positions; /* the KL loss counts masked positions in its denominator */
    bool early_exit;    /* the exit head that the configuration has is trained too */
    bool (*trainable)(void *user, const skv_param *p); /* by role and layer; NULL: none */
    void *user;
    const skv_net_prediction *prediction; /* NULL: none; copied */
    const uint16_t *layer_from; /* [n_layers]: the source's layer of each; NULL: the same */
    skv_pool *pool;             /* to share; NULL: its own */
    bool foreign_kv;            /* every layer has a backward pass, to keys and values of others */
    uint64_t seed;              /* of random weights */
    bool plan;                  /* only count the memory: loads nothing, and nothing can be run */
} skv_net_options;

/* Sums of one batch; divided by the denominators they are the losses. */
typedef struct skv_net_sums {
    double loss;    /* sum over positions of CE, or of tau^2 KL */
    double hidden;  /* sum over elements of the squared difference */
    double balance; /* of the router logits, times tokens: see net_balance.c */
    size_t n_loss;  /* positions that `loss` has terms of */
    /* With a prediction, `loss` is the base's: cross-entropy of the auxiliary, and the distance of
     * keys and of values, summed over layers, over tokens, as a mean over a row's elements. */
    double auxiliary, consistency;
    /* Of the exit head: its loss, and how often its most likely token was the final one, counted
     * on a sample of the positions by the probability it gave to it. */
    double exit;
    double exit_seen[SKV_TRAIN_EXIT_BINS], exit_agreed[SKV_TRAIN_EXIT_BINS];
} skv_net_sums;

/** to += from. */
void skv_net_sums_add(skv_net_sums *to, const skv_net_sums *from);

/* The denominators of a batch's sums, so that several batches can make one step. */
typedef struct skv_net_scale {
    double positions; /* of the loss */
    double hidden;    /* elements of the hidden loss */
    double tokens;    /* of the consistency and the balancing loss: all there are */
} skv_net_scale;

/**
 * Builds the model and loads its weights; source NULL makes random ones. A SwiftKV configuration
 * over a source without SwiftKV weights initialises them as skv_transform does. Configuration and
 * source are borrowed: rows of frozen matrices are read from the source again when needed.
 */
SKV_MUST_CHECK skv_status skv_net_create(const skv_config *config, const skv_source *source,
                                         const skv_net_options *options, skv_net **out,
                                         skv_error *err);
void skv_net_free(skv_net *net);

skv_params *skv_net_params(skv_net *net);
skv_pool *skv_net_pool(skv_net *net);
/** The frozen base of an auxiliary model in training, NULL for other nets. */
skv_net *skv_net_base(const skv_net *net);
/* Bytes that it holds beside its parameters. */
typedef struct skv_net_bytes {
    size_t kept;   /* activations for the backward pass */
    size_t packed; /* frozen weights in the form of their products */
    size_t scratch;
} skv_net_bytes;

skv_net_bytes skv_net_count_bytes(const skv_net *net);
/** Floating-point operations of a step of n tokens, n_loss of which have a loss. */
double skv_net_flops(const skv_net *net, size_t n_tokens, size_t n_loss);
/** Returns the number of positions of a batch that the loss counts. */
size_t skv_net_count(const skv_net *net, const skv_train_batch *batch);

void skv_net_zero_gradients(skv_net *net);
/** Forward and, with `backward`, backward: gradients of loss / scale are added up. */
SKV_MUST_CHECK skv_status skv_net_run(skv_net *net, const skv_train_batch *batch,
                                      const skv_net_scale *scale, bool backward, skv_net_sums *sums,
                                      skv_error *err);

#endif
