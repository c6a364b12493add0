/* The hub's list of files: see hub_list.h. */
#include "hub_list.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 100000, PATH_MAX_BYTES = 1000, PART_MAX_BYTES = 255, LISTED_BYTES = 500 };
#define SMALL_BYTES_MAX (UINT64_C(1) << 30) /* of a file that holds no weights */
#define FILE_BYTES_MAX (UINT64_C(1) << 44)

static const char single[] = "model.safetensors", parts[] = "model.safetensors.index.json";

/* ---- reading ---- */

/* A relative path whose parts are plain names. */
static bool is_safe(const char *path)
{
    if (strlen(path) > PATH_MAX_BYTES) return false;
    for (const char *c = path; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '\\') return false;
    }
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        const bool dots = (n == 1 || n == 2) && strspn(part, ".") >= n;
        if (n == 0 || n > PART_MAX_BYTES || dots) return false;
        part += n;
        if (*part == 0) return true;
    }
}

/* A hash in small hexadecimal digits: a name of a file that leads nowhere else. */
static bool take_hash(const json_t *value, size_t n, char out[HUB_HASH_MAX])
{
    const char *text = json_string_value(value);
    if (!text || strlen(text) != n || strspn(text, "0123456789abcdef") != n) return false;
    memcpy(out, text, n + 1);
    return true;
}

static bool read_file(const json_t *entry, hub_file *out, hub_error *error)
{
    const char *path = json_string_value(json_object_get(entry, "rfilename"));
    if (!path || !is_safe(path)) {
        return hub_fail(error, "the hub's list: refused file name \"%.200s\"", path ? path : "");
    }
    const json_t *lfs = json_object_get(entry, "lfs");
    out->is_sha256 = json_is_object(lfs);
    const json_t *size = json_object_get(out->is_sha256 ? lfs : entry, "size");
    const bool has_hash = out->is_sha256
                              ? take_hash(json_object_get(lfs, "sha256"), 64, out->hash)
                              : take_hash(json_object_get(entry, "blobId"), 40, out->hash);
    if (!has_hash) return hub_fail(error, "the hub's list: %.200s: no valid hash", path);
    const json_int_t bytes = json_is_integer(size) ? json_integer_value(size) : -1;
    if (bytes < 0 || (uint64_t)bytes > FILE_BYTES_MAX) {
        return hub_fail(error, "the hub's list: %.200s: no valid size", path);
    }
    out->bytes = (uint64_t)bytes;
    out->path = cli_alloc(strlen(path) + 1, 1);
    memcpy(out->path, path, strlen(path));
    return true;
}

static bool read_list(const json_t *root, hub_list *out, hub_error *error)
{
    const json_t *files = json_object_get(root, "siblings");
    const json_t *sha = json_object_get(root, "sha");
    if (!take_hash(sha, 40, out->commit) && !take_hash(sha, 64, out->commit)) {
        return hub_fail(error, "the hub's list: no valid commit in \"sha\"");
    }
    const size_t n = json_array_size(files);
    if (n == 0) return hub_fail(error, "the hub's list names no files");
    if (n > FILES_MAX)
        return hub_fail(error, "the hub's list: %zu files, at most %d", n, FILES_MAX);
    out->at = cli_alloc(n, sizeof *out->at);
    for (; out->n < n; out->n++) {
        if (!read_file(json_array_get(files, out->n), &out->at[out->n], error)) return false;
    }
    return true;
}

bool hub_list_parse(const char *text, size_t n_bytes, hub_list *out, hub_error *error)
{
    json_error_t where;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &where);
    *out = (hub_list){0};
    const bool ok = root ? read_list(root, out, error)
                         : hub_fail(error, "the hub's list is no JSON: byte %d: %s", where.position,
                                    where.text);
    json_decref(root);
    if (!ok) hub_list_release(out);
    return ok;
}

void hub_list_release(hub_list *list)
{
    for (size_t i = 0; i < list->n; i++) free(list->at[i].path);
    free(list->at);
    *list = (hub_list){0};
}

