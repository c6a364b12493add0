/* Files, ids and JSON from outside: every size has a bound, every error names the file. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static const size_t file_bytes_max = (size_t)1 << 30;

static const char *shown_path(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int cli_check_text(const char *path, const cli_bytes *text)
{
    size_t bad;
    if (skv_utf8_valid(text->data, text->n, &bad)) return CLI_DONE;
    return cli_fail("%s: byte %zu: 0x%02x is not UTF-8", shown_path(path), bad,
                    (unsigned char)text->data[bad]);
}

int cli_fail_empty(const cli_options *options)
{
    const char *from = options->ids_file ? options->ids_file : options->file ? options->file : "-p";
    return cli_fail("%s: 0 tokens, expected at least 1", shown_path(from));
}

static int read_stream(FILE *stream, const char *path, cli_bytes *out)
{
    cli_bytes bytes = {0};
    size_t room = 0;
    for (;;) {
        if (bytes.n + 1 >= room) {
            room = room < 4096 ? 65536 : room * 2;
            bytes.data = cli_grow(bytes.data, room, 1);
        }
        const size_t got = fread(bytes.data + bytes.n, 1, room - 1 - bytes.n, stream);
        bytes.n += got;
        if (got == 0 || bytes.n > file_bytes_max) break;
    }
    bytes.data[bytes.n] = 0;
    int status = CLI_DONE;
    if (ferror(stream) != 0) {
        status = cli_fail("%s: %s", shown_path(path), strerror(errno));
    } else if (bytes.n > file_bytes_max) {
        status = cli_fail("%s: larger than %zu bytes", shown_path(path), file_bytes_max);
    }
    if (status != CLI_DONE) {
        cli_bytes_release(&bytes);
        return status;
    }
    *out = bytes;
    return CLI_DONE;
}

int cli_read_file(const char *path, cli_bytes *out)
{
    if (strcmp(path, "-") == 0) return read_stream(stdin, path, out);
    FILE *stream = fopen(path, "rb");
    if (!stream) return cli_fail("%s: %s", path, strerror(errno));
    const int status = read_stream(stream, path, out);
    fclose(stream);
    return status;
}

int cli_read_json(const char *path, json_t **out)
{
    cli_bytes bytes = {0};
    const int status = cli_read_file(path, &bytes);
    if (status != CLI_DONE) return status;
    json_error_t error;
    json_t *value = json_loadb(bytes.data, bytes.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    cli_bytes_release(&bytes);
    if (!value) {
        return cli_fail("%s: line %d: %s", shown_path(path), error.line, error.text);
    }
    *out = value;
    return CLI_DONE;
}

static int ids_of(const json_t *array, const char *path, size_t vocab, cli_ids *out)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item)) {
            char *text = json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
            const int failed = cli_fail("%s: [%zu]: %.60s is not an integer", path, i,
                                        !text ? "the element" : text);
            free(text);
            return failed;
        }
        const json_int_t id = json_integer_value(item);
        if (id < 0 || (uint64_t)id >= vocab || id > INT32_MAX) {
            return cli_fail("%s: [%zu]: id %" JSON_INTEGER_FORMAT " is not below the vocabulary's "
                            "size, %zu",
                            path, i, id, vocab);
        }
        cli_ids_add(out, (int32_t)id);
    }
    return CLI_DONE;
}

int cli_read_ids(const char *path, size_t vocab, cli_ids *out)
{
    json_t *array = NULL;
    int status = cli_read_json(path, &array);
    if (status != CLI_DONE) return status;
    cli_ids ids = {0};
    if (json_is_array(array)) {
        status = ids_of(array, shown_path(path), vocab, &ids);
    } else {
        char *text = json_dumps(array, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
        status = cli_fail("%s: %.60s is not a JSON array of token ids", shown_path(path),
                          !text ? "this" : text);
        free(text);
    }
    json_decref(array);
    if (status != CLI_DONE) {
        cli_ids_release(&ids);
        return status;
    }
    *out = ids;
    return CLI_DONE;
}

void cli_ids_append(cli_ids *ids, const int32_t *more, size_t n)
{
    if (n == 0) return;
    if (ids->n + n > ids->room) {
        ids->room = ids->n + n > 2 * ids->room ? ids->n + n : 2 * ids->room;
        ids->at = cli_grow(ids->at, ids->room, sizeof *ids->at);
    }
    memcpy(ids->at + ids->n, more, n * sizeof *more);
    ids->n += n;
}

void cli_ids_add(cli_ids *ids, int32_t id)
{
    cli_ids_append(ids, &id, 1);
}

void cli_ids_release(cli_ids *ids)
{
    free(ids->at);
    *ids = (cli_ids){0};
}

void cli_bytes_release(cli_bytes *bytes)
{
    free(bytes->data);
    *bytes = (cli_bytes){0};
}
