/* The folder of the spilled prefix cache: the list of its files, its secret and lock, and the
 * scan at the start. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/system.h"
#include "scheduler/spill_impl.h"

/* ---- the list of files ---- */

enum { N_BUCKETS = 1 << 14 };

typedef struct entry {
    skv_lru_node node;
    skv_spill_name name;
    size_t n_bytes;
} entry;

skv_status skv_spill_list_init(skv_spill_list *list, size_t bytes_max, skv_error *err)
{
    *list = (skv_spill_list){.bytes_max = bytes_max};
    skv_status status = skv_lru_init(&list->entries, N_BUCKETS, err);
    return status == SKV_OK ? SKV_OK : skv_fail_within(err, status, "cache-dir");
}

static entry *find(const skv_spill_list *list, const skv_spill_name *name)
{
    entry *e = (entry *)skv_lru_first(&list->entries, skv_spill_hash(name));
    while (e && memcmp(&e->name, name, sizeof *name) != 0) e = (entry *)skv_lru_next(&e->node);
    return e;
}

static void drop(skv_spill_list *list, entry *e)
{
    skv_lru_remove(&list->entries, &e->node);
    list->n_bytes -= e->n_bytes;
    skv_free(e);
}

bool skv_spill_list_has(const skv_spill_list *list, const skv_spill_name *name)
{
    return find(list, name);
}

bool skv_spill_list_add(skv_spill_list *list, const skv_spill_name *name, size_t n_bytes)
{
    entry *e = find(list, name) ? NULL : skv_alloc(1, sizeof *e);
    if (!e) return false;
    *e = (entry){.name = *name, .n_bytes = n_bytes};
    skv_lru_add(&list->entries, &e->node, skv_spill_hash(name));
    list->n_bytes += n_bytes;
    return true;
}

void skv_spill_list_touch(skv_spill_list *list, const skv_spill_name *name)
{
    entry *e = find(list, name);
    if (e) skv_lru_touch(&list->entries, &e->node);
}

void skv_spill_list_remove(skv_spill_list *list, const skv_spill_name *name)
{
    entry *e = find(list, name);
    if (e) drop(list, e);
}

/* Pinned entries at the old end become the newest. Pins hold a part of the list alone; if all of it
 * is pinned nonetheless, each has had its turn. */
static void spare_pinned(skv_spill_list *list, const skv_spill_pins *pins)
{
    const uint64_t now = skv_clock_ns();
    for (size_t i = 0; i < list->entries.n; i++) {
        entry *oldest = (entry *)list->entries.oldest;
        if (!skv_spill_pins_has(pins, &oldest->name, now)) return;
        skv_lru_touch(&list->entries, &oldest->node);
    }
}

bool skv_spill_list_make_way(skv_spill_list *list, const skv_spill_pins *pins, size_t n_bytes,
                             skv_spill_name *removed)
{
    bool fits = n_bytes <= list->bytes_max && list->n_bytes <= list->bytes_max - n_bytes;
    if (fits || !list->entries.oldest) return false;
    if (pins) spare_pinned(list, pins);
    entry *oldest = (entry *)list->entries.oldest;
    *removed = oldest->name;
    drop(list, oldest);
    return true;
}

void skv_spill_list_clear(skv_spill_list *list)
{
    while (list->entries.oldest) drop(list, (entry *)list->entries.oldest);
}

void skv_spill_list_release(skv_spill_list *list)
{
    skv_spill_list_clear(list);
    skv_lru_release(&list->entries);
    *list = (skv_spill_list){0};
}

void skv_spill_log(const skv_spill *spill, const char *format, ...)
{
    char text[SKV_ERROR_TEXT_MAX], line[2 * SKV_ERROR_TEXT_MAX + 8];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || !spill->options.log) return;
    (void)snprintf(line, sizeof line, "%.*s: %s", SKV_ERROR_TEXT_MAX,
                   spill->folder ? spill->folder : "cache-store", text);
    spill->options.log(spill->options.log_user, line);
}

