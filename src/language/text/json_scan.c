/* JSON byte by byte: see json_scan.h. */
#include "text/json_scan.h"

#include <string.h>

#include "base/utf8.h"

/* Parts of a number; the number may end in those marked. */
typedef enum number_part {
    NUMBER_MINUS,
    NUMBER_ZERO,  /* may end */
    NUMBER_WHOLE, /* may end */
    NUMBER_POINT,
    NUMBER_FRACTION, /* may end */
    NUMBER_E,
    NUMBER_E_SIGN,
    NUMBER_EXPONENT, /* may end */
    NUMBER_NONE
} number_part;

void skv_json_scan_init(skv_json_scan *scan)
{
    *scan = (skv_json_scan){.place = SKV_JSON_VALUE};
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const skv_json_scan *scan)
{
    return scan->depth > 0 && (scan->objects >> (scan->depth - 1) & 1) != 0;
}

static skv_json_place open_level(skv_json_scan *scan, bool object)
{
    if (scan->depth == SKV_JSON_SCAN_DEPTH_MAX) return SKV_JSON_BAD;
    const uint64_t bit = (uint64_t)1 << scan->depth++;
    scan->objects = object ? scan->objects | bit : scan->objects & ~bit;
    return object ? SKV_JSON_FIRST_NAME : SKV_JSON_FIRST_VALUE;
}

static skv_json_place close_level(skv_json_scan *scan, char c)
{
    if (scan->depth == 0 || in_object(scan) != (c == '}')) return SKV_JSON_BAD;
    return --scan->depth == 0 ? SKV_JSON_ENDED : SKV_JSON_BEHIND;
}

static skv_json_place begin_value(skv_json_scan *scan, char c)
{
    if (c == '{' || c == '[') return open_level(scan, c == '{');
    if (scan->depth == 0) return SKV_JSON_BAD;
    if (c == '"') {
        scan->in_name = false;
        return SKV_JSON_STRING;
    }
    if (c == 't' || c == 'f' || c == 'n') {
        scan->word = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
        return SKV_JSON_WORD;
    }
    if (c != '-' && !is_digit(c)) return SKV_JSON_BAD;
    scan->number = c == '-' ? NUMBER_MINUS : c == '0' ? NUMBER_ZERO : NUMBER_WHOLE;
    return SKV_JSON_NUMBER;
}

static number_part next_part(number_part part, char c)
{
    const bool digit = is_digit(c), e = c == 'e' || c == 'E';
    switch (part) {
    case NUMBER_MINUS: return c == '0' ? NUMBER_ZERO : digit ? NUMBER_WHOLE : NUMBER_NONE;
    case NUMBER_WHOLE:
        if (digit) return NUMBER_WHOLE;
        return c == '.' ? NUMBER_POINT : e ? NUMBER_E : NUMBER_NONE;
    case NUMBER_ZERO: return c == '.' ? NUMBER_POINT : e ? NUMBER_E : NUMBER_NONE;
    case NUMBER_POINT: return digit ? NUMBER_FRACTION : NUMBER_NONE;
    case NUMBER_FRACTION: return digit ? NUMBER_FRACTION : e ? NUMBER_E : NUMBER_NONE;
    case NUMBER_E:
        if (c == '+' || c == '-') return NUMBER_E_SIGN;
        return digit ? NUMBER_EXPONENT : NUMBER_NONE;
    case NUMBER_E_SIGN:
    case NUMBER_EXPONENT: return digit ? NUMBER_EXPONENT : NUMBER_NONE;
    case NUMBER_NONE: break;
    }
    return NUMBER_NONE;
}

static bool may_end(uint8_t part)
{
    return part == NUMBER_ZERO || part == NUMBER_WHOLE || part == NUMBER_FRACTION ||
           part == NUMBER_EXPONENT;
}

static skv_json_place behind_value(skv_json_scan *scan, char c)
{
    if (skv_json_is_blank(c)) return SKV_JSON_BEHIND;
    if (c == ',') return in_object(scan) ? SKV_JSON_NAME : SKV_JSON_VALUE;
    return c == '}' || c == ']' ? close_level(scan, c) : SKV_JSON_BAD;
}

static skv_json_place in_number(skv_json_scan *scan, char c)
{
    const number_part part = next_part((number_part)scan->number, c);
    if (part == NUMBER_NONE) {
        return may_end(scan->number) ? behind_value(scan, c) : SKV_JSON_BAD;
    }
    scan->number = (uint8_t)part;
    return SKV_JSON_NUMBER;
}

static skv_json_place in_string(skv_json_scan *scan, char c)
{
    if (c == '\\') return SKV_JSON_ESCAPE;
    if (c == '"') return scan->in_name ? SKV_JSON_COLON : SKV_JSON_BEHIND;
    return (unsigned char)c < 0x20 ? SKV_JSON_BAD : SKV_JSON_STRING;
}

