/**
 * Training: from scratch, fine-tuning, the recovery of SwiftKV models by distillation
 * (arXiv:2410.03960, section 3.4), in which the model is its own teacher, and KV Prediction
 * (arXiv:2410.08391).
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
    SKV_TRAIN_DISTILL, /* recover a SwiftKV student from its own teacher */
    SKV_TRAIN_FINETUNE,
    SKV_TRAIN_SCRATCH, /* random weights: the model's folder needs config.json and a tokenizer */
    SKV_TRAIN_KVPRED   /* an auxiliary model and a predictor for a frozen base (arXiv:2410.08391) */
} skv_train_task;

typedef enum skv_train_loss {
    SKV_TRAIN_KL, /* tau^2 KL(teacher || student) */
    SKV_TRAIN_LM  /* cross-entropy with the text */
} skv_train_loss;

typedef enum skv_train_part {
    SKV_TRAIN_QKV,  /* the *_swiftkv projections and norm_swiftkv */
    SKV_TRAIN_DEEP, /* everything in layers from l on, with norm_swiftkv */
    SKV_TRAIN_ALL
} skv_train_part;

typedef enum skv_train_schedule {
    SKV_TRAIN_CONSTANT,
    SKV_TRAIN_LINEAR,
    SKV_TRAIN_COSINE
} skv_train_schedule;

enum { SKV_TRAIN_EXIT_BINS = 20 };

/* A step that was taken. */
typedef struct skv_train_progress {
    uint64_t step, steps; /* steps done, of how many in all stages */
    size_t stage;
    double loss, hidden;           /* the step's losses */
    double rate, norm;             /* learning rate; norm of the gradients before clipping */
    size_t tokens, loss_tokens;    /* of the step */
    double seconds, tokens_s;      /* since the start; of the last steps */
    double eta;                    /* seconds left */
    bool checkpoint;               /* one was written after it */
    double auxiliary, consistency; /* KV Prediction: `loss` is the base's */
    /* With an early exit: its loss, and on a sample of the positions how often its most likely
     * token was the model's, by the probability it gave to it: bin b holds [b, b + 1) / 20. */
    double exit;
    double exit_seen[SKV_TRAIN_EXIT_BINS], exit_agreed[SKV_TRAIN_EXIT_BINS];
} skv_train_progress;

enum { SKV_TRAIN_STAGES_MAX = 16, SKV_TRAIN_DATA_MAX = 7 };

/* Which tokens of a source have a loss at the head. All others have the hidden loss alone. */
typedef enum skv_train_learn {
    SKV_LEARN_ANSWERS, /* answers of conversations, and all of other texts */
    SKV_LEARN_ALL,
    SKV_LEARN_NONE
} skv_train_learn;

/* Where documents come from. */
typedef struct skv_train_data {
    const char *file; /* text, .jsonl, token ids (.u16, .u32, .json); NULL: generated */
    skv_documents_options documents; /* of generated ones; tokens_max 0: the sequence */
    double weight;                   /* share of the tokens, among all weights */
    skv_train_learn learn;

    /* Text that the teacher writes itself (skv/self_text.h). Whoever starts a run has it written
     * first, and puts it into `file`. */
    uint64_t self_tokens; /* 0: none */
    double temperature;   /* it is sampled with */
    const char *begin;    /* file whose lines begin its documents; NULL: nothing but BOS */
} skv_train_data;

/* A part of a run: what may change from one to the next. Each has a schedule of its own. */
typedef struct skv_train_stage {
    uint64_t steps;
    size_t seq;                /* tokens of a sequence */
    size_t rows;               /* sequences of a batch */
    size_t accumulate;         /* batches of a step */
    double fuse;               /* share of the rows whose documents see those before them */
    double rate, warmup_share; /* warm-up steps as a share of the stage's */
    double final_share;        /* of the rate, that the schedule ends with */
    skv_train_schedule schedule;
    skv_train_data data[SKV_TRAIN_DATA_MAX];
    size_t n_data;
} skv_train_stage;

