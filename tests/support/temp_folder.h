/* A folder for what a test writes. A test that includes this defines _XOPEN_SOURCE 700 first. */
#ifndef SKV_TESTS_TEMP_FOLDER_H
#define SKV_TESTS_TEMP_FOLDER_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* nftw; alone, this header is only compiled to check it */
#endif

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static inline int temp_folder_remove_entry(const char *path, const struct stat *info, int type,
                                           struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    return remove(path);
}

/** Removes the folder with all that it holds; 0 when that worked. */
static inline int temp_folder_remove(const char *path)
{
    return nftw(path, temp_folder_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/** A new folder whose name tells of the test, as cmocka's state; 0 when that worked. */
static inline int temp_folder_make(void **state, const char *name)
{
    enum { PATH_BYTES = 4096 };
    const char *base = getenv("TMPDIR");
    char *path = malloc(PATH_BYTES);
    const int n =
        path ? snprintf(path, PATH_BYTES, "%s/skv-test-%s-XXXXXX", base ? base : "/tmp", name) : -1;
    *state = n > 0 && n < PATH_BYTES ? mkdtemp(path) : NULL;
    if (!*state) free(path);
    return *state ? 0 : -1;
}

/** Removes what temp_folder_make made. */
static inline int temp_folder_drop(void **state)
{
    const int status = temp_folder_remove(*state);
    free(*state);
    return status;
}

#endif
