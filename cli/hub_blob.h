/** The files of the cache that a download writes: see the map in hub_download.h. */
#ifndef SKV_CLI_HUB_BLOB_H
#define SKV_CLI_HUB_BLOB_H

#include <nettle/sha1.h>
#include <nettle/sha2.h>

#include "hub_list.h"

/* A file while it is fetched. */
typedef struct hub_blob {
    const hub_file *file; /* borrowed */
    char path[CLI_HUB_PATH_MAX], incomplete[CLI_HUB_PATH_MAX];
    int lock, fd;   /* -1: not open */
    uint64_t bytes; /* that are written and hashed */
    struct sha1_ctx sha1;
    struct sha256_ctx sha256;
} hub_blob;

typedef enum hub_blob_state {
    HUB_BLOB_FAILED,
    HUB_BLOB_THERE, /* nothing is open */
    HUB_BLOB_BUSY,  /* another process fetches it; nothing is open */
    HUB_BLOB_OPEN
} hub_blob_state;

/** Locks a file and opens the part that was fetched before. */
hub_blob_state hub_blob_open(const hub_place *place, const hub_file *file, hub_blob *out,
                             hub_error *error);
bool hub_blob_write(hub_blob *blob, const void *data, size_t n, hub_error *error);
/** Discards the fetched part. */
bool hub_blob_restart(hub_blob *blob, hub_error *error);
/** Whether the file is complete and has the right hash. */
bool hub_blob_is_right(const hub_blob *blob);
/** Gives a right file its name. */
bool hub_blob_finish(hub_blob *blob, hub_error *error);
/** Releases the lock and keeps the fetched part. */
void hub_blob_close(hub_blob *blob);

/** Whether the cache has a file, and how much of it while it is fetched. */
bool hub_blob_is_there(const hub_place *place, const hub_file *file, uint64_t *bytes);
/** Begins the linking of files, which one process does at a time; first removes the leftovers of a
 * killed process. hub_names_end follows. */
bool hub_names_begin(const hub_place *place, int *lock, hub_error *error);
void hub_names_end(int lock);
/** snapshots/COMMIT/PATH becomes a link to the blob. */
bool hub_link(const hub_place *place, const char *commit, const hub_file *file, hub_error *error);
/** refs/REVISION becomes the commit. */
bool hub_write_ref(const hub_place *place, const char *commit, hub_error *error);
/** The path of blobs/HASH. */
bool hub_blob_path(const hub_place *place, const hub_file *file, const char *suffix,
                   char out[CLI_HUB_PATH_MAX]);
/** Whether the disk has room for this many more bytes; true if unknown. */
bool hub_has_room(const hub_place *place, uint64_t bytes, hub_error *error);

#endif
