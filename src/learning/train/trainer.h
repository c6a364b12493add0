/*
 * One training run: steps of gradient descent over batches of any source, with checkpoints from
 * which a run continues bit for bit.
 */
#ifndef SKV_TRAIN_TRAINER_H
#define SKV_TRAIN_TRAINER_H

#include <jansson.h>

#include "format/tensor_out.h"
#include "skv/train.h"
#include "train/net.h"
#include "train/optim.h"

/* A source of the batches of a stage. */
typedef struct skv_trainer_feed {
    void *ctx;
    /* Opens the data of a stage and closes those of the previous call. */
    skv_status (*open)(void *ctx, size_t i_stage, skv_batch_source *out, skv_error *err);
} skv_trainer_feed;

/* The model that KV Prediction trains, beside its base. */
typedef struct skv_auxiliary {
    skv_source *source;       /* owned; NULL from scratch and for a pruned copy */
    skv_config own_config;    /* owned; of these two */
    const skv_config *config; /* of one of the two */
    bool pruned;
    uint16_t kept[SKV_LAYERS_MAX];   /* of a pruned copy: the base's layers */
    uint16_t layers[SKV_LAYERS_MAX]; /* which of its layers predicts which of the base's */
    char *text;                      /* owned: its config.json, [n_text]; NULL: pruned */
    size_t n_text;
    struct skv_safetensors *file; /* owned: a predictor to go on from; NULL: a new one */
    char *path;                   /* owned: of the file */
} skv_auxiliary;

/* The head of task mtp. */
typedef struct skv_train_mtp {
    skv_source *source;       /* owned; NULL: the model has none, and gets a new one */
    skv_config own_config;    /* owned; of a new one */
    const skv_config *config; /* of one of the two */
} skv_train_mtp;

/* A batch of a step that has several: their number of losses is known before the first runs. */
typedef struct skv_train_copy {
    skv_train_batch batch;           /* this process's rows */
    size_t n_tokens;                 /* of all rows */
    int32_t *ids, *targets;          /* owned */
    uint32_t *positions, *doc_start; /* owned */
} skv_train_copy;

enum { SKV_TRAIN_FLAT_TIMES = 4 };

/* Rows that are measured and not trained on. */
typedef struct skv_train_held {
    skv_train_copy *copies; /* owned, [n_copies] */
    size_t n_copies;
    skv_net_scale scale;               /* of all processes */
    bool begun;                        /* `first` is set: measured, or from the checkpoint */
    double first;                      /* loss at the run's beginning */
    double best[SKV_TRAIN_FLAT_TIMES]; /* the best up to the last measurements, oldest first */
    size_t n;                          /* measurements after the first */
} skv_train_held;

typedef struct skv_trainer {
    const skv_train_options *options; /* borrowed */
    skv_source *source;               /* owned; NULL from scratch */
    skv_config config;                /* with l and g; `layers` borrowed or owned_layers */
    skv_config own_config;            /* from scratch: owned */
    skv_auxiliary *auxiliary; /* owned; NULL but for KV Prediction, where config and source are
                               * the base's and net is the auxiliary with the predictor */
    skv_train_mtp *mtp;       /* owned; NULL but for task mtp, where config and source are the
                               * model's and net is the head */
    skv_net *net;             /* owned */
    skv_adamw opt;
    skv_trainer_feed feed;
    size_t i_stage;
    uint64_t stage_start, steps; /* step that the stage began with; of all stages */
    skv_schedule schedule;       /* of the stage */
    skv_batch_source data;       /* of the stage, borrowed */
    uint64_t step;               /* steps done */
    uint64_t last_good;          /* step of the last checkpoint; UINT64_MAX: none */
    skv_train_copy *copies;      /* owned, [n_copies]: the batches of a step */
    size_t n_copies;
    skv_train_held held; /* without copies: no rows are held out */
    float *team_scratch; /* owned, [skv_team_scratch]: of sums over processes */
} skv_trainer;

/** Opens the model and makes it ready. */
SKV_MUST_CHECK skv_status skv_trainer_open(skv_trainer *trainer, const skv_train_options *options,
                                           skv_error *err);
/** The same without weights: there is nothing to do with it but to count. */
SKV_MUST_CHECK skv_status skv_trainer_plan(skv_trainer *trainer, const skv_train_options *options,
                                           skv_error *err);
void skv_trainer_close(skv_trainer *trainer);
/** Counts the memory and work that it takes, or would take. */
void skv_trainer_count(skv_trainer *trainer, skv_train_cost *out);
/** Runs the remaining steps; continues from the last checkpoint if options->resume is set. */
SKV_MUST_CHECK skv_status skv_trainer_run(skv_trainer *trainer, const skv_trainer_feed *feed,
                                          skv_error *err);

/* ---- trainer_batch.c ---- */

/** Draws a batch and keeps a copy of it. */
SKV_MUST_CHECK skv_status skv_trainer_fetch(skv_trainer *trainer, skv_train_copy *out,
                                            skv_error *err);
