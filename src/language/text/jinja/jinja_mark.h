/*
 * Which bytes of a text are data: those that come from the variables of a rendering, and not from
 * its template. Every operation on strings carries the marks along, so that the tokenizer can tell
 * a control token that the template writes from its spelling in somebody's text. What is made of
 * data is data; a literal of the template stays the template's wherever it is put.
 */
#ifndef SKV_TEXT_JINJA_MARK_H
#define SKV_TEXT_JINJA_MARK_H

#include "base/buf.h"
#include "text/jinja/jinja_value.h"

/* Data begin at at[0], end at at[1], begin again at at[2] ...: offsets from `base` that rise. An
 * odd last one has no end. Parts of a text share the marks of the whole. */
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
    bool data;  /* what is put behind the last mark is data */
} skv_jmarker;

void skv_jmarker_init(skv_jmarker *m, skv_budget *budget);
void skv_jmarker_release(skv_jmarker *m);
/** Bytes s[from..to) were put at byte `at`; behind them the text is what it was before. */
void skv_jmarker_copy(skv_jmarker *m, size_t at, const skv_jstr *s, size_t from, size_t to);
/** How many marks there are in a text of `size` bytes. */
size_t skv_jmarker_count(const skv_jmarker *m, size_t size);

/* Text that is put together. What is appended to `text` itself is data where marks.data says so. */
typedef struct skv_jout {
    skv_buf text;
    skv_jmarker marks;
} skv_jout;

void skv_jout_init(skv_jout *out, skv_budget *budget);
void skv_jout_release(skv_jout *out);
/** What comes next is data or not. */
void skv_jout_set(skv_jout *out, bool data);
/** What comes next is made of byte `at` of s. */
void skv_jout_follow(skv_jout *out, const skv_jstr *s, size_t at);
/** Appends s[from..to), and all of s, with their marks. */
void skv_jout_part(skv_jout *out, const skv_jstr *s, size_t from, size_t to);
void skv_jout_put(skv_jout *out, const skv_jstr *s);

#endif
