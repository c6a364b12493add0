/** What somebody meant who wrote a word that does not exist, or a folder without a model. */
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

/** A folder without config.json: its one GGUF file goes to `room` and is then the path, which a
 * note says. Says what it is where that can be seen: several such files, a training run that was
 * stopped, a folder of models. CLI_DONE for everything else. */
CLI_CHECKED int cli_suggest_folder(const char **path, char room[CLI_HUB_PATH_MAX]);

#endif
