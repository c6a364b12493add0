/* Answers: see stream_answer.h. */
#include "stream_answer.h"

#include <stdlib.h>
#include <string.h>

enum { GAPS_MAX = 1 << 20 };

/* An event on its way through the reader. */
typedef struct arrival_event {
    stream_answer *answer;
    double now_s;
} arrival_event;

void stream_answer_begin(stream_answer *answer, double now_s)
{
    event_reader reader = answer->reader;
    event_reader_clear(&reader);
    *answer = (stream_answer){.reader = reader,
                              .begun_s = now_s,
                              .first_s = -1,
                              .last_s = -1,
                              .gaps_ms = answer->gaps_ms,
                              .gaps_room = answer->gaps_room,
                              .outcome = LOAD_DONE};
}

static bool fail(stream_answer *answer, load_outcome outcome, const char *detail)
{
    answer->outcome = outcome;
    (void)snprintf(answer->detail, sizeof answer->detail, "%.200s", detail);
    return false;
}

static bool add_gap(stream_answer *answer, double ms)
{
    if (answer->n_gaps == GAPS_MAX) return true;
    if (answer->n_gaps == answer->gaps_room) {
        const size_t room = answer->gaps_room > 0 ? 2 * answer->gaps_room : 64;
        float *gaps = realloc(answer->gaps_ms, room * sizeof *gaps);
        if (gaps == NULL) return fail(answer, LOAD_MALFORMED, "no memory for the times of tokens");
        answer->gaps_ms = gaps;
        answer->gaps_room = room;
    }
    answer->gaps_ms[answer->n_gaps++] = (float)ms;
    return true;
}

static bool is_text(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0;
}

/* Whether a choice brings part of an answer, and not only the reason why it ended. */
static bool has_text(const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    return is_text(json_object_get(choice, "text")) || is_text(json_object_get(delta, "content")) ||
           is_text(json_object_get(delta, "reasoning_content")) ||
           json_array_size(json_object_get(delta, "tool_calls")) > 0;
}

static bool take_choice(stream_answer *answer, const json_t *choice, double now_s)
{
    const json_t *finish = json_object_get(choice, "finish_reason");
    const bool is_end = finish != NULL && !json_is_null(finish);
    const bool is_token = !is_end || has_text(choice);
    bool ok = true;
    if (answer->first_s < 0) {
        answer->first_s = now_s;
    } else if (is_token) {
        ok = add_gap(answer, (now_s - answer->last_s) * 1e3);
    }
    answer->n_tokens += is_token;
    answer->last_s = now_s;
    return ok;
}

static uint64_t count_of(const json_t *object, const char *field)
{
    const json_int_t value = json_integer_value(json_object_get(object, field));
    return value > 0 ? (uint64_t)value : 0;
}

static bool take_object(stream_answer *answer, const json_t *event, double now_s)
{
    const json_t *error = json_object_get(event, "error");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *usage = json_object_get(event, "usage");
    if (error != NULL && !json_is_null(error)) {
        const char *message = json_string_value(json_object_get(error, "message"));
        return fail(answer, LOAD_REFUSED, message != NULL ? message : "an event with an error");
    }
    if (json_is_object(usage)) {
        answer->input_tokens = count_of(usage, "prompt_tokens");
        answer->output_tokens = count_of(usage, "completion_tokens");
        answer->cached_tokens =
            count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    return choice == NULL || take_choice(answer, choice, now_s);
}

static bool on_event(void *user, const char *data, size_t n)
{
    const arrival_event *arrival = user;
    stream_answer *answer = arrival->answer;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        answer->ended = true;
        return true;
    }
    json_t *event = json_loadb(data, n, 0, NULL);
    const bool ok = json_is_object(event)
                        ? take_object(answer, event, arrival->now_s)
                        : fail(answer, LOAD_MALFORMED, "an event is no JSON object");
    json_decref(event);
    return ok;
}

bool stream_answer_feed(stream_answer *answer, const char *bytes, size_t n, double now_s)
{
    arrival_event arrival = {answer, now_s};
    if (event_reader_feed(&answer->reader, bytes, n, on_event, &arrival)) return true;
    if (answer->outcome != LOAD_DONE) return false;
    return fail(answer, LOAD_MALFORMED, "a line of the stream is too long");
}

load_outcome stream_answer_finish(stream_answer *answer)
{
    if (answer->outcome != LOAD_DONE) return answer->outcome;
    if (!answer->ended) {
        (void)fail(answer, LOAD_CUT, "the stream ended without [DONE]");
    } else if (answer->first_s < 0) {
        (void)fail(answer, LOAD_EMPTY, "no event with a choice");
    }
    if (answer->output_tokens == 0) answer->output_tokens = answer->n_tokens;
    return answer->outcome;
}

void stream_answer_release(stream_answer *answer)
{
    event_reader_release(&answer->reader);
    free(answer->gaps_ms);
    *answer = (stream_answer){0};
}

double stream_answer_ttft_ms(const stream_answer *answer)
{
    return (answer->first_s - answer->begun_s) * 1e3;
}

double stream_answer_e2el_ms(const stream_answer *answer)
{
    return (answer->last_s - answer->begun_s) * 1e3;
}

double stream_answer_tpot_ms(const stream_answer *answer)
{
    if (answer->output_tokens < 2) return 0;
    return (answer->last_s - answer->first_s) * 1e3 / (double)(answer->output_tokens - 1);
}
