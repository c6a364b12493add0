/* A file of the spilled prefix cache: see spill_file.h. */
#include "scheduler/spill_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"

typedef struct header {
    char magic[8];
    uint32_t version, kind, n_ids, n_pages;
    uint64_t page_bytes;
    skv_spill_name fingerprint, name, parent;
    uint8_t unused[32];
    uint64_t body_check;
    uint64_t check; /* of all before */
} header;

static const char magic[] = "SKVSPILL";
enum { VERSION = 1, PAGES_MAX = 1 << 20 };

/* ---- checksums: four lanes, each step reversible, so that no single change cancels out ---- */

static uint64_t stir(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * 0x9fb21c651e98df25u;
    return lane ^ lane >> 29;
}

static uint64_t checksum(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint64_t lanes[4] = {n, 0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u};
    uint64_t words[4] = {0};
    for (; n >= sizeof words; n -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (size_t i = 0; i < 4; i++) lanes[i] = stir(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    if (n > 0) memcpy(words, at, n);
    for (size_t i = 0; i < 4; i++) lanes[i] = stir(lanes[i], words[i]);
    uint64_t sum = lanes[0];
    for (size_t i = 1; i < 4; i++) sum = stir(sum, lanes[i]);
    return stir(sum, 0);
}

/* ---- items and names ---- */

size_t skv_spill_file_bytes(size_t n_ids, size_t n_pages, size_t page_bytes)
{
    return sizeof(header) + n_ids * sizeof(int32_t) + n_pages * page_bytes;
}

skv_spill_item *skv_spill_item_create(size_t n_ids, size_t n_pages, size_t page_bytes)
{
    size_t n_bytes;
    if (n_ids > SKV_SPILL_IDS_MAX || n_pages > PAGES_MAX) return NULL;
    if (!skv_size_mul(n_pages, page_bytes, &n_bytes)) return NULL;
    if (!skv_size_add(n_bytes, sizeof(skv_spill_item) + n_ids * sizeof(int32_t), &n_bytes)) {
        return NULL;
    }
    skv_spill_item *item = skv_alloc(1, n_bytes);
    if (!item) return NULL;
    *item = (skv_spill_item){.n_ids = n_ids, .n_pages = n_pages};
    item->pages = (unsigned char *)(item->ids + n_ids);
    return item;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool skv_spill_name_parse(const char *text, skv_spill_name *name, bool *temporary)
{
    for (size_t i = 0; i < SKV_SPILL_NAME_BYTES; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0) return false;
        name->bytes[i] = (uint8_t)(high << 4 | low);
    }
    const char *suffix = text + (size_t)2 * SKV_SPILL_NAME_BYTES;
    *temporary = strcmp(suffix, ".tmp") == 0;
    return *temporary || strcmp(suffix, ".skv") == 0;
}

void skv_spill_name_format(const skv_spill_name *name, bool temporary,
                           char text[SKV_SPILL_FILE_NAME])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SKV_SPILL_NAME_BYTES; i++) {
        text[2 * i] = digits[name->bytes[i] >> 4];
        text[2 * i + 1] = digits[name->bytes[i] & 15];
    }
    memcpy(text + (size_t)2 * SKV_SPILL_NAME_BYTES, temporary ? ".tmp" : ".skv", 5);
}

/* ---- writing ---- */

