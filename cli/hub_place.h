/** The parts of a model's name and the places of its files, shared by the hub's files. */
#ifndef SKV_CLI_HUB_PLACE_H
#define SKV_CLI_HUB_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hub.h"
#include "report.h"

enum { HUB_WORD_MAX = 200, HUB_HASH_MAX = 80, HUB_ERROR_MAX = 900 };

/* A name in its parts. */
typedef struct hub_name {
    char org[HUB_WORD_MAX], model[HUB_WORD_MAX], revision[HUB_WORD_MAX];
    char quant[64]; /* of a GGUF file; "": not given */
} hub_name;

/* Where the cache keeps a model. */
typedef struct hub_place {
    hub_name name;
    char cache[CLI_HUB_PATH_MAX];
    char repository[CLI_HUB_PATH_MAX]; /* cache/models--org--name */
} hub_place;

/** One line that describes a failure; the caller adds the model's name as prefix. */
typedef struct hub_error {
    char text[HUB_ERROR_MAX];
    bool missing;     /* the cache does not have it */
    bool unreachable; /* no answer came from the hub */
} hub_error;

/** Fills the line; returns false. */
bool hub_fail(hub_error *error, const char *format, ...) CLI_PRINTF(2, 3);

/** Returns the number of leading letters, digits and marks of a text. */
size_t hub_count_word(const char *text, const char *marks);
/** Takes "org/name@revision:type" apart; false: it is no name. */
bool hub_name_parse(const char *text, hub_name *out);

/** "folder/name"; false: too long. */
bool hub_join(char out[CLI_HUB_PATH_MAX], const char *folder, const char *name);
/** Returns a path from the environment with ~ expanded to the user's home; NULL: not set. */
const char *hub_environment(const char *name, char out[CLI_HUB_PATH_MAX]);

/** Finds the cache's folder; false: no variable defines it. */
bool hub_find_cache(char out[CLI_HUB_PATH_MAX]);
/** The parts of a name and the folder that is its own in the cache. */
bool hub_find_place(const char *given, hub_place *out, hub_error *error);

/** HF_ENDPOINT, else the public hub. */
const char *hub_endpoint(void);

/** Whether a GGUF file can be a model, the first part of one in several files. */
bool hub_is_model_file(const char *file);
/** Whether a file's name contains the quantisation as a word: "x-Q4_K_M.gguf",
 * "x.q4_k_m-00001-of-00002.gguf". */
bool hub_names_quant(const char *file, const char *quant);

#endif
