/* Earlier answers by domain: see histories.h. */
#include "scheduler/histories.h"

const skv_draft_history *skv_histories_find(skv_histories *h, uint64_t domain)
{
    for (size_t i = 0; i < SKV_HISTORIES; i++) {
        if (h->at[i].used == 0 || h->at[i].domain != domain) continue;
        h->at[i].used = ++h->clock;
        return h->at[i].history;
    }
    return NULL;
}

/* The place of a domain, or the one that was used longest ago. */
static size_t place_of(const skv_histories *h, uint64_t domain)
{
    size_t oldest = 0;
    for (size_t i = 0; i < SKV_HISTORIES; i++) {
        if (h->at[i].used > 0 && h->at[i].domain == domain) return i;
        if (h->at[i].used < h->at[oldest].used) oldest = i;
    }
    return oldest;
}

void skv_histories_add(skv_histories *h, uint64_t domain, const int32_t *ids, size_t n)
{
    if (n < SKV_HISTORY_TOKENS_MIN) return;
    const size_t i = place_of(h, domain);
    if (h->at[i].used == 0 || h->at[i].domain != domain) {
        skv_draft_history_free(h->at[i].history);
        h->at[i].history = NULL;
        h->at[i].used = 0;
        if (skv_draft_history_create(SKV_HISTORY_TOKENS, &h->at[i].history, NULL) != SKV_OK) {
            return;
        }
        h->at[i].domain = domain;
    }
    h->at[i].used = ++h->clock;
    skv_draft_history_add(h->at[i].history, ids, n);
}

void skv_histories_release(skv_histories *h)
{
    for (size_t i = 0; i < SKV_HISTORIES; i++) skv_draft_history_free(h->at[i].history);
    *h = (skv_histories){.clock = 0};
}
