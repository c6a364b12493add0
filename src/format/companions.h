/* The files beside a model's weights: tokenizer, chat template, sampling defaults. */
#ifndef SKV_FORMAT_COMPANIONS_H
#define SKV_FORMAT_COMPANIONS_H

#include "base/fail.h"

/** Copies those that are there from one model's folder to another's. */
SKV_MUST_CHECK skv_status skv_companions_copy(const char *from, const char *to, skv_error *err);

#endif
