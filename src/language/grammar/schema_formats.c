/*
 * Formats of strings as patterns: those of OpenAI's strict schemas, and those that pydantic writes
 * for Python's types. A value of a pattern passes the format checker of Python's jsonschema.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_impl.h"

#define YEAR "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define FOURTH "(?:0[48]|[2468][048]|[13579][26])" /* multiples of 4 of two digits, but for 00 */
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]"         \
    "|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}" FOURTH "|" FOURTH "00)-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
#define ZONE "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define DAYS                                                                                       \
    "(?:[0-9]{1,6}Y(?:[0-9]{1,7}M)?(?:[0-9]{1,8}D)?|[0-9]{1,7}M(?:[0-9]{1,8}D)?|[0-9]{1,8}D)"
#define HOURS                                                                                      \
    "T(?:[0-9]{1,6}H(?:[0-9]{1,6}M)?(?:[0-9]{1,8}S)?|[0-9]{1,6}M(?:[0-9]{1,8}S)?|[0-9]{1,8}S)"
#define HEX "[0-9a-fA-F]"
#define UUID(version) HEX "{8}-" HEX "{4}-" version HEX "{3}-[89abAB]" HEX "{3}-" HEX "{12}"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H16 HEX "{1,4}"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,7}:|(?:" H16 ":){1,6}:" H16 "|(?:" H16               \
    ":){1,5}(?::" H16 "){2}|(?:" H16 ":){1,4}(?::" H16 "){3}|(?:" H16 ":){1,3}(?::" H16            \
    "){4}|(?:" H16 ":){1,2}(?::" H16 "){5}|" H16 ":(?::" H16 "){6}|:(?::" H16                      \
    "){1,7}|::(?:[fF]{4}:)?" IPV4 "|::)"
#define BITS4 "(?:/(?:3[0-2]|[12]?[0-9]))?"
#define BITS6 "(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"
#define LABEL(n) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," #n "}[A-Za-z0-9])?"
#define HOSTNAME "(?:" LABEL(61) "(?:\\." LABEL(61) "){0,2}|" LABEL(28) "(?:\\." LABEL(28) "){3,7})"
#define LOCAL "[A-Za-z0-9_%+-]{1,15}"
#define EMAIL                                                                                      \
    "(?:" LOCAL "(?:\\." LOCAL                                                                     \
    "){0,3}|[A-Za-z0-9_%+-]{16,64})@" LABEL(28) "(?:\\." LABEL(28) "){0,3}\\.[A-Za-z]{2,12}"
/* A scheme and the parts before a path: URI_HEAD_MAX characters at most. */
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]{0,19}"
#define LAST_LABEL "[A-Za-z](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
#define PORT                                                                                       \
    "(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]"            \
    "|6553[0-5]))?"
#define AUTHORITY                                                                                  \
    "(?:[A-Za-z0-9._~!$&'()*+,;=:-]{1,64}@)?(?:(?:" LABEL(28) "\\.){0,7}" LAST_LABEL "|" IPV4      \
                                                              "|\\[" IPV6 "\\])" PORT
#define ESCAPED "%" HEX "{2}"
#define PATH_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define REST_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|" ESCAPED ")"
/* Regular expressions of a form that every dialect reads. */
#define PIECE                                                                                      \
    "(?:[A-Za-z0-9 _,:;<>=!@#%&\"'~/-]|\\.|\\\\[dDwWsSnt.+*?()|^$/-]|\\[\\^?(?:a-z|A-Z|0-9"        \
    "|[A-Za-z0-9_.,:;@# ]|\\\\[dws])+\\])" MANY
#define MANY "(?:[*+?]\\??|\\{[0-9]{1,2}\\})?"
#define GROUP "\\((?:\\?:)?(?:" PIECE ")*(?:\\|(?:" PIECE ")*)*\\)" MANY
#define PIECES "(?:" PIECE "|" GROUP ")*"
#define BASE64(letters, pad)                                                                       \
    "(?:" letters "{4})*(?:" letters "{2}" pad pad "|" letters "{3}" pad ")?"

enum {
    URI_HEAD_MAX = 20 + 1 + 2 + 65 + 247 + 6 + 1 + 1, /* "/" after it and "#" included */
    URI_FRAGMENT_MAX = 64,
    ESCAPED_LENGTH = 3
};

