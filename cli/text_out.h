/** Generated text on its way out: as it becomes certain, up to a stop string. */
#ifndef SKV_CLI_TEXT_OUT_H
#define SKV_CLI_TEXT_OUT_H

#include <stdbool.h>
#include <stdio.h>

#include "common/stop_text.h"
#include "input.h"
#include "options.h"
#include "skv/text.h"

typedef struct cli_text_out {
    skv_text_stream *stream; /* owned */
    FILE *echo;              /* receives the text as it is released; NULL: none */
    skv_text_piece *stops;   /* owned */
    skv_stop_text stop;      /* text that may begin a stop string */
    cli_bytes text;          /* the released text */
    size_t room;
    bool stopped; /* a stop string came: text ends before it */
} cli_text_out;

/** Begins a text that continues `prompt`, whose ids decide the meaning of a first space or partial
 * character. */
CLI_CHECKED int cli_text_out_open(cli_text_out *out, const skv_vocab *vocab, const cli_ids *prompt,
                                  const cli_texts *stops, FILE *echo);
/** One more token. */
CLI_CHECKED int cli_text_out_push(cli_text_out *out, int32_t id);
/** Releases the remaining text. */
CLI_CHECKED int cli_text_out_finish(cli_text_out *out);
void cli_text_out_close(cli_text_out *out);

#endif
