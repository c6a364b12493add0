/*
 * The log of a run: one line of JSON an example, identified by a key that hashes everything the
 * result depends on. Each line is written in one call, so a killed run leaves whole lines. After a
 * crash of the machine the last line may be torn; it is cut off when the run continues.
 */
#ifndef SKV_EVAL_EVAL_LOG_H
#define SKV_EVAL_EVAL_LOG_H

#include "eval/example.h"
#include "skv/eval.h"

/* FNV-1a over the added data. */
typedef struct skv_eval_hash {
    uint64_t value;
} skv_eval_hash;

skv_eval_hash skv_eval_hash_begin(void);
void skv_eval_hash_add(skv_eval_hash *hash, const void *data, size_t n);
void skv_eval_hash_text(skv_eval_hash *hash, const char *text); /* NULL is a text too */
/** Of the model's files: names, sizes, times. The weights themselves are not read. */
void skv_eval_hash_files(skv_eval_hash *hash, const char *path);
/** Hashes the requests of an example. */
void skv_eval_hash_example(skv_eval_hash *hash, const skv_eval_example *e);

/* The log's entry for an example. */
typedef struct skv_eval_entry {
    uint64_t key;
    size_t order; /* of its line: a later one goes before an earlier one */
    bool skipped;
    size_t length;
    double depth;
    skv_metric_value values[SKV_METRIC_COUNT];
} skv_eval_entry;

typedef struct skv_eval_log {
    char *path;              /* owned; NULL: there is none */
    int file;                /* descriptor, -1: none */
    skv_eval_entry *entries; /* owned; sorted by key */
    size_t n, capacity;
} skv_eval_log;

/** path NULL: a log that holds and keeps nothing. */
SKV_MUST_CHECK skv_status skv_eval_log_open(skv_eval_log *log, const char *path, bool resume,
                                            skv_error *err);
void skv_eval_log_close(skv_eval_log *log);
/** The example of that key, NULL when it is not there. */
const skv_eval_entry *skv_eval_log_find(const skv_eval_log *log, uint64_t key);
SKV_MUST_CHECK skv_status skv_eval_log_add(skv_eval_log *log, uint64_t key, const char *task,
                                           const skv_eval_example *e, skv_error *err);

#endif
