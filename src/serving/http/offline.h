/*
 * Makes a request's prompt as the server does, without a server: `swiftkv cache explain` reads
 * recorded requests with the code that answers them.
 */
#ifndef SKV_SERVER_OFFLINE_H
#define SKV_SERVER_OFFLINE_H

#include "server.h"

typedef struct offline_reader offline_reader;

/* Changes to the prompt (prompt_changes.h). */
typedef struct offline_changes {
    bool strip, sort_tools, keep_thoughts;
} offline_changes;

/* A request, as it was recorded. */
typedef struct offline_request {
    const char *path; /* "/v1/messages", "/v1/responses"; any other: a chat */
    skv_text_piece body;
} offline_request;

/** `strip`: the lines that offline_changes.strip takes out. vocab is borrowed, the template is
 * copied. On failure `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. */
bool offline_open(const skv_vocab *vocab, const server_template *template, const char *strip,
                  offline_reader **out, char *error);
void offline_close(offline_reader *reader);
/** The ids of the prompt, on the heap (free). */
bool offline_read(offline_reader *reader, const offline_request *request, offline_changes changes,
                  int32_t **ids, size_t *n_ids, char *error);

#endif
