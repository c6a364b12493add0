/* The files beside a model's weights: tokenizer, chat template, sampling defaults. */
#ifndef SKV_FORMAT_COMPANIONS_H
#define SKV_FORMAT_COMPANIONS_H

#include "base/fail.h"
#include "format/source.h"

/** Copies those that are there from one model's folder to another's. */
SKV_MUST_CHECK skv_status skv_companions_copy(const char *from, const char *to, skv_error *err);
/** The same from an open model; of a GGUF file, whose weights are written in another form, that is
 * its tokenizer with the chat template (tokenizer_keep.h). */
SKV_MUST_CHECK skv_status skv_companions_write(const skv_source *source, const char *to,
                                               skv_error *err);

#endif
