/* Requests to the hub: see hub_http.h. One thread runs all transfers. */
#include "hub_http.h"

#include "hub_download.h"

#ifdef SKV_CURL

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "skv/tools.h"
#include "skv/version.h"

enum {
    AT_ONCE = 8,
    TRIES = 5, /* without a byte between them */
    CONNECT_SECONDS = 10,
    STALL_SECONDS = 30,
    RETRY_SECONDS_MAX = 300,
    POLL_MS = 100, /* without anything to do */
    URL_MAX = 8192,
    REFUSAL_BYTES_MAX = 1 << 20
};
#define SECOND_NS UINT64_C(1000000000)
#define MS_NS UINT64_C(1000000)
static const double FIRST_RETRY_SECONDS = 0.5;

/* One request: of a file of the list, or of an answer into memory. */
typedef struct transfer {
    hub_http *http; /* borrowed, as all pointers here */
    const hub_file *file;
    const char *commit;
    skv_buf *text; /* if there is no file */
    hub_blob blob;
    CURL *handle;      /* owned; NULL: it does not run */
    uint64_t start_ns; /* when to try again */
    unsigned n_tries, n_wrong;
    uint64_t bytes_before; /* of the blob, when it was last tried */
    size_t n_refusal;      /* bytes of an error response */
    bool begun, waits;     /* its body; for another process */
    long long range_start; /* of the response; -1: not given */
    char refusal[300];     /* the hub's X-Error-Message */
    hub_error error;       /* why it was ended here; "": it was not */
} transfer;

struct hub_http {
    CURLM *multi;
    const char *endpoint, *token;
    long stall_seconds;
    double retry_seconds; /* before the second try; twice as long before each further one */
};

/* The files that are left. */
typedef struct queue {
    const hub_place *place;
    const hub_list *list;
    size_t i_next;           /* of the list */
    transfer slots[AT_ONCE]; /* file NULL: free */
    uint64_t done_bytes, total_bytes;
} queue;

bool hub_download_is_built(void)
{
    return true;
}

static double seconds_of(const char *name, double otherwise)
{
    const char *value = getenv(name);
    const double seconds = value ? strtod(value, NULL) : 0;
    return seconds > 0 && seconds <= RETRY_SECONDS_MAX ? seconds : otherwise;
}

bool hub_http_create(const char *endpoint, const char *token, hub_http **out, hub_error *error)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return hub_fail(error, "libcurl: initialisation failed");
    }
    const char *timeout = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    const long seconds = timeout ? strtol(timeout, NULL, 10) : 0;
    hub_http *http = cli_alloc(1, sizeof *http);
    *http = (hub_http){.multi = curl_multi_init(),
                       .endpoint = endpoint,
                       .token = token,
                       .stall_seconds = seconds > 0 ? seconds : STALL_SECONDS,
                       .retry_seconds = seconds_of("SWIFTKV_RETRY_SECONDS", FIRST_RETRY_SECONDS)};
    *out = http;
    return http->multi || hub_fail(error, "libcurl: no memory");
}

void hub_http_free(hub_http *http)
{
    if (!http) return;
    (void)curl_multi_cleanup(http->multi);
    free(http);
    curl_global_cleanup();
}

/* ---- response headers ---- */

static bool header_is(const char *line, size_t n, const char *name, char *out, size_t room)
{
    const size_t n_name = strlen(name);
    if (n <= n_name || strncasecmp(line, name, n_name) != 0) return false;
    const char *value = line + n_name;
    n -= n_name;
    while (n > 0 && strchr(" \t\"", *value)) value++, n--;
    while (n > 0 && strchr(" \t\r\n\"", value[n - 1])) n--;
    (void)snprintf(out, room, "%.*s", (int)(n < room ? n : room - 1), value);
    return true;
}

