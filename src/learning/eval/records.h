/* The records of a file of examples: lines of JSON, one JSON array, or CSV with a header. */
#ifndef SKV_EVAL_RECORDS_H
#define SKV_EVAL_RECORDS_H

#include <stddef.h>

#include "base/fail.h"
#include "eval/prompt.h"
#include "format/json_doc.h"

typedef struct skv_record {
    json_t *object; /* owned */
    size_t line;    /* where it begins, from 1; of an array: its number from 1 */
} skv_record;

typedef struct skv_records {
    skv_record *at; /* owned */
    size_t n, capacity;
} skv_records;

/** Whether a file of this name is read as records; any other is a plain text. */
bool skv_records_are(const char *path);
/** Reads at most `max` of them (0: all). Errors name file and line. */
SKV_MUST_CHECK skv_status skv_records_read(skv_records *records, const char *path, size_t max,
                                           skv_error *err);
/** Parses records from memory, in the format of the name's extension. */
SKV_MUST_CHECK skv_status skv_records_parse(skv_records *records, const char *data, size_t n,
                                            const char *path, size_t max, skv_error *err);
void skv_records_release(skv_records *records);

/* ---- the fields of a record ---- */

/** "WHERE: KEY: expected ..." unless something failed before. */
void skv_record_wrong(skv_json_reader *r, const char *key, const char *expected);
/** Records the failure of a called function, with the place as prefix. */
void skv_record_note(skv_json_reader *r, skv_status status);
/** A text, never NULL. */
const char *skv_record_text(skv_json_reader *r, const char *key);
/** How many texts an array has, at least one; 0 after a failure. */
size_t skv_record_texts(skv_json_reader *r, const char *key);
skv_eval_text skv_record_nth(const skv_json_reader *r, const char *key, size_t i);

#endif
