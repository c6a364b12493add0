/*
 * Traces of real services: when requests came, and how long prompts and answers were.
 *
 *     Azure 2023     CSV: TIMESTAMP,ContextTokens,GeneratedTokens
 *     Mooncake       JSON lines: timestamp (ms), input_length, output_length, and hash_ids: the
 * prompt in blocks of 512 tokens, equal blocks with equal numbers
 */
#ifndef SKV_LOAD_TRACE_FILE_H
#define SKV_LOAD_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TRACE_BLOCK_TOKENS = 512 };

typedef struct load_trace_row {
    double at_s; /* after the first one */
    uint32_t n_prompt, n_output;
    uint32_t n_blocks;  /* 0: it is not known which parts prompts share */
    size_t first_block; /* in `blocks` of the trace */
} load_trace_row;

typedef struct load_trace {
    load_trace_row *rows; /* owned, [n] */
    size_t n, room;
    uint64_t *blocks; /* owned, [n_blocks] */
    size_t n_blocks, blocks_room;
} load_trace;

/** At most `rows_max` rows of a file. On failure `error` (of LOAD_ERROR_MAX bytes) names the line.
 */
bool load_trace_read(const char *path, size_t rows_max, load_trace *out, char *error);
/** The same from a stream; `name` is for errors. */
bool load_trace_read_stream(FILE *file, const char *name, size_t rows_max, load_trace *out,
                            char *error);
void load_trace_release(load_trace *trace);

#endif