/* Checks that the hub's headers for a file agree with its list. */
static void check_header(transfer *t, const char *line, size_t n)
{
    char value[200];
    if (header_is(line, n, "X-Repo-Commit:", value, sizeof value) &&
        strcmp(value, t->commit) != 0) {
        (void)hub_fail(&t->error, "%s: the hub sends commit %.80s, its list is of %s",
                       t->file->path, value, t->commit);
    }
    if (header_is(line, n, "X-Linked-Etag:", value, sizeof value) && t->file->is_sha256 &&
        strcmp(value, t->file->hash) != 0) {
        (void)hub_fail(&t->error, "%s: the hub sends hash %.80s, its list has %s", t->file->path,
                       value, t->file->hash);
    }
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    transfer *t = user;
    char value[100];
    n *= size;
    if (n > 5 && memcmp(line, "HTTP/", 5) == 0) t->range_start = -1; /* of the next answer */
    if (header_is(line, n, "Content-Range: bytes", value, sizeof value)) {
        t->range_start = strtoll(value, NULL, 10);
    }
    (void)header_is(line, n, "X-Error-Message:", t->refusal, sizeof t->refusal);
    if (t->file) check_header(t, line, n);
    return t->error.text[0] ? 0 : n;
}

/* The first bytes of a file: those that were asked for, or all from the beginning. */
static bool begin_file(transfer *t, long status)
{
    t->begun = true;
    if (status == 200) return t->blob.bytes == 0 || hub_blob_restart(&t->blob, &t->error);
    return (t->range_start >= 0 && (uint64_t)t->range_start == t->blob.bytes) ||
           hub_fail(&t->error, "%s: the hub sends bytes from %lld on, not from %llu", t->file->path,
                    t->range_start, (unsigned long long)t->blob.bytes);
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    transfer *t = user;
    long status = 0;
    (void)curl_easy_getinfo(t->handle, CURLINFO_RESPONSE_CODE, &status);
    n *= size;
    if (status != 200 && status != 206) {
        t->n_refusal += n;
        return t->n_refusal > REFUSAL_BYTES_MAX ? 0 : n;
    }
    if (t->file) {
        const bool ok =
            (t->begun || begin_file(t, status)) && hub_blob_write(&t->blob, bytes, n, &t->error);
        return ok ? n : 0;
    }
    if (skv_buf_append(t->text, bytes, n)) return n;
    (void)hub_fail(&t->error, "the hub's list is longer than %zu bytes", t->text->max);
    return 0;
}

/* ---- one request ---- */

static bool set(CURL *handle, CURLoption option, long value)
{
    return curl_easy_setopt(handle, option, value) == CURLE_OK;
}

/* The token is not sent when a redirection leads to another host, port or protocol, as libcurl does
 * for credentials that it recognises. */
static bool set_up(transfer *t, const char *url)
{
    CURL *h = t->handle;
    const hub_http *http = t->http;
    const char *redirects = strncmp(http->endpoint, "https:", 6) == 0 ? "https" : "http,https";
    char agent[40];
    (void)snprintf(agent, sizeof agent, "swiftkv/%d.%d.%d", SKV_VERSION_MAJOR, SKV_VERSION_MINOR,
                   SKV_VERSION_PATCH);
    bool ok = set(h, CURLOPT_NOSIGNAL, 1) && set(h, CURLOPT_FOLLOWLOCATION, 1) &&
              set(h, CURLOPT_MAXREDIRS, 8) && set(h, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS) &&
              set(h, CURLOPT_LOW_SPEED_LIMIT, 1) &&
              set(h, CURLOPT_LOW_SPEED_TIME, http->stall_seconds) &&
              set(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    ok = ok && curl_easy_setopt(h, CURLOPT_URL, url) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, redirects) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_USERAGENT, agent) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_WRITEDATA, t) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_HEADERDATA, t) == CURLE_OK;
    ok = ok && curl_easy_setopt(h, CURLOPT_PRIVATE, t) == CURLE_OK;
    if (ok && http->token) {
        ok = set(h, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER) &&
             curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, http->token) == CURLE_OK;
    }
    if (!ok || !t->file || t->blob.bytes == 0) return ok;
    char range[40];
    (void)snprintf(range, sizeof range, "%llu-", (unsigned long long)t->blob.bytes);
    return curl_easy_setopt(h, CURLOPT_RANGE, range) == CURLE_OK;
}

