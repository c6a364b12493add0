/* One connection to an instance of a store: see redis_impl.h. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/system_sockets.h"
#include "redis_impl.h"

enum { RESOLVE_EVERY = 8 }; /* tries with the addresses that a name had before */

static const uint64_t BYTES_A_SECOND = 20000000u;                         /* for slower
                                                                           * operations */
static const uint64_t WAIT_MIN_NS = 100000000u, WAIT_MAX_NS = 400000000u; /* between two tries */

uint64_t redis_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void redis_link_init(redis_link *link, const redis_address *address)
{
    *link = (redis_link){.address = address, .stream.fd = -1, .wait_ns = WAIT_MIN_NS};
}

static void forget_addresses(redis_link *link)
{
    if (link->found) freeaddrinfo(link->found);
    link->found = link->next = NULL;
}

void redis_link_release(redis_link *link)
{
    redis_stream_close(&link->stream);
    forget_addresses(link);
    free(link->value);
}

/* Gives it up, for `why`. */
static void drop(redis_link *link, const char *why)
{
    char detail[REDIS_WHY_BYTES];
    redis_stream_why(&link->stream, detail);
    char text[REDIS_WHY_BYTES]; /* `why` may be the other side's text */
    (void)snprintf(text, sizeof text, "%.*s%s%.*s", 120, why, detail[0] ? ": " : "", 120, detail);
    for (char *c = text; *c; c++) *c = *c < ' ' || *c > '~' ? '?' : *c;
    memcpy(link->why, text, sizeof text);
    redis_stream_close(&link->stream);
    link->state = REDIS_DOWN;
    link->at = link->n_line = 0;
    link->retry_ns = redis_now_ns() + link->wait_ns;
    link->wait_ns = 2 * link->wait_ns < WAIT_MAX_NS ? 2 * link->wait_ns : WAIT_MAX_NS;
}

/* ---- setting up ---- */

/* A name is looked up when it was not found yet and now and then later, since that may take time.
 */
static bool resolve(redis_link *link)
{
    if (link->n_tries++ % RESOLVE_EVERY == 0) {
        const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
        struct addrinfo *found = NULL;
        int code = getaddrinfo(link->address->host, link->address->port, &hints, &found);
        if (code == 0) {
            forget_addresses(link);
            link->found = found;
        } else if (!link->found) {
            drop(link, gai_strerror(code));
            return false;
        }
    }
    if (!link->next) link->next = link->found;
    return link->next;
}

