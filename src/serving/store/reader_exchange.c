/* One exchange with a reader: see reader_impl.h. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/system_sockets.h"
#include "reader_impl.h"

enum {
    SOME_BYTES = 4096,
    ID_BYTES = 12,        /* of a token id in JSON, with its comma */
    HEAD_BYTES = 8192,    /* of a request, with its key */
    SIZE_DIGITS = 7,      /* of a chunk's size */
    BLOCK_BYTES = 64,     /* of the body, for each block, */
    QUIET_BYTES = 1 << 20 /* and for all signs of life */
};

uint64_t reader_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the request ---- */

static void write_name(skv_buf *out, const uint8_t *name)
{
    for (size_t i = 0; i < SKV_CACHE_NAME_BYTES; i++) skv_buf_printf(out, "%02x", name[i]);
}

static void write_body(const reader_exchange *ex, skv_buf *out)
{
    skv_buf_text(out, "{\"prompt\":[");
    for (size_t i = 0; i < ex->n_ids; i++) {
        skv_buf_printf(out, i > 0 ? ",%d" : "%d", (int)ex->ids[i]);
    }
    skv_buf_text(out, "],\"block\":\"");
    write_name(out, ex->names);
    skv_buf_text(out, "\"}");
}

static void write_head(const reader_exchange *ex, const reader_address *to, size_t n_body,
                       skv_buf *out)
{
    const bool brackets = strchr(to->host, ':');
    skv_buf_text(out, ex->probes ? "GET /health" : "POST /read");
    skv_buf_printf(out, " HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n",
                   brackets ? "[" : "", to->host, brackets ? "]" : "", to->port);
    if (ex->key) skv_buf_printf(out, "Authorization: Bearer %s\r\n", ex->key);
    if (!ex->probes) {
        skv_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", n_body);
    }
    skv_buf_text(out, "\r\n");
}

bool reader_exchange_write(reader_exchange *ex, const reader_address *address)
{
    skv_buf body = {.max = ex->n_ids * ID_BYTES + HEAD_BYTES};
    skv_buf all = {.max = ex->n_ids * ID_BYTES + 2 * (size_t)HEAD_BYTES};
    if (!ex->probes) write_body(ex, &body);
    write_head(ex, address, body.size, &all);
    skv_buf_append(&all, body.data, body.size);
    const bool ok = !body.failed && !all.failed;
    ex->text = ok ? malloc(all.size) : NULL;
    if (ex->text) memcpy(ex->text, all.data, all.size);
    ex->n_text = all.size;
    skv_buf_release(&body);
    skv_buf_release(&all);
    free(ex->ids);
    ex->ids = NULL;
    return ex->text;
}

