/**
 * Recipes: all that a training run is made of, in one YAML file. Every key is an option of the
 * program too, and one table says what the keys are.
 *
 *     task: scratch
 *     model: our-base
 *     out: run-1
 *     seq: 1Ki
 *     lr: 1e-3
 *     data:
 *       - {generate: "stage:copy", weight: 3}
 *       - {file: prose.txt, weight: 1, loss: all}
 *     stages:
 *       - {steps: 2K, seq: 128}
 *       - {steps: 10K, warmup: 1%}
 *
 * A stage has what stands outside of `stages`, but for the keys it gives itself. Numbers may be
 * written as 1K, 2M, 3G (thousands), 4Ki, 5Mi (1024), 2^20, 1e6, 5%. Files are found from where
 * the program runs. `task` comes first in effect: the other defaults are the task's.
 */
#ifndef SKV_RECIPE_H
#define SKV_RECIPE_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/train.h"

SKV_BEGIN

/* The texts that the options borrow are owned by the recipe. */
typedef struct skv_recipe {
    skv_train_options options;
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
/** Sets one key by hand, for the run or for all of its stages. `data` takes "FILE",
 * "generate:TASKS", "self:TOKENS", or what a recipe has there, "{file: FILE, weight: 2}"; it
 * replaces what there was. `stages` takes a list as a recipe has it. */
SKV_CHECKED skv_status skv_recipe_set(skv_recipe *recipe, const char *key, const char *value,
                                      skv_error *err);
/** `data` beside what there is. */
SKV_CHECKED skv_status skv_recipe_add_data(skv_recipe *recipe, const char *value, skv_error *err);

/* What a key is, for help texts. */
typedef struct skv_recipe_key {
    const char *name, *argument, *help;
    bool of_stage;
    bool flag; /* "no|yes" */
} skv_recipe_key;
/** The i-th key, false at the end. */
SKV_API bool skv_recipe_key_at(size_t i, skv_recipe_key *out);

/** Reads 12, 1.5, 1K, 4Ki, 2^20, 5%; false when it is no such number. */
SKV_API bool skv_number_parse(const char *text, double *out);

SKV_END

#endif
