/* The one table of endpoints. What is not `open` needs a key where keys are used. Each is described
 * in openapi.json. */
#include "routes.h"

#include <stdio.h>
#include <string.h>

static const server_route routes[] = {
    {"GET", "/", api_page, .open = true},
    {"GET", "/health", api_health, .open = true},
    {"GET", "/metrics", api_metrics, .open = false},
    {"GET", "/openapi.json", api_openapi, .open = false},
    {"GET", "/v1/models", api_models, .needs_model = true},
    {"GET", "/tokenizer_info", api_tokenizer_info, .needs_model = true},
    {"POST", "/tokenize", api_tokenize, .needs_model = true},
    {"POST", "/detokenize", api_detokenize, .needs_model = true},
    {"POST", "/apply-template", api_apply_template, .needs_model = true},
    {"POST", "/v1/completions", api_completions, .needs_model = true},
    {"POST", "/v1/chat/completions", api_chat, .needs_model = true},
    {"POST", "/v1/embeddings", api_embeddings, .needs_model = true},
    {"POST", "/v1/responses", api_responses, .needs_model = true},
    {"POST", "/v1/messages", api_messages, .needs_model = true, .messages_errors = true},
    {"POST", "/v1/messages/count_tokens", api_count_tokens, .needs_model = true,
     .messages_errors = true},
    {NULL, NULL, NULL, .open = false},
};

const server_route *route_find(const char *method, const char *path, bool *other_method)
{
    for (size_t i = 0; routes[i].path; i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        const bool head = strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0;
        if (head || strcmp(routes[i].method, method) == 0) return &routes[i];
        *other_method = true;
    }
    return NULL;
}

void route_methods(const char *path, char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; routes[i].path && n < room; i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        const bool get = strcmp(routes[i].method, "GET") == 0;
        const int n_more = snprintf(out + n, room - n, "%s%s%s", n > 0 ? ", " : "",
                                    routes[i].method, get ? ", HEAD" : "");
        if (n_more > 0) n += (size_t)n_more;
    }
}

const server_route *routes_all(void)
{
    return routes;
}
