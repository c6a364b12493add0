/* API keys and their rates: see api_keys.h. */
#include "state/api_keys.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skv/error.h"

enum { KEY_BYTES = 256, LINE_BYTES = 4096 };

static const double RATE_MAX = 1e12;

/* A key filled up with zeros: comparing two takes the same time whatever they hold. */
typedef struct api_key {
    char text[KEY_BYTES];
    uint64_t number;
    rate_limits limits; /* below 0: the line says nothing */
} api_key;

struct api_keys {
    char *path;           /* owned */
    pthread_mutex_t lock; /* guards the fields below */
    api_key *at;          /* owned, [n] */
    size_t n;
    uint64_t last_number;
};

typedef struct key_list {
    api_key *at; /* owned, [n] */
    size_t n;
} key_list;

static bool fail(char *error, const char *path, const char *what)
{
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s: %s", path, what);
    return false;
}

static bool fail_limit(char *error, const char *path, const char *what, int most, const char *units)
{
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s: %s %d %s", path, what, most, units);
    return false;
}

/* The word at *line, which moves past it; NULL: the line has no more. */
static char *next_word(char **line)
{
    static const char blanks[] = " \t\r\n";
    char *word = *line + strspn(*line, blanks);
    size_t n = strcspn(word, blanks);
    if (n == 0 || *word == '#') return NULL;
    *line = word + n + (word[n] != 0);
    word[n] = 0;
    return word;
}

/* "rpm=60" */
static bool read_rate(const char *word, rate_limits *limits, const char *path, char *error)
{
    char *end = NULL;
    const bool requests = strncmp(word, "rpm=", 4) == 0, tokens = strncmp(word, "tpm=", 4) == 0;
    const double value = requests || tokens ? strtod(word + 4, &end) : -1;
    if (!end || end == word + 4 || *end != 0 || !(value >= 0 && value <= RATE_MAX)) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX,
                       "%s: \"%.40s\" after a key is neither rpm=N nor tpm=N", path, word);
        return false;
    }
    *(requests ? &limits->requests : &limits->tokens) = value;
    return true;
}

static bool add_key(key_list *list, const char *key, const char *path, char *error)
{
    const size_t n = strlen(key);
    if (n >= KEY_BYTES) {
        return fail_limit(error, path, "a key has more than", KEY_BYTES - 1, "bytes");
    }
    if (list->n == API_KEYS_MAX) return fail_limit(error, path, "more than", API_KEYS_MAX, "keys");
    api_key *more = realloc(list->at, (list->n + 1) * sizeof *more);
    if (!more) return fail(error, path, "no memory");
    list->at = more;
    more += list->n++;
    *more = (api_key){.limits = {-1, -1}};
    memcpy(more->text, key, n + 1);
    return true;
}

static bool add_line(key_list *list, char *line, const char *path, char *error)
{
    const char *word = next_word(&line);
    if (!word) return true;
    if (!add_key(list, word, path, error)) return false;
    while ((word = next_word(&line))) {
        if (!read_rate(word, &list->at[list->n - 1].limits, path, error)) return false;
    }
    return true;
}

static bool read_keys(const char *path, key_list *list, char *error)
{
    FILE *file = fopen(path, "re");
    if (!file) return fail(error, path, strerror(errno));
    char line[LINE_BYTES];
    bool ok = true;
    while (ok && fgets(line, sizeof line, file)) {
        if (!strchr(line, '\n') && strlen(line) + 1 == sizeof line) {
            ok = fail_limit(error, path, "a line has more than", LINE_BYTES - 1, "bytes");
            break;
        }
        ok = add_line(list, line, path, error);
    }
    if (ok && ferror(file) != 0) ok = fail(error, path, "cannot be read");
    if (ok && list->n == 0) ok = fail(error, path, "holds no key");
    fclose(file);
    return ok;
}

/* 0 for equal keys; looks at every byte. */
static unsigned difference(const char *a, const char *b)
{
    unsigned bits = 0;
    for (size_t i = 0; i < KEY_BYTES; i++) bits |= (unsigned)(a[i] ^ b[i]) & 0xffU;
    return bits;
}

static uint64_t find(const api_key *at, size_t n, const char *padded)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        /* All ones where the keys are equal, without a branch. */
        const uint64_t equal = ((uint64_t)difference(at[i].text, padded) - 1) >> 63;
        number |= at[i].number & (0 - equal);
    }
    return number;
}

bool api_keys_reload(api_keys *keys, char *error)
{
    key_list list = {0};
    if (!read_keys(keys->path, &list, error)) {
        free(list.at);
        return false;
    }
    pthread_mutex_lock(&keys->lock);
    for (size_t i = 0; i < list.n; i++) {
        uint64_t number = find(keys->at, keys->n, list.at[i].text);
        if (number == 0) number = find(list.at, i, list.at[i].text);
        list.at[i].number = number != 0 ? number : ++keys->last_number;
        for (size_t j = 0; j < i; j++) {
            if (list.at[j].number == list.at[i].number) list.at[i].number = 0;
        }
    }
    free(keys->at);
    keys->at = list.at;
    keys->n = list.n;
    pthread_mutex_unlock(&keys->lock);
    return true;
}

bool api_keys_open(const char *path, api_keys **out, char *error)
{
    api_keys *keys = calloc(1, sizeof *keys);
    if (!keys) return fail(error, path, "no memory");
    pthread_mutex_init(&keys->lock, NULL);
    const size_t n = strlen(path) + 1;
    keys->path = malloc(n);
    if (!keys->path) {
        api_keys_free(keys);
        return fail(error, path, "no memory");
    }
    memcpy(keys->path, path, n);
    if (!api_keys_reload(keys, error)) {
        api_keys_free(keys);
        return false;
    }
    *out = keys;
    return true;
}

