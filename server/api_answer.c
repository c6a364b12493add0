/* Generating requests: see api_answer.h. */
#include "api_answer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static const double PROGRESS_SECONDS = 0.25;

/* ---- life ---- */

static void release_choice(api_choice *c)
{
    out_release(&c->text);
    out_release(&c->tokens);
    out_release(&c->token_logprobs);
    out_release(&c->top_logprobs);
    out_release(&c->text_offset);
    out_release(&c->stopped);
    reply_parts_release(&c->parts);
}

static void free_answer(void *state)
{
    answer *a = state;
    generation_release(&a->g);
    prompts_release(&a->prompts);
    request_params_release(&a->params);
    for (size_t i = 0; a->choices != NULL && i < a->n_choices; i++) release_choice(&a->choices[i]);
    free(a->choices);
    tool_request_release(&a->tools);
    json_decref(a->body);
    json_decref(a->asked);
    free(a);
}

/* The prompt in front of an answer, where it is wanted back. */
static void echo_prompt(answer *a, const api_prompt *prompt, out_text *out)
{
    char *text = NULL;
    size_t n = 0;
    const skv_vocab *vocab = a->ex->server->vocab;
    if (prompt->text != NULL) {
        out_bytes(out, prompt->text, prompt->n_text);
    } else if (vocab != NULL && skv_vocab_decode(vocab, prompt->ids, prompt->n_ids, false, &text,
                                                 &n, NULL) == SKV_OK) {
        out_bytes(out, text, n);
    }
    skv_text_free(text);
}

/* A thought that the prompt has opened: not where a constraint holds from the first token on. */
static bool begins_in_thought(const answer *a)
{
    const api_prompt *prompt = &a->prompts.at[0];
    return a->ex->server->reply_format.thinks && prompt->text != NULL &&
           skv_reply_prompt_thinks(prompt->text, prompt->n_text);
}

static bool open_parts(answer *a, reply_parts *parts)
{
    skv_reply_options options = {.format = a->ex->server->reply_format,
                                 .one_call = !a->tools.parallel,
                                 .names = a->tools.names,
                                 .n_names = a->tools.n};
    if (a->tools.n == 0 || a->tools.choice == TOOL_CHOICE_NONE) {
        options.format.calls = SKV_CALLS_NONE;
    }
    options.in_thought = !a->has_format && begins_in_thought(a);
    return reply_parts_open(parts, a->ex, &options, a->params.stream);
}

static bool make_choices(answer *a, api_error *error)
{
    const size_t n = (size_t)a->params.n;
    a->n_choices = a->prompts.n * n;
    a->choices = calloc(a->n_choices, sizeof *a->choices);
    if (a->choices == NULL) return api_fail(error, 503, NULL, "no memory");
    for (size_t i = 0; a->params.echo && i < a->n_choices; i++) {
        echo_prompt(a, &a->prompts.at[i / n], &a->choices[i].text);
    }
    for (size_t i = 0; a->dialect->in_parts && i < a->n_choices; i++) {
        if (!open_parts(a, &a->choices[i].parts)) return api_fail(error, 503, NULL, "no memory");
    }
    return true;
}

/* The grammar of an answer whose calls follow one. Another format leaves no room for calls that
 * nobody demands. */
static bool constrain_to_calls(answer *a, api_error *error)
{
    char *text = NULL;
    size_t n = 0;
    a->has_format = a->g.job.constraint.begin != NULL;
    if (!tool_request_constrains(&a->tools)) return true;
    if (a->has_format && !tool_request_forces(&a->tools)) return true;
    const bool ok =
        tool_request_grammar(a->ex, &a->tools, begins_in_thought(a), &text, &n, error) &&
        constrain_calls(a->ex, text, n, &a->g.job.constraint, error);
    skv_text_free(text);
    return ok;
}

/* Clients that have to name a length without knowing the context name a large one. */
static void fit_context(answer *a)
{
    const size_t context = a->ex->server->limits.context, n = a->prompts.at[0].n_ids;
    if (n >= context || a->params.max_tokens <= (int64_t)(context - n)) return;
    a->params.max_tokens = (int64_t)(context - n);
    if (a->params.min_tokens > a->params.max_tokens) a->params.min_tokens = a->params.max_tokens;
    a->fitted = true;
}

static bool read_chat(answer *a, api_error *error)
{
    return !a->dialect->in_parts ||
           (tool_request_read(a->ex, a->body, &a->tools, error) && constrain_to_calls(a, error));
}

/* The body, in OpenAI's words. */
static bool read_body(answer *a, api_error *error)
{
    if (!json_body_parse(a->ex, &a->body, error)) return false;
    if (a->dialect->translate == NULL) return true;
    a->asked = a->body;
    a->body = a->dialect->translate(a->asked, error);
    return a->body != NULL;
}

