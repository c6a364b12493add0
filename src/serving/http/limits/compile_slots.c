/* Turns of requests that compile grammars: see compile_slots.h. */
#include "limits/compile_slots.h"

#include "base/system.h"
#include "transport/exchange.h"

enum {
    LOOK_MS = 100, /* how often a request that waits looks for its client */
    SLICE_MS = 50  /* that a grammar is compiled while others wait */
};

static const uint64_t NS_A_MS = 1000000;

/* ---- with the lock held ---- */

/* Which of two that wait is the next. */
static memory_share *sooner(memory_share *a, memory_share *b)
{
    if (!b->compiling.turns) return a;
    if (!a) return b;
    if (a->compiling.n_compiling != b->compiling.n_compiling) {
        return a->compiling.n_compiling < b->compiling.n_compiling ? a : b;
    }
    return a->compiling.last_turn <= b->compiling.last_turn ? a : b;
}

/* The share that is next; NULL: none waits. */
static memory_share *next_share(memory_table *table)
{
    memory_share *next = sooner(NULL, &table->common);
    for (memory_share *share = table->shares; share; share = share->next) {
        next = sooner(next, share);
    }
    return next;
}

static void count(exchange *ex, int n)
{
    ex->share->compiling.n_compiling += (uint32_t)n;
    ex->server->memory.n_compiling += (uint32_t)n;
}

/* ---- turns ---- */

static void put_turn(exchange *ex, compile_turn *turn)
{
    memory_table *table = &ex->server->memory;
    pthread_mutex_lock(&table->lock);
    compile_turn **at = &ex->share->compiling.turns;
    while (*at) at = &(*at)->next;
    *at = turn;
    pthread_mutex_unlock(&table->lock);
}

static void drop_turn(exchange *ex, const compile_turn *turn)
{
    memory_table *table = &ex->server->memory;
    pthread_mutex_lock(&table->lock);
    compile_turn **at = &ex->share->compiling.turns;
    while (*at && *at != turn) at = &(*at)->next;
    if (*at) {
        *at = turn->next;
        (void)pthread_cond_broadcast(&table->slot_freed); /* another may be the first now */
    }
    pthread_mutex_unlock(&table->lock);
}

/* With the lock held. */
static bool try_enter(exchange *ex, const compile_turn *turn)
{
    memory_table *table = &ex->server->memory;
    compile_share *own = &ex->share->compiling;
    const bool mine = table->n_compiling < LIMIT_GRAMMARS_AT_ONCE &&
                      next_share(table) == ex->share && own->turns == turn;
    if (!mine) return false;
    own->turns = turn->next;
    own->last_turn = ++table->n_turns;
    count(ex, 1);
    (void)pthread_cond_broadcast(&table->slot_freed); /* there may be another */
    return true;
}

/* Tries until a slot is free, or it is time to look whether the client is there. */
static bool try_for_a_while(exchange *ex, const compile_turn *turn)
{
    memory_table *table = &ex->server->memory;
    const struct timespec end = server_time_in(LOOK_MS / 1000.0);
    int code = 0;
    pthread_mutex_lock(&table->lock);
    bool entered = try_enter(ex, turn);
    while (!entered && code == 0) {
        code = skv_cond_wait_until(&table->slot_freed, &table->lock, &end);
        entered = try_enter(ex, turn);
    }
    pthread_mutex_unlock(&table->lock);
    return entered;
}

/* False: the client has left, or it took longer than max_ns. */
static bool wait_for_slot(exchange *ex, uint64_t max_ns)
{
    const uint64_t begun_ns = skv_now_ns();
    compile_turn turn = {0};
    put_turn(ex, &turn);
    bool entered = false;
    while (!(entered = try_for_a_while(ex, &turn))) {
        if (skv_now_ns() - begun_ns > max_ns || exchange_stopped(ex)) break;
    }
    drop_turn(ex, &turn);
    skv_budget_waited(&ex->reading, skv_now_ns() - begun_ns);
    ex->compiles = entered;
    ex->slot_ns = skv_now_ns();
    return entered;
}

static void give_slot(exchange *ex)
{
    memory_table *table = &ex->server->memory;
    pthread_mutex_lock(&table->lock);
    count(ex, -1);
    (void)pthread_cond_broadcast(&table->slot_freed);
    pthread_mutex_unlock(&table->lock);
    ex->compiles = false;
}

/* Whether a request of another share waits that compiles no more than this one's. */
static bool others_wait(exchange *ex)
{
    memory_table *table = &ex->server->memory;
    pthread_mutex_lock(&table->lock);
    const memory_share *next = next_share(table);
    const bool waits = next && next != ex->share &&
                       next->compiling.n_compiling <= ex->share->compiling.n_compiling;
    pthread_mutex_unlock(&table->lock);
    return waits;
}

/* skv_budget.stopped while a grammar is compiled. */
static bool stops(void *arg)
{
    exchange *ex = arg;
    const bool long_at_work = skv_now_ns() - ex->slot_ns > SLICE_MS * NS_A_MS;
    if (exchange_stopped(ex)) return true;
    if (!ex->compiles || !long_at_work || !others_wait(ex)) return false;
    give_slot(ex);
    return !wait_for_slot(ex, UINT64_MAX);
}

/* ---- functions for other files ---- */

bool compile_enter(exchange *ex, api_error *error)
{
    if (!wait_for_slot(ex, LIMIT_GRAMMAR_WAIT_SECONDS * 1000 * NS_A_MS)) {
        (void)api_fail(error, 503, NULL, "other requests are compiling their grammars");
        error->retry_after_s = LIMIT_MEMORY_RETRY_SECONDS;
        return false;
    }
    ex->reading.stopped = stops;
    return true;
}

void compile_leave(exchange *ex)
{
    ex->reading.stopped = exchange_stopped;
    if (ex->compiles) give_slot(ex);
}

void compile_pause(exchange *ex)
{
    if (!ex->compiles) return;
    give_slot(ex);
    ex->compiles = true;
}

/* At once: it was let in before. */
void compile_go_on(exchange *ex)
{
    if (!ex->compiles) return;
    pthread_mutex_lock(&ex->server->memory.lock);
    count(ex, 1);
    pthread_mutex_unlock(&ex->server->memory.lock);
}
