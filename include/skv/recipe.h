/**
 * Recipes: all that a training run is made of, in one YAML file. Every key is an option of the
 * program too, and one table says what the keys are.
 *
 *     task: scratch
 *     model: our-base
 *     out: run-1
 *     seq: 1Ki
 *     rate: 1e-3
 *     data:
 *       - {generate: "stage:copy", weight: 3}
 *       - {file: prose.txt, weight: 1, loss: all}
 *     stages:
 *       - {steps: 2K, seq: 128}
 *       - {steps: 10K, warmup: 1%}
 *
 * A stage has what stands outside of `stages`, but for the keys it gives itself. Numbers may be
 * written as 1K, 2M, 3G (thousands), 4Ki, 5Mi (1024), 2^20, 1e6, 5%.
 */
#ifndef SKV_RECIPE_H
#define SKV_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/documents.h"
#include "skv/train.h"

SKV_BEGIN

enum { SKV_RECIPE_STAGES_MAX = 16, SKV_RECIPE_DATA_MAX = 7 };

/* Texts are owned by the recipe. */
typedef struct skv_recipe_data {
    const char *file;                /* text, .jsonl, .u16 or .u32; NULL: generated */
    skv_documents_options documents; /* of generated ones; tokens_max 0: the row */
    double weight;                   /* share of the tokens */
    bool loss_all;                   /* every token is learnt, not the answers alone */
} skv_recipe_data;

/* What may change during a run. */
typedef struct skv_recipe_stage {
    uint64_t steps;
    size_t seq, rows, accumulate;
    double rate, warmup_share, final_share;
    skv_train_schedule schedule;
    skv_recipe_data data[SKV_RECIPE_DATA_MAX];
    size_t n_data;
} skv_recipe_stage;

/* What holds for the whole run. */
typedef struct skv_recipe {
    skv_train_task task;
    const char *model, *out; /* NULL: not given */
    size_t kv_layers, group;
    uint64_t seed, checkpoint_every;
    skv_train_loss loss;
    skv_train_part part;
    double tau, hidden_mult;
    bool all_positions;
    double beta1, beta2, eps, weight_decay, max_norm;
    size_t threads;
    const char *cpu;
    bool f32, drop_teacher, f32_weights;
    skv_recipe_stage stages[SKV_RECIPE_STAGES_MAX];
    size_t n_stages;                /* at least 1 once read */
    struct skv_recipe_texts *texts; /* owned */
} skv_recipe;

/** One stage, with the defaults of a run of this task. */
SKV_API void skv_recipe_init(skv_recipe *recipe, skv_train_task task);
SKV_API void skv_recipe_release(skv_recipe *recipe);

/** Reads a YAML file; an unknown key or a bad value is named with its line. */
SKV_CHECKED skv_status skv_recipe_read(const char *path, skv_recipe *recipe, skv_error *err);
/** The same from memory; `name` is for errors. */
SKV_CHECKED skv_status skv_recipe_parse(const char *text, size_t n, const char *name,
                                        skv_recipe *recipe, skv_error *err);
/** Sets one key by hand, for the run or for all of its stages. `data` takes "FILE" or
 * "generate:TASKS" and replaces what there was. */
SKV_CHECKED skv_status skv_recipe_set(skv_recipe *recipe, const char *key, const char *value,
                                      skv_error *err);

/* What a key is, for help texts. */
typedef struct skv_recipe_key {
    const char *name, *argument, *help;
    bool of_stage;
} skv_recipe_key;
/** The i-th key, false at the end. */
SKV_API bool skv_recipe_key_at(size_t i, skv_recipe_key *out);

/** Reads 12, 1.5, 1K, 4Ki, 2^20, 5%; false when it is no such number. */
SKV_API bool skv_number_parse(const char *text, double *out);

SKV_END

#endif
