/* Requests by libcurl: see load_http.h. Built without it, this is left to say so. */
#include "load_http.h"

#include <stdlib.h>
#include <string.h>

#ifdef SKV_CURL

#include <curl/curl.h>

enum { CONNECT_SECONDS = 10, WORK_MS_MAX = 1000 };

struct load_http {
    CURLM *multi;
    struct curl_slist *headers;
    char *base;       /* owned: http://HOST:PORT */
    CURL **free_ones; /* owned, handles for another use, [n_free] */
    size_t n_free, room;
};

bool load_is_built(void)
{
    return true;
}

static bool fail(char *error, const char *what)
{
    (void)snprintf(error, LOAD_ERROR_MAX, "%.400s", what);
    return false;
}

/* ---- life ---- */

/* Without the path that clients append to the server's name: "http://host:8080/v1/". */
static char *base_of(const char *url)
{
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/') n--;
    if (n > 3 && memcmp(url + n - 3, "/v1", 3) == 0) n -= 3;
    while (n > 0 && url[n - 1] == '/') n--;
    const bool has_scheme = strstr(url, "://");
    static const char scheme[] = "http://";
    char *base = malloc(n + sizeof scheme);
    if (base) {
        (void)snprintf(base, n + sizeof scheme, "%s%.*s", has_scheme ? "" : scheme, (int)n, url);
    }
    return base;
}

static bool add_header(load_http *http, const char *line)
{
    struct curl_slist *headers = curl_slist_append(http->headers, line);
    if (!headers) return false;
    http->headers = headers;
    return true;
}

static bool add_headers(load_http *http, const char *key)
{
    char line[600];
    if (!add_header(http, "Content-Type: application/json") || !add_header(http, "Expect:")) {
        return false;
    }
    if (!key) return true;
    const int n = snprintf(line, sizeof line, "Authorization: Bearer %s", key);
    return n > 0 && (size_t)n < sizeof line && add_header(http, line);
}

bool load_http_create(const char *url, const char *key, size_t connections, load_http **out,
                      char *error)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return fail(error, "libcurl: initialisation failed");
    load_http *http = calloc(1, sizeof *http);
    if (!http) return fail(error, "no memory");
    http->room = connections;
    http->base = base_of(url);
    http->free_ones = calloc(connections, sizeof(CURL *));
    http->multi = curl_multi_init();
    if (!http->base || !http->free_ones || !http->multi || !add_headers(http, key)) {
        load_http_free(http);
        return fail(error, "no memory for connections, or the API key is too long");
    }
    (void)curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)connections);
    *out = http;
    return true;
}

void load_http_free(load_http *http)
{
    if (!http) return;
    for (size_t i = 0; i < http->n_free; i++) curl_easy_cleanup(http->free_ones[i]);
    if (http->multi) (void)curl_multi_cleanup(http->multi);
    curl_slist_free_all(http->headers);
    free(http->free_ones);
    free(http->base);
    free(http);
    curl_global_cleanup();
}

/* ---- calls ---- */

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    load_call *call = user;
    long status = 0;
    (void)curl_easy_getinfo(call->handle, CURLINFO_RESPONSE_CODE, &status);
    n *= size;
    if (status == 200) return call->on_data(call, bytes, n) ? n : 0;
    const size_t have = strlen(call->detail), room = sizeof call->detail - 1 - have;
    const size_t taken = n < room ? n : room;
    memcpy(call->detail + have, bytes, taken);
    call->detail[have + taken] = 0;
    return n;
}

/* Not through a proxy of the environment: that would be measured too. */
static bool set_up(load_http *http, CURL *handle, load_call *call)
{
    char url[1024];
    const int n = snprintf(url, sizeof url, "%s%s", http->base, call->path);
    bool ok = n > 0 && (size_t)n < sizeof url;
    ok = ok && curl_easy_setopt(handle, CURLOPT_URL, url) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_PROXY, "") == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_HTTPHEADER, http->headers) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                                (long)(call->timeout_seconds * 1e3) + 1) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_WRITEDATA, call) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_PRIVATE, call) == CURLE_OK;
    if (!call->body) {
        return ok && curl_easy_setopt(handle, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    }
    ok = ok && curl_easy_setopt(handle, CURLOPT_POST, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n_body) ==
                   CURLE_OK;
    return ok && curl_easy_setopt(handle, CURLOPT_POSTFIELDS, call->body) == CURLE_OK;
}

