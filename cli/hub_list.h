/** The hub's list of a model's files: which of them are needed. Nothing in it is trusted. */
#ifndef SKV_CLI_HUB_LIST_H
#define SKV_CLI_HUB_LIST_H

#include "hub_place.h"

typedef struct hub_file {
    char *path;              /* owned: in the repository, without ".." and such */
    char hash[HUB_HASH_MAX]; /* hexadecimal: the blob's name */
    bool is_sha256;          /* else git's SHA-1 of a blob */
    bool wanted;
    uint64_t bytes;
} hub_file;

typedef struct hub_list {
    char commit[HUB_HASH_MAX];
    hub_file *at; /* [n], owned */
    size_t n;
} hub_list;

/** Reads the answer to /api/models/org/name/revision/R?blobs=true. */
bool hub_list_parse(const char *text, size_t n_bytes, hub_list *out, hub_error *error);
void hub_list_release(hub_list *list);

/** Marks the files of a name; *index is the file that lists the parts of the weights, NULL if there
 * is none. */
bool hub_list_choose(hub_list *list, const hub_name *name, const hub_file **index,
                     hub_error *error);
/** Marks the parts of the weights that the index names. */
bool hub_list_choose_parts(hub_list *list, const char *path, hub_error *error);

#endif
