/* Bytes of connections: see http_wire.h. */
#include "wire/http_wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/system_sockets.h"
#include "skv/tools.h"

enum {
    PIECE_BYTES = 16 << 10, /* a client has to take so many before its deadline begins anew */
    LOOK_MS = 200,          /* how often is tried whether a client has taken something */
    SIZE_LINE_BYTES = 256   /* of a chunk: its length, and extensions, which are ignored */
};

bool http_wire_fill(http_wire *wire)
{
    if (wire->begin > 0) {
        memmove(wire->data, wire->data + wire->begin, wire->end - wire->begin);
        wire->end -= wire->begin;
        wire->begin = 0;
    }
    ssize_t n = -1;
    if (wire->end == sizeof wire->data) return false;
    do {
        n = recv(wire->fd, wire->data + wire->end, sizeof wire->data - wire->end, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) return false;
    wire->end += (size_t)n;
    return true;
}

/* ---- writing ---- */

static void skip_written(struct iovec **parts, size_t *n_parts, size_t n)
{
    while (*n_parts > 0 && n >= (*parts)->iov_len) {
        n -= (*parts)->iov_len;
        (*parts)++;
        (*n_parts)--;
    }
    if (*n_parts == 0) return;
    (*parts)->iov_base = (char *)(*parts)->iov_base + n;
    (*parts)->iov_len -= n;
}

double http_pace_rate(size_t n_all)
{
    const double rate = (double)n_all / LIMIT_READ_SECONDS;
    return rate > LIMIT_READ_BYTES_A_SECOND ? rate : LIMIT_READ_BYTES_A_SECOND;
}

/* Waits until there is room, or may be: the system tells of it when a third of a buffer of
 * megabytes is empty, for which a slow client takes minutes. Returns the bytes that the client has
 * taken. If the whole process stood still, that time does not count. */
static size_t wait_for_room(int fd, http_pace *pace)
{
    const uint64_t begun_ns = skv_now_ns(), most_ns = 2 * LOOK_MS * UINT64_C(1000000);
    size_t n_before = 0, n_after = 0;
    const bool told = skv_socket_queued(fd, &n_before);
    struct pollfd socket = {.fd = fd, .events = POLLOUT};
    (void)poll(&socket, 1, LOOK_MS);
    pace->writes_tell = !told || !skv_socket_queued(fd, &n_after);
    const size_t n = !pace->writes_tell && n_before > n_after ? n_before - n_after : 0;
    const uint64_t waited_ns = skv_now_ns() - begun_ns;
    pace->waited_ns += waited_ns < most_ns ? waited_ns : most_ns;
    pace->n_taken += n;
    return n;
}

/* Of n_all bytes that are written. */
static bool keeps_pace(http_pace *pace, size_t n_all)
{
    const double seconds = (double)pace->waited_ns * 1e-9;
    pace->is_slow =
        seconds > pace->grace_seconds && (double)pace->n_taken < seconds * http_pace_rate(n_all);
    if (seconds > 2 * pace->grace_seconds) {
        pace->waited_ns /= 2;
        pace->n_taken /= 2;
    }
    return !pace->is_slow;
}

bool http_wire_write(int fd, struct iovec *parts, size_t n_parts, http_pace *pace)
{
    size_t n_piece = 0, n_all = 0;
    for (size_t i = 0; i < n_parts; i++) n_all += parts[i].iov_len;
    skip_written(&parts, &n_parts, 0);
    while (n_parts > 0) {
        const ssize_t n = skv_socket_send_parts(fd, parts, n_parts);
        if (n < 0 && errno == EINTR) continue;
        const bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        if (n < 0 && !waits) return false;
        if (n > 0) skip_written(&parts, &n_parts, (size_t)n);
        if (n > 0 && pace->writes_tell) pace->n_taken += (size_t)n;
        n_piece += waits ? wait_for_room(fd, pace) : (size_t)n;
        if (n_piece >= PIECE_BYTES) pace->wrote(pace->user);
        n_piece %= PIECE_BYTES;
        if (waits && !keeps_pace(pace, n_all)) return false;
    }
    return true;
}

void http_wire_linger(http_wire *wire)
{
    const uint64_t end_ns = skv_now_ns() + LIMIT_LINGER_MS * UINT64_C(1000000);
    (void)shutdown(wire->fd, SHUT_WR);
    for (;;) {
        const uint64_t now = skv_now_ns();
        struct pollfd socket = {.fd = wire->fd, .events = POLLIN};
        if (now >= end_ns) return;
        if (poll(&socket, 1, (int)((end_ns - now) / 1000000) + 1) <= 0) return;
        if (recv(wire->fd, wire->data, sizeof wire->data, MSG_DONTWAIT) <= 0) return;
    }
}

/* ---- bodies ---- */

static http_piece take(http_body *body, const char **data, size_t *n)
{
    http_wire *wire = body->wire;
    if (wire->begin == wire->end && !http_wire_fill(wire)) return HTTP_PIECE_GONE;
    const size_t n_here = wire->end - wire->begin;
    *data = wire->data + wire->begin;
    *n = n_here < body->n_left ? n_here : (size_t)body->n_left;
    wire->begin += *n;
    body->n_left -= *n;
    return HTTP_PIECE;
}

static http_piece bad(api_error *error, const char *what)
{
    (void)api_fail(error, 400, NULL, "HTTP: %s", what);
    return HTTP_PIECE_BAD;
}

/* A line of at most n_max bytes without its CR LF. */
static http_piece read_line(http_wire *wire, size_t n_max, const char **line, size_t *n,
                            api_error *error)
{
    for (;;) {
        const size_t n_here = wire->end - wire->begin;
        const char *text = wire->data + wire->begin;
        const char *end = memchr(text, '\n', n_here);
        if (!end && n_here <= n_max) {
            if (!http_wire_fill(wire)) return HTTP_PIECE_GONE;
            continue;
        }
        if (!end || (size_t)(end - text) > n_max) return bad(error, "a line is too long");
        if (end == text || end[-1] != '\r') return bad(error, "a line does not end in CR LF");
        *line = text;
        *n = (size_t)(end - text) - 1;
        wire->begin += *n + 2;
        return HTTP_PIECE;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* 1*HEXDIG, then nothing, a blank or ";". */
static http_piece read_size(http_body *body, const char *line, size_t n, api_error *error)
{
    size_t i = 0;
    body->n_left = 0;
    for (; i < n && hex_digit(line[i]) >= 0; i++) {
        if (body->n_left >> 60 != 0) return bad(error, "the length of a chunk is too large");
        body->n_left = body->n_left << 4 | (uint64_t)hex_digit(line[i]);
    }
    const bool is_size = i > 0 && (i == n || line[i] == ';' || line[i] == ' ' || line[i] == '\t');
    return is_size ? HTTP_PIECE : bad(error, "the length of a chunk is not a number");
}

static http_piece read_trailers(http_body *body, api_error *error)
{
    const char *line;
    size_t n = 1;
    while (n > 0) {
        const http_piece piece = read_line(body->wire, LIMIT_TRAILER_BYTES, &line, &n, error);
        if (piece != HTTP_PIECE) return piece;
        body->n_trailers += n;
        if (body->n_trailers > LIMIT_TRAILER_BYTES) return bad(error, "trailers are too long");
    }
    body->ended = true;
    return HTTP_PIECE_END;
}

static http_piece next_chunk(http_body *body, api_error *error)
{
    const char *line;
    size_t n = 0;
    http_piece piece = HTTP_PIECE;
    if (body->begun) piece = read_line(body->wire, SIZE_LINE_BYTES, &line, &n, error);
    if (piece == HTTP_PIECE && n > 0) return bad(error, "a chunk is longer than its length");
    if (piece == HTTP_PIECE) piece = read_line(body->wire, SIZE_LINE_BYTES, &line, &n, error);
    if (piece == HTTP_PIECE) piece = read_size(body, line, n, error);
    body->begun = true;
    if (piece != HTTP_PIECE || body->n_left > 0) return piece;
    return read_trailers(body, error);
}

http_piece http_body_next(http_body *body, const char **data, size_t *n, api_error *error)
{
    if (body->ended || (!body->chunked && body->n_left == 0)) return HTTP_PIECE_END;
    if (body->n_left == 0) {
        const http_piece piece = next_chunk(body, error);
        if (piece != HTTP_PIECE) return piece;
    }
    return take(body, data, n);
}
