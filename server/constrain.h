/* What an answer has to look like (response_format and its kin), as a constraint on its tokens. */
#ifndef SKV_SERVER_CONSTRAIN_H
#define SKV_SERVER_CONSTRAIN_H

#include "json_body.h"

/** Fills *out from the request's fields; out->begin stays NULL when there is none. The job that
 * it is given to takes it over; without one constrain_release frees it. */
bool constrain_read(const exchange *ex, const json_t *body, skv_constraint *out, api_error *error);
/** The same for an answer that has to call functions, by the grammar that tool_request_grammar
 * made; `out` is what constrain_read left: an answer follows one of them. */
bool constrain_calls(const exchange *ex, const char *text, size_t n, skv_constraint *out,
                     api_error *error);
void constrain_release(skv_constraint *constraint);

/** What all constraints share: the bytes of the model's tokens. Engine and vocabulary are set. */
bool constrain_start(http_server *server, char *error);
/** After the last job is gone. */
void constrain_stop(http_server *server);

#endif
