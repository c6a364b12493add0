/* The files of --slot-save-path: see slot_files.h. */
#include "llamacpp/slot_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer/slots.h"
#include "wire/server_limits.h"

enum { PARTS = 3 /* a key may hold this many times the room that it leaves */ };

/* ---- names ---- */

/* Letters, digits, and . _ - inside: nothing that leads out of the folder, or is hidden in it. */
static bool is_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);
    return n > 0 && n <= SLOT_NAME_BYTES && name[0] != '.' && strspn(name, letters) == n;
}

/* A key's names begin with a hash that cannot be made of another key. */
bool slot_file_name(const exchange *ex, const json_t *filename, slot_file *out, api_error *error)
{
    const char *name = json_string_value(filename);
    uint8_t digest[SHA256_DIGEST_SIZE] = {0};
    if (!name || strlen(name) != json_string_length(filename) || !is_name(name)) {
        return api_fail(error, 400, "filename", "Invalid filename");
    }
    *out = (slot_file){.filename = name};
    if (ex->key) {
        struct sha256_ctx sum;
        sha256_init(&sum);
        sha256_update(&sum, strlen(ex->key), (const uint8_t *)ex->key);
        sha256_digest(&sum, sizeof digest, digest);
        for (size_t i = 0; i < sizeof digest; i++, out->n_own += 2) {
            (void)snprintf(out->name + out->n_own, 3, "%02x", digest[i]);
        }
        out->name[out->n_own++] = '.';
    }
    (void)snprintf(out->name + out->n_own, sizeof out->name - out->n_own, "%s", name);
    return true;
}

/* ---- bounds ---- */

/* Bytes or files, of all keys and of one. */
typedef struct holding {
    uint64_t all, own;
} holding;

/* Counts the files of the folder beside one that is to be written. */
static void count(DIR *folder, const slot_file *file, holding *bytes, holding *files)
{
    const struct dirent *one;
    *bytes = *files = (holding){0, 0};
    while ((one = readdir(folder))) {
        struct stat about;
        if (strcmp(one->d_name, file->name) == 0 ||
            fstatat(dirfd(folder), one->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(about.st_mode)) {
            continue;
        }
        const bool own = strncmp(one->d_name, file->name, file->n_own) == 0;
        bytes->all += (uint64_t)about.st_size;
        files->all++;
        if (own) bytes->own += (uint64_t)about.st_size;
        if (own) files->own++;
    }
}

static bool fits(holding have, uint64_t n, uint64_t max, bool shared)
{
    if (have.all > max || n > max - have.all) return false;
    return !shared || have.own + n <= PARTS * (max - have.all - n);
}

static bool has_room(const exchange *ex, DIR *folder, const slot_file *file, size_t n,
                     api_error *error)
{
    holding bytes, files;
    const size_t max = ex->server->options.slot_save_bytes;
    const bool shared = file->n_own > 0;
    count(folder, file, &bytes, &files);
    if (fits(bytes, n, max, shared) && fits(files, 1, LIMIT_SLOT_FILES, shared)) return true;
    return api_fail(error, 400, "filename",
                    "Unable to save slot: no room for %zu bytes more; files of slots may have %zu "
                    "bytes (--slot-save-bytes) and be %d%s",
                    n, max, (int)LIMIT_SLOT_FILES,
                    shared ? ", those of one key three times the room that they leave" : "");
}

/* ---- files ---- */

static bool write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}

/* Under a name that no client can give first, so that a file is never seen in part. */
static bool write_file(DIR *folder, const slot_file *file, const skv_buf *text)
{
    char other[SLOT_FILE_BYTES + 1];
    (void)snprintf(other, sizeof other, "%s~", file->name);
    const int fd =
        openat(dirfd(folder), other, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool ok = write_all(fd, text->data, text->size);
    int saved = errno;
    if (close(fd) != 0 && ok) {
        saved = errno;
        ok = false;
    }
    if (ok && renameat(dirfd(folder), other, dirfd(folder), file->name) == 0) return true;
    if (ok) saved = errno;
    (void)unlinkat(dirfd(folder), other, 0);
    errno = saved;
    return false;
}

bool slot_file_write(const exchange *ex, const slot_file *file, const skv_buf *text,
                     api_error *error)
{
    slot_table *slots = ex->server->slots;
    slots_lock_files(slots);
    DIR *folder = opendir(ex->server->options.slot_save_path);
    bool ok = folder || api_fail(error, 500, NULL, "Unable to save slot: %s", strerror(errno));
    ok = ok && has_room(ex, folder, file, text->size, error);
    if (ok && !write_file(folder, file, text)) {
        ok = api_fail(error, 500, NULL, "Unable to save slot: %s", strerror(errno));
    }
    if (folder) (void)closedir(folder);
    slots_unlock_files(slots);
    return ok;
}

int slot_file_open(const exchange *ex, const slot_file *file)
{
    const int folder = open(ex->server->options.slot_save_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    const int fd = openat(folder, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    (void)close(folder);
    return fd;
}
