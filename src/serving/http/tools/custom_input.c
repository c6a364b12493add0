/* Texts of custom tools: see custom_input.h. */
#include "tools/custom_input.h"

#include <string.h>

#include "base/utf8.h"

enum { REPLACEMENT = 0xFFFD, HEX_DIGITS = 4 };

void custom_input_init(custom_input *in, skv_buf raw)
{
    *in = (custom_input){.raw = raw};
}

void custom_input_release(custom_input *in)
{
    skv_buf_release(&in->raw);
}

static void add_code(skv_buf *out, uint32_t code)
{
    char text[4];
    skv_buf_append(out, text, skv_utf8_encode(code, text));
}

/* Half of a pair whose other half is missing. */
static void end_pair(custom_input *in, skv_buf *out)
{
    if (in->first > 0) add_code(out, REPLACEMENT);
    in->first = 0;
}

static void take_hex(custom_input *in, char byte, skv_buf *out)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = byte ? strchr(digits, byte) : NULL;
    in->code = in->code << 4 | (at ? (uint32_t)(at - digits) % 16 : 0);
    if (--in->n_hex > 0) return;
    const bool low = in->code >= 0xDC00 && in->code <= 0xDFFF;
    if (low && in->first > 0) {
        add_code(out, 0x10000 + ((in->first - 0xD800) << 10) + (in->code - 0xDC00));
        in->first = 0;
        return;
    }
    end_pair(in, out);
    if (in->code >= 0xD800 && in->code <= 0xDBFF) {
        in->first = in->code;
    } else {
        add_code(out, low ? REPLACEMENT : in->code);
    }
}

static void take_escape(custom_input *in, char byte, skv_buf *out)
{
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
    in->escaped = false;
    if (byte == 'u') {
        in->n_hex = HEX_DIGITS;
        in->code = 0;
        return;
    }
    const char *at = byte ? strchr(names, byte) : NULL;
    end_pair(in, out);
    skv_buf_byte(out, at ? values[at - names] : byte);
}

static void take_text(custom_input *in, char byte, skv_buf *out)
{
    if (in->n_hex > 0) {
        take_hex(in, byte, out);
    } else if (in->escaped) {
        take_escape(in, byte, out);
    } else if (byte == '\\') {
        in->escaped = true;
    } else {
        end_pair(in, out);
        if (byte == '"') {
            in->state = CUSTOM_DONE;
        } else {
            skv_buf_byte(out, byte);
        }
    }
}

static void take_string(custom_input *in, char byte)
{
    if (in->escaped) {
        in->escaped = false;
        in->n_key = sizeof in->key; /* an escaped name is not ours */
    } else if (byte == '\\') {
        in->escaped = true;
    } else if (byte == '"') {
        in->state = CUSTOM_OUTSIDE;
    } else {
        if (in->n_key < sizeof in->key) in->key[in->n_key++] = byte;
    }
}

static void take_outside(custom_input *in, char byte)
{
    const size_t n_name = sizeof CUSTOM_INPUT_NAME - 1;
    if (byte == '"') {
        in->state = in->expects ? CUSTOM_TEXT : CUSTOM_STRING;
        in->n_key = 0;
        if (in->expects) skv_buf_clear(&in->raw);
    } else if (byte == '{' || byte == '[') {
        in->depth++;
    } else if (byte == '}' || byte == ']') {
        if (in->depth > 0) in->depth--;
    } else if (byte == ':') {
        in->expects = in->depth == 1 && in->n_key == n_name &&
                      memcmp(in->key, CUSTOM_INPUT_NAME, n_name) == 0;
        return;
    } else if (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t') {
        return;
    }
    in->expects = false;
}

void custom_input_push(custom_input *in, const char *json, size_t n, skv_buf *out)
{
    if (in->state == CUSTOM_OUTSIDE || in->state == CUSTOM_STRING) {
        skv_buf_append(&in->raw, json, n);
    }
    for (size_t i = 0; i < n; i++) {
        switch (in->state) {
        case CUSTOM_OUTSIDE: take_outside(in, json[i]); break;
        case CUSTOM_STRING: take_string(in, json[i]); break;
        case CUSTOM_TEXT: take_text(in, json[i], out); break;
        case CUSTOM_DONE: return;
        }
    }
    out->failed = out->failed || in->raw.failed;
}

void custom_input_end(custom_input *in, skv_buf *out)
{
    if (in->state == CUSTOM_OUTSIDE || in->state == CUSTOM_STRING) {
        skv_buf_append(out, in->raw.data, in->raw.size);
    }
    end_pair(in, out);
    skv_buf_release(&in->raw);
}
