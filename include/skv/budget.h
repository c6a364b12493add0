/**
 * Budgets: limits on the resources that one piece of work on untrusted text may use.
 *
 *   skv_account  memory shared by many pieces of work, with one maximum. An account can be divided
 *                into parts, one for each client. Any thread may use it.
 *   skv_budget   the limits of one piece of work (work, memory, depth, time) and its usage so far.
 *                It belongs to one thread at a time and owns nothing.
 *
 * Code that turns text from a request into something larger (a grammar, a schema, a regular
 * expression, a chat template, JSON) asks its budget before it continues. The budget remembers the
 * first limit that is exceeded and refuses every later request; skv_budget_check returns the error.
 * A recursive walk can therefore ask at any point and report once at the end.
 *
 * Functions that take a budget accept NULL, which selects the default limits.
 */
#ifndef SKV_BUDGET_H
#define SKV_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

/* ---- memory that many share ---- */

typedef struct skv_account skv_account;

/** An account of at most max_bytes. */
SKV_CHECKED skv_status skv_account_create(size_t max_bytes, skv_account **out, skv_error *err);
/**
 * Creates a part of an account, for one of the clients that share it. Memory taken from a part is
 * also taken from the whole.
 *
 * A part may hold three times the memory that is free in the whole. A single client can therefore
 * take at most three quarters of the account. If n clients take as much as they can, each gets 3 /
 * (3 n + 1) and 1 / (3 n + 1) remains for the next client. The whole is borrowed; it must not be a
 * part itself.
 */
SKV_CHECKED skv_status skv_account_create_part(skv_account *whole, skv_account **out,
                                               skv_error *err);
/** Frees it; nothing may be taken any more. NULL is allowed. */
SKV_API void skv_account_free(skv_account *account);
/** Takes n_bytes; false, and nothing is taken, when they do not fit. NULL: always true. */
SKV_CHECKED bool skv_account_take(skv_account *account, size_t n_bytes);
/** As skv_account_take, for work that can wait. Leaves room to finish other work: a quarter of an
 * account stays free, and a part may hold no more than is free in the whole. */
SKV_CHECKED bool skv_account_take_early(skv_account *account, size_t n_bytes);
/** Takes n_bytes even beyond the maximum: for memory that is already in use. NULL: does nothing. */
SKV_API void skv_account_take_anyway(skv_account *account, size_t n_bytes);
/** Returns n_bytes to the account. NULL: does nothing. */
SKV_API void skv_account_give(skv_account *account, size_t n_bytes);
/** Bytes that are taken now, and the most that were taken at one time. NULL: 0. */
SKV_API size_t skv_account_used(const skv_account *account);
SKV_API size_t skv_account_peak(const skv_account *account);
/** The most that it can ever hold, and how much more it can take now. NULL: 0. */
SKV_API size_t skv_account_max(const skv_account *account);
SKV_API size_t skv_account_left(const skv_account *account);

/* ---- one piece of work ---- */

typedef struct skv_limits {
    uint64_t work;   /* units of about 10 ns, the work of following one edge */
    size_t bytes;    /* of memory held at one time */
    size_t depth;    /* levels of nesting */
    uint64_t max_ns; /* wall-clock time; 0: no limit */
} skv_limits;

/** The limits of one request: 50 million units, 64 MiB, 64 levels, one second. */
SKV_API skv_limits skv_limits_default(void);

typedef enum skv_exceeded {
    SKV_EXCEEDED_NONE,
    SKV_EXCEEDED_WORK,
    SKV_EXCEEDED_BYTES,
    SKV_EXCEEDED_DEPTH,
    SKV_EXCEEDED_TIME,
    SKV_EXCEEDED_ACCOUNT, /* the shared account is full */
    SKV_EXCEEDED_STOPPED  /* `stopped` returned true */
} skv_exceeded;

typedef struct skv_budget {
    /* Set by skv_budget_init, then by the caller before the budget is used. */
    skv_limits max;
    skv_account *account;        /* borrowed; NULL: none. Memory counts there too. */
    bool (*stopped)(void *user); /* asked every millisecond or so; NULL: never stopped */
    /* Called if the account has no room (skv_account_take_early): waits until n_bytes of it are
     * taken; false: they are not available. NULL: nothing waits, and all of the account may be
     * taken. */
    bool (*wait)(void *user, size_t n_bytes);
    void *user; /* borrowed */
    /* Usage so far. */
    uint64_t work, look_at, deadline_ns; /* look_at: the work at which to look at the clock next */
    size_t bytes, depth;
    skv_exceeded exceeded; /* the first limit that was exceeded */
} skv_budget;

/** Starts a budget now. limits: NULL for the default. */
SKV_API void skv_budget_init(skv_budget *budget, const skv_limits *limits);
/** Gives all memory that is still counted back to the account. */
SKV_API void skv_budget_release(skv_budget *budget);

/** So much time has passed in which the work only waited: its deadline is that much later. */
SKV_API void skv_budget_waited(skv_budget *budget, uint64_t ns);

/** Counts n units of work; false when a limit is, or was, exceeded. The units that exceed a limit
 * are counted too, since they have been used. */
SKV_CHECKED bool skv_budget_work(skv_budget *budget, uint64_t n);
/** Counts n_bytes of memory that are about to be allocated; false when a limit is, or was,
 * exceeded, and then they are not counted. */
SKV_CHECKED bool skv_budget_take(skv_budget *budget, size_t n_bytes);
/** As skv_budget_take, for optional memory: it never waits, and a refusal is not remembered. */
SKV_CHECKED bool skv_budget_try(skv_budget *budget, size_t n_bytes);
/** Counts n_bytes as freed. */
SKV_API void skv_budget_give(skv_budget *budget, size_t n_bytes);
/** Enters a level of nesting; false when a limit is, or was, exceeded, and then there is nothing
 * to leave. */
SKV_CHECKED bool skv_budget_enter(skv_budget *budget);
SKV_API void skv_budget_leave(skv_budget *budget);
/* The memory that JSON takes; the caller gives it back. */
typedef struct skv_json_bytes {
    size_t values; /* until they are freed */
    size_t reader; /* until it has read the text */
} skv_json_bytes;

/** Counts JSON text[0..n) before a reader sees it: its depth below the current one, its work, and
 * its memory. A false answer counts nothing. The text need not be valid. */
SKV_CHECKED bool skv_budget_json(skv_budget *budget, const char *text, size_t n,
                                 skv_json_bytes *bytes);

/**
 * SKV_OK, or the first limit that was exceeded as "NAME: needs more than 67108864 bytes of memory".
 * SKV_RANGE: a limit of this piece of work. SKV_MEMORY: the shared account is full, so the same
 * work may fit later. SKV_CANCELLED: stopped.
 */
SKV_CHECKED skv_status skv_budget_check(const skv_budget *budget, const char *name, skv_error *err);

SKV_END

#endif
