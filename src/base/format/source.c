/*
 * A model's tensors under the names that the engine asks for: see source.h and source_impl.h.
 * source_names.c gives them.
 */
#include "format/source.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "format/dtype.h"
#include "format/source_impl.h"

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

skv_status skv_source_check_fused(const skv_source *source, const skv_tensor *t, size_t n_rows,
                                  size_t n_columns, skv_error *err)
{
    const size_t expected[] = {n_rows, n_columns}, n_dims = n_columns ? 2 : 1;
    char shape[80], wanted[80];
    (void)skv_tensor_shape_text(t->dims, t->n_dims, shape, sizeof shape);
    (void)skv_tensor_shape_text(expected, n_dims, wanted, sizeof wanted);
    SKV_REQUIRE(t->n_dims == n_dims && memcmp(t->dims, expected, n_dims * sizeof *expected) == 0,
                err, SKV_FORMAT, "%s: %s: shape %s, expected %s", skv_source_path(source), t->name,
                shape, wanted);
    SKV_REQUIRE(n_columns || skv_dtype_block_elements(t->type) == 1, err, SKV_UNSUPPORTED,
                "%s: %s: a bias of type %s is not supported", skv_source_path(source), t->name,
                skv_dtype_name(t->type));
    return SKV_OK;
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

/* ---- queries ---- */

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

bool skv_source_in_base(const skv_source *s, const skv_tensor *tensor)
{
    return s->base && (size_t)(tensor - s->tensors) >= s->n_own;
}

size_t skv_source_count(const skv_source *s)
{
    return s->n;
}

const skv_tensor *skv_source_at(const skv_source *s, size_t i)
{
    return &s->tensors[i];
}

bool skv_source_has_mtp(const skv_source *s)
{
    return s->has_mtp && skv_config_may_predict(&s->config);
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