/* The file of this path; NULL: none. */
static hub_file *find_file(const hub_list *list, const char *path)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->at[i].path, path) == 0) return &list->at[i];
    }
    return NULL;
}

/* ---- choosing ---- */

/* Chooses the files beside the weights that are needed for reading a model. */
static bool choose_small(hub_list *list, hub_error *error)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "tokenizer.gguf",
                                        "vocab.json",
                                        "merges.txt",
                                        "added_tokens.json",
                                        "chat_template.json",
                                        "special_tokens_map.json",
                                        "chat_template.jinja",
                                        parts};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hub_file *file = find_file(list, names[i]);
        if (!file) continue;
        if (file->bytes > SMALL_BYTES_MAX) {
            return hub_fail(error, "%s: %llu bytes, at most %llu", file->path,
                            (unsigned long long)file->bytes, (unsigned long long)SMALL_BYTES_MAX);
        }
        file->wanted = true;
    }
    return true;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "x-00001-of-00003.gguf" represents all its parts, which differ in the number. */
static void want_gguf(hub_list *list, const hub_file *first)
{
    const char *of = strstr(file_name(first->path), "-of-");
    const size_t n_before = of ? (size_t)(of - first->path) - 5 : strlen(first->path);
    for (size_t i = 0; i < list->n; i++) {
        hub_file *file = &list->at[i];
        const bool begins = strncmp(file->path, first->path, n_before) == 0;
        file->wanted = begins && (of ? strlen(file->path) == strlen(first->path) &&
                                           strcmp(file->path + n_before + 5, of) == 0
                                     : file == first);
    }
}

static bool choose_gguf(hub_list *list, const hub_name *name, hub_error *error)
{
    char listed[LISTED_BYTES] = "";
    size_t n = 0, n_found = 0;
    const hub_file *found = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const char *file = file_name(list->at[i].path);
        if (!hub_is_model_file(file)) continue;
        if (n < sizeof listed) {
            const int more = snprintf(listed + n, sizeof listed - n, "%s%s", n ? ", " : "", file);
            n += more > 0 ? (size_t)more : 0;
        }
        if (name->quant[0] && !hub_names_quant(file, name->quant)) continue;
        found = &list->at[i];
        n_found++;
    }
    if (n_found == 1) {
        want_gguf(list, found);
        return true;
    }
    if (!listed[0]) {
        return hub_fail(error, "the hub has neither safetensors nor a GGUF file of it");
    }
    if (n_found == 0) {
        return hub_fail(error, "the hub has no GGUF file of %s: there are %s", name->quant, listed);
    }
    return hub_fail(error,
                    "the hub has %zu GGUF files: say which, as in %s/%s:Q4_K_M: there are %s",
                    n_found, name->org, name->model, listed);
}

bool hub_list_choose(hub_list *list, const hub_name *name, const hub_file **index, hub_error *error)
{
    *index = NULL;
    hub_file *whole = find_file(list, single);
    const hub_file *in_parts = find_file(list, parts);
    const bool folder = find_file(list, "config.json") && (whole || in_parts);
    if (name->quant[0] || !folder) return choose_gguf(list, name, error);
    if (!choose_small(list, error)) return false;
    if (whole) {
        whole->wanted = true;
    } else {
        *index = in_parts;
    }
    return true;
}

bool hub_list_choose_parts(hub_list *list, const char *path, hub_error *error)
{
    json_error_t where;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    json_t *map = json_object_get(root, "weight_map");
    const char *tensor;
    json_t *value;
    bool ok = json_object_size(map) > 0 || hub_fail(error, "%s: no \"weight_map\"", parts);
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        hub_file *file = name ? find_file(list, name) : NULL;
        if (file) {
            file->wanted = true;
        } else if (ok) {
            ok = hub_fail(error, "%s: %.100s is in \"%.200s\", which the hub's list does not have",
                          parts, tensor, name ? name : "");
        }
    }
    json_decref(root);
    return ok;
}
