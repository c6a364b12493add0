/* Generating requests: see api_answer.h. */
#include "answer/api_answer.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "answer/slots.h"
#include "base/system_sockets.h"

static const double PROGRESS_SECONDS = 0.25;

/* ---- life ---- */

static void release_choice(api_choice *c)
{
    skv_buf_release(&c->text);
    skv_buf_release(&c->tokens);
    skv_buf_release(&c->token_logprobs);
    skv_buf_release(&c->top_logprobs);
    skv_buf_release(&c->text_offset);
    skv_buf_release(&c->stopped);
    skv_text_stream_free(c->reader);
    reply_parts_release(&c->parts);
}

static void free_choices(api_choice *choices, size_t n)
{
    for (size_t i = 0; choices && i < n; i++) release_choice(&choices[i]);
    free(choices);
}

static void free_answer(void *state)
{
    answer *a = state;
    generation_release(&a->g);
    free_choices(a->choices, a->n_choices);
    free_choices(a->echoes, a->prompts.n);
    prompts_release(&a->prompts);
    request_params_release(&a->params);
    tool_request_release(&a->tools);
    skv_buf_release(&a->said);
    json_decref(a->body);
    json_decref(a->asked);
    free(a);
}

static void add_plain(skv_buf *out, const char *text, size_t n)
{
    skv_buf_append(out, text, n);
}

/* A prompt's text, from its ids where it was given as such. */
static void add_prompt_text(const answer *a, size_t i, skv_buf *out)
{
    const api_prompt *prompt = &a->prompts.at[i];
    if (prompt->text) {
        skv_buf_append(out, prompt->text, prompt->n_text);
    } else {
        answer_ids_text(a->ex, (skv_id_piece){prompt->ids, prompt->n_ids}, false, add_plain, out);
    }
}

/* Whether the prompt has opened a thought, which the answer goes on with. */
static bool begins_in_thought(const answer *a)
{
    const api_prompt *prompt = &a->prompts.at[0];
    return prompt->text &&
           skv_reply_prompt_thinks(a->ex->model->reply_format, prompt->text, prompt->n_text);
}

/* Thoughts that are part of the text have the mark that the prompt opens them with. */
static void keep_opening(const answer *a, reply_parts *parts)
{
    const api_prompt *prompt = &a->prompts.at[0];
    const size_t n = begins_in_thought(a) ? skv_reply_thought_opening(a->ex->model->reply_format,
                                                                      prompt->text, prompt->n_text)
                                          : 0;
    if (n > 0) reply_parts_push(parts, prompt->text + prompt->n_text - n, n, false);
}

static bool open_parts(answer *a, reply_parts *parts)
{
    skv_reply_options options = {.format = a->ex->model->reply_format,
                                 .one_call = !a->tools.parallel,
                                 .names = a->tools.names,
                                 .n_names = a->tools.n};
    options.no_calls = a->tools.n == 0 || a->tools.choice == TOOL_CHOICE_NONE;
    options.types = tool_request_types;
    options.functions = &a->tools;
    if (a->params.keep_thoughts) options.format.thinks = SKV_THOUGHTS_NONE;
    options.in_thought = options.format.thinks && begins_in_thought(a);
    if (!a->prompts.at[0].continues) {
        const answer_frame *frame = &a->ex->model->frame;
        options.frame = (skv_reply_frame){frame->lead, frame->behind, frame->tail};
    }
    const bool streams = a->params.stream && !a->dialect->whole_calls;
    if (!reply_parts_open(parts, a->ex, &a->tools, &options, streams)) return false;
    parts->call_prefix = a->dialect->call_prefix ? a->dialect->call_prefix : "call_";
    if (a->params.keep_thoughts) keep_opening(a, parts);
    return true;
}

