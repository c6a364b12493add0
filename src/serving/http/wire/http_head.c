/* Heads of requests: see http_head.h. */
#include "wire/http_head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- characters ---- */

static bool is_token(char c)
{
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

/* Of a target: anything but blanks and control characters. */
static bool is_target(char c)
{
    return (unsigned char)c > ' ' && c != 0x7f;
}

static bool is_value(char c)
{
    return c != 0 && c != '\r' && c != '\n';
}

static size_t span(const char *text, size_t n, bool (*is)(char c))
{
    size_t i = 0;
    while (i < n && is(text[i])) i++;
    return i;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool bad(api_error *error, const char *what)
{
    return api_fail(error, 400, NULL, "HTTP: %s", what);
}

/* ---- lines ---- */

/* Some clients end a body with an empty line that belongs to nothing. */
static size_t skip_empty(const char *text, size_t n)
{
    enum { EMPTY_LINES_MAX = 2 };
    size_t i = 0;
    while (i < 2 * EMPTY_LINES_MAX && n - i >= 2 && memcmp(text + i, "\r\n", 2) == 0) i += 2;
    return i;
}

size_t http_head_end(const char *text, size_t n, size_t n_seen)
{
    static const char end[] = "\r\n\r\n";
    const size_t start = skip_empty(text, n), again = n_seen > 3 ? n_seen - 3 : 0;
    for (size_t i = start > again ? start : again; i + 4 <= n; i++) {
        const char *at = memchr(text + i, '\r', n - i);
        if (!at) return 0;
        i = (size_t)(at - text);
        if (n - i >= 4 && memcmp(at, end, 4) == 0) return i + 4;
    }
    return 0;
}

/* "http://host/path" is said to proxies, but servers have to know it too. */
static char *path_of(char *target, const char **query)
{
    static const char scheme[] = "http://";
    if (strncasecmp(target, scheme, sizeof scheme - 1) == 0) {
        char *slash = strchr(target + sizeof scheme - 1, '/');
        if (slash) target = slash;
    }
    char *end = target + strcspn(target, "?#");
    *query = *end == '?' ? end + 1 : "";
    *end = 0;
    return target;
}

static bool read_version(http_head *out, const char *text, size_t n, api_error *error)
{
    const bool has_form = n == 8 && memcmp(text, "HTTP/", 5) == 0 && text[6] == '.' &&
                          text[5] >= '0' && text[5] <= '9' && text[7] >= '0' && text[7] <= '9';
    if (!has_form) return bad(error, "the first line is not METHOD PATH HTTP/1.1");
    if (text[5] != '1') {
        return api_fail(error, 505, NULL, "HTTP: version %.3s is not supported, only 1.1 is",
                        text + 5);
    }
    out->is_old = text[7] == '0';
    out->keeps = !out->is_old;
    return true;
}

/* METHOD SP target SP HTTP/1.1 */
static bool read_first_line(http_head *out, char *text, size_t n, api_error *error)
{
    const size_t n_method = span(text, n, is_token);
    if (n_method == 0 || n_method == n || text[n_method] != ' ') {
        return bad(error, "the first line does not begin with a method");
    }
    char *target = text + n_method + 1;
    const size_t n_target = span(target, n - n_method - 1, is_target);
    const size_t i_version = n_method + 1 + n_target + 1;
    if (n_target == 0 || i_version > n || target[n_target] != ' ') {
        return bad(error, "the first line is not METHOD PATH HTTP/1.1");
    }
    if (!read_version(out, text + i_version, n - i_version, error)) return false;
    text[n_method] = target[n_target] = 0;
    out->method = text;
    out->path = path_of(target, &out->query);
    return true;
}

/* name ":" value; text[n] may be written to. */
static bool read_field(http_head *out, char *text, size_t n, api_error *error)
{
    if (out->n_fields == LIMIT_HEADER_FIELDS) {
        return api_fail(error, 431, NULL, "the header has more than %d fields",
                        LIMIT_HEADER_FIELDS);
    }
    const size_t n_name = span(text, n, is_token);
    if (n_name == 0 || n_name == n || text[n_name] != ':') {
        return bad(error, "a header line is not NAME: VALUE");
    }
    char *value = text + n_name + 1;
    size_t n_value = n - n_name - 1;
    if (span(value, n_value, is_value) < n_value) {
        return bad(error, "a zero byte, CR or LF inside a header field");
    }
    const size_t n_before = span(value, n_value, is_blank);
    value += n_before;
    n_value -= n_before;
    while (n_value > 0 && is_blank(value[n_value - 1])) n_value--;
    text[n_name] = value[n_value] = 0;
    out->fields[out->n_fields++] = (http_field){text, value};
    return true;
}

/* ---- the meaning of fields ---- */

static size_t count_fields(const http_head *head, const char *name, const char **value)
{
    size_t n = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        if (strcasecmp(head->fields[i].name, name) != 0) continue;
        *value = head->fields[i].value;
        n++;
    }
    return n;
}

bool http_head_asks(const http_head *head, const char *name, const char *value)
{
    const size_t n_name = strlen(name), n_value = strlen(value);
    for (const char *at = head->query; *at; at += *at == '&') {
        const size_t n = strcspn(at, "&");
        if (n == n_name + 1 + n_value && strncmp(at, name, n_name) == 0 && at[n_name] == '=' &&
            strncmp(at + n_name + 1, value, n_value) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

const char *http_head_find(const http_head *head, const char *name)
{
    const char *value = NULL;
    return count_fields(head, name, &value) == 1 ? value : NULL;
}

static bool read_length(http_head *out, const char *value, api_error *error)
{
    const size_t n = strlen(value);
    if (n == 0 || strspn(value, "0123456789") < n) {
        return bad(error, "Content-Length is not a number");
    }
    /* A number beyond 64 bits is too long in any case. */
    out->n_body = n <= 19 ? strtoull(value, NULL, 10) : UINT64_MAX;
    return true;
}

static bool read_coding(http_head *out, const char *value, api_error *error)
{
    if (out->is_old) return bad(error, "HTTP/1.0 has no Transfer-Encoding");
    out->chunked = strcasecmp(value, "chunked") == 0;
    return out->chunked ||
           api_fail(error, 501, NULL,
                    "Transfer-Encoding: \"%.40s\" is not supported, only chunked is", value);
}

static bool read_body_length(http_head *out, api_error *error)
{
    const char *length = NULL, *coding = NULL;
    const size_t n_lengths = count_fields(out, "Content-Length", &length);
    const size_t n_codings = count_fields(out, "Transfer-Encoding", &coding);
    /* A proxy in front may have believed the other one, and seen another request after it. */
    if (n_lengths + n_codings > 1) {
        return bad(error, "more than one Content-Length or Transfer-Encoding");
    }
    if (n_lengths > 0) return read_length(out, length, error);
    return n_codings == 0 || read_coding(out, coding, error);
}

/* Whether a list such as "keep-alive, Upgrade" has the word. */
static bool has_word(const char *list, const char *word)
{
    const size_t n_word = strlen(word);
    while (*list != 0) {
        list += strspn(list, " \t,");
        const size_t n = strcspn(list, " \t,");
        if (n == n_word && strncasecmp(list, word, n) == 0) return true;
        list += n;
    }
    return false;
}

static bool read_meaning(http_head *out, api_error *error)
{
    const char *value = NULL;
    if (count_fields(out, "Host", &value) > 1) return bad(error, "more than one Host");
    for (size_t i = 0; i < out->n_fields; i++) {
        if (strcasecmp(out->fields[i].name, "Connection") != 0) continue;
        if (has_word(out->fields[i].value, "keep-alive")) out->keeps = true;
        if (has_word(out->fields[i].value, "close")) {
            out->keeps = false;
            break;
        }
    }
    if (count_fields(out, "Expect", &value) > 0 && !out->is_old) {
        out->expects = strcasecmp(value, "100-continue") == 0;
        if (!out->expects)
            return api_fail(error, 417, NULL, "Expect: only 100-continue is supported");
    }
    return read_body_length(out, error);
}

bool http_head_read(char *text, size_t n, http_head *out, api_error *error)
{
    *out = (http_head){0};
    const size_t start = skip_empty(text, n);
    if (n - start > LIMIT_HEADER_BYTES && !memchr(text + start, '\r', LIMIT_HEADER_BYTES)) {
        return api_fail(error, 414, NULL, "the first line has more than %d bytes",
                        LIMIT_HEADER_BYTES);
    }
    if (n - start > LIMIT_HEADER_BYTES) {
        return api_fail(error, 431, NULL, "the header has more than %d bytes", LIMIT_HEADER_BYTES);
    }
    for (size_t i = start; i + 2 < n;) {
        char *line = text + i;
        const char *end = memchr(line, '\r', n - i);
        if (!end || end[1] != '\n') return bad(error, "a line that does not end in CR LF");
        const size_t n_line = (size_t)(end - line);
        const bool ok = i == start ? read_first_line(out, line, n_line, error)
                                   : read_field(out, line, n_line, error);
        if (!ok) return false;
        i += n_line + 2;
    }
    return out->method ? read_meaning(out, error) : bad(error, "no first line");
}

/* ---- the trace ---- */

/* Where the parts of "00-TRACE ID-PARENT ID-FLAGS" stand. */
enum { AT_TRACE = 3, AT_PARENT = 36, AT_FLAGS = 53, PARENT_BYTES = 55 };

static bool is_between(char c, char first, char last)
{
    return c >= first && c <= last;
}

static bool is_hex(char c)
{
    return is_between(c, '0', '9') || is_between(c, 'a', 'f');
}

/* n lower-case hexadecimal digits, not all of them 0 unless `zero`. */
static bool is_id(const char *text, size_t n, bool zero)
{
    bool any = zero;
    for (size_t i = 0; i < n; i++) {
        if (!is_hex(text[i])) return false;
        any = any || text[i] != '0';
    }
    return any;
}

/* Later versions may add fields after ours; version ff is none. */
static bool read_parent(const char *text, trace_context *out)
{
    const size_t n = strnlen(text, 512);
    if (n < PARENT_BYTES || n == 512 || !is_id(text, 2, true) || memcmp(text, "ff", 2) == 0) {
        return false;
    }
    const bool first = memcmp(text, "00", 2) == 0;
    if (first ? n != PARENT_BYTES : n > PARENT_BYTES && text[PARENT_BYTES] != '-') return false;
    if (text[AT_TRACE - 1] != '-' || text[AT_PARENT - 1] != '-' || text[AT_FLAGS - 1] != '-' ||
        !is_id(text + AT_TRACE, 32, false) || !is_id(text + AT_PARENT, 16, false) ||
        !is_id(text + AT_FLAGS, 2, true)) {
        return false;
    }
    memcpy(out->trace_id, text + AT_TRACE, 32);
    memcpy(out->parent_id, text + AT_PARENT, 16);
    const char flags = text[AT_FLAGS + 1];
    out->sampled = ((flags <= '9' ? flags - '0' : flags - 'a' + 10) & 1) != 0;
    return true;
}

static bool is_key_char(char c)
{
    return is_between(c, 'a', 'z') || is_between(c, '0', '9') || (c != 0 && strchr("_-*/@", c));
}

/* One "key=value" of n bytes, blanks around it taken off. An empty one is allowed. */
static bool is_member(const char *text, size_t n)
{
    while (n > 0 && (*text == ' ' || *text == '\t')) text++, n--;
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) n--;
    if (n == 0) return true;
    size_t n_key = 0;
    while (n_key < n && is_key_char(text[n_key])) n_key++;
    const size_t n_value = n - n_key - 1;
    const bool begins = is_between(text[0], 'a', 'z') || is_between(text[0], '0', '9');
    if (!begins || n_key == n || n_key > 256 || text[n_key] != '=' || n_value == 0 ||
        n_value > 256) {
        return false;
    }
    for (size_t i = n_key + 1; i < n; i++) {
        if (!is_between(text[i], ' ', '~') || text[i] == '=') return false;
    }
    return true;
}

static bool is_state(const char *text)
{
    if (strnlen(text, TRACE_STATE_MAX + 1) > TRACE_STATE_MAX) return false;
    for (size_t n_members = 1;; n_members++) {
        const size_t n = strcspn(text, ",");
        if (n_members > TRACE_STATE_MEMBERS_MAX || !is_member(text, n)) return false;
        if (text[n] == 0) return true;
        text += n + 1;
    }
}

/* It goes back into a header and into the log: letters, digits and a few signs. */
static bool is_request_id(const char *text)
{
    const size_t n = strnlen(text, TRACE_REQUEST_MAX + 1);
    for (size_t i = 0; i < n; i++) {
        const bool plain = is_between(text[i], '0', '9') || is_between(text[i], 'A', 'Z') ||
                           is_between(text[i], 'a', 'z') || strchr("-_.:+/=@", text[i]);
        if (!plain) return false;
    }
    return n >= 1 && n <= TRACE_REQUEST_MAX;
}

void trace_context_read(const http_head *head, trace_context *out)
{
    const char *request_id = http_head_find(head, "x-request-id");
    const char *parent = http_head_find(head, "traceparent");
    const char *state = http_head_find(head, "tracestate");
    *out = (trace_context){.sampled = false};
    if (request_id && is_request_id(request_id)) {
        memcpy(out->request_id, request_id, strlen(request_id));
    }
    if (!parent || !read_parent(parent, out)) return;
    if (state && is_state(state)) memcpy(out->state, state, strlen(state));
}
