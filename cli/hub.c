/* Models by name: see hub.h. */
#include "hub.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub_download.h"

enum { LISTED_BYTES = 400 };

static bool is_there(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

bool cli_hub_is_name(const char *text)
{
    hub_name name;
    return hub_name_parse(text, &name) && !is_there(text);
}

/* ---- a snapshot ---- */

/* The commit that refs/REVISION names; a revision without such a file is a commit itself. */
static void read_commit(const char *repository, const hub_name *name, char out[HUB_WORD_MAX])
{
    char path[CLI_HUB_PATH_MAX], refs[HUB_WORD_MAX + 8], text[HUB_WORD_MAX] = "";
    (void)snprintf(refs, sizeof refs, "refs/%s", name->revision);
    FILE *file = hub_join(path, repository, refs) ? fopen(path, "r") : NULL;
    const bool read = file && fgets(text, sizeof text, file);
    if (file) (void)fclose(file);
    const size_t n = hub_count_word(text, "_-");
    const bool is_commit = read && n > 0 && text[n + strspn(text + n, "\r\n ")] == 0;
    (void)snprintf(out, HUB_WORD_MAX, "%.*s", (int)(is_commit ? n : strlen(name->revision)),
                   is_commit ? text : name->revision);
}

/* ---- GGUF files of a folder ---- */

typedef struct gguf_search {
    const char *quant;
    size_t n;                     /* that fit */
    char found[CLI_HUB_PATH_MAX]; /* the last of them */
    char listed[LISTED_BYTES];    /* names of all files found, as far as they fit */
} gguf_search;

static void look_at(gguf_search *search, const char *folder, const char *file)
{
    if (!hub_is_model_file(file)) return;
    const size_t n = strlen(search->listed);
    (void)snprintf(search->listed + n, sizeof search->listed - n, "%s%s", n > 0 ? ", " : "", file);
    if (search->quant[0] && !hub_names_quant(file, search->quant)) return;
    if (hub_join(search->found, folder, file)) search->n++;
}

/* The folder, and those in it: some keep each quantisation in one of its own. */
static void look_through(gguf_search *search, const char *folder, bool deeper)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[CLI_HUB_PATH_MAX];
        look_at(search, folder, entry->d_name);
        if (!deeper || entry->d_name[0] == '.' || !hub_join(path, folder, entry->d_name)) continue;
        struct stat about;
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) look_through(search, path, false);
    }
    if (dir) (void)closedir(dir);
}

size_t cli_hub_gguf_in(const char *folder, char found[CLI_HUB_PATH_MAX])
{
    gguf_search search = {.quant = ""};
    look_through(&search, folder, false);
    (void)snprintf(found, CLI_HUB_PATH_MAX, "%s", search.found);
    return search.n;
}

static bool find_gguf(const hub_name *name, const char *snapshot, char path[CLI_HUB_PATH_MAX],
                      hub_error *error)
{
    gguf_search search = {.quant = name->quant};
    look_through(&search, snapshot, true);
    if (search.n == 1) {
        (void)snprintf(path, CLI_HUB_PATH_MAX, "%s", search.found);
        return true;
    }
    error->missing = search.n == 0;
    if (!search.listed[0]) {
        return hub_fail(error, "%s has no %sGGUF file", snapshot,
                        name->quant[0] ? "" : "config.json and no ");
    }
    if (search.n == 0) {
        return hub_fail(error, "no GGUF file of %s: there are %s", name->quant, search.listed);
    }
    return hub_fail(error, "%zu GGUF files: say which, as in %s/%s:Q4_K_M: there are %s", search.n,
                    name->org, name->model, search.listed);
}

/* ---- all of it ---- */

