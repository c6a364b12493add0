/* A source from inside, and how opening fills it: shared by source*.c and gguf_*.c. */
#ifndef SKV_FORMAT_SOURCE_IMPL_H
#define SKV_FORMAT_SOURCE_IMPL_H

#include "format/config.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "format/source.h"

struct skv_source {
    char *path; /* owned */
    skv_config config;
    skv_safetensors *safetensors; /* owned; NULL for GGUF */
    skv_safetensors *base;        /* owned; the weights that these leave out, NULL: none */
    skv_gguf *gguf;               /* owned; NULL for a folder */
    skv_tensor *tensors;          /* [n], owned */
    char **names;                 /* [n], owned, each owned */
    size_t n, capacity;
    size_t n_own; /* once the base is read: tensors of the folder itself, which come first */
    skv_name_index index;
    bool has_mtp;     /* it has a head that predicts further tokens, */
    bool is_mtp;      /* or is that head: skv_source_open_mtp */
    size_t mtp_block; /* GGUF: the number of its block: the layers of the model */
};

/* How a tensor of a layer is presented. */
typedef enum skv_name_action {
    SKV_NAME_KEEP,       /* the same data under the name `to` */
    SKV_NAME_QKV,        /* rows [q | k | v], each under its own name */
    SKV_NAME_QKV_BIAS,   /* the same of a bias */
    SKV_NAME_GATE_UP,    /* rows [gate | up], of the block or of `to` with a width of its own */
    SKV_NAME_INTERLEAVE, /* as KEEP; rows of the query or key heads in pair order */
    SKV_NAME_ONLY_NORM,  /* the norm of a layer that mixes or has a block, not both */
    /* Tensors of a layer's experts, [E, rows, columns] or, for biases, [E, rows]. `to` is the part
     * of an expert; each expert's slice becomes mlp.experts.{e}.TO. */
    SKV_NAME_EXPERTS,
    SKV_NAME_EXPERTS_GATE_UP, /* an expert's rows are [gate | up] */
    SKV_NAME_EXPERTS_PAIRS,   /* its rows alternate: gate, up, gate, up */
    /* Tensors of layers that keep a state, and of attention with a gate: source_mixers.c. `to` is
     * "weight" or "bias". */
    SKV_NAME_GATED,      /* head after head: rows of q, then of its gate */
    SKV_NAME_DELTA_QKV,  /* rows [q | k | v] of the delta rule */
    SKV_NAME_DELTA_QKVZ, /* key head after key head: rows of q, of k, of its v and of its z */
    SKV_NAME_DELTA_BA,   /* key head after key head: rows of its b and of its a */
    SKV_NAME_MAMBA_IN,   /* rows of z, x, B, C and dt, which become z, v, k, q and a */
    SKV_NAME_FLAT,       /* as KEEP; of any shape, becomes a vector */
    SKV_NAME_CONV        /* as KEEP; [C, 1, K] becomes [C, K] */
} skv_name_action;

typedef struct skv_name_rule {
    const char *from; /* after the layer prefix; # stands for the number of an expert */
    const char *to;   /* after "model.layers.{i}."; NULL for the fused; see GATE_UP */
    skv_name_action action;
} skv_name_rule;

typedef struct skv_name_scheme {
    const char *layer_prefix;    /* "transformer.layers." */
    const skv_name_rule *layer;  /* ends with from == NULL; first match counts */
    const skv_name_rule *global; /* the same, for whole names */
    bool keep_others;            /* names without a rule stay as they are */
    bool transposed;             /* matrices of experts: [E, columns, rows], but for codes */
} skv_name_scheme;

/** Adds a tensor under a name that is copied. */
SKV_MUST_CHECK skv_status skv_source_add(skv_source *source, const char *name,
                                         const skv_tensor *tensor, skv_error *err);
/** Adds a tensor of the file under the name or names that the scheme gives it, if any. */
SKV_MUST_CHECK skv_status skv_source_add_renamed(skv_source *source, const skv_name_scheme *scheme,
                                                 const char *name, const skv_tensor *tensor,
                                                 skv_error *err);

/** Adds each expert's slice of a tensor of layer i_layer: see skv_name_action. */
SKV_MUST_CHECK skv_status skv_source_add_experts(skv_source *source, const skv_name_scheme *scheme,
                                                 size_t i_layer, const skv_name_rule *rule,
                                                 const skv_tensor *tensor, skv_error *err);

/** Adds the parts of a tensor of layer i_layer by an action from SKV_NAME_GATED on. */
SKV_MUST_CHECK skv_status skv_source_add_mixer(skv_source *source, size_t i_layer,
                                               const skv_name_rule *rule, const skv_tensor *tensor,
                                               skv_error *err);
/** Checks the shape of fused rows of a matrix, or of a bias (n_columns is 0). */
SKV_MUST_CHECK skv_status skv_source_check_fused(const skv_source *source, const skv_tensor *t,
                                                 size_t n_rows, size_t n_columns, skv_error *err);

/** Returns the names of tensors in a folder with this configuration. `renamed`: they have been
 * replaced by ours already. */
const skv_name_scheme *skv_folder_scheme(const skv_config *c, bool renamed);
/** Whether models of its architecture may have parts that read images or sound. */
bool skv_config_has_images(const skv_config *c);
/**
 * Returns the published name without the prefix that a model with images puts before its text part;
 * NULL for a tensor of another part. `buffer` holds `size` bytes and is used if the name changes.
 */
const char *skv_text_part_name(const char *name, bool has_images, char *buffer, size_t size);

/* ---- source_mtp.c: the head that predicts further tokens ---- */

/** The model's configuration becomes that of its head. */
SKV_MUST_CHECK skv_status skv_config_make_mtp(skv_config *c, const char *path, skv_error *err);
/** The name that a tensor of a folder, by its name in the text part, has in the head's model; NULL:
 * it is no part of that. */
const char *skv_mtp_folder_name(const char *name, char *buffer, size_t size);
/** Whether it is the head's first product, in a folder or as block i_block of GGUF. */
bool skv_mtp_is_fc(const char *name, size_t i_block);
/** Adds a tensor of a GGUF file, where it is a part of the head, which is block i_block. */
SKV_MUST_CHECK skv_status skv_mtp_add_block(skv_source *source, const skv_name_scheme *scheme,
                                            size_t i_block, const skv_tensor *tensor,
                                            skv_error *err);

/* GGUF's names. */

/** The metadata and the shapes of a GGUF file as a configuration, checked. */
SKV_MUST_CHECK skv_status skv_config_from_gguf(const skv_gguf *g, skv_config *out, skv_error *err);

/** The tensor names of an architecture (skv_config's spelling). */
const skv_name_scheme *skv_gguf_scheme(const char *architecture);

#endif
