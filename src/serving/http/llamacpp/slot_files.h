/*
 * The files of --slot-save-path. Clients name them, so all together they have at most
 * --slot-save-bytes and LIMIT_SLOT_FILES files. With API keys a key's files have names of their
 * own, and may take three times the room that they leave, as a key's memory may (skv/budget.h): no
 * key takes the room of all others.
 */
#ifndef SKV_SERVER_SLOT_FILES_H
#define SKV_SERVER_SLOT_FILES_H

#include "transport/exchange.h"

enum { SLOT_NAME_BYTES = 128, SLOT_FILE_BYTES = 4 + 64 + SLOT_NAME_BYTES };

/* A file of the request's key. */
typedef struct slot_file {
    const char *filename; /* borrowed: as the client calls it */
    char
        name[SLOT_FILE_BYTES]; /* in the folder: n_own bytes that begin the key's names, and that */
    size_t n_own;
} slot_file;

/** Takes a client's name, a JSON value or NULL; false with an error where it is none. */
bool slot_file_name(const exchange *ex, const json_t *filename, slot_file *out, api_error *error);
/** Writes a file, or replaces it; false with an error, and then the folder is as it was. */
bool slot_file_write(const exchange *ex, const slot_file *file, const skv_buf *text,
                     api_error *error);
/** The descriptor of a file, -1: it cannot be read. */
int slot_file_open(const exchange *ex, const slot_file *file);

#endif
