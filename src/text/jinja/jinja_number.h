/* Numbers and padded text for % formatting and str.format. */
#ifndef SKV_TEXT_JINJA_NUMBER_H
#define SKV_TEXT_JINJA_NUMBER_H

#include "text/jinja/jinja_run.h"

enum { SKV_JNUMBER_WIDTH_MAX = 100000, SKV_JNUMBER_PRECISION_MAX = 300 };

typedef struct skv_jnumber_style {
    char align;        /* '<' '>' '^', or '=' for padding behind the sign */
    char sign;         /* '+', ' ' or 0 */
    char comma;        /* between thousands, or 0 */
    bool zero;         /* pad with zeros behind the sign */
    bool alternate;    /* 0x before hexadecimal digits */
    int64_t width;     /* at least this many characters */
    int64_t precision; /* -1 for none */
    skv_jstr fill;     /* one character; empty for a blank */
} skv_jnumber_style;

/** The text cut to the precision and padded to the width. */
void skv_jnumber_pad_text(skv_jrun *r, skv_buf *buf, const skv_jstr *s,
                          const skv_jnumber_style *style);
/** kind: d x X o b. */
void skv_jnumber_write_int(skv_jrun *r, skv_buf *buf, int64_t i, char kind,
                           const skv_jnumber_style *style);
/** kind: f F e E g G %. */
void skv_jnumber_write_float(skv_jrun *r, skv_buf *buf, double f, char kind,
                             const skv_jnumber_style *style);

#endif
