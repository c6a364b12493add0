/*
 * The listening socket, the limit on connections, and their deadlines. The system's timeouts only
 * see inactivity, so a client that sends a byte now and then would hold a connection for ever. One
 * thread checks all connections several times a second and shuts down those past their deadline; it
 * also watches the worker.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "base/system.h"
#include "base/system_sockets.h"
#include "state/exchange_state.h"

/* ---- the socket ---- */

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
    if (!is_loopback(info->ai_addr) && !server->keys && !server->options.insecure) {
        return fail_host(server, "not a loopback address: give --api-key-file, or --insecure",
                         error);
    }
    const int fd = skv_socket_open(info->ai_family, SOCK_STREAM, false);
    if (fd < 0) return fail_host(server, strerror(errno), error);
    server->listen_fd = fd;
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_storage bound;
    socklen_t n_bound = sizeof bound;
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, LIMIT_BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &n_bound) != 0) {
        return fail_host(server, strerror(errno), error);
    }
    struct sockaddr_in v4; /* the port lies at the same place in both families */
    memcpy(&v4, &bound, sizeof v4);
    server->port = ntohs(v4.sin_port);
    return true;
}

bool http_listen(http_server *server, char *error)
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

bool http_fit_files(http_server *server, char *error)
{
    struct rlimit limit;
    size_t *connections = &server->options.connections;
    const size_t spare = skv_files_open() + LIMIT_SPARE_FILES;
    const size_t each = 1 + skv_wake_files(); /* a socket, and the descriptor that wakes its
                                               * thread */
    const size_t wanted = spare + each * *connections;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return true;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return true;
    const size_t most = (size_t)limit.rlim_cur;
    *connections = most > spare ? (most - spare) / each : 0;
    if (*connections == 0) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX,
                       "open files: the limit is %zu, at least %zu are needed (ulimit -n)", most,
                       spare + each);
        return false;
    }
    fprintf(stderr, "swiftkv: %zu connections at once: only %zu files may be open (ulimit -n)\n",
            *connections, most);
    return true;
}

enum {
    LOOK_MS = 200,
    STOOD_STILL_MS = 2000 /* between two looks: the machine was held up, and clients with it */
};

/* ---- places; with the lock held ---- */

static void address_of(const struct sockaddr_storage *from, uint8_t to[16])
{
    memset(to, 0, 16);
    if (from->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, from, sizeof v4);
        memset(to + 10, 0xff, 2);
        memcpy(to + 12, &v4.sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, from, sizeof v6);
        memcpy(to, &v6.sin6_addr, 16);
    }
}

/* A place that is given up later does not count any more. */
static size_t count_peers(const http_server *server, const uint8_t *address)
{
    size_t n = 0;
    for (size_t i = 0; i < server->n_peers; i++) {
        const http_peer *peer = &server->peers[i];
        if (peer->phase == PEER_FREE || peer->phase == PEER_CUT) continue;
        n += !address || memcmp(peer->address, address, 16) == 0;
    }
    return n;
}

static void cut(http_server *server, http_peer *peer)
{
    (void)shutdown(peer->fd, SHUT_RDWR);
    peer->phase = PEER_CUT;
    server->n_timed_out_peers++;
}

/* Cuts the connection that has said nothing for the longest time; false: all have something to do.
 * address: one of those from there; NULL: any. */
static bool cut_quiet(http_server *server, const uint8_t *address)
{
    http_peer *quiet = NULL;
    const uint64_t now = skv_now_ns();
    for (size_t i = 0; i < server->n_peers; i++) {
        http_peer *peer = &server->peers[i];
        const bool waits = peer->phase == PEER_IDLE || peer->phase == PEER_HEADER;
        if (!waits || now < peer->since_ns + LIMIT_QUIET_MS * UINT64_C(1000000)) continue;
        if (address && memcmp(peer->address, address, 16) != 0) continue;
        if (!quiet || peer->since_ns < quiet->since_ns) quiet = peer;
    }
    if (quiet) cut(server, quiet);
    return quiet;
}

static http_peer *find_place(http_server *server, const uint8_t *address)
{
    const server_options *o = &server->options;
    const bool is_full = count_peers(server, NULL) >= o->connections;
    const bool is_many = count_peers(server, address) >= o->connections_per_ip;
    if ((is_full || is_many) && !cut_quiet(server, is_many ? address : NULL)) return NULL;
    for (size_t i = 0; i < server->n_peers; i++) {
        if (server->peers[i].phase == PEER_FREE) return &server->peers[i];
    }
    return NULL;
}

/* ---- connections ---- */