static bool begin(answer *a, api_error *error)
{
    exchange *ex = a->ex;
    const answer_dialect *d = a->dialect;
    if (!read_body(a, error)) return false;
    if (!request_check_model(ex, a->body, error) ||
        !request_params_read(ex, a->body, d->api, &a->params, error) ||
        !constrain_read(ex, a->body, &a->g.job.constraint, error) ||
        !d->read_prompts(ex, a->body, &a->prompts, error) || !read_chat(a, error)) {
        return false;
    }
    skv_job_params job = request_params_job(ex, &a->params);
    prompts_recall(ex, &a->prompts, &job);
    const bool many = a->prompts.n > 1 && a->g.job.constraint.begin != NULL;
    if (many) return api_fail(error, 400, "prompt", "prompt: one at a time with a constraint");
    if (d->fits_context) fit_context(a);
    a->params.special_text = d->in_parts && ex->server->special_marks;
    return make_choices(a, error) &&
           generation_start(&a->g, ex, &a->prompts, &a->params, d->default_tokens, error);
}

/* ---- what comes ---- */

static void collect_prompt_token(answer *a, size_t i_prompt, const skv_output *o)
{
    const size_t n = (size_t)a->params.n;
    for (size_t i = 0; i < n; i++) {
        a->dialect->add_logprob(a, &a->choices[i_prompt * n + i], o);
    }
}

/* Puts an output into its choice; returns which one. */
static size_t collect(answer *a, size_t i_prompt, const skv_output *o)
{
    const size_t i = i_prompt * (size_t)a->params.n + o->i_answer;
    api_choice *c = &a->choices[i];
    if (o->kind == SKV_OUTPUT_PROMPT) {
        collect_prompt_token(a, i_prompt, o);
        return i;
    }
    if (a->dialect->in_parts) {
        reply_parts_push(&c->parts, o->text, o->n_text, o->kind == SKV_OUTPUT_END);
    } else {
        out_bytes(&c->text, o->text, o->n_text);
    }
    if (o->kind == SKV_OUTPUT_TOKEN) {
        if (a->params.wants_logprobs) a->dialect->add_logprob(a, c, o);
        return i;
    }
    c->ended = true;
    c->finish = o->finish;
    if (o->stopped != NULL) out_bytes(&c->stopped, o->stopped, o->n_stopped);
    a->n_ended++;
    return i;
}

const char *answer_finish_of(const api_choice *c)
{
    const bool calls = c->finish == SKV_FINISH_STOP && c->parts.n_whole > 0;
    return calls ? "tool_calls" : answer_finish(c->finish);
}

void answer_write_finish(out_text *out, const api_choice *c)
{
    out_str(out, ",\"finish_reason\":");
    out_json_str(out, c->ended ? answer_finish_of(c) : NULL);
    if (!c->ended) return;
    out_str(out, ",\"stop_reason\":");
    if (c->stopped.n > 0) {
        out_json(out, c->stopped.data, c->stopped.n);
    } else {
        out_str(out, "null");
    }
}

/* {"id":...,"object":...,"created":...,"model":... */
static void write_head(const answer *a, out_text *out, const char *object)
{
    out_format(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":",
               a->dialect->id_prefix, a->ex->id, object, (long long)a->created_s);
    out_json_str(out, a->ex->server->name);
}

/* ---- the whole response ---- */

static void write_whole(answer *a, out_text *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    write_head(a, out, a->dialect->object);
    out_str(out, ",\"choices\":[");
    for (size_t i = 0; i < a->n_choices; i++) {
        if (i > 0) out_str(out, ",");
        a->dialect->write_choice(a, out, i);
    }
    out_str(out, "],\"usage\":");
    answer_usage(out, &stats);
    out_str(out, ",\"timings\":");
    answer_timings(out, &stats);
    out_str(out, "}");
}

/* Waits for everything; false: it failed, or nobody waits any more (status 0). */
static bool gather(answer *a, api_error *error)
{
    skv_output o;
    size_t i_prompt;
    error->status = 0;
    for (;;) {
        switch (generation_next(&a->g, HUGE_VAL, &i_prompt, &o)) {
        case GENERATION_OUTPUT:
            if (o.kind == SKV_OUTPUT_END && answer_failed(&o, error)) return false;
            (void)collect(a, i_prompt, &o);
            break;
        case GENERATION_QUIET: break;
        case GENERATION_DONE: return true;
        case GENERATION_GONE: return false;
        case GENERATION_FAILED: *error = a->g.failure; return false;
        }
    }
}

static void answer_at_once(answer *a)
{
    api_error error;
    out_text out = {0};
    if (gather(a, &error)) {
        if (a->dialect->shape != NULL) {
            a->dialect->shape->whole(a, &out);
        } else {
            write_whole(a, &out);
        }
        exchange_reply_json(a->ex, 200, &out);
        return;
    }
    if (error.status == 0) (void)generation_gone_error(&a->g, &error);
    exchange_refuse(a->ex, &error);
}

/* ---- the stream ---- */

static void begin_event(const answer *a, out_text *out)
{
    out_str(out, "data: ");
    write_head(a, out, a->dialect->chunk_object);
    out_str(out, ",\"choices\":[");
}

