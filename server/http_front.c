/*
 * The way in: connections, their limits, bodies, keys, and the route that a request takes.
 *
 * Every connection has a thread of its own, which waits for its answer without holding up others;
 * there are at most as many as connections are allowed.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "generation.h"
#include "request_log.h"

enum {
    CONNECTION_BYTES = 48 << 10, /* of one connection's buffers: a larger header is refused */
    HEADER_BYTES_MAX = 32 << 10,
    HEADER_FIELDS_MAX = 100,
    PATH_BYTES_MAX = 256,
    STACK_BYTES = 512 << 10,
    BACKLOG = 511,
    BODIES_SHARE = 8 /* all bodies together are at most this many times the largest */
};

/* ---- bodies ---- */

static bool add_body(exchange *ex, const char *data, size_t n)
{
    http_server *server = ex->server;
    if (n > server->options.body_bytes - ex->n_body) {
        return api_fail(&ex->refusal, 413, NULL, "the body has more than %zu bytes",
                        server->options.body_bytes);
    }
    if (ex->n_body + n + 1 > ex->body_room) {
        size_t room = ex->body_room > 0 ? 2 * ex->body_room : 4096;
        while (room < ex->n_body + n + 1) room *= 2;
        const size_t before = atomic_fetch_add(&server->body_bytes, room - ex->body_room);
        ex->body_counted += room - ex->body_room;
        char *body =
            before < BODIES_SHARE * server->options.body_bytes ? realloc(ex->body, room) : NULL;
        if (body == NULL) {
            ex->refusal.retry_after_s = 1;
            return api_fail(&ex->refusal, 503, NULL, "too many large requests at once");
        }
        ex->body = body;
        ex->body_room = room;
    }
    memcpy(ex->body + ex->n_body, data, n);
    ex->n_body += n;
    ex->body[ex->n_body] = 0;
    return true;
}

/* ---- what is checked before a body is read ---- */

typedef struct header_count {
    size_t n_fields, n_bytes;
    size_t n_lengths, n_codings; /* Content-Length, Transfer-Encoding */
} header_count;

static enum MHD_Result count_header(void *arg, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    header_count *count = arg;
    (void)kind;
    count->n_fields++;
    count->n_bytes += strlen(key) + (value != NULL ? strlen(value) : 0);
    count->n_lengths += strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    count->n_codings += strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    return MHD_YES;
}

static bool check_header(exchange *ex)
{
    header_count count = {0};
    (void)MHD_get_connection_values(ex->connection, MHD_HEADER_KIND, count_header, &count);
    if (count.n_fields > HEADER_FIELDS_MAX || count.n_bytes > HEADER_BYTES_MAX) {
        return api_fail(&ex->refusal, 431, NULL,
                        "the header has %zu fields and %zu bytes, at most %d and %d",
                        count.n_fields, count.n_bytes, HEADER_FIELDS_MAX, HEADER_BYTES_MAX);
    }
    /* A proxy in front may have believed the other one, and seen another request behind it. */
    return count.n_lengths + count.n_codings <= 1 ||
           api_fail(&ex->refusal, 400, NULL,
                    "a body's length is said once: Content-Length or Transfer-Encoding");
}

static const char *header_of(exchange *ex, const char *name)
{
    return MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, name);
}

