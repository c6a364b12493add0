/*
 * How many prompt tokens fit into a step: from the measured times of steps.
 *
 * A step takes about base for each answer in it and, for each prompt token after p others, share *
 * (1 + slope * p): attention reads all earlier rows. All are running means, so that the estimate
 * follows the load of the machine; the slope, which is the model's, moves slowly.
 *
 * A step that takes as long as expected on average takes longer every second time. So prompts are
 * given a part of the time, the aim, which moves until few steps are late.
 */
#ifndef SKV_SERVE_STEP_CLOCK_H
#define SKV_SERVE_STEP_CLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct skv_step_clock {
    double target_ns; /* of a step with answers in it */
    double aim;       /* the part of it that is planned with */
    double base_ns;   /* of a step without prompt tokens, an answer's share; 0: unknown */
    double share_ns;  /* of a prompt token at position 0; 0: unknown */
    double slope;     /* the share of that which each token before it adds */
    size_t n_learnt;  /* steps with prompt tokens, */
    double mean_before, mean_ns, variance, covariance; /* tokens before theirs, time of a token */
} skv_step_clock;

/** The cost of a step's prompt tokens, measured or expected. */
typedef struct skv_step_work {
    size_t n;
    double n_before; /* the sum over them of the tokens that stand before each */
} skv_step_work;

static inline skv_step_work skv_step_work_of(size_t n, size_t n_seen)
{
    return (skv_step_work){n, (double)n * ((double)n_seen + (double)n / 2)};
}

void skv_step_clock_init(skv_step_clock *clock, double step_ms);
/** Nanoseconds that the prompt tokens of a step with n_answers answers may take, of which something
 * else has already used some. */
double skv_step_clock_room(const skv_step_clock *clock, size_t n_answers, double used_ns);
/** Tokens of a prompt of which n_seen were read that take ns nanoseconds; may be 0. */
size_t skv_step_clock_fit(const skv_step_clock *clock, double ns, size_t n_seen);
/** Nanoseconds that prompt tokens take; a guess before the first step. */
double skv_step_clock_cost(const skv_step_clock *clock, skv_step_work work);
/** Returns how many prompt tokens at position 0 take about ns. */
size_t skv_step_clock_tokens(const skv_step_clock *clock, double ns);
/** Learns from a step of n_answers answers and some prompt tokens, and from the worker's time
 * since the step before: the next tokens of the answers wait for all of it. */
void skv_step_clock_learn(skv_step_clock *clock, size_t n_answers, skv_step_work work, uint64_t ns);
/** Seconds that n prompt tokens take, of prompts as they were of late. */
double skv_step_clock_seconds(const skv_step_clock *clock, size_t n_prompt);

#endif
