/* A tokenizer from the bytes of its file. */
#ifndef SKV_TEST_OPEN_TOKENIZER_H
#define SKV_TEST_OPEN_TOKENIZER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

static skv_tokenizer *open_path(const char *path)
{
    char *data;
    size_t n, length = strlen(path);
    skv_error err = {0};
    skv_tokenizer *t = NULL;
    skv_gguf *gguf = NULL;
    skv_status status = skv_file_read(path, (size_t)1 << 28, &data, &n, &err);
    if (status == SKV_OK && strcmp(path + length - 5, ".json") == 0) {
        status = skv_tokenizer_parse_json(data, n, NULL, 0, path, &t, &err);
    } else if (status == SKV_OK && strcmp(path + length - 5, ".gguf") == 0) {
        status = skv_gguf_parse(data, n, path, &gguf, &err);
        if (status == SKV_OK) status = skv_tokenizer_open_gguf(gguf, &t, &err);
    } else if (status == SKV_OK) {
        status = skv_tokenizer_parse_spm(data, n, path, &t, &err);
    }
    if (status != SKV_OK) fail_msg("%s", err.text);
    skv_gguf_close(gguf);
    skv_free(data);
    return t;
}

#endif
