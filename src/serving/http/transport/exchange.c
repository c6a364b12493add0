/* Requests and their responses: see exchange.h. */
#include "transport/exchange.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/system_sockets.h"
#include "limits/request_budget.h"

/* ---- responses ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {409, "Conflict"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {422, "Unprocessable Content"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {499, "Client Closed Request"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) return reasons[i].reason;
    }
    return "Unknown";
}

static void add_date(skv_buf *out)
{
    const time_t now = time(NULL);
    struct tm parts;
    char text[64];
    if (!gmtime_r(&now, &parts)) return;
    if (strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts) == 0) return;
    skv_buf_printf(out, "Date: %s\r\n", text);
}

/* The names that clients of OpenAI's interface read. */
static void add_rate(skv_buf *out, const char *what, const rate_left *left)
{
    if (!(left->limit > 0)) return;
    skv_buf_printf(out, "x-ratelimit-limit-%s: %.0f\r\n", what, left->limit);
    skv_buf_printf(out, "x-ratelimit-remaining-%s: %.0f\r\n", what, floor(left->left));
    skv_buf_printf(out, "x-ratelimit-reset-%s: %.3fs\r\n", what, left->full_s);
}

static void add_rates(skv_buf *out, const exchange *ex)
{
    http_server *server = ex->server;
    if (!ex->rated) return;
    rate_report report;
    rates_look(server->rates, ex->tenant, server_limits(server, ex->tenant), skv_now_ns(), &report);
    add_rate(out, "requests", &report.requests);
    add_rate(out, "tokens", &report.tokens);
}

/* The headers that let pages of the origin read it. No credentials: keys are sent by the page
 * itself. */
static void add_origin(skv_buf *out, const exchange *ex)
{
    if (!ex->origin) return;
    skv_buf_printf(out, "Access-Control-Allow-Origin: %s\r\n", ex->origin);
    skv_buf_text(out, "Access-Control-Expose-Headers: *\r\nVary: Origin\r\n");
}

static void add_length(skv_buf *out, exchange *ex, const exchange_response *r)
{
    if (!r->in_pieces) {
        skv_buf_printf(out, "Content-Length: %zu\r\n", r->n);
    } else if (!ex->head->is_old) {
        skv_buf_text(out, "Transfer-Encoding: chunked\r\n");
    } else {
        ex->closes = true; /* its body ends with the connection */
    }
    if (ex->closes) {
        skv_buf_text(out, "Connection: close\r\n");
    } else if (ex->head->is_old) {
        skv_buf_text(out, "Connection: keep-alive\r\n");
    }
}

static void add_changes(skv_buf *out, const prompt_report *report)
{
    const bool any =
        report->n_stripped > 0 || report->sorted || report->n_kept > 0 || report->effort;
    if (!any) return;
    skv_buf_text(out, "x-swiftkv-prompt: ");
    prompt_report_tell(report, out);
    skv_buf_text(out, "\r\n");
}

/* As known when the head is written: a stream's usage tells it at the end. */
static void add_shifted(skv_buf *out, const skv_job_stats *used)
{
    if (used->shifted_tokens == 0) return;
    skv_buf_printf(out, "x-swiftkv-shifted: %zu\r\n", used->shifted_tokens);
}

