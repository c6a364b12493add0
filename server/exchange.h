/* One request and its response. */
#ifndef SKV_SERVER_EXCHANGE_H
#define SKV_SERVER_EXCHANGE_H

#include "api_error.h"
#include "out_text.h"
#include "server_impl.h"
#include "trace_context.h"

typedef struct exchange {
    http_server *server;
    struct MHD_Connection *connection;
    http_peer *peer;
    int fd;
    const struct server_route *route; /* NULL: there is none */
    char *body;                       /* owned, with a terminating zero */
    size_t n_body, body_room, body_counted;
    bool replied;
    bool rated;          /* it counts for the rates of its key */
    uint64_t tenant;     /* the number of its key; 0: none needed */
    const char *key;     /* borrowed from the connection; NULL: none needed */
    char id[24];         /* of the request, 16 hexadecimal digits */
    trace_context trace; /* what its headers say */
    char method[17], path[257];
    uint64_t begun_ns;
    int status;                 /* of the response; 0: none was queued */
    struct generation *running; /* borrowed: its answers on their way; NULL: none */
    skv_job_stats used;         /* by its answers, once they are settled */
    enum MHD_Result result;     /* of handing over the response */
    api_error refusal;          /* status 0: none so far */
} exchange;

typedef struct server_route {
    const char *method, *path;
    void (*handle)(exchange *ex);
    bool open;            /* without a key */
    bool needs_model;     /* 503 until it is loaded, and once we drain */
    bool messages_errors; /* errors have the shape of Anthropic's */
} server_route;

/** The route of a path; `other_method`: the path exists for another one. */
const server_route *route_find(const char *method, const char *path, bool *other_method);

/** The methods that a path has, "GET, HEAD"; `out` has room for `room` bytes. */
void route_methods(const char *path, char *out, size_t room);

/** Takes the text over. */
void exchange_reply(exchange *ex, int status, const char *content_type, out_text *text);
void exchange_reply_json(exchange *ex, int status, out_text *text);
void exchange_refuse(exchange *ex, const api_error *error);
/** Queues a response that another file has made, with the headers that all have. */
void exchange_send(exchange *ex, int status, struct MHD_Response *response,
                   const char *content_type);

#endif
