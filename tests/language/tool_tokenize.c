/*
 * Reads texts, writes ids: what tools/checks/check_tokenizer.py compares with the original
 * libraries.
 *
 *     tool_tokenize PATH add_special parse_special [decode] < IN > OUT
 *
 * PATH is a folder, a tokenizer.json, a tokenizer.model or a GGUF file. IN repeats (u32 bytes,
 * text); OUT repeats (u32 ids, i32 ids). With `decode` OUT repeats (u32 bytes, text) of the text
 * that the ids decode to. Numbers are little endian.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

static skv_status open_any(const char *path, skv_tokenizer **out, skv_gguf **gguf, skv_error *err)
{
    size_t n = strlen(path), size;
    char *data;
    if (skv_file_is_folder(path)) return skv_tokenizer_open_folder(path, out, err);
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) {
        SKV_TRY(skv_gguf_open(path, gguf, err));
        return skv_tokenizer_open_gguf(*gguf, out, err);
    }
    SKV_TRY(skv_file_read(path, (size_t)1 << 30, &data, &size, err));
    skv_status status = n > 5 && strcmp(path + n - 5, ".json") == 0
                            ? skv_tokenizer_parse_json(data, size, NULL, 0, path, out, err)
                            : skv_tokenizer_parse_spm(data, size, path, out, err);
    skv_free(data);
    return status;
}

static skv_status write_text(const skv_tokenizer *t, const skv_ids *ids, skv_error *err)
{
    skv_buf text;
    skv_buf_init(&text, (size_t)1 << 31);
    skv_status status = skv_tokenizer_decode(
        t, ids->data, ids->n, (skv_decode_options){.with_special = true}, &text, err);
    uint32_t n = (uint32_t)text.size;
    if (status == SKV_OK) {
        fwrite(&n, 4, 1, stdout);
        fwrite(text.data, 1, n, stdout);
    }
    skv_buf_release(&text);
    return status;
}

static skv_status run(const skv_tokenizer *t, skv_encode_options options, bool decode,
                      skv_error *err)
{
    char *text = NULL;
    uint32_t n;
    skv_ids ids = {0};
    skv_status status = SKV_OK;
    while (status == SKV_OK && fread(&n, 4, 1, stdin) == 1) {
        char *bigger = skv_realloc(text, (size_t)n + 1, 1);
        if (!bigger || fread(bigger, 1, n, stdin) != n) {
            status = skv_fail(err, SKV_IO, "short input");
            break;
        }
        text = bigger;
        ids.n = 0;
        status = skv_tokenizer_encode(t, text, n, options, &ids, err);
        if (status != SKV_OK) break;
        if (decode) {
            status = write_text(t, &ids, err);
            continue;
        }
        n = (uint32_t)ids.n;
        fwrite(&n, 4, 1, stdout);
        fwrite(ids.data, 4, n, stdout);
    }
    skv_ids_release(&ids);
    skv_free(text);
    return status;
}

int main(int argc, char **argv)
{
    skv_tokenizer *t = NULL;
    skv_gguf *gguf = NULL;
    skv_error err = {0};
    if (argc < 4) {
        fputs("usage: tool_tokenize PATH add_special parse_special [decode]\n", stderr);
        return 2;
    }
    skv_encode_options options = {.add_special = argv[2][0] == '1',
                                  .parse_special = argv[3][0] == '1'};
    skv_status status = open_any(argv[1], &t, &gguf, &err);
    if (status == SKV_OK && !t) status = skv_fail(&err, SKV_FORMAT, "no tokenizer");
    if (status == SKV_OK) status = run(t, options, argc > 4, &err);
    if (status != SKV_OK) fprintf(stderr, "%s\n", err.text);
    skv_tokenizer_free(t);
    skv_gguf_close(gguf);
    return status == SKV_OK ? 0 : 1;
}
