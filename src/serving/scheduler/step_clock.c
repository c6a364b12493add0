/* The time of a step: see step_clock.h. */
#include "scheduler/step_clock.h"

#include <math.h>

enum { FIRST_CHUNK = 32, CHUNK_ALIGN = 16, TOKENS_MAX = 1 << 20 };

/* Without answers to delay a step may take this long: a client that leaves is noticed soon. */
static const double ALONE_NS = 150e6;
static const double GUESS_NS = 1e6; /* of a prompt token, before anything is known */
static const double NEW_SHARE = 0.3;
static const double NEW_SLOPE_SHARE = 0.05;
static const double SLOPE_MAX = 1.0 / 64;
static const double SPREAD_MIN = 64; /* tokens before theirs have to differ by this much */
/* Of the steps that were planned to take all of the time so many may be late. */
static const double LATE_SHARE = 0.005;
static const double AIM_FIRST = 0.85, AIM_MIN = 0.7, AIM_MOVE = 0.02;
static const double FULL = 0.9; /* planned to take this part of the aim: with all of the time */

void skv_step_clock_init(skv_step_clock *clock, double step_ms)
{
    *clock = (skv_step_clock){.target_ns = step_ms * 1e6, .aim = AIM_FIRST};
}

static double share_of(const skv_step_clock *clock)
{
    return clock->share_ns > 0 ? clock->share_ns : GUESS_NS;
}

size_t skv_step_clock_tokens(const skv_step_clock *clock, double ns)
{
    double n = ns / share_of(clock);
    return n < TOKENS_MAX ? (size_t)n : TOKENS_MAX;
}

double skv_step_clock_room(const skv_step_clock *clock, size_t n_answers, double used_ns)
{
    if (clock->share_ns <= 0) return FIRST_CHUNK * GUESS_NS;
    double target = n_answers > 0 ? clock->target_ns * clock->aim : ALONE_NS;
    double left = target - clock->base_ns * (double)n_answers - used_ns;
    return left > 0 ? left : 0;
}

/* n of share * (n + slope * n * (n_seen + n / 2)) = ns. */
size_t skv_step_clock_fit(const skv_step_clock *clock, double ns, size_t n_seen)
{
    double share = share_of(clock), square = share * clock->slope / 2;
    double first = share * (1 + clock->slope * (double)n_seen);
    double n = 2 * ns / (first + sqrt(first * first + 4 * square * ns));
    size_t n_tokens = n < TOKENS_MAX ? (size_t)n : TOKENS_MAX;
    return n_tokens >= 4 * CHUNK_ALIGN ? n_tokens - n_tokens % CHUNK_ALIGN : n_tokens;
}

double skv_step_clock_cost(const skv_step_clock *clock, skv_step_work work)
{
    return share_of(clock) * ((double)work.n + clock->slope * work.n_before);
}

static void mix(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + NEW_SHARE * (value - *mean) : value;
}

/* A line through the times of tokens by the number of tokens before them, older steps forgotten.
 * The estimate for recent prompts stays as it is. */
static void learn_slope(skv_step_clock *clock, double before, double token_ns)
{
    double part = 1.0 / (double)(clock->n_learnt + 1);
    if (part < NEW_SLOPE_SHARE) part = NEW_SLOPE_SHARE;
    double far = before - clock->mean_before, longer = token_ns - clock->mean_ns;
    clock->n_learnt++;
    clock->mean_before += part * far;
    clock->mean_ns += part * longer;
    clock->variance = (1 - part) * (clock->variance + part * far * far);
    clock->covariance = (1 - part) * (clock->covariance + part * far * longer);
    if (clock->variance < SPREAD_MIN * SPREAD_MIN) return;
    double rise = clock->covariance / clock->variance;
    double start = clock->mean_ns - rise * clock->mean_before;
    double slope = rise > 0 ? rise / fmax(start, clock->mean_ns / 8) : 0;
    if (slope > SLOPE_MAX) slope = SLOPE_MAX;
    clock->share_ns *= (1 + clock->slope * clock->mean_before) / (1 + slope * clock->mean_before);
    clock->slope = slope;
}

/* A little up where a step was in time and far down where it was late: in balance when the share of
 * late ones is as wanted. */
static void learn_aim(skv_step_clock *clock, size_t n_answers, skv_step_work work, double time)
{
    double planned = clock->base_ns * (double)n_answers + skv_step_clock_cost(clock, work);
    if (n_answers == 0 || planned < FULL * clock->aim * clock->target_ns) return;
    clock->aim += AIM_MOVE * (LATE_SHARE - (time > clock->target_ns ? 1 : 0));
    clock->aim = fmin(1, fmax(AIM_MIN, clock->aim));
}

void skv_step_clock_learn(skv_step_clock *clock, size_t n_answers, skv_step_work work, uint64_t ns)
{
    double time = (double)ns;
    if (work.n == 0) {
        if (n_answers > 0) mix(&clock->base_ns, time / (double)n_answers);
        return;
    }
    learn_aim(clock, n_answers, work, time);
    double rest = time - clock->base_ns * (double)n_answers;
    /* A step is never free: answers that took longer than ever still leave something. */
    if (rest < time / 8) rest = time / 8;
    if (work.n >= CHUNK_ALIGN) {
        learn_slope(clock, work.n_before / (double)work.n, rest / (double)work.n);
    }
    mix(&clock->share_ns, rest / ((double)work.n + clock->slope * work.n_before));
}

double skv_step_clock_seconds(const skv_step_clock *clock, size_t n_prompt)
{
    skv_step_work work = {n_prompt, (double)n_prompt * clock->mean_before};
    return skv_step_clock_cost(clock, work) * 1e-9;
}
