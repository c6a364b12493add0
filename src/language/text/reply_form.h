/*
 * The table of published ways to write calls and thoughts. A row says by which marks a call is
 * told apart and which of a few spellings it has; every reader and writer of replies works from
 * the rows alone.
 *
 *     open [ begin CALL end , begin CALL end ] close      `[`, `,` and `]` where it is a list
 */
#ifndef SKV_TEXT_REPLY_FORM_H
#define SKV_TEXT_REPLY_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "skv/reply.h"

typedef enum skv_call_spelling {
    SKV_SPELL_OBJECT,  /* {"name": "f", "arguments": {...}} */
    SKV_SPELL_KEYED,   /* {"f": {...}} */
    SKV_SPELL_NAMED,   /* f, the separator, {...} */
    SKV_SPELL_MESSAGE, /* the reply is messages, each a header, the separator, and a body */
    SKV_SPELL_XML,     /* f, the separator, parameters that are key KEY value VALUE value_end */
    SKV_SPELL_PYTHON,  /* f(a=1, b="x") */
    SKV_SPELL_GEMMA    /* f{a:1,b:<|"|>x<|"|>} */
} skv_call_spelling;

/* NULL: there is no such mark. */
typedef struct skv_reply_form {
    const char *name;
    const char *open, *close; /* around calls; open NULL: an answer begins with one, or has none */
    const char *begin, *end;  /* around one call */
    const char *between;      /* behind a call without `open`, another one comes */
    const char *prefix;       /* of a function's name */
    const char *id;           /* behind a name, its id comes */
    const char *separator;    /* behind both */
    const char *name_key, *args_key;     /* members of an OBJECT, as the model writes them */
    const char *key, *value, *value_end; /* around a parameter of XML, as they are read */
    const char *behind_key;              /* what is written between its name and its value */
    bool typed;                          /* behind_key tells texts and other values apart */
    bool alone;                          /* every call has an open and a close of its own */
    const char *signs[3];                /* a template of this form has all of them */
    skv_call_spelling spelling;
    bool list;
} skv_reply_form;

/* What stands around a thought at the beginning of an answer. */
typedef struct skv_thought_form {
    const char *begin, *end;
} skv_thought_form;

/** NULL for SKV_CALLS_NONE. */
const skv_reply_form *skv_reply_form_at(skv_call_syntax syntax);
const skv_thought_form *skv_thought_form_at(skv_thought_marks marks);

/* ---- spellings that are no JSON, read as a whole ---- */

typedef struct skv_raw_scan {
    size_t pos; /* read up to here */
    size_t depth;
    char quote;    /* of the string around pos; 0: none */
    bool in_value; /* of a parameter */
} skv_raw_scan;

typedef enum skv_raw_state { SKV_RAW_MORE, SKV_RAW_ENDED, SKV_RAW_BAD } skv_raw_state;

/** Goes on to the end of the call that text begins with; ENDED: it is text[0..scan->pos). */
skv_raw_state skv_raw_scan_text(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                                size_t n);
/** The name and, as JSON, the arguments of a whole call; false: it is none. */
bool skv_raw_convert(const skv_reply_options *options, const skv_reply_form *form, const char *text,
                     size_t n, skv_buf *name, skv_buf *args);

#endif