/* A pattern NULL: any string. min, max: characters that a value has. */
static const struct format {
    const char *name, *pattern;
    uint32_t min, max;
} formats[] = {
    {"date", DATE, 10, 10},
    {"time", CLOCK ZONE, 9, 24},
    {"date-time", DATE "T" CLOCK ZONE, 20, 35},
    {"duration", "P(?:[0-9]{1,8}W|" DAYS "(?:" HOURS ")?|" HOURS ")", 3, 49},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}", 36, 36},
    {"uuid1", UUID("1"), 36, 36},
    {"uuid3", UUID("3"), 36, 36},
    {"uuid4", UUID("4"), 36, 36},
    {"uuid5", UUID("5"), 36, 36},
    {"uuid6", UUID("6"), 36, 36},
    {"uuid7", UUID("7"), 36, 36},
    {"uuid8", UUID("8"), 36, 36},
    {"ipv4", IPV4, 7, 15},
    {"ipv6", IPV6, 2, 39},
    {"ipv4interface", IPV4 BITS4, 7, 18},
    {"ipv4network", IPV4 BITS4, 7, 18},
    {"ipv6interface", IPV6 BITS6, 2, 43},
    {"ipv6network", IPV6 BITS6, 2, 43},
    {"ipvanyaddress", "(?:" IPV4 "|" IPV6 ")", 2, 39},
    {"ipvanyinterface", "(?:" IPV4 BITS4 "|" IPV6 BITS6 ")", 2, 43},
    {"ipvanynetwork", "(?:" IPV4 BITS4 "|" IPV6 BITS6 ")", 2, 43},
    {"hostname", HOSTNAME, 1, 247},
    {"email", EMAIL, 6, 210},
    {"uri", "", 3, SKV_REPEAT_MANY},
    {"multi-host-uri", "", 3, SKV_REPEAT_MANY},
    {"regex", "\\^?" PIECES "(?:\\|" PIECES ")*\\$?", 0, SKV_REPEAT_MANY},
    {"base64", BASE64("[A-Za-z0-9+/]", "="), 0, SKV_REPEAT_MANY},
    {"byte", BASE64("[A-Za-z0-9+/]", "="), 0, SKV_REPEAT_MANY},
    {"base64url", BASE64("[A-Za-z0-9_-]", "="), 0, SKV_REPEAT_MANY},
    {"fraction", "-?[0-9]{1,18}(?:/[1-9][0-9]{0,17})?", 1, 38},
    {"binary", NULL, 0, SKV_REPEAT_MANY},
    {"password", NULL, 0, SKV_REPEAT_MANY},
    {"path", NULL, 0, SKV_REPEAT_MANY},
    {"file-path", NULL, 0, SKV_REPEAT_MANY},
    {"directory-path", NULL, 0, SKV_REPEAT_MANY},
};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

int skv_schema_format_find(const char *name)
{
    for (int i = 0; i < N_FORMATS; i++) {
        if (strcmp(formats[i].name, name) == 0) return i;
    }
    return SKV_FORMAT_UNKNOWN;
}

bool skv_schema_format_is_free(int format)
{
    return !formats[format].pattern;
}

static bool is_uri(const struct format *f)
{
    return f->pattern && f->pattern[0] == '\0';
}

bool skv_schema_format_holds(int format, uint32_t min, uint32_t max)
{
    const struct format *f = &formats[format];
    return min <= f->min && (max >= f->max || (is_uri(f) && max >= URI_HEAD_MAX));
}

/* Each character after the host may take three, so only a third of the length is allowed. */
static void print_uri(uint32_t max, char *out, size_t size)
{
    char rest[32] = "*", fragment[32] = "*";
    if (max != SKV_REPEAT_MANY) {
        const uint32_t n = (max - URI_HEAD_MAX) / ESCAPED_LENGTH;
        const uint32_t n_fragment = n / 4 < URI_FRAGMENT_MAX ? n / 4 : URI_FRAGMENT_MAX;
        (void)snprintf(rest, sizeof rest, "{0,%u}", (unsigned)(n - n_fragment));
        (void)snprintf(fragment, sizeof fragment, "{0,%u}", (unsigned)n_fragment);
    }
    (void)snprintf(out, size, "%s(?://%s(?:[/?]%s%s)?|%s%s%s)(?:#%s%s)?", SCHEME ":", AUTHORITY,
                   REST_CHAR, rest, PATH_CHAR, REST_CHAR, rest, REST_CHAR, fragment);
}

void skv_schema_format_pattern(int format, uint32_t max, char out[SKV_FORMAT_PATTERN_MAX])
{
    const struct format *f = &formats[format];
    if (is_uri(f)) {
        print_uri(max, out, SKV_FORMAT_PATTERN_MAX);
    } else {
        (void)snprintf(out, SKV_FORMAT_PATTERN_MAX, "%s", f->pattern);
    }
}

