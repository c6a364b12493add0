/* Numbers as text: see jinja_number.h. */
#include "text/jinja/jinja_number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_text.h"

static void pad(skv_buf *buf, const skv_jstr *fill, int64_t n)
{
    for (; n > 0 && !buf->failed; n--)
        if (fill->size)
            skv_buf_append(buf, fill->data, fill->size);
        else
            skv_buf_byte(buf, ' ');
}

static bool bounded(skv_jrun *r, const skv_jnumber_style *style)
{
    if (style->width <= SKV_JNUMBER_WIDTH_MAX) return true;
    skv_j_fail(r, SKV_RANGE, "format width over %d", SKV_JNUMBER_WIDTH_MAX);
    return false;
}

void skv_jnumber_pad_text(skv_jrun *r, skv_buf *buf, const skv_jstr *s,
                          const skv_jnumber_style *style)
{
    size_t n = s->n_chars;
    if (!bounded(r, style)) return;
    if (style->precision >= 0 && (uint64_t)style->precision < n) n = (size_t)style->precision;
    int64_t space = style->width - (int64_t)n;
    int64_t left = space <= 0 || style->align == '<' ? 0 : style->align == '^' ? space / 2 : space;
    pad(buf, &style->fill, left);
    skv_buf_append(buf, s->data, skv_j_offset(s, n));
    pad(buf, &style->fill, space - left);
}

/* sign, prefix and digits with the padding where the style wants it */
static void put_number(skv_buf *buf, const char *head, const char *digits,
                       const skv_jnumber_style *style)
{
    static const skv_jstr zero = {"0", 1, 1};
    int64_t space = style->width - (int64_t)strlen(head) - (int64_t)strlen(digits);
    char align = style->zero ? '=' : style->align;
    const skv_jstr *fill = style->zero ? &zero : &style->fill;
    int64_t left = space <= 0 || align == '<' || align == '=' ? 0
                   : align == '^'                             ? space / 2
                                                              : space;
    pad(buf, fill, left);
    skv_buf_text(buf, head);
    if (align == '=') pad(buf, fill, space);
    skv_buf_text(buf, digits);
    if (align != '=') pad(buf, fill, space - left);
}

static void put_sign(char *head, size_t n, bool negative, const skv_jnumber_style *style,
                     const char *prefix)
{
    char sign[2] = {negative ? '-' : style->sign, 0};
    (void)snprintf(head, n, "%s%s", sign, prefix);
}

/* Copies digits with commas in the whole part. */
static void group(const char *digits, char *out, char comma)
{
    size_t whole = strspn(digits, "0123456789"), n = 0;
    for (size_t i = 0; digits[i]; i++) {
        if (comma && i && i < whole && (whole - i) % 3 == 0) out[n++] = comma;
        out[n++] = digits[i];
    }
    out[n] = 0;
}

void skv_jnumber_write_int(skv_jrun *r, skv_buf *buf, int64_t i, char kind,
                           const skv_jnumber_style *style)
{
    char digits[80], grouped[120], zeros[SKV_JNUMBER_PRECISION_MAX + 80], head[8];
    uint64_t n = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = kind == 'd' ? 10 : kind == 'o' ? 8 : kind == 'b' ? 2 : 16;
    size_t at = sizeof digits - 1;
    if (!bounded(r, style)) return;
    digits[at] = 0;
    do {
        digits[--at] = (kind == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[n % base];
        n /= base;
    } while (n);
    group(digits + at, grouped, style->comma);
    int64_t missing = style->precision - (int64_t)strlen(grouped);
    if (missing > SKV_JNUMBER_PRECISION_MAX) {
        skv_j_fail(r, SKV_RANGE, "format precision over %d", SKV_JNUMBER_PRECISION_MAX);
        return;
    }
    if (missing < 0) missing = 0;
    memset(zeros, '0', (size_t)missing);
    memcpy(zeros + missing, grouped, strlen(grouped) + 1);
    const char *prefix = !style->alternate || kind == 'd' ? ""
                         : kind == 'x'                    ? "0x"
                         : kind == 'X'                    ? "0X"
                         : kind == 'o'                    ? "0o"
                                                          : "0b";
    put_sign(head, sizeof head, i < 0, style, prefix);
    put_number(buf, head, zeros, style);
}

void skv_jnumber_write_float(skv_jrun *r, skv_buf *buf, double f, char kind,
                             const skv_jnumber_style *style)
{
    char text[SKV_JNUMBER_PRECISION_MAX + 700], grouped[SKV_JNUMBER_PRECISION_MAX + 600], head[8];
    int64_t precision = style->precision < 0 ? 6 : style->precision;
    if (!bounded(r, style)) return;
    if (precision > SKV_JNUMBER_PRECISION_MAX) {
        skv_j_fail(r, SKV_RANGE, "format precision over %d", SKV_JNUMBER_PRECISION_MAX);
        return;
    }
    double size = fabs(kind == '%' ? f * 100 : f);
    int digits = (int)precision;
    if (!isfinite(f)) {
        (void)snprintf(text, sizeof text, isnan(f) ? "nan" : "inf");
    } else {
        switch (kind) {
        case 'e': (void)snprintf(text, sizeof text, "%.*e", digits, size); break;
        case 'E': (void)snprintf(text, sizeof text, "%.*E", digits, size); break;
        case 'g': (void)snprintf(text, sizeof text, "%.*g", digits, size); break;
        case 'G': (void)snprintf(text, sizeof text, "%.*G", digits, size); break;
        default: (void)snprintf(text, sizeof text, "%.*f", digits, size); break;
        }
    }
    group(text, grouped, style->comma);
    if (kind == '%') (void)snprintf(text, sizeof text, "%s%%", grouped);
    put_sign(head, sizeof head, signbit(f) && !isnan(f), style, "");
    put_number(buf, head, kind == '%' ? text : grouped, style);
}