static api_choice *create_choices(const answer *a, size_t n, api_error *error)
{
    if (!request_hold(a->ex, n * sizeof(api_choice), "prompt", error)) return NULL;
    api_choice *choices = calloc(n, sizeof *choices);
    if (!choices) (void)api_fail(error, 503, NULL, "no memory");
    for (size_t i = 0; choices && i < n; i++) {
        api_choice *c = &choices[i];
        skv_buf *const texts[] = {&c->text,         &c->tokens,      &c->token_logprobs,
                                  &c->top_logprobs, &c->text_offset, &c->stopped};
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
            *texts[k] = exchange_text(a->ex);
        }
    }
    return choices;
}

/* A prompt that is wanted back stands once, however many answers begin with it. */
static bool make_echoes(answer *a, api_error *error)
{
    const size_t n = (size_t)a->params.n;
    if (!a->params.echo) return true;
    a->echoes = create_choices(a, a->prompts.n, error);
    if (!a->echoes) return false;
    const skv_vocab *vocab = a->ex->model->vocab;
    for (size_t i = 0; i < a->prompts.n; i++) {
        /* Special tokens that the prompt spells are in its text; of ids they are not. */
        const bool special = a->prompts.at[i].text;
        skv_buf *text = &a->echoes[i].text;
        add_prompt_text(a, i, text);
        a->echoes[i].n_text_chars = answer_count_chars(text->data, text->size);
        if (!vocab || !a->params.wants_logprobs) continue;
        if (skv_text_stream_create(vocab, special, &a->echoes[i].reader, NULL) != SKV_OK) {
            return api_fail(error, 503, NULL, "no memory");
        }
    }
    for (size_t i = 0; i < a->n_choices; i++) a->choices[i].echo = &a->echoes[i / n];
    return true;
}

static bool make_choices(answer *a, api_error *error)
{
    a->n_choices = a->prompts.n * (size_t)a->params.n;
    if (a->n_choices > 1) a->i_slot = SIZE_MAX;
    a->choices = create_choices(a, a->n_choices, error);
    if (!a->choices) return false;
    for (size_t i = 0; a->dialect->in_parts && i < a->n_choices; i++) {
        if (!open_parts(a, &a->choices[i].parts)) return api_fail(error, 503, NULL, "no memory");
    }
    return make_echoes(a, error);
}

/* The grammar of an answer whose calls follow one. Another format leaves no room for optional
 * calls. */
static bool constrain_to_calls(answer *a, api_error *error)
{
    char *text = NULL;
    size_t n = 0;
    const bool has_format = a->g.job.constraint.begin;
    if (!tool_request_constrains(a->ex, &a->tools)) return true;
    if (has_format && !tool_request_forces(&a->tools)) return true;
    const bool ok =
        tool_request_grammar(a->ex, &a->tools, begins_in_thought(a), &text, &n, error) &&
        request_hold(a->ex, n, "tools", error) &&
        constrain_calls(a->ex, text, n, &a->g.job.constraint, error);
    skv_text_free(text);
    return ok;
}

/* The constraint of the answer. If the prompt has opened a thought, that is free. */
static bool constrain(answer *a, api_error *error)
{
    exchange *ex = a->ex;
    skv_error err;
    char *thought = NULL;
    size_t n = 0;
    if (a->dialect->in_parts && begins_in_thought(a)) {
        const skv_reply_rules rules = {.format = ex->model->reply_format,
                                       .special = (const char *const *)ex->model->special,
                                       .n_special = ex->model->n_special};
        const skv_status status = skv_reply_thought_grammar(&rules, &thought, &n, &err);
        if (status != SKV_OK) return exchange_fail(ex, status, &err, NULL, error);
    }
    const bool ok =
        constrain_read(ex, a->body, (skv_text_piece){thought, n}, &a->g.job.constraint, error);
    skv_text_free(thought);
    return ok && (!a->dialect->in_parts || constrain_to_calls(a, error));
}

