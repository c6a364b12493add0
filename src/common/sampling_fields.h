/**
 * The fields of skv_sampling, once: for the library's check, the command line, requests, their
 * OpenAPI description, and the pages that tools/make_reference.py writes.
 */
#ifndef SKV_COMMON_SAMPLING_FIELDS_H
#define SKV_COMMON_SAMPLING_FIELDS_H

#include "common/field.h"
#include "skv/skv.h"

/* The longest answer that can be asked for, in tokens; the context bounds it further. */
#define SKV_ANSWER_TOKENS_MAX 1e9

/** The i-th field, NULL at the end. */
const skv_field *skv_sampling_field(size_t i);
/** Checks every field. */
SKV_MUST_CHECK skv_status skv_sampling_check(const skv_sampling *sampling, skv_error *err);

#endif
