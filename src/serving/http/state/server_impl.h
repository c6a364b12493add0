/* The server's own state, shared by the files of this folder. */
#ifndef SKV_SERVER_IMPL_H
#define SKV_SERVER_IMPL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/system_sockets.h"
#include "server.h"
#include "skv/budget.h"
#include "skv/reply.h"
#include "skv/text.h"
#include "skv/tools.h"
#include "state/api_keys.h"
#include "state/memory_share.h"
#include "wire/server_limits.h"

typedef enum server_state {
    SERVER_LOADING,
    SERVER_READY,
    SERVER_DRAINING, /* requests in flight are finished */
    SERVER_STOPPING  /* now */
} server_state;

/* The state of a connection, for its deadline. */
typedef enum peer_phase {
    PEER_FREE,    /* the place is free */
    PEER_IDLE,    /* between two requests */
    PEER_HEADER,  /* a request's header is on its way */
    PEER_BODY,    /* its body */
    PEER_WORKING, /* we work for it: no deadline */
    PEER_WRITING, /* it has to take the bytes that we wrote */
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

typedef enum model_state {
    MODEL_COLD,     /* not loaded */
    MODEL_LOADING,  /* on its way */
    MODEL_READY,    /* requests run on it */
    MODEL_RETIRING, /* the last of them do: others wait for it to come again */
    MODEL_LEAVING   /* its memory is being freed */
} model_state;

/* How a chat template renders the calls of earlier turns. */
typedef struct tool_habits {
    bool short_ids;     /* it refuses ids but of nine letters and digits */
    bool loses_calls;   /* it leaves calls out */
    bool loses_results; /* it leaves results out */
    bool loses_orphans; /* it leaves results out whose calls are not in the history */
    bool one_call;      /* of several calls in one message it writes the first, or refuses them */
} tool_habits;

/* The text that a chat template puts around an answer: see skv_reply_frame. */
typedef struct answer_frame {
    char *lead, *behind, *tail; /* owned; NULL: nothing */
} answer_frame;

/* A model that may be asked for. A request that has taken it (model_take) may read all fields
 * that are set while it is loaded: it stays until the request gives it back. */
typedef struct server_model {
    /* Set at the start. */
    const char *names;          /* borrowed: "one,other" */
    char *name;                 /* owned: the first of them, which responses carry */
    const skv_model_info *info; /* borrowed */
    skv_sampling sampling;      /* of requests that do not say */

    /* Guarded by the server's lock. */
    model_state state;
    size_t n_users, n_waiting; /* requests that have taken it, and that wait for it */
    uint64_t wanted_ns;        /* since when it has been waited for; 0: it is not */
    uint64_t ready_ns;         /* when it was loaded */
    uint64_t used_ns;          /* when it was last given back */
    uint64_t n_loads, n_failures;
    bool starved;                   /* its memory was short, and no other model has left since */
    char error[SKV_ERROR_TEXT_MAX]; /* why it could not be loaded at last */

    /* Set while it is loaded; `limits` stays set afterwards. */
    skv_engine *engine;             /* borrowed */
    const skv_vocab *vocab;         /* borrowed; NULL: none */
    skv_scheduler *scheduler;       /* owned */
    struct skv_token_table *tokens; /* owned: for constraints; NULL without a vocabulary */
    skv_engine_stats limits;
    char *template_text;                     /* owned; NULL: none */
    bool guesses_template;                   /* it is not the model's own */
    char template_error[SKV_ERROR_TEXT_MAX]; /* why it cannot be read; "": it can */
    size_t n_template;
    skv_reply_format reply_format;      /* of the answers to it */
    unsigned efforts;                   /* that the template takes: tool_template_efforts */
    bool knows_developer;               /* the template writes messages of that role */
    bool generic_tools;                 /* the template has none that are known: tool_generic.c */
    tool_habits habits;                 /* of the template, where there are */
    answer_frame frame;                 /* of the template */
    bool special_marks;                 /* some of its marks are special tokens: */
    char *special[SKV_REPLY_MARKS_MAX]; /* owned, [n_special] */
    size_t n_special;
} server_model;

struct http_server {
    server_options options;
    struct server_model *models; /* owned, [n_models]: those that may be asked for */
    size_t n_models;
    const struct server_route *routes; /* borrowed: the endpoints; the last one has no path */
    int listen_fd;
    skv_wake end_accepting; /* rung when the acceptor has to end */
    pthread_t acceptor;
    bool accepts;
    size_t port;
    api_keys *keys;          /* owned; NULL: no key is needed */
    rate_table *rates;       /* owned */
    struct request_log *log; /* owned; NULL: none */
    int64_t started_s;
    _Atomic uint64_t n_requests, n_drawn;
    /* Owned: the memory that requests hold beside the KV memory, at most --memory; and its
     * shares. */
    skv_account *account;
    memory_table memory;

    pthread_mutex_t lock; /* guards the fields below */
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
    pthread_cond_t reaper_stops;
    watchdog dog;               /* the reaper's */
    struct line_pattern *strip; /* owned: lines that leave system texts; NULL: none */
    struct slot_table *slots;   /* owned; NULL: no --slot-save-path */
    json_t *template_vars;      /* owned: of requests that do not say otherwise; NULL: none */
    /* Around text that the server itself writes into a message in the template's name, such as the
     * marks of calls (skv_render_input.own_mark). It is secret. */
    char own_mark[40];
};

/** A server that has no models and does nothing yet, to be ended by server_stop. */
bool server_create(const server_options *options, http_server **out, char *error);
server_state server_get_state(http_server *server);
/** The rates of a key: its own, or those of all. */
rate_limits server_limits(http_server *server, uint64_t key);
/** Whether `word` is an item of a list "one,other", or the list has the item "*". */
bool server_list_has(const char *list, skv_text_piece word);
/** The next item of a list but for "*", from *at on; false: there is none. */
bool server_list_next(const char **at, skv_text_piece *out);
/** How long a scheduler may write to its cache at the end: as long as requests had, within bounds.
 */
double server_flush_seconds(const server_options *o);
/** So far from now, by the clock of the server's condition variables. */
struct timespec server_time_in(double seconds);
static inline skv_text_piece server_own_mark(const http_server *server)
{
    return (skv_text_piece){server->own_mark, strlen(server->own_mark)};
}

/** 64 unpredictable bits that no other call gets. */
uint64_t server_draw(http_server *server);

/* ---- server_model.c: the parts that serving a model needs ---- */

/** Loads the model into memory_max bytes (0: as many as there are) and starts its scheduler. On
 * failure everything is freed and `error` (of SKV_ERROR_TEXT_MAX bytes) receives the reason. */
skv_status model_open(http_server *server, server_model *model, size_t memory_max, size_t *n_bytes,
                      char *error);
void model_close(http_server *server, server_model *model);
/** Reads from the model's vocabulary and a template how prompts and answers look. The result must
 * be freed with model_drop_template, also after a failure. */
skv_status model_read_template(http_server *server, server_model *model,
                               const server_template *template, char *error);
void model_drop_template(server_model *model);

/* ---- model_table.c: which models are loaded ---- */

struct exchange;
struct api_error;

bool models_start(http_server *server, char *error);
/** After the last request. */
void models_stop(http_server *server);
/** Does one thing that requests wait for: loads a model, or unloads one to make room. The caller
 * holds the lock, which is released meanwhile. Returns false if there is nothing to do. */
bool models_tend(http_server *server);
/** True when a request waits for a model. The caller holds the lock. */
bool models_wanted(const http_server *server);
/** Stops new work on all models. The caller holds the lock. */
void models_drain(http_server *server);
/** Whether its scheduler may be asked. The lock is held. */
bool model_is_loaded(const server_model *model);
/** "loaded", "loading", "waiting", "unloaded" */
const char *model_state_name(http_server *server, const server_model *model);
/** The model of this name, with ":latest" or without; NULL: there is none. */
server_model *models_find(http_server *server, skv_text_piece name);
/** Refuses a name that no model has; returns false. */
bool models_lack(const http_server *server, skv_text_piece name, struct api_error *error);
/** Makes it the model of a request, which waits until it is loaded: ex->model. False: `error`. */
bool model_take(struct exchange *ex, server_model *model, struct api_error *error);
/** The same by the name that a request's body or, without one, its query has; the first model where
 * there is none. */
bool model_take_named(struct exchange *ex, const skv_text_piece *name, struct api_error *error);
void model_give_back(struct exchange *ex);

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
/** A connection that is given up for its slowness, but not by the thread that keeps deadlines. */
void peers_count_late(http_server *server);
void peers_count_body(http_server *server, http_peer *peer, size_t n);

/* ---- request_log.c: a line for every request that has ended ---- */

/** path "-": standard error; NULL: words for people, on the terminal that standard error is. On
 * failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. */
bool request_log_open(const char *path, struct request_log **out, char *error);
void request_log_close(struct request_log *log);
/** Opens the file again, since rotation moves it away. */
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
