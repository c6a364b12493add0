/* The files beside a model's weights: see companions.h. */
#include "format/companions.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/gguf_write.h"
#include "format/json_doc.h"

enum { FILE_BYTES_MAX = 256 << 20, CONFIG_BYTES_MAX = 16 << 20, LINKS_MAX = 2 };

static const char generation_config[] = "generation_config.json";
static const char *const vocabularies[] = {"tokenizer.json", "tokenizer.model", SKV_TOKENIZER_GGUF};
static const char *const tokenizer_files[] = {
    "tokenizer.json",          "tokenizer.model",   SKV_TOKENIZER_GGUF, "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json",       "merges.txt",
    "chat_template.jinja"};

/* ---- finding the tokenizer ---- */

static skv_status holds(const char *folder, const char *name, bool *found, skv_error *err)
{
    char *path = skv_path_join(folder, name);
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", folder);
    *found = skv_file_exists(path);
    skv_free(path);
    return SKV_OK;
}

static skv_status has_vocabulary(const char *folder, bool *found, skv_error *err)
{
    *found = false;
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies && !*found; i++) {
        SKV_TRY(holds(folder, vocabularies[i], found, err));
    }
    return SKV_OK;
}

/* Loads the folder's configuration; *out is NULL if there is none. */
static skv_status load_config(const char *folder, json_t **out, skv_error *err)
{
    char *path = skv_path_join(folder, "config.json"), *text = NULL;
    size_t n;
    *out = NULL;
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", folder);
    skv_status status = SKV_OK;
    if (skv_file_exists(path)) {
        status = skv_file_read(path, CONFIG_BYTES_MAX, &text, &n, err);
        if (status == SKV_OK) status = skv_json_load(text, n, CONFIG_BYTES_MAX, path, out, err);
    }
    skv_free(text);
    skv_free(path);
    return status;
}

/* folder/../name; NULL in *out for an empty name. A configuration cannot lead elsewhere. */
static skv_status find_beside(const char *folder, const char *name, char **out, skv_error *err)
{
    *out = NULL;
    if (!name[0]) return SKV_OK;
    SKV_REQUIRE(name[0] != '.' && !strchr(name, '/'), err, SKV_FORMAT,
                "%s: swiftkv_base: expected the name of a folder next to this one", folder);
    char *beside = skv_path_join(folder, "..");
    *out = beside ? skv_path_join(beside, name) : NULL;
    skv_free(beside);
    SKV_REQUIRE(*out, err, SKV_MEMORY, "%s: no memory", folder);
    if (skv_file_is_folder(*out)) return SKV_OK;
    skv_status status = skv_fail(
        err, SKV_IO, "%s: swiftkv_base: no folder %s, which has the tokenizer", folder, *out);
    skv_free(*out);
    *out = NULL;
    return status;
}

/* The folder around an auxiliary model; *out NULL where that does not call it so. */
static skv_status find_around(const char *folder, char **out, skv_error *err)
{
    json_t *config = NULL;
    char *around = skv_path_join(folder, "..");
    SKV_REQUIRE(around, err, SKV_MEMORY, "%s: no memory", folder);
    skv_status status = load_config(around, &config, err);
    if (status == SKV_MEMORY) {
        skv_free(around);
        return status;
    }
    /* Other errors there are ignored: the file may not be a model's configuration. */
    const json_t *prediction = json_object_get(config, "kv_prediction");
    const json_t *name = json_object_get(prediction, "auxiliary");
    const char *auxiliary = json_is_string(name) ? json_string_value(name) : "auxiliary";
    char *inside = json_is_object(prediction) ? skv_path_join(around, auxiliary) : NULL;
    const bool found = inside && skv_file_is_same(folder, inside);
    const bool no_memory = json_is_object(prediction) && !inside;
    skv_free(inside);
    json_decref(config);
    if (!found) skv_free(around);
    *out = found ? around : NULL;
    SKV_REQUIRE(!no_memory, err, SKV_MEMORY, "%s: no memory", folder);
    return SKV_OK;
}

