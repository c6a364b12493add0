/* Answers, and the events that they come in: see stream_answer.h. OpenAI's streams have one line of
 * data an event; comments, names and ids of events mean nothing there. */
#include "stream_answer.h"

#include <stdlib.h>
#include <string.h>

/* An event's data, one line of it; false: no more is wanted. */
typedef bool event_fn(void *user, const char *data, size_t n);

enum { EVENT_LINE_MAX = 1 << 20 };

static bool keep_piece(event_reader *reader, const char *bytes, size_t n)
{
    if (n > EVENT_LINE_MAX - reader->n) return false;
    if (reader->n + n > reader->room) {
        size_t room = reader->room > 0 ? reader->room : 512;
        while (room < reader->n + n) room *= 2;
        char *line = realloc(reader->line, room);
        if (!line) return false;
        reader->line = line;
        reader->room = room;
    }
    if (n > 0) memcpy(reader->line + reader->n, bytes, n);
    reader->n += n;
    return true;
}

static bool take_line(const char *line, size_t n, event_fn *on_event, void *user)
{
    static const char field[] = "data:";
    const size_t n_field = sizeof field - 1;
    if (n > 0 && line[n - 1] == '\r') n--;
    if (n < n_field || memcmp(line, field, n_field) != 0) return true;
    const size_t start = n > n_field && line[n_field] == ' ' ? n_field + 1 : n_field;
    return on_event(user, line + start, n - start);
}

/* Takes the next bytes and passes on every line of data that is whole. False: `on_event` said so, a
 * line is longer than 1 MiB, or there is no memory. */
static bool event_reader_feed(event_reader *reader, const char *bytes, size_t n, event_fn *on_event,
                              void *user)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        const size_t piece = end ? (size_t)(end - bytes) : n;
        const bool whole_here = end && reader->n == 0;
        if (!whole_here && !keep_piece(reader, bytes, piece)) return false;
        if (!end) return true;
        const bool more = whole_here ? take_line(bytes, piece, on_event, user)
                                     : take_line(reader->line, reader->n, on_event, user);
        reader->n = 0;
        if (!more) return false;
        bytes += piece + 1;
        n -= piece + 1;
    }
    return true;
}

static void event_reader_release(event_reader *reader)
{
    free(reader->line);
    *reader = (event_reader){0};
}

enum { GAPS_MAX = 1 << 20 };

/* An event on its way through the reader. */
typedef struct arrival_event {
    stream_answer *answer;
    double now_s;
} arrival_event;

void stream_answer_begin(stream_answer *answer, double now_s)
{
    event_reader reader = answer->reader;
    reader.n = 0;
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
        if (!gaps) return fail(answer, LOAD_MALFORMED, "no memory for the times of tokens");
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
    const bool is_end = finish && !json_is_null(finish);
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
    if (error && !json_is_null(error)) {
        const char *message = json_string_value(json_object_get(error, "message"));
        return fail(answer, LOAD_REFUSED, message ? message : "an event with an error");
    }
    if (json_is_object(usage)) {
        answer->input_tokens = count_of(usage, "prompt_tokens");
        answer->output_tokens = count_of(usage, "completion_tokens");
        const json_t *details = json_object_get(usage, "prompt_tokens_details");
        answer->cached_tokens = count_of(details, "cached_tokens");
        answer->tells_cached = json_is_integer(json_object_get(details, "cached_tokens"));
    }
    return !choice || take_choice(answer, choice, now_s);
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
                        : fail(answer, LOAD_MALFORMED, "an event is not a JSON object");
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

static double ttft_ms(const stream_answer *answer)
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

/* ---- all answers of a run ---- */

static bool is_good(const load_goals *goals, const stream_answer *answer)
{
    return (goals->ttft_ms < 0 || ttft_ms(answer) <= goals->ttft_ms) &&
           (goals->tpot_ms < 0 || stream_answer_tpot_ms(answer) <= goals->tpot_ms) &&
           (goals->e2el_ms < 0 || stream_answer_e2el_ms(answer) <= goals->e2el_ms);
}

static void add_answer(load_tally *tally, const load_goals *goals, const stream_answer *answer,
                       load_result *result)
{
    bool ok = load_samples_add(&tally->ttft, ttft_ms(answer)) &&
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
    result->n_tell_cached += answer->tells_cached;
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
