/* The instances of a store: see redis_store.h. */
#include "redis_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "redis_impl.h"

enum { KEY_BYTES = 64, CONNECT_STEP_MS = 2, STEP_MS = 20, IDLE_MS = 100, TELL_MAX = 4 };

static const uint64_t CONNECT_NS = 250000000u; /* at the start, for those that are there */
static const uint64_t TELL_NS = 5000000000u;   /* in which there are TELL_MAX lines about one */
static const uint64_t FULL_NS = 500000000u;    /* until something is put again */

struct redis_store {
    double seconds; /* that an answer may take */
    redis_address addresses[REDIS_INSTANCES_MAX];
    size_t n;
    redis_tls *tls; /* owned; NULL: plain */
    char greeting[REDIS_AUTH_BYTES + 128];
    size_t n_greeting, n_greeting_replies;
};

/* The open state of one scheduler; one thread uses it at a time. */
typedef struct instances {
    const redis_store *store;
    redis_link links[REDIS_INSTANCES_MAX];
    uint64_t full_ns[REDIS_INSTANCES_MAX]; /* when it last did not take something; 0: never */
    bool came_up;                          /* one of them, since this was told */
} instances;

/* ---- up and down ---- */

static void tell(redis_link *link, uint64_t now)
{
    bool up = link->state == REDIS_UP, first = link->told_ns == 0;
    if (!first && up == link->told_up) return;
    if (first || now - link->told_ns > TELL_NS) {
        link->told_ns = now;
        link->n_told = 0;
    }
    if (link->n_told == TELL_MAX) return;
    link->n_told++;
    link->told_up = up;
    fprintf(stderr, "swiftkv: cache-store: %s:%s: %s%s\n", link->address->host, link->address->port,
            up ? "connected" : link->why, up ? "" : ": not used until it answers");
}

static size_t advance_all(instances *all, bool tells)
{
    size_t n_up = 0;
    uint64_t now = redis_now_ns();
    for (size_t i = 0; i < all->store->n; i++) {
        redis_link *link = &all->links[i];
        if (redis_link_advance(link, now)) all->came_up = true;
        n_up += link->state == REDIS_UP;
        if (tells) tell(link, now);
    }
    return n_up;
}

static void tend(void *link, skv_block_store_state *state)
{
    instances *all = link;
    state->n_up = advance_all(all, true);
    state->lost = all->came_up;
    all->came_up = false;
    bool moves = false;
    for (size_t i = 0; i < all->store->n; i++) {
        redis_state s = all->links[i].state;
        moves = moves || (s != REDIS_UP && s != REDIS_DOWN);
    }
    state->wait_ms = moves ? CONNECT_STEP_MS : state->n_up < all->store->n ? STEP_MS : IDLE_MS;
}

static void pause_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&pause, NULL);
}

static skv_status open_links(void *user, void **link, skv_error *err)
{
    const redis_store *store = user;
    instances *all = calloc(1, sizeof *all);
    SKV_REQUIRE(all, err, SKV_MEMORY, "cache-store: no memory");
    all->store = store;
    for (size_t i = 0; i < store->n; i++) {
        redis_link_init(&all->links[i], &store->addresses[i]);
        all->links[i].answer_ns = (uint64_t)(1e9 * store->seconds);
        all->links[i].tls = store->tls;
        all->links[i].greeting = store->greeting;
        all->links[i].n_greeting = store->n_greeting;
        all->links[i].n_greeting_replies = store->n_greeting_replies;
    }
    const uint64_t end = redis_now_ns() + CONNECT_NS;
    while (advance_all(all, false) < store->n && redis_now_ns() < end) pause_ms(CONNECT_STEP_MS);
    *link = all;
    return SKV_OK;
}

static void close_links(void *link)
{
    instances *all = link;
    for (size_t i = 0; i < all->store->n; i++) redis_link_release(&all->links[i]);
    free(all);
}

/* ---- blocks ---- */

/* The instance of a name among those that are up; -1: none is. */
static int choose(const instances *all, const uint8_t *name)
{
    int best = -1;
    uint64_t best_rank = 0;
    for (size_t i = 0; i < all->store->n; i++) {
        if (all->links[i].state != REDIS_UP) continue;
        uint64_t rank = redis_rank(&all->store->addresses[i], name);
        if (best >= 0 && rank <= best_rank) continue;
        best = (int)i;
        best_rank = rank;
    }
    return best;
}

