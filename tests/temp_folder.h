/* A folder for what a test writes. A test that includes this defines _XOPEN_SOURCE 700 first. */
#ifndef SKV_TESTS_TEMP_FOLDER_H
#define SKV_TESTS_TEMP_FOLDER_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* nftw; alone, this header is only compiled to check it */
#endif

#include <ftw.h>
#include <stdio.h>

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

#endif