static bool check_key(exchange *ex)
{
    http_server *server = ex->server;
    if (server->keys == NULL) return true;
    const char *bearer = header_of(ex, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *key = header_of(ex, "X-Api-Key");
    static const char prefix[] = "Bearer ";
    if (bearer != NULL && strncasecmp(bearer, prefix, sizeof prefix - 1) == 0) {
        key = bearer + sizeof prefix - 1;
        key += strspn(key, " ");
    }
    if (key != NULL) ex->tenant = api_keys_find(server->keys, key);
    if (ex->tenant != 0) {
        ex->key = key;
        return true;
    }
    (void)api_fail(&ex->refusal, 401, NULL,
                   key == NULL ? "an API key is needed: Authorization: Bearer KEY"
                               : "the API key is not known");
    ex->refusal.code = "invalid_api_key";
    return false;
}

static bool check_state(exchange *ex)
{
    const server_state state = server_get_state(ex->server);
    if (!ex->route->needs_model || state == SERVER_READY) return true;
    (void)api_fail(&ex->refusal, 503, NULL, "%s",
                   state == SERVER_LOADING ? "the model is being loaded"
                                           : "the server is shutting down");
    ex->refusal.retry_after_s = state == SERVER_LOADING ? 2 : 5;
    return false;
}

static bool check_length(exchange *ex)
{
    const char *text = header_of(ex, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (text == NULL) return true;
    char *end = NULL;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (errno == 0 && *end == 0 && n <= ex->server->options.body_bytes) return true;
    return api_fail(&ex->refusal, 413, NULL, "the body has %.20s bytes, at most %zu are taken",
                    text, ex->server->options.body_bytes);
}

/* Every POST is a request for the rates of its key. */
static bool check_rate(exchange *ex, const char *method)
{
    http_server *server = ex->server;
    if (strcmp(method, MHD_HTTP_METHOD_POST) != 0) return true;
    rate_report report;
    const rate_limits limits = server_limits(server, ex->tenant);
    if (!(limits.requests > 0) && !(limits.tokens > 0)) return true;
    ex->rated = true;
    rates_take(server->rates, ex->tenant, limits, skv_now_ns(), &report);
    if (!report.refused) return true;
    pthread_mutex_lock(&server->lock);
    server->n_limited_requests += !report.by_tokens;
    server->n_limited_tokens += report.by_tokens;
    pthread_mutex_unlock(&server->lock);
    (void)api_fail(&ex->refusal, 429, NULL, "the key's %s: %.0f a minute, come again in %.3g s",
                   report.by_tokens ? "tokens" : "requests",
                   report.by_tokens ? limits.tokens : limits.requests, report.retry_s);
    ex->refusal.code = "rate_limit_exceeded";
    ex->refusal.retry_after_s = report.retry_s;
    return false;
}

/* Keys come before paths: without one nobody learns which exist. */
static bool check_request(exchange *ex, const char *method, const char *path)
{
    bool other_method = false;
    if (!check_header(ex)) return false;
    ex->route = route_find(method, path, &other_method);
    if ((ex->route == NULL || !ex->route->open) && !check_key(ex)) return false;
    if (ex->route == NULL) {
        return other_method ? api_fail(&ex->refusal, 405, NULL, "%.16s is not allowed for %.200s",
                                       method, path)
                            : api_fail(&ex->refusal, 404, NULL, "there is no %.200s", path);
    }
    return check_state(ex) && check_length(ex) && check_rate(ex, method);
}

/* ---- requests ---- */

static http_peer *peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* A header that comes twice has no meaning of its own. */
typedef struct trace_headers {
    const char *parent, *state, *request_id;
    size_t n_parents, n_states;
} trace_headers;

static enum MHD_Result find_trace_header(void *arg, enum MHD_ValueKind kind, const char *key,
                                         const char *value)
{
    trace_headers *found = arg;
    (void)kind;
    if (strcasecmp(key, "traceparent") == 0) {
        found->parent = value;
        found->n_parents++;
    } else if (strcasecmp(key, "tracestate") == 0) {
        found->state = value;
        found->n_states++;
    } else if (strcasecmp(key, "x-request-id") == 0) {
        found->request_id = value;
    }
    return MHD_YES;
}

static void read_trace(exchange *ex)
{
    trace_headers found = {0};
    (void)MHD_get_connection_values(ex->connection, MHD_HEADER_KIND, find_trace_header, &found);
    trace_context_read(found.n_parents == 1 ? found.parent : NULL,
                       found.n_states == 1 ? found.state : NULL, found.request_id, &ex->trace);
}

static exchange *create_exchange(http_server *server, struct MHD_Connection *connection)
{
    http_peer *peer = peer_of(connection);
    exchange *ex = peer != NULL ? calloc(1, sizeof *ex) : NULL;
    if (ex == NULL) return NULL;
    *ex = (exchange){.server = server, .connection = connection, .peer = peer, .fd = peer->fd};
    ex->begun_ns = skv_now_ns();
    (void)snprintf(ex->id, sizeof ex->id, "%016llx", (unsigned long long)server_draw(server));
    read_trace(ex);
    pthread_mutex_lock(&server->lock);
    server->n_in_flight++;
    pthread_mutex_unlock(&server->lock);
    atomic_fetch_add(&server->n_requests, 1);
    return ex;
}

static void run_route(exchange *ex)
{
    peers_set_phase(ex->server, ex->peer, PEER_WORKING);
    ex->route->handle(ex);
    if (ex->replied) return;
    api_error error;
    (void)api_fail(&error, 500, NULL, "no response");
    exchange_refuse(ex, &error);
}

/* Called with the header, then with each piece of the body, then once more. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **context)
{
    http_server *server = arg;
    exchange *ex = *context;
    (void)version;
    if (ex == NULL) {
        ex = create_exchange(server, connection);
        *context = ex;
        if (ex == NULL) return MHD_NO;
        (void)snprintf(ex->method, sizeof ex->method, "%.16s", method);
        (void)snprintf(ex->path, sizeof ex->path, "%.256s", path);
        if (!check_request(ex, method, path)) {
            exchange_refuse(ex, &ex->refusal);
            return ex->result;
        }
        peers_set_phase(server, ex->peer, PEER_BODY);
        return MHD_YES;
    }
    if (*n_data > 0) {
        const bool taken = ex->refusal.status != 0 || add_body(ex, data, *n_data);
        peers_count_body(server, ex->peer, *n_data);
        *n_data = 0;
        (void)taken; /* the refusal is sent when the body has ended, or its deadline has come */
        return MHD_YES;
    }
    if (ex->replied) return MHD_YES;
    if (ex->refusal.status != 0) {
        exchange_refuse(ex, &ex->refusal);
    } else {
        run_route(ex);
    }
    return ex->result;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    http_server *server = arg;
    exchange *ex = *context;
    (void)connection;
    if (ex == NULL) return;
    if (ex->running != NULL) generation_settle(ex->running);
    if (server->log != NULL) {
        request_log_add(server->log, ex, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    }
    peers_set_phase(server, ex->peer, PEER_IDLE);
    atomic_fetch_sub(&server->body_bytes, ex->body_counted);
    pthread_mutex_lock(&server->lock);
    server->n_in_flight--;
    (void)pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    free(ex->body);
    free(ex);
    *context = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    http_server *server = arg;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context != NULL) peers_remove(server, *context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = info != NULL ? peers_add(server, info->connect_fd) : NULL;
}

/* The first line of a request is there: on a kept connection its header's time begins here. */
static void *on_first_line(void *arg, const char *uri, struct MHD_Connection *connection)
{
    http_server *server = arg;
    (void)uri;
    http_peer *peer = peer_of(connection);
    if (peer != NULL) peers_set_phase(server, peer, PEER_HEADER);
    return NULL;
}

/* Paths are compared as they were sent: no endpoint has an escape in its name, and %00 would end
 * one early. */
static size_t keep_escapes(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg, (void)connection;
    return strlen(text);
}

/* ---- listening ---- */

static bool fail_host(const http_server *server, const char *what, char *error)
{
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s port %zu: %s", server->options.host,
                   server->options.port, what);
    return false;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    static const unsigned char one[16] = {[15] = 1};
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return memcmp(&v6.sin6_addr, one, sizeof one) == 0;
}

