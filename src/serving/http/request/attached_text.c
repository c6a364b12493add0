/* Files in requests: their text, with their name in front. */
#include <string.h>

#include "base/utf8.h"
#include "request/translate.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Base64, with padding or without; false: it is none. */
static bool decode(const char *text, size_t n, skv_buf *out)
{
    uint32_t bits = 0;
    size_t n_bits = 0;
    while (n > 0 && text[n - 1] == '=') n--;
    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] ? strchr(digits, text[i]) : NULL;
        if (!at) return false;
        bits = bits << 6 | (uint32_t)(at - digits);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        skv_buf_byte(out, (char)(bits >> n_bits & 0xFF));
    }
    return !out->failed;
}

static bool is_text(const skv_buf *text)
{
    static const char pdf[] = "%PDF-";
    size_t bad;
    const bool is_pdf =
        text->size >= sizeof pdf - 1 && memcmp(text->data, pdf, sizeof pdf - 1) == 0;
    return text->size > 0 && !is_pdf && !memchr(text->data, 0, text->size) &&
           skv_utf8_valid(text->data, text->size, &bad);
}

bool translation_file(translation *t, const json_t *name, const json_t *data)
{
    const char *text = json_string_value(data);
    size_t n = json_string_length(data);
    static const char mark[] = ";base64,";
    if (!text) return false;
    if (strncmp(text, "data:", 5) == 0) {
        const char *at = strstr(text, mark);
        if (!at) return false;
        n -= (size_t)(at - text) + sizeof mark - 1;
        text = at + sizeof mark - 1;
    }
    skv_buf decoded = request_text(t->ex);
    const bool ok = decode(text, n, &decoded) && is_text(&decoded);
    t->failed = t->failed || decoded.failed;
    if (ok) {
        json_t *content = json_of_text(t->ex, &decoded, "request", t->error);
        if (json_is_string(name)) translation_add_text(t, name);
        translation_add_text(t, content);
        t->failed = t->failed || !content;
        json_decref(content);
    }
    skv_buf_release(&decoded);
    return ok;
}
