/*
 * Running one hostile input as a request would be: on a thread with a small stack, within limits
 * on processor time and memory, and then everything that may be done with what was made of it.
 */
#ifndef SKV_TESTS_HOSTILE_RUN_H
#define SKV_TESTS_HOSTILE_RUN_H

#include "hostile.h"
#include "skv/budget.h"

enum { HOSTILE_FAULT_MAX = 600 };

typedef struct hostile_limits {
    uint64_t ns;       /* processor time of a compilation, a rendering, a whole mask */
    uint64_t piece_ns; /* of one piece of a mask or of a token */
    size_t bytes;      /* held at one time, by the whole case */
    size_t stack;      /* bytes */
} hostile_limits;

/** 1 s, 100 ms, 256 MB, 128 KiB; under a sanitizer `slower` and `deeper` times that. */
hostile_limits hostile_limits_default(void);
/** How much more a sanitizer may take of time and of the stack; 1 without one. */
unsigned hostile_slower(void);
unsigned hostile_deeper(void);

typedef struct hostile_result {
    skv_status status; /* of the compilation or rendering */
    char message[SKV_ERROR_TEXT_MAX];
    uint64_t ns, mask_ns, piece_ns; /* processor time; the longest mask, the longest piece */
    size_t bytes, stack;            /* the most */
    size_t n_tokens;                /* accepted in the walk */
    char fault[HOSTILE_FAULT_MAX];  /* "": all is well */
} hostile_result;

/** What is shared by all cases: a vocabulary and a stack. */
typedef struct hostile_bench hostile_bench;
hostile_bench *hostile_bench_create(const hostile_limits *limits);
void hostile_bench_free(hostile_bench *bench);

/** Runs it; does not return where the process has to end: then *out has the fault. out is written
 * as the case goes on, so memory that is shared with another process tells what a dead one did. */
void hostile_run(hostile_bench *bench, const hostile_case *c, hostile_result *out);

/** Runs four things that the limits have to catch; NULL, or the name of one that they did not. */
const char *hostile_check_limits(hostile_bench *bench);

/* ---- parts of it, by kind (hostile_walk.c, hostile_history.c) ---- */

struct skv_token_table;

typedef struct hostile_job {
    const hostile_case *c;
    const hostile_limits *limits;
    const struct skv_token_table *table;
    hostile_result *out;
} hostile_job;

/** Keeps the first fault. */
void hostile_fault(hostile_job *job, const char *format, ...) SKV_PRINTF(2, 3);
/** Processor time of this thread. */
uint64_t hostile_cpu_ns(void);
/** Compiles the text of a grammar and walks through what it allows. */
void hostile_run_grammar(hostile_job *job);
/** Renders a template. */
void hostile_run_template(hostile_job *job);
/** Reads a history as the server does, and renders it. */
void hostile_run_history(hostile_job *job);
/** A status that a request may have: the client's fault, with one line that says what. */
void hostile_judge(hostile_job *job, skv_status status, const skv_error *err);

#endif
