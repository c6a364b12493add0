/** The input of commands: files, token ids, JSON. */
#ifndef SKV_CLI_INPUT_H
#define SKV_CLI_INPUT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "report.h"

typedef struct cli_bytes {
    char *data; /* owned; a zero follows data[n - 1] */
    size_t n;
} cli_bytes;

typedef struct cli_ids {
    int32_t *at; /* [n], owned */
    size_t n, room;
} cli_ids;

/** A whole file, "-" for standard input, at most 1 GiB. */
CLI_CHECKED int cli_read_file(const char *path, cli_bytes *out);
/** Text of a file (or "-p") that a tokenizer is to read: UTF-8. */
CLI_CHECKED int cli_check_text(const char *path, const cli_bytes *text);
/** Fails because the input that the options name has no tokens. */
CLI_CHECKED int cli_fail_empty(const cli_options *options);
/** A JSON document; the caller gives it back with json_decref. */
CLI_CHECKED int cli_read_json(const char *path, json_t **out);
/** A JSON array of integers in 0..vocab-1. */
CLI_CHECKED int cli_read_ids(const char *path, size_t vocab, cli_ids *out);

void cli_ids_add(cli_ids *ids, int32_t id);
void cli_ids_append(cli_ids *ids, const int32_t *more, size_t n);
void cli_ids_release(cli_ids *ids);
void cli_bytes_release(cli_bytes *bytes);

#endif
