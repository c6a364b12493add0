/* UTF-8: see utf8.h. */
#include "base/utf8.h"

/* Lead byte -> length, and the bounds of the second byte that rule out overlong forms,
 * surrogates and codes above U+10FFFF (Unicode, table 3-7). */
static size_t lead(unsigned char b, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (b < 0x80) return 1;
    if (b < 0xc2) return 0;
    if (b < 0xe0) return 2;
    if (b < 0xf0) {
        if (b == 0xe0) *low = 0xa0;
        if (b == 0xed) *high = 0x9f;
        return 3;
    }
    if (b > 0xf4) return 0;
    if (b == 0xf0) *low = 0x90;
    if (b == 0xf4) *high = 0x8f;
    return 4;
}

size_t skv_utf8_decode(const char *text, size_t n, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low, high;
    size_t length = lead(s[0], &low, &high);
    *code = SKV_UTF8_BAD;
    if (length == 1) {
        *code = s[0];
        return 1;
    }
    if (length == 0 || n < 2 || s[1] < low || s[1] > high) return 1;
    uint32_t value = s[0] & (0x7fu >> length);
    value = value << 6 | (s[1] & 0x3fu);
    for (size_t i = 2; i < length; i++) {
        if (i >= n || (s[i] & 0xc0) != 0x80) return i;
        value = value << 6 | (s[i] & 0x3fu);
    }
    *code = value;
    return length;
}

size_t skv_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

bool skv_utf8_valid(const char *text, size_t n, size_t *bad)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t step = skv_utf8_decode(text + i, n - i, &code);
        if (code == SKV_UTF8_BAD) {
            if (bad) *bad = i;
            return false;
        }
        i += step;
    }
    return true;
}

size_t skv_utf8_complete(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char low, high;
        if ((s[n - back] & 0xc0) == 0x80) continue;
        return lead(s[n - back], &low, &high) > back ? n - back : n;
    }
    return n;
}
