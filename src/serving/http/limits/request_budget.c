/* Memory and work of a request: see request_budget.h. */
#include "limits/request_budget.h"

#include <stdio.h>

enum { LOOK_BYTES = 1 << 16 /* that a text grows by */ };

/* ---- memory of a request ---- */

typedef struct request_memory {
    exchange *ex;
    size_t n_bytes;
    bool leaves_room;
} request_memory;

static bool try_take(void *user, bool first)
{
    const request_memory *m = user;
    skv_account *account = m->ex->share->account;
    return first || !m->leaves_room ? skv_account_take(account, m->n_bytes)
                                    : skv_account_take_early(account, m->n_bytes);
}

static bool is_alone(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    const bool alone = server->n_in_flight == 1;
    pthread_mutex_unlock(&server->lock);
    return alone;
}

/* A small request gets on beside large ones, and so does one that ends and makes room for others.
 */
static bool take(exchange *ex, size_t n_bytes, bool ends)
{
    const size_t most = skv_account_max(ex->share->account), held = memory_held(ex);
    ex->never_fits = held > most || n_bytes > most - held;
    if (ex->never_fits) return false;
    request_memory wanted = {ex, n_bytes, !ends && held + n_bytes > LIMIT_SMALL_BYTES};
    const memory_turn turn = {.n_wanted = n_bytes, .leaves_room = wanted.leaves_room};
    if (try_take(&wanted, false) || memory_wait(ex, turn, try_take, &wanted)) return true;
    /* The memory that the request holds elsewhere, in its jobs, is missing here. */
    ex->never_fits = is_alone(ex->server);
    return false;
}

/* Why there was no memory: 413 where the request would never get it, else 503. Returns false. */
static bool memory_lacks(const exchange *ex, api_error *error)
{
    if (ex->never_fits) {
        return api_fail(error, 413, NULL, "the request needs more than %s%zu MiB of --memory",
                        ex->share->key != 0 ? "a key's part, " : "the ",
                        skv_account_max(ex->share->account) >> 20);
    }
    (void)api_fail(error, 503, NULL, "the memory is in use by other requests");
    error->retry_after_s = LIMIT_MEMORY_RETRY_SECONDS;
    return false;
}

static bool wait_for_budget(void *ex, size_t n_bytes)
{
    return take(ex, n_bytes, false);
}

static bool cancel(const exchange *ex, api_error *error)
{
    return exchange_fail(ex, SKV_CANCELLED, &(const skv_error){.text = "cancelled"}, NULL, error);
}

/* The bytes that exchange_give gives back; false: `error`. */
static bool hold(exchange *ex, size_t n_bytes, bool ends, api_error *error)
{
    if (!take(ex, n_bytes, ends)) {
        return exchange_stopped(ex) ? cancel(ex, error) : memory_lacks(ex, error);
    }
    ex->n_held += n_bytes;
    return true;
}

bool exchange_take(exchange *ex, size_t n_bytes, api_error *error)
{
    return hold(ex, n_bytes, false, error);
}

void exchange_give(exchange *ex, size_t n_bytes)
{
    ex->n_held -= n_bytes;
    skv_account_give(ex->share->account, n_bytes);
}

static bool take_for_text(void *arg, size_t n_bytes)
{
    exchange *ex = arg;
    if (n_bytes >= LOOK_BYTES && exchange_stopped(ex)) return cancel(ex, &ex->refusal);
    return hold(ex, n_bytes, true, &ex->refusal);
}

static void give_of_text(void *arg, size_t n_bytes)
{
    exchange_give(arg, n_bytes);
}

skv_buf exchange_text(exchange *ex)
{
    return (skv_buf){.max = SIZE_MAX, .memory = {take_for_text, give_of_text, ex}};
}

/* ---- the bounds of reading it ---- */

bool exchange_fail(const exchange *ex, skv_status status, const skv_error *err, const char *param,
                   api_error *error)
{
    if (status == SKV_MEMORY && ex->never_fits) return memory_lacks(ex, error);
    (void)api_fail_status(error, status, err);
    if (param) (void)snprintf(error->param, sizeof error->param, "%s", param);
    if (status != SKV_CANCELLED) return false;
    if (server_get_state(ex->server) != SERVER_STOPPING) {
        return api_fail(error, LIMIT_STATUS_CLIENT_LEFT, NULL, "the client left");
    }
    (void)api_fail(error, 503, NULL, "the server is shutting down");
    error->retry_after_s = LIMIT_ELSEWHERE_RETRY_SECONDS;
    return false;
}

bool request_check(const exchange *ex, const char *name, const char *param, api_error *error)
{
    skv_error err;
    const skv_status status = skv_budget_check(ex->budget, name, &err);
    return status == SKV_OK || exchange_fail(ex, status, &err, param, error);
}

bool request_work(const exchange *ex, uint64_t n, const char *name, api_error *error)
{
    return skv_budget_work(ex->budget, n) || request_check(ex, name, name, error);
}

bool request_hold(const exchange *ex, size_t n_bytes, const char *name, api_error *error)
{
    return skv_budget_take(ex->budget, n_bytes) || request_check(ex, name, name, error);
}

bool request_goes_on(const exchange *ex, api_error *error)
{
    skv_budget *budget = ex->budget;
    if (!budget->stopped || !budget->stopped(budget->user)) return true;
    budget->exceeded = SKV_EXCEEDED_STOPPED;
    return request_check(ex, "request", NULL, error);
}

bool request_lacks(const exchange *ex, const char *name, api_error *error)
{
    return request_check(ex, name, name, error) && api_fail(error, 503, NULL, "no memory");
}

skv_buf request_text(const exchange *ex)
{
    return (skv_buf){.max = LIMIT_TEXT_BYTES, .budget = ex->budget};
}

void exchange_begin_budget(exchange *ex)
{
    const server_options *o = &ex->server->options;
    const size_t most = skv_account_max(ex->share->account);
    const skv_limits limits = {.work = o->request_work,
                               .bytes = o->request_bytes < most ? o->request_bytes : most,
                               .depth = LIMIT_REQUEST_DEPTH,
                               .max_ns = (uint64_t)(o->request_seconds * 1e9)};
    skv_budget_init(&ex->reading, &limits);
    ex->reading.account = ex->share->account;
    ex->reading.stopped = exchange_stopped;
    ex->reading.wait = wait_for_budget;
    ex->reading.user = ex;
    ex->budget = &ex->reading;
    ex->changes = &ex->changed;
}
