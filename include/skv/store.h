/**
 * Sharing cached prompts between servers: two interfaces that a program implements for
 * skv_scheduler_options, because the library does no networking.
 *
 *   skv_block_store     holds blocks of KV rows under names
 *   skv_prompt_readers  servers that read long prompts and put their blocks into the store
 *
 * `swiftkv serve` implements them with Redis's protocol and HTTP (src/serving/store).
 */
#ifndef SKV_STORE_H
#define SKV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

enum { SKV_CACHE_NAME_BYTES = 16, SKV_CACHE_KEY_BYTES_MIN = 16 };

/* The bytes of a block: head, followed by body. */
typedef struct skv_block_value {
    const void *head, *body;
    size_t n_head, n_body;
} skv_block_value;

typedef struct skv_block_store_state {
    size_t n_up;      /* instances that answer */
    bool lost;        /* an instance may have lost its blocks since the last call */
    unsigned wait_ms; /* call `tend` again after this time */
} skv_block_store_state;

/*
 * A store of blocks that several schedulers share. It is a cache: it may lose, delay or falsify its
 * contents, and the scheduler checks every block. Each scheduler opens the store once and calls the
 * other functions from one thread. Each call takes a bounded time.
 */
typedef struct skv_block_store {
    void *user;
    double seconds; /* the longest time of one call; a waiting prompt waits up to twice as long */
    /* Returns SKV_OK even if no instance answers yet. */
    skv_status (*open)(void *user, void **link, skv_error *err);
    void (*close)(void *link);
    /* Looks up a name [SKV_CACHE_NAME_BYTES]. *data has at most n_max bytes, belongs to the store
     * and is valid until the next call. A missing block is SKV_OK with *data = NULL. */
    skv_status (*get)(void *link, const uint8_t *name, size_t n_max, const unsigned char **data,
                      size_t *n_bytes, skv_error *err);
    /* SKV_FULL: the store answered but refused the block. SKV_CANCELLED: it did not answer. */
    skv_status (*put)(void *link, const uint8_t *name, const skv_block_value *value,
                      skv_error *err);
    void (*tend)(void *link, skv_block_store_state *state); /* keeps the link alive; never waits */
    /* These blocks, names [n][SKV_CACHE_NAME_BYTES], count as used: clients want them kept. NULL:
     * the store has no such order. */
    void (*touch)(void *link, const uint8_t *names, size_t n);
} skv_block_store;

/* How the reading of a prompt by another server stands, or why it ended. */
typedef enum skv_reading {
    SKV_READING_ON,
    SKV_READING_DONE,     /* all blocks are in the store */
    SKV_READING_AWAY,     /* no reader answers */
    SKV_READING_FULL,     /* the reader is busy */
    SKV_READING_REFUSED,  /* the reader rejects this prompt or this API key */
    SKV_READING_MISMATCH, /* the reader has another model or cache key: its block names differ */
    SKV_READING_LOST,     /* the connection ended early */
    SKV_READING_SLOW,     /* no new block for too long */
    SKV_READING_GARBAGE,  /* the reply is malformed */
    SKV_READING_MISSED,   /* the store did not return a block that the reader had reported */
    SKV_READING_COUNT
} skv_reading;

typedef struct skv_reading_request {
    const int32_t *ids; /* [n_ids], n_blocks whole blocks */
    size_t n_ids;
    const uint8_t *names;     /* [n_blocks][SKV_CACHE_NAME_BYTES] */
    size_t n_blocks, n_known; /* the first n_known need not be reported */
    const char *key;          /* API key of the client, or NULL */
} skv_reading_request;

/*
 * Servers that read long prompts, so that answers in progress are not delayed. Their reports are
 * hints: the scheduler checks each block that the store returns, and computes the missing ones. No
 * function waits, and one thread calls them.
 */
typedef struct skv_prompt_readers {
    void *user;
    size_t above;   /* prompts with more uncached tokens than this are sent to a reader */
    double seconds; /* after this time without a new block the scheduler reads the prompt itself */
    /* `wake` may be called from any thread; it asks the scheduler to call `look`. */
    skv_status (*open)(void *user, void (*wake)(void *wake_user), void *wake_user, void **link,
                       skv_error *err);
    void (*close)(void *link);
    /* Copies the request and returns a handle; NULL with the reason in *why. */
    void *(*ask)(void *link, const skv_reading_request *request, skv_reading *why);
    /* Sets *n_blocks to the number of leading blocks that are in the store. */
    skv_reading (*look)(void *reading, size_t *n_blocks);
    void (*end)(void *reading); /* releases the handle, finished or not */
    bool (*is_up)(void *link);  /* true if a reader answers; callable from any thread */
} skv_prompt_readers;

SKV_END

#endif
