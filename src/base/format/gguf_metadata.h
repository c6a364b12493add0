/* A configuration as the metadata of a GGUF file: the other way of gguf_config.c. */
#ifndef SKV_FORMAT_GGUF_METADATA_H
#define SKV_FORMAT_GGUF_METADATA_H

#include "format/config.h"
#include "format/gguf_write.h"

/** Appends the entries of a model, but for its tokenizer and the type of its weights. Fails with
 * SKV_UNSUPPORTED, naming the field, where GGUF has no place for something. */
SKV_MUST_CHECK skv_status skv_gguf_put_config(const skv_config *c, skv_gguf_out *out,
                                              skv_error *err);
/** The tensor rope_freqs.weight: divisors of the frequencies, factors [n]; returns n = n_rot / 2,
 * or 0 where the model has none. */
size_t skv_gguf_rope_factors(const skv_config *c, float factors[SKV_ROPE_FACTORS_MAX]);
/** Returns GGUF's name of the tensor that source.h calls `name`; false if it has none. *in_pairs:
 * the rows of each head are stored in pair order (SKV_NAME_INTERLEAVE). */
SKV_MUST_CHECK bool skv_gguf_name_of(const skv_config *c, const char *name, char *out, size_t size,
                                     bool *in_pairs);

#endif
