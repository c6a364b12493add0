/*
 * The prefix cache outside memory: blocks and texts on disk, kept for later and for after a
 * restart, and blocks in a store that several servers share. Each is one skv_spill.
 *
 * One thread of its own reads and writes; no other thread waits for the disk or the network. Items
 * to be written are copied into a queue of bounded size, and dropped when it is full; items to be
 * read are asked for as a `fetch`, whose blocks arrive one after the other. Names of files are
 * keyed hashes: the secret lies beside them, and neither tells an API key. A folder belongs to one
 * process at a time.
 *
 *     spill_item.c   one item as bytes, with checksums
 *     spill_file.c   one file: written whole or not at all
 *     spill_folder.c which files there are, under the limit of bytes; the secret, the lock, and
 *                    the files found at the start
 *     spill_store.c  the same for a store, which the program brings
 *     spill_pins.c   items that are given up last
 *     spill.c        the queue, fetches and the thread
 */
#ifndef SKV_SERVE_SPILL_H
#define SKV_SERVE_SPILL_H

#include "base/sha256.h"
#include "scheduler/spill_file.h"
#include "scheduler/spill_pins.h"
#include "skv/serve.h"

typedef struct skv_spill skv_spill;
typedef struct skv_spill_fetch skv_spill_fetch;

enum { SKV_SPILL_SECRET_BYTES = SKV_SHA256_BYTES };

typedef struct skv_spill_options {
    const char *folder;           /* made if it is not there; NULL: */
    const skv_block_store *store; /* borrowed while opening */
    size_t bytes_max;             /* of all files */
    size_t queue_bytes;           /* on their way out, and again on their way back */
    size_t page_bytes;
    size_t pages_max;                /* of an item in the store */
    uint8_t model[SKV_SHA256_BYTES]; /* a fingerprint of all that the rows of a page depend on */
    /* The key of names and seals, [SKV_SPILL_SECRET_BYTES], borrowed while opening; NULL: the
     * folder has its own. */
    const uint8_t *secret;
    void (*log)(void *log_user, const char *line); /* from any thread; may be NULL */
    void *log_user;
    void (*wake)(void *wake_user); /* something has arrived; may be NULL */
    void *wake_user;
} skv_spill_options;

typedef struct skv_spill_stats {
    size_t n_bytes, n_files;
    size_t queue_bytes, queue_items;
    uint64_t n_written, n_read, n_dropped, n_failed, n_removed; /* items */
    uint64_t n_missed, n_unread;                                /* not there, and not to be read */
    size_t n_up;             /* instances of a store that answer */
    skv_histogram read_time; /* of items that were read */
} skv_spill_stats;

SKV_MUST_CHECK skv_status skv_spill_open(const skv_spill_options *options, skv_spill **out,
                                         skv_error *err);
/** Writes the queued items, but gives up after so many seconds. All fetches must have ended. */
void skv_spill_close(skv_spill *spill, double seconds);

/* ---- names ---- */

/** Bits that reveal nothing of their input without the secret. */
uint64_t skv_spill_hide(const skv_spill *spill, const char *tag, const void *data, size_t n);
/** The name of a block of n_ids ids after `parent` (NULL: none). */
void skv_spill_block_name(const skv_spill *spill, uint64_t domain, const skv_spill_name *parent,
                          const int32_t *ids, size_t n_ids, skv_spill_name *name);

/** The name of the state after a block. */
void skv_spill_state_name(const skv_spill *spill, const skv_spill_name *block,
                          skv_spill_name *name);

/* ---- writing ---- */

/** Whether it is there as far as is known: a store may have more, or have lost it. */
bool skv_spill_has(skv_spill *spill, const skv_spill_name *name);
/** Whether it was written, as far as is known, and does not wait in the queue. */
bool skv_spill_stored(skv_spill *spill, const skv_spill_name *name);
/** Whether the queue has room for n_bytes, now or within so many seconds. */
bool skv_spill_wait_room(skv_spill *spill, size_t n_bytes, double seconds);
/** Queues an item, which it takes over. It is dropped where there is no room. */
void skv_spill_put(skv_spill *spill, skv_spill_item *item);
/** A block that the disk has was used in memory: it is given up later than those before. */
void skv_spill_note_use(skv_spill *spill, const skv_spill_name *name);
/** Items of a text that are given up later than others, whether they are there yet or not. The
 * weight of a pin is bytes on disk, and 1 in a store. */
void skv_spill_pin_text(skv_spill *spill, const skv_pinned_text *text);
/** Counts an item that was not put for want of room. */
void skv_spill_count_drop(skv_spill *spill);
/** A text: the ids of a prompt and its answer by their place in the text index. */
void skv_spill_put_text(skv_spill *spill, uint64_t domain, uint64_t key, const int32_t *ids,
                        size_t n_ids);
/** Reads the texts that were found at the start, once; the least recently used first. */
void skv_spill_load_texts(skv_spill *spill,
                          void (*take)(void *user, uint64_t domain, uint64_t key,
                                       const int32_t *ids, size_t n_ids),
                          void *user);

/* ---- reading ---- */

/** Of a store: whether an instance answers, and the thread makes progress. */
bool skv_spill_responds(skv_spill *spill);
/** Nanoseconds without a block after which a fetch is given up. */
uint64_t skv_spill_silence_ns(const skv_spill *spill);
/** Reads blocks, in order, up to the first that cannot be read; NULL: no memory. */
skv_spill_fetch *skv_spill_fetch_begin(skv_spill *spill, const skv_spill_name *names, size_t n);
/** Reads the first of these items that can be read. */
skv_spill_fetch *skv_spill_fetch_any(skv_spill *spill, const skv_spill_name *names, size_t n);
/** The next block that has arrived, to be freed with skv_free; NULL: none now. */
skv_spill_item *skv_spill_fetch_next(skv_spill_fetch *fetch);
/** Whether nothing more will arrive. */
bool skv_spill_fetch_done(skv_spill_fetch *fetch);
/** Ends and frees it, done or not; NULL is allowed. */
void skv_spill_fetch_end(skv_spill_fetch *fetch);

void skv_spill_get_stats(skv_spill *spill, skv_spill_stats *out);

#endif
