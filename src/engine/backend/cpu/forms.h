/*
 * Which form of its products a level uses (skv_matmul_forms). Where a level has several, a back
 * end times them when it is created and takes the fastest, since processors that have not been
 * measured may favour any. Only forms with the bits of the first are taken so: the same options
 * give the same tokens, whatever a clock says. Others are taken where they are named. Products of
 * quantised weights are chosen apart from those of bf16 and int8.
 */
#ifndef SKV_CPU_FORMS_H
#define SKV_CPU_FORMS_H

#include "base/pool.h"
#include "kernels/matmul.h"

/* An engine that opens spends less than 30 ms on all measurements together: none begins when 24 are
 * over, and the longest takes 5. */
enum {
    SKV_FORMS_MAX = 8,
    SKV_FORM_ALL_MS = 24,  /* after this no measurement begins, */
    SKV_FORM_LIMIT_MS = 14 /* and none of bf16 and int8 after this: the others need the rest */
};

/* Timed tasks: products of many rows from a cache, and of one row from memory. */
typedef enum skv_form_task {
    SKV_FORM_BF16_MANY,
    SKV_FORM_BF16_ONE,
    SKV_FORM_I8_MANY,
    SKV_FORM_I8_ONE,
    SKV_FORM_TASKS
} skv_form_task;

typedef struct skv_form_clock {
    uint64_t (*now)(void *user); /* nanoseconds */
    void *user;
    uint64_t end; /* no measurement begins after this */
} skv_form_clock;

/* Nanoseconds of the fastest run of each task; 0: it was not run. */
typedef struct skv_form_times {
    uint64_t ns[SKV_FORMS_MAX][SKV_FORM_TASKS];
} skv_form_times;

/** The system's clock, which ends after SKV_FORM_ALL_MS. */
skv_form_clock skv_form_clock_start(void);
/** How many of n forms, from the first on, have its bits and are told apart by bf16 and int8. */
size_t skv_forms_timed(const skv_matmul_form *forms, size_t n);
/** Times n <= SKV_FORMS_MAX forms on one thread. Returns zeros without memory. */
void skv_forms_time(const skv_matmul_form *forms, size_t n, const skv_form_clock *clock,
                    skv_form_times *out);
/** True if the form's products are correct on this processor and, where users know both by one
 * name, have the bits of the first form. */
bool skv_form_is_right(const skv_matmul_form *form, const skv_matmul_form *first);
/** The index of the form to use: the first, unless another one that is right takes less
 * than 0.95 of its time, as a mean of the tasks' ratios, and more than 1.05 in none. Forms with
 * other bits than the first are never chosen. */
size_t skv_forms_choose(const skv_matmul_form *forms, size_t n, const skv_form_times *times);
/** That mean for form i, as it is compared; 0: the form cannot be chosen. */
double skv_form_ratio(const skv_form_times *times, size_t i);
/** The time of another product of quantised weights beside the usual one's, for many rows and 4
 * bits; 0 without memory, and where no measurement was made. */
double skv_form_q_ratio(const skv_matmul *usual, const skv_matmul *other,
                        const skv_form_clock *clock);
/** The index of the form whose products of quantised weights are to be used, or n for the usual
 * ones: that of the least time, but a later form only below 0.95 of those before it, and only if
 * its bits are the usual ones' here. ratios [n] become skv_form_q_ratio of each, 0 of forms without
 * such products. */
size_t skv_forms_choose_q(const skv_matmul_form *forms, size_t n, const skv_matmul *usual,
                          const skv_form_clock *clock, double *ratios);
/** The time of single rows whose panels are halved, so that twice as many threads read them, beside
 * that of whole panels: half as many as there are threads. 0 without memory or time. The bits are
 * the same. */
double skv_form_halves_ratio(const skv_matmul *mm, skv_pool *pool, const skv_form_clock *clock);
/** Whether a ratio of times, 0 for none, is enough to change from today's form to another one. */
bool skv_form_gains(double ratio);
/** The level's products become those of a form. So do its attention and its products of quantised
 * weights, where the form has them. */
void skv_form_use(skv_kernels *k, const skv_matmul_form *form);

#endif
