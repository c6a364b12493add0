/* API keys: a file with one key a line, behind it rpm=N and tpm=N where it has rates of its own;
 * '#' begins a comment. */
#ifndef SKV_SERVER_API_KEYS_H
#define SKV_SERVER_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rates.h"

enum { API_KEYS_MAX = 4096 };

typedef struct api_keys api_keys;

/* On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. A file without keys is refused. */
bool api_keys_open(const char *path, api_keys **out, char *error);
void api_keys_free(api_keys *keys);
/** Reads the file again; on failure the old keys stay. A key that stays keeps its number. */
bool api_keys_reload(api_keys *keys, char *error);
/** The number of a key, from 1 on; 0: there is no such key. Takes the same time for every key
 * that could be. Thread-safe. */
uint64_t api_keys_find(api_keys *keys, const char *key);
/** Changes what the key's line says. Thread-safe. */
void api_keys_limits(api_keys *keys, uint64_t number, rate_limits *limits);

#endif
