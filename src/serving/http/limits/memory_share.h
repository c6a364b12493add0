/*
 * Shares of memory that requests take, and how they wait for it.
 *
 * If there are several API keys each has a part of --memory (skv_account_create_part), so that one
 * key's requests leave room for another's; all others share the whole. Requests of a share hold
 * memory while they wait for more, so some room is left to one of them, the first that had to wait:
 * it goes on regardless of the others' memory, until it has all it needs or ends. Then it is the
 * next one's turn. If even that is not enough, and all requests that hold memory wait for more, the
 * youngest gives up.
 */
#ifndef SKV_SERVER_MEMORY_SHARE_H
#define SKV_SERVER_MEMORY_SHARE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits/compile_slots.h"
#include "skv/budget.h"

struct api_error;
struct exchange;
struct http_server;

/* A request that waits. */
typedef struct memory_turn {
    struct memory_turn *next;
    const struct exchange *ex;
    size_t n_wanted;    /* bytes that it waits for; 0: not known */
    bool leaves_room;   /* for the first one, unless it is that itself */
    size_t n_held;      /* bytes that it holds meanwhile */
    size_t used_before; /* of the account, when it tried in vain for the last time */
} memory_turn;

typedef struct memory_share {
    struct memory_share *next;
    uint64_t key;         /* the number of the API key; 0: of those without a part */
    skv_account *account; /* owned, but for that of key 0 */
    size_t n_users;       /* requests */
    const void *first;    /* the request that need not leave room; NULL: none */
    memory_turn *turns;   /* borrowed, those that wait, the one that has waited longest first */
    memory_turn **last;   /* where the next one is put */
    compile_share compiling;
} memory_share;

/* Requests of all shares. */
typedef struct memory_counts {
    size_t n_waiting;    /* now */
    uint64_t n_given_up; /* because they and others waited for each other */
} memory_counts;

typedef struct memory_table {
    pthread_mutex_t lock; /* guards the fields below */
    memory_counts counts;
    uint32_t n_compiling; /* grammars, of all shares */
    uint64_t n_turns;     /* that were had in compiling */
    pthread_cond_t slot_freed;
    memory_share common;
    memory_share *shares; /* owned */
} memory_table;

/** server->account and the memory taken from it; false: no memory. */
bool memory_start(struct http_server *server);
/** After the last job. */
void memory_stop(struct http_server *server);

/** The request takes memory from its key's share from here on; false: `error`. */
bool memory_join(struct exchange *ex, struct api_error *error);
void memory_leave(struct exchange *ex);
/** The request has all it needs: another of its share may be the first. */
void memory_pass(struct exchange *ex);

/* Whether the memory is there by now. first: the request need not leave room for others. */
typedef bool memory_try_fn(void *user, bool first);

/** Waits until it is; false: the client has left, it took too long, or it would wait for
 * requests that wait for it. `turn` has n_wanted and leaves_room, if they are known. Only the
 * connection's own thread may call it. This time does not count for the reading of the request. */
bool memory_wait(struct exchange *ex, memory_turn turn, memory_try_fn *tries, void *user);
/** Bytes that the request holds. */
size_t memory_held(const struct exchange *ex);
memory_counts memory_count(struct http_server *server);

#endif
