/* A request's budget while it is read and answered: memory of its key's share (memory_share.h),
 * and work. */
#ifndef SKV_SERVER_REQUEST_BUDGET_H
#define SKV_SERVER_REQUEST_BUDGET_H

#include "transport/exchange.h"

/** Begins the budget of a request whose body is there. */
void exchange_begin_budget(exchange *ex);
/** Takes memory from the request's share, and waits for it while others hold too much: only the
 * connection's own thread may call it. False: `error`, 413 where the request would never get it,
 * else 503. */
bool exchange_take(exchange *ex, size_t n_bytes, api_error *error);
void exchange_give(exchange *ex, size_t n_bytes);
/** A text whose memory exchange_take counts; `refusal` names the resource that ran out. A long
 * one ends when the client leaves. */
skv_buf exchange_text(exchange *ex);

/* ---- the bounds of reading it ---- */

/** Fills an error from the library's error about a request's text, and returns false. param: the
 * field, or NULL. Work that was stopped says whether the client has left or the server ends. */
bool exchange_fail(const exchange *ex, skv_status status, const skv_error *err, const char *param,
                   api_error *error);

/** Whether the budget holds; false with the limit that was exceeded ("NAME: needs more than ..." is
 * 400, a full account 503). param: the field, or NULL. */
bool request_check(const exchange *ex, const char *name, const char *param, api_error *error);
/** Counts n units of work, or n_bytes of memory until the request ends, for the purpose that
 * `name` tells; false with an error beyond the budget, or if the client has left. */
bool request_work(const exchange *ex, uint64_t n, const char *name, api_error *error);
bool request_hold(const exchange *ex, size_t n_bytes, const char *name, api_error *error);
/** Whether anybody still waits for the answer; false with an error. */
bool request_goes_on(const exchange *ex, api_error *error);
/** Why memory was missing for the purpose that `name` tells: the budget, or the machine. Returns
 * false. */
bool request_lacks(const exchange *ex, const char *name, api_error *error);
/** A text on its way: its memory counts in the budget until it is released. */
skv_buf request_text(const exchange *ex);

#endif