/* The body, in OpenAI's words. */
static bool read_body(answer *a, api_error *error)
{
    if (!request_body_read(a->ex, &a->body, error)) return false;
    if (!a->dialect->translate) return true;
    a->asked = a->body;
    a->body = a->dialect->translate(a->ex, a->asked, error);
    return a->body;
}

/* Which slot the answer fills, where there are any: `id_slot`, or the first. */
static bool read_slot(answer *a, api_error *error)
{
    const json_t *given = json_body_get(a->asked ? a->asked : a->body, "id_slot");
    const size_t n = a->ex->server->options.scheduler.max_running;
    a->i_slot = SIZE_MAX;
    a->said = exchange_text(a->ex);
    if (!a->ex->server->slots) return true;
    const json_int_t i = given ? json_integer_value(given) : -1;
    if (given && (!json_is_integer(given) || i < -1 || i >= (json_int_t)n)) {
        return api_refuse(error, "id_slot", "%s, but there are slots 0 to %zu",
                          json_show(given).text, n - 1);
    }
    a->i_slot = i > 0 ? (size_t)i : 0;
    return true;
}

/* All but the prompts. */
static bool read_request(answer *a, api_error *error)
{
    exchange *ex = a->ex;
    const answer_dialect *d = a->dialect;
    return read_body(a, error) && request_check_model(ex, a->body, error) &&
           request_params_read(ex, a->body, d->api, &a->params, error) && read_slot(a, error) &&
           (!d->in_parts || (tool_request_read(ex, a->body, &a->tools, error) &&
                             tool_request_read_types(ex, &a->tools, error)));
}

static bool begin(answer *a, api_error *error)
{
    exchange *ex = a->ex;
    const answer_dialect *d = a->dialect;
    if (!d->read_prompts(ex, a->body, &a->prompts, error) || !constrain(a, error)) return false;
    skv_job_params job = request_params_job(ex, &a->params);
    prompts_recall(ex, &a->prompts, &job);
    const bool many = a->prompts.n > 1 && a->g.job.constraint.begin;
    if (many) return api_refuse(error, "prompt", "one at a time with a constraint");
    a->fitted = a->params.max_tokens > 0 &&
                (size_t)a->params.max_tokens + a->prompts.at[0].n_ids > ex->model->limits.context;
    a->params.special_text = d->in_parts && ex->model->special_marks;
    return make_choices(a, error) &&
           generation_start(&a->g, ex, &a->prompts, &a->params, d->default_tokens, error);
}

/* ---- the answer ---- */

/* Puts an output into its choice; returns which one. */
static size_t collect(answer *a, size_t i_prompt, const skv_output *o)
{
    const size_t i = i_prompt * (size_t)a->params.n + o->i_answer;
    api_choice *c = &a->choices[i];
    if (o->kind == SKV_OUTPUT_PROMPT) {
        if (a->echoes) a->dialect->add_logprob(a, &a->echoes[i_prompt], o);
        return i;
    }
    if (a->dialect->in_parts) {
        reply_parts_push(&c->parts, o->text, o->n_text, o->kind == SKV_OUTPUT_END);
    } else {
        skv_buf_append(&c->text, o->text, o->n_text);
    }
    if (o->kind == SKV_OUTPUT_TOKEN) {
        a->n_taken++;
        if (a->i_slot != SIZE_MAX) skv_buf_append(&a->said, &o->id, sizeof o->id);
        if (a->params.wants_logprobs || a->dialect->every_token) a->dialect->add_logprob(a, c, o);
        return i;
    }
    c->ended = true;
    c->finish = o->finish;
    if (o->stopped) skv_buf_append(&c->stopped, o->stopped, o->n_stopped);
    a->n_ended++;
    return i;
}

/* ---- the whole response ---- */

/* Whether the response is a list of the answers. */
static bool is_list(const answer *a)
{
    const answer_shape *shape = a->dialect->shape;
    return shape->element && (!shape->whole || a->n_choices > 1);
}

