/* The files of the cache that a download writes: see hub_blob.h. */
#include "hub_blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/system.h"

enum { READ_BYTES = 1 << 16 };

/* ---- paths ---- */

bool hub_blob_path(const hub_place *place, const hub_file *file, const char *suffix,
                   char out[CLI_HUB_PATH_MAX])
{
    char inside[HUB_HASH_MAX + 32];
    (void)snprintf(inside, sizeof inside, "blobs/%s%s", file->hash, suffix);
    return hub_join(out, place->repository, inside);
}

/* Makes the folders above a path. */
static bool make_folders(const char *path, hub_error *error)
{
    char folder[CLI_HUB_PATH_MAX];
    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(at - path), path);
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
            return hub_fail(error, "%s: %s", folder, strerror(errno));
        }
    }
    return true;
}

bool hub_blob_is_there(const hub_place *place, const hub_file *file, uint64_t *bytes)
{
    char path[CLI_HUB_PATH_MAX];
    struct stat about;
    *bytes = 0;
    if (hub_blob_path(place, file, "", path) && stat(path, &about) == 0 &&
        (uint64_t)about.st_size == file->bytes) {
        *bytes = file->bytes;
        return true;
    }
    if (hub_blob_path(place, file, ".incomplete", path) && stat(path, &about) == 0 &&
        (uint64_t)about.st_size <= file->bytes) {
        *bytes = (uint64_t)about.st_size;
    }
    return false;
}

bool hub_has_room(const hub_place *place, uint64_t bytes, hub_error *error)
{
    struct statvfs disk;
    if (!make_folders(place->repository, error)) return false;
    if (statvfs(place->cache, &disk) != 0) return true;
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (bytes <= room) return true;
    return hub_fail(error, "%.3f GB are to be fetched, %s has room for %.3f GB",
                    (double)bytes * 1e-9, place->cache, (double)room * 1e-9);
}

/* ---- hashes ---- */

/* Git's hash of a file begins with its length. */
static void begin_hash(hub_blob *blob)
{
    char head[40];
    const int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)blob->file->bytes);
    sha256_init(&blob->sha256);
    sha1_init(&blob->sha1);
    sha1_update(&blob->sha1, (size_t)n + 1, (const uint8_t *)head);
    blob->bytes = 0;
}

static void add_to_hash(hub_blob *blob, const void *data, size_t n)
{
    if (blob->file->is_sha256) {
        sha256_update(&blob->sha256, n, data);
    } else {
        sha1_update(&blob->sha1, n, data);
    }
    blob->bytes += n;
}

bool hub_blob_is_right(const hub_blob *blob)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    char text[HUB_HASH_MAX] = "";
    struct sha256_ctx sha256 = blob->sha256;
    struct sha1_ctx sha1 = blob->sha1;
    const size_t n = blob->file->is_sha256 ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;
    if (blob->file->is_sha256) {
        sha256_digest(&sha256, n, digest);
    } else {
        sha1_digest(&sha1, n, digest);
    }
    for (size_t i = 0; i < n; i++) (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return blob->bytes == blob->file->bytes && strcmp(text, blob->file->hash) == 0;
}

/* ---- a file while it is fetched ---- */

/* Takes the lock NAME.lock as Python's filelock does; its file may be removed while we take it.
 * BUSY: another process has it, and we do not wait. */
