/* Rates: see rates.h. An entry holds what is missing from its buckets, so that limits may change.
 */
#include "rates.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct rate_entry {
    uint64_t key, at_ns;     /* when it was last brought up to date */
    double requests, tokens; /* missing */
} rate_entry;

struct rate_table {
    pthread_mutex_t lock; /* guards what follows */
    size_t n;
    rate_entry at[]; /* [n] */
};

static const double MINUTE_S = 60;

rate_table *rates_create(size_t n_keys)
{
    rate_table *table = calloc(1, sizeof *table + n_keys * sizeof(rate_entry));
    if (table == NULL) return NULL;
    pthread_mutex_init(&table->lock, NULL);
    table->n = n_keys;
    return table;
}

void rates_free(rate_table *table)
{
    if (table == NULL) return;
    pthread_mutex_destroy(&table->lock);
    free(table);
}

static double refill(double missing, double limit, double seconds)
{
    missing -= limit / MINUTE_S * seconds;
    return limit > 0 && missing > 0 ? missing : 0;
}

/* The key's entry as of now. Where it has none it gets the place that was not looked at for
 * longest: there are as many places as keys, so that is a place nobody had, or of a key that is
 * gone. */
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
    /* Limits below one request: a whole one is enough all the same. */
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
