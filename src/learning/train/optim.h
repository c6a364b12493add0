/*
 * AdamW (arXiv:1711.05101) with clipping by the global norm, and learning-rate schedules. Sums run
 * in a fixed order: results do not depend on the number of threads.
 */
#ifndef SKV_TRAIN_OPTIM_H
#define SKV_TRAIN_OPTIM_H

#include <stdint.h>

#include "base/pool.h"
#include "kernels/train_rows.h"
#include "train/param.h"

typedef enum skv_schedule_kind {
    SKV_SCHEDULE_CONSTANT,
    SKV_SCHEDULE_LINEAR, /* to zero at the end */
    SKV_SCHEDULE_COSINE
} skv_schedule_kind;

typedef struct skv_schedule {
    skv_schedule_kind kind;
    double rate;        /* after warm-up */
    double final_share; /* of the rate, that it ends with */
    uint64_t warmup, steps;
} skv_schedule;

/** The learning rate of a step, counted from 0. Warm-up step i has (i + 1) / warmup of the rate. */
double skv_schedule_rate(const skv_schedule *schedule, uint64_t step);

typedef struct skv_adamw_options {
    double beta1, beta2, eps, weight_decay;
    bool decay_vectors; /* norms and biases decay too */
    double max_norm;    /* of all gradients together; 0: no clipping */
    skv_cpu_level cpu;  /* best: 0 */
} skv_adamw_options;

typedef struct skv_adamw {
    skv_adamw_options options;
    skv_params *params; /* borrowed */
    skv_pool *pool;     /* borrowed */
    skv_train_rows rows;
    float *m, *v;  /* owned, [n_trainable] each, mapped: in the order of the gradients */
    uint64_t step; /* steps done */
    struct skv_adamw_chunk *chunks; /* owned, [n_chunks]: portions of one tensor each */
    double *squares;                /* owned, [n_chunks] */
    size_t n_chunks;
} skv_adamw;

SKV_MUST_CHECK skv_status skv_adamw_init(skv_adamw *opt, const skv_adamw_options *options,
                                         skv_params *params, skv_pool *pool, skv_error *err);
void skv_adamw_release(skv_adamw *opt);
/** The norm of all gradients. */
double skv_adamw_norm(skv_adamw *opt);
/** One step with the gradients as they are, `norm` being theirs (for clipping). */
void skv_adamw_step(skv_adamw *opt, double rate, double norm);

#endif
