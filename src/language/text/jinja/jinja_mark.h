/*
 * Marks of the bytes of a text that are data: they come from the variables of a rendering, not from
 * its template. Every operation on strings propagates the marks, so that the tokenizer can
 * distinguish a control token written by the template from its spelling in a user's text. Results
 * derived from data are data; literals of the template remain the template's.
 */
#ifndef SKV_TEXT_JINJA_MARK_H
#define SKV_TEXT_JINJA_MARK_H

#include "base/buf.h"
#include "text/jinja/jinja_value.h"

/* Marked data begin at at[0], end at at[1], begin again at at[2], and so on: ascending offsets from
 * `base`. With an odd number of offsets the last data reach to the end. Parts of a text share the
 * marks of the whole. */
struct skv_jmarks {
    const char *base;
    const size_t *at;
    size_t n;
};

/** The marks of a text that is data as a whole. */
extern const skv_jmarks skv_j_data;

/* Marks of a text that grows. */
typedef struct skv_jmarker {
    skv_buf at; /* [size / sizeof(size_t)] */
    bool data;  /* text after the last mark is data */
} skv_jmarker;

void skv_jmarker_init(skv_jmarker *m, skv_budget *budget);
void skv_jmarker_release(skv_jmarker *m);
/** Bytes s[from..to) were written at byte `at`; after them the previous state applies again. */
void skv_jmarker_copy(skv_jmarker *m, size_t at, const skv_jstr *s, size_t from, size_t to);
/** How many marks there are in a text of `size` bytes. */
size_t skv_jmarker_count(const skv_jmarker *m, size_t size);

/* Text under construction. Bytes appended directly to `text` are data if marks.data is set. */
typedef struct skv_jout {
    skv_buf text;
    skv_jmarker marks;
} skv_jout;

void skv_jout_init(skv_jout *out, skv_budget *budget);
void skv_jout_release(skv_jout *out);
/** Sets whether the text that follows is data. */
void skv_jout_set(skv_jout *out, bool data);
/** The text that follows is derived from byte `at` of s. */
void skv_jout_follow(skv_jout *out, const skv_jstr *s, size_t at);
/** Appends s[from..to), and all of s, with their marks. */
void skv_jout_part(skv_jout *out, const skv_jstr *s, size_t from, size_t to);
void skv_jout_put(skv_jout *out, const skv_jstr *s);

#endif
