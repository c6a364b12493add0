/*
 * API keys and their rates. The file has one key a line, followed by rpm=N and tpm=N if the key has
 * rates of its own; '#' begins a comment. Thread-safe, but for opening and freeing.
 */
#ifndef SKV_SERVER_API_KEYS_H
#define SKV_SERVER_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { API_KEYS_MAX = 4096 };

typedef struct rate_limits {
    double requests, tokens; /* a minute; 0: any number */
} rate_limits;

typedef struct api_keys api_keys;

/* On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. A file without keys is refused. */
bool api_keys_open(const char *path, api_keys **out, char *error);
void api_keys_free(api_keys *keys);
/** Reads the file again; on failure the old keys stay. A key that stays keeps its number. */
bool api_keys_reload(api_keys *keys, char *error);
/** The number of a key, from 1 on; 0: there is no such key. Takes the same time for every key
 * that could be. */
uint64_t api_keys_find(api_keys *keys, const char *key);
/** Whether there is more than one of them. */
bool api_keys_are_several(api_keys *keys);
/** Changes the rates that the key's line sets. */
void api_keys_limits(api_keys *keys, uint64_t number, rate_limits *limits);

/*
 * ---- rates: requests and tokens a minute ----
 *
 * A bucket holds a minute's worth and fills up evenly. A request is let in while there is one
 * request left, and any tokens; its number of tokens is known later, so the bucket may go below
 * zero, and the next request waits for that.
 */

/* Of one bucket, for the headers. */
typedef struct rate_left {
    double limit, left; /* limit 0: none, nothing is told; left >= 0 */
    double full_s;      /* until it is full */
} rate_left;

typedef struct rate_report {
    rate_left requests, tokens;
    bool refused;
    double retry_s; /* of a refused request: when the next one will be let in */
    bool by_tokens; /* and the bucket that was empty */
} rate_report;

typedef struct rate_table rate_table;

/** For at most n_keys keys at a time; NULL: no memory. */
rate_table *rates_create(size_t n_keys);
void rates_free(rate_table *table);
/** Counts a request of a key, or refuses it; `now_ns` as skv_now_ns tells it. */
void rates_take(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns,
                rate_report *out);
/** Counts tokens. */
void rates_use(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns,
               size_t n_tokens);
/** How full the buckets are. */
void rates_look(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns,
                rate_report *out);

#endif
