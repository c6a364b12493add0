/* Pinned items of a spill: see spill_pins.h. */
#include "scheduler/spill_pins.h"

#include <string.h>

#include "base/mem.h"

static const uint64_t SWEEP_NS = 1000000000u; /* ended pins are looked for at most so often */

typedef struct entry {
    skv_lru_node node;
    skv_spill_name name;
    uint64_t end_ns;
    size_t weight;
    skv_pin_owner *owner; /* borrowed: in the same struct */
} entry;

skv_status skv_spill_pins_init(skv_spill_pins *pins, size_t weight_max, skv_error *err)
{
    *pins = (skv_spill_pins){.weight_max = weight_max};
    return skv_lru_init(&pins->entries, SKV_SPILL_PINS_MAX, err);
}

static entry *find(const skv_spill_pins *pins, const skv_spill_name *name)
{
    entry *e = (entry *)skv_lru_first(&pins->entries, skv_spill_hash(name));
    while (e && memcmp(&e->name, name, sizeof *name) != 0) e = (entry *)skv_lru_next(&e->node);
    return e;
}

static void drop(skv_spill_pins *pins, entry *e)
{
    skv_lru_remove(&pins->entries, &e->node);
    pins->weight -= e->weight;
    e->owner->weight -= e->weight;
    skv_free(e);
}

void skv_spill_pins_release(skv_spill_pins *pins)
{
    while (pins->entries.oldest) drop(pins, (entry *)pins->entries.oldest);
    skv_lru_release(&pins->entries);
}

static void sweep(skv_spill_pins *pins, uint64_t now)
{
    if (now - pins->swept_ns < SWEEP_NS) return;
    pins->swept_ns = now;
    for (entry *e = (entry *)pins->entries.oldest, *next; e; e = next) {
        next = (entry *)e->node.newer;
        if (e->end_ns <= now) drop(pins, e);
    }
}

/* An owner's place, or a free one; NULL: there is none. */
static skv_pin_owner *place_of(skv_spill_pins *pins, uint64_t owner)
{
    skv_pin_owner *place = NULL;
    for (size_t i = 0; i < SKV_SPILL_PIN_OWNERS; i++) {
        skv_pin_owner *p = &pins->owners[i];
        if (p->weight > 0 && p->owner == owner) return p;
        if (p->weight == 0 && !place) place = p;
    }
    return place;
}

static const skv_pin_owner *largest(const skv_spill_pins *pins)
{
    const skv_pin_owner *most = &pins->owners[0];
    for (size_t i = 1; i < SKV_SPILL_PIN_OWNERS; i++) {
        if (pins->owners[i].weight > most->weight) most = &pins->owners[i];
    }
    return most;
}

static void drop_oldest(skv_spill_pins *pins, const skv_pin_owner *owner)
{
    entry *e = (entry *)pins->entries.oldest;
    while (e && e->owner != owner) e = (entry *)e->node.newer;
    if (e) drop(pins, e);
}

static void keep_shares(skv_spill_pins *pins, const skv_pin_owner *owner)
{
    while (owner->weight > pins->weight_max / SKV_SPILL_PIN_SHARE) drop_oldest(pins, owner);
    while (pins->weight > pins->weight_max || pins->entries.n > SKV_SPILL_PINS_MAX) {
        drop_oldest(pins, largest(pins));
    }
}

/* False: there is no memory. */
static bool add(skv_spill_pins *pins, skv_pin_owner *owner, const skv_spill_pin *pin, uint64_t end)
{
    entry *e = find(pins, &pin->name);
    if (e) {
        e->end_ns = end > e->end_ns ? end : e->end_ns;
        skv_lru_touch(&pins->entries, &e->node);
        return true;
    }
    e = skv_alloc(1, sizeof *e);
    if (!e) return false;
    const size_t weight = pin->weight > 0 ? pin->weight : 1;
    *e = (entry){.name = pin->name, .end_ns = end, .weight = weight, .owner = owner};
    skv_lru_add(&pins->entries, &e->node, skv_spill_hash(&pin->name));
    pins->weight += weight;
    owner->weight += weight;
    return true;
}

void skv_spill_pins_add(skv_spill_pins *pins, const skv_pinned_text *text, uint64_t now)
{
    sweep(pins, now);
    skv_pin_owner *owner = place_of(pins, text->owner);
    if (!owner || text->end_ns <= now) return;
    owner->owner = text->owner;
    for (size_t i = text->n; i-- > 0;) {
        if (!add(pins, owner, &text->at[i], text->end_ns)) break;
        keep_shares(pins, owner);
    }
}

bool skv_spill_pins_has(const skv_spill_pins *pins, const skv_spill_name *name, uint64_t now)
{
    if (pins->entries.n == 0) return false;
    const entry *e = find(pins, name);
    return e && e->end_ns > now;
}

size_t skv_spill_pins_next(skv_spill_pins *pins, uint64_t now, skv_spill_name *names, size_t n_max)
{
    size_t n = 0;
    if (pins->entries.n == 0) return 0;
    const entry *last = find(pins, &pins->last);
    const entry *e = (const entry *)(last ? last->node.newer : NULL);
    if (!e) e = (const entry *)pins->entries.oldest;
    for (; e && n < n_max; e = (const entry *)e->node.newer) {
        pins->last = e->name;
        if (e->end_ns > now) names[n++] = e->name;
    }
    return n;
}
