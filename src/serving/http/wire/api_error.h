/* Why a request is refused, and how clients are told; strings and numbers of the server's JSON. */
#ifndef SKV_SERVER_API_ERROR_H
#define SKV_SERVER_API_ERROR_H

#include <stdbool.h>
#include <time.h>

#include "base/buf.h"
#include "skv/error.h"

/*
 * Strings and numbers differ from those of common/json_out.h in two points that clients may have
 * come to rely on: every byte that is not UTF-8 becomes a U+FFFD of its own, and numbers have 9, 13
 * or 17 digits.
 */

void out_json(skv_buf *out, const char *text, size_t n);
/** Without quotes: for a string of several pieces, each of whole characters. */
void out_json_inside(skv_buf *out, const char *text, size_t n);
void out_json_str(skv_buf *out, const char *text); /* NULL: null */
/** Null for NaN and infinities. */
void out_number(skv_buf *out, double value);
/** A time in UTC as a JSON string: "2026-11-23T16:40:00Z", with so many digits of fractions. */
void out_time(skv_buf *out, const struct timespec *when, int digits);

/* How a request is refused: the shape of OpenAI's errors. */
typedef struct api_error {
    int status;
    const char *type; /* "invalid_request_error", ... */
    const char *code; /* NULL: none */
    char param[64];   /* the field; empty: none */
    char message[SKV_ERROR_TEXT_MAX];
    double retry_after_s; /* 0: not told */
    /* Of context_length_exceeded: the context, 0: another error, and the tokens of the prompt; of
     * one that was not read to its end, those that were. */
    size_t n_context, n_prompt;
    bool prompt_is_cut;
} api_error;

/** Fills an error. `param` may be NULL. Returns false. */
bool api_fail(api_error *error, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** Refuses the value of a field, with 400: "PARAM: " and the text. Returns false. */
bool api_refuse(api_error *error, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The word for a status in OpenAI's errors. */
const char *api_error_type(int status);
/** The same from the library's error. */
bool api_fail_status(api_error *error, skv_status status, const skv_error *err);

/* The static analyser sees one file at a time: it is told that these return false. */
#if defined(__clang_analyzer__) && !defined(SKV_API_FAIL_HOME)
#define api_fail(...) ((void)api_fail(__VA_ARGS__), false)
#define api_refuse(...) ((void)api_refuse(__VA_ARGS__), false)
#define api_fail_status(error, status, err) ((void)api_fail_status((error), (status), (err)), false)
#endif

/* How a dialect writes an error. */
typedef struct error_shape {
    void (*write)(skv_buf *out, const api_error *error, const char *request_id);
    const char *event_front, *event_back; /* around an error that ends a stream of events */
} error_shape;

/* {"error":{"message":...,"type":...}}: of every route that names no other. */
extern const error_shape errors_openai;

#endif