/* The i-th of the elements between front and back. */
static void write_element(answer *a, skv_buf *out, size_t i)
{
    if (i > 0) skv_buf_text(out, ",");
    a->dialect->shape->element(a, out, i);
}

static void write_whole(answer *a, skv_buf *out)
{
    const answer_shape *shape = a->dialect->shape;
    if (!is_list(a)) {
        shape->whole(a, out);
        return;
    }
    shape->front(a, out);
    for (size_t i = 0; i < a->n_choices; i++) write_element(a, out, i);
    shape->back(a, out);
}

/* About the bytes of a choice as JSON, from below. */
static size_t choice_bytes(const api_choice *c)
{
    const size_t n = c->text.size + c->tokens.size + c->token_logprobs.size + c->top_logprobs.size +
                     c->text_offset.size;
    return n + (c->echo ? choice_bytes(c->echo) : 0);
}

/* A large response is written choice by choice, as the client takes it: it holds one choice and
 * the data that the choices are made of. */
static void send_in_pieces(answer *a, size_t largest)
{
    exchange *ex = a->ex;
    const answer_shape *shape = a->dialect->shape;
    skv_buf out = exchange_text(ex);
    exchange_response response = {
        .status = 200, .content_type = "application/json", .in_pieces = true};
    (void)skv_buf_reserve(&out, largest + LIMIT_WHOLE_BYTES / 4);
    shape->front(a, &out);
    write_element(a, &out, 0);
    if (out.failed) {
        exchange_reply_json(ex, 200, &out); /* names the part that found no memory */
        return;
    }
    bool sent = exchange_send(ex, &response);
    for (size_t i = 0; sent && i < a->n_choices; i++) {
        if (i > 0) write_element(a, &out, i);
        sent = !out.failed && exchange_write(ex, out.data, out.size);
        skv_buf_clear(&out);
        release_choice(&a->choices[i]);
    }
    shape->back(a, &out);
    if (sent && !out.failed && exchange_write(ex, out.data, out.size)) {
        exchange_end(ex);
    } else {
        ex->closes = true;
    }
    skv_buf_release(&out);
}

static void send_whole(answer *a)
{
    size_t all = 0, largest = 0;
    const bool pieces = is_list(a);
    for (size_t i = 0; pieces && i < a->n_choices; i++) {
        const size_t n = choice_bytes(&a->choices[i]);
        all += n;
        largest = n > largest ? n : largest;
    }
    const bool many = a->dialect->shape->repeats_asked && a->n_choices > SKV_JOB_ANSWERS_MAX;
    if (pieces && (all > LIMIT_WHOLE_BYTES || many)) {
        send_in_pieces(a, largest);
        return;
    }
    skv_buf out = exchange_text(a->ex);
    write_whole(a, &out);
    exchange_reply_json(a->ex, 200, &out);
}

/* Before the client knows that all is there, for it may save it at once. */
static void fill_slot(const answer *a)
{
    const api_prompt *prompt = &a->prompts.at[0];
    if (a->i_slot == SIZE_MAX || a->said.failed) return;
    slots_put(a->ex, a->i_slot, (skv_id_piece){prompt->ids, prompt->n_ids},
              (skv_id_piece){(const int32_t *)(const void *)a->said.data,
                             a->said.size / sizeof(int32_t)});
}

static void take(void *user, size_t i_prompt, const skv_output *o)
{
    (void)collect(user, i_prompt, o);
}

static void answer_whole(answer *a)
{
    api_error error;
    if (generation_gather(&a->g, take, a, &error)) {
        fill_slot(a);
        send_whole(a);
    } else {
        exchange_refuse(a->ex, &error);
    }
}

/* ---- the stream ---- */

static void write_failure(answer *a, skv_buf *out, const api_error *error)
{
    exchange_note(a->ex, error);
    a->dialect->shape->failed(a, out, error);
}

