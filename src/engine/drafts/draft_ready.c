/* Rows that a draft has begun and the next step finishes: see draft.h. */
#include <string.h>

#include "drafts/draft.h"
#include "engine/engine.h"

size_t skv_sequence_ready(const skv_sequence *s, const int32_t *ids, size_t n)
{
    const skv_drafter *d = s->drafter;
    if (!d || d->ready.n < n) return 0;
    return memcmp(s->ids + s->n_seen, ids, n * sizeof *ids) == 0 ? n : 0;
}

void skv_sequence_keep_ready(skv_sequence *s, size_t n)
{
    skv_drafter *d = s->drafter;
    if (s->reader) skv_kv_cache_truncate(&s->reader->cache, s->n_seen + n);
    if (d && d->model && d->model->is_apart) skv_kv_cache_truncate(&d->cache, s->n_seen);
    if (skv_sequence_predicts(s)) skv_mtp_keep(s->drafter, s->n_seen);
    if (!d || d->ready.n <= n) return;
    skv_kv_cache_truncate(&s->cache, s->n_seen + n);
    d->ready.n = n;
}
