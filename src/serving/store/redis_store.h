/*
 * Valkey or Redis as the store that several servers share (skv_block_store of skv/serve.h).
 *
 *     redis_store.c     the instances, which of them has a block, and when one is left alone
 *     redis_address.c   the list of instances, and the values read from files
 *     redis_link.c      one connection: it is set up without waiting, and used with a deadline
 *     redis_stream.c    its bytes, plain or through TLS
 *
 * Four commands are spoken (AUTH, PING, GET, SET; RESP2) and four kinds of replies read. That is
 * less than the use of a client library would take. It bounds the memory that a reply can make us
 * allocate, and a block is never copied into a command or out of a reply.
 *
 * A block is at the instance whose address and the block's name hash highest among those that
 * answer (rendezvous hashing): all servers agree without talking to each other, and an instance
 * that comes or goes moves its own blocks only. An instance that does not answer in time is not
 * asked again until it has answered a PING, which is tried beside the work, ten to two times a
 * second.
 */
#ifndef SKV_STORE_REDIS_STORE_H
#define SKV_STORE_REDIS_STORE_H

#include <stdbool.h>

#include "skv/serve.h"

typedef struct redis_options {
    double seconds;        /* that an answer may take, and a connection */
    const char *addresses; /* "redis://HOST:PORT,..." or "rediss://..."; as all that follow, */
    const char *auth_file; /* NULL: none. "USER PASSWORD" or "PASSWORD" */
    const char *ca_file;   /* of rediss; NULL: the system's */
    const char *cert_file, *key_file; /* of rediss; NULL: no client certificate */
} redis_options;

typedef struct redis_store redis_store;

/** Reads addresses and files; opens no connection. */
skv_status redis_store_open(const redis_options *options, redis_store **out, skv_error *err);
/** After every scheduler that uses it was freed; NULL is allowed. */
void redis_store_close(redis_store *store);
/** Valid until redis_store_close. */
skv_block_store redis_store_table(redis_store *store);

#endif
