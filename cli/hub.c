/* Models by name: see hub.h. */
#include "hub.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { NAME_MAX_BYTES = 200, REVISION_MAX_BYTES = 200, LISTED_BYTES = 400 };

/* A name in its parts. */
typedef struct hub_name {
    char org[NAME_MAX_BYTES], model[NAME_MAX_BYTES], revision[REVISION_MAX_BYTES];
    char quant[64]; /* of a GGUF file; "": not said */
} hub_name;

/* ---- names ---- */

/* The letters, digits and marks that stand first in a text. */
static size_t count_word(const char *text, const char *marks)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] != 0 && strchr(marks, text[n]))) n++;
    return n;
}

/* The next n bytes of *text go to `out`; false: none, too many, or a path that leads elsewhere. */
static bool take(const char **text, size_t n, char *out, size_t room)
{
    if (n == 0 || n >= room || (*text)[0] == '.' || (*text)[0] == '/') return false;
    memcpy(out, *text, n);
    out[n] = 0;
    *text += n;
    return !strstr(out, "..");
}

static bool parse(const char *text, hub_name *out)
{
    static const char word[] = "._-";
    *out = (hub_name){.revision = "main"};
    if (!take(&text, count_word(text, word), out->org, sizeof out->org) || *text != '/') {
        return false;
    }
    text++;
    if (!take(&text, count_word(text, word), out->model, sizeof out->model)) return false;
    if (*text == '@') {
        text++;
        if (!take(&text, count_word(text, "._-/"), out->revision, sizeof out->revision)) {
            return false;
        }
    }
    if (*text == ':') {
        text++;
        if (!take(&text, count_word(text, word), out->quant, sizeof out->quant)) return false;
    }
    return *text == 0;
}

static bool is_there(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

bool cli_hub_is_name(const char *text)
{
    hub_name name;
    return parse(text, &name) && !is_there(text);
}

/* ---- the cache ---- */

static bool join(char out[CLI_HUB_PATH_MAX], const char *folder, const char *name)
{
    const int n = snprintf(out, CLI_HUB_PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < CLI_HUB_PATH_MAX;
}

/* A path of the environment, whose ~ is the user's folder; NULL: not set. */
static const char *from_environment(const char *name, char out[CLI_HUB_PATH_MAX])
{
    const char *value = getenv(name), *home = getenv("HOME");
    if (!value || !*value) return NULL;
    if (value[0] != '~' || value[1] != '/' || !home) return value;
    return join(out, home, value + 2) ? out : NULL;
}

static bool find_cache(char out[CLI_HUB_PATH_MAX])
{
    static const struct {
        const char *variable, *inside;
    } rows[] = {{"HF_HUB_CACHE", "."},
                {"HUGGINGFACE_HUB_CACHE", "."},
                {"HF_HOME", "hub"},
                {"XDG_CACHE_HOME", "huggingface/hub"},
                {"HOME", ".cache/huggingface/hub"}};
    char expanded[CLI_HUB_PATH_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *folder = from_environment(rows[i].variable, expanded);
        if (!folder) continue;
        if (strcmp(rows[i].inside, ".") != 0) return join(out, folder, rows[i].inside);
        return snprintf(out, CLI_HUB_PATH_MAX, "%s", folder) < CLI_HUB_PATH_MAX;
    }
    return false;
}

/* The commit that refs/REVISION names; a revision without such a file is a commit itself. */
static void read_commit(const char *repository, const hub_name *name, char out[REVISION_MAX_BYTES])
{
    char path[CLI_HUB_PATH_MAX], refs[REVISION_MAX_BYTES + 8], text[REVISION_MAX_BYTES] = "";
    (void)snprintf(refs, sizeof refs, "refs/%s", name->revision);
    FILE *file = join(path, repository, refs) ? fopen(path, "r") : NULL;
    const bool read = file && fgets(text, sizeof text, file);
    if (file) (void)fclose(file);
    const size_t n = count_word(text, "_-");
    const bool is_commit = read && n > 0 && text[n + strspn(text + n, "\r\n ")] == 0;
    (void)snprintf(out, REVISION_MAX_BYTES, "%.*s", (int)(is_commit ? n : strlen(name->revision)),
                   is_commit ? text : name->revision);
}

/* ---- GGUF files of a folder ---- */

/* Whether the quantisation stands in a file's name as a word of it: "x-Q4_K_M.gguf",
 * "x.q4_k_m-00001-of-00002.gguf". */
static bool names_quant(const char *file, const char *quant)
{
    const size_t n = strlen(quant);
    for (const char *at = file; *at; at++) {
        const bool begins = at == file || strchr("-._/", at[-1]);
        if (begins && strncasecmp(at, quant, n) == 0 && strchr("-./", at[n])) return true;
    }
    return false;
}

/* Of a model in several files the first stands for it. */
static bool is_model_file(const char *file)
{
    const size_t n = strlen(file);
    if (n < 6 || strcasecmp(file + n - 5, ".gguf") != 0) return false;
    if (strncasecmp(file, "mmproj", 6) == 0) return false; /* a vision tower */
    const char *part = strstr(file, "-of-");
    return !part || part - file < 6 || strncmp(part - 6, "-00001", 6) == 0;
}

typedef struct gguf_search {
    const char *quant;
    size_t n;                     /* that fit */
    char found[CLI_HUB_PATH_MAX]; /* the last of them */
    char listed[LISTED_BYTES];    /* names of all that are there, as far as they fit */
} gguf_search;

static void look_at(gguf_search *search, const char *folder, const char *file)
{
    if (!is_model_file(file)) return;
    const size_t n = strlen(search->listed);
    (void)snprintf(search->listed + n, sizeof search->listed - n, "%s%s", n > 0 ? ", " : "", file);
    if (search->quant[0] && !names_quant(file, search->quant)) return;
    if (join(search->found, folder, file)) search->n++;
}

/* The folder, and those in it: some keep each quantisation in one of its own. */
static void look_through(gguf_search *search, const char *folder, bool deeper)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[CLI_HUB_PATH_MAX];
        look_at(search, folder, entry->d_name);
        if (!deeper || entry->d_name[0] == '.' || !join(path, folder, entry->d_name)) continue;
        struct stat about;
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) look_through(search, path, false);
    }
    if (dir) (void)closedir(dir);
}

