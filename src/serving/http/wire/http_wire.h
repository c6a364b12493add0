/*
 * The bytes of a connection: those that were read and not used yet, bodies with a length or in
 * chunks, and writing. Reading and writing wait; peers.c cuts off a client that is too late by
 * shutting the socket down.
 */
#ifndef SKV_SERVER_HTTP_WIRE_H
#define SKV_SERVER_HTTP_WIRE_H

#include <sys/uio.h>

#include "wire/http_head.h"

typedef struct http_wire {
    int fd;
    size_t begin, end; /* of the unused bytes, in data */
    char data[LIMIT_CONNECTION_BYTES];
} http_wire;

/** Waits for more bytes; false: there are none to come, or there is no room for them. */
bool http_wire_fill(http_wire *wire);
/* How fast a client takes the bytes written to it. Only the time that a write waits for the
 * client counts, and only the bytes taken since the first of these waits: a stream whose events
 * come slowly waits for none. */
typedef struct http_pace {
    double grace_seconds;      /* of waiting, before the rate counts */
    uint64_t waited_ns;        /* of late: half of it is forgotten with each two graces */
    size_t n_taken;            /* in the same time */
    bool writes_tell;          /* the system does not: all bytes written after a wait were taken */
    bool is_slow;              /* it was too slow: nothing more is written */
    void (*wrote)(void *user); /* called after each piece that was taken */
    void *user;                /* borrowed */
} http_pace;

/** The bytes of a second that have to be taken of n_all bytes that are written at once. */
double http_pace_rate(size_t n_all);
/** Writes all parts; false: the client is gone, or too slow. */
bool http_wire_write(int fd, struct iovec *parts, size_t n_parts, http_pace *pace);
/** After the last response: reads the client's remaining bytes, for a while, and throws them
 * away. A socket that is closed before loses the response with it. */
void http_wire_linger(http_wire *wire);

/* A body on its way in. */
typedef struct http_body {
    http_wire *wire; /* borrowed */
    bool chunked;
    bool ended;
    bool begun;        /* a chunk was read: its CR LF is due before the next */
    uint64_t n_left;   /* of the body, or of its chunk */
    size_t n_trailers; /* bytes after the last chunk */
} http_body;

typedef enum http_piece {
    HTTP_PIECE,      /* some bytes */
    HTTP_PIECE_END,  /* the body has ended */
    HTTP_PIECE_GONE, /* the client has left */
    HTTP_PIECE_BAD   /* `error` tells why */
} http_piece;

/** The next bytes of the body, which are valid until the next call. */
http_piece http_body_next(http_body *body, const char **data, size_t *n, api_error *error);

#endif
