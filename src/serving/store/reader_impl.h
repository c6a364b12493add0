/* Declarations that the files of reader_client.h share. */
#ifndef SKV_STORE_READER_IMPL_H
#define SKV_STORE_READER_IMPL_H

#include <netdb.h>
#include <stdint.h>

#include "base/fail.h"
#include "reader_client.h"

enum {
    READER_HOST_BYTES = 256,
    READER_PORT_BYTES = 8,
    READER_KEY_BYTES = 4096,   /* the longest key that is passed on */
    READER_FIELD_BYTES = 4096, /* of a header field */
    READER_LINE_BYTES = 512    /* of a line of the response's body */
};

typedef struct reader_address {
    char host[READER_HOST_BYTES], port[READER_PORT_BYTES];
} reader_address;

typedef enum reader_phase {
    READER_NEW,        /* nothing was done yet */
    READER_CONNECTING, /* the system is at it */
    READER_SENDING,
    READER_STATUS, /* its first line, */
    READER_FIELDS, /* header fields, */
    READER_SIZE,   /* the size of a chunk, */
    READER_CHUNK,  /* its bytes, */
    READER_BREAK,  /* and the end of the line after them; */
    READER_BODY,   /* or bytes up to the end of the connection */
    READER_ENDED
} reader_phase;

/* One request and its response. The client's thread alone uses it, but for the fields that its
 * lock guards. */
typedef struct reader_exchange {
    struct reader_exchange *next;
    bool probes; /* GET /health, which no caller waits for */

    /* The request. */
    int32_t *ids; /* owned, [n_ids]; freed when the text is made of it */
    size_t n_ids;
    uint8_t *names; /* owned, [n_blocks][SKV_CACHE_NAME_BYTES]: the names of its blocks */
    size_t n_blocks;
    char *key;  /* owned; NULL: none */
    char *text; /* owned, [n_text]: as it is sent */
    size_t n_text, n_sent;

    /* The response. */
    int fd; /* owned; -1: none */
    reader_phase phase;
    uint64_t limit_ns; /* until something has to happen */
    char field[READER_FIELD_BYTES], line[READER_LINE_BYTES];
    size_t n_field, n_line;
    bool chunked;
    int status;
    size_t n_chunk; /* bytes that are left of it */
    size_t n_body, n_told;

    /* Guarded by the client's lock. */
    skv_reading state;
    size_t n_stored;
    bool abandoned; /* it is no longer used */
} reader_exchange;

/** Monotonic. */
uint64_t reader_now_ns(void);

/** Makes the text that is sent; false: no memory. */
bool reader_exchange_write(reader_exchange *ex, const reader_address *address);
/** Connects without waiting; false: that failed at once. */
bool reader_exchange_connect(reader_exchange *ex, const struct addrinfo *to);
/** The events that poll is to wait for. */
short reader_exchange_events(const reader_exchange *ex);
/** Goes on as far as that is possible without waiting; true: it has ended, or told something.
 * *state: how it stands. */
bool reader_exchange_advance(reader_exchange *ex, skv_reading *state);
/** Closes its socket and frees its memory, but not itself. */
void reader_exchange_release(reader_exchange *ex);

#endif
