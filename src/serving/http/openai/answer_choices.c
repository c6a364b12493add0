/* Answers as OpenAI writes them, a list of choices: see answer_choices in api_answer.h. */

#include "answer/api_answer.h"

const api_choice *answer_echo_of(const api_choice *c)
{
    return c->begun ? NULL : c->echo;
}

/* "stop", "length", "tool_calls" */
static const char *finish_of(const api_choice *c)
{
    const bool calls = c->finish == SKV_FINISH_STOP && c->parts.n_whole > 0;
    return calls ? "tool_calls" : answer_finish(c->finish);
}

void answer_write_finish(skv_buf *out, const api_choice *c)
{
    skv_buf_text(out, ",\"finish_reason\":");
    out_json_str(out, c->ended ? finish_of(c) : NULL);
    if (!c->ended) return;
    skv_buf_text(out, ",\"stop_reason\":");
    if (c->stopped.size > 0) {
        out_json(out, c->stopped.data, c->stopped.size);
    } else {
        skv_buf_text(out, "null");
    }
}

/* {"id":...,"object":...,"created":...,"model":... */
static void write_head(const answer *a, skv_buf *out, const char *object)
{
    skv_buf_printf(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                   a->dialect->id_prefix, a->ex->id, object, (long long)a->created_s);
    out_json_str(out, a->ex->model->name);
    skv_buf_printf(out, ",\"system_fingerprint\":\"swiftkv-%d.%d.%d\"", SKV_VERSION_MAJOR,
                   SKV_VERSION_MINOR, SKV_VERSION_PATCH);
}

/* ---- the whole response ---- */

static void write_front(answer *a, skv_buf *out)
{
    write_head(a, out, a->dialect->object);
    skv_buf_text(out, ",\"choices\":[");
}

static void write_element(answer *a, skv_buf *out, size_t i)
{
    a->dialect->write_choice(a, out, i);
}

static void write_back(answer *a, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    skv_buf_text(out, "],\"usage\":");
    answer_usage(out, a->ex, &stats);
    skv_buf_text(out, ",\"timings\":");
    answer_timings(out, &stats);
    skv_buf_text(out, "}");
}

/* ---- the stream ---- */

static void begin_event(const answer *a, skv_buf *out)
{
    skv_buf_text(out, "data: ");
    write_head(a, out, a->dialect->chunk_object);
    skv_buf_text(out, ",\"choices\":[");
}

/* The counts of an event are of the n_tokens that have been sent with it, though more may be there.
 */
static void end_event(const answer *a, skv_buf *out, size_t n_tokens, bool with_timings)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    stats.completion_tokens = n_tokens;
    skv_buf_text(out, "]");
    if (a->params.continuous_usage) {
        skv_buf_text(out, ",\"usage\":");
        stats.miss.reason = SKV_MISS_NONE; /* the last event has it */
        answer_usage(out, a->ex, &stats);
    } else if (a->params.include_usage) {
        skv_buf_text(out, ",\"usage\":null");
    }
    if (with_timings) {
        skv_buf_text(out, ",\"timings\":");
        answer_timings(out, &stats);
    }
    skv_buf_text(out, "}\n\n");
}

void answer_clear_choice(api_choice *c)
{
    skv_buf_clear(&c->text);
    skv_buf_clear(&c->tokens);
    skv_buf_clear(&c->token_logprobs);
    skv_buf_clear(&c->top_logprobs);
    skv_buf_clear(&c->text_offset);
    c->n_tokens = 0;
}

/* An event for a choice, if there is anything to tell. In a chat, the role has one of its own,
 * which comes with the first token: clients take the first event for it. */
static void write_news(answer *a, skv_buf *out, size_t i)
{
    api_choice *c = &a->choices[i];
    const bool news = c->text.size > 0 || c->n_tokens > 0 || reply_parts_have_news(&c->parts);
    if (c->begun && !c->ended && !news) return;
    if (a->dialect->in_parts && !c->begun) {
        begin_event(a, out);
        skv_buf_printf(out,
                       "{\"index\":%zu,\"delta\":{\"role\":\"assistant\",\"content\":null},"
                       "\"logprobs\":null,\"finish_reason\":null}",
                       i);
        end_event(a, out, a->n_told, false);
        c->begun = true;
        if (!c->ended && !news) return; /* the token has no text of its own */
    }
    begin_event(a, out);
    a->dialect->write_chunk_choice(a, out, i);
    a->n_told = a->n_taken;
    end_event(a, out, a->n_told, a->params.timings_per_token || a->n_ended == a->n_choices);
    c->begun = true;
    answer_clear_choice(c);
}

static void write_usage(const answer *a, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    begin_event(a, out);
    skv_buf_text(out, "],\"usage\":");
    answer_usage(out, a->ex, &stats);
    skv_buf_text(out, ",\"timings\":");
    answer_timings(out, &stats);
    skv_buf_text(out, "}\n\n");
}

static void write_failed(answer *a, skv_buf *out, const api_error *error)
{
    skv_buf_text(out, errors_openai.event_front);
    errors_openai.write(out, error, a->ex->id);
    skv_buf_text(out, errors_openai.event_back);
}

static void write_progress(answer *a, skv_buf *out, const skv_job_stats *stats)
{
    begin_event(a, out);
    skv_buf_text(out, "],\"prompt_progress\":");
    answer_progress(out, &a->g, stats);
    skv_buf_text(out, "}\n\n");
}

static void write_quiet(answer *a, skv_buf *out)
{
    (void)a;
    skv_buf_text(out, ": waiting\n\n");
}

static void write_done(answer *a, skv_buf *out)
{
    if (a->params.include_usage) write_usage(a, out);
    skv_buf_text(out, "data: [DONE]\n\n");
}

const answer_shape answer_choices = {.front = write_front,
                                     .element = write_element,
                                     .back = write_back,
                                     .news = write_news,
                                     .quiet = write_quiet,
                                     .done = write_done,
                                     .failed = write_failed,
                                     .progress = write_progress};
