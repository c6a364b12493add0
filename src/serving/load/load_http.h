/* Many HTTP requests at once, by libcurl. All of it is used by one thread. */
#ifndef SKV_LOAD_LOAD_HTTP_H
#define SKV_LOAD_LOAD_HTTP_H

#include "load.h"

typedef struct load_http load_http;
typedef struct load_call load_call;

struct load_call {
    const char *path;
    const char *body; /* borrowed until the end; NULL: GET */
    size_t n_body;
    double timeout_seconds;
    /* The next bytes of a response with status 200; false ends the call as malformed. */
    bool (*on_data)(load_call *call, const char *bytes, size_t n);
    /* After this the call is the caller's again. */
    void (*on_end)(load_call *call);
    void *user;

    /* Set at the end. */
    load_outcome outcome;
    int status;
    char detail[256]; /* why it failed: libcurl's words, or the beginning of the response */

    void *handle; /* ours while the call is under way */
};

/** `connections` are kept open at most. */
bool load_http_create(const char *url, const char *key, size_t connections, load_http **out,
                      char *error);
/** False: it could not even begin. */
bool load_http_begin(load_http *http, load_call *call);
/** Cuts the connection; on_end is not called. */
void load_http_drop(load_http *http, load_call *call);
/** Works until something happens, at most for so long. */
void load_http_work(load_http *http, double seconds);
/** Begins a call and works until it has ended; on_end is not called. */
bool load_http_ask(load_http *http, load_call *call);
void load_http_free(load_http *http);

#endif
