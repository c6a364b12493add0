/** Rendering chat templates from JSON values. */
#ifndef SKV_CLI_TEMPLATE_TEXT_H
#define SKV_CLI_TEMPLATE_TEXT_H

#include "input.h"
#include "skv/text.h"

/** `template_text` with these variables; `vocab` (may be NULL) adds its special tokens. */
CLI_CHECKED int cli_render(const cli_bytes *template_text, const json_t *vars,
                           const skv_vocab *vocab, cli_bytes *out);

#endif
