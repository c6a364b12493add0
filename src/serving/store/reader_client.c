/* Servers that read prompts for this one: see reader_client.h. */
#include "reader_client.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/system_sockets.h"
#include "reader_impl.h"

enum { EXCHANGES_MAX = 64, LOOK_MS = 200, TELL_MAX = 4, START_STEP_MS = 2 };

static const uint64_t CONNECT_NS = 1000000000u; /* at most, for a connection */
static const uint64_t START_NS = 250000000u;    /* at the start, for a reader that is there */
static const uint64_t RESOLVE_NS = 5000000000u; /* after which a name is looked up again */
static const uint64_t WAIT_MIN_NS = 100000000u, WAIT_MAX_NS = 2000000000u; /* between probes */
static const uint64_t FULL_NS = 1000000000u;      /* until it is asked again that was full, */
static const uint64_t MISMATCH_NS = 10000000000u; /* or has another model */
static const uint64_t TELL_NS = 5000000000u;      /* in which there are TELL_MAX lines */

struct reader_client {
    reader_address address;
    size_t above;
    double seconds;
};

/* The open state of one scheduler. */
typedef struct reader_link {
    const reader_client *client;
    void (*wake)(void *wake_user);
    void *wake_user;
    uint64_t silence_ns;
    skv_wake waker; /* of the thread */
    pthread_t thread;

    /* The thread's own. */
    struct addrinfo *found, *next; /* owned: the addresses of the host's name; the next to try */
    uint64_t found_ns;
    uint64_t told_ns; /* since when lines are counted; 0: none yet */
    size_t n_told;

    pthread_mutex_t lock;          /* guards the fields below, and parts of exchanges */
    bool stopping, up, was_asked;  /* was_asked: a probe has been answered, or has failed */
    uint64_t probe_ns;             /* when it is asked again whether it is there */
    uint64_t wait_ns;              /* between two such questions */
    uint64_t full_ns, mismatch_ns; /* until then it is not asked for more; 0: it is */
    reader_exchange *first;        /* owned */
    size_t n;
} reader_link;

/* The owner of an exchange, as schedulers see it. */
typedef struct reader_handle {
    reader_link *link;
    reader_exchange *ex; /* the link's */
} reader_handle;

/* ---- up and down; with the lock held ---- */

static void tell(reader_link *l, const char *what)
{
    const uint64_t now = reader_now_ns();
    if (l->told_ns == 0 || now - l->told_ns > TELL_NS) {
        l->told_ns = now;
        l->n_told = 0;
    }
    if (l->n_told++ >= TELL_MAX) return;
    fprintf(stderr, "swiftkv: prefill-from: %s:%s: %s\n", l->client->address.host,
            l->client->address.port, what);
}

static void go_down(reader_link *l, const char *why)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s: not used until it answers", why);
    if (l->up || !l->was_asked) tell(l, text);
    l->up = false;
    l->was_asked = true;
    l->probe_ns = reader_now_ns() + l->wait_ns;
    l->wait_ns = 2 * l->wait_ns < WAIT_MAX_NS ? 2 * l->wait_ns : WAIT_MAX_NS;
}

static void come_up(reader_link *l)
{
    if (!l->up) tell(l, "answers");
    l->up = l->was_asked = true;
}

/* The end of an exchange tells whether the reader works. */
static void learn(reader_link *l, const reader_exchange *ex, skv_reading state)
{
    const uint64_t now = reader_now_ns();
    switch (state) {
    case SKV_READING_DONE:
        if (!ex->probes) l->wait_ns = WAIT_MIN_NS;
        come_up(l);
        break;
    case SKV_READING_FULL: /* of a probe: it starts, and takes prompts as soon as it answers */
        if (ex->probes) {
            go_down(l, "it is not ready");
        } else {
            l->full_ns = now + FULL_NS;
        }
        break;
    case SKV_READING_MISMATCH:
        tell(l, "another model, key or version than here, so its blocks are of no use");
        l->mismatch_ns = now + MISMATCH_NS;
        break;
    case SKV_READING_AWAY: go_down(l, "no answer"); break;
    case SKV_READING_LOST: go_down(l, "it ended in the middle of a prompt"); break;
    case SKV_READING_SLOW: go_down(l, "no sign of life"); break;
    case SKV_READING_GARBAGE: go_down(l, "what it says makes no sense"); break;
    default:
        if (ex->probes) go_down(l, "/health is refused");
    }
}

