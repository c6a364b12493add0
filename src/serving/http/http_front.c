/*
 * The way in: connections, and requests from their first line to the end of the response.
 *
 * Every connection has a thread of its own, which waits for its answer without holding up others;
 * there are at most as many as connections are allowed.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answer/generation.h"
#include "base/system.h"
#include "base/system_sockets.h"
#include "routes.h"
#include "skv/tools.h"

typedef struct connection {
    http_server *server; /* borrowed */
    http_peer *peer;     /* borrowed */
    http_head head;      /* of the request that is served */
    http_wire wire;
} connection;

/* ---- checks before a body is read: key, path, length and rate ---- */

static bool check_key(exchange *ex)
{
    http_server *server = ex->server;
    if (!server->keys) return true;
    const char *bearer = http_head_find(ex->head, "Authorization");
    const char *key = http_head_find(ex->head, "X-Api-Key");
    static const char prefix[] = "Bearer ";
    if (bearer && strncasecmp(bearer, prefix, sizeof prefix - 1) == 0) {
        key = bearer + sizeof prefix - 1;
        key += strspn(key, " ");
    }
    if (key) ex->tenant = api_keys_find(server->keys, key);
    if (ex->tenant != 0) {
        ex->key = key;
        return true;
    }
    (void)api_fail(&ex->refusal, 401, NULL,
                   !key ? "an API key is required: Authorization: Bearer KEY"
                        : "the API key is invalid");
    ex->refusal.code = "invalid_api_key";
    return false;
}

static bool check_state(exchange *ex)
{
    const server_state state = server_get_state(ex->server);
    if (!ex->route->needs_model || state == SERVER_READY) return true;
    (void)api_fail(&ex->refusal, 503, NULL, "%s",
                   state == SERVER_LOADING ? "the model is loading"
                                           : "the server is shutting down");
    ex->refusal.retry_after_s =
        state == SERVER_LOADING ? LIMIT_LOADING_RETRY_SECONDS : LIMIT_ELSEWHERE_RETRY_SECONDS;
    return false;
}

static bool check_length(exchange *ex)
{
    const http_server *server = ex->server;
    const size_t memory = skv_account_max(ex->share->account), body = server->options.body_bytes;
    const size_t most = body < memory ? body : memory - 1;
    if (ex->head->n_body <= most) return true;
    return api_fail(&ex->refusal, 413, NULL, "the body has %llu bytes, the limit is %zu",
                    (unsigned long long)ex->head->n_body, most);
}

static bool check_coding(exchange *ex)
{
    const char *coding = http_head_find(ex->head, "Content-Encoding");
    if (!coding || strcasecmp(coding, "identity") == 0) return true;
    return api_fail(&ex->refusal, 415, NULL, "Content-Encoding: \"%.40s\" is not supported",
                    coding);
}

