/*
 * Tokens of a Jinja template, with the whitespace rules of jinja2's trim_blocks and
 * lstrip_blocks. The source is valid UTF-8 with "\n" as its only line break (skv_jlex_init
 * makes it so).
 */
#ifndef SKV_TEXT_JINJA_LEX_H
#define SKV_TEXT_JINJA_LEX_H

#include "base/fail.h"
#include "text/jinja/jinja_arena.h"
#include "text/jinja/jinja_value.h"

typedef enum skv_jtoken_kind {
    SKV_JT_END,
    SKV_JT_DATA,
    SKV_JT_BLOCK_BEGIN,
    SKV_JT_BLOCK_END,
    SKV_JT_PRINT_BEGIN,
    SKV_JT_PRINT_END,
    SKV_JT_NAME,
    SKV_JT_STRING,
    SKV_JT_INT,
    SKV_JT_FLOAT,
    SKV_JT_OPERATOR
} skv_jtoken_kind;

typedef struct skv_jtoken {
    skv_jtoken_kind kind;
    unsigned line; /* from 1 */
    unsigned op;   /* of an operator */
    skv_jstr text; /* data, a name, or a string with its escapes resolved */
    int64_t i;
    double f;
} skv_jtoken;

typedef struct skv_jlex {
    const char *text; /* normalised source, in the arena */
    size_t size, at;
    unsigned line;
    skv_jtoken_kind mode;    /* DATA outside of tags, else the tag's begin token */
    skv_jtoken_kind pending; /* a begin token that follows the data, or END */
    size_t pending_end;      /* where the text behind it starts */
    unsigned n_open;         /* open brackets in this tag */
    char open[64];           /* what closes them */
    const char *name;        /* of the template, for messages */
    skv_jarena *arena;       /* borrowed: strings go there */
} skv_jlex;

SKV_MUST_CHECK skv_status skv_jlex_init(skv_jlex *lex, const char *source, size_t n,
                                        skv_error *err);
SKV_MUST_CHECK skv_status skv_jlex_next(skv_jlex *lex, skv_jtoken *token, skv_error *err);

/** Python's str.isspace for one code point. */
bool skv_j_space(uint32_t code);

#endif
