/*
 * swiftkv chat: a conversation in the terminal. The whole conversation is rendered for every
 * answer, and only the tokens that differ from those in the cache are run.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "runtime.h"
#include "text_out.h"

typedef struct chat {
    const cli_options *options;
    cli_model model;
    skv_sequence *sequence;
    cli_bytes template_text; /* empty with --raw */
    json_t *messages;        /* owned; with --raw only the texts count */
    skv_engine_stats limits;
    /* The answer that is being given. */
    cli_text_out out;
    cli_progress progress;
    size_t n_answer;
    skv_generation_stats stats;
    size_t n_cached; /* tokens of the prompt that the cache had */
    int status;
} chat;

/* ---- the conversation as tokens ---- */

static void add_message(chat *c, const char *role, const char *text, size_t n)
{
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_t *content = json_stringn(text, n);
    json_object_set_new(message, "content", content ? content : json_string(""));
    json_array_append_new(c->messages, message);
}

static void begin_conversation(chat *c)
{
    json_array_clear(c->messages);
    skv_sequence_truncate(c->sequence, 0);
    const char *system = c->options->system;
    if (system) add_message(c, "system", system, strlen(system));
}

/* Without a template: all messages, concatenated. */
static void join_texts(const chat *c, cli_bytes *out)
{
    for (size_t i = 0; i < json_array_size(c->messages); i++) {
        const json_t *content = json_object_get(json_array_get(c->messages, i), "content");
        const size_t n = json_string_length(content);
        out->data = cli_grow(out->data, out->n + n + 1, 1);
        memcpy(out->data + out->n, json_string_value(content), n);
        out->n += n;
        out->data[out->n] = 0;
    }
}

static int conversation_ids(const chat *c, cli_ids *out)
{
    cli_bytes text = {0};
    int status = CLI_DONE;
    if (c->options->raw) {
        join_texts(c, &text);
        status = cli_encode(&c->model, &text, true, false, out);
    } else {
        json_t *vars = json_object();
        json_object_set(vars, "messages", c->messages);
        json_object_set_new(vars, "add_generation_prompt", json_true());
        status = cli_encode_chat(&c->model, &c->template_text, vars, c->options->allow_special_text,
                                 out);
        json_decref(vars);
    }
    cli_bytes_release(&text);
    if (status == CLI_DONE && out->n == 0) return cli_fail("prompt: empty");
    return status;
}

/* Keeps the common prefix of cache and new tokens, but leaves one token to run. */
static size_t keep_common(chat *c, const cli_ids *ids)
{
    const int32_t *cached = skv_sequence_ids(c->sequence);
    const size_t n = skv_sequence_length(c->sequence);
    size_t common = 0;
    while (common < n && common + 1 < ids->n && cached[common] == ids->at[common]) common++;
    return skv_sequence_truncate(c->sequence, common);
}

/* ---- an answer ---- */

static void on_progress(void *user, size_t done, size_t total)
{
    chat *c = user;
    cli_progress_tokens(&c->progress, done, total);
}

static bool on_token(void *user, int32_t id)
{
    chat *c = user;
    cli_progress_end(&c->progress);
    c->n_answer++;
    c->status = cli_text_out_push(&c->out, id);
    return c->status == CLI_DONE && !c->out.stopped && !cli_interrupted(c->options->interrupt);
}

/* Runs the new tokens of `ids` and generates. A cancellation that came too late for the answer
 * before may hit this one; then it is begun again. */
static skv_status generate(chat *c, const cli_ids *ids, skv_sampler *sampler, skv_error *err)
{
    const size_t wished = c->options->n_tokens;
    const size_t room = c->limits.context - ids->n;
    const skv_generation wanted = {.max_tokens = wished < room ? wished : room,
                                   .sampler = sampler,
                                   .stats = &c->stats,
                                   .on_token = on_token,
                                   .on_progress = on_progress,
                                   .user = c};
    skv_status status = SKV_OK;
    do {
        c->n_cached = keep_common(c, ids);
        for (size_t i = 0; i < c->n_cached; i++) skv_sampler_accept(sampler, ids->at[i], false);
        status = skv_generate(c->model.engine, c->sequence, ids->at + c->n_cached,
                              ids->n - c->n_cached, &wanted, err);
    } while (status == SKV_CANCELLED && c->n_answer == 0 &&
             !cli_interrupted(c->options->interrupt));
    return status;
}

static void print_stats(const chat *c)
{
    const double decode_s = (double)c->stats.decode_ns * 1e-9;
    fprintf(stderr, "[%zu tokens read, %zu from the cache, first token after %.0f ms",
            skv_sequence_length(c->sequence), c->n_cached, (double)c->stats.ttft_ns * 1e-6);
    if (c->n_answer > 1 && decode_s > 0) {
        fprintf(stderr, "; %zu generated, %.1f tokens/s", c->n_answer,
                (double)(c->n_answer - 1) / decode_s);
    }
    fprintf(stderr, "; %.1f MiB of keys and values]\n",
            (double)skv_sequence_kv_bytes(c->sequence) / 1048576);
}

