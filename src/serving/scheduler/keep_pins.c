/*
 * Pins of clients on disk and in a store: the blocks of a prompt's beginning are pinned
 * there under their names, whether they are there yet or not (spill_pins.h).
 */
#include <string.h>

#include "base/mem.h"
#include "scheduler/worker.h"

/* The pins of a text, at the disk or the store. */
typedef struct pinning {
    const skv_scheduler *s;
    skv_spill *at;
    skv_spill_pin *pins; /* owned, [n]: one more is for the state */
    size_t n;
    skv_spill_name last; /* of the blocks with a state */
    bool has_state;
} pinning;

/* On disk bytes of the larger form, as a block may be there in either. */
static size_t weight_at(const pinning *p, size_t n_pages)
{
    const size_t page_bytes = skv_kv_store_page_bytes(p->s->engine->store);
    return p->at == p->s->store ? 1 : skv_spill_item_bytes(SKV_PAGE_ROWS, n_pages, page_bytes);
}

static bool pin_block(void *user, const skv_prefix_block *b)
{
    pinning *p = user;
    skv_spill_pin *pin = &p->pins[p->n++];
    memcpy(pin->name.bytes, b->name, sizeof pin->name);
    pin->weight = weight_at(p, b->n_pages);
    if (b->state != SKV_NO_STATE) p->last = pin->name;
    p->has_state = p->has_state || b->state != SKV_NO_STATE;
    return true;
}

/* Of a hybrid model the last state too, without which the blocks are of no use. */
static void pin_at(skv_scheduler *s, skv_spill *at, const skv_job *job, const skv_past_pin *pin,
                   const int32_t *ids)
{
    pinning p = {.s = s, .at = at};
    p.pins = skv_alloc(pin->n / SKV_PAGE_ROWS + 1, sizeof *p.pins);
    if (!p.pins) return; /* without memory it is not pinned */
    skv_prefix_index_show_text(s->prefix, job->domain, ids, pin->n, pin_block, &p);
    if (p.has_state) {
        skv_spill_pin *state = &p.pins[p.n++];
        skv_spill_state_name(at, &p.last, &state->name);
        state->weight = weight_at(&p, skv_worker_state_pages(s));
    }
    skv_spill_pin_text(at, &(skv_pinned_text){job->owner, pin->end, p.pins, p.n});
    skv_free(p.pins);
}

void skv_worker_pin_kept(skv_scheduler *s, const skv_job *job, const skv_past_pin *pin,
                         const int32_t *ids)
{
    if (s->spill && s->prefix) pin_at(s, s->spill, job, pin, ids);
    if (s->store && s->prefix) pin_at(s, s->store, job, pin, ids);
}