void api_keys_free(api_keys *keys)
{
    if (!keys) return;
    pthread_mutex_destroy(&keys->lock);
    free(keys->at);
    free(keys->path);
    free(keys);
}

uint64_t api_keys_find(api_keys *keys, const char *key)
{
    char padded[KEY_BYTES] = {0};
    const size_t n = strlen(key);
    if (n == 0 || n >= KEY_BYTES) return 0;
    memcpy(padded, key, n + 1);
    pthread_mutex_lock(&keys->lock);
    const uint64_t number = find(keys->at, keys->n, padded);
    pthread_mutex_unlock(&keys->lock);
    return number;
}

/* A key that the file has twice has a number once. */
bool api_keys_are_several(api_keys *keys)
{
    size_t n = 0;
    pthread_mutex_lock(&keys->lock);
    for (size_t i = 0; i < keys->n && n < 2; i++) n += keys->at[i].number != 0;
    pthread_mutex_unlock(&keys->lock);
    return n > 1;
}

void api_keys_limits(api_keys *keys, uint64_t number, rate_limits *limits)
{
    pthread_mutex_lock(&keys->lock);
    for (size_t i = 0; number != 0 && i < keys->n; i++) {
        if (keys->at[i].number != number) continue;
        if (keys->at[i].limits.requests >= 0) limits->requests = keys->at[i].limits.requests;
        if (keys->at[i].limits.tokens >= 0) limits->tokens = keys->at[i].limits.tokens;
    }
    pthread_mutex_unlock(&keys->lock);
}

/* ---- rates ---- */

/* Holds the tokens that its buckets lack, so that limits may change. */
typedef struct rate_entry {
    uint64_t key, at_ns;     /* when it was last brought up to date */
    double requests, tokens; /* missing */
} rate_entry;

struct rate_table {
    pthread_mutex_t lock; /* guards the fields below */
    size_t n;
    rate_entry at[]; /* [n] */
};

static const double MINUTE_S = 60;

rate_table *rates_create(size_t n_keys)
{
    rate_table *table = calloc(1, sizeof *table + n_keys * sizeof(rate_entry));
    if (!table) return NULL;
    pthread_mutex_init(&table->lock, NULL);
    table->n = n_keys;
    return table;
}

void rates_free(rate_table *table)
{
    if (!table) return;
    pthread_mutex_destroy(&table->lock);
    free(table);
}

static double refill(double missing, double limit, double seconds)
{
    missing -= limit / MINUTE_S * seconds;
    return limit > 0 && missing > 0 ? missing : 0;
}

/* The key's entry as of now. A key without one gets the place that was unused for longest: there
 * are as many places as keys, so that place is free, or belongs to a key that is gone. */
static rate_entry *entry_of(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns)
{
    rate_entry *best = &table->at[0];
    for (size_t i = 0; i < table->n; i++) {
        rate_entry *e = &table->at[i];
        if (e->key == key && e->at_ns != 0) {
            const double seconds = now_ns > e->at_ns ? (double)(now_ns - e->at_ns) * 1e-9 : 0;
            e->requests = refill(e->requests, limits.requests, seconds);
            e->tokens = refill(e->tokens, limits.tokens, seconds);
            e->at_ns = now_ns;
            return e;
        }
        if (e->at_ns < best->at_ns) best = e; /* unused places have 0 */
    }
    *best = (rate_entry){.key = key, .at_ns = now_ns};
    return best;
}

static rate_left left_of(double missing, double limit)
{
    if (!(limit > 0)) return (rate_left){0};
    const double left = limit - missing;
    return (rate_left){
        .limit = limit, .left = left > 0 ? left : 0, .full_s = missing / limit * MINUTE_S};
}

static void report(const rate_entry *e, rate_limits limits, rate_report *out)
{
    *out = (rate_report){.requests = left_of(e->requests, limits.requests),
                         .tokens = left_of(e->tokens, limits.tokens)};
}

void rates_take(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns,
                rate_report *out)
{
    double requests_s = 0, tokens_s = 0;
    pthread_mutex_lock(&table->lock);
    rate_entry *e = entry_of(table, key, limits, now_ns);
    /* With a limit below one request a minute, a whole request may still start. */
    const double room = limits.requests < 1 ? 1 : limits.requests;
    if (limits.requests > 0 && e->requests + 1 > room) {
        requests_s = (e->requests + 1 - room) / limits.requests * MINUTE_S;
    }
    if (limits.tokens > 0 && e->tokens >= limits.tokens) {
        tokens_s = (e->tokens - limits.tokens + 1) / limits.tokens * MINUTE_S;
    }
    const bool refused = requests_s > 0 || tokens_s > 0;
    if (!refused) e->requests++;
    report(e, limits, out);
    pthread_mutex_unlock(&table->lock);
    out->refused = refused;
    out->by_tokens = tokens_s > requests_s;
    out->retry_s = out->by_tokens ? tokens_s : requests_s;
}

void rates_use(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns,
               size_t n_tokens)
{
    pthread_mutex_lock(&table->lock);
    entry_of(table, key, limits, now_ns)->tokens += (double)n_tokens;
    pthread_mutex_unlock(&table->lock);
}

void rates_look(rate_table *table, uint64_t key, rate_limits limits, uint64_t now_ns,
                rate_report *out)
{
    pthread_mutex_lock(&table->lock);
    report(entry_of(table, key, limits, now_ns), limits, out);
    pthread_mutex_unlock(&table->lock);
}
