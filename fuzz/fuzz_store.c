/*
 * libFuzzer target: what an instance of a store says, from its greeting on, read as a server reads
 * it. The first two bytes tell how many lines the greeting takes and which commands follow. Each
 * value that comes is read as a block, and so is the whole input, once as it is and once with its
 * checksums mended. Nothing that was not sealed with the key is taken for a block.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "redis_impl.h"
#include "scheduler/spill_item.h"

enum { PAGE_BYTES = 32, VALUE_MAX = 4096, COMMANDS = 8 };

static const char greeting[] = "*1\r\n$4\r\nPING\r\n";
static const uint8_t key[SKV_SHA256_BYTES] = {1, 2, 3};

/* ---- blocks ---- */

static skv_status read_item(const skv_spill_form *form, const skv_spill_header *h,
                            const uint8_t *body, size_t n_bytes, skv_spill_item **out)
{
    size_t n_body = 0;
    skv_error err;
    SKV_TRY(skv_spill_header_check(form, &h->name, h, n_bytes, &err));
    SKV_TRY(skv_spill_item_begin(h, out, &n_body, &err));
    if (n_body != n_bytes - sizeof *h) abort();
    memcpy((*out)->ids, body, n_body);
    return skv_spill_item_check(form, h, *out, &err);
}

static void read_block(const uint8_t *data, size_t size, bool mends)
{
    skv_spill_header h;
    if (size < sizeof h) return;
    memcpy(&h, data, sizeof h);
    const uint8_t *body = data + sizeof h;
    if (mends) {
        memcpy(h.magic, "SKVSPILL", sizeof h.magic);
        h.version = 1;
        h.page_bytes = PAGE_BYTES;
        h.body_check = skv_spill_checksum(body, size - sizeof h);
        h.check = skv_spill_checksum(&h, offsetof(skv_spill_header, check));
    }
    skv_spill_form form = {.fingerprint = h.fingerprint, .page_bytes = PAGE_BYTES, .seal_key = key};
    for (int sealed = 1; sealed >= 0; sealed--) {
        skv_spill_item *item = NULL;
        const bool taken = read_item(&form, &h, body, size, &item) == SKV_OK;
        if (taken && sealed) abort();
        if (taken && skv_spill_item_bytes(item->n_ids, item->n_pages, PAGE_BYTES) != size) abort();
        skv_free(item);
        form.seal_key = NULL; /* as on a disk of one's own */
    }
}

/* ---- the connection ---- */

/* Two ends of a connection: the second has said all of it, and still takes what it is sent. */
static bool say(const uint8_t *data, size_t size, int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
    (void)!send(ends[1], data, size, MSG_DONTWAIT);
    (void)shutdown(ends[1], SHUT_WR);
    return true;
}

static void check_text(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127) abort();
    }
}

static void run_command(redis_link *link, bool puts)
{
    const skv_block_value value = {.head = "head", .n_head = 4, .body = "body", .n_body = 4};
    const unsigned char *data = NULL;
    size_t n = 0;
    skv_error err = {0};
    const skv_status status = puts ? redis_link_put(link, "skv:0", &value, &err)
                                   : redis_link_get(link, "skv:0", VALUE_MAX, &data, &n, &err);
    if (n > VALUE_MAX || (status != SKV_OK && (n > 0 || err.text[0] == 0))) abort();
    if (status == SKV_IO && link->state != REDIS_DOWN) abort();
    check_text(err.text);
    if (data) read_block(data, n, false);
}

static void converse(int fd, uint8_t flags, uint8_t commands)
{
    const redis_address address = {.host = "store", .port = "1"};
    redis_link *link = malloc(sizeof *link); /* exact, for AddressSanitizer */
    if (!link) abort();
    redis_link_init(link, &address);
    link->answer_ns = 1000000000u;
    link->greeting = greeting;
    link->n_greeting = sizeof greeting - 1;
    link->n_greeting_replies = 1 + flags % 2U;
    link->stream.fd = fd;
    link->state = REDIS_GREETING;
    link->limit_ns = redis_now_ns() + link->answer_ns;
    while (link->state == REDIS_GREETING) (void)redis_link_advance(link, redis_now_ns());
    for (unsigned i = 0; i < COMMANDS && link->state == REDIS_UP; i++) {
        run_command(link, ((unsigned)commands >> i & 1U) != 0);
    }
    check_text(link->why);
    redis_link_release(link);
    free(link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    int ends[2];
    if (!say(data + 2, size - 2, ends)) return 0;
    converse(ends[0], data[0], data[1]);
    (void)close(ends[1]);
    read_block(data + 2, size - 2, false);
    read_block(data + 2, size - 2, true);
    return 0;
}
