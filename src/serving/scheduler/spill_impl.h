/* Declarations that the files of spill.h share. */
#ifndef SKV_SERVE_SPILL_IMPL_H
#define SKV_SERVE_SPILL_IMPL_H

#include <pthread.h>

#include "base/lru.h"
#include "scheduler/spill.h"
#include "scheduler/spill_file.h"
#include "scheduler/spill_pins.h"

/* Which files there are: their names and sizes, in order of use, under a limit of bytes. The lock
 * of the spill guards it. */
typedef struct skv_spill_list {
    size_t bytes_max;
    size_t n_bytes;
    skv_lru entries; /* one a file */
} skv_spill_list;

bool skv_spill_list_has(const skv_spill_list *list, const skv_spill_name *name);
/** As the newest; false: no memory, or it is there. */
SKV_MUST_CHECK bool skv_spill_list_add(skv_spill_list *list, const skv_spill_name *name,
                                       size_t n_bytes);
void skv_spill_list_touch(skv_spill_list *list, const skv_spill_name *name);
void skv_spill_list_remove(skv_spill_list *list, const skv_spill_name *name);
/** Takes the oldest out of the list when n_bytes more do not fit below the limit; false: they do,
 * or nothing is left. Those that are pinned count as used (pins NULL: none is). */
SKV_MUST_CHECK bool skv_spill_list_make_way(skv_spill_list *list, const skv_spill_pins *pins,
                                            size_t n_bytes, skv_spill_name *removed);

/* ---- the spill ---- */

/* Where items lie. The thread alone calls these, without the lock. */
typedef struct skv_spill_medium {
    /* Everything but the thread; the list holds the items that were found. */
    skv_status (*prepare)(skv_spill *s, skv_error *err);
    void (*release)(skv_spill *s); /* after any prepare */
    /* SKV_FULL: it takes nothing now; SKV_CANCELLED: it is known to be away. */
    skv_status (*write)(skv_spill *s, const skv_spill_item *item, skv_error *err);
    /* SKV_FORMAT: it is bad; SKV_RANGE: it is not there. */
    skv_status (*read)(skv_spill *s, const skv_spill_name *name, skv_spill_item **out,
                       skv_error *err);
    void (*remove)(skv_spill *s, const skv_spill_name *name);
    void (*touch)(skv_spill *s, const skv_spill_name *name);
    /* Tells that these are pinned, again and again; NULL: the list is its order. */
    void (*pin)(skv_spill *s, const skv_spill_name *names, size_t n);
    /* The periodic work; NULL: none. */
    void (*tend)(skv_spill *s, skv_block_store_state *state);
} skv_spill_medium;

/** A folder (spill_folder.c), and a store (spill_store.c). */
const skv_spill_medium *skv_spill_medium_folder(void);
const skv_spill_medium *skv_spill_medium_store(void);

struct skv_spill_fetch {
    skv_spill *spill;
    skv_spill_fetch *next;
    skv_spill_name *names; /* owned, [n] */
    size_t n, n_read;
    skv_spill_item *first, *last; /* owned: arrived */
    bool any;                     /* the first block that is found ends it */
    bool reading, failed, ended;  /* reading: the thread uses it, and frees it once it ended */
};

struct skv_spill {
    skv_spill_options options;
    const skv_spill_medium *medium;
    char *folder; /* owned; for messages. NULL: a store */
    skv_spill_place place;
    int lock_fd;
    skv_block_store store;
    void *store_link; /* owned: made by store.open */
    uint8_t secret[SKV_SPILL_SECRET_BYTES], seal_key[SKV_SHA256_BYTES];
    skv_spill_name *texts; /* owned, [n_texts]: found at the start */
    size_t n_texts;
    pthread_t thread;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t wake;  /* of the thread */
    pthread_cond_t moved; /* the queue has become shorter */
    bool stopping, failing;
    uint64_t busy_ns; /* since when the thread is at the medium; 0: it is not */
    skv_block_store_state store_state;
    uint64_t give_up_ns; /* while stopping */
    skv_spill_list list;
    skv_spill_pins pins;
    uint64_t told_ns, n_told;      /* when the medium was told of pins last, and n_written then */
    skv_spill_item *first, *last;  /* owned: to be written */
    const skv_spill_item *writing; /* borrowed: the thread is at it */
    skv_spill_fetch *fetches;      /* owned by the callers that began them */
    size_t arrived_bytes;
    skv_spill_stats stats;
};

SKV_MUST_CHECK skv_status skv_spill_list_init(skv_spill_list *list, size_t bytes_max,
                                              skv_error *err);
/** A zeroed list is fine. */
void skv_spill_list_release(skv_spill_list *list);
/** Takes everything out. */
void skv_spill_list_clear(skv_spill_list *list);
/** When the secret and options.model are known. */
void skv_spill_set_fingerprint(skv_spill *spill);
/** One line for the person that runs the server. */
void skv_spill_log(const skv_spill *spill, const char *format, ...) SKV_PRINTF(2, 3);

#endif
