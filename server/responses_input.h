/* Requests of OpenAI's Responses in the words of its chats. */
#ifndef SKV_SERVER_RESPONSES_INPUT_H
#define SKV_SERVER_RESPONSES_INPUT_H

#include "json_body.h"

/** The chat's body, owned; NULL: refused. */
json_t *responses_translate(const json_t *asked, api_error *error);

#endif
