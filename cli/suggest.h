/** Suggestions for a misspelt word, or a folder without a model. */
#ifndef SKV_CLI_SUGGEST_H
#define SKV_CLI_SUGGEST_H

#include <stddef.h>

#include "hub.h"
#include "report.h"

/* The word that is nearest so far. */
typedef struct cli_suggestion {
    const char *given; /* borrowed, [n] */
    size_t n;
    const char *best; /* borrowed; NULL: none is near */
    size_t distance;  /* of `best` */
} cli_suggestion;

cli_suggestion cli_suggest(const char *given, size_t n);
/** `word` is one that exists. */
void cli_suggest_try(cli_suggestion *suggestion, const char *word);

/** Resolves a folder without config.json: the path of its only GGUF file goes to `room` and *path,
 * with a note. Prints an error if the content is recognised: several such files, a stopped training
 * run, a folder of models. Returns CLI_DONE for everything else. */
CLI_CHECKED int cli_suggest_folder(const char **path, char room[CLI_HUB_PATH_MAX]);

#endif
