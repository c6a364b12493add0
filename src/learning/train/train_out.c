/* The folder that a run writes to, looked at before hours of work: nothing is made or written. */
#include <dirent.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "train/trainer.h"

/* The remains of a stopped run, and hidden files. */
static bool is_ours(const char *name)
{
    static const char *const names[] = {"checkpoint", "log.jsonl", "curves.svg"};
    static const char text[] = "self-";
    if (name[0] == '.' || strncmp(name, text, sizeof text - 1) == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

static skv_status check_content(const char *out, skv_error *err)
{
    skv_status status = SKV_OK;
    const struct dirent *entry;
    DIR *dir = opendir(out);
    SKV_REQUIRE(dir, err, SKV_IO, "%s: cannot be read", out);
    while (status == SKV_OK && (entry = readdir(dir))) {
        if (is_ours(entry->d_name)) continue;
        status = skv_fail(err, SKV_ARGUMENT, "%s: not empty, it holds %s: choose a new folder", out,
                          entry->d_name);
    }
    (void)closedir(dir);
    return status;
}

/* The folder itself, or where it would be made; on the heap. */
static char *place_of(const char *out)
{
    size_t n = strlen(out);
    if (skv_file_is_folder(out)) return skv_strndup(out, n);
    while (n > 1 && out[n - 1] == '/') n--;
    while (n > 0 && out[n - 1] != '/') n--;
    while (n > 1 && out[n - 1] == '/') n--;
    return n > 0 ? skv_strndup(out, n) : skv_strndup(".", 1);
}

static skv_status check_place(const char *out, const char *place, uint64_t least, skv_error *err)
{
    struct statvfs about;
    SKV_REQUIRE(skv_file_is_folder(place), err, SKV_IO, "%s: there is no folder %s", out, place);
    SKV_REQUIRE(access(place, W_OK | X_OK) == 0, err, SKV_IO, "%s: %s cannot be written to", out,
                place);
    if (least == 0 || statvfs(place, &about) != 0) return SKV_OK;
    const double free_bytes = (double)about.f_bavail * (double)about.f_frsize;
    SKV_REQUIRE(free_bytes >= (double)least, err, SKV_IO,
                "%s: %.0f MiB are free there, the run writes at least %.0f MiB", out,
                free_bytes / 1048576, (double)least / 1048576);
    return SKV_OK;
}

skv_status skv_trainer_check_folder(const skv_train_options *o, uint64_t least, skv_error *err)
{
    const char *out = o->out;
    SKV_REQUIRE(!skv_folder_has(out, "config.json"), err, SKV_ARGUMENT,
                "%s: already contains a model", out);
    SKV_REQUIRE(!skv_file_exists(out), err, SKV_ARGUMENT, "%s: a file, expected a folder", out);
    SKV_REQUIRE(o->resume || !skv_folder_has(out, "checkpoint/latest.json"), err, SKV_ARGUMENT,
                "%s: holds a run that was stopped: --resume continues it, or choose another folder",
                out);
    if (skv_file_is_folder(out) && !o->resume) SKV_TRY(check_content(out, err));
    char *place = place_of(out);
    SKV_REQUIRE(place, err, SKV_MEMORY, "%s: no memory", out);
    const skv_status status = check_place(out, place, least, err);
    skv_free(place);
    return status;
}
