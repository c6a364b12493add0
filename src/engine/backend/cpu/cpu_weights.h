/* Weight matrices on the CPU, as cpu_weights.c packs them and cpu_linear.c multiplies by them. */
#ifndef SKV_CPU_WEIGHTS_H
#define SKV_CPU_WEIGHTS_H

#include "backend/cpu/cpu_state.h"

typedef struct skv_linear_part {
    size_t n_rows;      /* N of this part */
    size_t panel0;      /* its first panel */
    size_t column0;     /* its first column in the whole product */
    size_t offset;      /* bytes before its first panel */
    size_t panel_bytes; /* from one to the next */
} skv_linear_part;

struct skv_linear {
    skv_weight_type type;
    size_t K, N; /* N counts the columns of y: half the rows when paired */
    size_t n_panels;
    bool paired;
    size_t n_parts;
    skv_linear_part *parts; /* owned, [n_parts] */
    float *bias;            /* owned, [sum of n_rows] or NULL */
    unsigned char *panels;  /* those of each part in a row, of the back end's weights */
};

/** The product with weights of a type. */
const skv_matmul *skv_cpu_matmul_of(const skv_cpu_backend *be, skv_weight_type type, size_t K);
/** Which part and which rows of it stand in a panel; by_pairs: in turns, where W is paired. */
size_t skv_cpu_panel_part(const skv_linear *w, bool by_pairs, size_t i_panel, size_t nr,
                          size_t *row0);
unsigned char *skv_cpu_panel_at(const skv_linear *w, size_t i_panel, size_t nr);

#endif
