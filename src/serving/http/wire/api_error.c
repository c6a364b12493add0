/* Errors of the interface, and its strings and numbers: see api_error.h. */
#define SKV_API_FAIL_HOME
#include "wire/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "common/json_out.h"
#include "wire/server_limits.h"

void out_json_inside(skv_buf *out, const char *text, size_t n)
{
    size_t bad;
    for (; !skv_utf8_valid(text, n, &bad); text += bad + 1, n -= bad + 1) {
        skv_buf_json_text(out, text, bad);
        skv_buf_text(out, "\xef\xbf\xbd");
    }
    skv_buf_json_text(out, text, n);
}

void out_json(skv_buf *out, const char *text, size_t n)
{
    skv_buf_byte(out, '"');
    out_json_inside(out, text, n);
    skv_buf_byte(out, '"');
}

void out_json_str(skv_buf *out, const char *text)
{
    if (text) {
        out_json(out, text, strlen(text));
    } else {
        skv_buf_text(out, "null");
    }
}

void out_number(skv_buf *out, double value)
{
    char text[SKV_JSON_NUMBER_MAX];
    skv_json_number_text(value, 9, 4, text);
    skv_buf_text(out, text);
}

void out_time(skv_buf *out, const struct timespec *when, int digits)
{
    struct tm parts = {.tm_mday = 1};
    char second[32] = "", fraction[16];
    (void)gmtime_r(&when->tv_sec, &parts);
    (void)strftime(second, sizeof second, "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(fraction, sizeof fraction, ".%09ld", when->tv_nsec);
    skv_buf_printf(out, "\"%s%.*sZ\"", second, digits > 0 ? digits + 1 : 0, fraction);
}

const char *api_error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

bool api_fail(api_error *error, int status, const char *param, const char *format, ...)
{
    va_list args;
    *error = (api_error){.status = status,
                         .type = api_error_type(status),
                         .retry_after_s = status == 503 ? LIMIT_MEMORY_RETRY_SECONDS : 0};
    (void)snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
    (void)vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

bool api_refuse(api_error *error, const char *param, const char *format, ...)
{
    char text[SKV_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return api_fail(error, 400, param, "%s: %s", param, text);
}

bool api_fail_status(api_error *error, skv_status status, const skv_error *err)
{
    int code = 500;
    switch (status) {
    case SKV_ARGUMENT:
    case SKV_RANGE:
    case SKV_FORMAT:
    case SKV_UNSUPPORTED: code = 400; break;
    case SKV_FULL: code = 429; break;
    case SKV_CANCELLED:
    case SKV_MEMORY: code = 503; break;
    default: break;
    }
    return api_fail(error, code, NULL, "%s", err->text);
}

static void write_openai(skv_buf *out, const api_error *error, const char *request_id)
{
    (void)request_id;
    skv_buf_text(out, "{\"error\":{\"message\":");
    out_json_str(out, error->message);
    skv_buf_text(out, ",\"type\":");
    out_json_str(out, error->type);
    skv_buf_text(out, ",\"param\":");
    out_json_str(out, error->param[0] != 0 ? error->param : NULL);
    skv_buf_text(out, ",\"code\":");
    out_json_str(out, error->code);
    if (error->n_context > 0) { /* llama-server's names */
        skv_buf_printf(out, ",\"n_prompt_tokens\":%zu,\"n_ctx\":%zu,\"prompt_is_cut\":%s",
                       error->n_prompt, error->n_context, error->prompt_is_cut ? "true" : "false");
    }
    skv_buf_text(out, "}}");
}

const error_shape errors_openai = {
    .write = write_openai, .event_front = "data: ", .event_back = "\n\ndata: [DONE]\n\n"};
