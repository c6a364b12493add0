/* The files beside a model's weights: see companions.h. */
#include "format/companions.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/tokenizer_keep.h"

enum { FILE_BYTES_MAX = 256 << 20 };

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

skv_status skv_companions_copy(const char *from, const char *to, skv_error *err)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer.model",
                                        SKV_TOKENIZER_GGUF,
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        SKV_TRY(copy_file(from, to, names[i], err));
    }
    return SKV_OK;
}

skv_status skv_companions_write(const skv_source *source, const char *to, skv_error *err)
{
    const skv_gguf *gguf = skv_source_gguf(source);
    if (gguf) return skv_tokenizer_keep(gguf, to, err);
    return skv_companions_copy(skv_source_path(source), to, err);
}
