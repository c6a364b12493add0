/* Trace headers: see trace_context.h. */
#include "trace_context.h"

#include <string.h>

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

/* Later versions may add fields behind ours; version ff is none. */
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
                           is_between(text[i], 'a', 'z') || strchr("-_.:+/=@", text[i]) != NULL;
        if (!plain) return false;
    }
    return n >= 1 && n <= TRACE_REQUEST_MAX;
}

void trace_context_read(const char *parent, const char *state, const char *request_id,
                        trace_context *out)
{
    *out = (trace_context){.sampled = false};
    if (request_id != NULL && is_request_id(request_id)) {
        memcpy(out->request_id, request_id, strlen(request_id));
    }
    if (parent == NULL || !read_parent(parent, out)) return;
    if (state != NULL && is_state(state)) memcpy(out->state, state, strlen(state));
}
