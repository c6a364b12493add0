/* A model as it is served: its engine, its scheduler, and how its template writes answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request/request_input.h"
#include "state/server_impl.h"

static bool set_reply_format(const server_options *o, server_model *model, char *error)
{
    skv_reply_format *format = &model->reply_format;
    *format = skv_reply_format_of(model->template_text, model->n_template);
    if (o->tool_format && !skv_call_syntax_parse(o->tool_format, &format->calls)) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX,
                       "tool format \"%s\": none, llama3, hermes, or another of the manual",
                       o->tool_format);
        return false;
    }
    const bool none = o->reasoning_format && strcmp(o->reasoning_format, "none") == 0;
    const bool think = o->reasoning_format && strcmp(o->reasoning_format, "think") == 0;
    if (o->reasoning_format && !none && !think) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "reasoning format \"%s\": none or think",
                       o->reasoning_format);
        return false;
    }
    if (think && format->thinks == SKV_THOUGHTS_NONE) format->thinks = SKV_THOUGHTS_THINK;
    if (none) format->thinks = SKV_THOUGHTS_NONE;
    return true;
}

static void log_line(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "swiftkv: %s\n", line);
}

/* The marks around answers, which the text of the template alone does not tell. */
static void learn_frame(const server_options *o, server_model *model)
{
    skv_reply_format *format = &model->reply_format;
    const skv_vocab *vocab = model->vocab;
    if (!model->template_text || !vocab || model->template_error[0]) return;
    if (format->thinks == SKV_THOUGHTS_HARMONY) return;
    if (!o->reasoning_format && format->thinks == SKV_THOUGHTS_NONE) {
        format->thinks = tool_template_thoughts(vocab, model->template_text, model->n_template);
    }
    model->frame =
        tool_template_frame(vocab, model->template_text, model->n_template, format->thinks);
}

/* A template without calls that are known gets them in texts. */
static void choose_generic_tools(const server_options *o, server_model *model)
{
    skv_reply_format *format = &model->reply_format;
    const skv_vocab *vocab = model->vocab;
    model->generic_tools = false;
    model->habits = (tool_habits){false};
    model->efforts = EFFORTS_ALL;
    if (!model->template_text || !vocab || model->template_error[0]) return;
    model->habits = tool_template_habits(vocab, model->template_text, model->n_template);
    model->efforts = tool_template_efforts(vocab, model->template_text, model->n_template);
    if (o->tool_format) return;
    format->calls =
        tool_template_calls(vocab, model->template_text, model->n_template, format->calls);
    model->generic_tools = format->calls == SKV_CALLS_NONE ||
                           tool_template_ignores(vocab, model->template_text, model->n_template);
    if (!model->generic_tools) return;
    format->calls = SKV_CALLS_HERMES;
    log_line(NULL, "tools: the chat template has no known format for calls; a system message asks "
                   "for JSON, and a grammar enforces it");
}

/* The text of a token that is none for readers, to be freed; NULL: it is text. */
static char *special_text(const skv_vocab *vocab, int32_t id)
{
    char *shown = NULL, *text = NULL;
    size_t n_shown = 0, n = 0;
    const skv_id_piece one = {&id, 1};
    const bool hidden =
        skv_vocab_decode(vocab, one, (skv_decode_options){0}, &shown, &n_shown, NULL) == SKV_OK &&
        n_shown == 0;
    skv_text_free(shown);
    if (hidden &&
        skv_vocab_decode(vocab, one, (skv_decode_options){.with_special = true}, &text, &n, NULL) ==
            SKV_OK &&
        n > 0) {
        return text;
    }
    skv_text_free(text);
    return NULL;
}

/* Keeps a text that is not there yet. */
static void keep_special(server_model *model, char *text)
{
    for (size_t i = 0; i < model->n_special; i++) {
        if (strcmp(model->special[i], text) != 0) continue;
        skv_text_free(text);
        return;
    }
    if (model->n_special < SKV_REPLY_MARKS_MAX) {
        model->special[model->n_special++] = text;
    } else {
        skv_text_free(text);
    }
}

