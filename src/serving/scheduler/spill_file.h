/*
 * One file of the spilled prefix cache: a block of KV pages, or the ids of a text.
 *
 *     header [128] | ids [n_ids] int32 | pages [n_pages][page_bytes]
 *
 * Its name is 32 hexadecimal digits: a keyed hash of everything that the content is a function of.
 * A file is written under another name and renamed, so it is complete or absent; nothing is synced,
 * since the checksums find out what a crash of the whole machine may leave. Little-endian.
 */
#ifndef SKV_SERVE_SPILL_FILE_H
#define SKV_SERVE_SPILL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

enum { SKV_SPILL_NAME_BYTES = 16, SKV_SPILL_IDS_MAX = 1 << 24 };

typedef struct skv_spill_name {
    uint8_t bytes[SKV_SPILL_NAME_BYTES];
} skv_spill_name;

typedef enum skv_spill_kind {
    SKV_SPILL_NOTE = 0, /* in a queue only: a file was used */
    SKV_SPILL_BLOCK = 1,
    SKV_SPILL_TEXT = 2,
    SKV_SPILL_ROWS = 3 /* a block whose deep K,V are rows, in the last pages: keep_rows.c */
} skv_spill_kind;

/* What one file holds, in one piece of memory. */
typedef struct skv_spill_item {
    struct skv_spill_item *next; /* in a queue */
    skv_spill_kind kind;
    skv_spill_name name;
    skv_spill_name parent; /* BLOCK, ROWS: the block before, zeros: none. TEXT: whose it is */
    size_t n_ids, n_pages; /* page_bytes of the whole store */
    unsigned char *pages;  /* [n_pages][page_bytes], behind the ids */
    int32_t ids[];         /* [n_ids] */
} skv_spill_item;

typedef struct skv_spill_place {
    int folder_fd;
    skv_spill_name fingerprint; /* of what made the rows */
    size_t page_bytes;
} skv_spill_place;

/** Room for ids and pages, to be freed with skv_free; NULL: no memory. */
skv_spill_item *skv_spill_item_create(size_t n_ids, size_t n_pages, size_t page_bytes);
/** Bytes of the file that holds so much. */
size_t skv_spill_file_bytes(size_t n_ids, size_t n_pages, size_t page_bytes);

/** SKV_IO with a line that tells why; then nothing is there. */
SKV_MUST_CHECK skv_status skv_spill_file_write(const skv_spill_place *place,
                                               const skv_spill_item *item, skv_error *err);
/** SKV_FORMAT: not what its name says, damaged, or another model's. SKV_IO: not there or not to
 * be read. */
SKV_MUST_CHECK skv_status skv_spill_file_read(const skv_spill_place *place,
                                              const skv_spill_name *name, skv_spill_item **out,
                                              skv_error *err);
/** Looks at the header alone: is it ours, and as long as it says? */
SKV_MUST_CHECK skv_status skv_spill_file_check(const skv_spill_place *place,
                                               const skv_spill_name *name, skv_spill_kind *kind,
                                               size_t *n_bytes, skv_error *err);
void skv_spill_file_remove(const skv_spill_place *place, const skv_spill_name *name);
/** Marks as used at this time, for the order in which files are given up. */
void skv_spill_file_touch(const skv_spill_place *place, const skv_spill_name *name);

enum { SKV_SPILL_FILE_NAME = 2 * SKV_SPILL_NAME_BYTES + 8 };

/** Whether it is the name of a file of ours (*temporary: one that was not finished). */
bool skv_spill_name_parse(const char *text, skv_spill_name *name, bool *temporary);
/** The file's name. */
void skv_spill_name_format(const skv_spill_name *name, bool temporary,
                           char text[SKV_SPILL_FILE_NAME]);

#endif