static void end_event(const answer *a, out_text *out, bool with_timings)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    out_str(out, "]");
    if (a->params.continuous_usage) {
        out_str(out, ",\"usage\":");
        answer_usage(out, &stats);
    } else if (a->params.include_usage) {
        out_str(out, ",\"usage\":null");
    }
    if (with_timings) {
        out_str(out, ",\"timings\":");
        answer_timings(out, &stats);
    }
    out_str(out, "}\n\n");
}

static void clear_choice(api_choice *c)
{
    out_clear(&c->text);
    out_clear(&c->tokens);
    out_clear(&c->token_logprobs);
    out_clear(&c->top_logprobs);
    out_clear(&c->text_offset);
    c->n_tokens = 0;
}

/* An event for a choice, if there is anything to tell. */
static void write_chunk(answer *a, out_text *out, size_t i)
{
    api_choice *c = &a->choices[i];
    const bool news = c->text.n > 0 || c->n_tokens > 0 || reply_parts_have_news(&c->parts);
    if (c->begun && !c->ended && !news) return;
    begin_event(a, out);
    a->dialect->write_chunk_choice(a, out, i);
    end_event(a, out, a->n_ended == a->n_choices);
    c->begun = true;
    clear_choice(c);
}

static void write_usage(const answer *a, out_text *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    begin_event(a, out);
    out_str(out, "],\"usage\":");
    answer_usage(out, &stats);
    out_str(out, ",\"timings\":");
    answer_timings(out, &stats);
    out_str(out, "}\n\n");
}

static void write_failure(answer *a, out_text *out, const api_error *error)
{
    if (a->dialect->shape != NULL) {
        a->dialect->shape->failed(a, out, error);
        return;
    }
    out_str(out, "data: ");
    api_error_write(out, error);
    out_str(out, "\n\ndata: [DONE]\n\n");
}

/* Signs of life while there are no tokens. */
static void write_quiet(answer *a, out_text *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    if (a->params.return_progress && a->dialect->shape == NULL &&
        stats.prefilled_tokens > a->n_progress) {
        a->n_progress = stats.prefilled_tokens;
        begin_event(a, out);
        out_str(out, "],\"prompt_progress\":");
        answer_progress(out, &a->g, &stats);
        out_str(out, "}\n\n");
        return;
    }
    const double seconds = (double)(skv_now_ns() - a->written_ns) * 1e-9;
    if (seconds < a->ex->server->options.ping_seconds) return;
    if (a->dialect->shape != NULL) {
        a->dialect->shape->quiet(a, out);
    } else {
        out_str(out, ": waiting\n\n");
    }
}

static void write_news(answer *a, out_text *out, size_t i)
{
    if (a->dialect->shape != NULL) {
        a->dialect->shape->news(a, out);
    } else {
        write_chunk(a, out, i);
    }
}

static void write_end(answer *a, out_text *out)
{
    if (a->dialect->shape != NULL) {
        a->dialect->shape->done(a, out);
        return;
    }
    if (a->params.include_usage) write_usage(a, out);
    out_str(out, "data: [DONE]\n\n");
}

/* What comes next; false: the end. */
static bool fill(void *state, out_text *out)
{
    answer *a = state;
    skv_output o;
    size_t i_prompt;
    api_error error;
    const double ping = a->ex->server->options.ping_seconds;
    while (out->n == 0) {
        const double wait = a->params.return_progress ? PROGRESS_SECONDS : ping;
        switch (generation_next(&a->g, wait, &i_prompt, &o)) {
        case GENERATION_OUTPUT:
            if (o.kind == SKV_OUTPUT_END && answer_failed(&o, &error)) {
                write_failure(a, out, &error);
                return false;
            }
            const size_t i = collect(a, i_prompt, &o);
            if (o.kind != SKV_OUTPUT_PROMPT) write_news(a, out, i);
            break;
        case GENERATION_QUIET: write_quiet(a, out); break;
        case GENERATION_DONE: write_end(a, out); return false;
        case GENERATION_GONE: out->failed = true; return false;
        case GENERATION_FAILED: write_failure(a, out, &a->g.failure); return false;
        }
    }
    a->written_ns = skv_now_ns();
    return true;
}

void answer_handle(exchange *ex, const answer_dialect *dialect)
{
    api_error error;
    answer *a = calloc(1, sizeof *a);
    if (a == NULL) {
        (void)api_fail(&error, 503, NULL, "no memory");
        exchange_refuse(ex, &error);
        return;
    }
    a->dialect = dialect;
    a->ex = ex;
    a->g.event_fd = -1;
    a->created_s = (int64_t)time(NULL);
    a->written_ns = skv_now_ns();
    if (!begin(a, &error)) {
        free_answer(a);
        exchange_refuse(ex, &error);
    } else if (a->params.stream) {
        event_stream_send(ex, fill, free_answer, a);
    } else {
        answer_at_once(a);
        free_answer(a);
    }
}
