/* One folder for all tests of a program: the two functions are cmocka's for its group. A test that
 * includes this defines _XOPEN_SOURCE 700 first. */
#ifndef SKV_TESTS_GROUP_FOLDER_H
#define SKV_TESTS_GROUP_FOLDER_H

#include "temp_folder.h"

enum { GROUP_PATH_BYTES = 256 };

static char group_folder[] = "/tmp/skv-test-XXXXXX";

static inline int group_folder_make(void **state)
{
    (void)state;
    return !mkdtemp(group_folder);
}

static inline int group_folder_drop(void **state)
{
    (void)state;
    return temp_folder_remove(group_folder);
}

/** The path of a name in the folder, written to buf. */
static inline const char *group_folder_path(char buf[GROUP_PATH_BYTES], const char *name)
{
    (void)snprintf(buf, GROUP_PATH_BYTES, "%s/%s", group_folder, name);
    return buf;
}

#endif
