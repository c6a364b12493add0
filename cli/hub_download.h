/**
 * Fetches the files of a model from the hub into the Hugging Face cache, in the form that Python's
 * tools know. A request leaves only from here, after --download or a yes on a terminal.
 *
 *     CACHE/.locks/models--org--name/HASH.lock      who fetches this file; names.lock: who names
 * files CACHE/models--org--name/blobs/HASH            a file; HASH.incomplete while it is fetched
 *     CACHE/models--org--name/snapshots/COMMIT/...  links to blobs
 *     CACHE/models--org--name/refs/REVISION         the commit, written when all files are there
 */
#ifndef SKV_CLI_HUB_DOWNLOAD_H
#define SKV_CLI_HUB_DOWNLOAD_H

#include "hub_place.h"

/** Whether this program can ask a hub: it was built with libcurl. */
bool hub_download_is_built(void);
/**
 * Fetches what the cache lacks of a model: its configuration, tokenizer and weights, or the GGUF
 * file that was asked for. What is interrupted goes on where it was. Shows how far it is.
 */
bool hub_download(const char *given, const hub_place *place, hub_error *error);

#endif
