/*
 * An item of the spilled prefix cache, a block of KV pages, a state or the ids of a text, as bytes:
 *
 *     header [128] | ids [n_ids] int32 | pages [n_pages][page_bytes]
 *
 * A file on disk (spill_file.h) and a value in a store (spill_store.c) are these same bytes, under
 * the same checks. An item's name is a keyed hash of everything that the content is a function of.
 * Checksums find damage. An item that lies where others may write is sealed too: its header has a
 * keyed checksum of all of it, which cannot be made without the secret. Little-endian.
 */
#ifndef SKV_SERVE_SPILL_ITEM_H
#define SKV_SERVE_SPILL_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "base/sha256.h"

enum { SKV_SPILL_NAME_BYTES = 16, SKV_SPILL_IDS_MAX = 1 << 24 };

typedef struct skv_spill_name {
    uint8_t bytes[SKV_SPILL_NAME_BYTES];
} skv_spill_name;

/* Names are hashes already. */
static inline uint64_t skv_spill_hash(const skv_spill_name *name)
{
    uint64_t hash;
    memcpy(&hash, name->bytes, sizeof hash);
    return hash;
}

typedef enum skv_spill_kind {
    SKV_SPILL_NOTE = 0, /* in a queue only: a file was used */
    SKV_SPILL_BLOCK = 1,
    SKV_SPILL_TEXT = 2,
    SKV_SPILL_ROWS = 3, /* a block whose deep K,V are rows, in the last pages: keep_rows.c */
    SKV_SPILL_STATE = 4 /* the state after a block, in its pages: keep_states.c */
} skv_spill_kind;

/* The largest content of a file, in one piece of memory. */
typedef struct skv_spill_item {
    struct skv_spill_item *next; /* in a queue */
    uint64_t ticket;             /* of pages that have not arrived: keep_pages.c */
    skv_spill_kind kind;
    skv_spill_name name;
    skv_spill_name parent; /* BLOCK, ROWS: the block before, zeros: none. STATE: the block
                            * itself. TEXT: its domain */
    size_t n_ids, n_pages; /* page_bytes of the whole store */
    unsigned char *pages;  /* [n_pages][page_bytes], after the ids */
    int32_t ids[];         /* [n_ids] */
} skv_spill_item;

typedef struct skv_spill_header {
    char magic[8];
    uint32_t version, kind, n_ids, n_pages;
    uint64_t page_bytes;
    skv_spill_name fingerprint, name, parent;
    uint8_t seal[SKV_SHA256_BYTES]; /* zeros: not sealed */
    uint64_t body_check;
    uint64_t check; /* of all before */
} skv_spill_header;

/* The values that items of one cache have in common. */
typedef struct skv_spill_form {
    skv_spill_name fingerprint; /* of the model and settings that made the rows */
    size_t page_bytes;
    const uint8_t *seal_key; /* borrowed, [SKV_SHA256_BYTES]; NULL: items are not sealed */
} skv_spill_form;

/** Changes with every single change of the data, and without a key: against accidents. */
uint64_t skv_spill_checksum(const void *data, size_t n);
/** Room for ids and pages, to be freed with skv_free; NULL: no memory. */
skv_spill_item *skv_spill_item_create(size_t n_ids, size_t n_pages, size_t page_bytes);
/** Bytes of an item that holds so much, with its header. */
size_t skv_spill_item_bytes(size_t n_ids, size_t n_pages, size_t page_bytes);
/** The header that stands before the ids and pages. */
void skv_spill_item_encode(const skv_spill_form *form, const skv_spill_item *item,
                           skv_spill_header *header);

/** SKV_FORMAT: not the header of an item of this name and form that takes n_bytes in all. */
SKV_MUST_CHECK skv_status skv_spill_header_check(const skv_spill_form *form,
                                                 const skv_spill_name *name,
                                                 const skv_spill_header *header, size_t n_bytes,
                                                 skv_error *err);
/** An item with room for the n_body bytes that follow a checked header, from its ids on. */
SKV_MUST_CHECK skv_status skv_spill_item_begin(const skv_spill_header *header, skv_spill_item **out,
                                               size_t *n_body, skv_error *err);
/** SKV_FORMAT: the bytes after the header are damaged or forged. */
SKV_MUST_CHECK skv_status skv_spill_item_check(const skv_spill_form *form,
                                               const skv_spill_header *header,
                                               const skv_spill_item *item, skv_error *err);

#endif
