/* A model on disk: see source.h. */
#include "format/source.h"

#include <stdint.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/config_build.h"
#include "format/gguf.h"
#include "format/gguf_names.h"
#include "format/name_index.h"
#include "format/safetensors.h"
#include "format/source_names.h"

enum { CONFIG_FILE_MAX = 16 << 20 };

struct skv_source {
    char *path; /* owned */
    skv_config config;
    skv_safetensors *safetensors; /* owned; NULL for GGUF */
    skv_safetensors *base;        /* owned; the weights that these leave out, NULL: none */
    skv_gguf *gguf;               /* owned; NULL for a folder */
    skv_tensor *tensors;          /* [n], owned */
    char **names;                 /* [n], owned, each owned */
    size_t n, capacity;
    size_t n_own; /* once the base is read: tensors of the folder itself, which come first */
    skv_name_index index;
};

static bool grow(skv_source *s)
{
    size_t capacity = s->capacity ? 2 * s->capacity : 256;
    skv_tensor *tensors = skv_realloc(s->tensors, capacity, sizeof *tensors);
    if (!tensors) return false;
    s->tensors = tensors;
    char **names = skv_realloc(s->names, capacity, sizeof *names);
    if (!names) return false;
    s->names = names;
    s->capacity = capacity;
    return true;
}

static bool is_own(const skv_source *s, const char *name)
{
    for (size_t i = 0; i < s->n_own; i++) {
        if (strcmp(s->names[i], name) == 0) return true;
    }
    return false;
}

skv_status skv_source_add(skv_source *s, const char *name, const skv_tensor *tensor, skv_error *err)
{
    if (is_own(s, name)) return SKV_OK; /* the base's is replaced */
    char *copy = s->n < s->capacity || grow(s) ? skv_strndup(name, strlen(name)) : NULL;
    SKV_REQUIRE(copy, err, SKV_MEMORY, "%s: no memory for %zu tensors", s->path, s->n + 1);
    s->tensors[s->n] = *tensor;
    s->tensors[s->n].name = copy;
    s->names[s->n] = copy;
    s->n++;
    return SKV_OK;
}

static skv_status build_index(skv_source *s, skv_error *err)
{
    skv_name_entry *entries = skv_alloc(s->n, sizeof *entries);
    SKV_REQUIRE(entries, err, SKV_MEMORY, "%s: no memory for %zu tensors", s->path, s->n);
    for (size_t i = 0; i < s->n; i++) entries[i] = (skv_name_entry){s->names[i], i};
    return skv_name_index_build(&s->index, entries, s->n, s->path, "tensor", err);
}

/* Libraries that drop one of two equal tensors keep either: a tied model may have its embedding
 * under the head's name only. And a model without a head of its own is tied, whatever it says. */
static skv_status settle_head(skv_source *s, skv_error *err)
{
    const skv_tensor *embedding = skv_source_find(s, "model.embed_tokens.weight");
    const skv_tensor *head = skv_source_find(s, "lm_head.weight");
    if (!head && !skv_source_unusable(s, "lm_head.weight")) s->config.tied = true;
    if (embedding || !head || !s->config.tied) return SKV_OK;
    skv_tensor copy = *head;
    SKV_TRY(skv_source_add(s, "model.embed_tokens.weight", &copy, err));
    skv_name_index_release(&s->index);
    return build_index(s, err);
}

/* Where a Gemma file does not say which type it is used in, its embedding's own type counts. */
static void settle_embedding_scale(skv_source *s)
{
    const skv_tensor *embedding = skv_source_find(s, "model.embed_tokens.weight");
    if (!embedding || s->config.embedding_scale == 1.0 || s->config.dtype[0]) return;
    const char *dtype = embedding->type == SKV_DTYPE_BF16  ? "bfloat16"
                        : embedding->type == SKV_DTYPE_F16 ? "float16"
                                                           : "float32";
    s->config.embedding_scale = skv_gemma_embedding_scale(s->config.hidden, dtype);
}

static skv_status read_config(const char *path, skv_config *c, skv_error *err)
{
    char *text;
    size_t n;
    SKV_TRY(skv_file_read(path, CONFIG_FILE_MAX, &text, &n, err));
    skv_status status = skv_config_parse(text, n, path, c, err);
    skv_free(text);
    return status;
}

/* generation_config.json may be absent. */
static skv_status read_generation(const char *path, skv_config *c, skv_error *err)
{
    if (!skv_file_exists(path)) return SKV_OK;
    char *text;
    size_t n;
    SKV_TRY(skv_file_read(path, CONFIG_FILE_MAX, &text, &n, err));
    skv_status status = skv_config_parse_generation(text, n, path, c, err);
    skv_free(text);
    return status;
}

static skv_status read_configs(skv_source *s, skv_error *err)
{
    char *config = skv_path_join(s->path, "config.json");
    char *generation = skv_path_join(s->path, "generation_config.json");
    skv_status status = SKV_OK;
    if (!config || !generation) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory", s->path);
    }
    if (status == SKV_OK) status = read_config(config, &s->config, err);
    if (status == SKV_OK) status = read_generation(generation, &s->config, err);
    skv_free(config);
    skv_free(generation);
    return status;
}