static void write_progress_event(answer *a, skv_buf *out, skv_job_stats stats, size_t n_read)
{
    stats.prefilled_tokens = n_read;
    a->dialect->shape->progress(a, out, &stats);
}

/* How far the prompt has been read, if that is wanted and new. The first event tells how much
 * came from the cache. */
static void write_progress(answer *a, skv_buf *out)
{
    skv_job_stats stats;
    if (!a->params.return_progress || !a->dialect->shape->progress) return;
    generation_stats(&a->g, &stats);
    const size_t n_read = stats.prefilled_tokens;
    if (n_read <= a->n_progress) return;
    if (a->n_progress == 0 && n_read > stats.cached_tokens) {
        write_progress_event(a, out, stats, stats.cached_tokens);
    }
    write_progress_event(a, out, stats, n_read);
    a->n_progress = n_read;
}

/* Signs of life while there are no tokens. */
static void write_quiet(answer *a, skv_buf *out)
{
    write_progress(a, out);
    if (out->size > 0) return;
    const double seconds = (double)(skv_now_ns() - a->written_ns) * 1e-9;
    if (seconds >= a->ex->server->options.ping_seconds) a->dialect->shape->quiet(a, out);
}

/* The next part; false: the end. */
static bool fill(void *state, skv_buf *out)
{
    answer *a = state;
    skv_output o;
    size_t i_prompt;
    api_error error;
    const double ping = a->ex->server->options.ping_seconds;
    while (out->size == 0) {
        const double wait = a->params.return_progress ? PROGRESS_SECONDS : ping;
        switch (generation_next(&a->g, wait, &i_prompt, &o)) {
        case GENERATION_OUTPUT:
            if (o.kind == SKV_OUTPUT_END && generation_output_failed(&o, &error)) {
                write_failure(a, out, &error);
                return false;
            }
            const size_t i = collect(a, i_prompt, &o);
            if (a->ex->refusal.status != 0) {
                write_failure(a, out, &a->ex->refusal);
                return false;
            }
            if (a->n_ended < a->n_choices) write_progress(a, out);
            if (o.kind != SKV_OUTPUT_PROMPT) a->dialect->shape->news(a, out, i);
            break;
        case GENERATION_QUIET: write_quiet(a, out); break;
        case GENERATION_DONE:
            fill_slot(a);
            a->dialect->shape->done(a, out);
            return false;
        case GENERATION_GONE: out->failed = true; return false;
        case GENERATION_FAILED: write_failure(a, out, &a->g.failure); return false;
        }
    }
    a->written_ns = skv_now_ns();
    return true;
}

/* A request that wants nothing generated; true: it was replied to. */
static bool reply_at_once(const answer *a)
{
    if (!a->dialect->at_once) return false;
    skv_buf out = exchange_text(a->ex);
    const bool is_one = a->dialect->at_once(a->ex, a->asked ? a->asked : a->body, &out);
    if (is_one) {
        exchange_reply_json(a->ex, 200, &out);
    } else {
        skv_buf_release(&out);
    }
    return is_one;
}

/*
 * ---- the beginning of the next request ----
 *
 * That is the history as the chat template writes it once the answer is a part of it. Templates
 * leave thoughts out there, and write calls anew, so it differs from the prompt and answer in the
 * cache. It is rendered from the request's body, the answer as the client has it and a mark where
 * the next message begins, and the scheduler reads it while no job waits (skv_scheduler_expect).
 * A failure here is silent: less of the next prompt is found.
 */

static const char next_mark[] = "<|swiftkv_next_turn_here|>";

/* The next request on the connection is there, or the server ends. A client that has left may come
 * back on another connection. */
static bool is_called_off(void *arg)
{
    const exchange *ex = arg;
    struct pollfd next = {.fd = ex->fd, .events = POLLIN};
    if (server_get_state(ex->server) != SERVER_READY) return true;
    return poll(&next, 1, 0) > 0 && !skv_socket_has_left(ex->fd, NULL, 0);
}

