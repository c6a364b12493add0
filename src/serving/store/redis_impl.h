/* Declarations that the files of redis_store.h share. */
#ifndef SKV_STORE_REDIS_IMPL_H
#define SKV_STORE_REDIS_IMPL_H

#include <netdb.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fail.h"
#include "redis_store.h"

enum {
    REDIS_INSTANCES_MAX = 64,
    REDIS_HOST_BYTES = 256,
    REDIS_PORT_BYTES = 8,
    REDIS_AUTH_BYTES = 512, /* of the file */
    REDIS_LINE_BYTES = 512, /* the longest line of a reply that is read */
    REDIS_WHY_BYTES = 256
};

/* ---- redis_address.c ---- */

typedef struct redis_address {
    char host[REDIS_HOST_BYTES], port[REDIS_PORT_BYTES];
    uint64_t hash;
} redis_address;

/** "redis://HOST:PORT[,HOST:PORT ...]", each with the scheme or none; all have one scheme. */
SKV_MUST_CHECK skv_status redis_parse(const char *text, redis_address *out, size_t *n, bool *tls,
                                      skv_error *err);
/** The greeting of every connection: AUTH, where there is a file, and PING. *n_replies come. */
SKV_MUST_CHECK skv_status redis_read_auth(const char *path, char *out, size_t room, size_t *n,
                                          size_t *n_replies, skv_error *err);
/** Where a name belongs: the highest is taken. */
uint64_t redis_rank(const redis_address *address, const uint8_t *name);

/* ---- redis_stream.c ---- */

typedef struct redis_tls redis_tls; /* the settings that all connections through TLS share */

/** SKV_UNSUPPORTED: this build has no TLS. */
SKV_MUST_CHECK skv_status redis_tls_open(const redis_options *options, redis_tls **out,
                                         skv_error *err);
void redis_tls_close(redis_tls *tls);

typedef struct redis_stream {
    int fd;       /* owned; -1: none */
    void *ssl;    /* owned; NULL: plain */
    short events; /* of poll, after a call that could not go on */
} redis_stream;

/** Begins TLS on a connected socket. */
SKV_MUST_CHECK bool redis_stream_encrypt(redis_stream *stream, redis_tls *tls, const char *host);
/** 1: done. 0: wait for `events`. -1: it failed. */
int redis_stream_shake(redis_stream *stream);
/** Bytes moved, 0: wait for `events`, -1: it failed or ended. */
ssize_t redis_stream_send(redis_stream *stream, const void *data, size_t n);
ssize_t redis_stream_receive(redis_stream *stream, void *data, size_t n);
/** Why TLS failed; "" where it did not. */
void redis_stream_why(const redis_stream *stream, char out[REDIS_WHY_BYTES]);
void redis_stream_close(redis_stream *stream);

/* ---- redis_link.c ---- */

typedef enum redis_state {
    REDIS_DOWN,       /* no socket */
    REDIS_CONNECTING, /* the system is at it */
    REDIS_SHAKING,    /* TLS */
    REDIS_GREETING,   /* AUTH and PING were sent, or are being sent */
    REDIS_UP
} redis_state;

typedef struct redis_link {
    const redis_address *address;
    uint64_t answer_ns;   /* that an answer may take */
    redis_tls *tls;       /* borrowed; NULL: plain */
    const char *greeting; /* borrowed, [n_greeting] */
    size_t n_greeting, n_greeting_replies;

    struct addrinfo *found, *next; /* owned: the addresses of the host's name; the next to try */
    redis_state state;
    redis_stream stream;
    uint64_t limit_ns; /* while it is being set up */
    uint64_t retry_ns; /* when it is tried again */
    uint64_t wait_ns;  /* between tries: grows until something was got or put */
    size_t n_tries, n_sent, n_replies;
    char line[REDIS_LINE_BYTES + 4096]; /* received and not yet read, */
    size_t at, n_line;                  /* from `at` to n_line */
    unsigned char *value;               /* owned, [value_room]: the last that was read; kept, as */
    size_t value_room;                  /* fresh memory costs more than the copy into it */
    char why[REDIS_WHY_BYTES];          /* why it is down */
    uint64_t told_ns; /* since when lines for the operator are counted; 0: none yet */
    size_t n_told;
    bool told_up;  /* the last error of one of them */
    bool no_touch; /* it has refused TOUCH */
} redis_link;

void redis_link_init(redis_link *link, const redis_address *address);
void redis_link_release(redis_link *link);
/** Sets it up, as far as that goes without waiting; true: it has just come up. */
bool redis_link_advance(redis_link *link, uint64_t now_ns);

/** Of a link that is up. SKV_IO: it is no longer. SKV_FULL: it said why not, in `err`. *data is
 * the link's until the next call. */
SKV_MUST_CHECK skv_status redis_link_get(redis_link *link, const char *key, size_t n_max,
                                         const unsigned char **data, size_t *n_bytes,
                                         skv_error *err);
SKV_MUST_CHECK skv_status redis_link_put(redis_link *link, const char *key,
                                         const skv_block_value *value, skv_error *err);

/** Sends a TOUCH; one that is refused is the last. */
void redis_link_touch(redis_link *link, const char *command, size_t n);

/** Monotonic. */
uint64_t redis_now_ns(void);

#endif