static skv_status add_all(skv_source *s, const skv_safetensors *from, skv_error *err)
{
    const skv_name_scheme *scheme = skv_folder_scheme(&s->config);
    bool is_gemma3 = skv_config_is(&s->config, "gemma3_text");
    for (size_t i = 0; i < skv_safetensors_count(from); i++) {
        const skv_tensor *t = skv_safetensors_at(from, i);
        char buffer[256];
        const char *name = skv_text_part_name(t->name, is_gemma3, buffer, sizeof buffer);
        if (name) SKV_TRY(skv_source_add_renamed(s, scheme, name, t, err));
    }
    return SKV_OK;
}

/* The folder beside this one that has what this one leaves out. */
static skv_status open_base(skv_source *s, skv_error *err)
{
    char *beside = skv_path_join(s->path, "..");
    char *base = beside ? skv_path_join(beside, s->config.base) : NULL;
    skv_status status = base ? skv_safetensors_open_folder(base, &s->base, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", s->path);
    skv_free(base);
    skv_free(beside);
    if (status != SKV_OK) return skv_fail_within(err, status, "swiftkv_base");
    s->n_own = s->n;
    return add_all(s, s->base, err);
}

static skv_status open_folder(skv_source *s, skv_error *err)
{
    SKV_TRY(read_configs(s, err));
    const bool elsewhere = s->config.kv_prediction && s->config.base[0];
    if (!elsewhere) {
        SKV_TRY(skv_safetensors_open_folder(s->path, &s->safetensors, err));
        SKV_TRY(add_all(s, s->safetensors, err));
    }
    return s->config.base[0] ? open_base(s, err) : SKV_OK;
}

/* The configuration and the tensors of s->gguf. */
static skv_status read_gguf(skv_source *s, skv_error *err)
{
    SKV_TRY(skv_config_from_gguf(s->gguf, &s->config, err));
    const skv_name_scheme *scheme = skv_gguf_scheme(s->config.architecture);
    for (size_t i = 0; i < skv_gguf_tensor_count(s->gguf); i++) {
        const skv_tensor *t = skv_gguf_tensor_at(s->gguf, i);
        SKV_TRY(skv_source_add_renamed(s, scheme, t->name, t, err));
    }
    return SKV_OK;
}

/* What follows once all tensors are listed. */
static skv_status settle(skv_source *s, skv_error *err)
{
    SKV_TRY(build_index(s, err));
    SKV_TRY(settle_head(s, err));
    settle_embedding_scale(s);
    return skv_source_check_shapes(s, err);
}

static skv_status fill_from_path(skv_source *s, skv_error *err)
{
    if (skv_file_is_folder(s->path)) {
        SKV_TRY(open_folder(s, err));
    } else {
        SKV_TRY(skv_gguf_open(s->path, &s->gguf, err));
        SKV_TRY(read_gguf(s, err));
    }
    return settle(s, err);
}

static skv_source *create(const char *path)
{
    skv_source *s = skv_alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    s->path = skv_strndup(path, strlen(path));
    if (s->path) return s;
    skv_free(s);
    return NULL;
}

/* Hands out a finished source or closes it. */
static skv_status finish(skv_source *s, skv_status status, skv_source **out)
{
    if (status == SKV_OK) {
        *out = s;
    } else {
        skv_source_close(s);
    }
    return status;
}

skv_status skv_source_open(const char *path, skv_source **out, skv_error *err)
{
    skv_source *s = create(path);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", path);
    return finish(s, fill_from_path(s, err), out);
}

skv_status skv_source_parse_gguf(const void *data, size_t n, const char *name, skv_source **out,
                                 skv_error *err)
{
    skv_source *s = create(name);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", name);
    skv_status status = skv_gguf_parse(data, n, name, &s->gguf, err);
    if (status == SKV_OK) status = read_gguf(s, err);
    if (status == SKV_OK) status = settle(s, err);
    return finish(s, status, out);
}

void skv_source_close(skv_source *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) skv_free(s->names[i]);
    skv_free(s->names);
    skv_free(s->tensors);
    skv_name_index_release(&s->index);
    skv_config_release(&s->config);
    skv_safetensors_close(s->safetensors);
    skv_safetensors_close(s->base);
    skv_gguf_close(s->gguf);
    skv_free(s->path);
    skv_free(s);
}

const char *skv_source_path(const skv_source *s)
{
    return s->path;
}

const skv_config *skv_source_config(const skv_source *s)
{
    return &s->config;
}

const skv_tensor *skv_source_find(const skv_source *s, const char *name)
{
    size_t i = skv_name_index_find(&s->index, name);
    return i == SIZE_MAX ? NULL : &s->tensors[i];
}

size_t skv_source_count(const skv_source *s)
{
    return s->n;
}

const skv_tensor *skv_source_at(const skv_source *s, size_t i)
{
    return &s->tensors[i];
}

const char *skv_source_unusable(const skv_source *s, const char *name)
{
    const char *why = s->safetensors ? skv_safetensors_unusable(s->safetensors, name) : NULL;
    return why || !s->base ? why : skv_safetensors_unusable(s->base, name);
}

const struct skv_gguf *skv_source_gguf(const skv_source *s)
{
    return s->gguf;
}
