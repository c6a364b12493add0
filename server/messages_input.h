/* Requests of Anthropic's Messages in the words of OpenAI's chats. */
#ifndef SKV_SERVER_MESSAGES_INPUT_H
#define SKV_SERVER_MESSAGES_INPUT_H

#include "json_body.h"

/** The chat's body, owned; NULL: refused. `counts`: nothing is generated, max_tokens is not asked
 * for. */
json_t *messages_translate(const json_t *asked, bool counts, api_error *error);

#endif
