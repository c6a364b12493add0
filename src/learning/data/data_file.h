/*
 * A file of documents, read in an order that is shuffled for each epoch. A position is a number
 * that only grows: it encodes the epoch and the place in it, so no other state is kept.
 */
#ifndef SKV_DATA_DATA_FILE_H
#define SKV_DATA_DATA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/file.h"
#include "data/data_doc.h"

typedef enum skv_data_file_form {
    SKV_DATA_FILE_LINES, /* of JSON */
    SKV_DATA_FILE_TEXT,
    SKV_DATA_FILE_U16, /* token ids, little-endian */
    SKV_DATA_FILE_U32,
    SKV_DATA_FILE_JSON_IDS /* one array of them */
} skv_data_file_form;

typedef struct skv_data_file {
    char *path; /* owned */
    skv_file_map map;
    unsigned char *ids;        /* owned: JSON's ids as U32; NULL for the other forms */
    const unsigned char *data; /* [size] the map, or ids */
    size_t size;
    uint64_t seed;
    size_t unit;    /* bytes: 1 of text, 2 or 4 of tokens; 0: lines */
    size_t n_items; /* lines, or blocks of bytes or tokens */
    size_t *lines;  /* owned; [n_items] where a line begins; NULL for blocks */
} skv_data_file;

SKV_MUST_CHECK skv_status skv_data_file_open(const char *path, skv_data_file_form form,
                                             uint64_t seed, skv_data_file *file, skv_error *err);
void skv_data_file_close(skv_data_file *file);

/**
 * Appends the document at *position, at most `room` tokens of it, and advances *position past it.
 * In a text or token file, a document is a piece as long as the room. A line of JSON longer than
 * `room` leaves *taken false and appends nothing, unless `cut` allows cutting it.
 */
SKV_MUST_CHECK skv_status skv_data_file_take(const skv_data_file *file, const skv_data_writer *w,
                                             uint64_t *position, size_t room, bool cut, bool *taken,
                                             skv_data_tokens *out, skv_error *err);

/** How often the file has been read to its end at this position. */
uint64_t skv_data_file_epoch(const skv_data_file *file, uint64_t position);

#endif
