/* Fetching a model from the hub: see hub_download.h. */
#include "hub_download.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub_http.h"

enum { LIST_BYTES_MAX = 64 << 20, TOKEN_MAX = 512 };

/* HF_TOKEN, else the file that `hf auth login` writes; "": none. */
static bool read_token(char out[TOKEN_MAX], hub_error *error)
{
    static const struct {
        const char *variable, *inside;
    } rows[] = {{"HF_TOKEN_PATH", NULL},
                {"HF_HOME", "token"},
                {"XDG_CACHE_HOME", "huggingface/token"},
                {"HOME", ".cache/huggingface/token"}};
    const char *given = getenv("HF_TOKEN");
    char expanded[CLI_HUB_PATH_MAX], path[CLI_HUB_PATH_MAX];
    out[0] = 0;
    if (given) {
        if (strlen(given) >= TOKEN_MAX) return hub_fail(error, "HF_TOKEN is too long");
        (void)snprintf(out, TOKEN_MAX, "%s", given);
    }
    for (size_t i = 0; !given && i < sizeof rows / sizeof rows[0]; i++) {
        const char *folder = hub_environment(rows[i].variable, expanded);
        if (!folder) continue;
        if (!rows[i].inside) (void)snprintf(path, sizeof path, "%s", folder);
        if (rows[i].inside && !hub_join(path, folder, rows[i].inside)) break;
        FILE *file = fopen(path, "r");
        if (file && !fgets(out, TOKEN_MAX, file)) out[0] = 0;
        if (file) (void)fclose(file);
        break;
    }
    out[strcspn(out, "\r\n")] = 0;
    return true;
}

/* Whether a variable is true, as Python's tools read it. */
static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value && strchr("1YyTt", *value);
}

static bool read_list(hub_http *http, const hub_name *name, hub_list *out, hub_error *error)
{
    char path[5 * HUB_WORD_MAX + 64], revision[3 * HUB_WORD_MAX];
    size_t n = 0;
    for (const char *c = name->revision; *c; c++) {
        n += (size_t)snprintf(revision + n, sizeof revision - n, *c == '/' ? "%%2F" : "%c", *c);
    }
    (void)snprintf(path, sizeof path, "/api/models/%s/%s/revision/%s?blobs=true", name->org,
                   name->model, revision);
    skv_buf text;
    skv_buf_init(&text, LIST_BYTES_MAX);
    const bool ok = hub_http_read(http, path, &text, error) &&
                    hub_list_parse(text.data ? text.data : "", text.size, out, error);
    skv_buf_release(&text);
    return ok;
}

/* Checks that the missing files fit on the disk. */
static bool check_room(const hub_place *place, const hub_list *list, hub_error *error)
{
    uint64_t missing = 0;
    for (size_t i = 0; i < list->n; i++) {
        uint64_t bytes;
        if (!list->at[i].wanted) continue;
        (void)hub_blob_is_there(place, &list->at[i], &bytes);
        missing += list->at[i].bytes - bytes;
    }
    return hub_has_room(place, missing, error);
}

/* Files that identify a model are linked last, so that a commit that a kill left half linked does
 * not count as a model. */
static bool is_known_by(const hub_file *file)
{
    return strcmp(file->path, "config.json") == 0 || strstr(file->path, "-00001-of-");
}

static bool link_files(const hub_place *place, const hub_list *list, hub_error *error)
{
    for (int last = 0; last < 2; last++) {
        for (size_t i = 0; i < list->n; i++) {
            const hub_file *file = &list->at[i];
            if (!file->wanted || is_known_by(file) != last) continue;
            if (!hub_link(place, list->commit, file, error)) return false;
        }
    }
    return true;
}

static bool fetch_files(hub_http *http, const hub_place *place, hub_list *list,
                        cli_progress *progress, hub_error *error)
{
    const hub_file *index;
    char path[CLI_HUB_PATH_MAX];
    if (!hub_list_choose(list, &place->name, &index, error)) return false;
    if (index &&
        (!check_room(place, list, error) || !hub_http_fetch(http, place, list, progress, error) ||
         !hub_blob_path(place, index, "", path) || !hub_list_choose_parts(list, path, error))) {
        return false;
    }
    if (!check_room(place, list, error) || !hub_http_fetch(http, place, list, progress, error)) {
        return false;
    }
    int lock;
    if (!hub_names_begin(place, &lock, error)) return false;
    const bool ok = link_files(place, list, error) && hub_write_ref(place, list->commit, error);
    hub_names_end(lock);
    return ok;
}

bool hub_download(const char *given, const hub_place *place, hub_error *error)
{
    char token[TOKEN_MAX];
    hub_http *http = NULL;
    hub_list list = {0};
    cli_progress progress;
    char *endpoint = NULL;
    if (is_set("HF_HUB_OFFLINE")) {
        error->unreachable = true;
        return hub_fail(error, "HF_HUB_OFFLINE is set: nothing is downloaded");
    }
    if (!read_token(token, error)) return false;
    const char *address = hub_endpoint();
    size_t n = strlen(address);
    while (n > 0 && address[n - 1] == '/') n--;
    endpoint = cli_alloc(n + 1, 1);
    (void)snprintf(endpoint, n + 1, "%s", address);
    cli_progress_begin(&progress, given);
    const bool ok = hub_http_create(endpoint, token[0] ? token : NULL, &http, error) &&
                    read_list(http, &place->name, &list, error) &&
                    fetch_files(http, place, &list, &progress, error);
    cli_progress_end(&progress);
    hub_list_release(&list);
    hub_http_free(http);
    free(endpoint);
    return ok;
}