http_peer *peers_add(http_server *server, int fd, const struct sockaddr_storage *address)
{
    uint8_t bytes[16];
    address_of(address, bytes);
    pthread_mutex_lock(&server->lock);
    http_peer *found = find_place(server, bytes);
    if (found) {
        *found = (http_peer){.phase = PEER_HEADER, .fd = fd, .since_ns = skv_now_ns()};
        memcpy(found->address, bytes, sizeof bytes);
    } else {
        server->n_refused_peers++;
    }
    pthread_mutex_unlock(&server->lock);
    return found;
}

void peers_make_room(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    (void)cut_quiet(server, NULL);
    pthread_mutex_unlock(&server->lock);
}

void peers_cut_all(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < server->n_peers; i++) {
        if (server->peers[i].phase != PEER_FREE) (void)shutdown(server->peers[i].fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->lock);
}

void peers_remove(http_server *server, http_peer *peer)
{
    pthread_mutex_lock(&server->lock);
    peer->phase = PEER_FREE;
    pthread_mutex_unlock(&server->lock);
}

peer_phase peers_set_phase(http_server *server, http_peer *peer, peer_phase phase)
{
    pthread_mutex_lock(&server->lock);
    const peer_phase before = peer->phase;
    if (before != phase) peer->n_body = 0;
    if (before != PEER_CUT) peer->phase = phase;
    peer->since_ns = skv_now_ns();
    pthread_mutex_unlock(&server->lock);
    return before;
}

void peers_count_late(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->n_timed_out_peers++;
    pthread_mutex_unlock(&server->lock);
}

void peers_count_body(http_server *server, http_peer *peer, size_t n)
{
    pthread_mutex_lock(&server->lock);
    peer->n_body += n;
    pthread_mutex_unlock(&server->lock);
}

static bool is_late(const http_server *server, const http_peer *peer, uint64_t now)
{
    const double seconds = (double)(now - peer->since_ns) * 1e-9;
    switch (peer->phase) {
    case PEER_FREE:
    case PEER_CUT:
    case PEER_WORKING: return false;
    case PEER_IDLE: return seconds > LIMIT_IDLE_SECONDS;
    case PEER_HEADER: return seconds > server->options.header_seconds;
    case PEER_WRITING: return seconds > server->options.stall_seconds;
    case PEER_BODY: break;
    }
    const bool slow = seconds > LIMIT_BODY_SLOW_SECONDS &&
                      (double)peer->n_body < seconds * LIMIT_BODY_BYTES_A_SECOND;
    return slow || seconds > server->options.body_seconds;
}

/* A connection's place is given up before its descriptor is closed, so this one is still it. If
 * everything stood still since the last look, *at, that time is given back. */
static void look(http_server *server, uint64_t *at)
{
    const uint64_t now = skv_now_ns(), before = *at;
    const bool stood_still = now - before > STOOD_STILL_MS * UINT64_C(1000000);
    *at = now;
    for (size_t i = 0; i < server->n_peers; i++) {
        http_peer *peer = &server->peers[i];
        if (stood_still && peer->since_ns <= before) peer->since_ns += now - before;
        if (now < peer->since_ns || !is_late(server, peer, now)) continue;
        cut(server, peer);
    }
}

static void *reap(void *arg)
{
    http_server *server = arg;
    uint64_t at = skv_now_ns();
    pthread_mutex_lock(&server->lock);
    while (server->reaper_runs) {
        look(server, &at);
        pthread_mutex_unlock(&server->lock);
        watchdog_look(&server->dog, server);
        const struct timespec next = server_time_in(LOOK_MS / 1000.0);
        int code = 0;
        pthread_mutex_lock(&server->lock);
        while (server->reaper_runs && code == 0) {
            code = skv_cond_wait_until(&server->reaper_stops, &server->lock, &next);
        }
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

bool peers_start(http_server *server, char *error)
{
    /* Some to spare: a place may be freed later than its connection is counted as gone. */
    server->n_peers = server->options.connections + 64;
    server->peers = calloc(server->n_peers, sizeof *server->peers);
    server->reaper_runs = server->peers;
    const int code = server->peers ? pthread_create(&server->reaper, NULL, reap, server) : ENOMEM;
    if (code == 0) return true;
    server->reaper_runs = false;
    (void)snprintf(error, SKV_ERROR_TEXT_MAX,
                   "server: cannot start a thread: error %d (ulimit -u, ulimit -v)", code);
    return false;
}

void peers_stop(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    const bool runs = server->reaper_runs;
    server->reaper_runs = false;
    (void)pthread_cond_signal(&server->reaper_stops);
    pthread_mutex_unlock(&server->lock);
    if (runs) pthread_join(server->reaper, NULL);
    free(server->peers);
    server->peers = NULL;
}

bool exchange_stopped(void *arg)
{
    const exchange *ex = arg;
    return skv_socket_has_left(ex->fd, NULL, 0) || server_get_state(ex->server) == SERVER_STOPPING;
}