/* The special tokens in the marks of its replies. */
static void find_special(server_model *model)
{
    const char *marks[SKV_REPLY_MARKS_MAX];
    const char *const frame[] = {model->frame.lead, model->frame.behind, model->frame.tail};
    size_t n = skv_reply_marks(model->reply_format, marks);
    for (size_t i = 0; i < 3 && n < SKV_REPLY_MARKS_MAX; i++) {
        if (frame[i]) marks[n++] = frame[i];
    }
    for (size_t i = 0; model->vocab && i < n; i++) {
        int32_t *ids = NULL;
        size_t n_ids = 0;
        const skv_status status =
            skv_vocab_encode(model->vocab, (skv_text_piece){marks[i], strlen(marks[i])},
                             (skv_encode_options){.parse_special = true}, &ids, &n_ids, NULL);
        for (size_t k = 0; status == SKV_OK && k < n_ids; k++) {
            char *text = special_text(model->vocab, ids[k]);
            if (text) keep_special(model, text);
        }
        skv_text_free(ids);
    }
    model->special_marks = model->n_special > 0;
}

static bool copy_template(server_model *model, const server_template *template, char *error)
{
    model->guesses_template = template->is_guess;
    if (!template->text) return true;
    model->n_template = strlen(template->text);
    model->template_text = malloc(model->n_template + 1);
    if (model->template_text) {
        memcpy(model->template_text, template->text, model->n_template + 1);
        return true;
    }
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s: no memory", model->name);
    return false;
}

/* A template that cannot be read makes chats impossible, and nothing else: the server starts. */
static void check_template(server_model *model)
{
    skv_error err = {0};
    char line[2 * SKV_ERROR_TEXT_MAX];
    const skv_text_piece text = {model->template_text, model->n_template};
    model->template_error[0] = '\0';
    if (!text.text || skv_chat_template_check(text, &err) == SKV_OK) return;
    (void)snprintf(model->template_error, sizeof model->template_error, "%s", err.text);
    (void)snprintf(line, sizeof line,
                   "%s: %s: chats are refused (serve --template FILE gives another template)",
                   model->name, err.text);
    log_line(NULL, line);
}

static skv_status start_scheduler(http_server *server, server_model *model, char *error)
{
    skv_error err;
    skv_scheduler_options options = server->options.scheduler;
    options.seed = server_draw(server);
    const server_source *source = &server->options.sources[model - server->models];
    options.cache_dir = source->cache_dir;
    if (source->never_drafts) options.speculation = (skv_speculation){.source = SKV_DRAFT_NONE};
    options.cache_flush_seconds = server_flush_seconds(&server->options);
    options.log = log_line;
    options.account = server->account;
    const skv_status status =
        skv_scheduler_create(model->engine, model->vocab, &options, &model->scheduler, &err);
    if (status != SKV_OK) (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", err.text);
    return status;
}

skv_status model_read_template(http_server *server, server_model *model,
                               const server_template *template, char *error)
{
    const server_options *o = &server->options;
    if (!copy_template(model, template, error)) return SKV_MEMORY;
    if (!set_reply_format(o, model, error)) return SKV_ARGUMENT;
    check_template(model);
    choose_generic_tools(o, model);
    learn_frame(o, model);
    model->knows_developer =
        model->vocab && model->template_text && !model->template_error[0] &&
        tool_template_knows_developer(model->vocab, model->template_text, model->n_template);
    find_special(model);
    return SKV_OK;
}

static skv_status start(http_server *server, server_model *model, const server_template *template,
                        char *error)
{
    skv_status status = model_read_template(server, model, template, error);
    if (status == SKV_OK) status = start_scheduler(server, model, error);
    if (status != SKV_OK) return status;
    skv_engine_get_stats(model->engine, &model->limits);
    return constrain_start(model, error) ? SKV_OK : SKV_MEMORY;
}

skv_status model_open(http_server *server, server_model *model, size_t memory_max, size_t *n_bytes,
                      char *error)
{
    const server_loader *loader = &server->options.loader;
    server_loaded loaded = {0};
    skv_status status =
        loader->load(loader->user, (size_t)(model - server->models), memory_max, &loaded, error);
    *n_bytes = loaded.n_bytes;
    if (status != SKV_OK) return status;
    model->engine = loaded.engine;
    model->vocab = loaded.vocab;
    status = start(server, model, &loaded.template, error);
    if (status != SKV_OK) model_close(server, model);
    return status;
}

void model_drop_template(server_model *model)
{
    free(model->template_text);
    answer_frame_release(&model->frame);
    for (size_t i = 0; i < model->n_special; i++) skv_text_free(model->special[i]);
    model->n_special = 0;
    model->template_text = NULL;
    model->n_template = 0;
}

void model_close(http_server *server, server_model *model)
{
    const server_loader *loader = &server->options.loader;
    skv_scheduler_free(model->scheduler);
    constrain_stop(model);
    model_drop_template(model);
    model->scheduler = NULL;
    model->engine = NULL;
    model->vocab = NULL;
    loader->unload(loader->user, (size_t)(model - server->models));
}