/* ---- decimals of pydantic ---- */

#define DECIMAL "^(?!^[-+.]*$)[+-]?0*"

/* They write lookahead, and an end that matches only the last of two alternatives. Here both
 * alternatives are numbers: at least one digit, with zeros before and after the significant
 * digits. */

/* Digits in front of a point: zeros, and at most n others. */
static void print_whole(skv_buf *out, unsigned n)
{
    skv_buf_printf(out, n > 0 ? "(?:0+\\d{0,%u}|\\d{1,%u})" : "0+", n, n);
}

/* A point in front, and at most n digits but for zeros at the end. */
static void print_fraction(skv_buf *out, unsigned n)
{
    skv_buf_printf(out, n > 0 ? "\\.(?:\\d{1,%u}0*|0+)" : "\\.0+", n);
}

/* Numbers of at most n digits, n_behind of them after the decimal point. */
static void print_places(skv_buf *out, unsigned n, unsigned n_behind)
{
    print_whole(out, n - n_behind);
    skv_buf_printf(out, "(?:\\.\\d{0,%u}0*)?|", n_behind);
    print_fraction(out, n_behind);
}

/* Numbers of at most n digits, with the decimal point at any place. */
static void print_digits(skv_buf *out, unsigned n)
{
    print_whole(out, n);
    for (unsigned k = 0; k <= n; k++) {
        skv_buf_text(out, "|");
        print_whole(out, k);
        skv_buf_printf(out, "\\.\\d{0,%u}0*", n - k);
    }
    skv_buf_text(out, "|");
    print_fraction(out, n);
}

/* Whether the pattern has this form; numbers replace the form's '#'. */
static bool read_form(const char *pattern, const char *form, unsigned *numbers)
{
    for (; *form; form++) {
        const size_t n_digits = strspn(pattern, "0123456789");
        if (*form != '#') {
            if (*pattern++ != *form) return false;
            continue;
        }
        if (n_digits == 0 || n_digits > 2) return false;
        *numbers++ = (unsigned)strtoul(pattern, NULL, 10);
        pattern += n_digits;
    }
    return *pattern == 0;
}

/* Reads the total number of digits, and the number after the decimal point. */
static bool read_places(const char *pattern, unsigned *n, unsigned *n_behind)
{
    unsigned numbers[4];
    if (!read_form(pattern, DECIMAL "(?:\\d{0,#}|(?=[\\d.]{1,#}0*$)\\d{0,#}\\.\\d{0,#}0*$)",
                   numbers)) {
        return false;
    }
    const unsigned whole = numbers[0], behind = numbers[3];
    if (numbers[1] == 0 || numbers[2] != whole) return false;
    *n = numbers[1] - 1;
    *n_behind = behind < *n ? behind : *n;
    return whole + *n_behind == *n;
}

static void print_plain(const char *pattern, skv_buf *out)
{
    unsigned numbers[2], n, n_behind;
    if (read_form(pattern, DECIMAL "\\d*\\.?\\d*$", numbers)) {
        skv_buf_text(out, "\\d+\\.?\\d*|\\.\\d+");
    } else if (read_form(pattern, DECIMAL "\\d*\\.?\\d{0,#}0*$", numbers)) {
        skv_buf_printf(out, "\\d+(?:\\.\\d{0,%u}0*)?|", numbers[0]);
        print_fraction(out, numbers[0]);
    } else if (read_form(pattern, DECIMAL "(?:\\d{0,#}|(?=[\\d.]{1,#}0*$)\\d*\\.\\d*0*$)",
                         numbers) &&
               numbers[1] == numbers[0] + 1) {
        print_digits(out, numbers[0]);
    } else if (read_places(pattern, &n, &n_behind)) {
        print_places(out, n, n_behind);
    } else {
        out->failed = true;
    }
}

const char *skv_schema_plain_pattern(const char *pattern, char out[SKV_FORMAT_PATTERN_MAX])
{
    skv_buf text = {.max = SKV_FORMAT_PATTERN_MAX - sizeof "^[+-]?(?:)$"};
    print_plain(pattern, &text);
    const bool plain = !text.failed;
    if (plain) (void)snprintf(out, SKV_FORMAT_PATTERN_MAX, "^[+-]?(?:%s)$", text.data);
    skv_buf_release(&text);
    return plain ? out : pattern;
}