static bool begin(transfer *t, const char *path)
{
    char url[URL_MAX];
    const int n = snprintf(url, sizeof url, "%s%s", t->http->endpoint, path);
    if (n <= 0 || (size_t)n >= sizeof url)
        return hub_fail(&t->error, "%s: the address is too long", path);
    t->handle = curl_easy_init();
    t->begun = false;
    t->n_refusal = 0;
    t->range_start = -1;
    t->refusal[0] = 0;
    if (t->file) t->bytes_before = t->blob.bytes;
    if (t->handle && set_up(t, url) &&
        curl_multi_add_handle(t->http->multi, t->handle) == CURLM_OK) {
        return true;
    }
    curl_easy_cleanup(t->handle);
    t->handle = NULL;
    return hub_fail(&t->error, "%s: libcurl cannot ask for it", url);
}

static void drop(transfer *t)
{
    if (!t->handle) return;
    (void)curl_multi_remove_handle(t->http->multi, t->handle);
    curl_easy_cleanup(t->handle);
    t->handle = NULL;
}

/* ---- how a request ends ---- */

static const char *name_of(const transfer *t)
{
    return t->file ? t->file->path : "the hub's list";
}

static bool refuse(const transfer *t, long status, hub_error *error)
{
    static const struct {
        long status;
        const char *means;
    } rows[] = {{401, "no such model, or it requires a token (HF_TOKEN)"},
                {403, "the token may not read it: ask for access on the model's page"},
                {404, "no such model, revision or file"},
                {416, "the hub's file is shorter than its list says"}};
    const char *means = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].status == status) means = rows[i].means;
    }
    error->unreachable = status >= 500;
    return hub_fail(error, "%s: %s answers %ld%s%s%s%s", name_of(t), t->http->endpoint, status,
                    means[0] ? ": " : "", means, t->refusal[0] ? ": " : "", t->refusal);
}

/* Waits before a retry: twice as long each time, or as long as the hub asks. */
static bool try_later(transfer *t, double after_seconds, hub_error *why)
{
    if (t->file && t->blob.bytes > t->bytes_before) t->n_tries = 0;
    if (++t->n_tries > TRIES || after_seconds > RETRY_SECONDS_MAX) return false;
    const double seconds = t->http->retry_seconds * (double)(1U << (t->n_tries - 1));
    const double wait = after_seconds > seconds ? after_seconds : seconds;
    if (wait >= 1) cli_warn("%s: once more in %.0f s", why->text, wait);
    t->start_ns = skv_now_ns() + (uint64_t)(wait * (double)SECOND_NS);
    return true;
}

/* All bytes of an answer came. *done: the file has its name. */
static bool end_file(transfer *t, bool *done, hub_error *error)
{
    *done = hub_blob_is_right(&t->blob);
    if (*done) return hub_blob_finish(&t->blob, error);
    if (t->blob.bytes < t->file->bytes) {
        (void)hub_fail(error, "%s: the hub ended it after %llu of %llu bytes", t->file->path,
                       (unsigned long long)t->blob.bytes, (unsigned long long)t->file->bytes);
        return try_later(t, 0, error);
    }
    (void)hub_fail(error, "%s: its bytes do not have the hash %s", t->file->path, t->file->hash);
    hub_error late;
    return hub_blob_restart(&t->blob, &late) && ++t->n_wrong < 2;
}

static bool can_come_back(CURLcode code)
{
    return code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL &&
           code != CURLE_TOO_MANY_REDIRECTS && code != CURLE_PEER_FAILED_VERIFICATION &&
           code != CURLE_SSL_CACERT_BADFILE && code != CURLE_COULDNT_RESOLVE_HOST;
}