static void write_head(exchange *ex, const exchange_response *r, skv_buf *out)
{
    const bool named = ex->trace.request_id[0] != 0;
    skv_buf_printf(out, "HTTP/1.1 %d %s\r\n", r->status, reason_of(r->status));
    add_date(out);
    skv_buf_printf(out, "Content-Type: %s\r\n", r->content_type);
    skv_buf_printf(out, "x-request-id: %s\r\n", named ? ex->trace.request_id : ex->id);
    add_rates(out, ex);
    skv_buf_text(out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    add_origin(out, ex);
    if (ex->left_out[0]) skv_buf_printf(out, "x-swiftkv-left-out: %s\r\n", ex->left_out);
    add_changes(out, &ex->changed);
    add_shifted(out, &ex->used);
    skv_buf_append(out, r->fields.data, r->fields.size);
    add_length(out, ex, r);
    skv_buf_text(out, "\r\n");
    out->failed = out->failed || r->fields.failed;
}

/* The client has taken something: its time to take more begins anew. */
static void took(void *arg)
{
    const exchange *ex = arg;
    (void)peers_set_phase(ex->server, ex->peer, PEER_WRITING);
}

/* Tells the log, and has the system drop the bytes that it still holds for the client when the
 * connection is closed: megabytes that it would go on sending as slowly. */
static void give_up_reader(exchange *ex, size_t n_all, bool is_cut)
{
    api_error error;
    const struct linger none = {.l_onoff = 1};
    (void)setsockopt(ex->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    const double seconds = ex->server->options.stall_seconds;
    if (is_cut) {
        (void)api_fail(&error, 408, NULL, "the client took nothing for %.3g s", seconds);
    } else {
        (void)api_fail(&error, 408, NULL,
                       "the client took the response too slowly: less than %.0f bytes/s in %.3g s "
                       "of waiting for it",
                       http_pace_rate(n_all), (double)ex->pace.waited_ns * 1e-9);
    }
    error.code = "slow_reader";
    exchange_note(ex, &error);
    if (!is_cut) peers_count_late(ex->server);
}

static bool send_parts(exchange *ex, struct iovec *parts, size_t n_parts)
{
    size_t n_all = 0;
    for (size_t i = 0; i < n_parts; i++) n_all += parts[i].iov_len;
    ex->pace.grace_seconds = ex->server->options.stall_seconds;
    ex->pace.wrote = took;
    ex->pace.user = ex;
    const peer_phase before = peers_set_phase(ex->server, ex->peer, PEER_WRITING);
    const bool sent = http_wire_write(ex->fd, parts, n_parts, &ex->pace);
    const bool is_cut = peers_set_phase(ex->server, ex->peer, before) == PEER_CUT;
    if (!sent) ex->closes = true;
    if (!sent && (is_cut || ex->pace.is_slow)) give_up_reader(ex, n_all, is_cut);
    return sent;
}

static struct iovec part_of(const char *data, size_t n)
{
    return (struct iovec){(void *)(uintptr_t)data, n};
}

bool exchange_send(exchange *ex, exchange_response *r)
{
    skv_buf head = {.max = LIMIT_TEXT_BYTES};
    write_head(ex, r, &head);
    ex->replied = true;
    ex->status = r->status;
    pthread_mutex_lock(&ex->server->lock);
    ex->server->responses[r->status / 100 % 6]++;
    pthread_mutex_unlock(&ex->server->lock);
    const bool no_body = strcmp(ex->method, "HEAD") == 0;
    struct iovec parts[] = {part_of(head.data, head.size), part_of(r->data, no_body ? 0 : r->n)};
    const bool sent = !head.failed && send_parts(ex, parts, 2);
    ex->whole = sent && !r->in_pieces;
    if (!sent) ex->closes = true;
    skv_buf_release(&head);
    skv_buf_release(&r->fields);
    return sent;
}

bool exchange_write(exchange *ex, const char *data, size_t n)
{
    static const char end[] = "\r\n";
    char size[32];
    if (n == 0) return true; /* an empty chunk would be the last one */
    const int n_size = snprintf(size, sizeof size, "%zx\r\n", n);
    struct iovec chunk[] = {part_of(size, (size_t)n_size), part_of(data, n), part_of(end, 2)};
    return ex->head->is_old ? send_parts(ex, chunk + 1, 1) : send_parts(ex, chunk, 3);
}

void exchange_end(exchange *ex)
{
    struct iovec part = part_of("0\r\n\r\n", 5);
    ex->whole = ex->head->is_old || send_parts(ex, &part, 1);
}

bool exchange_go_on(exchange *ex)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec part = part_of(text, sizeof text - 1);
    return send_parts(ex, &part, 1);
}

void exchange_reply(exchange *ex, int status, const char *content_type, skv_buf *text)
{
    static const char no_memory[] = "{\"error\":{\"message\":\"no memory for the response\","
                                    "\"type\":\"server_error\",\"param\":null,\"code\":null}}";
    exchange_response response = {status,     content_type, text->data,
                                  text->size, false,        {.max = LIMIT_TEXT_BYTES}};
    if (text->failed && ex->refusal.status != 0) {
        skv_buf_release(text);
        exchange_refuse(ex, &ex->refusal);
        return;
    }
    if (text->failed) {
        response =
            (exchange_response){500,   "application/json",       no_memory, sizeof no_memory - 1,
                                false, {.max = LIMIT_TEXT_BYTES}};
    }
    (void)exchange_send(ex, &response);
    skv_buf_release(text);
}

void exchange_reply_json(exchange *ex, int status, skv_buf *text)
{
    exchange_reply(ex, status, "application/json", text);
}

void exchange_note(exchange *ex, const api_error *error)
{
    if (error != &ex->refusal) ex->refusal = *error;
}

/* The last event of a stream that has told nothing but signs of life. */
static void refuse_in_stream(exchange *ex, const api_error *error)
{
    const bool messages = ex->errors == ERRORS_MESSAGES;
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    skv_buf_text(&text, messages ? "event: error\ndata: " : "data: ");
    api_error_write(&text, error, ex->errors, ex->id);
    skv_buf_text(&text, messages ? "\n\n" : "\n\ndata: [DONE]\n\n");
    if (!text.failed && exchange_write(ex, text.data, text.size)) {
        exchange_end(ex);
    } else {
        ex->closes = true;
    }
    skv_buf_release(&text);
}

void exchange_refuse(exchange *ex, const api_error *error)
{
    exchange_note(ex, error);
    if (ex->streams) {
        refuse_in_stream(ex, error);
        return;
    }
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    api_error_write(&text, error, ex->errors, ex->id);
    exchange_response response = {error->status, "application/json",       text.data, text.size,
                                  false,         {.max = LIMIT_TEXT_BYTES}};
    if (error->retry_after_s > 0) {
        skv_buf_printf(&response.fields, "Retry-After: %.0f\r\n", ceil(error->retry_after_s));
        skv_buf_printf(&response.fields, "retry-after-ms: %.0f\r\n",
                       ceil(error->retry_after_s * 1e3));
    }
    if (error->status == 405) skv_buf_printf(&response.fields, "Allow: %s\r\n", ex->methods);
    if (error->status == 401) skv_buf_text(&response.fields, "WWW-Authenticate: Bearer\r\n");
    (void)exchange_send(ex, &response);
    skv_buf_release(&text);
}

/* ---- streams ---- */

static bool begin_stream(exchange *ex, const char *content_type)
{
    exchange_response response = {.status = 200,
                                  .content_type = content_type,
                                  .in_pieces = true,
                                  .fields = {.max = LIMIT_TEXT_BYTES}};
    if (ex->streams) return true;
    ex->streams = true;
    skv_buf_text(&response.fields, "X-Accel-Buffering: no\r\n");
    return exchange_send(ex, &response);
}

bool event_stream_ping(exchange *ex, const char *comment)
{
    return begin_stream(ex, "text/event-stream") && exchange_write(ex, comment, strlen(comment));
}

void event_stream_send(exchange *ex, const char *content_type, event_fill_fn *fill,
                       void (*release)(void *state), void *state)
{
    skv_buf text = exchange_text(ex);
    bool goes_on = true, sent = begin_stream(ex, content_type);
    while (goes_on && sent) {
        skv_buf_clear(&text);
        goes_on = fill(state, &text);
        sent = !text.failed && exchange_write(ex, text.data, text.size);
    }
    if (sent) {
        exchange_end(ex);
    } else {
        ex->closes = true; /* the client sees that something is missing */
    }
    release(state);
    skv_buf_release(&text);
}