static skv_json_place behind_backslash(skv_json_scan *scan, char c)
{
    scan->left = 4;
    if (c == 'u') return SKV_JSON_HEX;
    return c != 0 && strchr("\"\\/bfnrt", c) ? SKV_JSON_STRING : SKV_JSON_BAD;
}

static skv_json_place in_hex(skv_json_scan *scan, char c)
{
    const bool hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!hex) return SKV_JSON_BAD;
    return --scan->left == 0 ? SKV_JSON_STRING : SKV_JSON_HEX;
}

static skv_json_place in_word(skv_json_scan *scan, char c)
{
    if (*scan->word != c) return SKV_JSON_BAD;
    return *++scan->word == 0 ? SKV_JSON_BEHIND : SKV_JSON_WORD;
}

static skv_json_place at_name(skv_json_scan *scan, char c)
{
    if (skv_json_is_blank(c)) return scan->place;
    if (c == '}' && scan->place == SKV_JSON_FIRST_NAME) return close_level(scan, c);
    scan->in_name = true;
    return c == '"' ? SKV_JSON_STRING : SKV_JSON_BAD;
}

static skv_json_place at_value(skv_json_scan *scan, char c)
{
    if (skv_json_is_blank(c)) return scan->place;
    if (c == ']' && scan->place == SKV_JSON_FIRST_VALUE) return close_level(scan, c);
    return begin_value(scan, c);
}

static skv_json_place next_place(skv_json_scan *scan, char c)
{
    switch (scan->place) {
    case SKV_JSON_VALUE:
    case SKV_JSON_FIRST_VALUE: return at_value(scan, c);
    case SKV_JSON_NAME:
    case SKV_JSON_FIRST_NAME: return at_name(scan, c);
    case SKV_JSON_COLON:
        return skv_json_is_blank(c) ? SKV_JSON_COLON : c == ':' ? SKV_JSON_VALUE : SKV_JSON_BAD;
    case SKV_JSON_BEHIND: return behind_value(scan, c);
    case SKV_JSON_STRING: return in_string(scan, c);
    case SKV_JSON_ESCAPE: return behind_backslash(scan, c);
    case SKV_JSON_HEX: return in_hex(scan, c);
    case SKV_JSON_WORD: return in_word(scan, c);
    case SKV_JSON_NUMBER: return in_number(scan, c);
    case SKV_JSON_ENDED:
    case SKV_JSON_BAD: break;
    }
    return SKV_JSON_BAD;
}

skv_json_place skv_json_scan_byte(skv_json_scan *scan, char byte)
{
    scan->place = next_place(scan, byte);
    return scan->place;
}

bool skv_json_scan_is_whole(const char *text, size_t n)
{
    skv_json_scan scan;
    skv_json_scan_init(&scan);
    size_t i = 0;
    while (i < n && scan.place < SKV_JSON_ENDED) (void)skv_json_scan_byte(&scan, text[i++]);
    return i == n && scan.place == SKV_JSON_ENDED;
}

/* ---- strings ---- */

/* The code of \uXXXX at text[0..n); 0x10000: it is none. */
static uint32_t read_code(const char *text, size_t n)
{
    uint32_t code = 0;
    if (n < 6 || text[0] != '\\' || text[1] != 'u') return 0x10000;
    for (size_t i = 2; i < 6; i++) {
        const char c = text[i];
        code = code << 4 | (uint32_t)(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
}

/* An escape of two bytes, or of six, or a pair of these; returns its bytes. */
static size_t unescape_one(const char *text, size_t n, skv_buf *out)
{
    static const char letters[] = "bfnrt", bytes[] = "\b\f\n\r\t";
    char utf8[4];
    if (n < 2) return 1;
    if (text[1] != 'u') {
        const char *letter = text[1] != 0 ? strchr(letters, text[1]) : NULL;
        skv_buf_byte(out, letter ? bytes[letter - letters] : text[1]);
        return 2;
    }
    uint32_t code = read_code(text, n);
    const bool high = code >= 0xd800 && code < 0xdc00;
    const uint32_t low = high ? read_code(text + 6, n - 6) : 0;
    const bool pair = low >= 0xdc00 && low < 0xe000;
    if (pair) code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    if (!pair && code >= 0xd800) code = code < 0xe000 || code > 0xffff ? 0xfffd : code;
    skv_buf_append(out, utf8, skv_utf8_encode(code, utf8));
    return pair ? 12 : n < 6 ? n : 6;
}

void skv_json_unescape(const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n;) {
        if (text[i] == '\\') {
            i += unescape_one(text + i, n - i, out);
        } else {
            skv_buf_byte(out, text[i++]);
        }
    }
}
