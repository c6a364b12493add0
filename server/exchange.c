/* Responses: see exchange.h. */
#include "exchange.h"

#include <math.h>
#include <stdio.h>

/* The names that clients of OpenAI's interface read. */
static void add_rate_header(struct MHD_Response *response, const char *what, const rate_left *left)
{
    char name[64], value[32];
    if (!(left->limit > 0)) return;
    const struct {
        const char *part;
        double value;
    } parts[] = {{"limit", left->limit}, {"remaining", floor(left->left)}, {"reset", left->full_s}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        (void)snprintf(name, sizeof name, "x-ratelimit-%s-%s", parts[i].part, what);
        (void)snprintf(value, sizeof value, "%.*f%s", i < 2 ? 0 : 3, parts[i].value,
                       i < 2 ? "" : "s");
        (void)MHD_add_response_header(response, name, value);
    }
}

static void add_rate_headers(const exchange *ex, struct MHD_Response *response)
{
    http_server *server = ex->server;
    if (!ex->rated) return;
    rate_report report;
    rates_look(server->rates, ex->tenant, server_limits(server, ex->tenant), skv_now_ns(), &report);
    add_rate_header(response, "requests", &report.requests);
    add_rate_header(response, "tokens", &report.tokens);
}

void exchange_send(exchange *ex, int status, struct MHD_Response *response,
                   const char *content_type)
{
    ex->replied = true;
    ex->status = status;
    if (response == NULL) {
        ex->result = MHD_NO;
        return;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    const bool named = ex->trace.request_id[0] != 0;
    (void)MHD_add_response_header(response, "x-request-id", named ? ex->trace.request_id : ex->id);
    add_rate_headers(ex, response);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    peers_set_phase(ex->server, ex->peer, PEER_WRITING);
    ex->result = MHD_queue_response(ex->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    pthread_mutex_lock(&ex->server->lock);
    ex->server->responses[status / 100 % 6]++;
    pthread_mutex_unlock(&ex->server->lock);
}

void exchange_reply(exchange *ex, int status, const char *content_type, out_text *text)
{
    if (text->failed) {
        out_release(text);
        static const char no_memory[] = "{\"error\":{\"message\":\"no memory for the response\","
                                        "\"type\":\"server_error\",\"param\":null,\"code\":null}}";
        exchange_send(ex, 500,
                      MHD_create_response_from_buffer(sizeof no_memory - 1,
                                                      (void *)(uintptr_t)no_memory,
                                                      MHD_RESPMEM_PERSISTENT),
                      "application/json");
        return;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text->n, text->data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) out_release(text);
    *text = (out_text){0};
    exchange_send(ex, status, response, content_type);
}

void exchange_reply_json(exchange *ex, int status, out_text *text)
{
    exchange_reply(ex, status, "application/json", text);
}

void exchange_refuse(exchange *ex, const api_error *error)
{
    out_text text = {0};
    if (ex->route != NULL && ex->route->messages_errors) {
        api_error_write_messages(&text, error, ex->id);
    } else {
        api_error_write(&text, error);
    }
    struct MHD_Response *response =
        text.failed ? NULL
                    : MHD_create_response_from_buffer(text.n, text.data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        out_release(&text);
    } else if (error->retry_after_s > 0) {
        char seconds[24];
        (void)snprintf(seconds, sizeof seconds, "%.0f", ceil(error->retry_after_s));
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
        (void)snprintf(seconds, sizeof seconds, "%.0f", ceil(error->retry_after_s * 1e3));
        (void)MHD_add_response_header(response, "retry-after-ms", seconds);
    }
    if (response != NULL && error->status == 405) {
        char methods[64];
        route_methods(ex->path, methods, sizeof methods);
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, methods);
    }
    if (response != NULL && error->status == 401) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
    exchange_send(ex, error->status, response, "application/json");
}