static bool bind_to(http_server *server, const struct addrinfo *info, char *error)
{
    if (!is_loopback(info->ai_addr) && server->keys == NULL && !server->options.insecure) {
        return fail_host(server, "not a loopback address: give --api-key-file, or --insecure",
                         error);
    }
    const int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_host(server, strerror(errno), error);
    server->listen_fd = fd;
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_storage bound;
    socklen_t n_bound = sizeof bound;
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &n_bound) != 0) {
        return fail_host(server, strerror(errno), error);
    }
    struct sockaddr_in v4; /* the port lies at the same place in both families */
    memcpy(&v4, &bound, sizeof v4);
    server->port = ntohs(v4.sin_port);
    return true;
}

static bool open_socket(http_server *server, char *error)
{
    char port[16];
    (void)snprintf(port, sizeof port, "%zu", server->options.port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *info = NULL;
    const int code = getaddrinfo(server->options.host, port, &hints, &info);
    if (code != 0) return fail_host(server, gai_strerror(code), error);
    const bool ok = bind_to(server, info, error);
    freeaddrinfo(info);
    return ok;
}

bool http_start(http_server *server, char *error)
{
    if (!open_socket(server, error)) return false;
    const unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                           MHD_USE_POLL | MHD_USE_ITC;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, server->listen_fd,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, server, MHD_OPTION_URI_LOG_CALLBACK, on_first_line, server,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)server->options.connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)server->options.connections_per_ip, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_END);
    return server->daemon != NULL || fail_host(server, "the HTTP daemon does not start", error);
}

/* The daemon closes the socket that it listens on. */
void http_stop(http_server *server)
{
    if (server->daemon != NULL) {
        MHD_stop_daemon(server->daemon);
    } else if (server->listen_fd >= 0) {
        close(server->listen_fd);
    }
    server->daemon = NULL;
    server->listen_fd = -1;
}
