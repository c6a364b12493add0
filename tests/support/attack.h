/*
 * Runs hostile input on a thread with a small stack and measures what it took: processor time,
 * stack, memory of the whole process. The limits are a request's own.
 *
 * CMake links attack.c to every test that includes this header.
 */
#ifndef SKV_TESTS_ATTACK_H
#define SKV_TESTS_ATTACK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "skv/grammar.h"

/* A quarter of a connection's stack. */
#define ATTACK_STACK_BYTES ((size_t)128 << 10)

typedef struct attack_use {
    double cpu_s;
    size_t stack_bytes; /* the deepest that the stack was */
    size_t grown_bytes; /* how far the resident size rose above what it was before; 0: not known */
} attack_use;

/** Calls run(arg) on a thread of its own. */
void attack_run(void (*run)(void *arg), void *arg, attack_use *use);
/** Fails the test unless `use` is within half of the stack, a second, and max_bytes with a tenth
 * and what the allocator keeps; the sanitizers are given more time. */
void attack_check_use(const char *name, const attack_use *use, size_t max_bytes);

/** Compiles a grammar so, checks what it used and that its budget is empty again, and returns the
 * status with its error. */
skv_status attack_compile(const char *name, skv_grammar_kind kind, const skv_buf *text,
                          skv_error *err);
/** The same, and fails the test unless the text compiles. */
void attack_fits(const char *name, skv_grammar_kind kind, const skv_buf *text);
/** The same, and fails the test unless it is refused as SKV_RANGE, its error saying `words`. */
void attack_refused(const char *name, skv_grammar_kind kind, const skv_buf *text,
                    const char *words);

/** A buffer with room for any text of an attack. */
skv_buf attack_text(void);
/** Appends `unit` n times with `between` between; every '@' in it becomes the index. */
void attack_repeat(skv_buf *text, const char *unit, const char *between, size_t n);
/** Appends `pattern`, with " for ' and `unit` n times for <n:unit>; <n,:unit> has commas between
 * them. */
void attack_expand(skv_buf *text, const char *pattern);

#endif
