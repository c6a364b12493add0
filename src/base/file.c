/* Files: see file.h. */
#define _GNU_SOURCE /* madvise */
#include "base/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

/* Opens a regular file and returns its size. */
static skv_status open_regular(const char *path, int *fd, size_t *size, skv_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not hang; it has no effect on regular files. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    SKV_REQUIRE(*fd >= 0, err, SKV_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0) {
        (void)close(*fd);
        return skv_fail(err, SKV_IO, "%s: not a regular file", path);
    }
    *size = (size_t)info.st_size;
    return SKV_OK;
}

skv_status skv_file_map_open(const char *path, skv_file_map *map, skv_error *err)
{
    int fd;
    size_t size;
    SKV_TRY(open_regular(path, &fd, &size, err));
    void *data = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int saved = errno;
    *map = (skv_file_map){.fd = fd, .path = skv_strndup(path, strlen(path))};
    skv_status status = SKV_OK;
    if (data == MAP_FAILED) {
        status = skv_fail(err, SKV_IO, "%s: cannot map %zu bytes: %s%s", path, size,
                          strerror(saved), saved == ENOMEM ? skv_memory_limit(size) : "");
    } else {
        map->data = data;
        map->size = size;
    }
    if (status == SKV_OK && !map->path) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    }
    if (status == SKV_OK) return SKV_OK;
    (void)close(fd);
    map->fd = -1;
    skv_file_map_close(map);
    return status;
}

void skv_file_map_close(skv_file_map *map)
{
    if (map->data) (void)munmap((void *)(uintptr_t)map->data, map->size);
    if (map->path && map->fd >= 0) (void)close(map->fd);
    skv_free(map->path);
    *map = (skv_file_map){0};
}

skv_status skv_file_map_check(const skv_file_map *map, skv_error *err)
{
    struct stat info;
    SKV_REQUIRE(fstat(map->fd, &info) == 0, err, SKV_IO, "%s: cannot get its size: %s", map->path,
                strerror(errno));
    SKV_REQUIRE((size_t)info.st_size >= map->size, err, SKV_IO,
                "%s: became shorter while in use: %zu bytes, it had %zu", map->path,
                (size_t)info.st_size, map->size);
    return SKV_OK;
}

skv_status skv_file_map_fetch(const skv_file_map *map, const void *at, size_t n_bytes, void *out,
                              skv_error *err)
{
    size_t offset = (size_t)((const unsigned char *)at - map->data), done = 0;
    assert(offset <= map->size && n_bytes <= map->size - offset);
    while (done < n_bytes) {
        ssize_t n =
            pread(map->fd, (unsigned char *)out + done, n_bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        SKV_REQUIRE(n > 0, err, SKV_IO, "%s: byte %zu: cannot read: %s", map->path, offset + done,
                    n < 0 ? strerror(errno) : "the file became shorter while in use");
        done += (size_t)n;
    }
    return SKV_OK;
}

void skv_file_map_forget(const void *data, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)data + n_bytes) / page * page;
    if (to > from) (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

static skv_status read_all(int fd, const char *path, char *out, size_t size, skv_error *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, out + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        SKV_REQUIRE(n > 0, err, SKV_IO, "%s: read %zu of %zu bytes: %s", path, done, size,
                    n < 0 ? strerror(errno) : "the file became shorter");
        done += (size_t)n;
    }
    return SKV_OK;
}

skv_status skv_file_read(const char *path, size_t max, char **data, size_t *size, skv_error *err)
{
    int fd;
    size_t n;
    SKV_TRY(open_regular(path, &fd, &n, err));
    skv_status status = SKV_OK;
    char *out = NULL;
    if (n > max) {
        status = skv_fail(err, SKV_RANGE, "%s: %zu bytes, at most %zu are read", path, n, max);
    } else if (!(out = skv_alloc(n + 1, 1))) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for %zu bytes", path, n);
    } else {
        status = read_all(fd, path, out, n, err);
    }
    (void)close(fd);
    if (status != SKV_OK) {
        skv_free(out);
        return status;
    }
    out[n] = 0;
    *data = out;
    *size = n;
    return SKV_OK;
}

bool skv_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool skv_file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool skv_file_is_same(const char *path, const char *other)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

skv_status skv_folder_create(const char *path, skv_error *err)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && skv_file_is_folder(path))) return SKV_OK;
    return skv_fail(err, SKV_IO, "%s: cannot create the folder: %s", path, strerror(errno));
}

