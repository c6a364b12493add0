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
#include <string.h>

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

/* Where the model's own id of a call stands. */
typedef enum skv_call_id {
    SKV_ID_NONE,
    SKV_ID_BEHIND, /* the mark `id` */
    SKV_ID_WHOLE,  /* prefix NAME id ID, all of it */
    SKV_ID_BEFORE, /* the prefix */
    SKV_ID_MEMBER  /* "id" of the object, behind its arguments */
} skv_call_id;

/* The address in front of a message, where an answer is several messages:
 *
 *     [ turn_end ] [ turn_begin ] to NAME end
 */
typedef struct skv_reply_address {
    const char *turn_end, *turn_begin, *to, *end;
} skv_reply_address;

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
    const char *typed, *text_type;       /* of behind_key: a type is told, and it is a text */
    bool alone;                          /* every call has an open and a close of its own */
    bool tight;                          /* no line ends stand between the marks of XML */
    bool escaped;                        /* names of parameters are XML's: &amp; and &quot; */
    bool cdata;                          /* texts may stand in <![CDATA[...]]> */
    const char *front[2];                /* that may stand in front of `open` */
    const skv_reply_address *address;    /* in front of every message */
    const char *signs[3];                /* a template of this form has all of them */
    skv_call_spelling spelling;
    skv_call_id own_id;
    bool list;
} skv_reply_form;

/* What stands around a thought at the beginning of an answer. */
typedef struct skv_thought_form {
    const char *begin, *end;
} skv_thought_form;

/** NULL for SKV_CALLS_NONE. */
const skv_reply_form *skv_reply_form_at(skv_call_syntax syntax);
const skv_thought_form *skv_thought_form_at(skv_thought_marks marks);

/* The marks around the recipient of a call of Harmony. */
#define SKV_HARMONY_CHANNEL "<|channel|>commentary "
#define SKV_HARMONY_FORMAT " <|constrain|>json"

/** Whether its messages are those of gpt-oss; form NULL: false. */
bool skv_reply_form_is_harmony(const skv_reply_form *form);

/** The name in prefix NAME id ID; NULL: the prefix is missing. */
const char *skv_reply_name_in(const skv_reply_form *form, const char *text, size_t n,
                              size_t *n_name);
/** Whether `open` and `close` stand around objects that have no marks of their own. */
bool skv_reply_form_has_objects(const skv_reply_form *form);

/** How many bytes have been looked at for marks and blanks, each as often as it was. */
size_t skv_reply_looked(const skv_reply *reply);

static inline bool skv_text_starts(const char *text, size_t n, const char *mark)
{
    const size_t n_mark = strlen(mark);
    return n >= n_mark && memcmp(text, mark, n_mark) == 0;
}

/* ---- spellings that are no JSON, read as a whole ---- */

/* Where a call of XML is. */
typedef enum skv_raw_place {
    SKV_RAW_NAME,   /* of the function */
    SKV_RAW_KEYS,   /* a parameter or the end comes */
    SKV_RAW_KEY,    /* the name of a parameter */
    SKV_RAW_VALUE,  /* its value */
    SKV_RAW_BEHIND, /* what may be the end of the value: it is where `KEYS` goes on */
} skv_raw_place;

typedef struct skv_raw_span {
    size_t from, to;
} skv_raw_span;

typedef struct skv_raw_scan {
    size_t pos; /* read up to here */
    size_t depth;
    char quote; /* of the string around pos; 0: none */
    skv_raw_place place;
    skv_raw_span name, key, value; /* the last two, of XML: those that came last */
    size_t n_looked;               /* bytes that were looked at */
} skv_raw_scan;

typedef enum skv_raw_state {
    SKV_RAW_MORE,
    SKV_RAW_NAMED,     /* the name is there: told once */
    SKV_RAW_PARAMETER, /* one of XML is whole */
    SKV_RAW_ENDED,
    SKV_RAW_BAD
} skv_raw_state;

/** Goes on to the name of the call that text begins with, and then to its end; ENDED: it is
 * text[0..scan->pos). BAD: it is none, and nothing in text[0..scan->pos) begins another. */
skv_raw_state skv_raw_scan_text(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                                size_t n);
/** The name and, as JSON, the arguments of a whole call; false: it is none. */
bool skv_raw_convert(const skv_reply_options *options, const skv_reply_form *form, const char *text,
                     size_t n, skv_buf *name, skv_buf *args);

/* ---- its parts ---- */

#define SKV_GEMMA_QUOTE "<|\"|>"

enum { SKV_TYPE_QUOTED = 128 /* beside skv_reply_type: a text stands in quotation marks */ };

/** Whether Gemma's mark ends a text in front of this byte: inside, it may be a part of the text. */
bool skv_raw_ends_mark(char behind);
/** Whether a quotation mark in front of text[0..n) ends a text: templates write some that are parts
 * of it as they are. MORE: the text that comes tells. */
skv_raw_state skv_raw_ends_quote(const char *text, size_t n);
/** The name and the arguments of a whole call of XML; false: it is none. */
bool skv_xml_convert(const skv_reply_options *options, const skv_reply_form *form, const char *text,
                     size_t n, skv_buf *name, skv_buf *args);

/** The next part of a call of XML: a value ends only where a parameter or the call's end follows.
 */
skv_raw_state skv_xml_next(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                           size_t n);
/** Appends a parameter's value as JSON. types: those that its schema allows; 0: unknown. */
void skv_raw_put_value(const skv_reply_form *form, const char *text, size_t n, unsigned types,
                       skv_buf *out);
/** Appends JSON for a value in the spelling of JSON, Python or Gemma, between `open` and `close`.
 * Returns false and appends nothing if it is not a value. */
bool skv_raw_put_loose(const char *open, const char *text, size_t n, const char *close,
                       skv_buf *out);
/** Keeps the last of an object's members with the same name. args[begin..) is the object. */
void skv_raw_drop_doubled(skv_buf *args, size_t begin);

/* ---- schemas ---- */

struct json_t; /* of jansson */

/** What "$ref" of a schema leads to inside `root`; NULL: nothing, or no work is left for it. */
const struct json_t *skv_schema_target(const struct json_t *root, const struct json_t *schema,
                                       skv_budget *budget);

#endif
