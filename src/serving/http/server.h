/*
 * The HTTP server, as the command `serve` uses it.
 *
 *     server_start   binds and answers: 503 while the model loads
 *     server_ready   loads the first model
 *     server_wait    loads others as they are asked for, until a signal ends it and the requests in
 * flight are done, or too late server_stop    ends every connection and frees all
 */
#ifndef SKV_SERVER_SERVER_H
#define SKV_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/serve.h"
#include "skv/skv.h"

typedef struct http_server http_server;

typedef struct server_template {
    const char *text; /* NULL: none */
    bool is_guess;    /* the model brings none, and may not know this one */
} server_template;

/* A model that may be asked for. All of it is borrowed. */
typedef struct server_source {
    const char *names; /* "one,other", as clients may call it; "*": any, where it is the only one */
    const char *file;  /* the last part of its path */
    const struct skv_model_info *info;
    size_t context;        /* of its requests */
    const char *cache_dir; /* for cached prompts, its own; NULL: none */
    skv_sampling sampling; /* of requests that do not say */
    bool never_drafts;     /* speculation of the scheduler's options is not for it */
} server_source;

/* The result of loading it. It lives until the model is unloaded; the template is copied. */
typedef struct server_loaded {
    skv_engine *engine;
    const skv_vocab *vocab; /* NULL: none */
    server_template template;
    size_t n_bytes; /* that it takes, or would: told where it fails for SKV_MEMORY as well */
} server_loaded;

/* How models come and go: called one at a time, by the thread of server_ready and server_wait, and
 * server_stop. On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. */
typedef struct server_loader {
    /* It may take memory_max bytes (0: all that the machine has); SKV_MEMORY if that is too
     * little. */
    skv_status (*load)(void *user, size_t i_source, size_t memory_max, server_loaded *out,
                       char *error);
    void (*unload)(void *user, size_t i_source);
    void *user;
} server_loader;

/* All of them are told: the command line has the defaults (cli/option_table.c). */
typedef struct server_options {
    const server_source *sources; /* borrowed, [n_sources]: the models */
    size_t n_sources;
    size_t max_loaded;   /* of them at a time, */
    size_t models_bytes; /* and their weights, KV caches and workspaces; 0: all that the machine
                          * has */
    server_loader loader;
    const char *origins;  /* the origins whose pages may read responses (CORS), as `names`; NULL:
                           * none */
    const char *host;     /* an address or a name; only loopback without keys or `insecure` */
    size_t port;          /* 0: any */
    const char *key_file; /* one key a line; NULL: no keys */
    bool insecure;        /* bind anywhere without keys */
    double requests_a_minute, tokens_a_minute; /* of a key without a rate of its own; 0: any
                                                * number */
    const char *request_log; /* a file of JSON lines, "-": standard error; NULL: none */
    bool log_words;          /* false: readable lines on standard error, if a terminal */
    bool log_probes;         /* requests for /health and /metrics too */
    bool metrics_compat;     /* metrics under other servers' names too */
    size_t connections;      /* at once */
    size_t connections_per_ip;
    size_t body_bytes;            /* of one request */
    size_t memory_bytes;          /* that all requests hold together, beside the KV memory */
    uint64_t request_work;        /* units that reading one request may take, about 10 ns each */
    size_t request_bytes;         /* that reading one request may hold */
    double request_seconds;       /* that reading one request may take */
    size_t stack_bytes;           /* of a connection's thread */
    double header_seconds;        /* until a request's header is there */
    double body_seconds;          /* until its body is */
    double stall_seconds;         /* a client that takes nothing for so long is cut off */
    double ping_seconds;          /* between signs of life of a stream without tokens */
    double shutdown_seconds;      /* for requests in flight, once told to end */
    double watchdog_seconds;      /* without a step although there is work: not healthy */
    const char *tool_format;      /* how the model writes calls; NULL: as its template tells */
    const char *reasoning_format; /* "none", "think"; NULL: as its template tells */
    const char *template_vars;    /* a JSON object of variables of the template; NULL: none */
    bool allow_special_text;      /* texts of clients may spell special tokens */
    const char *slot_save_path;   /* a folder for files of POST /slots; NULL: they are refused */
    size_t slot_save_bytes;       /* the most that its files may have */
    const char *prompt_strip;     /* a pattern of lines that leave system texts; NULL: none */
    bool prompt_sort_tools, prompt_keep_thoughts; /* prompt_changes.h */
    const char *reranker;                         /* "yes", "no", "auto": as the names tell */
    bool reads;      /* it reads prompts for others, and answers none */
    bool seed_given; /* it has a seed for all of them; else each draws its own */
    skv_scheduler_options scheduler;
} server_options;

/* On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why, in one line. */
bool server_start(const server_options *options, http_server **out, char *error);
/** The port it listens on. */
size_t server_port(const http_server *server);
/** Loads the first model; the server is ready then. */
bool server_ready(http_server *server, char *error);
/** From a thread that waits for signals: SIGHUP reads the keys again, the first other one drains,
 * the next one stops. False: nothing is served yet, or it stops already, and the program may
 * simply end. */
bool server_signal(http_server *server, int signal);
/** Whether a signal has told it to end: loading a model has no use any more. */
bool server_ends(http_server *server);
/** Loads models that are asked for, and returns when it is time to stop. */
void server_wait(http_server *server);
void server_stop(http_server *server);

#endif
