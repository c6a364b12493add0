/* Shares of memory, and waiting for it: see memory_share.h. */
#include "limits/memory_share.h"

#include <stdlib.h>
#include <time.h>

#include "transport/exchange.h"

enum { LOOK_MS = 10 };

/* ---- shares ---- */

static void share_init(memory_share *share, uint64_t key, skv_account *account)
{
    *share = (memory_share){.key = key, .account = account};
    share->last = &share->turns;
}

bool memory_start(http_server *server)
{
    const skv_status status =
        skv_account_create(server->options.memory_bytes, &server->account, NULL);
    share_init(&server->memory.common, 0, server->account);
    return status == SKV_OK;
}

void memory_stop(http_server *server)
{
    while (server->memory.shares) {
        memory_share *share = server->memory.shares;
        server->memory.shares = share->next;
        skv_account_free(share->account);
        free(share);
    }
    skv_account_free(server->account);
}

static memory_share *new_share(http_server *server)
{
    skv_account *account = NULL;
    memory_share *share = malloc(sizeof *share);
    if (!share || skv_account_create_part(server->account, &account, NULL) != SKV_OK) {
        free(share);
        return NULL;
    }
    share_init(share, 0, account);
    share->next = server->memory.shares;
    server->memory.shares = share;
    return share;
}

/* The share of a key: its own, or one that no request and no job uses any more. With the lock held;
 * NULL: no memory. */
static memory_share *share_of(http_server *server, uint64_t key)
{
    memory_share *found = NULL;
    for (memory_share *share = server->memory.shares; share; share = share->next) {
        if (share->key == key) return share;
        if (share->n_users == 0 && skv_account_used(share->account) == 0) found = share;
    }
    if (!found) found = new_share(server);
    if (found) found->key = key;
    return found;
}

bool memory_join(exchange *ex, api_error *error)
{
    http_server *server = ex->server;
    if (ex->tenant == 0 || !api_keys_are_several(server->keys)) return true;
    pthread_mutex_lock(&server->memory.lock);
    memory_share *share = share_of(server, ex->tenant);
    if (share) share->n_users++;
    pthread_mutex_unlock(&server->memory.lock);
    if (!share) return api_fail(error, 503, NULL, "no memory");
    ex->share = share;
    return true;
}

void memory_leave(exchange *ex)
{
    http_server *server = ex->server;
    memory_pass(ex);
    pthread_mutex_lock(&server->memory.lock);
    if (ex->share->key != 0) ex->share->n_users--;
    pthread_mutex_unlock(&server->memory.lock);
    ex->share = &server->memory.common;
}

void memory_pass(exchange *ex)
{
    pthread_mutex_lock(&ex->server->memory.lock);
    if (ex->share->first == ex) ex->share->first = NULL;
    pthread_mutex_unlock(&ex->server->memory.lock);
}

/* ---- turns ---- */

static void take_turn(exchange *ex, memory_turn *turn)
{
    memory_share *share = ex->share;
    pthread_mutex_lock(&ex->server->memory.lock);
    *share->last = turn;
    share->last = &turn->next;
    ex->server->memory.counts.n_waiting++;
    pthread_mutex_unlock(&ex->server->memory.lock);
}

static void end_turn(exchange *ex, const memory_turn *turn)
{
    memory_share *share = ex->share;
    pthread_mutex_lock(&ex->server->memory.lock);
    memory_turn **at = &share->turns;
    while (*at != turn) at = &(*at)->next;
    *at = turn->next;
    if (!*at) share->last = at;
    ex->server->memory.counts.n_waiting--;
    pthread_mutex_unlock(&ex->server->memory.lock);
}

memory_counts memory_count(http_server *server)
{
    pthread_mutex_lock(&server->memory.lock);
    const memory_counts counts = server->memory.counts;
    pthread_mutex_unlock(&server->memory.lock);
    return counts;
}

static bool is_first(exchange *ex, const memory_turn *turn)
{
    memory_share *share = ex->share;
    pthread_mutex_lock(&ex->server->memory.lock);
    if (!share->first && share->turns == turn) share->first = ex;
    const bool first = share->first == ex;
    pthread_mutex_unlock(&ex->server->memory.lock);
    return first;
}

/* ---- requests that wait for each other ---- */

