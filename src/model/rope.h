/* Rotary position embedding: frequencies of a configuration, and the angles of a step's rows. */
#ifndef SKV_MODEL_ROPE_H
#define SKV_MODEL_ROPE_H

#include "format/config.h"

/* The frequencies of one skv_rope, short and long form (they differ for longrope only). */
typedef struct skv_rope_table {
    size_t n;              /* n_rot / 2 */
    float *frequencies[2]; /* [n] each, owned; radians a position; 0: short, 1: long */
    float amplitude;       /* cos and sin are multiplied by it */
    size_t short_context;  /* sequences made for more positions use the long form; 0: never */
} skv_rope_table;

SKV_MUST_CHECK skv_status skv_rope_table_init(skv_rope_table *table, const skv_rope *rope,
                                              skv_error *err);
void skv_rope_table_release(skv_rope_table *table);
/** Whether the angles of both are the same at every position. */
bool skv_rope_table_same(const skv_rope_table *a, const skv_rope_table *b);

/** cos, sin [n] of one position; `context` is the length the sequence was made for. */
void skv_rope_angles(const skv_rope_table *table, size_t position, size_t context, float *cos_out,
                     float *sin_out);

#endif
