/*
 * libFuzzer target: what a reader answers to the server that sent it a prompt, or to the question
 * whether it is there. The first byte tells which, the second how many bytes come at once. Pieces
 * of any length end alike, and no more blocks are believed than there are.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reader_impl.h"

enum { BLOCKS = 3 };

/* Made of nothing, as its client makes them: the names are 00.., 01.., 02... */
static reader_exchange *begin(int fd, bool probes)
{
    reader_exchange *ex = calloc(1, sizeof *ex);
    if (!ex) abort();
    ex->fd = fd;
    ex->probes = probes;
    ex->phase = READER_STATUS;
    ex->n_blocks = probes ? 0 : BLOCKS;
    ex->names = calloc(BLOCKS, SKV_CACHE_NAME_BYTES);
    if (!ex->names) abort();
    for (size_t i = 0; i < BLOCKS; i++) ex->names[i * SKV_CACHE_NAME_BYTES] = (uint8_t)i;
    return ex;
}

static void check(const reader_exchange *ex, skv_reading state)
{
    if (ex->n_told > ex->n_blocks || ex->n_field >= sizeof ex->field) abort();
    if (ex->n_line >= sizeof ex->line) abort();
    if (state == SKV_READING_DONE && ex->n_told != ex->n_blocks) abort();
}

/* How it ends, and how many blocks were told. */
static skv_reading read_answer(const uint8_t *data, size_t size, size_t piece, bool probes,
                               size_t *n_told)
{
    int ends[2];
    skv_reading state = SKV_READING_ON;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
    reader_exchange *ex = begin(ends[0], probes);
    for (size_t at = 0; at < size && state == SKV_READING_ON; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        if (send(ends[1], data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n) abort();
        (void)reader_exchange_advance(ex, &state);
        check(ex, state);
    }
    (void)shutdown(ends[1], SHUT_WR);
    while (state == SKV_READING_ON) {
        (void)reader_exchange_advance(ex, &state);
        check(ex, state);
    }
    *n_told = ex->n_told;
    reader_exchange_release(ex);
    free(ex);
    (void)close(ends[1]);
    return state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 1U << 16) return 0;
    const bool probes = data[0] % 2 == 1;
    size_t n_told, n_told_whole;
    const skv_reading state = read_answer(data + 2, size - 2, (size_t)data[1] + 1, probes, &n_told);
    const skv_reading whole = read_answer(data + 2, size - 2, size, probes, &n_told_whole);
    if (state != whole || n_told != n_told_whole) abort();
    return 0;
}