/* ---- the thread ---- */

/* A name is looked up now and then only, since that may take time. */
static const struct addrinfo *next_address(reader_link *l)
{
    const uint64_t now = reader_now_ns();
    if (!l->found || now - l->found_ns > RESOLVE_NS) {
        const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
        struct addrinfo *found = NULL;
        const reader_address *to = &l->client->address;
        if (getaddrinfo(to->host, to->port, &hints, &found) == 0) {
            if (l->found) freeaddrinfo(l->found);
            l->found = found;
            l->next = NULL;
        }
        l->found_ns = now;
    }
    if (!l->next) l->next = l->found;
    const struct addrinfo *out = l->next;
    if (out) l->next = out->ai_next;
    return out;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool begin(reader_link *l, reader_exchange *ex)
{
    const struct addrinfo *to = next_address(l);
    ex->limit_ns = reader_now_ns() + smaller(l->silence_ns, CONNECT_NS);
    return to && reader_exchange_write(ex, &l->client->address) && reader_exchange_connect(ex, to);
}

/* One exchange without the lock; true: a caller wants to know. */
static bool advance(reader_link *l, reader_exchange *ex)
{
    skv_reading state = SKV_READING_ON;
    if (ex->phase == READER_ENDED) return false;
    const bool connects = ex->phase <= READER_CONNECTING;
    bool news = false;
    if (ex->phase == READER_NEW && !begin(l, ex)) state = SKV_READING_AWAY;
    if (state == SKV_READING_ON) news = reader_exchange_advance(ex, &state);
    const uint64_t now = reader_now_ns();
    if (news || (connects && ex->phase > READER_CONNECTING)) ex->limit_ns = now + l->silence_ns;
    if (state == SKV_READING_ON && now > ex->limit_ns) {
        state = ex->phase <= READER_STATUS ? SKV_READING_AWAY : SKV_READING_SLOW;
    }
    pthread_mutex_lock(&l->lock);
    ex->n_stored = ex->n_told;
    ex->state = state;
    if (state != SKV_READING_ON) {
        ex->phase = READER_ENDED;
        learn(l, ex, state);
    }
    pthread_mutex_unlock(&l->lock);
    return !ex->probes && (news || state != SKV_READING_ON);
}

/* Takes out exchanges that are no longer used; with the lock held. */
static void sweep(reader_link *l)
{
    for (reader_exchange **at = &l->first; *at;) {
        reader_exchange *ex = *at;
        if (!l->stopping && !ex->abandoned && !(ex->probes && ex->phase == READER_ENDED)) {
            at = &ex->next;
            continue;
        }
        *at = ex->next;
        l->n--;
        reader_exchange_release(ex);
        free(ex);
    }
}

static void add(reader_link *l, reader_exchange *ex)
{
    ex->fd = -1;
    ex->next = l->first;
    l->first = ex;
    l->n++;
}

/* While it is down it is asked whether it is there; with the lock held. */
static void probe(reader_link *l)
{
    if (l->up || reader_now_ns() < l->probe_ns) return;
    for (const reader_exchange *ex = l->first; ex; ex = ex->next) {
        if (ex->probes) return;
    }
    reader_exchange *ex = calloc(1, sizeof *ex);
    if (!ex) return;
    ex->probes = true;
    add(l, ex);
}

/* Waits for any of them; copies the list, since others may be added meanwhile. */
static size_t wait_for_news(reader_link *l, reader_exchange **all)
{
    struct pollfd fds[EXCHANGES_MAX + 2];
    size_t n = 0, n_fds = 1;
    bool fresh = false;
    fds[0] = (struct pollfd){.fd = l->waker.fd, .events = POLLIN};
    pthread_mutex_lock(&l->lock);
    sweep(l);
    probe(l);
    const int wait_ms = l->up ? LOOK_MS : LOOK_MS / 4;
    for (reader_exchange *ex = l->first; ex && n <= EXCHANGES_MAX; ex = ex->next) {
        all[n++] = ex;
        fresh = fresh || ex->phase == READER_NEW;
        if (ex->fd < 0 || ex->phase == READER_ENDED) continue;
        fds[n_fds++] = (struct pollfd){.fd = ex->fd, .events = reader_exchange_events(ex)};
    }
    pthread_mutex_unlock(&l->lock);
    (void)poll(fds, (nfds_t)n_fds, fresh ? 0 : wait_ms);
    if (fds[0].revents) skv_wake_clear(&l->waker);
    return n;
}

static void *work(void *arg)
{
    reader_link *l = arg;
    reader_exchange *all[EXCHANGES_MAX + 1];
    for (;;) {
        pthread_mutex_lock(&l->lock);
        const bool stops = l->stopping;
        pthread_mutex_unlock(&l->lock);
        if (stops) return NULL;
        const size_t n = wait_for_news(l, all);
        bool news = false;
        for (size_t i = 0; i < n; i++) news = advance(l, all[i]) || news;
        if (news) l->wake(l->wake_user);
    }
}

static void wake_thread(const reader_link *l)
{
    skv_wake_ring(&l->waker);
}

/* ---- functions that schedulers call ---- */

/* A key goes into a header field: it came in one. */
static bool is_clean(const char *key)
{
    const size_t n = key ? strlen(key) : 0;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)key[i] <= ' ' || key[i] == 127) return false;
    }
    return n < READER_KEY_BYTES;
}

