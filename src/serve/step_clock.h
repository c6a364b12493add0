/*
 * How many prompt tokens fit into a step: from the time that steps took.
 *
 * A step takes about base + share * n: base for the answers in it, share for each prompt token.
 * Both are running means, so the estimate follows the load of the machine and the lengths of the
 * contexts.
 */
#ifndef SKV_SERVE_STEP_CLOCK_H
#define SKV_SERVE_STEP_CLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct skv_step_clock {
    double target_ns; /* of a step with answers in it */
    double base_ns;   /* of a step without prompt tokens, an answer's share; 0: unknown */
    double share_ns;  /* of a prompt token; 0: unknown */
    size_t step_tokens_max;
} skv_step_clock;

void skv_step_clock_init(skv_step_clock *clock, double step_ms, size_t step_tokens_max);
/** Prompt tokens that a step with n_answers answers may take: at least one. */
size_t skv_step_clock_budget(const skv_step_clock *clock, size_t n_answers);
/** Learns from a step of n_answers answers and n_prompt prompt tokens. */
void skv_step_clock_learn(skv_step_clock *clock, size_t n_answers, size_t n_prompt, uint64_t ns);
/** Seconds that n prompt tokens take; a guess before the first step. */
double skv_step_clock_seconds(const skv_step_clock *clock, size_t n_prompt);

#endif
