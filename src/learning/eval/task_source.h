/*
 * The sources of a task's examples: our own generator, the records of a file, or windows of a plain
 * text. Example i is always the same for the same options.
 */
#ifndef SKV_EVAL_TASK_SOURCE_H
#define SKV_EVAL_TASK_SOURCE_H

#include "eval/format.h"
#include "eval/records.h"
#include "skv/documents.h"
#include "skv/eval.h"

typedef struct skv_task_source skv_task_source;

struct skv_task_source {
    char *name;         /* owned */
    size_t n;           /* examples */
    const char *format; /* its name */
    bool has_depths;    /* by kind: the report makes a grid of it */
    skv_status (*make)(const skv_task_source *s, const skv_eval_maker *m, size_t i,
                       skv_eval_example *e, skv_error *err);
    /* Of our own documents: one generator a length. */
    skv_documents **documents; /* owned, [n_lengths] */
    size_t *lengths;           /* owned, [n_lengths] */
    size_t n_lengths, count;
    /* Of files. */
    char *path; /* owned, for errors */
    skv_records records;
    char *subject; /* owned; of examinations */
    skv_ids ids;   /* of a plain text */
    size_t n_bytes, window;
    int32_t begin;
};

/** Opens one task, a name of ours or a file. The maker's tokenizer
 * counts their lengths. */
SKV_MUST_CHECK skv_status skv_task_source_open(skv_task_source *s, const char *name,
                                               const skv_eval_options *options,
                                               const skv_eval_maker *m, skv_error *err);
void skv_task_source_close(skv_task_source *s);

/** The i-th name of "all", NULL at the end. */
const char *skv_task_source_own(size_t i);

#endif
