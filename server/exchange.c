/* Responses: see exchange.h. */
#define SKV_API_FAIL_HOME
#include "exchange.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

bool api_fail(api_error *error, int status, const char *param, const char *format, ...)
{
    *error = (api_error){.status = status, .type = type_of(status)};
    if (param != NULL) (void)snprintf(error->param, sizeof error->param, "%s", param);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

bool api_fail_status(api_error *error, skv_status status, const skv_error *err)
{
    int code = 500;
    switch (status) {
    case SKV_ARGUMENT:
    case SKV_RANGE:
    case SKV_FORMAT:
    case SKV_UNSUPPORTED: code = 400; break;
    case SKV_FULL: code = 429; break;
    case SKV_CANCELLED:
    case SKV_MEMORY: code = 503; break;
    default: break;
    }
    return api_fail(error, code, NULL, "%s", err->text);
}

void api_error_write(out_text *out, const api_error *error)
{
    out_str(out, "{\"error\":{\"message\":");
    out_json_str(out, error->message);
    out_str(out, ",\"type\":");
    out_json_str(out, error->type);
    out_str(out, ",\"param\":");
    out_json_str(out, error->param[0] != 0 ? error->param : NULL);
    out_str(out, ",\"code\":");
    out_json_str(out, error->code);
    out_str(out, "}}");
}

static const char *messages_type_of(int status)
{
    switch (status) {
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : type_of(status);
    }
}

void api_error_write_messages(out_text *out, const api_error *error, const char *request_id)
{
    out_format(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
               messages_type_of(error->status));
    out_json_str(out, error->message);
    out_format(out, "},\"request_id\":\"%s\"}", request_id);
}

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