static void connect_next(redis_link *link, uint64_t now)
{
    if (!resolve(link)) return;
    const struct addrinfo *to = link->next;
    link->next = to->ai_next;
    link->stream.fd = skv_socket_open(to->ai_family, SOCK_STREAM, false);
    const int on = 1;
    if (link->stream.fd >= 0) {
        (void)setsockopt(link->stream.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (link->stream.fd < 0 ||
        (connect(link->stream.fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)) {
        drop(link, strerror(errno));
        return;
    }
    link->state = REDIS_CONNECTING;
    link->limit_ns = now + link->answer_ns;
    link->n_sent = link->n_replies = 0;
}

static bool is_ready(const redis_stream *stream, short events, int wait_ms)
{
    struct pollfd fd = {.fd = stream->fd, .events = events};
    return poll(&fd, 1, wait_ms) > 0;
}

static void finish_connect(redis_link *link)
{
    if (!is_ready(&link->stream, POLLOUT, 0)) return;
    int code = 0;
    socklen_t n = sizeof code;
    if (getsockopt(link->stream.fd, SOL_SOCKET, SO_ERROR, &code, &n) != 0) code = errno;
    if (code != 0) {
        drop(link, strerror(code));
        return;
    }
    link->state = link->tls ? REDIS_SHAKING : REDIS_GREETING;
    if (link->tls && !redis_stream_encrypt(&link->stream, link->tls, link->address->host)) {
        drop(link, "TLS: no memory");
    }
}

static void shake(redis_link *link)
{
    int done = redis_stream_shake(&link->stream);
    if (done > 0) link->state = REDIS_GREETING;
    if (done < 0) drop(link, "TLS");
}

/* The next whole line of the received bytes, with a zero for its end; NULL: there is none. */
static char *take_line(redis_link *link)
{
    char *start = link->line + link->at;
    char *end = memchr(start, '\n', link->n_line - link->at);
    if (!end || end == start || end[-1] != '\r') return NULL;
    end[-1] = 0;
    link->at = (size_t)(end - link->line) + 1;
    return start;
}

/* More bytes after the unread ones; 0: none now, -1: it failed, or the line is too long. */
static ssize_t receive_more(redis_link *link)
{
    if (link->at > 0) {
        memmove(link->line, link->line + link->at, link->n_line - link->at);
        link->n_line -= link->at;
        link->at = 0;
    }
    if (link->n_line >= REDIS_LINE_BYTES) return -1;
    ssize_t n = redis_stream_receive(&link->stream, link->line + link->n_line,
                                     sizeof link->line - link->n_line);
    if (n > 0) link->n_line += (size_t)n;
    return n;
}

static void greet(redis_link *link)
{
    while (link->n_sent < link->n_greeting) {
        ssize_t n = redis_stream_send(&link->stream, link->greeting + link->n_sent,
                                      link->n_greeting - link->n_sent);
        if (n < 0) drop(link, "the connection ended");
        if (n <= 0) return;
        link->n_sent += (size_t)n;
    }
    ssize_t n = receive_more(link);
    for (const char *line; n >= 0 && (line = take_line(link));) {
        if (*line != '+') {
            drop(link, *line == '-' ? line + 1 : "it does not speak Redis's protocol");
            return;
        }
        if (++link->n_replies == link->n_greeting_replies) link->state = REDIS_UP;
    }
    if (n < 0) drop(link, "the connection ended");
}

/* An idle connection has nothing to say: bytes on it are its end, or garbage. */
static void watch(redis_link *link)
{
    if (!is_ready(&link->stream, POLLIN, 0)) return;
    char byte;
    ssize_t n = redis_stream_receive(&link->stream, &byte, 1); /* TLS has messages of its own */
    if (n != 0) drop(link, n < 0 ? "the connection ended" : "an answer to nothing");
}

bool redis_link_advance(redis_link *link, uint64_t now)
{
    if (link->state == REDIS_UP) {
        watch(link);
        return false;
    }
    if (link->state == REDIS_DOWN && now >= link->retry_ns) connect_next(link, now);
    if (link->state == REDIS_CONNECTING) finish_connect(link);
    if (link->state == REDIS_SHAKING) shake(link);
    if (link->state == REDIS_GREETING) greet(link);
    bool waits = link->state != REDIS_DOWN && link->state != REDIS_UP;
    if (waits && now > link->limit_ns) drop(link, "no answer in time");
    return link->state == REDIS_UP;
}

/* ---- commands ---- */

static skv_status lose(redis_link *link, const char *why, skv_error *err)
{
    drop(link, why);
    return skv_fail(err, SKV_IO, "%s:%s: %s", link->address->host, link->address->port, link->why);
}

static bool wait_for(const redis_link *link, uint64_t limit)
{
    uint64_t now = redis_now_ns();
    if (now >= limit) return false;
    return is_ready(&link->stream, link->stream.events, (int)((limit - now) / 1000000 + 1));
}

static skv_status send_all(redis_link *link, const void *data, size_t n, uint64_t limit,
                           skv_error *err)
{
    const unsigned char *at = data;
    while (n > 0) {
        ssize_t done = redis_stream_send(&link->stream, at, n);
        if (done < 0) return lose(link, "the connection ended", err);
        if (done == 0 && !wait_for(link, limit)) return lose(link, "no answer in time", err);
        at += done;
        n -= (size_t)done;
    }
    return SKV_OK;
}

static skv_status read_line(redis_link *link, uint64_t limit, char **line, skv_error *err)
{
    while (!(*line = take_line(link))) {
        ssize_t n = receive_more(link);
        if (n < 0) return lose(link, "the connection ended, or no line came", err);
        if (n == 0 && !wait_for(link, limit)) return lose(link, "no answer in time", err);
    }
    if (**line != '-') return SKV_OK;
    return skv_fail(err, SKV_FULL, "%s:%s: %s", link->address->host, link->address->port,
                    *line + 1);
}

/* n bytes, of which some were received with the line before. */
static skv_status read_bytes(redis_link *link, unsigned char *out, size_t n, uint64_t limit,
                             skv_error *err)
{
    size_t n_here = link->n_line - link->at < n ? link->n_line - link->at : n;
    memcpy(out, link->line + link->at, n_here);
    link->at += n_here;
    while (n_here < n) {
        ssize_t done = redis_stream_receive(&link->stream, out + n_here, n - n_here);
        if (done < 0) return lose(link, "the connection ended", err);
        if (done == 0 && !wait_for(link, limit)) return lose(link, "no answer in time", err);
        n_here += (size_t)done;
    }
    return SKV_OK;
}

static uint64_t limit_of(const redis_link *link, size_t n_bytes)
{
    return redis_now_ns() + link->answer_ns + n_bytes * 1000000000u / BYTES_A_SECOND;
}

/* The number after '$': the length of a bulk string, below 0: nil; false: no such line. */
static bool parse_length(const char *line, size_t n_max, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(line + 1, &end, 10);
    return *line == '$' && end != line + 1 && *end == 0 && errno == 0 && *out >= -1 &&
           *out <= (long long)n_max;
}

static skv_status read_value(redis_link *link, size_t n, unsigned char *data, skv_error *err)
{
    unsigned char end[2];
    uint64_t limit = limit_of(link, n);
    SKV_TRY(read_bytes(link, data, n, limit, err));
    SKV_TRY(read_bytes(link, end, sizeof end, limit, err));
    if (end[0] != '\r' || end[1] != '\n') return lose(link, "a value without an end", err);
    return SKV_OK;
}

static bool make_room(redis_link *link, size_t n)
{
    if (link->value && n <= link->value_room) return true;
    free(link->value);
    link->value_room = n + 1;
    link->value = malloc(link->value_room);
    return link->value;
}

skv_status redis_link_get(redis_link *link, const char *key, size_t n_max,
                          const unsigned char **data, size_t *n_bytes, skv_error *err)
{
    char command[128], *line;
    int n =
        snprintf(command, sizeof command, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
    uint64_t limit = limit_of(link, 0);
    long long length;
    SKV_TRY(send_all(link, command, (size_t)n, limit, err));
    skv_status status = read_line(link, limit, &line, err);
    /* It may load its file, be no master, or not let us: it is asked again later. */
    if (status == SKV_FULL) return lose(link, line + 1, err);
    if (status != SKV_OK) return status;
    if (!parse_length(line, n_max, &length)) return lose(link, "no answer to GET", err);
    link->wait_ns = WAIT_MIN_NS;
    *data = NULL;
    *n_bytes = 0;
    if (length < 0) return SKV_OK;
    if (!make_room(link, (size_t)length)) return lose(link, "no memory", err);
    SKV_TRY(read_value(link, (size_t)length, link->value, err));
    *data = link->value;
    *n_bytes = (size_t)length;
    return SKV_OK;
}

skv_status redis_link_put(redis_link *link, const char *key, const skv_block_value *value,
                          skv_error *err)
{
    char command[128], *line;
    size_t n_value = value->n_head + value->n_body;
    int n = snprintf(command, sizeof command, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n",
                     strlen(key), key, n_value);
    uint64_t limit = limit_of(link, n_value);
    SKV_TRY(send_all(link, command, (size_t)n, limit, err));
    SKV_TRY(send_all(link, value->head, value->n_head, limit, err));
    SKV_TRY(send_all(link, value->body, value->n_body, limit, err));
    SKV_TRY(send_all(link, "\r\n", 2, limit, err));
    SKV_TRY(read_line(link, limit, &line, err));
    if (strcmp(line, "+OK") != 0) return lose(link, "no answer to SET", err);
    link->wait_ns = WAIT_MIN_NS;
    return SKV_OK;
}

void redis_link_touch(redis_link *link, const char *command, size_t n)
{
    skv_error err;
    char *line;
    const uint64_t limit = limit_of(link, n);
    if (link->no_touch || send_all(link, command, n, limit, &err) != SKV_OK) return;
    const skv_status status = read_line(link, limit, &line, &err);
    if (status == SKV_FULL) link->no_touch = true; /* it does not let us, or is no Redis */
    if (status == SKV_OK && *line != ':') (void)lose(link, "no answer to TOUCH", &err);
}