char *skv_path_join(const char *folder, const char *name)
{
    size_t n_folder = strlen(folder), n_name = strlen(name), n;
    while (n_folder > 1 && folder[n_folder - 1] == '/') n_folder--;
    if (!skv_size_add(n_folder, n_name, &n) || !skv_size_add(n, 2, &n)) return NULL;
    char *path = skv_alloc(n, 1);
    if (path) (void)snprintf(path, n, "%.*s/%s", (int)n_folder, folder, name);
    return path;
}

bool skv_folder_has(const char *folder, const char *name)
{
    char *path = skv_path_join(folder, name);
    const bool has = path && skv_file_exists(path);
    skv_free(path);
    return has;
}

skv_status skv_writer_open(skv_writer *writer, const char *path, skv_error *err)
{
    *writer = (skv_writer){0};
    size_t n = strlen(path) + 32;
    char *temporary = skv_alloc(n, 1);
    char *copy = skv_strndup(path, strlen(path));
    if (!temporary || !copy) {
        skv_free(temporary);
        skv_free(copy);
        return skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    }
    (void)snprintf(temporary, n, "%s.tmp-%ld", path, (long)getpid());
    writer->path = copy;
    writer->temporary = temporary;
    writer->stream = fopen(temporary, "wb");
    if (writer->stream) return SKV_OK;
    skv_status status = skv_fail(err, SKV_IO, "%s: cannot write: %s", temporary, strerror(errno));
    skv_writer_abort(writer);
    return status;
}

skv_status skv_writer_put(skv_writer *writer, const void *data, size_t n, skv_error *err)
{
    if (!n || fwrite(data, 1, n, writer->stream) == n) return SKV_OK;
    return skv_fail(err, SKV_IO, "%s: cannot write: %s", writer->temporary, strerror(errno));
}

/* Makes a rename durable. Best effort: some file systems refuse to sync a folder. */
static void sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? skv_strndup(path, (size_t)(slash - path) + 1) : skv_strndup(".", 1);
    if (!folder) return;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    skv_free(folder);
    if (fd < 0) return;
    (void)skv_file_sync(fd);
    (void)close(fd);
}

skv_status skv_writer_commit(skv_writer *writer, skv_error *err)
{
    bool ok = fflush(writer->stream) == 0 && skv_file_sync(fileno(writer->stream)) == 0;
    int saved = errno;
    if (fclose(writer->stream) != 0 && ok) {
        ok = false;
        saved = errno;
    }
    writer->stream = NULL;
    if (ok && rename(writer->temporary, writer->path) != 0) {
        ok = false;
        saved = errno;
    }
    skv_status status = SKV_OK;
    if (ok) {
        sync_folder_of(writer->path);
        skv_free(writer->temporary);
        writer->temporary = NULL;
    } else {
        status = skv_fail(err, SKV_IO, "%s: cannot write: %s", writer->path, strerror(saved));
    }
    skv_writer_abort(writer);
    return status;
}

void skv_writer_abort(skv_writer *writer)
{
    if (writer->stream) (void)fclose(writer->stream);
    if (writer->temporary) (void)unlink(writer->temporary);
    skv_free(writer->temporary);
    skv_free(writer->path);
    *writer = (skv_writer){0};
}

/* The process in the name of a temporary file; 0: it is none. */
static long writer_of(const char *name)
{
    static const char mark[] = ".tmp-";
    const char *at = strstr(name, mark), *next;
    if (!at) return 0;
    while ((next = strstr(at + 1, mark))) at = next;
    at += sizeof mark - 1;
    char *end = NULL;
    long pid = *at >= '1' && *at <= '9' ? strtol(at, &end, 10) : 0;
    return pid > 0 && pid < INT_MAX && *end == 0 ? pid : 0;
}

void skv_writer_clean(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        long pid = writer_of(entry->d_name);
        bool is_left = pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
        if (is_left) (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
}

skv_status skv_file_write(const char *path, const void *data, size_t n, skv_error *err)
{
    skv_writer writer;
    SKV_TRY(skv_writer_open(&writer, path, err));
    skv_status status = skv_writer_put(&writer, data, n, err);
    if (status == SKV_OK) return skv_writer_commit(&writer, err);
    skv_writer_abort(&writer);
    return status;
}
