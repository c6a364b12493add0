/*
 * libFuzzer target: what a connection sends, read as the server reads it: heads and bodies, one
 * after the other. A head that is accepted has its parts inside its own text, and no body gives
 * more bytes than came.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "wire/http_wire.h"

static void check_inside(const char *part, const char *text, size_t n)
{
    if (part < text || part > text + n || strlen(part) > (size_t)(text + n - part)) abort();
}

static void check_head(const http_head *head, const char *text, size_t n)
{
    check_inside(head->method, text, n);
    check_inside(head->path, text, n);
    if (head->n_fields > LIMIT_HEADER_FIELDS) abort();
    for (size_t i = 0; i < head->n_fields; i++) {
        check_inside(head->fields[i].name, text, n);
        check_inside(head->fields[i].value, text, n);
    }
    if (head->chunked && (head->n_body > 0 || head->is_old)) abort();
}

/* True when the body has ended well, so that another request may follow. */
static bool read_body(const http_head *head, http_wire *wire)
{
    http_body body = {.wire = wire, .chunked = head->chunked, .n_left = head->n_body};
    api_error error;
    for (;;) {
        const char *data = NULL;
        size_t n = 0;
        const size_t n_before = wire->end - wire->begin;
        const http_piece piece = http_body_next(&body, &data, &n, &error);
        if (piece == HTTP_PIECE_BAD && error.status != 400) abort();
        if (piece != HTTP_PIECE) return piece == HTTP_PIECE_END;
        if (n == 0 || n > n_before) abort();
    }
}

/* True when a whole request was read. */
static bool read_request(http_wire *wire)
{
    http_head head;
    api_error error = {0};
    const char *here = wire->data + wire->begin;
    const size_t n_here = wire->end - wire->begin, n = http_head_end(here, n_here, 0);
    size_t end = 0; /* the same, byte by byte */
    for (size_t i = 1; end == 0 && i <= n_here && n_here <= 256; i++) {
        end = http_head_end(here, i, i - 1);
    }
    if (n_here <= 256 && end != n) abort();
    if (n == 0) return false;
    char *text = malloc(n + 1);
    if (!text) abort();
    memcpy(text, here, n);
    text[n] = 0;
    wire->begin += n;
    const bool ok = http_head_read(text, n, &head, &error);
    if (ok) check_head(&head, text, n);
    if (!ok && (error.status < 400 || error.status > 505)) abort();
    free(text);
    return ok && read_body(&head, wire);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    http_wire *wire = malloc(sizeof *wire);
    if (!wire) abort();
    wire->fd = -1; /* nothing comes after what is there */
    wire->begin = 0;
    wire->end = size < sizeof wire->data ? size : sizeof wire->data;
    memcpy(wire->data, data, wire->end);
    while (read_request(wire)) continue;
    free(wire);
    return 0;
}