static hub_blob_state take_lock(const hub_place *place, const char *name, bool waits, int *lock,
                                hub_error *error)
{
    char inside[2 * HUB_WORD_MAX + HUB_HASH_MAX + 40], path[CLI_HUB_PATH_MAX];
    (void)snprintf(inside, sizeof inside, ".locks/models--%s--%s/%s.lock", place->name.org,
                   place->name.model, name);
    if (!hub_join(path, place->cache, inside) || !make_folders(path, error)) return HUB_BLOB_FAILED;
    struct stat mine, there;
    do {
        if (*lock >= 0) (void)close(*lock);
        *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        if (*lock < 0) {
            (void)hub_fail(error, "%s: %s", path, strerror(errno));
            return HUB_BLOB_FAILED;
        }
        int code;
        do {
            code = flock(*lock, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
        } while (code != 0 && errno == EINTR);
        if (code != 0) {
            if (waits) (void)hub_fail(error, "%s: %s", path, strerror(errno));
            (void)close(*lock);
            *lock = -1;
            return waits ? HUB_BLOB_FAILED : HUB_BLOB_BUSY;
        }
    } while (fstat(*lock, &mine) != 0 || stat(path, &there) != 0 || mine.st_ino != there.st_ino);
    return HUB_BLOB_OPEN;
}

/* Hashes the part that an earlier run fetched. */
static bool read_on(hub_blob *blob, hub_error *error)
{
    char bytes[READ_BYTES];
    ssize_t n;
    begin_hash(blob);
    while ((n = read(blob->fd, bytes, sizeof bytes)) > 0) add_to_hash(blob, bytes, (size_t)n);
    if (n < 0) return hub_fail(error, "%s: %s", blob->incomplete, strerror(errno));
    return blob->bytes <= blob->file->bytes || hub_blob_restart(blob, error);
}

hub_blob_state hub_blob_open(const hub_place *place, const hub_file *file, hub_blob *out,
                             hub_error *error)
{
    *out = (hub_blob){.file = file, .lock = -1, .fd = -1};
    uint64_t bytes;
    if (hub_blob_is_there(place, file, &bytes)) return HUB_BLOB_THERE;
    if (!hub_blob_path(place, file, "", out->path) ||
        !hub_blob_path(place, file, ".incomplete", out->incomplete)) {
        (void)hub_fail(error, "%s: the path is too long", file->path);
        return HUB_BLOB_FAILED;
    }
    if (!make_folders(out->path, error)) return HUB_BLOB_FAILED;
    const hub_blob_state state = take_lock(place, file->hash, false, &out->lock, error);
    if (state != HUB_BLOB_OPEN) return state;
    if (hub_blob_is_there(place, file, &bytes)) {
        hub_blob_close(out);
        return HUB_BLOB_THERE;
    }
    out->fd = open(out->incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (out->fd < 0) (void)hub_fail(error, "%s: %s", out->incomplete, strerror(errno));
    if (out->fd >= 0 && read_on(out, error)) return HUB_BLOB_OPEN;
    hub_blob_close(out);
    return HUB_BLOB_FAILED;
}

bool hub_blob_write(hub_blob *blob, const void *data, size_t n, hub_error *error)
{
    if (n > blob->file->bytes - blob->bytes) {
        return hub_fail(error, "%s: the hub sends more than the %llu bytes of its list",
                        blob->file->path, (unsigned long long)blob->file->bytes);
    }
    const char *at = data;
    for (size_t left = n; left > 0;) {
        const ssize_t done = write(blob->fd, at, left);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            return hub_fail(error, "%s: %s: %s", blob->file->path, blob->incomplete,
                            strerror(errno));
        }
        add_to_hash(blob, at, (size_t)done);
        at += done;
        left -= (size_t)done;
    }
    return true;
}

bool hub_blob_restart(hub_blob *blob, hub_error *error)
{
    begin_hash(blob);
    if (ftruncate(blob->fd, 0) == 0 && lseek(blob->fd, 0, SEEK_SET) == 0) return true;
    return hub_fail(error, "%s: %s", blob->incomplete, strerror(errno));
}

bool hub_blob_finish(hub_blob *blob, hub_error *error)
{
    const bool ok = skv_file_sync(blob->fd) == 0 && rename(blob->incomplete, blob->path) == 0;
    if (!ok) (void)hub_fail(error, "%s: %s", blob->path, strerror(errno));
    hub_blob_close(blob);
    return ok;
}

void hub_blob_close(hub_blob *blob)
{
    if (blob->fd >= 0) (void)close(blob->fd);
    if (blob->lock >= 0) (void)close(blob->lock);
    blob->fd = blob->lock = -1;
}

/* ---- names ---- */

/* A link or file that was made elsewhere takes its place in one moment. */
static bool put_in_place(const char *made, const char *path, hub_error *error)
{
    if (rename(made, path) == 0) return true;
    const int code = errno;
    (void)unlink(made);
    return hub_fail(error, "%s: %s", path, strerror(code));
}

/* The place for unfinished files: among the blobs, where a leftover of a killed process cannot be
 * mistaken for a file of the snapshot or for a revision. */
#define NAME "name"
#define UNFINISHED ".incomplete"

static bool place_to_make(const hub_place *place, char out[CLI_HUB_PATH_MAX], hub_error *error)
{
    if (!hub_join(out, place->repository, "blobs/" NAME UNFINISHED)) {
        return hub_fail(error, "%s: the path is too long", place->repository);
    }
    return make_folders(out, error);
}

/* Only the holder of the lock creates such a file, so others are leftovers of killed processes. */
static void remove_left(const hub_place *place)
{
    const size_t n_end = strlen(UNFINISHED);
    char path[CLI_HUB_PATH_MAX], inside[CLI_HUB_PATH_MAX];
    if (!hub_join(path, place->repository, "blobs")) return;
    DIR *folder = opendir(path);
    for (const struct dirent *one; folder && (one = readdir(folder));) {
        const size_t n = strlen(one->d_name);
        if (strncmp(one->d_name, NAME, strlen(NAME)) != 0 || n < n_end) continue;
        if (strcmp(one->d_name + n - n_end, UNFINISHED) != 0) continue;
        (void)snprintf(inside, sizeof inside, "blobs/%s", one->d_name);
        if (hub_join(path, place->repository, inside)) (void)unlink(path);
    }
    if (folder) (void)closedir(folder);
}

bool hub_names_begin(const hub_place *place, int *lock, hub_error *error)
{
    *lock = -1;
    if (take_lock(place, "names", true, lock, error) != HUB_BLOB_OPEN) return false;
    remove_left(place);
    return true;
}

void hub_names_end(int lock)
{
    (void)close(lock);
}

bool hub_link(const hub_place *place, const char *commit, const hub_file *file, hub_error *error)
{
    char inside[CLI_HUB_PATH_MAX], path[CLI_HUB_PATH_MAX], made[CLI_HUB_PATH_MAX];
    char target[CLI_HUB_PATH_MAX] = "../../";
    const int n = snprintf(inside, sizeof inside, "snapshots/%s/%s", commit, file->path);
    if (n <= 0 || (size_t)n >= sizeof inside || !hub_join(path, place->repository, inside)) {
        return hub_fail(error, "%s: the path is too long", file->path);
    }
    size_t at = strlen(target);
    for (const char *c = file->path; (c = strchr(c, '/')); c++) {
        at += (size_t)snprintf(target + at, sizeof target - at, "../");
    }
    (void)snprintf(target + at, sizeof target - at, "blobs/%s", file->hash);
    if (!make_folders(path, error) || !place_to_make(place, made, error)) return false;
    if (symlink(target, made) != 0) return hub_fail(error, "%s: %s", made, strerror(errno));
    return put_in_place(made, path, error);
}

bool hub_write_ref(const hub_place *place, const char *commit, hub_error *error)
{
    char inside[HUB_WORD_MAX + 8], path[CLI_HUB_PATH_MAX], made[CLI_HUB_PATH_MAX];
    if (strcmp(place->name.revision, commit) == 0) return true;
    (void)snprintf(inside, sizeof inside, "refs/%s", place->name.revision);
    if (!hub_join(path, place->repository, inside)) {
        return hub_fail(error, "%s: the path is too long", inside);
    }
    if (!make_folders(path, error) || !place_to_make(place, made, error)) return false;
    FILE *file = fopen(made, "w");
    bool ok = file && fputs(commit, file) >= 0;
    if (file) ok = fclose(file) == 0 && ok;
    if (!ok) {
        const int code = errno;
        (void)unlink(made);
        return hub_fail(error, "%s: %s", path, strerror(code));
    }
    return put_in_place(made, path, error);
}