static int find_gguf(const char *given, const hub_name *name, const char *snapshot,
                     char path[CLI_HUB_PATH_MAX])
{
    gguf_search search = {.quant = name->quant};
    look_through(&search, snapshot, true);
    if (search.n == 1) {
        (void)snprintf(path, CLI_HUB_PATH_MAX, "%s", search.found);
        return CLI_DONE;
    }
    if (!search.listed[0]) {
        return cli_fail("%s: %s has no %sGGUF file", given, snapshot,
                        name->quant[0] ? "" : "config.json and no ");
    }
    if (search.n == 0) {
        return cli_fail("%s: no GGUF file of %s: there are %s", given, name->quant, search.listed);
    }
    return cli_fail("%s: %zu GGUF files: say which, as in %s/%s:Q4_K_M: there are %s", given,
                    search.n, name->org, name->model, search.listed);
}

/* ---- all of it ---- */

int cli_hub_find(const char *given, char path[CLI_HUB_PATH_MAX])
{
    hub_name name;
    char cache[CLI_HUB_PATH_MAX], repository[CLI_HUB_PATH_MAX], snapshot[CLI_HUB_PATH_MAX];
    char folder[2 * NAME_MAX_BYTES + 16], commit[REVISION_MAX_BYTES];
    char inside[REVISION_MAX_BYTES + 16];
    if (!parse(given, &name))
        return cli_fail("%s: not org/name, org/name@revision or :type", given);
    if (!find_cache(cache)) return cli_fail("%s: no Hugging Face cache: HOME is not set", given);
    (void)snprintf(folder, sizeof folder, "models--%s--%s", name.org, name.model);
    if (!join(repository, cache, folder) || !is_there(repository)) {
        return cli_fail("%s: no such file or folder, nor a model of the Hugging Face cache in %s",
                        given, cache);
    }
    read_commit(repository, &name, commit);
    (void)snprintf(inside, sizeof inside, "snapshots/%s", commit);
    if (!join(snapshot, repository, inside) || !is_there(snapshot)) {
        return cli_fail("%s: revision %s is not in the Hugging Face cache in %s", given,
                        name.revision, cache);
    }
    if (!name.quant[0] && join(path, snapshot, "config.json") && is_there(path)) {
        (void)snprintf(path, CLI_HUB_PATH_MAX, "%s", snapshot);
        return CLI_DONE;
    }
    return find_gguf(given, &name, snapshot, path);
}
