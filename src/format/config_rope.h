/* config.json's rotary settings -> skv_rope, in the spellings of transformers 4 and 5. */
#ifndef SKV_FORMAT_CONFIG_ROPE_H
#define SKV_FORMAT_CONFIG_ROPE_H

#include "format/config.h"
#include "format/json_doc.h"

/* What the rest of the configuration says about rotation. */
typedef struct skv_rope_context {
    size_t head_dim;
    size_t context;          /* max_position_embeddings */
    size_t original_context; /* the model's own default, 0: as `context` */
    double theta;            /* default */
    const char *theta_key;   /* transformers 4: "rope_theta" or "rope_local_base_freq" */
    bool yarn_is_longrope;   /* Phi-3's first files */
} skv_rope_context;

/**
 * `top` is config.json, `scaling` its rope_scaling or rope_parameters (or the member of that for
 * one kind of layer); empty where there is none. Failures go to top->status.
 */
void skv_rope_from_json(skv_json_reader *top, skv_json_reader scaling, const skv_rope_context *in,
                        skv_rope *out);

/** sqrt(1 + ln(factor) / ln(original)), LongRoPE's factor on cos and sin (1 for factor <= 1). */
double skv_longrope_attention(double factor, size_t original_context);

#endif