void skv_train_copy_clear(skv_train_copy *copy);

/* ---- trainer_held.c: rows that are held out; the functions do nothing if there are none ---- */

/** Removes the first batches of the data; training begins after them. */
SKV_MUST_CHECK skv_status skv_trainer_hold_out(skv_trainer *trainer, skv_error *err);
void skv_trainer_release_held(skv_trainer *trainer);
/** Their loss before the first step, unless a checkpoint had it. */
SKV_MUST_CHECK skv_status skv_trainer_begin_held(skv_trainer *trainer, skv_error *err);
/** Measures their loss after a step if due, and decides whether the run should end with it. */
SKV_MUST_CHECK skv_status skv_trainer_watch_held(skv_trainer *trainer, skv_train_progress *p,
                                                 skv_error *err);

/* ---- train_checkpoint.c: where a run is, and how it gets there again ---- */

/** Opens data and schedule of the stage that the next step belongs to. */
SKV_MUST_CHECK skv_status skv_trainer_enter_stage(skv_trainer *trainer, skv_error *err);

/**
 * OUT/checkpoint/ has two folders, a and b, and latest.json, which names the good one: a new
 * checkpoint goes to the other folder, and only when all of it is on the disk latest.json is
 * replaced. Killed at any moment, the one named there is whole.
 */
SKV_MUST_CHECK skv_status skv_checkpoint_write(const skv_trainer *trainer, skv_error *err);
SKV_MUST_CHECK skv_status skv_checkpoint_read(skv_trainer *trainer, skv_error *err);
/** Returns the options that a run must share with the one that it continues; NULL when out of
 * memory. */
json_t *skv_checkpoint_options(const skv_trainer *trainer);

/* ---- trainer_team.c: all of it is nothing or the plain thing for one process ---- */

SKV_MUST_CHECK skv_status skv_trainer_check_team(const skv_train_options *options, skv_error *err);
/** The most tokens of a batch that this process works on. */
size_t skv_trainer_tokens(const skv_train_options *options);
/** Returns this process's rows of batch i of a step. doc_start [n_tokens] receives values relative
 * to these rows, and may be the batch's own. */
skv_train_batch skv_trainer_cut(const skv_trainer *trainer, size_t i, const skv_train_batch *whole,
                                uint32_t *doc_start);
/** All processes have the same options and weights, and processors that round alike. */
SKV_MUST_CHECK skv_status skv_trainer_meet(const skv_trainer *trainer, skv_error *err);
uint64_t skv_trainer_hash_batch(uint64_t hash, const skv_train_batch *batch);
/** Sums and gradients become those of all processes; `data` is the hash of the step's batches. */
SKV_MUST_CHECK skv_status skv_trainer_add_up(skv_trainer *trainer, skv_net_sums *sums,
                                             uint64_t data, skv_error *err);
/** A checkpoint written, and read, by process 0, which alone needs its files. */
SKV_MUST_CHECK skv_status skv_trainer_save(const skv_trainer *trainer, skv_error *err);
SKV_MUST_CHECK skv_status skv_trainer_restore(skv_trainer *trainer, skv_error *err);

/* ---- auxiliary.c: KV Prediction ---- */

/** Opens the model options->auxiliary for the base that is open. */
SKV_MUST_CHECK skv_status skv_auxiliary_open(skv_trainer *trainer, skv_error *err);
void skv_auxiliary_close(skv_auxiliary *auxiliary);
/** Which layer predicts which, as a JSON list; NULL when out of memory. */
json_t *skv_auxiliary_layers(const skv_trainer *trainer);

/* ---- train_mtp.c ---- */

/** Opens the model's head, or describes a new one. */
SKV_MUST_CHECK skv_status skv_train_mtp_open(skv_trainer *trainer, skv_error *err);
void skv_train_mtp_close(skv_train_mtp *mtp);
/** Creates the trainer's net with these options. */
SKV_MUST_CHECK skv_status skv_train_mtp_create(skv_trainer *trainer, skv_net_options *net,
                                               skv_error *err);
SKV_MUST_CHECK skv_status skv_train_mtp_export(const skv_trainer *trainer, skv_error *err);

/* ---- train_out.c ---- */

/** Whether a run can write to options->out, and `least` bytes are free there. */
SKV_MUST_CHECK skv_status skv_trainer_check_folder(const skv_train_options *options, uint64_t least,
                                                   skv_error *err);

/* ---- train_copy.c ---- */

/** A tensor that is written as it is, or as bf16 if it is quantised; its name is the tensor's. */
skv_tensor_out skv_trainer_copied(const skv_tensor *tensor);

/* ---- train_export.c ---- */

/** Whether the result can be written as the options want it; options->out exists. */
SKV_MUST_CHECK skv_status skv_trainer_check_export(const skv_trainer *trainer, skv_error *err);
/** Writes the model as it is now to options->out, in the published layout, or with its predictor
 * (docs/reference/file-formats.md). */
SKV_MUST_CHECK skv_status skv_trainer_export(const skv_trainer *trainer, skv_error *err);

#endif
