/*
 * Pinned items of a spill: names, times and owners. A pin is an order, not a lock: a folder gives
 * up other items first, and a store is told that pinned items are in use. A name may be pinned
 * before its item is there.
 *
 * What pins hold is bounded, in bytes of files or in items of a store. One owner, a key, has half
 * of the bound at most; where all owners together have more than the bound, the one that has most
 * loses its oldest pins, and of one text the end first, since no block is found without those
 * before it. Pins are in memory: after a restart there are none. Not
 * thread-safe: the lock of the spill guards them.
 */
#ifndef SKV_SERVE_SPILL_PINS_H
#define SKV_SERVE_SPILL_PINS_H

#include "base/lru.h"
#include "scheduler/spill_item.h"

enum {
    SKV_SPILL_PINS_MAX = 1 << 14, /* items */
    SKV_SPILL_PIN_OWNERS = 64,    /* with pins at once; those of others are not taken */
    SKV_SPILL_PIN_SHARE = 2       /* one owner has one of so many parts of the bound */
};

typedef struct skv_spill_pin {
    skv_spill_name name;
    size_t weight; /* of its item */
} skv_spill_pin;

typedef struct skv_pin_owner {
    uint64_t owner;
    size_t weight; /* 0: a free place */
} skv_pin_owner;

typedef struct skv_spill_pins {
    skv_lru entries; /* one an item, in the order in which they were pinned */
    size_t weight, weight_max;
    skv_pin_owner owners[SKV_SPILL_PIN_OWNERS];
    skv_spill_name last; /* that skv_spill_pins_next told */
    uint64_t swept_ns;
} skv_spill_pins;

SKV_MUST_CHECK skv_status skv_spill_pins_init(skv_spill_pins *pins, size_t weight_max,
                                              skv_error *err);
/** A zeroed struct is fine. */
void skv_spill_pins_release(skv_spill_pins *pins);

/* Items of one text [n], the first block first, that an owner pins until a time. */
typedef struct skv_pinned_text {
    uint64_t owner, end_ns;
    const skv_spill_pin *at;
    size_t n;
} skv_pinned_text;

/** A name that is pinned already stays so for the longer of the two times. */
void skv_spill_pins_add(skv_spill_pins *pins, const skv_pinned_text *text, uint64_t now_ns);
bool skv_spill_pins_has(const skv_spill_pins *pins, const skv_spill_name *name, uint64_t now_ns);
/** The next names that are pinned, at most n_max, so that all have their turn; returns how many. */
size_t skv_spill_pins_next(skv_spill_pins *pins, uint64_t now_ns, skv_spill_name *names,
                           size_t n_max);

#endif
