/* The one table of endpoints. A route that is not `open` needs a key if keys are used. Each is
 * described in openapi.json. */
#include "routes.h"

#include <stdio.h>
#include <string.h>

#define ANSWERS(path, name) {"POST", path, NULL, .needs_model = true, .dialect = &dialect_##name},

static const server_route routes[] = {
    {"GET", "/", api_page, .open = true},
    {"GET", "/health", api_health, .open = true, .role = ROUTE_BOTH, .probe = true},
    {"GET", "/metrics", api_metrics, .role = ROUTE_BOTH, .probe = true},
    {"GET", "/openapi.json", api_openapi, .role = ROUTE_BOTH},
    {"POST", "/read", api_read, .needs_model = true, .role = ROUTE_READS},
    {"GET", "/v1/models", api_models, .needs_model = true, .lists = true},
    {"GET", "/v1/models/{model}", api_model, .needs_model = true, .lists = true},
    {"GET", "/tokenizer_info", api_tokenizer_info, .needs_model = true},
    {"POST", "/tokenize", api_tokenize, .needs_model = true},
    {"POST", "/detokenize", api_detokenize, .needs_model = true},
    {"POST", "/apply-template", api_apply_template, .needs_model = true},
    {"POST", "/v1/chat/completions/input_tokens", api_count_chat, .needs_model = true},
    {"POST", "/v1/embeddings", api_embeddings, .needs_model = true},
    {"POST", "/v1/rerank", api_rerank, .needs_model = true},
    {"POST", "/v1/reranking", api_rerank, .needs_model = true},
    {"POST", "/v1/responses/input_tokens", api_count_responses, .needs_model = true},
    {"POST", "/v1/messages/count_tokens", api_count_messages, .needs_model = true,
     .errors = &errors_messages},
    {"POST", "/embedding", api_embedding, .needs_model = true},
    {"GET", "/props", api_props, .needs_model = true},
    {"GET", "/slots", api_slots, .needs_model = true},
    {"POST", "/slots/{slot}", api_slot, .needs_model = true},
    {"GET", "/lora-adapters", api_adapters, .needs_model = true},
    {"GET", "/api/version", api_ollama_version, .open = false},
    {"GET", "/api/tags", api_ollama_tags, .needs_model = true, .lists = true,
     .errors = &errors_ollama},
    {"GET", "/api/ps", api_ollama_ps, .needs_model = true, .lists = true, .errors = &errors_ollama},
    {"POST", "/api/show", api_ollama_show, .needs_model = true, .errors = &errors_ollama},
    {"POST", "/api/embed", api_ollama_embed, .needs_model = true, .errors = &errors_ollama},
    {"POST", "/api/embeddings", api_ollama_embedding, .needs_model = true,
     .errors = &errors_ollama},
    {"POST", "/completions", NULL, .needs_model = true, .dialect = &dialect_completion},
    SKV_DIALECT_LIST(ANSWERS){NULL, NULL, NULL, .open = false},
};

/* Clients whose base address has the version, and others, find everything. Only completions are
 * llama-server's without it. */
static const char *without_version(const char *path)
{
    const bool versioned = strncmp(path, "/v1/", 4) == 0 && strcmp(path, "/v1/completions") != 0;
    return versioned ? path + 3 : path;
}

/* "{model}" at the end of a route's path is whatever stands there. */
static bool matches(const server_route *route, const char *path)
{
    const char *pattern = without_version(route->path);
    path = without_version(path);
    const size_t n = strcspn(pattern, "{");
    return strncmp(pattern, path, n) == 0 && (pattern[n] != 0) == (path[n] != 0);
}

const server_route *route_find(const char *method, const char *path, const server_route **other)
{
    for (size_t i = 0; routes[i].path; i++) {
        if (!matches(&routes[i], path)) continue;
        const bool head = strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0;
        if (head || strcmp(routes[i].method, method) == 0) return &routes[i];
        *other = &routes[i];
    }
    return NULL;
}

void route_methods(const char *path, char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; routes[i].path && n < room; i++) {
        if (!matches(&routes[i], path)) continue;
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