bool reader_exchange_connect(reader_exchange *ex, const struct addrinfo *to)
{
    const int on = 1;
    ex->fd = skv_socket_open(to->ai_family, SOCK_STREAM, false);
    if (ex->fd < 0) return false;
    (void)setsockopt(ex->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ex->phase = READER_CONNECTING;
    return connect(ex->fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS;
}

short reader_exchange_events(const reader_exchange *ex)
{
    return ex->phase <= READER_SENDING ? POLLOUT : POLLIN;
}

/* ---- the lines of a response ---- */

/* Anything but 200. */
static skv_reading state_of(int status)
{
    switch (status) {
    case 409: return SKV_READING_MISMATCH;
    case 429:
    case 503: return SKV_READING_FULL;
    default: return status < 500 ? SKV_READING_REFUSED : SKV_READING_AWAY;
    }
}

/* The text after `front`; NULL: it begins otherwise. */
static const char *behind(const char *text, const char *front)
{
    const size_t n = strlen(front);
    return strncmp(text, front, n) == 0 ? text + n : NULL;
}

/* Whether the name of block i stands here, and the line ends after it. */
static bool is_name(const reader_exchange *ex, size_t i, const char *text)
{
    char want[2 * SKV_CACHE_NAME_BYTES + 1];
    for (size_t k = 0; k < SKV_CACHE_NAME_BYTES; k++) {
        (void)snprintf(want + 2 * k, 3, "%02x", ex->names[i * SKV_CACHE_NAME_BYTES + k]);
    }
    const char *end = behind(text, want);
    return end && strcmp(end, "\"}") == 0;
}

/* A number and the end of the line. */
static bool is_number(const char *text)
{
    const size_t n = strspn(text, "0123456789");
    return n > 0 && n < 12 && strcmp(text + n, "}") == 0;
}

static skv_reading take_line(reader_exchange *ex)
{
    const char *rest;
    if ((rest = behind(ex->line, "{\"block\":\""))) {
        if (ex->n_told == ex->n_blocks) return SKV_READING_GARBAGE;
        if (!is_name(ex, ex->n_told, rest)) return SKV_READING_MISMATCH;
        ex->n_told++;
        return SKV_READING_ON;
    }
    if ((rest = behind(ex->line, "{\"read\":")) || (rest = behind(ex->line, "{\"tokens\":"))) {
        return is_number(rest) ? SKV_READING_ON : SKV_READING_GARBAGE;
    }
    if (behind(ex->line, "{\"error\":")) return SKV_READING_FULL;
    const bool done = strcmp(ex->line, "{\"done\":true}") == 0 && ex->n_told == ex->n_blocks;
    return done ? SKV_READING_DONE : SKV_READING_GARBAGE;
}

/* ---- its bytes ---- */

static skv_reading take_body(reader_exchange *ex, char c)
{
    if (++ex->n_body > QUIET_BYTES + ex->n_blocks * BLOCK_BYTES) return SKV_READING_GARBAGE;
    if (c == '\n') {
        ex->line[ex->n_line] = 0;
        ex->n_line = 0;
        return take_line(ex);
    }
    if (c == 0 || ex->n_line + 1 == sizeof ex->line) return SKV_READING_GARBAGE;
    ex->line[ex->n_line++] = c;
    return SKV_READING_ON;
}

static skv_reading take_status(reader_exchange *ex)
{
    const char *at = behind(ex->field, "HTTP/1.");
    if (!at || strlen(at) < 5 || at[1] != ' ' || strspn(at + 2, "0123456789") != 3) {
        return SKV_READING_GARBAGE;
    }
    ex->status = (at[2] - '0') * 100 + (at[3] - '0') * 10 + (at[4] - '0');
    ex->phase = READER_FIELDS;
    return SKV_READING_ON;
}

static skv_reading take_field(reader_exchange *ex)
{
    static const char coding[] = "transfer-encoding:";
    if (ex->n_field > 0) {
        if (strncasecmp(ex->field, coding, sizeof coding - 1) != 0) return SKV_READING_ON;
        const char *value = ex->field + sizeof coding - 1;
        ex->chunked = strcasecmp(value + strspn(value, " \t"), "chunked") == 0;
        return ex->chunked ? SKV_READING_ON : SKV_READING_GARBAGE;
    }
    if (ex->status != 200) return state_of(ex->status);
    if (ex->probes) return SKV_READING_DONE;
    ex->phase = ex->chunked ? READER_SIZE : READER_BODY;
    return SKV_READING_ON;
}

static skv_reading take_size(reader_exchange *ex)
{
    const size_t n = strspn(ex->field, "0123456789abcdefABCDEF");
    if (n == 0 || n > SIZE_DIGITS || (ex->field[n] != 0 && ex->field[n] != ';')) {
        return SKV_READING_GARBAGE;
    }
    ex->n_chunk = (size_t)strtoul(ex->field, NULL, 16);
    ex->phase = READER_CHUNK;
    return ex->n_chunk > 0 ? SKV_READING_ON : SKV_READING_LOST; /* "done" comes before the end */
}

/* A line of the head, or one around a chunk. */
static skv_reading take_framing(reader_exchange *ex, char c)
{
    if (c != '\n') {
        if (c == 0 || ex->n_field + 1 == sizeof ex->field) return SKV_READING_GARBAGE;
        ex->field[ex->n_field++] = c;
        return SKV_READING_ON;
    }
    if (ex->n_field == 0 || ex->field[ex->n_field - 1] != '\r') return SKV_READING_GARBAGE;
    ex->field[--ex->n_field] = 0;
    skv_reading state = SKV_READING_ON;
    switch (ex->phase) {
    case READER_STATUS: state = take_status(ex); break;
    case READER_FIELDS: state = take_field(ex); break;
    case READER_SIZE: state = take_size(ex); break;
    default:
        if (ex->n_field > 0) state = SKV_READING_GARBAGE;
        ex->phase = READER_SIZE;
    }
    ex->n_field = 0;
    return state;
}

static skv_reading take_byte(reader_exchange *ex, char c)
{
    if (ex->phase == READER_BODY) return take_body(ex, c);
    if (ex->phase != READER_CHUNK) return take_framing(ex, c);
    if (--ex->n_chunk == 0) ex->phase = READER_BREAK;
    return take_body(ex, c);
}

/* ---- moving them ---- */

static skv_reading send_more(reader_exchange *ex)
{
    while (ex->n_sent < ex->n_text) {
        const ssize_t n = skv_socket_send(ex->fd, ex->text + ex->n_sent, ex->n_text - ex->n_sent);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            return SKV_READING_ON;
        }
        /* It may have refused before it has read everything: the response tells. */
        if (n < 0) break;
        ex->n_sent += (size_t)n;
    }
    ex->phase = READER_STATUS;
    return SKV_READING_ON;
}

static skv_reading finish_connect(reader_exchange *ex)
{
    int code = 0;
    socklen_t n = sizeof code;
    struct pollfd fd = {.fd = ex->fd, .events = POLLOUT};
    if (poll(&fd, 1, 0) <= 0) return SKV_READING_ON;
    if (getsockopt(ex->fd, SOL_SOCKET, SO_ERROR, &code, &n) != 0 || code != 0) {
        return SKV_READING_AWAY;
    }
    ex->phase = READER_SENDING;
    return SKV_READING_ON;
}

/* *moved: something came. */
static skv_reading receive_more(reader_exchange *ex, bool *moved)
{
    char bytes[SOME_BYTES];
    const ssize_t n = recv(ex->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return SKV_READING_ON;
    }
    if (n <= 0) return ex->phase == READER_STATUS ? SKV_READING_AWAY : SKV_READING_LOST;
    *moved = true;
    skv_reading state = SKV_READING_ON;
    for (ssize_t i = 0; i < n && state == SKV_READING_ON; i++) state = take_byte(ex, bytes[i]);
    return state;
}

bool reader_exchange_advance(reader_exchange *ex, skv_reading *state)
{
    bool moved = false;
    *state = SKV_READING_ON;
    if (ex->phase == READER_CONNECTING) *state = finish_connect(ex);
    if (*state == SKV_READING_ON && ex->phase == READER_SENDING) *state = send_more(ex);
    if (*state == SKV_READING_ON && ex->phase >= READER_STATUS) *state = receive_more(ex, &moved);
    return moved || *state != SKV_READING_ON;
}

void reader_exchange_release(reader_exchange *ex)
{
    if (ex->fd >= 0) (void)close(ex->fd);
    free(ex->ids);
    free(ex->names);
    free(ex->key);
    free(ex->text);
}
