/*
 * Tools in requests: what "tools" and "tool_choice" of a chat say, what a template and a grammar
 * need of it, and the calls of earlier turns.
 */
#ifndef SKV_SERVER_TOOL_REQUEST_H
#define SKV_SERVER_TOOL_REQUEST_H

#include "json_body.h"

typedef enum tool_choice {
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_NONE,
    TOOL_CHOICE_REQUIRED,
    TOOL_CHOICE_NAMED
} tool_choice;

enum { TOOLS_MAX = 128, TOOL_NAME_MAX = 64 };

typedef struct tool_request {
    json_t *tools;      /* owned: as templates want them; NULL: none */
    const char **names; /* owned, [n]: they point into `tools` */
    size_t n;
    tool_choice choice;
    size_t i_named; /* of NAMED */
    bool parallel;  /* several calls in one answer */
    bool strict;    /* some function's arguments have to follow its schema */
} tool_request;

/** Reads "tools", "tool_choice" and "parallel_tool_calls" of a chat's body. */
bool tool_request_read(const exchange *ex, const json_t *body, tool_request *out, api_error *error);
void tool_request_release(tool_request *request);

/** Adds `tools` to a template's variables, unless the answer shall call none. */
bool tool_request_vars(const exchange *ex, const json_t *body, json_t *vars, api_error *error);
/** Makes a message what templates expect: arguments of calls as objects, content as a text. */
bool tool_message_tidy(const exchange *ex, json_t *message, size_t i, api_error *error);

/** Whether the answer has to be calls. */
bool tool_request_forces(const tool_request *request);
/** Whether calls have to follow a grammar, forced or not. */
bool tool_request_constrains(const tool_request *request);
/** The grammar (SKV_GRAMMAR_PARTS) of such an answer, to be freed with skv_text_free. */
bool tool_request_grammar(const exchange *ex, const tool_request *request, bool in_thought,
                          char **text, size_t *n, api_error *error);

#endif