/* Finds a model in the cache. */
static bool find(const hub_place *place, char path[CLI_HUB_PATH_MAX], hub_error *error)
{
    const hub_name *name = &place->name;
    char snapshot[CLI_HUB_PATH_MAX], commit[HUB_WORD_MAX], inside[HUB_WORD_MAX + 16];
    error->missing = true;
    if (!is_there(place->repository)) {
        return hub_fail(error,
                        "no such file or folder, nor a model of the Hugging Face cache in %s",
                        place->cache);
    }
    read_commit(place->repository, name, commit);
    (void)snprintf(inside, sizeof inside, "snapshots/%s", commit);
    if (!hub_join(snapshot, place->repository, inside) || !is_there(snapshot)) {
        return hub_fail(error, "revision %s is not in the Hugging Face cache in %s", name->revision,
                        place->cache);
    }
    if (!name->quant[0] && hub_join(path, snapshot, "config.json") && is_there(path)) {
        (void)snprintf(path, CLI_HUB_PATH_MAX, "%s", snapshot);
        return true;
    }
    return find_gguf(name, snapshot, path, error);
}

/* The hub is not contacted before the user agrees. */
static bool ask(const char *given)
{
    if (!hub_download_is_built() || isatty(STDIN_FILENO) != 1 || !cli_terminal()) return false;
    char answer[16] = "";
    (void)fprintf(stderr, "%s is not in the Hugging Face cache. Download it from %s? [y/N] ", given,
                  hub_endpoint());
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int cli_hub_open(const char *given, bool download, char path[CLI_HUB_PATH_MAX])
{
    hub_place place;
    hub_error error = {0}, late = {0};
    bool found = hub_find_place(given, &place, &error) && find(&place, path, &error);
    if (!found && error.missing && !download) {
        /* If there is a folder "build", "build/mine" is a mistyped path. */
        if (is_there(place.name.org)) {
            return cli_fail("%s: no such file or folder in %s, nor a model of the Hugging Face "
                            "cache (--download asks %s for it)",
                            given, place.name.org, hub_endpoint());
        }
        download = ask(given);
        if (!download) {
            return cli_fail("%s: %s: --download fetches it from %s", given, error.text,
                            hub_endpoint());
        }
    }
    if (download && !hub_download(given, &place, &late)) {
        if (!found || !late.unreachable) return cli_fail("%s: %s", given, late.text);
        cli_warn("%s: %s: the cached files are used", given, late.text);
    } else if (download) {
        found = find(&place, path, &error);
    }
    return found ? CLI_DONE : cli_fail("%s: %s", given, error.text);
}

/* ---- listing the cache ---- */

/* "models--org--name" of the cache; names of two parts alone are looked up. */
static bool name_of_folder(const char *folder, char out[CLI_HUB_PATH_MAX])
{
    static const char prefix[] = "models--";
    const size_t n = sizeof prefix - 1;
    const char *middle = strncmp(folder, prefix, n) == 0 ? strstr(folder + n, "--") : NULL;
    if (!middle) return false;
    (void)snprintf(out, CLI_HUB_PATH_MAX, "%.*s/%s", (int)(middle - folder - (ptrdiff_t)n),
                   folder + n, middle + 2);
    return true;
}

bool cli_hub_first(char name[CLI_HUB_PATH_MAX])
{
    char cache[CLI_HUB_PATH_MAX], path[CLI_HUB_PATH_MAX];
    DIR *dir = hub_find_cache(cache) ? opendir(cache) : NULL;
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir))) {
        hub_place place;
        hub_error error;
        found = name_of_folder(entry->d_name, name) && hub_find_place(name, &place, &error) &&
                find(&place, path, &error);
    }
    if (dir) (void)closedir(dir);
    return found;
}

void cli_hub_describe(void)
{
    char cache[CLI_HUB_PATH_MAX];
    if (!hub_find_cache(cache)) return;
    printf("%-15s%s%s, --download asks %s%s\n", "models", cache, is_there(cache) ? "" : " (empty)",
           hub_endpoint(), hub_download_is_built() ? "" : ": not built, libcurl was missing");
}
