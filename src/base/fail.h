/*
 * How a library function fails: record one line, return the status.
 *
 *     SKV_REQUIRE(n < max, err, SKV_RANGE, "%s: head_dim %zu, at most %zu", path, n, max);
 *     SKV_TRY(skv_thing_open(path, &thing, err));
 *
 * Both macros return from the function, so a function that owns something uses
 * `if ((status = ...) != SKV_OK) goto done;` instead.
 */
#ifndef SKV_BASE_FAIL_H
#define SKV_BASE_FAIL_H

#include "skv/error.h"

#define SKV_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define SKV_MUST_CHECK __attribute__((warn_unused_result))

/**
 * Keeps the locals of a function out of its caller's frame. A function that recurses would take
 * the locals of everything that the compiler inlines into it at each level, and the sanitizers
 * let none of them share room.
 */
#define SKV_OWN_FRAME __attribute__((noinline))

/** Fills `err` (may be NULL) and returns `status`. Control characters become '?'. */
skv_status skv_fail(skv_error *err, skv_status status, const char *format, ...) SKV_PRINTF(3, 4);

/** Puts "prefix: " before the line already in `err`, cutting at its end; returns its status. */
skv_status skv_fail_within(skv_error *err, skv_status status, const char *prefix);

/* The static analyser sees one file at a time. These declarations tell it that both functions
 * return their argument; otherwise it would follow paths on which a failure counts as SKV_OK. */
#if defined(__clang_analyzer__) && !defined(SKV_FAIL_HOME)
#define skv_fail(err, status, ...) ((void)skv_fail((err), (status), __VA_ARGS__), (status))
#define skv_fail_within(err, status, prefix) (skv_fail_within((err), (status), (prefix)), (status))
#endif

#define SKV_REQUIRE(cond, err, status, ...)                                                        \
    do {                                                                                           \
        if (!(cond)) return skv_fail((err), (status), __VA_ARGS__);                                \
    } while (0)

#define SKV_TRY(expr)                                                                              \
    do {                                                                                           \
        skv_status try_status_ = (expr);                                                           \
        if (try_status_ != SKV_OK) return try_status_;                                             \
    } while (0)

#endif
