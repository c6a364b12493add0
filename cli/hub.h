/**
 * Models by name: "org/name", "org/name@revision" and "org/name:Q4_K_M" in the Hugging Face cache
 * of this machine, where Python's tools and other engines put their downloads. If the user agrees,
 * missing files are fetched from the hub (hub_download.h).
 *
 *     CACHE/models--org--name/refs/REVISION        the commit that a branch or tag stood for
 *     CACHE/models--org--name/snapshots/COMMIT/    the files of that commit
 */
#ifndef SKV_CLI_HUB_H
#define SKV_CLI_HUB_H

#include <stdbool.h>
#include <stddef.h>

#include "report.h"

enum { CLI_HUB_PATH_MAX = 4096 };

/** Whether a text has the form of a name, and no file or folder is called so. */
bool cli_hub_is_name(const char *text);
/**
 * The folder of a name, or its GGUF file where it asks for one or the folder has nothing else.
 *
 * The cache is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. With `download`, or after a question on a terminal, files that are
 * missing or have a newer commit on the hub are fetched. Prints errors.
 */
CLI_CHECKED int cli_hub_open(const char *name, bool download, char path[CLI_HUB_PATH_MAX]);

/** How many GGUF files of models a folder has (those of one in parts are one), and one of them. */
size_t cli_hub_gguf_in(const char *folder, char found[CLI_HUB_PATH_MAX]);
/** Prints where models are looked up, and whether they can be fetched. */
void cli_hub_describe(void);
/** The name of a model that the cache has; false: it has none. */
bool cli_hub_first(char name[CLI_HUB_PATH_MAX]);

#endif