/* What holds for a whole run. Texts are borrowed. */
typedef struct skv_train_options {
    skv_train_task task;
    const char *model; /* a folder or a GGUF file */
    const char *out;   /* a new folder; checkpoints lie in it */

    /* The student of a model that has no SwiftKV weights yet. */
    size_t kv_layers, group; /* 0: as the model has them; group 0: 1 */

    skv_train_stage stages[SKV_TRAIN_STAGES_MAX];
    size_t n_stages;
    uint64_t seed;

    /* What is learnt. */
    skv_train_loss loss;
    skv_train_part part;
    double tau, hidden_mult;
    bool all_positions; /* masked positions count in the denominator of the KL loss */
    bool early_exit;    /* a head on norm_swiftkv(x_l) is trained beside (B.4) */

    /*
     * KV Prediction: `model` is the base. auxiliary: a folder with a model; a config.json of a new
     * one; lp-0.25, lp-0.50, lp-0.75 for a copy of the base with so many of its layers; NULL where
     * `model` has an auxiliary, which is then trained on. kvp_layers: the auxiliary's layer that
     * predicts each of the base's, as "0,0,1,1"; NULL: as the paper's Table 1.
     */
    const char *auxiliary, *kvp_layers;
    double base_loss, auxiliary_loss; /* weights of the two cross-entropies */
    double consistency_loss;          /* of keys and values; below 0: 1 / layers of the base */
    bool own_answers; /* the base's loss is of answers that see their own keys and values, as in
                       * use; else all that a token sees is predicted, as in the paper */
    bool identity;    /* a new predictor begins with identity maps where shapes allow, not random */

    /* How. */
    double beta1, beta2, eps, weight_decay, max_norm;
    size_t threads;  /* 0: one for each processor */
    const char *cpu; /* as in skv_engine_options */
    bool f32;        /* products in f32, not bf16 */
    /* Several processes share the rows of every step; NULL: this one alone. All must be given the
     * same options and hold the same model and data; process 0 writes. Their number divides
     * rows * accumulate. All end with the same status. */
    const skv_team *team;

    /* Output. */
    uint64_t checkpoint_every; /* steps; 0: only at the end and when stopped */
    bool resume;               /* from the last good checkpoint in `out` */
    bool drop_teacher;         /* leave out the projections that only the teacher uses */
    bool f32_weights;          /* write all weights as f32, not in the model's own types */
    bool delta; /* write only what differs from `model`, a folder that lies beside `out` */

    /* Called after each step, in a team on every process; false, from any, stops the run behind a
     * checkpoint. May be NULL. */
    bool (*on_step)(void *user, const skv_train_progress *progress);
    void *user;
} skv_train_options;

/** One stage, without data. */
SKV_API skv_train_options skv_train_options_default(skv_train_task task);
/** A file with weight 1, of which all texts and the answers of conversations are learnt. */
SKV_API skv_train_data skv_train_data_default(const char *file);

/* What a run will take. */
typedef struct skv_train_cost {
    uint64_t parameters, trainable;
    size_t weight_bytes; /* f32: what is trained, and small or unpacked frozen weights */
    size_t packed_bytes; /* frozen weights in the form of their products */
    size_t gradient_bytes, optimiser_bytes, teacher_bytes;
    size_t activation_bytes; /* kept for the backward pass */
    size_t scratch_bytes;
    size_t tokens;     /* of a step of the largest stage */
    double step_flops; /* of such a step */
    double run_tokens, run_flops;
} skv_train_cost;

/** What a run would take, from the model's configuration: no weights or data are read. */
SKV_CHECKED skv_status skv_train_plan(const skv_train_options *options, skv_train_cost *out,
                                      skv_error *err);

/**
 * Trains and writes the model to options->out. A loss that is not finite ends the run with the
 * step, the batch and the last good checkpoint named. SKV_CANCELLED when on_step stopped it.
 */
SKV_CHECKED skv_status skv_train_run(const skv_train_options *options, skv_error *err);

SKV_END

#endif
