/* One request and its response. */
#ifndef SKV_SERVER_EXCHANGE_H
#define SKV_SERVER_EXCHANGE_H

#include "prompt/prompt_changes.h"
#include "state/server_impl.h"
#include "wire/api_error.h"
#include "wire/http_wire.h"

typedef struct exchange {
    http_server *server;
    http_peer *peer;
    int fd;
    const http_head *head;            /* borrowed */
    server_model *model;              /* that it has taken; NULL: none so far */
    const struct server_route *route; /* NULL: there is none */
    error_shape errors;               /* of its path */
    char *body;                       /* owned, with a terminating zero */
    size_t n_body, body_room, body_counted;
    memory_share *share; /* borrowed: the share whose memory it takes */
    bool replied;        /* a response was begun, */
    bool whole;          /* and sent to its end */
    bool closes;         /* the last response of this connection */
    bool may_ping;       /* its client reads events, so comments may come before them */
    bool streams;        /* the head of a stream of events was sent */
    bool rated;          /* it counts for the rates of its key */
    bool compiles;       /* a grammar: it has a slot (compile_slots.h), since slot_ns */
    bool never_fits;     /* memory that it asked for is more than its share can ever have */
    const char *origin;  /* borrowed from the head: of the page that may read it; NULL: none */
    uint64_t tenant;     /* the number of its key; 0: none needed */
    const char *key;     /* borrowed from the head; NULL: none needed */
    char id[24];         /* of the request, 16 hexadecimal digits */
    trace_context trace; /* the values of its headers */
    char method[17], path[257];
    char methods[64];       /* that the path has, where it has not this one: "GET, HEAD" */
    char left_out[96];      /* types of tools that the request has and the model did not get */
    prompt_report changed;  /* of its prompts, by option */
    prompt_report *changes; /* = &changed, for functions that only read the exchange */
    uint64_t begun_ns, slot_ns;
    /* Reading it, up to the submission of its answers, without these waits: for its model to be
     * loaded, and for memory. */
    uint64_t read_ns, load_ns, memory_ns;
    http_pace pace;             /* of the client in taking the response */
    int status;                 /* of the response; 0: none was begun */
    struct generation *running; /* borrowed: its answers on their way; NULL: none */
    skv_job_stats used;         /* by its answers, once they are settled */
    api_error refusal;          /* why it failed, for the log too; status 0: it has not */
    size_t n_held;              /* bytes of the account that exchange_take has taken for it */
    skv_budget reading;         /* the bound of the work on the request's text */
    skv_budget *budget;         /* = &reading, for functions that only read the exchange */
} exchange;

/* Which servers have a path: those that answer, readers (--role read), or both. */
typedef enum route_role { ROUTE_ANSWERS, ROUTE_READS, ROUTE_BOTH } route_role;

typedef struct server_route {
    const char *method, *path;
    void (*handle)(exchange *ex);
    bool open;        /* without a key */
    bool needs_model; /* 503 until it is loaded, and once we drain */
    bool lists;       /* all models, without taking one */
    bool probe;       /* asked again and again: not logged, unless that is wanted */
    bool streams;     /* server-sent events, where "stream" says so */
    error_shape errors;
    route_role role;
} server_route;

/**
 * Whether work for this request is to end: its client has left, or the time for requests in flight
 * is over. `ex` is an exchange: this is skv_budget.stopped, asked every millisecond or so.
 */
bool exchange_stopped(void *ex);
/** All of these wait until the client has taken the bytes, or is gone. This one takes the text
 * over. */
void exchange_reply(exchange *ex, int status, const char *content_type, skv_buf *text);
void exchange_reply_json(exchange *ex, int status, skv_buf *text);
void exchange_refuse(exchange *ex, const api_error *error);
/** For the log: why a response that has begun does not end as requested. */
void exchange_note(exchange *ex, const api_error *error);

/* A response's own headers, beside those of all. */
typedef struct exchange_response {
    int status;
    const char *content_type;
    const char *data; /* borrowed, [n]: the body */
    size_t n;
    bool in_pieces; /* exchange_write sends the body, up to exchange_end */
    skv_buf fields; /* owned: "Name: value\r\n" and so on */
} exchange_response;

/** Sends it and releases its fields; false: the client is gone. */
bool exchange_send(exchange *ex, exchange_response *response);
/** Sends the next bytes of a body in pieces; false: the client is gone. */
bool exchange_write(exchange *ex, const char *data, size_t n);
void exchange_end(exchange *ex);
/** "100 Continue": the client may send its body; false: it is gone. */
bool exchange_go_on(exchange *ex);

/* ---- a response that is written while it comes into being ---- */

/* Appends the next part and may wait for it; false: the end. */
typedef bool event_fill_fn(void *state, skv_buf *out);

/** A sign of life of a request whose stream has not begun: a comment, which begins it. From then
 * on a refusal is an event. False: the client is gone. */
bool event_stream_ping(exchange *ex, const char *comment);
/** Answers with the parts that `fill` writes, and waits until all is over; `release` frees the
 * state then. */
void event_stream_send(exchange *ex, const char *content_type, event_fill_fn *fill,
                       void (*release)(void *state), void *state);

#endif
