/* Draft statistics of each domain: see draft_domains.h. */
#include "scheduler/draft_domains.h"

#include "base/size.h"

static void drop_history(skv_draft_domains *all, skv_draft_domain *d)
{
    if (!d->history) return;
    skv_draft_history_free(d->history);
    d->history = NULL;
    all->n_histories--;
    skv_account_give(all->account, skv_draft_history_bytes(SKV_HISTORY_TOKENS));
}

/* The domain with this id, or the place for it: the one that was used longest ago. */
static skv_draft_domain *place_of(skv_draft_domains *all, uint64_t id)
{
    skv_draft_domain *oldest = &all->at[0];
    for (size_t i = 0; i < SKV_DRAFT_DOMAINS; i++) {
        skv_draft_domain *d = &all->at[i];
        if (d->used > 0 && d->id == id) return d;
        if (d->used < oldest->used) oldest = d;
    }
    return oldest;
}

skv_draft_domain *skv_draft_domains_of(skv_draft_domains *all, uint64_t id)
{
    skv_draft_domain *d = place_of(all, id);
    if (d->used == 0 || d->id != id) {
        drop_history(all, d);
        *d = (skv_draft_domain){.id = id};
    }
    d->used = ++all->clock;
    return d;
}

/* The oldest answers of a domain go; false: there are none. */
static bool drop_oldest(skv_draft_domains *all)
{
    skv_draft_domain *oldest = NULL;
    for (size_t i = 0; i < SKV_DRAFT_DOMAINS; i++) {
        skv_draft_domain *d = &all->at[i];
        if (d->history && (!oldest || d->used < oldest->used)) oldest = d;
    }
    if (oldest) drop_history(all, oldest);
    return oldest;
}

/* Counts one more history, for which others may have to go. */
static bool take_room(skv_draft_domains *all)
{
    const size_t n_bytes = skv_draft_history_bytes(SKV_HISTORY_TOKENS);
    size_t most = SKV_HISTORIES;
    if (all->account) {
        most = skv_min_size(most, skv_account_max(all->account) / SKV_HISTORY_PART / n_bytes);
    }
    if (most == 0 || (all->n_histories >= most && !drop_oldest(all))) return false;
    while (!skv_account_take(all->account, n_bytes)) {
        if (!drop_oldest(all)) return false;
    }
    return true;
}

void skv_draft_domains_add(skv_draft_domains *all, uint64_t id, const int32_t *ids, size_t n)
{
    if (n < SKV_HISTORY_TOKENS_MIN) return;
    skv_draft_domain *d = skv_draft_domains_of(all, id);
    if (!d->history) {
        if (!take_room(all)) return;
        if (skv_draft_history_create(SKV_HISTORY_TOKENS, &d->history, NULL) != SKV_OK) {
            skv_account_give(all->account, skv_draft_history_bytes(SKV_HISTORY_TOKENS));
            return;
        }
        all->n_histories++;
    }
    skv_draft_history_add(d->history, ids, n);
}

void skv_draft_domains_release(skv_draft_domains *all)
{
    for (size_t i = 0; i < SKV_DRAFT_DOMAINS; i++) drop_history(all, &all->at[i]);
}
