/*
 * Runs a text through a model to observe the inputs of its layers: the engine runs it in steps and
 * reports hidden states or the inputs of products. It may run several times.
 */
#ifndef SKV_TRAIN_CALIBRATE_H
#define SKV_TRAIN_CALIBRATE_H

#include "format/source.h"
#include "skv/tools.h"

typedef struct skv_calibration skv_calibration;

typedef struct skv_calibration_options {
    const char *const *data; /* [n_data]: text, .jsonl or token ids; borrowed */
    size_t n_data;
    size_t tokens; /* most to read; 0: 32 for each column of x, within 2^15..2^17 */
    size_t seq;    /* the longest sequence; 0: the model's context, at most 1024 */
    uint64_t seed; /* for the order in which the text is read */
    size_t threads;
    const char *cpu;     /* as in skv_engine_options, and so is the next */
    skv_weights weights; /* while the model reads the text */
} skv_calibration_options;

/* The callbacks; set one of the first two. */
typedef struct skv_calibration_sink {
    skv_hidden_fn *on_hidden;
    skv_product_fn *on_product;
    void *user;
    void (*progress)(void *user, double share); /* may be NULL */
    void *progress_user;
} skv_calibration_sink;

/** The model at `path` and a text; the source is the same model. */
SKV_MUST_CHECK skv_status skv_calibration_open(const char *path, const skv_source *source,
                                               const skv_calibration_options *options,
                                               skv_calibration **out, skv_error *err);
void skv_calibration_close(skv_calibration *c);

/** Rows of a step at most. */
size_t skv_calibration_seq(const skv_calibration *c);
/** Reads the text from its beginning; *n_tokens of it went through the model. SKV_ARGUMENT for a
 * text without tokens. */
SKV_MUST_CHECK skv_status skv_calibration_run(skv_calibration *c, const skv_calibration_sink *sink,
                                              size_t *n_tokens, skv_error *err);

#endif