static void give_back(load_http *http, load_call *call)
{
    CURL *handle = call->handle;
    call->handle = NULL;
    (void)curl_multi_remove_handle(http->multi, handle);
    if (http->n_free < http->room) {
        http->free_ones[http->n_free++] = handle;
    } else {
        curl_easy_cleanup(handle);
    }
}

bool load_http_begin(load_http *http, load_call *call)
{
    CURL *handle = http->n_free > 0 ? http->free_ones[--http->n_free] : curl_easy_init();
    call->handle = handle;
    call->outcome = LOAD_DONE;
    call->status = 0;
    call->detail[0] = 0;
    if (!handle) return false;
    if (set_up(http, handle, call) && curl_multi_add_handle(http->multi, handle) == CURLM_OK) {
        return true;
    }
    give_back(http, call);
    return false;
}

void load_http_drop(load_http *http, load_call *call)
{
    if (call->handle) give_back(http, call);
}

static load_outcome outcome_of(CURLcode code, long status)
{
    switch (code) {
    case CURLE_OK: return status == 200 ? LOAD_DONE : LOAD_HTTP;
    case CURLE_OPERATION_TIMEDOUT: return LOAD_TIMEOUT;
    case CURLE_WRITE_ERROR: return LOAD_MALFORMED;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION: return LOAD_UNREACHABLE;
    default: return LOAD_CUT;
    }
}

static bool end_calls(load_http *http)
{
    CURLMsg *message;
    int n_left = 0;
    bool any = false;
    while ((message = curl_multi_info_read(http->multi, &n_left))) {
        if (message->msg != CURLMSG_DONE) continue;
        const CURLcode code = message->data.result;
        load_call *call = NULL;
        long status = 0;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&call);
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        call->status = (int)status;
        call->outcome = outcome_of(code, status);
        if (code != CURLE_OK) {
            (void)snprintf(call->detail, sizeof call->detail, "%s", curl_easy_strerror(code));
        }
        give_back(http, call);
        if (call->on_end) call->on_end(call);
        any = true;
    }
    return any;
}

void load_http_work(load_http *http, double seconds)
{
    int n_running = 0;
    const double ms = seconds * 1e3;
    (void)curl_multi_perform(http->multi, &n_running);
    if (end_calls(http)) return;
    const int wait_ms = ms < 0 ? 0 : ms > WORK_MS_MAX ? WORK_MS_MAX : (int)ms;
    (void)curl_multi_poll(http->multi, NULL, 0, wait_ms, NULL);
    (void)curl_multi_perform(http->multi, &n_running);
    (void)end_calls(http);
}

bool load_http_ask(load_http *http, load_call *call)
{
    call->on_end = NULL;
    if (!load_http_begin(http, call)) return false;
    while (call->handle) load_http_work(http, 1);
    return call->outcome == LOAD_DONE;
}

#else

bool load_is_built(void)
{
    return false;
}

bool load_http_create(const char *url, const char *key, size_t connections, load_http **out,
                      char *error)
{
    (void)url;
    (void)key;
    (void)connections;
    *out = NULL;
    (void)snprintf(error, LOAD_ERROR_MAX, "this swiftkv was built without libcurl");
    return false;
}

bool load_http_begin(load_http *http, load_call *call)
{
    (void)http;
    (void)call;
    return false;
}

void load_http_drop(load_http *http, load_call *call)
{
    (void)http;
    (void)call;
}

void load_http_work(load_http *http, double seconds)
{
    (void)http;
    (void)seconds;
}

bool load_http_ask(load_http *http, load_call *call)
{
    (void)http;
    (void)call;
    return false;
}

void load_http_free(load_http *http)
{
    (void)http;
}

#endif