/* Every POST is a request for the rates of its key. */
static bool check_rate(exchange *ex)
{
    http_server *server = ex->server;
    if (strcmp(ex->method, "POST") != 0) return true;
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

static bool check_role(exchange *ex)
{
    const bool reads = ex->server->options.reads;
    if (ex->route->role == ROUTE_BOTH || reads == (ex->route->role == ROUTE_READS)) return true;
    return api_fail(&ex->refusal, 404, NULL,
                    reads ? "%.200s: this server reads prompts for others and writes no answers"
                          : "%.200s: this server does not read prompts for others (--role read)",
                    ex->head->path);
}

/* False: `refusal` tells why. Keys come before paths: a client without one cannot learn which
 * paths exist. */
static bool admit(exchange *ex)
{
    const char *method = ex->head->method, *path = ex->head->path;
    const server_route *other = NULL;
    ex->route = route_find(method, path, &other);
    ex->errors = ex->route ? ex->route->errors : other ? other->errors : ERRORS_OPENAI;
    if ((!ex->route || !ex->route->open) && !check_key(ex)) return false;
    if (!memory_join(ex, &ex->refusal)) return false;
    if (!ex->route) {
        route_methods(path, ex->methods, sizeof ex->methods);
        return other ? api_fail(&ex->refusal, 405, NULL, "%.16s is not allowed for %.200s", method,
                                path)
                     : api_fail(&ex->refusal, 404, NULL, "there is no %.200s", path);
    }
    return check_role(ex) && check_state(ex) && check_coding(ex) && check_length(ex) &&
           check_rate(ex);
}

/* The origin of a page that --cors-origin allows. */
static void find_origin(exchange *ex)
{
    const char *list = ex->server->options.origins, *origin = http_head_find(ex->head, "Origin");
    if (!list || !origin) return;
    if (server_list_has(list, (skv_text_piece){origin, strlen(origin)})) ex->origin = origin;
}

/* A browser asks, without a key, which requests a page of another origin may send. It has no
 * body: a client without a key cannot make the server hold one. */
static bool is_preflight(const exchange *ex)
{
    const bool has_body = ex->head->chunked || ex->head->n_body > 0;
    return ex->origin && !has_body && strcmp(ex->method, "OPTIONS") == 0 &&
           http_head_find(ex->head, "Access-Control-Request-Method");
}

static void answer_preflight(exchange *ex)
{
    exchange_response response = {
        .status = 200, .content_type = "text/plain", .fields = {.max = LIMIT_TEXT_BYTES}};
    skv_buf_text(&response.fields, "Access-Control-Allow-Methods: GET, HEAD, POST\r\n"
                                   "Access-Control-Allow-Headers: Authorization, *\r\n"
                                   "Access-Control-Max-Age: 600\r\n");
    (void)exchange_send(ex, &response);
}

/* ---- bodies ---- */

/* Room for n more bytes and a zero: twice as much each time, but not more than will come. */
static bool reserve_body(exchange *ex, size_t n)
{
    const size_t wanted = ex->n_body + n + 1;
    size_t room = ex->body_room > 0 ? ex->body_room : LIMIT_BODY_ROOM_BYTES;
    if (wanted <= ex->body_room) return true;
    while (room < wanted) room *= 2;
    const uint64_t all = ex->head->n_body + 1;
    if (!ex->head->chunked && room > all) room = (size_t)all;
    if (!exchange_take(ex, room - ex->body_room, &ex->refusal)) return false;
    ex->body_counted += room - ex->body_room;
    char *body = realloc(ex->body, room);
    if (!body) {
        (void)api_fail(&ex->refusal, 503, NULL, "no memory for the body");
        ex->refusal.retry_after_s = LIMIT_MEMORY_RETRY_SECONDS;
        return false;
    }
    ex->body = body;
    ex->body_room = room;
    return true;
}

static bool add_body(exchange *ex, const char *data, size_t n)
{
    const size_t most = ex->server->options.body_bytes;
    if (n > most - ex->n_body) {
        return api_fail(&ex->refusal, 413, NULL, "the body exceeds the limit of %zu bytes", most);
    }
    const bool keeps = strcmp(ex->route->method, "POST") == 0; /* no other route reads it */
    if (keeps && !reserve_body(ex, n)) return false;
    if (keeps) memcpy(ex->body + ex->n_body, data, n);
    ex->n_body += n;
    if (keeps) ex->body[ex->n_body] = 0;
    return true;
}

/* False: `refusal` tells why, or the client has left (status 0). */
static bool read_body(exchange *ex, connection *c)
{
    http_body body = {.wire = &c->wire, .chunked = c->head.chunked, .n_left = c->head.n_body};
    const bool is_due = c->head.chunked || c->head.n_body > 0;
    const bool waits = is_due && c->head.expects && c->wire.begin == c->wire.end;
    if (waits && !exchange_go_on(ex)) return false;
    (void)peers_set_phase(ex->server, ex->peer, PEER_BODY);
    for (;;) {
        const char *data;
        size_t n = 0;
        const http_piece piece = http_body_next(&body, &data, &n, &ex->refusal);
        if (piece == HTTP_PIECE_END) return true;
        if (piece != HTTP_PIECE || !add_body(ex, data, n)) return false;
        peers_count_body(ex->server, ex->peer, n);
    }
}

/* ---- requests ---- */

static void begin_exchange(exchange *ex, connection *c)
{
    http_server *server = c->server;
    *ex = (exchange){.server = server, .peer = c->peer, .fd = c->wire.fd, .head = &c->head};
    ex->begun_ns = skv_now_ns();
    ex->closes = true;
    ex->share = &server->memory.common;
    (void)snprintf(ex->id, sizeof ex->id, "%016llx", (unsigned long long)server_draw(server));
    pthread_mutex_lock(&server->lock);
    server->n_in_flight++;
    pthread_mutex_unlock(&server->lock);
    atomic_fetch_add(&server->n_requests, 1);
}

/* Memory that many small allocations of a large request leave between others' goes back to the
 * system, so that the account's memory is the process's. */
static void trim_heap(size_t n_freed)
{
    if (n_freed >= LIMIT_TRIM_BYTES) skv_heap_trim();
}

/* Probes come every second; one that is refused for its key is no probe. */
static bool is_logged(const exchange *ex)
{
    const bool refused = ex->status / 100 == 4;
    const bool probe = ex->route && ex->route->probe && !refused;
    return ex->server->log && (!probe || ex->server->options.log_probes);
}

static void end_exchange(exchange *ex)
{
    http_server *server = ex->server;
    const size_t n_held = ex->reading.bytes + ex->body_counted;
    if (is_logged(ex)) request_log_add(server->log, ex);
    model_give_back(ex);
    free(ex->body);
    trim_heap(n_held);
    skv_budget_release(&ex->reading);
    exchange_give(ex, ex->body_counted);
    memory_leave(ex);
    (void)peers_set_phase(server, ex->peer, PEER_IDLE);
    pthread_mutex_lock(&server->lock);
    server->n_in_flight--;
    (void)pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

/* Which of several a POST wants stands in its body (request_body_read). */
static bool takes_model(exchange *ex, api_error *error)
{
    http_server *server = ex->server;
    if (!ex->route->needs_model || ex->route->lists) return true;
    if (server->n_models == 1) return model_take(ex, &server->models[0], error);
    return strcmp(ex->route->method, "POST") == 0 || model_take_named(ex, NULL, error);
}

static void run_route(exchange *ex)
{
    (void)peers_set_phase(ex->server, ex->peer, PEER_WORKING);
    exchange_begin_budget(ex);
    api_error error;
    if (!takes_model(ex, &error)) {
        exchange_refuse(ex, &error);
        return;
    }
    ex->route->handle(ex);
    if (ex->replied) return;
    (void)api_fail(&error, 500, NULL, "no response");
    exchange_refuse(ex, &error);
}

/* The head is text[0..n), a copy: the bytes of the body take its place. Until the body was read
 * nothing else can come on this connection. */
static void answer_request(exchange *ex, connection *c, char *text, size_t n)
{
    bool ok = http_head_read(text, n, &c->head, &ex->refusal);
    if (ok) {
        (void)snprintf(ex->method, sizeof ex->method, "%.16s", c->head.method);
        (void)snprintf(ex->path, sizeof ex->path, "%.256s", c->head.path);
        trace_context_read(ex->head, &ex->trace);
        find_origin(ex);
        ok = is_preflight(ex) || admit(ex);
        if (c->head.chunked || c->head.n_body > 0) {
            ok = ok && read_body(ex, c);
        }
        const bool is_read = ok || (!c->head.chunked && c->head.n_body == 0);
        ex->closes = !c->head.keeps || !is_read || server_get_state(ex->server) > SERVER_READY;
    }
    if (ok && !ex->route) {
        answer_preflight(ex);
    } else if (ok) {
        run_route(ex);
    } else if (ex->refusal.status != 0) {
        exchange_refuse(ex, &ex->refusal);
    }
}

/* ---- connections ---- */

/* Waits for a head; 0: the connection has ended. More than fits is handed over as it is. */
static size_t wait_for_head(connection *c)
{
    http_wire *wire = &c->wire;
    bool begun = wire->end > wire->begin;
    size_t n_seen = 0;
    if (begun) (void)peers_set_phase(c->server, c->peer, PEER_HEADER);
    for (;;) {
        const size_t n_here = wire->end - wire->begin;
        const size_t n = http_head_end(wire->data + wire->begin, n_here, n_seen);
        if (n > 0) return n;
        n_seen = n_here;
        if (!http_wire_fill(wire)) {
            const bool is_full = wire->end == sizeof wire->data;
            return is_full ? wire->end : 0;
        }
        if (!begun) (void)peers_set_phase(c->server, c->peer, PEER_HEADER);
        begun = true;
    }
}

/* False: the connection ends. */
static bool serve_request(connection *c)
{
    exchange ex;
    const size_t n = wait_for_head(c);
    if (n == 0 || server_get_state(c->server) == SERVER_STOPPING) return false;
    char *text = malloc(n + 1);
    if (!text) return false;
    memcpy(text, c->wire.data + c->wire.begin, n);
    text[n] = 0;
    c->wire.begin += n;
    begin_exchange(&ex, c);
    answer_request(&ex, c, text, n);
    const bool goes_on = ex.whole && !ex.closes;
    if (ex.whole && ex.closes) http_wire_linger(&c->wire);
    end_exchange(&ex);
    free(text);
    return goes_on;
}

/* The place is given up before the descriptor is closed: see peers.c. */
static void end_connection(connection *c)
{
    http_server *server = c->server;
    const int fd = c->wire.fd;
    peers_remove(server, c->peer);
    close(fd);
    free(c);
    skv_account_give(server->account, LIMIT_COST_BYTES);
    pthread_mutex_lock(&server->lock);
    server->n_connections--;
    (void)pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static void *serve_connection(void *arg)
{
    connection *c = arg;
    while (serve_request(c)) continue;
    end_connection(c);
    return NULL;
}

static bool start_thread(connection *c)
{
    pthread_attr_t attributes;
    pthread_t thread;
    (void)pthread_attr_init(&attributes);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* some systems take whole pages only */
    const size_t n_pages = (c->server->options.stack_bytes + page - 1) / page;
    (void)pthread_attr_setstacksize(&attributes, n_pages * page);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int code = pthread_create(&thread, &attributes, serve_connection, c);
    (void)pthread_attr_destroy(&attributes);
    return code == 0;
}

/* Without a place, memory or a thread for it. Nothing waits for this to be read. */
static void turn_away(int fd)
{
    static const char body[] = "{\"error\":{\"message\":\"too many connections\",\"type\":"
                               "\"server_error\",\"param\":null,\"code\":null}}";
    char text[320];
    const int n = snprintf(text, sizeof text,
                           "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                           "Retry-After: 1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                           sizeof body - 1, body);
    (void)skv_socket_send(fd, text, (size_t)n);
    (void)shutdown(fd, SHUT_WR);
    close(fd);
}

static void begin_connection(http_server *server, int fd, const struct sockaddr_storage *address)
{
    const int on = 1;
    http_peer *peer = peers_add(server, fd, address);
    connection *c = peer ? malloc(sizeof *c) : NULL;
    if (c) {
        c->server = server;
        c->peer = peer;
        c->wire.fd = fd;
        c->wire.begin = c->wire.end = 0;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        skv_account_take_anyway(server->account, LIMIT_COST_BYTES);
        pthread_mutex_lock(&server->lock);
        server->n_connections++;
        pthread_mutex_unlock(&server->lock);
        if (start_thread(c)) return;
        skv_account_give(server->account, LIMIT_COST_BYTES);
        pthread_mutex_lock(&server->lock);
        server->n_connections--;
        pthread_mutex_unlock(&server->lock);
    }
    free(c);
    if (peer) peers_remove(server, peer);
    turn_away(fd);
}

/* Descriptors or memory are out, which passes. */
static void wait_after_failure(void)
{
    const struct timespec pause = {.tv_nsec = LIMIT_ACCEPT_PAUSE_MS * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Whether the queue was merely empty: a client that waited may have gone. */
static bool is_harmless(int code)
{
    return code == EINTR || code == ECONNABORTED || code == EAGAIN || code == EWOULDBLOCK;
}

static void *accept_all(void *arg)
{
    http_server *server = arg;
    struct pollfd news[2] = {{.fd = server->listen_fd, .events = POLLIN},
                             {.fd = server->end_accepting.fd, .events = POLLIN}};
    while (server_get_state(server) < SERVER_STOPPING) {
        struct sockaddr_storage address = {0};
        (void)poll(news, 2, -1);
        if (news[1].revents != 0) break;
        const int fd = skv_socket_accept(server->listen_fd, &address);
        const bool failed = fd < 0 && !is_harmless(errno);
        if (fd >= 0) {
            begin_connection(server, fd, &address);
        } else if (failed && server_get_state(server) < SERVER_STOPPING) {
            peers_make_room(server);
            wait_after_failure();
        }
    }
    return NULL;
}

bool http_start(http_server *server, char *error)
{
    server->routes = routes_all();
    if (!http_listen(server, error)) return false;
    if (!skv_wake_open(&server->end_accepting)) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "server: no descriptor (ulimit -n)");
        return false;
    }
    const int code = pthread_create(&server->acceptor, NULL, accept_all, server);
    server->accepts = code == 0;
    if (server->accepts) return true;
    (void)snprintf(error, SKV_ERROR_TEXT_MAX,
                   "server: cannot start a thread: error %d (ulimit -u, ulimit -v)", code);
    return false;
}

void http_stop(http_server *server)
{
    if (server->accepts) {
        skv_wake_ring(&server->end_accepting);
        pthread_join(server->acceptor, NULL);
    }
    server->accepts = false;
    skv_wake_close(&server->end_accepting);
    if (server->listen_fd >= 0) close(server->listen_fd);
    server->listen_fd = -1;
    peers_cut_all(server);
    pthread_mutex_lock(&server->lock);
    while (server->n_connections > 0) (void)pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
}
