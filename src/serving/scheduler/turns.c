/* Decides which prompt is read next: see turns.h. The accounts are those of a virtual token
 * counter. */
#include "scheduler/turns.h"

static skv_turns_tenant *account(skv_turns *turns, uint64_t tenant)
{
    return &turns->tenants[tenant % SKV_TENANTS];
}

void skv_turns_begin(skv_turns *turns)
{
    for (size_t i = 0; i < SKV_TENANTS; i++) {
        turns->tenants[i].waited = turns->tenants[i].waits;
        turns->tenants[i].waits = false;
    }
}

void skv_turns_see(skv_turns *turns, uint64_t tenant)
{
    account(turns, tenant)->waits = true;
}

/* The least that was given to tenants that wait; with `waited` only to those that did so before. */
static bool find_floor(const skv_turns *turns, bool waited, uint64_t *floor)
{
    bool found = false;
    for (size_t i = 0; i < SKV_TENANTS; i++) {
        const skv_turns_tenant *t = &turns->tenants[i];
        if (!t->waits || (waited && !t->waited)) continue;
        if (!found || t->given < *floor) *floor = t->given;
        found = true;
    }
    return found;
}

void skv_turns_settle(skv_turns *turns)
{
    bool any = find_floor(turns, true, &turns->floor) || find_floor(turns, false, &turns->floor);
    if (!any) return;
    for (size_t i = 0; i < SKV_TENANTS; i++) {
        skv_turns_tenant *t = &turns->tenants[i];
        if (!t->waits || t->waited) continue;
        if (t->given < turns->floor) t->given = turns->floor;
        if (t->given > turns->floor + SKV_TURNS_AHEAD) t->given = turns->floor + SKV_TURNS_AHEAD;
    }
    turns->n_steps++;
}

static bool is_ahead(const skv_turns *turns, uint64_t tenant)
{
    return turns->tenants[tenant % SKV_TENANTS].given >= turns->floor + SKV_TURNS_AHEAD;
}

bool skv_turns_overtakes(const skv_turns *turns, uint64_t tenant, size_t n_left,
                         uint64_t older_tenant, size_t older_n_left)
{
    bool ahead = is_ahead(turns, tenant), older_ahead = is_ahead(turns, older_tenant);
    if (ahead != older_ahead) return older_ahead;
    if (turns->n_steps % SKV_TURNS_OLDEST == 0) return false;
    return n_left < older_n_left;
}

void skv_turns_give(skv_turns *turns, uint64_t tenant, size_t n)
{
    account(turns, tenant)->given += n;
}

uint64_t skv_turns_given(const skv_turns *turns, uint64_t tenant)
{
    return turns->tenants[tenant % SKV_TENANTS].given;
}
