/*
 * LoRA adapters (arXiv:2106.09685) in a step: y = W x + s B (A x) for the rows of sequences that
 * have one. The product with W runs for all rows of the step; then rows of one adapter, which stand
 * beside each other, run its two narrow products and are added. So any number of adapters share a
 * step, and rows without one get the same bits as without any.
 *
 * Fused products have parts: B adds to the columns of its part. If an activation follows gate|up,
 * rows that have an adapter there take the product without it, and then the activation.
 */
#ifndef SKV_MODEL_ADAPTER_H
#define SKV_MODEL_ADAPTER_H

#include "format/lora.h"
#include "model/forward.h"
#include "skv/tools.h"

/* The product that a pair adds to. */
typedef enum skv_adapted {
    SKV_ADAPTED_QKV,       /* of the layer's own input */
    SKV_ADAPTED_STACKED_Q, /* q where k and v come from the stack */
    SKV_ADAPTED_O,
    SKV_ADAPTED_GATE_UP,
    SKV_ADAPTED_DOWN,
    SKV_ADAPTED_STACK, /* of all layers that write a part of it; in layer 0's place */
    SKV_ADAPTED_COUNT
} skv_adapted;

typedef struct skv_adapter_pair {
    size_t place;     /* layer * SKV_ADAPTED_COUNT + skv_adapted */
    size_t part;      /* of that product */
    size_t column, n; /* columns [column, column + n) of the whole product */
    size_t rank;
    skv_linear *a; /* [rank, K] */
    skv_linear *b; /* [n, rank], times the scale */
} skv_adapter_pair;

typedef struct skv_adapter {
    char *name;              /* owned */
    skv_lora file;           /* read when it is loaded; then only its hash and its path count */
    skv_adapter_pair *pairs; /* owned, [file.n_pairs], by place */
    size_t *starts;          /* owned, [L * SKV_ADAPTED_COUNT + 1]: pairs of a place */
} skv_adapter;

/* The adapters of a sequence, whose results are added up. */
typedef struct skv_adapter_mix {
    size_t n;
    struct {
        const skv_adapter *adapter; /* borrowed from the engine */
        float scale;                /* not 0 */
    } at[SKV_ADAPTERS_TOGETHER];
} skv_adapter_mix;

/* The adapters of an engine, and the scratch of a step. */
typedef struct skv_adapters {
    skv_adapter *items; /* owned, [n] */
    size_t n;
    skv_backend *be;            /* borrowed; NULL until they are loaded */
    skv_weight_type type;       /* of A and B */
    size_t max_rows, rank, ffn; /* largest of a step, of all pairs, and F where gate|up has pairs */
    skv_area *areas[2];         /* owned: [max_rows, rank], and [SKV_ADAPTER_ROWS, 2 F] or NULL */
    size_t n_areas;
} skv_adapters;

enum { SKV_ADAPTER_ROWS = 128, SKV_ADAPTERS_MAX = 64 };

/* Decides which tensor names an adapter may change. */
typedef struct skv_adapter_target {
    const skv_config *config;
    bool student; /* deep layers read q_proj_swiftkv and the stack */
} skv_adapter_target;

/** Opens "NAME=PATH,..." and finds the products that their pairs belong to. */
SKV_MUST_CHECK skv_status skv_adapters_open(skv_adapters *set, const char *list,
                                            const skv_adapter_target *target, skv_error *err);
/** Bytes that loading takes. */
skv_bytes skv_adapters_bytes(const skv_adapters *set, skv_backend *be, skv_weight_type type,
                             size_t max_rows);
SKV_MUST_CHECK skv_status skv_adapters_load(skv_adapters *set, skv_backend *be,
                                            skv_weight_type type, size_t max_rows, skv_error *err);
void skv_adapters_release(skv_adapters *set);
/** Finds the adapters of uses [n]. */
SKV_MUST_CHECK skv_status skv_adapters_mix(const skv_adapters *set, const skv_adapter_use *uses,
                                           size_t n, skv_adapter_mix *out, skv_error *err);
bool skv_adapter_mix_equal(const skv_adapter_mix *one, const skv_adapter_mix *other);

/** A product of layer i with the sums of its rows' adapters. */
void skv_adapters_linear(const skv_pass *p, size_t i, skv_product product,
                         const skv_linear_args *args);

#endif
