/**
 * Training: from scratch, fine-tuning, distillation of SwiftKV models with the original model as
 * the teacher (arXiv:2410.03960, section 3.4), KV Prediction (arXiv:2410.08391), and heads that
 * predict further tokens.
 */
#ifndef SKV_TRAIN_H
#define SKV_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/documents.h"
#include "skv/error.h"
#include "skv/team.h"

SKV_BEGIN

typedef enum skv_train_task {
    SKV_TRAIN_DISTILL, /* distil a SwiftKV student from its own teacher */
    SKV_TRAIN_FINETUNE,
    SKV_TRAIN_SCRATCH, /* start from random weights: the folder needs config.json and a tokenizer */
    SKV_TRAIN_KVPRED,  /* an auxiliary model and linear maps for a frozen base (arXiv:2410.08391) */
    SKV_TRAIN_MTP      /* the head of a frozen Qwen 3.5 that drafts (--speculate mtp) */
} skv_train_task;

typedef enum skv_train_loss {
    SKV_TRAIN_KL, /* tau^2 KL(teacher || student); of a head the teacher is its model */
    SKV_TRAIN_LM  /* cross-entropy with the text */
} skv_train_loss;

typedef enum skv_train_part {
    SKV_TRAIN_QKV,  /* the *_swiftkv projections and norm_swiftkv */
    SKV_TRAIN_DEEP, /* all weights of the layers from l on, and norm_swiftkv */
    SKV_TRAIN_ALL,
    SKV_TRAIN_EXIT /* the exit head alone */
} skv_train_part;

typedef enum skv_train_schedule {
    SKV_TRAIN_CONSTANT,
    SKV_TRAIN_LINEAR,
    SKV_TRAIN_COSINE
} skv_train_schedule;

enum { SKV_TRAIN_EXIT_BINS = 20 };

/* The state after a step. */
typedef struct skv_train_progress {
    uint64_t step, steps; /* steps done, and steps of all stages */
    size_t stage;
    double loss, hidden;        /* losses of the step */
    double rate, norm;          /* learning rate; norm of the gradients before clipping */
    size_t tokens, loss_tokens; /* of the step */
    double seconds, tokens_s;   /* time since the start; speed of the last steps */
    double eta;                 /* seconds left */
    bool checkpoint;            /* a checkpoint was written after the step */
    double held, held_first;    /* loss of the held-out rows now and at the beginning; both 0: not
                                 * measured after this step */
    bool flat;                  /* and it no longer falls: this step is the last */
    double auxiliary, consistency; /* KV Prediction; `loss` is that of the base */
    double balance;                /* of a mixture's trained routers; k: experts are used evenly */
    /* Early exit: its loss, and a calibration histogram over a sample of positions. Bin b holds the
     * positions whose most likely token has a probability in [b, b + 1) / 20: their number, and how
     * many of them agree with the full model. */
    double exit;
    double exit_seen[SKV_TRAIN_EXIT_BINS], exit_agreed[SKV_TRAIN_EXIT_BINS];
} skv_train_progress;

enum { SKV_TRAIN_STAGES_MAX = 16, SKV_TRAIN_DATA_MAX = 7 };

/* Which tokens of a source count in the loss at the output head. The others only count in the
 * hidden loss. */
typedef enum skv_train_learn {
    SKV_LEARN_ANSWERS, /* the answers of conversations, and all tokens of other texts */
    SKV_LEARN_ALL,
    SKV_LEARN_NONE
} skv_train_learn;

/* A source of documents. */
typedef struct skv_train_data {
    const char *file; /* text, .jsonl, token ids (.u16, .u32, .json); NULL: generated */
    skv_documents_options
        documents; /* for generated documents; tokens_max 0: the sequence length */
    double weight; /* share of the tokens, relative to the other weights */
    skv_train_learn learn;

    /* Text sampled from the teacher (skv/self_text.h). The caller generates it before the run and
     * sets `file`. */
    uint64_t self_tokens; /* 0: none */
    double temperature;   /* sampling temperature */
    const char *begin;    /* file with lines that documents begin with; NULL: only BOS */
} skv_train_data;

/* A stage of a run, with its own data and schedule. */
typedef struct skv_train_stage {
    uint64_t steps;
    size_t seq;        /* tokens of a sequence */
    size_t rows;       /* sequences of a batch */
    size_t accumulate; /* batches of a step */
    double fuse; /* share of the rows with documents that attend to earlier documents of the row */
    double rate, warmup_share; /* learning rate; warm-up as a share of the steps */
    double final_share;        /* final learning rate as a share of `rate` */
    skv_train_schedule schedule;
    skv_train_data data[SKV_TRAIN_DATA_MAX];
    size_t n_data;
} skv_train_stage;

