/* The tokenizer of a Hugging Face folder. */

#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/gguf.h"
#include "text/tokenizer_impl.h"

enum { CONFIG_MAX = 16 << 20 }; /* bytes */

/* Reads folder/name; *data stays NULL when there is no such file. */
static skv_status read_optional(const char *folder, const char *name, size_t max, char **data,
                                size_t *n, char **path, skv_error *err)
{
    *data = NULL;
    *n = 0;
    *path = skv_path_join(folder, name);
    SKV_REQUIRE(*path, err, SKV_MEMORY, "%s: no memory", folder);
    return skv_file_exists(*path) ? skv_file_read(*path, max, data, n, err) : SKV_OK;
}

/* Reads a file beside the vocabulary: the folder's own, or that of the vocabulary's home. */
static skv_status read_beside(const char *folder, const char *home, const char *name, char **data,
                              size_t *n, skv_error *err)
{
    char *path = NULL;
    skv_status status = read_optional(folder, name, CONFIG_MAX, data, n, &path, err);
    skv_free(path);
    if (status != SKV_OK || *data) return status;
    status = read_optional(home, name, CONFIG_MAX, data, n, &path, err);
    skv_free(path);
    return status;
}

/* chat_template.jinja beside the configuration wins over the one inside. */
static skv_status read_template(skv_tokenizer *t, const char *folder, const char *home,
                                skv_error *err)
{
    char *data = NULL;
    size_t n;
    skv_status status = read_beside(folder, home, "chat_template.jinja", &data, &n, err);
    if (status != SKV_OK || !data) return status;
    skv_free(t->chat_template);
    t->chat_template = data;
    return SKV_OK;
}

/* tokenizer.json or tokenizer.model, if the folder has it. */
static skv_status open_file(const char *folder, bool is_json, skv_text_piece config,
                            skv_tokenizer **out, skv_error *err)
{
    const char *name = is_json ? "tokenizer.json" : "tokenizer.model";
    char *data = NULL, *path = NULL;
    size_t n;
    skv_status status = read_optional(folder, name, SKV_TOKENIZER_FILE_MAX, &data, &n, &path, err);
    if (status == SKV_OK && data && is_json) {
        status = skv_tokenizer_parse_json(data, n, config.text, config.n, path, out, err);
    } else if (status == SKV_OK && data) {
        status = skv_tokenizer_parse_spm(data, n, path, out, err);
        if (status == SKV_OK && config.text) {
            status = skv_read_tokenizer_config(*out, config.text, config.n, err);
        }
    }
    skv_free(data);
    skv_free(path);
    return status;
}

/* Opens tokenizer.gguf, which is kept from the GGUF file that a model came from. */
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

static skv_status open_from(const char *folder, const char *home, skv_tokenizer **t, skv_error *err)
{
    char *config = NULL;
    size_t n_config = 0;
    skv_status status = read_beside(folder, home, "tokenizer_config.json", &config, &n_config, err);
    const skv_text_piece read = {config, n_config};
    if (status == SKV_OK) status = open_file(home, true, read, t, err);
    if (status == SKV_OK && !*t) status = open_file(home, false, read, t, err);
    if (status == SKV_OK && !*t) status = open_gguf(home, t, err);
    if (status == SKV_OK && *t) status = read_template(*t, folder, home, err);
    skv_free(config);
    return status;
}

skv_status skv_tokenizer_open_folder(const char *folder, skv_tokenizer **out, skv_error *err)
{
    char *home;
    skv_tokenizer *t = NULL;
    SKV_TRY(skv_tokenizer_home(folder, &home, err));
    skv_status status = open_from(folder, home, &t, err);
    skv_free(home);
    if (status == SKV_OK) {
        *out = t;
    } else {
        skv_tokenizer_free(t);
    }
    return status;
}

skv_status skv_tokenizer_open(const char *path, skv_tokenizer **out, skv_error *err)
{
    if (skv_file_is_folder(path)) return skv_tokenizer_open_folder(path, out, err);
    skv_gguf *gguf;
    SKV_TRY(skv_gguf_open(path, &gguf, err));
    const skv_status status = skv_tokenizer_open_gguf(gguf, out, err);
    skv_gguf_close(gguf);
    return status;
}
