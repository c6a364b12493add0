/*
 * The text that a model is calibrated with, in batches of one row, once from beginning to end:
 * the files that training takes, in the order that training would read them in.
 */
#ifndef SKV_DATA_CALIBRATION_TEXT_H
#define SKV_DATA_CALIBRATION_TEXT_H

#include "data/data.h"
#include "format/source.h"
#include "skv/tools.h"

typedef struct skv_calibration_text {
    skv_tokenizer *tokenizer; /* owned; NULL: the model brings none */
    skv_data *data;           /* owned */
    skv_batch_source source;
    size_t seq, n_tokens; /* of a row; wanted in all */
} skv_calibration_text;

SKV_MUST_CHECK skv_status skv_calibration_text_open(const char *path, const skv_source *source,
                                                    const skv_transform_options *options,
                                                    skv_calibration_text *out, skv_error *err);
void skv_calibration_text_close(skv_calibration_text *text);

/** The next batch, valid until the next call; *more is false, and the batch untouched, when the
 * whole text has been given out. */
SKV_MUST_CHECK skv_status skv_calibration_text_next(skv_calibration_text *text,
                                                    skv_train_batch *batch, bool *more,
                                                    skv_error *err);

#endif
