/**
 * Training documents: generated texts that make a model use a long context, with questions whose
 * answers can be checked exactly. Every document is a function of the options and its index, so
 * that any worker can make any of them, in any order.
 *
 * Two sets of keys and values never meet: what the held-out documents ask for appears in no
 * training document. The hash of a word decides which set it belongs to.
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
    X(TOKENS, "tokens")       /* plain text: random words of the vocabulary that come again */     \
    X(REPEAT, "repeat")       /* plain text: random segments that come again */                    \
    X(COPY, "copy")           /* passages, to be repeated by their number */                       \
    X(EDIT, "edit")           /* the same with changes */                                          \
    X(LINES, "lines")         /* register lines, as LongEval has them */                           \
    X(KV, "kv")               /* key-value pairs in several notations */                           \
    X(NEEDLE, "needle")       /* facts between sentences of prose */                               \
    X(VARIABLES, "variables") /* chains of assignments */                                          \
    X(HOPS, "hops")           /* facts that must be put together */                                \
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

/** The name of a task, "unknown" for anything else. */
SKV_API const char *skv_doc_task_name(skv_doc_task task);
/** Whether its documents ask questions: only those can be evaluated. */
SKV_API bool skv_doc_task_asks(skv_doc_task task);

typedef struct skv_documents_options {
    uint64_t seed;
    /* The mixture: a stage of the curriculum ("stage:copy", "stage:lookup", "stage:all") or
     * tasks with weights, "lines=2,kv,hops=0.5". NULL: "stage:all". */
    const char *tasks;
    size_t tokens_min, tokens_max; /* length of a document, drawn evenly on a logarithmic scale */
    size_t questions_max;          /* a document has 1 to this many, as its length allows */
    bool held_out;                 /* keys and values of the evaluation instead of the training */
    const char *vocab;             /* folder or file whose tokenizer counts; NULL: an estimate */
    const char *prose;             /* a text file for the task "needle"; NULL: made-up sentences */
} skv_documents_options;

/** Seed 0, all tasks, 128 to 1024 tokens, at most 24 questions. */
SKV_API skv_documents_options skv_documents_default(void);

typedef struct skv_documents skv_documents;
SKV_CHECKED skv_status skv_documents_open(const skv_documents_options *options, skv_documents **out,
                                          skv_error *err);
SKV_API void skv_documents_close(skv_documents *documents);

/**
 * One line of JSON on the heap (skv_text_free). For training: {"task", "messages": [{"role",
 * "content"} ...]}, or {"task", "segments": [{"text", "loss"} ...]} of a plain text. With
 * `evaluation`: {"prompt", "answer", "task", "length", "depth"}, the first question alone; length
 * counts the prompt's tokens, depth is where in the context the answer stands, 0 to 1. The tasks
 * "tokens" and "repeat" have no questions, so they cannot be evaluated: SKV_ARGUMENT.
 * Threads may share `documents`.
 */
SKV_CHECKED skv_status skv_documents_json(const skv_documents *documents, uint64_t index,
                                          bool evaluation, char **line, size_t *n, skv_error *err);

SKV_END

#endif