static void make_key(const uint8_t *name, char key[KEY_BYTES])
{
    int n = snprintf(key, KEY_BYTES, "skv:");
    for (size_t i = 0; i < SKV_CACHE_NAME_BYTES; i++, n += 2) {
        (void)snprintf(key + n, KEY_BYTES - (size_t)n, "%02x", name[i]);
    }
}

static skv_status get(void *link, const uint8_t *name, size_t n_max, const unsigned char **data,
                      size_t *n_bytes, skv_error *err)
{
    instances *all = link;
    char key[KEY_BYTES];
    int i = choose(all, name);
    SKV_REQUIRE(i >= 0, err, SKV_CANCELLED, "no instance answers");
    make_key(name, key);
    return redis_link_get(&all->links[i], key, n_max, data, n_bytes, err);
}

/* An instance that says that it is full, or that it does not let us, is not sent more at once. */
static skv_status put(void *link, const uint8_t *name, const skv_block_value *value, skv_error *err)
{
    instances *all = link;
    char key[KEY_BYTES];
    int i = choose(all, name);
    SKV_REQUIRE(i >= 0, err, SKV_CANCELLED, "no instance answers");
    uint64_t now = redis_now_ns();
    SKV_REQUIRE(all->full_ns[i] == 0 || now - all->full_ns[i] > FULL_NS, err, SKV_CANCELLED,
                "it takes nothing");
    make_key(name, key);
    skv_status status = redis_link_put(&all->links[i], key, value, err);
    all->full_ns[i] = status == SKV_FULL ? now : 0;
    return status;
}

enum { TOUCHED_MAX = 32, TOUCH_BYTES = TOUCHED_MAX * (KEY_BYTES + 16) + 64 };

/* Of some names those of instance i. */
static void touch_there(instances *all, int i, const uint8_t *names, size_t n)
{
    char words[TOUCH_BYTES], command[TOUCH_BYTES + 64], key[KEY_BYTES];
    size_t n_words = 1, n_bytes = 0;
    for (size_t k = 0; k < n; k++, names += SKV_CACHE_NAME_BYTES) {
        if (choose(all, names) != i) continue;
        make_key(names, key);
        n_bytes += (size_t)snprintf(words + n_bytes, sizeof words - n_bytes, "$%zu\r\n%s\r\n",
                                    strlen(key), key);
        n_words++;
    }
    if (n_words == 1) return;
    const int n_all = snprintf(command, sizeof command, "*%zu\r\n$5\r\nTOUCH\r\n%.*s", n_words,
                               (int)n_bytes, words);
    redis_link_touch(&all->links[i], command, (size_t)n_all);
}

static void touch(void *link, const uint8_t *names, size_t n)
{
    instances *all = link;
    for (size_t first = 0; first < n; first += TOUCHED_MAX) {
        const size_t n_now = n - first < TOUCHED_MAX ? n - first : TOUCHED_MAX;
        for (size_t i = 0; i < all->store->n; i++) {
            if (all->links[i].state != REDIS_UP) continue;
            touch_there(all, (int)i, names + first * SKV_CACHE_NAME_BYTES, n_now);
        }
    }
}

/* ---- life ---- */

static skv_status read_options(redis_store *store, const redis_options *options, skv_error *err)
{
    bool tls;
    store->seconds = options->seconds;
    SKV_TRY(redis_parse(options->addresses, store->addresses, &store->n, &tls, err));
    SKV_TRY(redis_read_auth(options->auth_file, store->greeting, sizeof store->greeting,
                            &store->n_greeting, &store->n_greeting_replies, err));
    bool has_tls_files = options->ca_file || options->cert_file || options->key_file;
    SKV_REQUIRE(tls || !has_tls_files, err, SKV_ARGUMENT,
                "cache-store: certificates are for rediss://");
    return tls ? redis_tls_open(options, &store->tls, err) : SKV_OK;
}

skv_status redis_store_open(const redis_options *options, redis_store **out, skv_error *err)
{
    redis_store *store = calloc(1, sizeof *store);
    SKV_REQUIRE(store, err, SKV_MEMORY, "cache-store: no memory");
    skv_status status = read_options(store, options, err);
    if (status == SKV_OK) {
        *out = store;
    } else {
        redis_store_close(store);
    }
    return status;
}

void redis_store_close(redis_store *store)
{
    if (!store) return;
    redis_tls_close(store->tls);
    free(store);
}

skv_block_store redis_store_table(redis_store *store)
{
    return (skv_block_store){.user = store,
                             .seconds = store->seconds,
                             .open = open_links,
                             .close = close_links,
                             .get = get,
                             .put = put,
                             .tend = tend,
                             .touch = touch};
}
