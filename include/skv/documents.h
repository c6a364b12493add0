/**
 * Training documents: generated texts that train the use of a long context, with questions whose
 * answers can be checked exactly. Every document depends only on the options and its index, so any
 * worker can generate any of them in any order.
 *
 * Keys and values are split into two sets by the hash of the word. The keys and values in held-out
 * questions appear in no training document.
 */
#ifndef SKV_DOCUMENTS_H
#define SKV_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

/* One list makes the tasks and their names. */
#define SKV_DOC_TASK_LIST(X)                                                                       \
    X(TOKENS, "tokens")       /* plain text: random words of the vocabulary that recur */          \
    X(REPEAT, "repeat")       /* plain text: random segments that recur */                         \
    X(COPY, "copy")           /* passages, to be repeated given their number */                    \
    X(EDIT, "edit")           /* passages, to be repeated with changes */                          \
    X(LINES, "lines")         /* register lines, as in LongEval */                                 \
    X(KV, "kv")               /* key-value pairs in several notations */                           \
    X(NEEDLE, "needle")       /* facts between sentences of prose */                               \
    X(VARIABLES, "variables") /* chains of assignments */                                          \
    X(HOPS, "hops")           /* facts that must be combined */                                    \
    X(TABLE, "table")         /* counting, totals and extremes over a table */                     \
    X(LABELS, "labels")       /* labels learnt from examples */                                    \
    X(REPORT, "report")       /* annual reports of companies */                                    \
    X(LOG, "log")             /* logs of services */

typedef enum skv_doc_task {
#define SKV_DOC_TASK_ENUM(code, name) SKV_DOC_##code,
    SKV_DOC_TASK_LIST(SKV_DOC_TASK_ENUM)
#undef SKV_DOC_TASK_ENUM
        SKV_DOC_TASK_COUNT
} skv_doc_task;

/** Returns the name of a task, or "unknown". */
SKV_API const char *skv_doc_task_name(skv_doc_task task);
/** Returns true if the task has questions. Only such tasks can be evaluated. */
SKV_API bool skv_doc_task_asks(skv_doc_task task);

typedef struct skv_documents_options {
    uint64_t seed;
    /* The mixture: a stage of the curriculum ("stage:copy", "stage:lookup", "stage:all") or
     * tasks with weights, "lines=2,kv,hops=0.5". NULL: "stage:all". */
    const char *tasks;
    size_t tokens_min, tokens_max; /* length of a document, log-uniform */
    size_t questions_max; /* a document has 1 to this many questions, as its length allows */
    bool held_out;        /* use the keys and values of the evaluation set */
    const char *vocab;    /* model whose tokenizer counts tokens; NULL: an estimate */
    const char *prose;    /* a text file for the task "needle"; NULL: generated sentences */
} skv_documents_options;

/** Returns the defaults: seed 0, all tasks, 128 to 1024 tokens, at most 24 questions. */
SKV_API skv_documents_options skv_documents_default(void);

typedef struct skv_documents skv_documents;
SKV_CHECKED skv_status skv_documents_open(const skv_documents_options *options, skv_documents **out,
                                          skv_error *err);
SKV_API void skv_documents_close(skv_documents *documents);

/**
 * Writes a document as one line of JSON, to be freed with skv_text_free. For training it is
 * {"task", "messages": [{"role", "content"} ...]}, or {"task", "segments": [{"text", "loss"} ...]}
 * for plain text. With `evaluation` it is {"prompt", "answer", "task", "length", "depth"} with the
 * first question only; length is the prompt's in tokens, depth the relative position of the answer
 * in the context, 0 to 1. The tasks "tokens" and "repeat" have no questions, so evaluation fails
 * with SKV_ARGUMENT. Threads may share `documents`.
 */
SKV_CHECKED skv_status skv_documents_json(const skv_documents *documents, uint64_t index,
                                          bool evaluation, char **line, size_t *n, skv_error *err);

SKV_END

#endif