/* ---- the folder ---- */

static skv_status open_folder(skv_spill *s, skv_error *err)
{
    const char *folder = s->folder;
    if (mkdir(folder, 0700) != 0) {
        SKV_REQUIRE(errno == EEXIST, err, SKV_IO, "cache-dir: %s: cannot create: %s", folder,
                    strerror(errno));
    }
    s->place.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    SKV_REQUIRE(s->place.folder_fd >= 0, err, SKV_IO, "cache-dir: %s: cannot open: %s", folder,
                strerror(errno));
    s->lock_fd =
        openat(s->place.folder_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    SKV_REQUIRE(s->lock_fd >= 0, err, SKV_IO, "cache-dir: %s: cannot write: %s", folder,
                strerror(errno));
    SKV_REQUIRE(skv_file_lock(s->lock_fd), err, SKV_IO, "cache-dir: %s: another process uses it",
                folder);
    return SKV_OK;
}

static bool read_exactly(int fd, void *data, size_t n)
{
    return fd >= 0 && read(fd, data, n) == (ssize_t)n;
}

static skv_status make_secret(skv_spill *s, skv_error *err)
{
    bool drawn = skv_random_fill(s->secret, sizeof s->secret);
    SKV_REQUIRE(drawn, err, SKV_IO, "cache-dir: %s: no random numbers for its secret", s->folder);
    int fd = openat(s->place.folder_fd, "secret.tmp",
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, s->secret, sizeof s->secret) == (ssize_t)sizeof s->secret;
    written = written && skv_file_sync(fd) == 0;
    if (fd >= 0) (void)close(fd);
    SKV_REQUIRE(
        written && renameat(s->place.folder_fd, "secret.tmp", s->place.folder_fd, "secret") == 0,
        err, SKV_IO, "cache-dir: %s: cannot write its secret: %s", s->folder, strerror(errno));
    return SKV_OK;
}

/* A new secret makes all files another model's, which are removed then. */
static skv_status read_secret(skv_spill *s, skv_error *err)
{
    if (s->options.secret) {
        memcpy(s->secret, s->options.secret, sizeof s->secret);
        return SKV_OK;
    }
    int fd = openat(s->place.folder_fd, "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool is_read = read_exactly(fd, s->secret, sizeof s->secret);
    if (fd >= 0) (void)close(fd);
    return is_read ? SKV_OK : make_secret(s, err);
}

/* ---- the scan ---- */

typedef struct found_file {
    skv_spill_name name;
    skv_spill_kind kind;
    size_t n_bytes;
    struct timespec used;
} found_file;

typedef struct found_list {
    found_file *at; /* owned, [n] */
    size_t n, capacity;
    size_t n_removed;
} found_list;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const found_file *)a)->used, *y = &((const found_file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Only names of our own form are looked at; a file with one of them that is not valid is
 * removed. */
static bool look_at(const skv_spill *s, const char *text, found_list *list)
{
    found_file file;
    bool temporary;
    struct stat info;
    if (!skv_spill_name_parse(text, &file.name, &temporary)) return true;
    skv_status status = SKV_FORMAT;
    if (!temporary) {
        status = skv_spill_file_check(&s->place, &file.name, &file.kind, &file.n_bytes, NULL);
    }
    if (status == SKV_FORMAT) {
        list->n_removed += unlinkat(s->place.folder_fd, text, 0) == 0;
        return true;
    }
    if (status != SKV_OK || fstatat(s->place.folder_fd, text, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return true;
    }
    file.used = skv_file_modified(&info);
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 256;
        found_file *at = skv_realloc(list->at, capacity, sizeof *at);
        if (!at) return false;
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->n++] = file;
    return true;
}

static skv_status find_files(const skv_spill *s, found_list *list, skv_error *err)
{
    int fd = openat(s->place.folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder) {
        if (fd >= 0) (void)close(fd);
        return skv_fail(err, SKV_IO, "cache-dir: %s: cannot be read: %s", s->folder,
                        strerror(errno));
    }
    bool ok = true;
    const struct dirent *file;
    while (ok && (file = readdir(folder))) ok = look_at(s, file->d_name, list);
    (void)closedir(folder);
    SKV_REQUIRE(ok, err, SKV_MEMORY, "cache-dir: %s: no memory for %zu files", s->folder, list->n);
    if (list->n > 1) qsort(list->at, list->n, sizeof *list->at, by_use);
    return SKV_OK;
}

static skv_status take_files(skv_spill *s, found_list *list, skv_error *err)
{
    SKV_TRY(find_files(s, list, err));
    s->texts = list->n > 0 ? skv_alloc(list->n, sizeof *s->texts) : NULL;
    SKV_REQUIRE(s->texts || list->n == 0, err, SKV_MEMORY, "cache-dir: %s: no memory", s->folder);
    for (size_t i = 0; i < list->n; i++) {
        const found_file *file = &list->at[i];
        skv_spill_name old;
        bool fits = file->n_bytes <= s->options.bytes_max;
        while (fits && skv_spill_list_make_way(&s->list, NULL, file->n_bytes, &old)) {
            skv_spill_file_remove(&s->place, &old);
        }
        if (!fits || !skv_spill_list_add(&s->list, &file->name, file->n_bytes)) {
            skv_spill_file_remove(&s->place, &file->name);
        } else if (file->kind == SKV_SPILL_TEXT) {
            s->texts[s->n_texts++] = file->name;
        }
    }
    s->stats.n_removed = list->n_removed;
    if (list->n_removed > 0) {
        skv_spill_log(s, "removed %zu files that were damaged, unfinished or of another model",
                      list->n_removed);
    }
    return SKV_OK;
}

void skv_spill_set_fingerprint(skv_spill *s)
{
    skv_sha256 sha;
    uint8_t digest[SKV_SHA256_BYTES];
    skv_sha256_init(&sha);
    skv_sha256_add(&sha, s->secret, sizeof s->secret);
    skv_sha256_add(&sha, s->options.model, sizeof s->options.model);
    skv_sha256_end(&sha, digest);
    memcpy(&s->place.form.fingerprint, digest, sizeof s->place.form.fingerprint);
}

static skv_status prepare(skv_spill *s, skv_error *err)
{
    s->folder = skv_strndup(s->options.folder, strlen(s->options.folder));
    SKV_REQUIRE(s->folder, err, SKV_MEMORY, "cache-dir: no memory");
    SKV_TRY(open_folder(s, err));
    SKV_TRY(read_secret(s, err));
    skv_spill_set_fingerprint(s);
    SKV_TRY(skv_spill_list_init(&s->list, s->options.bytes_max, err));
    found_list list = {.n = 0};
    skv_status status = take_files(s, &list, err);
    skv_free(list.at);
    return status;
}

static void release(skv_spill *s)
{
    if (s->lock_fd >= 0) (void)close(s->lock_fd);
    if (s->place.folder_fd >= 0) (void)close(s->place.folder_fd);
}

static skv_status write_file(skv_spill *s, const skv_spill_item *item, skv_error *err)
{
    return skv_spill_file_write(&s->place, item, err);
}

static skv_status read_file(skv_spill *s, const skv_spill_name *name, skv_spill_item **out,
                            skv_error *err)
{
    return skv_spill_file_read(&s->place, name, out, err);
}

static void remove_file(skv_spill *s, const skv_spill_name *name)
{
    skv_spill_file_remove(&s->place, name);
}

static void touch_file(skv_spill *s, const skv_spill_name *name)
{
    skv_spill_file_touch(&s->place, name);
}

const skv_spill_medium *skv_spill_medium_folder(void)
{
    static const skv_spill_medium medium = {.prepare = prepare,
                                            .release = release,
                                            .write = write_file,
                                            .read = read_file,
                                            .remove = remove_file,
                                            .touch = touch_file};
    return &medium;
}
