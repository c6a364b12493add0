/**
 * Fetches the files of a model from the hub into the Hugging Face cache, in the layout of Python's
 * tools. This is the only code that sends requests, after --download or a yes on a terminal.
 *
 *     CACHE/.locks/models--org--name/HASH.lock      held while this file is fetched
 *     CACHE/.locks/models--org--name/names.lock     held while files are linked
 *     CACHE/models--org--name/blobs/HASH            a file; HASH.incomplete while it is fetched
 *     CACHE/models--org--name/snapshots/COMMIT/...  links to blobs
 *     CACHE/models--org--name/refs/REVISION         the commit, written when all files are there
 */
#ifndef SKV_CLI_HUB_DOWNLOAD_H
#define SKV_CLI_HUB_DOWNLOAD_H

#include "hub_place.h"

/** Whether this program can ask a hub: it was built with libcurl. */
bool hub_download_is_built(void);
/**
 * Fetches the files of a model that the cache lacks: its configuration, tokenizer and weights, or
 * the requested GGUF file. Resumes interrupted downloads. Shows its progress.
 */
bool hub_download(const char *given, const hub_place *place, hub_error *error);

#endif
