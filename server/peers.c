/*
 * Deadlines of connections. The library underneath only knows inactivity; somebody who sends a
 * byte now and then would hold a connection for ever. One thread looks at all of them several
 * times a second and shuts those down that are too late; it also looks after the worker.
 */
#include "server_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum {
    LOOK_MS = 200,
    STOOD_STILL_MS = 2000, /* between two looks: the machine was held up, and clients with it */
    FLOOR_BYTES_A_SECOND = 1024, /* of a body, */
    FLOOR_AFTER_SECONDS = 10,    /* after this long */
    IDLE_SECONDS = 60
};

http_peer *peers_add(http_server *server, int fd)
{
    http_peer *found = NULL;
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < server->n_peers && found == NULL; i++) {
        if (server->peers[i].phase == PEER_FREE) found = &server->peers[i];
    }
    if (found != NULL) {
        *found = (http_peer){.phase = PEER_HEADER, .fd = fd, .since_ns = skv_now_ns()};
    } else {
        server->n_refused_peers++;
    }
    pthread_mutex_unlock(&server->lock);
    return found;
}

void peers_remove(http_server *server, http_peer *peer)
{
    pthread_mutex_lock(&server->lock);
    peer->phase = PEER_FREE;
    pthread_mutex_unlock(&server->lock);
}

void peers_set_phase(http_server *server, http_peer *peer, peer_phase phase)
{
    pthread_mutex_lock(&server->lock);
    if (peer->phase != phase) peer->n_body = 0;
    peer->phase = phase;
    peer->since_ns = skv_now_ns();
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
    case PEER_WORKING: return false;
    case PEER_IDLE: return seconds > IDLE_SECONDS;
    case PEER_HEADER: return seconds > server->options.header_seconds;
    case PEER_WRITING: return seconds > server->options.stall_seconds;
    case PEER_BODY: break;
    }
    const bool slow =
        seconds > FLOOR_AFTER_SECONDS && (double)peer->n_body < seconds * FLOOR_BYTES_A_SECOND;
    return slow || seconds > server->options.body_seconds;
}

/* A connection's place is given up before its descriptor is closed, so this one is still it.
 * Returns whether everything stood still since the last look, *at; that time is given back. */
static bool look(http_server *server, uint64_t *at)
{
    const uint64_t now = skv_now_ns(), before = *at;
    const bool stood_still = now - before > STOOD_STILL_MS * UINT64_C(1000000);
    *at = now;
    for (size_t i = 0; i < server->n_peers; i++) {
        http_peer *peer = &server->peers[i];
        if (stood_still && peer->since_ns <= before) peer->since_ns += now - before;
        if (now < peer->since_ns || !is_late(server, peer, now)) continue;
        (void)shutdown(peer->fd, SHUT_RDWR);
        peer->phase = PEER_WORKING;
        server->n_timed_out_peers++;
    }
    return stood_still;
}

static void *reap(void *arg)
{
    http_server *server = arg;
    uint64_t at = skv_now_ns();
    pthread_mutex_lock(&server->lock);
    while (server->reaper_runs) {
        const bool stood_still = look(server, &at);
        pthread_mutex_unlock(&server->lock);
        watchdog_look(&server->dog, server, stood_still);
        const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
        pthread_mutex_lock(&server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

bool peers_start(http_server *server, char *error)
{
    /* Some to spare: a place may be freed later than its connection is counted as gone. */
    server->n_peers = server->options.connections + 64;
    server->peers = calloc(server->n_peers, sizeof *server->peers);
    server->reaper_runs = server->peers != NULL;
    const int code =
        server->peers != NULL ? pthread_create(&server->reaper, NULL, reap, server) : ENOMEM;
    if (code == 0) return true;
    server->reaper_runs = false;
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "server: cannot start a thread: error %d", code);
    return false;
}

void peers_stop(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    const bool runs = server->reaper_runs;
    server->reaper_runs = false;
    pthread_mutex_unlock(&server->lock);
    if (runs) pthread_join(server->reaper, NULL);
    free(server->peers);
    server->peers = NULL;
}