static void *copy(const void *from, size_t n)
{
    void *out = malloc(n);
    if (out) memcpy(out, from, n);
    return out;
}

static reader_exchange *make_exchange(const skv_reading_request *request)
{
    reader_exchange *ex = calloc(1, sizeof *ex);
    if (!ex) return NULL;
    ex->fd = -1;
    ex->n_ids = request->n_ids;
    ex->n_blocks = request->n_blocks;
    ex->n_stored = ex->n_told = 0;
    ex->ids = copy(request->ids, request->n_ids * sizeof *request->ids);
    ex->names = copy(request->names, request->n_blocks * SKV_CACHE_NAME_BYTES);
    if (request->key) ex->key = copy(request->key, strlen(request->key) + 1);
    if (ex->ids && ex->names && (ex->key || !request->key)) return ex;
    reader_exchange_release(ex);
    free(ex);
    return NULL;
}

/* Why a prompt is not sent; ON: it is. With the lock held. */
static skv_reading refusal(const reader_link *l)
{
    const uint64_t now = reader_now_ns();
    if (!l->up) return SKV_READING_AWAY;
    if (now < l->mismatch_ns) return SKV_READING_MISMATCH;
    return now < l->full_ns || l->n >= EXCHANGES_MAX ? SKV_READING_FULL : SKV_READING_ON;
}

static void *ask(void *link, const skv_reading_request *request, skv_reading *why)
{
    reader_link *l = link;
    pthread_mutex_lock(&l->lock);
    *why = refusal(l);
    pthread_mutex_unlock(&l->lock);
    if (*why == SKV_READING_ON && !is_clean(request->key)) *why = SKV_READING_REFUSED;
    if (*why != SKV_READING_ON) return NULL;
    reader_handle *handle = malloc(sizeof *handle);
    reader_exchange *ex = handle ? make_exchange(request) : NULL;
    if (!ex) {
        free(handle);
        *why = SKV_READING_FULL;
        return NULL;
    }
    *handle = (reader_handle){l, ex};
    pthread_mutex_lock(&l->lock);
    add(l, ex);
    pthread_mutex_unlock(&l->lock);
    wake_thread(l);
    return handle;
}

static skv_reading look(void *reading, size_t *n_blocks)
{
    const reader_handle *handle = reading;
    pthread_mutex_lock(&handle->link->lock);
    const skv_reading state = handle->ex->state;
    *n_blocks = handle->ex->n_stored;
    pthread_mutex_unlock(&handle->link->lock);
    return state;
}

static void end(void *reading)
{
    reader_handle *handle = reading;
    pthread_mutex_lock(&handle->link->lock);
    handle->ex->abandoned = true;
    pthread_mutex_unlock(&handle->link->lock);
    wake_thread(handle->link);
    free(handle);
}

static bool is_up(void *link)
{
    reader_link *l = link;
    pthread_mutex_lock(&l->lock);
    const bool up = l->up;
    pthread_mutex_unlock(&l->lock);
    return up;
}

/* ---- life ---- */

