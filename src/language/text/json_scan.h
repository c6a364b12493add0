/*
 * Incremental validation of JSON, byte by byte: whether the text is still the beginning of a value,
 * and whether the value has ended. It makes the checks of a parser (except UTF-8, duplicate names
 * and the range of numbers), and allocates no memory.
 */
#ifndef SKV_TEXT_JSON_SCAN_H
#define SKV_TEXT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "skv/reply.h"

enum { SKV_JSON_SCAN_DEPTH_MAX = SKV_REPLY_DEPTH_MAX };

static inline bool skv_json_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

typedef enum skv_json_place {
    SKV_JSON_VALUE,       /* a value comes */
    SKV_JSON_FIRST_VALUE, /* a value, or ']' */
    SKV_JSON_NAME,        /* a name comes */
    SKV_JSON_FIRST_NAME,  /* a name, or '}' */
    SKV_JSON_COLON,       /* after a name */
    SKV_JSON_BEHIND,      /* after a value: ',', '}' or ']' */
    SKV_JSON_STRING,
    SKV_JSON_ESCAPE, /* after a backslash */
    SKV_JSON_HEX,    /* `left` digits of \uXXXX */
    SKV_JSON_WORD,   /* inside true, false, null */
    SKV_JSON_NUMBER,
    SKV_JSON_ENDED,
    SKV_JSON_BAD
} skv_json_place;

typedef struct skv_json_scan {
    skv_json_place place;
    uint8_t number;   /* which part of a number */
    bool in_name;     /* the string is a name */
    unsigned left;    /* of HEX */
    const char *word; /* the rest of WORD */
    size_t depth;     /* open objects and arrays */
    uint64_t objects; /* bit d: level d + 1 is an object */
} skv_json_scan;

/** At the beginning of an object or array: of no other value can the end be told. */
void skv_json_scan_init(skv_json_scan *scan);
/** Goes on by a byte and tells where it is now: ENDED with the last bracket, BAD for ever. */
skv_json_place skv_json_scan_byte(skv_json_scan *scan, char byte);

/** Whether a text is one whole object or array. */
bool skv_json_scan_is_whole(const char *text, size_t n);

/** Appends the decoded content of a JSON string; half of a surrogate pair becomes U+FFFD. */
void skv_json_unescape(const char *text, size_t n, skv_buf *out);

#endif