/* false: it failed for good. *done: nothing is left to ask for. */
static bool end(transfer *t, CURLcode code, bool *done, hub_error *error)
{
    long status = 0;
    curl_off_t after = 0;
    (void)curl_easy_getinfo(t->handle, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(t->handle, CURLINFO_RETRY_AFTER, &after);
    drop(t);
    *done = false;
    *error = t->error;
    if (t->error.text[0]) return false;
    const bool answered = status == 200 || status == 206;
    if (code != CURLE_OK && (code != CURLE_WRITE_ERROR || answered)) {
        error->unreachable = true;
        (void)hub_fail(error, "%s: %s: %s", name_of(t), t->http->endpoint,
                       curl_easy_strerror(code));
        return can_come_back(code) && (t->file || code != CURLE_COULDNT_CONNECT) &&
               try_later(t, 0, error);
    }
    if (answered && !t->file) return *done = true;
    if (answered) return end_file(t, done, error);
    (void)refuse(t, status, error);
    if (status == 416 && t->blob.bytes > 0) {
        return hub_blob_restart(&t->blob, error) && try_later(t, 0, error);
    }
    return (status == 408 || status == 429 || status >= 500) && try_later(t, (double)after, error);
}

/* How long there may be nothing to do: no longer than to the next try of one of n requests. */
static int idle_ms(const transfer *at, size_t n)
{
    const uint64_t now_ns = skv_now_ns();
    uint64_t idle_ns = POLL_MS * MS_NS;
    for (size_t i = 0; i < n; i++) {
        if (at[i].handle || (!at[i].file && !at[i].text)) continue;
        const uint64_t left_ns = at[i].start_ns > now_ns ? at[i].start_ns - now_ns : 0;
        if (left_ns < idle_ns) idle_ns = left_ns;
    }
    return (int)((idle_ns + MS_NS - 1) / MS_NS);
}

bool hub_http_read(hub_http *http, const char *path, skv_buf *text, hub_error *error)
{
    transfer t = {.http = http, .text = text};
    int n_running;
    for (;;) {
        if (!t.handle && skv_now_ns() >= t.start_ns) {
            skv_buf_clear(text);
            if (!begin(&t, path)) {
                *error = t.error;
                return false;
            }
        }
        (void)curl_multi_perform(http->multi, &n_running);
        int n_left;
        bool done;
        const CURLMsg *message = curl_multi_info_read(http->multi, &n_left);
        if (!message || message->msg != CURLMSG_DONE) {
            (void)curl_multi_poll(http->multi, NULL, 0, idle_ms(&t, 1), NULL);
        } else if (!end(&t, message->data.result, &done, error)) {
            return false;
        } else if (done) {
            return true;
        }
    }
}

/* ---- many files ---- */

/* /org/name/resolve/COMMIT/PATH, each part of the path escaped. */
static bool begin_request(const queue *q, transfer *t)
{
    char path[URL_MAX / 2];
    size_t n = (size_t)snprintf(path, sizeof path, "/%s/%s/resolve/%s", q->place->name.org,
                                q->place->name.model, q->list->commit);
    for (const char *part = t->file->path; *part;) {
        const size_t n_part = strcspn(part, "/");
        char *escaped = curl_easy_escape(NULL, part, (int)n_part);
        if (!escaped) return hub_fail(&t->error, "%s: no memory", t->file->path);
        n += (size_t)snprintf(path + n, n < sizeof path ? sizeof path - n : 0, "/%s", escaped);
        curl_free(escaped);
        if (n >= sizeof path) return hub_fail(&t->error, "%s: too long", t->file->path);
        part += n_part;
        if (*part == '/') part++;
    }
    return begin(t, path);
}

static void free_slot(queue *q, transfer *t)
{
    q->done_bytes += t->file->bytes;
    *t = (transfer){.file = NULL};
}

/* Opens the file of a slot, and requests the missing part. */
static bool start(queue *q, transfer *t)
{
    if (t->blob.fd < 0) {
        const hub_blob_state state = hub_blob_open(q->place, t->file, &t->blob, &t->error);
        if (state == HUB_BLOB_FAILED) return false;
        if (state == HUB_BLOB_THERE) {
            free_slot(q, t);
            return true;
        }
        if (state == HUB_BLOB_BUSY) {
            if (!t->waits) cli_warn("%s: another process fetches it: waiting", t->file->path);
            t->waits = true;
            t->start_ns = skv_now_ns() + SECOND_NS / 4;
            return true;
        }
    }
    if (hub_blob_is_right(&t->blob)) {
        if (!hub_blob_finish(&t->blob, &t->error)) return false;
        free_slot(q, t);
        return true;
    }
    if (t->blob.bytes == t->file->bytes && !hub_blob_restart(&t->blob, &t->error)) return false;
    return begin_request(q, t);
}

/* Gives a free slot the next file that is not there. */
static void take_next(hub_http *http, queue *q, transfer *t)
{
    const hub_list *list = q->list;
    while (!t->file && q->i_next < list->n) {
        const hub_file *file = &list->at[q->i_next++];
        uint64_t bytes;
        if (!file->wanted || hub_blob_is_there(q->place, file, &bytes)) continue;
        *t = (transfer){
            .http = http, .file = file, .commit = list->commit, .blob.fd = -1, .blob.lock = -1};
    }
}

/* Fills free slots and starts waiting transfers. *n_open: slots that are not free. */
static bool start_all(hub_http *http, queue *q, size_t *n_open, hub_error *error)
{
    *n_open = 0;
    for (size_t i = 0; i < AT_ONCE; i++) {
        transfer *t = &q->slots[i];
        do {
            take_next(http, q, t);
            if (t->file && !t->handle && skv_now_ns() >= t->start_ns && !start(q, t)) {
                *error = t->error;
                return false;
            }
        } while (!t->file && q->i_next < q->list->n); /* its blob was whole already */
        *n_open += t->file ? 1 : 0;
    }
    return true;
}

/* *n_ended: finished requests; their slots are free or retry. */
static bool end_all(hub_http *http, queue *q, size_t *n_ended, hub_error *error)
{
    *n_ended = 0;
    const CURLMsg *message;
    int n_left;
    while ((message = curl_multi_info_read(http->multi, &n_left))) {
        if (message->msg != CURLMSG_DONE) continue;
        const CURLcode code = message->data.result;
        transfer *t = NULL;
        bool done;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&t);
        if (!end(t, code, &done, error)) return false;
        if (done) free_slot(q, t);
        ++*n_ended;
    }
    return true;
}