/* Options of a run. Strings are borrowed. */
typedef struct skv_train_options {
    skv_train_task task;
    const char *model; /* a folder or a GGUF file */
    const char *out;   /* a new folder, also for checkpoints */

    /* l and g of the student, if the model has no SwiftKV weights yet. */
    size_t kv_layers, group; /* 0: those of the model; group 0: 1 */

    skv_train_stage stages[SKV_TRAIN_STAGES_MAX];
    size_t n_stages;
    uint64_t seed;

    /* The training objective. */
    skv_train_loss loss;
    skv_train_part part;
    double tau, hidden_mult;
    double router_loss; /* weight of the loss that balances experts; negative: the model's
                           router_aux_loss_coef */
    bool all_positions; /* count masked positions in the denominator of the KL loss */
    bool early_exit;    /* also train a head on norm_swiftkv(x_l) (B.4) */

    /*
     * KV Prediction: `model` is the base. `auxiliary` is the folder of a model, the config.json of
     * a new one, or lp-0.25, lp-0.50, lp-0.75 for a copy of the base with that share of its layers.
     * NULL: continue with the auxiliary that `model` has. `kvp_layers` lists, for each layer of the
     * base, the auxiliary's layer that predicts it, for example "0,0,1,1"; NULL: as in the paper's
     * Table 1.
     */
    const char *auxiliary, *kvp_layers;
    double base_loss, auxiliary_loss; /* weights of the two cross-entropies */
    double consistency_loss; /* weight of the loss of keys and values; negative: 1 / layers of the
                                base */
    bool own_answers; /* answers attend to the base's own keys and values among themselves, as in
                       * inference. Otherwise all keys and values are predicted, as in the paper */
    bool identity;    /* initialise a new predictor with identity maps where shapes allow, not at
                         random */

    /* Optimiser and execution. */
    double beta1, beta2, eps, weight_decay, max_norm;
    size_t threads;  /* 0: one per processor */
    const char *cpu; /* as in skv_engine_options */
    bool f32;        /* compute products in f32 instead of bf16 */
    /* Processes that share the rows of every step; NULL: only this one. All need the same options,
     * model and data. Their number must divide rows * accumulate. Process 0 writes the files. All
     * return the same status. */
    const skv_team *team;

    /* Output. */
    /* The first batches of the first stage's data are kept out of the training (until the data
     * repeats). Their loss is measured before the first step and after the last. 0: none */
    size_t held_out;
    /* Measures the loss of held_out batches (4 if it is 0) 40 times a run. The run ends when four
     * consecutive measurements together improve the loss by less than 1 % of the total improvement.
     * One stage, one process. */
    bool until_flat;
    uint64_t checkpoint_every; /* steps between checkpoints; 0: only at the end and when stopped */
    bool resume;               /* continue from the last good checkpoint in `out` */
    bool drop_teacher;         /* do not write the projections that only the teacher uses */
    bool f32_weights;          /* write all weights as f32 instead of the model's types */
    bool delta; /* write only the differences from `model`, which must lie beside `out` */

    /* Called after each step, in a team on every process. If any call returns false, the run writes
     * a checkpoint and stops. May be NULL. */
    bool (*on_step)(void *user, const skv_train_progress *progress);
    void *user;
} skv_train_options;

/** Returns the defaults of a task: one stage without data. */
SKV_API skv_train_options skv_train_options_default(skv_train_task task);
/** Returns a source with weight 1 that learns ANSWERS from a file. */
SKV_API skv_train_data skv_train_data_default(const char *file);

/* The estimated cost of a run. */
typedef struct skv_train_cost {
    uint64_t parameters, trainable;
    size_t
        weight_bytes; /* f32 weights: trained ones, and frozen ones that are small or not packed */
    size_t packed_bytes; /* frozen weights, packed for the kernels */
    size_t gradient_bytes, optimiser_bytes, teacher_bytes;
    size_t activation_bytes; /* kept for the backward pass */
    size_t scratch_bytes;
    size_t tokens;     /* of a step of the largest stage */
    double step_flops; /* of such a step */
    double run_tokens, run_flops;
} skv_train_cost;

/** Estimates the cost of a run from the model's configuration. It reads no weights or data. */
SKV_CHECKED skv_status skv_train_plan(const skv_train_options *options, skv_train_cost *out,
                                      skv_error *err);

/** Checks that a run can write to options->out: a new folder, or one that holds only the remains of
 * a stopped run; writable; with room for the least that the run writes. Creates nothing. */
SKV_CHECKED skv_status skv_train_check_out(const skv_train_options *options, skv_error *err);

/**
 * Trains and writes the model to options->out. If the loss is not finite, it fails; the message
 * names the step, the batch and the last good checkpoint. Returns SKV_CANCELLED if on_step stopped
 * the run.
 */
SKV_CHECKED skv_status skv_train_run(const skv_train_options *options, skv_error *err);

SKV_END

#endif