/* The conversation with the answer and the next message, in the words of chats; NULL: none. */
static json_t *make_next(const answer *a, api_error *error)
{
    exchange *ex = a->ex;
    json_t *asked = NULL;
    if (!json_body_parse(ex, &asked, error)) return NULL;
    json_t *body =
        a->dialect->translate ? a->dialect->translate(ex, asked, error) : json_incref(asked);
    json_decref(asked);
    json_t *messages = json_object_get(body, "messages");
    if (json_is_array(messages) &&
        reply_parts_add_messages(&a->choices[0].parts, next_mark, messages, error)) {
        (void)json_object_del(body, "continue_final_message");
        return body;
    }
    json_decref(body);
    return NULL;
}

static void expect_history(const answer *a)
{
    exchange *ex = a->ex;
    api_error error;
    prompt_list next = {0};
    json_t *body = make_next(a, &error);
    if (body && messages_read_front(ex, body, next_mark, &next, &error)) {
        skv_job_params job = request_params_job(ex, &a->params);
        prompts_recall(ex, &next, &job);
        job.ids = next.at[0].ids;
        job.n_ids = next.at[0].n_ids;
        const skv_status status =
            next.at[0].is_cut ? SKV_RANGE : skv_scheduler_expect(ex->model->scheduler, &job, NULL);
        (void)status;
    }
    prompts_release(&next);
    json_decref(body);
}

static bool next_is_wanted(const answer *a)
{
    const exchange *ex = a->ex;
    const bool on = ex->server->options.scheduler.idle_share > 0 && a->dialect->in_parts;
    skv_scheduler_metrics m;
    if (!on || !ex->whole || a->n_choices != 1 || !a->choices[0].ended) return false;
    if (a->choices[0].parts.failed || a->choices[0].finish > SKV_FINISH_LENGTH) return false;
    skv_scheduler_get_metrics(ex->model->scheduler, &m);
    return m.running + m.waiting == 0;
}

static void expect_next(answer *a)
{
    exchange *ex = a->ex;
    prompt_report unseen = {0};
    if (!next_is_wanted(a)) return;
    /* No client waits for it, and the request's own counts were sent. */
    char left_out[sizeof ex->left_out];
    memcpy(left_out, ex->left_out, sizeof left_out);
    const api_error refusal = ex->refusal;
    skv_budget_waited(ex->budget, skv_now_ns() - ex->begun_ns);
    ex->budget->stopped = is_called_off;
    ex->budget->wait = NULL;
    ex->changes = &unseen;
    expect_history(a);
    ex->changes = &ex->changed;
    memcpy(ex->left_out, left_out, sizeof left_out);
    ex->refusal = refusal;
}

static void end_stream(void *state)
{
    expect_next(state);
    free_answer(state);
}

static void stream_answer(answer *a)
{
    const char *type = a->dialect->stream_type;
    event_stream_send(a->ex, type ? type : "text/event-stream", fill, end_stream, a);
}

void answer_handle(exchange *ex, const answer_dialect *dialect)
{
    api_error error;
    answer *a = calloc(1, sizeof *a);
    if (!a) {
        (void)api_fail(&error, 503, NULL, "no memory");
        exchange_refuse(ex, &error);
        return;
    }
    a->dialect = dialect;
    a->ex = ex;
    ex->has_events = !dialect->stream_type;
    a->g.wake = (skv_wake){-1, -1};
    a->created_s = (int64_t)time(NULL);
    a->written_ns = skv_now_ns();
    const bool read = read_request(a, &error);
    if (read && reply_at_once(a)) {
        free_answer(a);
    } else if (!read || !begin(a, &error)) {
        free_answer(a);
        exchange_refuse(ex, &error);
    } else if (a->params.stream) {
        stream_answer(a);
    } else {
        answer_whole(a);
        expect_next(a);
        free_answer(a);
    }
}
