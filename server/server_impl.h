/* The server's own state, shared by the files of this folder. */
#ifndef SKV_SERVER_IMPL_H
#define SKV_SERVER_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "api_keys.h"
#include "rates.h"
#include "server.h"
#include "skv/reply.h"
#include "skv/text.h"
#include "skv/tools.h"
#include "watchdog.h"

typedef enum server_state {
    SERVER_LOADING,
    SERVER_READY,
    SERVER_DRAINING, /* what is in flight is finished */
    SERVER_STOPPING  /* now */
} server_state;

/* What a connection is doing, for its deadline. */
typedef enum peer_phase {
    PEER_FREE,    /* the place is free */
    PEER_IDLE,    /* between two requests */
    PEER_HEADER,  /* a request's header is on its way */
    PEER_BODY,    /* its body */
    PEER_WORKING, /* we work for it: no deadline */
    PEER_WRITING  /* it has to take what we wrote */
} peer_phase;

typedef struct http_peer {
    peer_phase phase;
    int fd;
    uint64_t since_ns;
    size_t n_body; /* bytes of the body so far */
} http_peer;

struct http_server {
    server_options options;
    char *name; /* owned */
    struct MHD_Daemon *daemon;
    int listen_fd;
    size_t port;
    api_keys *keys;          /* owned; NULL: everybody may */
    rate_table *rates;       /* owned */
    struct request_log *log; /* owned; NULL: none */
    int64_t started_s;
    uint8_t secret[16]; /* of request ids and seeds */
    _Atomic uint64_t n_requests, n_drawn;
    atomic_size_t body_bytes; /* of all requests that are on their way in */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    server_state state;
    size_t n_in_flight;
    http_peer *peers; /* owned, [n_peers] */
    size_t n_peers;
    uint64_t n_refused_peers, n_timed_out_peers;
    uint64_t responses[6];                         /* by the first digit of the status */
    uint64_t n_limited_requests, n_limited_tokens; /* refused by the rates of their key */

    pthread_t reaper;
    bool reaper_runs;
    watchdog dog; /* the reaper's */

    /* Set once, before the state becomes READY. */
    skv_engine *engine;             /* borrowed */
    const skv_vocab *vocab;         /* borrowed; NULL: none */
    skv_scheduler *scheduler;       /* owned */
    struct skv_token_table *tokens; /* owned: for constraints; NULL without a vocabulary */
    skv_engine_stats limits;
    char *template_text; /* owned; NULL: none */
    size_t n_template;
    skv_reply_format reply_format; /* of the answers to it */
    bool special_marks;            /* some of its marks are special tokens */
};

server_state server_get_state(http_server *server);
/** The rates of a key: its own, or those of all. */
rate_limits server_limits(http_server *server, uint64_t key);
/** 64 bits that nobody can guess and no other call gets. */
uint64_t server_draw(http_server *server);

/* ---- http_front.c: connections, bodies, authorisation ---- */

bool http_start(http_server *server, char *error);
/** Every connection is cut, and every thread of them has ended. */
void http_stop(http_server *server);

/* ---- peers.c: deadlines of connections ---- */

bool peers_start(http_server *server, char *error);
void peers_stop(http_server *server);
/** A place for a new connection; NULL: there is none. */
http_peer *peers_add(http_server *server, int fd);
void peers_remove(http_server *server, http_peer *peer);
void peers_set_phase(http_server *server, http_peer *peer, peer_phase phase);
void peers_count_body(http_server *server, http_peer *peer, size_t n);

#endif
