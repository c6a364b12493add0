/** Requests to the hub, by libcurl: its answers into memory, its files into the cache. */
#ifndef SKV_CLI_HUB_HTTP_H
#define SKV_CLI_HUB_HTTP_H

#include "base/buf.h"
#include "hub_blob.h"

typedef struct hub_http hub_http;

/** `token` may be NULL; it goes to the endpoint alone, not to where that redirects. */
bool hub_http_create(const char *endpoint, const char *token, hub_http **out, hub_error *error);
void hub_http_free(hub_http *http);

/** An answer of the hub to a path, at most text->max bytes of it. */
bool hub_http_read(hub_http *http, const char *path, skv_buf *text, hub_error *error);
/** Fetches the wanted files of the list that are missing, several at once. */
bool hub_http_fetch(hub_http *http, const hub_place *place, const hub_list *list,
                    cli_progress *progress, hub_error *error);

#endif
