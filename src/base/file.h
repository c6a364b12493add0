/* Files: read-only maps, whole small files, and writes that are complete or absent. */
#ifndef SKV_BASE_FILE_H
#define SKV_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/fail.h"

/*
 * A file may be truncated while it is mapped (another process overwrites it), and touching a page
 * after its new end would kill the process. A library cannot catch that. Data that is read once is
 * therefore read through the map between two checks; data that is read throughout the program's
 * life is fetched.
 */
typedef struct skv_file_map {
    const unsigned char *data; /* owned; NULL when size is 0 */
    size_t size;               /* bytes, as the file was when it was opened */
    char *path;                /* owned; NULL: nothing is open */
    int fd;                    /* owned */
} skv_file_map;

/** Maps a regular file read-only. */
SKV_MUST_CHECK skv_status skv_file_map_open(const char *path, skv_file_map *map, skv_error *err);
void skv_file_map_close(skv_file_map *map);
/** Whether the file is still as long as it was, in one call to the system. */
SKV_MUST_CHECK skv_status skv_file_map_check(const skv_file_map *map, skv_error *err);
/** Copies n_bytes at `at`, a place inside the map, out of the file and not through the map. */
SKV_MUST_CHECK skv_status skv_file_map_fetch(const skv_file_map *map, const void *at,
                                             size_t n_bytes, void *out, skv_error *err);
/** Lets the system drop the resident pages of this range of a map; they are read again on use. */
void skv_file_map_forget(const void *data, size_t n_bytes);

/** Reads a whole file of at most `max` bytes; *data has a terminating zero, free with skv_free. */
SKV_MUST_CHECK skv_status skv_file_read(const char *path, size_t max, char **data, size_t *size,
                                        skv_error *err);

bool skv_file_exists(const char *path);
bool skv_file_is_folder(const char *path);
/** Whether both paths lead to one file or folder. */
bool skv_file_is_same(const char *path, const char *other);
/** Creates a folder if it is not there; its parent must be. */
SKV_MUST_CHECK skv_status skv_folder_create(const char *path, skv_error *err);
/** "folder/name" on the heap, NULL when out of memory. */
char *skv_path_join(const char *folder, const char *name);
/** True when the folder has a file of that name; false also without memory. */
bool skv_folder_has(const char *folder, const char *name);

/*
 * A file being written: bytes go to "PATH.tmp-PID"; commit flushes, syncs, renames to PATH and
 * syncs the folder; anything else leaves PATH as it was.
 */
typedef struct skv_writer {
    FILE *stream;    /* owned */
    char *path;      /* owned */
    char *temporary; /* owned */
} skv_writer;

SKV_MUST_CHECK skv_status skv_writer_open(skv_writer *writer, const char *path, skv_error *err);
SKV_MUST_CHECK skv_status skv_writer_put(skv_writer *writer, const void *data, size_t n,
                                         skv_error *err);
/** Renames the file into place and releases the writer; on failure PATH is untouched. */
SKV_MUST_CHECK skv_status skv_writer_commit(skv_writer *writer, skv_error *err);
/** Removes the temporary file; harmless after commit and on a zeroed writer. */
void skv_writer_abort(skv_writer *writer);

/** Removes the temporary files of processes that no longer exist from a folder; a killed process
 * cannot do so itself. Best effort. */
void skv_writer_clean(const char *folder);

/** Writes a whole file that way. */
SKV_MUST_CHECK skv_status skv_file_write(const char *path, const void *data, size_t n,
                                         skv_error *err);

#endif
