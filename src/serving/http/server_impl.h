/* The server's own state, shared by the files of this folder. */
#ifndef SKV_SERVER_IMPL_H
#define SKV_SERVER_IMPL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "api_keys.h"
#include "server.h"
#include "server_limits.h"
#include "skv/budget.h"
#include "skv/reply.h"
#include "skv/text.h"
#include "skv/tools.h"

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
    PEER_WRITING, /* it has to take what we wrote */
    PEER_CUT      /* it was shut down: its thread is about to end */
} peer_phase;

/* Whether the worker goes on. */
typedef struct watchdog {
    int notify_fd;       /* systemd's socket; below 0: none */
    atomic_bool stalled; /* at the last look: work, and no step for longer than --watchdog */
    uint64_t told_ns;    /* when systemd was last told */
    uint64_t looked_ns;  /* when the last look was */
    /* How long there has been work and no step. Between two looks no more than a moment counts: if
     * more has passed, the whole process stood still, and the worker with it. */
    uint64_t quiet_ns;
} watchdog;

typedef struct http_peer {
    peer_phase phase;
    int fd;
    uint8_t address[16]; /* as IPv6 */
    uint64_t since_ns;
    size_t n_body; /* bytes of the body so far */
} http_peer;

struct http_server {
    server_options options;
    char *name; /* owned: the first of options.names, which responses carry */
    int listen_fd;
    pthread_t acceptor;
    bool accepts;
    size_t port;
    api_keys *keys;          /* owned; NULL: everybody may */
    rate_table *rates;       /* owned */
    struct request_log *log; /* owned; NULL: none */
    int64_t started_s;
    _Atomic uint64_t n_requests, n_drawn;
    _Atomic uint32_t n_compiling; /* grammars */
    /* Owned: what requests hold beside the KV memory, at most --memory. */
    skv_account *account;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    server_state state;
    size_t n_in_flight;   /* requests */
    size_t n_connections; /* threads of them */
    http_peer *peers;     /* owned, [n_peers] */
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
    json_t *template_vars; /* owned: of requests that do not say otherwise; NULL: none */
    char *template_text;   /* owned; NULL: none */
    bool guesses_template; /* it is not the model's own */
    size_t n_template;
    skv_reply_format reply_format; /* of the answers to it */
    bool generic_tools;            /* the template has none that are known: tool_generic.c */
    bool special_marks;            /* some of its marks are special tokens */
};

server_state server_get_state(http_server *server);
/** The rates of a key: its own, or those of all. */
rate_limits server_limits(http_server *server, uint64_t key);
/** Whether `word` is an item of a list "one,other", or the list has the item "*". */
bool server_list_has(const char *list, skv_text_piece word);
/** The next item of a list but for "*", from *at on; false: there is none. */
bool server_list_next(const char **at, skv_text_piece *out);
/** 64 bits that nobody can guess and no other call gets. */
uint64_t server_draw(http_server *server);

/* ---- http_front.c: connections and their requests ---- */

bool http_start(http_server *server, char *error);
/** Every connection is cut, and every thread of them has ended. */
void http_stop(http_server *server);

/* ---- peers.c: the socket, and deadlines of connections ---- */

/** As many connections as descriptors allow, at most --connections. Before anything is opened. */
bool http_fit_files(http_server *server, char *error);
bool http_listen(http_server *server, char *error);

bool peers_start(http_server *server, char *error);
void peers_stop(http_server *server);
/** A place for a new connection; NULL: there is none. Where all are taken, one that has said
 * nothing for a while loses its own. */
http_peer *peers_add(http_server *server, int fd, const struct sockaddr_storage *address);
/** Cuts a connection that says nothing, if there is one. */
void peers_make_room(http_server *server);
void peers_cut_all(http_server *server);
void peers_remove(http_server *server, http_peer *peer);
/** Returns the phase before. */
peer_phase peers_set_phase(http_server *server, http_peer *peer, peer_phase phase);
void peers_count_body(http_server *server, http_peer *peer, size_t n);

/* ---- request_log.c: a line of JSON for every request that has ended ---- */

struct exchange;

/** path "-": standard error. On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. */
bool request_log_open(const char *path, struct request_log **out, char *error);
void request_log_close(struct request_log *log);
/** Opens the file again, as it is moved away by those who rotate it. */
bool request_log_reopen(struct request_log *log, char *error);
/** A line that cannot be written is lost. */
void request_log_add(struct request_log *log, const struct exchange *ex);

/*
 * ---- watchdog.c: whether the worker goes on ----
 *
 * When there is work and no step for too long, /health tells, standard error gets a line and where
 * every thread stands, and systemd, where it has asked for signs of life (WatchdogSec=), gets no
 * more of them.
 */

/** Once, before threads are made that stacks are wanted of. */
void watchdog_open(watchdog *dog);
void watchdog_close(watchdog *dog);
/** By one thread, several times a second. */
void watchdog_look(watchdog *dog, http_server *server);

#endif
