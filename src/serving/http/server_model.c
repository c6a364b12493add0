/* A model as it is served: its engine, its scheduler, and how its template writes answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request_input.h"
#include "server_impl.h"

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

/* A template without calls that are known gets them in texts. */
static void choose_generic_tools(const server_options *o, server_model *model)
{
    skv_reply_format *format = &model->reply_format;
    const skv_vocab *vocab = model->vocab;
    model->generic_tools = false;
    if (!model->template_text || !vocab || o->tool_format) return;
    model->generic_tools = format->calls == SKV_CALLS_NONE ||
                           tool_template_ignores(vocab, model->template_text, model->n_template);
    if (!model->generic_tools) return;
    format->calls = SKV_CALLS_HERMES;
    log_line(NULL, "tools: the chat template has no known format for calls; a system message asks "
                   "for JSON, and a grammar enforces it");
}

static bool is_special(const skv_vocab *vocab, const char *mark)
{
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n_ids = 0, n = strlen(mark);
    const bool known = skv_vocab_encode(vocab, (skv_text_piece){mark, n},
                                        (skv_encode_options){.parse_special = true}, &ids, &n_ids,
                                        NULL) == SKV_OK &&
                       skv_vocab_decode(vocab, (skv_id_piece){ids, n_ids}, (skv_decode_options){0},
                                        &text, &n, NULL) == SKV_OK;
    skv_text_free(ids);
    skv_text_free(text);
    return known && n < strlen(mark);
}

static bool any_is_special(const skv_vocab *vocab, skv_reply_format format)
{
    const char *marks[SKV_REPLY_MARKS_MAX];
    const size_t n = skv_reply_marks(format, marks);
    for (size_t i = 0; vocab && i < n; i++) {
        if (is_special(vocab, marks[i])) return true;
    }
    return false;
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

static skv_status start_scheduler(http_server *server, server_model *model, char *error)
{
    skv_error err;
    skv_scheduler_options options = server->options.scheduler;
    options.seed = server_draw(server);
    options.cache_dir = server->options.sources[model - server->models].cache_dir;
    options.cache_flush_seconds = server_flush_seconds(&server->options);
    options.log = log_line;
    options.account = server->account;
    const skv_status status =
        skv_scheduler_create(model->engine, model->vocab, &options, &model->scheduler, &err);
    if (status != SKV_OK) (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", err.text);
    return status;
}

static skv_status start(http_server *server, server_model *model, const server_template *template,
                        char *error)
{
    const server_options *o = &server->options;
    if (!copy_template(model, template, error)) return SKV_MEMORY;
    if (!set_reply_format(o, model, error)) return SKV_ARGUMENT;
    choose_generic_tools(o, model);
    model->special_marks = any_is_special(model->vocab, model->reply_format);
    const skv_status status = start_scheduler(server, model, error);
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

void model_close(http_server *server, server_model *model)
{
    const server_loader *loader = &server->options.loader;
    skv_scheduler_free(model->scheduler);
    constrain_stop(model);
    free(model->template_text);
    model->scheduler = NULL;
    model->template_text = NULL;
    model->n_template = 0;
    model->engine = NULL;
    model->vocab = NULL;
    loader->unload(loader->user, (size_t)(model - server->models));
}