/* Where a folder without a vocabulary sends to; *out NULL: nowhere. */
static skv_status find_next(const char *folder, char **out, skv_error *err)
{
    json_t *config = NULL;
    SKV_TRY(load_config(folder, &config, err));
    const char *base = json_string_value(json_object_get(config, "swiftkv_base"));
    skv_status status = find_beside(folder, base ? base : "", out, err);
    json_decref(config);
    if (status != SKV_OK || *out) return status;
    return find_around(folder, out, err);
}

skv_status skv_tokenizer_home(const char *folder, char **home, skv_error *err)
{
    char *at = skv_strndup(folder, strlen(folder));
    SKV_REQUIRE(at, err, SKV_MEMORY, "%s: no memory", folder);
    skv_status status = SKV_OK;
    for (int i = 0; i < LINKS_MAX && status == SKV_OK; i++) {
        char *next = NULL;
        bool found;
        status = has_vocabulary(at, &found, err);
        if (status == SKV_OK && !found) status = find_next(at, &next, err);
        if (!next) break;
        skv_free(at);
        at = next;
    }
    if (status == SKV_OK) {
        *home = at;
    } else {
        skv_free(at);
    }
    return status;
}

/* ---- copying ---- */

static skv_status copy_file(const char *from_folder, const char *out, const char *name,
                            skv_error *err)
{
    char *from = skv_path_join(from_folder, name), *to = skv_path_join(out, name), *data = NULL;
    size_t n;
    skv_status status = SKV_OK;
    if (!from || !to) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory", name);
    } else if (skv_file_exists(from)) {
        status = skv_file_read(from, FILE_BYTES_MAX, &data, &n, err);
        if (status == SKV_OK) status = skv_file_write(to, data, n, err);
    }
    skv_free(data);
    skv_free(from);
    skv_free(to);
    return status;
}

static skv_status copy_tokenizer(const char *from, const char *to, skv_error *err)
{
    char *home;
    skv_status status = skv_tokenizer_home(from, &home, err);
    if (status != SKV_OK) return status;
    for (size_t i = 0; i < sizeof tokenizer_files / sizeof *tokenizer_files; i++) {
        const char *name = tokenizer_files[i];
        bool own = false;
        if (status == SKV_OK) status = holds(from, name, &own, err);
        if (status == SKV_OK) status = copy_file(own ? from : home, to, name, err);
    }
    skv_free(home);
    return status;
}

skv_status skv_companions_copy(const char *from, const char *to, skv_error *err)
{
    SKV_TRY(copy_tokenizer(from, to, err));
    return copy_file(from, to, generation_config, err);
}

skv_status skv_companions_write(const skv_source *source, const char *to, skv_error *err)
{
    const skv_gguf *gguf = skv_source_gguf(source);
    if (gguf) return skv_tokenizer_keep(gguf, to, err);
    return skv_companions_copy(skv_source_path(source), to, err);
}

skv_status skv_companions_write_delta(const skv_source *source, const char *to, skv_error *err)
{
    return copy_file(skv_source_path(source), to, generation_config, err);
}

static bool is_kept(const char *key)
{
    /* The names are read too: some tokenizers behave by the model's. */
    return strncmp(key, "tokenizer.", 10) == 0 || strcmp(key, "general.architecture") == 0 ||
           strcmp(key, "general.name") == 0;
}

skv_status skv_tokenizer_keep(const skv_gguf *gguf, const char *folder, skv_error *err)
{
    if (!skv_gguf_find(gguf, "tokenizer.ggml.tokens")) return SKV_OK; /* there are "no_vocab"s */
    skv_gguf_out out;
    skv_gguf_out_init(&out);
    for (size_t i = 0; i < skv_gguf_count(gguf); i++) {
        const skv_gguf_value *v = skv_gguf_at(gguf, i);
        if (is_kept(v->key)) skv_gguf_put_copy(&out, v);
    }
    char *path = skv_path_join(folder, SKV_TOKENIZER_GGUF);
    skv_status status =
        !path ? skv_fail(err, SKV_MEMORY, "%s: no memory for %s", folder, SKV_TOKENIZER_GGUF)
              : skv_gguf_write(path, &out, NULL, 0, err);
    skv_free(path);
    skv_gguf_out_release(&out);
    return status;
}
