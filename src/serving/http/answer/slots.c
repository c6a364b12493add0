/* Slots of token ids: see slots.h. */
#include "answer/slots.h"

#include <stdlib.h>
#include <string.h>

#include "limits/request_budget.h"

typedef struct slot {
    const server_model *model;
    uint64_t tenant;
    int32_t *ids; /* owned, [n]; NULL: empty */
    size_t n;
    skv_account *account; /* borrowed: has the ids */
} slot;

struct slot_table {
    pthread_mutex_t lock;
    pthread_mutex_t files;
    size_t n;
    slot at[];
};

bool slots_open(size_t n, slot_table **out)
{
    slot_table *slots = calloc(1, sizeof *slots + n * sizeof *slots->at);
    if (!slots) return false;
    slots->n = n;
    (void)pthread_mutex_init(&slots->lock, NULL);
    (void)pthread_mutex_init(&slots->files, NULL);
    *out = slots;
    return true;
}

static void empty(slot *s)
{
    skv_account_give(s->account, s->n * sizeof *s->ids);
    free(s->ids);
    *s = (slot){.ids = NULL};
}

void slots_close(slot_table *slots)
{
    if (!slots) return;
    for (size_t i = 0; i < slots->n; i++) empty(&slots->at[i]);
    (void)pthread_mutex_destroy(&slots->lock);
    (void)pthread_mutex_destroy(&slots->files);
    free(slots);
}

/* The slot, with the lock held; NULL: another key, or a prompt of another model, has it. */
static slot *find(const exchange *ex, size_t i)
{
    slot *s = &ex->server->slots->at[i];
    return s->ids && s->tenant == ex->tenant && s->model == ex->model ? s : NULL;
}

void slots_put(const exchange *ex, size_t i, skv_id_piece ids, skv_id_piece more)
{
    slot_table *slots = ex->server->slots;
    slot added = {.model = ex->model,
                  .tenant = ex->tenant,
                  .n = ids.n + more.n,
                  .account = ex->share->account};
    if (skv_account_take(added.account, added.n * sizeof *added.ids)) {
        added.ids = malloc(added.n * sizeof *added.ids);
        if (!added.ids) skv_account_give(added.account, added.n * sizeof *added.ids);
    }
    if (added.ids) {
        memcpy(added.ids, ids.ids, ids.n * sizeof *ids.ids);
        if (more.n > 0) memcpy(added.ids + ids.n, more.ids, more.n * sizeof *more.ids);
    } else {
        added = (slot){.ids = NULL};
    }
    pthread_mutex_lock(&slots->lock);
    empty(&slots->at[i]);
    slots->at[i] = added;
    pthread_mutex_unlock(&slots->lock);
}

static size_t length_at(const exchange *ex, size_t i)
{
    slot_table *slots = ex->server->slots;
    pthread_mutex_lock(&slots->lock);
    const slot *s = find(ex, i);
    const size_t n = s ? s->n : 0;
    pthread_mutex_unlock(&slots->lock);
    return n;
}

bool slots_copy(const exchange *ex, size_t i, int32_t **ids, size_t *n, api_error *error)
{
    slot_table *slots = ex->server->slots;
    const size_t most = length_at(ex, i);
    *ids = NULL;
    *n = 0;
    if (!request_hold(ex, most * sizeof **ids, "slot", error)) return false;
    pthread_mutex_lock(&slots->lock);
    const slot *s = find(ex, i);
    const bool fits = s && s->n > 0 && s->n <= most; /* else a longer one came meanwhile */
    if (fits) *ids = malloc(s->n * sizeof **ids);
    if (*ids) *n = s->n;
    if (*ids) memcpy(*ids, s->ids, s->n * sizeof **ids);
    pthread_mutex_unlock(&slots->lock);
    return *ids || api_fail(error, 400, NULL, "slot %zu has no prompt of this key", i);
}

size_t slots_erase(const exchange *ex, size_t i)
{
    slot_table *slots = ex->server->slots;
    pthread_mutex_lock(&slots->lock);
    slot *s = find(ex, i);
    const size_t n = s ? s->n : 0;
    if (s) empty(s);
    pthread_mutex_unlock(&slots->lock);
    return n;
}

void slots_lock_files(slot_table *slots)
{
    pthread_mutex_lock(&slots->files);
}

void slots_unlock_files(slot_table *slots)
{
    pthread_mutex_unlock(&slots->files);
}
