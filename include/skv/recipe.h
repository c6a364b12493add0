/**
 * Recipes: a training run described by one YAML file. Every key is also a command-line option; one
 * table defines both.
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
 * A stage inherits the keys outside `stages` that it does not set itself. Numbers may be written as
 * 1K, 2M, 3G (powers of 1000), 4Ki, 5Mi (powers of 1024), 2^20, 1e6 or 5%. File names are relative
 * to the working directory. `task` takes effect first, because the other defaults depend on it.
 */
#ifndef SKV_RECIPE_H
#define SKV_RECIPE_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/train.h"

SKV_BEGIN

/* The recipe owns the strings that its options borrow. */
typedef struct skv_recipe {
    skv_train_options options;
    struct skv_recipe_texts *texts; /* owned */
} skv_recipe;

/** Initialises a recipe with one stage and the defaults of the task. */
SKV_API void skv_recipe_init(skv_recipe *recipe, skv_train_task task);
SKV_API void skv_recipe_release(skv_recipe *recipe);

/** Reads a YAML file. The error names the line of an unknown key or a bad value. */
SKV_CHECKED skv_status skv_recipe_read(const char *path, skv_recipe *recipe, skv_error *err);
/** Parses YAML text[0..n). `name` is used in error messages. */
SKV_CHECKED skv_status skv_recipe_parse(const char *text, size_t n, const char *name,
                                        skv_recipe *recipe, skv_error *err);
/** Sets one key, for the run or for all of its stages. `data` takes "FILE", "generate:TASKS",
 * "self:TOKENS" or YAML as in a recipe, "{file: FILE, weight: 2}", and replaces all sources.
 * `stages` takes a YAML list. */
SKV_CHECKED skv_status skv_recipe_set(skv_recipe *recipe, const char *key, const char *value,
                                      skv_error *err);
/** Adds a source to `data`. */
SKV_CHECKED skv_status skv_recipe_add_data(skv_recipe *recipe, const char *value, skv_error *err);

/* A key, for help texts. */
typedef struct skv_recipe_key {
    const char *name, *argument, *help;
    bool flag; /* "no|yes" */
} skv_recipe_key;
/** Describes the i-th key. Returns false after the last. */
SKV_API bool skv_recipe_key_at(size_t i, skv_recipe_key *out);

SKV_END

#endif
