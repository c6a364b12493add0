/* The tokenizer of a Hugging Face folder. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "format/tokenizer_keep.h"
#include "text/tokenizer_impl.h"

enum { CONFIG_MAX = 16 << 20 }; /* bytes */

/* Reads folder/name; *data stays NULL when there is no such file. */
static skv_status read_optional(const char *folder, const char *name, size_t max, char **data,
                                size_t *n, char **path, skv_error *err)
{
    *data = NULL;
    *n = 0;
    *path = skv_path_join(folder, name);
    SKV_REQUIRE(*path != NULL, err, SKV_MEMORY, "%s: no memory", folder);
    return skv_file_exists(*path) ? skv_file_read(*path, max, data, n, err) : SKV_OK;
}

/* chat_template.jinja beside the configuration wins over the one inside. */
static skv_status read_template(skv_tokenizer *t, const char *folder, skv_error *err)
{
    char *data = NULL, *path = NULL;
    size_t n;
    skv_status status =
        read_optional(folder, "chat_template.jinja", CONFIG_MAX, &data, &n, &path, err);
    skv_free(path);
    if (status != SKV_OK || data == NULL) return status;
    skv_free(t->chat_template);
    t->chat_template = data;
    return SKV_OK;
}

static skv_status open_json(const char *folder, const char *config, size_t n_config,
                            skv_tokenizer **out, skv_error *err)
{
    char *data = NULL, *path = NULL;
    size_t n;
    skv_status status =
        read_optional(folder, "tokenizer.json", SKV_TOKENIZER_FILE_MAX, &data, &n, &path, err);
    if (status == SKV_OK && data != NULL) {
        status = skv_tokenizer_parse_json(data, n, config, n_config, path, out, err);
    }
    skv_free(data);
    skv_free(path);
    return status;
}

static skv_status open_spm(const char *folder, const char *config, size_t n_config,
                           skv_tokenizer **out, skv_error *err)
{
    char *data = NULL, *path = NULL;
    size_t n;
    skv_status status =
        read_optional(folder, "tokenizer.model", SKV_TOKENIZER_FILE_MAX, &data, &n, &path, err);
    if (status == SKV_OK && data != NULL) {
        status = skv_tokenizer_parse_spm(data, n, path, out, err);
        if (status == SKV_OK && config != NULL) {
            status = skv_read_tokenizer_config(*out, config, n_config, err);
        }
    }
    skv_free(data);
    skv_free(path);
    return status;
}

/* What a model that came from a GGUF file keeps of it. */
static skv_status open_gguf(const char *folder, skv_tokenizer **out, skv_error *err)
{
    char *path = skv_path_join(folder, SKV_TOKENIZER_GGUF);
    skv_gguf *gguf = NULL;
    skv_status status = path ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    if (status == SKV_OK && skv_file_exists(path)) status = skv_gguf_open(path, &gguf, err);
    if (gguf) status = skv_tokenizer_open_gguf(gguf, out, err);
    skv_gguf_close(gguf);
    skv_free(path);
    return status;
}

skv_status skv_tokenizer_open_folder(const char *folder, skv_tokenizer **out, skv_error *err)
{
    char *config = NULL, *path = NULL;
    size_t n_config = 0;
    skv_tokenizer *t = NULL;
    skv_status status =
        read_optional(folder, "tokenizer_config.json", CONFIG_MAX, &config, &n_config, &path, err);
    if (status == SKV_OK) status = open_json(folder, config, n_config, &t, err);
    if (status == SKV_OK && t == NULL) status = open_spm(folder, config, n_config, &t, err);
    if (status == SKV_OK && t == NULL) status = open_gguf(folder, &t, err);
    if (status == SKV_OK && t != NULL) status = read_template(t, folder, err);
    skv_free(config);
    skv_free(path);
    if (status == SKV_OK)
        *out = t;
    else
        skv_tokenizer_free(t);
    return status;
}