static void free_link(reader_link *l)
{
    skv_wake_close(&l->waker);
    if (l->found) freeaddrinfo(l->found);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

/* For the first request. */
static void wait_for_answer(reader_link *l)
{
    const struct timespec pause = {.tv_nsec = START_STEP_MS * 1000000};
    const uint64_t limit = reader_now_ns() + START_NS;
    for (bool asked = false; !asked && reader_now_ns() < limit;) {
        (void)nanosleep(&pause, NULL);
        pthread_mutex_lock(&l->lock);
        asked = l->was_asked;
        pthread_mutex_unlock(&l->lock);
    }
}

static skv_status open_link(void *user, void (*wake)(void *wake_user), void *wake_user, void **link,
                            skv_error *err)
{
    const reader_client *client = user;
    reader_link *l = calloc(1, sizeof *l);
    SKV_REQUIRE(l, err, SKV_MEMORY, "prefill-from: no memory");
    l->client = client;
    l->wake = wake;
    l->wake_user = wake_user;
    l->silence_ns = (uint64_t)(1e9 * client->seconds);
    l->wait_ns = WAIT_MIN_NS;
    (void)pthread_mutex_init(&l->lock, NULL);
    if (!skv_wake_open(&l->waker) || pthread_create(&l->thread, NULL, work, l) != 0) {
        free_link(l);
        return skv_fail(err, SKV_MEMORY, "prefill-from: no descriptor or thread");
    }
    wait_for_answer(l);
    *link = l;
    return SKV_OK;
}

static void close_link(void *link)
{
    reader_link *l = link;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_mutex_unlock(&l->lock);
    wake_thread(l);
    (void)pthread_join(l->thread, NULL);
    sweep(l);
    assert(!l->first);
    free_link(l);
}

/* "HOST", "HOST:PORT", "[IPv6]:PORT" */
static skv_status parse_address(const char *text, reader_address *out, skv_error *err)
{
    const char *host = text, *end = text + strcspn(text, "/"), *colon;
    size_t n_host;
    if (*host == '[') {
        const char *close = strchr(host, ']');
        SKV_REQUIRE(close && close < end, err, SKV_ARGUMENT, "prefill-from: %s: no host", text);
        n_host = (size_t)(close - ++host);
        colon = close + 1;
    } else {
        colon = memchr(host, ':', (size_t)(end - host));
        if (!colon) colon = end;
        n_host = (size_t)(colon - host);
    }
    SKV_REQUIRE(!memchr(text, '@', (size_t)(end - text)), err, SKV_ARGUMENT,
                "prefill-from: no user or password: every request brings its own key");
    SKV_REQUIRE(n_host > 0 && n_host < sizeof out->host && (*end == 0 || end[1] == 0), err,
                SKV_ARGUMENT, "prefill-from: %s: expected http://HOST:PORT", text);
    char *rest = NULL;
    const unsigned long port = colon < end && *colon == ':' ? strtoul(colon + 1, &rest, 10) : 80;
    SKV_REQUIRE((colon == end || (rest == end && end - colon < 8)) && port > 0 && port < 65536, err,
                SKV_ARGUMENT, "prefill-from: %s: the port is not in 1..65535", text);
    memcpy(out->host, host, n_host);
    out->host[n_host] = 0;
    (void)snprintf(out->port, sizeof out->port, "%lu", port);
    return SKV_OK;
}

skv_status reader_client_open(const reader_options *options, reader_client **out, skv_error *err)
{
    static const char plain[] = "http://";
    SKV_REQUIRE(strncmp(options->url, plain, sizeof plain - 1) == 0, err, SKV_ARGUMENT,
                "prefill-from: %s: expected http://HOST:PORT (for TLS a proxy beside this server)",
                options->url);
    reader_client *client = calloc(1, sizeof *client);
    SKV_REQUIRE(client, err, SKV_MEMORY, "prefill-from: no memory");
    client->above = options->above;
    client->seconds = options->seconds;
    const skv_status status = parse_address(options->url + sizeof plain - 1, &client->address, err);
    if (status != SKV_OK) {
        reader_client_close(client);
        return status;
    }
    *out = client;
    return SKV_OK;
}

void reader_client_close(reader_client *client)
{
    free(client);
}

skv_prompt_readers reader_client_table(reader_client *client)
{
    return (skv_prompt_readers){.user = client,
                                .above = client->above,
                                .seconds = client->seconds,
                                .open = open_link,
                                .close = close_link,
                                .ask = ask,
                                .look = look,
                                .end = end,
                                .is_up = is_up};
}
