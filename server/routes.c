/* The one table of endpoints. What is not `open` needs a key where keys are used. */
#include "routes.h"

#include <string.h>

static const server_route routes[] = {
    {"GET", "/", api_page, .open = true},
    {"GET", "/health", api_health, .open = true},
    {"GET", "/metrics", api_metrics, .open = false},
    {"GET", "/v1/models", api_models, .needs_model = true},
    {"GET", "/tokenizer_info", api_tokenizer_info, .needs_model = true},
    {"POST", "/tokenize", api_tokenize, .needs_model = true},
    {"POST", "/detokenize", api_detokenize, .needs_model = true},
    {"POST", "/apply-template", api_apply_template, .needs_model = true},
    {"POST", "/v1/completions", api_completions, .needs_model = true},
    {"POST", "/v1/chat/completions", api_chat, .needs_model = true},
};

const server_route *route_find(const char *method, const char *path, bool *other_method)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        const bool head = strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0;
        if (head || strcmp(routes[i].method, method) == 0) return &routes[i];
        *other_method = true;
    }
    return NULL;
}
