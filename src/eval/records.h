/* The records of a file of examples: lines of JSON, one JSON array, or CSV with a header. */
#ifndef SKV_EVAL_RECORDS_H
#define SKV_EVAL_RECORDS_H

#include <stddef.h>

#include "base/fail.h"
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
/** From memory, read as the name's ending says. */
SKV_MUST_CHECK skv_status skv_records_parse(skv_records *records, const char *data, size_t n,
                                            const char *path, size_t max, skv_error *err);
void skv_records_release(skv_records *records);

#endif