static int answer_ids(chat *c, const cli_ids *ids)
{
    skv_error err = {0};
    skv_sampler *sampler = NULL;
    int status = cli_check(skv_sampler_create(&c->options->sampling,
                                              skv_engine_vocab(c->model.engine), &sampler, &err),
                           &err);
    if (status != CLI_DONE) return status;
    status = cli_text_out_open(&c->out, c->model.vocab, ids, &c->options->stops, stdout);
    skv_status ran = SKV_OK;
    if (status == CLI_DONE) {
        c->n_answer = 0;
        c->stats = (skv_generation_stats){0};
        cli_progress_begin(&c->progress, "reading");
        cli_interrupt_watch(c->options->interrupt, c->model.engine);
        ran = generate(c, ids, sampler, &err);
        const bool interrupted = cli_interrupted(c->options->interrupt);
        cli_interrupt_unwatch(c->options->interrupt);
        cli_progress_end(&c->progress);
        status = c->status != CLI_DONE ? c->status : cli_text_out_finish(&c->out);
        if (interrupted && ran == SKV_CANCELLED) ran = SKV_OK;
        putchar('\n');
        fflush(stdout);
    }
    if (status == CLI_DONE) status = cli_check(ran, &err);
    if (status == CLI_DONE) add_message(c, "assistant", c->out.text.data, c->out.text.n);
    if (status == CLI_DONE && cli_terminal()) print_stats(c);
    cli_text_out_close(&c->out);
    skv_sampler_free(sampler);
    return status;
}

/* Removes a question that does not fit; the conversation continues. */
static int answer(chat *c, const char *line, size_t n)
{
    add_message(c, "user", line, n);
    cli_ids ids = {0};
    int status = conversation_ids(c, &ids);
    if (status == CLI_DONE && ids.n >= c->limits.context) {
        cli_warn("the conversation has %zu tokens, the context %zu: /reset forgets it", ids.n,
                 c->limits.context);
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    } else if (status == CLI_DONE) {
        status = answer_ids(c, &ids);
    }
    cli_ids_release(&ids);
    return status;
}

/* ---- the terminal ---- */

static void print_commands(void)
{
    fprintf(stderr, "/reset  forgets the conversation\n/stats  shows the cost of the last answer\n"
                    "/help   this list\n/exit   ends, as does the end of input or Ctrl-C here\n");
}

/* One line of input; false: the conversation ends. */
static bool handle_line(chat *c, const char *line, size_t n, int *status)
{
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) return false;
    if (strcmp(line, "/reset") == 0) {
        begin_conversation(c);
    } else if (strcmp(line, "/stats") == 0) {
        print_stats(c);
    } else if (strcmp(line, "/help") == 0) {
        print_commands();
    } else if (n > 0) {
        *status = answer(c, line, n);
    }
    return *status == CLI_DONE;
}

static int converse(chat *c)
{
    char *line = NULL;
    size_t room = 0;
    int status = CLI_DONE;
    const bool terminal = cli_terminal();
    if (terminal) fprintf(stderr, "/help lists the commands.\n");
    for (;;) {
        if (terminal) fprintf(stderr, "> ");
        errno = 0;
        const ssize_t got = getline(&line, &room, stdin);
        if (got < 0) break;
        size_t n = (size_t)got;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (!handle_line(c, line, n, &status)) break;
    }
    if (terminal) fputc('\n', stderr);
    if (status == CLI_DONE && ferror(stdin) != 0) {
        status = cli_fail("standard input: %s", strerror(errno));
    }
    free(line);
    return status;
}

static int open_template(chat *c)
{
    const cli_options *o = c->options;
    if (o->raw) return CLI_DONE;
    if (o->template_file) return cli_read_template(o->template_file, &c->template_text);
    const char *text = skv_vocab_chat_template(c->model.vocab);
    if (!text) {
        return cli_fail("%s: the model has no chat template: give --template FILE, or --raw to "
                        "continue the bare text",
                        c->model.path);
    }
    c->template_text.n = strlen(text);
    c->template_text.data = cli_alloc(c->template_text.n + 1, 1);
    memcpy(c->template_text.data, text, c->template_text.n);
    return CLI_DONE;
}

int cli_run_chat(const cli_options *options)
{
    chat c = {.options = options, .messages = json_array()};
    int status = cli_model_describe_text(&c.model, options);
    if (status == CLI_DONE) status = open_template(&c);
    if (status == CLI_DONE) {
        skv_engine_options engine = cli_engine_options(options);
        engine.kv_sequences = 1;
        status = cli_model_start(&c.model, &engine);
    }
    if (status == CLI_DONE) {
        skv_error err = {0};
        skv_engine_get_stats(c.model.engine, &c.limits);
        cli_note_length(&c.model, options->context > 0 ? "--ctx" : "a context of",
                        c.limits.context);
        status = cli_check(skv_sequence_create(c.model.engine, 0, &c.sequence, &err), &err);
    }
    if (status == CLI_DONE) {
        begin_conversation(&c);
        status = converse(&c);
    }
    skv_sequence_free(c.sequence);
    json_decref(c.messages);
    cli_bytes_release(&c.template_text);
    cli_model_close(&c.model);
    return status;
}
