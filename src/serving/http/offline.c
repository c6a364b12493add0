/* Prompts of recorded requests: see offline.h. */
#include "offline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request/request_input.h"
#include "request/translate.h"

enum { MEMORY_BYTES = 1 << 30, SECONDS = 600, CONTEXT = 1 << 28 };

struct offline_reader {
    http_server *server; /* owned: it never begins to listen */
    server_model model;
    char name[8];
};

bool offline_open(const skv_vocab *vocab, const server_template *template, const char *strip,
                  offline_reader **out, char *error)
{
    const server_options options = {.memory_bytes = MEMORY_BYTES,
                                    .request_bytes = MEMORY_BYTES,
                                    .request_work = UINT64_MAX,
                                    .request_seconds = SECONDS,
                                    .prompt_strip = strip};
    offline_reader *reader = calloc(1, sizeof *reader);
    bool ok = reader && server_create(&options, &reader->server, error);
    if (!reader) (void)snprintf(error, SKV_ERROR_TEXT_MAX, "no memory");
    if (ok && !memory_start(reader->server)) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "no memory");
        ok = false;
    }
    if (ok) {
        (void)snprintf(reader->name, sizeof reader->name, "model");
        reader->model =
            (server_model){.vocab = vocab, .name = reader->name, .limits.context = CONTEXT};
        ok = model_read_template(reader->server, &reader->model, template, error) == SKV_OK;
    }
    if (ok) {
        *out = reader;
        return true;
    }
    offline_close(reader);
    return false;
}

void offline_close(offline_reader *reader)
{
    if (!reader) return;
    model_drop_template(&reader->model);
    server_stop(reader->server);
    free(reader);
}

/* The request in the words of OpenAI's chats, owned; NULL: refused. */
static json_t *translate(exchange *ex, const char *path, json_t *body, api_error *error)
{
    if (strcmp(path, "/v1/messages") == 0) return messages_translate(ex, body, true, error);
    if (strcmp(path, "/v1/responses") == 0) return responses_translate(ex, body, error);
    return json_incref(body);
}

static bool read_ids(exchange *ex, const char *path, int32_t **ids, size_t *n_ids, api_error *error)
{
    prompt_list list = {.n = 0};
    json_t *body = NULL;
    if (!json_body_parse(ex, &body, error)) return false;
    json_t *chat = translate(ex, path, body, error);
    const bool ok = chat && messages_read_whole(ex, chat, &list, error);
    if (ok) {
        *ids = list.at[0].ids;
        *n_ids = list.at[0].n_ids;
        list.at[0].ids = NULL;
        prompts_release(&list);
    }
    json_decref(chat);
    json_decref(body);
    return ok;
}

bool offline_read(offline_reader *reader, const offline_request *request, offline_changes changes,
                  int32_t **ids, size_t *n_ids, char *error)
{
    http_server *server = reader->server;
    struct line_pattern *strip = server->strip;
    exchange ex = {.server = server,
                   .model = &reader->model,
                   .fd = -1,
                   .share = &server->memory.common,
                   .n_body = request->body.n};
    api_error refusal;
    ex.body = malloc(ex.n_body + 1);
    if (!ex.body) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "no memory");
        return false;
    }
    memcpy(ex.body, request->body.text, ex.n_body);
    ex.body[ex.n_body] = 0;
    server->options.prompt_sort_tools = changes.sort_tools;
    server->options.prompt_keep_thoughts = changes.keep_thoughts;
    if (!changes.strip) server->strip = NULL;
    exchange_begin_budget(&ex);
    const bool ok = read_ids(&ex, request->path, ids, n_ids, &refusal);
    skv_budget_release(&ex.reading);
    server->strip = strip;
    if (!ok) (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", refusal.message);
    free(ex.body);
    return ok;
}