typedef struct waiting_sum {
    size_t used;             /* of the account */
    size_t n_held;           /* of it, by requests that wait */
    const memory_turn *last; /* of the youngest request that holds some; NULL: none does */
} waiting_sum;

static void add_turns(const memory_share *share, waiting_sum *sum)
{
    for (const memory_turn *turn = share->turns; turn; turn = turn->next) {
        sum->n_held += turn->n_held;
        if (turn->n_held == 0) continue;
        if (!sum->last || turn->ex->begun_ns >= sum->last->ex->begun_ns) sum->last = turn;
    }
}

/* Bytes that the next request of a share may have, and that one which leaves room for it may have
 * (skv_account_take_early). */
static size_t room_for(const memory_share *share, const skv_account *whole, bool leaves_room)
{
    const size_t left = skv_account_left(share->account), max = skv_account_max(whole);
    const size_t all = skv_account_left(whole), own = skv_account_used(share->account);
    if (!leaves_room) return left;
    if (share->key == 0) return left > max / 4 ? left - max / 4 : 0;
    return all > own ? (all - own) / 2 : 0;
}

/* Whether a request of the share may go on although no other one gives up: it has not tried yet
 * with the memory as it is, or requests that do not wait hold enough for it. */
static bool has_hope(const memory_share *share, const skv_account *whole, const waiting_sum *sum)
{
    const size_t others = sum->used > sum->n_held ? sum->used - sum->n_held : 0;
    for (const memory_turn *turn = share->turns; turn; turn = turn->next) {
        if (turn->used_before != sum->used) return true;
        const bool next = share->first ? share->first == turn->ex : share->turns == turn;
        const size_t room = room_for(share, whole, turn->leaves_room && !next);
        const bool fits = turn->n_wanted <= room || turn->n_wanted - room <= others;
        if (others > 0 && fits) return true;
    }
    return false;
}

/* Whether all that wait do so for each other, and this is the youngest. used_before: of the
 * account, before it tried in vain. */
static bool has_to_give_up(exchange *ex, memory_turn *turn, size_t used_before)
{
    memory_table *table = &ex->server->memory;
    const skv_account *whole = ex->server->account;
    pthread_mutex_lock(&table->lock);
    turn->used_before = used_before;
    waiting_sum sum = {.used = skv_account_used(whole)};
    add_turns(&table->common, &sum);
    for (const memory_share *share = table->shares; share; share = share->next) {
        add_turns(share, &sum);
    }
    bool hope = sum.last != turn || has_hope(&table->common, whole, &sum);
    for (const memory_share *share = table->shares; !hope && share; share = share->next) {
        hope = has_hope(share, whole, &sum);
    }
    table->counts.n_given_up += !hope;
    pthread_mutex_unlock(&table->lock);
    return !hope;
}

/* ---- waiting ---- */

size_t memory_held(const exchange *ex)
{
    return ex->n_held + ex->reading.bytes;
}

bool memory_wait(exchange *ex, memory_turn turn, memory_try_fn *tries, void *user)
{
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    const uint64_t begun_ns = skv_now_ns();
    const uint64_t end_ns = begun_ns + LIMIT_MEMORY_WAIT_SECONDS * UINT64_C(1000000000);
    const peer_phase phase = peers_set_phase(ex->server, ex->peer, PEER_WORKING);
    turn.ex = ex;
    turn.n_held = memory_held(ex);
    turn.used_before = SIZE_MAX;
    /* While it waits others may compile. */
    compile_pause(ex);
    take_turn(ex, &turn);
    bool there = false;
    for (;;) {
        const size_t used = skv_account_used(ex->server->account);
        if ((there = tries(user, is_first(ex, &turn)))) break;
        if (skv_now_ns() > end_ns || exchange_stopped(ex)) break;
        if (has_to_give_up(ex, &turn, used)) break;
        (void)nanosleep(&nap, NULL);
    }
    end_turn(ex, &turn);
    compile_go_on(ex);
    (void)peers_set_phase(ex->server, ex->peer, phase);
    const uint64_t waited_ns = skv_now_ns() - begun_ns;
    ex->memory_ns += waited_ns;
    skv_budget_waited(&ex->reading, waited_ns);
    return there;
}
