/* Sums and samples: see tally.h. */
#include "tally.h"

static bool is_good(const load_goals *goals, const stream_answer *answer)
{
    return (goals->ttft_ms < 0 || stream_answer_ttft_ms(answer) <= goals->ttft_ms) &&
           (goals->tpot_ms < 0 || stream_answer_tpot_ms(answer) <= goals->tpot_ms) &&
           (goals->e2el_ms < 0 || stream_answer_e2el_ms(answer) <= goals->e2el_ms);
}

static void add_answer(load_tally *tally, const load_goals *goals, const stream_answer *answer,
                       load_result *result)
{
    bool ok = load_samples_add(&tally->ttft, stream_answer_ttft_ms(answer)) &&
              load_samples_add(&tally->e2el, stream_answer_e2el_ms(answer));
    if (answer->output_tokens > 1) {
        ok = ok && load_samples_add(&tally->tpot, stream_answer_tpot_ms(answer));
    }
    for (size_t i = 0; i < answer->n_gaps && ok; i++) {
        ok = load_samples_add(&tally->itl, (double)answer->gaps_ms[i]);
    }
    tally->no_memory = tally->no_memory || !ok;
    result->n_completed++;
    result->n_good += is_good(goals, answer);
    result->input_tokens += answer->input_tokens;
    result->cached_tokens += answer->cached_tokens;
    result->output_tokens += answer->output_tokens;
}

void tally_add(load_tally *tally, const load_goals *goals, const stream_answer *answer,
               load_outcome outcome, int status, load_result *result)
{
    result->outcomes[outcome]++;
    switch (outcome) {
    case LOAD_DONE: add_answer(tally, goals, answer, result); return;
    case LOAD_CANCELLED:
    case LOAD_STOPPED: return;
    default: break;
    }
    result->n_failed++;
    const bool counts = status >= LOAD_STATUS_FIRST && status < LOAD_STATUS_FIRST + LOAD_STATUSES;
    if (outcome == LOAD_HTTP && counts) result->statuses[status - LOAD_STATUS_FIRST]++;
}

void tally_finish(load_tally *tally, load_result *result)
{
    load_samples_summary(&tally->ttft, &result->ttft);
    load_samples_summary(&tally->tpot, &result->tpot);
    load_samples_summary(&tally->itl, &result->itl);
    load_samples_summary(&tally->e2el, &result->e2el);
}

void tally_release(load_tally *tally)
{
    load_samples_release(&tally->ttft);
    load_samples_release(&tally->tpot);
    load_samples_release(&tally->itl);
    load_samples_release(&tally->e2el);
}
