/* The names available to templates (globals, filters, tests, methods), and their shared helpers. */
#ifndef SKV_TEXT_JINJA_BUILTIN_H
#define SKV_TEXT_JINJA_BUILTIN_H

#include "text/jinja/jinja_run.h"

/* Everything that templates find by name: jinja_global.c. */
extern const skv_jnames skv_jbuiltin_names;

/** A filter, with `fn` NULL when jinja2 has it and we do not; NULL when there is none. */
const skv_jfunction *skv_jfilter_find(const skv_jstr *name);
/** The half of the table that works on sequences: jinja_filter_seq.c. */
const skv_jfunction *skv_jfilter_find_seq(const skv_jstr *name);
/** tojson: jinja_json.c. */
skv_jv skv_jfilter_tojson(skv_jrun *r, const skv_jcall *call);
/** A test, or NULL when there is none of that name. All that jinja2 has are here. */
const skv_jfunction *skv_jtest_find(const skv_jstr *name);

/** A method of a string (jinja_str.c), with `fn` NULL when Python has it and we do not. */
const skv_jfunction *skv_jstr_method(const skv_jstr *name);

typedef enum skv_jcase {
    SKV_JCASE_UPPER,
    SKV_JCASE_LOWER,
    SKV_JCASE_CAPITAL,
    SKV_JCASE_TITLE,
    SKV_JCASE_SWAP
} skv_jcase;

enum { SKV_JSTRIP_LEFT = 1, SKV_JSTRIP_RIGHT = 2 };

/* String operations that filters and tests share with methods. They take the call's `self` as text.
 */
skv_jv skv_jstr_strip(skv_jrun *r, const skv_jcall *call);       /* how: bits of SKV_JSTRIP_* */
skv_jv skv_jstr_change_case(skv_jrun *r, const skv_jcall *call); /* how: skv_jcase */
skv_jv skv_jstr_is_case(skv_jrun *r, const skv_jcall *call);     /* how: its UPPER or LOWER */
skv_jv skv_jstr_align(skv_jrun *r, const skv_jcall *call);       /* how: 'l', 'r' or 'c' */
skv_jv skv_jstr_splitlines(skv_jrun *r, const skv_jcall *call);
skv_jv skv_jstr_format(skv_jrun *r, const skv_jcall *call);
/** str.isalnum() of one character. */
bool skv_jstr_is_word(uint32_t code);
/** text.replace(old, new, count); a negative count replaces all. */
skv_jv skv_jstr_replace_in(skv_jrun *r, const skv_jstr *text, const skv_jstr *old,
                           const skv_jstr *with, int64_t count);
/** Upper case (or lower) of one character, up to 3 of them. */
void skv_jstr_write_case(skv_buf *buf, uint32_t code, bool upper);
const skv_jfunction *skv_jcase_method(const skv_jstr *name);

/** Python's % formatting, as in 'a %s of %d' % (x, y). */
skv_jv skv_j_percent(skv_jrun *r, skv_jv format, skv_jv values);

/* Numbers and padded text for % formatting and str.format: jinja_text.c. */
enum { SKV_JNUMBER_WIDTH_MAX = 100000, SKV_JNUMBER_PRECISION_MAX = 300 };

typedef struct skv_jnumber_style {
    char align;        /* '<' '>' '^', or '=' for padding after the sign */
    char sign;         /* '+', ' ' or 0 */
    char comma;        /* between thousands, or 0 */
    bool zero;         /* pad with zeros after the sign */
    bool alternate;    /* 0x before hexadecimal digits */
    int64_t width;     /* at least this many characters */
    int64_t precision; /* -1 for none */
    skv_jstr fill;     /* one character; empty for a blank */
} skv_jnumber_style;

/** The text cut to the precision and padded to the width. */
void skv_jnumber_pad_text(skv_jrun *r, skv_jout *out, const skv_jstr *s,
                          const skv_jnumber_style *style);
/** kind: d x X o b. */
void skv_jnumber_write_int(skv_jrun *r, skv_jout *out, int64_t i, char kind,
                           const skv_jnumber_style *style);
/** kind: f F e E g G %. */
void skv_jnumber_write_float(skv_jrun *r, skv_jout *out, double f, char kind,
                             const skv_jnumber_style *style);

#endif