static bool write_all(int fd, const void *data, size_t n)
{
    const unsigned char *at = data;
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

skv_status skv_spill_file_write(const skv_spill_place *place, const skv_spill_item *item,
                                skv_error *err)
{
    static_assert(sizeof(header) == 128 && sizeof(skv_spill_name) == 16, "they lie on disk");
    char temporary[SKV_SPILL_FILE_NAME], final[SKV_SPILL_FILE_NAME];
    size_t n_body = item->n_ids * sizeof *item->ids + item->n_pages * place->page_bytes;
    header h = {.version = VERSION,
                .kind = (uint32_t)item->kind,
                .n_ids = (uint32_t)item->n_ids,
                .n_pages = (uint32_t)item->n_pages,
                .page_bytes = place->page_bytes,
                .fingerprint = place->fingerprint,
                .name = item->name,
                .parent = item->parent,
                .body_check = checksum(item->ids, n_body)};
    memcpy(h.magic, magic, sizeof h.magic);
    h.check = checksum(&h, offsetof(header, check));
    skv_spill_name_format(&item->name, true, temporary);
    skv_spill_name_format(&item->name, false, final);
    int fd = openat(place->folder_fd, temporary,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    SKV_REQUIRE(fd >= 0, err, SKV_IO, "%s: cannot create: %s", temporary, strerror(errno));
    bool written = write_all(fd, &h, sizeof h) && write_all(fd, item->ids, n_body);
    int saved = errno;
    if (close(fd) != 0 && written) {
        written = false;
        saved = errno;
    }
    if (written && renameat(place->folder_fd, temporary, place->folder_fd, final) == 0) {
        skv_spill_file_touch(place, &item->name);
        return SKV_OK;
    }
    if (written) saved = errno;
    (void)unlinkat(place->folder_fd, temporary, 0);
    return skv_fail(err, SKV_IO, "%s: cannot write %zu bytes: %s", final, sizeof h + n_body,
                    strerror(saved));
}

/* ---- reading ---- */

static bool read_all(int fd, void *data, size_t n)
{
    unsigned char *at = data;
    while (n > 0) {
        ssize_t done = read(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static skv_status check_header(const skv_spill_place *place, const skv_spill_name *name,
                               const header *h, size_t n_file, skv_error *err)
{
    SKV_REQUIRE(memcmp(h->magic, magic, sizeof h->magic) == 0 &&
                    h->check == checksum(h, offsetof(header, check)),
                err, SKV_FORMAT, "the header is damaged");
    SKV_REQUIRE(h->version == VERSION && memcmp(&h->name, name, sizeof *name) == 0 &&
                    memcmp(&h->fingerprint, &place->fingerprint, sizeof *name) == 0,
                err, SKV_FORMAT, "another model's, or another version's");
    bool is_block = (h->kind == SKV_SPILL_BLOCK || h->kind == SKV_SPILL_ROWS) && h->n_pages > 0 &&
                    h->n_pages <= PAGES_MAX;
    bool is_text = h->kind == SKV_SPILL_TEXT && h->n_pages == 0;
    SKV_REQUIRE((is_block || is_text) && h->n_ids > 0 && h->n_ids <= SKV_SPILL_IDS_MAX &&
                    h->page_bytes == place->page_bytes &&
                    n_file == skv_spill_file_bytes(h->n_ids, h->n_pages, place->page_bytes),
                err, SKV_FORMAT, "%zu bytes, which is not what the header says", n_file);
    return SKV_OK;
}

static skv_status open_file(const skv_spill_place *place, const skv_spill_name *name, header *h,
                            int *fd, size_t *n_file, skv_error *err)
{
    char text[SKV_SPILL_FILE_NAME];
    struct stat info;
    skv_spill_name_format(name, false, text);
    *fd = openat(place->folder_fd, text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    SKV_REQUIRE(*fd >= 0, err, SKV_IO, "cannot open: %s", strerror(errno));
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode) || !read_all(*fd, h, sizeof *h)) {
        (void)close(*fd);
        return skv_fail(err, SKV_FORMAT, "not a regular file with a header");
    }
    *n_file = (size_t)info.st_size;
    skv_status status = check_header(place, name, h, *n_file, err);
    if (status != SKV_OK) (void)close(*fd);
    return status;
}

skv_status skv_spill_file_check(const skv_spill_place *place, const skv_spill_name *name,
                                skv_spill_kind *kind, size_t *n_bytes, skv_error *err)
{
    header h;
    int fd;
    SKV_TRY(open_file(place, name, &h, &fd, n_bytes, err));
    (void)close(fd);
    *kind = (skv_spill_kind)h.kind;
    return SKV_OK;
}

skv_status skv_spill_file_read(const skv_spill_place *place, const skv_spill_name *name,
                               skv_spill_item **out, skv_error *err)
{
    header h;
    int fd;
    size_t n_file;
    SKV_TRY(open_file(place, name, &h, &fd, &n_file, err));
    skv_spill_item *item = skv_spill_item_create(h.n_ids, h.n_pages, place->page_bytes);
    bool is_read = item && read_all(fd, item->ids, n_file - sizeof h);
    (void)close(fd);
    skv_status status = SKV_OK;
    if (!item) {
        status = skv_fail(err, SKV_MEMORY, "no memory for %zu bytes", n_file);
    } else if (!is_read || checksum(item->ids, n_file - sizeof h) != h.body_check) {
        status = skv_fail(err, SKV_FORMAT, "the content is damaged");
    }
    if (status != SKV_OK) {
        skv_free(item);
        return status;
    }
    item->kind = (skv_spill_kind)h.kind;
    item->name = h.name;
    item->parent = h.parent;
    *out = item;
    return SKV_OK;
}

void skv_spill_file_remove(const skv_spill_place *place, const skv_spill_name *name)
{
    char text[SKV_SPILL_FILE_NAME];
    skv_spill_name_format(name, false, text);
    (void)unlinkat(place->folder_fd, text, 0);
}

void skv_spill_file_touch(const skv_spill_place *place, const skv_spill_name *name)
{
    char text[SKV_SPILL_FILE_NAME];
    skv_spill_name_format(name, false, text);
    /* The system's own idea of now stands still for milliseconds: that would be no order. */
    struct timespec times[2];
    (void)clock_gettime(CLOCK_REALTIME, &times[0]);
    times[1] = times[0];
    (void)utimensat(place->folder_fd, text, times, AT_SYMLINK_NOFOLLOW);
}
