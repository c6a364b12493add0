/* What the files behind format.h share: reading the fields of a record, and the makers. */
#ifndef SKV_EVAL_FORMAT_IMPL_H
#define SKV_EVAL_FORMAT_IMPL_H

#include "eval/format.h"

/** "WHERE: KEY: expected ..." unless something failed before. */
void skv_format_wrong(skv_json_reader *r, const char *key, const char *expected);
/** Keeps a failure of what was called, with the place before it. */
void skv_format_note(skv_json_reader *r, skv_status status);
/** A text, never NULL. */
const char *skv_format_text(skv_json_reader *r, const char *key);
/** How many texts an array has, at least one; 0 after a failure. */
size_t skv_format_texts(skv_json_reader *r, const char *key);
skv_eval_text skv_format_nth(const skv_json_reader *r, const char *key, size_t i);

typedef void skv_format_make_fn(const skv_eval_maker *m, const skv_eval_format *format,
                                skv_json_reader *r, skv_eval_example *e);

/* format_choice.c */
skv_format_make_fn skv_format_make_choices;
skv_format_make_fn skv_format_make_partial;
skv_format_make_fn skv_format_make_pair;
skv_format_make_fn skv_format_make_word;
skv_format_make_fn skv_format_make_letters;
skv_format_make_fn skv_format_make_truthful;
/* format_ask.c */
skv_format_make_fn skv_format_make_document;
skv_format_make_fn skv_format_make_register;
skv_format_make_fn skv_format_make_pairs;
skv_format_make_fn skv_format_make_aliases;
skv_format_make_fn skv_format_make_sum;
/* format_text.c */
skv_format_make_fn skv_format_make_text;

#endif
