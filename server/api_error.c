/* Errors of the interface: see api_error.h. */
#define SKV_API_FAIL_HOME
#include "api_error.h"

#include <stdarg.h>
#include <stdio.h>

static const char *type_of(int status)
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
    *error = (api_error){.status = status, .type = type_of(status)};
    if (param != NULL) (void)snprintf(error->param, sizeof error->param, "%s", param);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
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

void api_error_write(out_text *out, const api_error *error)
{
    out_str(out, "{\"error\":{\"message\":");
    out_json_str(out, error->message);
    out_str(out, ",\"type\":");
    out_json_str(out, error->type);
    out_str(out, ",\"param\":");
    out_json_str(out, error->param[0] != 0 ? error->param : NULL);
    out_str(out, ",\"code\":");
    out_json_str(out, error->code);
    out_str(out, "}}");
}

static const char *messages_type_of(int status)
{
    switch (status) {
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : type_of(status);
    }
}

void api_error_write_messages(out_text *out, const api_error *error, const char *request_id)
{
    out_format(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
               messages_type_of(error->status));
    out_json_str(out, error->message);
    out_format(out, "},\"request_id\":\"%s\"}", request_id);
}
