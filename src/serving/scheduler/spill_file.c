/* A file of the spilled prefix cache: see spill_file.h. */
#include "scheduler/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* ---- names ---- */

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
    char temporary[SKV_SPILL_FILE_NAME], final[SKV_SPILL_FILE_NAME];
    size_t n_body = skv_spill_item_bytes(item->n_ids, item->n_pages, place->form.page_bytes) -
                    sizeof(skv_spill_header);
    skv_spill_header h;
    skv_spill_item_encode(&place->form, item, &h);
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

static skv_status open_file(const skv_spill_place *place, const skv_spill_name *name,
                            skv_spill_header *h, int *fd, size_t *n_file, skv_error *err)
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
    skv_status status = skv_spill_header_check(&place->form, name, h, *n_file, err);
    if (status != SKV_OK) (void)close(*fd);
    return status;
}

skv_status skv_spill_file_check(const skv_spill_place *place, const skv_spill_name *name,
                                skv_spill_kind *kind, size_t *n_bytes, skv_error *err)
{
    skv_spill_header h;
    int fd;
    SKV_TRY(open_file(place, name, &h, &fd, n_bytes, err));
    (void)close(fd);
    *kind = (skv_spill_kind)h.kind;
    return SKV_OK;
}

skv_status skv_spill_file_read(const skv_spill_place *place, const skv_spill_name *name,
                               skv_spill_item **out, skv_error *err)
{
    skv_spill_header h;
    int fd;
    size_t n_file;
    SKV_TRY(open_file(place, name, &h, &fd, &n_file, err));
    skv_spill_item *item = NULL;
    size_t n_body;
    skv_status status = skv_spill_item_begin(&h, &item, &n_body, err);
    bool is_read = status == SKV_OK && read_all(fd, item->ids, n_body);
    (void)close(fd);
    if (status == SKV_OK && !is_read) status = skv_fail(err, SKV_FORMAT, "it ends too early");
    if (status == SKV_OK) status = skv_spill_item_check(&place->form, &h, item, err);
    if (status != SKV_OK) {
        skv_free(item);
        return status;
    }
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
