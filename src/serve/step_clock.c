/* The time of a step: see step_clock.h. */
#include "serve/step_clock.h"

#include "base/size.h"

enum { FIRST_CHUNK = 32, CHUNK_MIN = 8, CHUNK_ALIGN = 16 };

/* Without answers to delay a step may take this long: a client that leaves is noticed soon. */
static const double ALONE_NS = 150e6;
static const double GUESS_NS = 1e6; /* of a prompt token, before anything is known */
static const double NEW_SHARE = 0.3;

void skv_step_clock_init(skv_step_clock *clock, double step_ms, size_t step_tokens_max)
{
    *clock = (skv_step_clock){.target_ns = step_ms * 1e6, .step_tokens_max = step_tokens_max};
}

size_t skv_step_clock_budget(const skv_step_clock *clock, size_t n_answers)
{
    size_t room = clock->step_tokens_max > n_answers ? clock->step_tokens_max - n_answers : 0;
    if (clock->share_ns <= 0) return skv_min_size(FIRST_CHUNK, room);
    double target = n_answers > 0 ? clock->target_ns : ALONE_NS;
    double left = target - clock->base_ns * (double)n_answers;
    double tokens = left / clock->share_ns;
    size_t n = CHUNK_MIN;
    if (tokens >= (double)room) {
        n = room;
    } else if (tokens > CHUNK_MIN) {
        n = (size_t)tokens;
        if (n > CHUNK_ALIGN) n -= n % CHUNK_ALIGN;
    }
    return skv_min_size(n, room);
}

static void mix(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + NEW_SHARE * (value - *mean) : value;
}

void skv_step_clock_learn(skv_step_clock *clock, size_t n_answers, size_t n_prompt, uint64_t ns)
{
    double time = (double)ns;
    if (n_prompt == 0) {
        if (n_answers > 0) mix(&clock->base_ns, time / (double)n_answers);
        return;
    }
    double rest = time - clock->base_ns * (double)n_answers;
    /* A step is never free: answers that took longer than ever still leave something. */
    double share = (rest > time / 8 ? rest : time / 8) / (double)n_prompt;
    mix(&clock->share_ns, share);
}

double skv_step_clock_seconds(const skv_step_clock *clock, size_t n_prompt)
{
    return (double)n_prompt * (clock->share_ns > 0 ? clock->share_ns : GUESS_NS) * 1e-9;
}