static void show(const queue *q, cli_progress *progress)
{
    uint64_t bytes = q->done_bytes;
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (q->slots[i].file) bytes += q->slots[i].blob.bytes;
    }
    cli_progress_bytes(progress, bytes, q->total_bytes);
}

bool hub_http_fetch(hub_http *http, const hub_place *place, const hub_list *list,
                    cli_progress *progress, hub_error *error)
{
    queue *q = cli_alloc(1, sizeof *q);
    *q = (queue){.place = place, .list = list};
    for (size_t i = 0; i < list->n; i++) {
        uint64_t bytes;
        if (!list->at[i].wanted) continue;
        q->total_bytes += list->at[i].bytes;
        if (hub_blob_is_there(place, &list->at[i], &bytes)) q->done_bytes += bytes;
    }
    size_t n_open = 0;
    bool ok;
    while ((ok = start_all(http, q, &n_open, error)) && n_open > 0) {
        int n_running;
        size_t n_ended;
        (void)curl_multi_perform(http->multi, &n_running);
        ok = end_all(http, q, &n_ended, error);
        if (!ok) break;
        show(q, progress);
        if (n_ended > 0) continue; /* the remaining ones begin at once */
        (void)curl_multi_poll(http->multi, NULL, 0, idle_ms(q->slots, AT_ONCE), NULL);
    }
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (!q->slots[i].file) continue;
        drop(&q->slots[i]);
        hub_blob_close(&q->slots[i].blob);
    }
    free(q);
    return ok;
}

#else

bool hub_download_is_built(void)
{
    return false;
}

bool hub_http_create(const char *endpoint, const char *token, hub_http **out, hub_error *error)
{
    (void)endpoint;
    (void)token;
    *out = NULL;
    return hub_fail(error, "this swiftkv was built without libcurl: it downloads nothing");
}

void hub_http_free(hub_http *http)
{
    (void)http;
}

bool hub_http_read(hub_http *http, const char *path, skv_buf *text, hub_error *error)
{
    (void)http;
    (void)path;
    (void)text;
    (void)error;
    return false;
}

bool hub_http_fetch(hub_http *http, const hub_place *place, const hub_list *list,
                    cli_progress *progress, hub_error *error)
{
    (void)http;
    (void)place;
    (void)list;
    (void)progress;
    (void)error;
    return false;
}

#endif
